"""The tools that most flows call, and how they are called."""

import anyio

from toolkit import ToolCall, ToolRegistry, tool

__all__ = ["TOOLS", "echo", "hang", "say"]


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


TOOLS = ToolRegistry([echo, hang])


def say(text: str, call_id: str = "1") -> ToolCall:
    """Return a call of `echo`."""
    return ToolCall(call_id, "echo", f'{{"text": "{text}"}}')
