"""A long conversation that the vendor shortens: Anthropic's summary stands for what was said before.

Anthropic itself where ANTHROPIC_API_KEY is set, else a stand-in on this machine.

Prints:

    You read two pages.
    messages sent: 1, 3, 1
    first block of the last request: compaction
"""

import os
from typing import Any

import anyio

from toolkit import ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.providers import compact_on_server
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.testing.loopback import Answer, serving


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return f"page {number}: " + "words " * 100


async def main(**settings: Any) -> None:
    """Print the answer of a run whose transcript is compacted on its way."""
    async with AnthropicProvider("claude-sonnet-5-5", **settings) as provider:
        config = ToolLoopConfig[Any](compaction=compact_on_server(provider, max_chars=1_500))
        result = await tool_loop(provider, ToolRegistry([read_page]), "Read two pages.", config=config)
    print(result.text)


def say(stop_reason: str, *blocks: dict[str, Any]) -> Answer:
    """Word a message as a server does."""
    return Answer({"id": "msg_1", "role": "assistant", "content": list(blocks), "stop_reason": stop_reason})


if __name__ == "__main__":
    if "ANTHROPIC_API_KEY" in os.environ:
        anyio.run(main)
    else:
        calls = [{"type": "tool_use", "id": f"c{n}", "name": "read_page", "input": {"number": n}} for n in (1, 2)]
        summary = {"type": "compaction", "content": "The user had two pages read.", "signature": "s"}
        end = say("end_turn", {"type": "text", "text": "You read two pages."})
        with serving(say("tool_use", *calls), say("compaction", summary), end) as server:
            anyio.run(lambda: main(base_url=server.root))
        counts = [len(body["messages"]) for body in server.requests]
        print("messages sent:", ", ".join(map(str, counts)))
        print("first block of the last request:", server.requests[-1]["messages"][0]["content"][0]["type"])
