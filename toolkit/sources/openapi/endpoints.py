"""Operations read to the end: the arguments that a model gives, how they are sent, in which body, and to which server.

`openapi_pydantic` checks the pieces that are used, and no others: a mistake elsewhere in a document does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from openapi_pydantic.v3 import v3_0, v3_1

from toolkit.errors import OpenApiError
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Document, Part
from toolkit.sources.openapi.operation import (
    Body,
    BodyKind,
    Endpoint,
    Operation,
    ParameterPlace,
    ValueEncoding,
    WireParameter,
)
from toolkit.sources.openapi.schema import FILE_SCHEMA, Schemas, holds_file

__all__ = [
    "classify_media_type",
    "convert_form",
    "EndpointReader",
    "FALLBACK_TYPE",
    "find_base_url",
    "find_files",
    "find_names_in_braces",
    "rank_media_type",
    "read_encodings",
    "read_file_types",
]


_NOT_IN_AN_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_SET_ELSEWHERE = {"accept", "content-type", "authorization"}
_PARAMETER_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}


class EndpointReader:
    """Reads the operations of one document.

    Args:
        document: Where they are from.
        base_url: Used instead of the document's servers; None takes the first of those that it has.
        server_variables: The values of variables in a server's URL.
    """

    def __init__(self, document: Document, *, base_url: str | None, server_variables: Mapping[str, str]) -> None:
        self._document = document
        self._base_url = base_url.rstrip("/") if base_url else None
        self._server_variables = server_variables
        self._schemas = Schemas(is_3_0=document.is_3_0)
        self._models: Any = v3_0 if document.is_3_0 else v3_1

    def read(self, operation: Operation, item: Part) -> Endpoint:
        """Return all that it takes to call an operation, given its path item.

        Raises:
            OpenApiError: The document says something that can't be; names the operation.
        """
        subject = f"{self._document.name}: {operation.method} {operation.path}"
        part = item.at(operation.method.lower()).about(subject)
        left_out = ("parameters", "requestBody", "callbacks")
        used = {key: value for key, value in part.value.items() if key not in left_out}
        read = part.of({**used, "responses": {}}).read_as(self._models.Operation, "the operation")
        arguments = _ArgumentList(self._schemas, self._models)
        for found in _list_parameters(item.about(subject), part, operation.path):
            arguments.add_parameter(found)
        body = arguments.add_body(part.at("requestBody").resolved())
        security: Any = read.security if read.security is not None else self._document.root.at("security").value
        return Endpoint(
            operation=operation,
            description=_describe_operation(read.summary, read.description, operation),
            base_url=self._base_url or find_base_url(self._document, part, item, self._server_variables, self._models),
            parameters=tuple(arguments.parameters),
            body=body,
            security=tuple(frozenset(one) for one in security or () if is_object(one)),
            schema=self._schemas.standing_alone(
                {
                    "type": "object",
                    "properties": arguments.properties,
                    "required": arguments.required,
                    "additionalProperties": False,
                }
            ),
        )


def _describe_operation(summary: str | None, description: str | None, operation: Operation) -> str:
    words = list(dict.fromkeys(text.strip() for text in (summary, description) if text and text.strip()))
    if operation.is_deprecated:
        words.append("Deprecated.")
    return "\n\n".join(words) or f"{operation.method} {operation.path}"


class _ArgumentList:
    """Gathers what a model gives, from what is sent."""

    def __init__(self, schemas: Schemas, models: Any) -> None:
        self._schemas = schemas
        self._models = models
        self.parameters: list[WireParameter] = []
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []

    def add_parameter(self, part: Part) -> None:
        read: v3_0.Parameter | v3_1.Parameter = _drop_schema(part).read_as(self._models.Parameter, "a parameter")
        place: ParameterPlace = read.param_in.value
        if place == "header" and read.name.lower() in _SET_ELSEWHERE:
            return  # so OpenAPI has it: they are said elsewhere in the document
        subject = f"{part.subject}: the {place} parameter '{read.name}'"
        part = part.about(subject)
        content = part.at("content").value
        if "schema" not in part.value and is_object(content) and content:
            media_type = next(iter(content))
            schema, encoding = part.of(content).at(media_type).at("schema", {}), ValueEncoding(media_type=media_type)
        else:
            schema, encoding = part.at("schema", {}), _read_encoding(read, place, subject)
        converted = self._convert_parameter(schema, read, part)
        argument = self._find_free_name(_NOT_IN_AN_ARGUMENT.sub("_", read.name).strip("_")[:64] or place, place)
        if argument != read.name:
            said = converted.get("description")
            converted["description"] = f"{said}\n" * bool(said) + f"Sent as the {place} parameter {read.name}."
        self.properties[argument] = converted
        if read.required or place == "path":
            self.required.append(argument)
        self.parameters.append(WireParameter(argument=argument, name=read.name, place=place, encoding=encoding))

    def _convert_parameter(self, schema: Part, read: v3_0.Parameter | v3_1.Parameter, part: Part) -> dict[str, Any]:
        converted = dict(self._schemas.convert(schema))
        if read.description:
            converted["description"] = read.description
        if "example" in part.value and "$ref" not in converted:
            converted.setdefault("examples", [part.value["example"]])
        if read.deprecated:
            converted["deprecated"] = True
        return converted

    def add_body(self, part: Part) -> Body | None:
        if part.value is None:
            return None
        read: v3_0.RequestBody | v3_1.RequestBody = _drop_schemas(part).read_as(self._models.RequestBody, "its body")
        if not read.content:
            return None
        media_type = min(read.content, key=rank_media_type)
        subject = f"{part.subject}: its body as {media_type}"
        whole = part.at("content").at(media_type).about(subject)
        schema = whole.at("schema", {})
        kind = classify_media_type(media_type)
        argument = self._find_free_name("_request_body" if "body" in self.properties else "body", "body")
        is_form = kind in ("form", "multipart")
        encodings = read_encodings(read.content[media_type].encoding or {}) if is_form else {}
        files = find_files(schema, encodings) if is_form else frozenset[str]()
        encodings = {**read_file_types(schema, files), **encodings}
        converted = self._convert_body(schema, kind, media_type, files)
        if read.description:
            said = converted.get("description")
            converted["description"] = read.description if not said else f"{read.description}\n{said}"
        self.properties[argument] = converted
        if read.required:
            self.required.append(argument)
        sent_as = media_type if "*" not in media_type else "application/json" if kind == "json" else FALLBACK_TYPE
        return Body(argument=argument, media_type=sent_as, kind=kind, encodings=encodings, files=files)

    def _convert_body(self, schema: Part, kind: str, media_type: str, files: frozenset[str]) -> dict[str, Any]:
        if kind == "file":
            return dict(FILE_SCHEMA)
        if kind == "text":
            converted = self._schemas.convert(schema)
            is_text = converted.get("type") == "string"
            return converted if is_text else {"type": "string", "description": f"Text of the type {media_type}."}
        return convert_form(self._schemas, schema, files) if files else dict(self._schemas.convert(schema))

    def _find_free_name(self, name: str, place: str) -> str:
        """Return a name for an argument that is not taken yet."""
        if name not in self.properties:
            return name
        stem, number = f"{name[:50]}_{place}".rstrip("_"), 1
        name = stem
        while name in self.properties:
            number += 1
            name = f"{stem}_{number}"
        return name


def _list_parameters(item: Part, part: Part, path: str) -> Iterator[Part]:
    """Yield the parameters of an operation: its own go before those of its path, by name and place."""
    found: dict[tuple[str, str], Part] = {}
    for owner in (item, part):
        listed: Any = owner.at("parameters").value or []
        if not is_array(listed):
            raise OpenApiError(f"{part.subject}: its parameters must be a list, not {listed!r:.60}")
        for one in listed:
            parameter = owner.of(one).resolved()
            # What is no text is refused where its operation is read; until then it must only be told from others.
            name, place = (str(parameter.at(key).value) for key in ("name", "in"))
            found[name, place] = parameter
    in_path = find_names_in_braces(path)
    for name in in_path:
        # A document that forgets one can mean only this.
        undeclared = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        found.setdefault((name, "path"), part.of(undeclared))
    for (wire_name, place), parameter in found.items():
        if place != "path" or wire_name in in_path:
            yield parameter


def _read_encoding(read: v3_0.Parameter | v3_1.Parameter, place: ParameterPlace, subject: str) -> ValueEncoding:
    style = read.style or _PARAMETER_STYLES[place][0]
    if style not in _PARAMETER_STYLES[place]:
        raise OpenApiError(
            f"{subject} has the style '{style}'; there it can be {' or '.join(_PARAMETER_STYLES[place])}"
        )
    return ValueEncoding(
        style=style,
        explode=style == "form" if read.explode is None else read.explode,
        allow_reserved=place == "query"
        and bool((read.model_extra or {}).get("allowReserved", getattr(read, "allowReserved", False))),
    )


def _drop_schema(part: Part) -> Part:
    """Return a parameter without its schema: JSON Schema says what is right in it, and knows more than the models."""
    if not is_object(part.value):
        return part
    return part.of({key: value for key, value in part.value.items() if key != "schema"})


def _drop_schemas(part: Part) -> Part:
    """Return a body without its schemas, for the same reason."""
    content = part.at("content").value
    if not is_object(content):
        return part
    kept = {
        media_type: {"encoding": one["encoding"]} if is_object(one) and "encoding" in one else {}
        for media_type, one in content.items()
    }
    return part.of({**part.value, "content": kept})


_IN_BRACES = re.compile(r"\{([^{}]+)\}")


def find_names_in_braces(text: str) -> list[str]:
    """Return the names that a path or URL leaves open, in its order."""
    return cast("list[str]", _IN_BRACES.findall(text))


def find_base_url(document: Document, part: Part, item: Part, variables: Mapping[str, str], models: Any) -> str:
    """Return the URL of the first server that is named nearest to an operation, without a slash at the end.

    Raises:
        OpenApiError: It is not absolute, holds a password, or needs a variable that is not set.
    """
    for owner in (part, item, document.root):
        servers: Any = owner.at("servers").value
        if is_array(servers) and servers:
            return _read_server_url(owner.of(servers[0]), document, variables, models)
    return _read_server_url(part.of({"url": "/"}), document, variables, models)


def _read_server_url(part: Part, document: Document, variables: Mapping[str, str], models: Any) -> str:
    server: v3_0.Server | v3_1.Server = part.read_as(models.Server, "its server")
    declared: Mapping[str, v3_0.ServerVariable | v3_1.ServerVariable] = server.variables or {}
    values: dict[str, str] = {}
    for name in find_names_in_braces(server.url):
        variable = declared.get(name)
        if name not in variables and variable is None:
            raise OpenApiError(
                f"{part.subject}: its server {server.url} needs a value for '{name}': "
                f"pass server_variables={{'{name}': ...}}, or base_url="
            )
        value = variables.get(name, variable.default if variable else "")
        allowed: Sequence[str] | None = variable.enum if variable else None
        if name in variables and allowed and value not in allowed:
            raise OpenApiError(
                f"{part.subject}: the server variable '{name}' can be {' or '.join(allowed)}, not '{value}'"
            )
        values[name] = value
    url = _IN_BRACES.sub(lambda match: values[match[1]], server.url)
    url = urljoin(document.url, url) if document.url else url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OpenApiError(
            f"{part.subject}: no absolute base URL: the document's server is {server.url!r}; "
            "pass base_url='https://...'"
        )
    if "@" in parts.netloc:
        raise OpenApiError(f"{part.subject}: its server's URL holds a user or password: pass base_url= and auth=")
    return url.rstrip("/")


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
