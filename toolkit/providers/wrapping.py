"""Providers round another: a cache of answers, a second one when the first fails, limits on requests, and prices."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

from toolkit.calls.caching import Cache, MemoryCache
from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent, Usage
from toolkit.chat.provider import ProviderWrapper, closing, events_of
from toolkit.chat.serialization import request_to_plain, response_from_plain, response_to_plain
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderError, RateLimitedError
from toolkit.json_text import digest_json, write_json
from toolkit.redaction import digest_of, replace_fields, without_keys
from toolkit.settings import FUNCTION, Duration, check_setting, describe_value, to_seconds

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

_WHOLE = ("end_turn", "tool_use", "stop_sequence")


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
        name: Tells apart the answers of the providers that share a cache. None takes the kind of the provider and its
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
        ConfigurationError: There is no provider, or one of the objects is not a provider.
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


_CHARACTERS_PER_TOKEN = 4


def estimated_tokens(request: ChatRequest) -> int:
    """Return an estimate of a request's tokens: a quarter of its characters, plus the maximum length of the answer."""
    characters = 0
    for message in request.messages:
        characters += len(message.text)
        if message.role == "assistant":
            characters += sum([len(call.name) + len(call.arguments) for call in message.tool_calls])
    return characters // _CHARACTERS_PER_TOKEN + (request.max_tokens or 0)


class RateLimitedProvider(ProviderWrapper):
    """Lets requests wait until they are within the limits, first come, first served.

    ::

        provider = RateLimitedProvider(OpenAIProvider("gpt-5"), requests=500, tokens=200_000, concurrency=20)

    Within any `per` seconds no more than `requests` begin. All tasks, threads and event loops that use this object
    share its limits (`concurrency` and the order apply within one event loop). A request counts with its estimated
    tokens until its answer reports its usage; a request that alone exceeds the limit waits until nothing else counts.
    When the server asks to wait, by a `RateLimitedError` with `retry_after`, all requests wait. A request that is
    cancelled while it waits uses up nothing. A stream occupies its slot until it is closed. The caller closes the
    provider.

    Args:
        provider: Answers.
        requests: How many in `per`; None sets no limit.
        tokens: How many in `per`, input and output together; None sets no limit.
        per: The time that both are counted in; a minute, as most vendors have it.
        concurrency: How many requests at once; None sets no limit.
        estimate: Tells the tokens of a request before it is made.

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
        self._requests = Window(requests, seconds)
        self._tokens = Window(tokens, seconds)
        self._estimate = estimate
        self._concurrency = concurrency
        self._open_at = 0.0
        self._lock = Lock()
        self._lines: RunVar[_Line] = RunVar("line")

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
    async def _await_turn(self, request: ChatRequest) -> AsyncGenerator[Spent]:
        line = self._lines.get(None)
        if line is None:
            line = _Line(self._concurrency)
            self._lines.set(line)
        async with line.places:
            # The first in the line keeps it while it waits; it is handed on in the order of asking.
            async with line.head:
                spent = Spent(self._estimate(request))
                while (wait := self._count_request(spent)) > 0:  # noqa: ASYNC110 - no event tells that time has passed
                    await anyio.sleep(wait)
            try:
                yield spent
            except RateLimitedError as error:
                self._open_at = max(self._open_at, time.monotonic() + (error.retry_after or 0.0))
                raise

    def _count_request(self, spent: Spent) -> float:
        """Count a request from now on, or return the seconds after which to ask again."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._open_at - now, self._requests.wait(1, now), self._tokens.wait(spent.amount, now))
            if wait <= 0:
                self._requests.count(Spent(1), now)
                self._tokens.count(spent, now)
            return wait


class _Line:
    """The line in which the requests of one event loop wait."""

    def __init__(self, concurrency: int | None) -> None:
        self.places: AbstractAsyncContextManager[object] = (
            nullcontext() if concurrency is None else anyio.Semaphore(concurrency)
        )
        self.head = anyio.Lock()


@dataclass(slots=True)
class Spent:
    """The amount that one request uses up; the amount is put right when the answer tells it."""

    amount: int


