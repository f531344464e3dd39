"""A loop as a stream of its events: pulled by its reader, or pushed through a bounded channel."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, overload

import anyio

from toolkit.chat import Provider
from toolkit.errors import LoopUsageError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.driver import Driver, Prompt, check_parts
from toolkit.loop.events import Done, LoopEvent
from toolkit.loop.listener import EventQueue, HookListener
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.loop.state import CallModel, Finished, RunTools
from toolkit.tools.events import ToolExecutionUpdate, ToolProgress
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.settings import check_setting

if TYPE_CHECKING:
    # anyio gives them at first use; imported here they would be a tenth of what importing toolkit takes.
    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["EventChannel", "EventStream", "LoopTask", "tool_loop_channel", "tool_loop_stream"]


class _Inbox:
    """What tools tell while they run, until the reader takes it."""

    __slots__ = ("_is_closed", "_queue", "_wake")

    def __init__(self) -> None:
        self._queue = EventQueue()
        self._is_closed = True
        self._wake = anyio.Event()

    @property
    def needs_pump(self) -> bool:
        return False

    async def emit(self, event: LoopEvent) -> None:
        self._queue.put(event)
        self._wake.set()

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        self._queue.offer(event)
        self._wake.set()

    async def pump(self) -> None:
        await anyio.sleep_forever()

    def open(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()

    def take_all(self) -> list[LoopEvent]:
        """Return what nobody has taken."""
        taken: list[LoopEvent] = []
        while self._queue:
            taken.append(self._queue.take())
        return taken

    async def next(self) -> LoopEvent | None:
        """Return the next event; None once the tools are done and all is taken."""
        while not self._queue:
            if self._is_closed:
                return None
            self._wake = anyio.Event()
            await self._wake.wait()
        return self._queue.take()


class EventStream(Generic[Ctx, Out]):
    """What `tool_loop_stream` gives: enter it, iterate, leave it when you like."""

    __slots__ = ("_driver", "_events", "_failure", "_hooks", "_inbox", "_make", "_tasks")

    def __init__(
        self,
        provider: Provider,
        registry: ToolRegistry[Ctx],
        prompt: Prompt,
        ctx: Ctx,
        config: ToolLoopConfig[Out] | None,
    ) -> None:
        check_parts(provider, registry, prompt, config)
        self._inbox = _Inbox()
        self._hooks = HookListener.of(config)
        self._make: Callable[[], Driver[Ctx, Out]] = lambda: Driver(
            provider, registry, prompt, ctx, config, listener=self._inbox
        )
        self._driver: Driver[Ctx, Out] | None = None
        self._events: AsyncGenerator[LoopEvent] | None = None
        self._failure: BaseException | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> AsyncIterator[LoopEvent]:
        if self._driver is not None:
            raise LoopUsageError("a stream can be entered once; call tool_loop_stream again for another run")
        self._driver = self._make()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._events = self._told(self._driver, self._tasks)
        return self._events

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._driver is not None
        assert self._tasks is not None
        assert self._events is not None
        driver = self._driver
        try:
            self._tasks.cancel_scope.cancel()
            try:
                await self._events.aclose()
            finally:
                # Not told of the body's exception: it leaves as itself, not in a group.
                await self._tasks.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            raise _innermost(group) from None
        finally:
            if not driver.state.is_finished:
                driver.state.cancelled()
                if self._hooks is not None:
                    await self._tell_unread(self._hooks)
                    await driver.tell_end(self._hooks)

    async def _tell_unread(self, hooks: HookListener) -> None:
        with anyio.CancelScope(shield=True):
            for event in self._inbox.take_all():
                await hooks.deliver(event)

    async def _told(self, driver: Driver[Ctx, Out], tasks: TaskGroup) -> AsyncGenerator[LoopEvent]:
        hooks = self._hooks
        if hooks is None:
            async with aclosing(self._run(driver, tasks)) as events:
                async for event in events:
                    yield event
            return
        async with aclosing(self._run(driver, tasks)) as events:
            async for event in events:
                if await hooks.deliver(event):
                    yield event

    async def _run(self, driver: Driver[Ctx, Out], tasks: TaskGroup) -> AsyncGenerator[LoopEvent]:
        state, inbox = driver.state, self._inbox
        driver.start_clock()
        try:
            driver.take_steering()
            while not isinstance(step := state.next_step(), Finished):
                if isinstance(step, CallModel):
                    async with aclosing(driver.model_events(step)) as events:
                        async for event in events:
                            yield event
                else:
                    inbox.open()
                    if isinstance(step, RunTools):
                        tasks.start_soon(self._carry_out, driver, step)
                    else:
                        await self._carry_out(driver, step)
                    while (told := await inbox.next()) is not None:
                        yield told
                    if self._failure is not None:
                        raise self._failure  # noqa: TRY301 - it comes from another task
                if state.is_at_boundary:
                    driver.take_steering()
        except Exception as error:
            driver.fail(error)
            raise
        for event in driver.closing_events():
            yield event
        yield Done(driver.result())

    async def _carry_out(self, driver: Driver[Ctx, Out], step: Any) -> None:
        try:
            with anyio.CancelScope(deadline=driver.deadline) as scope:
                await driver.carry_out(step)
            if scope.cancelled_caught:
                driver.time_out()
        except Exception as error:  # noqa: BLE001 - raised again where the events are read
            self._failure = error
        finally:
            self._inbox.close()


def _innermost(error: BaseException) -> BaseException:
    while inner := getattr(error, "exceptions", None):
        error = inner[0]
    return error


class LoopTask(Generic[Out]):
    """The run behind a channel."""

    __slots__ = ("_channel",)

    def __init__(self, channel: EventChannel[Any, Out]) -> None:
        self._channel = channel

    async def result(self) -> ToolLoopResult[Out]:
        """Wait for the end and return what the loop leaves.

        Events that the task that calls this has not read are let go, so that the run is not held up.

        Raises:
            Exception: What made the run fail.
        """
        return await self._channel.wait()


class ChannelEvents:
    """The events of a channel; several tasks may share it, each event goes to one."""

    __slots__ = ("_channel",)

    def __init__(self, channel: EventChannel[Any, Any]) -> None:
        self._channel = channel

    def __aiter__(self) -> ChannelEvents:
        return self

    async def __anext__(self) -> LoopEvent:
        return await self._channel.next()


class EventChannel(Generic[Ctx, Out]):
    """What `tool_loop_channel` gives: enter it for the events and the handle."""

    __slots__ = ("_done", "_error", "_reader", "_receive", "_result", "_send", "_stream", "_tasks")

    def __init__(self, stream: EventStream[Ctx, Out], buffer_size: int) -> None:
        check_setting("buffer_size", buffer_size, int, least=0)
        self._stream = stream
        streams = anyio.create_memory_object_stream[LoopEvent](buffer_size)
        self._send: MemoryObjectSendStream[LoopEvent] = streams[0]
        self._receive: MemoryObjectReceiveStream[LoopEvent] = streams[1]
        self._done = anyio.Event()
        self._result: ToolLoopResult[Out] | None = None
        self._error: Exception | None = None
        self._tasks: TaskGroup | None = None
        self._reader: int | None = None

    async def __aenter__(self) -> tuple[AsyncIterator[LoopEvent], LoopTask[Out]]:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._produce)
        return ChannelEvents(self), LoopTask(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            raise _innermost(group) from None
        finally:
            self._send.close()
            self._receive.close()

    async def _produce(self) -> None:
        try:
            async with self._stream as events:
                async for event in events:
                    if isinstance(event, Done):
                        self._result = event.result
                    try:
                        await self._send.send(event)
                    except anyio.BrokenResourceError:
                        continue
        except Exception as error:  # noqa: BLE001 - raised again where the result or the events are awaited
            self._error = error
        finally:
            self._send.close()
            self._done.set()

    async def next(self) -> LoopEvent:
        """Return the next event, for the iterator.

        Raises:
            StopAsyncIteration: There are no more.
        """
        self._reader = anyio.get_current_task().id
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            await self._done.wait()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def wait(self) -> ToolLoopResult[Out]:
        """Wait for the end; let go of the events unless another task is reading them."""
        if self._reader is None or self._reader == anyio.get_current_task().id:
            self._receive.close()
        await self._done.wait()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise LoopUsageError("the run was cancelled: it has no result")
        return self._result


@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    config: ToolLoopConfig[Out] | None = None,
) -> EventStream[Any, Out]: ...
@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    config: ToolLoopConfig[Out] | None = None,
) -> EventStream[Ctx, Out]: ...
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[Any],
    prompt: Prompt,
    *,
    ctx: Any = None,
    config: ToolLoopConfig[Any] | None = None,
) -> EventStream[Any, Any]:
    """Run a loop and read its events as they come.

    ::

        async with tool_loop_stream(provider, registry, "What's the weather in Paris?") as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        print(text, end="")
                    case Done(result):
                        print(result.reason)

    The last event is `Done`, once, with the result; a run that fails raises instead. Nothing runs ahead of the reader
    while the model speaks. Leaving the block cancels what is running; the transcript is closed all the same.
    Arguments are those of `tool_loop`.
    """
    return EventStream(provider, registry, prompt, ctx, config)


@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    config: ToolLoopConfig[Out] | None = None,
    buffer_size: int = 32,
) -> EventChannel[Any, Out]: ...
@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    config: ToolLoopConfig[Out] | None = None,
    buffer_size: int = 32,
) -> EventChannel[Ctx, Out]: ...
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[Any],
    prompt: Prompt,
    *,
    ctx: Any = None,
    config: ToolLoopConfig[Any] | None = None,
    buffer_size: int = 32,
) -> EventChannel[Any, Any]:
    """Run a loop in a task of its own, its events in a bounded queue.

    ::

        async with tool_loop_channel(provider, registry, "Go") as (events, handle):
            async for event in events:
                await show(event)
            result = await handle.result()

    A reader that is slow slows the run down; one that stops reading and asks for ``handle.result()`` doesn't. Leaving
    the block cancels the run. Arguments are those of `tool_loop`.

    Args:
        provider: Talks to the model.
        registry: The tools.
        prompt: What the loop starts from.
        ctx: What the tools get as their context.
        config: The settings.
        buffer_size: How many events may wait; 0 hands each over.
    """
    return EventChannel(EventStream(provider, registry, prompt, ctx, config), buffer_size)
