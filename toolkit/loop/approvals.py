"""Decides which calls of a turn may run, at once or by a later decision that is bound to exactly that call."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal

from anyio import to_thread

from toolkit.calls.approval import (
    Abort,
    Approval,
    Approve,
    Defer,
    Deny,
    LateDecision,
    Modify,
    Verdict,
    WaitingChild,
    authorize,
    decide,
    to_approval,
)
from toolkit.calls.events import ToolCallRefused, ToolExecutionEnd
from toolkit.calls.output import redact_refusal
from toolkit.calls.prepare import (
    Ready,
    Refused,
    error_result,
    permit,
    prepare,
    prepare_all,
    prepare_beside,
    prepare_here,
    write_canonically,
    write_preview,
)
from toolkit.calls.registration import Ctx, Registration
from toolkit.chat import ToolCall, ToolResult
from toolkit.chat.request import without_descriptions
from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError, LoopUsageError
from toolkit.foreign_text import escape_in_json
from toolkit.json_text import sign_json
from toolkit.logs import get_logger
from toolkit.loop.events import LoopEvent
from toolkit.loop.feeds import (
    CALLS_APPROVED,
    CALLS_AS_WRITTEN,
    CallDecided,
    CallReopened,
    CallsPrepared,
    ChildDecided,
    OpenCall,
    RunWoundUp,
)
from toolkit.loop.limits import Written
from toolkit.redaction import Scrubber

if TYPE_CHECKING:
    from toolkit.loop.run import Run
    from toolkit.loop.snapshot import SavedLoop

_logger = get_logger("toolkit.loop")

_APPROVE = Approve()
_LONG_TEXT = 1_000
_NO_MISTAKES: Mapping[str, Literal["name", "arguments"]] = {}
_call_of = attrgetter("call")


def _show_pending(ready: Ready[Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call that awaits a decision, without secrets, and their preview; both are made once."""
    if ready.shown_pending is None:
        arguments = Scrubber()({"arguments": json.loads(ready.arguments_json)})["arguments"]
        preview = write_preview(ready.registration, ready.arguments, ready.arguments_json, ready.given)
        ready.shown_pending = arguments, preview
    return ready.shown_pending


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A call that waits for somebody's decision.

    Args:
        call_id: The id of the call.
        tool_name: The tool that would run.
        arguments: The arguments that the tool would get, as JSON; secrets are shown as digests.
        reason: Why a decision is needed.
        binding: A digest of the loop, the call, its tool and definition, and its arguments: a decision names it, and
            is valid for nothing else.
        preview: The arguments to be shown to a person, as in `ApprovalRequest.preview`.
        agent: The sub-agent that wants to make the call; empty if it is not a sub-agent's.
        loop_id: The id of the sub-agent's loop.
    """

    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    binding: str
    preview: str = ""
    agent: str = ""
    loop_id: str = ""

    def __post_init__(self) -> None:
        if not self.preview:  # stored before there were previews
            written = escape_in_json(json.dumps(self.arguments, ensure_ascii=False))
            object.__setattr__(self, "preview", written)


def identify_tool(tool: object) -> list[str]:
    """Return the identity of a tool, the same in each process and under each name: its function or class."""
    function: Any = getattr(tool, "__wrapped__", tool)
    return [
        str(getattr(function, "__module__", "")),
        str(getattr(function, "__qualname__", type(function).__qualname__)),
        type(tool).__qualname__,
    ]


_UNBOUND: dict[str, Any] = {"parameters": {}, "output_schema": None, "strict": False}


class Approvals(Generic[Ctx]):
    """Prepares the calls of a turn, and asks guards and approvers about them; each open call has its prepared form.

    Args:
        run: The run.

    Attributes:
        pending_events: The events of deferred decisions, emitted when the loop resumes.
    """

    __slots__ = ("_run", "_salt", "pending_events")

    def __init__(self, run: Run[Ctx, Any]) -> None:
        self._run = run
        self._salt = ""
        self.pending_events: list[LoopEvent] = []

    @property
    def salt(self) -> str:
        """The salt of the bindings, which keeps them from being guessed; created when the first call is bound."""
        if not self._salt:
            self._salt = os.urandom(16).hex()
        return self._salt

    @salt.setter
    def salt(self, salt: str) -> None:
        self._salt = salt

    def bind(self, ready: Ready[Any]) -> str:
        """Return the digest that a decision names: of the call, its turn, its tool and its arguments."""
        key = self._run.config.signing_key or b""
        definition = ready.registration.definition
        if not self._run.config.binds_descriptions:
            definition = without_descriptions(definition)
        bound = [
            self._run.loop_id,
            self._run.state.iterations,
            ready.call.id,
            identify_tool(ready.registration.tool),
            # Only these parts of a definition, in the form of earlier releases: decisions may wait in a database.
            {"name": definition.name, "description": definition.description, **_UNBOUND},
            definition.parameters,
            None,
            ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True),
        ]
        return sign_json(bound, (key.encode() if isinstance(key, str) else key) + self.salt.encode())

    def warn_if_nobody_is_asked(self) -> None:
        """Warn of tools that need approval if there is no approver, here or in a caller, and no guard."""
        policy = self._run.policy
        while policy.config.on_tool_call is None and not policy.guards and policy.caller is not None:
            policy = policy.caller.policy
        if policy.config.on_tool_call is not None or policy.guards:
            return
        _logger.warning(
            "run %s: calls of %s need approval and nobody is asked, so they are denied: "
            "set ToolLoopConfig(on_tool_call=...)",
            self._run.frame.run_id,
            ", ".join([f"'{name}'" for name in self._run.registry.findings.names_to_approve]),
        )

    # before a call may run

    def prepare_lone(self, calls: Sequence[OpenCall]) -> CallsPrepared | None:
        """Prepare the only call of a turn without waiting; return None if there are others, or if it takes long."""
        if len(calls) != 1:
            return None
        entry = calls[0]
        entry.prepared = prepared = prepare_here(entry.call, self._run.offer.find_scope(), self._run.policy)
        return None if prepared is None else self._describe_prepared([prepared])

    async def prepare_turn(self, calls: Sequence[OpenCall], *, is_long: bool = False) -> CallsPrepared:
        """Prepare all calls of the turn; `is_long` is a single call for which `prepare_lone` returned None."""
        policy, scope = self._run.policy, self._run.offer.find_scope()
        if is_long:
            found = [await prepare_beside(calls[0].call, scope, policy)]
        else:
            found = await prepare_all(list(map(_call_of, calls)), scope, policy)
        for entry, prepared in zip(calls, found, strict=True):
            entry.prepared = prepared
        return self._describe_prepared(found)

    def _describe_prepared(self, found: Sequence[Ready[Ctx] | Refused]) -> CallsPrepared:
        """Return the feed for the prepared calls of a turn.

        It has their canonical form only if the machine reads it, and approves them if nobody has to be asked.
        """
        run, policy = self._run, self._run.policy
        is_approved = run.budget is None and policy.config.on_tool_call is None
        is_approved = is_approved and policy.caller is None and not policy.guards
        alone: list[str] = []
        reads_calls = run.state.watches_calls
        as_they_run: list[Written] = []
        for prepared in found:
            if reads_calls:
                as_they_run.append(write_canonically(prepared))
            if type(prepared) is not Ready or prepared.asks is not None or prepared.repairs:
                is_approved = False
            elif prepared.registration.options.sequential:
                alone.append(prepared.call.id)
        if not reads_calls:
            if not is_approved:
                return CALLS_AS_WRITTEN
            return CallsPrepared(None, _NO_MISTAKES, is_approved=True, alone=alone) if alone else CALLS_APPROVED
        if not run.config.middleware:
            return CallsPrepared(as_they_run, _NO_MISTAKES, is_approved, alone)
        refused = [each for each in found if isinstance(each, Refused)]
        mistakes: dict[str, Literal["name", "arguments"]] = {
            each.call.id: each.mistake for each in refused if each.mistake is not None
        }
        return CallsPrepared(as_they_run, mistakes, is_approved, alone)

    def prepare(self, calls: Sequence[ToolCall]) -> list[Ready[Ctx] | Refused]:
        """Prepare calls of a saved loop."""
        policy, scope = self._run.policy, self._run.offer.find_scope()
        return [prepare(call, scope, policy) for call in calls]

    async def prepare_again(self, entry: OpenCall, arguments: str | None) -> Ready[Ctx] | Refused:
        """Prepare a call that another process decided on; `arguments` are those that an approver gave it, as JSON."""
        [prepared] = await prepare_all([entry.call], self._run.offer.find_scope(), self._run.policy)
        if isinstance(prepared, Ready) and arguments is not None:
            prepared = self._restore_modified(prepared, arguments)
        if isinstance(prepared, Ready):
            entry.prepared = prepared
        return prepared

    def ask_again_if_changed(self, entry: OpenCall, ready: Ready[Ctx], binding: str | None) -> None:
        """Require a new decision on a call that has changed since it was decided on."""
        if self.bind(ready) == binding:
            return
        ready.asks = "The tool or its arguments are not what they were when this call was decided on or saved."
        if entry.status != "deferred" and self._run.state.phase == "running":
            self._run.feed(CallReopened(entry.call.id))

    def refusal_of(self, tool_names: Collection[str]) -> str | None:
        """Return why all calls of these tools were refused when they were prepared; None if one may run."""
        prepared = [entry.prepared for entry in self._run.state.calls_to_prepare]
        calls = [each for each in prepared if each is not None and each.call.name in tool_names]
        refused = [each for each in calls if isinstance(each, Refused)]
        return refused[-1].result.text if calls and len(refused) == len(calls) else None

    async def ask(self) -> None:
        """Ask guards and approvers about each undecided call, in call order."""
        run, policy = self._run, self._run.policy
        is_guarded = policy.config.on_tool_call is not None or policy.caller is not None or bool(policy.guards)
        for entry in run.state.calls_to_prepare:
            if entry.status != "undecided":
                continue
            prepared: Ready[Ctx] | Refused = entry.prepared
            if prepared.repairs:
                await run.emit_all(prepared.repairs)
            if not isinstance(prepared, Ready):
                await self._refuse_prepared(entry, prepared)
                continue
            verdict: Verdict = _APPROVE
            if is_guarded or prepared.asks is not None:
                verdict = await authorize(prepared, policy)
            if type(verdict) is Approve and (run.budget is None or run.budget.reserve_tool_call() is None):
                run.feed(CallDecided(entry.call.id, verdict, "", prepared.registration.options.sequential))
                continue
            if type(verdict) in (Abort, Defer):
                await self._prepare_pause(prepared, verdict)
            refusal = self._apply_verdict(entry, prepared, verdict)
            if refusal is not None:
                await run.emit_all([refusal])
            if run.state.reason is not None:
                return

    async def _prepare_pause(self, prepared: Ready[Ctx], verdict: Verdict) -> None:
        """Answer the refused calls before the run is aborted; write long arguments for a late decision in a thread."""
        if type(verdict) is Abort:
            await self._refuse_rest()
        elif len(prepared.arguments_json) > _LONG_TEXT:
            await to_thread.run_sync(_show_pending, prepared)

    async def _refuse_rest(self) -> None:
        """Answer the calls that were refused when they were prepared, with their own reasons."""
        for entry in list(self._run.state.turn.by_id.values()):
            if entry.status == "undecided" and isinstance(entry.prepared, Refused):
                await self._refuse_prepared(entry, entry.prepared)

    async def _refuse_prepared(self, entry: OpenCall, prepared: Refused) -> None:
        refusal = self._deny_call(entry, prepared, prepared.result.text, prepared.crash)
        await self._run.emit_all([refusal])

    def _apply_verdict(self, entry: OpenCall, ready: Ready[Ctx], verdict: Verdict) -> ToolCallRefused | None:
        """Feed the decision on a call; return the event of a refusal."""
        call, run = ready.call, self._run
        match verdict:
            case Approve():
                budget = run.find_budget()
                limit = None if budget is None else budget.reserve_tool_call()
                if limit is not None:
                    run.feed(RunWoundUp(limit))
                    used_up = f"Not started: the run may make {limit.maximum:g} tool calls, and they are used up."
                    return self._deny_call(entry, ready, used_up)
                run.feed(CallDecided(call.id, _APPROVE, "", ready.registration.options.sequential))
            case Deny(reason):
                return self._deny_call(entry, ready, reason)
            case _:
                run.feed(CallDecided(call.id, verdict))
        return None

    def _deny_call(
        self, entry: OpenCall, prepared: Ready[Ctx] | Refused, reason: str, crash: BaseException | None = None
    ) -> ToolCallRefused:
        call = prepared.call
        self._run.feed(CallDecided(call.id, Deny(reason), call.name))
        assert entry.result is not None
        registrations = self._run.registry.registrations
        refused = describe_refusal(entry.result, registrations, call.program, crash)
        return redact_refusal(refused, prepared, registrations)

    # decisions that come later

    def list_pending(self) -> list[PendingApproval]:
        """Return the calls that await a decision, in call order; those of sub-agents, too."""
        return [pending for _, pending in self._list_waiting()]

    def _list_waiting(self) -> list[tuple[OpenCall, PendingApproval]]:
        """Return each pending call with its open call in this loop; of a sub-agent's call, the one that runs the agent.

        The id of a sub-agent's call is prefixed with that of the open call where several pending calls have the same.
        """
        waiting: list[tuple[OpenCall, PendingApproval]] = []
        for entry in self._run.state.open_calls:
            if entry.status == "deferred":
                waiting.append((entry, self._write_pending(entry.prepared)))
            elif entry.child is not None:
                waiting += [(entry, pending) for pending in _list_pending_of(entry.child)]
        ids = [pending.call_id for _, pending in waiting]
        return [
            (entry, replace(pending, call_id=f"{entry.call.id}/{pending.call_id}"))
            if ids.count(pending.call_id) > 1 and pending.loop_id
            else (entry, pending)
            for entry, pending in waiting
        ]

    def _find_waiting(self, call_id: str) -> tuple[OpenCall, PendingApproval] | None:
        """Return the pending call with an id, with or without the prefix of a sub-agent's call."""
        waiting = self._list_waiting()
        for entry, pending in waiting:
            if pending.call_id == call_id:
                return entry, pending
        for entry, pending in waiting:
            if f"{entry.call.id}/{pending.call_id}" == call_id:
                return entry, pending
        return None

    def _write_pending(self, ready: Ready[Ctx]) -> PendingApproval:
        arguments, preview = _show_pending(ready)
        return PendingApproval(
            call_id=ready.call.id,
            tool_name=ready.registration.definition.name,
            arguments=copy.deepcopy(arguments),
            reason=ready.asks or "",
            binding=self.bind(ready),
            preview=preview,
        )

    def decide(self, call_id: str, answer: object, binding: str) -> OpenCall:
        """Take a decision on a pending call; return its open call in this loop.

        Raises:
            LoopUsageError: No decision is awaited on it, or the decision was made on something else.
        """
        found = self._find_waiting(call_id)
        if found is None:
            raise LoopUsageError(f"no decision is awaited on call '{call_id}'")
        entry, pending = found
        ready: Ready[Ctx] = entry.prepared
        if pending.binding != binding:
            raise LoopUsageError(
                f"the decision on call '{call_id}' was made on another tool, other arguments or another schema: "
                "ask again with what is pending now"
            )
        if pending.loop_id and entry.child is not None:
            self._decide_for_child(entry, entry.child, pending, to_approval(answer))
            return entry
        refusal = self._apply_verdict(entry, ready, decide(ready, answer, self._run.policy))
        if refusal is not None:
            self.pending_events.append(refusal)
        return entry

    def _decide_for_child(
        self, entry: OpenCall, child: WaitingChild, pending: PendingApproval, answer: Approval
    ) -> None:
        """Take a decision on a call of a sub-agent, which continues with it when its call is run again."""
        if isinstance(answer, Defer):
            return
        if isinstance(answer, Abort):
            self._run.feed(CallDecided(entry.call.id, answer))
            return
        own_ids = {each["binding"]: each["call_id"] for each in child.snapshot["pending_approvals"]}
        late = LateDecision(call_id=own_ids[pending.binding], binding=pending.binding, kind="approve")
        if isinstance(answer, Deny):
            late.kind, late.reason = "deny", answer.reason
        elif isinstance(answer, Modify):
            late.kind, late.arguments = "modify", dict(answer.arguments)
        self._run.feed(ChildDecided(entry.call.id, late))
        self.hand_over(entry, child)
        if entry.status == "suspended":
            self._run.feed(CallDecided(entry.call.id, _APPROVE, "", entry.prepared.registration.options.sequential))

    def hand_over(self, entry: OpenCall, child: WaitingChild) -> None:
        """Store the sub-agent for when its call is run again."""
        children = self._run.memory.children
        if children is None:
            raise LoopUsageError("a loop whose sub-agents await decisions can't go on in a call that can't await them")
        children[entry.call.id] = child

    def decide_saved(self, decisions: Mapping[str, object], bindings: Mapping[str, str]) -> None:
        """Take decisions on calls of a snapshot; a decision that no longer fits is ignored, and its call stays pending.

        Args:
            decisions: The decisions by call id.
            bindings: The bindings of the calls that the snapshot shows as pending.

        Raises:
            LoopUsageError: No decision is awaited on a call.
        """
        for call_id, answer in decisions.items():
            found, binding = self._find_waiting(call_id), bindings.get(call_id)
            if binding is not None and (found is None or found[1].binding != binding):
                _logger.warning("the decision on call %s is ignored: the call has changed or ended since", call_id)
                continue
            self.decide(call_id, answer, binding or "")

    # saving and restoring

    def list_bindings(self) -> dict[str, str]:
        """Return the binding of each call that has not run yet, by id."""
        return {entry.call.id: self.bind(entry.prepared) for entry in self._run.state.open_calls}

    def dump_modified(self) -> dict[str, str]:
        """Return the arguments of open calls that an approver modified, as canonical JSON."""
        return dump_modified([entry.prepared for entry in self._run.state.open_calls])

    def restore(self, saved: SavedLoop) -> None:
        """Prepare the open calls of a saved loop again; calls that have changed need a new decision.

        Raises:
            LoopUsageError: A tool is gone.
        """
        run = self._run
        for entry in run.state.open_calls:
            call = entry.call
            [prepared] = self.prepare([call])
            if isinstance(prepared, Ready) and call.id in saved.arguments:
                prepared = self._restore_modified(prepared, saved.arguments[call.id])
            if isinstance(prepared, Refused):
                if prepared.call.name not in run.registry:
                    raise LoopUsageError(f"the saved call '{call.id}' can't be restored: {prepared.result.text}")
                run.feed(CallReopened(call.id))
                begun = "" if entry.child is None else " It had begun and may have taken effect."
                self.pending_events.append(self._deny_call(entry, prepared, prepared.result.text + begun))
                continue
            entry.prepared = prepared
            if entry.child is not None:
                self.hand_over(entry, entry.child)
            self.ask_again_if_changed(entry, prepared, saved.bindings.get(call.id))

    def _restore_modified(self, ready: Ready[Ctx], arguments: str) -> Ready[Ctx] | Refused:
        """Restore the arguments that an approver gave a call, and apply the rules to them."""
        try:
            ready.modify(ready.registration.parse_json(arguments))
        except InvalidArgumentsError as error:
            text = f"The tool no longer takes the arguments that the approver gave. {error.message}"
            return Refused(ready.call, error_result(ready.call, text))
        return permit(ready, self._run.policy)


