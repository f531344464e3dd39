"""An agent for editors, whose model plays a script: ``python acp_agent.py DATABASE SCRIPT``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from toolkit import AssistantMessage, ToolCall, ToolRegistry, tool, tool_from_schema
from toolkit.builtin import edit_file_tool, write_file_tool
from toolkit.conversations import Conversations, SqlStore
from toolkit.serving.acp import AcpEditor, serve_acp
from toolkit.testing import ScriptedProvider


@tool(requires_approval=True)
def wipe(path: str) -> str:
    """Wipe a file."""
    return f"wiped {path}"


@tool(tags={"read"})
async def hang() -> None:
    """Never end."""
    print("this is no message of the protocol", flush=True)
    await anyio.sleep_forever()


change = tool_from_schema("change", "Change anything.", {"type": "object"}, lambda _: "changed")


def choose_tools(editor: AcpEditor) -> ToolRegistry[object]:
    """Return the tools of a session."""
    registry = ToolRegistry([wipe, hang, change, edit_file_tool(editor.folder), write_file_tool(editor.folder)])
    if editor.has_terminal:
        registry.register(editor.terminal_tool())
    return registry


async def main(database: str, script: list[Any]) -> None:
    """Serve."""
    replies = [
        each if isinstance(each, str) else AssistantMessage([ToolCall(*call) for call in each]) for each in script
    ]
    conversations = Conversations(SqlStore(f"sqlite:///{database}"))
    await serve_acp(ScriptedProvider(replies), choose_tools, None, conversations=conversations)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
