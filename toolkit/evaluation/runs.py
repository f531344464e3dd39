"""Tasks by models by ways: each task is run with each candidate, and its outcome is kept the moment it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, field
from typing import Any, TypeAlias

from toolkit.chat import Provider
from toolkit.dataclass import dataclass
from toolkit.errors import ToolkitError
from toolkit.evaluation.tasks import EvaluationTask, TaskSet
from toolkit.evaluation.trial_files import TrialFile
from toolkit.evaluation.trials import Trial, TrialSettings, run_trial
from toolkit.json_text import digest_json
from toolkit.tools.registry import ToolRegistry

__all__ = ["Candidate", "CandidateTrials", "EvaluationProgress", "run_candidates"]

_MOST_FAILED_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model, asked in one way.

    Args:
        model: The name of the model.
        way: The name of the way.
        open: Gives the provider, for the length of a block.
    """

    model: str
    way: str
    open: Callable[[], AbstractAsyncContextManager[Provider]] = field(repr=False, compare=False)

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.model} {self.way}"


@dataclass(slots=True, kw_only=True)
class CandidateTrials:
    """The outcomes of one candidate.

    Attributes:
        candidate: The candidate.
        trials: Its outcomes, by the id of the task.
        problem: Why it was given up before its last task; empty where it was not.
    """

    candidate: Candidate
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    problem: str = ""


EvaluationProgress: TypeAlias = Callable[[Candidate, int, int], None]
"""Told the candidate, how many of its tasks are done, and how many there are."""


async def run_candidates(
    candidates: Sequence[Candidate],
    tasks: TaskSet,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    *,
    kept: TrialFile | None = None,
    outcomes: list[CandidateTrials] | None = None,
    on_progress: EvaluationProgress | None = None,
) -> list[CandidateTrials]:
    """Run each task with each candidate, one after the other, and return the outcomes.

    A model whose server can't be reached three times in a row is given up, with the tasks that it has done; the next
    run with the same file takes up what is missing.

    Args:
        candidates: The models and ways.
        tasks: The tasks.
        registry: The tools.
        settings: How each task is run.
        kept: Outcomes of earlier runs, which are not run again; new ones are added.
        outcomes: A list that is filled as it goes on, for a caller that may be cancelled; None makes one.
        on_progress: Told of each task.

    Raises:
        ConfigurationError: A task names a tool that is not there, or arguments that it does not take.
    """
    tasks.check_tools(registry)
    kept = kept or TrialFile(None)
    outcomes = [] if outcomes is None else outcomes
    for candidate in candidates:
        outcome = CandidateTrials(candidate=candidate)
        outcomes.append(outcome)
        key_of = _make_keys(candidate, tasks, registry, settings)
        todo: list[tuple[str, EvaluationTask]] = []
        for task in tasks.tasks:
            key = key_of(task)
            found = kept.find(key)
            if found is None:
                todo.append((key, task))
            else:
                outcome.trials[task.id] = found
        if on_progress is not None:
            on_progress(candidate, len(outcome.trials), len(tasks.tasks))
        if todo:
            await _run_candidate(outcome, todo, tasks, registry, settings, kept, on_progress)
    return outcomes


async def _run_candidate(
    outcome: CandidateTrials,
    todo: Sequence[tuple[str, EvaluationTask]],
    tasks: TaskSet,
    registry: ToolRegistry[Any],
    settings: TrialSettings,
    kept: TrialFile,
    on_progress: EvaluationProgress | None,
) -> None:
    failed = 0
    try:
        async with outcome.candidate.open() as provider:
            for key, task in todo:
                trial = await run_trial(
                    task, provider, registry, settings, instructions=tasks.instructions, returns=tasks.returns
                )
                failed = failed + 1 if trial.is_unreachable else 0
                if failed == _MOST_FAILED_IN_A_ROW:
                    outcome.problem = trial.error
                    return
                if trial.is_unreachable:
                    continue
                outcome.trials[task.id] = trial
                kept.add(key, trial)
                if on_progress is not None:
                    on_progress(outcome.candidate, len(outcome.trials), len(tasks.tasks))
    except ToolkitError as error:  # the others may still be there
        outcome.problem = str(error)


def _make_keys(
    candidate: Candidate, tasks: TaskSet, registry: ToolRegistry[Any], settings: TrialSettings
) -> Callable[[EvaluationTask], str]:
    """Return what gives the key of a task: a digest of all that decides on its outcome."""
    shared = digest_json(
        {
            "model": candidate.model,
            "way": candidate.way,
            "instructions": tasks.instructions,
            "returns": tasks.returns,
            "settings": asdict(settings),
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in registry.definitions()
            ],
        }
    )
    return lambda task: digest_json([shared, asdict(task)])[:32]
