"""The HTTP client of providers, MCP and OpenAPI: bounded responses and decompression, safe redirects, checked URLs.

A few bytes can decompress to gigabytes, a response may have no end, and a redirect would send the content of a request
to an unknown host.
"""

from __future__ import annotations

import math
import os
import re
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

import anyio
import httpx2
from anyio.lowlevel import checkpoint

from toolkit.errors import ConfigurationError
from toolkit.redaction import without_credentials
from toolkit.settings import check_setting

ACCEPTED_ENCODINGS = "gzip, deflate"
"""The value of ``Accept-Encoding``: the encodings that are decompressed in bounded steps."""

UNSENT: tuple[type[Exception], ...] = (httpx2.HTTPError, httpx2.InvalidURL, ValueError)
"""The errors of sending a request; an invalid URL of a redirect is not an `HTTPError`."""

MOST_REPLY_BYTES = 64 * 2**20
"""The limit of a response, compressed and decompressed: more than the largest image that a model generates."""

MOST_ERROR_BYTES = 32 * 2**10
"""The limit of the body of an error response; the rest is not read."""

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The names of headers that HTTP has."""

_MOST_JSON_PARTS = 4_000_000  # a few hundred megabytes as Python objects
_LARGE_JSON = 2**20
_LONGEST_HEADER = 8_000
_MOST_HEADERS = 1_000  # the client copies each several times, and parses it as a cookie
_STEP = 2**16
_FROM_CALLER = "toolkit.from_caller"
_PIECES_IN_A_ROW = 50
_WINDOW_BITS = {
    "gzip": (zlib.MAX_WBITS | 16,),
    "x-gzip": (zlib.MAX_WBITS | 16,),
    "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS),
}
_SCHEME_PORTS = {"http": 80, "https": 443}
_PUBLIC_NAME = re.compile(r"[\w-]+(\.[\w-]+)+")
_INNER_DOMAINS = (".localhost", ".local", ".internal", ".home.arpa")  # reserved for use within a machine or network
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV4 = IPv4Network("192.0.0.0/24")  # global to older Pythons, and a cloud has its metadata server there


class ReplyTooLargeError(ValueError):
    """A response exceeds its limit; the rest was not read."""


class BoundedBody:
    """The decompressed bytes of a response whose body has not been read; iterate it once, within `closed_with`.

    Args:
        response: The response to a request sent with ``stream=True``.
        most_bytes: The limit, before and after decompression.

    Raises:
        ReplyTooLargeError: During iteration: the body exceeds the limit.
        ValueError: During iteration: its encoding was not requested, or is not the declared one.
    """

    def __init__(self, response: httpx2.Response, *, most_bytes: int = MOST_REPLY_BYTES) -> None:
        is_read = response.is_stream_consumed  # a custom transport may have read the body
        self.raw: AsyncIterator[bytes] = response.aiter_bytes() if is_read else response.aiter_raw()
        self._most_bytes = most_bytes
        self._received = self._given = self._count = 0
        self._unpack = _keep_as_is if is_read else _find_unpacker(response)
        self._pieces: Iterator[bytes] = iter(())

    def __aiter__(self) -> BoundedBody:
        return self

    async def __anext__(self) -> bytes:
        while True:
            await self.give_turn()
            piece = next(self._pieces, None)
            if piece is not None:
                self._given += len(piece)
                self._check_size(self._given)
                return piece
            packed = await anext(self.raw)
            self._received += len(packed)
            self._check_size(self._received)
            self._pieces = self._unpack(packed)

    async def give_turn(self) -> None:
        """Let other tasks run now and then: a packet may have thousands of chunks, or be a bomb."""
        self._count += 1
        if self._count % _PIECES_IN_A_ROW == 0:
            await checkpoint()

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise ReplyTooLargeError(f"the reply is larger than {self._most_bytes} bytes and was not read further")


class DiscreetUrl(httpx2.URL):
    """A URL whose text has no secrets, because HTTP clients log URLs; requests use it unchanged."""

    def __str__(self) -> str:
        return without_credentials(super().__str__())

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"


async def check_head(event: str, facts: Mapping[str, Any]) -> None:
    """Refuse a response with too many headers; for the client's extension ``trace``.

    Raises:
        httpx2.RemoteProtocolError: It has more than `_MOST_HEADERS`.
    """
    if event.endswith("receive_response_headers.complete") and len(facts["return_value"][3]) > _MOST_HEADERS:
        raise httpx2.RemoteProtocolError(f"the reply has more than {_MOST_HEADERS} headers")


def protect_client(client: httpx2.AsyncClient) -> None:
    """Make a client log its URLs without secrets, and limit the headers that it reads.

    URLs are hidden only while a request is being sent: signatures and response handling need the full URL.
    """

    async def hide(request: httpx2.Request) -> None:
        request.url = DiscreetUrl(request.url)
        request.extensions.setdefault("trace", check_head)

    async def show(response: httpx2.Response) -> None:
        response.request.url = httpx2.URL(response.request.url)
        # The client parses some headers character by character, several times, or in quadratic time.
        for name, value in response.headers.raw:
            if len(value) > _LONGEST_HEADER:
                response.headers.pop(name.decode("latin-1"), None)

    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks.get("request", ()), hide],
        "response": [show, *hooks.get("response", ())],
    }


def shared_trust() -> ssl.SSLContext:
    """Return the trusted certificates, which are read once per process because that takes 20 ms."""
    return _read_trust(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _read_trust(*_variables: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


Stage: TypeAlias = Literal["queued", "connecting", "sent"]
"""The stage of a request: waiting for a connection, connecting, or waiting for the response."""


class RequestProgress:
    """The progress of a request that is sent through a `BoundedClient`.

    Attributes:
        stage: The stage; None if another client sends the request.
        deadline: The end of the client's own timeout for this stage, by `anyio.current_time`.
    """

    __slots__ = ("_timeouts", "deadline", "stage")

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.deadline: float = math.inf
        self._timeouts: Mapping[str, float | None] = {}

    def begin(self, request: httpx2.Request) -> None:
        """Enter the first stage, and register `note` for the events of the request."""
        self._timeouts = request.extensions.get("timeout", {})
        request.extensions["trace"] = self.note
        self._enter_stage("queued", "pool")

    async def note(self, event: str, facts: Mapping[str, Any]) -> None:
        """Handle an event of the HTTP client; check the head of the response."""
        if event.endswith("connect_tcp.started"):
            self._enter_stage("connecting", "connect")
        elif event.endswith("send_request_headers.started"):
            self._enter_stage("sent", "")
        else:
            await check_head(event, facts)

    def _enter_stage(self, stage: Stage, timeout: str) -> None:
        self.stage = stage
        seconds = self._timeouts.get(timeout)
        self.deadline = math.inf if seconds is None else anyio.current_time() + seconds


request_progress: ContextVar[RequestProgress | None] = ContextVar("toolkit_request_progress", default=None)
"""The progress that a `BoundedClient` updates for the request sent in this context."""


class BoundedClient(httpx2.AsyncClient):
    """A client that follows no redirects and reads at most `MOST_ERROR_BYTES` of an error response.

    It reads as much of the responses to the requests that its `auth` makes. Read a successful response to a request
    sent with ``stream=True`` by `BoundedBody`. Logs show no secrets of URLs.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("verify", shared_trust())
        super().__init__(**options)
        protect_client(self)
        hooks = self.event_hooks
        self.event_hooks = {**hooks, "response": [*hooks["response"], _cut_body]}

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request.

        Raises:
            ReplyTooLargeError: Without ``stream``, the body exceeds `MOST_REPLY_BYTES`.
        """
        progress = request_progress.get()
        if progress is not None:
            progress.begin(request)
        options["follow_redirects"] = False
        request.headers["accept-encoding"] = ACCEPTED_ENCODINGS
        request.extensions[_FROM_CALLER] = True
        response = await super().send(request, stream=True, **options)
        if response.is_success:
            return response if stream else _replace_body(response, await read_bounded(response))
        content = b""
        with suppress(ValueError):  # a body that can't be decompressed has no message
            content = await read_bounded(response, most_bytes=MOST_ERROR_BYTES, is_cut=True)
        return _replace_body(response, content)


async def _cut_body(response: httpx2.Response) -> None:
    """Bound what the client and its `auth` read at once: all but successful responses to requests of the caller."""
    if response.is_success and _FROM_CALLER in response.request.extensions:
        return
    whole = httpx2.Response(
        response.status_code, headers=response.headers, stream=response.stream, request=response.request
    )
    response.stream = _CutStream(whole)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        response.headers.pop(name, None)


class _CutStream(httpx2.AsyncByteStream):
    """The decompressed body of a response, up to `MOST_ERROR_BYTES`."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(ValueError):  # it is too large, or can't be decompressed: the rest is not read
            async with closed_with(self._response, most_bytes=MOST_ERROR_BYTES) as pieces:
                async for piece in pieces:
                    yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


