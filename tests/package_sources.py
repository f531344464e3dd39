"""The modules of the package as text and as syntax, read once for all tests of a process."""

import ast
import gc
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import toolkit

PACKAGE = Path(toolkit.__file__).parent


@dataclass(frozen=True)
class ModuleSource:
    """A module: its path below the package, its text, and its syntax, all nodes of it in one list."""

    name: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]


@cache
def read_modules() -> tuple[ModuleSource, ...]:
    """Return the modules of the package, sorted by name."""
    modules = tuple(_read_module(path) for path in sorted(PACKAGE.rglob("*.py")))
    gc.freeze()  # a million nodes, which no collection of garbage needs to visit again
    return modules


def _read_module(path: Path) -> ModuleSource:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return ModuleSource(path.relative_to(PACKAGE).as_posix(), text, tree, tuple(ast.walk(tree)))
