"""What was said and what was made up."""

import time
from typing import Any

import pytest

from toolkit.guided.grounding import Ground
from toolkit.guided.languages import is_english
from toolkit.guided.result_text import flatten_json_text
from toolkit.guided.said_values import hold_to_said_values
from toolkit.guided.spans import has_name, has_quotation, has_value, list_spans
from toolkit.guided.spoken_numbers import list_numbers, list_plain_numbers
from toolkit.guided.spoken_times import list_times

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
    ("Какая погода в Москве?", "Москва"),
    ("北京的天气怎么样?", "北京"),
    ("50 euros into pounds", "EUR"),
    ("50 euros into pounds", "GBP"),
    ("The price of Tesla", "TSLA"),
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
    ("Какая погода в Москве?", "Лондон"),
    ("北京的天气怎么样?", "上海"),
    ("The price of Tesla", "ABC"),
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
    assert list_spans("Translate 'where is my parcel' into French.")[0] == "where is my parcel"


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
    assert hold_to_said_values({"type": "integer"}, "in half an hour", "", name="minutes") == {"enum": [30]}


@pytest.mark.parametrize(
    ("text", "about", "number"),
    [
        ("in two weeks", "days ahead", 14),
        ("in an hour and a half", "In how many minutes.", 90),
        ("a quarter of an hour", "minutes", 15),
        ("5 minutes", "seconds", 300),
        ("3 kg", "weight in grams", 3000),
        ("a dozen eggs", "count", 12),
        ("a fortnight", "days", 14),
        ("two and a half minutes", "seconds", 150),
        ("an hour and twenty minutes", "seconds", 4800),
        ("1 hour 5 min", "minutes", 65),
        ("three quarters of an hour", "minutes", 45),
        ("patient 310, half a gram", "milligrams", 500),
        ("twenty one and a half degrees", "degrees", 21.5),
        ("two litres", "ml", 2000),
    ],
)
def test_an_amount_is_known_in_the_unit_that_a_tool_wants(text: str, about: str, number: float) -> None:
    held = hold_to_said_values({"type": "number", "description": about}, text, "")
    assert held is not None
    assert number in held["enum"]
    assert Ground(text).holds(number)


def test_a_number_with_a_leading_zero_or_within_a_day_is_none() -> None:
    assert hold_to_said_values({"type": "integer"}, "zip code 02108", "") is None
    held = hold_to_said_values({"type": "integer"}, "2 seats on May 3, 2026", "")
    assert held == {"enum": [2]}


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("at 3 pm", ["15:00"]),
        ("at 9.30am", ["09:30"]),
        ("half past seven", ["07:30", "19:30"]),
        ("quarter to nine", ["08:45", "20:45"]),
        ("at noon", ["12:00"]),
        ("seven o'clock", ["07:00", "19:00"]),
        ("at 14:00", ["14:00"]),
        ("Add 3 and 4", []),
    ],
)
def test_times_are_read_as_people_say_them(text: str, times: list[str]) -> None:
    assert list(list_times(text)) == times
    held = hold_to_said_values({"type": "string", "description": "When, such as 14:00."}, text, "")
    assert held is not None
    assert held.get("enum", []) == times


def test_a_choice_is_left_to_the_model_where_the_request_names_none() -> None:
    node = {"type": "string", "enum": ["USD", "EUR", "GBP"]}
    held = hold_to_said_values(node, "What is that worth over there?", "It costs 150 USD")
    assert held is not None
    assert held["enum"] == ["USD", "EUR", "GBP"]


@pytest.mark.parametrize(
    ("text", "values", "named"),
    [
        ("What is that in euros?", ["USD", "EUR", "GBP"], ["EUR"]),
        ("for €20", ["USD", "EUR", "GBP"], ["EUR"]),
        ("on Saturday and Sunday", ["mon", "sat", "sun"], ["sat", "sun"]),
        ("each Mon", ["Monday", "Friday"], ["Monday"]),
    ],
)
def test_a_choice_is_named_by_its_other_form(text: str, values: list[str], named: list[str]) -> None:
    held = hold_to_said_values({"enum": values}, text, "")
    assert held is not None
    assert held["enum"] == named


def test_a_text_of_an_email_is_no_address() -> None:
    held = hold_to_said_values({"type": "string", "description": "The text of the email."}, "Tell Ana it is late", "")
    assert held is not None
    assert "Ana" in held["enum"]


def test_a_long_message_can_be_copied_whole() -> None:
    words = "the figures are ready and the meeting of the whole team moves to Friday afternoon"
    assert words in list(list_spans(f"Send Bob the message: {words}."))


