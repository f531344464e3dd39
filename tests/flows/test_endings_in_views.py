"""Every run that began tells its end once, in every view, and what it leaves can be reached."""

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.flows.small_tools import hang, say
from toolkit import (
    Abort,
    AssistantMessage,
    Defer,
    Done,
    Failed,
    LoopDetectionConfig,
    LoopLimits,
    Message,
    ProviderError,
    ProviderRetryConfig,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    UsageLimits,
    UserMessage,
    Yielded,
    tool,
    tool_loop_channel,
    tool_loop_stream,
    tool_loop_sync,
)
from toolkit.chat import StreamEvent, validate_transcript
from toolkit.endings import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    MaxIterations,
    MissingSteps,
    ResultAsAnswer,
    StopCondition,
    Timeout,
    UsageLimit,
)
from toolkit.errors import LoopError, LoopUsageError
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import Stop, ToolOrder
from toolkit.testing import ScriptedProvider, ScriptedReply, check_transcript

pytestmark = pytest.mark.anyio


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(result_as_answer=True)
async def answer() -> str:
    """Be the answer."""
    return "that's it"


TOOLS = ToolRegistry([echo, hang, answer])
BOTH = AssistantMessage([ToolCall("1", "echo", '{"text": "a"}'), ToolCall("2", "work", "{}")])

Handle = ToolLoopHandle[object, Any]


async def by_run(handle: Handle) -> None:
    await handle.run()


async def by_turns(handle: Handle) -> None:
    while isinstance(outcome := await handle.next_turn(), Yielded):
        pass
    if isinstance(outcome, Failed):
        raise outcome.error


async def by_stream(handle: Handle) -> None:
    seen: list[LoopEvent] = []
    async with handle.stream() as events:
        try:
            async for event in events:
                seen.append(event)
        finally:
            ends = [event for event in seen if isinstance(event, Done | Failed)]
            assert ends == seen[-1:]


async def by_channel(handle: Handle) -> None:
    async with handle.channel(2) as (events, task):
        async for _ in events:
            pass
        await task.result()


async def by_thread(handle: Handle) -> None:
    await anyio.to_thread.run_sync(handle.run_sync)


VIEWS = [by_run, by_turns, by_stream, by_channel, by_thread]


def stop(_: object) -> Stop:
    return Stop("enough")


def abort(_: object) -> Abort:
    return Abort("no")


def defer(_: object) -> Defer:
    return Defer()


def give_half(_: object) -> list[Message]:
    return [ToolResult("9", "no")]


def broken(*_: object) -> Any:
    raise ValueError("broken")


def nonsense(*_: object) -> Any:
    return "nonsense"


STEPS = MissingSteps(("echo",))
ENDINGS: dict[str, tuple[list[ScriptedReply], dict[str, Any], Any]] = {
    "an answer": (["hello"], {}, Complete()),
    "max iterations": ([say("a")], {"max_iterations": 1}, MaxIterations(1)),
    "a timeout": ([ToolCall("1", "hang", "{}")], {"timeout": 0.01}, Timeout(0.01)),
    "a stop condition": ([say("a")], {"stop_when": stop}, StopCondition("enough")),
    "a loop": (
        [say("a", "1"), say("a", "2")],
        {"loop_detection": LoopDetectionConfig(threshold=2, action="stop")},
        None,
    ),
    "a step that is missing": (["hello"], {"middleware": (ToolOrder(required_steps=("echo",), max_retries=0),)}, STEPS),
    "a result": ([ToolCall("1", "answer", "{}")], {}, ResultAsAnswer("1", "answer")),
    "a limit": ([say("a"), "b"], {"limits": LoopLimits(usage=UsageLimits(requests=1))}, UsageLimit("requests", 1, 1)),
    "no approval yet": ([say("a")], {"on_tool_call": defer}, AwaitingApproval((say("a"),))),
    "an abort": ([say("a")], {"on_tool_call": abort}, Aborted("no")),
}

FAILURES: dict[str, tuple[list[ScriptedReply], dict[str, Any], type[Exception]]] = {
    "the provider": ([say("a"), ProviderError("model", "is gone")], {}, ProviderError),
    "the provider's code": ([say("a"), RuntimeError("a slip")], {}, RuntimeError),
    "a stop condition that raises": ([say("a")], {"stop_when": broken}, LoopError),
    "a stop condition that gives nonsense": ([say("a")], {"stop_when": nonsense}, LoopUsageError),
    "a compaction that raises": ([say("a")], {"compaction": broken}, LoopError),
    "a compaction that gives nonsense": ([say("a")], {"compaction": nonsense}, LoopUsageError),
    "a compaction that gives half": ([say("a")], {"compaction": give_half}, LoopUsageError),
    "a depth": (["never"], {"max_depth": 0}, LoopError),
}


