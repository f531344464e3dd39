"""Adapters that talk to models, one package each: `provider_for` imports the one that is asked for.

`toolkit.providers.openai` speaks to OpenAI and every server that speaks its formats (extra ``openai``),
`toolkit.providers.anthropic` to Anthropic (``anthropic``), `toolkit.providers.google` to Gemini (``google``);
`toolkit.providers.local` runs a model on this machine (``local``).

`FallbackProvider`, `RateLimitedProvider` and `CachedProvider` wrap any provider, one another too; `PricedProvider`
wraps an adapter, and says what its answers cost (``prices``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.loop.budgets import estimated_tokens
from toolkit.providers.catalogue import ClosableProvider, provider_for
from toolkit.providers.prices import PricedProvider, PriceFunction, TokenPrices
from toolkit.providers.wrapping import CachedProvider, FallbackProvider, RateLimitedProvider, compact_on_server

if TYPE_CHECKING:
    from toolkit.providers.failures import provider_error

__all__ = [
    "CachedProvider",
    "ClosableProvider",
    "FallbackProvider",
    "PriceFunction",
    "PricedProvider",
    "RateLimitedProvider",
    "TokenPrices",
    "compact_on_server",
    "estimated_tokens",
    "provider_error",
    "provider_for",
]


def __getattr__(name: str) -> Any:
    if name == "provider_error":  # it imports an HTTP client, which only those who write a provider need
        from toolkit.providers.failures import provider_error  # noqa: PLC0415

        return provider_error
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
