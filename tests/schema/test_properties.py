"""For any signature: values come through JSON as they were, and what the schema forbids is refused by its path."""

from __future__ import annotations

import contextlib
import inspect
import json
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, cast
from uuid import UUID

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema import ArgumentsParser, function_schema, project_gemini, project_openai_strict, raw_arguments


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    label: str


class User(BaseModel):
    name: str
    tags: list[str]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
INTEGERS = st.integers(-(2**53), 2**53)
NAMES = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
RESERVED = st.sampled_from(["model_config", "self_", "json", "schema", "copy", "title", "type", "properties", "_x"])

LEAVES: list[tuple[Any, st.SearchStrategy[Any], Any]] = [
    (str, WORDS, []),
    (int, INTEGERS, "word"),
    (bool, st.booleans(), "word"),
    (float, st.floats(allow_nan=False, allow_infinity=False), "word"),
    (Annotated[int, Field(ge=0, le=9)], st.integers(0, 9), 10),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3]), "c"),
    (Color, st.sampled_from(Color), "green"),
    (date, st.dates(), {}),
    (datetime, st.datetimes(timezones=st.just(UTC)), {}),
    (UUID, st.uuids(), {}),
    (Point, st.builds(Point, INTEGERS, WORDS), {"x": 1}),
    (User, st.builds(User, name=WORDS, tags=st.lists(WORDS, max_size=2)), {"name": "a"}),
]


@dataclass
class Sample:
    """A type, values of it, and what no value of it looks like."""

    hint: Any
    values: st.SearchStrategy[Any]
    wrong: Any


def _of(origin: Any, *hints: Any) -> Any:
    return origin[hints]


def _containers(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.one_of(
        inner.map(lambda one: Sample(_of(list, one.hint), st.lists(one.values, max_size=3), 5)),
        inner.map(lambda one: Sample(_of(dict, str, one.hint), st.dictionaries(WORDS, one.values, max_size=3), 5)),
        inner.map(lambda one: Sample(_of(tuple, one.hint, int), st.tuples(one.values, INTEGERS), 5)),
        inner.map(lambda one: Sample(one.hint | None, st.none() | one.values, one.wrong)),
    )


SAMPLES = st.recursive(st.sampled_from([Sample(*leaf) for leaf in LEAVES]), _containers, max_leaves=3)
FIELDS = st.dictionaries(NAMES | RESERVED, SAMPLES, min_size=1, max_size=4).filter(
    lambda fields: all(name.isidentifier() for name in fields)
)


def function_of(fields: dict[str, Sample]) -> Callable[..., Any]:
    def function(**arguments: Any) -> dict[str, Any]:
        return arguments

    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=sample.hint)
            for name, sample in sorted(fields.items())
        ]
    )
    vars(function)["__signature__"] = signature
    return function


def _check(fields: dict[str, Sample], data: st.DataObject) -> None:
    function = function_of(fields)
    schema = function_schema(function)
    values = {name: data.draw(sample.values) for name, sample in sorted(fields.items())}
    sent = {name: TypeAdapter(fields[name].hint).dump_python(value, mode="json") for name, value in values.items()}
    text = json.dumps(sent)

    assert function(**schema.arguments.parse_json(text)) == values
    assert schema.arguments.parse(values) == values
    assert schema.arguments.parse_json(schema.arguments.dump_json(values, reveal_secrets=True)) == values
    assert cast(Any, jsonschema.Draft202012Validator(schema.parameters)).is_valid(sent)
    assert raw_arguments(schema.parameters, subject="function").parse_json(text) == sent

    name = data.draw(st.sampled_from(sorted(fields)))
    for mutated, path in (
        ({**sent, name: fields[name].wrong}, name),
        ({key: value for key, value in sent.items() if key != name}, name),
        ({**sent, "not_there": 1}, "not_there"),
    ):
        for parser in (schema.arguments, raw_arguments(schema.parameters, subject="function")):
            with pytest.raises(InvalidArgumentsError) as refused:
                parser.parse(mutated)
            assert f"\n- {path}" in str(refused.value)
            assert "pydantic" not in str(refused.value)


@given(fields=FIELDS, data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_come_through_and_mutations_are_refused_by_their_path(
    fields: dict[str, Sample], data: st.DataObject
) -> None:
    _check(fields, data)


@pytest.mark.full
@given(fields=FIELDS, data=st.data())
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_come_through_and_mutations_are_refused_by_their_path_at_length(
    fields: dict[str, Sample], data: st.DataObject
) -> None:
    _check(fields, data)


def refusal_of(parser: ArgumentsParser, text: str) -> str | None:
    try:
        parser.parse_json(text)
    except InvalidArgumentsError as error:
        return str(error)
    return None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(fields=FIELDS, value=JSON_VALUES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_model_sends_is_taken_or_refused_in_words(fields: dict[str, Sample], value: Any) -> None:
    parser = function_schema(function_of(fields)).arguments
    for sent in (value, dict.fromkeys(fields, value)):
        message = refusal_of(parser, json.dumps(sent))
        assert message is None or message.startswith("The arguments have ")


@given(text=st.text(max_size=30))
@settings(max_examples=50, deadline=None)
def test_whatever_text_comes_is_taken_or_refused_in_words(text: str) -> None:
    parser = function_schema(function_of({"a": Sample(int, INTEGERS, "")})).arguments
    with pytest.raises(InvalidArgumentsError, match=r"^The arguments "):
        parser.parse_json(text)


@given(fields=FIELDS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_projections_are_schemas(fields: dict[str, Sample]) -> None:
    parameters = function_schema(function_of(fields)).parameters
    projected: Any = None
    with contextlib.suppress(SchemaError):
        projected = project_openai_strict(parameters)
    if projected is not None:
        jsonschema.Draft202012Validator.check_schema(projected)
    jsonschema.Draft202012Validator.check_schema(project_gemini(parameters))
