"""The calls and answers that the machine refuses by itself: those that come too early, and calls that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from toolkit.chat import ToolCall
from toolkit.loop.closing import LoopClosing
from toolkit.loop.config import ANSWER_TOOL
from toolkit.loop.outcome import MissingSteps
from toolkit.loop.own_results import write_early, write_tried

__all__ = ["LoopGuiding"]


class LoopGuiding(LoopClosing):
    """The decisions by `ToolOrder` and `SteeredRetries` on the calls of a reply; `LoopState` decides when."""

    __slots__ = ()

    def find_missing(self, tool_name: str) -> tuple[str, ...]:
        """Return the tools that must be used before one may be called, the answer's tool too."""
        if self._order is None:
            return ()
        is_answer = tool_name == ANSWER_TOOL and self._config.asks_by_tool
        return self._order.find_missing_steps() if is_answer else self._order.find_missing(tool_name)

    def _guide_calls(self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]]) -> None:
        """Refuse the calls of a reply that come too early, or have failed before."""
        if self._history is not None:
            self._history.saw_calls(calls, mistakes)
        called = {call.name for call in calls}
        for call in calls:
            entry = self._open.by_id[call.id]
            if entry.status != "undecided":
                continue
            missing = self.find_missing(call.name)
            failure = None if self._history is None else self._history.find_failure(call)
            if missing:
                self._open.refuse(entry, write_early(call, missing, called))
            elif failure is not None:
                self._open.refuse(entry, write_tried(call, failure))
            if not called.issuperset(missing):
                self._steer_back(call.name, missing)

    def _steer_back(self, tool_name: str, missing: tuple[str, ...]) -> None:
        """Count an answer that came too early, and have the next reply begin with what comes first."""
        if self._history is not None:
            self._history.hold_next(missing[0])
        if self._order is None or tool_name != ANSWER_TOOL or self._wound_up is not None:
            return
        if self._order.retries_left == 0:
            self._wound_up = MissingSteps(missing)
        else:
            self._order.retries_left -= 1
