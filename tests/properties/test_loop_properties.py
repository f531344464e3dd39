"""Whatever a model asks, whatever tools do and whenever it is cancelled: the transcript is valid and true."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings, strategies as st

from toolkit import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Deny,
    Modify,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    Usage,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse, StopReason, TextBlock
from toolkit.endings import Cancelled, Timeout
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionUpdate
from toolkit.policies import Batched, Parallel, Sequential, ToolExecutionHooks
from toolkit.runtime.workers import abandoned_count
from toolkit.testing import EventCollector, ScriptedProvider, check_transcript

RUNS: Counter[str] = Counter()


@tool_with_ctx
async def value(context: ToolContext[None], checkpoints: int) -> int:
    """Give a value after some checkpoints."""
    RUNS[context.call_id] += 1
    for _ in range(checkpoints):
        await anyio.lowlevel.checkpoint()
    return checkpoints


@tool_with_ctx
async def fail(context: ToolContext[None], message: str = "no") -> str:
    """Fail in words."""
    RUNS[context.call_id] += 1
    raise ToolError(message)


@tool_with_ctx
async def crash(context: ToolContext[None]) -> str:
    """Crash without a word."""
    RUNS[context.call_id] += 1
    await anyio.lowlevel.checkpoint()
    raise ValueError


@tool_with_ctx
async def hang(context: ToolContext[None]) -> str:
    """Wait until cancelled, or until nothing else happens."""
    RUNS[context.call_id] += 1
    with anyio.move_on_after(0.01):
        await anyio.sleep_forever()
    return "woke up"


@tool_with_ctx
async def cancel_self(context: ToolContext[None]) -> str:
    """Raise asyncio's cancellation where nobody asked for it."""
    RUNS[context.call_id] += 1
    if context.metadata["backend"] == "asyncio":
        raise asyncio.CancelledError
    return "only on asyncio"


@tool_with_ctx
async def huge(context: ToolContext[None]) -> str:
    """Say too much."""
    RUNS[context.call_id] += 1
    return "x" * 100_000


@tool_with_ctx
async def generate(context: ToolContext[None]) -> AsyncIterator[str]:
    """Give pieces."""
    RUNS[context.call_id] += 1
    for piece in ("one", "two"):
        await anyio.lowlevel.checkpoint()
        yield piece


@tool_with_ctx
def in_thread(context: ToolContext[None]) -> str:
    """Run in a thread."""
    RUNS[context.call_id] += 1
    context.report_progress("there")
    return "back"


@tool_with_ctx
def watch(context: ToolContext[None]) -> str:
    """Hang in a thread that looks whether it should stop."""
    RUNS[context.call_id] += 1
    until = time.monotonic() + 0.01
    while not context.cancelled and time.monotonic() < until:
        pass
    return "gave up" if context.cancelled else "woke up"


@tool_with_ctx(sequential=True)
async def alone(context: ToolContext[None]) -> str:
    """Run beside no other."""
    RUNS[context.call_id] += 1
    await anyio.lowlevel.checkpoint()
    return "alone"


@tool(result_as_answer=True)
async def answer() -> str:
    """Be the answer."""
    return "that's it"


TOOLS = ToolRegistry[None]([value, fail, crash, hang, cancel_self, huge, generate, in_thread, watch, alone, answer])
NAMES = [*(each.definition.name for each in TOOLS), "valeu", "nothing_like_it", ""]

CALLS = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b", "c", "d"]),
    st.sampled_from(NAMES),
    st.sampled_from(["{}", "", '{"checkpoints": 2}', '{"checkpoints": ', '{"other": 1}', "[]", "null", "not JSON"]),
)


def reply(content: Sequence[TextBlock | ToolCall], reason: StopReason = "end_turn") -> ChatResponse:
    return ChatResponse(message=AssistantMessage(content), usage=Usage(), stop_reason=reason, model="scripted")


def words(text: str) -> ChatResponse:
    return reply([TextBlock(text)])


def asked(text: list[TextBlock], calls: list[ToolCall], reason: StopReason) -> ChatResponse:
    return reply([*text, *calls], reason)


REASONS: list[StopReason] = ["tool_use", "end_turn", "max_tokens", "content_filter"]
REPLIES = st.one_of(
    st.builds(words, st.sampled_from(["", "done"])),
    st.builds(
        asked,
        st.lists(st.just(TextBlock("well")), max_size=1),
        st.lists(CALLS, min_size=1, max_size=5),
        st.sampled_from(REASONS),
    ),
)


@dataclass(frozen=True)
class Cut:
    """Cancel after so many events, while an event is told or from beside; after so many rounds; or by the clock."""

    kind: str
    after: int


CUTS = st.one_of(
    st.none(),
    st.builds(Cut, st.sampled_from(["in hook", "event", "round", "timeout"]), st.integers(1, 25)),
)
EXECUTIONS = st.sampled_from([Parallel(), Parallel(2), Sequential(), Batched(1), Batched(2)])


