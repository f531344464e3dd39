"""A queue through which others speak to a running loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from toolkit.chat import Message, UserMessage, validate_transcript


class Steering:
    """Messages for the model of a running loop, written from anywhere: another task, a thread, a tool.

    ::

        steering = Steering()
        config = ToolLoopConfig(steering=steering)
        steering.steer("Stop, that is the wrong list!")  # while the loop runs, from another task or thread

    What is steered is read between the units of execution: calls that have not started are skipped and answered, and
    the message comes after the results. A follow-up waits until the loop would end, and opens another turn. What a loop
    did not bring into its transcript, because it ended before, stays here for the next one: no message is lost.
    """

    __slots__ = ("_follow_ups", "_steered")

    def __init__(self) -> None:
        self._steered: deque[Message] = deque()
        self._follow_ups: deque[Message] = deque()

    def steer(self, message: str | Message) -> None:
        """Interrupt: the model reads it before anything else is done.

        Raises:
            TranscriptError: It can't stand alone, such as a result without its call.
        """
        self._steered.append(_as_message(message))

    def follow_up(self, message: str | Message) -> None:
        """Add something to do once the loop would end.

        Raises:
            TranscriptError: It can't stand alone.
        """
        self._follow_ups.append(_as_message(message))

    @property
    def is_empty(self) -> bool:
        """True where nothing waits."""
        return not self._steered and not self._follow_ups

    def put_back(self, messages: Sequence[Message]) -> None:
        """Keep what was taken as steered and reached no model, before all that was steered since."""
        self._steered.extendleft(reversed(messages))

    def take_steered(self) -> list[Message]:
        """Return all that was steered and forget it."""
        return _drain_queue(self._steered)

    def take_follow_up(self) -> list[Message]:
        """Return the next follow-up, as a list of at most one, and forget it."""
        return [self._follow_ups.popleft()] if self._follow_ups else []


def _as_message(message: str | Message) -> Message:
    if isinstance(message, str):
        return UserMessage(message)
    validate_transcript([message])
    return message


def _drain_queue(queue: deque[Message]) -> list[Message]:
    taken: list[Message] = []
    # Others may append meanwhile; popleft is atomic, copying and clearing would not be.
    while queue:
        taken.append(queue.popleft())
    return taken
