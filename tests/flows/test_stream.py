"""A loop as a stream: what comes out of it, and what is left when it is left."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from tests.flows.small_tools import echo, hang
from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Done,
    Failed,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool_loop_channel,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent, validate_transcript
from toolkit.endings import Cancelled, Complete, Timeout
from toolkit.errors import LoopUsageError
from toolkit.events import (
    IterationStart,
    LoopEvent,
    RunStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool_with_ctx
async def count(context: ToolContext[object], to: int) -> str:
    """Count."""
    for number in range(to):
        context.report_update(str(number))
        await anyio.lowlevel.checkpoint()
    return "counted"


TOOLS = ToolRegistry([echo, hang, count])


def calls(*wanted: tuple[str, str]) -> AssistantMessage:
    return AssistantMessage([ToolCall(f"c{index}", name, text) for index, (name, text) in enumerate(wanted)])


def ending(seen: list[LoopEvent]) -> Done:
    done = [event for event in seen if isinstance(event, Done)]
    assert len(done) == 1
    assert seen[-1] is done[0]
    validate_transcript(done[0].result.messages)
    return done[0]


async def test_events_come_in_order_and_done_is_last() -> None:
    provider = ScriptedProvider([calls(("echo", '{"text": "a"}')), "It said a."])
    seen: list[LoopEvent] = []
    async with tool_loop_stream(provider, TOOLS, "go") as events:
        async for event in events:
            seen.append(event)
    names = [type(event).__name__ for event in seen]
    assert names == [
        "RunStart",
        "IterationStart",
        "ArgumentsDelta",
        "ResponseReceived",
        "ToolExecutionStart",
        "ToolExecutionEnd",
        "IterationStart",
        "TextDelta",
        "TextDelta",
        "TextDelta",
        "ResponseReceived",
        "Done",
    ]
    assert ending(seen).result.reason == Complete()
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "It said a."


async def test_updates_are_seen_while_the_tool_runs() -> None:
    seen: list[str] = []
    async with tool_loop_stream(ScriptedProvider([calls(("count", '{"to": 3}')), "ok"]), TOOLS, "go") as events:
        async for event in events:
            if isinstance(event, ToolExecutionUpdate):
                seen.append(event.output.text)
            elif isinstance(event, ToolExecutionEnd):
                seen.append("end")
    assert seen == ["0", "1", "2", "end"]


async def test_leaving_early_cancels_the_tools_and_closes_the_transcript() -> None:
    told: list[LoopEvent] = []
    provider = ScriptedProvider([calls(("echo", '{"text": "a"}'), ("hang", "{}"))])
    with anyio.fail_after(120):
        async with tool_loop_stream(provider, TOOLS, "go", config=ToolLoopConfig(on_event=told.append)) as events:
            async for event in events:
                if isinstance(event, ToolExecutionEnd):
                    break
    result = ending(told).result
    assert result.reason == Cancelled()
    texts = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert texts[0] == "a"
    assert texts[1].startswith(("Interrupted", "Not started"))
    started = {event.call_id for event in told if isinstance(event, ToolExecutionStart)}
    ended = {event.call_id for event in told if isinstance(event, ToolExecutionEnd)}
    assert started == ended


async def test_an_exception_of_the_body_leaves_as_itself() -> None:
    provider = ScriptedProvider([calls(("hang", "{}"))])
    with pytest.raises(ZeroDivisionError):
        async with tool_loop_stream(provider, TOOLS, "go") as events:
            async for event in events:
                if isinstance(event, ToolExecutionStart):
                    raise ZeroDivisionError


async def test_the_clock_does_not_cancel_the_reader_but_ends_the_run() -> None:
    provider = ScriptedProvider([calls(("hang", "{}"))])
    seen: list[LoopEvent] = []
    with anyio.fail_after(120):
        async with tool_loop_stream(provider, TOOLS, "go", config=ToolLoopConfig(timeout=0.05)) as events:
            async for event in events:
                seen.append(event)
    assert ending(seen).result.reason == Timeout(0.05)


class HangingProvider:
    """Says one word, then nothing."""

    def __init__(self) -> None:
        self.is_closed = False

    async def generate(self, request: ChatRequest) -> ChatResponse:
        await anyio.sleep_forever()
        raise AssertionError

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        try:
            yield TextDelta("well")
            await anyio.sleep_forever()
        finally:
            self.is_closed = True


async def test_the_clock_also_runs_while_the_model_speaks() -> None:
    provider = HangingProvider()
    seen: list[LoopEvent] = []
    with anyio.fail_after(120):
        async with tool_loop_stream(provider, TOOLS, "go", config=ToolLoopConfig(timeout=0.05)) as events:
            async for event in events:
                seen.append(event)
    assert ending(seen).result.reason == Timeout(0.05)
    assert provider.is_closed


async def test_leaving_while_the_model_speaks_closes_the_providers_stream() -> None:
    provider = HangingProvider()
    async with tool_loop_stream(provider, TOOLS, "go") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert provider.is_closed


class CutProvider:
    """Ends its stream without the last event."""

    async def generate(self, request: ChatRequest) -> ChatResponse:
        raise AssertionError

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta("well")
        if len(request.messages) > 99:
            yield ResponseDone(ChatResponse(message=AssistantMessage("never")))


async def test_a_failure_ends_the_stream_with_failed_and_raises() -> None:
    seen: list[LoopEvent] = []
    told: list[LoopEvent] = []
    provider = ScriptedProvider([ProviderError("scripted", "broken")])
    with pytest.raises(ProviderError, match="broken") as failure:
        async with tool_loop_stream(provider, TOOLS, "go", config=ToolLoopConfig(on_event=told.append)) as events:
            async for event in events:
                seen.append(event)
    assert [message.role for message in failure.value.messages] == ["user"]
    assert [type(event) for event in seen] == [RunStart, IterationStart, Failed]
    assert seen == told
    assert isinstance(seen[-1], Failed)
    assert seen[-1].error is failure.value


async def test_a_stream_can_be_entered_once() -> None:
    stream = tool_loop_stream(ScriptedProvider(["hi"]), TOOLS, "go")
    async with stream as events:
        async for _ in events:
            pass
    with pytest.raises(LoopUsageError, match="entered once"):
        await stream.__aenter__()


async def test_cancelling_the_reader_passes_on_and_closes_the_transcript() -> None:
    told: list[LoopEvent] = []

    def tell(event: LoopEvent) -> None:
        told.append(event)
        if isinstance(event, ToolExecutionStart):
            scope.deadline = anyio.current_time()

    with anyio.move_on_after(60) as scope:
        async with tool_loop_stream(
            ScriptedProvider([calls(("hang", "{}"))]), TOOLS, "go", config=ToolLoopConfig(on_event=tell)
        ) as events:
            async for _ in events:
                pass
    assert scope.cancelled_caught
    assert ending(told).result.reason == Cancelled()


# the channel


async def test_a_channel_gives_events_and_the_result() -> None:
    provider = ScriptedProvider([calls(("echo", '{"text": "a"}')), "It said a."])
    seen: list[LoopEvent] = []
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", buffer_size=1) as (events, handle):
            async for event in events:
                seen.append(event)
            assert (await handle.result()).text == "It said a."
    assert ending(seen).result.text == "It said a."


async def test_a_channel_holds_the_run_back_for_a_slow_reader() -> None:
    provider = ScriptedProvider([calls(("echo", '{"text": "a"}')), "It said a."])
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", buffer_size=2) as (events, handle):
            await anyio.wait_all_tasks_blocked()
            assert len(provider.requests) == 1
            async for _ in events:
                pass
            assert len(provider.requests) == 2
            assert (await handle.result()).reason == Complete()


async def test_a_channel_goes_on_when_its_reader_only_wants_the_result() -> None:
    provider = ScriptedProvider([calls(("echo", '{"text": "a"}')), "It said a."])
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", buffer_size=1) as (events, handle):
            async for _ in events:
                break
            assert (await handle.result()).text == "It said a."


async def test_a_channel_left_early_cancels_the_run() -> None:
    told: list[LoopEvent] = []
    provider = ScriptedProvider([calls(("hang", "{}"))])
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", config=ToolLoopConfig(on_event=told.append)) as (events, _):
            async for event in events:
                if isinstance(event, ToolExecutionStart):
                    break
    assert ending(told).result.reason == Cancelled()


async def test_a_channel_raises_what_made_the_run_fail() -> None:
    with anyio.fail_after(120):
        async with tool_loop_channel(ScriptedProvider([ProviderError("scripted", "broken")]), TOOLS, "go") as (
            events,
            handle,
        ):
            with pytest.raises(ProviderError, match="broken"):
                async for _ in events:
                    pass
            with pytest.raises(ProviderError, match="broken"):
                await handle.result()


async def test_a_channel_refuses_a_negative_buffer() -> None:
    with pytest.raises(ConfigurationError, match="buffer_size"):
        tool_loop_channel(ScriptedProvider([]), TOOLS, "go", buffer_size=-1)


async def test_a_stream_that_breaks_off_is_a_provider_error() -> None:
    from toolkit import ProviderRetryConfig

    config = ToolLoopConfig(provider_retry=ProviderRetryConfig(max_retries=0))
    with pytest.raises(ProviderError, match="without its last event"):
        async with tool_loop_stream(CutProvider(), TOOLS, "go", config=config) as events:
            async for _ in events:
                pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_while_it_reads_ends_as_cancelled() -> None:
    told: list[LoopEvent] = []

    async def read() -> None:
        async with tool_loop_stream(
            ScriptedProvider([calls(("hang", "{}"))]), TOOLS, "go", config=ToolLoopConfig(on_event=told.append)
        ) as events:
            async for _ in events:
                pass

    task = asyncio.create_task(read())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ending(told).result.reason == Cancelled()
