"""Count instructions of the processor, in a process under callgrind: ``python -m bench.instructions SIDE.MEASURE...``.

`bench.exact` starts it. Each measure runs in a fork of this process, so that none finds what another one has warmed up;
it writes its figure beside the library of marks, whose path is in `TOOLKIT_BENCH_MARKS`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

# Neither asyncio nor what imports it: measures of imports run in forks of this process.

MARKS = os.environ.get("TOOLKIT_BENCH_MARKS", "")
"""The library of marks; empty where time is measured."""


def _warm_ups(units: int) -> range:
    """Return how often to do work before it is counted, so that the interpreter has adapted its code to it."""
    return range(2 + 8 // units)


class Count:
    """The instructions of a ``with`` block, of all threads, without those of the garbage collector."""

    _dumps = 0

    def __init__(self) -> None:
        self._marks = ctypes.CDLL(MARKS)
        self.thousands = 0.0

    def __enter__(self) -> Count:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._marks.start_count()
        return self

    def __exit__(self, *error: object) -> None:
        self._marks.stop_count()
        gc.enable()
        Count._dumps += 1
        dump = Path(MARKS).with_name(f"{os.getpid()}.{Count._dumps}").read_text()
        self.thousands = int(dump.rpartition("totals:")[2]) / 1e3


def count(work: Callable[[], object], units: int) -> float:
    """Return the thousands of instructions for one of the `units` that `work` does."""
    for _ in _warm_ups(units):
        work()
    with Count() as counted:
        work()
    return counted.thousands / units


async def count_async(work: Callable[[], Coroutine[Any, Any, object]], units: int) -> float:
    """Do the same with something to await, within one event loop."""
    for _ in _warm_ups(units):
        await work()
    with Count() as counted:
        await work()
    return counted.thousands / units


def _measure(name: str) -> float:
    from bench import importing

    side, _, measure = name.partition(".")
    if measure == "importing":
        load = importing.load_floor if side == "floor" else importing.load_ours
        with Count() as counted:
            load()
        return counted.thousands
    from bench.measure import main
    from toolkit.calls import prepare

    # Between many calls other tasks have their turn after some milliseconds, which are far fewer calls under callgrind.
    prepare.__dict__["_LONGEST_TURN"] = 3600.0
    return main(name, features=False)


def _start(name: str) -> int:
    """Measure in a fork of this process, and return its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            Path(MARKS).with_name(name).write_text(repr(_measure(name)))
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    return process


def _run(names: list[str]) -> None:
    """Measure each, as many at once as there are processors."""
    running: dict[int, str] = {}
    while names or running:
        while names and len(running) < (os.cpu_count() or 1):
            name = names.pop(0)
            running[_start(name)] = name
        process, status = os.wait()
        name = running.pop(process)
        if status:
            raise SystemExit(f"{name} failed")


if __name__ == "__main__":
    asked = sys.argv[1:]
    _run([name for name in asked if name.endswith(".importing")])
    import bench.durable_turns
    import bench.edges
    import bench.streams

    _ = bench.durable_turns, bench.edges, bench.streams  # all that the forks need is imported once
    _run([name for name in asked if not name.endswith(".importing")])
