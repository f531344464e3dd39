"""Calls that run outside of a loop, by the rules that hold in one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from toolkit.calls.approval import ApprovalHook, Approve
from toolkit.calls.authorize import authorize, write_refusal
from toolkit.calls.events import Observer, ToolCallRefused
from toolkit.calls.policy import CallConfig, ExecutionPolicy, NameRepair
from toolkit.calls.prepare import Refused, Scope, prepare_all, scope_of
from toolkit.calls.run import CallHost, run
from toolkit.chat import ToolCall, ToolResult
from toolkit.runtime.contexts import run_in_own_context
from toolkit.runtime.gathering import gather
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import ToolRegistry

__all__ = ["execute_alone", "execute_together"]


async def execute_alone(
    call: ToolCall,
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    *,
    approve: ApprovalHook | None = None,
    observer: Observer | None = None,
    name_repair: NameRepair = True,
) -> ToolResult:
    """Prepare, authorize and run one call, and return its result."""
    policy = ExecutionPolicy(config=CallConfig(on_tool_call=approve, name_repair=name_repair), observer=observer)
    return await _execute_call(call, scope_of(registry), ctx, policy)


async def execute_together(
    calls: Sequence[ToolCall],
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    *,
    limit: int | None,
    approve: ApprovalHook | None = None,
    name_repair: NameRepair = True,
) -> list[ToolResult]:
    """Prepare, authorize and run calls, at most `limit` at once, and return their results in call order."""
    policy = ExecutionPolicy(config=CallConfig(on_tool_call=approve, name_repair=name_repair))
    scope = scope_of(registry)
    results: dict[int, ToolResult] = {}

    async def execute(position: int, call: ToolCall) -> None:
        results[position] = await _execute_call(call, scope, ctx, policy)

    await gather([partial(execute, position, call) for position, call in enumerate(calls)], limit)
    return [results[position] for position in range(len(calls))]


async def _execute_call(call: ToolCall, scope: Scope[Ctx], ctx: Ctx, policy: ExecutionPolicy) -> ToolResult:
    [prepared] = await prepare_all([call], scope, policy)
    if policy.observer is not None:
        for repair in prepared.repairs:
            await policy.observer.emit(repair)
    if isinstance(prepared, Refused):
        return await _report_refusal(prepared.result, policy, prepared.crash)
    verdict = await authorize(prepared, policy)
    if not isinstance(verdict, Approve):
        return await _report_refusal(write_refusal(prepared, verdict), policy)
    ready = prepared
    results: list[ToolResult] = []

    async def run_it() -> None:
        results.append(await run(ready, CallHost(ctx, policy)))

    await run_in_own_context(run_it)
    return results[0]


async def _report_refusal(
    result: ToolResult, policy: ExecutionPolicy, crash: BaseException | None = None
) -> ToolResult:
    if policy.observer is not None:
        event = ToolCallRefused(call_id=result.call_id, tool_name=result.tool_name, result=result, error=crash)
        await policy.observer.emit(event)
    return result
