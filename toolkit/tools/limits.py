"""How often a tool may be used, and how much of its text a model reads."""

from __future__ import annotations

from threading import Lock

from toolkit.errors import ToolUsageLimitExceededError

__all__ = ["UsageCounter", "limit_text"]


class UsageCounter:
    """Counts the uses of one tool; safe between threads.

    Args:
        maximum: How many uses there are; None sets no limit.
    """

    __slots__ = ("_current", "_lock", "maximum")

    def __init__(self, maximum: int | None = None) -> None:
        self.maximum = maximum
        self._current = 0
        self._lock = Lock()

    @property
    def current(self) -> int:
        """How many uses were claimed."""
        return self._current

    @property
    def is_exhausted(self) -> bool:
        """Whether none is left."""
        return self.maximum is not None and self._current >= self.maximum

    def claim(self) -> bool:
        """Take one use, if one is left; checking and taking are one step."""
        with self._lock:
            if self.is_exhausted:
                return False
            self._current += 1
            return True

    def require(self, tool: str) -> None:
        """Take one use.

        Raises:
            ToolUsageLimitExceededError: None is left.
        """
        if not self.claim():
            raise ToolUsageLimitExceededError(tool, self.maximum or 0)

    def reset(self) -> None:
        """Forget all uses."""
        with self._lock:
            self._current = 0


def limit_text(text: str, max_chars: int) -> str:
    """Return `text` with its middle cut out, so that at most `max_chars` of its characters stay.

    The cut says how many characters are missing; that notice comes on top.
    """
    if len(text) <= max_chars:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    missing = len(text) - max_chars
    notice = f"\n[... {missing} of {len(text)} characters are left out here ...]\n"
    return text[:head] + notice + (text[-tail:] if tail else "")
