"""Responses as what a model reads: text within a limit, images and files as blocks, failures as errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolFailedError
from toolkit.http_replies import closed_with
from toolkit.sources.openapi.auth import Secrets
from toolkit.text_encodings import is_text_encoding

__all__ = ["ResponseLimits", "read_response"]

# What leads to the next page, says when to ask again, or where something is.
_HEADERS_FOR_MODEL = re.compile(
    r"link|location|retry-after|deprecation|sunset"
    r"|(x-)?(total|page|per-page|next|prev|pagination|offset|limit|cursor|continuation)(-.*)?|x-ratelimit-(remaining|reset)"
)
_TEXT_ENDS = ("json", "xml", "yaml", "x-www-form-urlencoded", "graphql", "javascript", "csv", "jsonl", "toml")
_FILENAME = re.compile(r"""filename\*?=(?:UTF-8'[^']*')?"?([^";]+)""", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """The most bytes of a response that are taken: of text, and of an image or file."""

    text: int
    file: int


async def read_response(
    response: httpx2.Response, *, method: str, url: str, limits: ResponseLimits, secrets: Secrets
) -> ToolOutput:
    """Read a response and return what the model gets; a status of 400 or more is an error.

    Args:
        response: Its body not read yet; it is not closed here.
        method: The method of the request.
        url: Where, without anything secret.
        limits: A longer text is cut there; a larger file is not handed on.
        secrets: The secrets to strike out of texts.

    Raises:
        httpx2.HTTPError: The body does not arrive.
        ToolFailedError: It is packed in a way that was not asked for, or not as it says.
    """
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_text = not media_type or media_type.startswith("text/") or media_type.endswith(_TEXT_ENDS)
    limit = limits.text + secrets.longest if is_text else limits.file
    data, is_whole = await _read_first_bytes(response, limit)
    if not media_type and b"\0" in data:
        is_text = False
    details = {"status": response.status_code, "method": method, "url": url}
    head = secrets.without(_describe_http_reply(response, method, url))
    is_error = response.status_code >= 400
    if not data:
        return ToolOutput(f"{head}\n\n(no content)", details=details, is_error=is_error)
    if is_text or is_error:
        text = secrets.without(_decode_body(data, response.charset_encoding))
        cut = _cut_body(text, limits.text)
        if not is_whole or cut != text:
            cut += f"\n... [truncated: {_describe_size(response)}the first {limits.text:,} bytes are shown]"
        return ToolOutput(f"{head}\n\n{cut}", details=details, is_error=is_error)
    if not is_whole:
        size = _describe_size(response) or f"more than {limits.file:,} bytes; "
        return ToolOutput(f"{head}\n\n[{media_type}: {size}too large to be shown]", details=details)
    return ToolOutput((TextBlock(head), _make_block(data, media_type, response)), details=details)


async def _read_first_bytes(response: httpx2.Response, limit: int) -> tuple[bytes, bool]:
    """Return a body up to a limit, and whether that is all of it."""
    if response.is_stream_consumed:  # by a transport that reads what it gives
        return response.content[:limit], len(response.content) <= limit
    data = bytearray()
    try:
        async with closed_with(response, most_bytes=sys.maxsize) as pieces:
            async for piece in pieces:
                data += piece
                if len(data) > limit:
                    return bytes(data[:limit]), False
    except ValueError as error:
        raise ToolFailedError(f"The server answered {response.status_code}, but {error}.") from error
    return bytes(data), True


def _describe_http_reply(response: httpx2.Response, method: str, url: str) -> str:
    lines = [f"{method} {url} -> {response.status_code} {response.reason_phrase}".rstrip()]
    told: Mapping[str, str] = {
        name: value for name, value in response.headers.items() if _HEADERS_FOR_MODEL.fullmatch(name)
    }
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in told.items())])


def _decode_body(data: bytes, charset: str | None) -> str:
    return data.decode(charset if charset and is_text_encoding(charset) else "utf-8", "replace")


def _cut_body(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore")


def _describe_size(response: httpx2.Response) -> str:
    length = response.headers.get("content-length", "")
    is_plain = length.isdecimal() and "content-encoding" not in response.headers
    return f"{int(length):,} bytes in all; " if is_plain else ""


def _make_block(data: bytes, media_type: str, response: httpx2.Response) -> ContentBlock:
    if media_type.startswith("image/") and media_type != "image/svg+xml":
        return ImageBlock(data, media_type=media_type)
    if media_type.startswith("audio/"):
        return AudioBlock(data, media_type=media_type)
    found = _FILENAME.search(response.headers.get("content-disposition", ""))
    name = found[1].strip() if found else response.url.path.rstrip("/").rpartition("/")[2]
    return FileBlock(data, name=name or "file", media_type=media_type or "application/octet-stream")
