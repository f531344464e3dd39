"""Tool calls for models too small to write them: one small question at a time, each reply constrained by a schema.

`GuidedProvider` wraps any provider whose server supports constrained output. Its steps are values that can be
reordered, replaced and extended. No rule depends on a human language.
"""

from toolkit.guided.holding import FoldedSchema, GuidedStep, GuidedTurn, HoldingWay, PastCall, StepVerdict, fold_schema
from toolkit.guided.provider import (
    DEFAULT_STEPS,
    AnswerFromResults,
    ChooseTool,
    ConfirmFollowUp,
    FillArguments,
    GuidedAnswer,
    GuidedProvider,
    RefuseRepeats,
    StopWhenDone,
)

__all__ = [
    "AnswerFromResults",
    "ChooseTool",
    "ConfirmFollowUp",
    "DEFAULT_STEPS",
    "FillArguments",
    "FoldedSchema",
    "GuidedAnswer",
    "GuidedProvider",
    "GuidedStep",
    "GuidedTurn",
    "HoldingWay",
    "PastCall",
    "RefuseRepeats",
    "StepVerdict",
    "StopWhenDone",
    "fold_schema",
]
