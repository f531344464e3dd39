"""How a loop can end, and what it leaves."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from toolkit.chat import ChatResponse, Message, ToolCall, UnansweredItem, Usage
from toolkit.dataclass import dataclass
from toolkit.loop.events import LoopDetected

__all__ = [
    "Aborted",
    "AwaitingApproval",
    "Cancelled",
    "Complete",
    "MaxIterations",
    "Out",
    "ResultAsAnswer",
    "Snapshot",
    "StopCondition",
    "TerminationReason",
    "Timeout",
    "ToolLoopResult",
    "UnansweredItems",
    "UsageLimit",
]

Snapshot: TypeAlias = dict[str, Any]
"""A saved loop as plain JSON: what `json.dumps` takes as it is."""

Out = TypeVar("Out", default=None)


@dataclass(frozen=True, slots=True)
class Complete:
    """The model gave its answer."""


@dataclass(frozen=True, slots=True)
class MaxIterations:
    """The limit of tool turns was reached."""

    limit: int


@dataclass(frozen=True, slots=True)
class Timeout:
    """The loop took longer than it may, in seconds; what was running was cancelled."""

    limit: float


@dataclass(frozen=True, slots=True)
class StopCondition:
    """`stop_when` or the caller said stop."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ResultAsAnswer:
    """A tool's output is the answer."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """A limit of the budget was reached.

    Args:
        limit: Which one.
        maximum: What it allows.
        used: What has been used.
    """

    limit: Literal["requests", "input_tokens", "output_tokens", "total_tokens", "tool_calls", "cost"]
    maximum: float
    used: float


@dataclass(frozen=True, slots=True)
class AwaitingApproval:
    """Somebody has to decide on these calls before the loop can go on."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class UnansweredItems:
    """The reply asks for something that only the application can do, such as a click or an approval at the vendor's.

    The calls beside it have run. No request can follow before each item is answered, in a request of your own: the
    message of `ToolLoopResult.response` holds them as the provider sent them.
    """

    items: tuple[UnansweredItem, ...]


@dataclass(frozen=True, slots=True)
class Aborted:
    """An approver ended the run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller cancelled the loop, or left it; `reason` is what `ToolLoopHandle.cancel` was given."""

    reason: str | None = None


TerminationReason: TypeAlias = (
    Complete
    | MaxIterations
    | Timeout
    | StopCondition
    | LoopDetected
    | ResultAsAnswer
    | UsageLimit
    | AwaitingApproval
    | UnansweredItems
    | Aborted
    | Cancelled
)
"""Why a loop ended; `Complete` where the model answered of its own accord."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLoopResult(Generic[Out]):
    """What a loop leaves.

    Args:
        text: The answer: the last response's text, or the tool's output where that is the answer.
        output: The validated answer, where an output type was asked for and the model gave one.
        response: The last response; None when the model never answered.
        messages: The whole transcript: valid, each call with its result.
        usage: The sum over all requests.
        iterations: How many times the model was asked.
        tool_rounds: How many turns ran tools.
        reason: Why the loop ended.
        snapshot: Where the loop awaits approval: plain JSON for `ToolLoopHandle.restore`.
    """

    text: str
    output: Out | None = None
    response: ChatResponse | None
    messages: list[Message]
    usage: Usage
    iterations: int
    tool_rounds: int
    reason: TerminationReason
    snapshot: Snapshot | None = None
