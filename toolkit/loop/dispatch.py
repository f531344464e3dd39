"""Runs the calls of a unit, one or many, and beside them what delivers their reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from toolkit.tools.backend import gather
from toolkit.tools.handler import Ctx
from toolkit.tools.prepare import Ready

if TYPE_CHECKING:
    from toolkit.loop.listener import Listener

__all__ = ["run_unit"]


async def run_unit(
    run_call: Callable[[Ready[Ctx]], Awaitable[None]],
    calls: Sequence[Ready[Ctx]],
    limit: int | None,
    listener: Listener | None,
) -> None:
    """Run calls to their results, at most `limit` at once; a single one in this task."""
    if listener is None or not listener.needs_pump or not any(ready.registration.may_report for ready in calls):
        await _run_all(run_call, calls, limit)
        return
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.pump)
            await _run_all(run_call, calls, limit)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # What no `Exception` is passes out as itself; beside it there can only be cancellations.
        cancelled = anyio.get_cancelled_exc_class()
        raise next(error for error in group.exceptions if not isinstance(error, cancelled)) from None


async def _run_all(
    run_call: Callable[[Ready[Ctx]], Awaitable[None]], calls: Sequence[Ready[Ctx]], limit: int | None
) -> None:
    if len(calls) == 1:
        await run_call(calls[0])
    else:
        await gather([partial(run_call, ready) for ready in calls], limit)
