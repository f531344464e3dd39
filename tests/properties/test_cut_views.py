"""Whatever a model asks, wherever a view is cut and by whom: one end is told, and the transcript is valid and true."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings, strategies as st

from tests.properties.test_loop_properties import EXECUTIONS, REPLIES, TOOLS, reply
from toolkit import (
    Done,
    Failed,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    Yielded,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse
from toolkit.endings import Cancelled
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd, ToolProgress
from toolkit.policies import Batched, Parallel, Sequential
from toolkit.testing import ScriptedProvider, check_transcript


@tool_with_ctx
def report_from_threads(context: ToolContext[None], checkpoints: int = 3) -> str:
    """Report from threads that the tool starts, some of which outlive it."""

    def report(thread: int) -> None:
        for number in range(checkpoints):
            context.report_progress(f"{thread}.{number}")

    threads = [threading.Thread(target=report, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join(10)
    return "reported"


def ask_for_reports(count: int) -> ChatResponse:
    return reply([ToolCall("", "report_from_threads", "{}")] * count, "tool_use")


REPORTS = st.builds(ask_for_reports, st.integers(1, 3))
ALL = TOOLS | ToolRegistry[None]([report_from_threads])


@dataclass(frozen=True)
class Cut:
    """After so many events: the handle's `cancel`, from the hook or a thread; the reader's scope; the reader leaves."""

    kind: str
    after: int


CUTS = st.builds(Cut, st.sampled_from(["cancel", "cancel from a thread", "scope", "leave", "none"]), st.integers(1, 30))


class Run:
    def __init__(self, script: list[ChatResponse], config: ToolLoopConfig, cut: Cut) -> None:
        self.told: list[LoopEvent] = []
        self.scope = anyio.CancelScope()
        self.cut = cut
        self.handle: ToolLoopHandle[object, None] = ToolLoopHandle(
            ScriptedProvider([*script, "the end"], repeats=True), ALL, "go", ctx=None, config=config
        )

    def see(self, event: LoopEvent) -> None:
        self.told.append(event)
        if len(self.told) == self.cut.after:
            if self.cut.kind == "cancel":
                self.handle.cancel("cut")
            elif self.cut.kind == "cancel from a thread":
                threading.Thread(target=self.handle.cancel, args=("cut",)).start()
            elif self.cut.kind == "scope":
                self.scope.cancel()

    @property
    def is_left(self) -> bool:
        return self.cut.kind == "leave" and len(self.told) >= self.cut.after


async def by_run(run: Run) -> None:
    await run.handle.run()


async def by_turns(run: Run) -> None:
    while isinstance(await run.handle.next_turn(), Yielded):
        if run.is_left:
            await run.handle.close()


async def by_stream(run: Run) -> None:
    async with run.handle.stream() as events:
        async for _ in events:
            if run.is_left:
                break


async def by_channel(run: Run) -> None:
    async with run.handle.channel(1) as (events, _):
        async for _ in events:
            if run.is_left:
                break


VIEWS: list[Callable[[Run], Awaitable[None]]] = [by_run, by_turns, by_stream, by_channel]


def check(run: Run) -> None:
    told, messages = run.told, run.handle.messages
    check_transcript(messages, told)
    ends = [event for event in told if isinstance(event, Done | Failed | RunStart)]
    assert ends == [told[0], told[-1]]
    assert isinstance(told[-1], Done)
    assert told[-1].result == run.handle.result
    if run.handle.result.reason == Cancelled("cut"):
        assert run.cut.kind.startswith("cancel")
    answers = {message.call_id: message.text for message in messages if isinstance(message, ToolResult)}
    reports: dict[str, list[str]] = {}
    for event in told:
        if isinstance(event, ToolExecutionEnd) and len(event.result.text) < 1000:
            assert answers[event.call_id] == event.result.text
        if isinstance(event, ToolProgress):
            thread, _, number = event.text.partition(".")
            reports.setdefault(f"{event.call_id} {thread}", []).append(number)
    assert all(numbers == sorted(numbers) for numbers in reports.values())
    assert len({event.loop_id for event in told}) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(REPLIES, REPORTS), min_size=1, max_size=4), EXECUTIONS, CUTS, st.booleans())
def test_every_view_that_is_cut_tells_one_end_and_the_truth(
    backend: str,
    view: Callable[[Run], Awaitable[None]],
    script: list[ChatResponse],
    execution: Parallel | Sequential | Batched,
    cut: Cut,
    is_waiting: bool,
) -> None:
    async def main() -> None:
        async def on_event(event: LoopEvent) -> None:
            run.see(event)
            if is_waiting:
                await anyio.lowlevel.checkpoint()

        config: ToolLoopConfig = ToolLoopConfig(
            execution=execution, max_iterations=5, on_event=on_event, metadata={"backend": backend}
        )
        run = Run(script, config, cut)
        with anyio.fail_after(120):
            with run.scope:
                await view(run)
        check(run)

    anyio.run(main, backend=backend)
