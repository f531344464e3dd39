"""Arguments as they go over the wire: OpenAPI's styles for parameters, and bodies of each kind."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from toolkit.errors import InvalidArgumentsError
from toolkit.json_text import write_json
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.operation import Body, Encoding, Endpoint

__all__ = ["Content", "Wire", "wire_of"]

_UNRESERVED = "-._~"
# Without those that would end a value: & = + and #.
_RESERVED = _UNRESERVED + ":/?@!$'()*,;[]"
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_BINARY = "application/octet-stream"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

Quote = Callable[[str], str]
Field = tuple[str | None, bytes, str | None]
"""One part of a multipart form: a file's name, what is in it, and its media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A body: bytes of a media type, or the fields of a multipart form."""

    data: bytes = b""
    media_type: str | None = None
    fields: tuple[tuple[str, Field], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A request before anybody has signed it: everything in it is encoded.

    Args:
        path: Under the base URL.
        query: Without the question mark; may be empty.
        headers: Names and values.
        cookies: As one header's value; may be empty.
        content: None for no body.
    """

    path: str
    query: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: str = ""
    content: Content | None = None


def wire_of(endpoint: Endpoint, arguments: Mapping[str, Any]) -> Wire:
    """Return what is sent for the arguments of a call.

    Raises:
        InvalidArgumentsError: A value that can't stand where it should, such as ``..`` in a path.
    """
    path = endpoint.operation.path
    query: list[str] = []
    cookies: list[str] = []
    headers: list[tuple[str, str]] = []
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.argument)
        if parameter.place == "path":
            written = _in_path(parameter.name, value, parameter.encoding)
            path = path.replace(f"{{{parameter.name}}}", written)
        elif value is None:
            continue
        elif parameter.place == "query":
            query += _pairs(parameter.name, value, parameter.encoding, _quoting(parameter.encoding))
        elif parameter.place == "cookie":
            cookies += _pairs(parameter.name, value, parameter.encoding, _quoting(parameter.encoding))
        else:
            headers.append((parameter.name, _in_header(parameter.name, value, parameter.encoding)))
    body = endpoint.body
    given = body is not None and body.argument in arguments
    content = _content(body, arguments[body.argument]) if body is not None and given else None
    return Wire(path=path, query="&".join(query), headers=headers, cookies="; ".join(cookies), content=content)


def _quoting(encoding: Encoding) -> Quote:
    safe = _RESERVED if encoding.allow_reserved else _UNRESERVED
    return lambda text: quote(text, safe=safe)


def _text(value: Any) -> str:
    """Return a value as text; what has parts, inside something that is itself a part, as JSON."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return write_json(value)


def _in_path(name: str, value: Any, encoding: Encoding) -> str:
    written = _styled_path(name, value, encoding)
    if written in ("", ".", ".."):
        raise InvalidArgumentsError(
            f"{name}: {_text(value)!r} can't stand in a path: it must be text other than '.' and '..', and not empty"
        )
    return written


def _in_header(name: str, value: Any, encoding: Encoding) -> str:
    if encoding.media_type is not None:
        written = _as_document(value, encoding.media_type)
    else:
        written = _joined(value, encoding, lambda text: text, ",")
    if written != written.strip() or _CONTROL.search(written):
        raise InvalidArgumentsError(
            f"{name}: {_text(value)!r} can't stand in a header: it must be one line, without spaces around it"
        )
    return written


def _styled_path(name: str, value: Any, encoding: Encoding) -> str:
    write = _quoting(encoding)
    if encoding.media_type is not None:
        return write(_as_document(value, encoding.media_type))
    match encoding.style:
        case "label":
            return f".{_joined(value, encoding, write, '.' if encoding.explode else ',')}"
        case "matrix" if encoding.explode and is_object(value):
            return "".join(_matrix(write(part), write(_text(item))) for part, item in value.items())
        case "matrix" if encoding.explode and is_array(value):
            return "".join(_matrix(write(name), write(_text(item))) for item in value)
        case "matrix":
            return _matrix(write(name), _joined(value, encoding, write, ","))
        case _:
            return _joined(value, encoding, write, ",")


def _matrix(name: str, written: str) -> str:
    return f";{name}={written}" if written else f";{name}"


def _joined(value: Any, encoding: Encoding, write: Quote, comma: str) -> str:
    if is_object(value):
        between = "=" if encoding.explode else ","
        return comma.join(f"{write(key)}{between}{write(_text(item))}" for key, item in value.items())
    if is_array(value):
        return comma.join(write(_text(item)) for item in value)
    return write(_text(value))


def _pairs(name: str, value: Any, encoding: Encoding, write: Quote) -> Iterator[str]:
    """Yield ``name=value``, as often as it takes; an empty list or object is not sent."""
    key = write(name)
    if encoding.media_type is not None:
        yield f"{key}={write(_as_document(value, encoding.media_type))}"
    elif encoding.style == "deepObject" and (is_object(value) or is_array(value)):
        for path, item in _leaves(value):
            yield f"{key}{''.join(quote(f'[{step}]', safe='') for step in path)}={write(_text(item))}"
    elif is_object(value):
        if encoding.explode and encoding.style == "form":
            for part, item in value.items():
                if item is not None:
                    yield f"{write(part)}={write(_text(item))}"
        elif value:
            parts = [write(_text(item)) for pair in value.items() for item in pair]
            yield f"{key}={_DELIMITERS.get(encoding.style, ',').join(parts)}"
    elif is_array(value):
        items = [write(_text(item)) for item in value]
        if encoding.explode:
            yield from (f"{key}={item}" for item in items)
        elif items:
            yield f"{key}={_DELIMITERS.get(encoding.style, ',').join(items)}"
    else:
        yield f"{key}={write(_text(value))}"


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    # OpenAPI says nothing of what is deeper; this is how servers read it.
    if is_object(value):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif is_array(value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    elif value is not None:
        yield path, value


def _as_document(value: Any, media_type: str) -> str:
    if isinstance(value, str) and "json" not in media_type:
        return value
    return write_json(value)


def _content(body: Body, value: Any) -> Content:
    match body.kind:
        case "json":
            return Content(data=_json(value), media_type=body.media_type)
        case "text":
            return Content(data=_text(value).encode("utf-8", "replace"), media_type=_with_charset(body.media_type))
        case "file":
            return Content(data=_file(value, body.argument)[1], media_type=body.media_type)
        case "form":
            pairs = [pair for name, item in _members(value) for pair in _form_pairs(body, name, item)]
            return Content(data="&".join(pairs).encode("ascii"), media_type=body.media_type)
        case "multipart":
            fields = [(name, one) for name, item in _members(value) for one in _multipart(body, name, item)]
            return Content(fields=tuple(fields))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is in a form; a null is a field that is left out."""
    if not is_object(value):
        raise InvalidArgumentsError("The body of a form must be an object.")
    yield from ((name, item) for name, item in value.items() if item is not None)


def _form_pairs(body: Body, name: str, value: Any) -> Iterator[str]:
    encoding = body.encodings.get(name, Encoding())
    if name in body.files:
        files = value if is_array(value) else [value]
        value = [_file(one, name)[1].decode("utf-8", "replace") if is_object(one) else one for one in files]
    is_deep = is_object(value) or (is_array(value) and any((is_object(item) or is_array(item)) for item in value))
    if is_deep and name not in body.encodings:
        encoding = Encoding(media_type="application/json")
    yield from _pairs(name, value, encoding, lambda text: quote(text, safe=_UNRESERVED))


def _multipart(body: Body, name: str, value: Any) -> Iterator[Field]:
    encoding = body.encodings.get(name, Encoding())
    said = encoding.media_type
    media_type = said if said and "*" not in said and "," not in said else None
    items = value if is_array(value) else [value]
    if name in body.files:
        for item in items:
            if not is_object(item):  # where a document lets it be something else too
                yield None, _text(item).encode("utf-8", "replace"), None
                continue
            filename, data = _file(item, f"{body.argument}.{name}")
            yield filename or name, data, media_type or mimetypes.guess_type(filename or "")[0] or _BINARY
        return
    if media_type is not None and "json" in media_type:
        yield None, _json(value), media_type
        return
    for item in items:
        if is_object(item) or is_array(item):
            yield None, _json(item), media_type or "application/json"
        else:
            yield None, _text(item).encode("utf-8", "replace"), media_type


def _file(value: Any, where: str) -> tuple[str | None, bytes]:
    """Return a file's name and what is in it."""
    content: str = value["content"]
    filename = value.get("filename")
    if value.get("encoding", "text") == "text":
        return filename, content.encode("utf-8", "replace")
    try:
        return filename, base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentsError(
            f'{where}.content is no base64 ({error}): send base64, or text with "encoding": "text".'
        ) from error


def _json(value: Any) -> bytes:
    return write_json(value).encode()


def _with_charset(media_type: str) -> str:
    return media_type if "charset" in media_type else f"{media_type}; charset=utf-8"
