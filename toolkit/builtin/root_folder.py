"""A root folder that no path can leave: paths are walked from its descriptor, one name at a time.

The kernel never follows a link or a ``..`` here. A link is read and its target walked in the same way, ``..`` goes back
to a folder that is already open, and the opened file is checked again through its descriptor. So swapping files between
check and use has no effect. A file with several hard links may come from outside: it is not read unless `RootFolder`
allows it; writing replaces the name inside and leaves the file outside unchanged. Files are replaced atomically, and
never over a concurrent change of another program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import posixpath
import secrets
import stat
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ToolError, ToolFailedError
from toolkit.foreign_text import escape_in_name
from toolkit.settings import check_setting
from toolkit.suggestions import ask_whether_meant, find_similar

_MOST_LINKS = 40
DEEPEST = 256
"""The maximum depth of folders; each open folder takes a descriptor of the process."""
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Intermediate folders need not be readable, if the platform supports that.
_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER_FLAGS

# One change at a time in this process, so that concurrent edits of a file are not lost.
_changing = Lock()
_LOCK_SECONDS = 10.0
_LOCK_PAUSE = 0.01
OPEN_PLAINLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for opening a file without following a link, blocking on a pipe, or inheritance by child processes."""
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
_NOT_SUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_FUNCTIONS = {"linux": "renameat2", "darwin": "renameatx_np"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The target of a path.

    Args:
        folder: The descriptor of its parent folder, open during the block of `RootFolder.find`.
        name: Its name there; ``.`` for the root itself.
        parts: The names from the root, with links resolved.
        status: The status of the entry; None if it does not exist.
    """

    folder: int
    name: str
    parts: tuple[str, ...]
    status: os.stat_result | None

    @property
    def path(self) -> str:
        """The path from the root, as a model writes it."""
        return "/".join(self.parts) or "."

    @property
    def is_folder(self) -> bool:
        """True if it is an existing folder."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


class RootFolder:
    """The only folder that file tools can access.

    Args:
        path: The folder; links in this path are resolved once, on creation.
        hard_links: True to allow reading files with several names, as package managers (pnpm, uv) create them. By
            default they are refused, because the other names may be outside of the folder.

    Raises:
        ConfigurationError: The folder does not exist, or the platform has no folder descriptors.
    """

    __slots__ = ("_given", "hard_links", "path")

    def __init__(self, path: str | os.PathLike[str], *, hard_links: bool = False) -> None:
        check_setting("hard_links", hard_links, bool)
        self.hard_links: bool = hard_links
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise ConfigurationError(
                "file tools over a root folder need a platform that opens files relative to a folder: Linux or macOS"
            )
        self._given = Path(os.path.abspath(path))  # noqa: PTH100  # without following links, unlike resolve()
        try:
            self.path: Path = self._given.resolve(strict=True)
        except OSError as error:
            raise ConfigurationError(f"the root folder {path} can't be used: {error.strerror}") from error
        if not self.path.is_dir():
            raise ConfigurationError(f"the root folder {path} can't be used: it is not a folder")

    def __repr__(self) -> str:
        return f"RootFolder({str(self.path)!r})"

    @contextmanager
    def find(self, path: str) -> Generator[Found]:
        """Walk to a path, which need not exist, although its parent folder must.

        Raises:
            ToolError: The path leads out of the root, or can't be walked; the message has the remedy.
        """
        with ExitStack() as stack:
            try:
                yield self._walk_path(path, stack)
            except OSError as error:
                raise explained(error, path) from error

    @contextmanager
    def open_file(self, path: str) -> Generator[tuple[int, Found]]:
        """Open a regular file for reading; pipes and devices are refused without blocking."""
        with self.find(path) as found:
            descriptor = _open_found(found, path, os.O_RDONLY)
            try:
                if not self.may_read(os.fstat(descriptor)):
                    raise ToolFailedError(
                        f"'{escape_in_name(path)}' has other names (hard links), "
                        "which may be outside of the folder that may be used, "
                        "and is not read."
                    )
                yield descriptor, found
            finally:
                os.close(descriptor)

    def may_read(self, status: os.stat_result) -> bool:
        """Return True if an open file may be read, by its number of hard links."""
        return self.hard_links or status.st_nlink <= 1

    def spell(self, path: str) -> str:
        """Return a lexically normalized path relative to the root, without resolving links.

        Raises:
            ToolError: It is not a path, or is an absolute path outside of the root.
        """
        return posixpath.normpath("/".join(self._split_path(path)[::-1]))

    @contextmanager
    def open_folder(self, path: str) -> Generator[tuple[int, Found]]:
        """Open a folder."""
        with self.find(path) as found:
            _require_file(found, path)
            if not found.is_folder:
                raise ToolFailedError(
                    f"'{escape_in_name(path)}' is a file, not a folder. Give the folder that it is in."
                )
            descriptor = os.open(found.name, _FOLDER_FLAGS, dir_fd=found.folder)
            try:
                yield descriptor, found
            finally:
                os.close(descriptor)

    def make_folders(self, path: str, *, check: Callable[[str], None] | None = None) -> None:
        """Create the missing parent folders of a file.

        Args:
            path: The file.
            check: Called with its path, with links resolved, before anything is created; its exceptions propagate.

        Raises:
            ToolError: They can't be created, or the path is not that of a file.
        """
        parts = self._split_path(path)[::-1]
        if parts[-1] in ("", ".", ".."):
            raise ToolFailedError(f"'{escape_in_name(path)}' is a folder. Give the name of a file in it.")
        if len(parts) > DEEPEST:
            raise explained(_refuse_depth(), path)
        for end in range(1, len(parts)):
            if parts[end - 1] in ("", ".", ".."):
                continue
            with self.find("./" + "/".join(parts[:end])) as found:
                if found.status is None:
                    if check is not None:
                        check(posixpath.normpath("/".join((found.path, *parts[end:]))))
                    with suppress(FileExistsError):  # another process created it first
                        os.mkdir(found.name, dir_fd=found.folder)

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expected: bytes | None = None,
        check: Callable[[str], None] | None = None,
    ) -> Found:
        """Replace a file atomically, preserving its mode and owner, but not setuid and setgid.

        Its parent folder must exist.

        Args:
            path: The file.
            data: The complete new content.
            expected: The content when it was read; if it has changed meanwhile, the write is undone. None replaces any
                content.
            check: Called with the path, with links resolved, before writing; its exceptions propagate.

        Raises:
            ToolError: It can't be written; nothing has changed.
        """
        with self.find(path) as found:
            if check is not None:
                check(found.path)
            _require_writable(found, path)
            if not replace_file(found.folder, found.name, data, status=found.status, expected=expected):
                raise ToolFailedError(
                    f"'{escape_in_name(path)}' was changed by another process meanwhile. Read it again, then try again."
                )
            return found

    @contextmanager
    def changing(self, path: str) -> Generator[None]:
        """Exclude other changes by this library, in any process, for the duration of the block.

        Raises:
            ToolError: The parent folder does not exist, or could not be locked within 10 seconds.
        """
        with _changing, self.find(path) as found, lock_folder(found.folder, path):
            yield

    def _walk_path(self, path: str, stack: ExitStack) -> Found:
        way = _Way(stack, self._open_root())
        parts = self._split_path(path)
        links = 0
        while parts:
            name = parts.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not way.names:
                    raise self._refuse_outside(path)
                way.leave()
                continue
            status = _stat_name(way, name, parts)
            if status is None:
                return way.found(name, None)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                parts.extend(self._follow_link(way, name, path))
            elif stat.S_ISDIR(status.st_mode):
                way.enter(name)
            elif parts:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            else:
                return way.found(name, status)
        return way.here()

    def _follow_link(self, way: _Way, name: str, path: str) -> list[str]:
        """Return the names in the target of a link, in reverse order."""
        target = os.readlink(name, dir_fd=way.folders[-1])
        if target.startswith("/"):
            way.go_back()
        return self._split_path(target, shown=path)

    def _open_root(self) -> int:
        """Return a descriptor of the root folder, reached without following links."""
        *above, name = self.path.parts
        with ExitStack() as stack:
            folder: int | None = None
            try:
                for passed in above:
                    folder = os.open(passed, _PASSED, dir_fd=folder)
                    stack.callback(os.close, folder)
                return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            except OSError as error:
                raise ToolFailedError(
                    "The working folder is not there any more, or a link has taken the place of a folder above it. "
                    "Nothing can be read or written; tell the user."
                ) from error

    def _split_path(self, path: str, shown: str | None = None) -> list[str]:
        """Return the names in a path from the root, in reverse order."""
        if "\0" in path:
            raise ToolFailedError("A path can't contain the character NUL. Write it without.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise ToolFailedError("The path contains characters that no file name can have.") from error
        if not path.startswith("/"):
            return path.split("/")[::-1]
        for root in (self.path, self._given):
            prefix = str(root).rstrip("/")
            if path == prefix or path.startswith(f"{prefix}/"):
                return path[len(prefix) :].split("/")[::-1]
        raise self._refuse_outside(shown or path)

    def _refuse_outside(self, path: str) -> ToolError:
        return ToolFailedError(
            f"'{escape_in_name(path)}' is outside of the folder that may be used. Give a path relative to that folder."
        )


class _Way:
    """The open folders on the way to a path, starting with the root, and their names without the root's."""

    def __init__(self, stack: ExitStack, root: int) -> None:
        self.folders = [root]
        self.names: list[str] = []
        stack.callback(self._close_descriptors, 0)

    def enter(self, name: str) -> None:
        if len(self.names) == DEEPEST:
            raise _refuse_depth()
        self.folders.append(os.open(name, _FOLDER_FLAGS, dir_fd=self.folders[-1]))
        self.names.append(name)

    def leave(self) -> None:
        self._close_descriptors(len(self.folders) - 1)
        self.names.pop()

    def go_back(self) -> None:
        self._close_descriptors(1)
        self.names.clear()

    def _close_descriptors(self, first: int) -> None:
        while len(self.folders) > first:
            os.close(self.folders.pop())

    def found(self, name: str, status: os.stat_result | None) -> Found:
        return Found(folder=self.folders[-1], name=name, parts=(*self.names, name), status=status)

    def here(self) -> Found:
        """Return the current folder."""
        status = os.fstat(self.folders[-1])
        if not self.names:
            return Found(folder=self.folders[-1], name=".", parts=(), status=status)
        return Found(folder=self.folders[-2], name=self.names[-1], parts=tuple(self.names), status=status)


def explained(error: OSError, path: str) -> ToolError:
    """Convert a file system error to one for the model, with the problem and the remedy."""
    match error.errno:
        case errno.ENOENT:
            why = "there is nothing at that path. list_files shows what is there"
        case errno.EACCES | errno.EPERM:
            why = "permission denied. Use another file, or ask for the right to use this one"
        case errno.ENOSPC | errno.EDQUOT:
            why = "the disk is full. Nothing was changed; free some space first"
        case errno.EROFS:
            why = "the file system is read-only. Nothing was changed"
        case errno.ENOTDIR:
            why = "a part of the path is a file, not a folder"
        case errno.EISDIR:
            why = "it is a folder. Give a file"
        case errno.ELOOP:
            why = "its links go in circles, or it was changed to a link while it was opened"
        case errno.ENAMETOOLONG:
            why = f"the name is too long, or the path goes through more than {DEEPEST} folders. Give a shorter one"
        case _:
            why = error.strerror or type(error).__name__
    return ToolFailedError(f"'{escape_in_name(path)}' can't be used: {why}.")


def _stat_name(way: _Way, name: str, rest: Sequence[str]) -> os.stat_result | None:
    """Return the status of a name in the current folder; None if it does not exist and is the last name of the path."""
    try:
        return os.stat(name, dir_fd=way.folders[-1], follow_symlinks=False)
    except FileNotFoundError:
        if any(part not in ("", ".") for part in rest):
            raise
        return None


def _refuse_depth() -> OSError:
    return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _require_file(found: Found, path: str) -> os.stat_result:
    if found.status is None:
        with os.scandir(found.folder) as entries:
            near = find_similar(found.name, [entry.name for entry in entries], cutoff=0.6)
        if not near:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        paths = [escape_in_name("/".join((*found.parts[:-1], name))) for name in near]
        raise ToolFailedError(f"There is no '{escape_in_name(path)}'. {ask_whether_meant(paths, is_sentence=True)}")
    if found.is_folder or stat.S_ISREG(found.status.st_mode):
        return found.status
    raise _refuse_irregular(path)


def _refuse_irregular(path: str) -> ToolError:
    return ToolFailedError(
        f"'{escape_in_name(path)}' is no regular file but a pipe, socket or device, and is not opened."
    )


def _open_found(found: Found, path: str, flags: int) -> int:
    _require_file(found, path)
    if found.is_folder:
        raise ToolFailedError(f"'{escape_in_name(path)}' is a folder. Give a file in it; list_files shows them.")
    descriptor = os.open(found.name, flags | OPEN_PLAINLY, dir_fd=found.folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # swapped since the check
        os.close(descriptor)
        raise _refuse_irregular(path)
    return descriptor


def _require_writable(found: Found, path: str) -> None:
    """Check that the file itself is writable, which replacing it would not check."""
    if found.status is not None:
        os.close(_open_found(found, path, os.O_WRONLY))


@contextmanager
def lock_folder(folder: int, path: str) -> Generator[None]:
    """Hold the lock for changes of files in a folder, which all processes share, if the file system has locks."""
    end = time.monotonic() + _LOCK_SECONDS
    is_locked = False
    while not is_locked:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ToolFailedError(
                    f"Others keep changing files in the folder of '{escape_in_name(path)}'. Nothing was changed; "
                    "try again."
                ) from None
            time.sleep(_LOCK_PAUSE)
        except OSError:
            break  # some network file systems have no locks; concurrent changes are detected anyway
    try:
        yield
    finally:
        if is_locked:
            fcntl.flock(folder, fcntl.LOCK_UN)


def replace_file(folder: int, name: str, data: bytes, *, status: os.stat_result | None, expected: bytes | None) -> bool:
    """Write a temporary file, sync it to disk and rename it; return False if the content was not the expected one.

    Args:
        folder: The descriptor of the parent folder.
        name: The name of the file there.
        data: The complete new content.
        status: The current status of the file, whose mode and owner are preserved; None if it does not exist.
        expected: The content that it must have, or nothing is changed; None replaces any.

    Raises:
        OSError: It can't be written; nothing has changed.
    """
    temporary = f".{name[:40]}.{secrets.token_hex(6)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_PLAINLY
    descriptor = os.open(temporary, flags, 0o666 if status is None else 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if status is not None:
                _keep_owner_and_mode(file.fileno(), status)
            os.fsync(file.fileno())
        if expected is None:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return True
        return _put_in_place(folder, name, temporary, expected)
    finally:
        with suppress(FileNotFoundError):  # it has been renamed
            os.unlink(temporary, dir_fd=folder)


def _put_in_place(folder: int, name: str, temporary: str, expected: bytes) -> bool:
    """Exchange two files, check the replaced one, and exchange them again if it is not the expected one.

    So no concurrent change is lost. The file left under the temporary name is discarded.
    """
    if not exchange_files(folder, temporary, name):  # unsupported: check before renaming
        if not _holds_content(folder, name, expected):
            return False
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    if _holds_content(folder, temporary, expected):
        return True
    exchange_files(folder, temporary, name)
    return False


def _holds_content(folder: int, name: str, expected: bytes) -> bool:
    """Return True if a name is that of a regular file with this content."""
    try:
        descriptor = os.open(name, os.O_RDONLY | OPEN_PLAINLY, dir_fd=folder)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size == len(expected) and file.read() == expected


def _keep_owner_and_mode(descriptor: int, status: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        with suppress(PermissionError):  # only root can change owners; otherwise the writer owns it, as with editors
            os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)


def exchange_files(folder: int, one: str, other: str) -> bool:
    """Exchange two entries of a folder; return False if the system or file system does not support that.

    Args:
        folder: The descriptor of the folder.
        one: A name in it.
        other: Another name in it.

    Raises:
        OSError: One of them does not exist, or the folder is not writable.
    """
    exchange = _find_function()
    if exchange is None:
        return False
    if exchange(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number))


@cache
def _find_function() -> Callable[[int, bytes, int, bytes, int], int] | None:
    name = _FUNCTIONS.get(sys.platform)
    return None if name is None else getattr(ctypes.CDLL(None, use_errno=True), name, None)
