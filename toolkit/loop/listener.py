"""Whoever takes the events of a loop, and how events wait for them."""

from __future__ import annotations

import inspect
import logging
from collections import Counter, deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from toolkit.loop.events import LoopEvent
from toolkit.tools.events import ToolExecutionUpdate, ToolProgress

if TYPE_CHECKING:
    from toolkit.loop.config import ToolLoopConfig

__all__ = ["EventQueue", "HookListener", "Listener"]

_logger = logging.getLogger("toolkit.loop")

_REPORTS_PER_CALL = 64


class Listener(Protocol):
    """Takes every event of a loop, in order; never raises."""

    @property
    def needs_pump(self) -> bool:
        """Whether what was offered waits for `pump`; else `offer` delivers it, or the reader takes it."""
        ...

    async def emit(self, event: LoopEvent) -> None:
        """Deliver an event; returns when it is taken."""
        ...

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Take a report without waiting."""
        ...

    async def pump(self) -> None:
        """Deliver what was offered, as it comes, until cancelled."""
        ...


class EventQueue:
    """Events in order. Of each call's reports only the newest are kept, and they tell how many gave way."""

    __slots__ = ("_events", "_reports")

    def __init__(self) -> None:
        self._events: deque[LoopEvent] = deque()
        self._reports: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, event: LoopEvent) -> None:
        """Append an event."""
        self._events.append(event)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Append a report; where its call has too many waiting, its oldest gives way."""
        if self._reports[event.call_id] >= _REPORTS_PER_CALL:
            oldest = next(other for other in self._events if _is_report_of(other, event.call_id))
            self._events.remove(oldest)
            event.dropped += getattr(oldest, "dropped", 0) + 1
        else:
            self._reports[event.call_id] += 1
        self._events.append(event)

    def take(self) -> LoopEvent:
        """Return the oldest event and forget it."""
        event = self._events.popleft()
        if isinstance(event, (ToolExecutionUpdate, ToolProgress)):
            self._reports[event.call_id] -= 1
        return event


def _is_report_of(event: LoopEvent, call_id: str) -> bool:
    return isinstance(event, (ToolExecutionUpdate, ToolProgress)) and event.call_id == call_id


class HookListener:
    """Calls ``on_event`` and the update hooks, one event at a time; what they raise is logged and changes nothing."""

    __slots__ = ("_after_update", "_before_update", "_hook", "_offered", "_timeout", "_turn", "_waiting", "needs_pump")

    def __init__(self, config: ToolLoopConfig[Any]) -> None:
        self._hook = config.on_event
        self._before_update = config.before_tool_execution_update
        self._after_update = config.after_tool_execution_update
        self._timeout = config.hook_timeout
        self._waiting = EventQueue()
        self._offered: anyio.Event | None = None
        # Tools of one turn run at once, and an async hook would overtake itself.
        self._turn = anyio.Lock(fast_acquire=True)
        # Plain functions are called where a report is made. A task beside the tools would cost more than a turn.
        self.needs_pump: bool = any(map(_may_wait, (self._hook, self._before_update, self._after_update)))

    @classmethod
    def of(cls, config: ToolLoopConfig[Any] | None) -> HookListener | None:
        """Return a listener for the hooks of `config`, or None where it has none."""
        if config is None:
            return None
        has_update_hooks = config.before_tool_execution_update or config.after_tool_execution_update
        return None if config.on_event is None and not has_update_hooks else cls(config)

    async def emit(self, event: LoopEvent) -> None:
        """Call the hooks, after delivering what was told before; a cancellation leaves the event to the next one."""
        if self._waiting or self._turn.locked() or isinstance(event, ToolExecutionUpdate) or self._hook is None:
            self._waiting.put(event)
            async with self._turn:
                await self._deliver_waiting()
            return
        # Nobody is before this event. Most hooks are done when they return, and a lock takes longer than they do.
        value = _called(self._hook, event)
        if value is not None and inspect.isawaitable(value):
            self._turn.acquire_nowait()  # with no round of the event loop, in which a cancellation would lose the event
            try:
                await self._wait_for(value)
                await self._deliver_waiting()
            finally:
                self._turn.release()

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Keep the report for `pump`; where hooks are plain functions, call them now."""
        if not self.needs_pump and not self._waiting:
            self._deliver_now(event)
            return
        self._waiting.offer(event)
        if self._offered is not None:
            self._offered.set()

    async def pump(self) -> None:
        """Deliver what was offered, as it comes, until cancelled."""
        while True:
            self._offered = anyio.Event()
            async with self._turn:
                await self._deliver_waiting()
            await self._offered.wait()

    async def _deliver_waiting(self) -> None:
        while self._waiting:
            await self.deliver(self._waiting.take())

    def _deliver_now(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        delivery = self.deliver(event)
        try:
            delivery.send(None)
        except StopIteration:
            return
        delivery.close()
        self.needs_pump = True
        _logger.warning("a hook that is a plain function gave an awaitable, and one report was lost: make it async")

    async def deliver(self, event: LoopEvent) -> bool:
        """Call the hooks; return whether the event may be shown to others, too."""
        if isinstance(event, ToolExecutionUpdate) and not await self._allows(event):
            return False
        if self._hook is not None:
            await self._call(self._hook, event)
        if isinstance(event, ToolExecutionUpdate) and self._after_update is not None:
            await self._call(self._after_update, event.tool_name, event.call_id, event.output.text)
        return True

    async def _allows(self, event: ToolExecutionUpdate) -> bool:
        if self._before_update is None:
            return True
        answer = await self._call(self._before_update, event.tool_name, event.call_id, event.output.text)
        return answer is not False

    async def _call(self, hook: Any, *arguments: Any) -> Any:
        value = _called(hook, *arguments)
        return await self._wait_for(value) if inspect.isawaitable(value) else value

    async def _wait_for(self, value: Awaitable[Any]) -> Any:
        try:
            with anyio.fail_after(self._timeout):
                return await value
        except Exception:
            _logger.exception("a hook raised; the loop goes on")
            return None


def _called(hook: Any, *arguments: Any) -> Any:
    try:
        return hook(*arguments)
    except Exception:
        _logger.exception("a hook raised; the loop goes on")
        return None


def _may_wait(hook: object) -> bool:
    """Whether a hook may give something to await: all but plain functions and methods that are not async."""
    if hook is None or inspect.isbuiltin(hook):
        return False
    is_plain = inspect.isfunction(hook) or inspect.ismethod(hook)
    return not is_plain or inspect.iscoroutinefunction(hook) or getattr(hook, "__name__", "") == "<lambda>"
