"""One server and its session: opened and closed by one task, used by any, opened again when it is lost; its failures.

The SDK's task groups are entered and left by that task alone, which belongs to no scope of the caller's: so tools may
be opened in one task and closed in another, in any order. Requests are made in the tasks that want them; cancelling
one of those cancels the request on the server. Lists of a server are read page by page, within a bound.
"""

from __future__ import annotations

import math
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar, cast

import anyio
import httpx2
import mcp.types as wire
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage, Transport
from mcp.client.auth import OAuthFlowError
from mcp.client.extension import advertise
from mcp.types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from toolkit.backoff import backoff_pause
from toolkit.dataclass import dataclass
from toolkit.errors import McpError, ToolkitError
from toolkit.foreign_text import strip_hidden
from toolkit.http_client import ReplyTooLargeError
from toolkit.logs import get_logger
from toolkit.loop.limits import LoopFrame, find_frame
from toolkit.redaction import cut_causes
from toolkit.runtime.backend import OwnerLoop
from toolkit.sources import ServerLimits
from toolkit.sources.mcp.messages import adapt_message, restore_tool
from toolkit.sources.mcp.servers import (
    NOT_MCP,
    TOO_LARGE,
    AdaptedStream,
    HttpFault,
    HttpServer,
    McpServer,
    WrappedStream,
    faults_of_call,
)
from toolkit.sources.mcp.tasks import EXTENSION

_LONGEST_REASON = 600
_LIMITS = ServerLimits()
_SHORT = 20
_STAND_INS = ("Server returned an error response", "Not Found", "Session terminated")  # for a status, by the SDK


class McpConnectionError(McpError):
    """The server can't be reached, or the connection to it is lost: another try may help."""


class McpAuthError(McpError):
    """The server refuses who calls."""


class McpNotFoundError(McpError):
    """There is no such server, command, tool or method."""


