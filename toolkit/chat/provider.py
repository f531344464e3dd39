"""The protocol of what talks to a model, and the base of providers that ask another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from toolkit.chat.request import ChatRequest, ChatResponse
from toolkit.chat.stream import StreamEvent

__all__ = ["Provider", "ProviderWrapper", "closing"]


class Provider(Protocol):
    """Talks to one model.

    Both methods raise `toolkit.ProviderError` or a subclass for whatever goes wrong outside this process, and let
    cancellation pass, closing what they opened. Neither changes the request nor keeps a reference to the list of its
    messages, which may be a live one; a message itself is not changed once it is made, and may be kept.
    """

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the answer as it comes: deltas, then exactly one `ResponseDone`, last.

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
    def tells_cost(self) -> bool:
        """True where answers may say what they cost, as far as is known."""
        return bool(getattr(self._provider, "tells_cost", True))


@asynccontextmanager
async def closing(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    """Give a provider's stream, and close it however the block is left, where it can be closed."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
