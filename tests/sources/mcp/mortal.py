"""A program that serves tools over MCP, whose tools differ from start to start; the file given counts the starts.

With a port it serves over HTTP, else on standard input and output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio

from toolkit import ToolRegistry, tool, tool_from_schema
from toolkit.serving.mcp import serve_mcp, serve_mcp_http


@tool(tags={"read"})
def pid() -> str:
    """Tell the id of the process."""
    return str(os.getpid())


@tool
async def hang() -> None:
    """Say on standard error that it has begun, and never end."""
    print("the call has begun", file=sys.stderr, flush=True)
    await anyio.sleep_forever()


@tool
def bear() -> str:
    """Start a program that outlives this one, and tell its id."""
    return str(subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 60 & wait"], stdin=subprocess.DEVNULL).pid)


def counted(count: Path) -> int:
    """Return which start this is."""
    start = len(count.read_text()) + 1 if count.exists() else 1
    count.write_text("x" * start)
    return start


async def main(start: int) -> None:
    """Serve."""
    born = tool_from_schema(f"start_{start}", "Be of this start.", {"type": "object"}, lambda _: f"start {start}")
    registry = ToolRegistry([pid, hang, bear, born])
    if len(sys.argv) > 2:
        await serve_mcp_http(registry, port=int(sys.argv[2]))
    else:
        await serve_mcp(registry)


if __name__ == "__main__":
    anyio.run(main, counted(Path(sys.argv[1])))
