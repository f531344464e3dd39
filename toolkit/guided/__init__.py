"""Tool calls out of models too small to make them: one small question at a time, each reply held to a schema.

`GuidedProvider` wraps any provider whose server can hold a reply to a JSON Schema. Its steps are values that can be put
in another order, replaced and added to.
"""

from toolkit.guided.answers import AnswerFromResults, GuidedAnswer
from toolkit.guided.checks import RequireGround, RequireNews, StopWhenDone
from toolkit.guided.folding import FoldedSchema, fold_schema
from toolkit.guided.holding import HoldingWay
from toolkit.guided.provider import GuidedProvider
from toolkit.guided.steps import DEFAULT_STEPS, ChooseTool, FillArguments
from toolkit.guided.turn import GuidedStep, GuidedTurn, PastCall, StepVerdict

__all__ = [
    "AnswerFromResults",
    "ChooseTool",
    "DEFAULT_STEPS",
    "FillArguments",
    "FoldedSchema",
    "GuidedAnswer",
    "GuidedProvider",
    "GuidedStep",
    "GuidedTurn",
    "HoldingWay",
    "PastCall",
    "RequireGround",
    "RequireNews",
    "StepVerdict",
    "StopWhenDone",
    "fold_schema",
]
