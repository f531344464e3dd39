"""A loop as a stream of its events, or as a channel of them with its result apart.

The run has a task of its own, which belongs to no task group or scope of the reader's: so a stream may be left, or
waited for with a time limit, wherever an asynchronous generator or another task may stand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import anyio

from toolkit.chat import Message, Usage
from toolkit.errors import LoopUsageError
from toolkit.loop.events import LoopEvent
from toolkit.loop.listener import EventFeed
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.runtime.backend import start_carried
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from toolkit.loop.handle import ToolLoopHandle

__all__ = ["ChannelEvents", "EventChannel", "EventStream", "LoopTask"]


class EventStream(Generic[Out]):
    """The events of a run: enter it, iterate, leave it when you like.

    Leaving the block cancels what is running; `messages` and `result` are there afterwards. To wait for the next event
    for a limited time, as a heartbeat does, costs no event.
    """

    __slots__ = ("_ended", "_fatal", "_feed", "_handle", "_is_left", "_is_started")

    def __init__(self, handle: ToolLoopHandle[Any, Out], capacity: int = 0) -> None:
        self._handle = handle
        self._feed = EventFeed(capacity)
        self._ended = anyio.Event()
        self._fatal: BaseException | None = None
        self._is_started = self._is_left = False

    async def __aenter__(self) -> EventStream[Out]:
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
            self._handle.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
        self._feed.leave()  # not before: whoever waits for the reader would go on
        if error is None:
            self._raise_fatal()

    async def _run_loop(self) -> None:
        await self._handle._advance_loop(to_end=True, feed=self._feed)  # pyright: ignore[reportPrivateUsage] - of the same object

    def _end_stream(self, raised: BaseException | None) -> None:
        self._fatal = raised
        self._feed.end()
        self._ended.set()

    def __aiter__(self) -> AsyncIterator[LoopEvent]:
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

    def __iter__(self) -> NoReturn:
        raise LoopUsageError(_SPELLING)

    def __await__(self) -> NoReturn:
        raise LoopUsageError(_SPELLING)

    def __enter__(self) -> NoReturn:
        raise LoopUsageError(_SPELLING)

    def __exit__(self, *error: object) -> None: ...

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, once it has ended or the block was left.

        Raises:
            LoopUsageError: It goes on.
            Exception: The exception that made it fail.
        """
        return self._handle.result

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return list(self._handle.messages)

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._handle.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._handle.cancel(reason)

    def _require_entered(self) -> None:
        if not self._is_started:
            raise LoopUsageError(_SPELLING)

    def _raise_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal

    # for the channel

    async def wait(self, *, reads_on: bool) -> ToolLoopResult[Out]:
        """Wait for the end; its events hold it up no longer, and are kept only if somebody `reads_on`."""
        if reads_on:
            self._feed.lift_bound()
        else:
            self._feed.leave()
        await self._ended.wait()
        self._raise_fatal()
        return self.result


_SPELLING = (
    "enter a stream before you read it, so that it is left however reading ends: "
    "'async with tool_loop_stream(...) as events:' and inside 'async for event in events:'"
)


class LoopTask(Generic[Out]):
    """A loop that runs by itself, in the task of a channel."""

    __slots__ = ("_events",)

    def __init__(self, events: ChannelEvents[Out]) -> None:
        self._events = events

    async def result(self) -> ToolLoopResult[Out]:
        """Wait for the end and return what the loop leaves.

        Events that the task that calls this has not read are let go, so that the run is not held up.

        Raises:
            Exception: The exception that made the run fail.
        """
        return await self._events.wait()

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return self._events.stream.messages

    @property
    def usage(self) -> Usage:
        """The sum over all requests so far."""
        return self._events.stream.usage

    def cancel(self, reason: str | None = None) -> None:
        """Have the run end as `Cancelled`, from any thread; its last events are still read. See `ToolLoopHandle`."""
        self._events.stream.cancel(reason)


class ChannelEvents(Generic[Out]):
    """The events of a channel; several tasks may share it, each event goes to one."""

    __slots__ = ("_reader", "stream")

    def __init__(self, stream: EventStream[Out]) -> None:
        self.stream = stream
        self._reader: int | None = None

    def __aiter__(self) -> ChannelEvents[Out]:
        return self

    async def __anext__(self) -> LoopEvent:
        self._reader = anyio.get_current_task().id
        return await anext(self.stream)

    @property
    def result(self) -> ToolLoopResult[Out]:
        """The result of the run, once it has ended or the block was left; see `EventStream.result`."""
        return self.stream.result

    @property
    def messages(self) -> list[Message]:
        """The transcript as far as it came; valid once the run has ended or the block was left."""
        return self.stream.messages

    async def wait(self) -> ToolLoopResult[Out]:
        """Wait for the end; let go of the events unless another task reads them."""
        return await self.stream.wait(reads_on=self._reader not in (None, anyio.get_current_task().id))


class EventChannel(Generic[Out]):
    """The value of `tool_loop_channel`: enter it for the events and the handle."""

    __slots__ = ("_stream",)

    def __init__(self, handle: ToolLoopHandle[Any, Out], buffer_size: int) -> None:
        check_setting("buffer_size", buffer_size, int, least=0)
        self._stream = EventStream(handle, buffer_size)

    async def __aenter__(self) -> tuple[ChannelEvents[Out], LoopTask[Out]]:
        events = ChannelEvents(await self._stream.__aenter__())
        return events, LoopTask(events)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, traceback)

    def __iter__(self) -> NoReturn:
        raise LoopUsageError(
            "enter a channel to get its events and its handle: 'async with tool_loop_channel(...) as (events, handle):'"
        )

    def __aiter__(self) -> NoReturn:
        iter(self)
        raise AssertionError

    def __await__(self) -> NoReturn:
        iter(self)
        raise AssertionError

    def __enter__(self) -> NoReturn:
        iter(self)
        raise AssertionError

    def __exit__(self, *error: object) -> None: ...
