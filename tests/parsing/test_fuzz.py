"""Coverage-guided runs over everything that reads a model's words: no crash, no hang, nothing invented."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FUZZER = Path(__file__).with_name("fuzz.py")


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed: pip install 'atheris>=3.0' (Linux, Python to 3.13)"
)
@pytest.mark.parametrize("target", ["reply", "repair", "readings", "quotation"])
def test_no_input_crashes_hangs_or_invents(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    run = subprocess.run(
        [
            *[sys.executable, str(FUZZER), target, str(folder)],
            *["-max_total_time=120", "-timeout=5", "-max_len=2000", "-seed=1", f"-artifact_prefix={tmp_path}/"],
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    assert "new_units_added" in run.stderr or "Done " in run.stderr
    assert len(list(folder.iterdir())) > 350, "nothing new was found: the coverage was not followed"
