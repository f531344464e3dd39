"""What only the backend itself can tell or do well: the one module that knows asyncio."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

import anyio

__all__ = ["AsyncioCancelledError", "cancellation_mark", "gather", "is_own_cancellation"]

AsyncioCancelledError = asyncio.CancelledError

_get_running_loop = asyncio._get_running_loop


def cancellation_mark() -> int | None:
    """Return how often the current task was asked to cancel; None where asyncio is not running."""
    if _get_running_loop() is None:
        return None
    task = asyncio.current_task()
    return None if task is None else task.cancelling()


def is_own_cancellation(mark: int | None) -> bool:
    """Whether a CancelledError that came out of a call was raised by the call itself.

    It was if nobody asked the task to cancel since `mark` was taken, and no scope round it is cancelled.
    """
    if mark is None:
        return False
    now = cancellation_mark()
    return now is not None and now <= mark and anyio.current_effective_deadline() != -math.inf


async def gather(calls: Sequence[Callable[[], Awaitable[None]]], limit: int | None) -> None:
    """Run all at once, or at most `limit`, and wait for all."""
    limiter = anyio.Semaphore(limit or len(calls) or 1)

    async def one(call: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            await call()

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
