"""Runs the calls of a unit, one or many, each under the frame that loops inside it inherit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Generic

import anyio

from toolkit.loop.depth import LoopFrame, current_frame
from toolkit.tools.backend import gather
from toolkit.tools.execution import ExecutionPolicy, Ready, run
from toolkit.tools.handler import Ctx

if TYPE_CHECKING:
    from toolkit.loop.listener import Listener
    from toolkit.loop.state import LoopState, RunTools

__all__ = ["Dispatcher"]


class Dispatcher(Generic[Ctx]):
    """Runs calls and feeds the machine: that a call started, and its result the moment it lands."""

    __slots__ = ("_ctx", "_frame", "_listener", "_policy", "_state")

    def __init__(
        self, state: LoopState, ctx: Ctx, policy: ExecutionPolicy, frame: LoopFrame, listener: Listener | None
    ) -> None:
        self._state = state
        self._ctx = ctx
        self._policy = policy
        self._frame = frame
        self._listener = listener

    async def run(self, step: RunTools, ready: Mapping[str, Ready[Ctx]]) -> None:
        """Run the calls of one step to their results."""
        if self._listener is None or not self._listener.needs_pump:
            if len(step.calls) == 1:
                await self._run_one(ready[step.calls[0].id])
            else:
                await self._run_all(step, ready)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listener.pump)
                await self._run_all(step, ready)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # What no `Exception` is passes out as itself; beside it there can only be cancellations.
            cancelled = anyio.get_cancelled_exc_class()
            raise next(error for error in group.exceptions if not isinstance(error, cancelled)) from None

    async def _run_all(self, step: RunTools, ready: Mapping[str, Ready[Ctx]]) -> None:
        if len(step.calls) == 1:
            await self._run_one(ready[step.calls[0].id])
        else:
            await gather([partial(self._run_one, ready[call.id]) for call in step.calls], step.limit)

    async def _run_one(self, ready: Ready[Ctx]) -> None:
        self._state.tool_started(ready.call.id)
        token = current_frame.set(self._frame)
        try:
            await run(ready, self._ctx, self._policy, depth=self._frame.depth, keep=self._state.tool_returned)
        finally:
            current_frame.reset(token)
