"""The bodies of requests: which of several media types is sent, and what a form is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from openapi_pydantic.v3 import v3_0, v3_1

from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Part
from toolkit.sources.openapi.operation import BodyKind, ValueEncoding
from toolkit.sources.openapi.schema import FILE_SCHEMA, Schemas, holds_file

__all__ = [
    "FALLBACK_TYPE",
    "classify_media_type",
    "convert_form",
    "find_files",
    "rank_media_type",
    "read_encodings",
    "read_file_types",
]

FALLBACK_TYPE = "application/octet-stream"
"""The media type of bytes of any kind."""

_MAX_FORM_DEPTH = 5


def read_encodings(said: Mapping[str, v3_0.Encoding | v3_1.Encoding]) -> dict[str, ValueEncoding]:
    """Return how a form's properties are written, of those that something is said about."""
    return {
        name: ValueEncoding(
            style=one.style or "form",
            explode=one.style in (None, "form") if one.explode is None else one.explode,
            allow_reserved=one.allowReserved,
            media_type=None if one.style else one.contentType,
        )
        for name, one in said.items()
    }


def find_files(schema: Part, encodings: Mapping[str, ValueEncoding]) -> frozenset[str]:
    """Return which of a form's properties are files."""
    files: set[str] = set()
    for name, member in _list_form_members(schema):
        media_type = encodings[name].media_type if name in encodings else None
        is_nothing_else = not member.value and media_type is not None and classify_media_type(media_type) == "file"
        if is_nothing_else or holds_file(member):
            files.add(name)
    return frozenset(files)


def read_file_types(schema: Part, files: frozenset[str]) -> dict[str, ValueEncoding]:
    """Return the media types of files that a form's schema names; bytes of any kind are none."""
    said = {name: member.resolved().at("contentMediaType").value for name, member in _list_form_members(schema)}
    return {
        name: ValueEncoding(media_type=media_type)
        for name, media_type in said.items()
        if name in files and isinstance(media_type, str) and media_type != FALLBACK_TYPE
    }


def _list_form_members(schema: Part, depth: int = 0) -> Iterator[tuple[str, Part]]:
    """Yield the properties of a form, those of the schemas that it is made of too."""
    resolved = schema.resolved()
    members = resolved.at("properties").value
    yield from ((name, resolved.of(member)) for name, member in (members if is_object(members) else {}).items())
    made_of = resolved.at("allOf").value
    if is_array(made_of) and depth < _MAX_FORM_DEPTH:
        for one in made_of:
            yield from _list_form_members(resolved.of(one), depth + 1)


def rank_media_type(media_type: str) -> int:
    """Return the place of a media type among those that a body may have; the lowest is sent."""
    order = ("json", "form", "multipart", "text", "file")
    plain = media_type.partition(";")[0].strip().lower()
    return -1 if plain == "application/json" else order.index(classify_media_type(media_type))


def classify_media_type(media_type: str) -> BodyKind:
    """Return how a body of a media type is written."""
    plain = media_type.partition(";")[0].strip().lower()
    if plain in ("*/*", "application/*") or plain.endswith(("+json", "/json")):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    is_text = plain.startswith("text/") or plain.endswith(("xml", "yaml", "json", "graphql", "javascript", "jsonl"))
    return "text" if is_text else "file"


def convert_form(schemas: Schemas, schema: Part, files: frozenset[str], depth: int = 0) -> dict[str, Any]:
    """Return the schema of a form as a model gives it, with each of its files as `FILE_SCHEMA`."""
    resolved = schema.resolved()
    members = resolved.at("properties", {}).value
    made_of = resolved.at("allOf", []).value
    if not is_object(members) or not is_array(made_of) or depth > _MAX_FORM_DEPTH:
        return dict(schemas.convert(schema))
    plain = {name: member for name, member in members.items() if name not in files}
    left = {key: value for key, value in resolved.value.items() if key != "allOf"}
    converted = dict(schemas.convert(resolved.of({**left, "properties": plain})))
    if made_of:
        converted["allOf"] = [convert_form(schemas, resolved.of(one), files, depth + 1) for one in made_of]
    with_files = {
        name: _convert_file(schemas, resolved.of(member)) if name in files else converted["properties"].get(name)
        for name, member in members.items()
    }
    # One that only the server sets has gone with the conversion.
    converted["properties"] = {name: member for name, member in with_files.items() if member is not None}
    return converted


def _convert_file(schemas: Schemas, part: Part) -> dict[str, Any]:
    return schemas.with_files(part) if holds_file(part) else dict(FILE_SCHEMA)
