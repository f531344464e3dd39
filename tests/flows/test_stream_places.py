"""Streams where people put them: inside asynchronous generators, responses, and waits with a time limit."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.flows.small_tools import TOOLS, say
from toolkit import (
    AssistantMessage,
    Done,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    tool,
    tool_loop_channel,
    tool_with_ctx,
)
from toolkit.endings import Cancelled, Complete
from toolkit.events import LoopEvent, ToolCallRefused, ToolExecutionEnd, ToolExecutionStart
from toolkit.policies import ToolExecutionHooks
from toolkit.testing import ScriptedProvider, ScriptedReply, check_transcript

pytestmark = pytest.mark.anyio


class Site:
    """A loop whose tool waits until it is told to go on, or is cancelled."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.is_cancelled = anyio.Event()
        self.told: list[LoopEvent] = []

        @tool
        async def echo(text: str) -> str:
            """Say it again."""
            return text

        @tool_with_ctx
        async def wait(context: ToolContext[object]) -> str:
            """Wait."""
            context.report_progress("waiting")
            try:
                await self.go_on.wait()
            except anyio.get_cancelled_exc_class():
                self.is_cancelled.set()
                raise
            return "waited"

        self.handle: ToolLoopHandle[object] = ToolLoopHandle(
            ScriptedProvider([say("a"), ToolCall("2", "wait", "{}"), "the end"]),
            ToolRegistry([echo, wait]),
            "go",
            config=ToolLoopConfig(on_event=self.told.append),
        )

    async def lines(self) -> AsyncGenerator[str]:
        """Yield inside of the stream's block, as people do."""
        async with self.handle.stream() as events:
            async for event in events:
                yield f"{type(event).__name__}\n"

    def check_left(self) -> None:
        check_transcript(self.handle.messages, self.told)
        assert self.handle.result.reason == Cancelled()
        assert [event for event in self.told if isinstance(event, Done)] == [self.told[-1]]


async def read_to_the_tool(lines: AsyncGenerator[str]) -> None:
    async for line in lines:
        if line == "ToolProgress\n":
            return


async def test_a_generator_that_is_closed_cancels_the_run() -> None:
    site = Site()
    lines = site.lines()
    with anyio.fail_after(120):
        await read_to_the_tool(lines)
        await lines.aclose()
        assert site.is_cancelled.is_set()
    site.check_left()


async def test_a_generator_that_is_closed_by_another_task_cancels_the_run() -> None:
    site = Site()
    lines = site.lines()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_to_the_tool, lines)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lines.aclose)
        assert site.is_cancelled.is_set()
    site.check_left()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio warns of such a generator, whatever is in it
async def test_a_generator_that_is_forgotten_cancels_the_run() -> None:
    site = Site()
    with anyio.fail_after(120):
        lines = site.lines()
        await read_to_the_tool(lines)
        del lines
        gc.collect()
        await site.is_cancelled.wait()
        while not isinstance(site.told[-1], Done):
            await anyio.lowlevel.checkpoint()
    site.check_left()


async def test_a_reader_that_is_cancelled_in_a_generator_cancels_the_run() -> None:
    site = Site()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                async for _ in site.lines():
                    pass

            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert site.is_cancelled.is_set()
    site.check_left()


@pytest.mark.parametrize("spec_version", ["2.0", "2.4"])
async def test_a_response_whose_client_leaves_cancels_the_run(spec_version: str, anyio_backend_name: str) -> None:
    """As servers tell it: by a message before version 2.4 of ASGI, by an error of ``send`` from then on."""
    if spec_version == "2.4" and anyio_backend_name == "trio":
        pytest.skip("Starlette forgets the generator then, and trio warns of that, whatever is in it")
    site = Site()
    left = anyio.Event()
    received: list[bytes] = []

    async def endpoint(_: Request) -> StreamingResponse:
        return StreamingResponse(site.lines(), media_type="text/plain")

    async def receive() -> MutableMapping[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        received.append(message.get("body", b""))
        if received[-1] == b"ToolProgress\n":
            left.set()
            if spec_version == "2.4":
                raise OSError

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"spec_version": spec_version},
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [],
    }
    app = Starlette(routes=[Route("/", endpoint)])
    with anyio.fail_after(120):
        with suppress(ClientDisconnect):
            await app(scope, receive, send)
        gc.collect()
        await site.is_cancelled.wait()
        while not isinstance(site.told[-1], Done):
            await anyio.lowlevel.checkpoint()
    site.check_left()


