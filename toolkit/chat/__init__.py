"""The words spoken with a model: pure data, no I/O."""

from toolkit.chat.content import (
    AssistantContent,
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCall,
)
from toolkit.chat.definition import ToolDefinition, openai_strict
from toolkit.chat.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResult,
    UserMessage,
    dump_messages,
    load_messages,
    text_of,
)
from toolkit.chat.provider import Provider
from toolkit.chat.request import ChatRequest, ChatResponse, ResponseFormat, StopReason, UnansweredItem, Usage
from toolkit.chat.stream import ArgumentsDelta, ReasoningDelta, ResponseDone, Stamped, StreamEvent, TextDelta
from toolkit.chat.transcript import call_ids_of, repair_call_ids, repair_transcript, validate_transcript

__all__ = [
    "ArgumentsDelta",
    "AssistantContent",
    "AssistantMessage",
    "AudioBlock",
    "ChatRequest",
    "ChatResponse",
    "ContentBlock",
    "FileBlock",
    "ImageBlock",
    "Message",
    "Provider",
    "ReasoningBlock",
    "ReasoningDelta",
    "ResponseDone",
    "ResponseFormat",
    "Stamped",
    "StopReason",
    "StreamEvent",
    "SystemMessage",
    "TextBlock",
    "TextDelta",
    "ToolCall",
    "ToolDefinition",
    "ToolResult",
    "UnansweredItem",
    "Usage",
    "UserMessage",
    "call_ids_of",
    "dump_messages",
    "load_messages",
    "openai_strict",
    "repair_call_ids",
    "repair_transcript",
    "text_of",
    "validate_transcript",
]
