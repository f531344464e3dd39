"""What must not run together: how many calls of a tool at once, and which never beside each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import anyio
from anyio.lowlevel import RunVar

from toolkit.tools.output import to_output

__all__ = ["keyed_lock", "limiter"]

_Gate: TypeAlias = "anyio.Lock | anyio.CapacityLimiter"  # named only: to load them takes 2 ms

_gates: RunVar[dict[object, tuple[_Gate, list[None]]]] = RunVar("toolkit_gates")


def limiter(tool: object, concurrency: int) -> AbstractAsyncContextManager[None]:
    """Return what lets so many calls of a tool run at once on this event loop."""
    return _through((id(tool), "limiter", concurrency), lambda: anyio.CapacityLimiter(concurrency))


def keyed_lock(tool: object, key: object) -> AbstractAsyncContextManager[None]:
    """Return what lets calls of a tool with the same key run one after the other."""
    try:
        hash(key)
    except TypeError:
        key = to_output(key).text  # a list of paths, say
    return _through((id(tool), "lock", key), anyio.Lock)


@asynccontextmanager
async def _through(name: object, make: Callable[[], _Gate]) -> AsyncGenerator[None]:
    """Hold the gate of this name, which is forgotten when nobody needs it; until then its tool is there, and its id."""
    gates = _gates.get(None)
    if gates is None:
        _gates.set(gates := {})
    if name not in gates:
        gates[name] = (make(), [])
    gate, users = gates[name]
    users.append(None)
    try:
        async with gate:
            yield
    finally:
        users.pop()
        if not users:
            gates.pop(name, None)