def _list_pending_of(child: WaitingChild) -> list[PendingApproval]:
    """Return the calls of a sub-agent that still need a decision."""
    decided = {each.binding for each in child.decisions}
    pending = [PendingApproval(**each) for each in child.snapshot["pending_approvals"]]
    return [
        replace(each, agent=each.agent or child.agent, loop_id=each.loop_id or child.loop_id)
        for each in pending
        if each.binding not in decided
    ]


def describe_refusal(
    result: ToolResult,
    registrations: Mapping[str, Registration[Any]],
    program: str,
    crash: BaseException | None = None,
) -> ToolCallRefused:
    """Return the event of a refused call."""
    end = describe_call_end(result, registrations, program)
    return ToolCallRefused(
        call_id=end.call_id,
        tool_name=end.tool_name,
        label=end.label,
        tags=end.tags,
        program=program,
        result=result,
        error=crash,
    )


def describe_call_end(
    result: ToolResult, registrations: Mapping[str, Registration[Any]], program: str
) -> ToolExecutionEnd:
    """Return the event of a call of which only the result is known, and not the duration."""
    registration = registrations.get(result.tool_name)
    options = None if registration is None else registration.options
    return ToolExecutionEnd(
        call_id=result.call_id,
        tool_name=result.tool_name,
        label="" if options is None else options.label,
        tags=frozenset() if options is None else options.tags,
        program=program,
        result=result,
        duration=0.0,
    )


def dump_modified(calls: Sequence[Ready[Any]]) -> dict[str, str]:
    """Return the arguments of calls that an approver modified, as canonical JSON by call id."""
    return {
        ready.call.id: ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True)
        for ready in calls
        if ready.is_modified
    }
