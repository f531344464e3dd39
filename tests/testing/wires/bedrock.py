"""How Bedrock words Converse, and how it reads it, each way checked against botocore's model of the service."""

import json
import struct
from base64 import b64decode
from binascii import crc32
from collections.abc import Sequence
from functools import cache
from typing import Any

from botocore.session import Session
from botocore.validate import ParamValidator

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
)
from toolkit.providers.bedrock import BedrockProvider
from toolkit.testing.conformance import KEY, Features
from toolkit.testing.loopback import Server

__all__ = ["ConverseWire", "check_shape", "frame"]

_STOP = {"content_filter": "content_filtered"}


@cache
def _service() -> Any:
    return Session().get_service_model("bedrock-runtime")


def check_shape(name: str, value: dict[str, Any], *, is_output: bool = False) -> None:
    """Fail where a value is not of a shape of the service."""
    operation = _service().operation_model(name)
    report = ParamValidator().validate(value, operation.output_shape if is_output else operation.input_shape)
    assert not report.has_errors(), report.generate_report()


def frame(kind: str, payload: dict[str, Any], *, message_type: str = "event") -> bytes:
    """A frame of an event stream."""
    headers = b""
    for name, value in {f":{message_type}-type": kind, ":message-type": message_type}.items():
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    whole = prelude + struct.pack("!I", crc32(prelude)) + headers + body
    return whole + struct.pack("!I", crc32(whole))


class ConverseWire:
    def __init__(self) -> None:
        self.features = Features(
            tool_choices=frozenset({"auto", "required", "one"}),
            stop_reasons=frozenset({"end_turn", "tool_use", "max_tokens", "stop_sequence", "content_filter"}),
            usage=frozenset({"cache_read_tokens", "cache_write_tokens"}),
            parallel_switch=False,
        )

    def provider(self, server: Server) -> Provider:
        return BedrockProvider("conformance-1", base_url=server.root, api_key=KEY)

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        content = [_block(block) for block in response.message.content]
        body = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _STOP.get(response.stop_reason, response.stop_reason),
            "usage": _usage(response),
            "metrics": {"latencyMs": 1},
        }
        check_shape("Converse", body, is_output=True)
        return body

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        frames = [frame("messageStart", {"role": "assistant"})]
        for index, block in enumerate(response.message.content):
            if isinstance(block, ToolCall):
                start = {"toolUse": {"toolUseId": block.id, "name": block.name}}
                frames.append(frame("contentBlockStart", {"start": start, "contentBlockIndex": index}))
            for delta in _deltas(block):
                frames.append(frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": index}))
            frames.append(frame("contentBlockStop", {"contentBlockIndex": index}))
        frames.append(frame("messageStop", {"stopReason": _STOP.get(response.stop_reason, response.stop_reason)}))
        frames.append(frame("metadata", {"usage": _usage(response), "metrics": {"latencyMs": 1}}))
        return frames

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        return {"message": message}

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        check_shape("Converse", {"modelId": "conformance-1", **body})
        config = body.get("toolConfig", {})
        choice = config.get("toolChoice", {"auto": {}})
        output = body.get("outputConfig", {}).get("textFormat")
        schema = None if output is None else output["structure"]["jsonSchema"]
        specs = [tool["toolSpec"] for tool in config.get("tools", ())]
        messages: list[Message] = [SystemMessage(part["text"]) for part in body.get("system", ())]
        for message in body["messages"]:
            messages += _messages(message["role"], message["content"])
        return ChatRequest(
            messages=messages,
            tools=[
                ToolDefinition(
                    name=spec["name"], description=spec["description"], parameters=spec["inputSchema"]["json"]
                )
                for spec in specs
            ],
            tool_choice="auto" if "auto" in choice else "required" if "any" in choice else choice["tool"]["name"],
            max_tokens=body.get("inferenceConfig", {}).get("maxTokens"),
            response_format=None if schema is None else ResponseFormat(json.loads(schema["schema"]), schema["name"]),
        )


def _usage(response: ChatResponse) -> dict[str, Any]:
    usage = response.usage
    read, wrote = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    told = {"inputTokens": usage.input_tokens - read - wrote, "outputTokens": usage.output_tokens}
    told |= {"totalTokens": usage.total_tokens}
    return told | ({"cacheReadInputTokens": read, "cacheWriteInputTokens": wrote} if read or wrote else {})


def _block(block: AssistantContent) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ToolCall():
            return {"toolUse": {"toolUseId": block.id, "name": block.name, "input": json.loads(block.arguments)}}
        case ReasoningBlock():
            return {"reasoningContent": {"reasoningText": {"text": block.text, "signature": block.signature}}}
        case _:
            raise AssertionError(block)


def _deltas(block: AssistantContent) -> list[dict[str, Any]]:
    match block:
        case TextBlock():
            return [{"text": word} for word in words(block.text)]
        case ToolCall():
            middle = len(block.arguments) // 2
            return [{"toolUse": {"input": text}} for text in (block.arguments[:middle], block.arguments[middle:])]
        case ReasoningBlock():
            told = [{"reasoningContent": {"text": word}} for word in words(block.text)]
            return [*told, {"reasoningContent": {"signature": block.signature}}]
        case _:
            raise AssertionError(block)


def _messages(role: str, content: list[dict[str, Any]]) -> list[Message]:
    results: list[Message] = [_result(block["toolResult"]) for block in content if "toolResult" in block]
    rest = [block for block in content if "toolResult" not in block]
    if role == "assistant":
        return [AssistantMessage([_said(block) for block in rest])]
    return [*results, *([UserMessage(tuple(map(_part, rest)))] if rest else [])]


def _result(result: dict[str, Any]) -> ToolResult:
    text = "\n".join(part["text"] for part in result["content"])
    return ToolResult(result["toolUseId"], text, is_error=result.get("status") == "error")


def _said(block: dict[str, Any]) -> AssistantContent:
    if call := block.get("toolUse"):
        return ToolCall(call["toolUseId"], call["name"], json.dumps(call["input"]))
    if thought := block.get("reasoningContent"):
        return ReasoningBlock(text=thought["reasoningText"]["text"], signature=thought["reasoningText"]["signature"])
    return TextBlock(block["text"])


def _part(block: dict[str, Any]) -> ContentBlock:
    if image := block.get("image"):
        return ImageBlock(b64decode(image["source"]["bytes"]), media_type=f"image/{image['format']}")
    return TextBlock(block["text"])
