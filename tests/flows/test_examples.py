"""Every example runs as it stands, offline, and prints what its docstring says."""

import ast
from pathlib import Path

import pytest

from tests.forked import run_program

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_A_MODEL = {"quickstart.py"}
OFFLINE = [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in NEEDS_A_MODEL]
# With a key, examples speak to the vendors.
KEYS: dict[str, str | None] = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"))


def promised(example: Path) -> str:
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    _, _, block = docstring.partition("Prints:\n\n")
    return "".join(f"{line.removeprefix('    ')}\n" for line in block.splitlines())


@pytest.mark.parametrize("example", OFFLINE, ids=lambda path: path.stem)
def test_an_example_prints_what_it_promises(example: Path, tmp_path: Path) -> None:
    run = run_program(example, tmp_path, KEYS)
    assert run.stderr == ""
    assert run.returncode == 0
    assert promised(example)
    assert run.stdout == promised(example)
