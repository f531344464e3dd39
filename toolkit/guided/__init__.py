"""Tool calls by models too small to make them: one small question at a time, each reply held to a schema.

`GuidedProvider` wraps any provider whose server can hold a reply to a JSON Schema. Its steps are values that can be
reordered, replaced and added to. Nothing here knows a language.
"""

from toolkit.guided.holding import FoldedSchema, HoldingWay, fold_schema
from toolkit.guided.provider import AnswerFromResults, GuidedAnswer, GuidedProvider
from toolkit.guided.steps import (
    DEFAULT_STEPS,
    ChooseTool,
    ConfirmFollowUp,
    FillArguments,
    RefuseRepeats,
    StopWhenDone,
)
from toolkit.guided.turn import GuidedStep, GuidedTurn, PastCall, StepVerdict

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
