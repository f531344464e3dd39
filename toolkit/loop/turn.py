"""The calls of one turn: where each stands, how it was answered, which run next; and the results that the loop writes.

A result is stored the moment it arrives, and for good; all of a turn are appended together, in call order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from toolkit.calls.approval import WaitingChild
from toolkit.calls.run import CutCall
from toolkit.chat import Message, ToolCall, ToolResult
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.foreign_text import replace_surrogates
from toolkit.loop.outcome import LoopDetected
from toolkit.loop.stopping import warning_text

CallStatus: TypeAlias = Literal["undecided", "approved", "alone", "deferred", "started", "suspended", "done"]


@dataclass(slots=True)
class OpenCall:
    """One call of the turn that is under way.

    Args:
        call: The call, as the model asked for it.
        status: How far it came; ``alone`` is approved, and not to run beside another; ``suspended`` has started, and
            its sub-agent awaits decisions.
        result: Its result, once it has one.
        cut: How far it came, where it ended without a result.
        is_own: True where the loop wrote its result itself.
        child: The sub-agent that awaits decisions in it, or goes on with them when the call is run again.
        prepared: The call as it would run, or its refusal. It belongs to the driver; the machine never reads it.
    """

    call: ToolCall
    status: CallStatus = "undecided"
    result: ToolResult | None = None
    cut: CutCall | None = None
    is_own: bool = False
    child: WaitingChild | None = None
    prepared: Any = None

    @property
    def awaited_calls(self) -> tuple[ToolCall, ...]:
        """The calls that somebody has to decide on before this one goes on."""
        return self.child.calls if self.child is not None and self.status == "suspended" else (self.call,)


class Turn:
    """The calls of the turn that is under way; none between turns.

    Args:
        now: Gives the time of a result that has none; None leaves it without.

    Attributes:
        by_id: The calls by their ids, in call order.
        unanswered: How many have no result yet.
        undecided: How many await the first decision.
        units: The calls that run together, one unit after the other; None where they are still to be found.
        closed: The results that the loop wrote itself and that no event has reported yet, and whether each call had
            started.
    """

    __slots__ = ("_now", "by_id", "closed", "unanswered", "undecided", "units")

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.by_id: dict[str, OpenCall] = {}
        self.unanswered = self.undecided = 0
        self.closed: list[tuple[ToolResult, bool]] = []
        self.units: deque[list[OpenCall]] | None = None

    def open(self, calls: dict[str, OpenCall]) -> None:
        """Begin with the calls of a reply, or with those of a saved turn."""
        self.by_id = calls
        self.units = None
        self.unanswered = sum([entry.result is None for entry in calls.values()])
        self.undecided = sum([entry.status == "undecided" for entry in calls.values()])

    def with_status(self, *statuses: CallStatus) -> list[OpenCall]:
        """Return the calls that have one of these statuses, in call order."""
        return [entry for entry in self.by_id.values() if entry.status in statuses]

    def store(self, entry: OpenCall, result: ToolResult) -> None:
        """Store the result of a call.

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
        self._store_own(entry, result, has_started=False)
        self.undecided -= 1

    def skip_waiting(self, why: str) -> None:
        """Answer each call that has not started."""
        for entry in self.by_id.values():
            if entry.status not in ("started", "done"):
                result = write_not_started(entry.call, why) if entry.child is None else _write_interrupted(entry, why)
                self._store_own(entry, result, has_started=False)
        self.undecided = 0

    def answer_all(self, why: str) -> None:
        """Answer each call that has no result, by what is known of it."""
        for entry in self.by_id.values():
            if entry.status == "done":
                continue
            has_started = entry.status == "started"
            is_known_as_waiting = entry.cut is not None and entry.cut.waited_for is not None
            if entry.child is not None or (has_started and not is_known_as_waiting):
                result = _write_interrupted(entry, why)
            else:
                result = write_not_started(entry.call, why, entry.cut)
            self._store_own(entry, result, has_started=has_started)

    def _store_own(self, entry: OpenCall, result: ToolResult, *, has_started: bool) -> None:
        self.store(entry, result)
        entry.is_own = True
        assert entry.result is not None
        self.closed.append((entry.result, has_started))

    def find_unit(self, size: int) -> Sequence[OpenCall]:
        """Return the calls to run now; none when all that may run has run.

        Those of one unit run together, at most `size`, and the units run one after the other.

        Raises:
            LoopUsageError: Calls of this unit are still running.
        """
        units = self.units
        if units is None:
            units = self.units = deque()
            for entry in self.by_id.values():
                if entry.status == "approved" or entry.status == "alone":
                    is_apart = not units or len(units[-1]) == size
                    if is_apart or "alone" in (entry.status, units[-1][-1].status):
                        units.append([entry])
                    else:
                        units[-1].append(entry)
        while units:
            waiting: list[OpenCall] = []
            is_running = False
            for entry in units[0]:  # no comprehension, which is a call of its own before Python 3.12
                if entry.status in ("approved", "alone"):
                    waiting.append(entry)
                is_running = is_running or entry.status == "started"
            if waiting:
                return waiting
            if is_running:
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


LOST = "Interrupted: the process that ran it ended. The tool was running and may have taken effect."
"""The text of the result of a call that was under way when its process ended."""


def write_denied(call: ToolCall, reason: str, tool_name: str) -> ToolResult:
    """Return the result of a call that may not run; `tool_name` is the repaired name of its tool."""
    return ToolResult(call.id, replace_surrogates(reason), tool_name=tool_name, is_error=True)


def write_not_started(call: ToolCall, why: str, cut: CutCall | None = None) -> ToolResult:
    """Return the result of a call that never ran; `cut` names the thing that it waited for."""
    waited = f" while the call waited for {cut.waited_for}" if cut is not None and cut.waited_for else ""
    return ToolResult(call.id, f"Not started: {why}{waited}.", tool_name=call.name, is_error=True)


def _write_interrupted(entry: OpenCall, why: str) -> ToolResult:
    """Return the result of a call that had started."""
    call, cut = entry.call, entry.cut
    after = " It may still be running." if cut is not None and cut.may_run_on else ""
    child_loop_id, details = (None, None) if cut is None else cut.left_by_child
    if child_loop_id is None and entry.child is not None:
        child_loop_id = entry.child.loop_id
    return ToolResult(
        call.id,
        f"Interrupted: {why}. The tool was running and may have taken effect.{after}",
        tool_name=call.name,
        is_error=True,
        child_loop_id=child_loop_id,
        details=details,
    )


def write_lost(call: ToolCall) -> ToolResult:
    """Return the result of a call that may have started in a process that ended before its result was stored."""
    return ToolResult(call.id, LOST, tool_name=call.name, is_error=True)


def write_one_too_many(call: ToolCall, most: int) -> ToolResult:
    """Return the result of a call that came after the last one that a reply may have."""
    text = f"Not run: at most {most} calls of one reply are run, and this one came after them. Ask for it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def write_cut_off(call: ToolCall) -> ToolResult:
    """Return the result of a call in the middle of which the reply ended."""
    text = "Not run: your reply was cut off before its arguments were complete; call it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def write_repeated(call: ToolCall, fact: LoopDetected) -> ToolResult:
    """Return the result of a call that was skipped because the model repeats itself."""
    return ToolResult(call.id, f"Not run. {warning_text(fact)}", tool_name=call.name, is_error=True)


def write_refused(call: ToolCall, text: str) -> ToolResult:
    """Return the result of a call that a policy of middleware refuses."""
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)
