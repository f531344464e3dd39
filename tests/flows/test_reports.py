"""Reports of running tools, from whatever thread they are made in: none is lost, and no thread runs ahead."""

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from toolkit import (
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.calls import context
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

Report = Callable[[], None]


def report_all(context: ToolContext[object], count: int) -> None:
    for number in range(count):
        context.report_progress(str(number))


@tool_with_ctx
def in_worker(context: ToolContext[object], count: int) -> str:
    """Report from the worker thread itself."""
    for number in range(count):
        context.report_progress(str(number))
    return "done"


@tool_with_ctx
def in_own_thread(context: ToolContext[object], count: int) -> str:
    """Report from a thread that the tool starts, and waits for."""
    thread = threading.Thread(target=report_all, args=(context, count))
    thread.start()
    thread.join()
    return "done"


@tool_with_ctx
async def in_pool_of_async_tool(context: ToolContext[object], count: int) -> str:
    """Report from a thread of anyio's."""
    await anyio.to_thread.run_sync(report_all, context, count)
    return "done"


@tool_with_ctx
def in_executor(context: ToolContext[object], count: int) -> str:
    """Report from a pool of threads."""
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(context.report_progress, map(str, range(count))))
    return "done"


TOOLS = ToolRegistry([in_worker, in_own_thread, in_pool_of_async_tool, in_executor])
NAMES = TOOLS.names


def provider(name: str, count: int) -> ScriptedProvider:
    return ScriptedProvider([ToolCall("1", name, f'{{"count": {count}}}'), "ok"])


def numbers(events: list[LoopEvent]) -> list[str]:
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert not any(report.dropped for report in reports)
    return [report.text for report in reports]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("capacity", [None, 0, 4])
async def test_reports_from_any_thread_reach_a_reader_in_order(name: str, capacity: int | None) -> None:
    events: list[LoopEvent] = []
    with anyio.fail_after(120):
        if capacity is None:
            async with tool_loop_stream(provider(name, 300), TOOLS, "go") as stream:
                async for event in stream:
                    events.append(event)
        else:
            async with tool_loop_channel(provider(name, 300), TOOLS, "go", buffer_size=capacity) as (channel, _):
                async for event in channel:
                    events.append(event)
    assert numbers(events) == [str(number) for number in range(300)]
    kinds = [type(event) for event in events if isinstance(event, ToolExecutionStart | ToolExecutionEnd | ToolProgress)]
    assert kinds == [ToolExecutionStart, *[ToolProgress] * 300, ToolExecutionEnd]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_async", [False, True])
async def test_reports_from_any_thread_reach_a_hook_in_order(name: str, is_async: bool) -> None:
    events: list[LoopEvent] = []

    async def on_event(event: LoopEvent) -> None:
        await anyio.lowlevel.checkpoint()
        events.append(event)

    config = ToolLoopConfig(on_event=on_event if is_async else events.append)
    with anyio.fail_after(120):
        await tool_loop(provider(name, 100), TOOLS, "go", config=config)
    assert numbers(events) == [str(number) for number in range(100)]


@pytest.mark.parametrize("where", ["worker", "own thread"])
async def test_a_report_wakes_the_reader_and_a_slow_reader_slows_the_thread(where: str) -> None:
    """While the reader looks at a report, the thread has made one more at most."""
    made: list[int] = []

    @tool_with_ctx
    def work(context: ToolContext[object]) -> str:
        def report() -> None:
            for number in range(50):
                made.append(number)
                context.report_update(number)

        if where == "worker":
            report()
        else:
            thread = threading.Thread(target=report)
            thread.start()
            thread.join()
        return "done"

    seen = 0
    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        async with tool_loop_stream(model, ToolRegistry([work]), "go") as events:
            async for event in events:
                if isinstance(event, ToolExecutionUpdate):
                    seen += 1
                    for _ in range(5):
                        await anyio.lowlevel.checkpoint()
                    assert len(made) <= seen + 1
    assert seen == 50


@pytest.mark.parametrize("where", ["worker", "own thread", "executor"])
async def test_a_thread_that_waits_for_a_reader_goes_on_when_the_reader_leaves(where: str) -> None:
    over = threading.Event()

    @tool_with_ctx
    def work(context: ToolContext[object]) -> str:
        def report() -> None:
            try:
                for number in range(1000):
                    context.report_update(number)
            finally:
                over.set()

        if where == "worker":
            report()
        else:
            threading.Thread(target=report, daemon=True).start()
            over.wait(300)
        return "done"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        async with tool_loop_stream(model, ToolRegistry([work]), "go") as events:
            async for event in events:
                if isinstance(event, ToolExecutionUpdate):
                    break
        await anyio.to_thread.run_sync(over.wait, 30)
    assert over.is_set()


