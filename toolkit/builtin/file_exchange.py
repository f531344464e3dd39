"""Two files take each other's names in one step, on the systems that can."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache

__all__ = ["exchange_files"]

_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
_NOT_SUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_FUNCTIONS = {"linux": "renameat2", "darwin": "renameatx_np"}


def exchange_files(folder: int, one: str, other: str) -> bool:
    """Exchange what two names in a folder stand for, and return whether this system and file system can.

    Args:
        folder: The descriptor of the folder.
        one: A name in it.
        other: Another name in it.

    Raises:
        OSError: One of them is not there, or the folder can't be written.
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
