"""Built-in tools: for work on files, and for reading the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from toolkit.builtin.bash import BashOptions, Bubblewrap, bash_tool
from toolkit.builtin.commands import DEFAULT_DENY, CommandPattern, PlainCommandPattern, removes_everything, runs_only
from toolkit.builtin.file_tree import list_files_tool, search_tool
from toolkit.builtin.files import edit_file_tool, read_file_tool, write_file_tool
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.run_later import is_executed_later
from toolkit.builtin.vendor_tools import apply_patch_tool, memory_tool, text_editor_tool
from toolkit.errors import ConfigurationError
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.stored_results import CacheTools, read_result_tool

__all__ = [
    "BashOptions",
    "Bubblewrap",
    "CacheTools",
    "CodingPreset",
    "CommandPattern",
    "DEFAULT_DENY",
    "PlainCommandPattern",
    "RootFolder",
    "apply_patch_tool",
    "bash_tool",
    "coding_tools",
    "edit_file_tool",
    "is_executed_later",
    "list_files_tool",
    "memory_tool",
    "read_file_tool",
    "read_result_tool",
    "removes_everything",
    "runs_only",
    "search_tool",
    "text_editor_tool",
    "write_file_tool",
]


CodingPreset: TypeAlias = Literal["coding", "readonly", "all", "none"]
"""The selection of `coding_tools`: tools that change files, tools that only read, all, or none."""

_PRESETS: Mapping[str, tuple[str, ...]] = {
    "coding": ("bash", "read_file", "write_file", "edit_file"),
    "readonly": ("read_file", "list_files", "search"),
    "all": ("bash", "read_file", "write_file", "edit_file", "list_files", "search"),
    "none": (),
}


def coding_tools(
    root: str | os.PathLike[str], preset: CodingPreset = "coding", *, bash: BashOptions | None = None
) -> list[FunctionTool[object, ..., Any]]:
    """Return tools with which a model works on the files below a folder.

    ::

        registry = ToolRegistry(coding_tools("my_project", "all", bash=BashOptions(timeout=60)))

    Args:
        root: The folder. The file tools never leave it; ``bash`` can, unless it has a sandbox.
        preset: ``coding`` is bash, read_file, write_file and edit_file; ``readonly`` is read_file, list_files and
            search, and can't change anything; ``all`` is both; ``none`` is an empty list.
        bash: The rules and limits of bash; None takes the defaults.

    Raises:
        ConfigurationError: The folder or preset does not exist, a package is missing, or the sandbox does not work
            here.
    """
    if preset not in _PRESETS:
        raise ConfigurationError(f"there is no preset {preset!r}: give one of {', '.join(map(repr, _PRESETS))}")
    folder = RootFolder(root)
    makers: Mapping[str, Callable[[], FunctionTool[object, ..., Any]]] = {
        "bash": lambda: bash_tool(folder, bash),
        "read_file": lambda: read_file_tool(folder),
        "write_file": lambda: write_file_tool(folder),
        "edit_file": lambda: edit_file_tool(folder),
        "list_files": lambda: list_files_tool(folder),
        "search": lambda: search_tool(folder),
    }
    return [makers[name]() for name in _PRESETS[preset]]
