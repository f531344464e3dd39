"""What a schema offers is accepted, what is accepted is offered, and what JSON can't carry is said."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import json
import typing
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast
from zoneinfo import ZoneInfo

import jsonschema
import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel, Discriminator, Field, HttpUrl, SecretStr, Tag
from typing_extensions import Unpack

from tests.case_names import name_case
from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema import FunctionSchema, function_schema


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Permission(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Sparse(enum.IntFlag):
    ONE = 1
    FOUR = 4


class Opaque(enum.Enum):
    FIRST = object()
    SECOND = (1, 2)


class Spot(NamedTuple):
    row: int
    name: str = "here"


@dataclasses.dataclass
class Box:
    width: int
    factor: dataclasses.InitVar[int] = 2
    area: int = dataclasses.field(init=False, default=0)
    label: str = dataclasses.field(default="", kw_only=True)

    def __post_init__(self, factor: int) -> None:
        self.area = self.width * factor


class Plain(typing.TypedDict, total=False):
    limit: typing.Required[int]
    inner: Plain
    spots: list[Spot]


class Keys(typing.TypedDict, total=False):
    limit: int
    deep: bool


class Point(BaseModel):
    x: int
    color: Color = Color.RED


class Maybe(enum.Enum):
    """An enum of which one value is none."""

    RED = "red"
    NOTHING = None


class Shape(enum.Enum):
    ROUND = 1
    SQUARE = "square"


@dataclasses.dataclass
class Round:
    shape: Literal[Shape.ROUND]
    type: int = 1
    metadata: Literal[Shape.ROUND] | None = None


class Square(BaseModel):
    shape: Literal[Shape.SQUARE]


class Shaped(typing.TypedDict):
    shapes: list[Literal[Shape.ROUND, Shape.SQUARE]]


T = typing.TypeVar("T")
U = typing.TypeVar("U")


@dataclasses.dataclass
class Pair(typing.Generic[T, U]):
    first: T
    second: list[U] = dataclasses.field(default_factory=list[U])


@dataclasses.dataclass
class DatedPair(Pair[date, T]):
    third: str = ""


@dataclasses.dataclass
class FullPair(DatedPair[Color]):
    third: str = "x"


@dataclasses.dataclass
class NamedPair(FullPair):
    name: str = ""


@dataclasses.dataclass
class LoosePair(FullPair):
    # another type than that of the generic class
    first: str  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


ROUND = {"const": 1, "type": "integer", "description": "1 = ROUND"}
ROUND_MEMBERS = {
    "shape": ROUND,
    "type": {"type": "integer", "default": 1},
    "metadata": {"anyOf": [ROUND, {"type": "null"}], "default": None},
}
SQUARE_ARM = {
    "type": "object",
    "properties": {"shape": {"const": "square", "type": "string"}},
    "required": ["shape"],
}


class Client:
    """Something that no JSON can carry."""


MISSING: Any = cast("Any", typing_extensions.Sentinel)("MISSING")


def of(hint: Any, default: Any = ...) -> FunctionSchema:
    def f(value: Any) -> None: ...

    f.__annotations__ = {"value": hint}
    if default is not ...:
        f.__defaults__ = (default,)
    return function_schema(f)


@dataclasses.dataclass
class Case:
    name: str
    hint: Any
    schema: dict[str, Any]
    accepted: list[tuple[Any, Any]]
    refused: Sequence[Any] = ()


CASES = [
    Case(
        "a member of an enum", Literal[Color.RED], {"const": "red", "type": "string"}, [("red", Color.RED)], ["blue", 1]
    ),
    Case(
        "members among other values",
        Literal[Color.RED, 1, None, Level.HIGH],
        {"enum": ["red", 1, None, 2], "description": '"red" = RED, 2 = HIGH'},
        [("red", Color.RED), (1, 1), (None, None), (2, Level.HIGH)],
        ["blue", 3, True],
    ),
    Case(
        "a member inside",
        list[Literal[Color.RED]] | None,
        {"anyOf": [{"type": "array", "items": {"const": "red", "type": "string"}}, {"type": "null"}]},
        [(["red"], [Color.RED]), (None, None)],
        [["blue"]],
    ),
    Case(
        "a member in a dataclass",
        Round,
        {
            "type": "object",
            "properties": ROUND_MEMBERS,
            "required": ["shape"],
            "additionalProperties": False,
        },
        [
            ({"shape": 1}, Round(Shape.ROUND)),
            ({"shape": 1, "type": 2, "metadata": 1}, Round(Shape.ROUND, 2, Shape.ROUND)),
        ],
        [{"shape": "square"}, {"shape": True}],
    ),
    Case(
        "a member in a model", Square, SQUARE_ARM, [({"shape": "square"}, Square(shape=Shape.SQUARE))], [{"shape": 1}]
    ),
    Case(
        "members in a typed dictionary",
        Shaped,
        {
            "type": "object",
            "properties": {
                "shapes": {
                    "type": "array",
                    "items": {"enum": [1, "square"], "description": '1 = ROUND, "square" = SQUARE'},
                }
            },
            "required": ["shapes"],
            "additionalProperties": False,
        },
        [({"shapes": ["square", 1]}, {"shapes": [Shape.SQUARE, Shape.ROUND]})],
        [{"shapes": [2]}],
    ),
    Case(
        "members as a discriminator",
        Annotated[Round | Square, Field(discriminator="shape")],
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": ROUND_MEMBERS,
                    "required": ["shape"],
                    "additionalProperties": False,
                },
                SQUARE_ARM,
            ]
        },
        [({"shape": 1}, Round(Shape.ROUND)), ({"shape": "square"}, Square(shape=Shape.SQUARE))],
        [{"shape": 2}, {}],
    ),
    Case(
        "an enum with none among its values",
        Maybe,
        {"enum": ["RED", "NOTHING"], "type": "string"},
        [("RED", Maybe.RED), ("NOTHING", Maybe.NOTHING)],
        ["blue"],
    ),
    Case(
        "a member without a JSON value",
        Literal[Opaque.FIRST],
        {"const": "FIRST", "type": "string"},
        [("FIRST", Opaque.FIRST)],
        ["SECOND"],
    ),
    Case(
        "the names of numbers",
        Level,
        {"enum": [1, 2], "type": "integer", "description": "1 = LOW, 2 = HIGH"},
        [(1, Level.LOW), ("HIGH", Level.HIGH)],
        [3],
    ),
    Case(
        "the sums of a flag",
        Permission,
        {
            "type": "integer",
            "minimum": 0,
            "maximum": 7,
            "description": "The sum of any of 1 = READ, 2 = WRITE, 4 = RUN",
        },
        [(0, Permission(0)), (3, Permission.READ | Permission.WRITE), ("READ|RUN", Permission.READ | Permission.RUN)],
        [8, -1, True, 1.5, "DELETE"],
    ),
    Case(
        "the sums of a flag with gaps",
        Sparse,
        {"enum": [0, 1, 4, 5], "type": "integer", "description": "The sum of any of 1 = ONE, 4 = FOUR"},
        [(5, Sparse(5))],
        [2, 8, -1],
    ),
    Case(
        "the names of a named tuple",
        Spot,
        {
            "type": "array",
            "prefixItems": [
                {"type": "integer", "description": "row"},
                {"type": "string", "default": "here", "description": "name"},
            ],
            "minItems": 1,
            "maxItems": 2,
        },
        [([1, "a"], Spot(1, "a")), ([1], Spot(1))],
        [[], [1, "a", 2]],
    ),
    Case(
        "what a dataclass takes",
        Box,
        {
            "type": "object",
            "properties": {
                "width": {"type": "integer"},
                "factor": {"type": "integer", "default": 2},
                "label": {"type": "string", "default": ""},
            },
            "required": ["width"],
            "additionalProperties": False,
        },
        [({"width": 3, "factor": 4}, Box(3, 4)), ({"width": 1, "label": "a"}, Box(1, label="a"))],
        [{"width": 1, "area": 3}],
    ),
    Case(
        "an open tuple after fixed values",
        tuple[int, *tuple[str, ...]],
        {"type": "array", "minItems": 1, "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
        [([1], (1,)), ([1, "a", "b"], (1, "a", "b"))],
        [[], ["a"], [1, []]],
    ),
    Case(
        "an open tuple alone",
        tuple[*tuple[int, ...]],
        {"type": "array", "items": {"type": "integer"}},
        [([], ()), ([1, 2], (1, 2))],
        [["a"]],
    ),
    Case(
        "an open tuple of which one is needed",
        tuple[*tuple[int, ...], int],
        {"type": "array", "minItems": 1, "prefixItems": [{"type": "integer"}], "items": {"type": "integer"}},
        [([1], (1,)), ([1, 2], (1, 2))],
        [[]],
    ),
    Case(
        "a tuple in a tuple's place",
        tuple[int, *tuple[str, bool]],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}],
            "minItems": 3,
            "maxItems": 3,
        },
        [([1, "a", True], (1, "a", True))],
        [[1]],
    ),
    Case(
        "a typed dictionary of the standard library",
        Keys,
        {
            "type": "object",
            "properties": {"limit": {"type": "integer"}, "deep": {"type": "boolean"}},
            "additionalProperties": False,
        },
        [({"limit": 1}, {"limit": 1})],
        [{"limit": "x"}, {"other": 1}],
    ),
    Case("what is left of a union", str | Client, {"type": "string"}, [("a", "a")], [{}]),
    Case(
        "what is left of a union inside",
        dict[str, list[int | Client]],
        {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
        [({"a": [1]}, {"a": [1]})],
        [{"a": [{}]}],
    ),
    Case(
        "what is left beside a function",
        str | int | Callable[[], int],
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        [("a", "a"), (1, 1)],
        [[]],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_type_is_offered_as_it_is_accepted(case: Case) -> None:
    schema = of(case.hint)
    assert schema.parameters["properties"]["value"] == case.schema
    valid = cast("Any", jsonschema.Draft202012Validator(schema.parameters))
    for sent, received in case.accepted:
        arguments = schema.arguments.parse_json(json.dumps({"value": sent}))
        assert arguments == {"value": received}
        assert type(arguments["value"]) is type(received)
        assert schema.arguments.parse_json(schema.arguments.dump_json(arguments))["value"] is not None or sent is None
    for sent in case.refused:
        with pytest.raises(InvalidArgumentsError):
            schema.arguments.parse_json(json.dumps({"value": sent}))
        assert not valid.is_valid({"value": sent})


def test_a_typed_dictionary_of_the_standard_library_may_hold_itself() -> None:
    schema = of(list[Plain])
    sent = [{"limit": 1, "inner": {"limit": 2, "inner": {"limit": 3}}, "spots": [[1, "a"]]}]
    expected = [{**sent[0], "spots": [Spot(1, "a")]}]
    assert schema.arguments.parse_json(json.dumps({"value": sent})) == {"value": expected}
    assert "Plain" in schema.parameters["$defs"]
    with pytest.raises(InvalidArgumentsError, match="limit"):
        schema.arguments.parse_json('{"value": [{"inner": {"limit": "x"}}]}')


@pytest.mark.parametrize(
    ("hint", "default", "dropped"),
    [
        (str | Client | None, None, "Client"),
        (str | Client, ..., "Client"),
        (int | MISSING, MISSING, "MISSING"),
        (list[int | Client] | None, None, "Client"),
    ],
    ids=str,
)
def test_what_is_dropped_of_a_union_is_a_warning(hint: Any, default: Any, dropped: str) -> None:
    schema = of(hint, default)
    assert list(schema.parameters["properties"]) == ["value"]
    assert schema.warnings == (f"parameter 'value' is offered without {dropped}, which JSON can't carry",)
    if default is not ...:
        assert schema.arguments.parse_json("{}") == {"value": default}


def test_what_is_dropped_of_keywords_is_a_warning() -> None:
    def f(**more: int | Client) -> None: ...

    schema = function_schema(f)
    assert schema.parameters["additionalProperties"] == {"type": "integer"}
    assert schema.warnings == ("parameter 'more' is offered without Client, which JSON can't carry",)


def test_a_parameter_of_which_nothing_is_left_is_refused_or_left_out_with_a_warning() -> None:
    with pytest.raises(SchemaError, match="JSON can't carry its type"):
        of(Client | None)
    schema = of(Client | None, None)
    assert schema.parameters["properties"] == {}
    assert "is left out" in schema.warnings[0]


def test_a_tuple_that_goes_on_after_its_open_part_is_refused_with_the_reason() -> None:
    with pytest.raises(SchemaError, match="what follows the open part of a tuple must have its type"):
        of(tuple[*tuple[str, ...], int])


def test_a_positional_parameter_under_the_name_of_a_keyword_is_refused() -> None:
    def f(limit: int, /, **more: Unpack[Keys]) -> None: ...

    with pytest.raises(SchemaError, match=r"parameter 'limit' of .*: it is a key of the typed dictionary too"):
        function_schema(f)


# Both ways, for every supported type: what the schema allows is accepted, and what the type has is allowed.

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
INTEGERS = st.integers(-(2**53), 2**53)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "integer": INTEGERS,
    "number": st.floats(-1e9, 1e9, allow_nan=False) | INTEGERS,
    "string": WORDS,
    "boolean": st.booleans(),
    "null": st.none(),
}
FORMATS: dict[str, st.SearchStrategy[Any]] = {
    "date-time": st.datetimes(timezones=st.just(ZoneInfo("UTC"))).map(datetime.isoformat),
    "date": st.dates().map(date.isoformat),
    "time": st.times().map(time.isoformat),
    "duration": st.integers(0, 10**6).map(lambda seconds: f"PT{seconds}S"),
    "uuid": st.uuids().map(str),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "uri": st.sampled_from(["https://example.org/a?b=c", "http://localhost:1/"]),
    "path": st.just("a/b"),
    "binary": WORDS,
    "password": WORDS,
}


def values_of(schema: Any, root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a schema allows, for the keywords that are used here."""
    if "$ref" in schema:
        return values_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            choices = [choice for choice in schema[keyword] if depth < 3 or "$ref" not in choice]
            return st.one_of([values_of(choice, root, depth + 1) for choice in choices])
    match schema.get("type"):
        case "object":
            return objects_of(schema, root, depth)
        case "array":
            return arrays_of(schema, root, depth)
        case "string":
            found = FORMATS[schema["format"]] if "format" in schema else WORDS
            found = (
                st.from_regex(schema["pattern"], fullmatch=True, alphabet="0123456789.+-ab")
                if "pattern" in schema
                else found
            )
            return found.filter(lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 10**9))
        case "integer" | "number" as kind:
            low = schema.get("minimum", schema.get("exclusiveMinimum", -(10**6)))
            high = schema.get("maximum", schema.get("exclusiveMaximum", 10**6))
            open_ends = {schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")}
            numbers: st.SearchStrategy[Any] = st.integers(low, high) if kind == "integer" else st.floats(low, high)
            factor = schema.get("multipleOf", 1 if kind == "integer" else 0)
            return numbers.map(lambda n: n - n % factor if factor else n).filter(
                lambda n: n not in open_ends and n >= low
            )
        case None:
            return st.none() | st.booleans() | INTEGERS | WORDS | st.lists(WORDS, max_size=2)
        case kind:
            return SCALARS[kind]


def arms_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    arms: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return arms


def objects_of(schema: Any, root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    properties = {
        name: values_of(member, root, depth + 1)
        for name, member in schema.get("properties", {}).items()
        if depth < 3 or name in schema.get("required", ())
    }
    required = {name: member for name, member in properties.items() if name in schema.get("required", ())}
    optional = {name: member for name, member in properties.items() if name not in required}
    found = st.fixed_dictionaries(required, optional=optional)
    extra = schema.get("additionalProperties", False)
    if extra is False or depth > 2:
        return found
    names = st.one_of([values_of({"type": "string", **arm}, root) for arm in arms_of(schema.get("propertyNames", {}))])
    others = st.dictionaries(names, values_of({} if extra is True else extra, root, depth + 1), max_size=2)
    return st.tuples(others, found).map(lambda both: both[0] | both[1])


def arrays_of(schema: Any, root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    prefix = [values_of(item, root, depth + 1) for item in schema.get("prefixItems", [])]
    least, most = schema.get("minItems", 0), schema.get("maxItems", 3 if depth < 3 else 0)
    fixed = st.integers(min(least, len(prefix)), len(prefix)).flatmap(lambda size: st.tuples(*prefix[:size]))
    if "items" not in schema:
        return fixed.map(list)
    more = st.lists(
        values_of(schema["items"], root, depth + 1),
        min_size=max(0, least - len(prefix)),
        max_size=max(0, most - len(prefix), least - len(prefix)),
        unique_by=json.dumps if schema.get("uniqueItems") else None,
    )
    return st.tuples(st.tuples(*prefix), more).map(lambda both: [*both[0], *both[1]])


HINTS: list[Any] = [
    *[case.hint for case in CASES],
    str, int, float, bool, None, Any, bytes, list[int], set[str], frozenset[int], tuple[int, str], tuple[int, ...],
    dict[str, int], Mapping[str, float], Sequence[bool], Iterable[int], deque[int], OrderedDict[str, int],
    int | str, str | None, Literal["a", 1, None], Color, Opaque, Point, Plain, list[Plain],
    dict[str, Point | None], date, datetime, time, timedelta, uuid.UUID, Path, Decimal, SecretStr, HttpUrl,
    ipaddress.IPv4Address, ipaddress.IPv6Address, Annotated[int, Field(ge=1, lt=9, multiple_of=2)],
    Annotated[str, Field(min_length=1, max_length=3)], Annotated[str, Field(pattern="^[ab]+$")],
    Annotated[float, Field(gt=0, le=1)], Annotated[list[int], Field(min_length=1, max_length=2)],
    Annotated[set[int], Field(max_length=2)], list[Permission], dict[str, Sparse], dict[Color, int],
    Level | None, tuple[Literal[Color.RED], Level],
    dict[int, str], dict[bool, int], dict[float, int], dict[date, int], dict[Level, int], dict[Decimal, int],
    dict[tuple[int, int], int], dict[int | None, str], dict[Literal[1, "a"], int], dict[Permission, int],
    dict[uuid.UUID, list[dict[int, Color]]],
]  # fmt: skip


@pytest.mark.parametrize("hint", HINTS, ids=name_case)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_whatever_a_schema_allows_is_accepted(hint: Any, data: st.DataObject) -> None:
    schema = of(hint)
    value = data.draw(values_of(schema.parameters, schema.parameters))
    assert cast("Any", jsonschema.Draft202012Validator(schema.parameters)).is_valid(value)
    schema.arguments.parse_json(json.dumps(value))


# Hypothesis can't make them, or what comes back of them is equal only in its text.
NOT_MADE: tuple[Any, ...] = (
    HttpUrl,
    Path,
    SecretStr,
    OrderedDict[str, int],
    dict[tuple[int, int], int],
    dict[int | None, str],
    dict[Literal[1, "a"], int],
    *(case.hint for case in CASES if "left" in case.name),
)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MADE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (Any, st.none() | st.booleans() | INTEGERS | WORDS),
    (float, FLOATS),
    (bytes, WORDS.map(str.encode)),
    (Mapping[str, float], st.dictionaries(WORDS, FLOATS)),
    (Sequence[bool], st.lists(st.booleans())),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (dict[float, int], st.dictionaries(FLOATS, INTEGERS)),
    (dict[Decimal, int], st.dictionaries(st.decimals(allow_nan=False, allow_infinity=False, places=3), INTEGERS)),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (timedelta, st.timedeltas(timedelta(0), timedelta(days=900))),
    (tuple[int, *tuple[str, ...]], st.tuples(INTEGERS, st.lists(WORDS)).map(lambda both: (both[0], *both[1]))),
    (tuple[*tuple[int, ...]], st.lists(INTEGERS).map(tuple)),
    (tuple[*tuple[int, ...], int], st.lists(INTEGERS, min_size=1).map(tuple)),
    (tuple[int, *tuple[str, bool]], st.tuples(INTEGERS, WORDS, st.booleans())),
    (Annotated[float, Field(gt=0, le=1)], st.floats(0, 1, exclude_min=True)),
    (Annotated[int, Field(ge=1, lt=9, multiple_of=2)], st.sampled_from([2, 4, 6, 8])),
    (Annotated[str, Field(min_length=1, max_length=3)], WORDS.map(lambda text: (text + "a")[:3])),
    (Annotated[str, Field(pattern="^[ab]+$")], st.text("ab", min_size=1)),
    (Annotated[list[int], Field(min_length=1, max_length=2)], st.lists(INTEGERS, min_size=1, max_size=2)),
    (Annotated[set[int], Field(max_length=2)], st.sets(INTEGERS, max_size=2)),
    (Box, st.builds(Box, INTEGERS, label=WORDS)),
]
VALUES = {str(hint): values for hint, values in MADE}


@pytest.mark.parametrize(
    "hint", [hint for hint in HINTS if hint not in NOT_MADE and "Iterable" not in str(hint)], ids=name_case
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_whatever_a_type_has_is_offered(hint: Any, data: st.DataObject) -> None:
    schema = of(hint)
    value = data.draw(VALUES[str(hint)] if str(hint) in VALUES else st.from_type(hint))
    said = json.loads(schema.arguments.dump_json({"value": value}, reveal_secrets=True))
    assert cast("Any", jsonschema.Draft202012Validator(schema.parameters)).is_valid(said), said
    assert schema.arguments.parse_json(json.dumps(said)) == {"value": value}


def test_an_enum_with_none_among_its_values_has_one_set_of_names() -> None:
    schema = of(Maybe, Maybe.RED)
    offered = schema.parameters["properties"]["value"]
    assert offered == {"enum": ["RED", "NOTHING"], "type": "string", "default": "RED"}
    for member in Maybe:
        text = schema.arguments.dump_json(schema.arguments.parse_json(json.dumps({"value": member.name})))
        assert schema.arguments.parse_json(text) == {"value": member}
        assert json.loads(text).get("value", offered["default"]) == member.name


def choose_kind(value: Any) -> str | None:
    return next((kind for kind in ("width", "limit") if kind in value), None)


def test_tags_that_a_function_finds_are_named_where_it_finds_none() -> None:
    schema = of(
        Annotated[Annotated[Box, Tag("a box")] | Annotated[Keys, Tag("keys")], Discriminator(choose_kind)],
    )
    with pytest.raises(InvalidArgumentsError, match='"a box", "keys"'):
        schema.arguments.parse_json('{"value": {"deep": true}}')


def test_a_dataclass_over_a_generic_one_keeps_its_types() -> None:
    schema = of(dict[str, FullPair])
    assert schema.parameters["properties"]["value"]["additionalProperties"] == {
        "type": "object",
        "properties": {
            "first": {"type": "string", "format": "date"},
            "second": {"type": "array", "items": {"enum": ["red", "blue"], "type": "string"}},
            "third": {"type": "string", "default": "x"},
        },
        "required": ["first"],
        "additionalProperties": False,
    }
    arguments = schema.arguments.parse_json('{"value": {"a": {"first": "2026-01-31", "second": ["red"]}}}')
    assert arguments == {"value": {"a": FullPair(date(2026, 1, 31), [Color.RED])}}
    assert schema.arguments.parse_json(schema.arguments.dump_json(arguments)) == arguments
    named, loose = of(NamedPair).arguments, of(LoosePair).arguments
    assert named.parse_json('{"value": {"first": "2026-01-31"}}') == {"value": NamedPair(date(2026, 1, 31))}
    assert loose.parse_json('{"value": {"first": "2026-01-31"}}') == {"value": LoosePair("2026-01-31")}
    for wrong in ('{"first": "soon"}', '{"first": "2026-01-31", "second": ["green"]}'):
        with pytest.raises(InvalidArgumentsError):
            schema.arguments.parse_json(f'{{"value": {{"a": {wrong}}}}}')
