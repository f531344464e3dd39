"""The address of an MCP server: a program to start, or a URL; their logs are redacted. No secret is in any repr."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import ssl
import sys
import traceback
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeGuard, TypeVar, cast

import anyio
import httpx2
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import AliasChoices, BaseModel, Field, ValidationError
from pydantic_core import from_json
from typing_extensions import Unpack

from toolkit.checked_yaml import expand_variables
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, McpError, ToolError
from toolkit.foreign_text import repair_surrogates
from toolkit.http_client import MOST_REPLY_BYTES, BoundedClient, ReplyTooLargeError, closed_with, split_url
from toolkit.json_text import parse_long_json
from toolkit.logs import get_logger
from toolkit.redaction import (
    MASK,
    Redact,
    program_name,
    secrets_in_arguments,
    secrets_in_headers,
    secrets_in_url,
    secrets_of,
    without_credentials,
    without_keys,
    without_secrets,
)
from toolkit.runtime.processes import LONGEST_LINE, LineProcess, LineTooLongError, SupervisedProcess
from toolkit.schema.nodes import is_object
from toolkit.settings import describe_value


@dataclass(frozen=True, slots=True)
class HttpFault:
    """A failure below the protocol: a status, or an exception of the network's.

    Args:
        status: The status of a refusal.
        error: The exception of a request without an answer.
        is_of_session: True where the request named a session, which the server may not know any more.
    """

    status: int | None = None
    error: Exception | None = None
    is_of_session: bool = False


NOT_MCP = "what it answered is not MCP"
TOO_LARGE = f"the reply is larger than {LONGEST_LINE:,} bytes and was not read"

faults_of_call: ContextVar[list[HttpFault] | None] = ContextVar("toolkit_mcp_http_faults", default=None)
"""Collects failures in the requests of the current call: the SDK passes on no status."""


class NotingClient(BoundedClient):
    """Reports a failed request to the call that made it; responses are bounded, and long messages are read here.

    Attributes:
        long_messages: Gives the contents of long messages back to those that the SDK has read.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.long_messages = LongMessages()

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, as its class does."""
        faults = faults_of_call.get()
        try:
            response = await super().send(request, stream=stream, **options)
        except Exception as error:
            if faults is not None:
                faults.append(HttpFault(error=error))
            raise
        # A GET that is refused is no fault: a server need not offer the stream of its own messages.
        if faults is not None and request.method == "POST":
            if response.status_code >= 400:
                is_of_session = "mcp-session-id" in request.headers
                faults.append(HttpFault(status=response.status_code, is_of_session=is_of_session))
            else:
                faults.clear()
        if not (stream and response.is_success):
            return response
        response = self._bound_body(response, faults)
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        return await self._read_reply(response, request) if is_json else response

    def _bound_body(self, response: httpx2.Response, faults: list[HttpFault] | None) -> httpx2.Response:
        """Return a response whose body is unpacked and bounded as it is read: a reply whole, a stream event by event.

        A body that is too large is reported in `faults`.
        """
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        headers = response.headers.copy()
        headers.pop("content-encoding", None)
        if "content-type" in headers:  # the messages are UTF-8, whatever charset it names
            headers["content-type"] = headers["content-type"].partition(";")[0]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            stream=_BoundedStream(response, faults, self.long_messages if is_stream else None),
            request=response.request,
            extensions=response.extensions,
        )

    async def _read_reply(self, response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        """Return a reply without halves of characters, and one under another id as an error of its request.

        A server that could not read a request answers without its id, or with 0: the SDK would wait for another answer,
        and over HTTP none will come.
        """
        given = await response.aread()
        content, reply = await _run_for(given, partial(self._shorten_reply, given))
        asked = _read_message_object(request.content)
        is_reply = "error" in reply or "result" in reply
        if is_reply and "id" in asked and reply.get("id") != asked["id"]:
            error = reply.get("error") or {
                "code": INTERNAL_ERROR,
                "message": f"{NOT_MCP}: it has the id of another request",
            }
            content = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
        if content is given:
            return response
        headers = {"content-type": "application/json"}
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)

    def _shorten_reply(self, given: bytes) -> tuple[bytes, dict[str, Any]]:
        """Return a reply as the SDK is to read it, and its object."""
        content = repair_surrogates(given)
        if len(content) <= _LONG_LINE:
            return content, _read_message_object(content)
        short = self.long_messages.shorten(content)
        return short, _read_message_object(short)


class LongMessages:
    """Long messages over HTTP, which the SDK would read at once in the event loop, several times as slowly.

    It gets a short message in the place of each, whose contents are put back by `restore`.
    """

    def __init__(self) -> None:
        self._contents: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def shorten(self, content: bytes) -> bytes:
        """Return a message without its contents, which are stored until it is read; what is no message as ``{}``."""
        message = _read_message_object(content)
        short: dict[str, Any] = {name: message[name] for name in ("jsonrpc", "id", "method") if name in message}
        error: object = message.get("error")
        if is_object(error):
            short["error"] = {name: error[name] for name in ("code", "message") if name in error}
        for name in ("result", "params"):
            value: object = message.get(name)
            if is_object(value):
                key = secrets.token_hex(16)
                self._contents[key] = value
                short[name] = {_CONTENTS: key}
        while len(self._contents) > _MOST_STORED:  # of requests that were cancelled while they were read
            self._contents.popitem(last=False)
        return json.dumps(short).encode()

    def shorten_events(self, events: bytes) -> bytes:
        """Return whole events without halves of characters, and without the contents of long ones."""
        events = repair_surrogates(events)
        if len(events) <= _LONG_LINE:
            return events
        # The text of each event is followed by its end.
        return b"".join(map(self._shorten_event, _EVENT_END.split(events)))

    def _shorten_event(self, event: bytes) -> bytes:
        if len(event) <= _LONG_LINE:
            return event
        lines = _LINE_END.split(event)
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        return b"\n".join([*(line for line in lines if not line.startswith(b"data")), b"data: " + self.shorten(data)])

    async def restore(self, received: Any) -> Any:
        """Return a message that the SDK has read, with its contents."""
        message: object = getattr(received, "message", None)
        for name in ("result", "params"):
            value: object = getattr(message, name, None)
            if is_object(value) and value.get(_CONTENTS) in self._contents:
                setattr(message, name, self._contents.pop(value[_CONTENTS]))
        return received


async def _run_for(content: bytes, function: Callable[[], T]) -> T:
    """Call a function that reads a content: in a thread if that is long."""
    return await to_thread.run_sync(function) if len(content) > _LONG_LINE else function()


def _read_message_object(content: bytes) -> dict[str, Any]:
    try:
        found: object = parse_long_json(content)
    except ValueError:
        return {}
    return found if is_object(found) else {}


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a response; of a stream of events, whole events, as `messages` shortens them."""

    def __init__(
        self, response: httpx2.Response, faults: list[HttpFault] | None, messages: LongMessages | None
    ) -> None:
        self._response = response
        self._faults = faults
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most_bytes = MOST_REPLY_BYTES if self._messages is None else sys.maxsize
        events = _EventJoiner()
        try:
            async with closed_with(self._response, most_bytes=most_bytes) as pieces:
                async for piece in pieces:
                    if self._messages is None:
                        yield piece
                    elif whole := events.feed(piece):
                        yield await _run_for(whole, partial(self._messages.shorten_events, whole))
            if self._messages is not None and (rest := bytes(events.waiting)):
                yield await _run_for(rest, partial(self._messages.shorten_events, rest))
        except ReplyTooLargeError as error:
            if self._faults is not None:
                self._faults.append(HttpFault(error=error))
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


