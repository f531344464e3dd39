"""How a turn is closed, and how a loop ends: each call is answered, in call order, whatever ends it."""

from __future__ import annotations

from typing import Any

from toolkit.chat import ToolResult, UserMessage
from toolkit.errors import LoopUsageError
from toolkit.loop.config import ANSWER_TOOL
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    LoopDetected,
    MaxIterations,
    MissingSteps,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    TerminationReason,
    Timeout,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
from toolkit.loop.own_results import join_steps
from toolkit.loop.record import LoopRecord, Phase

__all__ = ["LoopClosing"]

_WHY: dict[type[Any], str] = {
    StopCondition: "the run was stopped",
    MaxIterations: "no more tool turns are allowed",
    Timeout: "the run's time was up",
    LoopDetected: "the same call was repeated too often",
    UsageLimit: "the run's usage limit was reached",
    Aborted: "the run was aborted",
    Cancelled: "the run was cancelled",
    type(None): "the run failed",
}


class LoopClosing(LoopRecord):
    """The feeds and steps that end a turn, or the loop; `LoopState` decides when."""

    __slots__ = ()

    def timed_out(self, limit: float) -> None:
        """End the loop: its time is up."""
        if not self.is_finished:
            self._end_loop(Timeout(limit))

    def cancelled(self, reason: str | None = None) -> None:
        """End the loop: its caller has gone, or has said so."""
        if not self.is_finished:
            self._end_loop(Cancelled(reason))

    def failed(self) -> None:
        """End the loop: what it needs has failed, and its driver is about to raise why."""
        if not self.is_finished:
            self._end_loop(None)

    def close(self, reason: str | None = None) -> None:
        """End the loop, whatever state it is in, and answer every open call."""
        if isinstance(self.reason, AwaitingApproval):
            self._end_loop(Cancelled(reason))
        else:
            self.cancelled(reason)

    def wind_up(self, reason: UsageLimit | NoValidAnswer | Aborted) -> None:
        """End the loop when this turn's results are in: nothing more may be spent, or asked.

        They may be in already, where each call was answered without being run.
        """
        if self._open.by_id:
            self._wound_up = reason
        elif self.phase == "ready" and self.tool_rounds:
            self._end_loop(reason)
        else:
            raise LoopUsageError("wind_up does not fit here: no call is open")

    def _close_turn(self) -> None:
        """Append the results in call order, then the warnings, and see whether the loop goes on."""
        if self._order is not None or self._history is not None:
            self._note_results()
        self._results = results = self._open.move_results(self.messages)
        self._tool_calls_executed += len(results)
        self.tool_rounds += 1
        if self._warnings:
            self.messages.extend(self._warnings)
            self._warnings = []
        if self._detector is not None and self._detector.compares_results:
            self._detector.saw_results(results)
        self.phase = "ready"
        for result in results:
            if result.result_as_answer and not result.is_error:
                self._take_result(result)
                if self.reason is not None:
                    return
                break
        if self.response is not None and self.response.unanswered:
            self._end_loop(UnansweredItems(self.response.unanswered))
        elif self._wound_up is not None:
            self._end_loop(self._wound_up)
        elif self.tool_rounds >= self._config.max_iterations and self._config.on_max_iterations == "stop":
            self._end_loop(MaxIterations(self._config.max_iterations))

    def _note_results(self) -> None:
        """Count what the calls of the turn that were not answered by the loop itself gave."""
        told = self._open.list_told()
        if self._order is not None:
            self._order.saw_results(told)
        if self._history is not None:
            self._history.saw_results(told)

    def _take_result(self, result: ToolResult) -> None:
        """End the loop with a result that is the answer, unless it comes too early."""
        if self._order is not None and self._send_back():
            return
        answer = self._config.answer
        is_typed = self._config.asks_by_tool and result.tool_name == ANSWER_TOOL
        if is_typed and answer is not None and answer.has_type:
            self._end_loop(TypedAnswer())
        else:
            self._end_loop(ResultAsAnswer(result.call_id, result.tool_name))

    def _send_back(self) -> bool:
        """Return whether an answer comes too early: then it is to be given again, or the loop has ended."""
        order, missing = self._order, self.missing_steps
        if order is None or not missing:
            return False
        if order.retries_left == 0:
            self._end_loop(MissingSteps(missing))
            return True
        order.retries_left -= 1
        self.messages.append(UserMessage(f"Not yet: call {join_steps(missing)} before you answer."))
        if self._history is not None:
            self._history.hold_next(missing[0])
        self.phase = "ready"
        return True

    def _end_loop(self, reason: TerminationReason | None) -> None:
        if self._open.by_id:
            self._open.answer_all(_WHY[type(reason)])
            self._results = self._open.move_results(self.messages)
            self._tool_calls_executed += len(self._results)
        self.reason = reason
        self.phase = "failed" if reason is None else "finished"

    def _require_phase(self, phase: Phase, feed: str) -> None:
        if self.phase != phase:
            raise LoopUsageError(f"{feed} does not fit here: the loop is {self.phase}, not {phase}")
