"""A service over a store that tests start, leave, stop and kill: ``uvicorn tests.conversations.service:app``."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from toolkit import ChatRequest, TextDelta, ToolCall, ToolRegistry, tool
from toolkit.conversations import Conversations, ConversationStore, RedisStore, SqlStore, WhenBusy
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
    """Stream the answer to a question, which may be put in line; and how that ended."""
    name, question = request.path_params["name"], request.query_params["question"]
    when_busy: WhenBusy = "queue" if "queue" in request.query_params else "wait"

    async def write_events() -> AsyncGenerator[str]:
        async with conversations.turn(name, when_busy=when_busy) as turn:
            events = turn.stream(
                FunctionProvider(answer), tools, question, question_id=request.headers["Idempotency-Key"]
            )
            async for event in events:
                if isinstance(event, TextDelta):
                    yield f"data: {event.text}\n\n"
        if not turn.is_queued:
            yield f"data: ended {events.result.reason.kind}\n\n"

    return StreamingResponse(write_events(), media_type="text/event-stream")


@asynccontextmanager
async def close_conversations(_: Starlette) -> AsyncGenerator[None]:
    """Have the turns written when the service is stopped."""
    async with conversations:
        yield


app = Starlette(lifespan=close_conversations, routes=[Route("/ask/{name}", ask, methods=["POST"])])
