"""One rule of a provider, one case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from toolkit.errors import SchemaError
from toolkit.schema import (
    function_schema,
    project_anthropic,
    project_anthropic_strict,
    project_gemini,
    project_openai_strict,
)

STRING = {"type": "string"}
RECURSIVE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["value"],
        }
    },
}


PAIR = {"type": "object", "properties": {"a": STRING}, "required": ["a"]}
CLOSED_PAIR = {**PAIR, "additionalProperties": False}
DEFINED = {"$defs": {"Pair": PAIR}, "definitions": {"Pair": PAIR}}


def wrapped(member: Any, *, required: bool = True) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": member},
        "required": ["x"] if required else [],
        "additionalProperties": False,
    }


def wrapped_all(members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


@dataclass(kw_only=True)
class Case:
    name: str
    given: Any
    becomes: Any
    required: bool = True


OPENAI = [
    Case(name="as it is", given=STRING, becomes=STRING),
    Case(name="optional is nullable", given=STRING, becomes={"type": ["string", "null"]}, required=False),
    Case(
        name="optional enum is nullable",
        given={"type": "string", "enum": ["a"], "description": "It"},
        becomes={"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}], "description": "It"},
        required=False,
    ),
    Case(
        name="nullable stays",
        given={"anyOf": [STRING, {"type": "null"}]},
        becomes={"anyOf": [STRING, {"type": "null"}]},
        required=False,
    ),
    Case(
        name="a default is words",
        given={"type": "integer", "default": 5, "description": "How many."},
        becomes={"type": ["integer", "null"], "description": "How many. Default: 5."},
        required=False,
    ),
    Case(name="const is enum", given={"const": "a", "type": "string"}, becomes={"type": "string", "enum": ["a"]}),
    Case(name="oneOf is anyOf", given={"oneOf": [STRING]}, becomes={"anyOf": [STRING]}),
    Case(name="allOf of one", given={"allOf": [STRING]}, becomes=STRING),
    Case(
        name="limits of text are words",
        given={"type": "string", "minLength": 1, "maxLength": 9},
        becomes={"type": "string", "description": "Length at least 1. Length at most 9."},
    ),
    Case(
        name="unknown formats are words",
        given={"type": "string", "format": "path"},
        becomes={"type": "string", "description": 'Format: "path".'},
    ),
    Case(
        name="a default of nothing much is told too",
        given={"type": "integer", "default": 0},
        becomes={"type": ["integer", "null"], "description": "Default: 0."},
        required=False,
    ),
    Case(name="allOf of a reference", given={"allOf": [{"$ref": "#/$defs/Pair"}]}, becomes={"$ref": "#/$defs/Pair"}),
    Case(
        name="words beside a reference are kept",
        given={"$ref": "#/$defs/Pair", "description": "Both."},
        becomes={**CLOSED_PAIR, "description": "Both."},
    ),
    Case(name="an old reference", given={"$ref": "#/definitions/Pair"}, becomes=CLOSED_PAIR),
    Case(
        name="known formats stay",
        given={"type": "string", "format": "uuid"},
        becomes={"type": "string", "format": "uuid"},
    ),
    Case(
        name="an object inside is closed",
        given={"type": "object", "properties": {"a": STRING}},
        becomes={
            "type": "object",
            "properties": {"a": {"type": ["string", "null"]}},
            "required": ["a"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize("case", OPENAI, ids=lambda case: case.name)
def test_openai_strict_rewrites(case: Case) -> None:
    projected = project_openai_strict({**wrapped(case.given, required=case.required), **DEFINED})
    assert projected == {**wrapped(case.becomes), "$defs": {"Pair": CLOSED_PAIR}}


def test_openai_strict_keeps_references() -> None:
    assert project_openai_strict(RECURSIVE)["$defs"]["Node"]["properties"]["next"] == {
        "anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]
    }


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ({"type": "object", "additionalProperties": STRING}, "at 'x' it has an object with names that are not known"),
        ({}, "at 'x' it has a value of any type"),
        ({"type": "array", "items": {}}, "at 'x' it has a list of anything"),
        ({"type": "array", "prefixItems": [STRING]}, "at 'x' it has tuples"),
        ({"not": STRING}, "at 'x' it has 'not'"),
        ({"allOf": [STRING, STRING]}, "at 'x' it has 'allOf'"),
        (True, "at 'x' it has a value of any type"),
        (False, "at 'x' it has what no value fits"),
        ({"$ref": "#/$defs/Nowhere"}, "at 'x' it has a reference to what is not there: #/\\$defs/Nowhere"),
        ({"type": "array", "items": {"$ref": "#/properties/x"}}, "a reference to itself outside"),
        ({"enum": list(range(1001))}, "1001 enum values"),
        ({"type": "array", "items": {"type": "object", "patternProperties": {}}}, r"at 'x\[\]'"),
    ],
)
def test_openai_strict_says_why_it_cannot(member: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"find: OpenAI's strict mode can't express it: .*{reason}"):
        project_openai_strict(wrapped(member), subject="find")


def test_what_openai_strict_gives_for_left_out_is_accepted() -> None:
    def find(text: str, limit: int = 5) -> None: ...

    schema = function_schema(find)
    assert project_openai_strict(schema.parameters)["required"] == ["text", "limit"]
    assert schema.arguments.parse_json('{"text": "a", "limit": null}') == {"text": "a", "limit": 5}


def test_openai_strict_takes_a_root_that_is_a_reference() -> None:
    nested = {"$defs": {"Node": RECURSIVE["$defs"]["Node"]}, "$ref": "#/$defs/Node"}
    projected = project_openai_strict(nested)
    assert projected["type"] == "object"
    assert projected["properties"] == projected["$defs"]["Node"]["properties"]


def multiplying(levels: int) -> dict[str, Any]:
    """Each level refers twice to the next one."""

    def twice(level: int) -> dict[str, Any]:
        return wrapped_all({side: {"$ref": f"#/$defs/L{level}", "description": side} for side in ("left", "right")})

    inner = {f"L{level}": twice(level + 1) for level in range(levels)}
    return {**twice(0), "$defs": {**inner, f"L{levels}": wrapped_all({"x": {"type": "integer"}})}}


@pytest.mark.parametrize("project", [project_openai_strict, project_anthropic_strict])
def test_references_that_multiply_are_given_up(project: Callable[..., object]) -> None:
    with pytest.raises(SchemaError, match=r"more than (10 levels|5000 properties)"):
        project(multiplying(40))


def test_gemini_is_not_told_of_references_without_number() -> None:
    assert str(project_gemini(multiplying(40))).count("'type'") < 10_000


ANTHROPIC = [
    Case(name="as it is", given=STRING, becomes=STRING),
    Case(name="optional stays optional", given=STRING, becomes=STRING, required=False),
    Case(
        name="several types are choices",
        given={"type": ["string", "null"], "minLength": 1, "description": "It"},
        becomes={"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "description": "It"},
    ),
    Case(name="an object inside is closed", given=PAIR, becomes=CLOSED_PAIR),
    Case(name="a reference", given={"$ref": "#/$defs/Pair"}, becomes={"$ref": "#/$defs/Pair"}),
    Case(
        name="words beside a reference are kept",
        given={"$ref": "#/$defs/Pair", "description": "Both."},
        becomes={**CLOSED_PAIR, "description": "Both."},
    ),
    Case(
        name="what tells the model nothing goes",
        given={"oneOf": [{"$ref": "#/$defs/Pair"}], "discriminator": {"propertyName": "a"}, "default": None},
        becomes={"anyOf": [{"$ref": "#/$defs/Pair"}]},
    ),
]


@pytest.mark.parametrize("case", ANTHROPIC, ids=lambda case: case.name)
def test_anthropic_strict_rewrites(case: Case) -> None:
    given = {**wrapped(case.given, required=case.required), **DEFINED}
    expected = wrapped(case.becomes, required=case.required)
    assert project_anthropic_strict(given) == {**expected, "$defs": {"Pair": CLOSED_PAIR}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (wrapped({"type": "object", "additionalProperties": STRING}), "at 'x' it has an object with names that are"),
        (wrapped({}), "at 'x' it has a value of any type"),
        (wrapped({"allOf": [PAIR, PAIR]}), "at 'x' it has 'allOf'"),
        (RECURSIVE, "at 'root' it has what refers to itself"),
    ],
)
def test_anthropic_strict_says_why_it_cannot(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"find: Anthropic's strict mode can't express it: .*{reason}"):
        project_anthropic_strict(schema, subject="find")


def test_anthropic_takes_the_schema_as_it_is() -> None:
    assert project_anthropic(RECURSIVE) == RECURSIVE
    assert project_anthropic({}) == {"type": "object", "properties": {}}
    with pytest.raises(SchemaError, match="no 'anyOf' at the root"):
        project_anthropic({"anyOf": [RECURSIVE]})
    with pytest.raises(SchemaError, match="'größe'"):
        project_anthropic({"properties": {"größe": STRING}})


GEMINI = [
    Case(name="as it is", given=STRING, becomes=STRING),
    Case(
        name="null is nullable",
        given={"anyOf": [STRING, {"type": "null"}]},
        becomes={"type": "string", "nullable": True},
    ),
    Case(name="several types", given={"type": ["string", "null"]}, becomes={"type": "string", "nullable": True}),
    Case(name="const", given={"const": "a"}, becomes={"type": "string", "enum": ["a"]}),
    Case(name="numbers in enum", given={"enum": [1, 2]}, becomes={"type": "integer", "description": "One of 1, 2."}),
    Case(
        name="oneOf", given={"oneOf": [STRING, {"type": "integer"}]}, becomes={"anyOf": [STRING, {"type": "integer"}]}
    ),
    Case(
        name="formats",
        given={"type": "string", "format": "uuid"},
        becomes={"type": "string", "description": 'Format: "uuid".'},
    ),
    Case(
        name="enum of several types",
        given={"enum": [1, "a", None]},
        becomes={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "nullable": True,
            "description": 'One of 1, "a", null.',
        },
    ),
    Case(
        name="a limit that a number may not reach",
        given={"type": "number", "exclusiveMinimum": 0},
        becomes={"type": "number", "minimum": 0, "description": "Greater than 0."},
    ),
    Case(
        name="allOf is one object",
        given={"allOf": [{"$ref": "#/$defs/Pair"}, {"properties": {"b": STRING}, "required": ["b"]}]},
        becomes={"type": "object", "properties": {"b": STRING, "a": STRING}, "required": ["b", "a"]},
    ),
    Case(
        name="what stands beside choices is in each",
        given={**PAIR, "anyOf": [{"required": ["a"]}, {"properties": {"b": STRING}}]},
        becomes={
            "anyOf": [
                PAIR,
                {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a"]},
            ]
        },
    ),
    Case(name="anything", given=True, becomes={}),
    Case(name="exclusive", given={"type": "integer", "exclusiveMinimum": 0}, becomes={"type": "integer", "minimum": 1}),
    Case(
        name="free names",
        given={"type": "object", "additionalProperties": STRING},
        becomes={"type": "object", "description": "An object of any names; each value is a string."},
    ),
    Case(
        name="tuples",
        given={"type": "array", "prefixItems": [STRING, {"type": "integer"}], "minItems": 2, "maxItems": 2},
        becomes={
            "type": "array",
            "items": {"anyOf": [STRING, {"type": "integer"}]},
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    Case(
        name="defaults",
        given={"type": "integer", "default": 5},
        becomes={"type": "integer", "description": "Default: 5."},
    ),
]


@pytest.mark.parametrize("case", GEMINI, ids=lambda case: case.name)
def test_gemini_rewrites(case: Case) -> None:
    expected = wrapped(case.becomes)
    del expected["additionalProperties"]
    assert project_gemini({**wrapped(case.given), **DEFINED}) == expected


def test_gemini_has_one_object_where_there_is_a_choice_at_the_root() -> None:
    other = {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]}
    assert project_gemini({"anyOf": [PAIR, other]}) == {**other, "required": ["a"]}


def test_gemini_has_no_references_and_cycles_are_cut() -> None:
    assert project_gemini(RECURSIVE)["properties"]["root"] == {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "next": {"type": "object", "description": "Another Node, with the same fields.", "nullable": True},
        },
        "required": ["value"],
    }
