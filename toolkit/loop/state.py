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

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import (
    AssistantMessage,
    ChatResponse,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    call_ids_of,
    mend_call_ids,
    validate_transcript,
)
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, LoopError, LoopUsageError, TranscriptError
from toolkit.loop.config import ANSWER_TOOL, ToolLoopConfig
from toolkit.loop.detection import LoopDetector, warning_text
from toolkit.loop.events import LoopDetected
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
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
from toolkit.loop.stopping import Continue, Stop, StopContext, StopDecision, StopWhen
from toolkit.tools.output import copy_result
from toolkit.tools.run import CutCall
from toolkit.tools.settings import check_setting

__all__ = [
    "COMPLETE",
    "CUT_REASONS",
    "AskApproval",
    "CallModel",
    "Command",
    "Compact",
    "Decision",
    "EndRun",
    "Finished",
    "FrozenCall",
    "FrozenState",
    "InjectMessages",
    "LoopState",
    "Postpone",
    "Refuse",
    "RunCall",
    "RunTools",
    "Step",
]


# Steps and decisions are not frozen: to make one costs half as much in a turn, and so do their classes in the import.


@dataclass(slots=True)
class Compact:
    """Shorten `messages`, or feed them back as they are."""

    messages: Sequence[Message]


@dataclass(slots=True)
class CallModel:
    """Ask the model; without tools for the answer that follows the last allowed turn."""

    iteration: int
    _: KW_ONLY
    has_tools: bool = True


@dataclass(slots=True)
class AskApproval:
    """Ask whether these calls may run."""

    calls: Sequence[ToolCall]


@dataclass(slots=True)
class RunTools:
    """Run these calls, at most `limit` at once."""

    calls: Sequence[ToolCall]
    limit: int | None = None


@dataclass(slots=True)
class Finished:
    """The loop is over, or waits for a decision (`AwaitingApproval`)."""

    reason: TerminationReason


Step: TypeAlias = Compact | CallModel | AskApproval | RunTools | Finished


@dataclass(slots=True)
class RunCall:
    """The call may run.

    Args:
        alone: It must not run beside another.
    """

    alone: bool = False


@dataclass(slots=True)
class Refuse:
    """The call won't run; this is its result."""

    result: ToolResult


@dataclass(slots=True)
class Postpone:
    """Somebody will decide later."""


@dataclass(slots=True)
class EndRun:
    """The loop ends here, by the word of an approver."""

    reason: str


Decision: TypeAlias = RunCall | Refuse | Postpone | EndRun


