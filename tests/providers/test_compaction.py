"""Transcripts that a vendor shortens: asked for as a compaction, by options, and where it pauses for that."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaMessageParam, BetaRawMessageStreamEvent
from openai.types.responses import CompactedResponse, ResponseInputItemParam
from pydantic import TypeAdapter

from tests.providers.loopback import Answer, Server, serving
from tests.providers.vendor_cases import generate, hear, response_of
from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import validate_transcript
from toolkit.errors import ContextTooLongError
from toolkit.providers import compact_on_server
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.testing import check_transcript

pytestmark = pytest.mark.anyio
Body = dict[str, Any]
SUMMARY: Body = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
BLOCK: Body = {"type": "compaction", "content": "They said hello.", "encrypted_content": "e", "signature": "s"}
USAGE = {"input_tokens": 9, "output_tokens": 2}
MESSAGES: list[Message] = [
    SystemMessage("Be kind."),
    UserMessage("Hi"),
    AssistantMessage([ToolCall("c1", "look", "{}")]),
    ToolResult("c1", "a very long page", tool_name="look"),
    AssistantMessage("Seen."),
    UserMessage("And now?"),
]


@tool
def look() -> str:
    """Look."""
    return "a very long page"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def respond(*items: Body) -> Answer:
    return Answer({"id": "resp_1", "status": "completed", "model": "m", "output": list(items)})


def compacted() -> Answer:
    user: Body = {"type": "message", "id": "u", "role": "user", "status": "completed", "content": []}
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    usage = {**USAGE, **details, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 11}
    body = {"id": "resp_2", "object": "response.compaction", "created_at": 1, "output": [SUMMARY], "usage": usage}
    CompactedResponse.model_validate(body)
    return Answer({**body, "output": [user, SUMMARY]})  # the SDK has no type for messages of the user here


def text(words: str) -> Body:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def say(*blocks: Body, stop: str = "end_turn", **fields: Any) -> Answer:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    body = {**head, "content": list(blocks), "stop_reason": stop, "usage": USAGE, **fields}
    BetaMessage.model_validate(body)
    return Answer(body)


async def test_openai_compacts_all_but_instructions_and_the_users_words(server: Server) -> None:
    server.answers[:] = [compacted(), respond(text("Fine."))]
    async with OpenAIResponsesProvider("gpt-5", base_url=server.url) as provider:
        shorter = await provider.compact(MESSAGES)
        await provider.generate(ChatRequest(messages=shorter))
    validate_transcript(shorter)
    assert server.paths == ["/v1/responses/compact", "/v1/responses"]
    asked, sent = server.requests
    assert (asked["model"], asked["instructions"]) == ("gpt-5", "Be kind.")
    assert [item["type"] for item in asked["input"]] == ["message", "function_call", "function_call_output", "message"]
    assert [item.get("content") or item for item in sent["input"]] == ["Be kind.", "Hi", SUMMARY, "And now?"]
    for item in sent["input"]:
        TypeAdapter[Any](ResponseInputItemParam).validate_python(item)


async def test_anthropic_compacts_to_a_block_that_stands_first(server: Server) -> None:
    server.answers[:] = [say(BLOCK, stop="compaction"), say({"type": "text", "text": "Fine."})]
    async with AnthropicProvider("m", base_url=server.root, headers={"anthropic-beta": "own"}) as provider:
        shorter = await provider.compact(MESSAGES)
        await provider.generate(ChatRequest(messages=shorter))
    validate_transcript(shorter)
    asked, sent = server.requests
    assert (asked["compaction"], len(asked["messages"])) == ({"type": "summarize"}, 4)
    assert sent["system"][0]["text"] == "Be kind."
    assert sent["messages"] == [{"role": "user", "content": [BLOCK, {"type": "text", "text": "And now?"}]}]
    TypeAdapter[Any](BetaMessageParam).validate_python(sent["messages"][0])
    assert [headers["anthropic-beta"] for headers in server.headers] == ["own,compact-2026-09-04"] * 2


@pytest.mark.parametrize("vendor", ["anthropic", "responses"])
async def test_a_loop_goes_on_after_the_vendors_compaction(server: Server, vendor: str) -> None:
    call: Body
    if vendor == "anthropic":
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "caller": {"type": "direct"}}
        server.answers[:] = [say(call, stop="tool_use"), say(BLOCK, stop="compaction")]
        server.answers.append(say({"type": "text", "text": "Fine."}))
        provider: Any = AnthropicProvider("m", base_url=server.root)
    else:
        call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        server.answers[:] = [respond(call), compacted(), respond(text("Fine."))]
        provider = OpenAIResponsesProvider("gpt-5", base_url=server.url)
    async with provider:
        config = ToolLoopConfig[Any](compaction=compact_on_server(provider, max_chars=120))
        result = await tool_loop(provider, ToolRegistry([look]), "Hi", config=config)
    assert result.text == "Fine."
    check_transcript(result.messages)
    last = server.requests[2]
    assert "a very long page" not in json.dumps(last)
    assert (last.get("input") or last["messages"][0]["content"])[-1] in (SUMMARY, BLOCK)


async def test_a_transcript_that_is_refused_is_compacted_by_the_vendor_and_asked_once_more(server: Server) -> None:
    refused = Answer({"error": {"message": "Too many", "code": "context_length_exceeded"}}, status=400)
    server.answers[:] = [refused, refused]
    async with OpenAIResponsesProvider("gpt-5", base_url=server.url) as provider:
        config = ToolLoopConfig[Any](compaction=compact_on_server(provider, max_chars=10**6))
        with pytest.raises(ContextTooLongError):
            await tool_loop(provider, ToolRegistry([look]), MESSAGES, config=config)
        server.answers[:] = [refused, respond(text("Fine."))]
        server.paths.clear()
        result = await tool_loop(provider, ToolRegistry([look]), MESSAGES, config=config)
    assert (result.text, server.paths) == ("Fine.", ["/v1/responses"] * 2)


async def test_a_summary_that_could_not_be_made_leaves_the_transcript(server: Server) -> None:
    server.answers[:] = [say({"type": "compaction", "content": None}, stop="compaction")]
    async with AnthropicProvider("m", base_url=server.root) as provider:
        assert await provider.compact(MESSAGES) == MESSAGES
        assert await provider.compact(MESSAGES[:2]) == MESSAGES[:2]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("edit", "beta"),
    [("clear_tool_uses_20250919", "context-management-2025-06-27"), ("compact_20260112", "compact-2026-01-12")],
)
async def test_edits_of_the_context_are_options_with_their_beta(server: Server, edit: str, beta: str) -> None:
    applied = {
        "applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 5, "cleared_tool_uses": 1}]
    }
    server.answers[:] = [say({"type": "text", "text": "Fine."}, context_management=applied)]
    options: Any = {"context_management": {"edits": [{"type": edit}]}}
    response = await generate(
        AnthropicProvider("m", base_url=server.root, options=options), ChatRequest(messages=MESSAGES)
    )
    assert server.requests[0]["context_management"] == options["context_management"]
    assert server.headers[0]["anthropic-beta"] == beta
    assert response.metadata["context_management"] == applied


async def test_a_compaction_in_a_stream_is_whole_and_goes_back(server: Server) -> None:
    start: Body = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    told: list[Body] = [
        {"type": "message_start", "message": {**start, "stop_sequence": None, "usage": USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "They met."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Fine."}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    for event in told:
        TypeAdapter[Any](BetaRawMessageStreamEvent).validate_python(event)
    server.answers[:] = [Answer(pieces=[b"data: " + json.dumps(event).encode() + b"\n\n" for event in told])]
    response = response_of(await hear(AnthropicProvider("m", base_url=server.root), ChatRequest(messages=MESSAGES)))
    assert response.text == "Fine."
    server.answers[:] = [say({"type": "text", "text": "Yes."})]
    again = ChatRequest(messages=[*MESSAGES, response.message, UserMessage("Sure?")])
    await generate(AnthropicProvider("m", base_url=server.root), again)
    assert server.requests[1]["messages"][-2]["content"][0] == {"type": "compaction", "content": "They met."}
    assert server.headers[1]["anthropic-beta"] == "compact-2026-01-12"


def test_a_vendor_that_compacts_nothing_is_refused(server: Server) -> None:
    with pytest.raises(ConfigurationError, match="OpenAIProvider has no compaction of its vendor"):
        compact_on_server(OpenAIProvider("m", base_url=server.url))
