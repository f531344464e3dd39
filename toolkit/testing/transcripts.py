"""A check that a transcript is valid and matches the events of its run, and a collector of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from toolkit.calls.events import ToolCallRefused, ToolExecutionEnd, ToolExecutionStart
from toolkit.chat import AssistantMessage, Message, ToolResult, validate_transcript
from toolkit.loop.events import Done, LoopEvent
from toolkit.loop.outcome import ToolLoopResult

_Event = TypeVar("_Event")


class EventCollector:
    """Collects each event that it is called with, in order.

    ::

        events = EventCollector()
        await tool_loop(provider, registry, "Hello", config=ToolLoopConfig(on_event=events))
        assert events.started == ["call_1"]

    Attributes:
        events: All events so far.
    """

    def __init__(self) -> None:
        self.events: list[LoopEvent] = []

    def __call__(self, event: LoopEvent) -> None:
        """Store an event."""
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
            raise AssertionError(f"a loop emits Done once, as its last event; it was emitted {len(done)} times")
        return done[0].result


def check_transcript(
    messages: Sequence[Message], events: Iterable[LoopEvent] = (), *, allow_pending: bool = False
) -> None:
    """Raise unless a transcript is valid, and matches the events of the runs that produced it.

    ::

        result = await tool_loop(provider, registry, "Go")
        check_transcript(result.messages)

    A transcript is valid if `validate_transcript` accepts it. It matches the events if each call that started ended
    once, no call started twice or after it was refused, and each result is the one that the call's event reported,
    including its error flag. The text may differ, because the model reads a truncated one.

    Args:
        messages: The transcript.
        events: The events of the runs, in order; without them, only validity is checked.
        allow_pending: Accept calls at the end that wait for a decision.

    Raises:
        TranscriptError: It is not valid.
        AssertionError: It does not match the events.
    """
    validate_transcript(messages, allow_pending=allow_pending)
    started: Counter[str] = Counter()
    reported: dict[str, ToolResult] = {}
    for event in events:
        match event:
            case ToolExecutionStart(call_id=call_id):
                started[call_id] += 1
                _require_part(started[call_id] == 1, f"call '{call_id}' started twice")
                _require_part(call_id not in reported, f"call '{call_id}' started after its result was reported")
            case ToolExecutionEnd(call_id=call_id, result=result):
                _require_part(started[call_id] == 1, f"call '{call_id}' ended and never started")
                _require_part(call_id not in reported, f"the result of call '{call_id}' was reported twice")
                reported[call_id] = result
            case ToolCallRefused(call_id=call_id, result=result):
                _require_part(started[call_id] == 0, f"call '{call_id}' was refused after it had started")
                _require_part(call_id not in reported, f"the result of call '{call_id}' was reported twice")
                reported[call_id] = result
            case _:
                pass
    for call_id in started:
        _require_part(call_id in reported, f"call '{call_id}' started and never ended")
    _check_results(messages, reported)


def _check_results(messages: Sequence[Message], reported: dict[str, ToolResult]) -> None:
    asked = {
        call.id: call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }
    for message in messages:
        if not isinstance(message, ToolResult):
            continue
        _require_part(
            not message.is_error or bool(message.text.strip()), f"the error result of call '{message.call_id}' is empty"
        )
        event = reported.get(message.call_id)
        if event is None:
            continue
        _require_part(
            event.is_error == message.is_error,
            f"the result of call '{message.call_id}' and its event differ on whether '{asked[message.call_id].name}' "
            "failed",
        )


def _require_part(fact: bool, otherwise: str) -> None:
    if not fact:
        raise AssertionError(otherwise)
