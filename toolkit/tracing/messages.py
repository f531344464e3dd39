"""Messages and tools in the JSON of the conventions, without anything that looks like a secret."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
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
from toolkit.schema.nodes import is_array, is_object
from toolkit.secrets import Scrubber

__all__ = ["describe_arguments", "describe_instructions", "describe_messages", "describe_text", "describe_tools"]

_SCRUBBER = Scrubber()


def describe_messages(messages: Sequence[Message], finish_reason: str | None = None) -> str:
    """Return messages as JSON; system messages are left out.

    Args:
        messages: The messages.
        finish_reason: Why the model stopped, for those that it said.
    """
    described = [_describe_said(message) for message in messages if not isinstance(message, SystemMessage)]
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


def _describe_said(message: Message) -> dict[str, Any]:
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
