"""The transcript comes out of a run whose provider raises, and its usage has the loops inside its tools."""

from typing import Any

import pytest

from toolkit import (
    AssistantMessage,
    ToolCall,
    ToolLoopHandle,
    ToolRegistry,
    Usage,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_loop_sync,
)
from toolkit.chat import ChatResponse, validate_transcript
from toolkit.endings import Failed
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool(run_in_thread=False)
def look() -> str:
    """Look."""
    return "seen"


def make_provider() -> ScriptedProvider:
    return ScriptedProvider([ToolCall("1", "look", "{}"), KeyError("choices")])


@pytest.mark.parametrize("view", ["run", "stream", "next_turn"])
async def test_an_exception_of_a_provider_carries_the_transcript_out(view: str) -> None:
    if view == "next_turn":
        handle = ToolLoopHandle(make_provider(), ToolRegistry([look]), "Look.")
        await handle.next_turn()
        outcome = await handle.next_turn()
        assert isinstance(outcome, Failed)
        error = outcome.error
    else:
        with pytest.raises(KeyError) as caught:
            if view == "run":
                await tool_loop(make_provider(), ToolRegistry([look]), "Look.")
            else:
                async with tool_loop_stream(make_provider(), ToolRegistry([look]), "Look.") as events:
                    async for _ in events:
                        pass
        error = caught.value
    assert isinstance(error, KeyError)
    carried: Any = error
    assert carried.__notes__ == [
        "The run ended with this; `messages` of this exception is its transcript, and `usage` what it used."
    ]
    assert [message.text for message in carried.messages] == ["Look.", "", "seen"]
    validate_transcript(carried.messages)
    assert carried.usage.total_tokens > 0


def reply(*calls: ToolCall, tokens: int) -> ChatResponse:
    return ChatResponse(message=AssistantMessage([*calls] or "ok"), usage=Usage(input_tokens=tokens))


@pytest.mark.parametrize("kind", ["async", "sync", "stepped", "two levels"])
async def test_usage_has_the_loops_that_a_tool_runs_by_itself(kind: str) -> None:
    inner = ToolRegistry([look])

    def provider() -> ScriptedProvider:
        return ScriptedProvider([reply(ToolCall("i", "look", "{}"), tokens=40), reply(tokens=30)])

    @tool
    async def run_async() -> str:
        """Run."""
        return (await tool_loop(provider(), inner, "Go.")).text

    @tool
    def run_sync() -> str:
        """Run."""
        return tool_loop_sync(provider(), inner, "Go.").text

    @tool
    async def step() -> str:
        """Run."""
        handle = ToolLoopHandle(provider(), inner, "Go.")
        await handle.next_turn()
        await handle.next_turn()
        return handle.result.text

    @tool
    async def nest() -> str:
        """Run."""
        outer = ScriptedProvider([reply(ToolCall("n", "run_async", "{}"), tokens=0), reply(tokens=0)])
        return (await tool_loop(outer, ToolRegistry([run_async]), "Go.")).text

    runner = {"async": run_async, "sync": run_sync, "stepped": step, "two levels": nest}[kind]
    boss = ScriptedProvider([reply(ToolCall("1", runner.definition.name, "{}"), tokens=20), reply(tokens=10)])
    result = await tool_loop(boss, ToolRegistry([runner]), "Go.")
    assert result.text == "ok"
    assert result.usage.input_tokens == 100
