"""How a server words Anthropic's messages, and how it reads them."""

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

import anthropic.types

from tests.testing.wires.openai_chat import words
from toolkit import AssistantMessage, ChatRequest, Message, Provider, SystemMessage, ToolCall, ToolResult, UserMessage
from toolkit.chat import (
    AssistantContent,
    ChatResponse,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    ResponseFormat,
    TextBlock,
    ToolDefinition,
    UnansweredItem,
)
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.testing.conformance import KEY, Features
from toolkit.testing.loopback import Server

__all__ = ["MessagesWire"]

_CHOICES = {"any": "required", "auto": "auto", "none": "none"}


class MessagesWire:
    def __init__(self) -> None:
        self.features = Features(
            stop_reasons=frozenset({"end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal"}),
            waiting=frozenset({"toolset_tool_use", "hologram_tool_use"}),
            settled=frozenset(_SETTLED),
        )

    def provider(self, server: Server) -> Provider:
        return AnthropicProvider("conformance-1", base_url=server.root, api_key=KEY)

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        body = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": response.model,
            "content": [_block(block) for block in response.message.content] + list(map(_waiting, response.unanswered)),
            "stop_reason": response.stop_reason,
            "stop_sequence": None,
            "usage": _usage(response),
        }
        if not response.unanswered:  # no kind of which the SDK knows
            anthropic.types.Message.model_validate(body)
        return body

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        usage = _usage(response)
        begun: dict[str, Any] = {
            **self.whole(response),
            "content": [],
            "stop_reason": None,
            "usage": {**usage, "output_tokens": 1},
        }
        told: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(response.message.content):
            told.extend(_events(index, block))
        for index, item in enumerate(response.unanswered, len(response.message.content)):
            told.extend(_item_events(index, _waiting(item)))
        told.append(
            {
                "type": "message_delta",
                "delta": {"stop_reason": response.stop_reason, "stop_sequence": None},
                "usage": {name: value for name, value in usage.items() if name.startswith("output")},
            }
        )
        told.append({"type": "message_stop"})
        return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in told]

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "some_error", "message": message}, "request_id": "req_1"}

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        choice = body.get("tool_choice", {"type": "auto"})
        wanted = body.get("output_config", {}).get("format")
        system: list[Message] = [SystemMessage(part["text"]) for part in body.get("system", ())]
        is_one_at_a_time = choice.get("disable_parallel_tool_use")
        return ChatRequest(
            messages=system + [message for turn in body["messages"] for message in _messages(turn)],
            tools=[
                ToolDefinition(name=tool["name"], description=tool["description"], parameters=tool["input_schema"])
                for tool in body.get("tools", ())
            ],
            tool_choice=choice["name"] if choice["type"] == "tool" else _CHOICES[choice["type"]],
            parallel_tool_calls=None if is_one_at_a_time is None else not is_one_at_a_time,
            max_tokens=body["max_tokens"],
            response_format=None if wanted is None else ResponseFormat(wanted["schema"]),
        )


def _usage(response: ChatResponse) -> dict[str, Any]:
    usage = response.usage
    read, wrote = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    thought = usage.reasoning_tokens
    return {
        "input_tokens": usage.input_tokens - read - wrote,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": wrote,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": None if thought is None else {"thinking_tokens": thought},
    }


_SETTLED: dict[str, dict[str, Any]] = {
    "compaction": {"content": "item_1"},
    "container_upload": {"file_id": "item_1"},
    "hologram": {"id": "item_1", "light": "green"},
    "mcp_tool_use": {"id": "item_1", "name": "click", "server_name": "mouse", "input": {}},
    "server_tool_use": {"id": "item_1", "name": "web_search", "input": {"query": "a"}},
    "web_search_tool_result": {"tool_use_id": "item_1", "content": []},
}


def _waiting(item: UnansweredItem) -> dict[str, Any]:
    return {"type": item.kind, **_SETTLED.get(item.kind, {"id": item.id, "name": item.name, "input": {}})}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun: dict[str, Any] = item
    deltas: list[dict[str, Any]] = []
    if item["type"] == "compaction":
        begun, deltas = {**item, "content": ""}, [{"type": "compaction_delta", "content": item["content"]}]
    elif "input" in item:
        begun, text = dict(item, input={}), json.dumps(item["input"])
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:5], text[5:])]
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _block(block: AssistantContent) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text, "citations": None}
        case ReasoningBlock():
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": json.loads(block.arguments)}
        case _:
            raise AssertionError(f"the suite says no {block.type}")


def _events(index: int, block: AssistantContent) -> Iterator[dict[str, Any]]:
    begun = _block(block)
    deltas: list[dict[str, Any]]
    match block:
        case TextBlock():
            begun["text"] = ""
            deltas = [{"type": "text_delta", "text": word} for word in words(block.text)]
        case ReasoningBlock():
            begun |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": word} for word in words(block.text)]
            deltas.append({"type": "signature_delta", "signature": block.signature})
        case ToolCall():
            begun["input"] = {}
            middle = len(block.arguments) // 2
            pieces = ["", block.arguments[:middle], block.arguments[middle:]]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            raise AssertionError(f"the suite says no {block.type}")
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _messages(turn: dict[str, Any]) -> Iterator[Message]:
    if turn["role"] == "assistant":
        yield AssistantMessage([_said(block) for block in turn["content"]])
        return
    for block in turn["content"]:
        if block["type"] == "tool_result":
            yield ToolResult(block["tool_use_id"], block["content"], is_error=block.get("is_error", False))
    if parts := tuple([_part(block) for block in turn["content"] if block["type"] != "tool_result"]):
        yield UserMessage(parts)


def _said(block: dict[str, Any]) -> AssistantContent:
    match block["type"]:
        case "thinking":
            return ReasoningBlock(text=block["thinking"], signature=block["signature"])
        case "tool_use":
            return ToolCall(block["id"], block["name"], json.dumps(block["input"]))
        case _:
            return TextBlock(block["text"])


def _part(block: dict[str, Any]) -> ContentBlock:
    if block["type"] == "text":
        return TextBlock(block["text"])
    return ImageBlock(b64decode(block["source"]["data"]), media_type=block["source"]["media_type"])
