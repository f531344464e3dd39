"""What must not run together: how many calls of a tool at once, and which never beside each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import RunVar

from toolkit.tools.output import to_output

__all__ = ["keyed_lock", "limiter"]

_limiters: RunVar[dict[int, tuple[object, anyio.CapacityLimiter]]] = RunVar("toolkit_limiters")
_locks: RunVar[dict[tuple[int, object], tuple[anyio.Lock, list[None]]]] = RunVar("toolkit_locks")


def limiter(tool: object, concurrency: int) -> anyio.CapacityLimiter:
    """Return what lets so many calls of a tool run at once on this event loop."""
    limiters = _limiters.get(None)
    if limiters is None:
        _limiters.set(limiters := {})
    # The tool is kept beside its limiter, so that its id is not given to another.
    return limiters.setdefault(id(tool), (tool, anyio.CapacityLimiter(concurrency)))[1]


@asynccontextmanager
async def keyed_lock(tool: object, key: object) -> AsyncGenerator[None]:
    """Hold the lock that the calls of a tool with the same key share; it is forgotten when nobody needs it."""
    locks = _locks.get(None)
    if locks is None:
        _locks.set(locks := {})
    try:
        hash(key)
    except TypeError:
        key = to_output(key).text  # a list of paths, say
    lock, users = locks.setdefault((id(tool), key), (anyio.Lock(), []))
    users.append(None)
    try:
        async with lock:
            yield
    finally:
        users.pop()
        if not users:
            locks.pop((id(tool), key), None)
