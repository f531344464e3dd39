"""What is wrong with arguments, said once and for a model to act on; and the one text of arguments."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BaseModel, Field, SecretStr, model_validator

from toolkit import AnswerFormat, ToolCall, ToolLoopConfig, ToolRegistry, tool_loop_sync
from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser, MalformedJsonError, function_schema, raw_arguments
from toolkit.schema.arguments import decode_strings
from toolkit.testing import ScriptedProvider


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Cat(BaseModel):
    name: str
    lives: int = 9


class Dog(BaseModel):
    bark: str
    loud: bool


@dataclass
class Login:
    user: str
    password: SecretStr


class Range(BaseModel):
    first: int
    last: int

    @model_validator(mode="after")
    def _in_order(self) -> Range:
        if self.first > self.last:
            raise ValueError("first must not be after last")
        return self


def search(
    query: str,
    limit: Annotated[int, Field(ge=1, le=10)] = 5,
    unit: Unit = Unit.METRIC,
    tags: list[str] | None = None,
    pet: Cat | Dog | None = None,
    login: Login | None = None,
    within: Range | None = None,
    day: date | None = None,
    mode: Literal["fast", "slow"] = "fast",
    pages: dict[int, str] | None = None,
) -> None: ...


PARSER: ArgumentsParser = function_schema(search).arguments


@dataclass(kw_only=True)
class Case:
    name: str
    sent: str
    says: str


CASES = [
    Case(
        name="missing",
        sent="{}",
        says="""\
The arguments have 1 problem:
- query: required, but missing. Give a string.
Call it again, for example with: {"query": "..."}""",
    ),
    Case(
        name="unknown, near a missing one",
        sent='{"querry": "cats"}',
        says="""\
The arguments have 1 problem:
- querry: unknown. Did you mean "query"?
Accepted: "query" (a string), "limit" (an integer from 1 to 10), "unit" (one of "metric", "imperial"), "tags" (a list, \
each a string or null), "pet" (an object with "name" (a string), "lives" (an integer, optional) or an object with \
"bark" (a string), "loud" (true or false) or null), "login" (an object with "user" (a string), "password" (a string \
(secret)) or null), "within" (an object with "first" (an integer), "last" (an integer) or null), "day" (a date like \
2026-01-31 or null), "mode" (one of "fast", "slow"), "pages" (an object or null).
Call it again, for example with: {"query": "cats"}""",
    ),
    Case(
        name="several, each with its path",
        sent='{"query": "cats", "limit": 11, "unit": "kelvin", "tags": ["a", []], "mode": "medium"}',
        says="""\
The arguments have 4 problems:
- limit: got the number 11, but it must be an integer from 1 to 10.
- unit: got the string "kelvin", but it must be one of "metric", "imperial".
- tags[1]: got an empty list, but it must be a string.
- mode: got the string "medium", but it must be one of "fast", "slow".
Call it again, for example with: \
{"query": "cats", "limit": 5, "unit": "metric", "tags": ["a", "..."], "mode": "fast"}""",
    ),
    Case(
        name="the nearest choice of a union",
        sent='{"query": "cats", "pet": {"bark": "wow", "loud": "very"}}',
        says="""\
The arguments have 1 problem:
- pet.loud: got the string "very", but it must be true or false.
Call it again, for example with: {"query": "cats", "pet": {"bark": "wow", "loud": true}}""",
    ),
    Case(
        name="no choice of a union",
        sent='{"query": "cats", "pet": "Tom"}',
        says="""\
The arguments have 1 problem:
- pet: got the string "Tom", but it must be an object with "name" (a string), "lives" (an integer, optional) or an \
object with "bark" (a string), "loud" (true or false) or null.
Call it again, for example with: {"query": "cats", "pet": {"name": "..."}}""",
    ),
    Case(
        name="the author's own words",
        sent='{"query": "cats", "within": {"first": 2, "last": 1}}',
        says="""\
The arguments have 1 problem:
- within: got an object with "first", "last". first must not be after last.
Call it again, for example with: {"query": "cats", "within": {"first": 1, "last": 1}}""",
    ),
    Case(
        name="a name in a dictionary",
        sent='{"query": "cats", "pages": {"one": "a"}}',
        says="""\
The arguments have 1 problem:
- pages.one: got the string "a". The name itself is not accepted here: Input should be a valid integer, unable to \
parse string as an integer.""",
    ),
    Case(
        name="a format",
        sent='{"query": "cats", "day": "tomorrow"}',
        says="""\
The arguments have 1 problem:
- day: got the string "tomorrow", but it must be a date like 2026-01-31 or null.
Call it again, for example with: {"query": "cats", "day": "2026-01-31"}""",
    ),
    Case(
        name="unknown names inside a dataclass",
        sent='{"query": "cats", "login": {"usr": "ada", "password": "x", "age": 3}}',
        says="""\
The arguments have 2 problems:
- login.usr: unknown. Did you mean "user"?
- login.age: unknown. Leave it out.
Accepted in login: "user" (a string), "password" (a string (secret)).
Call it again, for example with: {"query": "cats", "login": {"password": "...", "user": "ada"}}""",
    ),
    Case(
        name="another name, of another type",
        sent='{"text": ["cats"]}',
        says="""\