Wait = Callable[[Any], Awaitable[Any]]


async def wait_with_asyncio(events: Any) -> Any:
    try:
        return await asyncio.wait_for(anext(events), 0.001)
    except TimeoutError:
        return None


async def wait_with_anyio(events: Any) -> Any:
    with anyio.move_on_after(0.001):
        return await anext(events)


@pytest.mark.parametrize("view", ["stream", "channel"])
@pytest.mark.parametrize("wait", [wait_with_asyncio, wait_with_anyio])
async def test_waiting_for_an_event_with_a_limit_loses_none(wait: Wait, view: str, anyio_backend_name: str) -> None:
    if wait is wait_with_asyncio and anyio_backend_name != "asyncio":
        pytest.skip("asyncio's own way to wait")
    site, beats = Site(), 0
    seen: list[LoopEvent] = []

    async def read(events: Any) -> None:
        nonlocal beats
        while not seen or not isinstance(seen[-1], Done):
            event = await wait(events)
            if event is not None:
                seen.append(event)
                continue
            beats += 1
            if beats >= 3:
                site.go_on.set()

    with anyio.fail_after(120):
        if view == "stream":
            async with site.handle.stream() as events:
                await read(events)
        else:
            async with site.handle.channel(0) as (channel, task):
                await read(channel)
                assert (await task.result()).text == "the end"
    assert seen == site.told
    assert beats >= 3
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "the end"
    assert site.handle.result.reason == Complete()


async def test_a_result_is_had_although_the_last_wait_for_an_event_was_given_up() -> None:
    with anyio.fail_after(120):
        async with tool_loop_channel(ScriptedProvider(["one two three"]), ToolRegistry(), "go", buffer_size=0) as (
            events,
            task,
        ):
            await wait_with_anyio(events)
            await wait_with_anyio(events)
            assert (await task.result()).text == "one two three"


@pytest.mark.parametrize("reads_itself", [False, True])
async def test_a_result_may_be_asked_for_before_the_reader_of_a_channel_begins(reads_itself: bool) -> None:
    provider = ScriptedProvider([say("a"), "one two three"])
    told: list[LoopEvent] = []
    seen: list[LoopEvent] = []
    config = ToolLoopConfig(on_event=told.append)
    with anyio.fail_after(120):
        async with tool_loop_channel(provider, TOOLS, "go", config=config, buffer_size=1) as (events, task):

            async def read() -> None:
                await anyio.wait_all_tasks_blocked()
                async for event in events:
                    seen.append(event)

            async with anyio.create_task_group() as tasks:
                if not reads_itself:
                    tasks.start_soon(read)
                assert (await task.result()).text == "one two three"
            if reads_itself:
                await read()
    assert seen == told


@pytest.mark.parametrize("view", ["stream", "channel"])
@pytest.mark.parametrize("is_heard", [False, True])
async def test_a_stream_after_a_stepped_turn_begins_as_any(view: str, is_heard: bool) -> None:
    told: list[LoopEvent] = []
    seen: list[LoopEvent] = []
    config = ToolLoopConfig(on_event=told.append if is_heard else None)
    handle = ToolLoopHandle(ScriptedProvider([say("a"), "ok"]), TOOLS, "go", config=config)
    with anyio.fail_after(120):
        await handle.next_turn()
        if view == "stream":
            async with handle.stream() as stream:
                async for event in stream:
                    seen.append(event)
        else:
            async with handle.channel() as (channel, _):
                async for event in channel:
                    seen.append(event)
    names = [type(event).__name__ for event in seen]
    assert names == ["RunStart", "IterationStart", "TextDelta", "ResponseReceived", "Done"]
    assert {(event.run_id, event.loop_id) for event in seen} == {(handle.loop_id, handle.loop_id)}
    if is_heard:
        assert [type(event).__name__ for event in told].count("RunStart") == 1


