"""A registry served as a plugin."""

import subprocess
import sys

import anyio

from toolkit import ToolContext, ToolError, ToolOutput, ToolRegistry, tool, tool_with_ctx
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


@tool
def take_input() -> str:
    """Read what the program is sent, and have a child read it."""
    child = subprocess.run(["cat"], capture_output=True, check=True)
    return f"{sys.stdin.read()}{child.stdout.decode()}nothing"


@tool
def detail(kind: str) -> ToolOutput:
    """Return details that are no JSON."""
    circle: list[object] = []
    circle.append(circle)
    kinds: dict[str, object] = {"circle": circle, "keys": {(1, 2): 3}, "no number": {"a": float("nan")}}
    return ToolOutput("x", details=kinds[kind])


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
    serve_plugin(ToolRegistry[str]([double, take_input, detail, count, refuse, danger, show]), "at")
