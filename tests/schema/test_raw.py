"""Schemas that somebody else wrote: both drafts, the same words, and nothing hostile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit import tool_from_schema
from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema import MalformedJsonError, raw_arguments
from toolkit.schema.arguments import decode_strings

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
        parser.parse_json("[" * 20_000)  # more lists are too many to be read


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


BROKEN: list[tuple[str, Any, str]] = [
    (
        "a limit that is no number",
        {"properties": {"a": {"minimum": "x"}}},
        r"\$\.properties\.a\.minimum: 'x' is not a number",
    ),
    (
        "no alternative",
        {"properties": {"a": {"anyOf": []}}},
        r"\$\.properties\.a\.anyOf: \[\] is not a list of one or more",
    ),
    ("in a list", {"properties": {"a": {"items": {"type": "int"}}}}, r"\$\.properties\.a\.items\.type: 'int'"),
    (
        "below a name of digits",
        {"$defs": {"2": {"minItems": "x"}}},
        r"minItems: 'x' is not a whole number of 0 or more",
    ),
    ("in an alternative", {"anyOf": [{"required": "a"}]}, r"\$\.anyOf\[0\]\.required: 'a' is not a list of strings"),
    ("in a definition that nothing uses", {"$defs": {"A": {"minLength": -1}}}, r"\$\.\$defs\.A\.minLength: -1"),
    (
        "under no keyword, by a reference",
        {
            "properties": {"a": {"$ref": "#/components/schemas/Pet"}},
            "components": {"schemas": {"Pet": {"maximum": []}}},
        },
        r"\$\.components\.schemas\.Pet\.maximum",
    ),
    (
        "a reference behind a reference",
        {"properties": {"a": {"$ref": "#/x/A"}}, "x": {"A": {"$ref": "#/components/schemas/Pet"}}},
        r"'#/components/schemas/Pet', which is not in it",
    ),
    (
        "a dependency of draft 7",
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": {"$ref": "#/nothing"}}},
        "not in it",
    ),
    (
        "a pattern that is none",
        {"properties": {"a": {"pattern": "("}}},
        r"\$\.properties\.a\.pattern: '\(' can't be read",
    ),
    ("a name pattern that is none", {"patternProperties": {"[": {}}}, "patternProperties: '\\[' can't be read"),
    ("draft 3", {"$schema": "http://json-schema.org/draft-03/schema#"}, "draft 3"),
    ("a required that is true", {"properties": {"a": {"required": True}}}, r"\$\.properties\.a\.required: True"),
]


@pytest.mark.parametrize(("schema", "reason"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_is_broken_in_a_schema_is_named_with_its_place_when_the_tool_is_made(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as refused:
        tool_from_schema("walk", "Walk.", schema, lambda arguments: None)
    assert str(refused.value).startswith("tool 'walk': ")


REFERENCES: list[tuple[str, Any]] = [
    ("a place", {"$ref": "#/$defs/Name"}),
    ("an anchor", {"$ref": "#name"}),
    ("an id", {"$ref": "name.json"}),
    ("an id with its base", {"$ref": "https://example.com/schemas/name.json"}),
    ("a place under an id", {"$ref": "name.json#/$defs/Inner"}),
    ("a dynamic anchor", {"$dynamicRef": "#dynamic"}),
    ("a place that is escaped", {"$ref": "#/$defs/a~1b%20c"}),
    ("a reference to a reference", {"$ref": "#/$defs/Again"}),
    ("a reference with words beside it", {"$ref": "#/$defs/Name", "description": "The name."}),
]


@pytest.mark.parametrize(("reference"), [case[1] for case in REFERENCES], ids=[case[0] for case in REFERENCES])
def test_each_kind_of_reference_within_the_document_is_followed(reference: dict[str, Any]) -> None:
    short = {"type": "string", "maxLength": 3, "writeOnly": True}
    schema = {
        "$id": "https://example.com/schemas/root.json",
        "type": "object",
        "properties": {"name": reference},
        "$defs": {
            "Name": {**short, "$anchor": "name"},
            "ById": {**short, "$id": "name.json", "$defs": {"Inner": short}},
            "Dynamic": {**short, "$dynamicAnchor": "dynamic"},
            "a/b c": short,
            "Again": {"$ref": "#/$defs/Name"},
        },
    }
    parser = raw_arguments(schema, subject="walk")
    assert parser.parse({"name": "ada"}) == {"name": "ada"}
    with pytest.raises(InvalidArgumentsError, match="at most 3 characters") as refused:
        parser.parse({"name": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_dynamic_reference_is_followed_inside_a_part_with_a_name_of_its_own() -> None:
    names: dict[str, Any] = {"$id": "names", "type": "array", "items": {"$dynamicRef": "#each"}}
    names["$defs"] = {"Each": {"$dynamicAnchor": "each", "type": "string"}}
    schema = {
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {"names": {"$ref": "names"}},
        "$defs": {"Names": names},
    }
    parser = raw_arguments(schema, subject="walk")
    assert parser.parse({"names": ["ada"]}) == {"names": ["ada"]}
    with pytest.raises(InvalidArgumentsError, match="it must be a string"):
        parser.parse({"names": [1]})


@pytest.mark.parametrize(
    ("schema", "sent", "reason"),
    [
        ({"minProperties": 1, "properties": {"a": {}}}, {}, "it must be an object of at least 1 member"),
        ({"properties": {"a": {"type": "object", "maxProperties": 1}}}, {"a": {"b": 1, "c": 2}}, "at most 1 member"),
        ({"properties": {"a": False, "b": {}}}, {"a": 1}, r"a: unknown. Leave it out.\nAccepted: \"b\""),
        ({}, [1], "got a list of 1 item. It must be an object."),
        ({"properties": {"a": {"pattern": "^(?:.?){5000}z$"}}}, {"a": "b" * 5000}, "takes too long"),
    ],
)
def test_what_is_refused_says_why(schema: dict[str, Any], sent: Any, reason: str) -> None:
    parser = raw_arguments(schema, subject="walk")
    with pytest.raises(InvalidArgumentsError, match=reason):
        parser.parse(sent)


def test_defaults_are_filled_in_wherever_they_surely_hold() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "default": "metric"},
            "page": {"$ref": "#/$defs/Page"},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Page"}},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Page"}, {"type": "null"}]},
            "wrong": {"type": "string", "default": 5},
            "nested": {"type": "object", "properties": {"deep": {"default": 1}}, "default": {}},
        },
        "allOf": [{"properties": {"extra": {"default": [1]}}}],
        "$defs": {"Page": {"type": "object", "properties": {"size": {"type": "integer", "default": 10}}}},
    }
    parser = raw_arguments(schema, subject="walk", fills_defaults=True)
    sent: dict[str, Any] = {"page": {}, "rows": [{}, {"size": 2}], "maybe": {}}
    filled = {
        "page": {"size": 10}, "rows": [{"size": 10}, {"size": 2}], "maybe": {"size": 10}, "unit": "metric",
        "nested": {"deep": 1}, "extra": [1],
    }  # fmt: skip
    assert parser.parse(sent) == filled
    assert parser.parse_json(json.dumps(sent)) == filled
    assert sent == {"page": {}, "rows": [{}, {"size": 2}], "maybe": {}}
    assert raw_arguments(schema, subject="walk").parse(sent) == sent
    first, second = parser.parse({}), parser.parse({})
    first["extra"].append(2)
    assert second["extra"] == [1]


def test_a_default_that_would_break_a_rule_is_not_filled_in() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {}}, "dependentRequired": {"a": ["b"]}}
    parser = raw_arguments(schema, subject="walk", fills_defaults=True)
    assert parser.parse({}) == {}
    assert parser.parse({"b": 2}) == {"a": 1, "b": 2}


def test_formats_are_checked_where_that_is_asked_for() -> None:
    schema = {"properties": {"day": {"type": "string", "format": "date"}}}
    assert tool_from_schema("walk", "Walk.", schema, dict).parse_args({"day": "soon"}) == {"day": "soon"}
    strict = tool_from_schema("walk", "Walk.", schema, dict, formats=True)
    assert strict.parse_args({"day": "2026-01-31"}) == {"day": "2026-01-31"}
    with pytest.raises(InvalidArgumentsError, match='day: got the string "2026-02-30"') as refused:
        strict.parse_args({"day": "2026-02-30"})
    assert 'for example with: {"day": "2026-01-31"}' in str(refused.value)


def test_a_pattern_that_looks_ahead_or_back_is_matched_in_bounded_steps() -> None:
    schema = {
        "properties": {
            "ahead": {"pattern": r"^(?=(a+)+$)(?!.*!)(a|aa)+$"},
            "back": {"pattern": r"^(a+)+\1$"},
            "behind": {"pattern": r"(?<=\$)\d+"},
        }
    }
    parser = raw_arguments(schema, subject="walk")
    assert parser.parse({"ahead": "a" * 2_000, "back": "aaaa", "behind": "costs $5"})
    for wrong in ({"ahead": "a" * 2_000 + "!"}, {"back": "a" * 2_000 + "!"}, {"behind": "costs 5"}):
        with pytest.raises(InvalidArgumentsError):
            parser.parse(wrong)


GIVEN_UP = {"pattern": r"^(?:(?=a)a|aa)+$"}
ALSO_GIVEN_UP = {"pattern": r"^(?:(?=a)a|aa|(?=b)b)+$"}


DEPEND_ON_GIVEN_UP: list[dict[str, Any]] = [
    GIVEN_UP,
    {"not": GIVEN_UP},
    {"not": {"not": GIVEN_UP}},
    {"if": GIVEN_UP, "then": False},
    {"if": GIVEN_UP, "else": False},
    {"if": {"not": GIVEN_UP}, "then": False},
    {"not": {"if": GIVEN_UP, "else": False}},
    {"oneOf": [GIVEN_UP, {"type": "string"}]},
    {"oneOf": [{"not": GIVEN_UP}, {"type": "integer"}]},
    {"oneOf": [GIVEN_UP, {"not": ALSO_GIVEN_UP}]},
    {"anyOf": [{"not": GIVEN_UP}, {"type": "integer"}]},
    {"not": {"anyOf": [GIVEN_UP, {"type": "integer"}]}},
    {"not": {"allOf": [GIVEN_UP, {"not": ALSO_GIVEN_UP}]}},
    {"not": {"$ref": "#/$defs/given_up"}},
    {"items": {"not": GIVEN_UP}},
    {"not": {"items": GIVEN_UP}},
    {"not": {"contains": GIVEN_UP}},
    {"contains": GIVEN_UP, "minContains": 0, "maxContains": 0},
    {"contains": GIVEN_UP, "minContains": 0, "unevaluatedItems": False},
    {"not": {"propertyNames": GIVEN_UP}},
    {"patternProperties": {GIVEN_UP["pattern"]: False}},
    {"patternProperties": {GIVEN_UP["pattern"]: {}}, "additionalProperties": False},
    {"not": {"patternProperties": {GIVEN_UP["pattern"]: {}}, "additionalProperties": False}},
    {"not": {"allOf": [{"patternProperties": {GIVEN_UP["pattern"]: {}}}], "unevaluatedProperties": False}},
]


@pytest.mark.parametrize("schema", DEPEND_ON_GIVEN_UP, ids=json.dumps)
def test_a_match_that_was_given_up_accepts_nothing_wherever_it_stands(schema: dict[str, Any]) -> None:
    about = {"properties": {"v": schema}, "$defs": {"given_up": GIVEN_UP}}
    text = "a" * 2_000 + "!"
    keyword = json.dumps(schema)
    value: Any = {text: "x"} if "roperties" in keyword or "propertyNames" in keyword else text
    value = [text] if "items" in keyword or "ontains" in keyword else value
    with pytest.raises(InvalidArgumentsError):
        raw_arguments(about, subject="walk").parse({"v": value})


def test_the_nearest_of_some_alternatives_tells_what_is_wrong() -> None:
    cat = {
        "type": "object",
        "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
        "required": ["kind"],
    }
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}, "bark": {"type": "string"}}, "required": ["kind"]}
    parser = raw_arguments({"properties": {"pet": {"anyOf": [cat, dog]}}}, subject="walk")
    with pytest.raises(InvalidArgumentsError) as refused:
        parser.parse({"pet": {"kind": "cat", "lives": "nine"}})
    assert '- pet.lives: got the string "nine", but it must be an integer.' in str(refused.value)


def test_the_one_wrong_item_of_a_long_list_is_named() -> None:
    row = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    parser = raw_arguments({"properties": {"rows": {"type": "array", "items": row}}}, subject="x")
    with pytest.raises(InvalidArgumentsError, match=r"rows\[5000\]\.a: required, but missing"):
        parser.parse({"rows": [{"a": 1}] * 5000 + [{}]})
    with pytest.raises(InvalidArgumentsError, match="takes too long"):
        parser.parse({"rows": [{"a": 1}] * 120_000 + [{}]})
