"""`list_files`: the files below a folder, sorted, without what ``.gitignore`` names."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from toolkit.builtin.file_tree import Deadline, FileTree, name_pattern, require_extra
from toolkit.builtin.root_folder import RootFolder
from toolkit.chat.output import ToolOutput
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.visible_text import escape_in_name

__all__ = ["list_files_tool"]

_MOST_FILES = 1_000


def list_files_tool(
    root: RootFolder | str | os.PathLike[str], *, time_limit: float = 10
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``list_files``: the regular files below a folder, sorted by path, at most 200 unless told so.

    Files that ``.gitignore`` names are left out, and so are ``.git``, ``node_modules`` and ``target``; a folder that is
    named itself is always listed. Links are not followed. Needs the extra ``coding``.

    Args:
        root: The folder whose files may be listed.
        time_limit: Seconds; then what was found is given with a note.

    Raises:
        ConfigurationError: There is no such folder, or a package is missing.
    """
    require_extra("list_files", "pathspec", "re2")
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def list_files(
        path: Annotated[str, Field(description="The folder, relative to the working folder.")] = ".",
        pattern: Annotated[
            str | None, Field(description="A glob such as *.py or src/**/*.{js,ts}, relative to path.")
        ] = None,
        max_depth: Annotated[int, Field(ge=1, le=100, description="How many folders deep.")] = 3,
        limit: Annotated[int, Field(ge=1, le=_MOST_FILES, description="How many files at most.")] = 200,
    ) -> ToolOutput:
        """List the files below a folder. Leaves out what .gitignore names, .git, node_modules and target."""
        is_meant = name_pattern(pattern, "pattern") if pattern is not None else None
        tree = FileTree(folder, path, Deadline(time_limit))
        with closing(tree.files(max_depth)) as files:
            meant = (tree.path_in_root(file) for file in files if is_meant is None or is_meant(file.path))
            names = list(islice(meant, limit + 1))
        notes: list[str] = []
        if len(names) > limit:
            notes.append(f"[The first {limit} files; there are more. Narrow it with path or pattern, or raise limit.]")
        if tree.is_cut:
            notes.append(f"[Stopped after {time_limit:g} s; there may be more. Narrow it with path or max_depth.]")
        if not names:
            notes.append(f"No files found in {path}, {max_depth} folders deep.")
        return ToolOutput("\n".join([*map(escape_in_name, names[:limit]), *notes]), details={"files": names[:limit]})

    return tool_from_function(list_files, tags={"read"}, cache=False)
