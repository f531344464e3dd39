"""Reads operations: the model's arguments, their encoding, the body, the server and the schemas.

`openapi_pydantic` validates only the pieces in use, so a mistake elsewhere in a document does no harm. The schemas
become self-contained JSON Schemas, which models read and arguments are validated by.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote, urljoin

import httpx2
from openapi_pydantic.v3 import v3_0, v3_1

from toolkit.errors import ConfigurationError, OpenApiError
from toolkit.foreign_text import replace_surrogates
from toolkit.http_client import HEADER_NAME, is_inner_host, split_url
from toolkit.redaction import MASK
from toolkit.schema.json_schema import with_few_definitions
from toolkit.schema.nodes import find_references, is_array, is_object, map_subschemas
from toolkit.sources.openapi.document import (
    Body,
    BodyKind,
    Document,
    Endpoint,
    Operation,
    ParameterPlace,
    Part,
    ValueEncoding,
    WireParameter,
)

_NOT_IN_AN_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
# Headers about framing, routing, identity or the method of a request: with these a model could reach another server,
# smuggle a second request, or turn a read into a write. Gateways have many names for these, which share a word:
# `X-Forwarded-Host`, `X-HTTP-Method-Override`, `X-Remote-User`, `Fastly-Client-IP`.
_RESERVED_HEADER = re.compile(
    r"(accept(-charset|-encoding)?|authorization|connection|content-(encoding|length|type)|early-data|expect"
    r"|(x-)?(http-)?host|http2-settings|keep-alive|max-forwards|te|transfer-encoding|upgrade|via|x-http-method"
    r"|x-url-scheme)$"
    r"|(sec|x-envoy|x-original|x-rewrite)-"
    r"|(.*-)?(cookie2?|forward(ed)?|override|proxy|remote|trailers?)(-|$)"
    r"|.*-ip$"
)
_BETWEEN_WORDS = re.compile(r"[-_.]+")
_PARAMETER_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}


class EndpointReader:
    """Reads the operations of one document.

    Args:
        document: The document.
        base_url: The base URL; None takes the document's first server.
        server_variables: The values of variables in a server's URL.
        own: The places and names of the parameters that the application sets itself; headers as by `plain_header`.

    Attributes:
        left_out: The parameters omitted so far, because the client or the application sets them.
    """

    def __init__(
        self,
        document: Document,
        *,
        base_url: str | None,
        server_variables: Mapping[str, str],
        own: Collection[tuple[str, str]],
    ) -> None:
        self._document = document
        self._own = own
        self._base_url = base_url.rstrip("/") if base_url else None
        self._server_variables = server_variables
        self.left_out: dict[str, None] = {}
        self._schemas = Schemas(is_3_0=document.is_3_0)
        self._models: Any = v3_0 if document.is_3_0 else v3_1

    def read(self, operation: Operation, item: Part) -> Endpoint:
        """Return everything needed to call an operation, from its path item.

        Raises:
            OpenApiError: The document is invalid; the message names the operation.
        """
        subject = f"{self._document.name}: {operation.method} {operation.path}"
        item.reading.check_time(subject)
        if replace_surrogates(operation.path) != operation.path:
            raise OpenApiError(f"{replace_surrogates(subject)}: its path has half of a surrogate pair")
        part = item.at(operation.method.lower()).about(subject)
        left_out = ("parameters", "requestBody", "callbacks")
        used = {key: value for key, value in part.value.items() if key not in left_out}
        read = part.of({**used, "responses": {}}).read_as(self._models.Operation, "the operation")
        arguments = _ArgumentList(self._schemas, self._models, self._own)
        for found in _list_parameters(item.about(subject), part, operation.path):
            arguments.add_parameter(found)
        self.left_out.update(dict.fromkeys(arguments.left_out))
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
    """Collects the model's arguments from the parts of a request."""

    def __init__(self, schemas: Schemas, models: Any, own: Collection[tuple[str, str]]) -> None:
        self._own = own
        self._schemas = schemas
        self._models = models
        self._numbers: Counter[str] = Counter()
        self.parameters: list[WireParameter] = []
        self.left_out: list[str] = []
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []

    def add_parameter(self, part: Part) -> None:
        read: v3_0.Parameter | v3_1.Parameter = _drop_schema(part).read_as(self._models.Parameter, "a parameter")
        place: ParameterPlace = read.param_in.value
        is_header = place == "header"
        own_name = plain_header(read.name) if is_header else read.name
        if (place, own_name) in self._own or (is_header and not _is_free_header(read.name)):
            self.left_out.append(read.name)
            return
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
            prefix = f"{converted['description']}\n" if converted.get("description") else ""
            converted["description"] = f"{prefix}Sent as the {place} parameter {read.name}."
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
            inner = converted.get("description")
            converted["description"] = f"{read.description}\n{inner}" if inner else read.description
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
        """Return an unused name for an argument."""
        if name not in self.properties:
            return name
        name = stem = f"{name[:50]}_{place}".rstrip("_")
        while name in self.properties:
            self._numbers[stem] += 1
            name = f"{stem}_{self._numbers[stem] + 1}"
        return name


