"""`read_file` and `write_file`: text in pages with line numbers, images as images, whole files written or none.

Some files are executed later automatically: writing one means running its text, and so needs approval.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.builtin.root_folder import Found, RootFolder
from toolkit.chat import ImageBlock
from toolkit.chat.output import ToolOutput
from toolkit.errors import ToolError, ToolFailedError
from toolkit.foreign_text import escape_in_name, escape_in_text, is_hidden, is_text_encoding
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
# Programs read instructions from hidden files and folders; nothing in these makes one run code.
_INERT = frozenset({
    ".github", ".gitignore", ".gitkeep", ".keep", ".mailmap", ".git-blame-ignore-revs", ".dockerignore", ".npmignore",
    ".eslintignore", ".prettierignore", ".stylelintignore", ".ignore", ".rgignore", ".helmignore", ".gcloudignore",
    ".vercelignore", ".editorconfig", ".env.example", ".env.sample", ".env.template", ".python-version",
    ".node-version", ".nvmrc", ".ruby-version", ".markdownlint.json", ".markdownlint.yaml", ".yamllint",
    ".yamllint.yaml", ".yamllint.yml", ".clang-format", ".nojekyll",
})  # fmt: skip
# What is run, or obeyed, without being asked for and has no hidden name, by the page that says so; in lower case. A
# pattern that ends in a slash is a folder with all in it.
_RUN_LATER: Mapping[str, tuple[str, ...]] = {
    # With `objects` and `refs` beside it a folder of files is a repository, whose `config` and `hooks` git runs.
    "https://git-scm.com/docs/gitrepository-layout": ("head", "gitdir", "commondir"),
    "https://docs.python.org/3/library/site.html": ("*.pth", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg"),
    "https://pip.pypa.io/en/stable/topics/configuration/": ("pip.conf", "pip.ini"),
    "https://mise.jdx.dev/configuration.html": ("mise.toml", "mise.*.toml"),
    "https://man7.org/linux/man-pages/man5/crontab.5.html": (
        "crontab", "cron.d/", "cron.hourly/", "cron.daily/", "cron.weekly/", "cron.monthly/"
    ),
    "https://man7.org/linux/man-pages/man8/ld.so.8.html": ("ld.so.preload",),
    "https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html": ("etc/profile", "profile.d/"),
    "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html": ("systemd/user/", "systemd/system/"),
    "https://specifications.freedesktop.org/autostart-spec/latest/": ("autostart/",),
    "https://developer.apple.com/library/archive/documentation/MacOSX/Conceptual/BPSystemStartup/": (
        "library/launchagents/", "library/launchdaemons/"
    ),
    "https://learn.microsoft.com/powershell/module/microsoft.powershell.core/about/about_profiles": (
        "profile.ps1", "*_profile.ps1"
    ),
    "https://learn.microsoft.com/windows/win32/shell/csidl": ("start menu/programs/startup/",),
    "https://code.visualstudio.com/docs/editor/workspaces": ("*.code-workspace",),
    "https://www.sublimetext.com/docs/projects.html": ("*.sublime-project",),
    "https://lefthook.dev/configuration/": (
        "lefthook*.yml", "lefthook*.yaml", "lefthook*.toml", "lefthook*.json"
    ),
    "https://docs.github.com/actions/reference/workflows-and-actions": (
        ".github/workflows/", ".github/actions/", ".github/hooks/"
    ),
    "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/": ("jenkinsfile*",),
    "https://www.appveyor.com/docs/appveyor-yml/": ("appveyor.yml",),
    "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/": (
        "azure-pipelines*.yml", "azure-pipelines*.yaml"
    ),
    "https://support.atlassian.com/bitbucket-cloud/docs/bitbucket-pipelines-configuration-reference/": (
        "bitbucket-pipelines.yml",
    ),
    "https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html": ("buildspec*.yml", "buildspec*.yaml"),
    "https://cloud.google.com/build/docs/build-config-file-schema": ("cloudbuild*.yml", "cloudbuild*.yaml"),
    "https://docs.netlify.com/configure-builds/file-based-configuration/": ("netlify.toml",),
    "https://vercel.com/docs/project-configuration": ("vercel.json",),
}  # fmt: skip
_EXECUTED_NAMES = tuple(name for names in _RUN_LATER.values() for name in names if not name.endswith("/"))
_FOLDERS = tuple(name[:-1] for names in _RUN_LATER.values() for name in names if name.endswith("/"))
_REPOSITORY = frozenset({"head", "objects", "refs"})
_MOST_OF_CONFIG = 1_000_000
_CONFIG_VALUE = re.compile(r"^[^\n=#;]*=[ \t]*(.*)$", re.MULTILINE)
_SHORT_NAME = re.compile(r"[^.~]{1,6}~\d+(\.[^.]*)?")
_SEEMING_DOTS = str.maketrans({"\u2024": ".", "\uff0e": ".", "\ufe52": "."})
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT = 8192


def read_file_tool(root: RootFolder | str | os.PathLike[str]) -> FunctionTool[object, ..., Any]:
    """Return the tool ``read_file``: a page of a text with line numbers, or an image.

    A page has at most 500 lines and 50,000 characters, a line at most 2,000; a file above 1 MB has to be asked for in
    pages, files above 20 MB and binary files are refused. JPEG, PNG, GIF, WebP and BMP, by content and not by name,
    are returned as image blocks.

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
        content: Annotated[str, Field(description="The whole new content of the file.")],
    ) -> ToolOutput:
        """Write a whole file; its previous content is lost. Use edit_file to change a part."""
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
    """Refuse a file before it is read, by its status."""
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
    """Return the whole file, unless it has become too large while it was read."""
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


