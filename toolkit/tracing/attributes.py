"""The attributes of spans: requests, replies and costs, and messages and tools without secrets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ChatResponse,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
)
from toolkit.loop.middleware import RequestInfo
from toolkit.schema.nodes import is_array, is_object
from toolkit.secrets import Scrubber
from toolkit.tracing import conventions as names

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from toolkit.loop.outcome import ToolLoopResult

__all__ = [
    "describe_arguments",
    "describe_chat",
    "describe_instructions",
    "describe_messages",
    "describe_reply",
    "describe_run",
    "describe_text",
    "describe_tools",
]


def describe_chat(request: RequestInfo[object]) -> dict[str, AttributeValue]:
    """Return the attributes of a request to a model."""
    chat = request.chat
    given: dict[str, AttributeValue | None] = {
        names.TURN: request.iteration,
        names.IS_STREAMED: True if request.is_streamed else None,
        names.REQUEST_ATTEMPT: request.attempt if request.attempt > 1 else None,
        names.TEMPERATURE: chat.temperature,
        names.MAX_TOKENS: chat.max_tokens,
        names.SEED: chat.seed,
        names.STOP_SEQUENCES: chat.stop or None,
        names.REASONING_LEVEL: chat.reasoning_effort,
        names.OUTPUT_TYPE: None if chat.response_format is None else "json",
    }
    return {name: value for name, value in given.items() if value is not None}


def describe_reply(response: ChatResponse) -> dict[str, AttributeValue]:
    """Return the attributes of a reply and its cost."""
    usage = response.usage
    given: dict[str, AttributeValue | None] = {
        names.RESPONSE_MODEL: response.model or None,
        names.RESPONSE_ID: response.request_id,
        names.FINISH_REASONS: (names.STOP_REASONS.get(response.stop_reason, response.stop_reason),),
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cache_read_tokens,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
        names.COST: usage.cost,
    }
    return {name: value for name, value in given.items() if value is not None}


def describe_run(result: ToolLoopResult[Any]) -> dict[str, AttributeValue]:
    """Return the usage of a run, with that of the runs inside its tools."""
    usage = result.usage
    given: dict[str, AttributeValue | None] = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.COST: usage.cost,
    }
    return {name: value for name, value in given.items() if value is not None}


_SCRUBBER = Scrubber()


def describe_messages(messages: Sequence[Message], finish_reason: str | None = None) -> str:
    """Return messages as JSON; system messages are left out.

    Args:
        messages: The messages.
        finish_reason: The reason why the model stopped, for its own messages.
    """
    described = [_describe_message(message) for message in messages if not isinstance(message, SystemMessage)]
    if finish_reason is not None:
        described = [{**message, "finish_reason": finish_reason} for message in described]
    return _write_clean_json(described)


def describe_instructions(messages: Sequence[Message]) -> str | None:
    """Return the system messages as JSON, or None where there are none."""
    parts = [
        part for message in messages if isinstance(message, SystemMessage) for part in _describe_message_parts(message)
    ]
    return _write_clean_json(parts) if parts else None


def describe_tools(tools: Sequence[ToolDefinition]) -> str:
    """Return the tools that a model was offered as JSON: their names alone, as the conventions advise."""
    return _write_clean_json([{"type": "function", "name": tool.name} for tool in tools])


def describe_arguments(text: str) -> str:
    """Return the JSON of a call's arguments without secrets."""
    # Under that name, whose fields are searched by their own names, too.
    cleaned = _SCRUBBER({"arguments": _read_json(text)})
    return _write_attribute(cleaned["arguments"])


def describe_text(text: str) -> str:
    """Return a text without secrets."""
    cleaned: str = _SCRUBBER(text)
    return cleaned


def _describe_message(message: Message) -> dict[str, Any]:
    if not isinstance(message, ToolResult):
        return {"role": message.role, "parts": _describe_message_parts(message)}
    response = {"type": "tool_call_response", "id": message.call_id, "response": message.text}
    blocks = [_describe_part(block) for block in _list_result_blocks(message) if not isinstance(block, TextBlock)]
    return {"role": "tool", "parts": [response, *blocks]}


def _describe_message_parts(message: UserMessage | SystemMessage | AssistantMessage) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"type": "text", "content": message.content}]
    return [_describe_part(block) for block in message.content]


def _list_result_blocks(message: ToolResult) -> Sequence[ContentBlock]:
    return () if isinstance(message.content, str) else message.content


def _describe_part(block: ContentBlock | ReasoningBlock | ToolCall) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ReasoningBlock():
            return {"type": "reasoning", "content": block.text}
        case ToolCall():
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": _read_json(block.arguments)}
        case ImageBlock() | FileBlock() if block.url is not None:
            return {"type": "uri", "modality": block.type, "mime_type": block.media_type, "uri": block.url}
        case ImageBlock() | FileBlock() | AudioBlock():
            # Bytes are as large as their file is, and no page that shows traces shows them.
            size = len(block.data or b"")
            return {"type": "blob", "modality": block.type, "mime_type": block.media_type, "size": size}
        case _:
            assert_never(block)


def _read_json(text: str) -> Any:
    try:
        return _clean_names(json.loads(text or "{}"))
    except ValueError:
        return text


def _write_clean_json(value: object) -> str:
    return _write_attribute(_SCRUBBER(value))


def _write_attribute(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _clean_names(value: Any) -> Any:
    """Return JSON values without secrets in the names of fields, which a model may have made of anything."""
    if is_object(value):
        return {describe_text(name): _clean_names(each) for name, each in value.items()}
    return [_clean_names(each) for each in value] if is_array(value) else value
