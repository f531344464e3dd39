"""The time that a loop may take: it runs only while the loop does, unless the caller's pauses count too."""

from __future__ import annotations

import math

from toolkit.runtime.backend import read_loop_time

__all__ = ["LoopClock"]


class LoopClock:
    """The time that a loop has left.

    Args:
        seconds: How much there is; None without a limit.
        counts_pauses: True where it goes on between two turns.
    """

    __slots__ = ("_counts_pauses", "_deadline", "_seconds_left")

    def __init__(self, seconds: float | None, *, counts_pauses: bool = False) -> None:
        self._seconds_left = seconds
        self._counts_pauses = counts_pauses
        self._deadline: float | None = None  # while it runs

    def start(self) -> float:
        """Let it run; return when the time is up, as `anyio.current_time` counts."""
        if self._seconds_left is None:
            return math.inf
        if self._deadline is None:
            self._deadline = read_loop_time() + self._seconds_left
        return self._deadline

    def pause(self) -> None:
        """Let it stand still until it is started again."""
        if self._deadline is not None:
            self._seconds_left = max(0.0, self._deadline - read_loop_time())
            if not self._counts_pauses:
                self._deadline = None

    def limit(self, seconds: float) -> float:
        """Leave so many seconds from now on; return when they are over, as `anyio.current_time` counts."""
        self._seconds_left = seconds
        self._deadline = read_loop_time() + seconds
        return self._deadline

    @property
    def seconds_left(self) -> float | None:
        """The seconds that were left when it was paused last; None without a limit."""
        return self._seconds_left
