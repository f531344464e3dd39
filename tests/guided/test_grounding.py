"""What was said and what was made up."""

from typing import Any

import pytest

from toolkit.guided.grounding import Ground
from toolkit.guided.said_values import has_value, hold_to_said_values, list_spans
from toolkit.guided.spoken_numbers import list_numbers, list_plain_numbers

SAID: list[tuple[str, Any]] = [
    ("Do I need a coat in Oslo?", "Oslo"),
    ("Do I need a coat in oslo?", "Oslo"),
    ("Ada Lovelace's number", "Ada Lovelace"),
    ("Two tickets, please.", 2),
    ("a hundred and twenty euros", 120),
    ("twenty-five percent", 25),
    ("40 percent", 40),
    ("1,250 people", 1250),
    ("It was -3 degrees.", -3),
    ("Wake me at 7:30.", 7),
    ("Wake me at 7:30.", "07:30"),
    ("at 5 pm", 17),
    ("half an hour", 30),
    ("in two weeks", 14),
    ("a quarter past", 0.25),
    ("the order A-1042", "A-1042"),
    ("from 2026-01-05 on", "2026-01-05"),
    ("on May 3, 2026", "2026-05-03"),
    ("on the 3rd of May", "2026-05-03"),
    ("on 3.5.2026", "2026-05-03"),
    ("tomorrow", "2026-11-23"),
    ("next Friday", "2026-11-27"),
    ("Add 3 and 4", [3, 4]),
    ("to 5 Main Street in Boston", {"street": "5 Main Street", "city": "Boston"}),
    ("Remind me to water the plants", "Water the plants"),
    ("booked for cleaning windows", "clean the windows"),
    ("Погода в Москве", "Москве"),
]
MADE_UP: list[tuple[str, Any]] = [
    ("Do I need a coat?", "Oslo"),
    ("Tell me a joke", 7),
    ("the order A-1042", 1042),
    ("the order A-1042", "A-1043"),
    ("the order A-1042", "A-104"),
    ("from 2026-01-05 on", "2026-01-06"),
    ("What is new?", "2026-05-03"),
    ("Add 3 and 4", [3, 4, 5]),
    ("Add them up", []),
    ("New things", "New York"),
    ("anything", ""),
    ("anything", "the"),
    ("in Boston", {"street": "5 Main Street", "city": "Boston"}),
]


@pytest.mark.parametrize(("text", "value"), SAID)
def test_what_was_said_has_ground(text: str, value: object) -> None:
    assert Ground(text).holds(value)


@pytest.mark.parametrize(("text", "value"), MADE_UP)
def test_what_was_made_up_has_none(text: str, value: object) -> None:
    assert not Ground(text).holds(value)


def test_choices_and_nothing_need_no_ground() -> None:
    assert Ground("").holds(True)
    assert Ground("").holds(None)


def test_items_that_were_not_said_are_left_out() -> None:
    assert Ground("3 and 4").without_ungrounded([3, 4, 5]) == [3, 4]
    assert Ground("3 and 4").without_ungrounded("text") == "text"


def test_numbers_are_read_as_people_say_them() -> None:
    text = "Set it to 20, for two hundred and five people, order A-17, on 2026-01-05"
    assert list(list_plain_numbers(text)) == [20, 205]
    assert {60.0, 3600.0, 0.5} <= set(list_numbers("half an hour"))


def test_runs_of_words_neither_begin_nor_end_with_words_that_say_nothing() -> None:
    spans = list(list_spans("What is the weather in New York?"))
    assert "New York" in spans
    assert "weather in New York" in spans
    assert "the weather" in spans
    assert not any(span.startswith("in ") or span.endswith((" in", " the")) for span in spans)
    assert list(list_spans("... '...' , !")) == ["..."]


def test_a_quotation_is_one_value() -> None:
    assert next(list_spans("Translate 'where is my parcel' into French.")) == "where is my parcel"


@pytest.mark.parametrize(("text", "has"), [("Tell me a joke.", False), ("Who is Ann?", True), ("Add 3 and 4", True)])
def test_what_looks_like_a_value_is_known(text: str, has: bool) -> None:
    assert has_value(text) is has


def test_a_text_can_only_be_what_was_said() -> None:
    held = hold_to_said_values({"type": "string"}, "Find Ana Lopez.", "Ben Okafor is away")
    assert held is not None
    assert {"Ana Lopez", "Ben Okafor", "Ana"} <= set(held["enum"])
    assert hold_to_said_values({"type": "string"}, "Tell me a joke.", "") == {"type": "string"}


def test_a_number_can_only_be_what_was_said() -> None:
    held = hold_to_said_values({"type": "integer", "minimum": 5}, "Add 3, 7 and 1.5", "")
    assert held == {"enum": [7]}
    assert hold_to_said_values({"type": "integer"}, "Tell me a joke.", "") is None
    assert hold_to_said_values({"type": "integer"}, "in half an hour", "") == {"type": "integer"}


def test_an_id_has_the_shape_of_the_example_in_the_description() -> None:
    node = {"type": "string", "description": "The order, such as A-1000."}
    held = hold_to_said_values(node, "Where is A-1042 of Ana, in TR-20 or B-7?", "")
    assert held is not None
    assert held["enum"] == ["A-1042", "B-7"]
    assert hold_to_said_values(node, "Where is my order, Ana?", "") is None


def test_an_email_address_is_one() -> None:
    node = {"type": "array", "items": {"type": "string"}, "description": "The email addresses."}
    held = hold_to_said_values(node, "Write to ana@north.example about Lunch.", "")
    assert held is not None
    assert held["items"]["enum"] == ["ana@north.example"]
    assert hold_to_said_values(node, "Write to Ana.", "") is None
