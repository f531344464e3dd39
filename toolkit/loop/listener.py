"""Delivers a loop's events: to its hooks, one event at a time and in order, and then to the reader of a stream."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_args

import anyio
import anyio.lowlevel
from typing_extensions import TypeForm

from toolkit.calls.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolProgress
from toolkit.chat import ArgumentsDelta, ReasoningDelta, Stamped, TextDelta
from toolkit.chat.provider import Delta
from toolkit.errors import ConfigurationError
from toolkit.logs import get_logger
from toolkit.loop.events import LOOP_EVENTS, LoopEvent
from toolkit.runtime.backend import cancellation_mark, make_scope, make_waiter
from toolkit.settings import FUNCTION, check_setting, describe_value


class Bell:
    """Wakes all waiting tasks when it is rung, each in its own event loop; tasks that wait later are not woken.

    ::

        while not is_ready():
            await bell.wait()
    """

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: list[Callable[[], None]] = []

    @property
    def has_waiters(self) -> bool:
        """True if a task waits."""
        return bool(self._wakers)

    def ring(self) -> None:
        """Wake all waiting tasks."""
        if self._wakers:
            wakers, self._wakers = self._wakers, []
            for wake in wakers:
                wake()

    async def wait(self) -> None:
        """Wait for the next ring."""
        waiter, wake = make_waiter()
        self._wakers.append(wake)
        try:
            await waiter
        except BaseException:  # else wakers of cancelled tasks would pile up until the next ring
            if wake in self._wakers:
                self._wakers.remove(wake)
            raise


_logger = get_logger("toolkit.loop")

EventHook: TypeAlias = Callable[[LoopEvent], Awaitable[None] | None]
"""Receives each event, in order. An exception is logged and changes nothing else."""

Event = TypeVar("Event", bound=LoopEvent)


def listener(kinds: TypeForm[Event], function: Callable[[Event], Awaitable[None] | None]) -> EventListener[Event]:
    """Return an `on_event` that receives only some kinds of events; events that nobody receives are not created.

    ::

        def log_call(event: ToolExecutionEnd) -> None:
            print(event.tool_name, event.duration)


        config = ToolLoopConfig(on_event=listener(ToolExecutionEnd, log_call))

    Args:
        kinds: One kind, or several: ``ToolExecutionStart | ToolExecutionEnd``. Replies are streamed from the model only
            if deltas of an answer are among these, or something else receives the events.
        function: Receives each event, in order; may be async. An exception is logged and changes nothing else.

    Raises:
        ConfigurationError: There is no event of that kind, or `function` is not a function.
    """
    return EventListener(kinds, function)


class EventListener(Generic[Event]):
    """Receives some kinds of events, and ignores others; see `listener`.

    Attributes:
        kinds: The kinds that it receives.
        may_wait: True if it may return an awaitable.
    """

    __slots__ = ("_function", "kinds", "may_wait")

    def __init__(self, kinds: TypeForm[Event], function: Callable[[Event], Awaitable[None] | None]) -> None:
        wanted: tuple[Any, ...] = get_args(kinds) or (kinds,)
        for kind in wanted:
            if kind not in LOOP_EVENTS:
                raise ConfigurationError(
                    f"there are no events of the kind {describe_value(kind)}: listener() takes a class of "
                    "toolkit.events, such as ToolExecutionEnd, or several joined by |"
                )
        check_setting("the function of listener()", function, FUNCTION)
        self.kinds: frozenset[type] = frozenset(wanted)
        self.may_wait: bool = hook_may_wait(function)
        self._function = function

    def __call__(self, event: LoopEvent) -> Awaitable[None] | None:
        """Receive an event."""
        return self._function(cast("Event", event)) if type(event) in self.kinds else None


UpdateGuard: TypeAlias = Callable[[ToolExecutionUpdate], bool | Awaitable[bool]]
"""Returns False to suppress an update."""

Report: TypeAlias = ToolExecutionUpdate | ToolProgress
"""An event that is dropped for newer ones of its call if too many wait."""

_WAITING_REPORTS = 10_000
"""The most reports of one call that may wait at a time."""

_WAITING_BYTES = 64 * 1024 * 1024
"""The most bytes of text and data in these together; the newest report is accepted in any case."""

_DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta)
_DELTAS_AHEAD = 32
_new = object.__new__


class _WaitingReport:
    """The place of a report among the waiting events; `event` is None once the report was dropped."""

    __slots__ = ("event", "size")

    def __init__(self, event: Report, size: int) -> None:
        self.event: Report | None = event
        self.size = size


class _CallReports:
    """The waiting reports of one call, and their size together."""

    __slots__ = ("places", "size")

    def __init__(self) -> None:
        self.places: deque[_WaitingReport] = deque()
        self.size = 0

    def append(self, place: _WaitingReport) -> None:
        """Append the newest."""
        self.places.append(place)
        self.size += place.size

    def remove_oldest(self) -> _WaitingReport:
        """Remove the oldest, and return it."""
        oldest = self.places.popleft()
        self.size -= oldest.size
        return oldest


def _size_of(event: Report) -> int:
    """Return the approximate size of a report, in bytes of text and data."""
    if isinstance(event, ToolProgress):
        return len(event.text)
    content = event.output.content
    if isinstance(content, str):
        return len(content)
    values = [value for block in content for value in (getattr(block, "text", None), getattr(block, "data", None))]
    return sum([len(value) for value in values if isinstance(value, (str, bytes))])


class _WaitingEvents:
    """Waiting events, in order; of each call's reports only the newest, which count those that were dropped.

    Attributes:
        entries: The events, and the places of reports.
    """

    __slots__ = ("_reports", "entries")

    def __init__(self) -> None:
        self.entries: deque[Any] = deque()
        self._reports: dict[str, _CallReports] = {}

    def offer(self, event: Report) -> None:
        """Append a report; if too many of its call wait, drop the oldest."""
        reports, size, dropped = self._reports.get(event.call_id), _size_of(event), event.dropped
        if reports is None:
            reports = self._reports[event.call_id] = _CallReports()
        while reports.places and (len(reports.places) >= _WAITING_REPORTS or reports.size + size > _WAITING_BYTES):
            oldest = reports.remove_oldest()
            if oldest.event is not None:
                dropped += oldest.event.dropped + 1
            oldest.event = None
        if dropped != event.dropped:
            event = replace(event, dropped=dropped)
        place = _WaitingReport(event, size)
        reports.append(place)
        self.entries.append(place)

    def take(self) -> tuple[LoopEvent | None, bool]:
        """Remove and return the oldest event, None if it was dropped, and whether it is a report."""
        entry = self.entries.popleft()
        if type(entry) is not _WaitingReport:
            return entry, False
        report = entry.event
        if report is not None:
            reports = self._reports[report.call_id]
            reports.remove_oldest()
            if not reports.places:
                del self._reports[report.call_id]
        return report, True

    def clear(self) -> None:
        """Remove all."""
        self.entries.clear()
        self._reports.clear()


class EventFeed:
    """The queue of events from a run to its reader.

    Args:
        capacity: How many events may wait before the emitter of the next one has to wait. With 0 it waits until the
            reader asks for the next event, so that nothing runs ahead of the reader; some deltas of an answer may,
            because each would cost two switches of tasks.

    Attributes:
        is_stopped: True if the run was cancelled: no more deltas are read.
    """

    __slots__ = (
        "_capacity",
        "_deltas_ahead",
        "_is_ended",
        "_is_left",
        "_low_mark",
        "_news",
        "_readers",
        "_removed_texts",
        "_room",
        "_visits",
        "_waiting",
        "is_stopped",
    )

    def __init__(self, capacity: int) -> None:
        self._capacity: float = capacity
        self._deltas_ahead: float = capacity or _DELTAS_AHEAD
        self._low_mark = (capacity or _DELTAS_AHEAD) // 2
        self._waiting = _WaitingEvents()
        self._readers = self._visits = 0
        self._is_ended = self._is_left = False
        self._removed_texts = 0
        self._news, self._room = Bell(), Bell()
        self.is_stopped: bool = False

    def put(self, event: LoopEvent, *, is_offered: bool = False) -> None:
        """Append an event, unless the reader has left."""
        if self._is_left:
            return
        if is_offered and isinstance(event, (ToolExecutionUpdate, ToolProgress)):
            self._waiting.offer(event)
        else:
            self._waiting.entries.append(event)
        if self._news.has_waiters:
            self._news.ring()

    def has_room(self, *, is_delta: bool = False) -> bool:
        """Return whether the emitter may go on: after a delta if few wait, else once the reader asks for more."""
        if self._is_left or self._is_ended:
            return True
        capacity = self._deltas_ahead if is_delta else self._capacity
        if capacity:
            return len(self._waiting.entries) <= capacity
        return self._readers > 0 and not self._waiting.entries

    async def wait_for_room(self, *, is_delta: bool = False) -> None:
        """Wait until `has_room`."""
        while not self.has_room(is_delta=is_delta):
            await self._room.wait()

    async def wait_for_reader(self) -> None:
        """Wait until the reader has read everything and asks for more; with a capacity it may be behind."""
        # A reader that is cancelled, or has cancelled the run, asks, too: the cancellation arrives within two rounds of
        # the event loop. A reader that asks again was not cancelled, and has only looked whether there is an event.
        visits, rounds = self._visits, 0
        while not self._capacity and self._visits < visits + 2:
            if not self.has_room():
                rounds = 0
                await self._room.wait()
            elif rounds == 2:
                return
            else:
                rounds += 1
                await anyio.lowlevel.checkpoint()

    def take_back_deltas(self) -> int:
        """Remove the deltas that were not read; return how many of them are texts of the answer.

        Deltas within the capacity count as read.
        """
        self._remove_deltas()
        texts, self._removed_texts = self._removed_texts, 0
        return texts

    def _remove_deltas(self) -> None:
        entries = self._waiting.entries
        while not self._capacity and entries and isinstance(entries[-1], _DELTAS):
            self._removed_texts += isinstance(entries.pop(), TextDelta)

    def take(self) -> LoopEvent | None:
        """Return the next event; None if `next` has to wait for it."""
        entries = self._waiting.entries
        if self.is_stopped:
            self._remove_deltas()
        while entries:
            event, _ = self._waiting.take()
            if len(entries) == self._low_mark:
                self._room.ring()
            if event is not None:
                return event
        return None

    async def next(self) -> LoopEvent | None:
        """Return the next event; None when no more will come. No event is lost if this is cancelled."""
        self._readers += 1
        self._visits += 1
        try:
            while True:
                event = self.take()
                if event is not None or self._is_ended or self._is_left:
                    return event
                self._room.ring()
                await self._news.wait()
        finally:
            self._readers -= 1

    def end(self) -> None:
        """Note that no more events will come."""
        self._is_ended = True
        self._news.ring()
        self._room.ring()

    def leave(self) -> None:
        """Note that nobody reads anymore: drop the waiting events, and let emitters go on."""
        self._is_left = True
        self._waiting.clear()
        self._news.ring()
        self._room.ring()

    def lift_bound(self) -> None:
        """Store all events for their reader, however slow, and let emitters go on."""
        self._capacity = self._deltas_ahead = float("inf")
        self._room.ring()


class Listener:
    """Stamps each event of a run, calls the hooks with it, and passes it on to the reader, all in one order.

    Every event goes through one queue, which `emit` empties. An exception of a hook is logged and changes nothing else.

    Args:
        on_event: The application's hook.
        event_hooks: Called after `on_event`, in order.
        update_guards: Return False to suppress an update.
        timeout: The seconds that a hook may take.
        on_event_may_wait: True if `on_event` may return an awaitable.
        run_id: The run id in its events.
        loop_id: The loop id in its events.
        feed: The queue to a reader; None without one.

    Attributes:
        feed: The queue to a reader; None without one.
        needs_pump: True if reports wait for `pump`; else `offer` delivers them.
        kinds: The kinds of events that somebody receives; others need not be created.
        takes_deltas: True if somebody wants the answer in pieces; middleware only watches.
        unemitted_starts: The calls that were cancelled before hooks were notified of their start.
    """

    __slots__ = (
        "_has_guards",
        "_hook",
        "_is_delivering",
        "_loop_id",
        "_offered",
        "_run_id",
        "_timeout",
        "_turn",
        "_waiting",
        "feed",
        "kinds",
        "needs_pump",
        "takes_deltas",
        "unemitted_starts",
    )

    def __init__(
        self,
        on_event: EventHook | None,
        event_hooks: Sequence[EventHook] = (),
        update_guards: Sequence[UpdateGuard] = (),
        *,
        timeout: float,
        on_event_may_wait: bool = True,
        run_id: str = "",
        loop_id: str = "",
        feed: EventFeed | None = None,
    ) -> None:
        has_others = bool(event_hooks or update_guards)
        self._hook: Callable[[LoopEvent], Any] | None = on_event
        self._timeout = timeout
        if has_others:
            hooks = event_hooks if on_event is None else (on_event, *event_hooks)
            self._hook = _join_hooks(hooks, update_guards, timeout)
            self._timeout *= len(hooks) + len(update_guards)
        self._has_guards = bool(update_guards)
        self._run_id = run_id
        self._loop_id = loop_id
        self.feed: EventFeed | None = feed
        self._waiting = _WaitingEvents()
        self._is_delivering = False
        self._turn: Bell | None = None  # made when there is something to wait for
        self._offered: Bell | None = None  # likewise
        self.unemitted_starts: set[str] = set()
        own = _find_kinds(on_event)
        self.kinds: frozenset[type] = LOOP_EVENTS if has_others or feed is not None else own
        self.takes_deltas: bool = feed is not None or own is LOOP_EVENTS or not own.isdisjoint(_DELTAS)
        # Plain functions are called where a report is made; others need a task beside the tools.
        self.needs_pump: bool = on_event is not None and on_event_may_wait
        if has_others and not self.needs_pump:
            self.needs_pump = any(map(hook_may_wait, (*event_hooks, *update_guards)))

    def emit(self, event: LoopEvent) -> Awaitable[None] | None:
        """Deliver an event after those that wait; return an awaitable for the rest of the work, None if it is done."""
        if self.needs_pump or self._is_delivering or self._waiting.entries:
            return self._deliver_event(event)
        fields = event.__dict__  # as `_stamp_event` does
        fields["run_id"], fields["loop_id"], fields["time"] = self._run_id, self._loop_id, time.time()
        hook, feed = self._hook, self.feed
        if hook is not None:
            value = None
            self._is_delivering = True
            try:
                value = hook(event)
            except Exception:
                _logger.exception("a hook raised; the loop goes on")
            finally:
                self._is_delivering = False
            if self._turn is not None:
                self._turn.ring()
            if value is not None and inspect.isawaitable(value):  # of a function that is not async itself
                return self._finish_emission(event, value)
        if feed is not None:
            feed.put(event)
        if self._waiting.entries:  # what the hook has reported
            return self._deliver_event(None)
        if feed is None:
            return None
        is_delta = isinstance(event, _DELTAS)
        return None if feed.has_room(is_delta=is_delta) else feed.wait_for_room(is_delta=is_delta)

    def emit_delta(self, delta: Delta) -> Awaitable[None] | None:
        """Do the same with a copy of a provider's delta, which other loops may share."""
        own = _new(type(delta))
        own.__dict__.update(delta.__dict__)
        return self.emit(own)

    async def _finish_emission(self, event: LoopEvent, value: Awaitable[Any]) -> None:
        self._is_delivering = True
        try:
            await self._finish_delivery(event, value, is_offered=False)
        finally:
            self._is_delivering = False
            if self._turn is not None:
                self._turn.ring()
        await self._deliver_event(None)

    async def _deliver_event(self, event: LoopEvent | None, *, waits: bool = True) -> None:
        """Deliver the waiting events and this one, and wait for the reader; cancelled, it leaves the rest waiting."""
        entries, hook, feed = self._waiting.entries, self._hook, self.feed
        is_delta = isinstance(event, _DELTAS)
        if event is not None:
            self._stamp_event(event)
        if entries or self._is_delivering:
            if event is not None:
                entries.append(event)
            await self._wait_for_turn(event)
            event = None
        is_offered, self._is_delivering = False, True
        try:
            while event is not None or entries:
                if event is None:
                    event, is_offered = self._waiting.take()
                    continue
                current, event = event, None
                value = None if hook is None else _call_hook(hook, current)
                if value is not None and inspect.isawaitable(value):  # most hooks are done when they return
                    await self._finish_delivery(current, value, is_offered=is_offered)
                elif feed is not None:
                    feed.put(current, is_offered=is_offered)
        finally:
            self._is_delivering = False
            if self._turn is not None:
                self._turn.ring()
        if waits and feed is not None:
            await feed.wait_for_room(is_delta=is_delta)

    def _stamp_event(self, event: Stamped) -> None:
        """Set the run and the time of a frozen event, which nobody else has seen yet."""
        fields = event.__dict__
        fields["run_id"], fields["loop_id"], fields["time"] = self._run_id, self._loop_id, time.time()

    async def emit_all(self, events: Iterable[LoopEvent]) -> None:
        """Emit events, and wait until each is delivered."""
        for event in events:
            left = self.emit(event)
            if left is not None:
                await left

    async def emit_to_reader(self, event: LoopEvent) -> None:
        """Emit to the reader alone an event that hooks have received before."""
        if self.feed is not None:
            self._stamp_event(event)
            self.feed.put(event)
            await self.feed.wait_for_room()

    async def emit_last(self, events: Iterable[LoopEvent]) -> None:
        """Emit the last events of a run, shielded from cancellation and without waiting for the reader."""
        for event in events:
            left = self.emit(event) if self.feed is None else self._deliver_event(event, waits=False)
            if left is not None:
                with make_scope(cancellation_mark(), shield=True):
                    await left

    def offer(self, event: Report) -> None:
        """Deliver a report without waiting: at once if all hooks are plain functions, else by `pump`."""
        self._stamp_event(event)
        self._waiting.offer(event)
        if self._offered is not None:
            self._offered.ring()
        elif not self.needs_pump and not self._is_delivering:
            self._deliver_now()

    async def pump(self) -> None:
        """Deliver reports as they come, until cancelled."""
        self._offered = self._offered or Bell()
        while True:
            await self._deliver_event(None, waits=False)
            await self._offered.wait()

    def _deliver_now(self) -> None:
        delivery = self._deliver_event(None, waits=False)
        try:
            delivery.send(None)
        except StopIteration:
            return
        delivery.close()
        self.needs_pump = True
        _logger.warning("a hook that is a plain function gave an awaitable, and one report was lost: make it async")

    async def _wait_for_turn(self, event: LoopEvent | None) -> None:
        """Wait until no other task delivers: tools run concurrently, and hooks get one event at a time.

        If cancelled, withdraw the start of a call, which will not begin.
        """
        try:
            while self._is_delivering:
                if self._turn is None:
                    self._turn = Bell()
                await self._turn.wait()
        except BaseException:
            if isinstance(event, ToolExecutionStart) and event in self._waiting.entries:
                self._waiting.entries.remove(event)
                self.unemitted_starts.add(event.call_id)
            raise

    async def _finish_delivery(self, event: LoopEvent, value: Awaitable[Any], *, is_offered: bool) -> None:
        """Wait for a hook, then pass the event on to the reader unless a guard suppresses it."""
        is_shown: object = True
        try:
            is_shown = await _await_hook(value, self._timeout)
        finally:
            if self.feed is not None and not (is_shown is False and self._has_guards):
                self.feed.put(event, is_offered=is_offered)


