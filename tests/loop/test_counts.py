"""What can be counted exactly: it must not grow, whatever machine this runs on."""

from collections.abc import Collection

import pytest

from bench.ours import PRODUCTION, calls_a_turn

MOST_CALLS = {"plain": 62, "production": 133}
"""Python function calls that a turn may take, with nothing configured and with `PRODUCTION`, on Python 3.11.

Lower a number whenever fewer are reached. Where being right must cost more, raise it by what that costs and no more,
and say in the commit's body what that buys. `python -m bench --only turns_50 --only production_turn` says what a
turn costs in time.
"""


@pytest.mark.parametrize(("configuration", "features"), [("plain", ()), ("production", PRODUCTION)])
def test_a_turn_takes_few_calls_and_no_more_late_than_early(configuration: str, features: Collection[str]) -> None:
    early, late = calls_a_turn(50, features), calls_a_turn(200, features)
    assert early <= MOST_CALLS[configuration]
    assert late <= early * 1.01