class _EventJoiner:
    """Joins pieces of a stream to whole events."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def feed(self, piece: bytes) -> bytes:
        """Return the events that are whole now.

        Raises:
            ReplyTooLargeError: An event is too large.
        """
        start = max(0, len(self.waiting) - 3)
        self.waiting += piece
        places = [self.waiting.rfind(mark, start) + len(mark) for mark in _EVENT_ENDS if mark in self.waiting[start:]]
        end = max(places, default=0)
        whole = bytes(self.waiting[:end])
        del self.waiting[:end]
        if len(self.waiting) > MOST_REPLY_BYTES:
            raise ReplyTooLargeError(f"an event is larger than {MOST_REPLY_BYTES} bytes and was not read")
        return whole


class WrappedStream:
    """A stream of messages of the SDK, of which a subclass changes one thing."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        left: bool | None = await self._stream.__aexit__(*raised)
        return left


class AdaptedStream(WrappedStream):
    """A stream of messages, over which the SDK iterates, each adapted as it is taken.

    Args:
        stream: The stream.
        adapt: Returns a message as the SDK takes it.
        ended: Called at its end.
    """

    def __init__(
        self, stream: Any, adapt: Callable[[Any], Awaitable[Any]], ended: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(stream)
        self._adapt = adapt
        self._ended = ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._adapt(await self._stream.__anext__())
        except StopAsyncIteration:
            self._ended()
            raise


# Of a script, a file, a login that passes for a host, or a name with characters that are not seen, none is shown.
WEB_PAGE = re.compile(r"https?://(?:(?![/?#@\\])[!-~])+(?:[/?#][!-~]*)?", re.IGNORECASE)
"""The pages that a server may have a person open."""

_logger = get_logger("toolkit.sources.mcp")
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_EVENT_END = re.compile(rb"(\r\n\r\n|\n\n|\r\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CONTENTS = "toolkit/contents"
_MOST_STORED = 100
T = TypeVar("T")
_READ_TIMEOUT = 300.0
# A call has its connection until it is answered. Servers commonly close idle ones after 5 s: one that is used again in
# that moment would lose the call.
_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0)
_LONGEST_MESSAGE_QUOTE = 200
_LONGEST_MESSAGE_READ = 10_000
_LONG_LINE = 100_000  # takes some 20 ms to read at most
_MOST_SIGNATURES = 16
_MOST_FILE_BYTES = 1_000_000
_CONNECT_SECONDS = 30.0


_Received: TypeAlias = SessionMessage | Exception


Credentials: TypeAlias = str | Mapping[str, str] | httpx2.Auth
"""The credentials of one user: a bearer token, headers, or an object that signs each request."""

CredentialsMaker: TypeAlias = Callable[[Any], Credentials | Awaitable[Credentials]]
"""Takes the context of a run, and returns the credentials with which its calls are made."""


class McpServer(Protocol):
    """A way to a server: `stdio`, `http` and `sse` make one, and a transport of your own may be one.

    It can be opened several times, one after the other: after a loss the connection is made anew.
    """

    @property
    def name(self) -> str:
        """Its name in errors and logs; never a secret."""
        ...

    def open(self, words: deque[str]) -> Transport:
        """Yield the SDK's transport streams for one connection; `words` receives the last lines of the server's log."""
        ...

    def redact(self, text: str) -> str:
        """Return `text` without the secrets that reach the server."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A program that speaks MCP on its standard input and output; started for each connection, ended with it.

    Args:
        command: The program.
        arguments: Its arguments; no repr shows them, as they may hold a key.
        env: Set besides the few variables that it inherits (``PATH``, ``HOME`` and their like).
        cwd: Its working directory; None is that of this process.
        name: Its name in errors and logs.
    """

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None
    name: str

    def open(self, words: deque[str]) -> Transport:
        """Start the program; its standard error is logged."""
        return self._start_program(words)

    @asynccontextmanager
    async def _start_program(self, words: deque[str]) -> AsyncGenerator[Any]:
        environment = {**get_default_environment(), **self.env}
        command = shutil.which(self.command, path=environment.get("PATH")) or self.command
        process = LineProcess(
            self.name,
            await SupervisedProcess.start([command, *self.arguments], env=environment, cwd=self.cwd),
            redact=self.redact,
            logger=_logger,
            last_words=words,
        )
        received, read = anyio.create_memory_object_stream[_Received]()
        write, sent = anyio.create_memory_object_stream[SessionMessage]()
        try:
            async with anyio.create_task_group() as tasks, read, write, received, sent:
                tasks.start_soon(process.log_errors)
                tasks.start_soon(_receive_all, process, received)
                tasks.start_soon(_send_all, process, sent, received)
                yield read, write
                tasks.cancel_scope.cancel()
        finally:
            await process.end()

    @property
    def address(self) -> str:
        """The command line, without secrets."""
        return self.redact(" ".join([self.command, *self.arguments]))

    def redact(self, text: str) -> str:
        """Return `text` without the values of `env` and of options whose names indicate secrets."""
        return without_secrets(text, [*secrets_of(self.env), *secrets_in_arguments(self.command, self.arguments)])


def _read_line(line: bytes) -> JSONRPCMessage:
    # By itself, the adapter takes five times as long to read JSON.
    return jsonrpc_message_adapter.validate_python(parse_long_json(repair_surrogates(line)), by_name=False)


async def _receive_all(process: LineProcess, received: MemoryObjectSendStream[_Received]) -> None:
    """Forward a server's messages until it ends; other lines are forwarded as errors."""
    async with received:
        try:
            while (message := await _receive_next(process)) is not None:
                await received.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # there is no reader anymore


async def _receive_next(process: LineProcess) -> _Received | None:
    """Return the next message; None at the end, and behind a line that is too long for any and names no request."""
    try:
        while (line := await process.read()) is not None and (not line or line.isspace()):
            pass
    except LineTooLongError as error:
        refusal = _refuse_reply(error.head, TOO_LARGE)
        if refusal is None:
            _logger.warning("%s: %s: the connection is closed", process.name, error)
        return refusal
    if line is None:
        return None
    try:
        return SessionMessage(await _run_for(line, partial(_read_line, line)))
    except ValueError as error:
        quote = process.redact(line[:_LONGEST_MESSAGE_READ].decode("utf-8", "replace"))[:_LONGEST_MESSAGE_QUOTE]
        _logger.warning("%s: what it wrote is no message and is ignored: %s", process.name, quote)
        return _refuse_reply(line, NOT_MCP) or error


def _refuse_reply(line: bytes, reason: str) -> SessionMessage | None:
    """Return an error for the request that a reply which is no message names, so that nobody waits for another."""
    try:
        reply: object = from_json(line, allow_partial="trailing-strings")  # of a long one there is the beginning
    except ValueError:
        return None
    request_id: object = reply.get("id") if is_object(reply) and "method" not in reply else None
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=reason)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


