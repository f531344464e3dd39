"""Runs the calls of a unit, one or many, and beside them what delivers their reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import anyio

from toolkit.calls.handler import Ctx
from toolkit.calls.prepare import Ready
from toolkit.calls.run import run
from toolkit.loop.depth import LoopFrame, current_call_id, current_frame
from toolkit.loop.feeds import CallStarted
from toolkit.loop.listener import Listener
from toolkit.loop.resources import LoopResources
from toolkit.loop.steps import RunTools
from toolkit.runtime.backend import gather, run_in_own_context
from toolkit.runtime.call_clock import CallClock

_prepared_of = attrgetter("prepared")

__all__ = ["run_beside_pump", "run_call", "run_unit"]


async def run_unit(step: RunTools, resources: LoopResources[Ctx], clock: CallClock) -> None:
    """Run calls to their results, at most ``step.limit`` at once; a message that was steered meanwhile skips them.

    Each call has a copy of the context variables to itself.

    Args:
        step: The calls.
        resources: The resources of the loop.
        clock: Counts the time of a call that is awaited here, by itself.
    """
    steering = resources.config.steering
    if steering is not None:
        steered = steering.take_steered()
        if steered:
            resources.steer(steered)
            return
    listener, frame = resources.listener, resources.frame
    ready: list[Ready[Ctx]] = list(map(_prepared_of, step.calls))
    has_pump = listener is not None and listener.needs_pump and _may_report(ready)
    if len(ready) > 1:
        run_calls = partial(gather, [partial(run_call, each, resources, None, frame) for each in ready], step.limit)
        await (run_calls() if listener is None or not has_pump else run_beside_pump(listener, run_calls))
    elif listener is not None and has_pump:
        run_lone = partial(run_call, ready[0], resources, None, frame)
        await run_beside_pump(listener, partial(run_in_own_context, run_lone))
    else:
        # What stands around a call may have a scope of its own open when that ends, which must not be left before it.
        own = None if resources.policy.around is not None else clock
        await run_in_own_context(run_call, ready[0], resources, own, frame)


async def run_beside_pump(listener: Listener, run_calls: Callable[[], Awaitable[None]]) -> None:
    """Run calls while their reports are delivered."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.pump)
            await run_calls()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # What no `Exception` is passes out as itself; beside it there can only be cancellations.
        cancelled = anyio.get_cancelled_exc_class()
        raise next(error for error in group.exceptions if not isinstance(error, cancelled)) from None


def _may_report(calls: Sequence[Ready[Any]]) -> bool:
    return any(ready.registration.may_report for ready in calls)


async def run_call(ready: Ready[Ctx], resources: LoopResources[Ctx], clock: CallClock | None, frame: LoopFrame) -> None:
    """Run one call in a context of its own, telling the machine that it started and ended."""
    current_frame.set(frame)  # which loops inside the call inherit; nobody else has this context
    current_call_id.set(ready.call.id)
    resources.feed(CallStarted(ready.call.id))
    await run(ready, resources.host, clock)
