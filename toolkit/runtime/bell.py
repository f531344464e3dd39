"""A bell that can be rung again and again, where an event would have to be made anew for each wait."""

from __future__ import annotations

from collections.abc import Callable

from toolkit.runtime.backend import make_waiter

__all__ = ["Bell"]


class Bell:
    """Wakes all that wait when it is rung, in the event loop in which they do. Nobody who comes later hears of it.

    ::

        while not is_ready():
            await bell.wait()
    """

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: list[Callable[[], None]] = []

    @property
    def has_waiters(self) -> bool:
        """True where anybody waits."""
        return bool(self._wakers)

    def ring(self) -> None:
        """Wake all that wait."""
        if self._wakers:
            wakers, self._wakers = self._wakers, []
            for wake in wakers:
                wake()

    async def wait(self) -> None:
        """Wait for the next ring."""
        waiter, wake = make_waiter()
        self._wakers.append(wake)
        try:
            await waiter
        except BaseException:  # else one that is not rung for long would grow with those who have gone
            if wake in self._wakers:
                self._wakers.remove(wake)
            raise
