"""The operations of a document: what each is called, what it takes and where it goes.

`openapi_pydantic` says whether the pieces are what OpenAPI has; only those that are used are looked at, so that a
mistake elsewhere in a document does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urljoin, urlsplit

from openapi_pydantic.v3 import v3_0, v3_1
from pydantic import BaseModel, ValidationError

from toolkit.errors import OpenApiError
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Document, Part
from toolkit.sources.openapi.schema import FILE_SCHEMA, Schemas, holds_file

__all__ = ["Body", "Encoding", "Endpoint", "Operation", "Parameter", "endpoint_of", "operations_of"]

ModelT = TypeVar("ModelT", bound=BaseModel)

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_IN_BRACES = re.compile(r"\{([^{}]+)\}")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9]+")
_NOT_IN_AN_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_FALLBACK = "application/octet-stream"
_MAX_DEPTH = 5
_SET_ELSEWHERE = {"accept", "content-type", "authorization"}
_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}

Place: TypeAlias = Literal["path", "query", "header", "cookie"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a filter may ask about an operation.

    Args:
        id: Its ``operationId``, or ``{method}_{path}`` where it has none.
        method: Such as ``GET``.
        path: As the document writes it, such as ``/pets/{id}``.
        tags: The document's.
        summary: One line; may be empty.
        is_deprecated: Whether the document says so.
    """

    id: str
    method: str
    path: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    is_deprecated: bool = False

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, by what HTTP says of its method."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How a value is written into a URL, a header or a form.

    Args:
        style: As OpenAPI names it.
        explode: Whether each item of a list, or property of an object, is written by itself.
        allow_reserved: Whether characters with a meaning in URLs stay as they are.
        media_type: How it is written instead, as a document of its own; None for none.
    """

    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: the argument that the model gives, and what is sent."""

    argument: str
    name: str
    place: Place
    encoding: Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body: the argument that the model gives, and how it is sent.

    Args:
        argument: Mostly ``body``.
        media_type: What it is sent as.
        kind: How it is written.
        encodings: Of a form's properties, where the document says something about them.
        files: A form's properties that are files.
    """

    argument: str
    media_type: str
    kind: Literal["json", "form", "multipart", "text", "file"]
    encodings: Mapping[str, Encoding] = field(default_factory=dict[str, Encoding])
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """All that it takes to call an operation.

    Args:
        operation: What it is.
        description: What a model reads.
        base_url: Without a slash at the end.
        parameters: In the order of the document.
        body: None where it takes none.
        security: The alternatives: each a set of schemes that go together. Empty where it needs none.
        schema: Of the arguments.
    """

    operation: Operation
    description: str
    base_url: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[frozenset[str], ...]
    schema: Mapping[str, Any]


def operations_of(document: Document) -> Iterator[tuple[Operation, Part]]:
    """Yield the operations of a document in its order, each with its path item.

    Raises:
        OpenApiError: A path is not an object, or refers to nothing.
    """
    paths = document.root.at("paths", {})
    for path, value in paths.value.items():
        if path.startswith("x-"):
            continue
        item = paths.of(value).about(f"{document.name}: {path}").resolved()
        if not is_object(item.value):
            raise OpenApiError(f"{item.subject}: a path must be an object, not {item.value!r:.60}")
        for method in _METHODS:
            found = item.value.get(method)
            if found is None:
                continue
            if not is_object(found):
                raise OpenApiError(f"{item.subject}: its {method} must be an object, not {found!r:.60}")
            tags = found.get("tags")
            name = found.get("operationId")
            made = _NOT_IN_AN_ID.sub("_", f"{method}_{path}").strip("_")
            yield (
                Operation(
                    id=name if isinstance(name, str) and name else made,
                    method=method.upper(),
                    path=path,
                    tags=tuple(map(str, tags)) if is_array(tags) else (),
                    summary=str(found.get("summary") or ""),
                    is_deprecated=found.get("deprecated") is True,
                ),
                item,
            )


def endpoint_of(
    document: Document,
    schemas: Schemas,
    operation: Operation,
    item: Part,
    *,
    base_url: str | None,
    server_variables: Mapping[str, str],
) -> Endpoint:
    """Return all that it takes to call an operation.

    Args:
        document: Where it is from.
        schemas: The document's.
        operation: Which one.
        item: Its path item.
        base_url: Used instead of the document's servers; None takes the first of those that it has.
        server_variables: What to put into a server's URL.

    Raises:
        OpenApiError: The document says something that can't be; names the operation.
    """
    subject = f"{document.name}: {operation.method} {operation.path}"
    part = item.at(operation.method.lower()).about(subject)
    models = v3_0 if document.is_3_0 else v3_1
    used = {key: value for key, value in part.value.items() if key not in ("parameters", "requestBody", "callbacks")}
    read = _read(models.Operation, part.of({**used, "responses": {}}), "the operation")
    arguments = _Arguments(schemas, models)
    for found in _parameters(item.about(subject), part, operation.path):
        arguments.add_parameter(found)
    body = arguments.add_body(part.at("requestBody").resolved())
    security: Any = read.security if read.security is not None else document.root.at("security").value
    return Endpoint(
        operation=operation,
        description=_description(read.summary, read.description, operation),
        base_url=base_url or _base_url(document, part, item, server_variables, models),
        parameters=tuple(arguments.parameters),
        body=body,
        security=tuple(frozenset(one) for one in security or () if is_object(one)),
        schema=schemas.standing_alone(
            {
                "type": "object",
                "properties": arguments.properties,
                "required": arguments.required,
                "additionalProperties": False,
            }
        ),
    )


def _description(summary: str | None, description: str | None, operation: Operation) -> str:
    words = list(dict.fromkeys(text.strip() for text in (summary, description) if text and text.strip()))
    if operation.is_deprecated:
        words.append("Deprecated.")
    return "\n\n".join(words) or f"{operation.method} {operation.path}"


class _Arguments:
    """Gathers what a model gives, from what is sent."""

    def __init__(self, schemas: Schemas, models: Any) -> None:
        self._schemas = schemas
        self._models = models
        self.parameters: list[Parameter] = []
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []

    def add_parameter(self, part: Part) -> None:
        read: v3_0.Parameter | v3_1.Parameter = _read(self._models.Parameter, _without_schema(part), "a parameter")
        place: Place = read.param_in.value
        if place == "header" and read.name.lower() in _SET_ELSEWHERE:
            return  # so OpenAPI has it: they are said elsewhere in the document
        subject = f"{part.subject}: the {place} parameter '{read.name}'"
        part = part.about(subject)
        content = part.at("content").value
        if "schema" not in part.value and is_object(content) and content:
            media_type = next(iter(content))
            schema, encoding = part.of(content).at(media_type).at("schema", {}), Encoding(media_type=media_type)
        else:
            schema, encoding = part.at("schema", {}), _encoding(read, place, subject)
        converted = dict(self._schemas.convert(schema))
        if read.description:
            converted["description"] = read.description
        if "example" in part.value and "$ref" not in converted:
            converted.setdefault("examples", [part.value["example"]])
        if read.deprecated:
            converted["deprecated"] = True
        argument = self._free(_NOT_IN_AN_ARGUMENT.sub("_", read.name).strip("_")[:64] or place, place)
        if argument != read.name:
            said = converted.get("description")
            converted["description"] = f"{said}\n" * bool(said) + f"Sent as the {place} parameter {read.name}."
        self.properties[argument] = converted
        if read.required or place == "path":
            self.required.append(argument)
        self.parameters.append(Parameter(argument=argument, name=read.name, place=place, encoding=encoding))

    def add_body(self, part: Part) -> Body | None:
        if part.value is None:
            return None
        read: v3_0.RequestBody | v3_1.RequestBody = _read(self._models.RequestBody, _without_schemas(part), "its body")
        if not read.content:
            return None
        media_type = min(read.content, key=_preference)
        subject = f"{part.subject}: its body as {media_type}"
        whole = part.at("content").at(media_type).about(subject)
        schema = whole.at("schema", {})
        kind = _kind(media_type)
        argument = self._free("_request_body" if "body" in self.properties else "body", "body")
        is_form = kind in ("form", "multipart")
        encodings = _encodings(read.content[media_type].encoding or {}) if is_form else {}
        files = _files(schema, encodings) if is_form else frozenset[str]()
        encodings = {**_said_by_schema(schema, files), **encodings}
        converted = self._converted_body(schema, kind, media_type, files)
        if read.description:
            said = converted.get("description")
            converted["description"] = read.description if not said else f"{read.description}\n{said}"
        self.properties[argument] = converted
        if read.required:
            self.required.append(argument)
        sent_as = media_type if "*" not in media_type else "application/json" if kind == "json" else _FALLBACK
        return Body(argument=argument, media_type=sent_as, kind=kind, encodings=encodings, files=files)

    def _converted_body(self, schema: Part, kind: str, media_type: str, files: frozenset[str]) -> dict[str, Any]:
        if kind == "file":
            return dict(FILE_SCHEMA)
        if kind == "text":
            converted = self._schemas.convert(schema)
            is_text = converted.get("type") == "string"
            return converted if is_text else {"type": "string", "description": f"Text of the type {media_type}."}
        return self._converted_form(schema, files) if files else dict(self._schemas.convert(schema))

    def _converted_form(self, schema: Part, files: frozenset[str], depth: int = 0) -> dict[str, Any]:
        resolved = schema.resolved()
        members = resolved.at("properties", {}).value
        made_of = resolved.at("allOf", []).value
        if not is_object(members) or not is_array(made_of) or depth > _MAX_DEPTH:
            return dict(self._schemas.convert(schema))
        plain = {name: member for name, member in members.items() if name not in files}
        left = {key: value for key, value in resolved.value.items() if key != "allOf"}
        converted = dict(self._schemas.convert(resolved.of({**left, "properties": plain})))
        if made_of:
            converted["allOf"] = [self._converted_form(resolved.of(one), files, depth + 1) for one in made_of]
        with_files = {
            name: self._file(resolved.of(member)) if name in files else converted["properties"].get(name)
            for name, member in members.items()
        }
        # One that only the server sets has gone with the conversion.
        converted["properties"] = {name: member for name, member in with_files.items() if member is not None}
        return converted

    def _file(self, part: Part) -> dict[str, Any]:
        return self._schemas.with_files(part) if holds_file(part) else dict(FILE_SCHEMA)

    def _free(self, name: str, place: str) -> str:
        """Return a name for an argument that is not taken yet."""
        if name not in self.properties:
            return name
        stem, number = f"{name[:50]}_{place}".rstrip("_"), 1
        name = stem
        while name in self.properties:
            number += 1
            name = f"{stem}_{number}"
        return name


def _parameters(item: Part, part: Part, path: str) -> Iterator[Part]:
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
    in_path = cast("list[str]", _IN_BRACES.findall(path))
    for name in in_path:
        # A document that forgets one can mean only this.
        undeclared = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        found.setdefault((name, "path"), part.of(undeclared))
    for (wire_name, place), parameter in found.items():
        if place != "path" or wire_name in in_path:
            yield parameter


def _encoding(read: v3_0.Parameter | v3_1.Parameter, place: Place, subject: str) -> Encoding:
    style = read.style or _STYLES[place][0]
    if style not in _STYLES[place]:
        raise OpenApiError(f"{subject} has the style '{style}'; there it can be {' or '.join(_STYLES[place])}")
    return Encoding(
        style=style,
        explode=style == "form" if read.explode is None else read.explode,
        allow_reserved=place == "query"
        and bool((read.model_extra or {}).get("allowReserved", getattr(read, "allowReserved", False))),
    )


def _without_schema(part: Part) -> Part:
    """Return a parameter without its schema: JSON Schema says what is right in it, and knows more than the models."""
    if not is_object(part.value):
        return part
    return part.of({key: value for key, value in part.value.items() if key != "schema"})


def _without_schemas(part: Part) -> Part:
    """Return a body without its schemas, for the same reason."""
    content = part.at("content").value
    if not is_object(content):
        return part
    kept = {
        media_type: {"encoding": one["encoding"]} if is_object(one) and "encoding" in one else {}
        for media_type, one in content.items()
    }
    return part.of({**part.value, "content": kept})


def _encodings(said: Mapping[str, v3_0.Encoding | v3_1.Encoding]) -> dict[str, Encoding]:
    """Return how a form's properties are written, of those that something is said about."""
    return {
        name: Encoding(
            style=one.style or "form",
            explode=one.style in (None, "form") if one.explode is None else one.explode,
            allow_reserved=one.allowReserved,
            media_type=None if one.style else one.contentType,
        )
        for name, one in said.items()
    }