@dataclass(frozen=True, slots=True)
class InjectMessages:
    """Append these messages before the next turn, and go on."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    kind: Literal["inject_messages"] = field(default="inject_messages", repr=False)


Command: TypeAlias = Continue | InjectMessages | Stop
"""What the caller wants of the next turn."""

CUT_REASONS = ("content_filter", "refusal")
"""Why a provider stops a reply whose calls must not run."""

COMPLETE = Complete()

_Phase: TypeAlias = Literal["ready", "compacting", "asking", "preparing", "deciding", "running", "finished", "failed"]
CallStatus: TypeAlias = Literal["undecided", "approved", "alone", "deferred", "started", "done"]


@dataclass(slots=True)
class _OpenCall:
    call: ToolCall
    status: CallStatus = "undecided"
    result: ToolResult | None = None
    cut: CutCall | None = None


@dataclass(slots=True)
class FrozenCall:
    """One open call of a frozen machine."""

    call_id: str
    status: CallStatus
    result: ToolResult | None


@dataclass(slots=True, kw_only=True)
class FrozenState:
    """All that a machine knows, as plain data; see `LoopState.freeze`."""

    messages: list[Message]
    usage: Usage
    iterations: int
    tool_rounds: int
    response: ChatResponse | None
    reason: TerminationReason | None
    open_calls: list[FrozenCall]
    results: list[ToolResult]
    incoming: list[Message]
    warnings: list[Message]
    command: Command | None
    wound_up: UsageLimit | NoValidAnswer | None
    is_last: bool
    tool_calls_executed: int
    detector: dict[str, Any] | None


class LoopState:
    """The machine; see the module's text.

    Args:
        messages: The transcript to start from: valid, and owned by the machine from here on.
        config: The settings; only what decides is read here.
        compacts: Whether a `Compact` step comes before each request.

    Attributes:
        messages: The transcript so far.
        iterations: How many requests were made.
        tool_rounds: How many turns ran to their results.
        response: The last response.
        reason: Why the loop ended; None while it goes on.
        closed: The results that the machine gave itself because the loop ended, and whether each call had started.
    """

    __slots__ = (
        "_call_ids",
        "_calls",
        "_command",
        "_compacts",
        "_config",
        "_detector",
        "_incoming",
        "_is_compacted",
        "_is_last",
        "_open",
        "_phase",
        "_results",
        "_spent",
        "_tool_calls_executed",
        "_unanswered",
        "_undecided",
        "_units",
        "_warnings",
        "_wound_up",
        "closed",
        "iterations",
        "messages",
        "reason",
        "response",
        "tool_rounds",
    )

    def __init__(self, messages: list[Message], config: ToolLoopConfig[Any], *, compacts: bool = False) -> None:
        self.messages: list[Message] = messages
        self._spent: list[Usage] = []  # summed when somebody asks
        self.iterations: int = 0
        self.tool_rounds: int = 0
        self.response: ChatResponse | None = None
        self.reason: TerminationReason | None = None
        self._config = config
        self._compacts = compacts
        self._is_compacted = False
        self._phase: _Phase = "ready"
        self.closed: list[tuple[ToolResult, bool]] = []
        self._calls: Sequence[ToolCall] = ()
        self._open: dict[str, _OpenCall] = {}
        self._units: deque[tuple[_OpenCall, ...]] = deque()
        self._results: Sequence[ToolResult] = ()
        self._incoming: list[Message] = []
        self._warnings: list[Message] = []
        self._unanswered = self._undecided = 0
        self._command: Command | None = None
        self._wound_up: UsageLimit | NoValidAnswer | None = None
        self._is_last = False
        self._tool_calls_executed = 0
        self._detector = None if config.loop_detection is None else LoopDetector(config.loop_detection)
        self._call_ids = call_ids_of(messages)

    # what may be asked at any time

    @property
    def usage(self) -> Usage:
        """The sum over all responses so far; it stays what it is when more come."""
        if len(self._spent) != 1:
            self._spent[:] = [Usage.total(self._spent)]
        return self._spent[0]

    @property
    def is_finished(self) -> bool:
        """Whether no step is left, or only somebody's decision can bring one."""
        return self._phase in ("finished", "failed")

    @property
    def is_at_boundary(self) -> bool:
        """Whether no turn is under way: the transcript is whole and may be changed."""
        return self._phase == "ready" and not self._is_compacted

    @property
    def deferred_ids(self) -> tuple[str, ...]:
        """The ids of the calls that await a decision, in call order."""
        return tuple([entry.call.id for entry in self._open.values() if entry.status == "deferred"])

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in call order."""
        return tuple([entry.call for entry in self._open.values() if entry.result is None])

    def settled_messages(self) -> list[Message]:
        """Return the transcript; where calls await a decision, a copy in which they are answered as not started."""
        if not self._open:
            return self.messages
        answers = [entry.result or _not_started(entry.call, "approval is awaited") for entry in self._open.values()]
        return [*self.messages, *answers]

    @property
    def last_results(self) -> Sequence[ToolResult]:
        """The results of the turn that was finished last."""
        return self._results

    def next_step(self) -> Step:
        """Return what to do now; the same step again until it is answered."""
        phase = self._phase
        if phase == "ready":
            return self._begin_turn()
        if phase == "running":
            return self._next_unit()
        if phase == "deciding":
            return AskApproval(tuple([entry.call for entry in self._open.values() if entry.status == "undecided"]))
        if phase == "asking":
            return CallModel(self.iterations, has_tools=not self._is_last)
        if phase == "preparing":
            raise LoopUsageError("the reply has calls: feed calls_prepared before asking for the next step")
        if phase == "compacting":
            return Compact(self.messages)
        if self.reason is None:
            raise LoopUsageError("the loop failed and can't go on: its error was raised already")
        return Finished(self.reason)

    # the beginning of a turn

    def _begin_turn(self) -> Step:
        if self._command is not None:
            command, self._command = self._command, None
            if isinstance(command, Stop):
                self._end(StopCondition(command.reason))
                return self.next_step()
            if isinstance(command, InjectMessages):
                self.messages.extend(command.messages)
                self._call_ids |= call_ids_of(command.messages)
        if self._incoming:
            self.messages.extend(self._incoming)
            self._incoming = []
        most = self._config.max_iterations
        if self._is_last or (most == 0 and self._config.on_max_iterations == "stop"):
            self._end(MaxIterations(most))
            return self.next_step()
        if self._compacts:
            if not self._is_compacted:
                self._phase = "compacting"
                return Compact(self.messages)
            self._is_compacted = False
        self._is_last = self.tool_rounds >= most
        self._phase = "asking"
        self.iterations += 1
        return CallModel(self.iterations, has_tools=not self._is_last)

    def compacted(self, messages: Sequence[Message]) -> None:
        """Take the transcript as it is after `Compact`."""
        self._require("compacting", "compacted")
        self.messages[:] = messages
        self._is_compacted = True
        self._phase = "ready"

    def keep_partial(self, text: str) -> None:
        """Keep what an answer had said when it was cut off for good; it is no answer, and the loop is about to end."""
        self._require("asking", "keep_partial")
        self.messages.append(AssistantMessage(text))

    def limit_reached(self, limit: UsageLimit) -> None:
        """End the loop because the budget has nothing left for the request that `CallModel` asked for."""
        self._require("asking", "limit_reached")
        self.iterations -= 1
        self._end(limit)

    # the model's answer

    def model_replied(self, response: ChatResponse) -> Sequence[ToolCall]:
        """Take the answer and keep it; return the calls that are to be prepared and fed to `calls_prepared`, if any.

        Missing and repeated call ids are mended first, so that every later feed has one id for one call. Calls beyond
        the most of one reply are answered here.
        """
        if self._phase != "asking":
            self._require("asking", "model_replied")
        message = response.message
        calls: list[ToolCall] = []
        opened: dict[str, _OpenCall] = {}
        for block in message.content:
            if isinstance(block, ToolCall):
                calls.append(block)
                opened[block.id] = _OpenCall(block)
        if len(opened) != len(calls) or "" in opened or not self._call_ids.isdisjoint(opened):
            message = mend_call_ids(message, self._call_ids, self.iterations)
            response = replace(response, message=message)
            calls = list(message.tool_calls)
            opened = {call.id: _OpenCall(call) for call in calls}
        self.response = response
        self._spent.append(response.usage)
        self.messages.append(message)
        self._calls = calls
        self._open = opened
        self._call_ids.update(opened)
        self._unanswered = self._undecided = len(opened)
        if not calls:
            self._judge(())
            return ()
        most = self._config.max_calls_per_turn
        if most is not None and len(calls) > most:
            for call in calls[most:]:
                self._refuse(opened[call.id], _one_too_many(call, most))
            calls = calls[:most]
        self._phase = "preparing"
        return calls

    def calls_prepared(self, calls: Sequence[ToolCall]) -> LoopDetected | None:
        """Decide what follows from a reply with calls; return what loop detection has to tell.

        Args:
            calls: Those that `model_replied` returned, as they would run: names repaired, arguments canonical. Only
                what looks at calls (`stop_when`, loop detection) reads them.
        """
        if self._phase != "preparing":
            self._require("preparing", "calls_prepared")
        if len(calls) != self._undecided:
            raise LoopUsageError("calls_prepared was given other calls than model_replied returned")
        return self._judge(calls)

    def _judge(self, calls: Sequence[ToolCall]) -> LoopDetected | None:
        response = self.response
        assert response is not None
        stop_when = self._config.stop_when
        if stop_when is not None:
            decision = _ask_stop_when(stop_when, self._stop_context(response, calls))
            if isinstance(decision, Stop):
                self._end(StopCondition(decision.reason))
                return None
        if not self._open:
            if response.unanswered:
                self._end(UnansweredItems(response.unanswered))
            else:
                self._end(MaxIterations(self._config.max_iterations) if self._is_last else COMPLETE)
            return None
        if self._is_last:
            self._end(MaxIterations(self._config.max_iterations))
            return None
        self._phase = "deciding"
        if response.stop_reason in CUT_REASONS:
            self._answer_open("the reply was stopped by the provider's content filter")
            self._close_turn()
            return None
        detected = None if self._detector is None else self._detect(calls)
        if response.stop_reason == "max_tokens":
            self._refuse_unfinished(response.unfinished_call)
        return detected

    def _refuse_unfinished(self, call: ToolCall | None) -> None:
        """Answer a call at which the reply was cut off: what was not said whole does not run."""
        entry = None if call is None or self._phase != "deciding" else self._open[call.id]
        if entry is None or entry.status != "undecided":
            return
        self._refuse(entry, _cut_off(entry.call))
        if not self._undecided:
            self._after_decision()

    def _refuse(self, entry: _OpenCall, result: ToolResult) -> None:
        """Answer a call about which nobody has to be asked."""
        self._keep(entry, result)
        self.closed.append((result, False))
        self._undecided -= 1

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

    def _detect(self, calls: Sequence[ToolCall]) -> LoopDetected | None:
        assert self._detector is not None
        found = self._detector.saw_calls(calls)
        if found is None or not found.is_due:
            return None
        match found.fact.action:
            case "stop":
                self._end(found.fact)
            case "inject_warning":
                self._warnings.append(UserMessage(warning_text(found.fact)))
            case "skip":
                for call_id in found.call_ids:
                    entry = self._open[call_id]
                    self._refuse(entry, _repeated(entry.call, found.fact))
                if not self._undecided:
                    self._after_decision()
            case "warn":
                pass
        return found.fact

    # the calls of a turn

    def approval_decided(self, call_id: str, decision: Decision) -> None:
        """Take the decision on one call."""
        entry = self._open.get(call_id)
        is_awaited = entry is not None and (
            (self._phase == "deciding" and entry.status == "undecided")
            or (entry.status == "deferred" and (self._phase == "running" or isinstance(self.reason, AwaitingApproval)))
        )
        if entry is None or not is_awaited:
            raise LoopUsageError(f"no decision is awaited on call '{call_id}'")
        match decision:
            case RunCall():  # a pattern with what is in it takes four times as long
                entry.status = "alone" if decision.alone else "approved"
            case Refuse(result):
                self._keep(entry, result)
            case Postpone():
                entry.status = "deferred"
            case EndRun(reason):
                self._end(Aborted(reason))
                return
        if self._phase == "deciding":
            self._undecided -= 1
        if not self._undecided:
            self._after_decision()

    def _after_decision(self) -> None:
        self.reason = None
        self._phase = "running"
        if self._unanswered:
            self._plan_units()
        else:
            self._close_turn()

    def _plan_units(self) -> None:
        """Cut what may run into units: what stands in one unit runs together, the units run one after the other."""
        size = self._config.execution.unit_size
        unit: list[_OpenCall] = []
        self._units.clear()
        for entry in self._open.values():
            if entry.status == "alone":
                if unit:
                    self._units.append(tuple(unit))
                    unit = []
                self._units.append((entry,))
            elif entry.status == "approved":
                unit.append(entry)
                if len(unit) == size:
                    self._units.append(tuple(unit))
                    unit = []
        if unit:
            self._units.append(tuple(unit))

    def _next_unit(self) -> Step:
        while self._units:
            waiting = tuple([entry.call for entry in self._units[0] if entry.status in ("approved", "alone")])
            if waiting:
                return RunTools(waiting, self._config.execution.limit)
            if any(entry.status == "started" for entry in self._units[0]):
                raise LoopUsageError("calls are still running: feed their results before asking for the next step")
            self._units.popleft()
        self.reason = AwaitingApproval(
            tuple([entry.call for entry in self._open.values() if entry.status == "deferred"])
        )
        self._phase = "finished"
        return Finished(self.reason)

    def call_reopened(self, call_id: str) -> None:
        """Have somebody decide again on a call that has not started: what it would do has changed."""
        entry = self._open.get(call_id)
        if self._phase != "running" or entry is None or entry.status not in ("approved", "alone", "deferred"):
            raise LoopUsageError(f"call '{call_id}' is not to be decided on again")
        entry.status = "deferred"
        self._plan_units()

    def tool_started(self, call_id: str) -> None:
        """Note that a call runs from now on."""
        entry = self._open.get(call_id)
        if self._phase != "running" or entry is None or entry.status not in ("approved", "alone"):
            raise LoopUsageError(f"call '{call_id}' is not to be run now")
        entry.status = "started"

    def tool_returned(self, call_id: str, result: ToolResult) -> None:
        """Keep the result of a call, at once and for good."""
        entry = self._open.get(call_id)
        if self._phase != "running" or entry is None or entry.status in ("done", "undecided", "deferred"):
            raise LoopUsageError(f"no result is awaited for call '{call_id}'")
        self._keep(entry, result)
        if not self._unanswered:
            self._close_turn()

    def tool_cut(self, call_id: str, cut: CutCall) -> None:
        """Note how far a call came that started and ended without a result, because the loop ends.

        A call that has been answered meanwhile stays answered as it was.
        """
        entry = self._open.get(call_id)
        if entry is not None:
            entry.cut = cut

    def wind_up(self, reason: UsageLimit | NoValidAnswer) -> None:
        """End the loop when this turn's results are in: nothing more may be spent, or asked."""
        if not self._open:
            raise LoopUsageError("wind_up does not fit here: no call is open")
        self._wound_up = reason

    def answer_judged(self, judgement: TypedAnswer | NoValidAnswer | UserMessage) -> None:
        """Say what the reply that completed the loop is, where an answer of a type was asked for, or ask once more."""
        if not isinstance(self.reason, Complete):
            raise LoopUsageError("answer_judged does not fit here: the loop was not completed by a reply")
        if isinstance(judgement, UserMessage):
            self.messages.append(judgement)
            self.reason, self._phase = None, "ready"
        else:
            self.reason = judgement

    def _keep(self, entry: _OpenCall, result: ToolResult) -> None:
        if result.call_id != entry.call.id:
            raise LoopUsageError(f"a result for call '{result.call_id}' was given as that of call '{entry.call.id}'")
        entry.result = result
        entry.status = "done"
        self._unanswered -= 1

    def _close_turn(self) -> None:
        """Append the results in call order, then the warnings, and see whether the loop goes on."""
        results = self._append_results()
        self.tool_rounds += 1
        if self._warnings:
            self.messages.extend(self._warnings)
            self._warnings = []
        if self._detector is not None:
            self._detector.saw_results(results)
        self._phase = "ready"
        for result in results:
            if result.result_as_answer and not result.is_error:
                is_typed = self._config.asks_by_tool and result.tool_name == ANSWER_TOOL
                self._end(TypedAnswer() if is_typed else ResultAsAnswer(result.call_id, result.tool_name))
                return
        if self.response is not None and self.response.unanswered:
            self._end(UnansweredItems(self.response.unanswered))
        elif self._wound_up is not None:
            self._end(self._wound_up)
        elif self.tool_rounds >= self._config.max_iterations and self._config.on_max_iterations == "stop":
            self._end(MaxIterations(self._config.max_iterations))

    def _append_results(self) -> Sequence[ToolResult]:
        results: list[ToolResult] = []
        for entry in self._open.values():
            assert entry.result is not None, "a turn is closed only when each call has its result"
            results.append(entry.result)
        self.messages.extend(results)
        self._tool_calls_executed += len(results)
        self._results = results
        self._open = {}
        self._units.clear()
        return results

    # saving

    def freeze(self) -> FrozenState:
        """Return all that the machine knows, as plain data: between turns, at the end, or round a late decision.

        Raises:
            LoopUsageError: A turn is under way.
        """
        is_decided = self._phase == "running" and all(entry.status != "started" for entry in self._open.values())
        if not (self.is_at_boundary or self._phase == "finished" or is_decided):
            raise LoopUsageError(f"the loop is {self._phase}: it can be saved between turns, or when it has ended")
        return FrozenState(
            messages=list(self.messages),
            usage=self.usage,
            iterations=self.iterations,
            tool_rounds=self.tool_rounds,
            response=self.response,
            reason=None if isinstance(self.reason, AwaitingApproval) else self.reason,
            open_calls=[FrozenCall(entry.call.id, entry.status, entry.result) for entry in self._open.values()],
            results=list(self._results),
            incoming=list(self._incoming),
            warnings=list(self._warnings),
            command=self._command,
            wound_up=self._wound_up,
            is_last=self._is_last,
            tool_calls_executed=self._tool_calls_executed,
            detector=None if self._detector is None else self._detector.state(),
        )

    @classmethod
    def thaw(cls, frozen: FrozenState, config: ToolLoopConfig[Any], *, compacts: bool = False) -> LoopState:
        """Return a machine that goes on where the frozen one stood."""
        state = cls(list(frozen.messages), config, compacts=compacts)
        state._spent.append(frozen.usage)
        state.iterations = frozen.iterations
        state.tool_rounds = frozen.tool_rounds
        state.response = frozen.response
        state._results = frozen.results
        state._incoming = list(frozen.incoming)
        state._warnings = list(frozen.warnings)
        state._command = frozen.command
        state._wound_up = frozen.wound_up
        state._is_last = frozen.is_last
        state._tool_calls_executed = frozen.tool_calls_executed
        if state._detector is not None and frozen.detector is not None:
            state._detector.restore(frozen.detector)
        if frozen.reason is not None:
            state.reason, state._phase = frozen.reason, "finished"
        elif frozen.open_calls:
            last = state.messages[-1] if state.messages else None
            calls = {call.id: call for call in last.tool_calls} if isinstance(last, AssistantMessage) else {}
            if list(calls) != [saved.call_id for saved in frozen.open_calls]:
                raise LoopUsageError("the saved calls are not those of the last message")
            for saved in frozen.open_calls:
                state._open[saved.call_id] = _OpenCall(calls[saved.call_id], saved.status, saved.result)
            state._unanswered = sum(saved.result is None for saved in frozen.open_calls)
            state._phase = "running"
            state._plan_units()
        return state

    # what comes from outside

    def spent(self, usage: Usage) -> None:
        """Count what a loop inside a tool has used."""
        self._spent.append(usage)

    def steered(self, messages: Iterable[Message]) -> None:
        """Take messages from somebody else: calls that have not started are skipped, the next turn begins with them.

        After a completed loop they open it again.
        """
        new = list(messages)
        if not new:
            return
        if self.is_finished and not isinstance(self.reason, Complete):
            raise LoopUsageError("the loop is over: nobody reads a message anymore")
        self._incoming.extend(new)
        if self.is_finished:
            self.reason = None
            self._phase = "ready"
        elif self._phase in ("deciding", "running"):
            for entry in self._open.values():
                if entry.status in ("undecided", "approved", "alone", "deferred"):
                    self._keep(entry, _not_started(entry.call, "skipped because of a new message"))
                    self.closed.append((cast("ToolResult", entry.result), False))
            self._undecided = 0
            self._phase = "running"
            if not self._unanswered:
                self._close_turn()

    def take_undelivered(self) -> Sequence[Message]:
        """Return, once, what was steered and did not come into the transcript before the end."""
        messages = self._incoming
        if messages:
            self._incoming = []
        return messages

    def commanded(self, command: Command) -> None:
        """Take the caller's wish for the next turn; the last one counts, and none is left after the end.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
            ConfigurationError: It is no command.
        """
        check_setting("what the next turn begins with", command, Continue, InjectMessages, Stop)
        if isinstance(command, InjectMessages):
            validate_transcript(command.messages)
            for index, message in enumerate(command.messages):
                calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
                known = self._call_ids.intersection([call.id for call in calls])
                if known:
                    raise TranscriptError(index, f"call '{known.pop()}' has the id of an earlier call; give it another")
        if not self.is_finished:
            self._command = command

    def edited(self) -> None:
        """Take `messages` as they are now: somebody may have changed them.

        Raises:
            TranscriptError: They are no valid transcript anymore, or nothing is left that a model could be asked.
        """
        command = self._command
        comes = command.messages if isinstance(command, InjectMessages) else self._incoming
        if not (self.messages or comes or self.is_finished or isinstance(command, Stop)):
            raise TranscriptError(
                0, "the transcript is empty, and the next request would ask nothing; leave or append a message"
            )
        validate_transcript(self.messages, allow_pending=not self.is_at_boundary)
        self._call_ids |= call_ids_of(self.messages)

    def timed_out(self, limit: float) -> None:
        """End the loop: its time is up."""
        if not self.is_finished:
            self._end(Timeout(limit))

    def cancelled(self, reason: str | None = None) -> None:
        """End the loop: its caller has gone, or has said so."""
        if not self.is_finished:
            self._end(Cancelled(reason))

    def failed(self) -> None:
        """End the loop: what it needs has failed, and its driver is about to raise why."""
        if not self.is_finished:
            self._end(None)

    def close(self, reason: str | None = None) -> None:
        """End the loop, whatever state it is in, and answer every open call."""
        if isinstance(self.reason, AwaitingApproval):
            self._end(Cancelled(reason))
        else:
            self.cancelled(reason)

    def _end(self, reason: TerminationReason | None) -> None:
        if self._open:
            self._answer_open(_WHY[type(reason)])
            self._append_results()
        self.reason = reason
        self._phase = "failed" if reason is None else "finished"

    def _answer_open(self, why: str) -> None:
        for entry in self._open.values():
            if entry.status == "done":
                continue
            has_started = entry.status == "started"
            is_known_as_waiting = entry.cut is not None and entry.cut.waited_for is not None
            if has_started and not is_known_as_waiting:
                result = _interrupted(entry.call, why, entry.cut)
            else:
                result = _not_started(entry.call, why, entry.cut)
            self._keep(entry, result)
            self.closed.append((result, has_started))

    def _require(self, phase: _Phase, feed: str) -> None:
        if self._phase != phase:
            raise LoopUsageError(f"{feed} does not fit here: the loop is {self._phase}, not {phase}")


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


