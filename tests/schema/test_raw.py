"""Schemas that somebody else wrote: both drafts, the same words, and nothing hostile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema import MalformedJsonError, decode_strings, raw_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "depth": {"type": "integer", "minimum": 1},
        "kinds": {"type": "array", "items": {"$ref": "#/$defs/Kind"}},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"Kind": {"enum": ["file", "folder"]}},
}


def test_arguments_stay_as_json_gave_them() -> None:
    parser = raw_arguments(SCHEMA, subject="walk")
    assert parser.parse_json('{"path": "a", "kinds": ["file"]}') == {"path": "a", "kinds": ["file"]}
    assert parser.dump_json({"path": "é", "depth": 1}) == '{"depth":1,"path":"\\u00e9"}'
    assert raw_arguments({}, subject="any").parse_json("") == {}
    assert raw_arguments({}, subject="any").parse_json("null") == {}


def test_all_that_is_wrong_is_said_in_one_message() -> None:
    parser = raw_arguments(SCHEMA, subject="walk")
    with pytest.raises(InvalidArgumentsError) as refused:
        parser.parse({"paht": "a", "depth": 0, "kinds": ["file", "link"]})
    assert set(str(refused.value).split("\n")) == {
        "The arguments have 3 problems:",
        '- paht: unknown. Did you mean "path"?',
        "- depth: got the number 0, but it must be an integer of at least 1.",
        '- kinds[1]: got the string "link", but it must be one of "file", "folder".',
        (
            'Accepted: "path" (a string), "depth" (an integer of at least 1), '
            '"kinds" (a list, each one of "file", "folder").'
        ),
        'Call it again, for example with: {"depth": 1, "kinds": ["file", "file"], "path": "a"}',
    }


def test_null_for_what_may_be_left_out_leaves_it_out() -> None:
    assert raw_arguments(SCHEMA, subject="walk").parse({"path": "a", "depth": None}) == {"path": "a"}


def test_strings_are_decoded_once_more() -> None:
    parser = raw_arguments(SCHEMA, subject="walk")
    assert decode_strings(parser, {"path": "1", "depth": "2", "kinds": '["file"]'}) == {
        "path": "1",
        "depth": 2,
        "kinds": ["file"],
    }


def test_text_that_is_no_json_says_where_it_breaks() -> None:
    parser = raw_arguments(SCHEMA, subject="walk")
    with pytest.raises(MalformedJsonError, match="line 1 column 10"):
        parser.parse_json('{"path": ,}')
    with pytest.raises(MalformedJsonError, match="not complete"):
        parser.parse_json('{"path": "a')
    with pytest.raises(MalformedJsonError):
        parser.parse_json("[" * 100_000)


def test_each_draft_is_read_by_its_own_rules() -> None:
    seventh = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"items": [{"type": "integer"}], "additionalItems": False}},
    }
    newest = {"properties": {"pair": {"prefixItems": [{"type": "integer"}], "items": False}}}
    for schema in (seventh, newest):
        parser = raw_arguments(schema, subject="pair")
        assert parser.parse({"pair": [1]}) == {"pair": [1]}
        for pair in ([1, 2], ["a"]):
            with pytest.raises(InvalidArgumentsError, match="pair"):
                parser.parse({"pair": pair})


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "object"}}}


REFUSED: list[tuple[str, Any, str]] = [
    ("a type that does not exist", {"properties": {"a": {"type": "text"}}}, "no JSON Schema"),
    ("no object", {"type": "array"}, "must be of type object"),
    ("elsewhere", {"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "never fetched"),
    ("a file", {"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "never fetched"),
    ("nothing", {"properties": {"a": {"$ref": "#/$defs/Missing"}}}, "not in it"),
    ("itself", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "back to itself"),
    ("each other", {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}}, "back to itself"),
    ("too deep", _nested(200), "nested too deeply"),
    ("too large", {"enum": list(range(60_000))}, "too large"),
    ("multiplying", _doubling(30), "multiply"),
    ("no JSON", {"properties": {"a": {"default": object()}}}, "not JSON"),
]


@pytest.mark.parametrize(("schema", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_broken_or_hostile_schema_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as refused:
        raw_arguments(schema, subject="walk")
    assert str(refused.value).startswith("walk: ")


def test_a_recursive_schema_is_legal_and_deep_values_are_bounded() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    parser = raw_arguments(schema, subject="tree")
    assert parser.parse({"child": {"child": {}}}) == {"child": {"child": {}}}
    value: dict[str, Any] = {}
    for _ in range(5_000):
        value = {"child": value}
    with pytest.raises(InvalidArgumentsError, match="nested too deeply"):
        parser.parse(value)


def test_a_schema_that_is_changed_later_changes_nothing() -> None:
    schema: dict[str, Any] = json.loads(json.dumps(SCHEMA))
    parser = raw_arguments(schema, subject="walk")
    schema["required"].clear()
    with pytest.raises(InvalidArgumentsError):
        parser.parse({})
