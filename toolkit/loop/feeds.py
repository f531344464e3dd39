"""The interface between the machine of a loop and its driver: phases, commands, feeds, and the calls of one turn.

Each feed has the phases that accept it, and a form in JSON for the log of a durable run. A turn tracks the status and
the result of each call, and which calls run next. A stored result is never replaced; the results of a turn are appended
together, in call order.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from toolkit.calls.approval import Abort, Approve, Defer, Deny, LateDecision, Verdict, WaitingChild
from toolkit.calls.run import CallCut, CallReturned, CallSuspended, CutCall
from toolkit.chat import ChatResponse, Message, ToolCall, ToolResult, Usage, UserMessage
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.foreign_text import replace_surrogates
from toolkit.loop.limits import Continue, Stop, Written
from toolkit.loop.outcome import Aborted, NoValidAnswer, TerminationReason, TypedAnswer, UsageLimit

if TYPE_CHECKING:
    from pydantic import TypeAdapter


CallStatus: TypeAlias = Literal["undecided", "approved", "alone", "deferred", "started", "suspended", "done"]


@dataclass(slots=True)
class OpenCall:
    """One call of the current turn.

    Args:
        call: The call, as the model asked for it.
        status: The status; ``alone`` is approved, and must not run beside another; ``suspended`` has started, and its
            sub-agent awaits decisions.
        result: The result; None until it arrives.
        cut: How far the call came, if it ended without a result.
        is_own: True if the loop wrote the result itself.
        child: The sub-agent that awaits decisions in the call, or continues with them when the call is run again.
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
        """The calls that need a decision before this one can continue."""
        return self.child.calls if self.child is not None and self.status == "suspended" else (self.call,)


class Turn:
    """The calls of the current turn; none between turns.

    Args:
        now: Returns the time for a result that has none; None leaves it out.

    Attributes:
        by_id: The calls by their ids, in call order.
        unanswered: The number of calls without a result.
        undecided: The number of calls that await their first decision.
        units: The groups of calls that run together, one group after the other; None until they are computed.
        closed: Calls with results that the loop wrote itself and that no event has reported yet, and whether each
            call had started.
    """

    __slots__ = ("_now", "by_id", "closed", "unanswered", "undecided", "units")

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.by_id: dict[str, OpenCall] = {}
        self.unanswered = self.undecided = 0
        self.closed: list[tuple[ToolCall, ToolResult, bool]] = []
        self.units: deque[list[OpenCall]] | None = None

    def open(self, calls: dict[str, OpenCall]) -> None:
        """Open the calls of a reply or of a saved turn."""
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
            LoopUsageError: It belongs to another call.
        """
        if result.call_id != entry.call.id:
            raise LoopUsageError(f"a result for call '{result.call_id}' was given as that of call '{entry.call.id}'")
        if result.time is None and self._now is not None:
            result = replace(result, time=self._now())
        entry.result = result
        entry.status = "done"
        self.unanswered -= 1

    def refuse(self, entry: OpenCall, text: str, tool_name: str = "") -> None:
        """Answer an undecided call with an error, without asking anybody; `tool_name` is its repaired name."""
        result = ToolResult(entry.call.id, text, tool_name=tool_name or entry.call.name, is_error=True)
        self._store_own(entry, result, has_started=False)
        self.undecided -= 1

    def approve_all(self, alone: Collection[str]) -> None:
        """Approve all undecided calls; those whose ids are in `alone` do not run beside others."""
        for entry in self.by_id.values():
            if entry.status == "undecided":
                entry.status = "alone" if entry.call.id in alone else "approved"
        self.undecided = 0

    def skip_waiting(self, why: str) -> None:
        """Answer each call that has not started."""
        for entry in self.by_id.values():
            if entry.status not in ("started", "done"):
                result = write_not_started(entry.call, why) if entry.child is None else _write_interrupted(entry, why)
                self._store_own(entry, result, has_started=False)
        self.undecided = 0

    def answer_all(self, why: str) -> None:
        """Answer each call that has no result, as not started or interrupted."""
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
        self.closed.append((entry.call, entry.result, has_started))

    def find_unit(self, size: int) -> Sequence[OpenCall]:
        """Return the next group of calls to run together, of at most `size`; empty if none is left.

        Raises:
            LoopUsageError: Calls of the current group are still running.
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
        """Append the results to `messages` in call order, close the turn, and return the results."""
        results: list[ToolResult] = []
        for entry in self.by_id.values():
            assert entry.result is not None, "a turn is closed only when each call has its result"
            results.append(entry.result)
        messages.extend(results)
        self.by_id = {}
        self.units = None
        return results


