"""How a server words chat completions, and how it reads them."""

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

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
)
from toolkit.providers.openai import OpenAIProvider
from toolkit.testing.conformance import KEY, Features
from toolkit.testing.loopback import Server

__all__ = ["ChatWire", "words"]

_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "content_filter": "content_filter",
    "refusal": "stop",
}


def words(text: str) -> list[str]:
    """The text in pieces, word by word."""
    return re.findall(r"\S+\s*|\s+", text)


class ChatWire:
    def __init__(self) -> None:
        self.features = Features()

    def provider(self, server: Server) -> Provider:
        return OpenAIProvider("conformance-1", base_url=server.url, api_key=KEY)

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": response.text or None, **_thoughts(response)}
        if response.stop_reason == "refusal":
            message |= {"content": None, "refusal": response.text}
        if response.tool_calls:
            message["tool_calls"] = [_call(call) for call in response.tool_calls]
        choice: dict[str, Any] = {"index": 0, "message": message, **_finish(response)}
        return {**_head(response, "chat.completion"), "choices": [choice], "usage": _usage(response)}

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        said = "refusal" if response.stop_reason == "refusal" else "content"
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [_thoughts(response)] if _thoughts(response) else []
        deltas += [{said: word} for word in words(response.text)]
        for index, call in enumerate(response.tool_calls):
            whole = _call(call)
            begun = {**whole, "function": {"name": call.name, "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **begun}]})
            middle = len(call.arguments) // 2
            for text in (call.arguments[:middle], call.arguments[middle:]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        head = _head(response, "chat.completion.chunk")
        chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, **_finish(response)}]})
        chunks.append({**head, "choices": [], "usage": _usage(response)})
        return [*[b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks], b"data: [DONE]\n\n"]

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "code": None, "param": None}}

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        tools = [entry["function"] for entry in body.get("tools", ())]
        choice = body.get("tool_choice", "auto")
        schema = body.get("response_format", {}).get("json_schema")
        return ChatRequest(
            messages=[_message(message) for message in body["messages"]],
            tools=[
                ToolDefinition(name=tool["name"], description=tool["description"], parameters=tool["parameters"])
                for tool in tools
            ],
            tool_choice=choice if isinstance(choice, str) else choice["function"]["name"],
            parallel_tool_calls=body.get("parallel_tool_calls"),
            max_tokens=body.get("max_tokens"),
            response_format=None if schema is None else ResponseFormat(schema["schema"], schema["name"]),
        )


def _head(response: ChatResponse, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": response.model}


def _finish(response: ChatResponse) -> dict[str, Any]:
    # OpenAI does not tell a stop sequence from the end; vLLM names it here.
    told = {"stop_reason": "###"} if response.stop_reason == "stop_sequence" else {}
    return {"finish_reason": _FINISH[response.stop_reason], **told}


def _usage(response: ChatResponse) -> dict[str, Any]:
    usage = response.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _thoughts(response: ChatResponse) -> dict[str, Any]:
    text = "".join(block.text for block in response.message.content if isinstance(block, ReasoningBlock))
    return {"reasoning_content": text} if text else {}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _message(message: dict[str, Any]) -> Message:
    content = message["content"]
    match message["role"]:
        case "system":
            return SystemMessage(content)
        case "user":
            return UserMessage(content if isinstance(content, str) else tuple(map(_part, content)))
        case "tool":
            return ToolResult(message["tool_call_id"], content)
        case _:
            said: list[AssistantContent] = [TextBlock(content)] if content else []
            if thought := message.get("reasoning_content"):
                said.insert(0, ReasoningBlock(text=thought))
            for call in message.get("tool_calls", ()):
                said.append(ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]))
            return AssistantMessage(said)


def _part(part: dict[str, Any]) -> ContentBlock:
    if part["type"] == "text":
        return TextBlock(part["text"])
    head, _, data = part["image_url"]["url"].partition(";base64,")
    return ImageBlock(b64decode(data), media_type=head.removeprefix("data:"))
