"""Decides which calls of a turn may run, now or by a decision that comes later and is tied to exactly that call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from toolkit.chat import ToolCall
from toolkit.dataclass import dataclass
from toolkit.errors import LoopUsageError
from toolkit.loop.events import LoopEvent
from toolkit.loop.resources import LoopResources
from toolkit.loop.state import AskApproval, EndRun, Postpone, Refuse, RunCall
from toolkit.tools.authorize import Aborted, Deferred, Verdict, authorize, decided
from toolkit.tools.events import ToolCallRefused
from toolkit.tools.handler import Ctx
from toolkit.tools.prepare import Ready, Refused, canonical_call, error_result, prepare

if TYPE_CHECKING:
    from toolkit.loop.snapshot import SavedLoop

__all__ = ["Approvals", "PendingApproval", "pending_approval"]

_RUN, _RUN_ALONE = RunCall(), RunCall(alone=True)


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


class Approvals(Generic[Ctx]):
    """Prepares the calls of a turn, asks the guards about them, and keeps what may run.

    Attributes:
        ready: The calls that may run or await a decision, by id.
        untold: What late decisions have to tell, for when the loop goes on.
    """

    __slots__ = ("_prepared", "_resources", "ready", "untold")

    def __init__(self, resources: LoopResources[Ctx]) -> None:
        self._resources = resources
        self._prepared: dict[str, Ready[Ctx] | Refused] = {}
        self.ready: dict[str, Ready[Ctx]] = {}
        self.untold: list[LoopEvent] = []

    def prepare(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Prepare all calls of the turn, before anybody is asked about any and any runs; return them as they would run.

        They are made canonical only for what looks at them.
        """
        resources = self._resources
        policy, config, scope = resources.policy, resources.config, resources.offered
        prepared: dict[str, Ready[Ctx] | Refused] = {}
        self._prepared = prepared
        for call in calls:
            prepared[call.id] = prepare(call, scope, policy)
        if config.stop_when is None and config.loop_detection is None:
            return calls
        return [canonical_call(each) for each in prepared.values()]

    async def ask(self, step: AskApproval) -> None:
        """Ask the guards about each call, in call order."""
        resources = self._resources
        self.ready = {}
        for prepared in [self._prepared[call.id] for call in step.calls]:
            if resources.listener is not None:
                for repair in prepared.repairs:
                    await resources.listener.emit(repair)
            policy = resources.policy
            verdict: Verdict[Ctx] = prepared
            is_guarded = policy.before is not None or policy.approve is not None
            if isinstance(prepared, Ready) and (is_guarded or prepared.asks is not None):
                verdict = await authorize(prepared, policy)
            refusal = self._apply(verdict)
            if refusal is not None and resources.listener is not None:
                await resources.listener.emit(refusal)
            if resources.state.is_finished:
                return

    def list_pending(self) -> list[PendingApproval]:
        """Return what awaits a decision, in call order."""
        return [pending_approval(self.ready[call_id]) for call_id in self._resources.state.deferred_ids]

    def decide(self, call_id: str, answer: object, binding: str) -> None:
        """Take a decision on a call that awaits one.

        Raises:
            LoopUsageError: No decision is awaited on it, or the decision was made on something else.
        """
        if call_id not in self._resources.state.deferred_ids:
            raise LoopUsageError(f"no decision is awaited on call '{call_id}'")
        ready = self.ready[call_id]
        if pending_approval(ready).binding != binding:
            raise LoopUsageError(
                f"the decision on call '{call_id}' was made on another tool, other arguments or another schema: "
                "ask again with what is pending now"
            )
        refusal = self._apply(decided(ready, answer))
        if refusal is not None:
            self.untold.append(refusal)

    def take_up(self, saved: SavedLoop) -> None:
        """Prepare the open calls of a saved loop again; what was decided or awaited then must still be the same.

        Raises:
            LoopUsageError: A tool is gone or has changed since.
        """
        for call in self._resources.state.open_calls:
            self.prepare([call])
            prepared = self._prepared[call.id]
            if isinstance(prepared, Refused):
                raise LoopUsageError(f"the saved call '{call.id}' can't be taken up: {prepared.result.text}")
            binding = saved.bindings.get(call.id)
            if binding is not None and pending_approval(prepared).binding != binding:
                raise LoopUsageError(
                    f"the saved call '{call.id}' of '{call.name}' awaits a decision, and the tool has changed since: "
                    "restore it with the tools it was saved with"
                )
            if call.id in saved.arguments:
                prepared.arguments = prepared.registration.parse_json(saved.arguments[call.id])
                prepared.is_modified = True
            self.ready[call.id] = prepared

    def dump_modified(self) -> dict[str, str]:
        """Return what an approver gave the open calls in place of their own arguments, as canonical JSON."""
        open_calls = [self.ready[call.id] for call in self._resources.state.open_calls]
        return {
            ready.call.id: ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True)
            for ready in open_calls
            if ready.is_modified
        }

    def _apply(self, verdict: Verdict[Ctx]) -> ToolCallRefused | None:
        """Feed the machine what was decided on a call; return what is to be told of a refusal."""
        state = self._resources.state
        match verdict:
            case Ready():
                return self._admit(verdict)
            case Refused():
                return self._refuse(verdict)
            case Deferred(ready):
                self.ready[ready.call.id] = ready
                state.approval_decided(ready.call.id, Postpone())
            case Aborted(call, reason):
                state.approval_decided(call.id, EndRun(reason))
        return None

    def _admit(self, ready: Ready[Ctx]) -> ToolCallRefused | None:
        call, budget = ready.call, self._resources.budget
        limit = None if budget is None else budget.reserve_tool_call()
        if limit is None:
            self.ready[call.id] = ready
            is_alone = ready.registration.options.sequential
            self._resources.state.approval_decided(call.id, _RUN_ALONE if is_alone else _RUN)
            return None
        self._resources.state.wind_up(limit)
        why = f"Not started: the run may make {limit.maximum:g} tool calls, and they are used up."
        return self._refuse(Refused(call, error_result(call, why)))

    def _refuse(self, refused: Refused) -> ToolCallRefused:
        call = refused.call
        self._resources.state.approval_decided(call.id, Refuse(refused.result))
        registration = self._resources.registry.registrations.get(call.name)
        if registration is None:
            return ToolCallRefused(call_id=call.id, tool_name=call.name, result=refused.result)
        options = registration.options
        return ToolCallRefused(
            call_id=call.id, tool_name=call.name, label=options.label, tags=options.tags, result=refused.result
        )
