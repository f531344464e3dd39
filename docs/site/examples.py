"""The page of examples: each file of ``examples/`` with its first sentence, and its code."""

import ast
from pathlib import Path

_INTRODUCTION = """# Examples

Each example is one file and one idea. It runs offline as it is: `python examples/quickstart.py`.

"""


def write_examples_page(folder: Path) -> str:
    """Return the page in Markdown. The anchor of an example is its path without the ending, ``recipes-cron``."""
    paths = [path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] != "plugins"]
    return _INTRODUCTION + "\n".join(_write_section(path, folder) for path in sorted(paths, key=_sort_key))


def _sort_key(path: Path) -> tuple[int, Path]:
    return len(path.parts), path


def _write_section(path: Path, folder: Path) -> str:
    code = path.read_text(encoding="utf-8")
    first_paragraph = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")[0].replace("``", "`")
    names = path.relative_to(folder).with_suffix("").parts
    title = ": ".join(names).replace("_", " ").capitalize()
    return f"## {title} {{ #{'-'.join(names)} }}\n\n{first_paragraph}\n\n```python\n{code}```\n"
