"""What both sides measure with: CPU time in batches, of which the median counts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

QUICK = os.environ.get("TOOLKIT_BENCH_QUICK") == "1"
BATCHES = 3 if QUICK else 9


def sized(count: int) -> int:
    """Return how often to repeat something: a fifth in quick mode."""
    return max(1, count // 5) if QUICK else count


def cpu_of(work: Callable[[], object], units: int) -> float:
    """Return microseconds of CPU (user and system, all threads) for one of the `units` that `work` does."""
    work()
    spent: list[float] = []
    for _ in range(BATCHES):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return median(spent) / units * 1e6


async def cpu_of_async(work: Callable[[], Coroutine[Any, Any, object]], units: int) -> float:
    """Do the same with something to await, within one event loop."""
    await work()
    spent: list[float] = []
    for _ in range(BATCHES):
        began = time.process_time()
        await work()
        spent.append(time.process_time() - began)
    return median(spent) / units * 1e6


def on_asyncio(work: Callable[[], Coroutine[Any, Any, object]], units: int) -> float:
    """Run `cpu_of_async` in an event loop of its own."""
    return asyncio.run(cpu_of_async(work, units))


def wall_of(work: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """Return milliseconds of wall time."""

    async def measured() -> float:
        await work()
        spent: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            await work()
            spent.append(time.perf_counter() - began)
        return median(spent) * 1e3

    return asyncio.run(measured())
