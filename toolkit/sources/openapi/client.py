"""HTTP calls of operations: signatures, redirects, timeouts and responses.

A response becomes text up to a limit, images and files become blocks, and a failure becomes an error for the model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import httpx2
from anyio.lowlevel import current_token

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ToolFailedError, ToolTimeoutError
from toolkit.foreign_text import is_text_encoding
from toolkit.http_client import (
    ACCEPTED_ENCODINGS,
    UNSENT,
    DiscreetUrl,
    closed_with,
    may_redirect,
    origin_of,
    protect_client,
    shared_trust,
)
from toolkit.redaction import MASK, without_credentials
from toolkit.schema.nodes import Nodes
from toolkit.sources.openapi.auth import RequestSignature, Secrets, Signer
from toolkit.sources.openapi.document import Endpoint, Origin
from toolkit.sources.openapi.serialization import WireRequest, write_request
from toolkit.trace_context import inject_trace_context

_MOST_CALL_REDIRECTS = 5
_UNAUTHORIZED = 401
_LONG_BODY = 30_000
_LONGEST_HEAD = 16_000
_ACCEPT = {"accept": "application/json, */*;q=0.8", "accept-encoding": ACCEPTED_ENCODINGS}


class OperationCaller:
    """Calls operations over its own connections, which are open inside `connected`.

    Args:
        sign: One signer for all requests, one for each security scheme, or None.
        secrets: The secrets to redact from all text.
        headers: Headers to send with each request.
        timeout: The seconds for a call.
        limits: The size limits of a response.
        trusted: The origins that the application has named; credentials are sent only to these.
        transport: The transport of requests, used from any event loop; None is the network.
    """

    def __init__(
        self,
        *,
        sign: Mapping[str, Signer] | Signer | None,
        secrets: Secrets,
        headers: Mapping[str, str],
        timeout: float,
        limits: ResponseLimits,
        trusted: Collection[Origin],
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._trusted = trusted
        self._sign = sign
        self._secrets = secrets
        self._headers = headers
        self._timeout = timeout
        self._limits = limits
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._home: object = None

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Keep connections open for the duration of the block."""
        client = self._new_client()
        self._client, self._home = client, current_token()
        try:
            yield
        finally:
            self._client = None
            with anyio.CancelScope(shield=True):
                await client.aclose()

    async def call(self, endpoint: Endpoint, arguments: Mapping[str, Any], nodes: Nodes) -> ToolOutput:
        """Call an operation and return its output; `nodes` mark its secret arguments.

        Raises:
            InvalidArgumentsError: An argument can't be serialized in its place.
            ToolFailedError: The server can't be reached, or sent no complete response.
            ToolTimeoutError: No response arrived in time.
        """
        secrets = self._secrets.copy()
        wire = write_request(endpoint, arguments)
        url = _join_url(endpoint.base_url, wire)
        is_read = endpoint.operation.is_read
        shown = _show_url(endpoint, arguments, nodes)
        try:
            with anyio.fail_after(self._timeout):
                async with self._borrow_client() as client:
                    return await self._call_signed(client, endpoint, wire, url, shown, secrets)
        except (TimeoutError, httpx2.TimeoutException):
            raise ToolTimeoutError(
                endpoint.operation.id, self._timeout, still_running=not is_read, is_harmless=is_read
            ) from None
        except UNSENT as error:
            reason = secrets.without(str(error)) or "no answer"
            after = "" if is_read or isinstance(error, httpx2.ConnectError) else " It may have taken effect."
            failed = f"{endpoint.operation.method} {shown.partition('?')[0]} failed"
            raise ToolFailedError(f"{failed}: {type(error).__name__}: {reason}.{after}") from None

    async def _call_signed(
        self,
        client: httpx2.AsyncClient,
        endpoint: Endpoint,
        wire: WireRequest,
        url: str,
        shown: str,
        secrets: Secrets,
    ) -> ToolOutput:
        signers = self._choose_signers(endpoint)
        send = partial(self._send_signed, client, endpoint, wire, url, signers, secrets)
        response = await send()
        if response.status_code == _UNAUTHORIZED and any(signer.can_renew for signer in signers):
            # A rejected request was not executed, so it may be sent again.
            await response.aclose()
            for signer in signers:
                signer.forget(response.request)
            response = await send()
        if secrets.longest > _LONG_BODY:  # what finds a long token is compiled once, and takes long
            await anyio.to_thread.run_sync(secrets.without, "", abandon_on_cancel=True)
        try:
            method = endpoint.operation.method
            return await read_response(response, method=method, url=shown, limits=self._limits, secrets=secrets)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    def _choose_signers(self, endpoint: Endpoint) -> Sequence[Signer]:
        if self._sign is None:
            return ()
        if isinstance(self._sign, Signer):
            return (self._sign,)
        for schemes in endpoint.security:
            if schemes <= self._sign.keys():
                return [self._sign[name] for name in sorted(schemes)]
        return ()

    async def _send_signed(
        self,
        client: httpx2.AsyncClient,
        endpoint: Endpoint,
        wire: WireRequest,
        url: str,
        signers: Sequence[Signer],
        secrets: Secrets,
    ) -> httpx2.Response:
        request = _build_request(client, endpoint.operation.method, url, wire)
        # By the URL as the client parses it, which decides where it connects.
        origin = origin_of(request.url)
        is_here = origin in self._trusted
        if is_here:
            inject_trace_context(request.headers)
        signatures = [await signer.sign(request, client, secrets) for signer in signers] if is_here else []
        _apply_signatures(request, wire, signatures)
        response = await client.send(request, stream=True)
        for _ in range(_MOST_CALL_REDIRECTS):
            following = response.next_request
            if following is None or not endpoint.operation.is_read or not may_redirect(request.url, following.url):
                break
            await response.aclose()
            # After a redirect to another host, that host chooses the next URL: nothing is signed again.
            is_here = is_here and origin_of(following.url) == origin
            if is_here:
                _apply_signatures(following, wire, signatures)
            else:
                following = httpx2.Request(following.method, following.url, headers=_ACCEPT)
            response = await client.send(following, stream=True)
        return response

    @asynccontextmanager
    async def _borrow_client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Yield the open client, or a separate one if the call is on another event loop."""
        if self._client is None:
            raise ToolFailedError("The tools of this document are closed: use them inside their `async with` block.")
        if self._transport is not None or current_token() == self._home:
            yield self._client
            return
        async with self._new_client() as client:
            yield client

    def _new_client(self) -> httpx2.AsyncClient:
        # Calls for different users may share the tools, so no cookie is carried over to the next call.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        client = httpx2.AsyncClient(
            headers={**_ACCEPT, **self._headers},
            timeout=self._timeout,
            transport=self._transport,
            verify=shared_trust(),
            cookies=no_cookies,
            follow_redirects=False,
        )
        protect_client(client)
        return client


def _show_url(endpoint: Endpoint, arguments: Mapping[str, Any], nodes: Nodes) -> str:
    """Return the URL of a call for display, without credentials and secret arguments."""
    shown = {
        name: value for name, value in arguments.items() if endpoint.body is None or name != endpoint.body.argument
    }
    wire = write_request(endpoint, nodes.replace_secrets(shown, _mask_argument))
    url = without_credentials(_join_url(endpoint.base_url, replace(wire, query="")))
    return (f"{url}?{wire.query}" if wire.query else url).replace(quote(MASK), MASK)


def _mask_argument(secret: object, path: object, is_marked: bool) -> str:
    del secret, path, is_marked
    return MASK


def _join_url(base_url: str, wire: WireRequest) -> str:
    path, _, _ = wire.path.partition("#")  # some documents distinguish operations of one path by a fragment
    joined = base_url + (path if path.startswith("/") else f"/{path}")
    return f"{joined}{'&' if '?' in joined else '?'}{wire.query}" if wire.query else joined


def _build_request(client: httpx2.AsyncClient, method: str, url: str, wire: WireRequest) -> httpx2.Request:
    headers = [(name, value.encode("utf-8")) for name, value in wire.headers]
    encoded = [(name.encode("ascii", "replace"), value) for name, value in headers]
    content = wire.content
    if content is None:
        return client.build_request(method, url, headers=encoded)
    if content.fields is not None:
        return client.build_request(method, url, headers=encoded, files=list(content.fields))
    if content.media_type is not None:
        encoded.append((b"content-type", content.media_type.encode("ascii", "replace")))
    return client.build_request(method, url, headers=encoded, content=content.data)


def _apply_signatures(request: httpx2.Request, wire: WireRequest, signatures: Sequence[RequestSignature]) -> None:
    for signature in signatures:
        request.headers.update(signature.headers)
    cookies = [part for part in (wire.cookies, *(signature.cookie for signature in signatures)) if part]
    if cookies:
        request.headers["cookie"] = "; ".join(cookies)
    keys = [signature.query for signature in signatures if signature.query]
    if keys:
        query = request.url.query.decode("ascii")
        request.url = DiscreetUrl(request.url.copy_with(query="&".join([query] * bool(query) + keys).encode("ascii")))


# Headers with the next page, the time to retry, or the location of a resource.
_HEADERS_FOR_MODEL = re.compile(
    r"link|location|retry-after|deprecation|sunset"
    r"|(x-)?(total|page|per-page|next|prev|pagination|offset|limit|cursor|continuation)(-.*)?|x-ratelimit-(remaining|reset)"
)
_TEXT_ENDS = ("json", "xml", "yaml", "x-www-form-urlencoded", "graphql", "javascript", "csv", "jsonl", "toml")
_FILENAME = re.compile(r"""filename\*?=(?:UTF-8'[^']*')?"?([^";]+)""", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """The maximum bytes of a response: of text, and of an image or file."""

    text: int
    file: int


