"""Calls that a server answers with a task, which is polled to its end; its questions are answered on the way.

In the revision of 2025-11-25 a client asks for a task, and some tools run in no other way. Since 2026 tasks are an
extension, and the server decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import anyio
import mcp.types as wire
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AliasChoices, Field

from toolkit.schema.nodes import is_object

EXTENSION = "io.modelcontextprotocol/tasks"

_MARK = "toolkit/task"
_SHORTEST_PAUSE = 0.05
_DEFAULT_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_CANCEL_SECONDS = 5.0


class Task(wire.Result):
    """A task as servers of either revision describe it.

    Args:
        task_id: Its id on the server.
        status: Its state.
        status_message: A text about the state.
        pause: Milliseconds between two polls, as the server suggests them.
        result: The result of the call, once it is complete; in later revisions only.
        error: The reason of a failure; in later revisions only.
        input_requests: The open questions, by key; in later revisions only.
    """

    task_id: str
    status: wire.TaskStatus
    status_message: str | None = None
    pause: float | None = Field(default=None, validation_alias=AliasChoices("pollIntervalMs", "pollInterval"))
    result: dict[str, Any] | None = None
    error: wire.ErrorData | None = None
    input_requests: wire.InputRequests | None = None


class _TaskPage(wire.PaginatedResult):
    tasks: list[Task]


class _GetTask(wire.GetTaskRequest):
    name_param = "taskId"


class _CancelTask(wire.CancelTaskRequest):
    name_param = "taskId"


class _UpdateTaskParams(wire.RequestParams):
    task_id: str
    input_responses: wire.InputResponses


class _UpdateTask(wire.Request[_UpdateTaskParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateTaskParams
    name_param = "taskId"


def mark_task(result: dict[str, Any]) -> None:
    """Turn the creation of a task into the result of a call, which `find_task` recognizes.

    The SDK accepts no other result of a call, in any revision.
    """
    created: object = result if result.get("resultType") == "task" else result.get("task")
    if is_object(created) and "content" not in result and "taskId" in created:
        marked: dict[str, Any] = {"content": [], "resultType": "complete", "_meta": {_MARK: dict(created)}}
        result.clear()
        result.update(marked)


def find_task(result: wire.CallToolResult) -> wire.CallToolResult | Task:
    """Return the result of a call, or the task with which the server answered it.

    Raises:
        ValidationError: The server's description of the task can't be read.
    """
    created: object = (result.meta or {}).get(_MARK)
    return result if created is None else Task.model_validate(created, by_name=False)


async def call_as_task(client: Client, name: str, arguments: dict[str, Any]) -> wire.CallToolResult:
    """Call a tool of the revision of 2025-11-25 that runs only as a task."""
    params = wire.CallToolRequestParams(name=name, arguments=arguments, task=wire.TaskMetadata())
    return await client.session.send_request(wire.CallToolRequest(params=params), wire.CallToolResult)


async def read_task_page(client: Client, cursor: str | None) -> tuple[list[Task], str | None]:
    """Return a page of the tasks of this user, in the revision of 2025-11-25, and the next cursor."""
    request = wire.ListTasksRequest(params=wire.PaginatedRequestParams(cursor=cursor))
    page = await client.session.send_request(request, _TaskPage)
    return page.tasks, page.next_cursor


def takes_tasks(client: Client) -> bool:
    """Return whether tools that run only as tasks can be called on this connection."""
    tasks = client.server_capabilities.tasks
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS or tasks is None or tasks.requests is None:
        return False
    return tasks.requests.tools is not None and tasks.requests.tools.call is not None


class TaskFollower:
    """Follows one task, over several connections if need be.

    Args:
        task: The task.
        report: Receives the texts about its state.
    """

    def __init__(self, task: Task, report: Callable[[str], object]) -> None:
        self._task = task
        self._report = report
        self._answered: set[str] = set()

    async def follow(self, client: Client) -> wire.CallToolResult:
        """Return the result of the call; cancel the task if this is cancelled or a question can't be answered.

        Raises:
            MCPError: The server refused a request, or a question can't be answered.
        """
        try:
            return await self._poll_task(client)
        except (anyio.get_cancelled_exc_class(), _UnansweredError):
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCEL_SECONDS), suppress(Exception):
                params = wire.CancelTaskRequestParams(task_id=self._task.task_id)
                await client.session.send_request(_CancelTask(params=params), wire.Result)
            raise

    async def _poll_task(self, client: Client) -> wire.CallToolResult:
        task, is_modern = self._task, client.protocol_version in MODERN_PROTOCOL_VERSIONS
        shown = None
        while True:
            if task.status_message and task.status_message != shown:
                shown = task.status_message
                self._report(shown)
            if task.status == "cancelled":
                return _make_failure("The server has cancelled the task of this call.")
            if task.status != "working" and not is_modern:  # questions come while the result is waited for
                request = wire.GetTaskPayloadRequest(params=wire.GetTaskPayloadRequestParams(task_id=task.task_id))
                return await client.session.send_request(request, wire.CallToolResult)
            if task.status == "completed":
                return wire.CallToolResult.model_validate(task.result or {}, by_name=False)
            if task.status == "failed":
                reason = task.error.message if task.error is not None else task.status_message
                return _make_failure(f"The task of this call failed: {reason or 'the server does not say why'}")
            if task.status == "input_required":
                await self._answer_questions(client, task)
            await anyio.sleep(_read_pause(task.pause))
            params = wire.GetTaskRequestParams(task_id=task.task_id)
            task = await client.session.send_request(_GetTask(params=params), Task)

    async def _answer_questions(self, client: Client, task: Task) -> None:
        """Answer the questions of a task that were not answered before."""
        for key, request in (task.input_requests or {}).items():
            if key in self._answered:
                continue
            context = ClientRequestContext(session=client.session, request_id=key)
            answer = await client.session.dispatch_input_request(context, request)
            if isinstance(answer, wire.ErrorData):
                raise _UnansweredError(answer.code, answer.message)
            params = _UpdateTaskParams(task_id=task.task_id, input_responses={key: answer})
            await client.session.send_request(_UpdateTask(params=params), wire.Result)
            self._answered.add(key)


def _make_failure(text: str) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], is_error=True)


class _UnansweredError(MCPError):
    """A question of a task can't be answered here."""


def _read_pause(milliseconds: float | None) -> float:
    """Return the seconds until the next poll: the server's suggestion, within bounds."""
    seconds = _DEFAULT_PAUSE if milliseconds is None or math.isnan(milliseconds) else milliseconds / 1_000
    return min(max(seconds, _SHORTEST_PAUSE), _LONGEST_PAUSE)
