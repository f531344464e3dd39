"""`search`: the lines that match a pattern, in one file or in all below a folder.

The dialects of Python and ripgrep differ in corners (which letters are alike, what a space is, what invalid bytes
match). So ripgrep only selects the files, by a pattern that matches whenever Python's does; a pattern without a
safe equivalent is not passed to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolkit.builtin.file_tree import Deadline, FileTree, has_ripgrep, name_pattern, require_extra
from toolkit.builtin.files import searchable
from toolkit.builtin.root_folder import RootFolder
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

if TYPE_CHECKING:
    import regex

_LARGEST_SEARCHED = 10_000_000
_HIT_LINE_CHARS = 500
_ANY_OTHER = r"(?-u:[\x80-\xff]{1,4})"  # a character of more than one byte, or bytes that are none
_PATTERN_TOKEN = re.compile(
    r"""
      (?P<group>\(\?:|\((?!\?)|[)|])
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{]))
    | (?P<start>\^) | (?P<end>\$)
    | (?P<any>\.)
    | (?P<edge>\\b)
    | (?P<kind>\\[wWsSdD])
    | (?P<escape>\\[.^$*+?()\[\]{}|/\\\-])
    | (?P<set>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;=<>/"'!@#%]|\\[.wsd\-])+\])
    | (?P<letter>[A-Za-z0-9_\ \t,:;=<>/"'!@\#%~`\-])
    """,
    re.VERBOSE,
)
_LONGEST_PATTERN = 1_000
_MOST_REPEATED = 20_000
_PART = re.compile(r"\\.|\{(?:\d{0,9},)?(\d{1,9})\}|.", re.DOTALL)
_WIDE_KINDS = {r"\s": r"[\s\x1c-\x1f]", r"\S": r"[\S\x1c-\x1f]"}


@dataclass(frozen=True, slots=True)
class _Hit:
    """A file, its lines, and the numbers of those that match, from 0."""

    path: str
    lines: list[str]
    numbers: list[int]


def search_tool(
    root: RootFolder | str | os.PathLike[str], *, time_limit: float = 30, with_ripgrep: bool = True
) -> FunctionTool[object, ..., Any]:
    """Return the tool ``search``: the lines that match a regular expression, sorted by path, 50 in all by default.

    The expressions are those of Python (of the package ``regex``), matched line by line. Left out are files above
    10 MB, binary files (with a NUL in the first 8 kB), what is more than 256 folders deep, and what `list_files_tool`
    leaves out. Bytes that are no UTF-8 are shown as question marks in a diamond. Needs the extra ``coding``.

    Args:
        root: The folder whose files may be searched.
        time_limit: Seconds, within one slow expression too; then the results so far are returned with a note.
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


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern for single lines.

    Args:
        lines: For one line.
        text: For a whole text: finds something in each text in which a line matches; None where that can't be had.
        for_ripgrep: For the whole file, in ripgrep's dialect, likewise.
    """

    lines: regex.Pattern[str]
    text: regex.Pattern[str] | None
    for_ripgrep: str | None

    def matches(self, text: str, deadline: Deadline) -> list[int]:
        """Return the numbers, from 0, of the lines that match, none where time runs out: that raises `TimeoutError`."""
        if self.text is not None and self.text.search(text, timeout=deadline.left, concurrent=True) is None:
            return []
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        search = self.lines.search
        return [
            number
            for number, line in enumerate(lines)
            if search(line.removesuffix("\r"), timeout=deadline.left, concurrent=True) is not None
        ]


def line_pattern(pattern: str, *, is_literal: bool, is_case_sensitive: bool) -> LinePattern:
    """Return the compiled pattern.

    Raises:
        ToolFailedError: It is not a regular expression, or a very large one; the message gives the place of the fault.
    """
    import regex  # noqa: PLC0415 - an extra

    if len(pattern) > _LONGEST_PATTERN:
        raise ToolFailedError(
            f"The pattern has {len(pattern):,} characters; at most {_LONGEST_PATTERN:,} can be looked for."
        )
    source = regex.escape(pattern) if is_literal else pattern
    flags = regex.VERSION0 if is_case_sensitive else regex.VERSION0 | regex.IGNORECASE
    if "\n" in pattern:
        raise ToolFailedError("The pattern contains a line break, and lines are searched one by one. Search for one.")
    if not is_literal and _measure_pattern(pattern) > _MOST_REPEATED:
        raise ToolFailedError("The pattern repeats its parts too often. Use smaller numbers in braces, or * and +.")
    try:
        lines = regex.compile(source, flags)
        wide = _widen_pattern(re.escape(pattern) if is_literal else pattern, is_case_sensitive=is_case_sensitive)
        text = None if wide is None else regex.compile(source, flags | regex.MULTILINE)
    except regex.error as error:
        raise ToolFailedError(
            f"'{escape_in_text(pattern)}' is no valid regular expression: {error}. "
            "Mend it, or set literal to true to find it as it is."
        ) from error
    except RecursionError as error:
        raise ToolFailedError("The pattern is nested too deeply. Use fewer brackets.") from error
    return LinePattern(lines, text, wide)


def _measure_pattern(pattern: str) -> int:
    """Return about how many parts a pattern has once its counted repetitions are written out, as they are compiled."""
    sizes, last = [0], 0
    for part in _PART.finditer(pattern):
        if part[0] == "(":
            sizes.append(0)
        elif part[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif part[1] is not None:
            more = last * (max(int(part[1]), 1) - 1)
            sizes[-1] += more
            last += more
        else:
            last = 1
            sizes[-1] += 1
        if sizes[-1] > _MOST_REPEATED:
            break
    return max(sizes)


def _widen_pattern(pattern: str, *, is_case_sensitive: bool) -> str | None:
    """Return the pattern for ripgrep; None where it has something that is not known to mean the same or more there."""
    parts: list[str] = [] if is_case_sensitive else ["(?i)"]
    position = 0
    while position < len(pattern):
        token = _PATTERN_TOKEN.match(pattern, position)
        if token is None:
            return None
        parts.append(_widen_token(token.lastgroup or "", token[0], is_case_sensitive=is_case_sensitive))
        position = token.end()
    return "".join(parts)


def _widen_token(kind: str, text: str, *, is_case_sensitive: bool) -> str:
    match kind:
        case "end":
            return r"(?:\r?$)"
        case "any":
            return rf"(?:.|{_ANY_OTHER})"
        case "edge":
            return "(?:)"  # each dialect defines words differently
        case "kind":
            return rf"(?:{_WIDE_KINDS.get(text, text)}|{_ANY_OTHER})"
        case "set":
            return rf"(?:{text}|{_ANY_OTHER}|[\x1c-\x1f])"
        case "letter" if not is_case_sensitive and text.isalpha():
            return rf"(?:{text}|{_ANY_OTHER})"  # such as the long s and the Kelvin sign
        case _:
            return text
