"""The operations of a document, and everything that is needed to call one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolkit.errors import OpenApiError
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Document, Part

__all__ = [
    "Body",
    "BodyKind",
    "Endpoint",
    "Operation",
    "ParameterPlace",
    "ValueEncoding",
    "WireParameter",
    "list_operations",
]

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9]+")

ParameterPlace: TypeAlias = Literal["path", "query", "header", "cookie"]
BodyKind: TypeAlias = Literal["json", "form", "multipart", "text", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as a filter sees it.

    Args:
        id: Its ``operationId``, or ``{method}_{path}`` where it has none.
        method: Such as ``GET``.
        path: As the document writes it, such as ``/pets/{id}``.
        tags: The document's.
        summary: One line; may be empty.
        is_deprecated: True if the document says so.
    """

    id: str
    method: str
    path: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    is_deprecated: bool = False

    @property
    def is_read(self) -> bool:
        """True if it changes nothing, by HTTP's rules for its method."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEncoding:
    """The encoding of a value in a URL, a header or a form.

    Args:
        style: As OpenAPI names it.
        explode: True where each item of a list, or property of an object, is written by itself.
        allow_reserved: True where characters with a meaning in URLs stay as they are.
        media_type: How it is written instead, as a document of its own; None for none.
    """

    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireParameter:
    """A parameter: the model's argument, and its encoding."""

    argument: str
    name: str
    place: ParameterPlace
    encoding: ValueEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body: the model's argument, and its encoding.

    Args:
        argument: Mostly ``body``.
        media_type: The media type of the body.
        kind: How it is written.
        encodings: Of a form's properties, if the document has any.
        files: A form's properties that are files.
    """

    argument: str
    media_type: str
    kind: BodyKind
    encodings: Mapping[str, ValueEncoding] = field(default_factory=dict[str, ValueEncoding])
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything that is needed to call an operation.

    Args:
        operation: The operation of the document.
        description: The description that a model sees.
        base_url: Without a slash at the end.
        parameters: In the order of the document.
        body: None where it takes none.
        security: The alternatives: each a set of schemes that go together. Empty where it needs none.
        schema: Of the arguments.
    """

    operation: Operation
    description: str
    base_url: str
    parameters: tuple[WireParameter, ...]
    body: Body | None
    security: tuple[frozenset[str], ...]
    schema: Mapping[str, Any]


def list_operations(document: Document) -> Iterator[tuple[Operation, Part]]:
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
