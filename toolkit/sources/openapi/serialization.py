"""Serialization of the arguments of a call: parameters in OpenAPI's styles, and bodies by their media type."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import quote

from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError
from toolkit.json_text import write_json
from toolkit.schema.nodes import is_array, is_object
from toolkit.sources.openapi.document import Body, Endpoint, ValueEncoding

_UNRESERVED = "-._~"
# Without the characters that would end a value: & = + and #.
_RESERVED_TOO = _UNRESERVED + ":/?@!$'()*,;[]"
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_BINARY = "application/octet-stream"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

QuoteText = Callable[[str], str]
FormField = tuple[str | None, bytes, str | None]
"""One part of a multipart form: file name, content and media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContent:
    """A request body: bytes of a media type, or the fields of a multipart form."""

    data: bytes = b""
    media_type: str | None = None
    fields: tuple[tuple[str, FormField], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """An unsigned request with every part encoded.

    Args:
        path: The path below the base URL.
        query: The query without the question mark; may be empty.
        headers: Names and values.
        cookies: The value of the cookie header; may be empty.
        content: The body; None for no body.
    """

    path: str
    query: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: str = ""
    content: RequestContent | None = None


def write_request(endpoint: Endpoint, arguments: Mapping[str, Any]) -> WireRequest:
    """Return the request for the arguments of a call.

    Raises:
        InvalidArgumentsError: A value is not allowed in its place, such as ``..`` in a path.
    """
    path = endpoint.operation.path
    query: list[str] = []
    cookies: list[str] = []
    headers: list[tuple[str, str]] = []
    for parameter in endpoint.parameters:
        value = arguments.get(parameter.argument)
        if parameter.place == "path":
            written = _write_in_path(parameter.name, value, parameter.encoding)
            path = path.replace(f"{{{parameter.name}}}", written)
        elif value is None:
            continue
        elif parameter.place == "query":
            query += _write_pairs(parameter.name, value, parameter.encoding, _choose_quote(parameter.encoding))
        elif parameter.place == "cookie":
            cookies += _write_pairs(parameter.name, value, parameter.encoding, _choose_quote(parameter.encoding))
        else:
            headers.append((parameter.name, _write_in_header(parameter.name, value, parameter.encoding)))
    body = endpoint.body
    given = body is not None and body.argument in arguments
    content = _write_body(body, arguments[body.argument]) if body is not None and given else None
    return WireRequest(path=path, query="&".join(query), headers=headers, cookies="; ".join(cookies), content=content)


def _choose_quote(encoding: ValueEncoding) -> QuoteText:
    safe = _RESERVED_TOO if encoding.allow_reserved else _UNRESERVED
    return lambda text: quote(text, safe=safe)


def _to_text(value: Any) -> str:
    """Return a value as text; nested collections as JSON."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return write_json(value)


def _write_in_path(name: str, value: Any, encoding: ValueEncoding) -> str:
    written = _write_path_style(name, value, encoding)
    if written in ("", ".", ".."):
        raise InvalidArgumentsError(
            f"{name}: {_to_text(value)!r} can't stand in a path: it must be text other than '.' and '..', and not empty"
        )
    return written


def _write_in_header(name: str, value: Any, encoding: ValueEncoding) -> str:
    if encoding.media_type is not None:
        written = _write_document(value, encoding.media_type)
    else:
        written = _join_items(value, encoding, lambda text: text, ",")
    if written != written.strip() or _CONTROL.search(written):
        raise InvalidArgumentsError(
            f"{name}: {_to_text(value)!r} can't stand in a header: it must be one line, without spaces around it"
        )
    return written


def _write_path_style(name: str, value: Any, encoding: ValueEncoding) -> str:
    write = _choose_quote(encoding)
    if encoding.media_type is not None:
        return write(_write_document(value, encoding.media_type))
    match encoding.style:
        case "label":
            return f".{_join_items(value, encoding, write, '.' if encoding.explode else ',')}"
        case "matrix" if encoding.explode and is_object(value):
            return "".join(_write_matrix(write(part), write(_to_text(item))) for part, item in value.items())
        case "matrix" if encoding.explode and is_array(value):
            return "".join(_write_matrix(write(name), write(_to_text(item))) for item in value)
        case "matrix":
            return _write_matrix(write(name), _join_items(value, encoding, write, ","))
        case _:
            return _join_items(value, encoding, write, ",")


def _write_matrix(name: str, written: str) -> str:
    return f";{name}={written}" if written else f";{name}"


def _join_items(value: Any, encoding: ValueEncoding, write: QuoteText, comma: str) -> str:
    if is_object(value):
        between = "=" if encoding.explode else ","
        return comma.join(f"{write(key)}{between}{write(_to_text(item))}" for key, item in value.items())
    if is_array(value):
        return comma.join(write(_to_text(item)) for item in value)
    return write(_to_text(value))


def _write_pairs(name: str, value: Any, encoding: ValueEncoding, write: QuoteText) -> Iterator[str]:
    """Yield one or more pairs ``name=value``; none for an empty list or object."""
    key = write(name)
    if encoding.media_type is not None:
        yield f"{key}={write(_write_document(value, encoding.media_type))}"
    elif encoding.style == "deepObject" and (is_object(value) or is_array(value)):
        for path, item in _list_leaves(value):
            yield f"{key}{''.join(quote(f'[{step}]', safe='') for step in path)}={write(_to_text(item))}"
    elif is_object(value):
        yield from _write_object(key, value, encoding, write)
    elif is_array(value):
        items = [write(_to_text(item)) for item in value]
        if encoding.explode:
            yield from (f"{key}={item}" for item in items)
        elif items:
            yield f"{key}={_DELIMITERS.get(encoding.style, ',').join(items)}"
    else:
        yield f"{key}={write(_to_text(value))}"


def _write_object(key: str, value: Mapping[str, Any], encoding: ValueEncoding, write: QuoteText) -> Iterator[str]:
    if encoding.explode and encoding.style == "form":
        for part, item in value.items():
            if item is not None:
                yield f"{write(part)}={write(_to_text(item))}"
    elif value:
        parts = [write(_to_text(item)) for pair in value.items() for item in pair]
        yield f"{key}={_DELIMITERS.get(encoding.style, ',').join(parts)}"


def _list_leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    # OpenAPI does not specify deeper levels; servers read them this way.
    if is_object(value):
        for key, item in value.items():
            yield from _list_leaves(item, (*path, key))
    elif is_array(value):
        for index, item in enumerate(value):
            yield from _list_leaves(item, (*path, str(index)))
    elif value is not None:
        yield path, value


def _write_document(value: Any, media_type: str) -> str:
    if isinstance(value, str) and "json" not in media_type:
        return value
    return write_json(value)


def _write_body(body: Body, value: Any) -> RequestContent:
    match body.kind:
        case "json":
            return RequestContent(data=_encode_json(value), media_type=body.media_type)
        case "text":
            return RequestContent(
                data=_to_text(value).encode("utf-8", "replace"),
                media_type=body.media_type if "charset" in body.media_type else f"{body.media_type}; charset=utf-8",
            )
        case "file":
            return RequestContent(data=_read_file_value(value, body.argument)[1], media_type=body.media_type)
        case "form":
            pairs = [pair for name, item in _list_members(value) for pair in _write_form_pairs(body, name, item)]
            return RequestContent(data="&".join(pairs).encode("ascii"), media_type=body.media_type)
        case "multipart":
            fields = [(name, one) for name, item in _list_members(value) for one in _write_parts(body, name, item)]
            return RequestContent(fields=tuple(fields))


def _list_members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a form; null means absent."""
    if not is_object(value):
        raise InvalidArgumentsError("The body of a form must be an object.")
    yield from ((name, item) for name, item in value.items() if item is not None)


def _write_form_pairs(body: Body, name: str, value: Any) -> Iterator[str]:
    encoding = body.encodings.get(name, ValueEncoding())
    if name in body.files:
        files = value if is_array(value) else [value]
        value = [_read_file_value(one, name)[1].decode("utf-8", "replace") if is_object(one) else one for one in files]
    is_deep = is_object(value) or (is_array(value) and any((is_object(item) or is_array(item)) for item in value))
    if is_deep and name not in body.encodings:
        encoding = ValueEncoding(media_type="application/json")
    yield from _write_pairs(name, value, encoding, lambda text: quote(text, safe=_UNRESERVED))


def _write_parts(body: Body, name: str, value: Any) -> Iterator[FormField]:
    encoding = body.encodings.get(name, ValueEncoding())
    declared = encoding.media_type
    media_type = declared if declared and "*" not in declared and "," not in declared else None
    items = value if is_array(value) else [value]
    if name in body.files:
        yield from (_write_file_part(item, name, f"{body.argument}.{name}", media_type) for item in items)
        return
    if media_type is not None and "json" in media_type:
        yield None, _encode_json(value), media_type
        return
    for item in items:
        if is_object(item) or is_array(item):
            yield None, _encode_json(item), media_type or "application/json"
        else:
            yield None, _to_text(item).encode("utf-8", "replace"), media_type


def _write_file_part(item: Any, name: str, where: str, media_type: str | None) -> FormField:
    if not is_object(item):  # the document allows other types, too
        return None, _to_text(item).encode("utf-8", "replace"), None
    filename, data = _read_file_value(item, where)
    return filename or name, data, media_type or mimetypes.guess_type(filename or "")[0] or _BINARY


def _read_file_value(value: Any, where: str) -> tuple[str | None, bytes]:
    """Return a file's name and its content."""
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


def _encode_json(value: Any) -> bytes:
    return write_json(value).encode()
