"""A provider that asks another one when the first can't answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable

from toolkit.chat import ChatRequest, ChatResponse, Provider, StreamEvent
from toolkit.chat.provider import closing
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.secrets import without_keys
from toolkit.settings import describe_value

__all__ = ["FallbackProvider"]

_logger = logging.getLogger("toolkit.providers")


def _is_worth_another(error: ProviderError) -> bool:
    return error.is_retryable


class FallbackProvider:
    """Asks the providers in order until one answers; each request begins with the first.

    ::

        provider = FallbackProvider(AnthropicProvider("claude-sonnet-4-5"), OpenAIProvider("gpt-5"))

    Another one is asked only before the first token: a stream that breaks off in the middle is an error, because what
    has been told can't be taken back. The error of the last one asked is the one that is raised, with the others as
    notes. Closing the providers stays with who made them.

    Args:
        providers: At least one.
        when: A function of an error that says whether the next one is asked; the default asks it after retryable ones.

    Raises:
        ConfigurationError: There is no provider, or what is none.
    """

    def __init__(self, *providers: Provider, when: Callable[[ProviderError], bool] = _is_worth_another) -> None:
        if not providers:
            raise ConfigurationError("a FallbackProvider needs at least one provider, mostly two")
        for provider in providers:
            if not hasattr(provider, "stream"):
                raise ConfigurationError(
                    "a FallbackProvider takes its providers one by one, as in FallbackProvider(a, b), "
                    f"not {describe_value(provider)}"
                )
        self._providers = providers
        self._when = when

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._providers))})"

    @property
    def model(self) -> str:
        """The names of the models, with commas between."""
        return ",".join([str(getattr(provider, "model", "")) for provider in self._providers])

    @property
    def tells_cost(self) -> bool:
        """True where answers may say what they cost, as far as is known."""
        return all(getattr(provider, "tells_cost", True) for provider in self._providers)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the first answer.

        Raises:
            ProviderError: None could answer, or what went wrong would go wrong elsewhere too.
        """
        failed: list[ProviderError] = []
        for provider in self._providers:
            try:
                return await provider.generate(request)
            except ProviderError as error:
                self._take_failure(error, failed)
        raise AssertionError("the last provider answers or raises")

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the first answer as it comes.

        Raises:
            ProviderError: As for `generate`, or the stream broke off after its first event.
        """
        failed: list[ProviderError] = []
        for provider in self._providers:
            has_begun = False
            try:
                async with closing(provider.stream(request)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
            except ProviderError as error:
                if has_begun:
                    raise
                self._take_failure(error, failed)
            else:
                return

    def _take_failure(self, error: ProviderError, failed: list[ProviderError]) -> None:
        """Go on to the next provider, or raise the error where there is none or it would not help."""
        if len(failed) == len(self._providers) - 1 or not self._when(error):
            for earlier in failed:
                error.add_note(f"asked before: {earlier}")
            raise error
        _logger.warning("%s; asking the next provider", without_keys(str(error)))
        failed.append(error)
