"""A limit of cost is refused where no price will ever be known, before anything is asked."""

from collections.abc import Callable

import pytest

from tests.providers.loopback import Answer, completion, serving
from toolkit import ConfigurationError, LoopLimits, Provider, ToolLoopConfig, ToolRegistry, UsageLimits, tool_loop
from toolkit.parsing import TextToolProvider
from toolkit.providers import CachedProvider, FallbackProvider, RateLimitedProvider
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider

pytestmark = pytest.mark.anyio

CONFIG = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=1)))
SILENT: dict[str, Callable[[], Provider]] = {
    "chat": lambda: OpenAIProvider("m", api_key="k"),
    "responses": lambda: OpenAIResponsesProvider("m", api_key="k"),
    "anthropic": lambda: AnthropicProvider("m", api_key="k"),
    "google": lambda: GoogleProvider("m", api_key="k"),
}
WRAPPERS: dict[str, Callable[[Provider], Provider]] = {
    "alone": lambda provider: provider,
    "limited": lambda provider: RateLimitedProvider(provider, requests=1),
    "with others": FallbackProvider,
    "cached": CachedProvider,
    "as text": TextToolProvider,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("make", SILENT.values(), ids=SILENT)
async def test_a_provider_that_never_tells_its_price_takes_no_limit_of_cost(
    make: Callable[[], Provider], wrap: Callable[[Provider], Provider]
) -> None:
    with pytest.raises(ConfigurationError, match=r"cost=1\) would limit nothing.*total_tokens"):
        await tool_loop(wrap(make()), ToolRegistry(), "Hi", config=CONFIG)


async def test_a_router_that_may_tell_its_price_takes_one() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 2.5}
    with serving(Answer(completion("Hi.", usage=usage))) as server:
        async with OpenAIProvider("m", base_url=server.url) as provider:
            result = await tool_loop(provider, ToolRegistry(), "Hi", config=CONFIG)
    assert result.usage.cost == 2.5
