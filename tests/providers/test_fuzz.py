"""Coverage-guided runs over everything that reads a model's server: no crash, no hang, the same however it is cut."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.providers.test_bent_answers import FORMATS

FUZZER = Path(__file__).with_name("fuzz.py")


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed: pip install 'atheris>=3.0' (Linux, Python to 3.13)"
)
@pytest.mark.parametrize("name", FORMATS)
def test_no_answer_crashes_or_hangs_what_reads_it(name: str, tmp_path: Path) -> None:
    seconds = int(os.environ.get("TOOLKIT_FUZZ_SECONDS", "120"))
    folder = tmp_path / "inputs"
    folder.mkdir()
    run = subprocess.run(
        [
            *[sys.executable, str(FUZZER), name, str(folder), f"-max_total_time={seconds}", "-timeout=10"],
            *["-max_len=8000", "-rss_limit_mb=2048", "-seed=1", f"-artifact_prefix={tmp_path}/"],
        ],
        capture_output=True,
        text=True,
        timeout=seconds + 180,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    assert len(list(folder.iterdir())) > 50, "nothing new was found: the coverage was not followed"
