"""Operations read to the end: the arguments that a model gives, how they are sent, and where.

`openapi_pydantic` checks the pieces that are used, and no others: a mistake elsewhere in a document does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from openapi_pydantic.v3 import v3_0, v3_1

from toolkit.errors import OpenApiError
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Document, Part
from toolkit.sources.openapi.forms import (
    FALLBACK_TYPE,
    classify_media_type,
    convert_form,
    find_files,
    rank_media_type,
    read_encodings,
    read_file_types,
)
from toolkit.sources.openapi.operation import (
    Body,
    Endpoint,
    Operation,
    ParameterPlace,
    ValueEncoding,
    WireParameter,
)
from toolkit.sources.openapi.schema import FILE_SCHEMA, Schemas
from toolkit.sources.openapi.server_urls import find_base_url, find_names_in_braces

__all__ = ["EndpointReader"]

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