class Window:
    """The amount that was spent within the last `seconds`."""

    def __init__(self, limit: int | None, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._counted: deque[tuple[float, Spent]] = deque()

    def wait(self, amount: int, now: float) -> float:
        """Return the seconds until `amount` can be spent, or nothing else counts."""
        while self._counted and self._counted[0][0] + self._seconds <= now:
            self._counted.popleft()
        wait = 0.0
        left = math.inf if self._limit is None else self._limit - sum([spent.amount for _, spent in self._counted])
        for begun, spent in self._counted:
            if amount <= left:
                break
            left += spent.amount
            wait = begun + self._seconds - now
        return wait

    def count(self, spent: Spent, now: float) -> None:
        """Count the usage from now on."""
        if self._limit is not None:
            self._counted.append((now, spent))


PriceFunction: TypeAlias = Callable[[str, Usage], float | None]
"""Returns the cost of a model's answer from the model's name and the usage; None if it is unknown."""

_PRICE_OF = {
    "input_tokens": "input_mtok",
    "output_tokens": "output_mtok",
    "cache_read_tokens": "cache_read_mtok",
    "cache_write_tokens": "cache_write_mtok",
    "cache_write_1h_tokens": "cache_write_1h_mtok",
    "input_audio_tokens": "input_audio_mtok",
    "cache_audio_read_tokens": "cache_audio_read_mtok",
    "output_audio_tokens": "output_audio_mtok",
    "output_image_tokens": "output_image_mtok",
    "web_searches": "web_searches_kcount",
    "storage_searches": "storage_searches_kcount",
}
"""The price of genai-prices for each count of `Usage`. Reasoning is output, unless it has a price of its own."""

_CONDITIONS = ("service_tier", "speed", "inference_geo")
_USUAL = frozenset({"", "default", "standard", "auto", "on_demand", "global", "not_available"})


class _UnknownCostError(Exception):
    """The cost of an answer is unknown; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """Prices of a million tokens of a model. None is no price: the cost of an answer with such tokens is not known.

    ::

        TokenPrices(input=0.2, output=0.6, cache_read=0.05)

    Args:
        input: That the model reads.
        output: That it writes, reasoning among them.
        cache_read: That come from a cache.
        cache_write: That are written to a cache.
        input_audio: Of audio input.
        output_audio: Of sound that it says.

    Raises:
        ConfigurationError: A price is no number, or less than 0.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    input_audio: float | None = None
    output_audio: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            kinds = (float,) if field.name in ("input", "output") else (float, None)
            check_setting(f"price {field.name}", getattr(self, field.name), *kinds, least=0)


class PricedProvider(ProviderWrapper):
    """Fills in `Usage.cost` of answers whose provider named none.

    ::

        provider = PricedProvider(OpenAIProvider("gpt-5-mini"))
        result = await tool_loop(provider, registry, "What's the weather in Paris?")
        print(result.usage.cost)

    Prices are dollars, from the package ``genai-prices`` (extra ``prices``). They come with the package, and are
    never fetched; the address of the requests determines the vendor, the name in the answer the model.
    Nothing is guessed: where the model is not known, or something in the answer has no price (sound, a write to a
    cache, a search, a service tier), the cost is None, and a warning in the log says why, once.

    Each request is priced by itself, so wrap the adapter, and put `FallbackProvider`, `CachedProvider` or
    `TextToolProvider` round that; sub-agents have providers of their own. Closing the provider stays with who made it.

    Args:
        provider: Answers.
        prices: Your own, in the place of the public ones: of the provider's model, of several by their names, or a
            function of the model's name and the usage.
        vendor: The vendor whose public prices hold, such as ``openai``, where the address doesn't tell: for a proxy.

    Raises:
        ConfigurationError: There are no public prices for the address, or no such vendor.
        ModuleNotFoundError: ``genai-prices`` is not installed; a function as `prices` needs none of it.
    """

    def __init__(
        self,
        provider: Provider,
        prices: TokenPrices | Mapping[str, TokenPrices] | PriceFunction | None = None,
        *,
        vendor: str | None = None,
    ) -> None:
        if not hasattr(provider, "generate") or not hasattr(provider, "stream"):
            raise ConfigurationError(f"a PricedProvider takes a provider, not {describe_value(provider)}")
        super().__init__(provider)
        self._url: str | None = getattr(provider, "base_url", None)
        self._vendor = vendor
        self._find_cost: Callable[[str, Usage, Mapping[str, object]], float | None]
        self._told: set[tuple[str, str]] = set()
        if prices is None:
            _require_prices()
            self._check_vendor()
            self._find_cost = self._find_public_cost
        elif callable(prices):
            self._find_cost = lambda model, usage, _: prices(model, usage)
        else:
            _require_prices()
            _check_own_prices(prices)
            self._find_cost = lambda model, usage, _: _find_own_cost(prices, (model, self.model), usage)

    @property
    def reports_cost(self) -> bool:
        """True: answers report their cost, or a `UsageLimits` of cost ends the run."""
        return True

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the provider's answer, with its cost.

        Raises:
            ProviderError: The provider's; its `usage` has the cost, too.
        """
        try:
            return self._with_cost(await self._provider.generate(request))
        except ProviderError as error:
            self._price_failure(error)
            raise

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's answer as it comes, with its cost at the end.

        Raises:
            ProviderError: As for `generate`.
        """
        try:
            async with closing(self._provider.stream(request)) as events:
                async for event in events:
                    yield ResponseDone(self._with_cost(event.response)) if isinstance(event, ResponseDone) else event
        except ProviderError as error:
            self._price_failure(error)
            raise

    def _with_cost(self, response: ChatResponse) -> ChatResponse:
        usage = self._price_usage(response.usage, response.model or self.model, response.metadata)
        return response if usage is response.usage else replace(response, usage=usage)

    def _price_failure(self, error: ProviderError) -> None:
        if error.usage is not None:
            error.usage = self._price_usage(error.usage, self.model, {})

    def _price_usage(self, usage: Usage, model: str, metadata: Mapping[str, object]) -> Usage:
        if not usage.has_unknown_cost:
            return usage
        reason = "its price is not known"
        try:
            cost = self._find_cost(model, usage, metadata)
            check_setting("the result of a price function", cost, float, None, least=0)
        except _UnknownCostError as error:
            cost, reason = None, str(error)
        except Exception as error:  # the answer is paid for: it is not lost for its price
            _logger.exception("the cost of an answer of %s could not be computed", model)
            cost, reason = None, type(error).__name__
        if cost is not None:
            return replace(usage, cost=float(cost))
        if (model, reason) not in self._told:
            self._told.add((model, reason))
            _logger.warning("the cost of answers of %r is not known: %s", model, reason)
        return usage

    def _check_vendor(self) -> None:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an extra, of half a second

        try:
            get_snapshot().find_provider(None, self._vendor, self._url or "")
        except LookupError:
            where = f"at {self._url}" if self._url else f"with {self._provider!r}, which has no address"
            what = f"no vendor '{self._vendor}' is known" if self._vendor else f"no vendor with prices is {where}"
            raise ConfigurationError(
                f"{what}: wrap the adapter itself, or give prices=TokenPrices(input=..., output=...), "
                "or vendor='openai' where a proxy passes requests on"
            ) from None

    def _find_public_cost(self, model: str, usage: Usage, metadata: Mapping[str, object]) -> float:
        """Return the cost by public prices.

        Raises:
            _UnknownCostError: The model or a condition has no public price, or something in the answer.
        """
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - an extra, of half a second

        try:
            vendor, info = get_snapshot().find_provider_model(model, None, self._vendor, self._url or "")
        except LookupError:
            raise _UnknownCostError("the model has no public price") from None
        now = datetime.now(UTC)
        price = info.get_prices(now)
        conditions = {name: metadata[name] for name in _CONDITIONS if str(metadata.get(name, "")) not in _USUAL}
        for name, value in conditions.items():
            special = info.get_prices(now, {name: str(value)})
            if special == price or not any(info is known for known in vendor.models):
                raise _UnknownCostError(f"there is no price for {name} '{value}'")
        if conditions:
            price = info.get_prices(now, {name: str(value) for name, value in conditions.items()})
        if metadata.get("requests", 1) != 1 and _has_tiers(price):
            raise _UnknownCostError("the price depends on the size of a request, and this turn took several")
        return _calculate_cost(price, usage)


def _require_prices() -> None:
    try:
        import_module("genai_prices")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: `pip install 'toolkit-sdk[prices]'`", name=error.name
        ) from error