LOST = "Interrupted: the process that ran it ended. The tool was running and may have taken effect."
"""The result text of a call that was running when its process ended."""


def write_denied(call: ToolCall, reason: str, tool_name: str) -> ToolResult:
    """Return the result of a call that may not run; `tool_name` is the repaired name of its tool."""
    return ToolResult(call.id, replace_surrogates(reason), tool_name=tool_name, is_error=True)


def write_not_started(call: ToolCall, why: str, cut: CutCall | None = None) -> ToolResult:
    """Return the result of a call that never ran; `cut` names what it was waiting for."""
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


@dataclass(frozen=True, slots=True)
class InjectMessages:
    """Append these messages before the next turn, and go on."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    kind: Literal["inject_messages"] = field(default="inject_messages", repr=False)


Command: TypeAlias = Continue | InjectMessages | Stop
"""The commands for the next turn."""


Phase: TypeAlias = Literal[
    "ready",
    "compacting",
    "compacted",
    "asking",
    "preparing",
    "deciding",
    "running",
    "awaiting",
    "finished",
    "failed",
]
"""The phase of a machine: ``ready`` is between two turns, ``awaiting`` while somebody has to decide on calls."""


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A turn begins, with the last command and the steered messages."""


@dataclass(frozen=True, slots=True)
class TranscriptCompacted:
    """The transcript after `Compact`, or after the model refused a longer one."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The request of `CallModel` is not made, or its reply is discarded: the loop ends for this reason."""

    reason: UsageLimit | Aborted
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class ReplyCutOff:
    """The text of a reply that was cut off; it is not an answer, and the loop is about to end."""

    text: str


# The feeds of each turn are not frozen, which would cost a call per field; only the machine and its driver have them.


@dataclass(slots=True)
class ModelReplied:
    """The model's reply. Its calls are in `LoopState.calls_to_prepare` afterwards, their ids unique."""

    response: ChatResponse


@dataclass(slots=True)
class CallsPrepared:
    """The calls of a reply, prepared.

    Args:
        calls: The calls as they would run, in call order: the repaired name, and the arguments as canonical JSON; for
            `stop_when`, loop detection and policies. None stands for the calls as the model wrote them.
        mistakes: The mistake of each call that can't run because of its name or its arguments, by its id.
        is_approved: True if nobody has to be asked: all calls that the machine does not refuse may run.
        alone: The ids of the approved calls that must not run beside another.
    """

    calls: Sequence[Written] | None
    mistakes: Mapping[str, Literal["name", "arguments"]]
    is_approved: bool = False
    alone: Collection[str] = ()


@dataclass(slots=True)
class CallDecided:
    """The decision on one call.

    Args:
        call_id: The call.
        verdict: The decision.
        tool_name: The repaired name of its tool, for the result of a denied call; empty takes the call's own.
        is_alone: True if it must not run beside another.
    """

    call_id: str
    verdict: Verdict
    tool_name: str = ""
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class ChildDecided:
    """A decision for the sub-agent that waits in a call; the sub-agent gets it when the call continues."""

    call_id: str
    decision: LateDecision


@dataclass(frozen=True, slots=True)
class CallReopened:
    """A call that has not started needs a new decision, because its tool or arguments have changed."""

    call_id: str


@dataclass(slots=True)
class CallStarted:
    """A call starts to run."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AnswerJudged:
    """The verdict on the reply that completed the loop.

    Args:
        judgement: The verdict; a message asks for another reply, None says that judging was cut off.
        checked: The checked value as `to_output` writes it; None if the reply itself is the answer.
    """

    judgement: TypedAnswer | NoValidAnswer | UserMessage | None
    checked: str | None = None


@dataclass(frozen=True, slots=True)
class RunWoundUp:
    """The loop ends after this turn's results, without another request."""

    reason: UsageLimit | NoValidAnswer | Aborted


@dataclass(frozen=True, slots=True)
class UsageSpent:
    """The usage of a request that failed, or of a loop inside a tool."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class MessagesSteered:
    """Messages from outside: calls that have not started are skipped, and the next turn begins with the messages.

    After a completed loop they open it again.
    """

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Messages with which a restored loop continues after its end; turns are counted anew."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class CommandGiven:
    """The caller's command for the next turn; the last one counts, and it is ignored after the end."""

    command: Command