def innermost(error: BaseException) -> BaseException:
    """Return the first error in the groups that task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_loss(error: BaseException) -> bool:
    """Return whether an error means that the connection or the session may be lost, and not that a request is wrong."""
    if isinstance(error, MCPError):
        return _is_connection_closed(error)
    return isinstance(
        error, (httpx2.TransportError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    )


def _is_connection_closed(error: MCPError) -> bool:
    # Servers use that code for other errors, too: the SDK's own texts decide.
    return error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream"))


# Of the server's load or its gateway's, not of a session; a refused caller is refused in a new session, too.
_NOT_OF_A_SESSION = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})


def is_not_found(error: BaseException, faults: Iterable[HttpFault]) -> bool:
    """Return whether a request was refused by the status that MCP has for sessions that a server does not know."""
    if not isinstance(error, MCPError) or error.code == METHOD_NOT_FOUND:
        return False
    return any(fault.status == 404 for fault in faults)


def may_have_lost_session(faults: Iterable[HttpFault]) -> bool:
    """Return whether a request in a session had a status that servers give where they don't know the session.

    MCP has 404 for that, and servers answer with 400, 500 and others: whether the session is lost is found out by
    another request.
    """
    return any(fault.is_of_session and fault.status not in _NOT_OF_A_SESSION for fault in faults)


def to_mcp_error(
    error: BaseException,
    server: McpServer,
    what: str,
    *,
    faults: Iterable[HttpFault] = (),
    words: Iterable[str] = (),
    seconds: float | None = None,
) -> McpError:
    """Return a failure as an error of ours, with the server's secrets redacted.

    Args:
        error: The exception that was raised.
        server: By whom.
        what: The attempted action, such as ``connect``.
        faults: The errors of the requests below it.
        words: The last lines that the server logged.
        seconds: How long it was tried, for a timeout.
    """
    inner = innermost(error)
    if isinstance(inner, McpError):
        return inner
    kind, reason = _explain_error(inner, list(faults), seconds)
    lines = list(words)
    tail = f" Its last words: {_shorten_text(' | '.join(lines[-5:]))}" if lines else ""
    return kind(server.redact(f"MCP server '{server.name}': could not {what}: {reason}{tail}"))


def _explain_error(error: BaseException, faults: list[HttpFault], seconds: float | None) -> tuple[type[McpError], str]:
    explained = _explain_faults(error, faults)
    if explained is not None:
        return explained
    if isinstance(error, TimeoutError):
        return McpConnectionError, (
            f"it gave no answer within {seconds:g} s; is it an MCP server, and does it speak this transport?"
            if seconds is not None
            else "it took too long"
        )
    if isinstance(error, (httpx2.HTTPError, ssl.SSLError)):
        return _explain_network_error(error)
    if isinstance(error, MCPError):
        return _explain_protocol_error(error)
    if isinstance(error, ValidationError):
        return McpError, f"{NOT_MCP} ({error.error_count()} problems); is it an MCP server?"
    if isinstance(error, OSError):
        return _explain_os_error(error)
    return McpError, f"{type(error).__name__}: {_shorten_text(str(error))}"


def _explain_faults(error: BaseException, faults: list[HttpFault]) -> tuple[type[McpError], str] | None:
    """Return the errors of the requests if they are more specific than the error that they caused."""
    for fault in faults:
        if isinstance(fault.error, ReplyTooLargeError):
            return McpError, str(fault.error)
        if fault.error is not None:
            return _explain_network_error(fault.error)
    # Asking in a newer revision first may be refused: the last refusal counts, where the server did not explain it.
    statuses = [fault.status for fault in faults if fault.status is not None]
    is_explained = isinstance(error, MCPError) and error.message not in _STAND_INS
    if statuses and (not is_explained or statuses[-1] in (401, 403)):
        return _explain_status(statuses[-1])
    return None


def _explain_os_error(error: OSError) -> tuple[type[McpError], str]:
    if isinstance(error, FileNotFoundError):
        return McpNotFoundError, f"{error.filename!r} was not found; install it, or give its whole path"
    if isinstance(error, PermissionError):
        return McpNotFoundError, f"{error.filename!r} can't be executed; is it a program, and is it yours to run?"
    return McpConnectionError, f"{type(error).__name__}: {_shorten_text(str(error))}"


def _explain_protocol_error(error: MCPError) -> tuple[type[McpError], str]:
    message = _shorten_text(error.message)
    if _is_connection_closed(error):
        return McpConnectionError, "the connection was closed; did the server end, and is it an MCP server?"
    if error.code == REQUEST_TIMEOUT and "timed out" in message:  # some servers mean other things by that code
        return McpConnectionError, f"no answer came in time ({message})"
    if error.code == METHOD_NOT_FOUND:
        return McpNotFoundError, f"it does not know this ({message}); is it an MCP server that offers it?"
    if message.startswith((NOT_MCP, "Failed to parse")):
        return McpError, f"{message if message.startswith(NOT_MCP) else NOT_MCP}; is it an MCP server?"
    if "content type" in message:
        return McpError, f"{message}; is it an MCP server, and is this its whole URL?"
    return McpError, f"{message} (code {error.code})"


def _explain_status(status: int) -> tuple[type[McpError], str]:
    if status in (401, 403):
        return McpAuthError, (
            f"it refuses who calls (HTTP {status}); give the right bearer=, headers= or auth= to http(...)"
        )
    if status in (404, 405, 406):
        return McpNotFoundError, (
            f"there is no MCP server at this URL (HTTP {status}); is it the whole URL, such as .../mcp, and does it "
            "speak this transport: http(...) or sse(...)?"
        )
    if status >= 500 or status == 429:
        return McpConnectionError, f"it failed (HTTP {status}); try again later"
    return McpError, f"it refused the request (HTTP {status})"


def _explain_network_error(error: Exception) -> tuple[type[McpError], str]:
    if isinstance(error, OAuthFlowError):
        return McpAuthError, f"signing in failed ({_shorten_text(str(error))}); give the right auth= to http(...)"
    if _is_about_certificates(error):
        return McpError, (
            f"its certificate is not trusted ({_shorten_text(str(error))}); give http(...) a "
            "verify=ssl.create_default_context(cafile=...)"
        )
    if isinstance(error, httpx2.TimeoutException):
        return McpConnectionError, f"{type(error).__name__}: it gave no answer in time"
    words = _shorten_text(str(error))
    return McpConnectionError, f"{type(error).__name__}: {words}; is it running, and is the URL right?"


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError) or "CERTIFICATE" in str(error).upper():
            return True
        error = error.__cause__ or error.__context__
    return False


def _shorten_text(text: str) -> str:
    text = strip_hidden(text[: 2 * _LONGEST_REASON])
    if len(text) <= _LONGEST_REASON:
        return text
    head = text[:_LONGEST_REASON]
    return f"{head.rpartition(' ')[0] or head[:_SHORT]} ..."  # a piece of a secret would not be known for one


T = TypeVar("T")
P = ParamSpec("P")

_logger = get_logger("toolkit.sources.mcp")
_LIST_PAUSE = 1.0  # between two lists, however often a server says that its tools have changed
_END_CONNECTION_SECONDS = 5.0
_END_SECONDS = 1.0
_REVIVAL_SECONDS = 5.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_MOST_CALLERS = 100
_MOST_WAITING = 200
_MOST_LIST_BYTES = 16 * 2**20  # of all pages


@dataclass(frozen=True, slots=True, eq=False)
class CallUnderWay:
    """A call of a session.

    Args:
        frame: The loop on whose account it is made; None outside of any.
        ctx: The context of the run.
    """

    frame: LoopFrame | None
    ctx: object


SampleForCalls: TypeAlias = Callable[
    [Sequence[CallUnderWay], ClientRequestContext, wire.CreateMessageRequestParams],
    Awaitable[wire.CreateMessageResult | wire.ErrorData],
]
ElicitForCalls: TypeAlias = Callable[
    [Sequence[CallUnderWay], ClientRequestContext, wire.ElicitRequestParams],
    Awaitable[wire.ElicitResult | wire.ErrorData],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of a session.

    Args:
        connect_timeout: Seconds to start, connect, greet and list the tools.
        limits: The limits of outputs and lists.
        sampling: Answers the server's requests for a model's words, given the calls that are under way, the oldest
            first; None offers no such thing.
        elicitation: Answers the server's questions to the user likewise; None offers no such thing.
        on_listed: Awaited with the tools whenever they are listed, also the first time; must not raise after that.
    """

    connect_timeout: float
    limits: ServerLimits = _LIMITS
    sampling: SampleForCalls | None = None
    elicitation: ElicitForCalls | None = None
    on_listed: Callable[[list[wire.Tool]], Awaitable[None]]


