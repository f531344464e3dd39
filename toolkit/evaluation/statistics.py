"""Intervals for shares of solved tasks, and for differences of two candidates on the same tasks.

Few tasks say little: a difference is worth a word only where its interval does not hold zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolkit.dataclass import dataclass

__all__ = ["Interval", "PairedDifference", "compare_pairs", "find_share_interval"]

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval.

    Args:
        low: Its lower end.
        high: Its upper end.
    """

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
        p_value: The chance of a split of gained and lost that is at least as uneven, where both are equally good.
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
        """True where the interval does not hold zero."""
        return self.interval.low > 0 or self.interval.high < 0


def find_share_interval(solved: int, tasks: int) -> Interval:
    """Return the interval of a share: Wilson's score interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22 (1927), 209-212. It holds its level also for few tasks, and for shares of 0 and 1.

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
    return PairedDifference(
        tasks=len(pairs),
        gained=gained,
        lost=lost,
        interval=_find_paired_interval(both, gained, lost, neither),
        p_value=_find_p_value(gained, lost),
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
    """Return the correlation of the two outcomes, corrected for continuity where it is positive, as method 10 does."""
    product = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if not product:
        return 0.0
    covariance: float = both * neither - gained * lost
    if covariance > 0:
        covariance = max(covariance - (both + gained + lost + neither) / 2, 0.0)
    return covariance / math.sqrt(product)


def _find_p_value(gained: int, lost: int) -> float:
    split, fewer = gained + lost, min(gained, lost)
    tail = sum(math.comb(split, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << split))
