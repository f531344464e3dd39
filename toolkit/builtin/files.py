"""The tools `read_file`, `write_file` and `edit_file`: pages of text with line numbers, images, and atomic writes.

An edit replaces passages that occur exactly once, all or none, and leaves every other byte unchanged.
"""

from __future__ import annotations

import codecs
import difflib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import nlargest
from io import StringIO
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.builtin.root_folder import Found, RootFolder
from toolkit.builtin.run_later import asks_before_writing, guard_link
from toolkit.chat import ImageBlock
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text, is_text_encoding
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

_PAGE_LINES = 500
_PAGE_CHARS = 50_000
_PAGE_LINE_CHARS = 2_000
_LARGEST_WHOLE = 1_000_000
_LARGEST_TEXT = 20_000_000
_LARGEST_IMAGE = 20_000_000

Encoding = Annotated[
    str | None, Field(description="Only for files that are not UTF-8: their encoding, such as latin-1.")
]
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT = 8192


def read_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_file``: a page of text with line numbers, or an image.

    A page has at most 500 lines and 50,000 characters, a line at most 2,000. A file above 1 MB must be requested in
    pages; files above 20 MB and binary files are refused. JPEG, PNG, GIF, WebP and BMP, recognized by content, are
    returned as image blocks.

    Args:
        root: The folder whose files may be read.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def read_file(
        path: Annotated[str, Field(description="The file, relative to the working folder.")],
        offset: Annotated[int | None, Field(ge=1, description="The first line to read, from 1.")] = None,
        limit: Annotated[int | None, Field(ge=1, description=f"How many lines; at most {_PAGE_LINES}.")] = None,
        encoding: Encoding = None,
    ) -> ToolOutput:
        """Read a file: text with line numbers, which are not part of the file, or an image."""
        with folder.open_file(path) as (descriptor, found):
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, 8192, 0)
            media_type = image_type(head)
            _check_file_size(path, size, head, is_image=media_type is not None, is_page=bool(offset or limit))
            data = _read_whole_file(descriptor, path)
        if media_type is not None:
            return ToolOutput((ImageBlock(data, media_type=media_type),), details={"path": found.path})
        file = decoded(data, path, encoding)
        return ToolOutput(_format_page(file, offset or 1, limit or _PAGE_LINES), details={"path": found.path})

    # A page must not be truncated again.
    return tool_from_function(read_file, tags={"read"}, cache=False, max_output_chars=_PAGE_CHARS * 2)


def write_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    r"""Return the tool ``write_file``, which creates or replaces a file atomically.

    A reader sees the old file or the new one, never a part, even if this process is killed; then a hidden file with the
    suffix ``.tmp`` may remain beside it. An existing file retains its mode (without setuid and setgid) and its ``\r\n``
    line ends; missing folders are created. Files that are executed automatically later need approval: see
    `toolkit.builtin.is_executed_later`.

    Args:
        root: The folder whose files may be written.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def write_file(
        path: Annotated[str, Field(description="The file, relative to the working folder.")],
        content: Annotated[str, Field(description="The whole new content of the file.")],
    ) -> ToolOutput:
        """Write a whole file; its previous content is lost. Use edit_file to change a part."""
        note = ""
        data = FileText(text="").encoded(content, path)
        check = guard_link(folder, path)
        folder.make_folders(path, check=check)
        with folder.changing(path):
            if b"\n" in data and b"\r" not in data and _has_windows_line_ends(folder, path):
                data = data.replace(b"\n", b"\r\n")
                note = " (line ends kept as \\r\\n)"
            found = folder.write(path, data, check=check)
        return ToolOutput(
            f"Wrote {len(data)} bytes to {escape_in_name(found.path)}{note}",
            details={"path": found.path, "bytes": len(data), "is_new": found.status is None},
        )

    return tool_from_function(
        write_file,
        tags={"write"},
        cache=False,
        requires_approval=asks_before_writing(folder),
        effects={"write"},
        destinations=("path",),
    )


def _check_file_size(path: str, size: int, head: bytes, *, is_image: bool, is_page: bool) -> None:
    """Refuse a file by its size before it is read."""
    if is_image:
        if size > _LARGEST_IMAGE:
            raise ToolFailedError(
                f"The image '{escape_in_name(path)}' has {size:,} bytes; at most {_LARGEST_IMAGE:,} can be shown."
            )
        return
    if size > _LARGEST_TEXT:
        way = "It is binary." if is_binary(head) else "Use a command such as sed -n '1,100p'."
        raise ToolFailedError(
            f"'{escape_in_name(path)}' has {size:,} bytes; at most {_LARGEST_TEXT:,} can be read. {way}"
        )
    if size > _LARGEST_WHOLE and not is_page:
        raise ToolFailedError(f"'{escape_in_name(path)}' has {size:,} bytes. Read a part of it with offset and limit.")


def _read_whole_file(descriptor: int, path: str) -> bytes:
    """Return the whole file, unless it grew too large while it was read."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(_LARGEST_TEXT + 1)
    if len(data) > _LARGEST_TEXT:
        raise ToolFailedError(
            f"'{escape_in_name(path)}' grows while it is read; at most {_LARGEST_TEXT:,} bytes can be read."
        )
    return data


