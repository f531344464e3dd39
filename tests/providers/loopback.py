"""What a loopback server says in chat completions."""

import json
from typing import Any

from toolkit.testing.loopback import Answer, Hang, Server, closed_port, serving

__all__ = ["Answer", "Hang", "Server", "chunk", "closed_port", "completion", "events", "serving"]


def completion(
    content: Any = "Hello.", *, finish_reason: str | None = "stop", usage: Any = None, **message: Any
) -> dict[str, Any]:
    """The body of a whole answer."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "test-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": usage or {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def chunk(delta: dict[str, Any] | None = None, *, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """One piece of a streamed answer."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "test-1",
        "choices": choices,
        **fields,
    }


def events(*chunks: dict[str, Any], is_done: bool = True) -> list[bytes]:
    """The event stream of these chunks, one piece each."""
    pieces = [b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in chunks]
    return [*pieces, b"data: [DONE]\n\n"] if is_done else pieces
