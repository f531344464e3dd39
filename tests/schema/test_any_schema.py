"""For any text of arguments and any schema: the tool is refused when it is made, or each call has a result in words."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import AfterValidator, BeforeValidator

from toolkit import tool_from_function, tool_from_schema
from toolkit.calls.policy import ExecutionPolicy
from toolkit.calls.prepare import Ready, Refused, Scope, prepare
from toolkit.chat import ToolCall
from toolkit.errors import SchemaError
from toolkit.tools.registry import ToolRegistry

NUMBERS = (
    st.integers(-3, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([10**40, 2.5, -1, 1e308])
)
SCALARS = (
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "b", "aa", "2026-01-31", "x" * 50, "$ref", "#"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=10
)
PATTERNS = st.sampled_from(["^a+$", "^(a+)+$", "(?=a)", r"(a)\1", "[", "(?!b)", r"\p{L}", "a{3}", "(?<=a)b", ""])
REFERENCES = st.sampled_from(
    ["#", "#/$defs/a", "#/$defs/b", "#a", "#/properties/a", "b.json", "https://x.y/z", "#/none"]
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    maps = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    names = st.lists(st.sampled_from("abc"), max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(["string", "integer", "number", "object", "array", "boolean", ["null", "string"]]),
        "enum": st.lists(VALUES, max_size=3), "const": VALUES, "default": VALUES,
        "examples": st.lists(VALUES, max_size=2),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBERS),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "minContains"), NUMBERS),
        "pattern": PATTERNS, "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "format": st.sampled_from(["date", "date-time", "email", "uri", "regex", "ipv4", "none"]),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), lists),
        **dict.fromkeys(("properties", "$defs", "dependentSchemas", "dependencies"), maps),
        **dict.fromkeys(("items", "not", "if", "then", "else", "contains", "propertyNames"), inner),
        **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), inner),
        "required": names, "dependentRequired": st.dictionaries(st.sampled_from("abc"), names, max_size=2),
        "uniqueItems": st.booleans(), "writeOnly": st.booleans(), "$ref": REFERENCES, "$dynamicRef": REFERENCES,
        "$id": st.sampled_from(["b.json", "https://x.y/z"]), "$anchor": st.just("a"), "$dynamicAnchor": st.just("a"),
        "$schema": st.sampled_from([f"http://json-schema.org/draft-0{n}/schema#" for n in (3, 4, 6, 7)]),
    }  # fmt: skip
    return st.fixed_dictionaries({}, optional=keywords).map(_with_few_keywords)


def _with_few_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    names = sorted(schema, key=lambda name: hash_of(name, len(schema)))[:5]
    return {name: schema[name] for name in names}


def hash_of(name: str, salt: int) -> int:
    return sum(ord(letter) * (salt + place) for place, letter in enumerate(name)) % 97


LEAVES: st.SearchStrategy[Any] = st.booleans() | st.just(dict[str, Any]())
SCHEMAS: st.SearchStrategy[Any] = st.recursive(LEAVES, _schemas, max_leaves=8)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
TEXTS = (
    VALUES.map(json.dumps)
    | st.text(max_size=40)
    | st.sampled_from(["", "null", "{", '{"a": ', "[]", '{"a": 1, "a": 2}'])
)


def result_of(made: Any, text: str) -> Ready[Any] | Refused:
    registry = ToolRegistry[None]([made])
    scope = Scope(registry.registrations, permissions=None, hidden_names=frozenset())
    return prepare(ToolCall("1", made.definition.name, text), scope, ExecutionPolicy())


def _check(schema: dict[str, Any], text: str) -> None:
    made: Any = None
    with contextlib.suppress(SchemaError):
        made = tool_from_schema("any", "Take anything.", {"type": "object", **schema}, dict, formats=True)
    if made is None:
        return
    prepared = result_of(made, text)
    if isinstance(prepared, Refused):
        assert prepared.result.is_error
        assert prepared.result.text.startswith(("The arguments", "There is"))
    else:
        json.dumps(prepared.arguments)
        assert isinstance(result_of(made, json.dumps(prepared.arguments)), Ready), "what was taken is taken again"


@given(schema=_schemas(SCHEMAS), value=TEXTS)
@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
def test_any_text_against_any_schema_gives_a_result(schema: dict[str, Any], value: str) -> None:
    _check({**schema, "type": "object"}, value)


@pytest.mark.full
@given(schema=_schemas(SCHEMAS), value=TEXTS)
@settings(max_examples=5_000, deadline=None, suppress_health_check=SLOW)
def test_any_text_against_any_schema_gives_a_result_at_length(schema: dict[str, Any], value: str) -> None:
    _check({**schema, "type": "object"}, value)


def fail(value: Any) -> Any:
    raise LookupError(value)


def careless(
    name: Annotated[str, BeforeValidator(str.strip)],
    other: Annotated[Any, BeforeValidator(fail)],
    count: Annotated[int, AfterValidator(lambda number: 1 // number)] = 1,
) -> None: ...


@given(
    value=TEXTS | VALUES.map(lambda value: json.dumps({"name": value})) | VALUES.map(lambda v: json.dumps({"other": v}))
)
@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
def test_any_text_against_careless_validators_gives_a_result(value: str) -> None:
    prepared = result_of(tool_from_function(careless), value)
    assert isinstance(prepared, Ready) or prepared.result.text