def plain_header(name: str) -> str:
    """Return the name of a header as servers compare it: many treat a dash, an underscore and a dot as the same."""
    return _BETWEEN_WORDS.sub("-", name.lower())


def _is_free_header(name: str) -> bool:
    """Return True if a model may set the header."""
    return HEADER_NAME.fullmatch(name) is not None and _RESERVED_HEADER.match(plain_header(name)) is None


def _list_parameters(item: Part, part: Part, path: str) -> Iterator[Part]:
    """Yield the parameters of an operation; its own override those of its path by name and place."""
    found: dict[tuple[str, str], Part] = {}
    for owner in (item, part):
        listed: Any = owner.at("parameters").value or []
        if not is_array(listed):
            raise OpenApiError(f"{part.subject}: its parameters must be a list, not {listed!r:.60}")
        for one in listed:
            parameter = owner.of(one).resolved()
            # Names that are not text are refused when the operation is read; here they only need to differ.
            name, place = (str(parameter.at(key).value) for key in ("name", "in"))
            found[name, place] = parameter
    in_path = dict.fromkeys(find_names_in_braces(path))
    for name in in_path:
        # An undeclared path parameter can mean only this.
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
    """Return a parameter without its schema, which is validated as JSON Schema: the models know fewer keywords."""
    if not is_object(part.value):
        return part
    return part.of({key: value for key, value in part.value.items() if key != "schema"})


def _drop_schemas(part: Part) -> Part:
    """Return a body without its schemas, for the same reason."""
    content = part.at("content").value
    if not is_object(content):
        return part
    content = {
        media_type: {"encoding": one["encoding"]} if is_object(one) and "encoding" in one else {}
        for media_type, one in content.items()
    }
    return part.of({**part.value, "content": content})


_IN_BRACES = re.compile(r"\{([^{}]+)\}")


def find_names_in_braces(text: str) -> list[str]:
    """Return the names in braces in a path or URL, in order."""
    return cast("list[str]", _IN_BRACES.findall(text))


def find_base_url(document: Document, part: Part, item: Part, variables: Mapping[str, str], models: Any) -> str:
    """Return the URL of the operation's first server, or else its path's or the document's, without a trailing slash.

    Raises:
        OpenApiError: It is not absolute, contains a password, or needs a variable that is not set.
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
    try:
        url = urljoin(document.url, url) if document.url else url
        parts = split_url(url, "it")
    except (ValueError, ConfigurationError) as error:
        shown = MASK if "@" in server.url else repr(server.url)
        raise OpenApiError(
            f"{part.subject}: no absolute base URL: the document's server is {shown}; pass base_url='https://...'"
        ) from error
    if document.url and is_inner_host(httpx2.URL(url).host) and not is_inner_host(httpx2.URL(document.url).host):
        raise OpenApiError(
            f"{part.subject}: its server, {parts.hostname}, is this machine or one of its network, and the document is "
            "not from there: pass base_url= if you trust it"
        )
    if "@" in parts.netloc:
        raise OpenApiError(f"{part.subject}: its server's URL holds a user or password: pass base_url= and auth=")
    return url.rstrip("/")


FALLBACK_TYPE = "application/octet-stream"
"""The media type of bytes of any kind."""

_MAX_FORM_DEPTH = 5
_MAX_FORM_PARTS = 500


def read_encodings(declared: Mapping[str, v3_0.Encoding | v3_1.Encoding]) -> dict[str, ValueEncoding]:
    """Return the encodings of a form's properties that declare one."""
    return {
        name: ValueEncoding(
            style=one.style or "form",
            explode=one.style in (None, "form") if one.explode is None else one.explode,
            allow_reserved=one.allowReserved,
            media_type=None if one.style else one.contentType,
        )
        for name, one in declared.items()
    }


def find_files(schema: Part, encodings: Mapping[str, ValueEncoding]) -> frozenset[str]:
    """Return the properties of a form that are files."""
    files: set[str] = set()
    for name, member in _list_form_members(schema):
        media_type = encodings[name].media_type if name in encodings else None
        is_nothing_else = not member.value and media_type is not None and classify_media_type(media_type) == "file"
        if is_nothing_else or holds_file(member):
            files.add(name)
    return frozenset(files)


