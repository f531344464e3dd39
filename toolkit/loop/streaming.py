"""The events of a run as a stream, or as a channel with the run's result apart.

The run has a task of its own, which belongs to no task group or scope of the reader's: so a stream may be left, or
waited for with a time limit, wherever an asynchronous generator or another task may stand.
"""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import ClassVar, Generic, NoReturn, Protocol, Self

import anyio

from toolkit.chat import Message, Usage
from toolkit.errors import LoopUsageError
from toolkit.loop.events import LoopEvent
from toolkit.loop.listener import EventFeed
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.runtime.backend import start_carried
from toolkit.settings import check_setting

__all__ = ["ChannelEvents", "EventChannel", "EventStream", "LoopTask", "StreamedLoop"]


class StreamedLoop(Protocol[Out]):
    """The loop behind a stream: a `ToolLoopHandle`."""

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result, once the run has ended."""
        ...

    @property
    def messages(self) -> list[Message]:
        """The transcript."""
        ...

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        ...

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`."""
        ...

    def run_into(self, feed: EventFeed) -> Awaitable[None]:
        """Run to the end, with the events for the reader of `feed`."""
        ...


class _EnteredView:
    """A view that is used with ``async with``; any other use raises an error that shows how."""

    __slots__ = ()
    _spelling: ClassVar[str]

    def __iter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __await__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __enter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)

    def __exit__(self, *error: object) -> None: ...


class EventStream(_EnteredView, Generic[Out]):
    """The events of a run: enter it, iterate, leave it when you like.

    Leaving the block cancels what is running; `messages` and `result` are there afterwards. To wait for the next event
    for a limited time, as a heartbeat does, costs no event.
    """

    __slots__ = ("_ended", "_fatal", "_feed", "_is_left", "_is_started", "_loop")
    _spelling = (
        "enter a stream before you read it, so that it is left however reading ends: "
        "'async with tool_loop_stream(...) as events:' and inside 'async for event in events:'"
    )

    def __init__(self, loop: StreamedLoop[Out], capacity: int = 0) -> None:
        self._loop = loop
        self._feed = EventFeed(capacity)
        self._ended = anyio.Event()
        self._fatal: BaseException | None = None
        self._is_started = self._is_left = False

    async def __aenter__(self) -> Self:
        if self._is_started:
            raise LoopUsageError("a stream can be entered once; make another handle for another run")
        self._is_started = True
        start_carried(self._run_loop, self._end_stream)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_left = True
        if not self._ended.is_set():
            self._loop.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
        self._feed.leave()  # not before: whatever waits for the reader would go on
        if error is None:
            self._raise_fatal()

    async def _run_loop(self) -> None:
        await self._loop.run_into(self._feed)

    def _end_stream(self, raised: BaseException | None) -> None:
        self._fatal = raised
        self._feed.end()
        self._ended.set()

    def __aiter__(self) -> Self:
        self._require_entered()
        return self

    async def __anext__(self) -> LoopEvent:
        self._require_entered()
        event = await self._feed.next()
        if event is not None:
            return event
        if not self._is_left:
            self._raise_fatal()
            _ = self.result  # raises what made the run fail
        raise StopAsyncIteration

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, once it has ended or the block was left.

        Raises:
            LoopUsageError: It goes on.
            Exception: The exception that made it fail.
        """
        return self._loop.result

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return list(self._loop.messages)

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._loop.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._loop.cancel(reason)

    def _require_entered(self) -> None:
        if not self._is_started:
            raise LoopUsageError(self._spelling)

    def _raise_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal


class ChannelEvents(EventStream[Out]):
    """The events of a channel; several tasks may share it, each event goes to one."""

    __slots__ = ("_reader",)

    def __init__(self, loop: StreamedLoop[Out], capacity: int) -> None:
        super().__init__(loop, capacity)
        self._reader: int | None = None

    async def __anext__(self) -> LoopEvent:
        self._reader = anyio.get_current_task().id
        return await super().__anext__()

    async def wait(self) -> ToolLoopResult[Out]:
        """Wait for the end; its events hold it up no longer, and are dropped unless another task reads them."""
        if self._reader in (None, anyio.get_current_task().id):
            self._feed.leave()
        else:
            self._feed.lift_bound()
        await self._ended.wait()
        self._raise_fatal()
        return self.result


class LoopTask(Generic[Out]):
    """A loop that runs by itself, in the task of a channel."""

    __slots__ = ("_events",)

    def __init__(self, events: ChannelEvents[Out]) -> None:
        self._events = events

    async def result(self) -> ToolLoopResult[Out]:
        """Wait for the end and return the result.

        Events that the calling task has not read are dropped, so that the run is not held up.

        Raises:
            Exception: The exception that made the run fail.
        """
        return await self._events.wait()

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return self._events.messages

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._events.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._events.cancel(reason)


class EventChannel(_EnteredView, Generic[Out]):
    """The value of `tool_loop_channel`: enter it for the events and the handle."""

    __slots__ = ("_events",)
    _spelling = (
        "enter a channel to get its events and its handle: 'async with tool_loop_channel(...) as (events, handle):'"
    )

    def __init__(self, loop: StreamedLoop[Out], buffer_size: int) -> None:
        check_setting("buffer_size", buffer_size, int, least=0)
        self._events = ChannelEvents(loop, buffer_size)

    async def __aenter__(self) -> tuple[ChannelEvents[Out], LoopTask[Out]]:
        events = await self._events.__aenter__()
        return events, LoopTask(events)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._events.__aexit__(kind, error, traceback)

    def __aiter__(self) -> NoReturn:
        raise LoopUsageError(self._spelling)
