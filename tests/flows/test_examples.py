"""Every example runs as it stands, offline, and prints what its docstring says."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_A_MODEL = {"quickstart.py"}
# With a key, examples speak to the vendors.
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


def promised(example: Path) -> str:
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, _, block = docstring.partition("Prints:\n\n")
    return "".join(f"{line.removeprefix('    ')}\n" for line in block.splitlines())


@pytest.mark.parametrize(
    "example",
    [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in NEEDS_A_MODEL],
    ids=lambda path: path.stem,
)
def test_an_example_prints_what_it_promises(example: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**{name: value for name, value in os.environ.items() if name not in KEYS}, "PYTHONHASHSEED": "0"},
    )
    assert run.stderr == ""
    assert run.returncode == 0
    assert promised(example)
    assert run.stdout == promised(example)
