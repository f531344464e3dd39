"""The view of a schema for small models, and the arguments that it stands for."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field

from toolkit import FunctionTool, tool
from toolkit.guided import fold_schema

TEXT = {"type": "string"}
ADDRESS = {
    "type": "object",
    "properties": {"street": TEXT, "city": TEXT, "floor": {"type": "integer"}},
    "required": ["street", "city"],
}


def parameters(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def view(schema: dict[str, Any], request: str | None = None) -> dict[str, Any]:
    return dict(fold_schema(schema, request).properties)


def test_objects_inside_become_names_with_dots_and_come_back() -> None:
    folded = fold_schema(parameters("address", "weight", address=ADDRESS, weight={"type": "number"}), "to Rome")
    assert list(folded.properties) == ["address.street", "address.city", "weight"]
    values = {"address.street": "5 Main Street", "address.city": "Rome", "weight": 2}
    arguments = folded.unfold(values)
    assert arguments == {"address": {"street": "5 Main Street", "city": "Rome"}, "weight": 2}
    assert folded.fold(arguments) == values


def test_references_are_inlined() -> None:
    schema = parameters("home", home={"$ref": "#/$defs/Address"}) | {"$defs": {"Address": ADDRESS}}
    assert "home.city" in view(schema)


def test_a_schema_that_contains_itself_ends() -> None:
    node = parameters("name", name=TEXT, child={"$ref": "#/$defs/Node"})
    folded = fold_schema(parameters("root", root={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": node}}, "a child")
    assert "root.name" in folded.properties
    assert len(folded.properties) < 10


@dataclass
class Case:
    """A union and what is left of it."""

    arms: list[dict[str, Any]]
    kept: dict[str, Any]


CASES = {
    "a text or nothing": Case([TEXT, {"type": "null"}], TEXT),
    "a text or a list": Case([{"type": "array", "items": TEXT}, TEXT], TEXT),
    "a list or an object": Case([ADDRESS, {"type": "array", "items": TEXT}], {"type": "array", "items": TEXT}),
    "numbers and texts": Case([TEXT, {"type": "integer"}], {"anyOf": [TEXT, {"type": "integer"}]}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_of_a_union_the_useful_arm_is_kept(case: Case) -> None:
    schema = parameters("value", value={"anyOf": case.arms, "description": "The value."})
    assert view(schema, "the value") == {"value": {**case.kept, "description": "The value."}}


def test_constants_and_nulls_are_filled_in() -> None:
    schema = parameters("kind", "note", "name", kind={"const": "person"}, note={"type": ["string", "null"]}, name=TEXT)
    folded = fold_schema(schema, "add Ann")
    assert list(folded.properties) == ["name"]
    assert folded.unfold({"name": "Ann"}) == {"kind": "person", "note": None, "name": "Ann"}


def test_optional_parameters_are_left_out_unless_they_are_named() -> None:
    schema = parameters(
        "title",
        title=TEXT,
        guests={"type": "array", "items": TEXT},
        unit={"enum": ["celsius", "fahrenheit"]},
        place={"type": "string", "description": "Where it takes place."},
    )
    assert list(view(schema, "Lunch with two guests")) == ["title", "guests"]
    assert list(view(schema, "Lunch, in fahrenheit")) == ["title", "unit"]
    assert list(view(schema)) == ["title", "guests", "unit", "place"]


def test_what_may_be_meant_without_a_name_may_be_given() -> None:
    number = {"type": "integer"}
    search = parameters("city", city=TEXT, least_price=number, most_price=number)
    below, between = (fold_schema(search, f"a home in Rome {bound}") for bound in ("below 900", "between 500 and 900"))
    assert list(below.properties) == ["city", "most_price"]
    assert list(between.properties) == ["city", "least_price", "most_price"]
    assert between.schema["required"] == ["city"]
    shirts = parameters("colour", colour=TEXT, count={"type": "integer", "description": "How many."})
    assert list(view(shirts, "two red shirts")) == ["colour", "count"]
    assert list(view(shirts, "a red shirt")) == ["colour"]


def test_where_nothing_is_required_anything_may_be_given() -> None:
    folded = fold_schema(parameters(title=TEXT, author=TEXT), "Do you have Dune by Frank Herbert?")
    assert list(folded.properties) == ["title", "author"]
    assert folded.schema["required"] == []
    assert folded.asked == {"title", "author"}


def test_a_parameter_is_named_by_a_word_of_the_same_root_and_by_the_items_of_its_list() -> None:
    days = {"type": "array", "items": {"enum": ["mon", "tue"]}}
    assert list(view(parameters("title", title=TEXT, assignee=TEXT), "assigned to Kira")) == ["title", "assignee"]
    assert list(view(parameters("at", at=TEXT, repeat=days), "at 7 on Mondays")) == ["at", "repeat"]


def test_of_a_long_enum_the_named_values_are_kept() -> None:
    countries = [f"Land {number}" for number in range(30)] + ["New Zealand", "Zealand"]
    schema = parameters("country", country={"enum": countries})
    assert view(schema, "a flight to New Zealand")["country"]["enum"] == ["New Zealand", "Zealand"]
    assert view(schema, "a flight to the moon")["country"]["enum"] == countries


def test_keywords_that_engines_fail_on_are_left_to_the_validation() -> None:
    schema = parameters("code", code={"type": "string", "pattern": "^(?=a)", "minLength": 3, "format": "uuid"})
    assert view(schema) == {"code": {"type": "string"}}


def test_properties_that_are_named_like_keywords_stay() -> None:
    schema = parameters("pattern", "title", pattern=TEXT, title={"type": "string", "title": "Title"})
    assert view(schema) == {"pattern": TEXT, "title": TEXT}


def test_a_key_with_a_dot_of_its_own_is_told_apart() -> None:
    schema = parameters("a", "a.b", a=parameters("b", b=TEXT), **{"a.b": {"type": "integer"}})
    folded = fold_schema(schema)
    values = dict(zip(folded.properties, ["deep", 3], strict=True))
    assert folded.unfold(values) == {"a": {"b": "deep"}, "a.b": 3}


class Door(BaseModel):
    """A door."""

    width: int
    colour: Literal["red", "green"] = "green"


class House(BaseModel):
    """A house."""

    name: str
    door: Door
    doors: list[Door] = []
    kind: Literal["house"]
    rooms: Annotated[int, Field(ge=1)] | None


@tool
def build(house: House, fast: bool = False) -> str:
    """Build a house."""
    return f"{house!r} {fast}"


@given(st.text(min_size=1), st.integers(), st.booleans())
def test_what_is_filled_in_fits_the_whole_schema(name: str, width: int, fast: bool) -> None:
    assert isinstance(build, FunctionTool)
    folded = fold_schema(build.definition.parameters, "a fast house")
    assert list(folded.properties) == ["house.name", "house.door.width", "fast"]
    arguments = folded.unfold({"house.name": name, "house.door.width": width, "fast": fast})
    parsed = build.parse_args(arguments)
    assert parsed["house"] == House(name=name, door=Door(width=width), kind="house", rooms=None)
    assert folded.fold(arguments) == {"house.name": name, "house.door.width": width, "fast": fast}
