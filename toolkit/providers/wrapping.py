"""Providers round another: a cache of answers, a second one when the first fails, limits on requests and tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, get_args

import anyio.lowlevel

from toolkit.calls.caching import Cache, MemoryCache
from toolkit.chat import (
    Capabilities,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ResponseDone,
    StreamEvent,
    Support,
    Usage,
    dump_messages,
)
from toolkit.chat.provider import (
    ProviderWrapper,
    closing,
    events_of,
    find_capabilities,
    request_to_plain,
    response_from_plain,
    response_to_plain,
)
from toolkit.errors import ConfigurationError, ProviderError, RateLimitedError
from toolkit.json_text import digest_json, write_json
from toolkit.logs import get_logger
from toolkit.loop.budgets import CountedTokens, RequestRate, estimated_tokens
from toolkit.redaction import digest_of, replace_fields
from toolkit.runtime.workers import enter_gate
from toolkit.settings import Duration, check_setting, describe_value, to_seconds

_SUPPORT = get_args(Support)  # the best first
_WHOLE = ("end_turn", "tool_use", "stop_sequence")
_logger = get_logger("toolkit.providers")


def compact_on_server(
    provider: Provider, *, max_chars: int = 400_000
) -> Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]:
    """Return a compaction by the vendor, once a transcript is too long: `OpenAIResponsesProvider`, `AnthropicProvider`.

    ::

        config = ToolLoopConfig(compaction=compact_on_server(provider))

    The instructions stay, and the user's newest message; the vendor's summary is sealed, for this vendor's models
    alone. The usage of its requests is not part of the loop's.

    Args:
        provider: The provider of the loop, or one of the same vendor.
        max_chars: How long a transcript may be, as JSON, before it is compacted.

    Raises:
        ConfigurationError: The provider's vendor compacts nothing.
        ProviderError: From the loop, where the summary can't be had.
    """
    check_setting("max_chars", max_chars, int, least=0)
    compact_by_vendor: Callable[[Sequence[Message]], Awaitable[Sequence[Message]]] | None
    compact_by_vendor = getattr(provider, "compact", None)
    if compact_by_vendor is None:
        raise ConfigurationError(
            f"{type(provider).__name__} has no compaction of its vendor: OpenAIResponsesProvider and AnthropicProvider "
            "have; for others use summarize(provider)"
        )

    async def compact(transcript: Sequence[Message]) -> Sequence[Message]:
        return transcript if len(dump_messages(transcript)) <= max_chars else await compact_by_vendor(transcript)

    return compact


class CachedProvider(ProviderWrapper):
    """Asks the provider once for equal requests, and the cache from then on.

    ::

        provider = CachedProvider(OpenAIProvider("gpt-5"), SqliteCache("answers.db"))

    Requests are equal if their messages, tools, settings and options are; timeouts are ignored. `generate` and `stream`
    share the answers. An answer from the cache has an empty `Usage`, since it cost nothing, and streams each block in
    one piece. Only complete answers are cached: no errors, and no truncated, filtered or refused answers. Answers to
    requests with secrets in their options are cached for this process only. Each lookup serializes the whole request,
    which takes longer the longer its transcript is. The caller closes the provider and the cache.

    Args:
        provider: Answers requests that are not in the cache.
        cache: None is a `MemoryCache` of its own.
        name: Distinguishes the answers of providers that share a cache. None takes the kind of the provider and its
            ``model``; give one where providers differ in more, such as their servers.
    """

    def __init__(self, provider: Provider, cache: Cache | None = None, *, name: str | None = None) -> None:
        super().__init__(provider)
        self._cache = MemoryCache() if cache is None else cache
        self._name = name or f"{type(provider).__qualname__}:{getattr(provider, 'model', '')}"

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the cached answer, or the provider's.

        Raises:
            ConfigurationError: The request holds something, mostly in its options, that JSON can't say.
        """
        key = self._make_key(request)
        response = await self._find_answer(key)
        if response is None:
            response = await self._provider.generate(request)
            await self._keep_answer(key, response)
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the cached answer, or the provider's as it arrives.

        Raises:
            ConfigurationError: As for `generate`.
        """
        key = self._make_key(request)
        response = await self._find_answer(key)
        if response is not None:
            for event in events_of(response):
                yield event
            return
        async with closing(self._provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, ResponseDone):
                    await self._keep_answer(key, event.response)
                yield event

    def _make_key(self, request: ChatRequest) -> str:
        plain = request_to_plain(request)
        if plain.get("options"):
            # From the digest of the whole, a short secret would be found by trying all.
            plain["options"] = replace_fields(plain["options"], digest_of)
        return f"answer:{digest_json({'provider': self._name, **plain})}"

    async def _find_answer(self, key: str) -> ChatResponse | None:
        await anyio.lowlevel.checkpoint()
        text = await self._cache.get(key)
        try:
            return None if text is None else replace(response_from_plain(json.loads(text)), usage=Usage())
        except ValueError:  # of another version, or damaged: a miss is always right
            return None

    async def _keep_answer(self, key: str, response: ChatResponse) -> None:
        if response.stop_reason in _WHOLE:
            await self._cache.set(key, write_json(response_to_plain(response)))


class FallbackProvider:
    """Asks the providers in order until one answers; each request begins with the first.

    ::

        provider = FallbackProvider(AnthropicProvider("claude-sonnet-4-5"), OpenAIProvider("gpt-5"))

    Another one is asked only before the first token: a stream that breaks off in the middle is an error, because what
    has been emitted can't be taken back. The error of the last one is raised, with the others as notes.
    The application closes the providers.

    Args:
        providers: At least one.
        when: A function of an error that says whether the next one is asked; the default asks it after retryable ones.

    Raises:
        ConfigurationError: There is no provider, or one of the objects is not a provider.
    """

    def __init__(
        self, *providers: Provider, when: Callable[[ProviderError], bool] = attrgetter("is_retryable")
    ) -> None:
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

    def capabilities(self, model: str | None = None) -> Capabilities:
        """Return what all of the providers can do: of each, the least."""
        found = [find_capabilities(provider, model) for provider in self._providers]
        least: dict[str, Any] = {
            each.name: max([getattr(row, each.name) for row in found], key=_SUPPORT.index)
            for each in fields(Capabilities)
            if each.name != "source"
        }
        return Capabilities(**least)

    @property
    def name(self) -> str:
        """The names of the providers, separated by commas and without repetitions."""
        names = [_find_name(each) for each in self._providers]
        return ",".join(dict.fromkeys(names))

    @property
    def model(self) -> str:
        """The names of the models, with commas between."""
        return ",".join([str(getattr(provider, "model", "")) for provider in self._providers])

    @property
    def reports_cost(self) -> bool:
        """True if answers may report their cost, as far as is known."""
        return all(getattr(provider, "reports_cost", True) for provider in self._providers)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the first answer.

        Raises:
            ProviderError: None could answer, or what went wrong would go wrong elsewhere too.
        """
        failed: list[ProviderError] = []
        for provider in self._providers:
            try:
                return _name_answer(await provider.generate(request), provider)
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
                        if isinstance(event, ResponseDone):
                            event = ResponseDone(_name_answer(event.response, provider))  # noqa: PLW2901
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
        _logger.warning("%s; asking the next provider", error)
        failed.append(error)


