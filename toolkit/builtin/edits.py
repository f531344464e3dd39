"""`edit_file`: replaces passages that are there exactly once, all or none, and leaves every other byte alone."""

from __future__ import annotations

import difflib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from io import StringIO
from itertools import accumulate, pairwise
from typing import Annotated, Any

from pydantic import Field

from toolkit.builtin.files import Encoding, asks_before_writing, decoded, guard_link
from toolkit.builtin.root_folder import Found, RootFolder
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolFailedError
from toolkit.foreign_text import escape_in_name
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

_LARGEST_EDITED = 20_000_000
_MOST_HINT_LINES = 20_000
_MOST_HINT_CHARS = 400
_MOST_COMPARED = 100
_COMPARED_CHARS = 200
_NEAR = 0.6
_MOST_PLACES = 100
_MOST_EDITS = 1_000
_MOST_DIFFED = 1_000_000
_CONTEXT_LINES = 3

# Characters that models, and the editors that they learned from, write in place of ASCII, one for one.
_PLAIN_CHARACTERS = str.maketrans({
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """One passage and its replacement."""

    old_text: Annotated[str, Field(description="The passage as it is in the file; it must be there exactly once.")]
    new_text: Annotated[str, Field(description="What comes in its place; empty takes it out.")]


@dataclass(frozen=True, slots=True)
class _Change:
    """A part of the text and its replacement."""

    start: int
    end: int
    text: str


def edit_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    r"""Return the tool ``edit_file``: it replaces passages of a file, each of which must be there exactly once.

    A passage is looked for as it is written, with ``\n`` for whatever line end the file has; only if that is nowhere,
    without regard to typographic quotes, dashes and spaces, and to blanks at line ends. Several edits are all looked
    for in the file as it was, must not overlap, and happen together or not at all. Text that no edit covers is
    unchanged byte for byte: line ends, byte order mark, encoding. ``details["diff"]`` is a unified diff. A file that
    changes while it is edited is left as it is then. Files that something runs by itself later need approval, as for
    `write_file_tool`.

    Args:
        root: The folder whose files may be changed.

    Raises:
        ConfigurationError: There is no such folder.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def edit_file(
        path: Annotated[str, Field(description="The file, relative to the working folder.")],
        old_text: Annotated[
            str | None, Field(description="The passage as it is in the file; it must be there exactly once.")
        ] = None,
        new_text: Annotated[str | None, Field(description="What comes in its place; empty takes it out.")] = None,
        edits: Annotated[
            list[Edit] | None,
            Field(
                max_length=_MOST_EDITS,
                description="Several edits in place of old_text and new_text: all happen or none.",
            ),
        ] = None,
        encoding: Encoding = None,
    ) -> ToolOutput:
        """Replace a passage of a file with another."""
        return _edit_file(folder, path, _collect_edits(old_text, new_text, edits), encoding)

    return tool_from_function(
        edit_file, tags={"write"}, cache=False, requires_approval=asks_before_writing(folder), preview=_preview_edits
    )


def _preview_edits(arguments: Mapping[str, Any]) -> str:
    """Return the edits of a call as a diff of their passages; where in the file they are, the file alone says."""
    edits: list[Edit] = list(arguments["edits"] or ())
    if arguments["old_text"] is not None or arguments["new_text"] is not None:
        edits.append(Edit(arguments["old_text"] or "", arguments["new_text"] or ""))
    path = escape_in_name(arguments["path"])
    encoding = f" ({arguments['encoding']})" if arguments["encoding"] else ""
    lines = [f"--- {path}{encoding}", f"+++ {path}{encoding}"]
    for edit in edits:
        old, new = edit.old_text.split("\n"), edit.new_text.split("\n") if edit.new_text else []
        lines.append("@@")
        for kind, old_start, old_end, new_start, new_end in _compare_lines(old, new):
            if kind == "equal":
                lines += [f" {line}" for line in old[old_start:old_end]]
            else:
                lines += [f"-{line}" for line in old[old_start:old_end]]
                lines += [f"+{line}" for line in new[new_start:new_end]]
    return "\n".join(lines)


def _edit_file(folder: RootFolder, path: str, edits: Sequence[Edit], encoding: str | None) -> ToolOutput:
    with folder.changing(path):
        data, found = _read_editable(folder, path)
        file = decoded(data, path, encoding)
        if file.encoded(file.text, path) != data:
            raise ToolFailedError(
                f"'{escape_in_name(path)}' can't be edited as {file.encoding}: "
                "other parts of it would be written in another way. "
                "Use a command. Nothing was changed."
            )
        changes = _find_changes(file.text, edits, path, file.line_end)
        text = _apply_changes(file.text, changes)
        if text == file.text:
            raise ToolFailedError(f"The edit changes nothing in {path}: old_text and new_text are the same.")
        folder.write(path, file.encoded(text, path), expected=data, check=guard_link(folder, path))
    old_lines = sum(_count_lines(file.text[change.start : change.end]) for change in changes)
    new_lines = sum(_count_lines(change.text) for change in changes)
    details = {
        "path": found.path,
        "old_lines": old_lines,
        "new_lines": new_lines,
        "diff": _diff_changes(file.text, changes, found.path),
    }
    many = f"{len(changes)} edits: replaced" if len(changes) > 1 else "Replaced"
    return ToolOutput(
        f"{many} {_count_in_words(old_lines)} with {_count_in_words(new_lines)} in {escape_in_name(found.path)}",
        details=details,
    )


def _read_editable(folder: RootFolder, path: str) -> tuple[bytes, Found]:
    """Return the content of a file, and its place.

    Raises:
        ToolFailedError: It is too large, or there is none.
    """
    with folder.open_file(path) as (descriptor, found):
        status = os.fstat(descriptor)
        if status.st_size > _LARGEST_EDITED:
            raise ToolFailedError(
                f"'{escape_in_name(path)}' has {status.st_size:,} bytes; at most {_LARGEST_EDITED:,} can be "
                "edited. Use a command."
            )
        with os.fdopen(os.dup(descriptor), "rb") as source:
            return source.read(_LARGEST_EDITED + 1), found


def _collect_edits(old_text: str | None, new_text: str | None, edits: Sequence[Edit] | None) -> list[Edit]:
    if edits and (old_text or new_text):
        raise ToolFailedError("Give either old_text and new_text, or edits, not both.")
    if not edits:
        if old_text is None or new_text is None:
            raise ToolFailedError("Give old_text and new_text, or edits: a list of objects with these two.")
        edits = [Edit(old_text, new_text)]
    if any(not edit.old_text for edit in edits):
        raise ToolFailedError("old_text is empty. Give the passage to replace; write_file makes a new file.")
    return list(edits)


def _find_changes(text: str, edits: Sequence[Edit], path: str, line_end: str) -> list[_Change]:
    """Return the changes in their order in the text.

    Raises:
        ToolFailedError: A passage is not there exactly once, or two overlap.
    """
    changes: list[_Change] = []
    readings = _Readings(text)
    for number, edit in enumerate(edits, start=1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        start, end = _find_passage(readings, edit.old_text, path, which)
        new_text = edit.new_text.replace("\r\n", "\n").replace("\n", line_end)
        changes.append(_Change(start, end, new_text))
    changes.sort(key=lambda change: (change.start, change.end))
    for before, after in pairwise(changes):
        if after.start < before.end:
            line = text.count("\n", 0, after.start) + 1
            raise ToolFailedError(f"Two edits overlap at line {line} of {path}. Make them one. Nothing was changed.")
    return changes


def _find_passage(readings: _Readings, old_text: str, path: str, which: str) -> tuple[int, int]:
    """Return where a passage is: as it is written, else without regard to typography and to blanks at line ends."""
    lines = old_text.replace("\r\n", "\n").split("\n")
    places = readings.exact.find("\n".join(lines))
    if not places:
        plain = [line.translate(_PLAIN_CHARACTERS) for line in lines]
        loose = [line.rstrip(" \t") for line in plain[:-1]]
        places = readings.loose.find("\n".join([*loose, plain[-1]]))
    if len(places) == 1:
        return places[0]
    text = readings.text
    if not places:
        raise ToolFailedError(
            f"{which}old_text not found in {path}. Nothing was changed.{_hint_at_passage(text, old_text)}"
        )
    at = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in places[:5])
    more = ", ..." if len(places) > 5 else ""
    count = f"more than {_MOST_PLACES}" if len(places) > _MOST_PLACES else str(len(places))
    raise ToolFailedError(
        f"{which}old_text matches {count} locations in {path}, at the lines {at}{more}. "
        "Give more of the lines round it, so that it matches one. Nothing was changed."
    )


class _Readings:
    """A text, and the two ways in which passages are looked for in it, each made once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def exact(self) -> _Folded:
        """The text but for its line ends."""
        return _Folded(self.text, strips_blanks=False)

    @cached_property
    def loose(self) -> _Folded:
        """The text in plain characters, without blanks at line ends."""
        return _Folded(self.text.translate(_PLAIN_CHARACTERS), strips_blanks=True)


class _Folded:
    r"""A text whose line ends are all ``\n``, and which knows where each of its characters was.

    Args:
        text: The text as it is.
        strips_blanks: True where blanks at line ends are left out, too.
    """

    __slots__ = ("_folded_starts", "_starts", "_text")

    def __init__(self, text: str, *, strips_blanks: bool) -> None:
        lines = text.split("\n")
        # The last line has no line end; a carriage return there is a character like any other.
        folded = [line.removesuffix("\r") for line in lines[:-1]]
        if strips_blanks:
            folded = [line.rstrip(" \t") for line in folded]
        folded.append(lines[-1])
        self._text = "\n".join(folded)
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._folded_starts = [0, *accumulate(len(line) + 1 for line in folded)]

    def find(self, passage: str) -> list[tuple[int, int]]:
        """Return the places of a passage in the text as it is, those that overlap too; at most one more than 100."""
        found: list[tuple[int, int]] = []
        start = self._text.find(passage)
        while start >= 0 and len(found) <= _MOST_PLACES:
            found.append((self._locate_original(start), self._locate_original(start + len(passage))))
            start = self._text.find(passage, start + 1)
        return found

    def _locate_original(self, position: int) -> int:
        line = bisect_right(self._folded_starts, position) - 1
        return self._starts[line] + position - self._folded_starts[line]


def _apply_changes(text: str, changes: Sequence[_Change]) -> str:
    parts: list[str] = []
    position = 0
    for change in changes:
        parts += [text[position : change.start], change.text]
        position = change.end
    return "".join([*parts, text[position:]])


def _hint_at_passage(text: str, old_text: str) -> str:
    """Return the text of the file that is similar to the passage, for the model to copy; empty if there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    wanted = old_text.replace("\r\n", "\n").strip("\n").split("\n")
    if len(lines) > _MOST_HINT_LINES:
        return " Read the file and copy the passage from it."
    bare = ["".join(line.split()) for line in lines]
    bare_wanted = ["".join(line.split()) for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if bare[start] == bare_wanted[0] and bare[start : start + len(wanted)] == bare_wanted and any(bare_wanted):
            return f" It is there with other blanks or indentation, at line {start + 1}:\n" + _quote_lines(
                lines, start, len(wanted)
            )
    nearest = _find_nearest_line(lines, wanted)
    if nearest is None:
        return " Read the file and copy the passage from it."
    return f" Something near is at line {nearest + 1}:\n{_quote_lines(lines, nearest, len(wanted))}"


def _find_nearest_line(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return the first line of the part that is most like the passage, by its longest line."""
    index, key = max(enumerate(wanted), key=lambda item: len(item[1].strip()))
    matcher = difflib.SequenceMatcher(b=key.strip()[:_COMPARED_CHARS], autojunk=False)
    near: list[tuple[float, int]] = []
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() > _NEAR and (ratio := matcher.quick_ratio()) > _NEAR:
            near.append((ratio, -number))
    best: int | None = None
    best_ratio = _NEAR
    for _, place in sorted(nlargest(_MOST_COMPARED, near), key=lambda item: -item[1]):
        matcher.set_seq1(lines[-place].strip()[:_COMPARED_CHARS])
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = -place, ratio
    return None if best is None else max(best - index, 0)


def _quote_lines(lines: Sequence[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, 10)]
    return "\n".join(f"{number:>4} | {line[:_MOST_HINT_CHARS]}" for number, line in enumerate(shown, start=start + 1))


def _diff_changes(text: str, changes: Sequence[_Change], path: str) -> str:
    """Return a unified diff, from where the changes are alone: to compare all of a large file can take minutes."""
    lines = _split_file_lines(text)
    starts = [0, *accumulate(map(len, lines))]
    parts = [f"--- a/{path}\n+++ b/{path}\n"]
    grown = 0
    for group in _group_changes(changes, starts):
        first, last = _span_lines(group, starts)
        begin = starts[first]
        new = _apply_changes(
            text[begin : starts[last]], [_Change(one.start - begin, one.end - begin, one.text) for one in group]
        )
        parts += _format_hunk(lines, first, last, _split_file_lines(new), grown)
        grown += len(_split_file_lines(new)) - (last - first)
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)


def _split_file_lines(text: str) -> list[str]:
    return list(StringIO(text))  # unlike splitlines, at line feeds alone


def _span_lines(changes: Sequence[_Change], starts: Sequence[int]) -> tuple[int, int]:
    """Return the first line of some changes, and the first after the one that what they leave may be joined to."""
    last = bisect_left(starts, changes[-1].end) + 1
    return bisect_right(starts, changes[0].start) - 1, min(last, len(starts) - 1)


def _group_changes(changes: Sequence[_Change], starts: Sequence[int]) -> list[list[_Change]]:
    """Return the changes, those together between which a diff shows all lines."""
    groups: list[list[_Change]] = []
    for change in changes:
        if groups and _span_lines([change], starts)[0] - _span_lines(groups[-1], starts)[1] <= 2 * _CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _format_hunk(lines: Sequence[str], first: int, last: int, new: list[str], grown: int) -> list[str]:
    """Return the part of a diff in which some lines become others, the text being longer by `grown` lines already."""
    same = 0
    while first + same < last and same < len(new) and lines[first + same] == new[same]:
        same += 1
    first, new, same = first + same, new[same:], 0
    while first < last - same and same < len(new) and lines[last - 1 - same] == new[len(new) - 1 - same]:
        same += 1
    last, new = last - same, new[: len(new) - same]
    old = lines[first:last]
    if old == new:
        return []
    before, after = lines[max(first - _CONTEXT_LINES, 0) : first], lines[last : last + _CONTEXT_LINES]
    body = [f" {line}" for line in before]
    for kind, old_start, old_end, new_start, new_end in _compare_lines(old, new):
        if kind == "equal":
            body += [f" {line}" for line in old[old_start:old_end]]
        else:
            body += [f"-{line}" for line in old[old_start:old_end]] + [f"+{line}" for line in new[new_start:new_end]]
    start, around = first - len(before), len(before) + len(after)
    head = f"@@ -{_format_range(start, len(old) + around)} +{_format_range(start + grown, len(new) + around)} @@\n"
    return [head, *body, *[f" {line}" for line in after]]


def _compare_lines(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Return the steps from some lines to others: all at once where to compare each with each would take too long."""
    if len(old) * len(new) > _MOST_DIFFED:
        return [("replace", 0, len(old), 0, len(new))]
    return list(difflib.SequenceMatcher(None, old, new).get_opcodes())


def _format_range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _count_in_words(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