def _format_page(file: FileText, offset: int, limit: int) -> str:
    lines = file.text.split("\n")
    if lines[-1] == "":
        lines.pop()
    note = "" if file.encoding == "utf-8" else f" ({file.encoding})"
    if not lines:
        return f"[0 lines: the file is empty]{note}"
    if offset > len(lines):
        raise ToolFailedError(f"The file has {len(lines)} lines; offset must not be more than that.")
    shown: list[str] = []
    room = _PAGE_CHARS
    for number, line in enumerate(lines[offset - 1 : offset - 1 + min(limit, _PAGE_LINES)], start=offset):
        text = line.removesuffix("\r")
        if len(text) > _PAGE_LINE_CHARS:
            text = f"{text[:_PAGE_LINE_CHARS]} [... {len(text) - _PAGE_LINE_CHARS} more characters in this line]"
        room -= len(text) + 8
        if room < 0 and shown:
            break
        shown.append(f"{number:>4} | {text}")
    last = offset + len(shown) - 1
    head = f"[{len(lines)} lines]" if len(shown) == len(lines) else f"[Lines {offset}-{last} of {len(lines)}]"
    rest = f"\n[Use offset={last + 1} to continue.]" if last < len(lines) else ""
    return "\n".join([head + note, *shown]) + rest


def _has_windows_line_ends(folder: RootFolder, path: str) -> bool:
    with folder.find(path) as found:
        if found.status is None or found.is_folder or not folder.may_read(found.status):
            return False
    with folder.open_file(path) as (descriptor, _):
        data = os.pread(descriptor, _LARGEST_WHOLE, 0)
    return b"\r\n" in data and data.count(b"\r\n") == data.count(b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """The text of a file with its original line ends.

    Args:
        text: The text without the byte order mark.
        encoding: The encoding for reading and writing.
        mark: The byte order mark; empty if there is none.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def line_end(self) -> Literal["\n", "\r\n"]:
        """The line end of most lines."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows * 2 > self.text.count("\n") else "\n"

    def encoded(self, text: str, path: str) -> bytes:
        """Return another text with the file's encoding and byte order mark.

        Raises:
            ToolFailedError: The encoding can't represent it.
        """
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise ToolFailedError(
                f"'{escape_in_name(path)}' is written in {self.encoding}, which has no character U+{ord(wrong):04X}. "
                "Leave it out; nothing was changed."
            ) from error


def decoded(data: bytes, path: str, encoding: str | None = None) -> FileText:
    """Return the text of a file in the given encoding, or else that of its byte order mark, or else UTF-8.

    Raises:
        ToolFailedError: It is binary, or not in that encoding; the message has the remedy.
    """
    mark, marked = _read_mark(data)
    if marked is not None and (encoding is None or _is_same_encoding(encoding, marked)):
        return FileText(text=_decode_file(data[len(mark) :], marked, path), encoding=marked, mark=mark)
    if encoding is not None:
        return FileText(text=_decode_file(data, encoding, path), encoding=encoding)
    if is_binary(data):
        raise ToolFailedError(
            f"'{escape_in_name(path)}' is a binary file of {len(data):,} bytes and can't be read or edited as text. "
            "If it is text in an encoding such as utf-16-le, give the argument encoding."
        )
    return FileText(text=_decode_file(data, "utf-8", path))


def searchable(data: bytes) -> str | None:
    """Return the text of a file, with invalid bytes replaced; None for a binary file."""
    mark, marked = _read_mark(data)
    if marked is None and is_binary(data):
        return None
    return data[len(mark) :].decode(marked or "utf-8", "replace")


def is_binary(data: bytes) -> bool:
    """Return True if the start of a file contains a NUL, which no text without a byte order mark has."""
    return b"\0" in data[:_LOOKED_AT] and _read_mark(data)[1] is None


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models accept, by its first bytes; None for other files."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"BM") and data[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return None


def _read_mark(data: bytes) -> tuple[bytes, str | None]:
    """Return the byte order mark, and its encoding."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return mark, encoding
    return b"", None


def _is_same_encoding(encoding: str, marked: str) -> bool:
    try:
        return codecs.lookup(encoding).name == marked
    except (LookupError, ValueError):
        return False


def _decode_file(data: bytes, encoding: str, path: str) -> str:
    _check_encoding(encoding)
    try:
        return data.decode(encoding)
    except UnicodeError as error:
        at = ""
        if isinstance(error, UnicodeDecodeError):
            at = f" (byte 0x{data[error.start]:02x} at offset {error.start})"
        raise ToolFailedError(
            f"'{escape_in_name(path)}' is not text in {encoding}{at}. Give its encoding in the argument encoding, "
            "such as latin-1, cp1252 or shift_jis."
        ) from error


def _check_encoding(encoding: str) -> None:
    if not is_text_encoding(encoding):
        raise ToolFailedError(
            f"'{escape_in_text(encoding[:80])}' is no encoding of text that files are read in. "
            "Give one such as latin-1, cp1252 or shift_jis."
        )


_LARGEST_EDITED = 20_000_000
_MOST_HINT_LINES = 20_000
_MOST_HINT_CHARS = 400
_MOST_COMPARED = 100
_COMPARED_CHARS = 200
_NEAR = 0.6
_MOST_PLACES = 100
_MOST_EDITS = 1_000
_MOST_DIFFED = 1_000_000
_MOST_PREVIEWED = 50_000  # pairs of lines, which take some 10 ms of the event loop
_CONTEXT_LINES = 3

# Typographic characters that models and editors write in place of ASCII, one for one.
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
    r"""Return the tool ``edit_file``, which replaces passages of a file, each of which must occur exactly once.

    A passage must match exactly, with ``\n`` for any line end of the file; if there is no match, typographic quotes,
    dashes and spaces and blanks at line ends are ignored. Several edits all refer to the original file, must not
    overlap, and are applied together or not at all. Other text is unchanged byte for byte, including line ends, byte
    order mark and encoding. ``details["diff"]`` is a unified diff. A file that changes during the edit is not
    overwritten. Files that are executed automatically later need approval, as for `write_file_tool`.

    Args:
        root: The folder whose files may be changed.

    Raises:
        ConfigurationError: The folder does not exist.
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
        edit_file,
        tags={"write"},
        cache=False,
        requires_approval=asks_before_writing(folder),
        preview=_preview_edits,
        effects={"write"},
        destinations=("path",),
    )


