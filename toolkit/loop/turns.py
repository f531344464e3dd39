"""The outcomes of a turn that the caller steps by hand, and the caller's answers to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from toolkit.chat import AssistantContent, ChatResponse, Message, ToolCall, ToolResult, Usage, text_of
from toolkit.dataclass import dataclass
from toolkit.loop.events import Failed
from toolkit.loop.outcome import Out, TerminationReason, ToolLoopResult
from toolkit.loop.steps import Command, InjectMessages
from toolkit.loop.stopping import Continue, Stop

if TYPE_CHECKING:
    from toolkit.loop.handle import ToolLoopHandle

__all__ = ["Completed", "TurnOutcome", "Yielded"]

_logger = logging.getLogger("toolkit.loop")


class Yielded:
    """A turn has run its tools; say what comes next, or nothing to go on.

    It speaks for its own turn alone: once the next one has begun, a command given here is logged and does nothing.

    Attributes:
        tool_calls: The calls that the model asked for.
        results: The results of the tools, in call order.
        assistant_content: The other content of the model's message.
        iteration: The number of the turn.
        usage: The sum over all requests so far.
    """

    __slots__ = ("_handle", "_turn", "assistant_content", "iteration", "results", "tool_calls", "usage")

    def __init__(
        self, handle: ToolLoopHandle[Any, Any], response: ChatResponse, results: tuple[ToolResult, ...]
    ) -> None:
        self._handle = handle
        self._turn = handle.turn
        self.tool_calls: tuple[ToolCall, ...] = response.tool_calls
        self.results: tuple[ToolResult, ...] = results
        self.assistant_content: tuple[AssistantContent, ...] = tuple(
            [block for block in response.message.content if not isinstance(block, ToolCall)]
        )
        self.iteration: int = handle.iterations
        self.usage: Usage = handle.usage

    @property
    def messages(self) -> list[Message]:
        """The transcript; it may be edited until the next turn, as long as it stays valid."""
        return self._handle.messages

    @property
    def assistant_text(self) -> str | None:
        """The text that the model said besides its calls, or None."""
        return text_of(self.assistant_content) or None

    def continue_loop(self) -> None:
        """Go on; the same as saying nothing."""
        self.resume(Continue())

    def inject_and_continue(self, messages: Iterable[Message]) -> None:
        """Append these messages after this turn's results, and go on.

        Raises:
            TranscriptError: They leave a call without its result, or repeat a call's id.
        """
        self.resume(InjectMessages(tuple(messages)))

    def stop(self, reason: str | None = None) -> None:
        """End the loop without another request."""
        self.resume(Stop(reason))

    def resume(self, command: Command) -> None:
        """Say what comes next; the last word before `next_turn` counts."""
        if self._turn != self._handle.turn:
            _logger.warning("a command for turn %d came after the next one had begun, and does nothing", self.iteration)
            return
        self._handle.resume(command)


@dataclass(frozen=True, slots=True)
class Completed(Generic[Out]):
    """The loop has ended."""

    result: ToolLoopResult[Out]

    @property
    def response(self) -> ChatResponse | None:
        """The last response."""
        return self.result.response

    @property
    def reason(self) -> TerminationReason:
        """Why it ended."""
        return self.result.reason


TurnOutcome: TypeAlias = Yielded | Completed[Out] | Failed
"""The outcome of a turn: more may follow, the loop has ended, or it can't go on."""
