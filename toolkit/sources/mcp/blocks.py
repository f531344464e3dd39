"""Contents, results and prompts of MCP as blocks, outputs and messages of this library."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, assert_never

import mcp.types as wire

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    TextBlock,
    UserMessage,
)
from toolkit.chat.output import ToolOutput

__all__ = ["read_block", "read_prompt", "read_result", "read_resource_contents"]


def read_result(result: wire.CallToolResult) -> ToolOutput:
    """Return the result of a call: its content; what is structured goes to `details`, and stands in for no content.

    A server should say what is structured as text, too; where it has not, the model reads the JSON.
    """
    blocks = [block for item in result.content for block in read_block(item)]
    structured: object = result.structured_content
    if structured is not None and not any(isinstance(block, TextBlock) for block in blocks):
        blocks.append(TextBlock(json.dumps(structured, ensure_ascii=False)))
    content: str | tuple[ContentBlock, ...] = tuple(blocks)
    if all(isinstance(block, TextBlock) for block in blocks):
        content = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
    if result.is_error:
        return ToolOutput(content or "The server says that the tool failed, and not why.", is_error=True)
    return ToolOutput(content or "(no output)", details=structured)


def read_block(item: wire.ContentBlock) -> list[ContentBlock]:
    """Return one block of MCP's as blocks."""
    match item:
        case wire.TextContent():
            return [TextBlock(item.text)]
        case wire.ImageContent():
            data = _decode_base64(item.data)
            if data is None:
                return [TextBlock("(An image that is no base64.)")]
            return [ImageBlock(data, media_type=item.mime_type)]
        case wire.AudioContent():
            data = _decode_base64(item.data)
            if data is None:
                return [TextBlock("(A sound that is no base64.)")]
            return [AudioBlock(data, media_type=item.mime_type)]
        case wire.ResourceLink():
            about = f": {item.description}" if item.description else ""
            kind = f", {item.mime_type}" if item.mime_type else ""
            return [TextBlock(f"[{item.title or item.name}]({item.uri}{kind}){about}")]
        case wire.EmbeddedResource():
            return [read_resource_contents(item.resource)]
        case _ as never:
            assert_never(never)


def read_resource_contents(resource: wire.TextResourceContents | wire.BlobResourceContents) -> ContentBlock:
    """Return the content of a resource: text as text, else an image, a sound or a file."""
    if isinstance(resource, wire.TextResourceContents):
        return TextBlock(resource.text)
    data = _decode_base64(resource.blob)
    if data is None:
        return TextBlock(f"({resource.uri} is no base64.)")
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return ImageBlock(data, media_type=kind)
    if kind.startswith("audio/"):
        return AudioBlock(data, media_type=kind)
    return FileBlock(data, name=str(resource.uri).rstrip("/").rpartition("/")[2] or "file", media_type=kind)


def read_prompt(result: wire.GetPromptResult) -> list[Message]:
    """Return the messages of a prompt."""
    messages: list[Message] = []
    for message in result.messages:
        content = tuple(read_block(message.content))
        messages.append(UserMessage(content) if message.role == "user" else AssistantMessage(content))
    return messages


def _decode_base64(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
