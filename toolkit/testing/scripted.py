"""Providers that need no model: one plays replies from a list."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import anyio.lowlevel

from toolkit.chat import (
    ArgumentsDelta,
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
from toolkit.errors import ConfigurationError

__all__ = ["ScriptedProvider", "ScriptedReply"]

ScriptedReply: TypeAlias = (
    str | ToolCall | AssistantMessage | ChatResponse | Exception | Callable[[ChatRequest], object]
)
"""A text, a call, a message, a whole response, an error to raise, or a function of the request that gives one."""


class ScriptedProvider:
    """Plays replies in order; the same loop runs with it as with a real model.

    ::

        provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])

    Streaming gives each reply word by word.

    Args:
        replies: What to answer, one a request. Several calls in one reply are an `AssistantMessage`.
        repeats: Whether it starts again after the last reply; otherwise one more request is an error.

    Attributes:
        requests: What was asked, with the transcript as it was then.
    """

    def __init__(self, replies: Iterable[ScriptedReply], *, repeats: bool = False) -> None:
        self._replies = list(replies)
        self._repeats = repeats
        self._position = 0
        self.requests: list[ChatRequest] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the next reply.

        Raises:
            ConfigurationError: The script is over.
        """
        await anyio.lowlevel.checkpoint()
        return self._next(request)

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the next reply in pieces."""
        response = self._next(request)
        position = 0
        for block in response.message.content:
            await anyio.lowlevel.checkpoint()
            if isinstance(block, TextBlock):
                for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", block.text):
                    yield TextDelta(word)
            elif isinstance(block, ReasoningBlock):
                yield ReasoningDelta(block.text)
            elif isinstance(block, ToolCall):
                yield ArgumentsDelta(position, block.id, block.name, block.arguments)
                position += 1
        yield ResponseDone(response)

    def _next(self, request: ChatRequest) -> ChatResponse:
        # The request's messages are the loop's live list.
        self.requests.append(_frozen(request))
        if self._position == len(self._replies):
            if not self._repeats or not self._replies:
                raise ConfigurationError(
                    f"the script has {len(self._replies)} replies, and this is request {len(self.requests)}"
                )
            self._position = 0
        reply: object = self._replies[self._position]
        self._position += 1
        while callable(reply):
            reply = reply(request)
        return _response(reply)


def _frozen(request: ChatRequest) -> ChatRequest:
    return replace(request, messages=tuple(request.messages))


def _response(reply: object) -> ChatResponse:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ChatResponse):
        return reply
    if isinstance(reply, ToolCall):
        reply = AssistantMessage((reply,))
    elif isinstance(reply, str):
        reply = AssistantMessage(reply)
    if not isinstance(reply, AssistantMessage):
        raise ConfigurationError(f"a scripted reply can't be a {type(reply).__qualname__}")
    return ChatResponse(
        message=reply,
        usage=Usage(input_tokens=10, output_tokens=5),
        stop_reason="tool_use" if reply.tool_calls else "end_turn",
        model="scripted",
    )
