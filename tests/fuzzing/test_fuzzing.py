"""Everything that reads what others wrote takes any bytes: no crash, no hang, no growth.

The default run gives each target its seeds and a few mutations, the same each time. The marked one
lets coverage lead, for ``TOOLKIT_FUZZ_SECONDS`` seconds a target.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzzing.harness import (
    all_targets,
    can_follow_coverage,
    check_growth,
    check_inputs,
    check_seconds,
    check_turns,
    swollen_inputs,
)
from tests.fuzzing.sources import restore_log_levels

TARGETS = all_targets()
SECONDS = float(os.environ.get("TOOLKIT_FUZZ_SECONDS", "120"))
ROOT = Path(__file__).parents[2]

# The MCP SDK leaves generators of the HTTP client to the garbage collector, of which trio warns.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator")

each_target = pytest.mark.parametrize("name", TARGETS)


@pytest.fixture(autouse=True)
def as_loud_as_before() -> Iterator[None]:
    with restore_log_levels():
        yield


@each_target
def test_no_input_is_too_much(name: str) -> None:
    check_inputs(TARGETS[name], 10)


@each_target
def test_no_input_holds_the_event_loop(name: str) -> None:
    target = TARGETS[name]
    check_turns(target, [*target.seeds(), *swollen_inputs(target, 1)])


@each_target
def test_the_same_inputs_leave_nothing_behind(name: str) -> None:
    check_growth(TARGETS[name])


@pytest.mark.full
@each_target
def test_no_input_is_too_much_for_long(name: str, tmp_path: Path) -> None:
    if not can_follow_coverage():  # on Linux, to Python 3.13: pip install 'atheris>=3.0'
        assert check_seconds(TARGETS[name], SECONDS, seed=int.from_bytes(os.urandom(8))) > 0
        return
    folder = tmp_path / "inputs"
    folder.mkdir()
    run = subprocess.run(
        [
            *[sys.executable, "-m", "tests.fuzzing.harness", name, str(folder)],
            *[f"-max_total_time={SECONDS:.0f}", "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/"],
        ],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS + 180,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    assert len(list(folder.iterdir())) > len(TARGETS[name].seeds()), (
        "nothing new was found: the coverage was not followed"
    )
