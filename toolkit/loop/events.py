"""Everything that a loop tells while it runs: the tools' events and the turn's own, in one union."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolkit.chat import ArgumentsDelta, ChatResponse, ReasoningDelta, TextDelta
from toolkit.dataclass import dataclass
from toolkit.errors import ProviderError
from toolkit.tools.events import (
    ApprovalRequested,
    ToolCallRefused,
    ToolCallRepaired,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)

if TYPE_CHECKING:
    from toolkit.loop.outcome import ToolLoopResult

__all__ = [
    "Compacted",
    "Done",
    "IterationStart",
    "LoopDetected",
    "LoopDetectionAction",
    "LoopEvent",
    "ProviderRetried",
    "ResponseReceived",
]

LoopDetectionAction: TypeAlias = Literal["warn", "stop", "inject_warning", "skip"]
"""What to do about a model that repeats itself: tell the application; end the loop; tell the model after the results;
or answer the repeated calls without running them."""


@dataclass(slots=True, kw_only=True)
class IterationStart:
    """A turn begins.

    Args:
        iteration: Its number, from 1.
        message_count: How long the transcript is.
    """

    iteration: int
    message_count: int


@dataclass(slots=True, kw_only=True)
class ResponseReceived:
    """The model has answered."""

    iteration: int
    response: ChatResponse


@dataclass(slots=True, kw_only=True)
class LoopDetected:
    """The model asked for the same again.

    Args:
        tool_name: The tool; several that are repeated together are joined with ``+``.
        count: How often, this time included; of several, the one that was called most.
        action: What is done about it.
        is_in_row: Whether nothing else was called in between.
    """

    tool_name: str
    count: int
    action: LoopDetectionAction
    is_in_row: bool = True


@dataclass(slots=True, kw_only=True)
class Compacted:
    """The transcript was shortened between two turns."""

    before: int
    after: int


@dataclass(slots=True, kw_only=True)
class ProviderRetried:
    """A request failed and is made again; deltas of the failed one don't count.

    Args:
        attempt: The number of the request that failed, from 1.
        delay: Seconds until the next one.
        error: What went wrong.
    """

    attempt: int
    delay: float
    error: ProviderError


@dataclass(slots=True)
class Done:
    """The loop has ended; always the last event."""

    result: ToolLoopResult[Any]


LoopEvent: TypeAlias = (
    IterationStart
    | TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ResponseReceived
    | ToolCallRepaired
    | ApprovalRequested
    | ToolCallRefused
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | ToolProgress
    | LoopDetected
    | Compacted
    | ProviderRetried
    | Done
)
"""What is told of a running loop; `Done` comes once, last."""