def test_items_of_a_list_are_held_by_their_members() -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}
    held = hold_to_said_values({"type": "array", "items": item}, "Order 2 Pizzas and a Cola.", "")
    assert held is not None
    members = held["items"]["properties"]
    assert members["count"]["enum"] == [2, 1]
    assert members["name"] == {"type": "string"}
    assert Ground("two pizzas and a cola").holds([{"name": "pizza", "count": 2}, {"name": "cola", "count": 1}])


def test_a_calculation_is_composed_of_the_numbers_that_were_said() -> None:
    node = {"type": "string", "description": "An arithmetic expression."}
    assert hold_to_said_values(node, "Multiply 12 by 13 for Ana", "") == node
    assert Ground("Multiply 12 by 13").holds("12 * 13")
    assert not Ground("Multiply 12 by 13").holds("12 * 14")


@pytest.mark.parametrize(
    ("text", "value"), [("Wake me at half past six", "06:30"), ("an hour and a half", 5400), ("Какая погода", "погоду")]
)
def test_what_was_said_in_another_way_has_ground(text: str, value: object) -> None:
    assert Ground(text).holds(value)


def test_items_that_no_number_was_said_for_are_left_to_the_model() -> None:
    item = {"type": "object", "properties": {"count": {"type": "integer"}}}
    held = hold_to_said_values({"type": "array", "items": item}, "Wie ist das Wetter morgen in Köln?", "")
    assert held is not None
    assert held["items"]["properties"]["count"] == {"type": "integer"}


def test_a_script_without_spaces_is_not_cut_into_words() -> None:
    assert hold_to_said_values({"type": "string"}, "明天 5 点北京的天气怎么样?", "") == {"type": "string"}


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("What is the weather in Oslo?", True),
        ("Oslo", True),
        ("Wie ist das Wetter morgen in Oslo?", False),
        ("Quel temps fait-il demain à Paris ?", False),
        ("Какая погода в Москве?", False),
    ],
)
def test_english_is_told_from_other_languages(text: str, is_so: bool) -> None:
    assert is_english(text) is is_so


def test_a_result_that_is_json_is_read_by_its_values() -> None:
    text = flatten_json_text('{"customer_id":417,"mail":"ada@x.example","tags":["new",null]}')
    assert text == 'customer id: 417\nmail: "ada@x.example"\ntags: "new"'
    assert flatten_json_text("{broken") == "{broken"
    held = hold_to_said_values({"type": "integer"}, "Who is it?", text)
    assert held == {"enum": [417]}


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


def test_a_long_document_in_a_request_is_read_in_time_that_grows_with_it() -> None:
    text = 'She said "Yes." Then Anna Smith paid 12.50 to the shop, and left for York. ' * 3_000
    before = time.process_time()
    assert "Anna Smith" in list_spans(text)
    assert has_name(text)
    assert has_quotation("York '" * 20_000 + "it'")
    assert time.process_time() - before < 20  # minutes, where each word is looked for from the beginning


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Get the delay of train RJ162 at 11:30 on 2026-03-14, 5 kg", ["RJ162"]),
        ("the trains RJ162 and IC 510", ["RJ162", "IC 510", "510"]),
        ("Who painted the Mona Lisa?", None),
        ("from Vienna to Porto on 2026-03-14 at 9 in the morning", None),
    ],
)
def test_the_number_of_a_thing_has_figures_and_is_no_day_time_or_amount(text: str, numbers: list[str] | None) -> None:
    held = hold_to_said_values({"type": "string", "description": "The number of the train."}, text, "")
    assert (None if held is None else sorted(held["enum"])) == (numbers and sorted(numbers))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Book doctor 47 at 11, for 20 minutes", [47]),
        ("Book a doctor on 2026-04-10 at 11", None),
        ("Ship 3 kg in 15 min for 20 USD", None),
        ("What is two plus two?", None),
        ("the doctor number seven", [7]),
    ],
)
def test_the_number_of_somebody_is_no_amount_and_no_hour(text: str, numbers: list[int] | None) -> None:
    node = {"type": "integer", "description": "The number of the doctor."}
    held = hold_to_said_values(node, text, "", name="doctor")
    assert (None if held is None else held["enum"]) == numbers


def test_a_day_is_no_text_where_other_words_are() -> None:
    held = hold_to_said_values({"type": "string"}, "The weather in Oslo on 2026-03-14", "")
    assert held is not None
    assert "Oslo" in held["enum"]
    assert "2026-03-14" not in held["enum"]
