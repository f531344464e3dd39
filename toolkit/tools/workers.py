"""Threads for functions that are not async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

T = TypeVar("T")


async def run_in_worker(call: Callable[[], T], *, on_abandoned: Callable[[], None] | None = None) -> T:
    try:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        if on_abandoned is not None:
            on_abandoned()
        raise


def is_worker_thread() -> bool:
    try:
        anyio.from_thread.check_cancelled()
    except Exception:
        return False
    return True


def call_in_loop(function: Callable[..., Any], *args: Any) -> Any:
    return anyio.from_thread.run(function, *args)
