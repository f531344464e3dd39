"""Every example runs as it stands, offline, and prints what its docstring says."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_A_MODEL = {"quickstart.py"}
OFFLINE = [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in NEEDS_A_MODEL]
# With a key, examples speak to the vendors.
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def promised(example: Path) -> str:
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, _, block = docstring.partition("Prints:\n\n")
    return "".join(f"{line.removeprefix('    ')}\n" for line in block.splitlines())


def run_of(example: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**{name: value for name, value in os.environ.items() if name not in KEYS}, "PYTHONHASHSEED": "0"},
    )


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[Path, Future[subprocess.CompletedProcess[str]]]]:
    """Run all of them, two at a time."""
    pool = ThreadPoolExecutor(2)
    yield {example: pool.submit(run_of, example) for example in OFFLINE}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("example", OFFLINE, ids=lambda path: path.stem)
def test_an_example_prints_what_it_promises(
    example: Path, runs: dict[Path, Future[subprocess.CompletedProcess[str]]]
) -> None:
    run = runs[example].result()
    assert run.stderr == ""
    assert run.returncode == 0
    assert promised(example)
    assert run.stdout == promised(example)
