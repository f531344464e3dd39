"""The exchanges of the suite, and how it compares."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ReasoningBlock,
    ResponseDone,
    StopReason,
    StreamEvent,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.provider import closing
from toolkit.loop.config import ProviderRetryConfig, ToolLoopConfig
from toolkit.loop.views import tool_loop
from toolkit.testing.events import EventCollector
from toolkit.tools.decorators import tool
from toolkit.tools.registry import ToolRegistry

__all__ = [
    "ADD",
    "ADD_MORE",
    "PARAMETERS",
    "PATIENCE",
    "SAID",
    "TEXT",
    "TOOLS",
    "TRANSCRIPT",
    "USAGE",
    "hear_answer",
    "both_ways",
    "closed",
    "end_of",
    "gist",
    "hear",
    "hear_first_word",
    "request_of",
    "response_of",
    "run_loop",
    "spoken",
    "thoughts",
]

USAGE = Usage(input_tokens=7, output_tokens=3)


def response_of(*content: Any, stop_reason: StopReason | None = None, usage: Usage = USAGE) -> ChatResponse:
    """Return an answer of these blocks; it stops for tools where there are calls."""
    message = AssistantMessage(content)
    reason: StopReason = stop_reason or ("tool_use" if message.tool_calls else "end_turn")
    return ChatResponse(message=message, usage=usage, stop_reason=reason, model="conformance-1")


ADD = ToolCall("call_1", "add", '{"a": 1, "b": 2}')
ADD_MORE = ToolCall("call_2", "add", '{"a": 3, "b": 4}')
TEXT = response_of(TextBlock("The sum of 1 and 2 is 3."))
SAID = {
    "text": TEXT,
    "text in other letters": response_of(TextBlock('Grüße, 世界! 🦉\n\n\tTab, \u2028 "quotes" and \\.')),
    "one call": response_of(ADD),
    "calls side by side": response_of(ADD, ADD_MORE, ToolCall("call_3", "get_weather", '{"city": "Paris"}')),
    "text and a call": response_of(TextBlock("Let me see."), ADD),
    "a call without arguments": response_of(ToolCall("call_1", "now", "{}")),
    "deep arguments in other letters": response_of(
        ToolCall("call_1", "note", '{"items": [{"text": "Grüße \\"🦉\\"\\n"}, [], {"n": null}], "ok": true}')
    ),
    "large arguments": response_of(ToolCall("call_1", "note", json.dumps({"text": "word " * 5000}))),
}
TRANSCRIPT: tuple[Message, ...] = (
    SystemMessage("Be brief."),
    UserMessage("What is 1 plus 2, and 3 plus 4?"),
    AssistantMessage([TextBlock("Let me see."), ADD, ADD_MORE]),
    ToolResult("call_1", "3", tool_name="add"),
    ToolResult("call_2", "Grüße: 7 🦉", tool_name="add"),
    AssistantMessage("3 and 7."),
    UserMessage("Thanks!"),
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = (
    ToolDefinition(name="add", description="Add.", parameters=PARAMETERS),
    ToolDefinition(name="multiply", description="Multiply.", parameters=PARAMETERS),
)
PATIENCE = 30.0

both_ways: pytest.MarkDecorator = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


def request_of(text: str = "Hi", **settings: Any) -> ChatRequest:
    """Return a request with one text of the user."""
    return ChatRequest(messages=[UserMessage(text)], **settings)


def gist(message: Message) -> tuple[object, ...]:
    """Return what of a message must reach the other side, and come back."""
    match message:
        case AssistantMessage():
            calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
            return ("assistant", message.text, calls)
        case ToolResult():
            return ("tool", message.call_id, message.text)
        case _:
            return (message.role, message.text)


def thoughts(message: Message) -> str:
    """Return the reasoning in a message."""
    blocks = message.content if isinstance(message, AssistantMessage) else ()
    return "".join([block.text for block in blocks if isinstance(block, ReasoningBlock)])


def spoken(heard: Sequence[StreamEvent]) -> str:
    """Return the text that the deltas of a stream add up to."""
    return "".join([event.text for event in heard if isinstance(event, TextDelta)])


def end_of(heard: Sequence[StreamEvent]) -> ChatResponse:
    """Return the whole answer, which a stream tells once, as its last event."""
    done = [event for event in heard if isinstance(event, ResponseDone)]
    assert len(done) == 1
    assert heard[-1] is done[0]
    return done[0].response


async def hear(provider: Provider, request: ChatRequest) -> list[StreamEvent]:
    """Return all events of a stream, bounded in time."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request)) as events:
            return [event async for event in events]


async def hear_answer(provider: Provider, request: ChatRequest, *, streams: bool) -> ChatResponse:
    """Return the answer, asked for in one of the two ways, bounded in time."""
    if streams:
        return end_of(await hear(provider, request))
    with anyio.fail_after(PATIENCE):
        return await provider.generate(request)


async def hear_first_word(provider: Provider) -> None:
    """Listen to an answer, and leave after its first word."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request_of())) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                break


@asynccontextmanager
async def closed(provider: Provider) -> AsyncGenerator[Provider]:
    """Give a provider, and close it where it can be closed."""
    try:
        yield provider
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()


async def run_loop(
    provider: Provider, events: EventCollector, *, streams: bool, retry: ProviderRetryConfig | None = None
) -> None:
    """Run a loop with a tool that adds, and without retries unless `retry` says so."""

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    retry = retry or ProviderRetryConfig(max_retries=0)
    config = ToolLoopConfig(provider_retry=retry, on_event=events, stream=streams)
    await tool_loop(provider, ToolRegistry([add]), "What is 1 plus 2?", config=config)
