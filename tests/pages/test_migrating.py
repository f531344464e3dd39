"""The programs to be ported are Python, and import what their frameworks have; the ported ones run in `test_blocks`."""

import ast
import importlib
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = sorted(path for path in (Path(__file__).parents[2] / "docs" / "migrating").glob("*.md") if path.stem != "index")
OLD = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def names_imported(program: str) -> list[tuple[str, str]]:
    return [
        (node.module, name.name)
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for name in node.names
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_names_of_the_old_program_are_those_of_its_framework(page: Path) -> None:
    imports = [pair for program in OLD.findall(page.read_text(encoding="utf-8")) for pair in names_imported(program)]
    assert imports
    lacking = {module.partition(".")[0] for module, _ in imports if find_spec(module.partition(".")[0]) is None}
    if lacking:
        pytest.skip(f"not installed: pip install {' '.join(sorted(lacking))}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the frameworks' own imports
        unknown = [(module, name) for module, name in imports if not hasattr(importlib.import_module(module), name)]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_steps_a_table_and_both_programs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    assert headings[0].startswith("Steps")
    assert headings[1:] == ["Equivalents", "Before", "After", "Differences"]
    assert len(re.findall(r"^\| [^|]+ \|", text, re.MULTILINE)) >= 15
    assert OLD.search(text)
    assert all("toolkit" in program for program in NEW.findall(text))
