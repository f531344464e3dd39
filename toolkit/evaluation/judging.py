"""The judge: why a task is not solved, by what was called with what and what was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolkit.evaluation.matching import is_said, match_arguments
from toolkit.evaluation.tasks import EvaluationTask, TaskCall
from toolkit.tools.registry import ToolRegistry

__all__ = ["FailureReason", "MadeCall", "is_expected", "judge_answer"]

FailureReason: TypeAlias = Literal[
    "",
    "no call",
    "unknown tool",
    "arguments refused",
    "wrong tool",
    "wrong arguments",
    "a call is missing",
    "a call too many",
    "no answer",
    "the answer lacks a fact",
    "out of time",
    "the request failed",
]
"""Why a task is not solved; empty where it is. Of several reasons, the one that comes first in a run."""

MadeCall: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a tool and its validated arguments, as JSON."""


def judge_answer(
    task: EvaluationTask,
    calls: Sequence[MadeCall],
    refused: Sequence[str],
    answer: str,
    registry: ToolRegistry[Any],
) -> FailureReason:
    """Return why a task is not solved, or "".

    A right call may be made twice; every other call that the task does not allow is one too many.

    Args:
        task: The task.
        calls: The calls that ran.
        refused: The texts that the model was given about calls that did not.
        answer: Its last text.
        registry: The tools.
    """
    reason = "" if task.calls is None else _judge_calls(task, task.calls, calls, refused, registry)
    if reason:
        return reason
    if not answer.strip():
        return "no answer"
    return "" if all(is_said(answer, wordings) for wordings in task.says) else "the answer lacks a fact"


def is_expected(call: MadeCall, expected: TaskCall, registry: ToolRegistry[Any]) -> bool:
    """Return whether a call is the one that a task expects."""
    name, arguments = call
    if name != expected.tool or name not in registry:
        return False
    return match_arguments(expected.arguments, arguments, registry.registrations[name].arguments)


def _judge_calls(
    task: EvaluationTask,
    expected: Sequence[TaskCall],
    calls: Sequence[MadeCall],
    refused: Sequence[str],
    registry: ToolRegistry[Any],
) -> FailureReason:
    missing = [one for one in expected if not any(is_expected(call, one, registry) for call in calls)]
    others = [
        call
        for call in calls
        if call[0] not in task.may_call and not any(is_expected(call, one, registry) for one in expected)
    ]
    if not missing:
        return "a call too many" if others else ""
    if not calls:
        return _judge_refusals(refused)
    if not others:
        return "a call is missing"
    return "wrong arguments" if {one.tool for one in missing} & {name for name, _ in others} else "wrong tool"


def _judge_refusals(refused: Sequence[str]) -> FailureReason:
    if not refused:
        return "no call"
    return "unknown tool" if refused[0].startswith("Unknown tool") else "arguments refused"
