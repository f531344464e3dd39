"""The tools `text_editor`, `apply_patch` and `memory`, which vendors train their models on, over a root folder.

A provider whose vendor defines such a tool offers the vendor's definition (`ToolHints.native_as`); for all others these
are ordinary tools. They use `read_file`, `write_file` and `edit_file`, with the same limits and approvals.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.builtin.files import decoded, edit_file_tool, read_file_tool, write_file_tool
from toolkit.builtin.root_folder import RootFolder
from toolkit.builtin.run_later import asks_before_writing, guard_link
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool

_LARGEST = 5_000_000
_MOST_NAMES = 500
_MEMORIES = "/memories"
_END_OF_FILE = "*** End of File"
_EditorCommand = Literal["view", "create", "str_replace", "insert"]
_MemoryCommand = Literal["view", "create", "str_replace", "insert", "delete", "rename"]
_PatchType = Literal["create_file", "update_file", "delete_file"]
_ViewRange = Annotated[list[int] | None, Field(description="For view: the first and the last line; -1 is the end.")]
_FileText = Annotated[str | None, Field(description="For create: the content of the file.")]
_OldText = Annotated[str | None, Field(description="For str_replace: the passage, which must be there once.")]
_NewText = Annotated[str | None, Field(description="For str_replace: what comes in its place.")]
_InsertLine = Annotated[int | None, Field(ge=0, description="For insert: the line after which it goes; 0 is the top.")]
_InsertText = Annotated[str | None, Field(description="For insert: the text.")]


def text_editor_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``text_editor``, which views, creates and edits files by commands; natively Anthropic's.

    Args:
        root: The folder whose files may be read and written.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)
    editor, find_reason = _Editor(folder), asks_before_writing(folder)

    def text_editor(
        command: _EditorCommand,
        path: Annotated[str, Field(description="The file, or for view a folder, relative to the working folder.")],
        view_range: _ViewRange = None,
        file_text: _FileText = None,
        old_str: _OldText = None,
        new_str: _NewText = None,
        insert_line: _InsertLine = None,
        insert_text: _InsertText = None,
    ) -> ToolOutput:
        """View, create or edit a text file."""
        text = new_str if insert_text is None else insert_text
        return editor.run(command, path, view_range, file_text, old_str, new_str, insert_line, text)

    return tool_from_function(
        text_editor,
        native_as="editor",
        tags={"write"},
        cache=False,
        requires_approval=lambda arguments: "" if arguments["command"] == "view" else find_reason(arguments),
        effects={"write"},
        destinations=("path",),
    )


def memory_tool(root: RootFolder | str | os.PathLike[str], folder: str = "memories") -> FunctionTool[object, ..., Any]:
    """Return the tool ``memory``: files with a model's notes across runs; natively Anthropic's.

    The model uses paths that begin with ``/memories``, and can't access anything else.

    Args:
        root: The folder that contains the folder of the notes.
        folder: The name of the folder of the notes, created if missing.

    Raises:
        ConfigurationError: It can't be used.
    """
    outer = root if isinstance(root, RootFolder) else RootFolder(root)
    outer.make_folders(f"{folder}/notes")
    notes = RootFolder(Path(outer.path) / folder)
    editor, find_reason = _Editor(notes), asks_before_writing(notes)

    def memory(
        command: _MemoryCommand,
        path: Annotated[str | None, Field(description="The file or folder, below /memories.")] = None,
        view_range: _ViewRange = None,
        file_text: _FileText = None,
        old_str: _OldText = None,
        new_str: _NewText = None,
        insert_line: _InsertLine = None,
        insert_text: _InsertText = None,
        old_path: Annotated[str | None, Field(description="For rename: the path as it is.")] = None,
        new_path: Annotated[str | None, Field(description="For rename: the path to be.")] = None,
    ) -> ToolOutput:
        """Read and write your notes, which outlast this conversation; look into /memories first."""
        if command == "rename":
            return _rename_path(notes, _spell_memory(old_path), _spell_memory(new_path))
        place = _spell_memory(path)
        if command == "delete":
            return _delete_path(notes, place)
        return editor.run(command, place, view_range, file_text, old_str, new_str, insert_line, insert_text)

    def find_memory_reason(arguments: Mapping[str, Any]) -> str:
        try:
            paths = [_spell_memory(arguments[name]) for name in ("path", "old_path", "new_path") if arguments[name]]
            if arguments["command"] == "rename" and len(paths) > 1:
                paths += _list_moved(notes, paths[-2], paths[-1])
        except ToolFailedError:
            return ""  # the call fails, with the reason
        reasons = [find_reason({"path": path}) for path in paths] if arguments["command"] != "view" else []
        return next(filter(None, reasons), "")

    return tool_from_function(
        memory,
        native_as="memory",
        tags={"write"},
        cache=False,
        requires_approval=find_memory_reason,
        effects={"write"},
        destinations=("path", "new_path"),
    )


def apply_patch_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``apply_patch``, which creates, changes and deletes files by diffs; natively OpenAI's.

    A diff has sections: lines that begin with ``@@`` give the place, then follow lines of the file after a space,
    removed lines after ``-``, and new lines after ``+``.

    Args:
        root: The folder whose files may be changed.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = root if isinstance(root, RootFolder) else RootFolder(root)
    write = write_file_tool(folder)

    def apply_patch(
        type: Annotated[_PatchType, Field(description="What to do with the file.")],  # noqa: A002 - the model's word
        path: Annotated[str, Field(description="The file, relative to the working folder.")],
        diff: Annotated[str, Field(description="The new content or the change; nothing for delete_file.")] = "",
    ) -> ToolOutput:
        """Create, change or delete a file by a diff; lines begin with a space, - or +, sections with @@."""
        if type == "delete_file":
            return _delete_path(folder, path, may_be_folder=False)
        if type == "update_file":
            return _change_file(folder, path, partial(apply_diff, diff=diff))
        folder.make_folders(path, check=guard_link(folder, path))
        with folder.find(path) as found:
            if found.status is not None:
                raise ToolFailedError(f"'{escape_in_name(path)}' exists already: use update_file. Nothing was changed.")
        output: ToolOutput = write(path=path, content=read_new_file(diff))
        return output

    return tool_from_function(
        apply_patch,
        native_as="patch",
        tags={"write"},
        cache=False,
        requires_approval=asks_before_writing(folder),
        preview=lambda arguments: f"{arguments['type']} {escape_in_name(arguments['path'])}\n{arguments['diff']}",
        effects={"write"},
        destinations=("path",),
    )


class _Editor:
    """The commands shared by `text_editor` and `memory`."""

    def __init__(self, folder: RootFolder) -> None:
        self._folder = folder
        self._read, self._write, self._edit = read_file_tool(folder), write_file_tool(folder), edit_file_tool(folder)

    def run(
        self,
        command: str,
        path: str,
        view_range: Sequence[int] | None,
        file_text: str | None,
        old_str: str | None,
        new_str: str | None,
        insert_line: int | None,
        insert_text: str | None,
    ) -> ToolOutput:
        output: ToolOutput
        match command:
            case "view":
                return self._view_path(path, view_range)
            case "create":
                output = self._write(path=path, content=_require_text(file_text, "file_text"))
            case "str_replace":
                output = self._edit(path=path, old_text=_require_text(old_str, "old_str"), new_text=new_str or "")
            case _:
                insert = partial(_insert_lines, place=insert_line or 0, added=_require_text(insert_text, "insert_text"))
                return _change_file(self._folder, path, insert)
        return output

    def _view_path(self, path: str, view_range: Sequence[int] | None) -> ToolOutput:
        with self._folder.find(path) as found:
            is_folder = found.is_folder
        if is_folder:
            return self._list_names(path)
        if view_range is None:
            return self._read_lines(path, None, None)
        if len(view_range) != 2 or view_range[0] < 1:
            raise ToolFailedError("view_range is the first and the last line, from 1; -1 is the end of the file.")
        first, last = view_range
        return self._read_lines(path, first, None if last < first else last - first + 1)

    def _read_lines(self, path: str, offset: int | None, limit: int | None) -> ToolOutput:
        output: ToolOutput = self._read(path=path, offset=offset, limit=limit)
        return output

    def _list_names(self, path: str) -> ToolOutput:
        with self._folder.open_folder(path) as (descriptor, _), os.scandir(descriptor) as entries:
            names = sorted(f"{each.name}/" if each.is_dir(follow_symlinks=False) else each.name for each in entries)
        more = [f"[{len(names) - _MOST_NAMES} more]"] if len(names) > _MOST_NAMES else []
        return ToolOutput("\n".join([*map(escape_in_name, names[:_MOST_NAMES]), *more]) or "[The folder is empty.]")


def _require_text(text: str | None, name: str) -> str:
    if text is None:
        raise ToolFailedError(f"{name} is missing: the command needs it. Nothing was changed.")
    return text


def _spell_memory(path: str | None) -> str:
    """Return the path within the folder of the notes."""
    given = _require_text(path, "path")
    if given != _MEMORIES and not given.startswith(f"{_MEMORIES}/"):
        raise ToolFailedError(f"'{escape_in_name(given)}' is no path of the memory: those begin with {_MEMORIES}/.")
    return given.removeprefix(_MEMORIES).strip("/") or "."


def _change_file(folder: RootFolder, path: str, change: Callable[[str], str]) -> ToolOutput:
    """Change the text of a file atomically, preserving its encoding."""
    with folder.changing(path):
        with folder.open_file(path) as (descriptor, found), os.fdopen(os.dup(descriptor), "rb") as source:
            data = source.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ToolFailedError(f"'{escape_in_name(path)}' has more than {_LARGEST:,} bytes. Use a command.")
        file = decoded(data, path)
        text = change(file.text)
        folder.write(path, file.encoded(text, path), expected=data, check=guard_link(folder, path))
    return ToolOutput(f"Changed {escape_in_name(found.path)}", details={"path": found.path})


def _insert_lines(text: str, *, place: int, added: str) -> str:
    lines = text.splitlines(keepends=True)
    if place > len(lines):
        raise ToolFailedError(f"The file has {len(lines)} lines: insert_line can't be {place}. Nothing was changed.")
    if place and not lines[place - 1].endswith("\n"):
        lines[place - 1] += "\n"
    lines.insert(place, added if added.endswith("\n") or place == len(lines) else f"{added}\n")
    return "".join(lines)


def _delete_path(folder: RootFolder, path: str, *, may_be_folder: bool = True) -> ToolOutput:
    with folder.find(path) as found:
        guard_link(folder, path)(found.path)
        if found.status is None or not found.parts:
            raise ToolFailedError(f"'{escape_in_name(path)}' can't be deleted: there is no such file.")
        if not found.is_folder:
            os.unlink(found.name, dir_fd=found.folder)
        elif may_be_folder:
            shutil.rmtree(found.name, dir_fd=found.folder)
        else:
            raise ToolFailedError(f"'{escape_in_name(path)}' is a folder, not a file. Nothing was deleted.")
        return ToolOutput(f"Deleted {escape_in_name(found.path)}", details={"path": found.path})


def _list_moved(folder: RootFolder, old_path: str, new_path: str) -> Iterator[str]:
    """Yield the new paths of the files in a folder that is renamed."""
    top = folder.path / folder.spell(old_path)
    for place, _, names in os.walk(top):
        yield from (posixpath.join(new_path, os.path.relpath(place, top), name) for name in names)


def _rename_path(folder: RootFolder, old_path: str, new_path: str) -> ToolOutput:
    folder.make_folders(new_path, check=guard_link(folder, new_path))
    with folder.changing(new_path), folder.find(old_path) as old, folder.find(new_path) as new:
        guard_link(folder, old_path)(old.path)
        guard_link(folder, new_path)(new.path)
        if old.status is None or not old.parts:
            raise ToolFailedError(f"'{escape_in_name(old_path)}' is not there. Nothing was renamed.")
        if new.status is not None:
            raise ToolFailedError(f"'{escape_in_name(new_path)}' is there already. Nothing was renamed.")
        os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
        return ToolOutput(f"Renamed {escape_in_name(old.path)} to {escape_in_name(new.path)}")


@dataclass(slots=True)
class _Section:
    """A section of a diff: its anchors, and its lines with their marks."""

    anchors: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    is_at_end: bool = False


def read_new_file(diff: str) -> str:
    """Return the content that a diff gives to a new file.

    Raises:
        ToolFailedError: A line does not begin with ``+``.
    """
    lines = _split_diff(diff)
    wrong = next((line for line in lines if not line.startswith("+")), None)
    if wrong is not None:
        raise ToolFailedError(f"Each line of a new file begins with +, not so: {wrong!r}. Nothing was changed.")
    return "".join([f"{line[1:]}\n" for line in lines])


def apply_diff(text: str, diff: str) -> str:
    """Apply a diff to a text; other lines are unchanged byte for byte.

    Raises:
        ToolFailedError: A section does not match the text, or the diff is invalid.
    """
    lines = text.split("\n")
    end = "\r" if text.count("\r\n") * 2 > text.count("\n") else ""
    changed: list[str] = []
    done = 0
    for section in _list_sections(diff):
        old = [line[1:] for line in section.lines if not line.startswith("+")]
        place = _find_lines(lines, old, _find_anchors(lines, section.anchors, done), is_at_end=section.is_at_end)
        if place is None or place < done:
            passage = "\n".join(map(escape_in_text, old))
            raise ToolFailedError(f"These lines of the diff are not in the file:\n{passage}\nNothing was changed.")
        changed += lines[done:place]
        for line in section.lines:
            if line.startswith("+"):
                changed.append(line[1:] + end)
                continue
            if not line.startswith("-"):
                changed.append(lines[place])
            place += 1
        done = place
    return "\n".join([*changed, *lines[done:]])


def _split_diff(diff: str) -> list[str]:
    lines = diff.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _list_sections(diff: str) -> Iterator[_Section]:
    section = _Section()
    for line in _split_diff(diff):
        if line == _END_OF_FILE:
            section.is_at_end = True
        elif line.startswith("@@"):
            if section.lines:
                yield section
                section = _Section()
            section.anchors += [line[2:].strip()] if line[2:].strip() else []
        elif not line or line[0] in " +-":
            section.lines.append(line or " ")
        else:
            raise ToolFailedError(
                f"A line of a diff begins with a space, -, + or @@, not so: {line!r}. Nothing was changed."
            )
    if not section.lines:
        raise ToolFailedError("The diff changes nothing.")
    yield section


def _find_anchors(lines: Sequence[str], anchors: Sequence[str], start: int) -> int:
    """Return the place after the anchors of a section; a single anchor without a match is ignored."""
    for anchor in anchors:
        found = next((place for place in range(start, len(lines)) if lines[place].strip() == anchor), None)
        if found is not None:
            start = found + 1
        elif len(anchors) > 1:
            raise ToolFailedError(
                f"This line of the diff is not in the file: {escape_in_text(anchor)}. Nothing was changed."
            )
    return start


def _find_lines(lines: Sequence[str], wanted: Sequence[str], start: int, *, is_at_end: bool) -> int | None:
    """Return the first place of some lines: an exact match, or else one that ignores blanks at their ends."""
    last = len(lines) - 1 if lines[-1] == "" else len(lines)
    if is_at_end:
        start = max(start, last - len(wanted))
    for strip in ("\r", None):
        seen = [line.rstrip(strip) for line in lines]
        meant = [line.rstrip(strip) for line in wanted]
        for place in range(start, len(lines) - len(meant) + 1):
            if seen[place : place + len(meant)] == meant:
                return place
    return None
