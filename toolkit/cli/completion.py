"""The words that the shell offers when TAB is pressed; nothing is imported, started or fetched for it."""

from __future__ import annotations

import ast
from pathlib import Path

import click
from click.shell_completion import CompletionItem

__all__ = ["complete_source", "complete_tool"]

_OFFERED_KINDS = ("openapi:", "mcp:", "plugin:", "coding")
_CODING_TOOLS = ("bash", "read_file", "write_file", "edit_file", "list_files", "search")
_DECORATORS = ("tool", "tool_with_ctx")
_MOST_BYTES = 1_000_000


def complete_source(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the kinds of sources and the files that the word may become."""
    kinds = [CompletionItem(kind) for kind in _OFFERED_KINDS if kind.startswith(incomplete)]
    kind, colon, rest = incomplete.partition(":")
    if colon and kind == "openapi":
        return [CompletionItem(rest, type="file")]
    return [*kinds, CompletionItem(incomplete, type="file")]


def complete_tool(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as Click calls it
    """Return the names of tools that are cheaply known: those of a Python file, which is read and not run."""
    source = str(ctx.params.get("source") or "")
    is_coding = source.partition(":")[0] == "coding"
    names = _CODING_TOOLS if is_coding else _find_decorated(source.partition(".py")[0] + ".py")
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _find_decorated(file: str) -> list[str]:
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for function in functions for name in _read_tool_names(function)]


def _read_tool_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the name of the tool that a function becomes, or nothing."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        called = call.func if call is not None else decorator
        word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if word in _DECORATORS:
            given = [keyword.value for keyword in (call.keywords if call else ()) if keyword.arg == "name"]
            return [str(value.value) for value in given if isinstance(value, ast.Constant)] or [function.name]
    return []