def _find_name(provider: Provider) -> str:
    return str(getattr(provider, "name", "") or type(provider).__name__)


def _name_answer(response: ChatResponse, provider: Provider) -> ChatResponse:
    """Return an answer with the name of the provider that gave it, also where that is a choice of others."""
    return response if response.provider else replace(response, provider=_find_name(provider))


class RateLimitedProvider(ProviderWrapper):
    """Lets requests wait until they are within the limits, first come, first served.

    ::

        provider = RateLimitedProvider(OpenAIProvider("gpt-5"), requests=500, tokens=200_000, concurrency=20)

    Within any `per` seconds no more than `requests` begin. All tasks, threads and event loops that use this object
    share its limits. A request counts with its estimated tokens until its answer reports its usage; a request that
    alone exceeds the limit waits until nothing else counts. When the server asks to wait, by a `RateLimitedError` with
    `retry_after`, all requests wait. A request that is cancelled while it waits uses up nothing. A stream occupies its
    slot until it is closed. The caller closes the provider.

    Args:
        provider: Answers.
        requests: How many in `per`; None sets no limit.
        tokens: How many in `per`, input and output together; None sets no limit.
        per: The time that both are counted in; a minute, as most vendors have it.
        concurrency: How many requests at once, over all threads; None sets no limit.
        estimate: Estimates the tokens of a request before it is made.

    Raises:
        ConfigurationError: A limit that is no whole number above 0.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        per: Duration = 60.0,
        concurrency: int | None = None,
        estimate: Callable[[ChatRequest], int] = estimated_tokens,
    ) -> None:
        for name, limit in (("requests", requests), ("tokens", tokens), ("concurrency", concurrency)):
            check_setting(name, limit, int, None, least=1)
        seconds = to_seconds(per, "the time of a rate limit")
        super().__init__(provider)
        self._rate = RequestRate(requests, tokens, seconds)
        self._estimate = estimate
        self._concurrency = concurrency
        self._places = object()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer, when it is this request's turn."""
        async with self._await_turn(request) as spent:
            response = await self._provider.generate(request)
            spent.amount = response.usage.total_tokens
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes, when it is this request's turn."""
        async with self._await_turn(request) as spent, closing(self._provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, ResponseDone):
                    spent.amount = event.response.usage.total_tokens
                yield event

    @asynccontextmanager
    async def _await_turn(self, request: ChatRequest) -> AsyncGenerator[CountedTokens]:
        leave_place = None if self._concurrency is None else await enter_gate(self._places, self._concurrency)
        try:
            spent = await self._rate.wait(self._estimate(request))
            try:
                yield spent
            except RateLimitedError as error:
                self._rate.pause(error.retry_after or 0.0)
                raise
        finally:
            if leave_place is not None:
                leave_place()
