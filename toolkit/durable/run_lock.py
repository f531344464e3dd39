"""A lock on one run, which ends with the process that has it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["RunLock"]


class RunLock:
    """A file beside a database, locked while it is open: the system frees it with the end of the process.

    Args:
        path: The file; made where there is none, and removed when the lock is given back.

    Raises:
        BlockingIOError: Somebody else has it.
    """

    __slots__ = ("_descriptor", "_path", "_process")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._descriptor: int | None = None
        while self._descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _claim_file(descriptor)
            except OSError as error:
                os.close(descriptor)
                raise BlockingIOError(f"'{path}' is locked") from error
            if self._is_of_file(descriptor):
                self._descriptor = descriptor
            else:  # who had it has removed the file meanwhile
                os.close(descriptor)

    def release(self) -> None:
        """Give the lock back; twice is fine."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._process == os.getpid():  # a forked process has a copy, and not the lock
            with suppress(OSError):  # on Windows, where an open file can't be removed
                self._path.unlink()
        os.close(descriptor)

    def _is_of_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def _claim_file(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
