"""Values get the verdicts that the drafts 2020-12 and 7 say; for all drafts see `test_official_suite`."""

from typing import Any

import pytest

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import raw_arguments

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

# A schema for the argument "v", values that it takes, values that it refuses.
CORPUS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"type": "string"}, ["", "a"], [1, None, []]),
    ({"type": "integer"}, [1, 1.0, -(10**30)], [1.5, "1", True]),
    ({"type": "number"}, [1, 1.5], ["1", True]),
    ({"type": "boolean"}, [True, False], [0, 1, "true"]),
    ({"type": "null"}, [None], [0, ""]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b", 2]),
    ({"const": 1}, [1, 1.0], [True, "1"]),
    ({"const": {"a": [1]}}, [{"a": [1]}], [{"a": [2]}, {}]),
    ({"minLength": 2, "maxLength": 3}, ["ab", "äöü", "🎈🎈"], ["a", "abcd"]),
    ({"pattern": "^a+$"}, ["aa"], ["ab", ""]),
    ({"pattern": "b"}, ["abc"], ["ac"]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9], [0, 3]),
    ({"multipleOf": 3}, [0, 9, -3], [4]),
    ({"multipleOf": 0.25}, [0.75, 20], [0.1]),
    ({"items": {"type": "integer"}}, [[], [1]], [["a"], [1, None]]),
    ({"prefixItems": [{"type": "integer"}], "items": False}, [[], [1]], [["a"], [1, 2]]),
    ({"minItems": 1, "maxItems": 2, "uniqueItems": True}, [[1], [1, 2]], [[], [1, 1], [1, 2, 3], [1, 1.0]]),
    ({"uniqueItems": True}, [[1, True], [0, False], [[1], [True]]], [[{"a": 1}, {"a": 1}]]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [[1, 1, 0]], [[1], [1, 1, 1, 1]]),
    ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "x"}]),
    ({"additionalProperties": {"type": "integer"}}, [{}, {"x": 1}], [{"x": "y"}]),
    ({"properties": {"a": True}, "additionalProperties": False}, [{"a": 1}, {}], [{"b": 1}]),
    ({"patternProperties": {"^x": {"type": "integer"}}}, [{"xa": 1, "y": "z"}], [{"xa": "z"}]),
    ({"propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"a": 1, "b": 2}], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
    ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 5], [4]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [2, 3], [6, 5]),
    ({"not": {"type": "string"}}, [1, None], ["a"]),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 0}}, ["ab", 0], ["a", -1]),
    ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]}, [{"a": 1}], [{"b": 1}]),
    ({"unevaluatedItems": False, "prefixItems": [True]}, [[1]], [[1, 2]]),
    ({"$ref": "#/$defs/Tree"}, [{"children": [{"children": []}]}], [{"children": [1]}, {"other": 1}]),
    ({"format": "date"}, ["2026-01-01", "no date"], []),
]
DEFS = {
    "Tree": {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        "additionalProperties": False,
    }
}
DRAFT_7_CORPUS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"items": [{"type": "integer"}], "additionalItems": False}, [[1], []], [["a"], [1, 2]]),
    ({"dependencies": {"a": ["b"]}}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"dependencies": {"a": {"required": ["b"]}}}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({"$ref": "#/definitions/Name"}, ["ab"], ["a"]),
    ({"format": "ipv4"}, ["1.2.3.4", "no address"], []),
    ({"contains": {"const": 1}}, [[1]], [[], [2]]),
    ({"unevaluatedProperties": False}, [{"a": 1}], []),
]


def cases() -> list[tuple[dict[str, Any], Any, bool]]:
    found: list[tuple[dict[str, Any], Any, bool]] = []
    for draft, corpus in ((None, CORPUS), (DRAFT_7, DRAFT_7_CORPUS)):
        for schema, good, bad in corpus:
            whole: dict[str, Any] = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": DEFS}
            if draft is not None:
                whole |= {"$schema": draft, "definitions": {"Name": {"type": "string", "minLength": 2}}}
            found += [(whole, value, True) for value in good] + [(whole, value, False) for value in bad]
    return found


def test_every_value_gets_the_verdict_that_the_draft_says() -> None:
    known = cases()
    assert len(known) > 100
    wrong: list[str] = []
    for schema, value, expected in known:
        parser = raw_arguments(schema, subject="test")
        try:
            parser.parse({"v": value})
            verdict = True
        except InvalidArgumentsError:
            verdict = False
        if verdict is not expected:
            wrong.append(f"{schema['properties']['v']} with {value!r}: {verdict}")
    assert wrong == []


def test_a_pattern_with_anchors_of_python_is_read() -> None:
    parser = raw_arguments({"type": "object", "properties": {"v": {"pattern": r"^\Aab\Z$"}}}, subject="test")
    assert parser.parse({"v": "ab"}) == {"v": "ab"}
    with pytest.raises(InvalidArgumentsError):
        parser.parse({"v": "abc"})


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(\w+\s?)*$", r"^(a|aa)+$"])
def test_a_pattern_that_could_backtrack_without_end_does_not(pattern: str) -> None:
    schema = {
        "type": "object",
        "properties": {"v!": {"type": "string", "pattern": pattern}},
        "patternProperties": {pattern: {"type": "integer"}},
    }
    parser = raw_arguments(schema, subject="test")
    endless = "a" * 5_000
    assert parser.parse({"v!": endless, f"{endless}!": 1})
    with pytest.raises(InvalidArgumentsError, match="1 problem"):
        parser.parse({"v!": f"{endless}!"})
    with pytest.raises(InvalidArgumentsError, match="1 problem"):
        parser.parse({"v!": "a", endless: "x"})
