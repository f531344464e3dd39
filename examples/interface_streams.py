"""A conversation as web interfaces see it: asked by AG-UI, and answered by Vercel's UI messages.

Serve ``app`` with uvicorn, and point ``HttpAgent`` or ``useChat`` at it; here an HTTP client is both.

Prints:

    RUN_STARTED
    TOOL_CALL_START refund
    RUN_FINISHED interrupt
    start
    tool-output-available Order 7 was paid back.
    text-delta It
    text-delta  was
    text-delta  paid
    text-delta  back.
    finish stop
    409 no such decision is awaited: it was made, or is of another conversation
"""

import json
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette
from starlette.requests import Request

from toolkit import ToolCall, ToolRegistry, tool
from toolkit.conversations import Conversations, MemoryStore
from toolkit.testing import ScriptedProvider
from toolkit.ui.streams import InterfaceStreams


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} was paid back."


def find_conversation(request: Request, thread: str) -> str:
    """Return the id of a conversation in the store: each user has their own."""
    return f"{request.headers.get('x-user', 'nobody')}/{thread}"


provider = ScriptedProvider([ToolCall("1", "refund", '{"order": 7}'), "It was paid back."])
streams = InterfaceStreams(
    Conversations(MemoryStore()), provider, ToolRegistry([refund]), conversation_for=find_conversation
)
app = Starlette(routes=[*streams.routes("/agent", "ag-ui"), *streams.routes("/chat", "ui-messages")])


def show(response: httpx.Response, *kinds: str) -> list[dict[str, Any]]:
    """Print the events of some kinds."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for event in events:
        if event["type"] in kinds:
            words = [event.get(key) for key in ("toolCallName", "output", "delta", "finishReason")]
            outcome = event.get("outcome", {}).get("type")
            print(event["type"], *(word for word in (*words, outcome) if word))
    return events


async def main() -> None:
    """Ask for a refund, approve it, and approve it once more."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"x-user": "ada"}) as client:
        question = {"id": "q", "role": "user", "content": "Refund order 7."}
        asked = await client.post("/agent", json={"threadId": "7", "runId": "r", "messages": [question]})
        events = show(asked, "RUN_STARTED", "TOOL_CALL_START", "RUN_FINISHED")
        [interrupt] = events[-1]["outcome"]["interrupts"]

        approval = {"id": interrupt["id"], "approved": True}
        part = {"type": "tool-refund", "toolCallId": "1", "state": "approval-responded", "approval": approval}
        body = {"id": "7", "messages": [{"id": "reply-1", "role": "assistant", "parts": [part]}]}
        show(await client.post("/chat", json=body), "start", "tool-output-available", "text-delta", "finish")
        again = await client.post("/chat", json=body)
        print(again.status_code, again.json()["error"])


anyio.run(main)