def _preview_edits(arguments: Mapping[str, Any]) -> str:
    """Return the edits of a call as a diff of their passages, without their positions in the file."""
    edits: list[Edit] = list(arguments["edits"] or ())
    if arguments["old_text"] is not None or arguments["new_text"] is not None:
        edits.append(Edit(arguments["old_text"] or "", arguments["new_text"] or ""))
    path = escape_in_name(arguments["path"])
    encoding = f" ({arguments['encoding']})" if arguments["encoding"] else ""
    lines = [f"--- {path}{encoding}", f"+++ {path}{encoding}"]
    room = _MOST_PREVIEWED
    for edit in edits:
        old, new = edit.old_text.split("\n"), edit.new_text.split("\n") if edit.new_text else []
        lines.append("@@")
        for kind, old_start, old_end, new_start, new_end in _compare_lines(old, new, most=room):
            if kind == "equal":
                lines += [f" {line}" for line in old[old_start:old_end]]
            else:
                lines += [f"-{line}" for line in old[old_start:old_end]]
                lines += [f"+{line}" for line in new[new_start:new_end]]
        room = max(room - len(old) * len(new), 0)
    return "\n".join(lines)


def _edit_file(folder: RootFolder, path: str, edits: Sequence[Edit], encoding: str | None) -> ToolOutput:
    shown = escape_in_name(path)
    with folder.changing(path):
        data, found = _read_editable(folder, path)
        file = decoded(data, path, encoding)
        if file.encoded(file.text, path) != data:
            raise ToolFailedError(
                f"'{shown}' can't be edited as {file.encoding}: "
                "other parts of it would be written in another way. "
                "Use a command. Nothing was changed."
            )
        changes = _find_changes(file.text, edits, shown, file.line_end)
        text = _apply_changes(file.text, changes)
        if text == file.text:
            raise ToolFailedError(f"The edit changes nothing in {shown}: old_text and new_text are the same.")
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
    """Return the content of a file, and its location.

    Raises:
        ToolFailedError: It is too large or does not exist.
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


def _find_changes(text: str, edits: Sequence[Edit], shown: str, line_end: str) -> list[_Change]:
    """Return the changes in the order of the text.

    Raises:
        ToolFailedError: A passage does not occur exactly once, or two overlap.
    """
    changes: list[_Change] = []
    readings = _Readings(text)
    for number, edit in enumerate(edits, start=1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        start, end = _find_passage(readings, edit.old_text, shown, which)
        new_text = edit.new_text.replace("\r\n", "\n").replace("\n", line_end)
        changes.append(_Change(start, end, new_text))
    changes.sort(key=lambda change: (change.start, change.end))
    for before, after in pairwise(changes):
        if after.start < before.end:
            line = text.count("\n", 0, after.start) + 1
            raise ToolFailedError(f"Two edits overlap at line {line} of {shown}. Make them one. Nothing was changed.")
    return changes


def _find_passage(readings: _Readings, old_text: str, shown: str, which: str) -> tuple[int, int]:
    """Return the span of a passage: an exact match, or else one that ignores typography and blanks at line ends."""
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
            f"{which}old_text not found in {shown}. Nothing was changed.{_hint_at_passage(text, old_text)}"
        )
    at = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in places[:5])
    more = ", ..." if len(places) > 5 else ""
    count = f"more than {_MOST_PLACES}" if len(places) > _MOST_PLACES else str(len(places))
    raise ToolFailedError(
        f"{which}old_text matches {count} locations in {shown}, at the lines {at}{more}. "
        "Give more of the lines round it, so that it matches one. Nothing was changed."
    )


class _Readings:
    """A text, and its two folded forms for matching, each computed once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def exact(self) -> _Folded:
        """The text with normalized line ends."""
        return _Folded(self.text, strips_blanks=False)

    @cached_property
    def loose(self) -> _Folded:
        """The text with ASCII typography and without blanks at line ends."""
        return _Folded(self.text.translate(_PLAIN_CHARACTERS), strips_blanks=True)


