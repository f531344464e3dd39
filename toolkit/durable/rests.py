"""The plain JSON that a segment of a run leaves when it comes to rest, and that the next one begins with."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import ChatRequest, Message, SystemMessage, UserMessage, load_messages, validate_transcript
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.durable.errors import DurableError
from toolkit.errors import ConfigurationError, ProviderError, TranscriptError
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.event_json import dump_result, load_result
from toolkit.loop.outcome import AwaitingApproval, Cancelled, Snapshot, ToolLoopResult
from toolkit.secrets import without_keys
from toolkit.text_encodings import replace_surrogates

__all__ = [
    "ENDED",
    "RESTING",
    "TAKEN_AT_REST",
    "VOID_AT_REST",
    "DurableState",
    "InboxItem",
    "Rest",
    "leave_error",
    "leave_result",
    "read_messages",
    "read_rest",
    "write_prompt",
]

DurableState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""How a durable run stands. ``queued`` waits for a worker, ``waiting`` for a decision."""

ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled"})
"""The states of a run that has come to an end."""

RESTING: frozenset[str] = ENDED | {"waiting"}
"""The states in which a run is a row, and nothing else."""

TAKEN_AT_REST: Mapping[str, Collection[str]] = {
    "waiting": {"decide", "cancel"},
    "done": {"say", "steer"},
    "failed": {"say", "steer", "retry"},
    "cancelled": {"say", "steer", "retry"},
}
"""The kinds of items of the inbox that have a run at rest go on, by its state."""

VOID_AT_REST: Mapping[str, Collection[str]] = {
    "waiting": {"retry"},
    "done": {"decide", "cancel", "retry"},
    "failed": {"cancel"},
    "cancelled": {"decide", "cancel"},
}
"""Those that such a run never takes."""

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """Something that was said to a run.

    Args:
        id: Grows from one to the next.
        kind: As in `InboxKind`.
        body: The content, as JSON.
    """

    id: int
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """How a run came to rest.

    Args:
        state: Its state.
        ending: The `kind` of the ending; the class of the error where it failed.
        error: The message of the error, without secrets.
        messages: The transcript, as JSON.
        result: The result without its transcript, as JSON; None where the run failed.
        snapshot: Where it awaits decisions, or failed to go on from one.
        is_resumable: True where it failed, and its log goes on with what failed.
        is_read: False where it failed before all of its log was read: the transcript has less than was recorded.
        trace: The trace context of the first segment, with which those that follow are linked; empty without tracing.
    """

    state: DurableState
    ending: str
    error: str
    messages: list[dict[str, Any]]
    result: dict[str, Any] | None
    snapshot: Snapshot | None
    is_resumable: bool = False
    is_read: bool = True
    trace: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await a decision."""
        return self.awaited if self.state == "waiting" else []

    @property
    def awaited(self) -> list[PendingApproval]:
        """The calls that a run awaits a decision on which goes on from here."""
        return [] if self.snapshot is None else [PendingApproval(**each) for each in self.snapshot["pending_approvals"]]

    def load_result(self) -> ToolLoopResult[Any]:
        """Return what the loop left.

        Raises:
            DurableError: The run failed.
        """
        if self.result is None:
            raise DurableError(f"the run failed with {self.ending}: {self.error}")
        return replace(load_result(self.result), messages=self.load_messages(), snapshot=self.snapshot)

    def load_messages(self) -> list[Message]:
        """Return the transcript."""
        return read_messages(self.messages)


def read_messages(plain: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages of their JSON values."""
    return load_messages(json.dumps(plain))


def write_prompt(prompt: str | Sequence[Message], system_prompt: str) -> list[dict[str, Any]]:
    """Return what a run begins with as JSON values.

    Raises:
        ConfigurationError: It is empty, or a whole request.
        DurableError: It is no transcript, or can't be stored.
    """
    if isinstance(prompt, ChatRequest):
        raise ConfigurationError(
            "a durable run starts from a question or a transcript: the settings of requests are its provider's, and "
            "its tools those of its durable_loop"
        )
    if not (prompt.strip() if isinstance(prompt, str) else prompt):
        raise ConfigurationError("what a durable run starts from is empty: give a question, or a transcript")
    messages: list[Message] = [UserMessage(prompt)] if isinstance(prompt, str) else list(prompt)
    if system_prompt and not isinstance(messages[0], SystemMessage):
        messages.insert(0, SystemMessage(system_prompt))
    try:
        validate_transcript(messages)
        return messages_to_plain(messages)
    except (TranscriptError, ValueError, TypeError) as error:
        raise DurableError(f"what the run starts from can't be stored: {error}") from error


def leave_result(result: ToolLoopResult[Any], snapshot: Snapshot | None, *, trace: Mapping[str, str]) -> dict[str, Any]:
    """Return what a run leaves that ended, or awaits decisions."""
    state: DurableState = "done"
    if isinstance(result.reason, AwaitingApproval):
        state = "waiting"
    elif isinstance(result.reason, Cancelled):
        state = "cancelled"
    return {
        "v": _VERSION,
        "state": state,
        "ending": result.reason.kind,
        "error": "",
        "messages": messages_to_plain(result.messages),
        "result": dump_result(replace(result, messages=[], snapshot=None)),
        "snapshot": snapshot if state == "waiting" else None,
        "trace": dict(trace),
    }


def leave_error(
    error: Exception,
    messages: Sequence[Message],
    snapshot: Snapshot | None,
    *,
    is_resumable: bool,
    is_read: bool,
    trace: Mapping[str, str],
) -> dict[str, Any]:
    """Return what a run leaves that can't go on.

    Args:
        error: Why.
        messages: The transcript as far as it came.
        snapshot: The snapshot that it was to be taken up from, where that was not possible.
        is_resumable: As in `Rest`.
        is_read: As in `Rest`.
        trace: As in `Rest`.
    """
    carried = list(error.messages) if isinstance(error, ProviderError) and error.messages else list(messages)
    return {
        "v": _VERSION,
        "state": "failed",
        "ending": type(error).__name__,
        "error": without_keys(replace_surrogates(str(error))) or type(error).__name__,
        "messages": messages_to_plain(carried),
        "result": None,
        "snapshot": snapshot,
        "is_resumable": is_resumable,
        "is_read": is_read,
        "trace": dict(trace),
    }


def read_rest(output: object) -> Rest:
    """Return what a segment left, as the engine kept it.

    Raises:
        DurableError: It is of another version, or was changed.
    """
    left = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    if left.get("v") != _VERSION:
        raise DurableError("what the run left can't be read: it is of another version of this library, or was changed")
    try:
        needed = {name: left[name] for name in ("state", "ending", "error", "messages", "result", "snapshot")}
        flags = {"is_resumable": left.get("is_resumable", False), "is_read": left.get("is_read", True)}
        return Rest(**needed, **flags, trace=left.get("trace", {}))
    except KeyError as error:
        raise DurableError(f"what the run left can't be read: it has no {error}") from error
