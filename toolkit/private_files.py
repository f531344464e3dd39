"""Files that only their owner can read, such as those with conversations, and databases in such files."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

from toolkit.logs import get_logger

_logger = get_logger("toolkit.private_files")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BUSY = 5  # SQLite's code; its variants differ in the higher bits


def make_private(path: Path, *beside: str) -> None:
    """Create a file, or restrict an existing one to its owner.

    On Windows, where folders determine access, it is only created.

    Args:
        path: The file; its folder must exist.
        beside: The suffixes of files that belong to it, such as ``-wal``, to restrict if they exist.

    Raises:
        OSError: It can't be created.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return
    # By name, because closing a descriptor would release the locks of a database in this process.
    for file in (path, *(path.with_name(path.name + ending) for ending in beside)) if os.name == "posix" else ():
        with suppress(FileNotFoundError):
            _narrow_mode(file)


def replace_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically.

    Raises:
        OSError: It can't be written; an existing file is unchanged.
    """
    fresh = path.with_name(f".{path.name}.new")
    make_private(fresh)
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def write_ahead(connection: Connection, busy_seconds: float) -> None:
    """Switch a SQLite database to a write-ahead log, as soon as no other process writes to it.

    SQLite itself waits for other processes at every statement except this one.

    Args:
        connection: A connection to the database, outside of a transaction.
        busy_seconds: The maximum time to wait.

    Raises:
        OperationalError: Other processes have written to it all the time.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _narrow_mode(path: Path) -> None:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if not mode & _OTHERS or not stat.S_ISREG(status.st_mode):
        return
    try:
        path.chmod(mode & ~_OTHERS)
    except PermissionError:
        _logger.warning("others may read %s, which holds conversations, and it is not yours to change", path)
    else:
        _logger.warning(
            "others could read %s, which holds conversations: its mode was %o, and is %o", path, mode, mode & ~_OTHERS
        )
