"""Every block of the README runs, from top to bottom, in one namespace."""

import re
import warnings
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_runs_from_top_to_bottom() -> None:
    text = README.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) > 5
    namespace: dict[str, object] = {"__name__": "readme"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            # Blank lines in front keep the line numbers of a failure those of the README.
            lines_before = text[: block.start(1)].count("\n")
            exec(compile("\n" * lines_before + block[1], str(README), "exec"), namespace)


def test_the_readme_starts_with_the_two_commands() -> None:
    commands = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(commands) == 2
    assert commands[0].strip().endswith("python -m toolkit demo")
    assert commands[1].strip().endswith("poe check")


def test_the_recipe_for_saved_loops_hands_each_out_once() -> None:
    text = (README.parent / "docs" / "snapshots.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "snapshots.md", "exec"), {"__name__": "recipe"})
