"""Stand-ins for a model's answer in tests, made into a whole answer, and into the pieces of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    ReasoningBlock,
    ReasoningDelta,
    ResponseDone,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    Usage,
)
from toolkit.chat.provider import events_of
from toolkit.errors import ConfigurationError

__all__ = ["FixedReply", "frozen", "in_words", "put_together", "make_response"]

FixedReply: TypeAlias = str | ToolCall | AssistantMessage | ChatResponse | Exception
"""A text, a call, a message, a whole response, or an error to raise."""


def frozen(request: ChatRequest) -> ChatRequest:
    """Return the request with its messages as they are now: a loop's list goes on growing."""
    return replace(request, messages=tuple(request.messages))


def make_response(reply: object, *, model: str) -> ChatResponse:
    """Return a reply as an answer of `model`.

    Raises:
        Exception: The reply is one.
        ConfigurationError: It is nothing that a model could say.
    """
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ChatResponse):
        return reply
    if isinstance(reply, ToolCall):
        reply = AssistantMessage((reply,))
    elif isinstance(reply, str):
        reply = AssistantMessage(reply)
    if not isinstance(reply, AssistantMessage):
        raise ConfigurationError(
            f"a reply can't be of type {type(reply).__qualname__}: give a text, a ToolCall, an AssistantMessage "
            "such as AssistantMessage([call, other_call]), a ChatResponse or an exception"
        )
    return ChatResponse(
        message=reply,
        usage=Usage(input_tokens=10, output_tokens=5),
        stop_reason="tool_use" if reply.tool_calls else "end_turn",
        model=model,
    )


def in_words(response: ChatResponse) -> Iterator[list[StreamEvent]]:
    """Yield the events of each block together, text word by word; the last event is the whole answer."""
    for event in events_of(response):
        if isinstance(event, TextDelta):
            yield [TextDelta(word) for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", event.text)]
        else:
            yield [event]


def put_together(events: Iterable[StreamEvent], *, model: str) -> ChatResponse:
    """Return the answer that a stream has given: its last event, or what its deltas say together."""
    spoken: list[tuple[type[TextBlock | ReasoningBlock], list[str]]] = []
    calls: dict[int, list[ArgumentsDelta]] = {}
    for event in events:
        match event:
            case TextDelta(text):
                _find_pieces(spoken, TextBlock).append(text)
            case ReasoningDelta(text):
                _find_pieces(spoken, ReasoningBlock).append(text)
            case ArgumentsDelta(index):
                calls.setdefault(index, []).append(event)
            case ResponseDone(response):
                return response
    content: list[AssistantContent] = [kind(text="".join(pieces)) for kind, pieces in spoken]
    content.extend([_join_call(calls[index]) for index in sorted(calls)])
    return make_response(AssistantMessage(content), model=model)


def _find_pieces(
    spoken: list[tuple[type[TextBlock | ReasoningBlock], list[str]]], kind: type[TextBlock | ReasoningBlock]
) -> list[str]:
    if not spoken or spoken[-1][0] is not kind:
        spoken.append((kind, []))
    return spoken[-1][1]


def _join_call(pieces: list[ArgumentsDelta]) -> ToolCall:
    call_id = next((piece.call_id for piece in pieces if piece.call_id), "")
    name = next((piece.tool_name for piece in pieces if piece.tool_name), "")
    return ToolCall(call_id, name, "".join([piece.text for piece in pieces]))