async def read_response(
    response: httpx2.Response, *, method: str, url: str, limits: ResponseLimits, secrets: Secrets
) -> ToolOutput:
    """Return a response as output for the model; a status of 400 or more is an error.

    Args:
        response: The response, its body not read yet; the caller closes it.
        method: The method of the request.
        url: The URL of the request, without secrets.
        limits: Longer text is truncated; a larger file is left out.
        secrets: The secrets to redact from text.

    Raises:
        httpx2.HTTPError: The body does not arrive.
        ToolFailedError: The content encoding was not requested, or the body does not match it.
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
        read = partial(_read_text, data, response, limits.text, secrets, is_whole=is_whole)
        is_long = len(data) > _LONG_BODY
        text = await anyio.to_thread.run_sync(read, abandon_on_cancel=True) if is_long else read()
        return ToolOutput(f"{head}\n\n{text}", details=details, is_error=is_error)
    if not is_whole:
        size = _describe_size(response) or f"more than {limits.file:,} bytes; "
        return ToolOutput(f"{head}\n\n[{media_type}: {size}too large to be shown]", details=details)
    return ToolOutput((TextBlock(head), _make_block(data, media_type, response)), details=details)


def _read_text(data: bytes, response: httpx2.Response, limit: int, secrets: Secrets, *, is_whole: bool) -> str:
    charset = response.charset_encoding
    encoding = charset if charset and is_text_encoding(charset) else "utf-8"
    text = secrets.without(data.decode(encoding, "replace"))
    cut = _cut_body(text, limit)
    if is_whole and cut == text:
        return text
    return f"{cut}\n... [truncated: {_describe_size(response)}the first {limit:,} bytes are shown]"


async def _read_first_bytes(response: httpx2.Response, limit: int) -> tuple[bytes, bool]:
    """Return a body up to a limit, and True if that is all of it."""
    if response.is_stream_consumed:  # a custom transport may have read it
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
    shown: Mapping[str, str] = {
        name: value for name, value in response.headers.items() if _HEADERS_FOR_MODEL.fullmatch(name)
    }
    return _cut_body("\n".join([*lines, *(f"{name}: {value}" for name, value in shown.items())]), _LONGEST_HEAD)


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
