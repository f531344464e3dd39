"""Copies of the current context: for a call in another thread, or in the same task."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple, cast

_event_loop_name: ContextVar[str | None] | None
try:
    from sniffio import current_async_library_cvar as _event_loop_name
except ModuleNotFoundError:  # it comes with trio
    _event_loop_name = None

__all__ = ["context_for_thread", "run_in_own_context"]

T = TypeVar("T")
Given = TypeVarTuple("Given")


def context_for_thread() -> Context:
    """Return a copy of the current context for code in another thread, where an event loop may be run anew."""
    context = copy_context()
    if _event_loop_name is not None:
        context.run(_event_loop_name.set, None)
    return context


@types.coroutine
def run_in_own_context(call: Callable[[*Given], Awaitable[T]], *given: *Given) -> Generator[Any, Any, T]:
    """Await a call in this task, but in a copy of its context: the variables that it sets are set for nobody else."""
    context = copy_context()
    coroutine = call(*given).__await__()
    step: Callable[..., Any] = coroutine.send
    sent: Any = None
    while True:
        try:
            waited_for = context.run(step, sent)
        except StopIteration as end:
            return cast("T", end.value)
        try:
            step, sent = coroutine.send, (yield waited_for)
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:  # noqa: BLE001  # thrown into the call, which is to see it
            step, sent = coroutine.throw, error
