"""Calls at once, each in a task of its own, on asyncio and on trio."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint_if_cancelled

from toolkit.runtime.backend import AsyncCall, AsyncioGathering, is_on_asyncio, raise_first

__all__ = ["gather"]


async def gather(calls: Sequence[AsyncCall], limit: int | None) -> None:
    """Run calls at once, each in a task of its own, and return when all have ended.

    Calls must not raise an `Exception`. When one raises anything, or this is cancelled, no other starts, those that run
    are cancelled once and waited for however long they take, and what was raised comes out as it is, never in a group.
    On asyncio that cancellation is the standard library's: anyio's shields inside of a call don't hold it off.

    Args:
        calls: Started in this order, each in a copy of the current context.
        limit: How many run at the same time; None for all.
    """
    if is_on_asyncio():
        # Calls begin at once on newer Pythons: a caller that is cancelled already must start none.
        await checkpoint_if_cancelled()
        await AsyncioGathering(calls, limit).run()
    else:
        await _gather_in_nursery(calls, limit)


async def _gather_in_nursery(calls: Sequence[AsyncCall], limit: int | None) -> None:
    failures: list[BaseException] = []
    places = anyio.Semaphore(len(calls) if limit is None else limit)
    cancelled = anyio.get_cancelled_exc_class()

    async def run_guarded(call: AsyncCall, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            await call()
        except cancelled:
            raise
        except BaseException as error:  # noqa: BLE001  # carried to the caller, which a nursery would put in a group
            failures.append(error)
            tasks.cancel_scope.cancel()
        finally:
            places.release()

    try:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                await places.acquire()
                await tasks.start(run_guarded, call)  # in order: a nursery shuffles what is started together
    finally:
        raise_first(failures)
