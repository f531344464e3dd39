"""Answers as Anthropic and Google give them, whole and streamed, each checked against the vendor's SDK."""

import json
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from pydantic import TypeAdapter

__all__ = [
    "anthropic_message",
    "anthropic_stream",
    "anthropic_text_stream",
    "block_events",
    "gemini_answer",
    "gemini_stream",
]


def anthropic_message(*content: dict[str, Any], stop_reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    """The body of a whole message."""
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "test-1",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
        **fields,
    }
    Message.model_validate(body)
    return body


def block_events(index: int, began: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": began},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_stream(
    *blocks: list[dict[str, Any]],
    stop_reason: str = "end_turn",
    usage: dict[str, Any] | None = None,
    is_complete: bool = True,
    **delta: Any,
) -> list[bytes]:
    """The stream of a message, one event a piece, with a ping in it."""
    began = anthropic_message(usage={"input_tokens": 7, "output_tokens": 1})
    told = [{"type": "message_start", "message": {**began, "stop_reason": None}}]
    for block in blocks:
        told.extend(block)
    if is_complete:
        ended = {"stop_reason": stop_reason, "stop_sequence": None, **delta}
        told.append({"type": "message_delta", "delta": ended, "usage": usage or {"output_tokens": 3}})
        told.append({"type": "message_stop"})
    for event in told:
        TypeAdapter[Any](RawMessageStreamEvent).validate_python(event)
    told.insert(1, {"type": "ping"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in told]


def anthropic_text_stream(*texts: str) -> list[bytes]:
    """The stream of a text."""
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return anthropic_stream(block_events(0, {"type": "text", "text": ""}, *deltas))


def gemini_answer(*parts: dict[str, Any], finish: str | None = "STOP", **candidate: Any) -> dict[str, Any]:
    """The body of a whole answer, or one piece of a streamed one."""
    body = {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": list(parts)},
                **({"finishReason": finish} if finish else {}),
                **candidate,
            }
        ],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10},
        "modelVersion": "test-1",
        "responseId": "resp_1",
    }
    GenerateContentResponse.model_validate(body)
    return body


def gemini_stream(*pieces: dict[str, Any]) -> list[bytes]:
    """The stream of these pieces, with the line ends that Google sends."""
    return [b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces]