def make(replies: list[ScriptedReply], settings: dict[str, Any]) -> tuple[Handle, list[LoopEvent]]:
    told: list[LoopEvent] = []
    config = ToolLoopConfig(on_event=told.append, **settings)
    return ToolLoopHandle(ScriptedProvider(replies), TOOLS, "go", config=config), told


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_each_ending_is_told_once_in_each_view(view: Callable[[Handle], Awaitable[None]], ending: str) -> None:
    replies, settings, reason = ENDINGS[ending]
    handle, told = make(replies, settings)
    with anyio.fail_after(120):
        await view(handle)
    assert isinstance(told[0], RunStart)
    assert [event for event in told if isinstance(event, Done | Failed | RunStart)] == [told[0], told[-1]]
    assert isinstance(told[-1], Done)
    assert told[-1].result == handle.result
    assert reason is None or handle.result.reason == reason
    check_transcript(handle.messages, [] if ending == "no approval yet" else told)
    validate_transcript(handle.result.messages)
    assert {(event.run_id, event.loop_id) for event in told} == {(handle.loop_id, handle.loop_id)}
    assert all(event.time > 1e9 for event in told)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("failure", FAILURES)
async def test_each_failure_is_told_once_and_carries_transcript_and_usage(
    view: Callable[[Handle], Awaitable[None]], failure: str
) -> None:
    replies, settings, kind = FAILURES[failure]
    handle, told = make(replies, {"provider_retry": ProviderRetryConfig(max_retries=0), **settings})
    with anyio.fail_after(120), pytest.raises(kind) as raised:
        await view(handle)
    check_transcript(handle.messages, told)
    if isinstance(raised.value, LoopError | ProviderError):
        assert raised.value.messages == tuple(handle.messages)
        assert raised.value.usage == handle.usage
    if failure == "a depth":
        assert told == []  # it never began
        return
    assert [event for event in told if isinstance(event, Done | Failed | RunStart)] == [told[0], told[-1]]
    assert isinstance(told[-1], Failed)
    assert (told[-1].error, told[-1].usage) == (raised.value, handle.usage)
    assert told[-1].messages == tuple(handle.messages)


@pytest.mark.parametrize("after", range(1, 14))
async def test_a_stream_left_at_any_event_tells_its_end_and_leaves_its_transcript(after: int) -> None:
    told: list[LoopEvent] = []
    provider = ScriptedProvider([say("a"), say("b", "2"), "a long answer"])
    seen = 0
    with anyio.fail_after(120):
        async with tool_loop_stream(provider, TOOLS, "go", config=ToolLoopConfig(on_event=told.append)) as events:
            async for _ in events:
                seen += 1
                if seen == after:
                    break
    check_transcript(events.messages, told)
    assert [event for event in told if isinstance(event, Done | Failed)] == [told[-1]]
    assert events.result.messages == events.messages
    assert events.result.reason == Cancelled()
    assert events.usage == events.result.usage


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("how", ["left", "cancelled", "failed"])
async def test_text_that_was_seen_when_a_stream_is_cut_can_be_kept(keeps: bool, how: str) -> None:
    told: list[LoopEvent] = []
    provider = ScriptedProvider(["one two three"])
    if how == "failed":
        provider = Breaking([])
    config = ToolLoopConfig(keep_partial=keeps, on_event=told.append, provider_retry=ProviderRetryConfig(max_retries=0))
    text = ""
    stream = tool_loop_stream(provider, TOOLS, "go", config=config)
    try:
        async with stream as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    text += event.text
                    if how == "left":
                        break
                    if how == "cancelled":
                        events.cancel("enough")
    except ProviderError:
        assert how == "failed"
    assert text
    said = [message.text for message in stream.messages if message.role == "assistant"]
    assert said == ([text] if keeps else [])
    validate_transcript(stream.messages)


class Breaking(ScriptedProvider):
    """Says two words and breaks off."""

    async def stream(self, request: object) -> AsyncGenerator[StreamEvent]:
        yield TextDelta("one ")
        yield TextDelta("two ")
        raise ProviderError("model", "is gone")


