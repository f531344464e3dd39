"""A registry as a server of the SDK: it lists the tools, and runs their calls under the registry's rules."""

from __future__ import annotations

import base64
import json
import secrets
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import field
from typing import Any, Literal, TypeAlias, TypedDict, assert_never, cast, get_args, overload
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakSet

import anyio
import mcp.types as wire
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPDeprecationWarning, MCPError
from mcp.server import InitializationOptions, NotificationOptions, Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import Unpack

from toolkit.calls.approval import Approval, ApprovalRequest, Approve, Deny
from toolkit.calls.context import open_context
from toolkit.calls.events import ToolCallRefused, ToolEvent, ToolExecutionEnd, ToolExecutionUpdate, ToolProgress
from toolkit.calls.registration import Ctx, Registration
from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from toolkit.chat.output import is_nothing
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, SchemaError, ToolError
from toolkit.logs import get_logger
from toolkit.runtime.backend import loop_waker, start_detached
from toolkit.schema.arguments import TooMuchWorkError
from toolkit.schema.raw_schema import RawSchema
from toolkit.serving.mcp.tasks import (
    ONLY_AS_TASK,
    TASKS_CAPABILITY,
    TASKS_EXTENSION,
    CallResult,
    CallTask,
    CallTasks,
    knows_tasks,
)
from toolkit.settings import check_setting, describe_value
from toolkit.tools.registry import ToolRegistry

_WRITTEN_AS_JSON = ("const", "enum", "format", "pattern")
"""Words by which the schema of a string is not that of a plain `str`: a date is written in quotes."""
_CHECKERS: WeakKeyDictionary[Registration[Any], RawSchema | None] = WeakKeyDictionary()
_logger = get_logger("toolkit.serving")

_WAITING_REPORTS = 64
_LONGEST_REPORT = 2_000
_LOG_LEVEL = "log level"
_LEVELS: tuple[wire.LoggingLevel, ...] = get_args(wire.LoggingLevel)  # in order of severity
_APPROVAL = "approval"
_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "description": "Whether the tool may run."}},
    "required": ["approve"],
}


CrashReport: TypeAlias = Literal["reference", "text"]
"""The words for clients of an exception that a tool raised by accident: its type and a reference, or its text."""

ContextMaker: TypeAlias = Callable[
    ["McpRequest"], Ctx | Awaitable[Ctx] | AbstractAsyncContextManager[Ctx] | AbstractContextManager[Ctx]
]
"""Makes the context of one request; a context manager is entered, and left when the request has been answered."""


class McpServerKeywords(TypedDict, total=False):
    """The keywords of `mcp_server`, which documents them."""

    name: str
    instructions: str | None
    crashes: CrashReport
    call_timeout: float | None
    task_after: float | None


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request of a client, as `context_for` gets it.

    Args:
        token: The verified access token; None without `auth`, and on standard input.
        headers: The HTTP headers, with names in lower case; empty on standard input.
        client: The name and version that the client gives itself. Nobody verifies them.
    """

    token: AccessToken | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    client: str
    _context: ServerRequestContext[Any, Any] = field(repr=False)
    _call: ClientCall | None = field(default=None, repr=False)  # None where no tool is called

    @property
    def user(self) -> str | None:
        """The subject of the token, or the client it was given to where it has none; None without a token."""
        return None if self.token is None else self.token.subject or self.token.client_id

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the token."""
        return frozenset() if self.token is None else frozenset(self.token.scopes)

    async def elicit(self, message: str, schema: Mapping[str, Any], *, name: str = "question") -> dict[str, Any] | None:
        """Ask the client's user for the fields of a flat object schema; return them, or None if the user declines.

        Since the revision of 2026 a client that knows no tasks can't be asked in the middle of a call. A tool that
        reads or is idempotent then runs again from its beginning, with the answer.

        Args:
            message: The question.
            schema: The schema.
            name: Distinguishes the questions of one call.

        Raises:
            ToolError: This client's user can't be asked, or is asked before the tool runs again.
        """
        if self._call is None:
            raise ToolError("The user can be asked in a call of a tool only.")
        answer = await self._call.ask(name, message, dict(schema))
        return dict(answer.content or {}) if answer.action == "accept" else None

    async def log(self, text: str, level: wire.LoggingLevel = "info") -> None:
        """Send a log message that belongs to this request; clients get the levels that they ask for, and tasks none."""
        if self._call is not None and self._call.is_task:
            return
        least = _find_connection(self._context).state.get(_LOG_LEVEL, _LEVELS[0])
        if _LEVELS.index(level) < _LEVELS.index(least):
            return
        with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):  # clients still ask for logs
            sending = self._context.session.send_log_message(  # pyright: ignore[reportDeprecated]
                level, text[:_LONGEST_REPORT], logger="tools", related_request_id=self._context.request_id
            )
        await sending


