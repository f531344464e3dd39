"""Durable runs whose sub-agents await decisions: the run waits, and a decision goes on inside; after any crash, too."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.durable.memory_journal import CrashError, CrashPlan, Memory, MemoryJournal
from toolkit import (
    Approve,
    AssistantMessage,
    Deny,
    LoopLimits,
    Modify,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    Usage,
    UsageLimits,
    tool_with_ctx,
)
from toolkit.agents import sub_agent_tool
from toolkit.calls.approval import put_off_asked
from toolkit.chat import ChatRequest, ChatResponse, validate_transcript
from toolkit.durable import DurableLoop, Journal, SqliteJournal, durable_loop
from toolkit.endings import AwaitingApproval, Complete
from toolkit.errors import LoopUsageError
from toolkit.testing import FunctionProvider

pytestmark = pytest.mark.anyio

WAITS = "Not finished: sub-agent 'clerk{}' awaits approval of pay. What it has done before stands."


def reply(*content: ToolCall | str) -> ChatResponse:
    message = AssistantMessage([each for each in content if isinstance(each, ToolCall)] or str(content[0]))
    return ChatResponse(message=message, usage=Usage(input_tokens=10, output_tokens=1))


def pay_and_look(request: ChatRequest) -> ChatResponse:
    """Return what the last clerk says."""
    match sum(message.role == "assistant" for message in request.messages):
        case 0:
            return reply(ToolCall("p", "pay", '{"n": 5}'), ToolCall("l1", "look", "{}"))
        case 1:
            return reply(ToolCall("l2", "look", "{}"))
        case _:
            paid = next(each.text for each in request.messages if isinstance(each, ToolResult))
            return reply(f"It is done: {paid}.")


@dataclass
class Office:
    """A boss over clerks, one over the other; the last one looks, pays and looks again. All say what they did."""

    depth: int = 1
    more: int = 0
    runs: list[str] = field(default_factory=list[str])
    limits: dict[str, int] = field(default_factory=dict[str, int])

    def registry(self) -> ToolRegistry[object]:
        more = self.more

        @tool_with_ctx(requires_approval=True)
        async def pay(context: ToolContext[object], n: int, more: int = more) -> str:
            """Pay."""
            self.runs.append(f"pay {n + more}")
            return f"paid {n + more}"

        @tool_with_ctx
        async def look(context: ToolContext[object]) -> str:
            """Look."""
            self.runs.append(f"look {context.call_id}")
            return "seen"

        registry, model = ToolRegistry[object]([pay, look]), pay_and_look
        for level in range(self.depth):
            agent = sub_agent_tool(f"clerk{level}", "Pays.", FunctionProvider(model), registry, allow_sub_agents=True)
            registry, model = ToolRegistry[object]([agent]), self.hand_on(f"clerk{level}")
        return registry

    @staticmethod
    def hand_on(name: str) -> Any:
        def work(request: ChatRequest) -> ChatResponse:
            if request.messages[-1].role == "user":
                return reply(ToolCall("c", name, '{"task": "Pay."}'))
            return reply(f"Done: {request.messages[-1].text}")

        return work

    @property
    def boss(self) -> FunctionProvider:
        return FunctionProvider(self.hand_on(f"clerk{self.depth - 1}") if self.depth else pay_and_look)

    @property
    def config(self) -> ToolLoopConfig[None]:
        limits = LoopLimits(usage=UsageLimits(**self.limits)) if self.limits else LoopLimits()
        return ToolLoopConfig(limits=limits, max_depth=5)

    def handle(self, journal: Journal) -> ToolLoopHandle[object, None]:
        config = replace(self.config, journal=journal, on_tool_call=put_off_asked)
        return ToolLoopHandle(self.boss, self.registry(), "Pay.", ctx=None, config=config)

    def loop(self) -> DurableLoop[Any, None]:
        return durable_loop("office", provider=self.boss, registry=self.registry(), config=self.config)


def check_waits(office: Office, result: ToolLoopResult[Any]) -> None:
    assert isinstance(result.reason, AwaitingApproval)
    assert [call.name for call in result.reason.calls] == ["pay"]
    assert result.messages[-1].text == WAITS.format(office.depth - 1)
    validate_transcript(result.messages)
    assert office.runs == ["look l1"]


DECISIONS: list[tuple[Approve | Deny | Modify, list[str], str]] = [
    (Approve(), ["pay 5"], "paid 5"),
    (Modify({"n": 3}), ["pay 3"], "paid 3"),
    (Deny("Too much."), [], "Too much."),
]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("decision", "paid", "text"), DECISIONS)
async def test_a_run_with_a_journal_waits_for_its_sub_agent_and_goes_on_inside_in_each_process(
    tmp_path: Path, depth: int, decision: Approve | Deny | Modify, paid: list[str], text: str
) -> None:
    office, file = Office(depth, limits={"requests": 50, "tool_calls": 50}), tmp_path / "runs.db"
    with SqliteJournal(file, "r") as journal:
        handle = office.handle(journal)
        check_waits(office, await handle.run())
    with SqliteJournal(file, "r") as journal:  # another process
        handle = office.handle(journal)
        check_waits(office, await handle.run())
        [pending] = handle.pending_approvals
        assert (pending.call_id, pending.tool_name, pending.agent) == ("p", "pay", "clerk0")
        await handle.decide("p", decision, binding=pending.binding)
    for _ in range(2):  # the decision is in the log, and then all of it
        with SqliteJournal(file, "r") as journal:
            result = await office.handle(journal).run()
        assert result.reason == Complete()
        assert text in result.text
        assert office.runs == ["look l1", *paid, "look l2"]
        levels = 2 * depth + 3
        assert result.usage == Usage(input_tokens=10 * levels, output_tokens=levels)


async def decide_and_finish(office: Office, memory: Memory, plan: CrashPlan) -> ToolLoopHandle[object, None]:
    """Run to the end in one process, and agree to what is asked about."""
    handle = office.handle(MemoryJournal(memory, plan))
    result = await handle.run()
    while isinstance(result.reason, AwaitingApproval):
        for pending in handle.pending_approvals:
            await handle.decide(pending.call_id, Approve(), binding=pending.binding)
        result = await handle.run()
    return handle


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_crash_at_any_point_loses_nothing_repeats_nothing_and_counts_each_thing_once(depth: int) -> None:
    point, has_crashed = 0, True
    while has_crashed:
        point += 1
        office, memory, plan = Office(depth, limits={"requests": 50, "tool_calls": 50}), Memory(), CrashPlan(point)
        with suppress(CrashError):
            await decide_and_finish(office, memory, plan)
        has_crashed = plan.is_over
        handle = await decide_and_finish(office, memory, CrashPlan())
        assert handle.result.reason == Complete()
        assert max(Counter(office.runs).values()) == 1, point
        validate_transcript(handle.messages)
        spent, saved = 2 * depth + 3, handle.snapshot()["loop"]
        assert (saved["requests"], saved["tool_calls"]) == (spent, depth + 3), point
        assert handle.usage == Usage(input_tokens=10 * spent, output_tokens=spent), point
    assert point > 30


@pytest.mark.parametrize("change_after", ["rest", "decision"])
async def test_a_call_that_changed_before_it_was_decided_on_or_run_is_asked_about_again(
    tmp_path: Path, change_after: str
) -> None:
    office = Office(depth=0)
    with SqliteJournal(tmp_path / "runs.db", "r") as journal:
        handle = office.handle(journal)
        await handle.run()
        [before] = handle.pending_approvals
        if change_after == "decision":
            await handle.decide("p", True, binding=before.binding)
    office.more = 7  # another release
    with SqliteJournal(tmp_path / "runs.db", "r") as journal:
        handle = office.handle(journal)
        assert isinstance((await handle.run()).reason, AwaitingApproval)
        [now] = handle.pending_approvals
        assert (now.binding != before.binding, "not what they were" in now.reason) == (True, True)
        with pytest.raises(LoopUsageError, match="ask again"):
            await handle.decide("p", True, binding=before.binding)
        await handle.decide("p", True, binding=now.binding)
        assert (await handle.run()).reason == Complete()
    with SqliteJournal(tmp_path / "runs.db", "r") as journal:
        assert (await office.handle(journal).run()).reason == Complete()
    assert office.runs == ["look l1", "pay 12", "look l2"]
