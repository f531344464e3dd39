"""The straight line: a loop that nobody watches, guards, limits or steers, with at most one call in each reply.

That is what most loops are, and by hand it takes a dozen lines. Here too, without a machine or a driver, since all that
they would decide is known beforehand: it takes less than half of their time. The moment that anything else comes up, a
`Driver` takes over from where the line stands; what a loop does then is said there and in `LoopState` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.chat import ChatRequest, ChatResponse, Message, Provider, ToolCall, Usage, call_ids_of
from toolkit.errors import LoopError, ProviderError
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.depth import current_frame, enter_depth, nested_context
from toolkit.loop.driver import Driver, Prompt, transcript_of
from toolkit.loop.outcome import MaxIterations, Out, ResultAsAnswer, TerminationReason, ToolLoopResult
from toolkit.loop.state import COMPLETE, CUT_REASONS
from toolkit.tools.execution import Refused, prepare, run
from toolkit.tools.registry import ToolRegistry

__all__ = ["run_plain"]


async def run_plain(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, ctx: Any, config: ToolLoopConfig[Out]
) -> ToolLoopResult[Out]:
    """Run a loop whose configuration is plain to its end.

    A reply and its result are appended together, so that the transcript is valid at any moment.
    """
    frame = enter_depth(ctx, config.max_depth)
    if frame.budget is not None:
        return await Driver(provider, registry, prompt, ctx, config).run()
    inner_ctx, policy, most = nested_context(ctx, frame), config.policy, config.max_iterations
    messages = transcript_of(prompt)
    call_ids = call_ids_of(messages)
    spent: list[Usage] = []
    frame.spend = spent.append
    tools = registry.definitions()
    request = ChatRequest(messages=messages, tools=tools)
    is_fixed = False
    if isinstance(prompt, ChatRequest):
        is_fixed = prompt.tools is not None
        prompt = replace(prompt, messages=messages)
        request = prompt if is_fixed else replace(prompt, tools=tools)
    rounds = 0
    while True:
        if tools is not registry.definitions() and not is_fixed:
            tools = registry.definitions()
            request = replace(request, tools=tools)
        first: ChatResponse | ProviderError | LoopError
        try:
            first = response = await provider.generate(request)
        except (ProviderError, LoopError) as error:
            first = error
            break
        calls = [block for block in response.message.content if isinstance(block, ToolCall)]
        if not calls:
            messages.append(response.message)
            spent.append(response.usage)
            return _result(COMPLETE, response.text, response, messages, spent, rounds)
        call = calls[0]
        if len(calls) > 1 or not call.id or call.id in call_ids or response.stop_reason in CUT_REASONS:
            break
        prepared = prepare(call, registry.registrations, policy, registry.permissions)
        if isinstance(prepared, Refused):
            result = prepared.result
        elif prepared.asks is not None:
            break
        else:
            token = current_frame.set(frame)
            try:
                result = await run(prepared, inner_ctx, policy, depth=frame.depth)
            finally:
                current_frame.reset(token)
        messages += (response.message, result)
        call_ids.add(call.id)
        spent.append(response.usage)
        rounds += 1
        if result.result_as_answer and not result.is_error:
            return _result(ResultAsAnswer(call.id, result.tool_name), result.text, response, messages, spent, rounds)
        if rounds >= most:
            return _result(MaxIterations(most), response.text, response, messages, spent, rounds)
    driver = Driver(provider, registry, prompt if isinstance(prompt, ChatRequest) else messages, ctx, config)
    driver.state.take_over(rounds, spent)
    return await driver.run(first)


def _result(
    reason: TerminationReason,
    text: str,
    response: ChatResponse,
    messages: list[Message],
    spent: Sequence[Usage],
    rounds: int,
) -> ToolLoopResult[Any]:
    return ToolLoopResult(  # without its parameter, which would take 2 us at run time
        text=text,
        response=response,
        messages=messages,
        usage=Usage.total(spent),
        iterations=rounds + (reason is COMPLETE),
        tool_rounds=rounds,
        reason=reason,
    )
