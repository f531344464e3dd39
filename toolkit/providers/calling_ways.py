"""Providers whose models are asked for calls in another way than their server's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from toolkit.chat import ChatRequest, ChatResponse, Provider, StreamEvent
from toolkit.chat.provider import ProviderWrapper

if TYPE_CHECKING:
    from toolkit.parsing.families import CallingWay

__all__ = ["CallingChoice", "ask_in_way", "find_best_way", "wrap_provider"]

CallingChoice: TypeAlias = Literal["auto", "native", "text", "guided"]
"""A way to ask a model for calls; ``auto`` is the one that is best as far as its name or file tells."""


def find_best_way(model: str) -> CallingWay:
    """Return the best way for a model of that name."""
    from toolkit.parsing.calling_advice import advise_calling  # noqa: PLC0415 - few programs ask for it

    return advise_calling(model).way


def ask_in_way(provider: Provider, way: str | None, model: str) -> Provider:
    """Return a provider that asks another one in a way; that one itself where nothing is to do."""
    if way == "text":
        from toolkit.parsing.provider import TextToolProvider  # noqa: PLC0415 - few programs ask for it

        return TextToolProvider(provider, model=model)
    if way == "guided":
        from toolkit.guided import GuidedProvider  # noqa: PLC0415 - few programs ask for it

        return provider if isinstance(provider, GuidedProvider) else GuidedProvider(provider)
    return provider


def wrap_provider(provider: Any, way: str | None, model: str) -> Any:
    """Do what `ask_in_way` does, and have the provider closed with what it is wrapped in."""
    wrapper = ask_in_way(provider, way, model)
    return provider if wrapper is provider else _ClosingWrapper(wrapper, provider)


class _ClosingWrapper(ProviderWrapper):
    """A wrapped provider that is closed with its wrapper: nobody else knows it."""

    def __init__(self, wrapper: Provider, wrapped: Any) -> None:
        super().__init__(wrapper)
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return repr(self._provider)

    async def __aenter__(self) -> Self:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._wrapped.__aexit__(exception_type, exception, traceback)

    async def aclose(self) -> None:
        """Close the connections of the provider within."""
        await self._wrapped.aclose()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer."""
        return await self._provider.generate(request)

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Return the answer as it comes."""
        return self._provider.stream(request)
