"""A text that is too long is cut between characters, and says how much is missing."""

import re
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from toolkit.calls.output import limit_text
from toolkit.errors import ConfigurationError

Keep = Literal["head", "tail", "both"]


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