@dataclass(frozen=True, slots=True)
class TranscriptEdited:
    """The caller may have changed `LoopState.messages`."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end: by timeout, by cancellation, or by a failure (None). Ignored after the end."""

    reason: TerminationReason | None


@dataclass(frozen=True, slots=True)
class RunClosed:
    """The end, also of a loop that awaits decisions: its calls are answered as not started."""

    reason: str | None = None


Feed: TypeAlias = (
    TurnBegun
    | TranscriptCompacted
    | RequestRefused
    | ReplyCutOff
    | ModelReplied
    | CallsPrepared
    | CallDecided
    | CallReopened
    | CallStarted
    | CallReturned
    | CallCut
    | CallSuspended
    | ChildDecided
    | AnswerJudged
    | RunWoundUp
    | UsageSpent
    | MessagesSteered
    | RunResumed
    | CommandGiven
    | TranscriptEdited
    | RunEnded
    | RunClosed
)
"""Every input of the machine."""

TURN_BEGUN = TurnBegun()
CALLS_AS_WRITTEN = CallsPrepared(None, {})
CALLS_APPROVED = CallsPrepared(None, {}, is_approved=True)

PHASES: tuple[Phase, ...] = get_args(Phase)
_ANY: frozenset[Phase] = frozenset(PHASES)

ALLOWED_PHASES: Mapping[type[Feed], frozenset[Phase]] = {
    TurnBegun: frozenset({"ready", "compacted"}),
    TranscriptCompacted: frozenset({"compacting", "asking"}),
    RequestRefused: frozenset({"asking"}),
    ReplyCutOff: frozenset({"asking"}),
    ModelReplied: frozenset({"asking"}),
    CallsPrepared: frozenset({"preparing"}),
    CallDecided: frozenset({"deciding", "running", "awaiting"}),
    CallReopened: frozenset({"running"}),
    CallStarted: frozenset({"running"}),
    CallReturned: frozenset({"running"}),
    CallCut: _ANY,
    CallSuspended: frozenset({"running"}),
    ChildDecided: frozenset({"running", "awaiting"}),
    AnswerJudged: frozenset({"finished"}),
    RunWoundUp: frozenset({"ready", "preparing", "deciding", "running", "awaiting"}),
    UsageSpent: _ANY,
    MessagesSteered: _ANY - {"awaiting", "failed"},
    RunResumed: frozenset({"ready", "finished"}),
    CommandGiven: _ANY,
    TranscriptEdited: _ANY,
    RunEnded: _ANY,
    RunClosed: _ANY,
}
"""The phases in which each feed is accepted. Feeds that name a call, or follow an answer, are checked further."""


# feeds as JSON, for the log of a run

FeedJson: TypeAlias = list[Any]
"""A feed as JSON: its name, and its arguments."""

_FORMS: Mapping[type[Feed], tuple[str, tuple[Any, ...]]] = {
    TurnBegun: ("next_step", ()),
    ModelReplied: ("model_replied", (ChatResponse,)),
    CallsPrepared: (
        "calls_prepared",
        (list[tuple[str, str] | ToolCall] | None, dict[str, Literal["name", "arguments"]], bool, list[str]),
    ),
    CallDecided: ("approval_decided", (str, str, str, str, bool)),
    CallReopened: ("call_reopened", (str,)),
    CallStarted: ("tool_started", (str,)),
    CallReturned: ("tool_returned", (str, ToolResult)),
    CallCut: ("tool_cut", (str, CutCall)),
    CallSuspended: ("tool_suspended", (ToolCall, WaitingChild)),
    ChildDecided: ("child_decided", (str, LateDecision)),
    AnswerJudged: ("answer_judged", (TypedAnswer | NoValidAnswer | UserMessage | None, str | None)),
    UsageSpent: ("spent", (Usage,)),
    MessagesSteered: ("steered", (list[Message],)),
    TranscriptCompacted: ("compacted", (list[Message | tuple[int, int]],)),
    ReplyCutOff: ("keep_partial", (str,)),
    RequestRefused: ("limit_reached", (UsageLimit | Aborted, bool)),
    RunWoundUp: ("wind_up", (UsageLimit | NoValidAnswer | Aborted,)),
}
"""The name and the types of each feed that is logged; the others come from the caller, or end the run."""

