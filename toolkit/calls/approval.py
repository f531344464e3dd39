"""The second stage of a call: guards and the approver decide whether it may run, and with which arguments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from toolkit.calls.events import ApprovalRequested
from toolkit.calls.prepare import Ready, Refused, error_result, permit, permit_again, write_preview
from toolkit.calls.provenance import Origin
from toolkit.chat import ToolCall, ToolDefinition, ToolResult
from toolkit.chat.request import copy_definition
from toolkit.dataclass import dataclass, maker_of
from toolkit.errors import InvalidArgumentsError, ToolDeniedError
from toolkit.logs import get_logger, secrets_in_use
from toolkit.redaction import without_secrets
from toolkit.runtime.workers import run_in_worker
from toolkit.settings import Settings, check_fields

if TYPE_CHECKING:
    from toolkit.calls.policy import Caller, ExecutionPolicy
    from toolkit.calls.registration import Registration

_logger = get_logger("toolkit.calls")


@dataclass(frozen=True, slots=True)
class Approve:
    """Run it as it is."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Don't run it; the model reads `reason` as the call's error, word for word."""

    reason: str = "Tool call denied."


@dataclass(frozen=True, slots=True)
class Modify(Settings):
    """Run it with these arguments instead: all of them, as JSON would say them. They are validated, never repaired."""

    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self, "the {} of Modify")


@dataclass(frozen=True, slots=True)
class Abort:
    """Run nothing more and end the loop."""

    reason: str = "The run was aborted."


@dataclass(frozen=True, slots=True)
class Defer:
    """Decide later: the loop ends as `AwaitingApproval` and can be resumed."""


@dataclass(slots=True, kw_only=True)
class LateDecision:
    """A decision on a call of a sub-agent, until the sub-agent goes on.

    Args:
        call_id: The call, as the sub-agent's loop names it.
        binding: The binding that the decision was made on.
        kind: The kind of answer.
        reason: The reason of a denial.
        arguments: The arguments of a `Modify`.
    """

    call_id: str
    binding: str
    kind: Literal["approve", "deny", "modify"]
    reason: str = ""
    arguments: dict[str, Any] | None = None

    def read(self) -> Approval:
        """Return the answer."""
        if self.kind == "deny":
            return Deny(self.reason)
        return Approve() if self.arguments is None else Modify(self.arguments)


@dataclass(slots=True, kw_only=True)
class WaitingChild:
    """A sub-agent whose loop awaits decisions, in the call that runs it.

    Args:
        agent: Its name.
        loop_id: The id of its loop.
        calls: The calls that need a decision; those of its own sub-agents, too.
        snapshot: The saved loop.
        decisions: The decisions that were made since, for when it continues.
    """

    agent: str
    loop_id: str
    calls: tuple[ToolCall, ...]
    snapshot: dict[str, Any]
    decisions: list[LateDecision] = field(default_factory=list[LateDecision])


class ChildWaitsError(BaseException):
    """Raised in the call of a sub-agent that awaits decisions; the call continues when they are made.

    It is not an `Exception`, so that no tool handles it as a failure.
    """

    def __init__(self, child: WaitingChild) -> None:
        super().__init__(child.agent)
        self.child = child


Approval: TypeAlias = Approve | Deny | Modify | Abort | Defer
"""The answers that an approver may give."""

Verdict: TypeAlias = Approve | Deny | Abort | Defer
"""The outcome of an answer: a `Modify` has changed the call, or denied it where the arguments are wrong."""


