"""Calls that run outside of a loop, by the rules that hold in one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from toolkit.chat import ToolCall, ToolResult
from toolkit.tools.authorize import Aborted, Deferred, authorize
from toolkit.tools.backend import gather, run_in_own_context
from toolkit.tools.handler import Ctx
from toolkit.tools.policy import ExecutionPolicy
from toolkit.tools.prepare import Refused, Scope, error_result, prepare_all
from toolkit.tools.run import run

__all__ = ["execute_alone", "execute_together"]


async def execute_alone(call: ToolCall, scope: Scope[Ctx], ctx: Ctx, policy: ExecutionPolicy) -> ToolResult:
    """Prepare, authorize and run one call, and return its result."""
    [prepared] = await prepare_all([call], scope, policy)
    if isinstance(prepared, Refused):
        return prepared.result
    verdict = await authorize(prepared, policy)
    if isinstance(verdict, Refused):
        return verdict.result
    if isinstance(verdict, Aborted):
        return error_result(verdict.call, verdict.reason)
    if isinstance(verdict, Deferred):
        return error_result(verdict.ready.call, "The decision on this call was put off, so it was not run.")
    ready, results = verdict, list[ToolResult]()

    async def run_it() -> None:
        results.append(await run(ready, ctx, policy))

    await run_in_own_context(run_it)
    return results[0]


async def execute_together(
    calls: Sequence[ToolCall], scope: Scope[Ctx], ctx: Ctx, policy: ExecutionPolicy, *, limit: int | None
) -> list[ToolResult]:
    """Do so with several calls, at most `limit` at once, and return their results in call order."""
    results: dict[int, ToolResult] = {}

    async def execute(position: int, call: ToolCall) -> None:
        results[position] = await execute_alone(call, scope, ctx, policy)

    await gather([partial(execute, position, call) for position, call in enumerate(calls)], limit)
    return [results[position] for position in range(len(calls))]