@pytest.mark.parametrize("how", ["left", "cancelled", "timed out"])
@pytest.mark.parametrize("where", ["worker", "own thread"])
async def test_a_report_never_raises_into_a_tool_that_was_given_up(where: str, how: str) -> None:
    over = threading.Event()
    raised: list[BaseException] = []

    @tool_with_ctx(timeout=0.05 if how == "timed out" else None)
    def work(context: ToolContext[object]) -> str:
        def report() -> None:
            try:
                while not context.cancelled:
                    context.report_update("so far")
                    context.report_progress("so far")
                context.report_update("late")
            except BaseException as error:
                raised.append(error)
                raise
            finally:
                over.set()

        if where == "worker":
            report()
        else:
            thread = threading.Thread(target=report, daemon=True)
            thread.start()
            thread.join(30)
        return "done"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        async with tool_loop_stream(model, ToolRegistry([work]), "go") as events:
            async for event in events:
                if isinstance(event, ToolExecutionUpdate) and how != "timed out":
                    if how == "left":
                        break
                    events.cancel()
        await anyio.to_thread.run_sync(over.wait, 30)
    assert over.is_set()
    assert raised == []


async def test_each_value_of_an_async_generator_is_delivered_before_the_next_is_asked_for() -> None:
    made, seen = 0, list[int]()

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        """Count."""
        nonlocal made
        for number in range(to):
            made += 1
            yield number

    model = ScriptedProvider([ToolCall("1", "count", '{"to": 100}'), "ok"])
    with anyio.fail_after(120):
        async with tool_loop_stream(model, ToolRegistry([count]), "go") as events:
            async for event in events:
                if isinstance(event, ToolExecutionUpdate):
                    assert event.dropped == 0
                    seen.append(int(event.output.text))
                    await anyio.lowlevel.checkpoint()
                    assert made == len(seen)
    assert seen == list(range(100))


@pytest.mark.parametrize("kind", ["update", "progress"])
async def test_a_burst_of_large_reports_is_bounded_by_bytes_and_its_loss_is_counted(kind: str) -> None:
    events: list[ToolExecutionUpdate | ToolProgress] = []
    held = 0

    @tool_with_ctx
    async def work(context: ToolContext[object]) -> str:
        nonlocal held
        tracemalloc.start()
        for number in range(200):
            report = context.report_update if kind == "update" else context.report_progress
            report(f"{number} " + "x" * 1_000_000)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return "done"

    async def tell(event: LoopEvent) -> None:
        await anyio.lowlevel.checkpoint()
        if isinstance(event, ToolExecutionUpdate | ToolProgress):
            events.append(event)

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        await tool_loop(model, ToolRegistry([work]), "go", config=ToolLoopConfig(on_event=tell))
    assert held < 80_000_000
    assert len(events) >= 50
    assert len(events) + sum(event.dropped for event in events) == 200
    last = events[-1]
    assert (last.text if isinstance(last, ToolProgress) else last.output.text).startswith("199 ")


async def test_a_report_after_the_end_of_the_call_is_not_told() -> None:
    ended, late = threading.Event(), threading.Event()
    events: list[LoopEvent] = []

    @tool_with_ctx
    async def work(context: ToolContext[object]) -> str:
        def report_late() -> None:
            ended.wait(300)
            context.report_update("late")
            late.set()

        threading.Thread(target=report_late, daemon=True).start()
        return "done"

    @tool
    async def look() -> str:
        ended.set()
        await anyio.to_thread.run_sync(late.wait, 30)
        return "looked"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), ToolCall("2", "look", "{}"), "ok"])
    with anyio.fail_after(120):
        config = ToolLoopConfig(on_event=events.append)
        await tool_loop(model, ToolRegistry[object]([work, look]), "go", config=config)
    assert late.is_set()
    assert not [event for event in events if isinstance(event, ToolExecutionUpdate)]


async def test_a_report_from_another_event_loop_does_not_hold_that_up() -> None:
    events: list[LoopEvent] = []

    @tool_with_ctx
    def work(context: ToolContext[object]) -> str:
        async def report() -> None:
            for number in range(10):
                context.report_progress(str(number))

        asyncio.run(report())
        return "done"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        await tool_loop(model, ToolRegistry([work]), "go", config=ToolLoopConfig(on_event=events.append))
    assert numbers(events) == [str(number) for number in range(10)]


async def test_reports_that_did_not_wait_for_a_loop_that_was_held_up_are_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context, "_CHECK_SECONDS", 0.001)
    events: list[LoopEvent] = []

    @tool_with_ctx
    async def work(context: ToolContext[object]) -> str:
        thread = threading.Thread(target=report_all, args=(context, 30))
        thread.start()
        thread.join()
        while len(numbers(events)) < 30:
            await anyio.lowlevel.checkpoint()
        return "done"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    with anyio.fail_after(120):
        await tool_loop(model, ToolRegistry([work]), "go", config=ToolLoopConfig(on_event=events.append))
    assert numbers(events) == [str(number) for number in range(30)]


async def test_a_function_on_the_event_loop_may_wait_for_a_thread_that_reports() -> None:
    """The loop is held up by the tool, and the thread is not held up by the loop for ever."""
    events: list[LoopEvent] = []

    @tool_with_ctx(run_in_thread=False)
    def work(context: ToolContext[object]) -> str:
        thread = threading.Thread(target=lambda: context.report_progress("from beside"))
        thread.start()
        thread.join()
        return "done"

    model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    handle = ToolLoopHandle(model, ToolRegistry([work]), "go", config=ToolLoopConfig(on_event=events.append))
    with anyio.fail_after(120):
        assert (await handle.run()).text == "ok"
