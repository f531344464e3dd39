"""Calls that a server answers with a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp.types as wire
import pytest
from mcp import MCPError
from mcp.server import Server
from pydantic import Field

from tests.sources.mcp.memory_server import MemoryServer, listed, text
from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop
from toolkit.events import ToolProgress
from toolkit.sources import ServerLimits
from toolkit.sources.mcp import Elicitation, McpTools, mcp_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Whose?", "requestedSchema": FORM}}
DONE: dict[str, Any] = {"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}}


class _TaskParams(wire.RequestParams):
    task_id: str
    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


@dataclass
class TaskServer(MemoryServer):
    """A server that answers each call with a task, whose states are given.

    Attributes:
        states: The answers to polls; the last one is repeated.
        requests: The requests about tasks.
        on_poll: Called at each poll.
    """

    states: list[dict[str, Any]] = field(default_factory=lambda: [DONE])
    requests: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    on_poll: Callable[[], None] = lambda: None
    task_id: Any = "task 1"
    can_cancel: bool = True

    def _made(self) -> Server[Any]:
        server = super()._made()
        server.extensions[EXTENSION] = {}

        def describe(state: dict[str, Any]) -> dict[str, Any]:
            times = {"createdAt": "2026-11-28T00:00:00Z", "lastUpdatedAt": "2026-11-28T00:00:00Z", "ttlMs": None}
            return {"taskId": self.task_id, **times, "pollIntervalMs": 1, **state}

        async def answer(ctx: Any, call_next: Any) -> Any:
            if ctx.method != "tools/call":
                return await call_next(ctx)
            self.calls.append(ctx.params["name"])
            return describe({"status": "working", "resultType": "task"})

        async def get(ctx: Any, params: _TaskParams) -> dict[str, Any]:
            self.requests.append(("get", params.task_id, None))
            self.on_poll()
            return describe(self.states.pop(0) if len(self.states) > 1 else self.states[0])

        async def update(ctx: Any, params: _TaskParams) -> dict[str, Any]:
            self.requests.append(("update", params.task_id, params.input_responses))
            return {}

        async def cancel(ctx: Any, params: _TaskParams) -> dict[str, Any]:
            self.requests.append(("cancel", params.task_id, None))
            return {}

        server.middleware.append(answer)
        for name, handler in (("get", get), ("update", update), ("cancel", cancel)):
            if name == "cancel" and not self.can_cancel:
                continue
            server.add_request_handler(f"tasks/{name}", _TaskParams, handler)
        return server

    def names(self) -> list[str]:
        return [name for name, *_ in self.requests]


def make_server(*states: dict[str, Any]) -> TaskServer:
    async def never(ctx: Any, arguments: dict[str, Any]) -> wire.CallToolResult:
        raise AssertionError

    return TaskServer([(listed("long"), never)], states=list(states) or [DONE])


async def call(tools: McpTools) -> ToolResult:
    with anyio.fail_after(240):
        return await ToolRegistry(tools).execute(ToolCall("1", "long", "{}"))


async def test_a_call_that_became_a_task_is_followed_to_its_result_and_its_states_are_progress() -> None:
    working = {"status": "working", "statusMessage": "half way"}
    server = make_server(working, working, DONE)
    events: list[object] = []
    provider = ScriptedProvider([ToolCall("1", "long", "{}"), "It is done."])
    with anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            config = ToolLoopConfig(on_event=events.append)
            outcome = await tool_loop(provider, ToolRegistry(tools), "Work.", config=config)
    assert outcome.messages[2].text == "done"
    assert server.calls == ["long"]
    assert server.names() == ["get", "get", "get"]
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["half way"]


@dataclass
class End:
    name: str
    state: dict[str, Any]
    text: str


@pytest.mark.parametrize(
    "case",
    [
        End(
            "failed",
            {"status": "failed", "error": {"code": -32603, "message": "no disk"}},
            "The task of this call failed: no disk",
        ),
        End("failed without a word", {"status": "failed"}, "The task of this call failed: the server does not say why"),
        End("cancelled", {"status": "cancelled"}, "The server has cancelled the task of this call."),
        End("complete without a result", {"status": "completed"}, "is not MCP"),
        End("no known state", {"status": "gone"}, "is not MCP"),
        End(
            "an error of the tool",
            {"status": "completed", "result": text("bad", is_error=True).model_dump(by_alias=True)},
            "bad",
        ),
    ],
    ids=lambda case: case.name,
)
async def test_a_task_without_a_result_is_an_error_that_says_why(case: End) -> None:
    async with mcp_tools(make_server(case.state)) as tools:
        result = await call(tools)
    assert result.is_error
    assert case.text in result.text


async def test_a_question_of_a_task_is_answered_once() -> None:
    asking = {"status": "input_required", "inputRequests": {"q1": QUESTION}}
    server = make_server(asking, asking, {"status": "working"}, asking, DONE)
    asked: list[str] = []

    def answer(question: Elicitation) -> dict[str, str]:
        asked.append(question.message)
        return {"name": "Ada"}

    async with mcp_tools(server, elicitation=answer) as tools:
        result = await call(tools)
    assert result.text == "done"
    assert asked == ["Whose?"]
    assert [sent for name, _, sent in server.requests if name == "update"] == [
        {"q1": {"action": "accept", "content": {"name": "Ada"}}}
    ]


async def test_a_question_that_can_not_be_answered_cancels_the_task() -> None:
    server = make_server({"status": "input_required", "inputRequests": {"q1": QUESTION}})
    async with mcp_tools(server) as tools:
        result = await call(tools)
    assert result.is_error
    assert "Elicitation not supported" in result.text
    assert server.names() == ["get", "cancel"]


async def test_a_call_that_takes_too_long_cancels_its_task() -> None:
    server = make_server({"status": "working"})
    async with mcp_tools(server, limits=ServerLimits(timeout=0.2)) as tools:
        result = await call(tools)
    assert result.is_error
    assert server.names()[-1] == "cancel"
    assert server.names().count("cancel") == 1


async def test_a_call_that_takes_too_long_is_one_though_its_task_can_not_be_cancelled() -> None:
    server = make_server({"status": "working"})
    server.can_cancel = False
    async with mcp_tools(server, limits=ServerLimits(timeout=0.2)) as tools:
        result = await call(tools)
    assert "timed out" in result.text


async def test_a_task_that_can_not_be_read_is_an_error() -> None:
    server = make_server()
    server.task_id = 7
    async with mcp_tools(server) as tools:
        result = await call(tools)
    assert result.is_error
    assert "is not MCP" in result.text


async def test_a_task_is_followed_on_a_new_connection_where_the_old_one_is_lost() -> None:
    server = make_server({"status": "working"}, {"status": "working"}, DONE)
    killed = False

    def kill() -> None:
        nonlocal killed
        if not killed:
            killed = True
            server.kill()

    server.on_poll = kill
    async with mcp_tools(server) as tools:
        result = await call(tools)
    assert result.text == "done"
    assert server.opened == 2
    assert server.calls == ["long"]


async def test_a_task_that_the_server_has_forgotten_may_have_taken_effect() -> None:
    server = make_server()

    def forget() -> None:
        raise MCPError(wire.INVALID_PARAMS, "no such task")

    server.on_poll = forget
    async with mcp_tools(server) as tools:
        result = await call(tools)
    assert result.is_error
    assert "no such task" in result.text
    assert result.text.endswith("It may have taken effect.")