The arguments have 2 problems:
- query: required, but missing. Give a string.
- text: unknown. Leave it out.
Accepted: "query" (a string), "limit" (an integer from 1 to 10), "unit" (one of "metric", "imperial"), "tags" (a list, \
each a string or null), "pet" (an object with "name" (a string), "lives" (an integer, optional) or an object with \
"bark" (a string), "loud" (true or false) or null), "login" (an object with "user" (a string), "password" (a string \
(secret)) or null), "within" (an object with "first" (an integer), "last" (an integer) or null), "day" (a date like \
2026-01-31 or null), "mode" (one of "fast", "slow"), "pages" (an object or null).
Call it again, for example with: {"query": "..."}""",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_message_says_all_that_is_wrong(case: Case) -> None:
    with pytest.raises(InvalidArgumentsError) as refused:
        PARSER.parse_json(case.sent)
    assert str(refused.value) == case.says
    assert not isinstance(refused.value, MalformedJsonError)


def between(first: date, last: date, note: str = "") -> None: ...


def test_names_that_are_all_wrong_are_told_by_their_place_and_their_values_are_kept() -> None:
    with pytest.raises(InvalidArgumentsError) as refused:
        function_schema(between).arguments.parse_json('{"start": "2026-03-01", "end": "2026-04-15"}')
    assert (
        str(refused.value)
        == """\
The arguments have 2 problems:
- start: unknown. Did you mean "first"?
- end: unknown. Did you mean "last"?
Accepted: "first" (a date like 2026-01-31), "last" (a date like 2026-01-31), "note" (a string).
Call it again, for example with: {"first": "2026-03-01", "last": "2026-04-15"}"""
    )


@pytest.mark.parametrize(
    "sent",
    [
        '{"query": "hunter2"[0], "login": {"password": "hunter2"}}',
        '{"login": {"user": 1, "password": ["hunter2"]}}',
        '{"login": {"user": "u", "password": "hunter2", "more": 1}, "query": ["x"]}',
        '{"login": "hunter2"}',
        '{"login": {"password": "hunter2"}, "limit": "is hunter2"}',
        '{"login": {"password": "hunter2"',
    ],
)
def test_no_error_shows_a_secret(sent: str) -> None:
    with pytest.raises(InvalidArgumentsError) as refused:
        PARSER.parse_json(sent)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_text_that_is_no_json_says_where_it_breaks() -> None:
    parser = function_schema(lambda value=1: value).arguments  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    with pytest.raises(MalformedJsonError, match=r"line 1 column 11.*Near: \{\"value\": ,\}"):
        parser.parse_json('{"value": ,}')
    with pytest.raises(MalformedJsonError, match="not complete JSON: they end too early"):
        parser.parse_json('{"value": [1, 2')
    with pytest.raises(MalformedJsonError) as refused:
        function_schema(between).arguments.parse_json('{"first": 2026-03-01}')
    assert (
        str(refused.value)
        == """\