# cancelled from elsewhere


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("who", ["a task", "a thread", "a tool", "a hook", "nobody yet"])
async def test_any_view_is_cancelled_from_anywhere(view: Callable[[Handle], Awaitable[None]], who: str) -> None:
    started = threading.Event()
    told: list[LoopEvent] = []

    @tool
    async def work() -> str:
        """Work for ever."""
        started.set()
        if who == "a tool":
            handle.cancel("enough")
        await anyio.sleep_forever()
        return ""

    def on_event(event: LoopEvent) -> None:
        told.append(event)
        if who == "a hook" and isinstance(event, ToolExecutionStart):
            handle.cancel("enough")

    handle: Handle = ToolLoopHandle(
        ScriptedProvider([BOTH]),
        ToolRegistry([echo, work]),
        "go",
        config=ToolLoopConfig(on_event=on_event),
    )

    def cancel_from_thread() -> None:
        started.wait(300)
        handle.cancel("enough")

    async def cancel_from_task() -> None:
        await anyio.to_thread.run_sync(started.wait, 30)
        handle.cancel("enough")

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            if who == "a task":
                tasks.start_soon(cancel_from_task)
            elif who == "a thread":
                threading.Thread(target=cancel_from_thread, daemon=True).start()
            elif who == "nobody yet":
                handle.cancel("enough")
            await view(handle)
    assert handle.result.reason == Cancelled("enough")
    check_transcript(handle.messages, told)
    assert isinstance(told[-1], Done)
    handle.cancel("too late")
    assert (await handle.run()).reason == Cancelled("enough")


async def test_the_events_of_a_cancelled_stream_are_read_to_the_end() -> None:
    seen: list[LoopEvent] = []
    with anyio.fail_after(120):
        async with tool_loop_stream(ScriptedProvider([ToolCall("1", "hang", "{}")]), TOOLS, "go") as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, ToolExecutionStart):
                    events.cancel("enough")
    assert isinstance(seen[-1], Done)
    assert isinstance(seen[-2], ToolExecutionEnd)
    assert seen[-1].result.reason == Cancelled("enough")


async def test_a_handle_closed_in_mid_turn_cancels_its_tool_and_keeps_what_is_done() -> None:
    told: list[LoopEvent] = []
    cancelled: list[str] = []
    hangs = anyio.Event()

    @tool
    async def work() -> str:
        """Work for ever."""
        hangs.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("work")
        return ""

    tools = ToolRegistry([echo, work])
    handle = ToolLoopHandle(ScriptedProvider([BOTH]), tools, "go", config=ToolLoopConfig(on_event=told.append))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.next_turn)
            await hangs.wait()
            await anyio.wait_all_tasks_blocked()
            await handle.close()
            assert cancelled == ["work"]
            assert isinstance(told[-1], Done)
    check_transcript(handle.messages, told)
    texts = [message.text for message in handle.messages if isinstance(message, ToolResult)]
    assert texts[0] == "a"
    assert texts[1].startswith("Interrupted")
    assert [event for event in told if isinstance(event, Done)] == [told[-1]]


async def test_the_transcript_is_there_after_the_caller_was_cancelled() -> None:
    handle = ToolLoopHandle(ScriptedProvider([say("a"), ToolCall("2", "hang", "{}")]), TOOLS, "go")
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.run)
            while len(handle.messages) < 4:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    check_transcript(handle.messages)
    assert [message.text for message in handle.messages[:3]] == ["go", "", "a"]
    assert handle.result.reason == Cancelled()


def test_the_transcript_is_there_after_an_interrupt_of_the_sync_loop() -> None:
    @tool(run_in_thread=False)
    def interrupt() -> str:
        """Press Ctrl-C."""
        raise KeyboardInterrupt

    tools = ToolRegistry([echo, interrupt])
    handle = ToolLoopHandle(ScriptedProvider([say("a"), ToolCall("2", "interrupt", "{}")]), tools, "go")
    with pytest.raises(KeyboardInterrupt):
        handle.run_sync()
    check_transcript(handle.messages)
    assert [message.text for message in handle.messages[:3]] == ["go", "", "a"]
    assert handle.result.reason == Cancelled()


async def test_an_interrupt_leaves_a_stream_as_itself() -> None:
    @tool(run_in_thread=False)
    def interrupt() -> str:
        """Press Ctrl-C."""
        raise KeyboardInterrupt

    stream = tool_loop_stream(ScriptedProvider([ToolCall("1", "interrupt", "{}")]), ToolRegistry([interrupt]), "go")
    with pytest.raises(KeyboardInterrupt):
        async with stream as events:
            async for _ in events:
                pass
    check_transcript(stream.messages)


