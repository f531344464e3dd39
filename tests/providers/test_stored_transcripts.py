"""Conversations that OpenAI stores: a request holds what is new, and all of it where the transcript has changed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.providers.loopback import Answer, Server, serving
from toolkit import ToolLoopConfig, ToolRegistry, UserMessage, tool, tool_loop
from toolkit.chat import dump_messages, load_messages
from toolkit.policies import keep_last
from toolkit.providers.openai import OpenAIResponsesProvider

pytestmark = pytest.mark.anyio
Body = dict[str, Any]


@tool
def look(place: str = "") -> str:
    """Look."""
    return f"a tree {place}"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def respond(number: int, *items: Body, **fields: Any) -> Answer:
    return Answer({"id": f"resp_{number}", "status": "completed", "model": "m", "output": list(items), **fields})


def call(number: int) -> Body:
    return {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}


def text(words: str) -> Body:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def kinds(body: Body) -> list[str]:
    return [item.get("role") or item["type"] for item in body["input"]]


def made(server: Server, **settings: Any) -> OpenAIResponsesProvider:
    return OpenAIResponsesProvider("gpt-5", base_url=server.url, **settings)


async def test_a_loop_names_the_response_before_and_sends_what_is_new(server: Server) -> None:
    server.answers[:] = [respond(1, call(1)), respond(2, call(2)), respond(3, text("Done.")), respond(4, text("Yes."))]
    async with made(server, stores_transcript=True) as provider:
        result = await tool_loop(provider, ToolRegistry([look]), "Look.")
        restored = load_messages(dump_messages(result.messages))
        again = await tool_loop(provider, ToolRegistry([look]), [*restored, UserMessage("Sure?")])
    assert (result.text, again.text) == ("Done.", "Yes.")
    assert [body.get("previous_response_id") for body in server.requests] == [None, "resp_1", "resp_2", "resp_3"]
    assert [kinds(body) for body in server.requests] == [
        ["user"],
        ["function_call_output"],
        ["function_call_output"],
        ["user"],
    ]
    assert all(body["store"] for body in server.requests)


async def test_a_transcript_that_has_changed_is_sent_whole(server: Server) -> None:
    server.answers[:] = [respond(1, call(1)), respond(2, call(2)), respond(3, text("Done."))]
    async with made(server, stores_transcript=True) as provider:
        config = ToolLoopConfig[Any](compaction=keep_last(2))
        await tool_loop(provider, ToolRegistry([look]), "Look.", config=config)
    assert [body.get("previous_response_id") for body in server.requests] == [None, "resp_1", None]
    assert kinds(server.requests[2]) == ["user", "function_call", "function_call_output"]


async def test_a_conversation_gets_each_message_once(server: Server) -> None:
    told = {"conversation": {"id": "conv_1"}}
    server.answers[:] = [respond(1, call(1), **told), respond(2, text("Done."), **told)]
    async with made(server, options={"conversation": "conv_1"}) as provider:
        result = await tool_loop(provider, ToolRegistry([look]), "Look.")
        server.answers[:] = [respond(3, text("Here too."))]
        other = [*result.messages, UserMessage("And here?")]
        async with made(server, options={"conversation": {"id": "conv_2"}}) as another:
            await tool_loop(another, ToolRegistry([look]), other)
    assert [kinds(body) for body in server.requests] == [
        ["user"],
        ["function_call_output"],
        ["user", "function_call", "function_call_output", "assistant", "user"],
    ]
    assert "previous_response_id" not in server.requests[1]
