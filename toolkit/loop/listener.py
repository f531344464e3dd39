"""The takers of a loop's events, and how events wait for them: first the hooks, then the reader of a stream."""

from __future__ import annotations

import inspect
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from toolkit.calls.events import ToolExecutionUpdate, ToolProgress
from toolkit.chat import Stamped
from toolkit.loop.events import LoopEvent
from toolkit.runtime.backend import cancellation_mark, make_scope
from toolkit.runtime.bell import Bell

if TYPE_CHECKING:
    from toolkit.loop.config import EventHook, ToolLoopConfig

__all__ = ["EventFeed", "Listener", "UpdateGuard"]

_logger = logging.getLogger("toolkit.loop")

UpdateGuard: TypeAlias = Callable[[ToolExecutionUpdate], bool | Awaitable[bool]]
"""Returns False to suppress an update."""

_REPORTS_PER_CALL = 64

# The slots of a frozen event.
_set_run_id, _set_loop_id, _set_time = [vars(Stamped)[name].__set__ for name in ("run_id", "loop_id", "time")]


class _EventQueue:
    """Events in order. Of each call's offered reports only the newest are kept, and they tell how many gave way."""

    __slots__ = ("_offered", "events")

    def __init__(self) -> None:
        self.events: deque[tuple[LoopEvent, bool]] = deque()
        self._offered: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self.events)

    def put(self, event: LoopEvent) -> None:
        """Append an event."""
        self.events.append((event, False))

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Append a report; where its call has too many waiting, the oldest gives way."""
        if self._offered[event.call_id] >= _REPORTS_PER_CALL:
            oldest = next(entry for entry in self.events if _is_offered_by(entry, event.call_id))
            self.events.remove(oldest)
            event = replace(event, dropped=event.dropped + getattr(oldest[0], "dropped", 0) + 1)
        else:
            self._offered[event.call_id] += 1
        self.events.append((event, True))

    def take(self) -> tuple[LoopEvent, bool]:
        """Return the oldest event and forget it; say whether it was offered."""
        event, is_offered = self.events.popleft()
        if is_offered and isinstance(event, (ToolExecutionUpdate, ToolProgress)):
            self._offered[event.call_id] -= 1
            if not self._offered[event.call_id]:
                del self._offered[event.call_id]
        return event, is_offered

    def clear(self) -> None:
        """Forget all."""
        self.events.clear()
        self._offered.clear()


def _is_offered_by(entry: tuple[LoopEvent, bool], call_id: str) -> bool:
    event, is_offered = entry
    return is_offered and isinstance(event, (ToolExecutionUpdate, ToolProgress)) and event.call_id == call_id


class EventFeed:
    """Events on their way from a run to its reader.

    Args:
        capacity: How many may wait before who tells the next one waits, too. With 0 it waits until the reader has come
            back for more, so that nothing runs ahead of it.
    """

    __slots__ = ("_capacity", "_is_ended", "_is_left", "_news", "_queue", "_readers", "_room")

    def __init__(self, capacity: int) -> None:
        self._capacity: float = capacity
        self._queue = _EventQueue()
        self._readers = 0
        self._is_ended = self._is_left = False
        self._news, self._room = Bell(), Bell()

    def put(self, event: LoopEvent, *, is_offered: bool = False) -> None:
        """Append an event; nobody gets it once the reader has left."""
        if self._is_left:
            return
        if is_offered and isinstance(event, (ToolExecutionUpdate, ToolProgress)):
            self._queue.offer(event)
        else:
            self._queue.put(event)
        self._news.ring()

    async def wait_for_room(self) -> None:
        """Wait until the reader has caught up."""
        while not self._has_room():
            await self._room.wait()

    def _has_room(self) -> bool:
        if self._is_left or self._is_ended:
            return True
        if self._capacity:
            return len(self._queue) <= self._capacity
        return self._readers > 0 and not self._queue

    async def next(self) -> LoopEvent | None:
        """Return the next event; None when no more will come. Cancelled, it loses none."""
        self._readers += 1
        try:
            self._room.ring()
            while not self._queue:
                if self._is_ended or self._is_left:
                    return None
                await self._news.wait()
            return self._queue.take()[0]
        finally:
            self._readers -= 1

    def end(self) -> None:
        """Say that no more will come."""
        self._is_ended = True
        self._news.ring()
        self._room.ring()

    def leave(self) -> None:
        """Say that nobody reads anymore: what waits is let go, and nothing waits from now on."""
        self._is_left = True
        self._queue.clear()
        self._news.ring()
        self._room.ring()

    def lift_bound(self) -> None:
        """Keep all events for their reader, however slow, and hold nobody up."""
        self._capacity = float("inf")
        self._room.ring()


class Listener:
    """Takes every event of a run: marks it, tells the hooks, and passes it on to the reader, in one order.

    Hooks are told one event at a time; what they raise is logged and changes nothing.

    Args:
        config: Has `on_event`, and how long a hook may take.
        event_hooks: Take the events after `on_event`, in order.
        update_guards: Return False to suppress an update.
        run_id: The run that its events are marked with.
        loop_id: The loop that its events are marked with.
        feed: Where a reader takes them; None without one.

    Attributes:
        needs_pump: True where what was offered waits for `pump`; else `offer` delivers it.
        takes_deltas: True where somebody wants the answer in pieces; middleware only watches.
    """

    __slots__ = (
        "_feed",
        "_has_hooks",
        "_hook",
        "_loop_id",
        "_offered",
        "_run_id",
        "_tellers",
        "_telling",
        "_timeout",
        "_update_guards",
        "_waiting",
        "needs_pump",
        "takes_deltas",
    )

    def __init__(
        self,
        config: ToolLoopConfig[Any],
        event_hooks: Sequence[EventHook] = (),
        update_guards: Sequence[UpdateGuard] = (),
        *,
        run_id: str = "",
        loop_id: str = "",
        feed: EventFeed | None = None,
    ) -> None:
        hooks = event_hooks if config.on_event is None else (config.on_event, *event_hooks)
        self._hook = _join_hooks(hooks, config.timeouts.hook) if event_hooks else config.on_event
        self._update_guards = update_guards
        self.takes_deltas: bool = config.on_event is not None or feed is not None
        self._has_hooks = bool(hooks) or bool(update_guards)
        self._timeout = config.timeouts.hook * max(1, len(hooks))
        self._run_id = run_id
        self._loop_id = loop_id
        self._feed = feed
        self._waiting = _EventQueue()
        self._offered: anyio.Event | None = None
        # Tools of one turn run at once, and an async hook would overtake itself.
        self._telling: anyio.Lock | None = None  # made when there is something to wait for
        self._tellers = 0  # that hold the lock or wait for it
        # Plain functions are called where a report is made; others need a task beside the tools.
        self.needs_pump: bool = any(map(_may_wait, (*hooks, *update_guards)))

    async def emit(self, event: LoopEvent, *, waits: bool = True) -> None:
        """Tell an event, after all that was told before; a cancellation leaves it to the next one that is told.

        Args:
            event: The event.
            waits: True to wait until the reader has room.
        """
        _set_run_id(event, self._run_id)  # as `_mark_event` does
        _set_loop_id(event, self._loop_id)
        _set_time(event, time.time())
        hook, feed = self._hook, self._feed
        if self._waiting.events or self._tellers or isinstance(event, ToolExecutionUpdate):
            await self._tell_in_order(event)
        else:
            # Nobody is before this event. Most hooks are done when they return, and a lock takes longer than they do.
            try:
                value = None if hook is None else hook(event)
            except Exception:
                value = None
                _logger.exception("a hook raised; the loop goes on")
            if value is not None and inspect.isawaitable(value):
                await self._await_hook(event, value)
            elif feed is not None:
                feed.put(event)
        if waits and feed is not None:
            await feed.wait_for_room()

    async def emit_last(self, events: Iterable[LoopEvent]) -> None:
        """Tell how a run has ended: no cancellation stops it, and it waits for no reader."""
        with make_scope(cancellation_mark(), shield=True):
            for event in events:
                await self.emit(event, waits=False)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Keep the report for `pump`; where hooks are plain functions, call them now."""
        self._mark_event(event)
        if not self._has_hooks and self._feed is not None:
            self._feed.put(event, is_offered=True)
        elif not self.needs_pump and not self._waiting and not self._tellers:
            self._deliver_now(event)
        else:
            self._waiting.offer(event)
            if self._offered is not None:
                self._offered.set()

    async def pump(self) -> None:
        """Deliver what was offered, as it comes, until cancelled."""
        while True:
            self._offered = anyio.Event()
            await self._deliver_in_order()
            await self._offered.wait()

    def _mark_event(self, event: LoopEvent) -> None:
        # The event is new, and nobody has it yet: filled in here, it need not be made twice.
        _set_run_id(event, self._run_id)
        _set_loop_id(event, self._loop_id)
        _set_time(event, time.time())

    async def _tell_in_order(self, event: LoopEvent) -> None:
        """Tell an event after those that wait, or by more hooks than one."""
        self._waiting.put(event)
        await self._deliver_in_order()

    def _find_telling(self) -> anyio.Lock:
        if self._telling is None:
            self._telling = anyio.Lock(fast_acquire=True)
        return self._telling

    async def _deliver_in_order(self) -> None:
        self._tellers += 1
        try:
            async with self._find_telling():
                await self._deliver_waiting()
        finally:
            self._tellers -= 1

    async def _await_hook(self, event: LoopEvent, value: Awaitable[Any]) -> None:
        """Wait for what the hook gave, with nobody before this event."""
        telling = self._find_telling()
        telling.acquire_nowait()  # with no round of the event loop, in which a cancellation would lose the event
        self._tellers += 1
        try:
            try:
                await self._wait_for(value)
            finally:
                if self._feed is not None:
                    self._feed.put(event)
            await self._deliver_waiting()
        finally:
            self._tellers -= 1
            telling.release()

    async def _deliver_waiting(self) -> None:
        while self._waiting:
            event, is_offered = self._waiting.take()
            await self._deliver_event(event, is_offered=is_offered)

    def _deliver_now(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        delivery = self._deliver_event(event, is_offered=True)
        try:
            delivery.send(None)
        except StopIteration:
            return
        delivery.close()
        self.needs_pump = True
        _logger.warning("a hook that is a plain function gave an awaitable, and one report was lost: make it async")

    async def _deliver_event(self, event: LoopEvent, *, is_offered: bool) -> None:
        """Call the hooks, and pass the event on to the reader unless one of them suppresses it."""
        is_shown = True
        try:
            if isinstance(event, ToolExecutionUpdate):
                is_shown = await self._is_allowed(event)
            if is_shown and self._hook is not None:
                await self._call_and_await(self._hook, event)
        finally:
            if is_shown and self._feed is not None:
                self._feed.put(event, is_offered=is_offered)

    async def _is_allowed(self, event: ToolExecutionUpdate) -> bool:
        for guard in self._update_guards:
            if await self._call_and_await(guard, event) is False:
                return False
        return True

    async def _call_and_await(self, hook: Any, *arguments: Any) -> Any:
        value = _call_hook(hook, *arguments)
        return await self._wait_for(value) if inspect.isawaitable(value) else value

    async def _wait_for(self, value: Awaitable[Any]) -> Any:
        return await _await_hook_value(value, self._timeout)


def _join_hooks(hooks: Sequence[EventHook], timeout: float) -> EventHook | None:
    """Return one hook that tells all, one after the other, whatever one of them raises."""
    if len(hooks) <= 1:
        return hooks[0] if hooks else None

    def tell_all(event: LoopEvent) -> Awaitable[None] | None:
        for index, hook in enumerate(hooks):
            value = _call_hook(hook, event)
            if inspect.isawaitable(value):
                return tell_rest(event, value, hooks[index + 1 :])
        return None

    async def tell_rest(event: LoopEvent, value: Awaitable[Any], rest: Sequence[EventHook]) -> None:
        await _await_hook_value(value, timeout)
        for hook in rest:
            value = _call_hook(hook, event)
            if inspect.isawaitable(value):
                await _await_hook_value(value, timeout)

    return tell_all


def _call_hook(hook: Any, *arguments: Any) -> Any:
    try:
        return hook(*arguments)
    except Exception:
        _logger.exception("a hook raised; the loop goes on")
        return None


async def _await_hook_value(value: Awaitable[Any], timeout: float) -> Any:
    try:
        with anyio.fail_after(timeout):
            return await value
    except Exception:
        _logger.exception("a hook raised; the loop goes on")
        return None


def _may_wait(hook: object) -> bool:
    """Return whether a hook may give something to await: all but plain functions and methods that are not async."""
    if hook is None or inspect.isbuiltin(hook):
        return False
    is_plain = inspect.isfunction(hook) or inspect.ismethod(hook)
    return not is_plain or inspect.iscoroutinefunction(hook) or getattr(hook, "__name__", "") == "<lambda>"
