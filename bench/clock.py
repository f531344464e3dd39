"""What both sides measure with: CPU time in batches, of which the least counts; or instructions, which repeat."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import textwrap
import time
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

from bench.instructions import MARKS, count, count_async

QUICK = os.environ.get("TOOLKIT_BENCH_QUICK") == "1"
LOOPS = 20 if MARKS else 200 if QUICK else 1_000
"""How many loops run at once; a thousand would take half a minute under callgrind."""
BATCHES = 3 if QUICK else 9


def sized(count: int) -> int:
    """Return how often to repeat something: a fifth in quick mode, a hundredth where instructions are counted."""
    return max(1, count // (100 if MARKS else 5 if QUICK else 1))


class OtherWork:
    """What a program does while a model answers, and the time of that, which is not counted.

    What is repeated without a break stays in the processor's memories: its instructions, its data and which way each
    branch went; and the shorter it is, the more of it stays. Where a model answers, other code runs meanwhile.
    """

    _source = inspect.getsource(textwrap)
    spent = 0.0

    @classmethod
    def do(cls) -> None:
        """Do some milliseconds of it."""
        began = time.process_time()
        ast.parse(cls._source)
        cls.spent += time.process_time() - began


def _read_time() -> float:
    return time.process_time() - OtherWork.spent


def cpu_of(work: Callable[[], object], units: int) -> float:
    """Return microseconds of CPU (user and system, all threads) for one of the `units` that `work` does.

    Where instructions are counted, return thousands of them.
    """
    if MARKS:
        return count(work, units)
    work()
    spent: list[float] = []
    for _ in range(BATCHES):
        began = _read_time()
        work()
        spent.append(_read_time() - began)
    return min(spent) / units * 1e6


async def cpu_of_async(work: Callable[[], Coroutine[Any, Any, object]], units: int) -> float:
    """Do the same with something to await, within one event loop."""
    if MARKS:
        return await count_async(work, units)
    await work()
    spent: list[float] = []
    for _ in range(BATCHES):
        began = _read_time()
        await work()
        spent.append(_read_time() - began)
    return min(spent) / units * 1e6


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