@dataclass(frozen=True)
class ApprovalRequest:
    """One call that asks to run.

    Args:
        call_id: The id of the call.
        tool_name: The tool that would run, its name repaired.
        arguments: The arguments that the tool would get, validated.
        original: The call as the model wrote it.
        tags: The tool's tags.
        reason: Why a decision is needed, if a rule requires it.
        agent: The sub-agent that wants to make the call; empty if it is not a sub-agent's.
        loop_id: The id of the sub-agent's loop.
        origins: Where the destinations come from that neither the user nor a trusted tool named.

    Attributes:
        definition: A copy of the definition of the tool, as the model has it.
        preview: The arguments to be shown to a person: as the tool's own `preview` writes them, else those that were
            given, as JSON, without defaults. Invisible characters, and those that change how others are displayed, are
            escaped, and secrets are digests.
        unsaid: The arguments that occur nowhere in the conversation, as paths, if the provider checks that.
    """

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any] = field(repr=False)
    _: KW_ONLY
    original: ToolCall
    _shown: tuple[Registration[Any], str, str] = field(repr=False)
    tags: frozenset[str] = frozenset()
    reason: str = ""
    agent: str = ""
    loop_id: str = ""
    origins: tuple[Origin, ...] = ()

    @property
    def definition(self) -> ToolDefinition:
        """See the class."""
        return copy_definition(self._shown[0].definition)

    @property
    def preview(self) -> str:
        """See the class."""
        registration, written, given = self._shown
        return write_preview(registration, self.arguments, written, given)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """See the class."""
        return self.original.unsaid


ApprovalHook: TypeAlias = Callable[[ApprovalRequest], Approval | bool | str | Awaitable[Approval | bool | str]]
"""Decides on a call: with one of the answers, True (approve), False (deny) or a reason to deny. Raising denies."""

AsyncApprover: TypeAlias = Callable[[ApprovalRequest], Awaitable[object]]
"""Asks an approver, and returns its answer."""

_make_event, _make_request = maker_of(ApprovalRequested), maker_of(ApprovalRequest)
_APPROVE = Approve()
_DEFERRED = "The decision on this call was put off, so it was not run."
_MOST_APPROVERS = 200  # threads of one event loop, beside those of the tools


async def put_off_asked(request: ApprovalRequest) -> Approve | Defer:
    """Defer a call that needs a decision, at once; the approver of unattended runs."""
    return Defer() if request.reason else Approve()


async def authorize(ready: Ready[Any], policy: ExecutionPolicy) -> Verdict:
    """Ask the guards, then the approver, also those of a sub-agent's callers; the innermost is asked first.

    Each of them can deny the call. A guard that raises denies it.
    """
    guard = policy
    passed: list[Caller] = []
    asked: list[object] = []
    approved_by = -1
    if ready.trust is not None and isinstance(judged := permit_again(ready, policy), Refused):
        return Deny(judged.result.text)
    while True:
        if guard.guards:
            verdict = await _ask_guards(ready, guard, policy, asked)
            if not isinstance(verdict, Approve):
                return _end_callers(verdict, passed)
        # A call that its rules allow needs no approver, unless somebody has to agree.
        is_allowed = ready.asks is None and len(passed) in ready.allowed_levels
        ask = guard.config.ask_approver
        if ask is not None and not is_allowed:
            request, left = _open_request(ready, policy)
            if left is not None:
                await left
            try:
                answer = await ask(request)
            except Exception:
                text = "the approval hook raised for %s in call %s; the call is denied"
                with secrets_in_use(ready.find_secrets):
                    _logger.exception(text, ready.call.name, ready.call.id)
                answer = Deny("Tool call denied: the approval hook failed.")
            verdict = decide(ready, answer, policy)
            if type(verdict) is not Approve:
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
    """Return the verdict on a sub-agent's call after a caller's approver answered; an abort ends the callers' runs."""
    if isinstance(verdict, Defer) and passed and not passed[0].can_wait:
        _logger.warning(
            "a decision on a call of a sub-agent was put off where its run can't wait, so the call is denied: in a "
            "tool that runs it without on_crash='resume'"
        )
        return Deny(_DEFERRED)
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
            text = "a guard raised for %s in call %s; the call is denied"
            with secrets_in_use(ready.find_secrets):
                _logger.exception(text, ready.call.name, ready.call.id)
            return Deny("Tool call denied: a guard failed.")
        verdict = _APPROVE if answer is None else apply_answer(ready, answer, policy)
        if not isinstance(verdict, Approve):
            return verdict
    return _APPROVE