@overload
def mcp_server(
    registry: ToolRegistry[object], ctx: object = None, **options: Unpack[McpServerKeywords]
) -> Server[Any]: ...
@overload
def mcp_server(registry: ToolRegistry[Ctx], ctx: Ctx, **options: Unpack[McpServerKeywords]) -> Server[Any]: ...
@overload
def mcp_server(
    registry: ToolRegistry[Ctx],
    *,
    context_for: ContextMaker[Ctx],
    tools_for: Callable[[Ctx], ToolRegistry[Ctx]] | None = None,
    **options: Unpack[McpServerKeywords],
) -> Server[Any]: ...
def mcp_server(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    context_for: ContextMaker[Any] | None = None,
    tools_for: Callable[[Any], ToolRegistry[Any]] | None = None,
    name: str = "toolkit",
    instructions: str | None = None,
    crashes: CrashReport = "reference",
    call_timeout: float | None = 600,
    task_after: float | None = 10,
) -> Server[Any]:
    """Return the SDK's server for a registry, for a transport of your own; `serve_mcp` runs one.

    Clients see the registry's current tools, and are notified when it changes. A tool's reports become progress, if a
    client asks for it; a client that cancels a call cancels the tool. Tools that need approval are run when the
    client's user agrees: they are asked by elicitation, and where the client can't ask, the call is refused.

    Args:
        registry: Its permissions, limits and options apply.
        ctx: For each call.
        context_for: Makes the context of each request from its token and headers, in place of `ctx`. The text of a
            `ToolError` that it raises is sent to the client.
        tools_for: Returns the tools of a context, most simply a scope of the registry: ``lambda user:
            registry.only(*user.allowed)``. None offers all to everybody.
        name: The name of the server.
        instructions: A text about the server that clients may pass to their models.
        crashes: The part of an exception other than a `ToolError` that clients see: ``reference`` gives its type and a
            reference under which the log has the rest, as its text may hold paths, queries and keys; ``text`` gives
            all of it.
        call_timeout: Seconds for a call, after which it is cancelled; None for no limit. Tools may have shorter ones.
        task_after: Seconds after which a call becomes a task that the client polls, where the client knows the
            extension for tasks; clients of the revision of 2025-11-25 may ask for one with any call. None for no tasks.
            A tool with the tag ``task_only`` runs only as one. A task lives in the process in which the call was made.
    """
    check_setting("task_after", task_after, float, int, None)
    serving = RegistryServing(registry, ctx, context_for, tools_for, crashes, call_timeout)
    return serving.make_server(name, instructions, task_after)


