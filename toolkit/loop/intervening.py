"""The feeds of a loop's machine that come from outside, at any time: messages, commands and edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolkit.chat import AssistantMessage, Message, Usage, call_ids_of, validate_transcript
from toolkit.errors import LoopUsageError, TranscriptError
from toolkit.loop.closing import LoopClosing
from toolkit.loop.outcome import Complete
from toolkit.loop.steps import Command, InjectMessages
from toolkit.loop.stopping import Continue, Stop
from toolkit.settings import check_setting

__all__ = ["LoopIntervening"]


class LoopIntervening(LoopClosing):
    """The feeds that fit whatever the machine awaits; `LoopState` acts on what they leave when the next turn begins."""

    __slots__ = ()

    def spent(self, usage: Usage) -> None:
        """Count what a loop inside a tool has used."""
        self._spent.append(usage)

    def steered(self, messages: Iterable[Message]) -> None:
        """Take messages from somebody else: calls that have not started are skipped, the next turn begins with them.

        After a completed loop they open it again.
        """
        new = list(messages)
        if not new:
            return
        if self.is_finished and not isinstance(self.reason, Complete):
            raise LoopUsageError("the loop is over: nobody reads a message anymore")
        self._incoming.extend(new)
        if self.is_finished:
            self.reason = None
            self.phase = "ready"
        elif self.phase in ("deciding", "running"):
            self._open.skip_waiting("skipped because of a new message")
            self.phase = "running"
            if not self._open.unanswered:
                self._close_turn()

    def take_undelivered(self) -> Sequence[Message]:
        """Return, once, what was steered and did not come into the transcript before the end."""
        messages = self._incoming
        if messages:
            self._incoming = []
        return messages

    def commanded(self, command: Command) -> None:
        """Take the caller's wish for the next turn; the last one counts, and none is left after the end.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
            ConfigurationError: It is no command.
        """
        check_setting("what the next turn begins with", command, Continue, InjectMessages, Stop)
        if isinstance(command, InjectMessages):
            validate_transcript(command.messages)
            for index, message in enumerate(command.messages):
                calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
                known = self._call_ids.intersection([call.id for call in calls])
                if known:
                    raise TranscriptError(index, f"call '{known.pop()}' has the id of an earlier call; give it another")
        if not self.is_finished:
            self._command = command

    def edited(self) -> None:
        """Take `messages` as they are now: somebody may have changed them.

        Raises:
            TranscriptError: They are no valid transcript anymore, or nothing is left that a model could be asked.
        """
        command = self._command
        comes = command.messages if isinstance(command, InjectMessages) else self._incoming
        if not (self.messages or comes or self.is_finished or isinstance(command, Stop)):
            raise TranscriptError(
                0, "the transcript is empty, and the next request would ask nothing; leave or append a message"
            )
        validate_transcript(self.messages, allow_pending=not self.is_at_boundary)
        self._call_ids |= call_ids_of(self.messages)
