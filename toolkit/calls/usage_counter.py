"""How often a tool may be used, counted for each run or for the whole process."""

from __future__ import annotations

from threading import Lock
from typing import Literal
from weakref import WeakKeyDictionary

from toolkit.errors import ConfigurationError, ToolUsageLimitExceededError

__all__ = ["UsageCounter"]


class UsageCounter:
    """Counts the uses of one tool; safe between threads.

    Args:
        maximum: How many uses there are; None sets no limit.
        scope: ``run`` counts in each run, and once more outside of any; ``process`` counts in the whole process.

    Raises:
        ConfigurationError: `maximum` is negative.
    """

    __slots__ = ("_current", "_lock", "_of_runs", "_outside", "maximum", "scope")

    def __init__(self, maximum: int | None = None, scope: Literal["run", "process"] = "run") -> None:
        if maximum is not None and maximum < 0:
            raise ConfigurationError(f"a tool can't be used {maximum} times: give a number from 0 on, or None")
        self.maximum: int | None = maximum
        self.scope: Literal["run", "process"] = scope
        self._current = self._outside = 0
        self._of_runs: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._lock = Lock()

    @property
    def current(self) -> int:
        """How many uses were claimed in all, in every run and outside of runs."""
        return self._current

    @property
    def is_exhausted(self) -> bool:
        """True where none is left outside of runs."""
        return self._is_exhausted(self._current if self.scope == "process" else self._outside)

    def _is_exhausted(self, used: int) -> bool:
        return self.maximum is not None and used >= self.maximum

    def used_in(self, run: object) -> int:
        """Return how many uses a run has claimed."""
        return self._of_runs.get(run, 0)

    def restore(self, run: object, used: int) -> None:
        """Have a run that was saved go on with what it had claimed."""
        with self._lock:
            self._of_runs[run] = used

    def claim(self, run: object = None) -> bool:
        """Take one use, if one is left for this run, or outside of runs; checking and taking are one step."""
        with self._lock:
            if self.maximum is None and run is not None:  # nobody asks what a run has used of what has no limit
                self._current += 1
                return True
            used = self._outside if run is None else self._of_runs.get(run, 0)
            if self._is_exhausted(self._current if self.scope == "process" else used):
                return False
            self._current += 1
            if run is None:
                self._outside += 1
            else:
                self._of_runs[run] = used + 1
            return True

    def require(self, tool: str) -> None:
        """Take one use outside of runs.

        Raises:
            ToolUsageLimitExceededError: None is left.
        """
        if not self.claim():
            raise ToolUsageLimitExceededError(tool, self.maximum or 0)

    def reset(self) -> None:
        """Forget all uses, those of the runs that go on too."""
        with self._lock:
            self._current = self._outside = 0
            self._of_runs.clear()
