"""Tools over Gemini, several at once, with the thought signature that their calls carry sent back.

Gemini itself where GEMINI_API_KEY is set, else a stand-in on this machine.

Prints:

    get_weather(city='Oslo') -> Sunny, 21 degrees in Oslo.
    get_weather(city='Rome') -> Sunny, 21 degrees in Rome.
    Both are sunny: take sunglasses.
    2 requests, 90 tokens; signed: True, False
"""

import os
from typing import Any

import anyio
from google.genai.types import GenerateContentConfigDict

from toolkit import AssistantMessage, ChatRequest, ToolRegistry, UserMessage, tool, tool_loop
from toolkit.providers.google import GoogleProvider
from toolkit.testing.loopback import Answer, serving


@tool(sequential=True)
def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    weather = f"Sunny, 21 degrees in {city}."
    print(f"get_weather(city={city!r}) -> {weather}")
    return weather


async def main(**settings: Any) -> None:
    """Ask, and print the answer and which of its calls were signed."""
    options: GenerateContentConfigDict = {"thinking_config": {"include_thoughts": True}}
    request = ChatRequest(messages=[UserMessage("What should I pack for Oslo and Rome?")], reasoning_effort="low")
    async with GoogleProvider("gemini-3.8-flash", options=options, **settings) as provider:
        result = await tool_loop(provider, ToolRegistry([get_weather]), request)
    replies = [message for message in result.messages if isinstance(message, AssistantMessage)]
    signed = [str(call.extra is not None) for reply in replies for call in reply.tool_calls]
    print(result.text)
    print(f"{result.iterations} requests, {result.usage.total_tokens} tokens; signed: {', '.join(signed)}")


def answer(*parts: dict[str, Any]) -> Answer:
    """Word an answer as a server does."""
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return Answer({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 40, "candidatesTokenCount": 5}})


if __name__ == "__main__":
    if "GEMINI_API_KEY" in os.environ:
        anyio.run(main)
    else:
        oslo = {"id": "1", "name": "get_weather", "args": {"city": "Oslo"}}
        rome = {"id": "2", "name": "get_weather", "args": {"city": "Rome"}}
        calls: tuple[dict[str, Any], ...] = (
            {"functionCall": oslo, "thoughtSignature": "c2VhbA=="},
            {"functionCall": rome},
        )
        with serving(answer(*calls), answer({"text": "Both are sunny: take sunglasses."})) as server:
            anyio.run(lambda: main(base_url=server.root))
