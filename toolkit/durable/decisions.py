"""Decisions on calls: as JSON, and the key that each has in the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.calls.approval import Abort, Approval, Approve, Defer, Deny, Modify, to_approval
from toolkit.errors import ConfigurationError
from toolkit.loop.journal import storable_id

__all__ = ["decision_key", "read_decision", "write_decision"]


def decision_key(call_id: str, binding: str) -> str:
    """Return the key under which the decision on a call is kept, where no second one can be."""
    return f"decide/{storable_id(call_id)}/{storable_id(binding)}"


def write_decision(answer: Approval | bool | str) -> dict[str, Any]:
    """Return a decision as JSON values.

    Raises:
        ConfigurationError: It decides nothing.
    """
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


def read_decision(plain: Mapping[str, Any]) -> Approval:
    """Return the decision that `write_decision` said."""
    match plain["kind"]:
        case "approve":
            return Approve()
        case "modify":
            return Modify(plain["arguments"])
        case "abort":
            return Abort(plain["reason"])
        case _:
            return Deny(plain.get("reason") or "Tool call denied.")
