"""The calls of one turn: where each stands, what it was answered with, and which of them run next.

A result is kept the moment it lands, and for good; all of a turn are taken together, in call order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from toolkit.calls.run import CutCall
from toolkit.chat import Message, ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.loop.own_results import write_interrupted, write_not_started

__all__ = ["CallStatus", "OpenCall", "OpenCalls"]

CallStatus: TypeAlias = Literal["undecided", "approved", "alone", "deferred", "started", "done"]


@dataclass(slots=True)
class OpenCall:
    """One call, and what is known of it; `is_own` is True where its result is one that the loop wrote itself."""

    call: ToolCall
    status: CallStatus = "undecided"
    result: ToolResult | None = None
    cut: CutCall | None = None
    is_own: bool = False


class OpenCalls:
    """The calls of the turn that is under way; none between turns.

    Args:
        now: Gives the time at which a result that has none is kept; None leaves it without.

    Attributes:
        by_id: The calls by their ids, in call order.
        unanswered: How many have no result yet.
        undecided: How many await the first decision.
        units: The calls that run together, one unit after the other; None where they are still to be found.
        closed: The results that the loop wrote itself and has told nobody yet, and whether each call had started.
    """

    __slots__ = ("_now", "by_id", "closed", "unanswered", "undecided", "units")

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.by_id: dict[str, OpenCall] = {}
        self.unanswered = self.undecided = 0
        self.closed: list[tuple[ToolResult, bool]] = []
        self.units: deque[list[OpenCall]] | None = None

    def list_undecided(self) -> Sequence[ToolCall]:
        """Return the calls that await the first decision."""
        return tuple([entry.call for entry in self.by_id.values() if entry.status == "undecided"])

    def list_deferred(self) -> tuple[ToolCall, ...]:
        """Return the calls that await somebody's decision."""
        return tuple([entry.call for entry in self.by_id.values() if entry.status == "deferred"])

    def keep(self, entry: OpenCall, result: ToolResult) -> None:
        """Keep the result of a call.

        Raises:
            LoopUsageError: It is the result of another call.
        """
        if result.call_id != entry.call.id:
            raise LoopUsageError(f"a result for call '{result.call_id}' was given as that of call '{entry.call.id}'")
        if result.time is None and self._now is not None:
            result = replace(result, time=self._now())
        entry.result = result
        entry.status = "done"
        self.unanswered -= 1

    def refuse(self, entry: OpenCall, result: ToolResult) -> None:
        """Answer a call about which nobody has to be asked."""
        self._keep_own(entry, result, has_started=False)
        self.undecided -= 1

    def skip_waiting(self, why: str) -> None:
        """Answer each call that has not started."""
        for entry in self.by_id.values():
            if entry.status not in ("started", "done"):
                self._keep_own(entry, write_not_started(entry.call, why), has_started=False)
        self.undecided = 0

    def answer_all(self, why: str) -> None:
        """Answer each call that has no result, by what is known of it."""
        for entry in self.by_id.values():
            if entry.status == "done":
                continue
            has_started = entry.status == "started"
            is_known_as_waiting = entry.cut is not None and entry.cut.waited_for is not None
            if has_started and not is_known_as_waiting:
                result = write_interrupted(entry.call, why, entry.cut)
            else:
                result = write_not_started(entry.call, why, entry.cut)
            self._keep_own(entry, result, has_started=has_started)

    def _keep_own(self, entry: OpenCall, result: ToolResult, *, has_started: bool) -> None:
        self.keep(entry, result)
        entry.is_own = True
        assert entry.result is not None
        self.closed.append((entry.result, has_started))

    def list_told(self) -> list[ToolResult]:
        """Return the results that the loop did not write itself, in call order."""
        return [each.result for each in self.by_id.values() if each.result is not None and not each.is_own]

    def find_unit(self, size: int) -> Sequence[ToolCall]:
        """Return the calls to run now; none when all that may run has run.

        Those of one unit run together, at most `size`, and the units run one after the other.

        Raises:
            LoopUsageError: Calls of this unit are still running.
        """
        units = self.units
        if units is None:
            units = self.units = deque()
            for entry in self.by_id.values():
                if entry.status in ("approved", "alone"):
                    is_apart = not units or len(units[-1]) == size
                    if is_apart or "alone" in (entry.status, units[-1][-1].status):
                        units.append([])
                    units[-1].append(entry)
        while units:
            waiting = [entry.call for entry in units[0] if entry.status in ("approved", "alone")]
            if waiting:
                return waiting
            if any(entry.status == "started" for entry in units[0]):
                raise LoopUsageError("calls are still running: feed their results before asking for the next step")
            units.popleft()
        return ()

    def move_results(self, messages: list[Message]) -> Sequence[ToolResult]:
        """Append the results to `messages`, in call order, and return them; no call is open afterwards."""
        results: list[ToolResult] = []
        for entry in self.by_id.values():
            assert entry.result is not None, "a turn is closed only when each call has its result"
            results.append(entry.result)
        messages.extend(results)
        self.by_id = {}
        self.units = None
        return results
