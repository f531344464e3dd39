"""What a running tool is told about its call, and how it reports back."""

from collections.abc import AsyncIterator, Generator, Iterator

import anyio
import pytest

from toolkit import (
    AssistantMessage,
    ConfigurationError,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolRetryConfig,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.events import LoopEvent, ToolExecutionUpdate, ToolProgress
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


class App:
    user: str = "ada"


@tool_with_ctx
def whoami(app: App) -> str:
    """Tell who the user is."""
    return app.user


@tool_with_ctx
def maybe(app: App | None) -> str:
    """Tell who the user is, if there is one."""
    return "nobody" if app is None else app.user


async def test_a_context_that_was_left_out_is_told_by_its_type() -> None:
    with pytest.raises(ConfigurationError, match=r"'whoami' needs a context of type App: pass it as ctx"):
        whoami.invoke({})
    assert whoami.invoke({}, App()) == "ada"
    assert maybe.invoke({}) == "nobody"


@tool_with_ctx
async def count(context: ToolContext[None], to: int) -> str:
    """Count on the event loop."""
    for number in range(to):
        context.report_update(number)
        await anyio.lowlevel.checkpoint()
    context.report_progress("all counted")
    return "counted"


@tool_with_ctx
def count_in_thread(context: ToolContext[None], to: int) -> str:
    """Count in a worker thread."""
    for number in range(to):
        context.report_update(number)
    context.report_progress("all counted")
    return "counted"


@tool
def tick(to: int) -> Iterator[int]:
    """Tick."""
    yield from range(to)


@tool
async def tock(to: int) -> AsyncIterator[int]:
    """Tock."""
    for number in range(to):
        yield number
        await anyio.lowlevel.checkpoint()


@tool
def tick_and_tell(to: int) -> Generator[int, None, str]:
    """Tick, and say how it was."""
    yield from range(to)
    return "ticked"


async def seen_of(name: str) -> tuple[list[str], list[str], str]:
    """Return the updates, the progress and the result of one call in a loop."""
    events: list[LoopEvent] = []
    script = ScriptedProvider([AssistantMessage([ToolCall("1", name, '{"to": 3}')]), "done"])
    registry = ToolRegistry[None]([count, count_in_thread, tick, tock, tick_and_tell])
    with anyio.fail_after(120):
        result = await tool_loop(script, registry, "go", ctx=None, config=ToolLoopConfig(on_event=events.append))
    return (
        [event.output.text for event in events if isinstance(event, ToolExecutionUpdate)],
        [event.text for event in events if isinstance(event, ToolProgress)],
        result.messages[2].text,
    )


@pytest.mark.parametrize("name", ["count", "count_in_thread"])
async def test_reports_arrive_in_order_from_the_event_loop_and_from_a_thread(name: str) -> None:
    assert await seen_of(name) == (["0", "1", "2"], ["all counted"], "counted")


@pytest.mark.parametrize(("name", "output"), [("tick", "2"), ("tock", "2"), ("tick_and_tell", "ticked")])
async def test_a_generator_streams_what_it_yields_and_gives_the_last_of_it(name: str, output: str) -> None:
    assert await seen_of(name) == (["0", "1", "2"], [], output)


async def test_the_envelope_tells_of_the_call() -> None:
    told: list[tuple[object, ...]] = []

    @tool_with_ctx(retry=ToolRetryConfig(max_retries=1, initial_backoff=0))
    async def look(context: ToolContext[str]) -> str:
        """Look."""
        told.append((context.state, context.call_id, context.tool_name, context.attempt, context.depth))
        assert not context.cancelled
        if context.attempt == 1:
            raise ValueError("again")
        return "seen"

    registry = ToolRegistry[str]([look]).renamed({"look": "peek"})
    assert (await registry.execute(ToolCall("c1", "peek", "{}"), "ada")).text == "seen"
    assert told == [("ada", "c1", "peek", 1, 0), ("ada", "c1", "peek", 2, 0)]


async def test_without_a_listener_reports_cost_nothing_and_are_taken() -> None:
    @tool_with_ctx
    async def look(context: ToolContext[None]) -> bool:
        """Look."""
        context.report_update("x")
        context.report_progress("y")
        return context.is_observed

    assert (await ToolRegistry[None]([look]).execute(ToolCall("1", "look", "{}"), None)).text == "false"


async def test_reports_after_the_end_are_dropped() -> None:
    kept: list[ToolContext[None]] = []
    events: list[LoopEvent] = []

    @tool_with_ctx
    async def leak(context: ToolContext[None]) -> str:
        """Keep the envelope."""
        kept.append(context)
        return "kept"

    def listen(event: LoopEvent) -> None:
        events.append(event)
        for context in kept:
            context.report_update("too late")

    script = ScriptedProvider([AssistantMessage([ToolCall("1", "leak", "{}")]), "done"])
    await tool_loop(script, ToolRegistry[None]([leak]), "go", ctx=None, config=ToolLoopConfig(on_event=listen))
    assert not kept[0].is_observed
    assert not [event for event in events if isinstance(event, ToolExecutionUpdate)]


OPEN = [(end, False) for end in ("tool_timeout", "timeout", "cancel", "close", "scope")]
SHIELDED = [(end, True) for end in ("tool_timeout", "timeout", "cancel", "close")]


@pytest.mark.parametrize(("end", "is_shielded"), OPEN + SHIELDED)
async def test_an_async_tool_that_tidies_up_sees_that_it_was_given_up(end: str, is_shielded: bool) -> None:
    seen: list[bool] = []
    has_begun = anyio.Event()

    @tool_with_ctx
    async def work(context: ToolContext[str]) -> str:
        """Work."""
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        seen.append(context.cancelled)  # a scope of its own is nothing
        try:
            has_begun.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=is_shielded):  # noqa: ASYNC100 - it is what the context sees in there
                seen.append(context.cancelled)
        return "done"

    config = ToolLoopConfig(
        timeouts=Timeouts(tool=0.05 if end == "tool_timeout" else None), timeout=0.05 if end == "timeout" else None
    )
    provider = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
    handle = ToolLoopHandle(provider, ToolRegistry([work]), "go", ctx="app", config=config)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.run)
            await has_begun.wait()
            if end == "cancel":
                handle.cancel()
            elif end == "close":
                await handle.close()
            elif end == "scope":
                tasks.cancel_scope.cancel()
    assert seen == [False, True]
