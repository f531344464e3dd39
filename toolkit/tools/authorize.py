"""The second stage of a call: the guards are asked whether it may run, and with what."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import anyio

from toolkit.chat import ToolCall
from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError, ToolDeniedError
from toolkit.tools.approval import Abort, ApprovalHook, ApprovalRequest, Approve, Defer, Deny, Modify, to_approval
from toolkit.tools.handler import Ctx
from toolkit.tools.policy import ExecutionPolicy
from toolkit.tools.prepare import Ready, Refused, error_result, permit

if TYPE_CHECKING:
    from toolkit.tools.permissions import Permissions

__all__ = ["Aborted", "Deferred", "Verdict", "answer_of", "authorize", "decided"]

_logger = logging.getLogger("toolkit.tools")


@dataclass(slots=True)
class Deferred(Generic[Ctx]):
    """A call whose approval comes later."""

    ready: Ready[Ctx]


@dataclass(slots=True)
class Aborted:
    """A call whose approver ended the run."""

    call: ToolCall
    reason: str


Verdict: TypeAlias = Ready[Ctx] | Refused | Deferred[Ctx] | Aborted


async def authorize(ready: Ready[Ctx], policy: ExecutionPolicy, permissions: Permissions | None = None) -> Verdict[Ctx]:
    """Ask the guards: the hook before execution, then the approval. A guard that raises denies."""
    call = ready.call
    if policy.before is not None:
        try:
            goes_on = await answer_of(policy.before(call.name, call.id, ready.arguments), policy.hook_timeout)
        except Exception:
            _logger.exception("before_tool_execution raised for %s; the call is skipped", call.name)
            goes_on = False
        if goes_on is not True:
            return Refused(call, error_result(call, "Tool execution skipped by before_tool_execution hook."))
    if policy.approve is None:
        if ready.asks is None:
            return ready
        return Refused(call, error_result(call, f"{ready.asks} Nobody is there to approve it, so it was not run."))
    return decided(ready, await _approval(ready, policy.approve, policy.hook_timeout), permissions)


async def _approval(ready: Ready[Any], approve: ApprovalHook, timeout: float) -> object:
    call = ready.call
    request = ApprovalRequest(
        call.id,
        call.name,
        ready.arguments,
        original=ready.original,
        definition=ready.registration.definition,
        tags=ready.registration.options.tags,
        reason=ready.asks or "",
    )
    try:
        return await answer_of(approve(request), timeout)
    except Exception:
        _logger.exception("the approval hook raised for %s; the call is denied", call.name)
        return Deny("Tool call denied: the approval hook failed.")


def decided(ready: Ready[Ctx], answer: object, permissions: Permissions | None) -> Verdict[Ctx]:
    """Apply the answer of an approver to a call."""
    call = ready.call
    match to_approval(answer):
        case Approve():
            return ready
        case Deny(reason):
            return Refused(call, error_result(call, ToolDeniedError(reason).message))
        case Abort(reason):
            return Aborted(call, reason)
        case Defer():
            return Deferred(ready)
        case Modify(arguments):
            try:
                ready.arguments = ready.registration.arguments.parse(dict(arguments))
                ready.is_modified = True
            except InvalidArgumentsError as error:
                return Refused(call, error_result(call, f"The approver changed the arguments wrongly. {error.message}"))
            judged = ready if permissions is None else permit(ready, permissions)
            return judged if isinstance(judged, Refused) else ready


async def answer_of(value: Any, timeout: float) -> Any:
    """Return what a hook gave, awaited for at most `timeout` seconds where it can be."""
    if not inspect.isawaitable(value):
        return value
    with anyio.fail_after(timeout):
        return await value
