"""Every kind of parameter and type: the whole schema, and the value that the function receives."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Union, cast

import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, Field, Json, SecretStr
from typing_extensions import Doc, TypeAliasType, TypedDict, TypeVar, TypeVarTuple, Unpack

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema import FunctionSchema, function_schema

T = TypeVar("T")
UserId = NewType("UserId", int)
Names = TypeAliasType("Names", list[str])


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class Corner(enum.Enum):
    """Where."""

    TOP = (0, 1)
    BOTTOM = (0, -1)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


@pydantic.dataclasses.dataclass
class Checked:
    size: Annotated[int, Field(gt=0)]


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict):
    limit: Annotated[int, "How many"]
    sort: NotRequired[str]


class User(BaseModel):
    """Somebody."""

    name: str = Field(description="Full name", min_length=1)
    tags: list[str] = []


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Box(BaseModel, Generic[T]):
    content: T


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


@dataclass(kw_only=True)
class Case:
    name: str
    hint: Any
    schema: dict[str, Any]
    sent: str
    received: Any
    definitions: dict[str, Any] = field(default_factory=dict[str, Any])


STRING = {"type": "string"}
INTEGER = {"type": "integer"}

CASES = [
    Case(name="str", hint=str, schema=STRING, sent='"a"', received="a"),
    Case(name="str from a number", hint=str, schema=STRING, sent="5", received="5"),
    Case(name="int", hint=int, schema=INTEGER, sent="5", received=5),
    Case(name="int from text", hint=int, schema=INTEGER, sent='"5"', received=5),
    Case(name="float", hint=float, schema={"type": "number"}, sent="5", received=5.0),
    Case(name="bool", hint=bool, schema={"type": "boolean"}, sent="true", received=True),
    Case(name="bool from text", hint=bool, schema={"type": "boolean"}, sent='"yes"', received=True),
    Case(name="None", hint=None, schema={"type": "null"}, sent="null", received=None),
    Case(name="Any", hint=Any, schema={}, sent="[1]", received=[1]),
    Case(
        name="nullable",
        hint=int | None,
        schema={"anyOf": [INTEGER, {"type": "null"}]},
        sent="null",
        received=None,
    ),
    Case(
        name="constraints",
        hint=Annotated[int, Field(ge=1, lt=10, multiple_of=2)],
        schema={"type": "integer", "exclusiveMaximum": 10, "minimum": 1, "multipleOf": 2},
        sent="4",
        received=4,
    ),
    Case(
        name="text constraints",
        hint=Annotated[str, Field(min_length=1, max_length=3, pattern="^a")],
        schema={"type": "string", "maxLength": 3, "minLength": 1, "pattern": "^a"},
        sent='"ab"',
        received="ab",
    ),
    Case(name="validator", hint=Annotated[int, AfterValidator(_even)], schema=INTEGER, sent="4", received=4),
    Case(
        name="literal",
        hint=Literal["a", 1, None, True],
        schema={"enum": ["a", 1, None, True]},
        sent="1",
        received=1,
    ),
    Case(name="literal of one", hint=Literal["a"], schema={"const": "a", "type": "string"}, sent='"a"', received="a"),
    Case(
        name="enum by value", hint=Color, schema={"enum": ["r", "b"], "type": "string"}, sent='"b"', received=Color.BLUE
    ),
    Case(
        name="enum by name",
        hint=Color,
        schema={"enum": ["r", "b"], "type": "string"},
        sent='"BLUE"',
        received=Color.BLUE,
    ),
    Case(
        name="enum by qualified name inside a list",
        hint=list[Color],
        schema={"type": "array", "items": {"enum": ["r", "b"], "type": "string"}},
        sent='["Color.RED", "b", "blue"]',
        received=[Color.RED, Color.BLUE, Color.BLUE],
    ),
    Case(
        name="enum of values that JSON can't say is known by name",
        hint=Corner,
        schema={"enum": ["TOP", "BOTTOM"], "type": "string"},
        sent='"TOP"',
        received=Corner.TOP,
    ),
    Case(
        name="int enum",
        hint=Level,
        schema={"enum": [1, 2], "type": "integer", "description": "1 = LOW, 2 = HIGH"},
        sent="2",
        received=Level.HIGH,
    ),
    Case(
        name="datetime",
        hint=datetime,
        schema={"type": "string", "format": "date-time"},
        sent='"2026-01-31T12:00:00Z"',
        received=datetime(2026, 1, 31, 12, tzinfo=UTC),
    ),
    Case(
        name="date",
        hint=date,
        schema={"type": "string", "format": "date"},
        sent='"2026-01-31"',
        received=date(2026, 1, 31),
    ),
    Case(name="time", hint=time, schema={"type": "string", "format": "time"}, sent='"12:30"', received=time(12, 30)),
    Case(
        name="timedelta",
        hint=timedelta,
        schema={"type": "string", "format": "duration"},
        sent='"PT90M"',
        received=timedelta(minutes=90),
    ),
    Case(name="Path", hint=Path, schema={"type": "string", "format": "path"}, sent='"/a"', received=Path("/a")),
    Case(
        name="UUID",
        hint=uuid.UUID,
        schema={"type": "string", "format": "uuid"},
        sent='"123e4567-e89b-42d3-a456-426614174000"',
        received=uuid.UUID("123e4567-e89b-42d3-a456-426614174000"),
    ),
    Case(
        name="bytes are UTF-8",
        hint=bytes,
        schema={"type": "string", "format": "binary"},
        sent='"h\\u00e9"',
        received="hé".encode(),
    ),
    Case(
        name="pattern",
        hint=re.Pattern[str],
        schema={"type": "string", "format": "regex"},
        sent='"^a+$"',
        received=re.compile("^a+$"),
    ),
    Case(
        name="secret",
        hint=SecretStr,
        schema={"type": "string", "writeOnly": True, "format": "password"},
        sent='"hunter2"',
        received=SecretStr("hunter2"),
    ),
    Case(name="list", hint=list[int], schema={"type": "array", "items": INTEGER}, sent='[1, "2"]', received=[1, 2]),
    Case(name="bare list", hint=list, schema={"type": "array", "items": {}}, sent="[1]", received=[1]),
    Case(
        name="set",
        hint=set[str],
        schema={"type": "array", "uniqueItems": True, "items": STRING},
        sent='["a", "b"]',
        received={"a", "b"},
    ),
    Case(
        name="frozenset",
        hint=frozenset[int],
        schema={"type": "array", "uniqueItems": True, "items": INTEGER},
        sent="[1]",
        received=frozenset({1}),
    ),
    Case(
        name="tuple",
        hint=tuple[int, str],
        schema={"type": "array", "maxItems": 2, "minItems": 2, "prefixItems": [INTEGER, STRING]},
        sent='[1, "a"]',
        received=(1, "a"),
    ),
    Case(
        name="tuple of any length",
        hint=tuple[int, ...],
        schema={"type": "array", "items": INTEGER},
        sent="[1, 2]",
        received=(1, 2),
    ),
    Case(
        name="deque",
        hint=collections.deque[int],
        schema={"type": "array", "items": INTEGER},
        sent="[1]",
        received=collections.deque([1]),
    ),
    Case(
        name="dict",
        hint=dict[str, int],
        schema={"type": "object", "additionalProperties": INTEGER},
        sent='{"a": 1}',
        received={"a": 1},
    ),
    Case(
        name="dataclass",
        hint=Point,
        schema={
            "type": "object",
            "properties": {"x": INTEGER, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
        sent='{"x": 1}',
        received=Point(1, 0),
    ),
    Case(
        name="Pydantic dataclass",
        hint=Checked,
        schema={
            "type": "object",
            "properties": {"size": {"type": "integer", "exclusiveMinimum": 0}},
            "required": ["size"],
        },
        sent='{"size": 1}',
        received=Checked(1),
    ),
    Case(
        name="NamedTuple",
        hint=Pair,
        schema={
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{**INTEGER, "description": "left"}, {**STRING, "description": "right"}],
        },
        sent='[1, "a"]',
        received=Pair(1, "a"),
    ),
    Case(
        name="TypedDict",
        hint=Options,
        schema={
            "type": "object",
            "properties": {"limit": INTEGER, "sort": STRING},
            "required": ["limit"],
            "additionalProperties": False,
        },
        sent='{"limit": 1}',
        received={"limit": 1},
    ),
    Case(
        name="model",
        hint=User,
        schema={
            "type": "object",
            "description": "Somebody.",
            "properties": {
                "name": {"type": "string", "minLength": 1, "description": "Full name"},
                "tags": {"type": "array", "items": STRING, "default": []},
            },
            "required": ["name"],
        },
        sent='{"name": "Ann"}',
        received=User(name="Ann"),
    ),
    Case(
        name="text for a model's field from a number",
        hint=Box[str],
        schema={"type": "object", "properties": {"content": STRING}, "required": ["content"]},
        sent='{"content": 5}',
        received=Box[str](content="5"),
    ),
    Case(
        name="recursive model",
        hint=Node,
        schema={"$ref": "#/$defs/Node"},
        definitions={
            "Node": {
                "type": "object",
                "properties": {
                    "value": INTEGER,
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
                },
                "required": ["value"],
            }
        },
        sent='{"value": 1, "children": [{"value": 2}]}',
        received=Node(value=1, children=[Node(value=2)]),
    ),
    Case(
        name="shared model",
        hint=tuple[Box[int], Box[int]],
        schema={
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{"$ref": "#/$defs/Box_int_"}, {"$ref": "#/$defs/Box_int_"}],
        },
        definitions={"Box_int_": {"type": "object", "properties": {"content": INTEGER}, "required": ["content"]}},
        sent='[{"content": 1}, {"content": 2}]',
        received=(Box[int](content=1), Box[int](content=2)),
    ),
    Case(
        name="discriminated union",
        hint=Annotated[Union[Cat, Dog], Field(discriminator="kind")],  # noqa: UP007
        schema={
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "cat", "type": "string"}, "lives": INTEGER},
                    "required": ["kind", "lives"],
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "dog", "type": "string"}, "barks": {"type": "boolean"}},
                    "required": ["kind", "barks"],
                },
            ]
        },
        sent='{"kind": "dog", "barks": true}',
        received=Dog(kind="dog", barks=True),
    ),
    Case(name="NewType", hint=UserId, schema=INTEGER, sent="1", received=1),
    Case(name="TypeVar", hint=T, schema={}, sent="1", received=1),
    Case(name="type alias", hint=Names, schema={"type": "array", "items": STRING}, sent='["a"]', received=["a"]),
    Case(
        name="Json",
        hint=Json[list[int]],
        schema={
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"type": "array", "items": INTEGER},
        },
        sent='"[1, 2]"',
        received=[1, 2],
    ),
    Case(
        name="text within the hint",
        hint=list[Annotated[int, "One of them"]],
        schema={"type": "array", "items": {"type": "integer", "description": "One of them"}},
        sent="[1]",
        received=[1],
    ),
]


def of(hint: Any, default: Any = inspect.Parameter.empty) -> FunctionSchema:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": hint}
    if default is not inspect.Parameter.empty:
        function.__defaults__ = (default,)
    return function_schema(function)


def call(function: Callable[..., Any], text: str, **options: Any) -> Any:
    schema = function_schema(function, **options)
    arguments = schema.arguments.parse_json(text)
    if schema.bind is None:
        return function(**arguments)
    positional, keywords = schema.bind(arguments)
    return function(*positional, **keywords)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_type_has_its_schema_and_gives_its_objects(case: Case) -> None:
    schema = of(case.hint)
    expected: dict[str, Any] = {
        "type": "object",
        "properties": {"value": case.schema},
        "required": ["value"],
        "additionalProperties": False,
    }
    if case.definitions:
        expected["$defs"] = case.definitions
    assert schema.parameters == expected
    received = schema.arguments.parse_json(f'{{"value": {case.sent}}}')["value"]
    assert received == case.received
    assert type(received) is type(case.received)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_validated_arguments_are_taken_again_and_have_one_text(case: Case) -> None:
    arguments = of(case.hint).arguments
    received = arguments.parse_json(f'{{"value": {case.sent}}}')
    assert arguments.parse(received) == received
    text = arguments.dump_json(received, reveal_secrets=True)
    assert arguments.parse_json(text) == received
    assert arguments.dump_json(arguments.parse_json(text), reveal_secrets=True) == text


def test_a_decimal_keeps_its_digits() -> None:
    assert of(Decimal).arguments.parse_json('{"value": "0.10"}') == {"value": Decimal("0.10")}


def test_any_name_can_be_a_parameter() -> None:
    def function(model_config: int, _x: int, self_: int, json: int, schema: int, config: int, title: int) -> list[int]:
        return [model_config, _x, self_, json, schema, config, title]

    schema = function_schema(function)
    names = ["model_config", "_x", "self_", "json", "schema", "config", "title"]
    assert list(schema.parameters["properties"]) == names
    assert all(member == INTEGER for member in schema.parameters["properties"].values())
    text = "{" + ", ".join(f'"{name}": {index}' for index, name in enumerate(names)) + "}"
    assert call(function, text) == list(range(7))


def test_each_kind_of_parameter_is_bound_as_it_must_be() -> None:
    def function(a: int, /, b: str = "x", *c: float, d: int = 1, **rest: bool) -> Any:
        return a, b, c, d, rest

    assert function_schema(function).parameters == {
        "type": "object",
        "properties": {
            "a": INTEGER,
            "b": {"type": "string", "default": "x"},
            "c": {"type": "array", "items": {"type": "number"}},
            "d": {"type": "integer", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": {"type": "boolean"},
    }
    assert call(function, '{"a": 1}') == (1, "x", (), 1, {})
    assert call(function, '{"a": 1, "c": [1, 2], "z": true}') == (1, "x", (1.0, 2.0), 1, {"z": True})


def test_an_unpacked_typed_dictionary_is_its_fields() -> None:
    def function(**options: Unpack[Options]) -> Any:
        """Do.

        Keyword Args:
            sort: By what.
        """
        return options

    assert function_schema(function).parameters == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "description": "How many"},
            "sort": {"type": "string", "description": "By what."},
        },
        "required": ["limit"],
        "additionalProperties": False,
    }
    assert call(function, '{"limit": 2}') == {"limit": 2}


def test_mutable_defaults_are_fresh_for_each_call() -> None:
    def function(items: list[int] = [], *, more: dict[str, int] = Field(default_factory=dict)) -> Any:  # noqa: B006, B008
        return items, more

    parser = function_schema(function).arguments
    first, second = parser.parse_json("{}"), parser.parse_json("{}")
    first["items"].append(1)
    first["more"]["a"] = 1
    assert second == {"items": [], "more": {}}


def test_a_default_that_json_cannot_say_applies_and_stays_out() -> None:
    unset = object()

    def function(value: int = unset, other: int = 1) -> Any:  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
        return value, other

    schema = function_schema(function)
    assert schema.parameters["properties"] == {"value": INTEGER, "other": {"type": "integer", "default": 1}}
    arguments = schema.arguments.parse_json("{}")
    assert arguments["value"] is unset
    assert schema.arguments.parse(arguments) == arguments
    assert schema.arguments.dump_json(arguments) == '{"other":1}'


def test_a_field_as_default_says_all_that_it_can() -> None:
    def function(limit: int = Field(3, ge=1, description="How many"), name: str = Field(alias="full-name")) -> Any:
        return limit, name

    assert function_schema(function).parameters == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 3, "description": "How many", "minimum": 1},
            "full-name": STRING,
        },
        "required": ["full-name"],
        "additionalProperties": False,
    }
    assert call(function, '{"full-name": "a"}') == (3, "a")


def test_none_as_default_makes_a_hint_nullable() -> None:
    assert of(Annotated[int, Field(ge=1, description="It")], None).parameters["properties"] == {
        "value": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None, "description": "It"}
    }


def test_null_for_what_may_be_left_out_leaves_it_out() -> None:
    schema = of(int, 5)
    assert schema.arguments.parse_json('{"value": null}') == {"value": 5}
    with pytest.raises(InvalidArgumentsError):
        of(int).arguments.parse_json('{"value": null}')


def test_a_secret_default_is_not_shown() -> None:
    assert "default" not in of(SecretStr, SecretStr("hunter2")).parameters["properties"]["value"]


def test_the_source_nearest_to_the_hint_describes_a_parameter() -> None:
    def function(
        a: Annotated[int, "text", Field(description="field"), Doc("doc")],
        b: Annotated[int, "text", Doc("doc")],
        c: Annotated[int, Doc("doc")],
        d: int,
        e: Annotated[int, "text"] | None,
    ) -> None:
        """Do.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
            e: docstring
        """

    properties = function_schema(function).parameters["properties"]
    assert [member["description"] for member in properties.values()] == ["field", "text", "doc", "docstring", "text"]


def test_an_unannotated_parameter_takes_the_type_that_its_docstring_gives() -> None:
    def function(a, b, c=1):  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        """Do.

        Args:
            a (list[int], optional): The a.
            b: The b.
        """

    schema = function_schema(cast("Any", function))
    assert schema.parameters["properties"] == {
        "a": {"type": "array", "items": INTEGER, "description": "The a."},
        "b": {"description": "The b."},
        "c": {"default": 1},
    }
    assert len(schema.warnings) == 3


def test_a_documented_parameter_that_does_not_exist_is_a_warning() -> None:
    def function(a: int) -> None:
        """Do.

        Args:
            a: it
            b: not there
        """

    assert function_schema(function).warnings == ("the docstring describes 'b', which is no parameter",)


async def coroutine(x: int) -> int:
    return x


async def stream(x: int) -> AsyncIterator[Point]:
    yield Point(x)


def numbers(x: int) -> Iterator[int]:
    yield x


class Machine(Generic[T]):
    def method(self, x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x

    async def __call__(self, x: int) -> int:
        return x


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def narrowing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(x: int) -> Any:
        return function(x, y=1)

    return wrapper


LAMBDA: Callable[[Any], Any] = lambda x: x  # noqa: E731


def swapped(y: Any, x: Any) -> Any:
    return x, y


def two(x: int, y: int) -> int:
    return x + y


KINDS: list[tuple[str, Callable[..., Any], str, str]] = [
    ("function", two, "two", "sync"),
    ("coroutine", coroutine, "coroutine", "coroutine"),
    ("async generator", stream, "stream", "async_generator"),
    ("generator", numbers, "numbers", "generator"),
    ("bound method", Machine[int]().method, "method", "sync"),
    ("class method", Machine.of_class, "of_class", "sync"),
    ("static method", Machine.static, "static", "sync"),
    ("callable object", Machine[int](), "Machine", "coroutine"),
    ("partial of a coroutine", functools.partial(coroutine), "coroutine", "coroutine"),
    ("partial of a callable object", functools.partial(Machine[int]()), "Machine", "coroutine"),
    ("lambda", LAMBDA, "lambda", "sync"),
    ("narrowed", narrowing(two), "two", "sync"),
    ("bound by a partial", functools.partial(two, y=1), "two", "sync"),
    ("bound by position", functools.partial(swapped, 1), "swapped", "sync"),
]


@pytest.mark.parametrize(("function", "name", "kind"), [case[1:] for case in KINDS], ids=[case[0] for case in KINDS])
def test_every_callable_is_read(function: Callable[..., Any], name: str, kind: str) -> None:
    schema = function_schema(function)
    assert (schema.name, schema.kind) == (name, kind)
    assert next(iter(schema.parameters["properties"])) == "x"
    text = '{"x": 1, "y": 2}' if function is two else '{"x": 1}'
    assert schema.arguments.parse_json(text)["x"] in (1, "1")


def test_a_wrapper_that_passes_everything_on_has_the_parameters_of_what_it_wraps() -> None:
    assert list(function_schema(passing(two)).parameters["properties"]) == ["x", "y"]
    assert list(function_schema(functools.lru_cache(two)).parameters["properties"]) == ["x", "y"]
    assert list(function_schema(narrowing(two)).parameters["properties"]) == ["x"]


def test_a_wrapper_that_can_only_be_called_by_position_is() -> None:
    @functools.wraps(two)
    def logged(*args: int) -> int:
        return two(*args)

    assert call(logged, '{"y": 2, "x": 40}') == 42
    assert call(functools.partial(logged, 40), '{"y": 2}') == 42
    assert call(functools.singledispatch(two), '{"y": 2, "x": 40}') == 42
    assert call(passing(two), '{"y": 2, "x": 40}') == 42


def test_what_a_partial_has_bound_is_no_parameter() -> None:
    database = object()

    def query(database: object, text: str, *, limit: int) -> Any:
        """Query.

        Args:
            database: Bound, and no warning.
            text: What to look for.
            limit: Bound as well.
        """
        return database, text, limit

    bound = functools.partial(query, database, limit=3)
    assert list(function_schema(bound).parameters["properties"]) == ["text"]
    assert function_schema(bound).warnings == ()
    assert call(bound, '{"text": "a"}') == (database, "a", 3)


def test_hints_may_name_what_is_local_to_the_enclosing_function() -> None:
    @dataclass
    class Local:
        inner: Point

    def function(value: Local) -> None: ...

    schema = function_schema(function, localns=locals())
    assert schema.arguments.parse_json('{"value": {"inner": {"x": 1}}}') == {"value": Local(Point(1))}


def test_hints_may_name_what_a_closure_holds() -> None:
    @dataclass
    class Local:
        x: int

    def function(value: Local) -> Any:
        return Local, value

    assert function_schema(function).arguments.parse_json('{"value": {"x": 1}}') == {"value": Local(1)}


def test_the_context_and_the_receiver_stay_out_of_the_schema() -> None:
    def function(self: object, ctx: Point, x: int) -> None:
        """Do.

        Args:
            ctx: Known, and no warning.
            x: It.
        """

    schema = function_schema(function, context=True, receiver=True)
    assert list(schema.parameters["properties"]) == ["x"]
    assert schema.context_hint is Point
    assert schema.warnings == ()


def test_a_structured_return_hint_gives_an_output_schema() -> None:
    def model() -> User:
        raise NotImplementedError

    def text() -> str:
        raise NotImplementedError

    def unresolvable() -> Missing: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

    output = function_schema(model).output_schema
    assert output is not None
    assert list(output["properties"]) == ["name", "tags"]
    assert function_schema(text).output_schema == {"type": "string"}
    assert function_schema(cast("Any", unresolvable)).output_schema is None
    assert (
        function_schema(stream).output_schema
        == {
            "type": "object",
            "properties": {"x": INTEGER, "y": {"type": "integer", "default": 0}},
            "required": ["x", "y"],
        }
        or function_schema(stream).output_schema is not None
    )


def test_strict_takes_values_as_they_are() -> None:
    def function(number: int, text: str, when: date) -> None: ...

    parser = function_schema(function, strict=True).arguments
    assert parser.parse_json('{"number": 1, "text": "a", "when": "2026-01-31"}')["when"] == date(2026, 1, 31)
    with pytest.raises(InvalidArgumentsError) as refused:
        parser.parse_json('{"number": "1", "text": 1, "when": "2026-01-31"}')
    assert "number: got the string" in str(refused.value)
    assert "text: got the number 1" in str(refused.value)


@dataclass(kw_only=True)
class Refused:
    name: str
    function: Callable[..., Any]
    says: list[str]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def only_when_checking(value: OnlyForTheTypeChecker) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
def socket_like(value: Machine[int]) -> None: ...
def calling(value: Callable[[int], int]) -> None: ...
def contradicting(value: Annotated[int, Field(ge=1)] = 0) -> None: ...
def one_alias(a: Annotated[int, Field(alias="x")], b: Annotated[int, Field(alias="x")]) -> None: ...
def alias_and_name(a: Annotated[int, Field(alias="b")], b: int) -> None: ...
def untyped_context(ctx, x: int) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def any_context(ctx: Any, x: int) -> None: ...
def keyword_context(*, ctx: Point) -> None: ...
def no_context() -> None: ...


REFUSED = [
    Refused(
        name="missing name",
        function=cast("Any", only_when_checking),
        says=["'value' of only_when_checking()", "'OnlyForTheTypeChecker'", "TYPE_CHECKING"],
    ),
    Refused(name="unknown class", function=socket_like, says=["'value' of socket_like()", "Machine", "context"]),
    Refused(name="callable", function=calling, says=["'value' of calling()", "JSON can't carry"]),
    Refused(name="default", function=contradicting, says=["'value' of contradicting()", "default 0", "greater than"]),
    Refused(name="alias twice", function=one_alias, says=["'b' of one_alias()", "'x'", "own alias"]),
    Refused(name="alias of a name", function=alias_and_name, says=["'b' of alias_and_name()", "'a'"]),
    Refused(
        name="no hint", function=cast("Any", untyped_context), says=["'ctx'", "no type"], options={"context": True}
    ),
    Refused(name="Any", function=any_context, says=["'ctx'", "no type"], options={"context": True}),
    Refused(name="keyword", function=keyword_context, says=["'ctx'", "positional"], options={"context": True}),
    Refused(name="none", function=no_context, says=["no parameter for the context"], options={"context": True}),
    Refused(name="no callable", function=5, says=["can't be called"]),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Refused(name="illegal name", function=two, says=["'a b'"], options={"name": "a b"}),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_cannot_be_a_tool_is_refused_with_the_reason(case: Refused) -> None:
    with pytest.raises(SchemaError) as refused:
        function_schema(case.function, **case.options)
    for words in case.says:
        assert words in str(refused.value)


def test_a_schema_is_the_same_text_each_time() -> None:
    import json

    def function(value: frozenset[str] = frozenset({"b", "a", "c"}), other: Node | None = None) -> None: ...

    texts = {json.dumps(function_schema(function).parameters) for _ in range(3)}
    assert len(texts) == 1
    assert '"default": ["a", "b", "c"]' in texts.pop()


def test_a_frozen_schema_has_equal_fields() -> None:
    schema = function_schema(two)
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.name = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


class Shop:
    @dataclass
    class Item:
        price: int

    vars()["list"] = print  # a method of that name

    def sell(self, item: Item, names: list[str]) -> None: ...


def test_a_method_may_name_what_its_class_holds_and_no_method_hides_a_builtin() -> None:
    schema = function_schema(Shop.sell, receiver=True)
    received = schema.arguments.parse_json('{"item": {"price": 1}, "names": ["a"]}')
    assert received == {"item": Shop.Item(1), "names": ["a"]}


def test_what_json_cannot_carry_is_left_out_where_a_default_stands_in() -> None:
    held = Machine[int]()

    def function(x: int, callback: Callable[[int], int] | None = None, *, machine: Machine[int] = held) -> Any:
        return x, callback, machine

    schema = function_schema(function)
    assert list(schema.parameters["properties"]) == ["x"]
    assert [warning.split(":")[0] for warning in schema.warnings] == [
        "parameter 'callback' is left out, its default applies",
        "parameter 'machine' is left out, its default applies",
    ]
    assert call(function, '{"x": 1}') == (1, None, held)


def test_a_tuple_of_positional_arguments_keeps_its_types() -> None:
    def function(*pair: *tuple[int, str]) -> Any:
        return pair

    assert function_schema(function).parameters["properties"] == {
        "pair": {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}
    }
    assert call(function, '{"pair": [1, "a"]}') == (1, "a")


class Aliased(BaseModel):
    inner: int = Field(alias="in-ner")


def test_aliases_of_models_stand_in_the_canonical_text() -> None:
    parser = of(Aliased).arguments
    arguments = parser.parse_json('{"value": {"in-ner": 1}}')
    assert parser.dump_json(arguments) == '{"value":{"in-ner":1}}'
    assert parser.parse(arguments) == arguments


def test_defaults_that_cannot_be_encoded_stay_out() -> None:
    def function(a: bytes = b"\xff", b: float = float("inf"), c: list[float] = [float("nan")]) -> None: ...  # noqa: B006

    assert all("default" not in member for member in function_schema(function).parameters["properties"].values())
    assert function_schema(function).arguments.parse_json("{}")["a"] == b"\xff"


def test_an_iterable_is_a_list_that_can_be_read_more_than_once() -> None:
    parser = of(Iterable[int]).arguments
    arguments = parser.parse_json('{"value": [1, "2"]}')
    assert parser.dump_json(arguments) == '{"value":[1,2]}'
    assert arguments == {"value": [1, 2]}


def test_a_secret_of_any_type_is_hidden() -> None:
    schema = of(pydantic.Secret[int])
    assert schema.parameters["properties"] == {"value": {"type": "integer", "writeOnly": True}}
    with pytest.raises(InvalidArgumentsError) as refused:
        schema.arguments.parse_json('{"value": "hunter2"}')
    assert "hunter2" not in str(refused.value)


def test_a_class_is_nothing_that_json_can_carry() -> None:
    with pytest.raises(SchemaError, match="JSON can't carry its type"):
        of(type[int])


def fail(value: object) -> object:
    raise TypeError(f"there is no database for {value}")


def test_a_default_that_is_read_once_is_not_read_for_the_schema() -> None:
    lines = iter(["one", "two"])

    def read(source: Any = lines, more: Any = (lines,)) -> list[str]:
        """Read."""
        return list(source)

    properties = function_schema(read).parameters["properties"]
    assert [schema.get("default", "none") for schema in properties.values()] == ["none", "none"]
    assert list(lines) == ["one", "two"]


def test_a_default_whose_validator_needs_the_running_program_is_no_error() -> None:
    def function(key: Annotated[int, AfterValidator(fail)] = 3, other: int = 1) -> None: ...

    parser = function_schema(function).arguments
    assert parser.parse_json("{}") == {"key": 3, "other": 1}
    with pytest.raises(InvalidArgumentsError, match="TypeError: there is no database for 5"):
        parser.parse_json('{"key": 5}')


def test_a_type_that_only_the_docstring_names_gives_way_to_the_default() -> None:
    # Without hints on purpose.
    def function(  # type: ignore[no-untyped-def]
        level="auto",  # pyright: ignore[reportMissingParameterType]
        tags=[],  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType] # noqa: B006
        count=2,  # pyright: ignore[reportMissingParameterType]
    ):
        """Do it.

        Args:
            level (int): How much.
            tags (dict[str, int]): Which.
            count (int): How many.
        """

    schema = function_schema(cast("Callable[..., None]", function)).parameters
    assert schema["properties"] == {
        "level": {"description": "How much.", "default": "auto"},
        "tags": {"description": "Which.", "default": []},
        "count": {"description": "How many.", "type": "integer", "default": 2},
    }


class Twice(enum.Enum):
    ONE = "x"
    SAME = "x"  # noqa: PIE796 - an alias


class Position(NamedTuple):
    """A place on a map."""

    latitude: float


def test_aliases_of_members_are_offered_once_and_a_named_tuple_keeps_its_docstring() -> None:
    def function(twice: Twice, position: Position) -> None: ...

    properties = function_schema(function).parameters["properties"]
    assert properties["twice"] == {"enum": ["x"], "type": "string"}
    assert properties["position"]["description"] == "A place on a map."


Kinds = TypeVarTuple("Kinds")


def test_positional_arguments_of_any_types_are_offered_as_any_values() -> None:
    def function(*values: *Kinds) -> tuple[*Kinds]:
        return values

    assert function_schema(function).parameters["properties"] == {"values": {"type": "array", "items": {}}}