_NAMED: Mapping[str, type[Feed]] = {name: kind for kind, (name, _) in _FORMS.items()}


def dump_feed(feed: Feed, messages: Sequence[Message] = ()) -> FeedJson | None:
    """Return a feed as JSON values; None if it is not logged.

    Args:
        feed: The feed.
        messages: The transcript of the machine before it takes the feed.

    Raises:
        ValueError: A value in it can't be JSON; the message names it.
    """
    kind: type[Feed] = type(feed)
    if kind not in _FORMS:
        return None
    match feed:
        case CallDecided(call_id, verdict, tool_name, is_alone):
            reason = verdict.reason if isinstance(verdict, (Deny, Abort)) else ""
            values: list[object] = [call_id, type(verdict).__name__.lower(), reason, tool_name, is_alone]
        case TranscriptCompacted(after):
            values = [_refer_to_kept(messages, after)]
        case _:
            values = [_leave_out_details(getattr(feed, each.name)) for each in fields(feed)]
    name = _FORMS[kind][0]
    plain: list[Any] = _make_adapter(name, len(values)).dump_python(tuple(values), mode="json", warnings="none")
    return [name, *plain]


def load_feed(plain: FeedJson, messages: Sequence[Message] = ()) -> Feed:
    """Return the feed that `dump_feed` wrote; `messages` as there.

    Raises:
        ValueError: It is not a feed.
    """
    kind = _NAMED.get(plain[0]) if plain else None
    if kind is None:
        raise ValueError(f"{plain[0] if plain else None!r} is no feed of the loop")
    # Logs of earlier releases may lack the last values of a feed; these take their defaults.
    values: tuple[Any, ...] = _make_adapter(plain[0], len(plain) - 1).validate_json(json.dumps(plain[1:]))
    if kind is CallDecided:
        call_id, verdict, reason, tool_name, is_alone = values
        return CallDecided(call_id, _load_verdict(verdict, reason), tool_name, is_alone)
    if kind is CallsPrepared:
        return CallsPrepared(_load_written(values[0]), *values[1:])
    if kind is TranscriptCompacted:
        return TranscriptCompacted(_restore_kept(messages, values[0]))
    return kind(*values)


def _load_written(calls: Sequence[Written | ToolCall] | None) -> list[Written] | None:
    """Return the calls of `CallsPrepared`; logs of earlier releases contain whole calls."""
    if calls is None:
        return None
    return [(call.name, call.arguments) if isinstance(call, ToolCall) else call for call in calls]


def _load_verdict(kind: str, reason: str) -> Verdict:
    match kind:
        case "approve":
            return Approve()
        case "deny":
            return Deny(reason)
        case "defer":
            return Defer()
        case "abort":
            return Abort(reason)
        case _:
            raise ValueError(f"{kind!r} is no decision on a call")


def _leave_out_details(value: object) -> object:
    """Return a value without the application's own objects, which are not stored."""
    if isinstance(value, ToolResult) and value.details is not None:
        return replace(value, details=None)
    if isinstance(value, CutCall):
        return replace(value, left_by_child=(value.left_by_child[0], None))
    if isinstance(value, (list, tuple)):
        return [_leave_out_details(each) for each in cast("Sequence[object]", value)]
    return value


def _refer_to_kept(before: Sequence[Message], after: Sequence[Message]) -> list[Message | tuple[int, int]]:
    """Return a shorter transcript, with a pair of positions in place of each stretch that stayed."""
    positions = {id(message): position for position, message in enumerate(before)}
    parts: list[Message | tuple[int, int]] = []
    for message in after:
        position = positions.get(id(message))
        last = parts[-1] if parts else None
        if position is None:
            parts.append(message)
        elif isinstance(last, tuple) and last[1] == position:
            parts[-1] = (last[0], position + 1)
        else:
            parts.append((position, position + 1))
    return parts


def _restore_kept(before: Sequence[Message], parts: Sequence[Message | tuple[int, int]]) -> list[Message]:
    messages: list[Message] = []
    for part in parts:
        messages.extend(before[part[0] : part[1]] if isinstance(part, tuple) else (part,))
    return messages


@cache
def _make_adapter(name: str, count: int) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and few runs are durable

    shape: Any = tuple  # a checker wants the types to be written here
    return TypeAdapter(shape[_FORMS[_NAMED[name]][1][:count]])