async def read_bounded(response: httpx2.Response, *, most_bytes: int = MOST_REPLY_BYTES, is_cut: bool = False) -> bytes:
    """Return the decompressed body of a response, and close it.

    Args:
        response: The response to a request sent with ``stream=True``.
        most_bytes: The limit.
        is_cut: True to leave the rest unread in place of an error.

    Raises:
        ReplyTooLargeError: The body exceeds the limit.
        ValueError: Its encoding was not requested, or is not the declared one.
    """
    content = bytearray()
    async with closed_with(response, most_bytes=most_bytes) as pieces:
        try:
            async for piece in pieces:
                content += piece
        except ReplyTooLargeError:
            if not is_cut:
                raise
    return bytes(content)


@asynccontextmanager
async def closed_with(response: httpx2.Response, *, most_bytes: int = MOST_REPLY_BYTES) -> AsyncGenerator[BoundedBody]:
    """Yield the pieces of a response; the connection and all generators are closed at the end."""
    body: BoundedBody | None = None
    try:
        body = BoundedBody(response, most_bytes=most_bytes)
        yield body
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
            # Nested generators of the HTTP client are still suspended. Only an error from the closed connection, after
            # the data received already, ends them all; trio warns of those left to the garbage collector.
            with suppress(Exception):
                while body is not None:
                    await body.give_turn()
                    await anext(body.raw)


