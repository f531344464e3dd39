"""A run that is cancelled leaves a valid, true transcript, and nothing that still runs."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    Completed,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    tool,
    tool_loop,
)
from toolkit.chat import ChatResponse
from toolkit.endings import Cancelled, Complete
from toolkit.events import LoopEvent, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import Batched, Parallel, Sequential, ToolExecutionHooks
from toolkit.testing import EventCollector, ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio


def calls(*names: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(name, name, "{}") for name in names])


def results(messages: list[object]) -> dict[str, str]:
    return {message.call_id: message.text for message in messages if isinstance(message, ToolResult)}


class Workshop:
    """Three tools: one that ends at once, and two that wait until they are cancelled."""

    def __init__(self, hanging: int = 2) -> None:
        self.all_hang = anyio.Event()
        self._hanging = hanging
        self.cancelled: list[str] = []

        @tool
        async def quick() -> str:
            """End at once."""
            return "real"

        @tool
        async def slow() -> str:
            """Wait for ever."""
            return await self._hang("slow")

        @tool
        async def slower() -> str:
            """Wait for ever, too."""
            return await self._hang("slower")

        @tool
        async def slowest() -> str:
            """Wait for ever, and longer."""
            return await self._hang("slowest")

        self.tools = ToolRegistry([quick, slow, slower, slowest])

    async def _hang(self, name: str) -> str:
        self._hanging -= 1
        if self._hanging == 0:
            self.all_hang.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.append(name)
        return "never"


async def test_cancelling_while_three_tools_are_in_flight_answers_each_in_call_order() -> None:
    shop, events = Workshop(hanging=3), EventCollector()
    provider = ScriptedProvider([calls("slow", "slower", "slowest")])
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                await tool_loop(provider, shop.tools, "go", config=ToolLoopConfig(on_event=events))

            tasks.start_soon(loop)
            await shop.all_hang.wait()
            tasks.cancel_scope.cancel()
    left = events.result
    assert left.reason == Cancelled()
    check_transcript(left.messages, events.events)
    answers = results([*left.messages])
    assert list(answers) == ["slow", "slower", "slowest"]
    assert all("Interrupted" in text and "may have taken effect" in text for text in answers.values())
    assert sorted(shop.cancelled) == ["slow", "slower", "slowest"]


async def test_what_has_finished_before_the_cancellation_keeps_its_result() -> None:
    shop, events = Workshop(), EventCollector()
    provider = ScriptedProvider([calls("slow", "quick", "slower")])
    quick_ended = anyio.Event()

    def on_event(event: LoopEvent) -> None:
        events(event)
        if isinstance(event, ToolExecutionEnd) and event.call_id == "quick":
            quick_ended.set()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                await tool_loop(provider, shop.tools, "go", config=ToolLoopConfig(on_event=on_event))

            tasks.start_soon(loop)
            await shop.all_hang.wait()
            await quick_ended.wait()
            tasks.cancel_scope.cancel()
    left = events.result
    check_transcript(left.messages, events.events)
    answers = results([*left.messages])
    assert list(answers) == ["slow", "quick", "slower"]
    assert answers["quick"] == "real"


@pytest.mark.parametrize("names", [("quick",), ("quick", "slow")])
async def test_a_result_is_kept_when_the_cancellation_comes_while_its_end_is_told(names: tuple[str, ...]) -> None:
    shop, events = Workshop(), EventCollector()
    is_telling = anyio.Event()

    async def on_event(event: LoopEvent) -> None:
        events(event)
        if isinstance(event, ToolExecutionEnd) and event.call_id == "quick":
            is_telling.set()
            await anyio.sleep_forever()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                config = ToolLoopConfig(on_event=on_event)
                await tool_loop(ScriptedProvider([calls(*names)]), shop.tools, "go", config=config)

            tasks.start_soon(loop)
            await is_telling.wait()
            tasks.cancel_scope.cancel()
    check_transcript(events.result.messages, events.events)
    assert results([*events.result.messages])["quick"] == "real"


async def test_a_result_is_kept_when_the_cancellation_comes_during_the_hook_after_it() -> None:
    shop, events = Workshop(), EventCollector()
    is_told = anyio.Event()

    async def after(name: str, call_id: str, is_error: bool) -> None:
        is_told.set()
        await anyio.sleep_forever()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                config = ToolLoopConfig(on_event=events, middleware=[ToolExecutionHooks(after=after)])
                await tool_loop(ScriptedProvider([calls("quick")]), shop.tools, "go", config=config)

            tasks.start_soon(loop)
            await is_told.wait()
            tasks.cancel_scope.cancel()
    check_transcript(events.result.messages, events.events)
    assert results([*events.result.messages]) == {"quick": "real"}
    assert events.result.reason == Cancelled()


@pytest.mark.parametrize("execution", [Sequential(), Batched(1), Parallel(1)])
async def test_calls_that_had_no_turn_yet_are_answered_as_not_started(
    execution: Sequential | Batched | Parallel,
) -> None:
    shop, events = Workshop(hanging=1), EventCollector()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                config = ToolLoopConfig(on_event=events, execution=execution)
                await tool_loop(ScriptedProvider([calls("slow", "quick")]), shop.tools, "go", config=config)

            tasks.start_soon(loop)
            await shop.all_hang.wait()
            tasks.cancel_scope.cancel()
    check_transcript(events.result.messages, events.events)
    assert results([*events.result.messages])["quick"] == "Not started: the run was cancelled."
    assert events.started == ["slow"]


async def test_cancelling_during_the_request_leaves_the_transcript_as_it_was() -> None:
    events, asked = EventCollector(), anyio.Event()

    class Silent(ScriptedProvider):
        async def generate(self, request: ChatRequest) -> ChatResponse:
            asked.set()
            await anyio.sleep_forever()
            return await super().generate(request)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                config = ToolLoopConfig(on_event=events, stream=False)
                await tool_loop(Silent([]), ToolRegistry[object](), "go", config=config)

            tasks.start_soon(loop)
            await asked.wait()
            tasks.cancel_scope.cancel()
    assert [message.role for message in events.result.messages] == ["user"]
    assert events.result.response is None


async def test_a_cancelled_handle_keeps_the_transcript_and_its_outcome() -> None:
    shop = Workshop()
    handle = ToolLoopHandle(ScriptedProvider([calls("slow", "quick", "slower")]), shop.tools, "go")
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.next_turn)
            await shop.all_hang.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    check_transcript(handle.messages)
    assert results([*handle.messages])["quick"] == "real"
    assert handle.is_finished
    assert handle.into_result().reason == Cancelled()
    assert isinstance(await handle.next_turn(), Completed)


@pytest.mark.parametrize("names", [("stop",), ("slow", "stop", "slower")])
@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
async def test_what_is_no_exception_passes_out_as_itself_after_the_transcript_is_closed(
    names: tuple[str, ...], is_observed: bool, error: type[BaseException]
) -> None:
    shop, events = Workshop(), EventCollector()

    @tool(run_in_thread=False)
    def stop() -> str:
        """Interrupt."""
        raise error

    shop.tools.register(stop)
    handle = ToolLoopHandle(
        ScriptedProvider([calls(*names)]),
        shop.tools,
        "go",
        config=ToolLoopConfig(on_event=events if is_observed else None),
    )
    with anyio.fail_after(120), pytest.raises(error):
        await handle.next_turn()
    check_transcript(handle.messages, events.events)
    assert list(results([*handle.messages])) == list(names)
    with anyio.fail_after(120), pytest.raises(error):
        await tool_loop(
            ScriptedProvider([calls(*names)]),
            shop.tools,
            "go",
            config=ToolLoopConfig(on_event=events if is_observed else None),
        )


@pytest.mark.parametrize("names", [("own",), ("quick", "own")])
async def test_on_asyncio_a_cancellation_that_a_tool_raises_by_itself_is_its_error(
    names: tuple[str, ...], anyio_backend_name: str
) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("every trio.Cancelled is real")
    shop, events = Workshop(), EventCollector()

    @tool
    async def own() -> str:
        """Await what was cancelled elsewhere."""
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return "never"

    shop.tools.register(own)
    result = await tool_loop(
        ScriptedProvider([calls(*names), "done"]), shop.tools, "go", config=ToolLoopConfig(on_event=events)
    )
    assert result.reason == Complete()
    check_transcript(result.messages, events.events)
    assert "CancelledError" in results([*result.messages])["own"]


async def test_on_asyncio_a_scope_knows_its_cancellation_although_a_tool_raises_one_by_itself_just_then(
    anyio_backend_name: str,
) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("every trio.Cancelled is real")
    events, scope = EventCollector(), anyio.CancelScope()

    @tool
    async def own() -> str:
        """Have the loop cancelled, and raise before that arrives."""
        scope.cancel()
        raise asyncio.CancelledError

    with scope:
        config = ToolLoopConfig(on_event=events)
        await tool_loop(ScriptedProvider([calls("own")]), ToolRegistry([own]), "go", config=config)
    assert scope.cancelled_caught
    assert events.result.reason == Cancelled()
    check_transcript(events.result.messages, events.events)


async def _cancel_task(loop: Callable[[], asyncio.Task[object]], shop: Workshop) -> None:
    task = loop()
    await shop.all_hang.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _time_out(loop: Callable[[], asyncio.Task[object]], shop: Workshop) -> None:
    task = loop()
    await shop.all_hang.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await task


async def _wait_for(loop: Callable[[], asyncio.Task[object]], shop: Workshop) -> None:
    task = loop()
    await shop.all_hang.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0)


@pytest.mark.parametrize("end", [_cancel_task, _time_out, _wait_for])
@pytest.mark.parametrize("is_observed", [False, True])
async def test_each_way_of_asyncio_to_cancel_closes_the_loop_and_leaves_no_task(
    end: Callable[..., Awaitable[None]], is_observed: bool, anyio_backend_name: str
) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("asyncio's own ways to cancel")
    shop, events = Workshop(), EventCollector()
    before = asyncio.all_tasks()
    handle = ToolLoopHandle(
        ScriptedProvider([calls("slow", "quick", "slower")]),
        shop.tools,
        "go",
        config=ToolLoopConfig(on_event=events if is_observed else None),
    )
    await end(lambda: asyncio.create_task(handle.next_turn()), shop)
    check_transcript(handle.messages, events.events)
    assert handle.into_result().reason == Cancelled()
    assert sorted(shop.cancelled) == ["slow", "slower"]
    assert asyncio.all_tasks() == before


async def test_fail_after_round_a_loop_raises_its_own_error_once_all_is_closed() -> None:
    shop, events = Workshop(), EventCollector()
    scope = anyio.CancelScope()

    def on_event(event: LoopEvent) -> None:
        events(event)
        if isinstance(event, ToolExecutionEnd) and event.call_id == "quick":
            scope.deadline = anyio.current_time()

    with pytest.raises(TimeoutError):
        with anyio.fail_after(120) as scope:
            await tool_loop(
                ScriptedProvider([calls("slow", "slower", "quick")]),
                shop.tools,
                "go",
                config=ToolLoopConfig(on_event=on_event),
            )
    check_transcript(events.result.messages, events.events)
    assert results([*events.result.messages])["quick"] == "real"
    assert sorted(shop.cancelled) == ["slow", "slower"]


async def test_cancelling_while_a_call_waits_for_another_ones_start_to_be_told_tells_the_truth() -> None:
    """Of two calls, the second is still waiting to be announced: it may not claim to have run."""
    shop, seen, is_telling = Workshop(), EventCollector(), anyio.Event()

    async def on_event(event: LoopEvent) -> None:
        seen(event)
        if isinstance(event, ToolExecutionStart) and not is_telling.is_set():
            is_telling.set()
            await anyio.sleep_forever()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def loop() -> None:
                config = ToolLoopConfig(on_event=on_event)
                await tool_loop(ScriptedProvider([calls("slow", "slower")]), shop.tools, "go", config=config)

            tasks.start_soon(loop)
            await is_telling.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    check_transcript(seen.result.messages, seen.events)
    assert not shop.cancelled
