"""A registry served as a plugin."""

import subprocess

import anyio

from toolkit import ToolContext, ToolError, ToolRegistry, tool, tool_with_ctx
from toolkit.chat import ImageBlock, TextBlock
from toolkit.plugin_sdk import serve_plugin


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: Any.
    """
    print("a tool may print")
    subprocess.run(["echo", "and so may what it starts"], check=True)
    return number * 2


@tool_with_ctx
async def count(context: ToolContext[str], to: int) -> str:
    """Count, and show how far it is."""
    for number in range(1, to + 1):
        context.report_progress(f"{context.state} {number}")
    if to > 5:
        await anyio.sleep_forever()
    return "counted"


@tool
async def refuse(why: str) -> str:
    """Refuse."""
    raise ToolError(f"no: {why}")


@tool(requires_approval=True)
async def danger() -> str:
    """Do something dangerous."""
    raise AssertionError


@tool
async def show() -> list[TextBlock | ImageBlock]:
    """Show an image."""
    return [TextBlock("look"), ImageBlock(b"hi")]


if __name__ == "__main__":
    serve_plugin(ToolRegistry[str]([double, count, refuse, danger, show]), "at")