def read_file_types(schema: Part, files: frozenset[str]) -> dict[str, ValueEncoding]:
    """Return the media types that a form's schema gives for its files, except the one of arbitrary bytes."""
    media_types = {name: member.resolved().at("contentMediaType").value for name, member in _list_form_members(schema)}
    return {
        name: ValueEncoding(media_type=media_type)
        for name, media_type in media_types.items()
        if name in files and isinstance(media_type, str) and media_type != FALLBACK_TYPE
    }


def _list_form_members(schema: Part) -> Iterator[tuple[str, Part]]:
    """Yield the properties of a form, including those of composed schemas, each schema once."""
    level, seen = [schema.resolved()], dict[int, Any]()
    for _ in range(_MAX_FORM_DEPTH + 1):
        level = [part for part in level if seen.setdefault(id(part.value), part) is part]
        for part in level:
            members = part.at("properties").value
            yield from ((name, part.of(member)) for name, member in (members if is_object(members) else {}).items())
        made_of = [(part, part.at("allOf").value) for part in level]
        level = [part.of(one).resolved() for part, listed in made_of if is_array(listed) for one in listed]


def rank_media_type(media_type: str) -> int:
    """Return the rank of a media type among those that a body accepts; the lowest is sent."""
    order = ("json", "form", "multipart", "text", "file")
    plain = media_type.partition(";")[0].strip().lower()
    return -1 if plain == "application/json" else order.index(classify_media_type(media_type))


def classify_media_type(media_type: str) -> BodyKind:
    """Return the kind of serialization for a media type."""
    plain = media_type.partition(";")[0].strip().lower()
    if plain in ("*/*", "application/*") or plain.endswith(("+json", "/json")):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    is_text = plain.startswith("text/") or plain.endswith(("xml", "yaml", "json", "graphql", "javascript", "jsonl"))
    return "text" if is_text else "file"


def convert_form(schemas: Schemas, schema: Part, files: frozenset[str]) -> dict[str, Any]:
    """Return the schema of a form for the model, with each file as `FILE_SCHEMA`.

    Raises:
        OpenApiError: It is not a schema, or has too many parts.
    """
    try:
        return _FormConverter(schemas, files).convert(schema)
    except RecursionError as error:
        raise OpenApiError(f"{schema.subject}: a schema is nested too deeply") from error


class _FormConverter:
    """Converts one form; a schema that it includes several times is applied once."""

    def __init__(self, schemas: Schemas, files: frozenset[str]) -> None:
        self._schemas = schemas
        self._files = files
        self._seen: dict[int, Any] = {}
        self._left = _MAX_FORM_PARTS

    def convert(self, schema: Part, depth: int = 0) -> dict[str, Any]:
        resolved = schema.resolved()
        if self._seen.setdefault(id(resolved.value), resolved) is not resolved:
            return {}
        members = resolved.at("properties", {}).value
        made_of = resolved.at("allOf", []).value
        if not is_object(members) or not is_array(made_of) or depth > _MAX_FORM_DEPTH:
            return dict(self._schemas.convert(schema))
        plain = {name: member for name, member in members.items() if name not in self._files}
        left = {key: value for key, value in resolved.value.items() if key != "allOf"}
        converted = dict(self._schemas.convert(resolved.of({**left, "properties": plain})))
        parts = [self.convert(resolved.of(one), depth + 1) for one in made_of]
        if parts := [part for part in parts if part]:
            converted["allOf"] = parts
        with_files = {
            name: self._convert_file(resolved.of(member)) if name in self._files else converted["properties"].get(name)
            for name, member in members.items()
        }
        # Read-only properties were dropped by the conversion.
        converted["properties"] = {name: member for name, member in with_files.items() if member is not None}
        return converted

    def _convert_file(self, part: Part) -> dict[str, Any]:
        return self._convert_with_files(part) if holds_file(part) else dict(FILE_SCHEMA)

    def _convert_with_files(self, part: Part) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            raise OpenApiError(f"{part.subject}: its files have more than {_MAX_FORM_PARTS:,} alternatives")
        if not holds_file(part):
            return self._schemas.convert(part)
        part = part.resolved()
        if _is_file_schema(part.value):
            words = {key: part.value[key] for key in _ANNOTATIONS - {"default", "examples"} if key in part.value}
            return {**FILE_SCHEMA, **words}
        inside = ("anyOf", "oneOf", "items")
        others = {key: value for key, value in part.value.items() if key not in inside}
        converted = self._schemas.convert(part.of(others))
        for keyword in ("anyOf", "oneOf"):
            if is_array(listed := part.value.get(keyword)):
                converted[keyword] = [self._convert_with_files(part.of(member)) for member in listed]
        if "items" in part.value:
            converted["items"] = self._convert_with_files(part.at("items"))
        return converted


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
"""The schema of a file argument."""

