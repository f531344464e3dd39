"""Use of what lives in one event loop, such as a connection, from event loops in other threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Generic, ParamSpec, TypeVar

import anyio
from anyio.lowlevel import current_token

from toolkit.errors import ToolFailedError
from toolkit.runtime.backend import LoopWaker, detached_starter, loop_waker

__all__ = ["OwnerLoop"]

T = TypeVar("T")
P = ParamSpec("P")


class OwnerLoop:
    """The event loop that owns something: the one in which this is made."""

    def __init__(self) -> None:
        self._token = current_token()
        self._wake = loop_waker()
        self._start = detached_starter()
        self._context = copy_context()

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in the owner, and return or raise what it does; cancelled here, it is cancelled there.

        Raises:
            ToolFailedError: That event loop has ended.
        """
        if self._is_here():
            return await function()
        owner_call = _OwnerCall(function, loop_waker())

        def start() -> None:
            self._context.copy().run(self._start, owner_call.run)

        if self._wake(start):
            try:
                await owner_call.ended.wait()
            finally:
                if not owner_call.ended.is_set():
                    self._wake(owner_call.cancel)
        return owner_call.outcome()

    def wrap_callback(self, function: Callable[P, object]) -> Callable[P, object]:
        """Return what the owner can call to have a function called in the event loop that is running now."""
        if self._is_here():
            return function
        wake = loop_waker()

        def call(*args: P.args, **options: P.kwargs) -> None:
            wake(partial(function, *args, **options))

        return call

    def _is_here(self) -> bool:
        return current_token() == self._token


class _OwnerCall(Generic[T]):
    """A call from elsewhere: made and read there, run and cancelled in the owner."""

    def __init__(self, function: Callable[[], Awaitable[T]], wake: LoopWaker) -> None:
        self.ended = anyio.Event()
        self._function = function
        self._wake = wake
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self._outcome: tuple[T] | Exception | None = None

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if not self._is_cancelled:
                    self._outcome = (await self._function(),)
        except Exception as error:  # noqa: BLE001 - carried to the caller
            self._outcome = error
        finally:
            self._wake(self.ended.set)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def outcome(self) -> T:
        outcome, self._outcome = self._outcome, None  # an exception's traceback holds this
        match outcome:
            case (value,):
                return value
            case None:
                raise ToolFailedError("The event loop in which this has to be done has ended.")
            case error:
                raise error
