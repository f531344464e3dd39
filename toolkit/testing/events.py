"""Keeps the events of a loop, for a test that asks what happened."""

from __future__ import annotations

from typing import Any, TypeVar

from toolkit.calls.events import ToolExecutionEnd, ToolExecutionStart
from toolkit.loop.events import Done, LoopEvent
from toolkit.loop.outcome import ToolLoopResult

__all__ = ["EventCollector"]

_Event = TypeVar("_Event")


class EventCollector:
    """Keeps each event that it is called with, in order.

    ::

        events = EventCollector()
        await tool_loop(provider, registry, "Hello", config=ToolLoopConfig(on_event=events))
        assert events.started == ["call_1"]

    Attributes:
        events: All of them.
    """

    def __init__(self) -> None:
        self.events: list[LoopEvent] = []

    def __call__(self, event: LoopEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    def of(self, kind: type[_Event]) -> list[_Event]:
        """Return the events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> list[str]:
        """The ids of the calls that started, in that order."""
        return [event.call_id for event in self.of(ToolExecutionStart)]

    @property
    def ended(self) -> list[str]:
        """The ids of the calls that ended, in that order."""
        return [event.call_id for event in self.of(ToolExecutionEnd)]

    @property
    def result(self) -> ToolLoopResult[Any]:
        """The result of the loop.

        Raises:
            AssertionError: There is not exactly one `Done`, or it is not the last event.
        """
        done = self.of(Done)
        if len(done) != 1 or self.events[-1] is not done[0]:
            raise AssertionError(f"a loop tells Done once, as its last event; it was told {len(done)} times")
        return done[0].result