async def _send_all(
    process: LineProcess,
    sent: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[_Received],
) -> None:
    async with sent:
        try:
            async for message in sent:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode("utf-8", "replace") + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            received.close()  # who takes no requests will not answer any


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A server at a URL.

    Args:
        url: Where it is; a repr shows neither user nor query.
        headers: Sent with each request.
        auth: The object that signs each request, such as the SDK's ``OAuthClientProvider``.
        auth_for: Returns the credentials of a run's context; None calls with `headers` and `auth` for everybody.
        verify: The certificates to trust; None takes the system's.
        timeout: Seconds to connect and to send.
        is_sse: True where it speaks the older transport, server-sent events, rather than streamable HTTP.
        name: Its name in errors and logs.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    auth_for: CredentialsMaker | None = field(default=None, repr=False)
    verify: ssl.SSLContext | None = field(default=None, repr=False)
    timeout: float = _CONNECT_SECONDS
    is_sse: bool = False
    name: str
    _signatures: deque[str] = field(
        default_factory=lambda: deque[str](maxlen=_MOST_SIGNATURES), init=False, repr=False, compare=False
    )

    def open(self, words: deque[str]) -> Transport:  # noqa: ARG002 - a remote server has its own log
        """Connect."""
        return self._open_sse() if self.is_sse else self._open_http()

    async def for_context(self, ctx: object) -> HttpServer:
        """Return the server as the user of a run's context reaches it: with the credentials of `auth_for`.

        Raises:
            McpError: There are none; the text of a `ToolError` that `auth_for` raises is passed on instead.
        """
        if self.auth_for is None:
            return self
        try:
            found = self.auth_for(ctx)
            given: object = await found if isawaitable(found) else found
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001 - its text may hold a token
            reason = f"auth_for failed with {type(error).__name__}"
        else:
            headers = {"Authorization": f"Bearer {given}"} if isinstance(given, str) and given else given
            if isinstance(headers, httpx2.Auth):
                others = _without_headers(self.headers, {"authorization"})
                return replace(self, headers=others, auth=headers, auth_for=None)
            if _are_headers(headers):
                others = _without_headers(self.headers, {name.lower() for name in headers})
                return replace(self, headers={**others, **headers}, auth_for=None)
            reason = f"auth_for returned no token, headers or httpx2.Auth that can be sent ({type(given).__name__})"
        raise McpError(f"MCP server '{self.name}': the call has no credentials: {reason}") from None

    @property
    def caller(self) -> object:
        """A key for the credentials: equal for servers whose requests are signed alike."""
        return tuple(sorted(self.headers.items())), id(self.auth)

    @asynccontextmanager
    async def _open_http(self) -> AsyncGenerator[Any]:
        with struck_logs(self.redact):
            async with (
                self._make_client() as client,  # which bounds the events
                streamable_http_client(self.url, http_client=client, max_sse_event_size=None) as (read, write),
            ):
                yield AdaptedStream(read, client.long_messages.restore), write

    @asynccontextmanager
    async def _open_sse(self) -> AsyncGenerator[Any]:
        client = self._make_client()  # which bounds the events, and shortens them to less than the SDK takes

        def get_client(*_: Any, **__: Any) -> httpx2.AsyncClient:
            return client

        with struck_logs(self.redact):
            async with sse_client(self.url, httpx_client_factory=get_client) as (read, write):
                yield AdaptedStream(read, client.long_messages.restore), write

    def _make_client(self) -> NotingClient:
        verify = True if self.verify is None else self.verify
        return NotingClient(
            headers=dict(self.headers),
            auth=self.auth,
            verify=verify,
            timeout=httpx2.Timeout(self.timeout, read=_READ_TIMEOUT),
            limits=_CONNECTIONS,
            event_hooks={"request": [self._note_signature]},
        )

    async def _note_signature(self, request: httpx2.Request) -> None:
        # Only `auth` knows the values that it signs with.
        signature = request.headers.get("authorization")
        if signature is not None and signature not in self._signatures:
            self._signatures.append(signature)

    @property
    def address(self) -> str:
        """The URL, without user and query."""
        return without_credentials(self.url)

    def redact(self, text: str) -> str:
        """Return `text` without headers, signatures of requests, and the user and query of the URL."""
        known = [*secrets_in_headers(self.headers), *secrets_in_url(self.url)]
        known += [secret for signature in self._signatures for secret in secrets_in_headers({"": signature})]
        return without_secrets(text.replace(self.url, without_credentials(self.url)), known)