def check_json_parts(text: bytes) -> None:
    """Refuse JSON that is small as text but large as objects, such as a million empty lists, before it is parsed.

    Raises:
        ReplyTooLargeError: It has too many parts.
    """
    if len(text) > _LARGE_JSON and text.count(b",") + text.count(b"[") + text.count(b"{") > _MOST_JSON_PARTS:
        raise ReplyTooLargeError(f"the reply has more than {_MOST_JSON_PARTS} parts and was not read")


def check_headers(headers: Mapping[str, str] | None) -> None:
    """Check that a request can carry headers; errors do not show their values, since one may be a secret.

    Raises:
        ConfigurationError: One can't be sent.
    """
    check_setting("headers", headers, Mapping, None)
    for name, value in (headers or {}).items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a number or bytes, say
            raise ConfigurationError(f"the header '{name}' must be text, not a {type(value).__name__}")
        if not HEADER_NAME.fullmatch(name):
            raise ConfigurationError("the name of a header has letters that no header can hold")
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise ConfigurationError(f"the header '{name}' has letters that no header can hold")


def split_url(url: str, what: str) -> SplitResult:
    """Return the parts of the URL of a server.

    Args:
        url: The URL; errors do not show it, since it may contain a password.
        what: The name of the URL in errors.

    Raises:
        ConfigurationError: The URL has another scheme, no host, or an invalid port.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        raise ConfigurationError(f"{what} can't be read as a URL: look at its host and its port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"{what} must be an absolute URL, such as https://example.com/path")
    return parts


def origin_of(url: str | httpx2.URL) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL, for comparison; of a client's URL, those that it connects to.

    Raises:
        ValueError: It is not a URL.
    """
    parts = urlsplit(url) if isinstance(url, str) else url
    host = parts.host if isinstance(parts, httpx2.URL) else parts.hostname
    scheme = parts.scheme.lower()
    return scheme, (host or "").rstrip("."), parts.port or _SCHEME_PORTS.get(scheme)


