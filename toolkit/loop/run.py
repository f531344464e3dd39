"""The main job: run a loop to its end."""

from __future__ import annotations

from typing import Any, overload

import anyio

from toolkit.chat import Provider
from toolkit.errors import LoopUsageError, ToolCancelledError
from toolkit.loop.config import DEFAULT_CONFIG, ToolLoopConfig
from toolkit.loop.driver import Driver, Prompt, check_parts
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.tools.backend import is_in_event_loop, loop_waker
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.workers import when_abandoned

__all__ = ["tool_loop", "tool_loop_sync"]


@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]: ...
@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]: ...
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[Any],
    prompt: Prompt,
    *,
    ctx: Any = None,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]:
    """Let the model call tools until it answers, and return the answer with all that led to it.

    ::

        result = await tool_loop(provider, registry, "What's the weather in Paris?")
        print(result.text)

    Works on asyncio and on trio. Whatever way it ends, ``result.messages`` is valid: each call has its result.

    Args:
        provider: Talks to the model.
        registry: The tools; it may be changed while the loop runs, and the next turn sees it.
        prompt: A question, a transcript, or a `ChatRequest` with its settings. It is copied, never changed; a
            transcript with calls that have no result is repaired.
        ctx: What the tools get as their context; may be left out only where they need none.
        config: The settings; None takes the defaults.

    Raises:
        ProviderError: The model could not be reached after retries; carries the transcript.
        MaxDepthExceededError: The loop is nested too deep, in a tool of another loop.
    """
    if config is None:
        config = DEFAULT_CONFIG
    try:
        return await Driver(provider, registry, prompt, ctx, config).run()
    except (AttributeError, TypeError):
        check_parts(provider, registry, prompt, config)  # not before: it would be a tenth of a run
        raise


@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]: ...
@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]: ...
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[Any],
    prompt: Prompt,
    *,
    ctx: Any = None,
    config: ToolLoopConfig[Out] | None = None,
) -> ToolLoopResult[Out]:
    """Do what `tool_loop` does, for code that is not async; runs an event loop of its own until the end.

    In a tool that runs in a worker thread it is cancelled when the call of that tool is, and inherits its limits.

    Raises:
        LoopUsageError: Called on a thread where an event loop is running: await `tool_loop` there.
    """
    if is_in_event_loop():
        raise LoopUsageError(
            "tool_loop_sync was called where an event loop is running: use 'await tool_loop(...)' there"
        )

    async def run() -> ToolLoopResult[Out]:
        wake = loop_waker()
        with anyio.CancelScope() as scope, when_abandoned(lambda: wake(scope.cancel)):
            return await tool_loop(provider, registry, prompt, ctx=ctx, config=config)
        raise ToolCancelledError

    return anyio.run(run)
