import re
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from toolkit.errors import ConfigurationError, ToolUsageLimitExceededError
from toolkit.tools.limits import UsageCounter, limit_text

Keep = Literal["head", "tail", "both"]


def test_a_counter_gives_as_many_uses_as_there_are() -> None:
    counter = UsageCounter(2)
    assert [counter.claim() for _ in range(4)] == [True, True, False, False]
    assert counter.current == 2
    assert counter.is_exhausted


def test_a_counter_without_a_maximum_is_never_exhausted() -> None:
    counter = UsageCounter(None)
    assert all(counter.claim() for _ in range(100))
    assert counter.current == 100
    assert not counter.is_exhausted


def test_a_counter_can_be_reset() -> None:
    counter = UsageCounter(1)
    counter.require("search")
    with pytest.raises(ToolUsageLimitExceededError, match="'search' has reached its usage limit of 1"):
        counter.require("search")
    counter.reset()
    assert counter.current == 0
    counter.require("search")


def test_a_maximum_of_none_at_all_is_a_maximum() -> None:
    assert not UsageCounter(0).claim()
    with pytest.raises(ConfigurationError, match="can't be used -1 times"):
        UsageCounter(-1)


def test_threads_never_claim_more_than_there_is() -> None:
    counter = UsageCounter(500)
    with ThreadPoolExecutor(16) as pool:
        claims = [pool.submit(counter.claim) for _ in range(2000)]
    won = sum(claim.result() for claim in claims)
    assert won == counter.current == 500


def test_a_short_text_is_the_same_object() -> None:
    text = "x" * 10
    assert limit_text(text, 10) is text


def test_the_cut_says_how_much_is_missing_and_how_to_get_it() -> None:
    text = "a" * 50 + "b" * 50
    notice = "[... 90 of 100 characters are left out here; ask for a smaller part to see them ...]"
    assert limit_text(text, 10) == f"aaaaa\n{notice}\nbbbbb"
    assert limit_text(text, 10, "head") == f"aaaaaaaaaa\n{notice}"
    assert limit_text(text, 10, "tail") == f"{notice}\nbbbbbbbbbb"
    assert "; call read_result with id 'r1' to read them ...]" in limit_text(text, 10, reference="r1")


def test_a_limit_below_one_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="limited to 0 characters"):
        limit_text("abc", 0)


@pytest.mark.parametrize(
    "character",
    [
        "e\u0301",
        "\U0001f44d\U0001f3fd",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f",
        "\u2764\ufe0f",
        "\u0928\u093f",
        "\u1112\u1161\u11ab",
        "\ud83d\ude00",
        "\r\n",
    ],
)
def test_what_a_reader_sees_as_one_character_is_never_split(character: str) -> None:
    text = character * 60
    for size in range(1, 60):
        for keep in ("head", "tail", "both"):
            head, tail, _ = _parts(limit_text(text, size, keep))
            assert len(head) % len(character) == 0
            assert head == character * (len(head) // len(character))
            assert tail == character * (len(tail) // len(character))


def test_endless_marks_are_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 10_000
    head, _, cut = _parts(limit_text(text, 5000, "head"))
    assert len(head) == 5000
    assert cut == 5001


_NOTICE = re.compile(r"\[\.\.\. (\d+) of (\d+) characters are left out here; [^\[\]]* \.\.\.\]")


def _parts(limited: str) -> tuple[str, str, int]:
    found = _NOTICE.search(limited)
    assert found is not None
    head = limited[: found.start()]
    tail = limited[found.end() :]
    return head.removesuffix("\n"), tail.removeprefix("\n"), int(found[1])


_texts = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["a", "\n", "e\u0301", "\U0001f1e9", "\U0001f468\u200d", "\U0001f3fd", "\ud83d", "\ude00"]),
        max_size=60,
    ).map("".join),
)


@given(_texts, st.integers(1, 40), st.sampled_from(["head", "tail", "both"]), st.none() | st.text("abc", min_size=1))
def test_a_limited_text_is_whole_or_a_start_and_an_end_with_the_rest_counted(
    text: str, max_chars: int, keep: Keep, reference: str | None
) -> None:
    limited = limit_text(text, max_chars, keep, reference=reference)
    if len(text) <= max_chars:
        assert limited is text
        return
    assert len(limited) <= max_chars + 160 + len(reference or "")
    head, tail, cut = _parts(limited)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + cut + len(tail) == len(text)
    assert cut >= len(text) - max_chars
    if keep != "both":
        assert not (tail if keep == "head" else head)
