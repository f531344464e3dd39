"""A loop as plain JSON, to be taken up again in another process."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError

from toolkit.chat import ResponseFormat, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.loop.outcome import Snapshot
from toolkit.loop.state import FrozenState

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["SavedLoop", "SavedRequest", "dump_snapshot", "load_snapshot"]

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