class McpSession:
    """A connection to a server that is made again when it is lost.

    Use it as an async context manager: it is connected inside, and nothing of it is left outside.

    Raises:
        McpError: On entering: the server can't be reached, or is none.
    """

    def __init__(self, server: McpServer, settings: SessionSettings) -> None:
        self.server = server
        self._settings = settings
        self._calls: list[CallUnderWay] = []  # the oldest first
        self._of_callers: OrderedDict[object, McpSession] = OrderedDict()  # the last one used is the last
        self._leaving: list[McpSession] = []
        self._client: Client | None = None
        self._owner_loop: OwnerLoop | None = None
        self._bell = anyio.Event()
        self._reviving = anyio.Lock()
        self._opening: anyio.CancelScope | None = None
        self._is_wanted = False
        self._is_opening = False
        self._is_closing = False
        self._is_stale = False
        self._is_listing = False
        self._is_over = True
        self._under_way = 0
        self._failures = 0
        self._failure: ToolkitError | None = None

    async def __aenter__(self) -> Self:
        self._owner_loop = OwnerLoop()
        self._begin_connection(self._owner_loop)
        try:
            await self._wait_for_client()
        except BaseException as error:
            cut_causes(error, self.server.redact)
            await self._close_connection()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close_connection()

    def _begin_connection(self, owner_loop: OwnerLoop) -> None:
        self._owner_loop, self._is_over = owner_loop, False
        owner_loop.start_detached(self._own_connection)

    @asynccontextmanager
    async def serving(self, ctx: object) -> AsyncGenerator[McpSession]:
        """Yield the session for a call of a run: this one, or that of the user whose context it is.

        Raises:
            McpError: The user has no credentials, or the session is closed.
        """
        call = CallUnderWay(find_frame(), ctx)
        if isinstance(self.server, HttpServer) and self.server.auth_for is not None:
            server = await self.server.for_context(ctx)
            if self._owner_loop is None:
                raise self._make_closed_error()
            session = await self._owner_loop.call(partial(self._serve_caller, server, call))
        else:
            session = self
            self._calls.append(call)
        try:
            yield session
        finally:
            session._calls.remove(call)

    async def _serve_caller(self, server: HttpServer, call: CallUnderWay) -> McpSession:
        """Return the session with some credentials, which connects at its first request."""
        if self._owner_loop is None or self._is_over or self._is_closing:
            raise self._make_closed_error()
        session = self._of_callers.pop(server.caller, None)
        if session is None:
            session = McpSession(server, replace(self._settings, on_listed=ignore_list))
            session._begin_connection(self._owner_loop)
        session._calls.append(call)
        self._of_callers[server.caller] = session
        if len(self._of_callers) > _MOST_CALLERS:
            self._leave_callers()
        return session

    def _leave_callers(self) -> None:
        """Close the session that was used longest ago and has no calls."""
        idle = next((key for key, session in self._of_callers.items() if not session._calls), None)
        if idle is not None:
            session = self._of_callers.pop(idle)
            session._is_closing = True
            session._ring_bell()
            self._leaving = [*(each for each in self._leaving if not each._is_over), session]

    async def request(self, what: str, make: Callable[[Client], Awaitable[T]], *, is_repeatable: bool = True) -> T:
        """Make a request, on a new connection where the old one is lost.

        Args:
            what: Its name, for an error.
            make: Makes it.
            is_repeatable: True if it may be repeated when the outcome of the first one is unknown.

        Raises:
            McpError: The server refused it or can't be reached.
        """
        if self._owner_loop is None:
            raise self._make_closed_error()
        try:
            return await self._owner_loop.call(partial(self._send_request, what, make, is_repeatable=is_repeatable))
        except McpError as error:
            cut_causes(error, self.server.redact)
            raise

    async def _send_request(self, what: str, make: Callable[[Client], Awaitable[T]], *, is_repeatable: bool) -> T:
        client = await self._wait_for_client()
        faults: list[HttpFault] = []
        try:
            return await self._send_on(client, make, faults)
        except Exception as error:
            failure = to_mcp_error(error, self.server, what, faults=faults)
            inner = innermost(error)
            was_refused = is_not_found(inner, faults)
            is_doubtful = not was_refused and may_have_lost_session(faults)
            is_too_large = any(isinstance(fault.error, ReplyTooLargeError) for fault in faults)
            is_lost = was_refused or is_loss(inner) or any(fault.error is not None for fault in faults)
            if isinstance(inner, TimeoutError) or is_too_large or not (is_lost or is_doubtful):
                raise _add_effect(failure, faults, is_repeatable=is_repeatable) from error
            note = await self._revive_session(client)
            if is_doubtful and not is_lost:
                if self._client is client:  # which knows the session: the request was refused for itself
                    raise _add_effect(failure, faults, is_repeatable=is_repeatable) from error
                was_refused = not _has_failed_inside(faults)
            if not (is_repeatable or was_refused):
                raise McpConnectionError(f"{failure} It may have taken effect and was not repeated. {note}") from error
        client = await self._wait_for_client()
        faults.clear()
        try:
            return await self._send_on(client, make, faults)
        except Exception as error:
            raise to_mcp_error(error, self.server, what, faults=faults) from error

    async def _send_on(self, client: Client, make: Callable[[Client], Awaitable[T]], faults: list[HttpFault]) -> T:
        before = faults_of_call.set(faults)
        self._under_way += 1
        try:
            return await make(client)
        finally:
            faults_of_call.reset(before)
            self._under_way -= 1
            if self._client is not client:
                self._ring_bell()

    async def _wait_for_client(self) -> Client:
        failures = self._failures
        if self._client is None and not self._is_opening:
            self._is_wanted = True
            self._ring_bell()
        while True:
            client = self._client
            if client is not None:
                return client
            if self._is_over or self._is_closing:
                raise self._make_closed_error()
            if self._failures > failures and self._failure is not None:
                raise self._failure
            await self._bell.wait()

    def back(self, function: Callable[P, object]) -> Callable[P, object]:
        """Return a wrapper that calls the function in the running event loop, for use in the session's own."""
        return function if self._owner_loop is None else self._owner_loop.wrap_callback(function)

    def _make_closed_error(self) -> McpError:
        return McpError(f"MCP server '{self.server.name}': its tools are closed; use them inside of `async with`")

    async def _revive_session(self, client: Client) -> str:
        """Check whether a connection still works, and replace it if it does not; return the outcome."""
        async with self._reviving:
            if self._client is client:
                with suppress(Exception), anyio.move_on_after(_REVIVAL_SECONDS):
                    await self._settings.on_listed(await self._list_tools(client))
                    return "The server is still there."
                self._lose_client(client)
            try:
                await self._wait_for_client()
            except McpError as error:
                return f"It can't be connected again: {error}"
            return "It is connected again."

    def _ring_bell(self) -> None:
        self._bell.set()
        self._bell = anyio.Event()

    def _lose_client(self, client: Client | None) -> None:
        if client is not None and self._client is client:
            self._client = None
            self._ring_bell()

    async def _close_connection(self) -> None:
        self._is_closing = True
        of_callers = [*self._leaving, *self._of_callers.values()]
        for session in of_callers:
            session._is_closing = True
            session._ring_bell()
        with anyio.CancelScope(shield=True):
            for session in of_callers:
                await session._close_connection()
        if self._opening is not None:
            self._opening.cancel()
        self._ring_bell()
        with anyio.CancelScope(shield=True):
            while not self._is_over:
                await self._bell.wait()

    # the owner's task

    async def _own_connection(self) -> None:
        try:
            while True:
                while not (self._is_wanted or self._is_closing):
                    await self._bell.wait()
                if self._is_closing:
                    return
                self._is_wanted, self._is_opening = False, True
                failure = await self._run_connection()
                self._client, self._is_opening = None, False
                if failure is not None:
                    self._failure = failure
                    self._failures += 1
                self._ring_bell()
        finally:
            self._client, self._is_over = None, True
            self._ring_bell()

    async def _run_connection(self) -> ToolkitError | None:
        """Run one connection from its beginning to its end; return why it could not begin."""
        words: deque[str] = deque(maxlen=20)
        faults: list[HttpFault] = []
        faults_of_call.set(faults)
        seconds = self._settings.connect_timeout
        is_open = False

        try:
            client = self._make_client(words)
            # One scope for everything that is opened here: a scope around a part could not be left first.
            with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
                self._opening = scope
                async with client:
                    await self._settings.on_listed(await self._list_tools(client))
                    scope.deadline, self._opening = math.inf, None
                    self._client, self._is_opening, is_open = client, False, True
                    self._ring_bell()
                    await self._attend_client(client)
                    await self._let_requests_end()
                    # A server that has gone must not delay the next steps.
                    scope.deadline = anyio.current_time() + _END_CONNECTION_SECONDS
            if scope.cancelled_caught and not is_open:
                raise TimeoutError  # noqa: TRY301 - reported with the same text as others
        except Exception as error:  # noqa: BLE001 - reported to those who wait for the connection
            inner = innermost(error)
            if is_open:
                _logger.info("MCP server '%s': the connection ended with %s", self.server.name, type(inner).__name__)
                return None
            if isinstance(inner, ToolkitError):
                return inner
            failure = to_mcp_error(inner, self.server, "connect", faults=faults, words=words, seconds=seconds)
            failure.__cause__ = inner
            return failure
        finally:
            self._opening = None
        return None

    def _make_client(self, words: deque[str]) -> Client:
        def ended() -> None:
            self._lose_client(client)

        def with_calls(answer: Callable[..., Any] | None) -> Any:
            return answer and partial(answer, self._calls)

        client = Client(
            watch_transport(self.server.open(words), ended),
            sampling_callback=with_calls(self._settings.sampling),
            elicitation_callback=with_calls(self._settings.elicitation),
            message_handler=self._on_message,
            client_info=wire.Implementation(name="toolkit", version=version("toolkit-sdk")),
            cache=None,
            extensions=[advertise(EXTENSION)],
        )
        return client

    async def _attend_client(self, client: Client) -> None:
        """Stay until the connection is lost or to be closed; list the tools anew when they change."""
        self._is_listing = False
        async with anyio.create_task_group() as tasks:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._take_changes, client)
            while self._client is client and not self._is_closing:
                if self._is_stale and not self._is_listing:
                    self._is_stale, self._is_listing = False, True
                    tasks.start_soon(self._list_again, client)
                await self._bell.wait()
            tasks.cancel_scope.cancel()

    async def _let_requests_end(self) -> None:
        """Give other requests on a lost connection a moment: their answers may still arrive."""
        with anyio.move_on_after(_END_SECONDS):
            while self._under_way and not self._is_closing:
                await self._bell.wait()

    async def _take_changes(self, client: Client) -> None:
        """Receive the changes of a server that reports them only to subscribers; subscribe again if that is lost."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        failures = 0
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    failures = 0
                    self._mark_stale()  # changes in between are not reported
                    async for _ in changes:
                        self._mark_stale()
            except Exception as error:  # noqa: BLE001 - a server may report no changes; its tools work anyway
                _logger.debug(
                    "MCP server '%s' reports no changes: %s", self.server.name, type(innermost(error)).__name__
                )
            await anyio.sleep(backoff_pause(failures, initial=_FIRST_PAUSE, longest=_LONGEST_PAUSE))
            failures += 1

    async def _list_tools(self, client: Client) -> list[wire.Tool]:
        return await list_server_tools(client, self.server, self._settings.limits)

    async def _list_again(self, client: Client) -> None:
        try:
            with anyio.fail_after(self._settings.connect_timeout):
                await self._settings.on_listed(await self._list_tools(client))
        except Exception as error:  # noqa: BLE001 - the tools stay as they were
            reason = to_mcp_error(error, self.server, "list the tools again", seconds=self._settings.connect_timeout)
            _logger.warning("%s", reason)
        await anyio.sleep(_LIST_PAUSE)
        self._is_listing = False
        self._ring_bell()

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            self._mark_stale()

    def _mark_stale(self) -> None:
        # Only noted here: who delivers messages must not wait for one.
        self._is_stale = True
        self._ring_bell()


async def ignore_list(listed: list[wire.Tool]) -> None:
    """Take no tools: those in use are known."""


def _has_failed_inside(faults: Iterable[HttpFault]) -> bool:
    return any((fault.status or 0) >= 500 or isinstance(fault.error, ReplyTooLargeError) for fault in faults)


def _add_effect(failure: McpError, faults: Iterable[HttpFault], *, is_repeatable: bool) -> McpError:
    """Return a failure that says whether the request may have taken effect: a refusal has none."""
    if is_repeatable or not (_has_failed_inside(faults) or NOT_MCP in str(failure) or TOO_LARGE in str(failure)):
        return failure
    return type(failure)(f"{failure}{'' if str(failure).endswith('?') else '.'} It may have taken effect.")


@asynccontextmanager
async def watch_transport(transport: Transport, ended: Callable[[], None]) -> AsyncGenerator[Any]:
    """Open a transport that reports its end, and turns messages into what the SDK can take.

    No request of the server is taken while it leaves many answers unread: each would wait in memory.
    """
    async with transport as (read, write):
        writer = _CountingWriter(write)

        async def adapt(received: Any) -> Any:
            if isinstance(getattr(received, "message", None), wire.JSONRPCRequest):
                await writer.wait_for_room()
            return await adapt_message(received)

        yield AdaptedStream(read, adapt, ended), writer


class _CountingWriter(WrappedStream):
    """The stream of messages to the server."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._waiting = 0
        self._has_room = anyio.Event()

    async def wait_for_room(self) -> None:
        """Wait while too many messages wait until they are taken."""
        while self._waiting > _MOST_WAITING:
            await self._has_room.wait()

    async def send(self, message: Any) -> None:
        """Send a message."""
        self._waiting += 1
        try:
            await self._stream.send(message)
        finally:
            self._waiting -= 1
            if self._waiting == _MOST_WAITING:
                self._has_room.set()
                self._has_room = anyio.Event()


