"""A loop as plain JSON, to be restored in another process."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import PydanticSerializationError

from toolkit.chat import AssistantMessage, ChatRequest, ToolDefinition, validate_transcript
from toolkit.dataclass import dataclass
from toolkit.errors import LaterReleaseError, LoopUsageError
from toolkit.json_text import digest_json, make_adapter, sign_json
from toolkit.loop.outcome import Snapshot
from toolkit.loop.state import FrozenState
from toolkit.redaction import MASK, replace_fields

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_VERSION = 3
_WITHOUT_TEXTS = 2
"""The version before, of runs that may wait in a database: it has none of the texts that were cut."""


@dataclass(slots=True, kw_only=True)
class SavedLoop:
    """The whole state of a loop, without its provider, registry, context and configuration.

    Args:
        loop_id: The loop's id, which it keeps.
        salt: Makes the digests of this loop's calls its own.
        state: The machine.
        request: The settings of each request, without messages; `tools` only if the caller fixed them.
        bindings: The binding of each call that may run or awaits approval, by call id, until it has run.
        arguments: The arguments that an approver gave an open call in place of its own, by call id, as canonical JSON.
        seconds_left: The seconds that are left of the loop's time; None without a limit.
        requests: Requests booked against the usage limits.
        tool_calls: Tool calls booked against the usage limits.
        answer_retries: How often the model may be asked again for an answer of a type.
        uses: How often each tool that has a limit was used, by name.
        texts: The newest texts that were cut and stored, by their ids; none if the store outlives the process.
        middleware: The state that each named middleware has saved.
        trust: The facts on untrusted texts, and the decisions of people on destinations.
        trusted_texts: The ids of the `texts` that are from no untrusted tool.
    """

    loop_id: str
    salt: str
    state: FrozenState
    request: ChatRequest
    bindings: dict[str, str]
    arguments: dict[str, str]
    seconds_left: float | None
    requests: int
    tool_calls: int
    answer_retries: int
    uses: dict[str, int]
    texts: dict[str, str]
    middleware: dict[str, Any]
    trust: dict[str, Any] = field(default_factory=dict[str, Any])
    trusted_texts: list[str] = field(default_factory=list[str])


# The `details` of results are objects of the application, and not saved; a saved request has no transcript.
_OF_EACH = {"__all__": {"details"}}
_EXCLUDED: Any = {
    "request": {"messages", "earlier_tools"},
    "state": {
        **dict.fromkeys(("messages", "results", "incoming", "warnings"), _OF_EACH),
        "open_calls": {"__all__": {"result": {"details"}}},
    },
}


@cache
def _make_loop_adapter() -> TypeAdapter[SavedLoop]:
    return make_adapter(SavedLoop)


def save_request(request: ChatRequest, tools: Sequence[ToolDefinition] | None) -> ChatRequest:
    """Return the settings of a request, its secrets masked, with the tools that the caller fixed."""
    masked = replace_fields(request.options, lambda _: MASK)
    return replace(request, messages=(), tools=tools, options=masked, earlier_tools=())


def restore_request(saved: ChatRequest, options: Mapping[str, Any]) -> ChatRequest:
    """Return the settings of a saved request.

    Args:
        saved: The request, whose options have no secrets.
        options: Options that replace those of the same names.

    Raises:
        LoopUsageError: A secret is missing among the options.
    """
    merged = {**saved.options, **options}
    left = [name for name, value in merged.items() if name not in options and _holds_mask(value)]
    if left:
        raise LoopUsageError(
            f"the snapshot holds no secrets, and some of the request's options are such ({', '.join(left)}): "
            "give them in ToolLoopConfig(request_options={...})"
        )
    return replace(saved, options=merged)


def _holds_mask(value: object) -> bool:
    match value:
        case dict():
            return any(map(_holds_mask, cast("dict[str, object]", value).values()))
        case list():
            return any(map(_holds_mask, cast("list[object]", value)))
        case _:
            return value == MASK


def dump_snapshot(saved: SavedLoop, pending: list[dict[str, Any]], signing_key: str | bytes | None) -> Snapshot:
    """Return the snapshot: versioned, sealed, and with the calls that await approval.

    Raises:
        LoopUsageError: Something in it is no JSON, such as an option of the request.
    """
    try:
        plain = _make_loop_adapter().dump_python(saved, mode="json", exclude=_EXCLUDED)
        content: Snapshot = json.loads(json.dumps({"version": _VERSION, "loop": plain, "pending_approvals": pending}))
        return {**content, "seal": make_seal(content, signing_key)}
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise LoopUsageError(f"the loop can't be saved: {error}") from error


def load_snapshot(snapshot: Snapshot, signing_key: str | bytes | None) -> SavedLoop:
    """Return the loop that `dump_snapshot` saved with the same key.

    Raises:
        LoopUsageError: It is of another version, was changed since, is not sealed with this key, or is no snapshot.
    """
    if not isinstance(snapshot, dict) or "version" not in snapshot:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LoopUsageError("this is no snapshot: give what handle.snapshot() returned, decoded from JSON")
    version: object = snapshot["version"]
    if not isinstance(version, int) or version not in (_WITHOUT_TEXTS, _VERSION):
        kind = LaterReleaseError if isinstance(version, int) and version > _VERSION else LoopUsageError
        raise kind(
            f"the snapshot is of version {version!r}, and this library reads version {_VERSION}: "
            "restore it with the library that made it"
        )
    _check_seal(snapshot, signing_key)
    try:
        loop: dict[str, Any] = {**snapshot["loop"], "request": {"messages": (), **snapshot["loop"]["request"]}}
        if version == _WITHOUT_TEXTS:
            loop.pop("cut_texts", None)
            loop["texts"] = {}
        saved = _make_loop_adapter().validate_python(loop)
        _check_state(saved.state)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LoopUsageError(f"the snapshot can't be read: {error}") from error
    return saved


_KEYED, _PLAIN = "hmac-sha256:", "sha256:"


def _check_seal(snapshot: Snapshot, signing_key: str | bytes | None) -> None:
    seal: object = snapshot.get("seal")
    content = {name: value for name, value in snapshot.items() if name != "seal"}
    try:
        right = make_seal(content, signing_key)
    except (TypeError, ValueError, RecursionError) as error:
        raise LoopUsageError(f"the snapshot can't be read: {error}") from error
    if isinstance(seal, str) and hmac.compare_digest(seal.encode("utf-8", "replace"), right.encode()):
        return
    if signing_key is None and is_keyed(snapshot):
        raise LoopUsageError("the snapshot is sealed with a key: give its signing_key to the configuration")
    if signing_key is not None and not is_keyed(snapshot):
        raise LoopUsageError("the snapshot is not sealed with a key, and the configuration has a signing_key")
    raise LoopUsageError(
        "the snapshot was changed after it was made, or sealed with another key: restore it as saved, with its key"
    )


def is_keyed(snapshot: Snapshot) -> bool:
    """Return whether a snapshot says that it is sealed with a key."""
    seal: object = snapshot.get("seal")
    return isinstance(seal, str) and seal.startswith(_KEYED)


def make_seal(content: Snapshot, signing_key: str | bytes | None) -> str:
    """Return the seal of a snapshot, which shows that it was not changed; without a key, not by mistake."""
    if signing_key is None:
        return _PLAIN + digest_json(content)
    key = signing_key.encode() if isinstance(signing_key, str) else signing_key
    return _KEYED + sign_json(["toolkit snapshot", content], key)


def _check_state(state: FrozenState) -> None:
    """Raise where the parts of a saved machine do not fit together."""
    validate_transcript(state.messages, allow_pending=bool(state.open_calls))
    validate_transcript([*state.incoming, *state.warnings])
    last = state.messages[-1] if state.messages else None
    calls = last.tool_calls if isinstance(last, AssistantMessage) else ()
    if state.open_calls and state.reason is not None:
        raise ValueError("it has ended, and calls are open")
    if [call.id for call in calls] != [saved.call_id for saved in state.open_calls]:
        raise ValueError("the saved calls are not those of the last message")
    for saved in state.open_calls:
        is_done, is_suspended = saved.status == "done", saved.status == "suspended"
        answered = saved.result is not None and saved.result.call_id == saved.call_id
        if (
            saved.status in ("undecided", "started")
            or is_done != answered
            or (not is_done and saved.result is not None)
            or (is_suspended and saved.child is None)
        ):
            raise ValueError(f"call '{saved.call_id}' is in no state in which a loop is saved")
