"""Tools over OpenAI's chat completions: OpenAI itself where OPENAI_API_KEY is set, else a stand-in on this machine.

Prints:

    get_weather(city='Oslo') -> Sunny, 21 degrees in Oslo.
    Take sunglasses: it is sunny in Oslo.
    2 requests, 90 tokens
"""

import os
from typing import Any

import anyio

from toolkit import ToolRegistry, tool, tool_loop
from toolkit.providers import provider_for
from toolkit.testing.loopback import Answer, serving


@tool
def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    weather = f"Sunny, 21 degrees in {city}."
    print(f"get_weather(city={city!r}) -> {weather}")
    return weather


async def main(**settings: Any) -> None:
    """Ask, and print the answer."""
    async with provider_for("openai:gpt-5-mini", **settings) as provider:
        result = await tool_loop(provider, ToolRegistry([get_weather]), "What should I pack for Oslo?")
    print(result.text)
    print(f"{result.iterations} requests, {result.usage.total_tokens} tokens")


def answer(**message: Any) -> Answer:
    """Word a chat completion as a server does."""
    usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return Answer({"id": "1", "object": "chat.completion", "model": "stand-in", "choices": [choice], "usage": usage})


if __name__ == "__main__":
    if "OPENAI_API_KEY" in os.environ:
        anyio.run(main)
    else:
        call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        said = (answer(tool_calls=[call]), answer(content="Take sunglasses: it is sunny in Oslo."))
        with serving(*said) as server:
            anyio.run(lambda: main(base_url=server.url))