def _are_headers(given: object) -> TypeGuard[Mapping[str, str]]:
    """Return whether these are headers that can be sent: the error of one that can't would show it in logs."""
    if not isinstance(given, Mapping) or not given:
        return False
    texts = [each for pair in cast("Mapping[object, object]", given).items() for each in pair]
    return all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts)


def _without_headers(headers: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def stdio(
    command: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    name: str | None = None,
) -> StdioServer:
    """Return a server that is a program to start.

    ::

        stdio("npx", "-y", "@modelcontextprotocol/server-everything")
        stdio(sys.executable, "-m", "mcp_server_time", env={"TZ": "UTC"})

    Args:
        command: The program, found on the ``PATH``.
        arguments: Its arguments.
        env: Set besides ``PATH``, ``HOME`` and their like; nothing else of this process's environment is inherited.
        cwd: Its working directory.
        name: Its name in errors and logs; None takes the command, or its argument if the command is ``npx``, ``python``
            or another that runs programs.

    Raises:
        ConfigurationError: The command is empty, or something is no text.
    """
    for given in cast("tuple[object, ...]", (command, *arguments)):
        if not isinstance(given, str):
            raise ConfigurationError(
                "a server's program and each of its arguments must be texts, as in stdio('npx', '-y', 'a-server'), "
                f"not {describe_value(given)}"
            )
    if not command:
        raise ConfigurationError("a server needs a command, such as stdio('npx', '-y', 'a-server')")
    return StdioServer(
        command=command,
        arguments=arguments,
        env=dict(env or {}),
        cwd=None if cwd is None else Path(cwd),
        name=name or program_name(command, arguments),
    )


def http(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    bearer: str | None = None,
    auth: httpx2.Auth | None = None,
    auth_for: CredentialsMaker | None = None,
    verify: ssl.SSLContext | None = None,
    timeout: float = _CONNECT_SECONDS,
    name: str | None = None,
) -> HttpServer:
    """Return a server at a URL, over streamable HTTP.

    ::

        http("https://shop.example.com/mcp", bearer=service_token, auth_for=lambda user: user.token)

    Args:
        url: Such as ``https://example.com/mcp``.
        headers: Sent with each request.
        bearer: A token, sent as ``Authorization: Bearer ...``.
        auth: The object that signs each request, such as `oauth_login` returns.
        auth_for: Returns, from the context of a run, the credentials with which its calls are made: a bearer token,
            headers, or an object that signs, the same one each time. They replace `bearer`, `auth` and headers of the
            same names, which are left for the list of tools. It may be async; a `ToolError` that it raises goes to the
            model. Each credentials have a connection of their own, kept for the last 100.
        verify: The certificates to trust; None takes the system's.
        timeout: Seconds to connect and to send; an answer may take as long as the call.
        name: Its name in errors and logs; None takes the host.

    Raises:
        ConfigurationError: The URL is none, or not absolute.
    """
    place = split_url(url, "the URL of an MCP server")
    signed = dict(headers or {})
    if bearer is not None:
        signed["Authorization"] = f"Bearer {bearer}"
    return HttpServer(
        url=url,
        headers=signed,
        auth=auth,
        auth_for=auth_for,
        verify=verify,
        timeout=timeout,
        name=name or place.netloc.rpartition("@")[2],
    )


class HttpKeywords(TypedDict, total=False):
    """The keywords of `http`, which documents them."""

    headers: Mapping[str, str] | None
    bearer: str | None
    auth: httpx2.Auth | None
    auth_for: CredentialsMaker | None
    verify: ssl.SSLContext | None
    timeout: float
    name: str | None


def sse(url: str, **options: Unpack[HttpKeywords]) -> HttpServer:
    """Return a server at a URL, over the older transport, server-sent events; the settings are those of `http`."""
    return replace(http(url, **options), is_sse=True)


def mcp_servers(
    path: str | Path, *, environment: Mapping[str, str] | None = None
) -> dict[str, StdioServer | HttpServer]:
    """Return the servers of a JSON file as editors write it, by name; those with ``"disabled": true`` are left out.

    ::

        {"mcpServers": {"notes": {"command": "npx", "args": ["-y", "notes"], "env": {"KEY": "${NOTES_KEY}"}},
                        "shop": {"url": "https://shop.example.com/mcp", "headers": {"X-Key": "${env:SHOP_KEY}"}}}}

    ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}`` are variables of the environment. Keys that only an editor
    knows are ignored; a relative ``cwd`` counts from the file's folder.

    Args:
        path: The file; ``servers`` in place of ``mcpServers`` is read, too.
        environment: The variables; None takes those of this process.

    Raises:
        ConfigurationError: The file or a server can't be read, or a variable is missing; the server is named.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ConfigurationError(f"{path} can't be read: it has more than {_MOST_FILE_BYTES:,} bytes")
        content = from_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from error
    servers = content.get("mcpServers", content.get("servers")) if is_object(content) else None
    if not is_object(servers):
        raise ConfigurationError(f"{path} has no servers: the object 'mcpServers' is missing")
    variables = os.environ if environment is None else environment
    return {
        name: _read_server(name, settings, f"{path}: the server '{name}'", path.parent, variables)
        for name, settings in servers.items()
        if not (is_object(settings) and settings.get("disabled") is True)
    }


class _WrittenServer(BaseModel):
    """A server in a file of an editor's."""

    type: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"] | None = None
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = Field(default="", validation_alias=AliasChoices("url", "serverUrl", "httpUrl"))
    headers: dict[str, str] = {}


def _read_server(
    name: str, settings: Any, place: str, folder: Path, environment: Mapping[str, str]
) -> StdioServer | HttpServer:
    expanded = expand_variables(settings, environment, place)
    try:
        written = _WrittenServer.model_validate(expanded)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"{place}: {where + ': ' if where else ''}{first['msg']}") from None
    if bool(written.command) == bool(written.url):
        raise ConfigurationError(f"{place} needs either a 'command' or a 'url'")
    for text in (written.command, written.url, *written.args, *written.env.values(), *written.headers.values()):
        if "${" in text:
            asked = text[text.index("${") :].partition("}")[0]
            raise ConfigurationError(
                f"{place}: only an editor knows '{asked}}}': use a variable, such as ${{env:NAME}}"
            )
    if written.command:
        cwd = None if written.cwd is None else folder / written.cwd
        return stdio(written.command, *written.args, env=written.env, cwd=cwd, name=name)
    try:
        connect = sse if written.type == "sse" else http
        return connect(written.url, headers=written.headers, name=name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from error


_SESSION = re.compile(r"(?<=session ID: )\S+")


class _Strikes(logging.Filter):
    """Strikes secrets out of records; lets all pass."""

    def __init__(self) -> None:
        super().__init__()
        self.redacts: tuple[Redact, ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (struck := self._strike_text(text)) != text:
            record.msg, record.args = struck, None
        if record.exc_info:
            shown = "".join(traceback.format_exception(*record.exc_info))
            if (struck := self._strike_text(shown)) != shown:
                record.exc_info, record.exc_text = None, struck
        return True

    def _strike_text(self, text: str) -> str:
        for redact in self.redacts:
            text = redact(text)
        return _SESSION.sub(MASK, without_keys(text))


_strikes = _Strikes()
_lock = Lock()


@contextmanager
def struck_logs(redact: Redact) -> Generator[None]:
    """Redact a server's secrets in the SDK's logs, in all threads, for the duration of the block."""
    with _lock:
        _strikes.redacts += (redact,)
        for logger in _find_loggers():
            logger.addFilter(_strikes)
    try:
        yield
    finally:
        with _lock:
            left = list(_strikes.redacts)
            left.remove(redact)
            _strikes.redacts = tuple(left)
            for logger in () if left else _find_loggers():
                logger.removeFilter(_strikes)


def _find_loggers() -> list[logging.Logger]:
    """Return the SDK's loggers: a filter does not apply to child loggers."""
    known = list(logging.root.manager.loggerDict.items())
    return [logger for name, logger in known if f"{name}.".startswith("mcp.") and isinstance(logger, logging.Logger)]
