"""The ways in which a run, or a turn that is stepped by hand, ends; `TerminationReason` is the union of all reasons."""

from toolkit.loop.events import Failed
from toolkit.loop.handle import TurnOutcome, Yielded
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    Completed,
    CutStop,
    MaxIterations,
    MissingSteps,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    TerminationReason,
    Timeout,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)

__all__ = [
    "Aborted",
    "AwaitingApproval",
    "Cancelled",
    "Complete",
    "Completed",
    "CutStop",
    "Failed",
    "MaxIterations",
    "MissingSteps",
    "NoValidAnswer",
    "ResultAsAnswer",
    "StopCondition",
    "TerminationReason",
    "Timeout",
    "TurnOutcome",
    "TypedAnswer",
    "UnansweredItems",
    "UsageLimit",
    "Yielded",
]
