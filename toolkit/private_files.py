"""Files that are for their owner alone, as those that hold conversations are."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

_logger = logging.getLogger("toolkit.private_files")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(path: Path, *beside: str) -> None:
    """Create a file, or restrict an existing one to its owner.

    On Windows, where folders decide, it is only made.

    Args:
        path: Its folder must be there.
        beside: The endings of the names of files that belong to it, such as ``-wal``; none of them is created.

    Raises:
        OSError: It can't be made.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return
    # By its name: closing a descriptor would end the locks that a database of this process has on it.
    for file in (path, *(path.with_name(path.name + ending) for ending in beside)) if os.name == "posix" else ():
        with suppress(FileNotFoundError):
            _narrow_mode(file)


def replace_private(path: Path, text: str) -> None:
    """Write a file for its owner alone in one step, so that no half of it is ever there.

    Raises:
        OSError: It can't be written; a file that was there is as it was.
    """
    fresh = path.with_name(f".{path.name}.new")
    make_private(fresh)
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


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