def _files(schema: Part, encodings: Mapping[str, Encoding]) -> frozenset[str]:
    """Return which of a form's properties are files."""
    files: set[str] = set()
    for name, member in _form_members(schema):
        media_type = encodings[name].media_type if name in encodings else None
        is_nothing_else = not member.value and media_type is not None and _kind(media_type) == "file"
        if is_nothing_else or holds_file(member):
            files.add(name)
    return frozenset(files)


def _said_by_schema(schema: Part, files: frozenset[str]) -> dict[str, Encoding]:
    """Return the media types of files that a form's schema names; bytes of any kind are none."""
    said = {name: member.resolved().at("contentMediaType").value for name, member in _form_members(schema)}
    return {
        name: Encoding(media_type=media_type)
        for name, media_type in said.items()
        if name in files and isinstance(media_type, str) and media_type != _FALLBACK
    }


def _form_members(schema: Part, depth: int = 0) -> Iterator[tuple[str, Part]]:
    """Yield the properties of a form, those of the schemas that it is made of too."""
    resolved = schema.resolved()
    members = resolved.at("properties").value
    yield from ((name, resolved.of(member)) for name, member in (members if is_object(members) else {}).items())
    made_of = resolved.at("allOf").value
    if is_array(made_of) and depth < _MAX_DEPTH:
        for one in made_of:
            yield from _form_members(resolved.of(one), depth + 1)


