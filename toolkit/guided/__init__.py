"""Tool calls by models too small to make them: one small question at a time, each reply held to a schema.

`GuidedProvider` wraps any provider whose server can hold a reply to a JSON Schema. Its steps are values that can be
reordered, replaced and added to. Nothing here knows a language.
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