@overload
async def serve_mcp(
    registry: ToolRegistry[object], ctx: object = None, **options: Unpack[McpServerKeywords]
) -> None: ...
@overload
async def serve_mcp(registry: ToolRegistry[Ctx], ctx: Ctx, **options: Unpack[McpServerKeywords]) -> None: ...
@overload
async def serve_mcp(
    registry: ToolRegistry[Ctx],
    *,
    context_for: ContextMaker[Ctx],
    tools_for: Callable[[Ctx], ToolRegistry[Ctx]] | None = None,
    **options: Unpack[McpServerKeywords],
) -> None: ...
async def serve_mcp(registry: ToolRegistry[Any], ctx: Any = None, **options: Any) -> None:
    """Serve a registry on standard input and output until the client closes them.

    ::

        anyio.run(serve_mcp, ToolRegistry([add]))

    Meanwhile, printed text goes to standard error. The arguments are those of `mcp_server`.
    """
    server = mcp_server(registry, ctx, **options)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _RegistryServer(Server[Any]):
    """Declares on every transport that its tools may change, and for older revisions that their calls may be tasks."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        notification_options = notification_options or NotificationOptions(tools_changed=True)
        options = super().create_initialization_options(notification_options, experimental_capabilities, extensions)
        if self.get_request_handler("tasks/get") is not None:
            options.capabilities.tasks = TASKS_CAPABILITY
        return options


class RegistryServing:
    """Lists and runs a registry's tools for the requests of a server."""

    def __init__(
        self,
        registry: ToolRegistry[Any],
        ctx: Any,
        context_for: ContextMaker[Any] | None,
        tools_for: Callable[[Any], ToolRegistry[Any]] | None,
        crashes: CrashReport,
        call_timeout: float | None,
    ) -> None:
        check_setting("crashes", crashes, "reference", "text")
        check_setting("call_timeout", call_timeout, float, int, None)
        if context_for is not None and ctx is not None:
            raise ConfigurationError("give ctx or context_for=, not both")

        def share_context(_: McpRequest) -> Any:
            return ctx

        self._registry = registry
        self._make_context = context_for or share_context
        self._tools_for = tools_for
        self._crashes: CrashReport = crashes
        self._call_timeout = call_timeout
        self._tasks: CallTasks | None = None
        self._bus = InMemorySubscriptionBus()
        self._older_connections: WeakSet[Connection] = WeakSet()

    def make_server(self, name: str, instructions: str | None, task_after: float | None) -> Server[Any]:
        """Return the SDK's server."""
        tasks = self._tasks = None if task_after is None else CallTasks(self.call_tool, task_after)

        async def call_tool(context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams) -> Any:
            return await (self.call_tool if tasks is None or not knows_tasks(context) else tasks.call)(context, params)

        @asynccontextmanager
        async def live(server: object) -> AsyncGenerator[dict[str, Any]]:
            try:
                async with self.announce_changes(server) as state:
                    yield state
            finally:
                if tasks is not None:
                    tasks.close()

        server = _RegistryServer(
            name,
            version="1",
            instructions=instructions,
            lifespan=live,
            on_list_tools=self._list_tools,
            on_call_tool=call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        server.add_request_handler("logging/setLevel", wire.SetLevelRequestParams, _set_log_level)
        # Binds a question about a call to its arguments and to the user who made it.
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=name))
        if tasks is not None:
            tasks.add_to(server)
        return server

    @asynccontextmanager
    async def announce_changes(self, server: object) -> AsyncGenerator[dict[str, Any]]:  # noqa: ARG002
        """Notify all clients of each change of the registry, whoever makes it, while the server runs."""
        wake_loop = loop_waker()
        send, receive = anyio.create_memory_object_stream[None](1)

        def note_change() -> None:
            with suppress(anyio.WouldBlock, anyio.ClosedResourceError):  # one that waits stands for all
                send.send_nowait(None)

        async def announce() -> None:
            with scope, receive:
                async for _ in receive:
                    await self._bus.publish(ToolsListChanged())
                    for connection in list(self._older_connections):
                        with suppress(Exception):  # a client that has gone
                            await connection.send_tool_list_changed()

        scope = anyio.CancelScope()
        try:
            with send, self._registry.watching(lambda: wake_loop(note_change)):
                start_detached(announce)  # servers around this leave their scopes in another order than a group allows
                yield {}
        finally:
            scope.cancel()

    @asynccontextmanager
    async def enter_context(
        self, context: ServerRequestContext[Any, Any], call: ClientCall | None = None
    ) -> AsyncGenerator[tuple[ToolRegistry[Any], Any]]:
        """Make what a request's user has: the tools and the context."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._older_connections.add(_find_connection(context))
        async with AsyncExitStack() as stack:
            try:
                ctx = await open_context(self._make_context(_read_request(context, call)), stack)
                tools = self._registry if self._tools_for is None else _check_tools(self._tools_for(ctx))
                registry = tools.for_context(ctx)
            except ToolError as error:
                raise MCPError(wire.INVALID_REQUEST, str(error)) from error
            except Exception as error:
                reference = secrets.token_hex(4)
                _logger.exception("reference %s: no context could be made for a request", reference)
                text = f"The server could not prepare this request. Its log has the reason, as {reference}."
                raise MCPError(wire.INTERNAL_ERROR, text) from error
            yield registry, ctx

    async def _list_tools(
        self,
        context: ServerRequestContext[Any, Any],
        params: wire.PaginatedRequestParams | None,  # noqa: ARG002 - as the SDK calls it
    ) -> wire.ListToolsResult:
        async with self.enter_context(context) as (registry, _):
            tools = [to_wire_tool(tool) for tool in registry.registrations.values()]
            for tool in tools if self._tasks is not None else ():
                is_only = ONLY_AS_TASK in registry.registrations[tool.name].options.tags
                tool.execution = wire.ToolExecution(task_support="required" if is_only else "optional")
            return wire.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams, task: CallTask | None = None
    ) -> CallResult:
        """Run a call of a request, or return the question that its user is asked first.

        Args:
            context: The request.
            params: The call.
            task: The task that the call is or may become; None where the client knows no tasks.
        """
        call = ClientCall(context, params, task)
        async with self.enter_context(context, call) as (registry, ctx):
            registration = registry.registrations.get(params.name)
            if registration is None:
                raise MCPError(wire.INVALID_PARAMS, f"Unknown tool: {params.name}")
            if ONLY_AS_TASK in registration.options.tags and self._tasks is not None:
                _require_task(call, task)
            call.is_repeatable = registration.options.idempotent or "read" in registration.options.tags
            with anyio.move_on_after(self._call_timeout):
                return await self._run_call(call, registration, registry, ctx)
        return _make_failure(f"The call took longer than {self._call_timeout:g} s, so it was cancelled.")

    async def _run_call(
        self, client_call: ClientCall, registration: Registration[Any], registry: ToolRegistry[Any], ctx: Any
    ) -> CallResult:
        context, params = client_call.context, client_call.params
        call = ToolCall(str(context.request_id), params.name, json.dumps(params.arguments or {}))
        send, receive = anyio.create_memory_object_stream[str](_WAITING_REPORTS)
        observer = _Reports(send, is_wanted=client_call.takes_reports)
        given: list[ToolResult] = []
        with receive:
            async with anyio.create_task_group() as tasks:
                if client_call.takes_reports:
                    tasks.start_soon(client_call.send_reports, receive)
                with send:
                    given.append(await registry.execute(call, ctx, approve=client_call.approve, observer=observer))
        if client_call.first is not None:
            return client_call.first
        if client_call.missing is not None:
            text = "The tool asks its user something, for which the client lacks a capability."
            raise _make_missing_error(text, client_call.missing)
        if isinstance(observer.crash, MCPError):
            raise observer.crash
        if observer.crash is not None and self._crashes == "reference":
            return _refer_to_log(observer.crash, call)
        return _make_result(given[0], observer.whole or given[0], registration)


def _require_task(call: ClientCall, task: CallTask | None) -> None:
    """Make a call a task; refuse it where the client knows no tasks, or does not ask for one."""
    if task is not None:
        task.become_task()
        return
    text = f"The tool {call.params.name} runs only as a task."
    if call.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise _make_missing_error(text, wire.ClientCapabilities(extensions={TASKS_EXTENSION: {}}))
    raise MCPError(wire.METHOD_NOT_FOUND, text)


def _make_missing_error(text: str, missing: wire.ClientCapabilities) -> MCPError:
    data = wire.MissingRequiredClientCapabilityErrorData(required_capabilities=missing)
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, text, data.model_dump(by_alias=True, exclude_none=True))


def _find_connection(context: ServerRequestContext[Any, Any]) -> Connection:
    return context.session._connection  # pyright: ignore[reportPrivateUsage]


async def _set_log_level(
    context: ServerRequestContext[Any, Any], params: wire.SetLevelRequestParams
) -> wire.EmptyResult:
    _find_connection(context).state[_LOG_LEVEL] = params.level
    return wire.EmptyResult()


def _read_request(context: ServerRequestContext[Any, Any], call: ClientCall | None) -> McpRequest:
    info = None if context.session.client_params is None else context.session.client_params.client_info
    headers = {} if context.request is None else dict(cast("Mapping[str, str]", context.request.headers))
    user = None if context.request is None else context.request.scope.get("user")
    return McpRequest(
        token=user.access_token if isinstance(user, AuthenticatedUser) else None,
        headers=headers,
        client="" if info is None else f"{info.name} {info.version}",
        _context=context,
        _call=call,
    )


def _check_tools(tools: object) -> ToolRegistry[Any]:
    if isinstance(tools, ToolRegistry):
        return tools  # pyright: ignore[reportUnknownVariableType]
    raise ConfigurationError(f"tools_for= returned {describe_value(tools)}, not a ToolRegistry")


class _Reports:
    """Takes the events of one call: its reports, its whole result, and its unexpected exception."""

    def __init__(self, send: MemoryObjectSendStream[str], *, is_wanted: bool) -> None:
        self._send = send
        self._is_wanted = is_wanted
        self.whole: ToolResult | None = None
        self.crash: BaseException | None = None

    async def emit(self, event: ToolEvent) -> None:
        """Deliver an event."""
        if isinstance(event, ToolExecutionEnd):
            self.whole, self.crash = event.result, event.error
        elif isinstance(event, ToolCallRefused):
            self.crash = event.error
        elif self._is_wanted and (text := _write_report(event)) is not None:
            await self._send.send(text)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Queue a report without waiting; if the queue is full, it is dropped."""
        if self._is_wanted and (text := _write_report(event)) is not None:
            with suppress(anyio.WouldBlock):
                self._send.send_nowait(text)


