"""Every decision of a loop, as plain data: no await, no clock, no randomness, no I/O.

A loop is a conversation between this machine and a driver. The driver asks `LoopState.next_step` what to do, does it,
and feeds back what came of it; all views of a loop (run, stream, handle, saved and restored) are drivers of this one
machine. The steps and the feeds that answer them::

    step            done by the driver                        fed back by
    Compact         shorten the transcript                    compacted
    CallModel       ask the model                             model_replied | limit_reached
                    prepare the calls of its reply            calls_prepared, where there are calls
    AskApproval     ask the guards about each call            approval_decided, once per call
    RunTools        run one unit of calls                     tool_started, tool_returned | tool_cut, once per call
    Finished        nothing: the loop is over

At any time come `steered`, `commanded`, `timed_out`, `cancelled`, `failed` and `close`.

The order of a turn: pending commands and steering, limits, the model, its usage, its calls as they would run,
`stop_when`, done?, loop detection, approvals, execution, results appended, warnings appended, the limit of iterations.

What the machine guarantees, whatever is fed and whenever it ends: each call of an assistant message gets exactly one
result, directly after that message, in call order. While calls are open their results wait here, each kept the moment
it lands; they are appended together, when the last one is in or when the loop ends. A call that the end finds
unanswered is answered by what is known of it: "not started" if the driver never said that it started, "interrupted"
if it did. So a result, once fed, is never lost or replaced, and no call is ever offered to run twice.

The one state in which calls stay open is `AwaitingApproval`: the decision belongs to somebody who is not here. Feeding
it moves the machine on; closing it answers those calls as not started.

A feed that does not fit the current state raises `LoopUsageError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from toolkit.calls.approval import Abort, Approve, Defer, Deny, Verdict
from toolkit.calls.run import CutCall
from toolkit.chat import (
    AssistantMessage,
    ChatResponse,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
    call_ids_of,
    repair_call_ids,
)
from toolkit.chat.output import copy_result
from toolkit.errors import LoopUsageError
from toolkit.loop.detection import Repetition, warning_text
from toolkit.loop.guiding import LoopGuiding
from toolkit.loop.intervening import LoopIntervening
from toolkit.loop.open_calls import OpenCall
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Complete,
    LoopDetected,
    MaxIterations,
    NoValidAnswer,
    StopCondition,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
from toolkit.loop.own_results import write_cut_off, write_denied, write_one_too_many, write_repeated
from toolkit.loop.steered_retries import ANY_TOOL
from toolkit.loop.steps import (
    AskApproval,
    CallModel,
    Compact,
    Finished,
    InjectMessages,
    RunTools,
    Step,
)
from toolkit.loop.stopping import Stop, StopContext, StopWhen, ask_stop_when

__all__ = ["NO_MISTAKES", "LoopState"]

_CUT_REASONS = ("content_filter", "refusal")
"""Why a provider stops a reply whose calls must not run."""

_COMPLETE = Complete()
NO_MISTAKES: Mapping[str, Literal["name", "arguments"]] = {}
"""Fed with calls that can all run, or where nobody asks."""


class LoopState(LoopIntervening, LoopGuiding):
    """The machine; see the module's text, and `LoopRecord` for what may be asked of it.

    What comes at any time is in `LoopIntervening`, what ends a turn or the loop in `LoopClosing`.
    """

    __slots__ = ()

    def next_step(self) -> Step:
        """Return what to do now; the same step again until it is answered."""
        phase = self.phase
        if phase == "ready":
            return self._begin_turn()
        if phase == "running":
            calls = self._open.find_unit(self._config.execution.unit_size)
            return RunTools(calls, self._config.execution.limit) if calls else self._await_decisions()
        if phase == "deciding":
            is_all = self._open.undecided == len(self._calls)
            return AskApproval(self._calls if is_all else self._open.list_undecided())
        if phase == "asking":
            return CallModel(self.iterations, has_tools=not self._is_last, hold=self._hold)
        if phase == "preparing":
            raise LoopUsageError("the reply has calls: feed calls_prepared before asking for the next step")
        if phase == "compacting":
            return Compact(self.messages)
        if phase == "compacted":
            return self._begin_turn()
        if self.reason is None:
            raise LoopUsageError("the loop failed and can't go on: its error was raised already")
        return Finished(self.reason)

    # the beginning of a turn

    def _begin_turn(self) -> Step:
        if self._command is not None:
            command, self._command = self._command, None
            if isinstance(command, Stop):
                self._end_loop(StopCondition(command.reason))
                return self.next_step()
            if isinstance(command, InjectMessages):
                self.messages.extend(command.messages)
                self._call_ids |= call_ids_of(command.messages)
        if self._incoming:
            self.messages.extend(self._incoming)
            self._incoming = []
        most = self._config.max_iterations
        if self._is_last or (most == 0 and self._config.on_max_iterations == "stop"):
            self._end_loop(MaxIterations(most))
            return self.next_step()
        if self._compacts and self.phase == "ready":
            self.phase = "compacting"
            return Compact(self.messages)
        self._is_last = self.tool_rounds >= most
        self.phase = "asking"
        self.iterations += 1
        if self._history is not None:
            self._hold = "" if self._is_last else self._history.take_hold()
        return CallModel(self.iterations, has_tools=not self._is_last, hold=self._hold)

    def compacted(self, messages: Sequence[Message]) -> None:
        """Take the transcript as it is after `Compact`."""
        self._require_phase("compacting", "compacted")
        self.messages[:] = messages
        self.phase = "compacted"

    def keep_partial(self, text: str) -> None:
        """Keep what an answer had said when it was cut off for good; it is no answer, and the loop is about to end."""
        self._require_phase("asking", "keep_partial")
        self.messages.append(AssistantMessage(text))

    def limit_reached(self, limit: UsageLimit) -> None:
        """End the loop because the budget has nothing left for the request that `CallModel` asked for."""
        self._require_phase("asking", "limit_reached")
        self.iterations -= 1
        self._end_loop(limit)

    # the model's answer

    def model_replied(self, response: ChatResponse) -> Sequence[ToolCall]:
        """Take the answer and keep it; return the calls that are to be prepared and fed to `calls_prepared`, if any.

        Missing and repeated call ids are mended first, so that every later feed has one id for one call. Calls beyond
        the most of one reply are answered here.
        """
        if self.phase != "asking":
            self._require_phase("asking", "model_replied")
        message = response.message
        calls: list[ToolCall] = []
        opened: dict[str, OpenCall] = {}
        for block in message.content:
            if isinstance(block, ToolCall):
                calls.append(block)
                opened[block.id] = OpenCall(block)
        if len(opened) != len(calls) or "" in opened or not self._call_ids.isdisjoint(opened):
            message = repair_call_ids(message, self._call_ids, self.iterations)
            response = replace(response, message=message)
            calls = list(message.tool_calls)
            opened = {call.id: OpenCall(call) for call in calls}
        self.response = response
        self._spent.append(response.usage)
        self.messages.append(message)
        self._calls = calls
        self._call_ids.update(opened)
        self._open.by_id = opened
        self._open.unanswered = self._open.undecided = len(opened)
        if not calls:
            if self._config.stop_when is None or not self._is_stopped(self._config.stop_when, response, ()):
                self._take_answer(response)
            return ()
        most = self._config.limits.calls_per_turn
        if most is not None and len(calls) > most:
            for call in calls[most:]:
                self._open.refuse(opened[call.id], write_one_too_many(call, most))
            calls = calls[:most]
        self.phase = "preparing"
        return calls

    def calls_prepared(
        self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]] = NO_MISTAKES
    ) -> LoopDetected | None:
        """Decide what follows from a reply with calls; return what loop detection has to tell.

        Args:
            calls: Those that `model_replied` returned, as they would run: names repaired, arguments canonical. Only
                what looks at calls (`stop_when`, loop detection, the order of tools) reads them.
            mistakes: The mistake of each call that can't run because of its name or its arguments, by its id; read
                for `SteeredRetries` alone.
        """
        if self.phase != "preparing":
            self._require_phase("preparing", "calls_prepared")
        if len(calls) != self._open.undecided:
            raise LoopUsageError("calls_prepared was given other calls than model_replied returned")
        response, stop_when = self.response, self._config.stop_when
        assert response is not None
        if stop_when is not None and self._is_stopped(stop_when, response, calls):
            return None
        if self._is_last:
            self._end_loop(MaxIterations(self._config.max_iterations))
            return None
        self.phase = "deciding"
        if response.stop_reason in _CUT_REASONS:
            self._open.answer_all("the reply was stopped by the provider's content filter")
            self._close_turn()
            return None
        found = None if self._detector is None else self._detector.saw_calls(calls)
        detected = None if found is None else self._answer_repetition(found)
        if response.stop_reason == "max_tokens":
            self._refuse_unfinished(response)
        if (self._order is not None or self._history is not None) and self.phase == "deciding":
            self._guide_calls(calls, mistakes)
            if not self._open.undecided:
                self._after_decision()
        return detected

    def _is_stopped(self, stop_when: StopWhen, response: ChatResponse, calls: Sequence[ToolCall]) -> bool:
        """Return whether the loop ends with this reply because `stop_when` says so."""
        decision = ask_stop_when(stop_when, self._stop_context(response, calls))
        if isinstance(decision, Stop):
            self._end_loop(StopCondition(decision.reason))
        return isinstance(decision, Stop)

    def _take_answer(self, response: ChatResponse) -> None:
        """End the loop with a reply without calls, unless it comes too early."""
        if response.unanswered:
            self._end_loop(UnansweredItems(response.unanswered))
        elif self._is_last:
            self._end_loop(MaxIterations(self._config.max_iterations))
        elif self._order is None or not self._send_back():
            self._end_loop(_COMPLETE)

    def _refuse_unfinished(self, response: ChatResponse) -> None:
        """Answer the calls of a reply that was cut off which were not said whole: those do not run."""
        for call in response.unfinished_calls:
            entry = self._open.by_id.get(call.id) if self.phase == "deciding" else None
            if entry is not None and entry.status == "undecided":
                self._open.refuse(entry, write_cut_off(entry.call))
                if not self._open.undecided:
                    self._after_decision()

    def _stop_context(self, response: ChatResponse, calls: Sequence[ToolCall]) -> StopContext:
        if calls:
            prepared = {call.id: call for call in calls}
            content = [
                prepared.get(block.id, block) if isinstance(block, ToolCall) else block
                for block in response.message.content
            ]
            response = replace(response, message=AssistantMessage(content))
        return StopContext(
            iteration=self.iterations,
            response=response,
            usage=self.usage,
            tool_calls_executed=self._tool_calls_executed,
            last_tool_results=tuple(map(copy_result, self._results)),
        )

    def _answer_repetition(self, found: Repetition) -> LoopDetected | None:
        """Do what the configuration wants of calls that are repeated; return what is to be told."""
        if not found.is_due:
            return None
        match found.fact.action:
            case "stop":
                self._end_loop(found.fact)
            case "inject_warning":
                self._warnings.append(UserMessage(warning_text(found.fact)))
            case "skip":
                for call_id in found.call_ids:
                    entry = self._open.by_id[call_id]
                    self._open.refuse(entry, write_repeated(entry.call, found.fact))
                if not self._open.undecided:
                    self._after_decision()
            case "warn":
                pass
        return found.fact

    # the calls of a turn

    def approval_decided(
        self, call_id: str, verdict: Verdict, *, tool_name: str = "", is_alone: bool = False
    ) -> ToolResult | None:
        """Take the decision on one call; return the result of one that is denied.

        Args:
            call_id: The call.
            verdict: The decision.
            tool_name: The repaired name of its tool, for that result; empty takes the call's own.
            is_alone: True where it must not run beside another.
        """
        entry = self._open.by_id.get(call_id)
        if entry is None or entry.status != ("undecided" if self.phase == "deciding" else "deferred"):
            raise LoopUsageError(f"no decision is awaited on call '{call_id}'")
        match verdict:
            case Approve():
                entry.status = "alone" if is_alone else "approved"
            case Deny(reason):
                self._open.keep(entry, write_denied(entry.call, reason, tool_name or entry.call.name))
            case Defer():
                entry.status = "deferred"
            case Abort(reason):
                self._end_loop(Aborted(reason))
                return None
        if self.phase == "deciding":
            self._open.undecided -= 1
        if not self._open.undecided:
            self._after_decision()
        return entry.result

    def _after_decision(self) -> None:
        self.reason = None
        self.phase = "running"
        self._open.units = None  # what may run is cut into units anew
        if not self._open.unanswered:
            self._close_turn()

    def _await_decisions(self) -> Step:
        self.reason = AwaitingApproval(self._open.list_deferred())
        self.phase = "finished"
        return Finished(self.reason)

    def call_reopened(self, call_id: str) -> None:
        """Have somebody decide again on a call that has not started: what it would do has changed."""
        entry = self._open.by_id.get(call_id)
        if self.phase != "running" or entry is None or entry.status not in ("approved", "alone", "deferred"):
            raise LoopUsageError(f"call '{call_id}' is not to be decided on again")
        entry.status = "deferred"
        self._open.units = None

    def tool_started(self, call_id: str) -> None:
        """Note that a call runs from now on."""
        entry = self._open.by_id.get(call_id)
        if self.phase != "running" or entry is None or entry.status not in ("approved", "alone"):
            raise LoopUsageError(f"call '{call_id}' is not to be run now")
        entry.status = "started"

    def tool_returned(self, call_id: str, result: ToolResult) -> None:
        """Keep the result of a call, at once and for good."""
        entry = self._open.by_id.get(call_id)
        if self.phase != "running" or entry is None or entry.status in ("done", "undecided", "deferred"):
            raise LoopUsageError(f"no result is awaited for call '{call_id}'")
        self._open.keep(entry, result)
        if not self._open.unanswered:
            self._close_turn()

    def tool_cut(self, call_id: str, cut: CutCall) -> None:
        """Note how far a call came that started and ended without a result, because the loop ends.

        A call that has been answered meanwhile stays answered as it was.
        """
        entry = self._open.by_id.get(call_id)
        if entry is not None:
            entry.cut = cut

    def answer_judged(self, judgement: TypedAnswer | NoValidAnswer | UserMessage) -> None:
        """Say what the reply that completed the loop is, where an answer of a type was asked for, or ask once more."""
        if not isinstance(self.reason, Complete):
            raise LoopUsageError("answer_judged does not fit here: the loop was not completed by a reply")
        if isinstance(judgement, UserMessage):
            self.messages.append(judgement)
            if self._history is not None and self._config.asks_by_tool:
                self._history.hold_next(ANY_TOOL)
            self.reason, self.phase = None, "ready"
        else:
            self.reason = judgement
