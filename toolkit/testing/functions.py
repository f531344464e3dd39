"""A provider that needs no model: it asks a function."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from inspect import isawaitable
from typing import TypeAlias

import anyio.lowlevel

from toolkit.chat import ChatRequest, ChatResponse, ResponseDone, StreamEvent, TextDelta
from toolkit.testing.replies import FixedReply, frozen, in_words, make_response, put_together

__all__ = ["FunctionProvider", "ModelFunction"]

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
