"""Runs the calls of a unit, one or many, and beside them what delivers their reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio

from toolkit.calls.prepare import Ready
from toolkit.calls.run import run
from toolkit.loop.approvals import Approvals
from toolkit.loop.depth import current_call_id, current_frame
from toolkit.loop.resources import LoopResources
from toolkit.loop.steps import RunTools
from toolkit.runtime.call_clock import CallClock
from toolkit.runtime.contexts import run_in_own_context
from toolkit.runtime.gathering import gather
from toolkit.tools.handler import Ctx

__all__ = ["run_unit"]


async def run_unit(step: RunTools, resources: LoopResources[Ctx], approvals: Approvals[Ctx], clock: CallClock) -> None:
    """Run calls to their results, at most ``step.limit`` at once; a message that was steered meanwhile skips them.

    Each call has a copy of the context variables to itself.

    Args:
        step: The calls.
        resources: The resources of the loop.
        approvals: Has the calls as they were prepared.
        clock: Counts the time of a call that is awaited here, by itself.
    """
    steering = resources.config.steering
    if steering is not None:
        steered = steering.take_steered()
        if steered:
            resources.state.steered(steered)
            return
    ready = [approvals.ready[call.id] for call in step.calls]
    listener = resources.listener
    if listener is None or not listener.needs_pump or not _may_report(ready):
        # What stands around a call may have a scope of its own open when that ends, which must not be left before it.
        await _run_all(ready, resources, step.limit, clock if resources.policy.around is None else None)
        return
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.pump)
            await _run_all(ready, resources, step.limit, None)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # What no `Exception` is passes out as itself; beside it there can only be cancellations.
        cancelled = anyio.get_cancelled_exc_class()
        raise next(error for error in group.exceptions if not isinstance(error, cancelled)) from None


def _may_report(calls: Sequence[Ready[Any]]) -> bool:
    return any(ready.registration.may_report for ready in calls)


async def _run_all(
    calls: Sequence[Ready[Ctx]], resources: LoopResources[Ctx], limit: int | None, clock: CallClock | None
) -> None:
    if len(calls) == 1:
        await run_in_own_context(partial(_run_call, calls[0], resources, clock))
    else:
        await gather([partial(_run_call, ready, resources, None) for ready in calls], limit)


async def _run_call(ready: Ready[Ctx], resources: LoopResources[Ctx], clock: CallClock | None) -> None:
    """Run one call, telling the machine that it started and ended."""
    state, frame = resources.state, resources.frame
    current_frame.set(frame)  # which loops inside the call inherit; nobody else has this context
    current_call_id.set(ready.call.id)
    state.tool_started(ready.call.id)
    await run(
        ready,
        resources.ctx,
        resources.policy,
        depth=frame.depth,
        keep=state.tool_returned,
        cut=state.tool_cut,
        memory=resources.memory,
        clock=clock,
    )