def _open_request(ready: Ready[Any], policy: ExecutionPolicy) -> tuple[ApprovalRequest, Awaitable[None] | None]:
    """Emit `ApprovalRequested`; return the request to the approver, and an awaitable until the event is delivered."""
    call, reason, left = ready.call, ready.asks or "", None
    shown, written = ready.show_arguments()
    arguments, registration = ready.copy_arguments(), ready.registration
    options = registration.options
    if policy.observer is not None and ApprovalRequested in policy.observed:
        left = policy.observer.emit(
            _make_event(
                call_id=call.id,
                tool_name=call.name,
                label=options.label,
                tags=options.tags,
                program=call.program if call.extra else "",
                arguments=shown,
                arguments_json=written,
                reason=reason,
                agent=policy.agent,
            )
        )
    request = _make_request(
        call.id,
        call.name,
        arguments,
        original=ready.original,
        _shown=(registration, written, ready.given),
        tags=options.tags,
        reason=reason,
        agent=policy.agent,
        loop_id=policy.loop_id,
        origins=ready.origins,
    )
    return request, left


def prepare_asking(approve: ApprovalHook, seconds: float | None) -> AsyncApprover:
    """Return a function that asks an approver within a time limit: in the event loop if it is async, else in a thread.

    All that one in a thread is given is its own copy.
    """
    is_async = inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(type(approve).__call__)
    ask: Any = approve if is_async else partial(_ask_in_thread, approve)
    return ask if seconds is None else partial(_ask_in_time, ask, seconds)


async def _ask_in_time(ask: Callable[[ApprovalRequest], Any], seconds: float, request: ApprovalRequest) -> object:
    with anyio.move_on_after(seconds):
        return await ask(request)
    return Deny(f"Tool call denied: nobody decided on it within {seconds:g} s.")


async def _ask_in_thread(approve: ApprovalHook, request: ApprovalRequest) -> object:
    """Call an approver that is not async in a thread: a person may take long."""
    answer = await run_in_worker(partial(approve, request), workers=_MOST_APPROVERS, is_for_people=True)
    return await answer if inspect.isawaitable(answer) else answer


def decide(ready: Ready[Any], answer: object, policy: ExecutionPolicy) -> Verdict:
    """Return the verdict of an approver's answer, and store it for the destinations that it was asked about."""
    asked = ready.trust
    verdict = answer if type(answer) is Approve else apply_answer(ready, answer, policy)
    if asked is not None and type(verdict) is Deny:
        asked.decide(is_approved=False)
    elif ready.trust is not None and type(verdict) is Approve:
        ready.trust.decide(is_approved=True)
    return verdict


def apply_answer(ready: Ready[Any], answer: object, policy: ExecutionPolicy) -> Verdict:
    """Return the verdict of an approver's answer; modified arguments replace those of the call."""
    match to_approval(answer):
        case Deny(reason):
            return Deny(ToolDeniedError(reason).message)
        case Modify(arguments):
            try:
                ready.modify(ready.registration.arguments.parse(_copy_given(arguments), repair=False))
            except InvalidArgumentsError as error:
                return Deny(f"The approver changed the arguments wrongly. {error.message}")
            judged = permit(ready, policy)
            return Deny(judged.result.text) if isinstance(judged, Refused) else _APPROVE
        case Abort(reason):  # which the result of the run shows
            return Abort(without_secrets(reason, ready.find_secrets()))
        case verdict:
            return verdict


def to_approval(answer: object) -> Approval:
    """Return the answer of a hook as an `Approval`; anything invalid denies."""
    if isinstance(answer, (Approve, Deny, Modify, Abort, Defer)):
        return answer
    if answer is True:
        return Approve()
    if answer is False:
        return Deny()
    if isinstance(answer, str):
        return Deny(answer) if answer else Deny()
    return Deny(f"Tool call denied: the approval hook answered {type(answer).__qualname__}, which is no answer.")


def _copy_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the arguments that an approver gave, because it may change its own later."""
    try:
        return copy.deepcopy(dict(arguments))
    except Exception:  # noqa: BLE001 - whatever a value of the application's own does when it is copied
        return dict(arguments)


def write_refusal(ready: Ready[Any], verdict: Deny | Abort | Defer) -> ToolResult:
    """Return the result of a call that may not run, outside of a loop, where nothing can wait or be aborted."""
    return error_result(ready.call, _DEFERRED if isinstance(verdict, Defer) else verdict.reason)
