"""The loop for code that is not async, also inside a tool of another loop."""

import asyncio
import threading

import anyio
import anyio.to_thread
import pytest

from toolkit import (
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
    tool_loop_sync,
)
from toolkit.errors import LoopUsageError, MaxDepthExceededError
from toolkit.events import LoopEvent, ToolExecutionStart
from toolkit.testing import ScriptedProvider


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_it_runs_without_an_event_loop() -> None:
    provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "3"])
    assert tool_loop_sync(provider, ToolRegistry([add]), "1 + 2?").text == "3"


@pytest.mark.anyio
async def test_it_refuses_to_run_where_an_event_loop_runs() -> None:
    with pytest.raises(LoopUsageError, match="await tool_loop"):
        tool_loop_sync(ScriptedProvider([]), ToolRegistry([add]), "1 + 2?")


@pytest.mark.anyio
async def test_inside_a_tool_it_is_cancelled_with_the_call_of_that_tool() -> None:
    inner_is_running = threading.Event()
    inner_is_over = threading.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        try:
            inner_is_running.set()
            await anyio.sleep_forever()
        finally:
            inner_is_over.set()
        return ""

    @tool
    def delegate() -> str:
        """Run a loop."""
        return tool_loop_sync(ScriptedProvider([ToolCall("h", "hang", "{}")]), ToolRegistry([hang]), "go").text

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await tool_loop(ScriptedProvider([ToolCall("d", "delegate", "{}")]), ToolRegistry([delegate]), "go")

            tasks.start_soon(run)
            await anyio.to_thread.run_sync(inner_is_running.wait, 30)
            assert inner_is_running.is_set()
            tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(inner_is_over.wait, 30)
    assert inner_is_over.is_set()


@pytest.mark.anyio
async def test_inside_a_tool_it_inherits_the_depth_limit() -> None:
    @tool
    def delegate() -> str:
        """Run a loop."""
        with pytest.raises(MaxDepthExceededError, match="depth 1"):
            tool_loop_sync(ScriptedProvider(["never"]), ToolRegistry([add]), "go")
        return "too deep"

    events: list[LoopEvent] = []
    config = ToolLoopConfig(max_depth=1, on_event=events.append)
    provider = ScriptedProvider([ToolCall("d", "delegate", "{}"), "done"])
    result = await tool_loop(provider, ToolRegistry([delegate]), "go", config=config)
    assert result.messages[2].text == "too deep"
    assert any(isinstance(event, ToolExecutionStart) for event in events)


class Counted:
    """Counts how often a text is made of it."""

    texts = 0

    def __repr__(self) -> str:
        Counted.texts += 1
        return "counted"


def test_asyncio_makes_no_text_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[object] = []

    def write(result: object) -> str:
        texts.append(result)
        return "result"

    with monkeypatch.context() as patch:
        patch.setattr(ToolLoopResult, "__repr__", write)
        assert tool_loop_sync(ScriptedProvider(["done"]), ToolRegistry(), "Go.").text == "done"
    assert not texts


def test_asyncio_makes_no_text_of_a_transcript() -> None:
    @tool(run_in_thread=False)
    def look() -> ToolOutput:
        """Look."""
        return ToolOutput("seen", details=Counted())

    Counted.texts = 0
    provider, registry = ScriptedProvider([ToolCall("1", "look", "{}"), "done"]), ToolRegistry([look])
    result = asyncio.run(tool_loop(provider, registry, "Look."))
    assert result.messages[2] == ToolResult("1", "seen", tool_name="look")
    assert Counted.texts == 0
    assert repr(result).startswith("ToolLoopResult(text='done', ")
