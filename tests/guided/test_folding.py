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


def view(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(fold_schema(schema).properties)


def test_objects_inside_become_names_with_dots_and_come_back() -> None:
    folded = fold_schema(parameters("address", "weight", address=ADDRESS, weight={"type": "number"}))
    assert list(folded.properties) == ["address.street", "address.city", "address.floor", "weight"]
    assert folded.optional == {"address.floor"}
    values = {"address.street": "5 Main Street", "address.city": "Rome", "weight": 2}
    arguments = folded.unfold(values)
    assert arguments == {"address": {"street": "5 Main Street", "city": "Rome"}, "weight": 2}
    assert folded.fold(arguments) == values


def test_references_are_inlined() -> None:
    schema = parameters("home", home={"$ref": "#/$defs/Address"}) | {"$defs": {"Address": ADDRESS}}
    assert "home.city" in view(schema)


def test_a_schema_that_contains_itself_ends() -> None:
    node = parameters("name", name=TEXT, child={"$ref": "#/$defs/Node"})
    folded = fold_schema(parameters("root", root={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": node}})
    assert "root.name" in folded.properties
    assert len(folded.properties) < 10


@dataclass
class Case:
    """A union, and the view of it."""

    arms: list[dict[str, Any]]
    kept: dict[str, Any]


CASES = {
    "a text or nothing": Case([TEXT, {"type": "null"}], TEXT),
    "a text or a list": Case(
        [{"type": "array", "items": TEXT}, TEXT], {"anyOf": [{"type": "array", "items": TEXT}, TEXT]}
    ),
    "a list or an object": Case(
        [ADDRESS, {"type": "array", "items": TEXT}],
        {"anyOf": [{**ADDRESS, "additionalProperties": False}, {"type": "array", "items": TEXT}]},
    ),
    "numbers and texts": Case([TEXT, {"type": "integer"}], {"anyOf": [TEXT, {"type": "integer"}]}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_of_a_union_each_arm_but_null_is_kept(case: Case) -> None:
    schema = parameters("value", value={"anyOf": case.arms, "description": "The value."})
    assert view(schema) == {"value": {**case.kept, "description": "The value."}}


def test_constants_and_nulls_are_filled_in() -> None:
    schema = parameters("kind", "note", "name", kind={"const": "person"}, note={"type": ["string", "null"]}, name=TEXT)
    folded = fold_schema(schema)
    assert list(folded.properties) == ["note", "name"]
    assert folded.optional == {"note"}
    assert folded.unfold({"name": "Ann"}) == {"kind": "person", "note": None, "name": "Ann"}


def test_optional_parameters_are_in_the_view_and_may_be_left_out() -> None:
    contact = parameters("email", "kind", email=TEXT, phone=TEXT, kind={"const": "private"})
    folded = fold_schema(parameters("title", title=TEXT, contact=contact))
    assert list(folded.properties) == ["title", "contact.email", "contact.phone"]
    assert folded.schema["required"] == ["title"]
    assert folded.unfold({"title": "Lunch"}) == {"title": "Lunch"}
    given = folded.unfold({"title": "Lunch", "contact.email": "a@x.example"})
    assert given == {"title": "Lunch", "contact": {"email": "a@x.example", "kind": "private"}}


def test_an_object_that_is_required_is_there_though_nothing_in_it_is_given() -> None:
    options = parameters(fast=TEXT)
    assert fold_schema(parameters("options", options=options)).unfold({}) == {"options": {}}


def test_further_arguments_are_allowed_where_the_tool_takes_them() -> None:
    schema = parameters("name", name=TEXT) | {"additionalProperties": {"type": "integer"}}
    folded = fold_schema(schema)
    assert folded.schema["additionalProperties"] == {"type": "integer"}
    assert folded.unfold({"name": "Ann", "age": 3}) == {"name": "Ann", "age": 3}


def test_a_view_can_be_asked_for_in_parts() -> None:
    folded = fold_schema(parameters("title", title=TEXT, place=TEXT))
    assert folded.select(["place"]) == {
        "type": "object",
        "properties": {"place": TEXT},
        "required": [],
        "additionalProperties": False,
    }


def test_keywords_that_engines_fail_on_are_left_to_the_validation() -> None:
    schema = parameters("code", code={"type": "string", "pattern": "^(?=a)", "minLength": 3, "format": "uuid"})
    folded = fold_schema(schema)
    assert folded.properties == {"code": {"type": "string"}}
    assert folded.codes == {"code": {"pattern": "^(?=a)", "format": "uuid"}}


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
    folded = fold_schema(build.definition.parameters)
    assert list(folded.properties) == [
        "house.name",
        "house.door.width",
        "house.door.colour",
        "house.doors",
        "house.rooms",
        "fast",
    ]
    arguments = folded.unfold({"house.name": name, "house.door.width": width, "fast": fast})
    parsed = build.parse_args(arguments)
    assert parsed["house"] == House(name=name, door=Door(width=width), kind="house", rooms=None)
    assert folded.fold(arguments) == {"house.name": name, "house.door.width": width, "fast": fast}
