"""The second stage of a call: the guards are asked whether it may run, and with what."""

from __future__ import annotations

import copy
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from toolkit.calls.approval import (
    Abort,
    ApprovalHook,
    ApprovalRequest,
    Approve,
    Defer,
    Deny,
    Modify,
    Verdict,
    to_approval,
)
from toolkit.calls.events import ApprovalRequested
from toolkit.calls.policy import Caller, ExecutionPolicy
from toolkit.calls.prepare import Ready, Refused, error_result, permit
from toolkit.chat import ToolResult
from toolkit.dataclass import maker_of
from toolkit.errors import InvalidArgumentsError, ToolDeniedError
from toolkit.runtime.workers import run_in_worker
from toolkit.visible_text import escape_in_json

__all__ = ["apply_answer", "authorize", "write_refusal"]

_logger = logging.getLogger("toolkit.calls")

_APPROVE = Approve()
_PUT_OFF = "The decision on this call was put off, so it was not run."

_ANY_NUMBER = sys.maxsize  # of threads: no tool that runs keeps an approver from being asked


async def authorize(ready: Ready[Any], policy: ExecutionPolicy) -> Verdict:
    """Ask the guards, then the approver; those of a sub-agent's callers, too.

    The innermost is asked first, and each has a say. A guard that raises denies.
    """
    guard = policy
    passed: list[Caller] = []
    asked: list[object] = []
    approved_by = -1
    while True:
        if guard.guards:
            verdict = await _ask_guards(ready, guard, policy, asked)
            if not isinstance(verdict, Approve):
                return _end_callers(verdict, passed)
        if guard.config.on_tool_call is not None:
            answer = await _ask_approver(ready, guard.config.on_tool_call, guard, policy)
            if not isinstance(answer, Approve):
                verdict = apply_answer(ready, answer, policy)
                if not isinstance(verdict, Approve):
                    return _end_callers(verdict, passed)
            approved_by = len(passed)
        if guard.caller is None:
            break
        passed.append(guard.caller)
        guard = guard.caller.policy
    if ready.asks is None or approved_by >= ready.asks_level:
        return _APPROVE
    return Deny(f"{ready.asks} Nobody is there to approve it, so it was not run.")


def _end_callers(verdict: Verdict, passed: Sequence[Caller]) -> Verdict:
    """Return what the answer of a caller's approver is for its sub-agent; an abort ends the callers' runs as well."""
    if isinstance(verdict, Defer) and passed:
        return Deny(_PUT_OFF)
    if isinstance(verdict, Abort):
        for caller in passed:
            if caller.abort is not None:
                caller.abort(verdict.reason)
    return verdict


async def _ask_guards(
    ready: Ready[Any], guard: ExecutionPolicy, policy: ExecutionPolicy, asked: list[object]
) -> Verdict:
    """Ask the guards of `guard` about a call that is made under `policy`; not those that were `asked` before."""
    for each in guard.guards:
        if any(each.owner is owner for owner in asked):
            continue
        asked.append(each.owner)
        try:
            with anyio.fail_after(guard.config.timeouts.hook):
                answer = await each.ask(ready)
        except Exception:
            _logger.exception("a guard raised for %s in call %s; the call is denied", ready.call.name, ready.call.id)
            return Deny("Tool call denied: a guard failed.")
        verdict = _APPROVE if answer is None else apply_answer(ready, answer, policy)
        if not isinstance(verdict, Approve):
            return verdict
    return _APPROVE


async def _ask_approver(
    ready: Ready[Any], approve: ApprovalHook, guard: ExecutionPolicy, policy: ExecutionPolicy
) -> object:
    """Ask the approver of `guard` about a call that is made under `policy`."""
    call, reason = ready.call, ready.asks or ""
    arguments, written = ready.show_arguments()
    if policy.observer is not None:
        options = ready.registration.options
        await policy.observer.emit(
            maker_of(ApprovalRequested)(
                call_id=call.id,
                tool_name=call.name,
                label=options.label,
                tags=options.tags,
                arguments=ready.copy_arguments(),
                arguments_json=written,
                reason=reason,
                agent=policy.agent,
            )
        )
    request = maker_of(ApprovalRequest)(
        call.id,
        call.name,
        arguments,
        original=ready.original,
        _definition=ready.registration.definition,
        tags=ready.registration.options.tags,
        reason=reason,
        preview=written if written.isprintable() else escape_in_json(written),
        agent=policy.agent,
        loop_id=policy.loop_id,
    )
    ask: Callable[[ApprovalRequest], Any] = (
        approve if guard.config.is_approver_async else partial(_ask_in_thread, approve)
    )
    try:
        if guard.config.timeouts.approval is None:
            return await ask(request)
        with anyio.move_on_after(guard.config.timeouts.approval):
            return await ask(request)
    except Exception:
        _logger.exception("the approval hook raised for %s in call %s; the call is denied", call.name, call.id)
        return Deny("Tool call denied: the approval hook failed.")
    return Deny(f"Tool call denied: nobody decided on it within {guard.config.timeouts.approval:g} s.")


async def _ask_in_thread(approve: ApprovalHook, request: ApprovalRequest) -> object:
    """Call an approver that is not async: a person may think long, and other things go on."""
    answer = await run_in_worker(partial(approve, request), workers=_ANY_NUMBER)
    return await answer if inspect.isawaitable(answer) else answer


def apply_answer(ready: Ready[Any], answer: object, policy: ExecutionPolicy) -> Verdict:
    """Return the verdict that the answer of an approver means; new arguments are taken into the call."""
    match to_approval(answer):
        case Deny(reason):
            return Deny(ToolDeniedError(reason).message)
        case Modify(arguments):
            try:
                ready.modify(ready.registration.arguments.parse(_copy_given(arguments), mend=False))
            except InvalidArgumentsError as error:
                return Deny(f"The approver changed the arguments wrongly. {error.message}")
            judged = permit(ready, policy)
            return Deny(judged.result.text) if isinstance(judged, Refused) else _APPROVE
        case verdict:
            return verdict


def write_refusal(ready: Ready[Any], verdict: Deny | Abort | Defer) -> ToolResult:
    """Return the result of a call that may not run, where no loop can wait for a decision or be ended."""
    return error_result(ready.call, _PUT_OFF if isinstance(verdict, Defer) else verdict.reason)


def _copy_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments that an approver gave: it may keep its own, and change them later."""
    try:
        return copy.deepcopy(dict(arguments))
    except Exception:  # noqa: BLE001 - whatever a value of the application's own does when it is copied
        return dict(arguments)
