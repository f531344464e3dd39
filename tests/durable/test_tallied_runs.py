"""Budgets and counters of runs whose processes end inside of sub-agents: each thing counts once, wherever that was."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests.durable.memory_journal import CrashError, CrashPlan, Memory, MemoryJournal
from toolkit import (
    AssistantMessage,
    LoopLimits,
    Middleware,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    Usage,
    UsageLimits,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatRequest, ChatResponse
from toolkit.policies import CallInfo
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio


def reply(text: str, *calls: ToolCall) -> ChatResponse:
    return ChatResponse(message=AssistantMessage([*calls] or text), usage=Usage(input_tokens=10, output_tokens=1))


class Tally(Middleware[object]):
    """Counts the requests and the calls of a run; those of sub-agents, too, where they inherit it or it guards."""

    name = "tally"

    def __init__(self, *, is_inherited: bool) -> None:
        self.is_inherited = is_inherited
        self.requests = self.calls = 0

    async def around_request(self, request: Any, proceed: Any) -> Any:
        response = await proceed()
        self.requests += 1
        return response

    async def guard_call(self, call: CallInfo[object]) -> None:
        self.calls += 1

    def save(self) -> Any:
        return [self.requests, self.calls]

    def load(self, state: Any) -> None:
        self.requests, self.calls = state


@tool_with_ctx
async def look(context: ToolContext[object]) -> str:
    """Look."""
    return "seen"


def turns_of(request: ChatRequest) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def work(request: ChatRequest) -> ChatResponse:
    return reply("done") if turns_of(request) else reply("", ToolCall("l", "look", "{}"))


def hand_on(request: ChatRequest) -> ChatResponse:
    calls = [ToolCall(each, "clerk", '{"task": "Look."}') for each in ("a", "b")]
    match turns_of(request):
        case 0:
            return reply("", *calls)
        case 1:
            return reply("", ToolCall("c", "clerk", '{"task": "Look."}'))
        case _:
            return reply("all done")


def make_handle(journal: MemoryJournal, tally: Tally) -> ToolLoopHandle[object, None]:
    config = ToolLoopConfig[None](
        journal=journal,
        middleware=(tally,),
        limits=LoopLimits(usage=UsageLimits(requests=100, tool_calls=100)),
    )
    clerk = sub_agent_tool("clerk", "Looks.", FunctionProvider(work), ToolRegistry([look]))
    return ToolLoopHandle(FunctionProvider(hand_on), ToolRegistry([clerk]), "Go.", ctx=None, config=config)


@pytest.mark.parametrize(("is_inherited", "requests"), [(True, 9), (False, 3)])
async def test_a_process_that_ends_inside_of_a_sub_agent_loses_none_of_what_was_counted_there(
    is_inherited: bool, requests: int
) -> None:
    point, has_crashed = int(is_inherited), True
    while has_crashed:
        point += 2
        memory, plan = Memory(), CrashPlan(point)
        with suppress(CrashError):
            await make_handle(MemoryJournal(memory, plan), Tally(is_inherited=is_inherited)).run()
        has_crashed, tally = plan.is_over, Tally(is_inherited=is_inherited)
        handle = make_handle(MemoryJournal(memory), tally)
        result = await handle.run()
        saved = handle.snapshot()["loop"]
        assert result.usage == Usage(input_tokens=90, output_tokens=9), point
        assert (saved["requests"], saved["tool_calls"]) == (9, 6), point
        assert [tally.requests, tally.calls] == [requests, 6], point
        assert saved["middleware"]["tally"] == [requests, 6], point
        assert [each.text for each in result.messages if isinstance(each, ToolResult)] == ["done"] * 3
    assert point > 50
