"""Tools over Anthropic's messages, with thinking and a cached prompt: Anthropic itself where ANTHROPIC_API_KEY is set.

Else a stand-in on this machine.

Prints:

    (I need the weather.) [get_weather] Take sunglasses: it is sunny in Oslo.
    2 requests, 460 tokens read, 150 of them from the cache
"""

import json
import os
from typing import Any

import anyio

from toolkit import ChatRequest, Done, TextDelta, ToolRegistry, UserMessage, tool, tool_loop_stream
from toolkit.events import ReasoningDelta, ToolExecutionStart
from toolkit.providers.anthropic import AnthropicOptions, AnthropicProvider
from toolkit.testing.loopback import Answer, serving


@tool
def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    return f"Sunny, 21 degrees in {city}."


async def main(**settings: Any) -> None:
    """Print the stream, and what was read."""
    options = AnthropicOptions(thinking={"type": "adaptive", "display": "summarized"})
    request = ChatRequest(messages=[UserMessage("What should I pack for Oslo?")], options=options)
    async with (
        AnthropicProvider("claude-sonnet-5-5", cache="5m", **settings) as provider,
        tool_loop_stream(provider, ToolRegistry([get_weather]), request) as events,
    ):
        async for event in events:
            match event:
                case ReasoningDelta(text):
                    print(f"({text})", end=" ")
                case ToolExecutionStart(tool_name=name):
                    print(f"[{name}]", end=" ")
                case TextDelta(text):
                    print(text, end="")
                case Done(result):
                    cached = result.usage.cache_read_tokens or 0
                    read = result.usage.input_tokens
                    print(f"\n{result.iterations} requests, {read} tokens read, {cached} of them from the cache")
                case _:
                    pass


def answer(cached: int, *blocks: tuple[dict[str, Any], dict[str, Any]]) -> Answer:
    """Word the events of a message as a server does."""
    usage = {"input_tokens": 230 - cached, "cache_read_input_tokens": cached, "output_tokens": 9}
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "usage": usage}}]
    for index, (began, delta) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": began})
        told.append({"type": "content_block_delta", "index": index, "delta": delta})
    told.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    told.append({"type": "message_stop"})
    return Answer(pieces=[f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in told])


if __name__ == "__main__":
    if "ANTHROPIC_API_KEY" in os.environ:
        anyio.run(main)
    else:
        thought = (
            {"type": "thinking", "thinking": "", "signature": "seal"},
            {"type": "thinking_delta", "thinking": "I need the weather."},
        )
        called: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
        call = (called, {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'})
        said = (
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Take sunglasses: it is sunny in Oslo."},
        )
        with serving(answer(0, thought, call), answer(150, said)) as server:
            anyio.run(lambda: main(base_url=server.root))
