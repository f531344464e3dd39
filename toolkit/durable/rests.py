"""The plain JSON that a segment of a run leaves when it comes to rest, and that the next one begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import Message, load_messages
from toolkit.chat.messages import messages_to_plain
from toolkit.dataclass import dataclass
from toolkit.durable.errors import DurableError
from toolkit.errors import ProviderError
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.event_json import dump_result, load_result
from toolkit.loop.outcome import AwaitingApproval, Cancelled, Snapshot, ToolLoopResult
from toolkit.secrets import without_keys
from toolkit.text_encodings import replace_surrogates

__all__ = ["RESTING", "DurableState", "InboxItem", "Rest", "leave_error", "leave_result", "read_messages", "read_rest"]

DurableState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""How a durable run stands. ``queued`` waits for a worker, ``waiting`` for a decision."""

RESTING: frozenset[str] = frozenset({"waiting", "done", "failed", "cancelled"})
"""The states in which a run is a row, and nothing else."""

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
    """

    state: DurableState
    ending: str
    error: str
    messages: list[dict[str, Any]]
    result: dict[str, Any] | None
    snapshot: Snapshot | None
    is_resumable: bool = False

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that await a decision."""
        if self.state != "waiting" or self.snapshot is None:
            return []
        return [PendingApproval(**each) for each in self.snapshot["pending_approvals"]]

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


def leave_result(result: ToolLoopResult[Any], snapshot: Snapshot | None) -> dict[str, Any]:
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
    }


def leave_error(
    error: Exception, messages: Sequence[Message], snapshot: Snapshot | None, *, is_resumable: bool
) -> dict[str, Any]:
    """Return what a run leaves that can't go on.

    Args:
        error: Why.
        messages: The transcript as far as it came.
        snapshot: The snapshot that it was to be taken up from, where that was not possible.
        is_resumable: As in `Rest`.
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
        return Rest(**needed, is_resumable=left.get("is_resumable", False))
    except KeyError as error:
        raise DurableError(f"what the run left can't be read: it has no {error}") from error
