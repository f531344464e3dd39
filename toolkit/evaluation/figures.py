"""The figures of an evaluation: solved tasks by class and paired differences, each with its interval; reasons, cost.

Few tasks say little: a difference counts only if its interval does not contain zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.evaluation.trials import Candidate, CandidateTrials, Trial
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = [
    "ALL_KINDS",
    "CandidateSummary",
    "Comparison",
    "EvaluationSummary",
    "Interval",
    "PairedDifference",
    "Score",
    "compare_pairs",
    "find_candidate",
    "find_share_interval",
    "summarize_trials",
]

ALL_KINDS = "all"
"""The name of the row that counts the tasks of all classes."""

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.0f} to {100 * self.high:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Two candidates on the same tasks: by how much the second solves more than the first.

    Args:
        tasks: How many tasks both have done.
        gained: How many only the second solved.
        lost: How many only the first solved.
        interval: Of the difference of the shares, from -1 to 1.
        p_value: The chance of a split of gained and lost at least as uneven if both are equally good.
    """

    tasks: int
    gained: int
    lost: int
    interval: Interval
    p_value: float

    @property
    def difference(self) -> float:
        """The share that the second solves less that of the first, from -1 to 1."""
        return (self.gained - self.lost) / self.tasks if self.tasks else 0.0

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain zero."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many of the tasks of a class are solved, with the interval of the share, from 0 to 1."""

    solved: int
    tasks: int
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSummary:
    """The figures of one model, asked in one way.

    Args:
        label: Its name in tables.
        model: The model.
        way: The way.
        scores: By class, and for `ALL_KINDS`.
        reasons: Why tasks are not solved, the most frequent reason first.
        tokens: Tokens read and written, for one task on average; 0 if the provider reports none.
        output_tokens: Tokens written, for one task on average.
        requests: How often the loop asked, for one task on average.
        seconds: For one task on average.
        error: The message of the first request that failed; empty if none did.
        problem: Why it was given up before its last task; empty if it was not.
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
    """A candidate compared with another one on the tasks that both have done: by class, and for `ALL_KINDS`."""

    label: str
    against: str
    differences: dict[str, PairedDifference]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """An evaluation in figures: the classes of the tasks, each candidate, and each compared with the base."""

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
        against: The label, way or model of the candidate that the others are compared with; empty for the first.

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
    """Return the first candidate with that label, way or model; the very first if `name` is empty.

    Raises:
        ConfigurationError: There is none.
    """
    for candidate in candidates:
        if name in ("", candidate.label, candidate.way, candidate.model):
            return candidate
    labels = [candidate.label for candidate in candidates]
    question = ask_whether_meant(find_similar(name, labels, most=1)) or f"there are {', '.join(labels)}"
    raise ConfigurationError(f"nothing can be compared with '{name}', which is not measured; {question}")


def find_share_interval(solved: int, tasks: int) -> Interval:
    """Return the interval of a share: Wilson's score interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22 (1927), 209-212. It keeps its level for few tasks, and for shares of 0 and 1.

    Args:
        solved: How many tasks are solved.
        tasks: How many there are; for none the interval is everything.
    """
    if not tasks:
        return Interval(low=0.0, high=1.0)
    share, square = solved / tasks, _Z * _Z
    middle = (share + square / (2 * tasks)) / (1 + square / tasks)
    half = _Z / (1 + square / tasks) * math.sqrt(share * (1 - share) / tasks + square / (4 * tasks * tasks))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))


def compare_pairs(pairs: Sequence[tuple[bool, bool]]) -> PairedDifference:
    """Compare two candidates by what each solved of the same tasks.

    The interval is method 10 of R. G. Newcombe, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", Statistics in Medicine 17 (1998), 2635-2650: Wilson's intervals of both shares,
    joined by their correlation. The p-value is that of the exact test of Q. McNemar, "Note on the sampling error of the
    difference between correlated proportions or percentages", Psychometrika 12 (1947), 153-157: two-sided, binomial.

    Args:
        pairs: For each task, whether the first solved it, and whether the second did.
    """
    both = sum(first and second for first, second in pairs)
    lost = sum(first and not second for first, second in pairs)
    gained = sum(second and not first for first, second in pairs)
    neither = len(pairs) - both - lost - gained
    split, fewer = gained + lost, min(gained, lost)
    tail = sum(math.comb(split, count) for count in range(fewer + 1))
    return PairedDifference(
        tasks=len(pairs),
        gained=gained,
        lost=lost,
        interval=_find_paired_interval(both, gained, lost, neither),
        p_value=min(1.0, 2 * tail / (1 << split)),
    )


def _find_paired_interval(both: int, gained: int, lost: int, neither: int) -> Interval:
    tasks = both + gained + lost + neither
    if not tasks:
        return Interval(low=-1.0, high=1.0)
    second, first = (both + gained) / tasks, (both + lost) / tasks
    of_second = find_share_interval(both + gained, tasks)
    of_first = find_share_interval(both + lost, tasks)
    link = _find_correlation(both, gained, lost, neither)
    down, up = second - of_second.low, of_second.high - second
    other_down, other_up = first - of_first.low, of_first.high - first
    difference = second - first
    low = difference - math.sqrt(down * down - 2 * link * down * other_up + other_up * other_up)
    high = difference + math.sqrt(up * up - 2 * link * up * other_down + other_down * other_down)
    return Interval(low=max(-1.0, low), high=min(1.0, high))


def _find_correlation(both: int, gained: int, lost: int, neither: int) -> float:
    """Return the correlation of the two outcomes, corrected for continuity if it is positive, as method 10 does."""
    product = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if not product:
        return 0.0
    covariance: float = both * neither - gained * lost
    if covariance > 0:
        covariance = max(covariance - (both + gained + lost + neither) / 2, 0.0)
    return covariance / math.sqrt(product)


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