def is_inner_host(host: str) -> bool:
    """Return True if a host's name denotes this machine or its network, such as a cloud's metadata server.

    So do names that no public server has, which resolvers and proxies may read in their own way.
    """
    name = host.strip("[]").rstrip(".").lower()
    try:
        return is_inner_address(ip_address(name.partition("%")[0]))
    except ValueError:
        if not _PUBLIC_NAME.fullmatch(name) or name.endswith(_INNER_DOMAINS):
            return True
        try:
            return is_inner_address(IPv4Address(socket.inet_aton(name)))  # also 127.1 and 0x7f.0.0.1, as resolvers do
        except (OSError, UnicodeError):
            return False


def is_inner_address(address: IPv4Address | IPv6Address) -> bool:
    """Return True unless an address is one of the public internet."""
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast or address in _SPECIAL_IPV4
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is not None:
        return is_inner_address(embedded)
    # Outside the range of public hosts there are other ways to write an IPv4 address, such as 64:ff9b::7f00:1.
    return not address.is_global or address not in _PUBLIC_IPV6


def may_redirect(start: httpx2.URL, url: httpx2.URL) -> bool:
    """Return True if a redirect may be followed: to a valid port, and not from an outer host to an inner one."""
    return (url.port or 0) < 65_536 and (is_inner_host(start.host) or not is_inner_host(url.host))


def _replace_body(response: httpx2.Response, content: bytes) -> httpx2.Response:
    """Return a copy of a response with a decompressed body."""
    headers = response.headers.copy()
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


def _find_unpacker(response: httpx2.Response) -> Callable[[bytes], Iterator[bytes]]:
    codings = [coding.strip().lower() for coding in response.headers.get("content-encoding", "").split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if not codings:
        return _keep_as_is
    if len(codings) > 1 or codings[0] not in _WINDOW_BITS:
        raise ValueError(f"the reply is packed as {', '.join(codings)[:100]}, which was not asked for")
    return _Inflater(codings[0])


def _keep_as_is(packed: bytes) -> Iterator[bytes]:
    return iter((packed,))


class _Inflater:
    """Decompresses in steps of 64 kB."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        first, *self._others = _WINDOW_BITS[coding]
        self._inflate = zlib.decompressobj(first)
        self._is_ended = False
        self._first = b""

    def __call__(self, packed: bytes) -> Iterator[bytes]:
        if self._is_ended:  # data after the end is not part of the reply
            return
        if self._others:  # two bytes distinguish the formats
            self._first = packed = self._first + packed
            if len(packed) < 2:
                return
        try:
            yield from self._unpack_piece(packed)
        except zlib.error as error:
            if not self._others:
                raise ValueError(f"the reply is not packed as {self._coding}, as it says") from error
            self._inflate = zlib.decompressobj(self._others.pop())
            yield from self(packed)
        self._others = []
        self._is_ended = self._inflate.eof

    def _unpack_piece(self, packed: bytes) -> Iterator[bytes]:
        while packed and not self._inflate.eof:
            piece = self._inflate.decompress(packed, _STEP)
            packed = self._inflate.unconsumed_tail
            if piece:
                yield piece
        while not self._inflate.eof and (piece := self._inflate.decompress(b"", _STEP)):
            yield piece