def _write_report(event: ToolEvent) -> str | None:
    match event:
        case ToolProgress(text=text):
            return text[:_LONGEST_REPORT]
        case ToolExecutionUpdate(output=output):
            return output.text[:_LONGEST_REPORT]
        case _:
            return None


class _UnaskedError(ToolError):
    """A question has no answer: it can't be asked, or is asked before the call is repeated."""

    def __init__(self, text: str, missing: wire.ClientCapabilities | None = None) -> None:
        super().__init__(text)
        self.missing = missing


class ClientCall:
    """One call of a client's: its reports, and the questions to its user.

    Up to the revision of 2025, and in tasks, the server asks in the middle of the call. Otherwise a call that may be
    repeated is answered with the question, and repeated with the user's answer. The state that comes back with it has
    earlier answers, and is sealed.

    Attributes:
        first: The answer to the call, where its user is to be asked first.
        missing: The capability that the client lacks for a question of the tool.
        is_repeatable: True if the tool may run again from its beginning.
    """

    def __init__(
        self, context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams, task: CallTask | None
    ) -> None:
        self.context = context
        self.params = params
        self._task = task
        self._token: str | int | None = (context.meta or {}).get("progress_token")
        self.first: wire.InputRequiredResult | None = None
        self.missing: wire.ClientCapabilities | None = None
        self.is_repeatable = False

    @property
    def is_task(self) -> bool:
        """True if the request has been answered with a task."""
        return self._task is not None and self._task.is_task

    @property
    def takes_reports(self) -> bool:
        """True if the client may see reports of the tool."""
        return self._token is not None or self._task is not None

    async def send_reports(self, reports: MemoryObjectReceiveStream[str]) -> None:
        """Send reports as progress of the request, and show them as the state of the task."""
        count = 0
        async for text in reports:
            if self._task is not None:
                self._task.note(text)
            if self._token is not None and not self.is_task:
                count += 1
                params = wire.ProgressNotificationParams(progress_token=self._token, progress=count, message=text)
                await self.context.session.send_notification(
                    wire.ProgressNotification(params=params), related_request_id=self.context.request_id
                )

    async def approve(self, request: ApprovalRequest) -> Approval:
        """Approve calls that need no consent; ask about the others."""
        if not request.reason:
            return Approve()
        question = f"{request.reason} Run it with {request.preview}?"
        # The call itself has not begun; a call that its tool makes, such as a sub-agent's, is asked about in its run.
        is_own = not request.agent and request.call_id == str(self.context.request_id)
        try:
            answer = await self._ask_user(_APPROVAL, question, _APPROVAL_SCHEMA, is_repeatable=is_own)
        except _UnaskedError:
            return Deny(f"{request.reason} This client can't ask its user, so it was not run.")
        if answer.action == "accept" and (answer.content or {}).get("approve") is True:
            return Approve()
        return Deny("The user did not approve this call, so it was not run.")

    async def ask(self, name: str, message: str, schema: dict[str, Any]) -> wire.ElicitResult:
        """Ask what a tool wants to know.

        Raises:
            ToolError: The user can't be asked, or is asked before the call is repeated.
        """
        if name == _APPROVAL:
            raise ToolError(f"A question of a tool can't be named {name!r}.")
        try:
            return await self._ask_user(name, message, schema, is_repeatable=self.is_repeatable)
        except _UnaskedError as error:
            self.missing = error.missing
            raise

    async def _ask_user(
        self, name: str, message: str, schema: dict[str, Any], *, is_repeatable: bool
    ) -> wire.ElicitResult:
        session = self.context.session
        capabilities = session.client_capabilities
        is_modern = self.context.protocol_version in MODERN_PROTOCOL_VERSIONS
        missing: wire.ClientCapabilities | None = None
        if capabilities is None or capabilities.elicitation is None:
            missing = wire.ClientCapabilities(elicitation=wire.ElicitationCapability())
        elif is_modern and is_repeatable and not self.is_task:
            return self._ask_first(name, message, schema)
        elif self._task is not None:
            return await self._task.ask(message, schema)
        elif is_modern:
            missing = wire.ClientCapabilities(extensions={TASKS_EXTENSION: {}})
        elif session.can_send_request:
            return await session.elicit_form(message, schema, self.context.request_id)
        text = "This needs an answer of the user, and the client can't ask in the middle of a call."
        raise _UnaskedError(text, missing if is_modern else None)

    def _ask_first(self, name: str, message: str, schema: dict[str, Any]) -> wire.ElicitResult:
        """Return the answer that came with the call, or let it be answered with the question."""
        try:
            state = _Asked.model_validate_json(self.params.request_state or "{}")
        except ValidationError as error:
            raise MCPError(wire.INVALID_PARAMS, "The state of the call can't be read.") from error
        answers, given = dict(state.answers), (self.params.input_responses or {}).get(state.name)
        if isinstance(given, wire.ElicitResult):
            answers[state.name] = given
        if name in answers:
            return answers[name]
        asked = wire.ElicitRequest(params=wire.ElicitRequestFormParams(message=message, requested_schema=schema))
        following = _Asked(name=name, answers=answers).model_dump_json(exclude_none=True)
        self.first = wire.InputRequiredResult(input_requests={name: asked}, request_state=following)
        raise _UnaskedError("The user is asked first.")


