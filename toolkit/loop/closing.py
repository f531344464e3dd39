"""How a turn is closed, and how a loop ends: each call is answered, in call order, whatever ends it."""

from __future__ import annotations

from typing import Any

from toolkit.errors import LoopUsageError
from toolkit.loop.config import ANSWER_TOOL
from toolkit.loop.events import LoopDetected
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    MaxIterations,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    TerminationReason,
    Timeout,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
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
                is_typed = self._config.asks_by_tool and result.tool_name == ANSWER_TOOL
                self._end_loop(TypedAnswer() if is_typed else ResultAsAnswer(result.call_id, result.tool_name))
                return
        if self.response is not None and self.response.unanswered:
            self._end_loop(UnansweredItems(self.response.unanswered))
        elif self._wound_up is not None:
            self._end_loop(self._wound_up)
        elif self.tool_rounds >= self._config.max_iterations and self._config.on_max_iterations == "stop":
            self._end_loop(MaxIterations(self._config.max_iterations))

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
