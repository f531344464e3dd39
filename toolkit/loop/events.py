"""The events of a run: those of its tools and of its turns, in one union."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeAlias, get_args

from toolkit.calls.events import (
    ApprovalRequested,
    ToolCallRefused,
    ToolCallRepaired,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import ArgumentsDelta, ChatResponse, Message, ReasoningDelta, Stamped, TextDelta, Usage
from toolkit.dataclass import dataclass
from toolkit.errors import ProviderError
from toolkit.loop.outcome import LoopDetected, ToolLoopResult


@dataclass(frozen=True, kw_only=True)
class RunStart(Stamped):
    """A run begins, or resumes after a decision that it awaited; `Done` or `Failed` follows at its end, once.

    Args:
        depth: How many loops are running round it.
        parent_loop_id: The loop whose tool runs it; None for an outermost one.
        message_count: How long the transcript is.
        is_resumed: True where a durable run resumes in another process: events that its log has are not emitted again.
    """

    depth: int = 0
    parent_loop_id: str | None = None
    message_count: int = 0
    is_resumed: bool = False


@dataclass(frozen=True, kw_only=True)
class IterationStart(Stamped):
    """A turn begins.

    Args:
        iteration: Its number, from 1.
        message_count: How long the transcript is.
    """

    iteration: int
    message_count: int


@dataclass(frozen=True, kw_only=True)
class ResponseReceived(Stamped):
    """The model has answered."""

    iteration: int
    response: ChatResponse


@dataclass(frozen=True, kw_only=True)
class Compacted(Stamped):
    """The transcript was shortened between two turns."""

    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class ProviderRetried(Stamped):
    """A request failed and is made again; deltas of the failed one don't count.

    Args:
        attempt: The number of the request that failed, from 1.
        delay: Seconds until the next one.
        error: The error.
    """

    attempt: int
    delay: float
    error: ProviderError


@dataclass(frozen=True)
class Done(Stamped):
    """The loop has ended; the last event of a run that did not fail."""

    result: ToolLoopResult[Any]


@dataclass(frozen=True, kw_only=True)
class Failed(Stamped):
    """The loop can't go on; the last event of a run that failed, and what `next_turn` gives for it.

    Args:
        error: Why; a `LoopError` or `ProviderError` carries the transcript and the usage, too.
        iterations: How many requests were made.
        usage: The usage of all of them.
        messages: The transcript as far as it came: valid, each call with its result.
    """

    error: Exception
    iterations: int
    usage: Usage
    messages: tuple[Message, ...] = field(default=(), repr=False)


LoopEvent: TypeAlias = (
    RunStart
    | IterationStart
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
    | Failed
)
"""The events of a running loop: `RunStart` first, then `Done` or `Failed`, once, last."""

LOOP_EVENTS: frozenset[type] = frozenset(get_args(LoopEvent))
"""The kinds of these events."""


@dataclass(frozen=True, slots=True)
class SubAgentEvent:
    """An event of a sub-agent's loop, in the `details` of an update of the call that runs it.

    A `ToolProgress` is in the `details` of another one, whose text is for people.

    Args:
        sub_agent: The sub-agent's name.
        loop_id: The id of its run.
        event: The event; that of a sub-agent inside it is an update, or progress, again.
    """

    sub_agent: str
    loop_id: str
    event: LoopEvent
