"""Whoever takes the events of a loop: the hook of the configuration."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from toolkit.loop.events import LoopEvent
from toolkit.tools.events import ToolExecutionUpdate, ToolProgress

if TYPE_CHECKING:
    from toolkit.loop.config import AfterToolExecutionUpdate, BeforeToolExecutionUpdate, EventHook, ToolLoopConfig

__all__ = ["HookListener", "Listener"]

_logger = logging.getLogger("toolkit.loop")

_WAITING_PER_CALL = 64


class Listener(Protocol):
    """Takes every event of a loop, in order; never raises."""

    async def emit(self, event: LoopEvent) -> None:
        """Deliver an event; returns when it is taken."""
        ...

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Take a report without waiting."""
        ...

    async def pump(self) -> None:
        """Deliver what was offered, as it comes, until cancelled."""
        ...


class HookListener:
    """Calls ``on_event`` and the update hooks; what they raise is logged and changes nothing."""

    __slots__ = ("_after_update", "_before_update", "_hook", "_offered", "_timeout", "_waiting")

    def __init__(self, config: ToolLoopConfig[Any]) -> None:
        self._hook: EventHook | None = config.on_event
        self._before_update: BeforeToolExecutionUpdate | None = config.before_tool_execution_update
        self._after_update: AfterToolExecutionUpdate | None = config.after_tool_execution_update
        self._timeout = config.hook_timeout
        self._waiting: dict[str, deque[ToolExecutionUpdate | ToolProgress]] = {}
        self._offered: anyio.Event | None = None

    async def emit(self, event: LoopEvent) -> None:
        """Call the hooks, after delivering what the same call has offered before."""
        if self._waiting:
            call_id = getattr(event, "call_id", None)
            if call_id in self._waiting:
                await self._deliver_waiting(call_id)
        await self._deliver(event)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        """Keep the report for `pump`; the oldest of its call gives way, and the newest says how many did."""
        waiting = self._waiting.setdefault(event.call_id, deque())
        if len(waiting) >= _WAITING_PER_CALL:
            oldest = waiting.popleft()
            if waiting:
                waiting[0].dropped += oldest.dropped + 1
            else:
                event.dropped += oldest.dropped + 1
        waiting.append(event)
        if self._offered is not None:
            self._offered.set()

    async def pump(self) -> None:
        """Deliver what was offered, as it comes, until cancelled."""
        while True:
            self._offered = anyio.Event()
            for call_id in list(self._waiting):
                await self._deliver_waiting(call_id)
            await self._offered.wait()

    async def _deliver_waiting(self, call_id: str) -> None:
        waiting = self._waiting.pop(call_id, None)
        while waiting:
            await self._deliver(waiting.popleft())

    async def _deliver(self, event: LoopEvent) -> None:
        if isinstance(event, ToolExecutionUpdate) and not await self._allows(event):
            return
        if self._hook is not None:
            await self._call(self._hook, event)
        if isinstance(event, ToolExecutionUpdate) and self._after_update is not None:
            await self._call(self._after_update, event.tool_name, event.call_id, event.output.text)

    async def _allows(self, event: ToolExecutionUpdate) -> bool:
        if self._before_update is None:
            return True
        answer = await self._call(self._before_update, event.tool_name, event.call_id, event.output.text)
        return answer is not False

    async def _call(self, hook: Any, *arguments: Any) -> Any:
        try:
            value = hook(*arguments)
            if inspect.isawaitable(value):
                with anyio.fail_after(self._timeout):
                    value = await value
        except Exception:
            _logger.exception("a hook raised; the loop goes on")
            return None
        return value
