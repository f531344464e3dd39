"""The instructions that our work takes, over the same by hand, must not grow: they are the same on a busy machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import exact


@pytest.mark.real
def test_nothing_takes_more_instructions_than_stand_in_the_tree() -> None:
    missing = exact.find_missing()
    if missing is not None:
        pytest.skip(missing)
    if exact.read_file()[0] != exact.python_version():
        pytest.skip(f"the figures are of Python {exact.read_file()[0]}")
    command = [sys.executable, "-m", "bench", "--exact"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1_200, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr
