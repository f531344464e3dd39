"""The address of an MCP server: a program to start, or a URL; their logs are redacted. No secret is in any repr."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import ssl
import sys
import traceback
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeGuard, cast

import anyio
import httpx2
from anyio import to_thread
from anyio.lowlevel import checkpoint
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
from toolkit.errors import ConfigurationError, McpError, ToolError
from toolkit.foreign_text import repair_surrogates
from toolkit.http_client import (
    MOST_REPLY_BYTES,
    BoundedClient,
    ReplyTooLargeError,
    check_json_structures,
    closed_with,
    split_url,
)
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

faults_of_call: ContextVar[list[HttpFault] | None] = ContextVar("toolkit_mcp_http_faults", default=None)
"""Collects failures in the requests of the current call: the SDK passes on no status."""


class NotingClient(BoundedClient):
    """Reports a failed request to the call that made it; responses are bounded."""

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
        response = _bound_body(response, faults)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return await _repair_reply(response, request, faults) if is_json else response


async def _repair_reply(
    response: httpx2.Response, request: httpx2.Request, faults: list[HttpFault] | None
) -> httpx2.Response:
    """Return a reply without halves of characters, and one under another id as an error of its request.

    A server that could not read a request answers without its id, or with 0: the SDK would wait for another answer, and
    over HTTP none will come. A reply that has too many parts is reported in `faults`.
    """
    given = await response.aread()
    with _noted(faults):
        content = await _make_readable(given)
    is_long = len(content) > _LONG_LINE
    reply = await to_thread.run_sync(_read_message_object, content) if is_long else _read_message_object(content)
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


def _read_message_object(content: bytes) -> dict[str, Any]:
    try:
        found: object = from_json(content)
    except ValueError:
        return {}
    return found if is_object(found) else {}


def _bound_body(response: httpx2.Response, faults: list[HttpFault] | None) -> httpx2.Response:
    """Return a response whose body is unpacked and bounded as it is read: a reply whole, a stream event by event.

    A body that is too large is reported in `faults`.
    """
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    headers = response.headers.copy()
    headers.pop("content-encoding", None)
    if "content-type" in headers:  # the messages are UTF-8, whatever charset it names
        headers["content-type"] = headers["content-type"].partition(";")[0]
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_BoundedStream(response, faults, is_of_events=is_stream),
        request=response.request,
        extensions=response.extensions,
    )


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, faults: list[HttpFault] | None, *, is_of_events: bool) -> None:
        self._response = response
        self._faults = faults
        self._is_of_events = is_of_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most_bytes = sys.maxsize if self._is_of_events else MOST_REPLY_BYTES
        with _noted(self._faults):
            async with closed_with(self._response, most_bytes=most_bytes) as pieces:
                events = _EventJoiner()
                async for piece in pieces:
                    if not self._is_of_events:
                        yield piece
                        continue
                    for start in range(0, len(piece), _STEP):
                        if part := events.feed(piece[start : start + _STEP]):
                            yield await _make_readable(part)
                            await checkpoint()
                if events.waiting:
                    yield await _make_readable(bytes(events.waiting))

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _noted(faults: list[HttpFault] | None) -> Generator[None]:
    """Report a reply that is too large in `faults`."""
    try:
        yield
    except ReplyTooLargeError as error:
        if faults is not None:
            faults.append(HttpFault(error=error))
        raise


async def _make_readable(content: bytes) -> bytes:
    """Return messages without halves of characters.

    Raises:
        ReplyTooLargeError: They have more parts than the SDK, which reads them in the event loop, may be given.
    """

    def check_and_repair() -> bytes:
        check_json_structures(content, _MOST_STRUCTURES)
        return repair_surrogates(content)

    is_long = len(content) > _LONG_LINE
    return await to_thread.run_sync(check_and_repair) if is_long else check_and_repair()


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


# Of a script, a file, a login that passes for a host, or a name with characters that are not seen, none is shown.
WEB_PAGE = re.compile(r"https?://[^\s/?#@\\]+(?:[/?#][!-~]*)?", re.IGNORECASE | re.ASCII)
"""The pages that a server may have a person open."""

_logger = logging.getLogger("toolkit.sources.mcp")
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_READ_TIMEOUT = 300.0
# A call has its connection until it is answered. Servers commonly close idle ones after 5 s: one that is used again in
# that moment would lose the call.
_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0)
_LONGEST_MESSAGE_QUOTE = 200
_LONGEST_MESSAGE_READ = 10_000
_LONG_LINE = 100_000  # takes some 20 ms to read at most
_MOST_STRUCTURES = 40_000
_STEP = 1_024  # bytes of events that the SDK handles in a row: each may be a request that starts a task
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
    check_json_structures(line, _MOST_STRUCTURES)
    return jsonrpc_message_adapter.validate_json(repair_surrogates(line), by_name=False)


async def _receive_all(process: LineProcess, received: MemoryObjectSendStream[_Received]) -> None:
    """Forward a server's messages until it ends; other lines are forwarded as errors."""
    async with received:
        try:
            while (line := await process.read()) is not None:
                try:
                    is_long = len(line) > _LONG_LINE
                    read = await to_thread.run_sync(_read_line, line) if is_long else _read_line(line)
                    message: _Received = SessionMessage(read)
                except ValueError as error:
                    message = _refuse_reply(line) or error
                    quote = process.redact(line[:_LONGEST_MESSAGE_READ].decode("utf-8", "replace"))
                    quote = quote[:_LONGEST_MESSAGE_QUOTE]
                    _logger.warning("%s: what it wrote is no message and is ignored: %s", process.name, quote)
                await received.send(message)
        except LineTooLongError:
            _logger.warning(
                "%s: a line has more than %s bytes: the connection is closed", process.name, f"{LONGEST_LINE:,}"
            )
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # there is no reader anymore


def _refuse_reply(line: bytes) -> SessionMessage | None:
    """Return an error for the request that a reply which is no message names, so that nobody waits for another."""
    reply = _read_message_object(line)
    request_id = reply.get("id")
    if "method" in reply or isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=NOT_MCP)
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
                streamable_http_client(self.url, http_client=client, max_sse_event_size=None) as streams,
            ):
                yield streams

    @asynccontextmanager
    async def _open_sse(self) -> AsyncGenerator[Any]:
        def make(*_: Any, **__: Any) -> httpx2.AsyncClient:
            return self._make_client()

        with struck_logs(self.redact):
            async with sse_client(self.url, httpx_client_factory=make) as streams:
                yield streams

    def _make_client(self) -> httpx2.AsyncClient:
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
        secrets = [*secrets_in_headers(self.headers), *secrets_in_url(self.url)]
        secrets += [secret for signature in self._signatures for secret in secrets_in_headers({"": signature})]
        return without_secrets(text.replace(self.url, without_credentials(self.url)), secrets)


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
