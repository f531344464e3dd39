"""A service over a store that tests start, leave, stop and kill: ``uvicorn tests.conversations.service:app``."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from toolkit import ChatRequest, TextDelta, ToolCall, ToolRegistry, tool
from toolkit.chat.messages import messages_to_plain
from toolkit.conversations import Conversations, ConversationStore, RedisStore, SqlStore
from toolkit.testing import FunctionProvider

_URL = os.environ["STORE"]
_STORE: ConversationStore = RedisStore(_URL) if _URL.startswith("redis") else SqlStore(_URL)
conversations = Conversations(_STORE, lease=float(os.environ.get("LEASE", "3")), wait=120)


@tool
async def look_up(tag: str) -> str:
    """Look something up."""
    await anyio.sleep(0.02)
    return f"found {tag}"


tools = ToolRegistry([look_up])


async def answer(request: ChatRequest) -> str | ToolCall:
    """Answer the question by its tag; every third one after a call."""
    last = request.messages[-1]
    await anyio.sleep(0.02)
    if last.role == "user" and last.text.endswith(("0", "3", "6", "9")):
        return ToolCall(uuid4().hex, "look_up", json.dumps({"tag": last.text}))
    asked = next(each.text for each in reversed(request.messages) if each.role == "user")
    return f"re {asked}"


async def ask(request: Request) -> StreamingResponse:
    """Stream the answer to a question; without one, to what is not answered yet."""
    name, question = request.path_params["name"], request.query_params.get("question")

    async def write_events() -> AsyncGenerator[str]:
        async with conversations.turn(name) as turn:
            async for event in turn.stream(FunctionProvider(answer), tools, question):
                if isinstance(event, TextDelta):
                    yield f"data: {event.text}\n\n"
        yield "data: ended\n\n"

    return StreamingResponse(write_events(), media_type="text/event-stream")


async def show(request: Request) -> JSONResponse:
    """Return the transcript."""
    found = await conversations.get(request.path_params["name"])
    return JSONResponse(messages_to_plain(found.messages))


@asynccontextmanager
async def close_conversations(_: Starlette) -> AsyncGenerator[None]:
    """Have the turns written when the service is stopped."""
    async with conversations:
        yield


app = Starlette(
    lifespan=close_conversations, routes=[Route("/ask/{name}", ask, methods=["POST"]), Route("/{name}", show)]
)
