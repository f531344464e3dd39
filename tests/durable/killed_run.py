"""A run in a process of its own, which writes down outside of its log what it does, and may be killed at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio

from tests.durable.scenarios import PLAN, plan_provider
from toolkit import ToolContext, ToolLoopConfig, ToolRegistry, tool_loop, tool_with_ctx
from toolkit.chat import dump_messages
from toolkit.durable import SqliteJournal

PAUSE = 0.004


def note(path: str, *words: object) -> None:
    """Append a line at once: no kill undoes it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(descriptor)


def is_held(path: str) -> bool:
    return Path(f"{path}.held").exists()


@tool_with_ctx
async def append(context: ToolContext[str], n: int) -> str:
    """Append a line; must not be done twice. It waits for as long as there is a file that stands in its way."""
    note(context.state, "start", context.call_id)
    while is_held(context.state):  # noqa: ASYNC110 - of another process
        await anyio.sleep(PAUSE)
    await anyio.sleep(PAUSE)
    note(context.state, "end", context.call_id)
    return f"did {context.call_id} with {n}"


@tool_with_ctx(tags={"read"})
async def look(context: ToolContext[str], n: int) -> str:
    """Look something up; harmless."""
    await anyio.sleep(PAUSE)
    return f"saw {n}"


async def run(folder: str) -> None:
    registry = ToolRegistry[str]([append, look])
    with SqliteJournal(f"{folder}/run.db", "run") as journal:
        config = ToolLoopConfig[None](journal=journal)
        result = await tool_loop(plan_provider(PLAN), registry, "go", ctx=f"{folder}/notes", config=config)
    print(json.dumps({"messages": json.loads(dump_messages(result.messages))}), flush=True)


def move_run(folder: str, backend: str) -> None:
    anyio.run(run, folder, backend=backend)