def _ask_stop_when(stop_when: StopWhen, context: StopContext) -> StopDecision:
    try:
        decision = stop_when(context)
    except Exception as error:
        raise LoopError(f"stop_when raised {type(error).__name__}: {error}") from error
    try:
        check_setting("what stop_when gives", decision, Continue, Stop)
    except ConfigurationError as error:
        raise LoopUsageError(str(error)) from None
    return decision


def _not_started(call: ToolCall, why: str, cut: CutCall | None = None) -> ToolResult:
    waited = f" while the call waited for {cut.waited_for}" if cut is not None and cut.waited_for else ""
    return ToolResult(call.id, f"Not started: {why}{waited}.", tool_name=call.name, is_error=True)


def _one_too_many(call: ToolCall, most: int) -> ToolResult:
    text = f"Not run: at most {most} calls of one reply are run, and this one came after them. Ask for it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def _cut_off(call: ToolCall) -> ToolResult:
    text = "Not run: your reply was cut off before its arguments were complete; call it again."
    return ToolResult(call.id, text, tool_name=call.name, is_error=True)


def _repeated(call: ToolCall, fact: LoopDetected) -> ToolResult:
    return ToolResult(call.id, f"Not run. {warning_text(fact)}", tool_name=call.name, is_error=True)


def _interrupted(call: ToolCall, why: str, cut: CutCall | None) -> ToolResult:
    after = " It may still be running." if cut is not None and cut.may_run_on else ""
    return ToolResult(
        call.id,
        f"Interrupted: {why}. The tool was running and may have taken effect.{after}",
        tool_name=call.name,
        is_error=True,
    )
