"""A conversation goes on with another vendor: nothing that only the first one knows is said to the second."""

import json
from typing import Any

import pytest
from anthropic.types import MessageParam
from google.genai.types import Content
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from tests.providers.vendor_answers import anthropic_message, gemini_answer
from toolkit import AssistantMessage, ChatRequest, Message, ToolResult, UserMessage
from toolkit.chat import dump_messages, load_messages
from toolkit.providers.anthropic.client import AnthropicDecoder
from toolkit.providers.anthropic.encode import AnthropicReading, MessagesEncoder
from toolkit.providers.failures import Failures
from toolkit.providers.google import GeminiDecoder, GenerateEncoder
from toolkit.providers.openai.chat import ChatDecoder, ChatEncoder, ChatReading
from toolkit.providers.openai.responses import ResponsesDecoder, ResponsesEncoder, ResponsesReading
from toolkit.providers.servers import OPENAI_CHAT

CALL = {"name": "f", "arguments": '{"a": 1}'}
SECRETS = ("anthropic-secret", "Z29vZ2xlLXNlY3JldA==", "openai-secret", "routed-secret", "dGhvdWdodA==")


def failures() -> Failures:
    return Failures(provider="p", url="u", model="m", key_advice="k", protocol="p")


ANTHROPIC = AnthropicDecoder(failures, AnthropicReading()).read_whole(
    anthropic_message(
        {"type": "thinking", "thinking": "Hm.", "signature": "anthropic-secret"},
        {"type": "redacted_thinking", "data": "anthropic-secret"},
        {"type": "text", "text": "Let me see."},
        {
            "type": "tool_use",
            "id": "c1",
            "name": "f",
            "input": {"a": 1},
            "caller": {"type": "code_execution_20260120", "tool_id": "anthropic-secret"},
        },
        stop_reason="tool_use",
    ),
)
GOOGLE = GeminiDecoder(failures, {}).read_whole(
    gemini_answer(
        {"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
        {"text": "Let me see.", "thoughtSignature": "dGhvdWdodA=="},
        {
            "functionCall": {"id": "c1", "name": "f", "args": {"a": 1}},
            "thoughtSignature": "Z29vZ2xlLXNlY3JldA==",
        },
    ),
)
RESPONSES = ResponsesDecoder(failures, ResponsesReading()).read_whole(
    {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "openai-secret"},
            {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "c1", **CALL},
        ]
    },
)
CHAT = ChatDecoder(failures, ChatReading()).read_whole(
    {
        "choices": [
            {
                "message": {
                    "content": "Let me see.",
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": "routed-secret"}],
                    "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
                }
            }
        ]
    },
)
FIRST = {"anthropic": ANTHROPIC, "google": GOOGLE, "responses": RESPONSES, "chat": CHAT}
SECOND: dict[str, tuple[Any, str, Any]] = {
    "anthropic": (MessagesEncoder(model="m", defaults={}), "messages", list[MessageParam]),
    "google": (GenerateEncoder(model="gemini-3.8-flash", defaults={}), "contents", list[Content]),
    "responses": (ResponsesEncoder(model="m", defaults={}), "input", list[ResponseInputItemParam]),
    "chat": (ChatEncoder(model="m", defaults={}, dialect=OPENAI_CHAT), "messages", list[ChatCompletionMessageParam]),
}


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_a_conversation_goes_on_with_another_vendor(first: str, second: str) -> None:
    said = FIRST[first].message
    assert [call.name for call in said.tool_calls] == ["f"]
    messages: list[Message] = [UserMessage("Hi"), AssistantMessage(said.content), ToolResult("c1", "3", tool_name="f")]
    request = ChatRequest(messages=load_messages(dump_messages(messages)))
    encoder, field, kind = SECOND[second]
    body = encoder.body(request, {}) if second == "google" else encoder.encode(request, streams=False)
    wire = json.loads(body)[field]
    TypeAdapter(kind).validate_python(wire)
    text = json.dumps(wire)
    assert "Let me see." in text
    if first == second != "chat":
        assert any(secret in text for secret in SECRETS), "what the same vendor wants back is there"
    elif first != second:
        assert not any(secret in text for secret in SECRETS)
