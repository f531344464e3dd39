"""Schemas, arguments and JSON that a hostile model or server writes: none takes the process.

Each row is an attack. A schema is refused when the tool is made or checks within its budget of steps; arguments are
taken or refused in words. The calls are more than any row needs, and far fewer than an attack would take.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, SecretStr

from tests.counted_work import count_calls
from toolkit import (
    AssistantMessage,
    ToolRegistry,
    tool,
    tool_from_function,
    tool_from_schema,
    tool_loop,
)
from toolkit.chat import ToolCall
from toolkit.errors import SchemaError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.events import LoopEvent
from toolkit.loop.limits import LoopDetectionConfig
from toolkit.testing import ScriptedProvider

MOST_CALLS = 5_000_000

pytestmark = pytest.mark.anyio


def about(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a schema of an object with one member, v."""
    return {"type": "object", "properties": {"v": schema}, "required": ["v"], **more}


def nest(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def nest_text(levels: int, inside: str = "1", opening: str = "[", closing: str = "]") -> str:
    return '{"v": ' + opening * levels + inside + closing * levels + "}"


def chain(levels: int, last: Any, keyword: str = "properties") -> dict[str, Any]:
    """Return definitions of which each refers twice to the next."""
    definitions: dict[str, Any] = {}
    for level in range(levels):
        following = {"$ref": f"#/$defs/d{level + 1}"}
        pair: Any = {"a": following, "b": following} if keyword == "properties" else [following, following]
        definitions[f"d{level}"] = {keyword: pair}
    return {**definitions, f"d{levels}": last}


def branching(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"anyOf": [{"type": "array", "items": schema}, {"type": "array", "items": schema, "minItems": 0}]}
    return schema


RECURSIVE_UNION = {
    "$defs": {"n": {"oneOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}, {"items": {"$ref": "#/$defs/n"}}]}}
}
RECURSIVE_ANY = {
    "$defs": {
        "n": {
            "anyOf": [{"items": {"$ref": "#/$defs/n"}, "minItems": 9}, {"items": {"$ref": "#/$defs/n"}, "maxItems": 0}]
        }
    }
}
WIDE = [f"name_{number}" for number in range(20_000)]
BACKTRACKING = [
    r"^(a+)+$", r"^(a|a)*$", r"^(a|aa)+$", r"^(?=(a+)+$).*$", r"^(?!(a+)+$).*$", r"(?<=(a+)+)b$", r"^(a*)*\1$",
    r"^((a+)\2)+$", r"^(.*a){20}$", r"^(\w+\s?)*$", r"^(?:a?){50}a{50}$", r"(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(?=.*){1,100}", r"^(?:(?:a+)+|b)+(?=c)", r"(a?){300}(?=b)", r"(?:.+)*(?!.)x",
]  # fmt: skip
# A schema, the text of arguments.
ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a text of 10^9 characters": (about({"type": "string", "minLength": 10**9}), '{"v": "a"}'),
    "a text of 10^40 characters": (about({"type": "string", "minLength": 10**40}), '{"v": "a"}'),
    "a list of 10^9 items": (about({"type": "array", "minItems": 10**9}), '{"v": []}'),
    "a list of 10^40 items": (about({"type": "array", "minItems": 10**40, "items": {"type": "string"}}), '{"v": []}'),
    "lists of lists of 1,000 items": (
        about(
            {
                "type": "array",
                "minItems": 1000,
                "items": {"type": "array", "minItems": 1000, "items": {"minItems": 1000}},
            }
        ),
        '{"v": 1}',
    ),
    "10^40 members": (about({"type": "object", "minProperties": 10**40}), '{"v": {}}'),
    "10^40 that are contained": (about({"contains": {}, "minContains": 10**40}), '{"v": [1]}'),
    "a text of a negative length": (about({"type": "string", "maxLength": 0}), '{"v": "a"}'),
    "a huge multiple": (about({"type": "number", "multipleOf": 1e-300}), '{"v": "x"}'),
    "a huge limit": (about({"type": "number", "minimum": 1e308, "multipleOf": 3e307}), '{"v": 1}'),
    "a number of 400 digits by a fraction": (about({"multipleOf": 2.5}), '{"v": ' + "9" * 400 + "}"),
    "a number of 4,000 digits by a fraction": (about({"multipleOf": 2.5}), '{"v": ' + "9" * 4_000 + "}"),
    "a number of 10,000 digits": (about({}), '{"v": ' + "9" * 10_000 + "}"),
    "an exponent of 10 digits": (about({"multipleOf": 0.1}), '{"v": 1e9999999999}'),
    "numbers that JSON lacks": (about({}), '{"v": [NaN, Infinity, -Infinity]}'),
    "wide required, nothing sent": ({"type": "object", "required": WIDE}, "{}"),
    "wide required, something else sent": (
        {"type": "object", "required": WIDE, "properties": {name: {} for name in WIDE}, "additionalProperties": False},
        json.dumps({f"nome_{number}": 1 for number in range(20_000)}),
    ),
    "wide enumeration": (about({"enum": WIDE}), '{"v": "name"}'),
    "a wide object of unknown names": (
        {"properties": {"v": {}}, "additionalProperties": False},
        json.dumps(dict.fromkeys(WIDE, 1)),
    ),
    "long unknown names": (
        {"properties": {"a" * 50_000: {}}, "additionalProperties": False},
        json.dumps({"a" * 49_999 + "b": 1, "b" * 100_000: 2}),
    ),
    "unique items": (about({"uniqueItems": True}), json.dumps({"v": [[number] for number in range(20_000)]})),
    "unique objects": (about({"uniqueItems": True}), json.dumps({"v": [{"a": n} for n in range(20_000)] + [{"a": 1}]})),
    "unique deep items": (about({"uniqueItems": True}), json.dumps({"v": [nest(90, n) for n in range(2_000)]})),
    "nested choices over lists": (about(branching(24)), json.dumps({"v": nest(24, "x")})),
    "nested choices over wide lists": (about(branching(12)), json.dumps({"v": nest(11, list("x" * 5_000))})),
    "oneOf that refers to itself": (about({"$ref": "#/$defs/n"}, **RECURSIVE_UNION), json.dumps({"v": nest(60)})),
    "anyOf that refers to itself": (about({"$ref": "#/$defs/n"}, **RECURSIVE_ANY), json.dumps({"v": nest(60)})),
    "not of not of not": (
        about({"not": {"not": {"not": {"items": {"not": {"not": {"items": {"$ref": "#/properties/v"}}}}}}}}),
        json.dumps({"v": nest(90)}),
    ),
    "a chain of pairs": (about({"$ref": "#/$defs/d0"}, **{"$defs": chain(30, {})}), '{"v": {"a": {"a": {}}}}'),
    "a chain of pairs that ends in a secret": (
        about({"$ref": "#/$defs/d0"}, **{"$defs": chain(60, {"type": "string", "writeOnly": True})}),
        '{"v": 1, "w": "secret"}',
    ),
    "a chain of choices": (about({"$ref": "#/$defs/d0"}, **{"$defs": chain(30, {}, "anyOf")}), '{"v": 1}'),
    "a chain of wholes": (
        about({"$ref": "#/$defs/d0"}, **{"$defs": chain(12, {"type": "string"}, "allOf")}),
        '{"v": 1}',
    ),
    "many secrets": (
        {"properties": {name: {"type": "string", "writeOnly": True} for name in WIDE[:10_000]}, "required": ["v"]},
        json.dumps({name: f"value {name}" for name in WIDE[:10_000]}),
    ),
    "many errors": (about({"items": {"type": "string"}}), json.dumps({"v": list(range(30_000))})),
    "many errors in objects": (
        about({"items": {"properties": {"a": {"type": "string"}}, "required": ["b"]}}),
        json.dumps({"v": [{"a": 1, "c": 2}] * 10_000}),
    ),
    "many choices, each wrong in many places": (
        about({"anyOf": [{"items": {"const": number}} for number in range(100)]}),
        json.dumps({"v": ["x"] * 3_000}),
    ),
    "a long text against many choices": (
        about({"anyOf": [{"const": f"{number}"} for number in range(5_000)]}),
        json.dumps({"v": "x" * 1_000_000}),
    ),
    "a pattern of many choices": (about({"pattern": "(?=a)" + "|".join(["ab"] * 2_500)}), json.dumps({"v": "a" * 500})),
    "a long text with a long pattern": (about({"pattern": "a{1,500}b" * 5}), json.dumps({"v": "a" * 500_000})),
    "patterns for names": (
        {"patternProperties": {r"^(?=(a+)+b)": {}, r"^(a|aa)+\Z": {"type": "string"}}},
        json.dumps({"a" * 200 + str(number): 1 for number in range(200)}),
    ),
    "50,000 names with one late twice": (
        about({}),
        '{"v": {' + ", ".join(f'"{n}": 1' for n in [*range(50_000), 49_999]) + "}}",
    ),
    "a deep list": (about({}), nest_text(99_999)),
    "a deep object": (about({}), nest_text(50_000, opening='{"a":', closing="}")),
    "as deep as recursion goes": (about({}), nest_text(900)),
    "just deeper than is taken": (about({}), nest_text(150)),
    "deep where each level is checked": (about({"items": {"$ref": "#/properties/v"}}), nest_text(95)),
    "deep with a long way at each level": (
        about({"allOf": [{"allOf": [{"allOf": [{"items": {"$ref": "#/properties/v"}}]}]}]}),
        nest_text(95),
    ),
    "a wide list of empty lists": (about({"items": {"items": {}}}), '{"v": [' + "[]," * 200_000 + "[]]}"),
    "a text of brackets": (about({}), '{"v": "' + "[{" * 300_000 + '"}'),
    "broken at the end": (about({}), '{"v": [' + "1," * 200_000 + "}"),
    "half surrogates": (about({}), '{"v": "' + "\\ud800" * 20_000 + '"}'),
    "nothing but spaces": (about({}), " " * 1_000_000),
    "dependencies without end": (
        {"dependentRequired": dict.fromkeys(WIDE[:500], WIDE[:50])},
        json.dumps(dict.fromkeys(WIDE[:500], 1)),
    ),
    "dependent schemas": (
        {"dependentSchemas": {name: {"properties": {"x": {"type": "string"}}} for name in WIDE[:2_000]}},
        json.dumps({**dict.fromkeys(WIDE[:2_000], 1), "x": 1}),
    ),
    "what nothing has spoken of": (
        {"allOf": [{"properties": {name: True}} for name in WIDE[:2_000]], "unevaluatedProperties": False},
        json.dumps(dict.fromkeys(WIDE[:4_000], 1)),
    ),
    "names against a pattern": (
        {"propertyNames": {"pattern": r"^(a+)+$"}},
        json.dumps({"a" * n + "!": 1 for n in range(500)}),
    ),
    "defaults in defaults": (
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "default": {}}},
        },
        "{}",
    ),
    "defaults without number": (
        {"properties": {"v": {"items": {"properties": {name: {"default": name} for name in WIDE[:200]}}}}},
        json.dumps({"v": [{}] * 3_000}),
    ),
    "a default of a wrong type": (about({"type": "string", "default": {"a": 1}}), "{}"),
    "words without end": (
        about({"type": "object", "properties": {name: {"enum": WIDE[:100]} for name in WIDE[:300]}}),
        '{"v": 1}',
    ),
    "a pattern in words": (about({"type": "string", "pattern": "a" * 40_000}), '{"v": "b"}'),
    "a constant in words": (about({"const": "a" * 1_000_000}), '{"v": "b"}'),
    "numbers that overflow": (about({"type": "integer", "exclusiveMinimum": 1e308, "maximum": 10**400}), '{"v": 1}'),
    "an email without end": (about({"type": "string", "format": "email"}), json.dumps({"v": "a." * 100_000})),
    "a URI without end": (about({"type": "string", "format": "uri"}), json.dumps({"v": "http://" + "a:" * 100_000})),
    "a URI template without end": (
        about({"type": "string", "format": "uri-template"}),
        json.dumps({"v": "{a," * 50_000}),
    ),
    "a URI reference without end": (
        about({"type": "string", "format": "uri-reference"}),
        json.dumps({"v": "a/" * 100_000 + "\\"}),
    ),
    "an address without end": (about({"type": "string", "format": "ipv6"}), json.dumps({"v": ":" * 100_000})),
    "a duration without end": (about({"type": "string", "format": "duration"}), json.dumps({"v": "P" + "1" * 100_000})),
    "a date of digits without end": (about({"type": "string", "format": "date"}), json.dumps({"v": "1" * 100_000})),
    "a regex that is hostile": (about({"type": "string", "format": "regex"}), json.dumps({"v": "(" * 50_000})),
    "a pointer without end": (about({"type": "string", "format": "json-pointer"}), json.dumps({"v": "/~" * 100_000})),
    **{
        f"pattern {pattern}": (about({"pattern": pattern}), json.dumps({"v": "a" * 3_000 + "!"}))
        for pattern in BACKTRACKING
    },
}


