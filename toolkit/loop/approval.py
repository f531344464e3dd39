"""Approvals that come later: what waits, and how a decision is tied to exactly that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.tools.prepare import Ready

__all__ = ["PendingApproval", "pending_approval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A call that waits for somebody's decision.

    Args:
        call_id: The id of the call.
        tool_name: The tool that would run.
        arguments: What it would be given, as JSON says it; secrets are shown as digests.
        reason: Why it is asked about.
        binding: A digest of tool, arguments and schema: a decision names it, and holds for nothing else.
    """

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    binding: str


def pending_approval(ready: Ready[Any]) -> PendingApproval:
    """Return what is to be decided on a call that is ready."""
    import hashlib  # noqa: PLC0415 - slow to import, and few calls wait

    definition = ready.registration.definition
    canonical = ready.registration.arguments.dump_json(ready.arguments)
    schema = json.dumps(definition.parameters, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256("\n".join([definition.name, canonical, schema]).encode())
    return PendingApproval(
        call_id=ready.call.id,
        tool_name=definition.name,
        arguments=json.loads(canonical),
        reason=ready.asks or "",
        binding=digest.hexdigest(),
    )