class _Folded:
    r"""A text with ``\n`` as the only line end, which maps positions back to the original.

    Args:
        text: The original text.
        strips_blanks: True to remove blanks at line ends, too.
    """

    __slots__ = ("_folded_starts", "_starts", "_text")

    def __init__(self, text: str, *, strips_blanks: bool) -> None:
        lines = text.split("\n")
        # The last line has no line end, so a carriage return there is an ordinary character.
        folded = [line.removesuffix("\r") for line in lines[:-1]]
        if strips_blanks:
            folded = [line.rstrip(" \t") for line in folded]
        folded.append(lines[-1])
        self._text = "\n".join(folded)
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._folded_starts = [0, *accumulate(len(line) + 1 for line in folded)]

    def find(self, passage: str) -> list[tuple[int, int]]:
        """Return the spans of a passage in the original text, including overlapping ones; at most 101."""
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
    """Return the text of the file most similar to the passage, for the model to copy; empty if there is none."""
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
    """Return the first line of the part most similar to the passage, judged by its longest line."""
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
    """Return a unified diff made from the changes alone, because comparing a whole large file can take minutes."""
    lines = _split_file_lines(text)
    starts = [0, *accumulate(map(len, lines))]
    parts = [f"--- {escape_in_name(f'a/{path}')}\n+++ {escape_in_name(f'b/{path}')}\n"]
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
    return list(StringIO(text))  # unlike splitlines, it splits only at line feeds


def _span_lines(changes: Sequence[_Change], starts: Sequence[int]) -> tuple[int, int]:
    """Return the first line of some changes, and the line after the last one that they may affect."""
    last = bisect_left(starts, changes[-1].end) + 1
    return bisect_right(starts, changes[0].start) - 1, min(last, len(starts) - 1)


def _group_changes(changes: Sequence[_Change], starts: Sequence[int]) -> list[list[_Change]]:
    """Return the changes grouped into hunks."""
    groups: list[list[_Change]] = []
    for change in changes:
        if groups and _span_lines([change], starts)[0] - _span_lines(groups[-1], starts)[1] <= 2 * _CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _format_hunk(lines: Sequence[str], first: int, last: int, new: list[str], grown: int) -> list[str]:
    """Return a hunk of a diff, after earlier hunks have added `grown` lines."""
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


def _compare_lines(
    old: Sequence[str], new: Sequence[str], *, most: int = _MOST_DIFFED
) -> list[tuple[str, int, int, int, int]]:
    """Return the edit steps from old lines to new ones; a single replacement if comparing them would take too long."""
    if len(old) * len(new) > most:
        return [("replace", 0, len(old), 0, len(new))]
    return list(difflib.SequenceMatcher(None, old, new).get_opcodes())


def _format_range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _count_in_words(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
