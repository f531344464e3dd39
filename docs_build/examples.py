"""The page of examples: each file of ``examples/`` with its first sentence, and its code."""

import ast
from pathlib import Path

_INTRODUCTION = """# Examples

Each example is one file and one idea. It runs offline as it is: `python examples/quickstart.py`.

"""


def write_examples_page(folder: Path) -> str:
    """Return the page in Markdown. The anchor of an example is its file's name without the ending."""
    return _INTRODUCTION + "\n".join(_write_section(path) for path in sorted(folder.glob("*.py")))


def _write_section(path: Path) -> str:
    code = path.read_text(encoding="utf-8")
    first_paragraph = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")[0].replace("``", "`")
    title = path.stem.replace("_", " ").capitalize()
    return f"## {title} {{ #{path.stem} }}\n\n{first_paragraph}\n\n```python\n{code}```\n"
