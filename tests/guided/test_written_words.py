"""Words and values as they are written: what is open, what is unsaid, and which ids there are."""

from dataclasses import dataclass
from typing import Any

import pytest

from toolkit.guided.holding import (
    describe_shape,
    has_values_alike,
    list_codes,
    list_open_words,
    list_unsaid,
    split_words,
    strike_out,
)

SAID: list[tuple[str, Any]] = [
    ("Do I need a coat in Oslo?", "Oslo"),
    ("do i need a coat in oslo?", "Oslo"),
    ("the order A-1042.", "A-1042"),
    ("Überweise 1 200 Euro", 1200),
    ("1.250,50 euros", 1250.5),
    ("1,250 people", 1250),
    ("bei -3 Grad", -3),
    ("٨٠ في المئة", 80),
    ("at 7:30", "7:30"),
    ("from 2026-01-05 on", "2026-01-05"),
    ("Add 3 and 4", [3, 4]),
    ("to 5 Main Street in Boston", {"street": "5 Main Street", "city": "Boston"}),
    ("北京的天气怎么样?", "北京"),
    ('{"customer_id":417,"mail":"ada@x.example"}', 417),
    ('{"customer_id":417,"mail":"ada@x.example"}', "ada@x.example"),
    ("anything", None),
    ("anything", ""),
]
UNSAID: list[tuple[str, Any]] = [
    ("Do I need a coat?", "Oslo"),
    ("the order A-1042", 1042.5),
    ("the order A-1042", "A-104"),
    ("two grand", 2000),
    ("half of 80", 40),
    ("on May 3, 2026", "2026-05-03"),
    ("Add 3 and 4", [3, 4, 5]),
    ("New things", "New York"),
    ("Какая погода в Москве?", "Лондон"),
    ("北京的天气怎么样?", "上海"),
    ("Is it urgent?", "high"),
]


@pytest.mark.parametrize(("text", "value"), SAID)
def test_a_value_that_is_written_somewhere_is_said(text: str, value: Any) -> None:
    assert list_unsaid({"value": value}, text) == []


@pytest.mark.parametrize(("text", "value"), UNSAID)
def test_a_value_that_is_written_nowhere_is_unsaid(text: str, value: Any) -> None:
    assert list_unsaid({"other": 3, "value": value}, f"3: {text}") == ["value"]


def test_a_boolean_is_said_by_the_name_of_its_parameter() -> None:
    assert list_unsaid({"is_urgent": True}, "It is urgent.") == []
    assert list_unsaid({"is_urgent": True}, "It is late.") == ["is_urgent"]


@dataclass
class Open:
    """A question, the values and names of calls, and the words that are left."""

    question: str
    values: list[Any]
    names: str
    words: list[str]


OPEN = {
    "all is accounted for": Open("What is the weather in Oslo?", ["Oslo"], "get_weather", []),
    "another city follows": Open("weather in oslo and rome", ["oslo"], "get_weather", ["and", "rome"]),
    "a short word follows": Open("add tea and rye", ["tea"], "add_item", ["and", "rye"]),
    "a name stands before": Open("Is Rom or Oslo warmer?", ["Oslo"], "get_weather", ["rom", "warmer"]),
    "a word is about another tool": Open("Get the balance of Ada", ["Ada"], "find_customer", ["balance"]),
    "a plural is the same word": Open("List the orders of Ada", ["Ada"], "list_order", []),
    "another language": Open("Wie ist das Wetter in Oslo?", ["Oslo"], "get_weather", ["wetter"]),
    "a script without spaces": Open("北京和上海的天气怎么样", ["北京"], "get_weather", ["和上海的天气怎么样"]),
    "a number": Open("3 more of A-7", ["A-7"], "order", ["3", "more"]),
}


@pytest.mark.parametrize("case", OPEN.values(), ids=OPEN.keys())
def test_words_that_no_call_accounts_for_are_open(case: Open) -> None:
    assert list_open_words(case.question, case.values, split_words(case.names)) == case.words


@pytest.mark.parametrize(
    ("question", "values", "has"),
    [
        ("What is the weather in Oslo and Rome?", ["Oslo"], True),
        ("What is the weather in Oslo?", ["Oslo"], False),
        ("Close A-7 and A-12.", ["A-7"], True),
        ("Close A-7 for 3 days.", ["A-7"], False),
        ("bread, milk", ["bread"], True),
        ("bread tomorrow", ["bread"], False),
        ("a table for two on May 3", [2], False),
    ],
)
def test_more_that_is_written_alike_is_found(question: str, values: list[Any], has: bool) -> None:
    assert has_values_alike(question, values) is has


def test_ids_are_found_as_they_are_written_or_in_one_case() -> None:
    text = 'Where are a-7, B-12 and IC 510? {"id":"C-9","url":"https://x.example/y?z=1"}'
    assert list_codes(text, lambda code: describe_shape(code) == "A-9") == ["A-7", "B-12", "C-9"]
    assert list_codes(text, lambda code: code == "IC 510") == ["IC 510"]
    assert list_codes(text, lambda code: code.startswith("https:")) == ["https://x.example/y?z=1"]


def test_of_very_many_ids_none_is_offered() -> None:
    assert list_codes(" ".join(f"A-{number}" for number in range(1_000)), lambda _: True) == []


def test_used_values_are_struck_out_whole() -> None:
    assert strike_out("Add 3 to 13, and 3 again", [3.0]) == "Add ... to 13, and ... again"
    assert strike_out("北京和上海", ["北京"]) == "...和上海"


def test_a_long_document_is_read_by_counted_candidates() -> None:
    tried: list[str] = []

    def fits(code: str) -> bool:
        tried.append(code)
        return False

    assert list_codes("Anna Smith paid 12.50 to the shop. " * 3_000, fits) == []
    assert len(tried) < 20