async def list_server_tools(client: Client, server: McpServer, limits: ServerLimits) -> list[wire.Tool]:
    """Return the tools of all pages."""
    if client.server_capabilities.tools is None:
        return []

    async def page(cursor: str | None) -> tuple[list[wire.Tool], str | None]:
        answer = await client.list_tools(cursor=cursor)
        return [restore_tool(tool) for tool in answer.tools], answer.next_cursor

    return await read_all_pages(page, server, limits)


async def read_all_pages(
    page: Callable[[str | None], Awaitable[tuple[list[T], str | None]]], server: McpServer, limits: ServerLimits
) -> list[T]:
    """Return the items of all pages.

    Args:
        page: Takes a page's cursor, None for the first; returns its items, and the next cursor.
        server: The server of the pages.
        limits: How many there may be.

    Raises:
        McpError: They never end, or are too large.
    """
    found: list[T] = []
    cursor: str | None = None
    size = 0
    for _ in range(limits.pages):
        items, following = await page(cursor)
        found += items
        size += len(to_json(items))
        if size > _MOST_LIST_BYTES:
            raise McpError(f"MCP server '{server.name}' lists more than {_MOST_LIST_BYTES:,} bytes")
        if following is None or following == cursor:
            return found
        cursor = following
    raise McpError(f"MCP server '{server.name}' lists more than {limits.pages} pages")