_MAX_FILE_DEPTH = 5
_MAX_INLINED = 100
_MAX_PARTS = 50_000
_PREFIX = "#/$defs/"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
# Keywords of OpenAPI, of other tools or of whole documents, which do not constrain a value.
_LEFT_OUT = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$comment", "discriminator", "xml", "externalDocs",
     "example", "nullable", "readOnly", "id"}
)  # fmt: skip
# Sequences in a character set that Python warns of, since their meaning may change.
_MEANS_MORE_IN_PYTHON = re.compile(r"\[\^?\[|--|&&|~~|\|\|")
_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "deprecated"})


class Schemas:
    """The schemas of one document; each referenced schema is converted once.

    Args:
        is_3_0: True for OpenAPI 3.0's own dialect.
    """

    def __init__(self, *, is_3_0: bool) -> None:
        self._is_3_0 = is_3_0
        self._left = _MAX_PARTS
        self._names: dict[int, str] = {}
        self._numbers: Counter[str] = Counter()
        self._definitions: dict[str, dict[str, Any]] = {}
        self._references: dict[str, frozenset[str]] = {}
        # References to converted objects, so that their ids are not reused.
        self._kept: list[Any] = []

    def convert(self, part: Part) -> dict[str, Any]:
        """Return the schema in JSON Schema's keywords; `standing_alone` adds the targets of its references.

        Raises:
            OpenApiError: A reference can't be resolved, or the schema is invalid.
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

    def standing_alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a converted schema together with everything it refers to.

        Raises:
            OpenApiError: A reference occurs where no schema is allowed, such as in a list of ``additionalProperties``.
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
        supported = {key: value for key, value in schema.items() if key not in _LEFT_OUT and not key.startswith("x-")}
        supported = self._drop_read_only(part, supported)
        made: dict[str, Any] = map_subschemas(supported, lambda member: self._convert_schema(part.of(member)))
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
        if self._is_3_0:  # which ignores keywords beside $ref; annotations do no harm
            beside = {key: value for key, value in beside.items() if key == "description"}
        more = self._convert_schema(part.of(beside))
        if more.keys() <= _ANNOTATIONS:
            return {"$ref": _PREFIX + name, **more}
        return {**more, "allOf": [{"$ref": _PREFIX + name}, *more.get("allOf", ())]}

    def _define_schema(self, reference: str, target: Part) -> str:
        last = unquote(reference.rstrip("/").rpartition("/")[2]).replace("~1", "_").replace("~0", "_")
        stem = _NOT_IN_A_NAME.sub("_", last).strip("_") or "schema"
        name = stem
        while name in self._definitions:
            self._numbers[stem] += 1
            name = f"{stem}_{self._numbers[stem] + 1}"
        self._names[id(target.value)] = name
        self._kept.append(target.value)
        self._definitions[name] = {}  # a placeholder, for a recursive schema
        self._definitions[name] = self._convert_schema(target)
        return name

    def _forget_since(self, known: int) -> None:
        """Drop the incomplete definitions of a failed conversion, so that the next use fails in the same way."""
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
        """Add to each alternative the value of the discriminator that selects it."""
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


def holds_file(part: Part) -> bool:
    """Return True if a value of this schema may be the content of a file, or a list of files."""
    level, seen = [part.resolved()], dict[int, Any]()
    for _ in range(_MAX_FILE_DEPTH + 1):
        if any(_is_file_schema(each.value) for each in level):
            return True
        level = [each for each in level if seen.setdefault(id(each.value), each) is each]
        level = [inner.resolved() for each in level for inner in _list_alternatives(each)]
    return False


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
    media_type = schema.get("contentMediaType")
    return isinstance(media_type, str) and not media_type.startswith("text/")


def _rewrite_dialect(schema: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Convert OpenAPI 3.0's keywords to JSON Schema's."""
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
    """Drop keywords that constrain nothing and make validators fail."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _is_python_pattern(pattern):
        # Not every JavaScript expression is valid in Python; the server still validates the value.
        del schema["pattern"]
        prefix = f"{schema['description']}\n" if schema.get("description") else ""
        schema["description"] = f"{prefix}Matches the regular expression {pattern}"
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