def _find_kinds(hook: EventHook | None) -> frozenset[type]:
    """Return the kinds of events that are created for a hook."""
    if not isinstance(hook, EventListener):
        return frozenset() if hook is None else LOOP_EVENTS
    kinds = hook.kinds
    # Reports that wait when their call ends are delivered before its end is.
    return kinds if kinds.isdisjoint((ToolExecutionUpdate, ToolProgress)) else kinds | {ToolExecutionEnd}


def _join_hooks(
    hooks: Sequence[EventHook], guards: Sequence[UpdateGuard], timeout: float
) -> Callable[[LoopEvent], Any] | None:
    """Return one hook that calls all, even if one raises; if awaited, it returns False for a suppressed update."""
    guarded: list[Any] = [*guards, *hooks]

    def call_all(event: LoopEvent, start: int = 0) -> Awaitable[Any] | None:
        called = guarded if guards and isinstance(event, ToolExecutionUpdate) else hooks
        for index in range(start, len(called)):
            value = _call_hook(called[index], event)
            if inspect.isawaitable(value):
                return call_rest(event, value, index + 1, is_guard=index < len(called) - len(hooks))
            if value is False and index < len(called) - len(hooks):
                return _suppress_update()
        return None

    async def call_rest(event: LoopEvent, value: Awaitable[Any], start: int, *, is_guard: bool) -> Any:
        if await _await_hook(value, timeout) is False and is_guard:
            return False
        rest = call_all(event, start)
        return None if rest is None else await rest

    return call_all


async def _suppress_update() -> bool:
    return False


def _call_hook(hook: Callable[[Any], Any], event: LoopEvent) -> Any:
    try:
        return hook(event)
    except Exception:
        _logger.exception("a hook raised; the loop goes on")
        return None


async def _await_hook(value: Awaitable[Any], timeout: float) -> Any:
    try:
        with anyio.fail_after(timeout):
            return await value
    except Exception:
        _logger.exception("a hook raised; the loop goes on")
        return None


def hook_may_wait(hook: object) -> bool:
    """Return True if a hook may return an awaitable: all but plain functions and methods that are not async."""
    if isinstance(hook, EventListener):
        return hook.may_wait
    if hook is None or inspect.isbuiltin(hook):
        return False
    is_plain = inspect.isfunction(hook) or inspect.ismethod(hook)
    return not is_plain or inspect.iscoroutinefunction(hook) or getattr(hook, "__name__", "") == "<lambda>"