def is_executed_later(path: str) -> bool:
    """Return whether another program may execute the content of a file, or obey it, automatically.

    Programs look for such files under hidden names: ``.git`` (hooks, configuration), direnv, editors, hook managers, CI
    services, shells, debuggers, interpreters. So every path with a hidden name in it counts, but for the short list of
    those that are known to run nothing, such as ``.gitignore``. Files that are run without being hidden
    are named one by one: modules that Python imports by itself, CI files, units of systemd. Build
    files (``Makefile``, ``package.json``, ``conftest.py``) are not among them: who runs those has asked for it.

    Args:
        path: From the root folder on, with slashes. Case, characters that are not seen, and what some file systems
            leave out of names make no difference.
    """
    parts = [_fold_name(part) for part in path.split("/")]
    if any(_is_hidden_name(part) or _SHORT_NAME.fullmatch(part) for part in parts):
        return True
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return any(fnmatchcase(end, name) for name in _EXECUTED_NAMES for end in (parts[-1], *ends[-2:-1])) or any(
        end == folder or end.startswith(f"{folder}/") for end in ends for folder in _FOLDERS
    )


def _is_read_by_git(root: Path, path: str) -> bool:
    """Return whether a file is in a repository that was made by hand, or would complete one, or is named in a config.

    Git takes any folder for a repository that has ``HEAD``, ``objects`` and ``refs``, and runs what its ``config`` says
    (``core.fsmonitor``, ``core.hooksPath``, filters, ``include.path``). What a config names may be an ordinary file.
    """
    place = root
    written = root.joinpath(*path.split("/"))
    above = [*reversed(root.parents), root]
    for part in written.relative_to(root).parts:
        place /= part
        above.append(place)
    for folder, inside in pairwise(above):
        if {*_list_names(folder), _fold_name(inside.name)} >= _REPOSITORY:
            return True
    return any(_names_file(top, written) for top in above[:-1])


def _list_names(folder: Path) -> Iterator[str]:
    """Yield those names of a repository that a folder has."""
    for name in ("HEAD", "objects", "refs"):
        if os.path.lexists(folder / name):
            yield name.lower()


def _names_file(top: Path, written: Path) -> bool:
    """Return whether the configuration of a repository names a file, or a folder that it is in."""
    try:
        with (top / ".git" / "config").open("rb") as file:
            text = file.read(_MOST_OF_CONFIG).decode("utf-8", "replace")
    except OSError:
        return False
    for value in _CONFIG_VALUE.findall(text):
        for word in {value.strip().strip('"'), *re.split(r"[\s\"';|&=]+", value)}:
            for base in (top, top / ".git"):
                named = Path(os.path.normpath(base / word)) if word else top
                if named not in (top, base) and top in named.parents and (named == written or named in written.parents):
                    return True
    return False


def _is_hidden_name(name: str) -> bool:
    """Return whether a folded name is hidden, and none of those that run nothing."""
    return name.startswith(".") and name not in {"", ".", ".."} and name not in _INERT


def _fold_name(name: str) -> str:
    """Return a name as the least exact of file systems takes it."""
    seen = "".join(character for character in name.translate(_SEEMING_DOTS) if not is_hidden(character))
    plain = unicodedata.normalize("NFKC", seen).casefold().partition(":")[0]
    return plain if plain in {".", ".."} else plain.rstrip(". \u3000")


def asks_before_writing(folder: RootFolder) -> Callable[[Mapping[str, Any]], str]:
    """Return a function of a call's arguments that gives the reason why writing a file needs approval; else nothing."""

    def find_reason(arguments: Mapping[str, Any]) -> str:
        try:
            path = folder.spell(str(arguments["path"]))
        except ToolError:
            return ""  # the call fails, with the reason
        if not is_executed_later(path) and not _is_read_by_git(folder.path, path):
            return ""
        return f"Writing '{escape_in_name(path)}' needs approval: something may run it later without being asked to."

    return find_reason


def guard_link(folder: RootFolder, path: str) -> Callable[[Found], None]:
    """Return a check that refuses a path that leads through a link to a file that needs approval."""

    def check(found: Found) -> None:
        is_run = is_executed_later(found.path) or _is_read_by_git(folder.path, found.path)
        given = folder.spell(path)
        if is_run and not (is_executed_later(given) or _is_read_by_git(folder.path, given)):
            raise ToolFailedError(
                f"'{path}' leads through a link to '{escape_in_name(found.path)}'. Give that path itself, "
                "so that it can be approved. Nothing was changed."
            )

    return check


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """The text of a file, its line ends as they are.

    Args:
        text: Without the byte order mark.
        encoding: In which it was read, and is to be written.
        mark: The byte order mark, or nothing.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def line_end(self) -> Literal["\n", "\r\n"]:
        """The line end that most lines have."""
        windows = self.text.count("\r\n")
        return "\r\n" if windows * 2 > self.text.count("\n") else "\n"

    def encoded(self, text: str, path: str) -> bytes:
        """Return another text encoded like the file: same encoding, same byte order mark.

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
    """Return the text of a file: in the named encoding, that of its byte order mark, or UTF-8.

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
    """Return whether the start of a file contains a NUL, as no text without a byte order mark does."""
    return b"\0" in data[:_LOOKED_AT] and _read_mark(data)[1] is None


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models can see, by its first bytes."""
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
