"""A script whose process ends in the middle of a call: started again, it goes on where it was.

Prints:

    tidying the cellar
    tidying the attic
    the process ended in the middle of it
    going on: the first reply is not asked for again
    locking the door
    the cellar: tidy
    the attic: Interrupted: the process that ran it ended. The tool was running and may have taken effect.
    the door: locked
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from toolkit import AssistantMessage, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.chat import ChatRequest, ToolResult
from toolkit.durable import SqliteJournal
from toolkit.testing import FunctionProvider


@tool(sequential=True)
async def tidy(room: str) -> str:
    """Tidy a room."""
    print("tidying the", room, flush=True)
    if room == "attic":
        os._exit(1)  # as if somebody had pulled the plug
    return f"the {room}: tidy"


@tool
async def lock(what: str) -> str:
    """Lock something."""
    print("locking the", what, flush=True)
    return f"the {what}: locked"


def answer(request: ChatRequest) -> AssistantMessage | ToolCall | str:
    """Stand in for a model: what it says depends on the transcript alone."""
    done = [message.text for message in request.messages if isinstance(message, ToolResult)]
    match len(done):
        case 0:
            rooms = ["cellar", "attic"]
            return AssistantMessage([ToolCall(room, "tidy", f'{{"room": "{room}"}}') for room in rooms])
        case 2:
            print("going on: the first reply is not asked for again", flush=True)
            return ToolCall("door", "lock", '{"what": "door"}')
        case _:
            return "\n".join([done[0], f"the attic: {done[1]}", done[2]])


async def work(file: str) -> None:
    """Go on with the run, from its beginning or from where another process has left it."""
    with SqliteJournal(file, run_id="tidy up") as journal:
        tools, config = ToolRegistry([tidy, lock]), ToolLoopConfig[None](journal=journal)
        result = await tool_loop(FunctionProvider(answer), tools, "Tidy up, then lock the door.", config=config)
    print(result.text)


def run_twice() -> None:
    """Run the script in a process that ends too early, and then in another one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__)), str(Path(folder) / "run.db")]
        assert subprocess.run(command, check=False).returncode == 1
        print("the process ended in the middle of it", flush=True)
        subprocess.run(command, check=True)


if sys.argv[1:]:
    anyio.run(work, sys.argv[1])
else:
    run_twice()
