"""Every decision of a loop, as plain data: no await, no clock, no randomness, no I/O.

A driver does what the phase of the machine asks for, and passes the outcome to `LoopState.feed`. All views of a loop
(run, stream, handle, saved and restored) use this one machine. The phases and the feeds that answer them::

    phase           done by the driver                        answered by
    ready           pass on steered messages                  TurnBegun
    compacting      shorten the transcript                    TranscriptCompacted
    compacted       nothing                                   TurnBegun
    asking          ask the model; if `is_last`, without      ModelReplied | RequestRefused
                    tools
    preparing       prepare the calls of its reply            CallsPrepared
    deciding        ask the guards about each call            CallDecided, once per call; none where CallsPrepared
                                                              approved all
    running         run the calls of `next_calls`             CallStarted, CallReturned | CallCut, once per call
    awaiting        nothing: somebody else has to decide      CallDecided, once per call
    finished        nothing: the loop is over
    failed          nothing: an error has ended it

`MessagesSteered`, `CommandGiven`, `RunEnded` and `RunClosed` may come at any time. `toolkit.loop.feeds` defines all
feeds, and the phases in which each is accepted.

The order of a turn: pending commands and steering, limits, the model, its usage, its calls as they would run,
`stop_when`, done?, loop detection, approvals, execution, results appended, warnings appended, the limit of iterations.

The machine guarantees that each call of an assistant message gets exactly one result, directly after that message and
in call order, however the loop ends. Results are stored in the turn as they arrive, and appended together when the last
one is there or the loop ends. A call that has no result at the end is answered as "not started" if its start was never
fed, else as "interrupted". So a result is never lost or replaced, and no call is offered to run twice.

Only in the phase ``awaiting`` do calls stay open without running: somebody else has to decide. A decision moves the
machine on; closing the loop answers those calls as not started.

A feed that does not fit the phase raises `LoopUsageError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, ClassVar, Literal, Self, cast

from toolkit.calls.approval import Abort, Approve, Deny, WaitingChild
from toolkit.calls.run import CallCut, CallReturned, CallSuspended, write_waiting
from toolkit.chat import (
    AssistantMessage,
    ChatResponse,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    call_ids_of,
    repair_call_ids,
    validate_transcript,
)
from toolkit.chat.output import copy_result
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError, TranscriptError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.feeds import (
    ALLOWED_PHASES,
    PHASES,
    AnswerJudged,
    CallDecided,
    CallReopened,
    CallsPrepared,
    CallStarted,
    CallStatus,
    ChildDecided,
    Command,
    CommandGiven,
    Feed,
    InjectMessages,
    MessagesSteered,
    ModelReplied,
    OpenCall,
    Phase,
    ReplyCutOff,
    RequestRefused,
    RunClosed,
    RunEnded,
    RunResumed,
    RunWoundUp,
    TranscriptCompacted,
    TranscriptEdited,
    Turn,
    TurnBegun,
    UsageSpent,
    write_denied,
    write_not_started,
)
from toolkit.loop.limits import (
    Continue,
    LoopDetector,
    Repetition,
    Stop,
    StopContext,
    Written,
    ask_stop_when,
    warning_text,
)
from toolkit.loop.middleware import ANY_TOOL, ReplyPolicy
from toolkit.loop.outcome import (
    CUT_STOPS,
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    CutStop,
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
from toolkit.settings import check_setting

_CUT_REASONS = ("content_filter", "refusal")
"""Why a provider stops a reply whose calls must not run."""

_CUT_OFF = "Not run: your reply was cut off before its arguments were complete; call it again."
_COMPLETE = Complete()
_NO_POLICIES: Mapping[str, ReplyPolicy] = {}

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
"""The cause in the results of calls that an end found open, by the reason of the end."""


@dataclass(slots=True)
class FrozenCall:
    """One open call of a frozen machine."""

    call_id: str
    status: CallStatus
    result: ToolResult | None
    is_own: bool = False
    child: WaitingChild | None = None


@dataclass(slots=True, kw_only=True)
class FrozenState:
    """The state of a machine as plain data; anything not listed here is lost in a restore.

    `left_ids` are the ids of calls that are no longer in the transcript.
    """

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
    wound_up: UsageLimit | NoValidAnswer | MissingSteps | Aborted | None
    is_last: bool
    tool_calls_executed: int
    detector: dict[str, Any] | None
    policies: dict[str, Any] = field(default_factory=dict[str, Any])
    left_ids: list[str] = field(default_factory=list[str])
    checked_answer: str | None = None


_CONVERTED = ("usage", "reason", "open_calls", "detector", "policies", "left_ids")
_COPIED = [each.name for each in fields(FrozenState) if each.name not in _CONVERTED]


class LoopState:
    """The machine; see the module's docstring. Its attributes may be read by anyone, and are changed by `feed` alone.

    Args:
        messages: The transcript to start from: valid, and owned by the machine from now on.
        config: The settings.
        compacts: True if a `Compact` step comes before each request.
        policies: The reply policies of middleware, by name; the first that refuses a call or an answer decides.
        now: Returns the time for results that the machine writes itself; None leaves it out.

    Attributes:
        messages: The transcript so far.
        iterations: How many requests were made.
        tool_rounds: How many turns ran to their results.
        tool_calls_executed: How many calls got a result.
        phase: The phase of the machine.
        response: The last response.
        reason: Why the loop ended; None while it goes on.
        results: The results of the last finished turn.
        turn: The calls of the current turn.
        calls_to_prepare: The calls of the last reply that `CallsPrepared` has to cover.
        detected: The finding of loop detection in the calls of the last reply.
        incoming: Steered messages that are not in the transcript yet.
        warnings: Messages that follow the results of this turn.
        command: The caller's command for the next turn.
        watches_calls: True if the calls of `CallsPrepared` are read.
        wound_up: Why the loop ends after this turn's results; None if it goes on.
        checked_answer: The checked value of an answer in words, as `to_output` writes it.
        is_last: True if the limit of turns allows no further request; the current one offers no tools.
        hold: The tool that the reply must call, or `ANY_TOOL`; empty leaves the choice to the model.
    """

    __slots__ = (
        "_call_ids",
        "_compacts",
        "_config",
        "_detector",
        "_named_policies",
        "_policies",
        "_spent",
        "calls_to_prepare",
        "checked_answer",
        "command",
        "detected",
        "hold",
        "incoming",
        "is_last",
        "iterations",
        "messages",
        "phase",
        "reason",
        "response",
        "results",
        "tool_calls_executed",
        "tool_rounds",
        "turn",
        "warnings",
        "watches_calls",
        "wound_up",
    )

    def __init__(
        self,
        messages: list[Message],
        config: ToolLoopConfig[Any],
        *,
        compacts: bool = False,
        policies: Mapping[str, ReplyPolicy] = _NO_POLICIES,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.messages: list[Message] = messages
        self.iterations: int = 0
        self.tool_rounds: int = 0
        self.tool_calls_executed: int = 0
        self.phase: Phase = "ready"
        self.response: ChatResponse | None = None
        self.reason: TerminationReason | None = None
        self.results: Sequence[ToolResult] = ()
        self.turn: Turn = Turn(now)
        self.calls_to_prepare: Sequence[OpenCall] = ()
        self.detected: LoopDetected | None = None
        self.incoming: list[Message] = []
        self.warnings: list[Message] = []
        self.command: Command | None = None
        self.wound_up: UsageLimit | NoValidAnswer | MissingSteps | Aborted | None = None
        self.checked_answer: str | None = None
        self.is_last: bool = False
        self._config = config
        self._compacts = compacts
        self._spent: list[Usage] = []  # summed when somebody asks
        self._detector = None if config.loop_detection is None else LoopDetector(config.loop_detection)
        self._named_policies = policies
        self._policies = tuple(policies.values())
        self.hold: str = ""
        self.watches_calls: bool = self.reads_calls or config.stop_when is not None
        self._call_ids: set[str] = call_ids_of(messages)

    # its state

    @property
    def usage(self) -> Usage:
        """The sum over all responses so far."""
        if len(self._spent) != 1:
            self._spent[:] = [Usage.total(self._spent)]
        return self._spent[0]

    @property
    def is_finished(self) -> bool:
        """True if no step is left, or the next one needs a decision from outside."""
        return self.phase in ("finished", "failed", "awaiting")

    @property
    def is_at_boundary(self) -> bool:
        """True between two turns, when the transcript is complete and may be changed."""
        return self.phase == "ready"

    @property
    def open_calls(self) -> list[OpenCall]:
        """The calls that have no result yet, in call order."""
        return [entry for entry in self.turn.by_id.values() if entry.result is None]

    def settled_messages(self) -> list[Message]:
        """Return the transcript; while calls await a decision, a copy in which they are answered as not started."""
        entries = self.turn.by_id.values()
        if not entries:
            return self.messages
        return [*self.messages, *[entry.result or _write_awaited(entry) for entry in entries]]

    def refusal_of(self, tool_names: Collection[str]) -> str | None:
        """Return the text with which the machine itself answered a call of these tools in this turn, or None."""
        texts = [result.text for _, result, _ in self.turn.closed if result.tool_name in tool_names]
        return texts[0] if texts else None

    def is_too_early(self, tool_name: str) -> bool:
        """Return whether a policy requires other steps before a call of this tool."""
        is_answer = self._is_answer(tool_name)
        return any(policy.is_too_early(tool_name, is_answer=is_answer) for policy in self._policies)

    @property
    def reads_calls(self) -> bool:
        """True if the calls of `CallsPrepared` are read by something other than `stop_when`."""
        return self._detector is not None or bool(self._policies)

    def take_undelivered(self) -> Sequence[Message]:
        """Return, once, the steered messages that did not reach the transcript before the end."""
        messages = self.incoming
        if messages:
            self.incoming = []
        return messages

    def freeze(self) -> FrozenState:
        """Return the state as plain data: between turns, at the end, or while decisions are awaited.

        Raises:
            LoopUsageError: A turn is under way.
        """
        is_decided = self.phase == "running" and not self.turn.with_status("started")
        if self.phase not in ("ready", "finished", "awaiting", "failed") and not is_decided:
            raise LoopUsageError(f"the loop is {self.phase}: it can be saved between turns, or when it has ended")
        return FrozenState(
            **{name: _copy_list(getattr(self, name)) for name in _COPIED},
            usage=self.usage,
            reason=None if self.phase == "awaiting" else self.reason,
            open_calls=[
                FrozenCall(entry.call.id, entry.status, entry.result, entry.is_own, entry.child)
                for entry in self.turn.by_id.values()
            ],
            detector=None if self._detector is None else self._detector.state(),
            policies={name: policy.save() for name, policy in self._named_policies.items()},
            left_ids=sorted(self._call_ids - call_ids_of(self.messages)),
        )

    @classmethod
    def thaw(
        cls,
        frozen: FrozenState,
        config: ToolLoopConfig[Any],
        *,
        compacts: bool = False,
        policies: Mapping[str, ReplyPolicy] = _NO_POLICIES,
        now: Callable[[], float] | None = None,
    ) -> Self:
        """Return a machine with the state of a frozen one."""
        state = cls(list(frozen.messages), config, compacts=compacts, policies=policies, now=now)
        for name in _COPIED:
            if name != "messages":
                setattr(state, name, _copy_list(getattr(frozen, name)))
        state._spent.append(frozen.usage)
        state._call_ids.update(frozen.left_ids)
        if state._detector is not None and frozen.detector is not None:
            state._detector.restore(frozen.detector)
        for name, policy in state._named_policies.items():
            if name in frozen.policies:
                policy.load(frozen.policies[name])
        if frozen.reason is not None:
            state.reason, state.phase = frozen.reason, "finished"
        elif frozen.open_calls:
            state._thaw_calls(frozen.open_calls)
        return state

    def _thaw_calls(self, frozen: Sequence[FrozenCall]) -> None:
        """Reopen the calls of the last message, each with its status."""
        last = self.messages[-1] if self.messages else None
        calls = {call.id: call for call in last.tool_calls} if isinstance(last, AssistantMessage) else {}
        if list(calls) != [saved.call_id for saved in frozen]:
            raise LoopUsageError("the saved calls are not those of the last message")
        self.turn.open(
            {
                saved.call_id: OpenCall(
                    calls[saved.call_id], saved.status, saved.result, is_own=saved.is_own, child=saved.child
                )
                for saved in frozen
            }
        )
        self.phase = "running"

    # phases and feeds

    def next_calls(self) -> Sequence[OpenCall]:
        """Return the calls to run next, the same ones until they start; if all others await a decision, so does it.

        Raises:
            LoopUsageError: Calls of the current unit are still running.
        """
        calls = self.calls_to_prepare
        if len(calls) != 1 or calls[0].status != "approved":  # a lone call needs no units
            calls = self.turn.find_unit(self._config.execution.unit_size)
        if not calls:
            waiting = [call for entry in self.open_calls for call in entry.awaited_calls]
            self.reason = AwaitingApproval(tuple(waiting))
            self.phase = "awaiting"
        return calls

    def feed(self, feed: Feed) -> None:
        """Take a feed; every change of the state comes in here.

        Raises:
            LoopUsageError: It does not fit the phase; nothing has changed.
        """
        try:
            take = _TAKERS[self.phase][type(feed)]
        except KeyError:
            phases = " or ".join(sorted(ALLOWED_PHASES[type(feed)]))
            raise LoopUsageError(
                f"{type(feed).__name__} does not fit here: the loop is {self.phase}, not {phases}"
            ) from None
        take(self, feed)

    # the beginning of a turn

    def _begin_turn(self, _: TurnBegun) -> None:
        if self.command is not None:
            command, self.command = self.command, None
            if isinstance(command, Stop):
                self._end_loop(StopCondition(command.reason))
                return
            if isinstance(command, InjectMessages):
                self.messages.extend(command.messages)
                self._call_ids |= call_ids_of(command.messages)
        if self.incoming:
            self.messages.extend(self.incoming)
            self.incoming = []
        most = self._config.max_iterations
        if self.is_last or (most == 0 and self._config.on_max_iterations == "stop"):
            self._end_loop(MaxIterations(most))
            return
        if self._compacts and self.phase == "ready":
            self.phase = "compacting"
            return
        self.is_last = self.tool_rounds >= most
        self.phase = "asking"
        self.iterations += 1
        if self._policies:
            self.hold = "" if self.is_last else self._find_hold()

    def _take_compacted(self, feed: TranscriptCompacted) -> None:
        self._call_ids |= call_ids_of(feed.messages)
        self.messages[:] = feed.messages
        if self.phase == "compacting":
            self.phase = "compacted"

    def _take_partial(self, feed: ReplyCutOff) -> None:
        self.messages.append(AssistantMessage(feed.text))

    def _take_refusal(self, feed: RequestRefused) -> None:
        if not feed.is_made:
            self.iterations -= 1
        self._end_loop(feed.reason)

    # the model's answer

    def _take_reply(self, feed: ModelReplied) -> None:
        """Store the reply and open its calls.

        Missing and repeated call ids are replaced first, so that each id names one call. Calls beyond
        ``limits.calls_per_turn`` are answered here.
        """
        response = feed.response
        message = response.message
        calls: list[OpenCall] = []
        opened: dict[str, OpenCall] = {}
        for block in message.content:
            if isinstance(block, ToolCall):
                opened[block.id] = entry = OpenCall(block)
                calls.append(entry)
        if len(opened) != len(calls) or "" in opened or not self._call_ids.isdisjoint(opened):
            message = repair_call_ids(message, self._call_ids, self.iterations)
            response = replace(response, message=message)
            calls = [OpenCall(call) for call in message.tool_calls]
            opened = {entry.call.id: entry for entry in calls}
        self.response = response
        self._spent.append(response.usage)
        self.messages.append(message)
        self._call_ids.update(opened)
        turn = self.turn
        turn.by_id = opened
        turn.unanswered = turn.undecided = len(calls)
        self.detected = None
        if not calls:
            if not self._is_stopped(response, ()):
                self._take_answer(response)
            return
        most = self._config.limits.calls_per_turn
        if most is not None and len(calls) > most:
            text = (
                f"Not run: at most {most} calls of one reply are run, and this one came after them. Ask for it again."
            )
            for entry in calls[most:]:
                turn.refuse(entry, text)
            calls = calls[:most]
        self.calls_to_prepare = calls
        self.phase = "preparing"

    def _take_prepared(self, feed: CallsPrepared) -> None:
        """Continue after the calls of a reply were prepared: stop, refuse some, or go on to approvals."""
        response = self.response
        calls = self._read_calls(feed) if feed.calls or self.watches_calls else ()
        assert response is not None
        if self._config.stop_when is not None and self._is_stopped(response, calls):
            return
        if self.is_last:
            self._end_loop(MaxIterations(self._config.max_iterations))
            return
        self.phase = "deciding"
        if response.stop_reason in _CUT_REASONS:
            self.turn.answer_all("the reply was stopped by the provider's content filter")
            self._close_turn()
            return
        found = None if self._detector is None else self._detector.saw_calls(calls)
        if found is not None:
            self._answer_repetition(found)
        if response.stop_reason != "tool_use":
            self._refuse_unfinished(response)
        if self._policies and self.phase == "deciding":
            self._review_calls(self._list_prepared(calls), feed.mistakes)
        if feed.is_approved and self.phase == "deciding":
            self.turn.approve_all(feed.alone)
            self.phase = "running"

    def _read_calls(self, feed: CallsPrepared) -> Sequence[Written]:
        """Return the calls of a feed, or those to prepare as the model wrote them."""
        if feed.calls is None:
            return [(entry.call.name, entry.call.arguments) for entry in self.calls_to_prepare]
        if len(feed.calls) != self.turn.undecided:
            raise LoopUsageError("CallsPrepared has other calls than those to prepare")
        return feed.calls

    def _list_prepared(self, written: Sequence[Written]) -> list[ToolCall]:
        """Return the calls of the reply as they would run."""
        entries = self.calls_to_prepare[: len(written)]
        return [
            replace(entry.call, name=name, arguments=arguments)
            for entry, (name, arguments) in zip(entries, written, strict=True)
        ]

    def _is_stopped(self, response: ChatResponse, calls: Sequence[Written]) -> bool:
        """End the loop if `stop_when` says so; return whether it does."""
        stop_when = self._config.stop_when
        if stop_when is None:
            return False
        decision = ask_stop_when(stop_when, self._stop_context(response, calls))
        if isinstance(decision, Stop):
            self._end_loop(StopCondition(decision.reason))
        return isinstance(decision, Stop)

    def _stop_context(self, response: ChatResponse, calls: Sequence[Written]) -> StopContext:
        if calls:
            prepared = {call.id: call for call in self._list_prepared(calls)}
            content = [
                prepared.get(block.id, block) if isinstance(block, ToolCall) else block
                for block in response.message.content
            ]
            response = replace(response, message=AssistantMessage(content))
        return StopContext(
            iteration=self.iterations,
            response=response,
            usage=self.usage,
            tool_calls_executed=self.tool_calls_executed,
            last_tool_results=tuple(map(copy_result, self.results)),
        )

    def _take_answer(self, response: ChatResponse) -> None:
        """End the loop with a reply without calls, unless a policy refuses it."""
        if response.unanswered:
            self._end_loop(UnansweredItems(response.unanswered))
        elif self.is_last:
            self._end_loop(MaxIterations(self._config.max_iterations))
        elif not self._send_back():
            cut = cast("CutStop", response.stop_reason) if response.stop_reason in CUT_STOPS else None
            self._end_loop(_COMPLETE if cut is None else Complete(cut))

    def _answer_repetition(self, found: Repetition) -> None:
        """Apply the configured action to repeated calls."""
        if not found.is_due:
            return
        self.detected = found.fact
        match found.fact.action:
            case "stop":
                self._end_loop(found.fact)
            case "inject_warning":
                self.warnings.append(UserMessage(warning_text(found.fact)))
            case "skip":
                for place in sorted(found.places):
                    entry = self.calls_to_prepare[place]
                    self.turn.refuse(entry, f"Not run. {warning_text(found.fact)}")
                if not self.turn.undecided:
                    self._begin_units()
            case "warn":
                pass

    def _refuse_unfinished(self, response: ChatResponse) -> None:
        """Answer the unfinished calls of a reply that was cut off; they do not run."""
        for call in response.unfinished_calls:
            entry = self.turn.by_id.get(call.id) if self.phase == "deciding" else None
            if entry is not None and entry.status == "undecided":
                self.turn.refuse(entry, _CUT_OFF)
                if not self.turn.undecided:
                    self._begin_units()

    # policies of middleware on calls and answers

    def _review_calls(self, calls: Sequence[ToolCall], mistakes: Mapping[str, Literal["name", "arguments"]]) -> None:
        """Answer the calls that a policy refuses."""
        called = {call.name for call in calls}
        for policy in self._policies:
            policy.take_calls(calls, mistakes)
        for call in calls:
            entry, is_answer = self.turn.by_id[call.id], self._is_answer(call.name)
            if entry.status != "undecided":
                continue
            for policy in self._policies:
                refusal = policy.refuse_call(call, called, is_answer=is_answer)
                if refusal is not None:
                    self.turn.refuse(entry, refusal.text, call.name)
                    self._expect_call(refusal.next_tool)
                    self.wound_up = self.wound_up or refusal.ending
                    break
        if not self.turn.undecided:
            self._begin_units()

    def _send_back(self) -> bool:
        """Ask again for an answer that a policy refuses, or end the loop; return whether one refused it."""
        for policy in self._policies:
            refusal = policy.refuse_answer()
            if refusal is None:
                continue
            if refusal.ending is not None:
                self._end_loop(refusal.ending)
                return True
            self.messages.append(UserMessage(refusal.text))
            self._expect_call(refusal.next_tool)
            self.phase = "ready"
            return True
        return False

    def _expect_call(self, tool_name: str) -> None:
        for policy in self._policies if tool_name else ():
            policy.expect_call(tool_name)

    def _find_hold(self) -> str:
        """Return the tool that the reply must call; the first policy that requires one decides."""
        holds = [policy.take_hold() for policy in self._policies]
        return next(filter(None, holds), "")

    def _is_answer(self, tool_name: str) -> bool:
        return tool_name in self._config.answer_tools

    def _report_results(self) -> None:
        """Pass to the policies the results of the turn that the loop did not write itself."""
        results = [each.result for each in self.turn.by_id.values() if each.result is not None and not each.is_own]
        for policy in self._policies:
            policy.take_results(results)

    # the calls of a turn

    def _take_decision(self, feed: CallDecided) -> None:
        entry, turn, verdict = self.turn.by_id.get(feed.call_id), self.turn, feed.verdict
        awaited = ("undecided",) if self.phase == "deciding" else ("deferred", "suspended")
        if entry is None or entry.status not in awaited:
            raise LoopUsageError(f"no decision is awaited on call '{feed.call_id}'")
        if type(verdict) is Approve:
            entry.status = "alone" if feed.is_alone else "approved"
        elif isinstance(verdict, Deny):
            turn.store(entry, write_denied(entry.call, verdict.reason, feed.tool_name or entry.call.name))
        elif isinstance(verdict, Abort):
            self._end_loop(Aborted(verdict.reason))
            return
        else:
            entry.status = "deferred"
        if self.phase == "deciding":
            turn.undecided -= 1
        if not turn.undecided:
            if turn.unanswered:
                self.reason, self.phase, turn.units = None, "running", None  # as `_begin_units` does
            else:
                self._begin_units()

    def _begin_units(self) -> None:
        """Continue with the calls that may run, if there are any."""
        self.reason = None
        self.phase = "running"
        self.turn.units = None  # what may run is cut into units anew
        if not self.turn.unanswered:
            self._close_turn()

    def _reopen_call(self, feed: CallReopened) -> None:
        entry = self.turn.by_id.get(feed.call_id)
        if entry is None or entry.status not in ("approved", "alone", "deferred", "suspended"):
            raise LoopUsageError(f"call '{feed.call_id}' is not to be decided on again")
        entry.status = "deferred"
        self.turn.units = None

    def _start_call(self, feed: CallStarted) -> None:
        entry = self.turn.by_id.get(feed.call_id)
        if entry is None or entry.status not in ("approved", "alone"):
            raise LoopUsageError(f"call '{feed.call_id}' is not to be run now")
        entry.status = "started"

    def _take_result(self, feed: CallReturned) -> None:
        entry = self.turn.by_id.get(feed.call_id)
        if entry is None or entry.status in ("done", "undecided", "deferred"):
            raise LoopUsageError(f"no result is awaited for call '{feed.call_id}'")
        turn, result = self.turn, feed.result
        if result.time is None or result.call_id != feed.call_id:
            turn.store(entry, result)
        else:  # as `store` does
            entry.result, entry.status = result, "done"
            turn.unanswered -= 1
        if not turn.unanswered:
            self._close_turn()

    def _suspend_call(self, feed: CallSuspended) -> None:
        entry = self.turn.by_id.get(feed.call.id)
        if entry is None or entry.status != "started":
            raise LoopUsageError(f"call '{feed.call.id}' does not run")
        entry.status, entry.child = "suspended", feed.child

    def _take_child_decision(self, feed: ChildDecided) -> None:
        entry = self.turn.by_id.get(feed.call_id)
        if entry is None or entry.child is None or entry.status in ("started", "done"):
            raise LoopUsageError(f"no sub-agent awaits decisions in call '{feed.call_id}'")
        entry.child.decisions.append(feed.decision)

    def _take_cut(self, feed: CallCut) -> None:
        entry = self.turn.by_id.get(feed.call_id)
        if entry is not None:
            entry.cut = feed.cut

    # the end of a turn, and of the loop

    def _close_turn(self) -> None:
        """Append the results in call order, then the warnings, and end the loop if a limit or an answer requires it."""
        if self._policies:
            self._report_results()
        self.results = results = self.turn.move_results(self.messages)
        self.tool_calls_executed += len(results)
        self.tool_rounds += 1
        if self.warnings:
            self.messages.extend(self.warnings)
            self.warnings = []
        if self._detector is not None and self._detector.compares_results:
            self._detector.saw_results(results)
        self.phase = "ready"
        for result in results:
            if result.result_as_answer and not result.is_error:
                self._answer_with(result)
                if self.reason is not None:
                    return
                break
        if self.response is not None and self.response.unanswered:
            self._end_loop(UnansweredItems(self.response.unanswered))
        elif self.wound_up is not None:
            self._end_loop(self.wound_up)
        elif self.tool_rounds >= self._config.max_iterations and self._config.on_max_iterations == "stop":
            self._end_loop(MaxIterations(self._config.max_iterations))

    def _answer_with(self, result: ToolResult) -> None:
        """End the loop with a result that is the answer, unless a policy refuses it."""
        if self._send_back():
            return
        answer = self._config.answer
        if answer is not None and answer.has_type and self._is_answer(result.tool_name):
            self._end_loop(TypedAnswer())
        else:
            self._end_loop(ResultAsAnswer(result.call_id, result.tool_name))

    def _judge_answer(self, feed: AnswerJudged) -> None:
        if not isinstance(self.reason, Complete):
            raise LoopUsageError("AnswerJudged does not fit here: the loop was not completed by a reply")
        if feed.judgement is None:
            self.reason, self.phase = None, "ready"
        elif isinstance(feed.judgement, UserMessage):
            self.messages.append(feed.judgement)
            if self._config.asks_by_tool:
                self._expect_call(ANY_TOOL)
            self.reason, self.phase = None, "ready"
        else:
            self.reason, self.checked_answer = feed.judgement, feed.checked

    def _wind_up(self, feed: RunWoundUp) -> None:
        """End the loop after this turn's results, or now if each call was answered without running."""
        if self.turn.by_id:
            self.wound_up = feed.reason
        elif self.phase == "ready" and self.tool_rounds:
            self._end_loop(feed.reason)
        else:
            raise LoopUsageError("RunWoundUp does not fit here: no call is open")

    def _end_run(self, feed: RunEnded) -> None:
        if not self.is_finished:
            self._end_loop(feed.reason)

    def _close_run(self, feed: RunClosed) -> None:
        if self.phase == "awaiting" or not self.is_finished:
            self._end_loop(Cancelled(feed.reason))

    def _end_loop(self, reason: TerminationReason | None) -> None:
        if self.turn.by_id:
            self.turn.answer_all(_WHY[type(reason)])
            self.results = self.turn.move_results(self.messages)
            self.tool_calls_executed += len(self.results)
        self.reason = reason
        self.phase = "failed" if reason is None else "finished"

    # feeds from outside, at any time

    def _count_usage(self, feed: UsageSpent) -> None:
        self._spent.append(feed.usage)

    def _take_messages(self, feed: MessagesSteered) -> None:
        if not feed.messages:
            return
        if self.phase == "finished":
            if not isinstance(self.reason, (Complete, TypedAnswer, ResultAsAnswer)):
                raise LoopUsageError("the loop is over: nobody reads a message anymore")
            self.reason = None
            self.phase = "ready"
        self.incoming.extend(feed.messages)
        if self.phase in ("deciding", "running"):
            self.turn.skip_waiting("skipped because of a new message")
            self.phase = "running"
            if not self.turn.unanswered:
                self._close_turn()

    def _take_command(self, feed: CommandGiven) -> None:
        """Store the caller's command.

        Raises:
            TranscriptError: The messages to inject leave a call without its result, or repeat a call's id.
            ConfigurationError: It is not a command.
        """
        command = feed.command
        check_setting("what the next turn begins with", command, Continue, InjectMessages, Stop)
        if isinstance(command, InjectMessages):
            self._check_new(command.messages)
        if not self.is_finished:
            self.command = command

    def _check_new(self, messages: Sequence[Message]) -> None:
        """Check messages that the caller appends.

        Raises:
            TranscriptError: They leave a call without its result, or repeat a call's id.
        """
        validate_transcript(messages)
        for index, message in enumerate(messages):
            calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
            known = self._call_ids.intersection([call.id for call in calls])
            if known:
                raise TranscriptError(index, f"call '{known.pop()}' has the id of an earlier call; give it another")

    def _resume_run(self, feed: RunResumed) -> None:
        """Continue after the end; the usage, the ids of calls and the policies' counts are not reset.

        Raises:
            TranscriptError: The messages leave a call without its result, or repeat a call's id.
        """
        self._check_new(feed.messages)
        self.incoming.extend(feed.messages)
        self._call_ids |= call_ids_of(feed.messages)
        self.reason, self.phase = None, "ready"
        self.tool_rounds, self.is_last, self.hold, self.wound_up = 0, False, "", None

    def _take_edited(self, _: TranscriptEdited) -> None:
        """Read `messages` again.

        Raises:
            TranscriptError: The transcript is no longer valid, or empty.
        """
        command = self.command
        comes = command.messages if isinstance(command, InjectMessages) else self.incoming
        if not (self.messages or comes or self.is_finished or isinstance(command, Stop)):
            raise TranscriptError(
                0, "the transcript is empty, and the next request would ask nothing; leave or append a message"
            )
        validate_transcript(self.messages, allow_pending=not self.is_at_boundary)
        self._call_ids |= call_ids_of(self.messages)

    TAKERS: ClassVar[Mapping[type[Feed], Any]] = {
        TurnBegun: _begin_turn,
        TranscriptCompacted: _take_compacted,
        RequestRefused: _take_refusal,
        ReplyCutOff: _take_partial,
        ModelReplied: _take_reply,
        CallsPrepared: _take_prepared,
        CallDecided: _take_decision,
        CallReopened: _reopen_call,
        CallStarted: _start_call,
        CallReturned: _take_result,
        CallCut: _take_cut,
        CallSuspended: _suspend_call,
        ChildDecided: _take_child_decision,
        AnswerJudged: _judge_answer,
        RunWoundUp: _wind_up,
        UsageSpent: _count_usage,
        MessagesSteered: _take_messages,
        RunResumed: _resume_run,
        CommandGiven: _take_command,
        TranscriptEdited: _take_edited,
        RunEnded: _end_run,
        RunClosed: _close_run,
    }
    """The method for each feed, in the phases of `ALLOWED_PHASES`."""


_TAKERS: Mapping[Phase, Mapping[type[Feed], Any]] = {
    phase: {kind: take for kind, take in LoopState.TAKERS.items() if phase in ALLOWED_PHASES[kind]} for phase in PHASES
}


def _write_awaited(entry: OpenCall) -> ToolResult:
    """Return a placeholder for the result of a call while decisions are awaited."""
    if entry.child is None:
        return write_not_started(entry.call, "approval is awaited")
    return write_waiting(entry.call, entry.child)


def _copy_list(value: Any) -> Any:
    return list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else value
