"""What a document says of values, as the JSON Schema that a model reads and arguments are checked by."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.sources.openapi.pets import document, operation
from toolkit.errors import InvalidArgumentsError
from toolkit.sources.openapi import OpenApiTool, openapi_tools

pytestmark = pytest.mark.anyio


async def tool_for(schema: Any, *, version: str, schemas: dict[str, Any] | None = None) -> OpenApiTool:
    described = operation(requestBody={"required": True, "content": {"application/json": {"schema": schema}}})
    source = document({"/pets": {"post": described}}, version=version, components={"schemas": schemas or {}})
    async with openapi_tools(source) as tools:
        return tools[0]


@dataclass
class Case:
    about: str
    version: str
    schema: Any
    expected: Any
    schemas: dict[str, Any] = field(default_factory=dict[str, Any])
    definitions: dict[str, Any] | None = None


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


CASES = [
    Case("nullable", "3.0.3", {"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    Case(
        "a nullable choice",
        "3.0.3",
        {"type": "string", "enum": ["a"], "nullable": True},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    Case(
        "a nullable reference",
        "3.0.3",
        {"allOf": [ref("A")], "nullable": True, "description": "An A."},
        {"description": "An A.", "anyOf": [{"allOf": [{"type": "integer"}]}, {"type": "null"}]},
        {"A": {"type": "integer"}},
    ),
    Case(
        "bounds that are left out",
        "3.0.3",
        {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False},
        {"type": "number", "maximum": 9, "exclusiveMinimum": 1},
    ),
    Case("an example", "3.0.3", {"type": "string", "example": "Rex"}, {"type": "string", "examples": ["Rex"]}),
    Case(
        "words beside a reference",
        "3.0.3",
        {**ref("A"), "description": "Which.", "minLength": 3},
        {"type": "string", "description": "Which."},
        {"A": {"type": "string", "description": "Any."}},
    ),
    Case(
        "rules beside a reference",
        "3.1.0",
        {**ref("A"), "description": "Which.", "minLength": 3},
        {"description": "Which.", "minLength": 3, "allOf": [{"type": "string"}]},
        {"A": {"type": "string"}},
    ),
    Case(
        "what only the server sets, and what is of no use to a model",
        "3.0.3",
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "made": ref("Stamp"),
                "name": {"type": "string", "xml": {"name": "n"}, "x-order": 1},
                "password": {"type": "string", "writeOnly": True},
            },
            "required": ["id", "name"],
            "externalDocs": {"url": "https://pets.test"},
        },
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "password": {"type": "string", "writeOnly": True}},
            "required": ["name"],
        },
        {"Stamp": {"type": "string", "readOnly": True}},
    ),
    Case(
        "a tree",
        "3.1.0",
        ref("Node"),
        {"$ref": "#/$defs/Node"},
        {"Node": {"type": "object", "properties": {"children": {"type": "array", "items": ref("Node")}}}},
        {"Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}},
    ),
    Case(
        "one definition for two uses, and none for one",
        "3.1.0",
        {"type": "array", "prefixItems": [ref("A"), ref("A"), ref("B")]},
        {"type": "array", "prefixItems": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"type": "null"}]},
        {"A": {"type": "string"}, "B": {"type": "null"}},
        {"A": {"type": "string"}},
    ),
    Case(
        "an anchor and an id",
        "3.1.0",
        {"type": "array", "prefixItems": [{"$ref": "#size"}, {"$ref": "https://pets.test/color"}]},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        {"A": {"$anchor": "size", "type": "integer"}, "B": {"$id": "https://pets.test/color", "type": "string"}},
    ),
    Case(
        "alternatives told apart by a property",
        "3.0.3",
        {
            "oneOf": [ref("Cat"), ref("Dog")],
            "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat"}},
        },
        {
            "oneOf": [
                {"allOf": [{"type": "object"}, {"properties": {"kind": {"const": "cat"}}, "required": ["kind"]}]},
                {"allOf": [{"type": "object"}, {"properties": {"kind": {"const": "Dog"}}, "required": ["kind"]}]},
            ]
        },
        {"Cat": {"type": "object"}, "Dog": {"type": "object"}},
    ),
    Case(
        "a pattern that Python can't read",
        "3.1.0",
        {"type": "string", "pattern": "^\\p{L}+$"},
        {"type": "string", "description": "Matches the regular expression ^\\p{L}+$"},
    ),
    Case("a type that is several", "3.1.0", {"type": ["string", "null"]}, {"type": ["string", "null"]}),
    Case("anything", "3.1.0", True, {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_a_schema_is_said_in_the_words_of_json_schema(case: Case) -> None:
    tool = await tool_for(case.schema, version=case.version, schemas=case.schemas)
    expected: dict[str, Any] = {
        "type": "object",
        "properties": {"body": case.expected},
        "required": ["body"],
        "additionalProperties": False,
    }
    if case.definitions:
        expected["$defs"] = case.definitions
    assert tool.definition.parameters == expected


async def test_arguments_are_checked_all_the_way_down() -> None:
    node = {"type": "object", "properties": {"size": {"type": "integer"}, "next": ref("Node")}}
    tool = await tool_for(ref("Node"), version="3.1.0", schemas={"Node": node})
    good: dict[str, Any] = {"body": {"next": {"next": {"size": 3}}}}
    assert tool.parse_args(good) == good
    with pytest.raises(InvalidArgumentsError, match=r"body\.next\.next\.size"):
        tool.parse_args({"body": {"next": {"next": {"size": "big"}}}})


async def test_definitions_of_one_name_are_kept_apart() -> None:
    inner = {"type": "object", "properties": {"a": {"enum": [1]}}, "$defs": {"A": {"enum": ["inner"]}}}
    reference = {"$ref": "#/components/schemas/Inner/$defs/A"}
    schema = {"type": "array", "prefixItems": [reference, reference, ref("A"), ref("A")]}
    tool = await tool_for(schema, version="3.1.0", schemas={"A": {"enum": ["outer"]}, "Inner": inner})
    assert tool.definition.parameters["$defs"] == {"A": {"enum": ["inner"]}, "A_2": {"enum": ["outer"]}}


async def test_a_description_is_what_the_document_says_and_how_it_warns() -> None:
    described = operation(summary="Add a pet.", description="It is kept for a day.", deprecated=True)
    async with openapi_tools(document({"/pets": {"post": described, "get": operation()}})) as tools:
        assert [tool.definition.description for tool in tools] == [
            "GET /pets",
            "Add a pet.\n\nIt is kept for a day.\n\nDeprecated.",
        ]
        assert tools[1].options.label == "Add a pet."
