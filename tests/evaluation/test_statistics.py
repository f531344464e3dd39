"""The interval of a share by its published examples, and at its ends."""

import pytest

from toolkit.evaluation import find_share_interval


@pytest.mark.parametrize(
    ("solved", "tasks", "low", "high"),
    # The examples of R. G. Newcombe, "Two-sided confidence intervals for the single proportion" (1998), method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_wilsons(solved: int, tasks: int, low: float, high: float) -> None:
    interval = find_share_interval(solved, tasks)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_without_tasks_nothing_is_known() -> None:
    interval = find_share_interval(0, 0)
    assert (interval.low, interval.high) == (0, 1)
