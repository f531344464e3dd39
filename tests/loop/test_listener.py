"""Hooks are told of everything in order, whether they wait or not."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import PlainSerializer

from toolkit import (
    ApprovalRequest,
    ChatRequest,
    Middleware,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse, StreamEvent
from toolkit.errors import ConfigurationError
from toolkit.events import (
    ApprovalRequested,
    Done,
    IterationStart,
    LoopEvent,
    ResponseReceived,
    RunStart,
    TextDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
    listener,
)
from toolkit.policies import ToolExecutionHooks
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

Hook = Callable[[LoopEvent], Awaitable[None] | None]


@tool_with_ctx
async def work(context: ToolContext[object], steps: int) -> str:
    """Work."""
    for step in range(steps):
        context.report_update(step)
        context.report_progress(f"{step}")
    await anyio.lowlevel.checkpoint()
    context.report_progress("last")
    return "done"


@tool_with_ctx
def work_in_a_thread(context: ToolContext[object], steps: int) -> str:
    """Work."""
    for step in range(steps):
        context.report_update(step)
    return "done"


TOOLS = ToolRegistry([work, work_in_a_thread])


def told(events: list[LoopEvent]) -> list[str]:
    kinds = (ToolExecutionStart, ToolExecutionUpdate, ToolProgress, ToolExecutionEnd)
    return [
        type(event).__name__.removeprefix("Tool").removeprefix("Execution")
        for event in events
        if isinstance(event, kinds)
    ]


async def run(hook: Hook, name: str = "work", steps: int = 2, **more: Any) -> None:
    provider = ScriptedProvider([ToolCall("1", name, f'{{"steps": {steps}}}'), "ok"])
    with anyio.fail_after(120):
        await tool_loop(provider, TOOLS, "go", config=ToolLoopConfig(on_event=hook, **more))


class Recorder:
    def __init__(self) -> None:
        self.events: list[LoopEvent] = []

    def plain(self, event: LoopEvent) -> None:
        self.events.append(event)

    async def waiting(self, event: LoopEvent) -> None:
        await anyio.lowlevel.checkpoint()
        self.events.append(event)

    async def __call__(self, event: LoopEvent) -> None:
        await self.waiting(event)


HOOKS: dict[str, Callable[[Recorder], Hook]] = {
    "a method": lambda recorder: recorder.plain,
    "a built-in": lambda recorder: recorder.events.append,
    "an async method": lambda recorder: recorder.waiting,
    "an object": lambda recorder: recorder,
    "a lambda": lambda recorder: lambda event: recorder.plain(event),  # noqa: PLW0108
    "a lambda that gives an awaitable": lambda recorder: lambda event: recorder.waiting(event),  # noqa: PLW0108
    "a partial": lambda recorder: partial(recorder.waiting),
}


@pytest.mark.parametrize("kind", HOOKS)
async def test_every_kind_of_hook_is_told_of_everything_in_order(kind: str) -> None:
    recorder = Recorder()
    await run(HOOKS[kind](recorder))
    assert told(recorder.events) == ["Start", "Update", "Progress", "Update", "Progress", "Progress", "End"]


@pytest.mark.parametrize("kind", ["a method", "an async method"])
async def test_reports_from_a_thread_wait_until_they_are_taken(kind: str) -> None:
    recorder = Recorder()
    await run(HOOKS[kind](recorder), "work_in_a_thread", 200)
    assert told(recorder.events) == ["Start", *["Update"] * 200, "End"]
    assert [event.output.text for event in recorder.events if isinstance(event, ToolExecutionUpdate)] == [
        str(number) for number in range(200)
    ]


async def test_a_slow_hook_loses_old_reports_and_is_told_how_many() -> None:
    """A call has 10,000 waiting at most: the oldest gives way, and the newest counts it."""
    recorder = Recorder()
    await run(recorder.waiting, steps=6000)
    names = told(recorder.events)
    assert names[0] == "Start"
    assert names[-1] == "End"
    reports = [event for event in recorder.events if isinstance(event, ToolExecutionUpdate | ToolProgress)]
    assert 10_000 <= len(reports) <= 10_002  # one is being taken, and one comes after a break
    assert len(reports) + sum(report.dropped for report in reports) == 12_001
    assert isinstance(reports[-1], ToolProgress)
    assert reports[-1].text == "last"


async def test_a_plain_function_that_gives_an_awaitable_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()

    def hook(event: LoopEvent) -> Awaitable[None]:
        return recorder.waiting(event)

    with caplog.at_level(logging.WARNING, "toolkit.loop"):
        await run(hook)
    assert [record.message for record in caplog.records] == [
        "a hook that is a plain function gave an awaitable, and one report was lost: make it async"
    ]
    assert told(recorder.events)[0] == "Start"
    assert told(recorder.events)[-1] == "End"


async def test_update_hooks_suppress_and_follow_updates_alone() -> None:
    recorder = Recorder()
    asked: list[str] = []
    followed: list[str] = []

    def before(name: str, call_id: str, text: str) -> bool:
        asked.append(f"{name} {call_id} {text}")
        return text != "0"

    async def after(name: str, call_id: str, text: str) -> None:
        followed.append(text)

    await run(recorder.plain, steps=3, middleware=[ToolExecutionHooks(before_update=before, after_update=after)])
    assert asked == ["work 1 0", "work 1 1", "work 1 2"]
    assert followed == ["1", "2"]
    updates = [event.output.text for event in recorder.events if isinstance(event, ToolExecutionUpdate)]
    assert updates == ["1", "2"]
    assert len([event for event in recorder.events if isinstance(event, ToolProgress)]) == 4


async def test_nobody_listening_is_told_to_the_tool() -> None:
    seen: list[bool] = []

    @tool_with_ctx
    async def look(context: ToolContext[object]) -> str:
        """Look."""
        seen.append(context.is_observed)
        context.report_update("nobody")
        return ""

    registry = ToolRegistry([look])
    call = ToolCall("1", "look", "{}")
    await tool_loop(ScriptedProvider([call, "ok"]), registry, "go")
    await tool_loop(ScriptedProvider([call, "ok"]), registry, "go", config=ToolLoopConfig(on_event=lambda event: None))
    assert seen == [False, True]


def kinds_of(events: list[LoopEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


class Asked:
    """A provider that notes how it is asked."""

    def __init__(self) -> None:
        self.script = ScriptedProvider([ToolCall("1", "work", '{"steps": 1}'), "ok"])
        self.ways: list[str] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        self.ways.append("whole")
        return await self.script.generate(request)

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.ways.append("in pieces")
        return self.script.stream(request)


SOME_KINDS: list[Any] = [
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate | ToolProgress,
    ApprovalRequested | ToolExecutionStart,
    ResponseReceived,
    IterationStart | Done,
    RunStart,
    TextDelta,
    LoopEvent,
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kinds", SOME_KINDS)
async def test_a_listener_takes_events_of_its_kinds_alone_as_they_are_for_others(kinds: Any, is_async: bool) -> None:
    chosen: list[LoopEvent] = []
    whole: list[LoopEvent] = []

    async def choose(event: LoopEvent) -> None:
        await anyio.lowlevel.checkpoint()
        chosen.append(event)

    async def approve(request: ApprovalRequest) -> bool:
        return True

    take = listener(kinds, choose if is_async else chosen.append)
    for hook in (take, whole.append):
        config = ToolLoopConfig(on_event=hook, on_tool_call=approve)
        await tool_loop(Asked(), TOOLS, "go", config=config)
    assert chosen
    assert kinds_of(chosen) == [
        kind for event, kind in zip(whole, kinds_of(whole), strict=True) if isinstance(event, kinds)
    ]


@pytest.mark.parametrize(("kinds", "ways"), [(ToolExecutionEnd, "whole"), (TextDelta | Done, "in pieces")])
async def test_a_reply_comes_in_pieces_where_a_listener_takes_these(kinds: Any, ways: str) -> None:
    provider, taken = Asked(), list[LoopEvent]()
    await tool_loop(provider, TOOLS, "go", config=ToolLoopConfig(on_event=listener(kinds, taken.append)))
    assert provider.ways == [ways, ways]


@pytest.mark.parametrize("kinds", [ToolExecutionEnd, ToolExecutionStart])
async def test_an_event_that_nobody_takes_is_not_made(kinds: Any) -> None:
    written: list[int] = []

    def write(value: int) -> int:
        written.append(value)
        return value

    @tool
    async def count(steps: Annotated[int, PlainSerializer(write)]) -> str:
        """Count."""
        return "done"

    def ignore(event: object) -> None:
        """Take it."""

    provider = ScriptedProvider([ToolCall("1", "count", '{"steps": 1}'), "ok"])
    config = ToolLoopConfig(on_event=listener(kinds, ignore))
    await tool_loop(provider, ToolRegistry([count]), "go", config=config)
    assert written == ([1] if kinds is ToolExecutionStart else [])  # its start shows the arguments as JSON


async def test_a_stream_and_middleware_take_all_events_beside_a_listener() -> None:
    taken: list[LoopEvent] = []
    watched: list[LoopEvent] = []

    class Watcher(Middleware[object]):
        async def on_event(self, event: LoopEvent) -> None:
            watched.append(event)

    def make_config(*middleware: Middleware[object]) -> ToolLoopConfig:
        return ToolLoopConfig(on_event=listener(ToolExecutionEnd, taken.append), middleware=middleware)

    async with tool_loop_stream(Asked(), TOOLS, "go", config=make_config()) as events:
        streamed = [event async for event in events]
    await tool_loop(Asked(), TOOLS, "go", config=make_config(Watcher()))
    assert kinds_of(taken) == ["ToolExecutionEnd"] * 2
    expected = {"RunStart", "IterationStart", "ToolExecutionStart", "ToolProgress", "ToolExecutionEnd", "Done"}
    assert expected <= set(kinds_of(watched))
    assert expected <= set(kinds_of(streamed))


@pytest.mark.parametrize("kinds", [int, ToolExecutionEnd | int, None, "ToolExecutionEnd"])
async def test_a_listener_is_refused_for_what_is_no_event(kinds: Any) -> None:
    with pytest.raises(ConfigurationError, match="there are no events of the kind"):
        listener(kinds, print)
    with pytest.raises(ConfigurationError, match="must be a function"):
        listener(ToolExecutionEnd, cast("Any", None))
