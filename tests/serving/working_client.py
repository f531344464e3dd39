"""A program that calls a tool of the server at a URL for some seconds, and prints its progress and result."""

from __future__ import annotations

import sys

import anyio

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool_loop
from toolkit.events import ToolProgress
from toolkit.sources.mcp import http, mcp_tools
from toolkit.testing import ScriptedProvider


def show(event: object) -> None:
    """Print progress as it comes."""
    if isinstance(event, ToolProgress):
        print(event.text, flush=True)


async def main(url: str, seconds: str) -> None:
    """Call the tool."""
    async with mcp_tools(http(url)) as tools:
        provider = ScriptedProvider([ToolCall("1", "work", f'{{"seconds": {seconds}}}'), "ok"])
        config = ToolLoopConfig(on_event=show)
        outcome = await tool_loop(provider, ToolRegistry(tools), "Work.", config=config)
        print(outcome.messages[2].text, flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
