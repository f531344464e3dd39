"""Parameters are compiled one by one, and share what they have in common."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import annotated_types
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from typing_extensions import TypedDict

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import FunctionSchema, function_schema


class Node(BaseModel):
    """Holds itself."""

    inner: Node | None = None


class Address(BaseModel):
    """Where somebody lives."""

    model_config = ConfigDict(extra="allow")

    street: str
    number: int = Field(ge=1, description="Of the house.")


class Person(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    home: Address | None = None


class Kind(enum.Enum):
    BOOK = "book"
    FILM = "film"


@dataclasses.dataclass
class Point:
    """A place."""

    x: float
    y: float = 0.0


class Options(TypedDict, total=False):
    depth: int
    quick: bool


class Trip(BaseModel):
    """Has two of one type, which is then a definition."""

    start: Point
    end: Point
    other: Kind | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


HINTS: list[Any] = [
    Address, Person, Kind, Point, Options, list[Address], dict[str, Point], Address | None, set[int] | str,
    str | set[int], int | str, str | int, tuple[int, str], frozenset[str], Sequence[int], Decimal, Path, bytes,
    uuid.UUID, SecretStr, datetime.datetime, datetime.date | None, datetime.timedelta, Literal[1, "a", None],
    Annotated[str, Field(min_length=2, max_length=4, pattern="^[a-z]+$")],
    Annotated[float, Field(gt=0, description="How much.")],
    Annotated[int, annotated_types.Ge(3)], Annotated[list[int], Field(max_length=2)],
    Annotated[Address, Field(description="Its own.")], Annotated[Cat | Dog, Field(discriminator="kind")],
    list[Annotated[int, Field(ge=0)]], Annotated[int, Field(strict=True)], Node, list[Node], Trip, dict[str, Trip],
]  # fmt: skip

VALUES: list[Any] = [
    None, True, 0, 1, 5, 1.5, "", "5", "ab", "abcde", "book", "BOOK", "film", [], [1], [1, 2, 2], ["a", "b"],
    [1, "a"], {}, {"street": "a", "number": 1}, {"street": "a", "number": 0, "more": 2},
    [{"street": "a", "number": 1}], {"name": "x", "home": {"street": "s", "number": 2}}, {"x": 1},
    {"x": 1, "y": "2"}, {"a": {"x": 1}}, {"depth": 1}, {"depth": 1, "deep": 2}, {"kind": "cat", "lives": 9},
    {"kind": "dog", "name": "Rex"}, {"kind": "cow"}, "2026-01-02", "2026-01-02T03:04:05", "P1D",
    {"inner": {"inner": {}}}, [{"inner": None}], {"start": {"x": 1}, "end": {"x": "b"}},
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "1.10",
]  # fmt: skip


def schemas(hint: Any, *, strict: bool) -> tuple[FunctionSchema, FunctionSchema]:
    """Return a function's schema, and that of the same function with one more parameter that forbids parts."""

    def parts(value: Any, other: Any = 1) -> None:
        """Do.

        Args:
            value: It.
        """

    def whole(value: Any, other: Any = 1, node: Any = None) -> None:
        """Do.

        Args:
            value: It.
        """

    parts.__annotations__ = {"value": hint, "other": int}
    whole.__annotations__ = {"value": hint, "other": int, "node": Annotated[int, Field(default=3)]}
    return function_schema(parts, strict=strict), function_schema(whole, strict=strict)


def received(schema: FunctionSchema, value: Any) -> Any:
    try:
        arguments = schema.arguments.parse_json(json.dumps({"value": value}))
    except InvalidArgumentsError as error:
        return str(error).replace(", node", "").replace(', "node": {}', "")
    arguments.pop("node", None)
    return arguments, repr(arguments)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_a_hint_compiles_alone_to_what_it_is_among_others(hint: Any, strict: bool) -> None:
    parts, whole = schemas(hint, strict=strict)
    expected = dict(whole.parameters["properties"])
    del expected["node"]
    assert json.dumps(parts.parameters["properties"]) == json.dumps(expected)
    assert parts.parameters.get("$defs") == whole.parameters.get("$defs")
    for value in VALUES:
        assert received(parts, value) == received(whole, value)


