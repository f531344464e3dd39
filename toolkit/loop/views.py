"""A loop as a call of one function, in each of its ways: all are `ToolLoopHandle`, made and used at once."""

from __future__ import annotations

from typing import Any, overload

from typing_extensions import Unpack

from toolkit.calls.handler import Ctx
from toolkit.chat import Provider
from toolkit.loop.handle import ToolLoopHandle
from toolkit.loop.outcome import Out, ToolLoopResult
from toolkit.loop.prompt import LoopOptions, Prompt
from toolkit.loop.streaming import EventChannel, EventStream
from toolkit.tools.registry import ToolRegistry

__all__ = ["tool_loop", "tool_loop_channel", "tool_loop_stream", "tool_loop_sync"]


@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
@overload
async def tool_loop(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
async def tool_loop(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, **options: Any
) -> ToolLoopResult[Any]:
    """Let the model call tools until it answers, and return the answer with all that led to it.

    ::

        result = await tool_loop(provider, registry, "What's the weather in Paris?")
        print(result.text)

    Works on asyncio and on trio. Whatever way it ends, ``result.messages`` is valid: each call has its result. Make a
    `ToolLoopHandle` and ``run()`` it to have the transcript also where this is cancelled, or to stop it from elsewhere.

    Args:
        provider: Talks to the model.
        registry: The tools; it may be changed while the loop runs, and the next turn sees it.
        prompt: A question, a transcript, or a `ChatRequest` with its settings. It is copied, never changed; a
            transcript with calls that have no result is repaired. Or a snapshot, with which a saved loop goes on.
        options: ``ctx``, what the tools get as their context, which may be left out only where they need none;
            ``config``, the settings; ``system_prompt``, which stands first, in the place of one that the transcript
            begins with; ``decisions``, with a snapshot: what was decided on calls that await it, by their ids.

    Raises:
        ProviderError: The model could not be reached after retries; carries the transcript.
        MaxDepthExceededError: The loop is nested too deep, in a tool of another loop.
    """
    return await ToolLoopHandle(provider, registry, prompt, **options).run()


@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
@overload
def tool_loop_sync(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out]],
) -> ToolLoopResult[Out]: ...
def tool_loop_sync(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, **options: Any
) -> ToolLoopResult[Any]:
    """Do what `tool_loop` does, for code that is not async; runs an event loop of its own until the end.

    ::

        result = tool_loop_sync(provider, registry, "What's the weather in Paris?")
        print(result.text, result.reason)

    In a tool that runs in a worker thread it is cancelled when the call of that tool is, and inherits its limits.

    Raises:
        LoopUsageError: Called on a thread where an event loop is running: await `tool_loop` there.
    """
    return ToolLoopHandle(provider, registry, prompt, **options).run_sync()


@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    **options: Unpack[LoopOptions[Out]],
) -> EventStream[Out]: ...
@overload
def tool_loop_stream(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    **options: Unpack[LoopOptions[Out]],
) -> EventStream[Out]: ...
def tool_loop_stream(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, **options: Any
) -> EventStream[Any]:
    """Run a loop and read its events as they come.

    ::

        async with tool_loop_stream(provider, registry, "What's the weather in Paris?") as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        print(text, end="")
                    case Done(result):
                        print(result.reason)

    The last event is `Done`, once, with the result; a run that fails tells `Failed` instead, and raises. Nothing runs
    ahead of the reader, but tools that run already. Leaving the block cancels what is running; the transcript is closed
    all the same, and ``events.result`` has it. Arguments are those of `tool_loop`.
    """
    return ToolLoopHandle(provider, registry, prompt, **options).stream()


@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[object] | ToolRegistry[None],
    prompt: Prompt,
    *,
    ctx: None = None,
    buffer_size: int = 32,
    **options: Unpack[LoopOptions[Out]],
) -> EventChannel[Out]: ...
@overload
def tool_loop_channel(
    provider: Provider,
    registry: ToolRegistry[Ctx],
    prompt: Prompt,
    *,
    ctx: Ctx,
    buffer_size: int = 32,
    **options: Unpack[LoopOptions[Out]],
) -> EventChannel[Out]: ...
def tool_loop_channel(
    provider: Provider, registry: ToolRegistry[Any], prompt: Prompt, *, buffer_size: int = 32, **options: Any
) -> EventChannel[Any]:
    """Run a loop with its events in a bounded queue, and its result apart.

    ::

        async with tool_loop_channel(provider, registry, "Go") as (events, handle):
            async for event in events:
                await show(event)
            result = await handle.result()

    A reader that is slow slows the run down; one that stops reading and asks for ``handle.result()`` doesn't. Leaving
    the block cancels the run. Arguments are those of `tool_loop`.

    Args:
        provider: Talks to the model.
        registry: The tools.
        prompt: The start of the loop: a question, messages, a request or a snapshot.
        buffer_size: How many events may wait; 0 hands each over.
        options: As for `tool_loop`.
    """
    return ToolLoopHandle(provider, registry, prompt, **options).channel(buffer_size)
