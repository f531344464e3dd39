"""A program that serves tools over MCP: on standard input and output, or with ``--http`` on a free port."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import anyio

from toolkit import ToolContext, ToolError, ToolRegistry, tool, tool_with_ctx
from toolkit.chat import ImageBlock
from toolkit.serving.mcp import serve_mcp, serve_mcp_http


@dataclass
class Forecast:
    """What the weather will be."""

    city: str
    degrees: int


@dataclass
class App:
    """What the tools share."""

    user: str
    has_begun: anyio.Event | None = None
    was_cancelled: anyio.Event | None = None


@tool(tags={"read"}, label="Add two numbers")
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: One.
        b: Another.
    """
    print("this must not reach the client")
    return a + b


@tool
def forecast(city: str) -> Forecast:
    """Foretell."""
    return Forecast(city, 21)


@tool
def forecasts(cities: list[str]) -> list[Forecast]:
    """Foretell for several cities."""
    return [Forecast(city, 21) for city in cities]


@tool
def picture() -> ImageBlock:
    """Draw."""
    return ImageBlock(b"image", media_type="image/webp")


@tool
def fail() -> None:
    """Fail."""
    raise ToolError("It can't be done today.")


@tool(requires_approval=True, tags={"destructive"})
def wipe(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool_with_ctx
def whoami(app: App) -> str:
    """Tell who the user is."""
    return app.user


@tool
def count(to: int) -> Iterator[str]:
    """Count."""
    for number in range(1, to + 1):
        yield str(number)


@tool_with_ctx
async def work(context: ToolContext[App], steps: int) -> str:
    """Work."""
    for step in range(steps):
        context.report_progress(f"step {step + 1}")
    return "done"


@tool_with_ctx
async def hang(app: App) -> str:
    """Wait for ever."""
    try:
        if app.has_begun is not None:
            app.has_begun.set()
        await anyio.sleep_forever()
    finally:
        if app.was_cancelled is not None:
            app.was_cancelled.set()
    raise AssertionError


def made() -> ToolRegistry[App]:
    """Return the tools."""
    return ToolRegistry[App]([add, forecast, forecasts, picture, fail, wipe, whoami, count, work, hang])


async def serve_on_a_free_port() -> None:
    """Print the URL and serve."""
    async with anyio.create_task_group() as tasks:

        async def serve(*, task_status: anyio.abc.TaskStatus[str]) -> None:
            await serve_mcp_http(made(), App("ada"), port=0, task_status=task_status)

        print(await tasks.start(serve), flush=True)


async def main() -> None:
    """Serve."""
    if "--http" in sys.argv:
        await serve_on_a_free_port()
    else:
        await serve_mcp(made(), App("ada"), name="tests")


if __name__ == "__main__":
    anyio.run(main)
