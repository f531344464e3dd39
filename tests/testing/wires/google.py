"""How a server words Gemini's ``generateContent``, and how it reads it."""

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

from google.genai.types import GenerateContentResponse

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
from toolkit.providers.google import GoogleProvider
from toolkit.testing.conformance import KEY, Features
from toolkit.testing.loopback import Server

__all__ = ["GenerateWire"]

_FINISH = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
_CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "required"}


class GenerateWire:
    def __init__(self) -> None:
        self.features = Features(
            stop_reasons=frozenset({"end_turn", "tool_use", "max_tokens", "content_filter"}),
            usage=frozenset({"cache_read_tokens", "reasoning_tokens"}),
            parallel_switch=False,
            waiting=frozenset({"hologramCall"}),
            settled=frozenset({"executableCode", "hologram"}),
        )

    def provider(self, server: Server) -> Provider:
        return GoogleProvider("gemini-3-conformance", base_url=server.root, api_key=KEY)

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        parts = [_part(block) for block in response.message.content]
        return _piece(response, parts + list(map(_waiting, response.unanswered)), is_last=True)

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        parts = [part for block in response.message.content for part in _parts(block)]
        told = [_piece(response, [part], is_last=False) for part in parts + list(map(_waiting, response.unanswered))]
        told.append(_piece(response, [], is_last=True))
        return [b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in told]

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": "SOME_ERROR"}}

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        settings = body.get("generationConfig", {})
        calling = body.get("toolConfig", {}).get("functionCallingConfig", {"mode": "AUTO"})
        named = calling.get("allowedFunctionNames")
        schema = settings.get("responseJsonSchema")
        system: list[Message] = [
            SystemMessage(part["text"]) for part in body.get("systemInstruction", {}).get("parts", ())
        ]
        declared = [tool for entry in body.get("tools", ()) for tool in entry["functionDeclarations"]]
        return ChatRequest(
            messages=system + [message for turn in body["contents"] for message in _messages(turn)],
            tools=[
                ToolDefinition(name=tool["name"], description=tool["description"], parameters=tool["parameters"])
                for tool in declared
            ],
            tool_choice=named[0] if named else _CHOICES[calling["mode"]],
            max_tokens=settings.get("maxOutputTokens"),
            response_format=None if schema is None else ResponseFormat(schema),
        )


def _piece(response: ChatResponse, parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    usage = response.usage
    thought = usage.reasoning_tokens or 0
    piece = {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": parts},
                **({"finishReason": _FINISH[response.stop_reason]} if is_last else {}),
            }
        ],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - thought,
            "totalTokenCount": usage.total_tokens,
            **({"cachedContentTokenCount": usage.cache_read_tokens} if usage.cache_read_tokens else {}),
            **({"thoughtsTokenCount": thought} if thought else {}),
        },
        "modelVersion": response.model,
        "responseId": "resp_1",
    }
    if not response.unanswered:  # no kind of which the SDK knows
        GenerateContentResponse.model_validate(piece)
    return piece


def _waiting(item: UnansweredItem) -> dict[str, Any]:
    if item.kind == "executableCode":
        return {item.kind: {"id": item.id, "language": "PYTHON", "code": "1"}}
    return {item.kind: {"id": item.id, "name": item.name}}


def _part(block: AssistantContent) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ReasoningBlock():
            return {"text": block.text, "thought": True, "thoughtSignature": block.signature}
        case ToolCall():
            return {"functionCall": {"id": block.id, "name": block.name, "args": json.loads(block.arguments)}}
        case _:
            raise AssertionError(f"the suite says no {block.type}")


def _parts(block: AssistantContent) -> list[dict[str, Any]]:
    """The parts that a block is streamed in: calls come whole."""
    return [{"text": word} for word in words(block.text)] if isinstance(block, TextBlock) else [_part(block)]


def _messages(turn: dict[str, Any]) -> Iterator[Message]:
    if turn["role"] == "model":
        yield AssistantMessage([_said(part) for part in turn["parts"]])
        return
    for part in turn["parts"]:
        if answered := part.get("functionResponse"):
            told = answered["response"]
            yield ToolResult(answered["id"], told.get("error", told.get("output")), is_error="error" in told)
    if others := tuple([_shown(part) for part in turn["parts"] if "functionResponse" not in part]):
        yield UserMessage(others)


def _said(part: dict[str, Any]) -> AssistantContent:
    if call := part.get("functionCall"):
        return ToolCall(call["id"], call["name"], json.dumps(call["args"]))
    return ReasoningBlock(text=part["text"]) if part.get("thought") else TextBlock(part["text"])


def _shown(part: dict[str, Any]) -> ContentBlock:
    if data := part.get("inlineData"):
        return ImageBlock(b64decode(data["data"]), media_type=data["mimeType"])
    return TextBlock(part["text"])
