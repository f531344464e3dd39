"""Calls that go on after their request was answered with a task: clients poll it, answer its questions, and cancel it.

In the revision of 2025-11-25 a client asks for a task with its call. Since 2026 tasks are an extension: a call that
takes long, or asks its user something, becomes a task where the client knows them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import mcp.types as wire
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import principal_components
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver.server import require_client_extension
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.shared.message import ServerMessageMetadata
from mcp.types.jsonrpc import HEADER_MISMATCH
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError

from toolkit.dataclass import dataclass
from toolkit.logs import get_logger
from toolkit.runtime.backend import start_detached

_logger = get_logger("toolkit.serving")
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
_RELATED_TASK = "io.modelcontextprotocol/related-task"
_REVISION = "2025-11-25"
_POLL_MILLISECONDS = 1_000
_RESULT_SECONDS = 600
_MOST_TASKS = 1_000

_PAGE = 50
_LONGEST_CURSOR = 15

ONLY_AS_TASK = "task_only"
"""The tag of tools that run only as tasks."""

TASKS_CAPABILITY = wire.ServerTasksCapability(
    list=wire.TasksListCapability(),
    cancel=wire.TasksCancelCapability(),
    requests=wire.ServerTasksRequestsCapability(tools=wire.TasksToolsCapability(call=wire.TasksCallCapability())),
)

CallResult: TypeAlias = wire.CallToolResult | wire.InputRequiredResult
Context: TypeAlias = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class _Question:
    request: wire.ElicitRequest
    answers: list[wire.ElicitResult] = field(default_factory=list[wire.ElicitResult])
    answered: anyio.Event = field(default_factory=anyio.Event)


class CallTask:
    """A call that is a task, or may become one.

    Args:
        owner: The user whose call it is; None where users are not distinguished.
        lister: The user, or else the session, for whom it is listed; None where it is listed for nobody.
        number: The place in the list.
    """

    def __init__(self, owner: object, lister: object, number: int) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.lister = lister
        self.number = number
        self.is_task = False
        self.ended: float | None = None
        self._created = self._updated = _read_clock()
        self._message: str | None = None
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._outcome: CallResult | MCPError | None = None
        self._scope = anyio.CancelScope()
        self._changed = anyio.Event()

    async def run(self, make: Callable[[CallTask], Awaitable[CallResult]]) -> None:
        """Run the call to its end, whatever that is."""
        try:
            with self._scope:
                outcome = await make(self)
                while self.is_task and isinstance(outcome, wire.InputRequiredResult):
                    outcome = await make(self)  # the question was for the request: now the task asks it
                self._outcome = outcome
        except MCPError as error:
            self._outcome = error
        except Exception as error:
            _logger.exception("a call failed")
            self._outcome = MCPError(wire.INTERNAL_ERROR, f"The call failed: {type(error).__name__}.")
        finally:
            self.ended = time.monotonic()
            self._questions.clear()
            self._note_change()

    def become_task(self) -> None:
        """Have the request answered with a task, however short the call is."""
        self.is_task = True
        self._note_change()

    def cancel(self) -> None:
        """Cancel the call."""
        self._scope.cancel()

    def note(self, text: str) -> None:
        """Show a report of the tool as the state of the task."""
        self._message, self._updated = text, _read_clock()

    async def ask(self, message: str, schema: dict[str, Any]) -> wire.ElicitResult:
        """Ask the client's user in the middle of the call, which thereby becomes a task."""
        self._asked += 1
        key = f"question-{self._asked}"
        params = wire.ElicitRequestFormParams(message=message, requested_schema=schema)
        params.meta = cast("Any", {_RELATED_TASK: {"taskId": self.id}})
        question = self._questions[key] = _Question(wire.ElicitRequest(params=params))
        self._note_change()
        try:
            await question.answered.wait()
        finally:
            self._questions.pop(key, None)
            self._note_change()
        return question.answers[0]

    def answer(self, key: str, given: object) -> None:
        """Take the answer to an open question; any other is ignored.

        Raises:
            MCPError: It is no answer.
        """
        if key not in self._questions:
            return
        try:
            answer = wire.ElicitResult.model_validate(given, by_name=False)
        except ValidationError as error:
            raise MCPError(wire.INVALID_PARAMS, f"The response {key!r} is no answer to an elicitation.") from error
        question = self._questions.pop(key)
        question.answers.append(answer)
        question.answered.set()
        self._note_change()

    async def wait_for_task(self) -> None:
        """Wait until the call asks something, or is to be a task, or has ended."""
        await self._wait_until(lambda: self.is_task or bool(self._questions))

    async def wait_for_question(self) -> tuple[str, wire.ElicitRequest] | None:
        """Wait until the call asks something, and return the oldest open question; None when it has ended."""
        await self._wait_until(lambda: bool(self._questions))
        return next(((key, question.request) for key, question in self._questions.items()), None)

    async def wait_for_end(self) -> None:
        """Wait until the call has ended."""
        await self._wait_until(lambda: False)

    async def _wait_until(self, has_come: Callable[[], bool]) -> None:
        while self.ended is None and not has_come():
            await self._changed.wait()

    def read_outcome(self) -> CallResult:
        """Return the result of the call, which has ended.

        Raises:
            MCPError: It failed, or was cancelled.
        """
        if self._outcome is None:
            raise MCPError(wire.INVALID_REQUEST, "The task was cancelled.")
        if isinstance(self._outcome, MCPError):
            raise self._outcome
        return self._outcome

    def describe(self, *, is_modern: bool) -> dict[str, Any]:
        """Return the state of the task, as a revision of the protocol shows it."""
        state: dict[str, Any] = {"taskId": self.id, "createdAt": self._created, "lastUpdatedAt": self._updated}
        suffix = "Ms" if is_modern else ""
        state |= {f"ttl{suffix}": None, f"pollInterval{suffix}": _POLL_MILLISECONDS}
        if self._message is not None:
            state["statusMessage"] = self._message
        if self.ended is None:
            state["status"] = "input_required" if self._questions else "working"
            if is_modern and self._questions:
                state["inputRequests"] = {key: _dump_model(each.request) for key, each in self._questions.items()}
        elif self._outcome is None:
            state["status"] = "cancelled"
        elif isinstance(self._outcome, MCPError):
            state["status"] = "failed"
            state |= {"error": _dump_model(self._outcome.error)} if is_modern else {"statusMessage": str(self._outcome)}
        else:
            is_failure = not is_modern and isinstance(self._outcome, wire.CallToolResult) and self._outcome.is_error
            state["status"] = "failed" if is_failure else "completed"
            state |= {"result": _dump_model(self._outcome)} if is_modern else {}
        return state

    def _note_change(self) -> None:
        self._updated = _read_clock()
        self._changed.set()
        self._changed = anyio.Event()