async def test_a_call_that_never_began_has_no_start() -> None:
    """Its start waits for the hook that is told of another one when the run is cancelled."""
    told: list[LoopEvent] = []
    ran: list[str] = []

    @tool
    async def work(text: str) -> str:
        """Work."""
        ran.append(text)
        return text

    async def tell(event: LoopEvent) -> None:
        told.append(event)
        if isinstance(event, ToolExecutionStart) and event.call_id == "a":
            handle.cancel("enough")
            await anyio.sleep_forever()

    calls = AssistantMessage([ToolCall(name, "work", f'{{"text": "{name}"}}') for name in "abc"])
    model = ScriptedProvider([calls])
    handle = ToolLoopHandle(model, ToolRegistry([work]), "go", config=ToolLoopConfig(on_event=tell))
    with anyio.fail_after(120):
        result = await handle.run()
    check_transcript(result.messages, told)
    assert ran == []
    kinds = (ToolExecutionStart, ToolExecutionEnd, ToolCallRefused)
    ends = [(type(event).__name__, event.call_id) for event in told if isinstance(event, kinds)]
    assert ends == [
        ("ToolExecutionStart", "a"),
        ("ToolExecutionEnd", "a"),
        ("ToolCallRefused", "b"),
        ("ToolCallRefused", "c"),
    ]


async def test_a_variable_that_a_tool_sets_stays_inside_its_call() -> None:
    from contextvars import ContextVar

    setting: ContextVar[str] = ContextVar("setting", default="unset")
    seen: list[str] = []

    @tool
    async def change() -> str:
        """Set it."""
        seen.append(setting.get())
        setting.set("by a tool")
        await anyio.lowlevel.checkpoint()
        seen.append(setting.get())
        return "set"

    replies: list[ScriptedReply] = [ToolCall("1", "change", "{}"), ToolCall("2", "change", "{}"), "ok"]
    handle = ToolLoopHandle(ScriptedProvider(replies), ToolRegistry([change]), "go")
    setting.set("outside")
    await handle.run()
    assert seen == ["outside", "by a tool"] * 2
    assert setting.get() == "outside"


async def test_hooks_and_readers_see_one_order_in_every_view() -> None:
    def orders() -> tuple[ToolLoopHandle[object], list[str]]:
        order: list[str] = []

        @tool
        async def work() -> str:
            """Work."""
            order.append("work")
            return ""

        def tell(event: LoopEvent) -> None:
            if isinstance(event, Done | ToolExecutionStart) or type(event).__name__ == "ToolExecutionEnd":
                order.append(type(event).__name__)

        def before(*_: object) -> bool:
            order.append("before")
            return True

        def after(*_: object) -> None:
            order.append("after")

        config = ToolLoopConfig(on_event=tell, middleware=[ToolExecutionHooks(before=before, after=after)])
        model = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
        return ToolLoopHandle(model, ToolRegistry([work]), "go", config=config), order

    expected = ["before", "ToolExecutionStart", "work", "ToolExecutionEnd", "after", "Done"]
    handle, order = orders()
    await handle.run()
    assert order == expected
    handle, order = orders()
    while not handle.is_finished:
        await handle.next_turn()
    assert order == expected
    handle, order = orders()
    async with handle.stream() as events:
        async for _ in events:
            pass
    assert order == expected
    handle, order = orders()
    async with handle.channel() as (channel, _):
        async for _ in channel:
            pass
    assert order == expected
