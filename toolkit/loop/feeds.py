"""The words between the machine of a loop and its run: steps, commands, and feeds with the phases that take them.

A feed also has the form in which it stands in the log of a durable run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from toolkit.calls.approval import Abort, Approve, Defer, Deny, Verdict
from toolkit.calls.run import CallCut, CallReturned, CallSuspended, CutCall
from toolkit.chat import ChatResponse, Message, ToolCall, ToolResult, Usage, UserMessage
from toolkit.dataclass import dataclass
from toolkit.loop.outcome import Aborted, NoValidAnswer, TerminationReason, TypedAnswer, UsageLimit
from toolkit.loop.stopping import Continue, Stop
from toolkit.loop.turn import OpenCall

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Steps and commands are not frozen: each turn makes some, and only the machine and its driver hold them.


@dataclass(slots=True)
class BeginTurn:
    """Begin a turn, once what comes between two turns is fed."""


@dataclass(slots=True)
class Compact:
    """Shorten `messages`, or feed them back as they are."""

    messages: Sequence[Message]


@dataclass(slots=True)
class CallModel:
    """Ask the model; where `LoopState.is_last`, without tools, for the answer that follows the last allowed turn."""


@dataclass(slots=True)
class AskApproval:
    """Ask whether the calls of the turn that are undecided may run."""


@dataclass(slots=True)
class RunTools:
    """Run these calls, at most `limit` at once."""

    calls: Sequence[OpenCall]
    limit: int | None = None


@dataclass(slots=True)
class Finished:
    """The loop is over, or waits for a decision (`AwaitingApproval`)."""

    reason: TerminationReason


Step: TypeAlias = BeginTurn | Compact | CallModel | AskApproval | RunTools | Finished


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
"""Where a machine stands: ``ready`` between two turns, ``awaiting`` where somebody has to decide on calls."""


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A turn begins: with the command that was given last, with what was steered, and within the limits."""


@dataclass(frozen=True, slots=True)
class TranscriptCompacted:
    """The transcript as it is after `Compact`."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The request that `CallModel` asked for is not made, or its reply not taken: the loop ends with this reason."""

    reason: UsageLimit | Aborted
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class ReplyCutOff:
    """The text of a reply that was cut off for good; it is no answer, and the loop is about to end."""

    text: str


# Those that each turn feeds are not frozen, which costs a call per field; only the machine and its driver hold them.


@dataclass(slots=True)
class ModelReplied:
    """The model's reply. Its calls are in `LoopState.calls_to_prepare` afterwards, their ids unique."""

    response: ChatResponse


@dataclass(slots=True)
class CallsPrepared:
    """The calls of a reply, prepared.

    Args:
        calls: The calls as they would run: names repaired, arguments canonical. Only what looks at calls reads them
            (`stop_when`, loop detection, the order of tools). None stands for the calls as the model wrote them.
        mistakes: The mistake of each call that can't run because of its name or its arguments, by its id; read for
            `SteeredRetries` alone.
        is_approved: True where nobody is asked about any of them: all that the machine does not refuse may run.
        alone: The ids of the approved calls that must not run beside another.
    """

    calls: Sequence[ToolCall] | None
    mistakes: Mapping[str, Literal["name", "arguments"]]
    is_approved: bool = False
    alone: Collection[str] = ()


@dataclass(slots=True)
class CallDecided:
    """The decision on one call.

    Args:
        call_id: The call.
        verdict: The decision.
        tool_name: The repaired name of its tool, for the result of a call that is denied; empty takes the call's own.
        is_alone: True where it must not run beside another.
    """

    call_id: str
    verdict: Verdict
    tool_name: str = ""
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class CallReopened:
    """Somebody has to decide again on a call that has not started: what it would do has changed."""

    call_id: str


