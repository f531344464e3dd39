"""The protocol of providers, the events of their streams, and the base of providers that wrap another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Protocol, TypeAlias

from toolkit.chat.messages import ReasoningBlock, TextBlock, ToolCall
from toolkit.chat.request import ChatRequest, ChatResponse
from toolkit.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """The time and the run of an event.

    A loop fills it in, a provider leaves it empty. Two events that differ in nothing else are equal.

    Attributes:
        run_id: The run of the outermost loop, which the loops inside its tools share.
        loop_id: The loop that emits it; `ToolResult.child_loop_id` is that of a loop inside a tool.
        time: Seconds since 1970.
    """

    run_id: str = field(default="", compare=False, repr=False)
    loop_id: str = field(default="", compare=False, repr=False)
    time: float = field(default=0.0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TextDelta(Stamped):
    """Some more text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta(Stamped):
    """Some more reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta(Stamped):
    """Some more of a call's arguments.

    Args:
        index: The place of the call in this reply, from 0.
        call_id: Its id; empty until the provider gave one.
        tool_name: Its tool; empty until the provider gave one.
        text: The next piece of the JSON text; may be empty, for the first sign of a call.
    """

    index: int
    call_id: str
    tool_name: str
    text: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The whole answer, once, last."""

    response: ChatResponse


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta | ResponseDone
"""One item of `Provider.stream`; the last one is always `ResponseDone`."""


def events_of(response: ChatResponse) -> Iterator[StreamEvent]:
    """Yield a whole answer as a stream, each block in one piece."""
    position = 0
    for block in response.message.content:
        if isinstance(block, TextBlock):
            yield TextDelta(block.text)
        elif isinstance(block, ReasoningBlock):
            yield ReasoningDelta(block.text)
        elif isinstance(block, ToolCall):
            yield ArgumentsDelta(position, block.id, block.name, block.arguments)
            position += 1
    yield ResponseDone(response)


class Provider(Protocol):
    """Talks to one model.

    Both methods raise `toolkit.ProviderError` or a subclass for any failure outside this process, and let
    cancellation pass, closing their resources. Neither changes the request nor keeps a reference to the list of its
    messages, which may be a live one; a message itself is immutable, and may be stored.
    """

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the answer as it arrives: deltas, then exactly one `ResponseDone`, last.

        Leaving early closes the connection; where the iterator has ``aclose``, it is called.
        """
        ...


class ProviderWrapper:
    """The base of a provider that asks another one; who made that one closes it, and not this."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._provider!r})"

    @property
    def model(self) -> str:
        """The name of the model that is asked; empty where the provider has none."""
        return str(getattr(self._provider, "model", ""))

    @property
    def reports_cost(self) -> bool:
        """True if answers may report their cost, as far as is known."""
        return bool(getattr(self._provider, "reports_cost", True))


@asynccontextmanager
async def closing(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    """Yield a provider's stream, and close it at the end of the block if it can be closed."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
