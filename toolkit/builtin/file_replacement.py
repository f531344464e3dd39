"""One file in the place of another: whole or not at all, and never over what somebody else has written meanwhile."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from toolkit.builtin.file_exchange import exchange_files
from toolkit.errors import ToolFailedError
from toolkit.visible_text import escape_in_name

__all__ = ["OPEN_PLAINLY", "lock_folder", "replace_file"]

_LOCK_SECONDS = 10.0
_LOCK_PAUSE = 0.01

OPEN_PLAINLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags that open a file without following a link, waiting for a pipe, or handing it on to programs."""


@contextmanager
def lock_folder(folder: int, path: str) -> Generator[None]:
    """Hold the lock that all processes share that change files in a folder; where there are no locks, hold none."""
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
            break  # some network file systems have none; what was changed meanwhile is found all the same
    try:
        yield
    finally:
        if is_locked:
            fcntl.flock(folder, fcntl.LOCK_UN)


def replace_file(folder: int, name: str, data: bytes, *, status: os.stat_result | None, expected: bytes | None) -> bool:
    """Write beside a file and give it the file's name when all is on the disk; return whether it did.

    Args:
        folder: The descriptor of its folder.
        name: Its name there.
        data: All that it shall hold.
        status: The file as it is now, whose mode and owner are kept; None where there is none.
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
        with suppress(FileNotFoundError):  # it has the file's name already
            os.unlink(temporary, dir_fd=folder)


def _put_in_place(folder: int, name: str, temporary: str, expected: bytes) -> bool:
    """Exchange two files, look at the one that came out, and exchange them again if it is not what was read.

    So no change of somebody else's is lost, however late it came. What is left under the temporary name is not wanted.
    """
    if not exchange_files(folder, temporary, name):  # not on this system: then look before
        if not _holds_content(folder, name, expected):
            return False
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    if _holds_content(folder, temporary, expected):
        return True
    exchange_files(folder, temporary, name)
    return False


def _holds_content(folder: int, name: str, expected: bytes) -> bool:
    """Return whether a name is that of a regular file with this content."""
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
        with suppress(PermissionError):  # only root gives files away; else the writer owns it, as with any editor
            os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