class _Asked(BaseModel):
    """The state of a call that is repeated: the name of the open question, and earlier answers."""

    name: str = ""
    answers: dict[str, wire.ElicitResult] = Field(default_factory=dict[str, wire.ElicitResult])


def to_wire_tool(registration: Registration[Any]) -> wire.Tool:
    """Return a tool as the protocol shows it."""
    definition, options = registration.definition, registration.options
    hints = wire.ToolAnnotations(
        title=options.label or None,
        read_only_hint=True if "read" in options.tags else None,
        destructive_hint=True if "destructive" in options.tags else None,
        idempotent_hint=True if options.idempotent else None,
        open_world_hint=True if "open_world" in options.tags else None,
    )
    return wire.Tool(
        name=definition.name,
        title=options.label or None,
        description=definition.description,
        input_schema=dict(definition.parameters),
        output_schema=_to_object_schema(definition.output_schema),
        annotations=hints,
    )


def _is_object_schema(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _to_object_schema(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an output's schema as MCP has them, about an object: another value is its property ``result``."""
    if schema is None or _is_object_schema(schema):
        return None if schema is None else dict(schema)
    inner = {name: part for name, part in schema.items() if name != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    outer["x-fastmcp-wrap-result"] = True  # its client then unwraps the value
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _make_result(result: ToolResult, whole: ToolResult, registration: Registration[Any]) -> wire.CallToolResult:
    schema = registration.definition.output_schema
    structured: object = None
    if schema is not None and not result.is_error:
        checker = _find_checker(registration)
        readings = list(_read_text(whole.text, schema))
        if not _is_object_schema(schema):
            readings = [{"result": value} for value in readings]
        valid = [value for value in readings if checker is None or _is_accepted(checker, value)]
        if not valid:
            return _make_failure(f"The tool's output does not fit its output schema: {result.text}")
        structured = valid[0]
    content = [TextBlock(result.content)] if isinstance(result.content, str) else result.content
    blocks = [_write_block(block) for block in content]
    return wire.CallToolResult(content=blocks, structured_content=structured, is_error=result.is_error)


def _find_checker(registration: Registration[Any]) -> RawSchema | None:
    """Return what checks the structured content of a tool, made at its first call; None where nothing can."""
    if registration not in _CHECKERS:
        _CHECKERS[registration] = None
        schema = _to_object_schema(registration.definition.output_schema)
        with suppress(SchemaError):  # of a tool of somebody else, which is offered here
            if schema is not None:
                _CHECKERS[registration] = RawSchema(schema, subject=f"tool '{registration.name}'")
    return _CHECKERS[registration]


def _read_text(text: str, schema: Mapping[str, Any]) -> Iterator[object]:
    """Yield the values that the text of a result may stand for, the likelier first."""
    if is_nothing(text):
        yield None
    arms: list[Mapping[str, Any]] = schema.get("anyOf") or [schema]
    if any(arm.get("type") == "string" and arm.keys().isdisjoint(_WRITTEN_AS_JSON) for arm in arms):
        yield text
    with suppress(ValueError):
        # The text may go on after the JSON, with a note.
        yield json.JSONDecoder().raw_decode(text)[0]
    yield text


def _is_accepted(schema: RawSchema, value: object) -> bool:
    try:
        return schema.is_valid(value)
    except (TooMuchWorkError, RecursionError, ValueError, TypeError):
        return False


def _refer_to_log(crash: BaseException, call: ToolCall) -> wire.CallToolResult:
    reference = secrets.token_hex(4)
    _logger.error("reference %s: tool %s raised in call %s", reference, call.name, call.id, exc_info=crash)
    return _make_failure(f"{type(crash).__name__}: the tool failed. The server's log has the rest, as {reference}.")


def _make_failure(text: str) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], is_error=True)


def _write_block(block: ContentBlock) -> wire.ContentBlock:
    match block:
        case TextBlock(text):
            return wire.TextContent(type="text", text=text)
        case ImageBlock(data) if data is not None:
            return wire.ImageContent(type="image", data=_encode_base64(data), mime_type=block.media_type)
        case AudioBlock(data):
            return wire.AudioContent(type="audio", data=_encode_base64(data), mime_type=block.media_type)
        case FileBlock(data) if data is not None:
            contents = wire.BlobResourceContents(
                uri=f"file:///{quote(block.name)}", blob=_encode_base64(data), mime_type=block.media_type
            )
            return wire.EmbeddedResource(type="resource", resource=contents)
        case ImageBlock() | FileBlock():
            name = block.name if isinstance(block, FileBlock) else "image"
            return wire.ResourceLink(
                type="resource_link", name=name, uri=block.url or "about:blank", mime_type=block.media_type
            )
        case _ as never:
            assert_never(never)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