async def test_after_a_channel_was_left_its_result_is_there() -> None:
    provider = ScriptedProvider([say("a"), ToolCall("2", "hang", "{}")])
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", buffer_size=0) as (events, task):
            async for event in events:
                if isinstance(event, ToolExecutionStart) and event.call_id == "2":
                    break
    check_transcript(events.messages)
    assert task.messages == events.messages
    assert events.result.reason == Cancelled()
    assert (await task.result()).messages == events.messages


# what the events carry


async def test_a_tools_events_carry_its_label_tags_and_arguments_as_json() -> None:
    @tool(label="Echo chamber", tags=["loud"])
    async def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    told: list[LoopEvent] = []
    provider = ScriptedProvider([ToolCall("1", "shout", '{"text": "a"}'), ToolCall("2", "shout", "{}"), "ok"])
    config = ToolLoopConfig(on_event=told.append, on_tool_call=lambda _: True)
    result = await ToolLoopHandle(provider, ToolRegistry([shout]), "go", config=config).run()
    of_calls = [event for event in told if getattr(event, "call_id", "") and hasattr(event, "tags")]
    names = ["ApprovalRequested", "ToolExecutionStart", "ToolExecutionEnd", "ToolCallRefused"]
    assert [type(event).__name__ for event in of_calls] == names
    for event in of_calls:
        assert (getattr(event, "label", ""), getattr(event, "tags", ())) == ("Echo chamber", {"loud"})
    start = next(event for event in told if isinstance(event, ToolExecutionStart))
    assert (start.arguments, start.arguments_json) == ({"text": "a"}, '{"text":"a"}')
    first = next(message for message in result.messages if isinstance(message, ToolResult))
    assert first.time is not None
    assert start.time <= first.time <= told[-1].time
    assert all(message.time for message in result.messages if isinstance(message, ToolResult))


async def test_a_refusal_is_told_when_it_happens() -> None:
    told: list[LoopEvent] = []
    repeated: list[ScriptedReply] = [say("a", "1"), say("a", "2"), "ok"]
    detection = LoopDetectionConfig(threshold=2, action="skip")
    config = ToolLoopConfig(on_event=told.append, loop_detection=detection)
    await ToolLoopHandle(ScriptedProvider(repeated), TOOLS, "go", config=config).run()
    names = [type(event).__name__ for event in told]
    assert names[names.index("LoopDetected") + 1] == "ToolCallRefused"


def test_a_snapshot_goes_on_in_every_view_with_its_decisions() -> None:
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=defer)
    waiting = tool_loop_sync(ScriptedProvider([say("a")]), TOOLS, "go", config=config)
    assert waiting.snapshot is not None
    result = tool_loop_sync(ScriptedProvider(["ok"]), TOOLS, waiting.snapshot, config=config, decisions={"1": True})
    assert [message.text for message in result.messages] == ["go", "", "a", "ok"]

    async def read() -> None:
        assert waiting.snapshot is not None
        seen: list[LoopEvent] = []
        decisions = {"1": "not now"}
        model = ScriptedProvider(["ok"])
        async with tool_loop_stream(model, TOOLS, waiting.snapshot, config=config, decisions=decisions) as events:
            async for event in events:
                seen.append(event)
        assert [message.text for message in events.messages] == ["go", "", "not now", "ok"]
        assert [type(event).__name__ for event in seen[:2]] == ["RunStart", "ToolCallRefused"]
        async with tool_loop_channel(
            ScriptedProvider(["ok"]), TOOLS, waiting.snapshot, config=config, decisions={"1": True}
        ) as (_, task):
            assert (await task.result()).text == "ok"

    anyio.run(read)
    with pytest.raises(LoopUsageError, match="no decision is awaited on call '7'"):
        tool_loop_sync(ScriptedProvider([]), TOOLS, waiting.snapshot, config=config, decisions={"7": True})


async def test_a_run_that_awaits_approval_can_be_talked_on_with() -> None:
    config: ToolLoopConfig = ToolLoopConfig(on_tool_call=defer)
    handle = ToolLoopHandle(ScriptedProvider([say("a")]), TOOLS, "go", config=config)
    waiting = await handle.run()
    validate_transcript(waiting.messages)
    assert handle.messages == waiting.messages
    assert waiting.messages[-1].text == "Not started: approval is awaited."
    again = ToolLoopHandle(ScriptedProvider(["as you like"]), TOOLS, [*waiting.messages, UserMessage("Never mind.")])
    assert (await again.run()).text == "as you like"