def test_a_type_that_two_parameters_share_is_said_once() -> None:
    def travel(start: Point, end: list[Point]) -> None: ...

    schema = function_schema(travel, localns=locals())
    assert list(schema.parameters["$defs"]) == ["Point"]
    assert schema.parameters["properties"]["start"] == {"$ref": "#/$defs/Point"}


def test_two_types_of_one_name_are_told_apart() -> None:
    def there() -> type[BaseModel]:
        class Address(BaseModel):
            planet: str

        return Address

    def travel(start: Any, end: Any) -> None: ...

    travel.__annotations__ = {"start": Address, "end": there()}
    schema = function_schema(travel)
    properties = schema.parameters["properties"]
    assert [list(properties[name]["properties"]) for name in ("start", "end")] == [["street", "number"], ["planet"]]
    arguments = schema.arguments.parse_json('{"start": {"street": "a", "number": 1}, "end": {"planet": "Mars"}}')
    assert isinstance(arguments["start"], Address)
    assert not isinstance(arguments["end"], Address)


def test_equal_hints_of_different_order_keep_their_order() -> None:
    def one(value: int | list[int]) -> None: ...

    def other(value: list[int] | int) -> None: ...

    first, second = function_schema(one), function_schema(other)
    assert [choice["type"] for choice in first.parameters["properties"]["value"]["anyOf"]] == ["integer", "array"]
    assert [choice["type"] for choice in second.parameters["properties"]["value"]["anyOf"]] == ["array", "integer"]


def test_constraints_and_words_are_each_hints_own() -> None:
    def one(value: Annotated[int, Field(ge=0, description="First.")]) -> None: ...

    def other(value: Annotated[int, Field(ge=1, description="First.")]) -> None: ...

    def third(value: Annotated[int, Field(ge=0, description="Third.", examples=[3])]) -> None: ...

    properties = [function_schema(each).parameters["properties"]["value"] for each in (one, other, third)]
    assert properties == [
        {"type": "integer", "minimum": 0, "description": "First."},
        {"type": "integer", "minimum": 1, "description": "First."},
        {"type": "integer", "minimum": 0, "description": "Third.", "examples": [3]},
    ]


def test_one_tools_schema_can_be_changed_without_changing_anothers() -> None:
    def one(value: Address) -> None: ...

    def other(value: Address) -> None: ...

    function_schema(one).parameters["properties"]["value"]["properties"].clear()
    assert list(function_schema(other).parameters["properties"]["value"]["properties"]) == ["street", "number"]


def test_nor_is_another_tools_definition_changed() -> None:
    def one(value: Trip) -> None: ...

    def other(value: Trip) -> None: ...

    function_schema(one).parameters["$defs"]["Point"]["properties"].clear()
    assert list(function_schema(other).parameters["$defs"]["Point"]["properties"]) == ["x", "y"]


def test_two_definitions_of_one_name_are_told_apart() -> None:
    def there() -> type[BaseModel]:
        class Point(BaseModel):
            planet: str

        return Point

    def travel(start: Any, end: Any) -> None: ...

    other: Any = there()
    travel.__annotations__ = {"start": list[Point] | Point, "end": list[other] | other}
    parameters = function_schema(travel).parameters
    assert {name: list(each["properties"]) for name, each in parameters["$defs"].items()} == {
        "Point": ["x", "y"],
        "Point2": ["planet"],
    }
    assert parameters["properties"]["end"]["anyOf"][1] == {"$ref": "#/$defs/Point2"}


def test_a_default_that_is_secret_is_not_shown_to_the_model() -> None:
    def log_in(token: SecretStr = "hunter2") -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]

    schema = function_schema(log_in)
    assert schema.parameters["properties"]["token"] == {"type": "string", "writeOnly": True, "format": "password"}
    assert schema.arguments.parse({})["token"] == "hunter2"


def test_a_field_as_the_default_has_its_own_default_in_each_tool() -> None:
    def one(value: int = Field(default=1, description="Of it.")) -> None: ...

    def other(value: int = Field(default=2, description="Of it.")) -> None: ...

    def third(value: list[int] = Field(default=[], description="Of it.")) -> None: ...  # noqa: B008

    schemas = [function_schema(each) for each in (one, other, third)]
    assert [schema.parameters["properties"]["value"]["default"] for schema in schemas] == [1, 2, []]
    schemas[2].arguments.parse({})["value"].append(1)
    assert [schema.arguments.parse({}) for schema in schemas] == [{"value": 1}, {"value": 2}, {"value": []}]
