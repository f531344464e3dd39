"""Providers that need no model: one plays replies from a list, one calls a function."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from inspect import isawaitable
from typing import TypeAlias

import anyio.lowlevel

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

__all__ = [
    "FixedReply",
    "frozen",
    "FunctionProvider",
    "in_words",
    "make_response",
    "ModelFunction",
    "put_together",
    "ScriptedProvider",
    "ScriptedReply",
]


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


ModelFunction: TypeAlias = Callable[
    [ChatRequest], FixedReply | Awaitable[FixedReply] | AsyncIterator[StreamEvent | str]
]
"""The answer to a request: a reply, now or later, or an async generator of events, where a text is a `TextDelta`."""

_MODEL = "function"


class FunctionProvider:
    """Answers each request with what a function makes of it.

    ::

        def model(request: ChatRequest) -> str | ToolCall:
            last = request.messages[-1]
            return last.text if isinstance(last, ToolResult) else ToolCall("1", "add", '{"a": 1, "b": 2}')

        provider = FunctionProvider(model)

    An async generator is for streams: what it yields is passed on as it comes, and the whole answer is put together
    from that unless it ends with a `ResponseDone` of its own. Whatever else the function gives is streamed word by
    word.
    An exception that it raises is the provider's.

    Args:
        function: Gets the request; called once for each.

    Attributes:
        requests: The requests, with the transcript as it was then.
    """

    def __init__(self, function: ModelFunction) -> None:
        self._function = function
        self.requests: list[ChatRequest] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return what the function says."""
        async with aclosing(self.stream(request)) as events:
            return put_together([event async for event in events], model=_MODEL)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield what the function says, piece by piece."""
        self.requests.append(frozen(request))
        await anyio.lowlevel.checkpoint()
        given = self._function(request)
        if isinstance(given, AsyncIterator):
            async with aclosing(_pass_on_events(given)) as passed_on:
                async for event in passed_on:
                    yield event
            return
        response = make_response(await given if isawaitable(given) else given, model=_MODEL)
        for events in in_words(response):
            await anyio.lowlevel.checkpoint()
            for event in events:
                yield event


async def _pass_on_events(given: AsyncIterator[StreamEvent | str]) -> AsyncGenerator[StreamEvent]:
    """The events of a generator, which is closed however this ends, and the last one where it left that out."""
    events: list[StreamEvent] = []
    try:
        async for item in given:
            event = TextDelta(item) if isinstance(item, str) else item
            events.append(event)
            yield event
            if isinstance(event, ResponseDone):
                return
        yield ResponseDone(put_together(events, model=_MODEL))
    finally:
        if isinstance(given, AsyncGenerator):
            await given.aclose()
