"""What can be counted exactly: it must not grow, whatever machine this runs on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST_CALLS = {"plain": 49, "production": 109}
"""Python function calls that a turn may take, with nothing configured and with `PRODUCTION`, on Python 3.11.

Lower a number whenever fewer are reached. Where being right must cost more, raise it by what that costs and no more,
and say in the commit's body what that buys. `python -m bench --only turns_50 --only production_turn` says what a
turn costs in time.
"""


# In a process of its own: what other tests have imported and cached costs a call here and there.
COUNT = """
import json, sys
from bench.ours import PRODUCTION, calls_a_turn
features = PRODUCTION if sys.argv[1] == "production" else ()
print(json.dumps([calls_a_turn(50, features), calls_a_turn(200, features)]))
"""


@pytest.mark.parametrize("configuration", MOST_CALLS)
def test_a_turn_takes_few_calls_and_no_more_late_than_early(configuration: str) -> None:
    command = [sys.executable, "-c", COUNT, configuration]
    root = Path(__file__).parents[2]
    counted = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=root)
    early, late = json.loads(counted.stdout)
    assert early <= MOST_CALLS[configuration]
    assert late <= early * 1.01
