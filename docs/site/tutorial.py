"""The whole program of the tutorial: the blocks titled ``shop.py`` of its steps, as one file."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_BLOCK = re.compile(r'^```python title="shop.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_IMPORTS = ("import ", "from ")
_PAGE = """# The whole program

What the eight steps come to: `shop.py`.

```python
{program}```
"""


def write_program_page(folder: Path) -> str:
    """Return the page that shows the program."""
    return _PAGE.format(program=join_program(folder))


def join_program(folder: Path) -> str:
    """Return the program: imports first; of a name that is defined again, as a step says, the last one counts."""
    blocks = [block for page in list_steps(folder) for block in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    parts = [part for block in blocks for part in _split_block(block)]
    last = {name: place for place, (names, _) in enumerate(parts) for name in names}
    kept = [
        (names, text)
        for place, (names, text) in enumerate(parts)
        if not names or any(last[name] == place for name in names)
    ]
    statements = [text for _, text in kept]
    imports = [text for text in statements if text.startswith(_IMPORTS)]
    program = "\n".join(_merge_imports(imports)) + "\n"
    before = ""
    for text in statements:
        if not text.startswith(_IMPORTS):
            program += ("\n\n" if {before[:1], text[:1]} & {"", "@"} or _is_long(before, text) else "") + text + "\n"
            before = text
    return program


def _is_long(*statements: str) -> bool:
    return any(text.startswith(("def ", "async def ", "class ")) for text in statements)


def list_steps(folder: Path) -> list[Path]:
    """Return the pages of the steps, in their order."""
    return sorted(folder.glob("step_*.md"))


def _split_block(block: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each statement with the names that it defines."""
    lines = block.splitlines()
    for node in ast.parse(block).body:
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *[decorator.lineno for decorator in decorators]])
        yield _find_names(node), "\n".join(lines[first - 1 : node.end_lineno])


def _find_names(node: ast.stmt) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return (node.name,)
        case ast.Assign():
            return tuple([target.id for target in node.targets if isinstance(target, ast.Name)])
        case _:
            return ()


def _merge_imports(statements: Iterable[str]) -> list[str]:
    """Return the imports, one for each module, with toolkit's last."""
    plain: set[str] = set()
    names: dict[str, set[str]] = {}
    for statement in statements:
        match ast.parse(statement).body[0]:
            case ast.ImportFrom(module=str(module), names=aliases):
                names.setdefault(module, set()).update(alias.name for alias in aliases)
            case _:
                plain.add(statement)
    lines = [
        *plain,
        *[_wrap_import(f"from {module} import {', '.join(sorted(found))}") for module, found in names.items()],
    ]
    own = [line for line in lines if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    others = [line for line in lines if line not in own]
    return [*_sort_imports(own), "", *_sort_imports(others)]


def _sort_imports(lines: Iterable[str]) -> list[str]:
    return sorted(lines, key=lambda line: (line.startswith("from "), line))


def _wrap_import(line: str) -> str:
    if len(line) <= 100:
        return line
    head, _, names = line.partition(" import ")
    return f"{head} import (\n    " + ",\n    ".join(names.split(", ")) + ",\n)"