The arguments are not valid JSON: expected `,` or `}` at line 1 column 15. Send one JSON object. \
Near: {"first": 2026-03-01}
Call it again, for example with: {"first": "2026-01-31", "last": "2026-01-31"}"""
    )


@pytest.mark.parametrize("text", ["", "  \n", "null", " null ", "{}"])
def test_nothing_means_no_arguments(text: str) -> None:
    parser = function_schema(lambda value=1: value).arguments  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert parser.parse_json(text) == {"value": 1}
    assert parser.parse(None) == {"value": 1}


@pytest.mark.parametrize("text", ["[1]", "5", '"text"', "true"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=r"- arguments: got .*, but it must be an object with"):
        PARSER.parse_json(text)


def test_strings_are_decoded_once_more_where_no_string_is_allowed() -> None:
    sent = {"query": "[1]", "tags": '["a"]', "limit": "3", "pet": '{"name": "Tom", "lives": "7"}', "login": "null"}
    assert decode_strings(PARSER, sent) == {
        "query": "[1]",
        "tags": ["a"],
        "limit": 3,
        "pet": {"name": "Tom", "lives": 7},
        "login": None,
    }
    assert decode_strings(PARSER, '{"query": "a"}') == {"query": "a"}
    assert decode_strings(PARSER, {"query": "5", "tags": "a, b", "limit": "[1]"}) is None


def test_a_strict_parser_has_only_lists_and_objects_decoded() -> None:
    parser = function_schema(search, strict=True).arguments
    assert decode_strings(parser, {"limit": "3"}) is None
    assert decode_strings(parser, {"tags": '["a"]', "limit": "3"}) == {"tags": ["a"], "limit": "3"}


def test_the_canonical_text_tells_secrets_apart_and_shows_none() -> None:
    one, two = (
        PARSER.parse_json('{"query": "a", "login": {"user": "u", "password": "%s"}}' % word)  # noqa: UP031
        for word in ("hunter2", "hunter3")
    )
    assert PARSER.dump_json(one) != PARSER.dump_json(two)
    assert "hunter2" not in PARSER.dump_json(one)
    assert PARSER.parse_json(PARSER.dump_json(one, reveal_secrets=True)) == one


def test_the_canonical_text_does_not_depend_on_order_or_on_how_a_default_was_given() -> None:
    assert PARSER.dump_json(PARSER.parse_json('{"limit": 5, "query": "\\u00e9"}')) == PARSER.dump_json(
        PARSER.parse_json('{"query": "é"}')
    )


def test_the_canonical_text_is_the_same_in_each_process() -> None:
    program = (
        "from toolkit.schema import function_schema\n"
        "def f(words: set[str]): ...\n"
        "parser = function_schema(f).arguments\n"
        'print(parser.dump_json(parser.parse_json(\'{"words": ["a", "b", "c", "d"]}\')))'
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {'{"words":["a","b","c","d"]}\n'}


def test_a_number_for_text_keeps_its_digits_and_what_is_no_number_is_refused() -> None:
    def label(text: str, names: list[str] = [], more: dict[str, str] = {}, path: Path = Path()) -> None: ...  # noqa: B006

    parser = function_schema(label).arguments
    sent = '{"text": 1.10, "names": [2, 12345678901234567890.123], "more": {"a": 1e5}, "path": 7.0}'
    assert parser.parse_json(sent) == {
        "text": "1.10",
        "names": ["2", "12345678901234567890.123"],
        "more": {"a": "1e5"},
        "path": Path("7.0"),
    }
    for word in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(MalformedJsonError, match=f"{word} is no number of JSON"):
            parser.parse_json(f'{{"text": {word}}}')
    with pytest.raises(InvalidArgumentsError, match="it must be a string"):
        parser.parse_json('{"text": true}')


class Circle(BaseModel):
    shape: Literal["circle"]
    radius: float
    color: str
    label: str


class Rectangle(BaseModel):
    shape: Literal["rectangle"]
    side: float


class Span(BaseModel):
    start: int
    end: int

    @model_validator(mode="after")
    def check_order(self) -> Self:
        if self.end < self.start:
            raise ValueError("the end must not be before the start")
        return self


class Label(BaseModel):
    label: str


class Plug(BaseModel):
    plug: str
    volts: int
    amps: int


def draw(form: Circle | Rectangle | Span | Label | Plug) -> None:
    """Draw a form."""


MEANT: list[tuple[dict[str, Any], list[str]]] = [
    ({"shape": "circle", "radius": "x"}, ["form.radius: got", "form.color: required", "form.label: required"]),
    ({"shape": "circle"}, ["form.radius: required", "form.color: required", "form.label: required"]),
    ({"shape": "rectangle", "side": "x"}, ["form.side: got"]),
    ({"start": 5}, ["form.end: required"]),
    ({"plug": "x", "volts": 230}, ["form.amps: required"]),
]


@pytest.mark.parametrize(("form", "problems"), MEANT)
@pytest.mark.parametrize("is_raw", [False, True])
def test_a_failed_union_has_the_problems_of_the_arm_that_was_meant(
    form: dict[str, Any], problems: list[str], is_raw: bool
) -> None:
    arguments = function_schema(draw).arguments
    if is_raw:
        arguments = raw_arguments(function_schema(draw).parameters, subject="draw")
    with pytest.raises(InvalidArgumentsError) as refused:
        arguments.parse({"form": form})
    lines = [line.removeprefix("- ") for line in refused.value.message.splitlines() if line.startswith("- ")]
    assert sorted(" ".join(line.split()[:2]).rstrip(",") for line in lines) == sorted(problems)


def test_a_failed_union_has_the_words_of_the_validator_of_the_arm_that_was_meant() -> None:
    with pytest.raises(InvalidArgumentsError, match="the end must not be before the start"):
        function_schema(draw).arguments.parse({"form": {"start": 5, "end": 1}})


def test_a_failed_union_in_an_answer_has_the_problems_of_the_arm_that_was_meant() -> None:
    answers = [
        {"answer": {"shape": "circle", "radius": 1}},
        {"answer": {"start": 5, "end": 1}},
        {"answer": {"label": "x"}},
    ]
    provider = ScriptedProvider([ToolCall(str(n), "final_answer", json.dumps(one)) for n, one in enumerate(answers)])
    config = ToolLoopConfig(answer=AnswerFormat(Circle | Rectangle | Span | Label))
    result = tool_loop_sync(provider, ToolRegistry(), "Draw.", config=config)
    texts = [message.text for message in result.messages]
    assert any("answer.color: required" in text and "side" not in text for text in texts)
    assert any("the end must not be before the start" in text for text in texts)
    assert result.response is not None


def test_an_error_has_the_places_of_its_problems_and_the_lines_about_them() -> None:
    def find(first: int, last: list[int]) -> None: ...

    with pytest.raises(InvalidArgumentsError) as refused:
        function_schema(find).arguments.parse({"first": "x", "last": [1, "y"]})
    assert refused.value.paths == (("first",), ("last", 1))
    assert refused.value.lines == (
        '- first: got the string "x", but it must be an integer.',
        '- last[1]: got the string "y", but it must be an integer.',
    )
