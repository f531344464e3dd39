"""How long an event loop is held: the CPU time of its thread between two turns; other processes don't lengthen it."""

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import trio

__all__ = ["LONGEST_TURN", "METER", "TurnMeter", "longest_hold", "longest_turn", "slowness"]

LONGEST_TURN = 0.05
"""Seconds of CPU time that nothing may hold an event loop, on a machine that does the reference work in its time."""
_REFERENCE_SECONDS = 0.005


def slowness() -> float:
    """Return how many times as long as on the reference machine a piece of work takes here and now; 1 at least."""
    value = {str(number): [number, {"a": "b" * 20}] for number in range(2_000)}
    best = min(_time_of(lambda: [json.loads(json.dumps(value)) for _ in range(2)]) for _ in range(3))
    return max(1.0, best / _REFERENCE_SECONDS)


def _time_of(run: Callable[[], object]) -> float:
    before = time.thread_time()
    run()
    return time.thread_time() - before


class TurnMeter(trio.abc.Instrument):
    """Measures turns: of event loops that it is given to, and of functions that hold one for as long as they run.

    Attributes:
        longest: The longest turn so far, in seconds.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = 0.0

    def note(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)

    def during(self, run: Callable[[], Any]) -> Any:
        """Call a function that an event loop would wait for; return what it does."""
        before = time.thread_time()
        try:
            return run()
        finally:
            self.note(time.thread_time() - before)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.note(time.thread_time() - self._began)

    def make_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop of asyncio that is measured."""
        meter = self

        class MeasuredLoop(asyncio.SelectorEventLoop):
            def _run_once(self) -> None:
                base: Any = super()
                meter.during(base._run_once)

        return MeasuredLoop()

    def run(self, function: Callable[[], Awaitable[Any]], backend: str = "asyncio", **options: Any) -> Any:
        """Run an async function to its end, with options of the backend."""
        own: dict[str, Any] = {"loop_factory": self.make_loop} if backend == "asyncio" else {"instruments": [self]}
        return anyio.run(partial(_call, function), backend=backend, backend_options={**own, **options})


METER = TurnMeter()
"""The meter of the fuzzers, one in a process, however their modules are named."""


async def _call(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()


def longest_turn(function: Callable[[], Awaitable[Any]], backend: str = "asyncio") -> float:
    """Return the longest turn of an event loop that runs a function, in seconds of the reference machine."""
    meter = TurnMeter()
    gc.freeze()  # for good: what is there already is looked through no more, which would be part of some turn
    meter.run(function, backend)
    return meter.longest / slowness()


class _HoldMeter(TurnMeter):
    """Measures the CPU time of the whole process between two turns of a loop that is always ready."""

    def make_loop(self) -> asyncio.AbstractEventLoop:
        meter = self

        class MeasuredLoop(asyncio.SelectorEventLoop):
            before: float | None = None

            def _run_once(self) -> None:
                now = time.process_time()
                meter.note(0.0 if self.before is None else now - self.before)
                self.before = now
                base: Any = super()
                base._run_once()

        return MeasuredLoop()


def longest_hold(function: Callable[[], Awaitable[Any]]) -> float:
    """Return how long the event loop is kept from a turn, also by threads that hold the interpreter's lock.

    The seconds are those of the reference machine.
    """

    async def beside_what_is_always_ready() -> None:
        async def tick() -> None:
            while True:
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            await function()
            tasks.cancel_scope.cancel()

    meter = _HoldMeter()
    gc.freeze()
    meter.run(beside_what_is_always_ready)
    return meter.longest / slowness()
