"""`read_file` and `write_file`: text in pages with line numbers, images as images, whole files written or none."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from toolkit.builtin.executed_files import asks_before_writing, guard_link
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.texts import FileText, decoded, image_type, is_binary
from toolkit.chat import ImageBlock
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolFailedError
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.visible_text import escape_in_name

__all__ = ["read_file_tool", "write_file_tool"]

_PAGE_LINES = 500
_PAGE_CHARS = 50_000
_PAGE_LINE_CHARS = 2_000
_LARGEST_WHOLE = 1_000_000
_LARGEST_TEXT = 20_000_000
_LARGEST_IMAGE = 20_000_000

Encoding = Annotated[
    str | None, Field(description="Only for files that are not UTF-8: their encoding, such as latin-1.")
]


def read_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_file``: a page of a text with line numbers, or an image.

    A page has at most 500 lines and 50,000 characters, a line at most 2,000; a file above 1 MB has to be asked for in
    pages, one above 20 MB is refused, as is what is binary. JPEG, PNG, GIF, WebP and BMP, by content and not by name,
    come as image blocks.

    Args:
        root: The folder whose files may be read.

    Raises:
        ConfigurationError: There is no such folder.
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

    # A page is a part already, and must not be cut again.
    return tool_from_function(read_file, tags={"read"}, cache=False, max_output_chars=_PAGE_CHARS * 2)


def write_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    r"""Return the tool ``write_file``: it makes a file, or replaces all of it, in one step.

    A reader sees the old file or the new one, never a part, also when this process is killed; a hidden
    file whose name ends in ``.tmp`` may then be left beside it. A file that
    is there keeps its mode without setuid and setgid, and its line ends where they are ``\r\n``; its folders are made.
    Files that something runs by itself later need approval: see `is_executed_later`.

    Args:
        root: The folder whose files may be written.

    Raises:
        ConfigurationError: There is no such folder.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)

    def write_file(
        path: Annotated[str, Field(description="The file, relative to the working folder.")],
        content: Annotated[str, Field(description="All that the file shall hold.")],
    ) -> ToolOutput:
        """Write a whole file; what it held before is lost. Use edit_file to change a part."""
        note = ""
        data = FileText(text="").encoded(content, path)
        folder.make_folders(path)
        with folder.changing(path):
            if b"\n" in data and b"\r" not in data and _has_windows_line_ends(folder, path):
                data = data.replace(b"\n", b"\r\n")
                note = " (line ends kept as \\r\\n)"
            found = folder.write(path, data, check=guard_link(folder, path))
        return ToolOutput(
            f"Wrote {len(data)} bytes to {escape_in_name(found.path)}{note}",
            details={"path": found.path, "bytes": len(data), "is_new": found.status is None},
        )

    return tool_from_function(write_file, tags={"write"}, cache=False, requires_approval=asks_before_writing(folder))


def _check_file_size(path: str, size: int, head: bytes, *, is_image: bool, is_page: bool) -> None:
    """Refuse by what is known before the file is read."""
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
    """Return all that is in the file, unless it has become too large while it was read."""
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
