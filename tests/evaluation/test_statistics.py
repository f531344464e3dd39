"""Intervals by their published examples, and at their ends."""

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, lists, tuples

from toolkit.evaluation import compare_pairs, find_share_interval


def pairs(both: int, gained: int, lost: int, neither: int) -> list[tuple[bool, bool]]:
    return [(True, True)] * both + [(False, True)] * gained + [(True, False)] * lost + [(False, False)] * neither


@pytest.mark.parametrize(
    ("solved", "tasks", "low", "high"),
    # The examples of R. G. Newcombe, "Two-sided confidence intervals for the single proportion" (1998), method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_wilsons(solved: int, tasks: int, low: float, high: float) -> None:
    interval = find_share_interval(solved, tasks)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_the_interval_of_a_difference_is_newcombes_and_the_p_value_mcnemars() -> None:
    paired = compare_pairs(pairs(20, 12, 2, 16))
    assert paired.difference == pytest.approx(0.2)
    assert paired.interval.low == pytest.approx(0.0562, abs=5e-5)
    assert paired.interval.high == pytest.approx(0.3292, abs=5e-5)
    assert paired.p_value == pytest.approx(2 * (1 + 14 + 91) / 2**14)
    assert paired.is_clear


def test_without_tasks_nothing_is_known() -> None:
    paired = compare_pairs([])
    assert (paired.interval.low, paired.interval.high, paired.p_value, paired.is_clear) == (-1, 1, 1, False)
    assert find_share_interval(0, 0).high == 1


@given(lists(tuples(booleans(), booleans()), max_size=60))
def test_an_interval_holds_its_difference_and_turns_with_it(given_pairs: list[tuple[bool, bool]]) -> None:
    paired = compare_pairs(given_pairs)
    turned = compare_pairs([(second, first) for first, second in given_pairs])
    assert -1 <= paired.interval.low <= paired.difference <= paired.interval.high <= 1
    assert turned.interval.low == pytest.approx(-paired.interval.high)
    assert turned.p_value == paired.p_value
