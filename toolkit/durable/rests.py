"""The segments of a run and the rests between them, which are the same for every engine.

A segment begins with a prompt or with the last rest, and with the messages and decisions since. `RunSegment` makes its
loop handle, in the process that executes the run, and returns the next rest as plain JSON.
"""

from __future__ import annotations

import hmac
import inspect
import json
import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Literal, TypeAlias, cast

from toolkit.calls.approval import (
    Abort,
    Approval,
    Approve,
    Defer,
    Deny,
    Modify,
    put_off_asked,
    to_approval,
)
from toolkit.chat import ChatRequest, Message, SystemMessage, UserMessage, load_messages, validate_transcript
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.durable.loops import DurableLoop, RunPlace
from toolkit.errors import (
    ConfigurationError,
    DurableError,
    LaterReleaseError,
    LoopUsageError,
    ProviderError,
    ToolkitError,
    TranscriptError,
)
from toolkit.events import dump_result, load_result
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import sign_json, write_json
from toolkit.logs import get_logger
from toolkit.loop.answers import ExpectedAnswer
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.config import SystemPrompt, ToolLoopConfig
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.journal import Journal
from toolkit.loop.outcome import AwaitingApproval, Cancelled, Out, Snapshot, ToolLoopResult, TypedAnswer
from toolkit.loop.snapshot import is_keyed
from toolkit.redaction import without_keys

_logger = get_logger("toolkit.durable")

DurableState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""The state of a durable run. ``queued`` waits for a worker, ``waiting`` for a decision."""

ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled"})
"""The states of a run that has ended."""

RESTING: frozenset[str] = ENDED | {"waiting"}
"""The states in which a run needs neither memory nor a queue."""

MESSAGES: frozenset[str] = frozenset({"say", "steer"})
"""The kinds of items of the inbox that are messages. Those before a cancellation do not resume a run."""

TAKEN_AT_REST: Mapping[str, Collection[str]] = {
    "waiting": {"decide", "cancel"},
    "done": MESSAGES,
    "failed": {*MESSAGES, "retry"},
    "cancelled": {*MESSAGES, "retry"},
}
"""The kinds of items of the inbox that resume a run at rest, by its state."""

VOID_AT_REST: Mapping[str, Collection[str]] = {
    "waiting": {"retry"},
    "done": {"decide", "cancel", "retry"},
    "failed": {"cancel"},
    "cancelled": {"decide", "cancel"},
}
"""The kinds that such a run ignores."""

_VERSION = 1
_DUE = re.compile(r"-\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """A message or a decision for a run: of kind ``steer``, ``say``, ``cancel``, ``decide`` or ``retry``."""

    id: int  # grows from one to the next
    kind: str
    body: Mapping[str, Any]
    key: str = ""  # unique among the items of its run


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The state of a run at rest.

    Args:
        state: Its state.
        ending: The `ending` of the result; the class of the error if it failed.
        error: The message of the error, without secrets.
        messages: The transcript, as JSON.
        result: The result without its transcript, as JSON; None if the run failed.
        snapshot: The loop, to be resumed; None if it failed before it began, or the rest is of an early version.
        is_resumable: True if it failed, and `retry` continues its log.
        is_read: False if it failed before its whole log was read, so that the transcript is incomplete.
        trace: The trace context of the first segment, to which later ones are linked; empty without tracing.
        segment: The number of its segment; 0 in engines that don't need it.
        taken: With a key, the keys of the messages and cancellations that were taken so far, so that none is again.
        seal: The seal of all this and of the run; empty without a key.
    """

    state: DurableState
    ending: str
    error: str = ""
    messages: list[dict[str, Any]]
    result: dict[str, Any] | None = None
    snapshot: Snapshot | None = None
    is_resumable: bool = False
    is_read: bool = True
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    segment: int = 0
    taken: Sequence[str] = ()
    seal: str = ""

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await a decision."""
        return self.awaited if self.state == "waiting" else []

    @property
    def is_keyed(self) -> bool:
        """True where the loop has a `signing_key`."""
        return bool(self.seal) or (self.snapshot is not None and is_keyed(self.snapshot))

    @property
    def awaited(self) -> list[PendingApproval]:
        """The calls whose decisions the next segment applies."""
        return [] if self.snapshot is None else [PendingApproval(**each) for each in self.snapshot["pending_approvals"]]

    def write(self) -> dict[str, Any]:
        """Return it as JSON, for `read_rest`."""
        return {"v": _VERSION, **{part.name: getattr(self, part.name) for part in fields(self)}}

    def load_result(self) -> ToolLoopResult[Any]:
        """Return the result of the loop."""
        if self.result is None:
            raise DurableError(f"the run failed with {self.ending}: {self.error}")
        snapshot = self.snapshot if self.state == "waiting" else None
        return replace(load_result(self.result), messages=self.load_messages(), snapshot=snapshot)

    def load_messages(self) -> list[Message]:
        """Return the transcript."""
        return read_messages(self.messages)


def write_prompt(prompt: str | Sequence[Message], system_prompt: SystemPrompt[Any]) -> list[dict[str, Any]]:
    """Return the first messages of a run as JSON values, with the system prompt if that is a text."""
    if isinstance(prompt, ChatRequest):
        raise ConfigurationError(
            "a durable run starts from a question or a transcript: the settings of requests are its provider's, and "
            "its tools those of its durable_loop"
        )
    if not (prompt.strip() if isinstance(prompt, str) else prompt):
        raise ConfigurationError("the prompt of a durable run is empty: give a question, or a transcript")
    messages: list[Message] = [UserMessage(prompt)] if isinstance(prompt, str) else list(prompt)
    if isinstance(system_prompt, str) and system_prompt and not isinstance(messages[0], SystemMessage):
        messages.insert(0, SystemMessage(system_prompt))
    try:
        validate_transcript(messages)
        return messages_to_plain(messages)
    except (TranscriptError, ValueError, TypeError) as error:
        raise DurableError(f"the prompt of the run can't be stored: {error}") from error


def write_message(message: str | Message) -> dict[str, Any]:
    """Return a message to a run as JSON values; raise `ToolkitError` for one that can't be sent."""
    if isinstance(message, str) and not message.strip():
        raise ConfigurationError("the message to a durable run is empty, and the model would be asked nothing")
    sent = UserMessage(message) if isinstance(message, str) else message
    validate_transcript([sent])
    return messages_to_plain([sent])[0]