def _read_clock() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _dump_model(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


TaskMaker: TypeAlias = Callable[[Context, wire.CallToolRequestParams, CallTask], Awaitable[CallResult]]
"""Runs a call of a request, which may become a task."""


class _TaskParams(wire.RequestParams):
    task_id: str
    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


class CallTasks:
    """The tasks of a server; each belongs to the user whose call it was.

    Results are available for 10 minutes; where a user has more than 1,000 tasks, the oldest results go first.

    Args:
        call: Runs a call of a request.
        after: Seconds after which a call becomes a task, where the client knows the extension.
    """

    def __init__(self, call: TaskMaker, after: float) -> None:
        self._call = call
        self._after = after
        self._tasks: dict[str, CallTask] = {}
        self._begun = 0

    def add_to(self, server: Server[Any]) -> None:
        """Serve the requests about tasks."""
        server.extensions[TASKS_EXTENSION] = {}
        server.middleware.append(self._create_task)
        handlers = {
            "get": self._get_task,
            "update": self._update_task,
            "cancel": self._cancel_task,
            "result": self._get_result,
        }
        for name, handler in handlers.items():
            server.add_request_handler(f"tasks/{name}", _TaskParams, handler)
        server.add_request_handler("tasks/list", wire.PaginatedRequestParams, self._list_tasks)

    def close(self) -> None:
        """Cancel all calls."""
        for task in self._tasks.values():
            task.cancel()

    async def call(self, context: Context, params: wire.CallToolRequestParams) -> CallResult | dict[str, Any]:
        """Run a call; return a task where it takes long or asks something."""
        task = self._start_call(context, params)
        try:
            with anyio.move_on_after(self._after):
                await task.wait_for_task()
        except BaseException:
            task.cancel()
            raise
        if task.ended is not None and not task.is_task:
            return task.read_outcome()
        self._announce_task(task)
        return {**task.describe(is_modern=True), "resultType": "task"}

    async def _create_task(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a call of a client that asks for a task: the SDK would pass on nothing but results."""
        if ctx.method != "tools/call" or ctx.protocol_version != _REVISION:
            return await call_next(ctx)
        params = wire.CallToolRequestParams.model_validate(ctx.params, by_name=False)
        if params.task is None:
            return await call_next(ctx)
        task = self._start_call(ctx, params)
        self._announce_task(task)
        return {"task": task.describe(is_modern=False)}

    def _start_call(self, context: Context, params: wire.CallToolRequestParams) -> CallTask:
        self._begun += 1
        task = CallTask(_find_owner(context), _find_lister(context), self._begun)
        start_detached(partial(task.run, partial(self._call, context, params)))
        return task

    def _announce_task(self, task: CallTask) -> None:
        """Make a call findable by its id.

        Raises:
            MCPError: Its user has too many; the call is cancelled.
        """
        overdue = time.monotonic() - _RESULT_SECONDS
        for each in [each for each in self._tasks.values() if each.ended is not None and each.ended < overdue]:
            del self._tasks[each.id]
        owned = [each for each in self._tasks.values() if each.owner == task.owner]
        if len(owned) >= _MOST_TASKS:
            ended = next((each for each in owned if each.ended is not None), None)
            if ended is None:
                task.cancel()
                raise MCPError(wire.INVALID_REQUEST, f"More than {_MOST_TASKS} tasks of this user are running.")
            del self._tasks[ended.id]
        self._tasks[task.id] = task
        task.is_task = True

    def _find_task(self, context: Context, params: _TaskParams) -> CallTask:
        if _is_modern(context):
            require_client_extension(context, TASKS_EXTENSION)
            named = None if context.request is None else context.request.headers.get(MCP_NAME_HEADER)
            if named is not None and decode_header_value(named) != params.task_id:
                raise MCPError(HEADER_MISMATCH, "The header Mcp-Name names another task than the request.")
        else:
            _check_revision(context)
        task = self._tasks.get(params.task_id)
        if task is None or task.owner != _find_owner(context):
            raise MCPError(wire.INVALID_PARAMS, "There is no such task, or not any more.")
        return task

    async def _get_task(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        return self._find_task(context, params).describe(is_modern=_is_modern(context))

    async def _list_tasks(self, context: Context, params: wire.PaginatedRequestParams) -> dict[str, Any]:
        """Return a page of the tasks of this user, the oldest first; in later revisions nobody may list any."""
        _check_revision(context)
        cursor, lister = params.cursor or "0", _find_lister(context)
        if not (cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR):
            raise MCPError(wire.INVALID_PARAMS, "The cursor is none that this server gave.")
        behind = [each for each in self._tasks.values() if each.lister == lister and each.number > int(cursor)]
        page = behind[:_PAGE] if lister is not None else []
        following = {"nextCursor": str(page[-1].number)} if len(behind) > len(page) > 0 else {}
        return {"tasks": [task.describe(is_modern=False) for task in page], **following}

    async def _update_task(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        task = self._find_task(context, params)
        for key, answer in params.input_responses.items():
            task.answer(key, answer)
        return {}

    async def _cancel_task(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        task, is_modern = self._find_task(context, params), _is_modern(context)
        if task.ended is not None and not is_modern:
            raise MCPError(wire.INVALID_PARAMS, "The task has ended.")
        task.cancel()
        if is_modern:
            return {}
        await task.wait_for_end()
        return task.describe(is_modern=False)

    async def _get_result(self, context: Context, params: _TaskParams) -> dict[str, Any]:
        """Ask what the call asks, and return its result when it ends."""
        _check_revision(context)
        task = self._find_task(context, params)
        while (question := await task.wait_for_question()) is not None:
            key, request = question
            metadata = ServerMessageMetadata(related_request_id=context.request_id)
            task.answer(key, await context.session.send_request(request, wire.ElicitResult, metadata=metadata))
        result = _dump_model(task.read_outcome())
        return {**result, "_meta": {**result.get("_meta", {}), _RELATED_TASK: {"taskId": task.id}}}


def knows_tasks(context: Context) -> bool:
    """Return whether the client of a request knows the extension, so that any call may become a task."""
    capabilities = context.session.client_capabilities
    return _is_modern(context) and capabilities is not None and TASKS_EXTENSION in (capabilities.extensions or {})


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _check_revision(context: Context) -> None:
    if context.protocol_version != _REVISION:
        raise MCPError(wire.METHOD_NOT_FOUND, "Method not found", context.method)


def _find_lister(context: Context) -> object:
    """Return the user, or else the session, of a request: over pipes all are of one."""
    if context.request is None:
        return True
    return _find_owner(context) or context.request.headers.get(MCP_SESSION_ID_HEADER)


def _find_owner(context: Context) -> object:
    user = None if context.request is None else context.request.scope.get("user")
    return principal_components(user.access_token) if isinstance(user, AuthenticatedUser) else None