def answer(schema: dict[str, Any], text: str) -> str | None:
    """Return what the model is told; None where the tool can't be made."""
    try:
        made = tool_from_schema("attacked", "Be attacked.", schema, lambda arguments: "ran", formats=True)
    except SchemaError as error:
        told = str(error)
        return None if told.startswith("tool 'attacked': ") and len(told) < 5_000 else "x" * 20_000
    results: list[str] = []

    async def call() -> None:
        result = await ToolRegistry([made]).execute(ToolCall("1", "attacked", text), None)
        results.append(result.text)

    anyio.run(call)
    return results[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_no_schema_and_no_arguments_take_the_process(name: str) -> None:
    told = answer(*ATTACKS[name])
    assert told is None or 0 < len(told) < 20_000


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS)
def test_the_work_on_any_schema_and_arguments_has_a_bound(name: str) -> None:
    assert count_calls(lambda: answer(*ATTACKS[name])) < MOST_CALLS


ILLEGAL: dict[str, tuple[Any, str]] = {
    "minimum": ({"minimum": "x"}, "$.properties.v.minimum: 'x'"),
    "anyOf": ({"anyOf": []}, "$.properties.v.anyOf: []"),
    "allOf": ({"items": {"allOf": {}}}, "$.properties.v.items.allOf: {}"),
    "oneOf": ({"oneOf": [1]}, "$.properties.v.oneOf: [1]"),
    "type": ({"additionalProperties": {"type": "str"}}, "$.properties.v.additionalProperties.type: 'str'"),
    "required": ({"required": [1]}, "$.properties.v.required: [1]"),
    "properties": ({"properties": []}, "$.properties.v.properties: []"),
    "pattern": ({"pattern": "["}, "$.properties.v.pattern: '['"),
    "patternProperties": ({"patternProperties": {"(": {}}}, "$.properties.v.patternProperties: '('"),
    "multipleOf": ({"multipleOf": 0}, "$.properties.v.multipleOf: 0"),
    "minLength": ({"minLength": -1}, "$.properties.v.minLength: -1"),
    "maxItems": ({"maxItems": 1.5}, "$.properties.v.maxItems: 1.5"),
    "uniqueItems": ({"uniqueItems": 1}, "$.properties.v.uniqueItems: 1"),
    "items": ({"items": [{}]}, "$.properties.v.items: [{}]"),
    "if": ({"if": 1}, "$.properties.v.if: 1"),
    "not": ({"not": []}, "$.properties.v.not: []"),
    "dependentRequired": ({"dependentRequired": {"a": "b"}}, "$.properties.v.dependentRequired"),
    "$ref": ({"$ref": 1}, "$.properties.v.$ref: 1"),
    "enum": ({"enum": "a"}, "$.properties.v.enum: 'a'"),
    "const of a reference": ({"$ref": "#/$defs/none"}, "'#/$defs/none', which is not in it"),
    "a repeat without end": ({"pattern": "(?=a{9999}){9999}"}, "$.properties.v.pattern"),
    "a program without end": ({"pattern": "(?=" + "(a{40}){40}" * 20 + ")"}, "$.properties.v.pattern"),
    "choices without end": ({"pattern": "(?=a)" + "|".join(["ab"] * 8_000)}, "$.properties.v.pattern"),
    "groups without end": ({"pattern": "(?=" + "(" * 5_000 + ")" * 5_000 + ")"}, "$.properties.v.pattern"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_keyword_is_refused_when_the_tool_is_made_by_tool_and_place(name: str) -> None:
    schema, place = ILLEGAL[name]
    with pytest.raises(SchemaError) as refused:
        tool_from_schema("attacked", "Be attacked.", about(schema), lambda arguments: None)
    assert str(refused.value).startswith("tool 'attacked': ")
    assert place in str(refused.value)


class Secrets(BaseModel):
    password: SecretStr
    parts: list[Secrets] = []


def take_items(items: list[int]) -> None: ...
def take_secrets(secrets: Secrets) -> None: ...
def take_anything(value: Any) -> None: ...
def take_choices(choices: list[int | list[int] | dict[str, int]]) -> None: ...


TYPED: dict[str, tuple[Callable[..., None], str]] = {
    "30,000 wrong items": (take_items, json.dumps({"items": ["x"] * 30_000})),
    "30,000 wrong choices": (take_choices, json.dumps({"choices": [{"a": "x"}] * 30_000})),
    "30,000 unknown names": (take_items, json.dumps({f"n{n}": 1 for n in range(30_000)})),
    "secrets in secrets": (take_secrets, json.dumps({"secrets": {"password": "hunter2", "parts": [{"x": 1}] * 5_000}})),
    "deep values": (take_anything, '{"value": ' + "[" * 150 + "]" * 150 + "}"),
    "very deep values": (take_anything, '{"value": ' + "[" * 90_000 + "]" * 90_000 + "}"),
    "a late name twice": (
        take_anything,
        '{"value": {' + ", ".join(f'"{n}": {n}' for n in range(50_000)) + ', "1": 2}}',
    ),
    "a number of 10,000 digits": (take_anything, '{"value": ' + "9" * 10_000 + "}"),
    "null 30,000 times": (take_items, json.dumps({"items": [None] * 30_000})),
}


@pytest.mark.parametrize("name", TYPED)
def test_no_arguments_of_a_function_take_the_process(name: str) -> None:
    function, text = TYPED[name]
    results: list[str] = []

    async def call() -> None:
        result = await ToolRegistry([tool_from_function(function)]).execute(
            ToolCall("1", function.__name__, text), None
        )
        results.append(result.text)

    assert count_calls(lambda: anyio.run(call)) < MOST_CALLS
    assert results[0].startswith("The arguments")
    assert len(results[0]) < 20_000
    assert "hunter2" not in results[0]


SLOW = about({"pattern": r"(?<=(a+)+)b$"}), json.dumps({"v": "a" * 2_000 + "!"})


async def test_a_loop_times_out_while_arguments_are_checked() -> None:
    schema, text = SLOW
    slow = tool_from_schema("slow", "Be slow.", schema, lambda arguments: "ran")
    calls = [ToolCall(str(number), "slow", text) for number in range(100)]
    provider = ScriptedProvider([AssistantMessage(calls), "done"])
    config = ToolLoopConfig(timeout=0.05)
    with anyio.fail_after(120):
        result = await tool_loop(provider, ToolRegistry[None]([slow]), "go", ctx=None, config=config)
    assert result.reason.kind == "timeout"
    assert result.messages


async def test_deep_arguments_end_no_loop() -> None:
    @tool
    def look(value: Any) -> str:
        """Look."""
        return "seen"

    events: list[LoopEvent] = []
    texts = ['{"value": ' + "[" * levels + "]" * levels + "}" for levels in (99, 100, 150, 190, 500, 2_000, 50_000)]
    provider = ScriptedProvider([*(ToolCall(f"{n}", "look", text) for n, text in enumerate(texts)), "done"])
    config = ToolLoopConfig(
        loop_detection=LoopDetectionConfig(mode="call"), on_event=events.append, max_iterations=20,
    )  # fmt: skip
    result = await tool_loop(provider, ToolRegistry[None]([look]), "go", ctx=None, config=config)
    assert result.text == "done"