def _check_own_prices(prices: TokenPrices | Mapping[str, TokenPrices]) -> None:
    check_setting("prices", prices, TokenPrices, Mapping, FUNCTION, None)
    if isinstance(prices, Mapping):
        for name, price in prices.items():
            check_setting(f"the price of {name!r}", price, TokenPrices)


def _find_own_cost(prices: TokenPrices | Mapping[str, TokenPrices], names: tuple[str, str], usage: Usage) -> float:
    """Return the cost by prices of the user's own.

    Raises:
        _UnknownCostError: There is none for the model, or for something in the answer.
    """
    from genai_prices.types import ModelPrice  # noqa: PLC0415 - an extra, of half a second

    own = prices if isinstance(prices, TokenPrices) else next((prices[name] for name in names if name in prices), None)
    if own is None:
        raise _UnknownCostError("it is not among the prices given")
    known = {field.name: getattr(own, field.name) for field in fields(own)}
    price = ModelPrice(**{f"{name}_mtok": Decimal(str(each)) for name, each in known.items() if each is not None})
    return _calculate_cost(price, usage)


def _calculate_cost(price: ModelPrice, usage: Usage) -> float:
    """Return the cost of all that was used.

    Raises:
        _UnknownCostError: A part of it has no price, or the counts contradict each other.
    """
    from genai_prices import Usage as Counts  # noqa: PLC0415 - an extra, of half a second

    fields: dict[str, int | None] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        **(usage.details or {}),
    }
    counts = {name: count for name, count in fields.items() if count is not None}
    missing = [
        name for name, count in counts.items() if count and getattr(price, _PRICE_OF.get(name, ""), None) is None
    ]
    if missing:
        raise _UnknownCostError(f"there is no price for {', '.join(missing)}")
    if counts.get("cache_read_tokens") and counts.get("input_audio_tokens") and "cache_audio_read_tokens" not in counts:
        raise _UnknownCostError("it is unknown how much of the cached input is audio")
    if usage.reasoning_tokens:
        counts["output_reasoning_tokens"] = usage.reasoning_tokens
    try:
        return float(price.calc_price(Counts(**counts))["total_price"])
    except ValueError as error:
        raise _UnknownCostError(str(error)) from None


def _has_tiers(price: ModelPrice) -> bool:
    from genai_prices.types import TieredPrices  # noqa: PLC0415 - an extra, of half a second

    return any(isinstance(each, TieredPrices) for each in vars(price).values())