def read_rest(output: object) -> Rest:
    """Return the rest that a segment left, from its JSON value."""
    left = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    version: object = left.get("v")
    if isinstance(version, int) and version > _VERSION:
        raise LaterReleaseError(f"the rest of the run is of version {version}, and this library reads {_VERSION}")
    if version != _VERSION:
        raise DurableError(
            "the rest of the run can't be read: it is of another version of this library, or was changed"
        )
    missing = [name for name in ("state", "ending", "error", "messages", "result", "snapshot") if name not in left]
    if missing:
        raise DurableError(f"the rest of the run can't be read: it has no '{missing[0]}'")
    return Rest(**{part.name: left[part.name] for part in fields(Rest) if part.name in left})


def read_answer(loop: DurableLoop[Any, Out], result: ToolLoopResult[Any]) -> Out | None:
    """Return the typed answer of a result; without one, the output of a tool as JSON values, or None."""
    answer = loop.config.answer
    if answer is None or not isinstance(result.reason, TypedAnswer):
        return cast("Out | None", result.output)
    try:
        value: Out = ExpectedAnswer(answer).load(result)
    except ValueError as error:
        problem = f"the answer of the run is not of the type that loop '{loop.name}' has now: {error}"
        raise DurableError(problem) from error
    return value


def read_messages(plain: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages from their JSON values."""
    return load_messages(json.dumps(plain))


def write_decision(answer: Approval | bool | str) -> dict[str, Any]:
    """Return a decision as JSON values."""
    match to_approval(answer):
        case Approve():
            return {"kind": "approve"}
        case Deny(reason):
            return {"kind": "deny", "reason": reason}
        case Modify(arguments):
            return {"kind": "modify", "arguments": dict(arguments)}
        case Abort(reason):
            return {"kind": "abort", "reason": reason}
        case Defer():
            raise ConfigurationError("Defer() decides nothing: the call awaits a decision already")


def seal_begin(key: str | bytes | None, place: RunPlace, begin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run begins with, with a seal by the key of its loop; without a key, unchanged.

    All runs of a schedule have one seal, by its name.
    """
    if key is None:
        return dict(begin)
    schedule = begin.get("schedule")
    run = ["run", place.run_id] if schedule is None else ["schedule", schedule]
    return {**begin, "seal": _sign_part(key, "begin", place, [run, begin["prompt"]])}


def check_begin(key: str | bytes | None, place: RunPlace, begin: Mapping[str, Any]) -> None:
    """Check what a run begins with, if its loop has a key.

    Raises:
        DurableError: It was changed, or written without the key.
    """
    if key is None:
        return
    schedule: object = begin.get("schedule")
    is_of_run = schedule is None or (
        isinstance(schedule, str) and _DUE.fullmatch(place.run_id.removeprefix(schedule)) is not None
    )
    if not is_of_run or not _is_same(begin.get("seal"), seal_begin(key, place, begin)["seal"]):
        raise DurableError("what the run begins with was changed, or written without the signing_key of its loop")


def seal_rest(key: str | bytes | None, place: RunPlace, rest: Rest) -> Rest:
    """Return the rest of a run with a seal by the key of its loop; without a key, unchanged."""
    if key is None:
        return rest
    content = {name: value for name, value in rest.write().items() if name != "seal"}
    return replace(rest, seal=_sign_part(key, "rest", place, [place.run_id, content]))


def check_rest(key: str | bytes | None, place: RunPlace, rest: Rest, segment: int = 0) -> None:
    """Check the rest of a segment, if the run's loop has a key.

    Raises:
        DurableError: It was changed, made without the key, or is the rest of another segment or run.
    """
    if key is None:
        return
    if rest.segment != segment or not _is_same(rest.seal, seal_rest(key, place, rest).seal):
        raise DurableError(
            f"the rest of run '{place.run_id}' was changed, or made without the signing_key of its loop: its "
            "transcript and its result can't be relied on"
        )


def seal_item(key: str | bytes | None, run_id: str, kind: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an item with a seal by the key; without a key, the body alone.

    The name is `InboxItem.key`, so that no item can be copied; a decision is bound to its call instead.
    """
    name = "" if kind == "decide" else name
    if key is None:
        return dict(body)
    return {**body, "seal": _sign_json(key, "item", [run_id, kind, name, body])}


def is_forged(key: str | bytes | None, run_id: str, item: InboxItem) -> bool:
    """Return whether an item was made without the `signing_key` of the run's loop, or for another run, or changed.

    A `retry` has no content and no seal.
    """
    if key is None or item.kind == "retry":
        return False
    body = {part: value for part, value in item.body.items() if part != "seal"}
    right = seal_item(key, run_id, item.kind, item.key, body)
    return not _is_same(item.body.get("seal"), right["seal"])


def _sign_part(key: str | bytes, what: str, place: RunPlace, content: list[Any]) -> str:
    facts = [place.loop, place.tenant, dict(place.metadata), *content]
    return _sign_json(key, what, json.loads(write_json(facts)))  # as they will be read


def _sign_json(key: str | bytes, what: str, content: list[Any]) -> str:
    return sign_json([f"toolkit {what}", *content], key.encode() if isinstance(key, str) else key)


def _is_same(seal: object, right: str) -> bool:
    return isinstance(seal, str) and hmac.compare_digest(seal.encode("utf-8", "replace"), right.encode())


def read_decision(plain: Mapping[str, Any]) -> Approval:
    """Return a decision from its JSON values."""
    match plain["kind"]:
        case "approve":
            return Approve()
        case "modify":
            return Modify(plain["arguments"])
        case "abort":
            return Abort(plain["reason"])
        case _:
            return Deny(plain.get("reason") or "Tool call denied.")


class RunSegment:
    """One segment of a run, from the prompt or the last rest, which may be set until `move`, to the next rest."""

    def __init__(
        self, loop: DurableLoop[Any, Any], place: RunPlace, begin: Rest | Sequence[Message] = (), segment: int = 0
    ) -> None:
        self.begin = begin
        self.taken: list[str] = []
        """The keys of the items that it has taken."""
        self._segment = segment
        self.handle: ToolLoopHandle[Any, Any] | None = None
        self._loop = loop
        self._place = place
        self._wish: tuple[str | None] | None = None

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the run, before or during `move`."""
        self._wish = (reason,)
        if self.handle is not None:
            self.handle.cancel(reason)

    async def move(self, journal: Journal, items: Sequence[InboxItem], **settings: Any) -> ToolLoopResult[Any]:
        """Execute the run until its rest, with the decisions and messages since the last one; return the loop's result.

        The settings replace those of the loop.
        """
        self.handle = handle = await self._make_handle(self._configure_loop(journal, settings), items)
        if self._wish is not None:
            handle.cancel(*self._wish)
        return await handle.run()

    def leave_result(self, result: ToolLoopResult[Any], trace: Mapping[str, str]) -> Rest:
        """Return the rest of a run that ended, or awaits decisions."""
        state: DurableState = "done"
        if isinstance(result.reason, AwaitingApproval):
            state = "waiting"
        elif isinstance(result.reason, Cancelled):
            state = "cancelled"
        assert self.handle is not None
        return self._seal_rest(
            state=state,
            ending=result.ending,
            messages=messages_to_plain(result.messages),
            result=dump_result(replace(result, messages=[], snapshot=None)),
            snapshot=self.handle.snapshot(),
            trace=dict(trace),
        )

    def leave_error(self, error: Exception, trace: Mapping[str, str], *, is_resumable: bool, is_read: bool) -> Rest:
        """Log the error of a failed run, and return its rest."""
        self._log_error(error)
        snapshot, messages = None, self._last_messages
        if self.handle is not None:
            snapshot = self._save_failed(self.handle)
        elif isinstance(self.begin, Rest):
            snapshot = self.begin.snapshot
        if isinstance(error, ProviderError) and error.messages:
            messages = error.messages
        return self._seal_rest(
            state="failed",
            ending=type(error).__name__,
            error=without_keys(replace_surrogates(str(error))) or type(error).__name__,
            messages=messages_to_plain(list(messages)),
            snapshot=snapshot,
            is_resumable=is_resumable,
            is_read=is_read,
            trace=dict(trace),
        )

    def _log_error(self, error: Exception) -> None:
        """Log an error as one line, with its place if the library did not raise it; its traceback at DEBUG."""
        place, message = self._place, " ".join(str(error).split()) or type(error).__name__
        turn = 0 if self.handle is None else self.handle.iterations
        frames = [] if isinstance(error, ToolkitError) else traceback.extract_tb(error.__traceback__)[-1:]
        source = "".join(f" ({frame.filename}:{frame.lineno}, in {frame.name})" for frame in frames)
        line = f"{type(error).__name__}: {message}{source}"
        _logger.warning("durable run %s of loop %s failed in turn %d: %s", place.run_id, place.loop, turn, line)
        _logger.debug("the error of durable run %s", place.run_id, exc_info=error)

    def leave_again(self, rest: Rest) -> Rest:
        """Return the rest that this segment began from as its own, since nothing has resumed the run."""
        return seal_rest(self._loop.config.signing_key, self._place, replace(rest, segment=self._segment))

    def _seal_rest(self, **parts: Any) -> Rest:
        before = self.begin.taken if isinstance(self.begin, Rest) else ()
        is_keyed = self._loop.config.signing_key is not None
        return self.leave_again(Rest(**parts, taken=[*before, *self.taken] if is_keyed else []))

    def _save_failed(self, handle: ToolLoopHandle[Any, Any]) -> Snapshot | None:
        """Return the snapshot of a failed loop; None if it can't be saved, so that only its transcript remains."""
        try:
            return handle.snapshot()
        except LoopUsageError as error:
            _logger.info("run %s can only be resumed from its transcript: %s", self._place.run_id, error)
            return None

    @property
    def _last_messages(self) -> Sequence[Message]:
        """The transcript so far."""
        if self.handle is not None:
            return self.handle.messages
        return self.begin.load_messages() if isinstance(self.begin, Rest) else self.begin

    def _configure_loop(self, journal: Journal, settings: Mapping[str, Any]) -> ToolLoopConfig[Any]:
        config, place = self._loop.config, self._place
        metadata = {**config.metadata, "run_id": place.run_id, "loop": place.loop, "tenant": place.tenant}
        hook = config.on_tool_call
        if hook is None and self._loop.registry.may_ask():  # of a tool of the loop, or of its sub-agents
            hook = put_off_asked
        return replace(config, journal=journal, on_tool_call=hook, metadata=metadata, **settings)

    async def _make_handle(self, config: ToolLoopConfig[Any], items: Sequence[InboxItem]) -> ToolLoopHandle[Any, Any]:
        loop, ctx = self._loop, None
        if loop.make_context is not None:
            ctx = loop.make_context(self._place)
            if inspect.isawaitable(ctx):
                ctx = await ctx
        said = [read_message(item) for item in items if item.kind in MESSAGES]
        if isinstance(self.begin, Rest):
            check_rest(loop.config.signing_key, self._place, self.begin, self.begin.segment)
        if isinstance(self.begin, Rest) and self.begin.snapshot is not None:
            handle: ToolLoopHandle[Any, Any] = ToolLoopHandle.restore(
                self.begin.snapshot,
                loop.provider,
                loop.registry,
                ctx=ctx,
                config=config,
                messages=None if self.begin.awaited else said,
            )
            await _apply_decisions(handle, items)
            return handle
        messages, prompt = [*self._last_messages, *said], loop.system_prompt
        if isinstance(prompt, str) or isinstance(self.begin, Rest) or isinstance(messages[0], SystemMessage):
            prompt = ""  # the transcript has it
        return ToolLoopHandle(loop.provider, loop.registry, messages, ctx=ctx, config=config, system_prompt=prompt)


def read_message(item: InboxItem) -> Message:
    """Return the message of an item."""
    return read_messages([item.body["message"]])[0]


async def _apply_decisions(handle: ToolLoopHandle[Any, Any], items: Sequence[InboxItem]) -> None:
    """Apply decisions to a run that awaits them; close it if it was cancelled."""
    for item in items:
        if item.kind == "cancel":
            handle.cancel(item.body.get("reason"))
            await handle.close()
            return
        if item.kind != "decide":
            continue
        decision: Approval | bool | str = read_decision(item.body["decision"])
        try:
            await handle.decide(item.body["call_id"], decision, binding=item.body["binding"])
        except LoopUsageError as error:
            # The tool was changed: the run comes to rest again, with the call as it is now.
            _logger.warning("a decision on call %s is no longer valid: %s", item.body["call_id"], error)
