"""Schemas of a document as JSON Schemas that stand alone: a model reads them, and arguments are checked by them.

What OpenAPI 3.0 says in its own words (``nullable``, ``example``, boolean bounds) is said in JSON Schema's. What a
schema refers to comes along under ``$defs``, once. What a server alone may set (``readOnly``) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from toolkit.errors import OpenApiError
from toolkit.schema.json_schema import with_few_definitions
from toolkit.schema.nodes import find_references, is_array, is_object, map_subschemas
from toolkit.sources.openapi.document import Part

__all__ = ["FILE_SCHEMA", "Schemas", "holds_file"]

FILE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "A file.",
    "properties": {
        "content": {"type": "string", "description": "What is in it."},
        "encoding": {
            "enum": ["text", "base64"],
            "default": "text",
            "description": "How content is written here: as it is, or in base64 where it is not text.",
        },
        "filename": {"type": "string"},
    },
    "required": ["content"],
    "additionalProperties": False,
}
"""The schema by which a model hands over a file."""

_MAX_FILE_DEPTH = 5
_MAX_INLINED = 100
_MAX_PARTS = 50_000
_PREFIX = "#/$defs/"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
# Words of OpenAPI, of other tools or of a document as a whole: they say nothing about a value.
_LEFT_OUT = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$comment", "discriminator", "xml", "externalDocs",
     "example", "nullable", "readOnly", "id"}
)  # fmt: skip
# What Python warns of in a set of characters, because it may come to mean something.
_MEANS_MORE_IN_PYTHON = re.compile(r"\[\^?\[|--|&&|~~|\|\|")
_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "deprecated"})


class Schemas:
    """The schemas of one document; each that others refer to is converted once.

    Args:
        is_3_0: True where they are of OpenAPI 3.0's own dialect.
    """

    def __init__(self, *, is_3_0: bool) -> None:
        self._is_3_0 = is_3_0
        self._left = _MAX_PARTS
        self._names: dict[int, str] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._references: dict[str, frozenset[str]] = {}
        # What has been converted is kept alive, so that the same id is the same object.
        self._kept: list[Any] = []

    def convert(self, part: Part) -> dict[str, Any]:
        """Return the schema in JSON Schema's words; what it refers to is found by `standing_alone`.

        Raises:
            OpenApiError: A reference can't be followed, or the schema is none.
        """
        self._left = _MAX_PARTS
        known = len(self._names)
        try:
            return self._convert_schema(part)
        except RecursionError as error:
            self._forget_since(known)
            raise OpenApiError(f"{part.subject}: a schema is nested too deeply") from error
        except OpenApiError:
            self._forget_since(known)
            raise

    def with_files(self, part: Part) -> dict[str, Any]:
        """Do what `convert` does, with each file as `FILE_SCHEMA`."""
        if not holds_file(part):
            return self.convert(part)
        part = part.resolved()
        if _is_file_schema(part.value):
            words = {key: part.value[key] for key in _ANNOTATIONS - {"default", "examples"} if key in part.value}
            return {**FILE_SCHEMA, **words}
        inside = ("anyOf", "oneOf", "items")
        converted = self.convert(part.of({key: value for key, value in part.value.items() if key not in inside}))
        for keyword in ("anyOf", "oneOf"):
            if is_array(listed := part.value.get(keyword)):
                converted[keyword] = [self.with_files(part.of(member)) for member in listed]
        if "items" in part.value:
            converted["items"] = self.with_files(part.at("items"))
        return converted

    def standing_alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a converted schema with everything that it refers to.

        Raises:
            OpenApiError: A reference stands where no schema can be, such as in a list of ``additionalProperties``.
        """
        needed: dict[str, dict[str, Any]] = {}
        waiting = _find_referred_names(schema)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                if name not in self._definitions:
                    raise OpenApiError(f"a schema refers to {name!r:.200} in a place where no schema can be")
                needed[name] = self._definitions[name]
                if name not in self._references:
                    self._references[name] = frozenset(_find_referred_names(needed[name]))
                waiting.extend(self._references[name])
        if not needed:
            return dict(schema)
        whole = {**schema, "$defs": {name: needed[name] for name in sorted(needed)}}
        return with_few_definitions(whole) if len(needed) <= _MAX_INLINED else whole

    def _convert_schema(self, part: Part) -> dict[str, Any]:
        schema = part.value
        self._left -= 1
        if self._left < 0:
            raise OpenApiError(f"{part.subject}: a schema has more than {_MAX_PARTS:,} parts")
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not is_object(schema):
            raise OpenApiError(f"{part.subject}: a schema must be an object, not {schema!r:.60}")
        if "$ref" in schema or "$dynamicRef" in schema:
            return self._convert_reference(part)
        kept = {key: value for key, value in schema.items() if key not in _LEFT_OUT and not key.startswith("x-")}
        kept = self._drop_read_only(part, kept)
        made: dict[str, Any] = map_subschemas(kept, lambda member: self._convert_schema(part.of(member)))
        if "discriminator" in schema:
            self._add_discriminator(part, made)
        if "example" in schema and "examples" not in made:
            made["examples"] = [schema["example"]]
        if self._is_3_0:
            _rewrite_dialect(schema, made)
        return _drop_unusable(made)

    def _convert_reference(self, part: Part) -> dict[str, Any]:
        schema: dict[str, Any] = part.value
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        target = part.refer(reference)
        name = self._names.get(id(target.value)) or self._define_schema(str(reference), target)
        beside = {key: value for key, value in schema.items() if key not in ("$ref", "$dynamicRef")}
        if self._is_3_0:  # which ignores all of them; words do no harm
            beside = {key: value for key, value in beside.items() if key == "description"}
        more = self._convert_schema(part.of(beside))
        if more.keys() <= _ANNOTATIONS:
            return {"$ref": _PREFIX + name, **more}
        return {**more, "allOf": [{"$ref": _PREFIX + name}, *more.get("allOf", ())]}

    def _define_schema(self, reference: str, target: Part) -> str:
        last = unquote(reference.rstrip("/").rpartition("/")[2]).replace("~1", "_").replace("~0", "_")
        stem = _NOT_IN_A_NAME.sub("_", last).strip("_") or "schema"
        name, number = stem, 1
        while name in self._definitions:
            number += 1
            name = f"{stem}_{number}"
        self._names[id(target.value)] = name
        self._kept.append(target.value)
        self._definitions[name] = {}  # its place, for a schema that contains itself
        self._definitions[name] = self._convert_schema(target)
        return name

    def _forget_since(self, known: int) -> None:
        """Drop the definitions since then: they are half done, and another use must fail as the first one did."""
        while len(self._names) > known:
            self._names.popitem()
            self._definitions.popitem()

    def _drop_read_only(self, part: Part, schema: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties")
        if not is_object(properties):
            return schema
        hidden = {
            name for name, member in properties.items() if part.of(member).resolved().at("readOnly").value is True
        }
        if not hidden:
            return schema
        required = schema.get("required")
        return {
            **schema,
            "properties": {name: member for name, member in properties.items() if name not in hidden},
            **({"required": [name for name in required if name not in hidden]} if is_array(required) else {}),
        }

    def _add_discriminator(self, part: Part, made: dict[str, Any]) -> None:
        """Say in each alternative which value of the discriminating property chooses it."""
        discriminator: Any = part.value["discriminator"]
        keyword = "oneOf" if "oneOf" in part.value else "anyOf"
        alternatives = part.value.get(keyword)
        if not is_object(discriminator) or not is_array(alternatives):
            return
        name = discriminator.get("propertyName")
        if not isinstance(name, str):
            return
        mapping: Any = discriminator.get("mapping")
        for index, alternative in enumerate(alternatives):
            reference = alternative.get("$ref") if is_object(alternative) else None
            if not isinstance(reference, str):
                continue
            implied = unquote(reference.rpartition("/")[2])
            values = [
                value
                for value, to in (mapping.items() if is_object(mapping) else ())
                if to == reference or (isinstance(to, str) and "/" not in to and to == implied)
            ] or [implied]
            chosen = {"const": values[0]} if len(values) == 1 else {"enum": values}
            made[keyword][index] = {
                "allOf": [made[keyword][index], {"properties": {name: chosen}, "required": [name]}],
            }


def holds_file(part: Part, _depth: int = 0) -> bool:
    """Return whether a value of this schema is the content of a file, or a list of such, or may be."""
    part = part.resolved()
    if _is_file_schema(part.value):
        return True
    return _depth < _MAX_FILE_DEPTH and any(holds_file(inner, _depth + 1) for inner in _list_alternatives(part))


def _is_file_schema(schema: Any) -> bool:
    return (
        is_object(schema)
        and schema.get("type", "string") == "string"
        and (schema.get("format") == "binary" or (_has_binary_media_type(schema) and "contentEncoding" not in schema))
    )


def _list_alternatives(part: Part) -> Iterator[Part]:
    for keyword in ("anyOf", "oneOf"):
        listed = part.at(keyword).value
        yield from (part.of(member) for member in (listed if is_array(listed) else ()))
    if part.at("items").value is not None:
        yield part.at("items")


def _has_binary_media_type(schema: dict[str, Any]) -> bool:
    return isinstance(said := schema.get("contentMediaType"), str) and not said.startswith("text/")


def _rewrite_dialect(schema: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Say in JSON Schema's words what OpenAPI 3.0 says in its own."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and bound in made:
            made[exclusive] = made.pop(bound)
    if schema.get("nullable") is not True:
        return
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if is_array(made.get("enum")) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
    elif made.keys() - _ANNOTATIONS:
        words = {key: made.pop(key) for key in list(made) if key in _ANNOTATIONS}
        whole = dict(made)
        made.clear()
        made.update(words, anyOf=[whole, {"type": "null"}])


def _drop_unusable(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop what checks nothing and only makes validators fail."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _is_python_pattern(pattern):
        # JavaScript's expressions are not all Python's; the server still holds the value to it.
        del schema["pattern"]
        said = schema.get("description")
        schema["description"] = f"{said}\n" * bool(said) + f"Matches the regular expression {pattern}"
    if schema.get("required") == [] or isinstance(schema.get("required"), bool):
        del schema["required"]
    if schema.get("type") == "file":
        schema["type"] = "string"
    return schema


def _is_python_pattern(pattern: str) -> bool:
    if _MEANS_MORE_IN_PYTHON.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _find_referred_names(schema: Mapping[str, Any]) -> list[str]:
    return [reference.removeprefix(_PREFIX) for reference in find_references(schema)]