def _preference(media_type: str) -> int:
    order = ("json", "form", "multipart", "text", "file")
    plain = media_type.partition(";")[0].strip().lower()
    return -1 if plain == "application/json" else order.index(_kind(media_type))


def _kind(media_type: str) -> Literal["json", "form", "multipart", "text", "file"]:
    plain = media_type.partition(";")[0].strip().lower()
    if plain in ("*/*", "application/*") or plain.endswith(("+json", "/json")):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    is_text = plain.startswith("text/") or plain.endswith(("xml", "yaml", "json", "graphql", "javascript", "jsonl"))
    return "text" if is_text else "file"


def _read(model: type[ModelT], part: Part, what: str) -> ModelT:
    try:
        return model.model_validate(part.value)
    except ValidationError as error:
        # Where one of several things may stand, the complaints about being no reference say nothing.
        complaints = error.errors(include_url=False, include_context=False, include_input=False)
        told = [one for one in complaints if "Reference" not in one["loc"]] or complaints
        where = ".".join(str(step) for step in told[0]["loc"])
        raise OpenApiError(
            f"{part.subject}: {what} is not what OpenAPI has{f', at {where}' if where else ''}: {told[0]['msg']}"
        ) from error


def _base_url(document: Document, part: Part, item: Part, variables: Mapping[str, str], models: Any) -> str:
    for owner in (part, item, document.root):
        servers: Any = owner.at("servers").value
        if is_array(servers) and servers:
            return _server_url(owner.of(servers[0]), document, variables, models)
    return _server_url(part.of({"url": "/"}), document, variables, models)


def _server_url(part: Part, document: Document, variables: Mapping[str, str], models: Any) -> str:
    server: v3_0.Server | v3_1.Server = _read(models.Server, part, "its server")
    declared: Mapping[str, v3_0.ServerVariable | v3_1.ServerVariable] = server.variables or {}
    values: dict[str, str] = {}
    for name in cast("list[str]", _IN_BRACES.findall(server.url)):
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
