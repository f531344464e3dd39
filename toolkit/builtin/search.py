"""`search`: the lines that match a pattern, in one file or in all below a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toolkit.builtin.file_tree import Deadline, FileTree, has_ripgrep, require_extra
from toolkit.builtin.line_patterns import LinePattern, line_pattern
from toolkit.builtin.name_patterns import name_pattern
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.texts import searchable
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolFailedError
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.visible_text import escape_in_name, escape_in_text

__all__ = ["search_tool"]

_LARGEST_SEARCHED = 10_000_000
_HIT_LINE_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Hit:
    """A file, its lines, and the numbers of those that match, from 0."""

    path: str
    lines: list[str]
    numbers: list[int]


def search_tool(
    root: RootFolder | str | os.PathLike[str], *, time_limit: float = 30, with_ripgrep: bool = True
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``search``: the lines that match a regular expression, sorted by path, 50 in all unless told so.

    The expressions are those of Python (of the package ``regex``), matched line by line. Left out are files above
    10 MB, binary files (with a NUL in the first 8 kB), what is more than 256 folders deep, and what `list_files_tool`
    leaves out. Bytes that are no UTF-8 are shown as question marks in a diamond. Needs the extra ``coding``.

    Args:
        root: The folder whose files may be searched.
        time_limit: Seconds, within one slow expression too; then what was found is given with a note.
        with_ripgrep: True where ripgrep, if it is installed, finds the files in which to look; the lines are the same.

    Raises:
        ConfigurationError: There is no such folder, or a package is missing.
    """
    require_extra("search", "pathspec", "re2", "regex")
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def search(
        pattern: Annotated[str, Field(min_length=1, description="A regular expression, for single lines.")],
        path: Annotated[str, Field(description="The file or folder, relative to the working folder.")] = ".",
        include: Annotated[str | None, Field(description="Only files that match this glob, such as *.py.")] = None,
        case_sensitive: Annotated[bool, Field(description="Whether upper and lower case differ.")] = False,
        literal: Annotated[bool, Field(description="Whether pattern is plain text.")] = False,
        context: Annotated[int, Field(ge=0, le=20, description="Lines to show before and after each.")] = 0,
        limit: Annotated[int, Field(ge=1, le=1_000, description="How many matching lines at most.")] = 50,
    ) -> ToolOutput:
        """Find lines in files. Leaves out what .gitignore names, .git, node_modules, target, and binary files."""
        wanted = line_pattern(pattern, is_literal=literal, is_case_sensitive=case_sensitive)
        is_meant = name_pattern(include, "include") if include is not None else None
        deadline = Deadline(time_limit)
        hits = _find_hits(folder, path, wanted, is_meant, deadline, with_ripgrep=with_ripgrep)
        return _format_hits(hits, pattern, context, limit, deadline)

    return tool_from_function(search, tags={"read"}, cache=False)


def _find_hits(
    folder: RootFolder,
    path: str,
    wanted: LinePattern,
    is_meant: Callable[[str], bool] | None,
    deadline: Deadline,
    *,
    with_ripgrep: bool,
) -> Iterator[_Hit]:
    """Yield the files with matches; raises `TimeoutError` when the time is over."""
    for name, data in _read_contents(folder, path, wanted, is_meant, deadline, with_ripgrep=with_ripgrep):
        text = searchable(data)
        numbers = [] if text is None else wanted.matches(text, deadline)
        if text is not None and numbers:
            yield _Hit(name, text.split("\n"), numbers)


def _read_contents(
    folder: RootFolder,
    path: str,
    wanted: LinePattern,
    is_meant: Callable[[str], bool] | None,
    deadline: Deadline,
    *,
    with_ripgrep: bool,
) -> Iterator[tuple[str, bytes]]:
    with folder.find(path) as found:
        is_file = found.status is not None and not found.is_folder
    if is_file:
        with folder.open_file(path) as (descriptor, found):
            size = os.fstat(descriptor).st_size
            if size > _LARGEST_SEARCHED:
                raise ToolFailedError(
                    f"'{path}' has {size:,} bytes; at most {_LARGEST_SEARCHED:,} can be searched. Use grep."
                )
            yield found.path, os.pread(descriptor, _LARGEST_SEARCHED, 0)
        return
    tree = FileTree(folder, path, deadline)
    pattern = wanted.for_ripgrep if with_ripgrep and has_ripgrep() else None
    with closing(tree.files() if pattern is None else tree.candidates(pattern, _LARGEST_SEARCHED)) as files:
        for file in files:
            if is_meant is None or is_meant(file.path):
                data = tree.content(file, _LARGEST_SEARCHED)
                if data is not None:
                    yield tree.path_in_root(file), data
    if tree.is_cut:
        raise TimeoutError


def _format_hits(hits: Iterator[_Hit], pattern: str, context: int, limit: int, deadline: Deadline) -> ToolOutput:
    blocks: list[str] = []
    matches: list[dict[str, object]] = []
    note = ""
    try:
        for hit in hits:
            room = limit - len(matches)
            if room == 0:
                note = f"[The first {limit} matches; there are more. Narrow the pattern or the path, or raise limit.]"
                break
            numbers = hit.numbers[:room]
            blocks.append(_format_block(hit, numbers, context))
            matches.extend({"path": hit.path, "line": number + 1} for number in numbers)
            if len(hit.numbers) > room:
                note = f"[The first {limit} matches; there are more. Narrow the pattern or the path, or raise limit.]"
                break
    except TimeoutError as error:
        if not matches:
            raise ToolFailedError(
                f"The search took more than {deadline.seconds:g} s and found nothing so far. "
                "Narrow path or include, or use a simpler pattern."
            ) from error
        note = f"[Stopped after {deadline.seconds:g} s; there may be more. Narrow path or include.]"
    if not matches:
        return ToolOutput(f"No matches found for '{escape_in_text(pattern)}'.", details={"matches": matches})
    text = ("\n--\n" if context else "\n").join(blocks)
    return ToolOutput(f"{text}\n{note}" if note else text, details={"matches": matches})


def _format_block(hit: _Hit, numbers: list[int], context: int) -> str:
    matching = set(numbers)
    wanted = sorted({
        near
        for number in numbers
        for near in range(max(number - context, 0), min(number + context + 1, len(hit.lines)))
    })  # fmt: skip
    path = escape_in_name(hit.path)
    shown: list[str] = []
    for before, number in zip([None, *wanted], wanted, strict=False):
        if context and before is not None and number > before + 1:
            shown.append("--")
        line = hit.lines[number].removesuffix("\r")
        cut = f"{line[:_HIT_LINE_CHARS]} [...]" if len(line) > _HIT_LINE_CHARS else line
        sign = ":" if number in matching else "-"
        shown.append(f"{path}{sign}{number + 1}{sign} {cut}")
    return "\n".join(shown)