@dataclass(slots=True)
class CallStarted:
    """A call runs from now on."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AnswerJudged:
    """The verdict on the reply that completed the loop.

    Args:
        judgement: A message asks for another reply; None where judging was cut off.
        checked: The value of the answer's check as `to_output` writes it; None where the reply says the answer itself.
    """

    judgement: TypedAnswer | NoValidAnswer | UserMessage | None
    checked: str | None = None


@dataclass(frozen=True, slots=True)
class RunWoundUp:
    """The loop ends once this turn's results are in: nothing more may be spent, or asked."""

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
    """Messages that a restored loop goes on with after its end; a new count of turns begins."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class CommandGiven:
    """The caller's wish for the next turn; the last one counts, and none is left after the end."""

    command: Command


@dataclass(frozen=True, slots=True)
class TranscriptEdited:
    """The caller may have changed `LoopState.messages`."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end: time is up, the caller has gone, or what the loop needs has failed (None). Ignored after the end."""

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
"""All that a machine learns."""

TURN_BEGUN = TurnBegun()
CALLS_AS_WRITTEN = CallsPrepared(None, {})
CALLS_APPROVED = CallsPrepared(None, {}, is_approved=True)

PHASES: tuple[Phase, ...] = get_args(Phase)
_ANY: frozenset[Phase] = frozenset(PHASES)

ALLOWED_PHASES: Mapping[type[Feed], frozenset[Phase]] = {
    TurnBegun: frozenset({"ready", "compacted"}),
    TranscriptCompacted: frozenset({"compacting"}),
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
"""The phases in which each feed fits. A feed may name a call, too, or follow an answer: that is checked beside this."""


# feeds as JSON, for the log of a run

FeedJson: TypeAlias = list[Any]
"""A feed as JSON: its name, and its arguments."""

_FORMS: Mapping[type[Feed], tuple[str, tuple[Any, ...]]] = {
    TurnBegun: ("next_step", ()),
    ModelReplied: ("model_replied", (ChatResponse,)),
    CallsPrepared: (
        "calls_prepared",
        (list[ToolCall] | None, dict[str, Literal["name", "arguments"]], bool, list[str]),
    ),
    CallDecided: ("approval_decided", (str, str, str, str, bool)),
    CallReopened: ("call_reopened", (str,)),
    CallStarted: ("tool_started", (str,)),
    CallReturned: ("tool_returned", (str, ToolResult)),
    CallCut: ("tool_cut", (str, CutCall)),
    AnswerJudged: ("answer_judged", (TypedAnswer | NoValidAnswer | UserMessage | None, str | None)),
    UsageSpent: ("spent", (Usage,)),
    MessagesSteered: ("steered", (list[Message],)),
    TranscriptCompacted: ("compacted", (list[Message | tuple[int, int]],)),
    ReplyCutOff: ("keep_partial", (str,)),
    RequestRefused: ("limit_reached", (UsageLimit | Aborted, bool)),
    RunWoundUp: ("wind_up", (UsageLimit | NoValidAnswer | Aborted,)),
}
"""The name and the types of each feed that a log has; the others come from the caller, or end the run."""

_NAMED: Mapping[str, type[Feed]] = {name: kind for kind, (name, _) in _FORMS.items()}


def dump_feed(feed: Feed, messages: Sequence[Message] = ()) -> FeedJson | None:
    """Return a feed as JSON values; None where logs don't have it.

    Args:
        feed: The feed.
        messages: The transcript of the machine before it takes the feed.

    Raises:
        ValueError: Something in it is no JSON; the message names it.
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
        ValueError: It is none.
    """
    kind = _NAMED.get(plain[0]) if plain else None
    if kind is None:
        raise ValueError(f"{plain[0] if plain else None!r} is no feed of the loop")
    # A log that was written before a feed had its last values has none for them: they are the defaults.
    values: tuple[Any, ...] = _make_adapter(plain[0], len(plain) - 1).validate_json(json.dumps(plain[1:]))
    if kind is CallDecided:
        call_id, verdict, reason, tool_name, is_alone = values
        return CallDecided(call_id, _load_verdict(verdict, reason), tool_name, is_alone)
    if kind is TranscriptCompacted:
        return TranscriptCompacted(_restore_kept(messages, values[0]))
    return kind(*values)


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
