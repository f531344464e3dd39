"""Adapters that talk to models, one package each: `provider_for` imports the one that is asked for.

`toolkit.providers.openai` speaks to OpenAI and every server that speaks its formats (extra ``openai``),
`toolkit.providers.anthropic` to Anthropic (``anthropic``), `toolkit.providers.google` to Gemini (``google``);
`toolkit.providers.local` runs a model on this machine (``local``).

`FallbackProvider`, `RateLimitedProvider` and `CachedProvider` wrap any provider, one another too; `PricedProvider`
wraps an adapter, and says what its answers cost (``prices``).
"""

from toolkit.loop.budgets import estimated_tokens
from toolkit.providers.catalogue import ClosableProvider, provider_for
from toolkit.providers.failures import provider_error
from toolkit.providers.prices import PricedProvider, PriceFunction, TokenPrices
from toolkit.providers.wrapping import CachedProvider, FallbackProvider, RateLimitedProvider

__all__ = [
    "CachedProvider",
    "ClosableProvider",
    "FallbackProvider",
    "PriceFunction",
    "PricedProvider",
    "RateLimitedProvider",
    "TokenPrices",
    "estimated_tokens",
    "provider_error",
    "provider_for",
]
