"""A loop as plain JSON, to be taken up again in another process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError

from toolkit.chat import ChatRequest, ResponseFormat, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.loop.approvals import PendingApproval
from toolkit.loop.budget import Budget
from toolkit.loop.outcome import Snapshot
from toolkit.loop.state import FrozenState, LoopState

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["SavedLoop", "SavedRequest", "dump_snapshot", "load_snapshot", "save_loop"]

_VERSION = 1


@dataclass(slots=True, kw_only=True)
class SavedRequest:
    """The settings of a `ChatRequest`, without its transcript; `tools` only where the caller fixed them."""

    tools: tuple[ToolDefinition, ...] | None
    tool_choice: str
    parallel_tool_calls: bool | None
    temperature: float | None
    max_tokens: int | None
    seed: int | None
    stop: tuple[str, ...]
    response_format: ResponseFormat | None
    reasoning_effort: str | None
    timeout: float | None
    options: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class SavedLoop:
    """All that a loop needs to go on, but its provider, registry, context and configuration.

    Args:
        state: The machine.
        request: The settings of each request.
        bindings: What each call that awaits approval is tied to, by call id.
        arguments: What an approver gave an open call in place of its own arguments, by call id, as canonical JSON.
        seconds_left: What is left of the loop's time; None without a limit.
        requests: Requests booked against the usage limits.
        tool_calls: Tool calls booked against the usage limits.
    """

    state: FrozenState
    request: SavedRequest
    bindings: dict[str, str]
    arguments: dict[str, str]
    seconds_left: float | None
    requests: int
    tool_calls: int


@cache
def _adapter() -> TypeAdapter[SavedLoop]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - costs milliseconds that an import should not

    return TypeAdapter(SavedLoop)


def save_loop(
    state: LoopState,
    request: ChatRequest,
    *,
    tools: Sequence[ToolDefinition] | None,
    pending: Sequence[PendingApproval],
    arguments: dict[str, str],
    seconds_left: float | None,
    budget: Budget | None,
) -> Snapshot:
    """Return a loop as a snapshot.

    Args:
        state: Its machine.
        request: The settings of its requests.
        tools: The tools that the caller fixed; None offers what the registry holds.
        pending: What awaits a decision.
        arguments: As in `SavedLoop`.
        seconds_left: As in `SavedLoop`.
        budget: What was spent of its limits.

    Raises:
        LoopUsageError: A turn is under way, or something in it is no JSON.
    """
    saved = SavedLoop(
        state=state.freeze(),
        request=SavedRequest(
            tools=None if tools is None else tuple(tools),
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel_tool_calls,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            stop=request.stop,
            response_format=request.response_format,
            reasoning_effort=request.reasoning_effort,
            timeout=request.timeout,
            options=dict(request.options),
        ),
        bindings={approval.call_id: approval.binding for approval in pending},
        arguments=arguments,
        seconds_left=seconds_left,
        requests=0 if budget is None else budget.requests,
        tool_calls=0 if budget is None else budget.tool_calls,
    )
    return dump_snapshot(saved, [asdict(approval) for approval in pending])


def dump_snapshot(saved: SavedLoop, pending: list[dict[str, Any]]) -> Snapshot:
    """Return the snapshot: versioned, sealed by a checksum, and with what awaits approval for whoever decides.

    Raises:
        LoopUsageError: Something in it is no JSON, such as an option of the request.
    """
    try:
        plain = _adapter().dump_python(saved, mode="json", exclude={"state": _without_details()})
        content: Snapshot = json.loads(json.dumps({"version": _VERSION, "loop": plain, "pending_approvals": pending}))
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise LoopUsageError(f"the loop can't be saved: {error}") from error
    return {**content, "checksum": _checksum(content)}


def load_snapshot(snapshot: Snapshot) -> SavedLoop:
    """Return what `dump_snapshot` saved.

    Raises:
        LoopUsageError: It is of another version, was changed since, or is no snapshot.
    """
    if not isinstance(snapshot, dict) or "version" not in snapshot:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LoopUsageError("this is no snapshot: give what handle.snapshot() returned, decoded from JSON")
    if snapshot["version"] != _VERSION:
        raise LoopUsageError(
            f"the snapshot is of version {snapshot['version']!r}, and this library reads version {_VERSION}: "
            "restore it with the library that made it"
        )
    content = {name: value for name, value in snapshot.items() if name != "checksum"}
    if snapshot.get("checksum") != _checksum(content):
        raise LoopUsageError(
            "the snapshot was changed after it was made: its checksum does not fit; restore it as saved"
        )
    try:
        return _adapter().validate_python(snapshot["loop"])
    except ValueError as error:
        raise LoopUsageError(f"the snapshot can't be read: {error}") from error


def _checksum(content: Snapshot) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _without_details() -> dict[str, Any]:
    """The `details` of results are the application's own objects, and not for saving."""
    each = {"__all__": {"details"}}
    return {
        "messages": each,
        "results": each,
        "incoming": each,
        "warnings": each,
        "open_calls": {"__all__": {"result": {"details"}}},
    }
