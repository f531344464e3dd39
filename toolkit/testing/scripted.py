"""A provider that needs no model: it plays replies from a list."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeAlias

import anyio.lowlevel

from toolkit.chat import ChatRequest, ChatResponse, StreamEvent
from toolkit.errors import ConfigurationError
from toolkit.testing.replies import FixedReply, frozen, in_words, make_response

__all__ = ["ScriptedProvider", "ScriptedReply"]

ScriptedReply: TypeAlias = FixedReply | Callable[[ChatRequest], object]
"""A text, a call, a message, a whole response, an error to raise, or a function of the request that gives one."""


class ScriptedProvider:
    """Plays replies in order; the same loop runs with it as with a real model.

    ::

        provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])

    Streaming gives each reply word by word.

    Args:
        replies: The replies, one a request. Several calls in one reply are an `AssistantMessage`.
        repeats: True where it starts again after the last reply; otherwise one more request is an error.

    Attributes:
        requests: The requests, with the transcript as it was then.
    """

    def __init__(self, replies: Iterable[ScriptedReply], *, repeats: bool = False) -> None:
        if isinstance(replies, str):
            raise ConfigurationError(f"a script is a list of replies, such as [{replies!r}], and not one text")
        self._replies = list(replies)
        self._repeats = repeats
        self._position = 0
        self.requests: list[ChatRequest] = []

    @property
    def tells_cost(self) -> bool:
        """True where a response of the script says what it costs, or a function may."""
        return any(
            callable(reply) or (isinstance(reply, ChatResponse) and reply.usage.cost is not None)
            for reply in self._replies
        )

    @property
    def unplayed(self) -> int:
        """The number of replies that nobody has asked for yet."""
        return len(self._replies) - self._position

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the next reply.

        Raises:
            ConfigurationError: The script is over.
        """
        await anyio.lowlevel.checkpoint()
        return self._play_next(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the next reply in pieces."""
        response = self._play_next(request)
        for events in in_words(response):
            await anyio.lowlevel.checkpoint()
            for event in events:
                yield event

    def _play_next(self, request: ChatRequest) -> ChatResponse:
        # The request's messages are the loop's live list.
        self.requests.append(frozen(request))
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
        return make_response(reply, model="scripted")