def spoil(event: object) -> None:
    """Change what can be changed in what an observer, a hook or an approver is given: it is theirs to spoil."""
    for name in ("arguments", "details"):
        given = getattr(event, name, None)
        if isinstance(given, dict):
            cast("dict[str, object]", given).update(spoilt=True, checkpoints=10**9)
    if isinstance(event, ToolExecutionUpdate):
        event.output.content = "spoilt"


def spoil_arguments(name: str, call_id: str, arguments: Mapping[str, Any]) -> None:
    cast("dict[str, Any]", arguments).clear()


class Scenario:
    """One run, cancelled or not, with all that it told."""

    def __init__(self, cut: Cut | None) -> None:
        self.events = EventCollector()
        self.finished: dict[str, str] = {}
        self.scope = anyio.CancelScope()
        self._cut = cut

    async def on_event(self, event: LoopEvent) -> None:
        self.events(event)
        spoil(event)
        cut, count = self._cut, len(self.events.events)
        if isinstance(event, ToolExecutionEnd) and not self.scope.cancel_called:
            self.finished[event.call_id] = event.result.text
        if cut is not None and count >= cut.after and cut.kind in ("in hook", "event"):
            self.scope.cancel()
            if cut.kind == "in hook":
                await anyio.lowlevel.checkpoint()

    async def cancel_in_round(self) -> None:
        assert self._cut is not None
        for _ in range(self._cut.after):
            await anyio.lowlevel.checkpoint()
        self.scope.cancel()

    async def run(self, script: list[ChatResponse], config: ToolLoopConfig) -> None:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                if self._cut is not None and self._cut.kind == "round":
                    tasks.start_soon(self.cancel_in_round)
                with self.scope:
                    await tool_loop(ScriptedProvider([*script, "the end"], repeats=True), TOOLS, "go", config=config)


def decide(request: ApprovalRequest) -> Approve | Deny | Modify:
    """Decide by the call's id, the same each time."""
    spoil(request)
    match sum(request.call_id.encode()) % 4:
        case 0:
            return Deny("not this one")
        case 1 if request.tool_name == "value":
            return Modify({"checkpoints": 1})
        case _:
            return Approve()


def check(
    script: list[ChatResponse],
    execution: Parallel | Sequential | Batched,
    cut: Cut | None,
    is_guarded: bool,
    backend: str,
) -> None:
    RUNS.clear()
    scenario: list[Scenario] = []

    async def main() -> None:
        scenario.append(Scenario(cut))
        config = ToolLoopConfig(
            execution=execution,
            max_iterations=6,
            on_event=scenario[0].on_event,
            metadata={"backend": backend},
            on_tool_call=decide if is_guarded else None,
            middleware=[ToolExecutionHooks(before=spoil_arguments)] if is_guarded else [],
            timeout=cut.after / 2000 if cut is not None and cut.kind == "timeout" else None,
        )
        await scenario[0].run(script, config)
        if backend == "asyncio":
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"still running: {left}"
        with anyio.fail_after(120):
            # A thread that looks at `cancelled` ends soon after; none is left.
            while abandoned_count():
                await anyio.lowlevel.checkpoint()

    anyio.run(main, backend=backend)
    events = scenario[0].events
    if not events.events:
        assert scenario[0].scope.cancelled_caught
        return
    result = events.result
    check_transcript(result.messages, events.events)
    if scenario[0].scope.cancelled_caught:
        assert isinstance(result.reason, Cancelled | Timeout) or result.response is not None
    assert all(count == 1 for count in RUNS.values()), f"run twice: {RUNS}"
    answers = {message.call_id: message.text for message in result.messages if isinstance(message, ToolResult)}
    for call_id in RUNS:
        assert not answers[call_id].startswith("Not started"), f"{call_id} ran and is said not to have started"
    for call_id, text in scenario[0].finished.items():
        assert len(text) > 1000 or answers[call_id] == text, f"the result of {call_id} was replaced"
    assert not any("spoilt" in text for text in answers.values())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=100, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=4), EXECUTIONS, CUTS, st.booleans())
def test_every_way_out_leaves_a_valid_and_true_transcript(
    backend: str,
    script: list[ChatResponse],
    execution: Parallel | Sequential | Batched,
    cut: Cut | None,
    is_guarded: bool,
) -> None:
    check(script, execution, cut, is_guarded, backend)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=5_000, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=4), EXECUTIONS, CUTS, st.booleans())
def test_ten_thousand_ways_out_leave_a_valid_and_true_transcript(
    backend: str,
    script: list[ChatResponse],
    execution: Parallel | Sequential | Batched,
    cut: Cut | None,
    is_guarded: bool,
) -> None:
    check(script, execution, cut, is_guarded, backend)
