"""A provider that computes the cost of its answers, from the vendors' public prices or from your own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent, Usage
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderError, naming_extra
from toolkit.logs import get_logger
from toolkit.settings import FUNCTION, check_setting, describe_value

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice


_logger = get_logger("toolkit.providers")

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
        self._reported: set[tuple[str, str]] = set()
        if callable(prices):
            self._find_cost = lambda model, usage, _: prices(model, usage)
            return
        with naming_extra("prices"):
            import_module("genai_prices")
        if prices is None:
            self._check_vendor()
            self._find_cost = self._find_public_cost
        else:
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
        if (model, reason) not in self._reported:
            self._reported.add((model, reason))
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
        """Return the cost by public prices, or raise where the model or something in the answer has none."""
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


def _check_own_prices(prices: TokenPrices | Mapping[str, TokenPrices]) -> None:
    check_setting("prices", prices, TokenPrices, Mapping, FUNCTION, None)
    if isinstance(prices, Mapping):
        for name, price in prices.items():
            check_setting(f"the price of {name!r}", price, TokenPrices)


def _find_own_cost(prices: TokenPrices | Mapping[str, TokenPrices], names: tuple[str, str], usage: Usage) -> float:
    """Return the cost by prices of the user's own, or raise where there is none."""
    from genai_prices.types import ModelPrice  # noqa: PLC0415 - an extra, of half a second

    own = prices if isinstance(prices, TokenPrices) else next((prices[name] for name in names if name in prices), None)
    if own is None:
        raise _UnknownCostError("it is not among the prices given")
    known = {field.name: getattr(own, field.name) for field in fields(own)}
    price = ModelPrice(**{f"{name}_mtok": Decimal(str(each)) for name, each in known.items() if each is not None})
    return _calculate_cost(price, usage)


def _calculate_cost(price: ModelPrice, usage: Usage) -> float:
    """Return the cost of all that was used, or raise where a part has no price or the counts contradict each other."""
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
