"""A program that serves a chat to interfaces until it is killed; it is given its port, store and reply."""

from __future__ import annotations

import sys

import anyio
import uvicorn
from starlette.applications import Starlette

from toolkit import ToolCall, ToolRegistry, tool
from toolkit.conversations import Conversations, SqlStore
from toolkit.testing import ScriptedProvider
from toolkit.ui.streams import InterfaceStreams


@tool(tags={"read"})
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    raise AssertionError


def main(port: int, store: str, reply: str) -> None:
    """Serve."""
    conversations = Conversations(SqlStore(f"sqlite:///{store}"), lease=2.0)
    provider = ScriptedProvider([ToolCall("c", "hang", "{}") if reply == "hang" else reply] * 3)
    streams = InterfaceStreams(
        conversations, provider, ToolRegistry([hang]), conversation_for=lambda _, thread: f"user/{thread}"
    )
    app = Starlette(routes=[*streams.routes("/ag-ui", "ag-ui"), *streams.routes("/ui", "ui-messages")])
    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
