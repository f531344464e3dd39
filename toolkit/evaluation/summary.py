"""The figures of an evaluation: solved tasks by class with intervals, differences, reasons, tokens and seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.evaluation.runs import Candidate, CandidateTrials
from toolkit.evaluation.statistics import (
    Interval,
    PairedDifference,
    compare_pairs,
    find_share_interval,
)
from toolkit.evaluation.trials import Trial
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = [
    "ALL_KINDS",
    "CandidateSummary",
    "Comparison",
    "EvaluationSummary",
    "Score",
    "find_candidate",
    "summarize_trials",
]

ALL_KINDS = "all"
"""The name of the row that counts the tasks of all classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many tasks of a class are solved.

    Args:
        solved: How many.
        tasks: Of how many.
        interval: Of the share, from 0 to 1.
    """

    solved: int
    tasks: int
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSummary:
    """One model, asked in one way.

    Args:
        label: Its name in tables.
        model: The model.
        way: The way.
        scores: By class, and for `ALL_KINDS`.
        reasons: Why tasks are not solved, the most frequent reason first.
        tokens: Those read and written, for one task on average; 0 where the provider tells none.
        output_tokens: Of these, those written.
        requests: How often the loop asked, for one task on average.
        seconds: For one task on average.
        error: The message of the first request that failed; empty where none did.
        problem: Why it was given up before its last task; empty where it was not.
    """

    label: str
    model: str
    way: str
    scores: dict[str, Score]
    reasons: dict[str, int]
    tokens: float
    output_tokens: float
    requests: float
    seconds: float
    error: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate beside the one that all are compared with, on the tasks that both have done.

    Args:
        label: The candidate.
        against: The one that it is compared with.
        differences: By class, and for `ALL_KINDS`.
    """

    label: str
    against: str
    differences: dict[str, PairedDifference]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """An evaluation in figures.

    Args:
        kinds: The classes of the tasks.
        candidates: Each candidate.
        comparisons: Each candidate but the one that the others are compared with.
    """

    kinds: tuple[str, ...]
    candidates: tuple[CandidateSummary, ...]
    comparisons: tuple[Comparison, ...]


def summarize_trials(
    outcomes: Sequence[CandidateTrials], kinds: Sequence[str], *, against: str = ""
) -> EvaluationSummary:
    """Return the figures of an evaluation.

    Args:
        outcomes: The outcomes of each candidate.
        kinds: The classes, in the order of the table.
        against: The label of the candidate, or its way or its model, that the others are compared with; empty for the
            first.

    Raises:
        ConfigurationError: There is no such candidate.
    """
    chosen = find_candidate([outcome.candidate for outcome in outcomes], against)
    base = next(outcome for outcome in outcomes if outcome.candidate is chosen)
    return EvaluationSummary(
        kinds=tuple(kinds),
        candidates=tuple(_summarize_candidate(outcome, kinds) for outcome in outcomes),
        comparisons=tuple(_compare_candidates(base, other, kinds) for other in outcomes if other is not base),
    )


def find_candidate(candidates: Sequence[Candidate], name: str) -> Candidate:
    """Return the first candidate of a label, a way or a model; the very first where `name` is empty.

    Raises:
        ConfigurationError: There is none.
    """
    for candidate in candidates:
        if name in ("", candidate.label, candidate.way, candidate.model):
            return candidate
    labels = [candidate.label for candidate in candidates]
    question = ask_whether_meant(find_similar(name, labels, most=1)) or f"there are {', '.join(labels)}"
    raise ConfigurationError(f"nothing can be compared with '{name}', which is not measured; {question}")


def _summarize_candidate(outcome: CandidateTrials, kinds: Sequence[str]) -> CandidateSummary:
    trials = list(outcome.trials.values())
    count = len(trials) or 1
    written = sum(trial.output_tokens for trial in trials)
    read = sum(trial.input_tokens for trial in trials)
    return CandidateSummary(
        label=outcome.candidate.label,
        model=outcome.candidate.model,
        way=outcome.candidate.way,
        scores={kind: _score_trials(trials, kind) for kind in (*kinds, ALL_KINDS)},
        reasons=dict(Counter[str](trial.reason for trial in trials if trial.reason).most_common()),
        tokens=(read + written) / count,
        output_tokens=written / count,
        requests=sum(trial.requests for trial in trials) / count,
        seconds=sum(trial.seconds for trial in trials) / count,
        error=next((trial.error for trial in trials if trial.error), ""),
        problem=outcome.problem,
    )


def _score_trials(trials: Sequence[Trial], kind: str) -> Score:
    chosen = [trial for trial in trials if kind in (ALL_KINDS, trial.kind)]
    solved = sum(trial.is_solved for trial in chosen)
    return Score(solved=solved, tasks=len(chosen), interval=find_share_interval(solved, len(chosen)))


def _compare_candidates(base: CandidateTrials, other: CandidateTrials, kinds: Sequence[str]) -> Comparison:
    shared = [(trial, other.trials[name]) for name, trial in base.trials.items() if name in other.trials]
    return Comparison(
        label=other.candidate.label,
        against=base.candidate.label,
        differences={
            kind: compare_pairs(
                [(one.is_solved, two.is_solved) for one, two in shared if kind in (ALL_KINDS, one.kind)]
            )
            for kind in (*kinds, ALL_KINDS)
        },
    )
