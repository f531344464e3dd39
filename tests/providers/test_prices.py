"""What answers cost: by the public prices that come with `genai-prices`, by the user's own, and never by a guess.

Public prices are those of models that no longer change; they are checked by their proportions.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import openai
import pytest

from tests.providers.loopback import Answer, Server, completion, serving
from toolkit import (
    ChatRequest,
    ConfigurationError,
    LoopLimits,
    Provider,
    ProviderError,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    Usage,
    UsageLimits,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import AssistantMessage, ChatResponse, ResponseDone
from toolkit.chat.provider import closing
from toolkit.endings import UsageLimit
from toolkit.parsing import TextToolProvider
from toolkit.providers import (
    CachedProvider,
    ClosableProvider,
    FallbackProvider,
    PricedProvider,
    RateLimitedProvider,
    TokenPrices,
)
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest(messages=[UserMessage("Hi")])
MILLION = 1_000_000
OWN = TokenPrices(input=1, output=10)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def answering(usage: Usage, model: str = "gpt-4o", **told: object) -> ChatResponse:
    return ChatResponse(message=AssistantMessage("Hello."), usage=usage, model=model, metadata=told)


async def cost_of(usage: Usage, vendor: str = "openai", **fields: Any) -> float | None:
    provider = PricedProvider(ScriptedProvider([answering(usage, **fields)]), vendor=vendor)
    return (await provider.generate(REQUEST)).usage.cost


async def price_of(vendor: str, model: str, **counts: Any) -> float:
    """Return the public price of a million tokens, or a thousand calls."""
    cost = await cost_of(Usage(**counts), vendor, model=model)
    assert cost is not None
    return cost


async def test_the_public_price_is_that_of_the_model_that_answered() -> None:
    small = await price_of("openai", "gpt-4o-mini-2024-07-18", input_tokens=MILLION)
    large = await price_of("openai", "gpt-4o", input_tokens=MILLION)
    assert 0.05 < small < 1 < large < 10
    assert await price_of("openai", "gpt-4o", output_tokens=MILLION) > large


async def test_what_a_cache_gave_is_cheaper_and_what_it_keeps_is_dearer() -> None:
    def ask(**counts: Any) -> Any:
        return price_of("anthropic", "claude-3-5-haiku-latest", input_tokens=1000, **counts)

    plain, read, wrote = await ask(), await ask(cache_read_tokens=1000), await ask(cache_write_tokens=1000)
    longer = await ask(cache_write_tokens=1000, details={"cache_write_1h_tokens": 1000})
    assert read == pytest.approx(plain / 10)
    assert wrote == pytest.approx(plain * 1.25)
    assert longer == pytest.approx(plain * 2)


async def test_sound_has_a_price_of_its_own() -> None:
    text = await price_of("openai", "gpt-audio", input_tokens=1000)
    assert await price_of("openai", "gpt-audio", input_tokens=1000, details={"input_audio_tokens": 1000}) > 5 * text
    said = await price_of("openai", "gpt-audio", output_tokens=1000)
    assert await price_of("openai", "gpt-audio", output_tokens=1000, details={"output_audio_tokens": 1000}) > 3 * said


async def test_what_was_thought_is_output() -> None:
    plain = await price_of("openai", "o3", output_tokens=1000)
    assert await price_of("openai", "o3", output_tokens=1000, reasoning_tokens=900) == plain


async def test_searches_are_paid_beside_their_tokens() -> None:
    plain = await price_of("anthropic", "claude-opus-4-1", input_tokens=1000)
    assert await price_of(
        "anthropic", "claude-opus-4-1", input_tokens=1000, details={"web_searches": 100}
    ) == pytest.approx(plain + 1)


UNKNOWN: dict[str, tuple[ChatResponse, str]] = {
    "a model": (answering(Usage(input_tokens=1), model="gpt-of-tomorrow"), "no public price"),
    "sound": (answering(Usage(input_tokens=1, details={"input_audio_tokens": 1})), "input_audio_tokens"),
    "a write to a cache": (answering(Usage(input_tokens=1, cache_write_tokens=1)), "cache_write_tokens"),
    "what is new": (answering(Usage(input_tokens=1, details={"smells": 1})), "smells"),
    "a tier": (answering(Usage(input_tokens=1), service_tier="tomorrow"), "service_tier 'tomorrow'"),
    "a place": (answering(Usage(input_tokens=1), inference_geo="us"), "inference_geo 'us'"),
    "a contradiction": (answering(Usage(input_tokens=1, cache_read_tokens=2)), "cannot exceed"),
    "cached sound": (
        answering(Usage(input_tokens=3, cache_read_tokens=1, details={"input_audio_tokens": 1}), model="gpt-realtime"),
        "how much of the cached input is audio",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
async def test_a_part_without_a_price_leaves_the_cost_unknown_and_is_told_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    response, why = UNKNOWN[name]
    provider = PricedProvider(ScriptedProvider([response] * 2), vendor="openai")
    with caplog.at_level(logging.WARNING):
        costs = [(await provider.generate(REQUEST)).usage.cost for _ in range(2)]
    assert costs == [None, None]
    (record,) = caplog.records
    assert why in record.getMessage()


async def test_a_tier_with_a_price_has_that_price() -> None:
    plain = await cost_of(Usage(input_tokens=MILLION), service_tier="default")
    fast = await cost_of(Usage(input_tokens=MILLION), service_tier="priority")
    assert plain is not None
    assert fast is not None
    assert fast > plain


async def test_a_turn_of_several_requests_has_no_price_where_that_depends_on_their_size() -> None:
    usage = Usage(input_tokens=300_000)
    assert await cost_of(usage, "google", model="gemini-2.5-pro") is not None
    assert await cost_of(usage, "google", model="gemini-2.5-pro", requests=2) is None


async def test_a_cost_that_the_provider_names_stays() -> None:
    provider = PricedProvider(ScriptedProvider([answering(Usage(input_tokens=5, cost=7.5))]), OWN)
    assert (await provider.generate(REQUEST)).usage.cost == 7.5


async def test_an_answer_without_tokens_stays_without_a_cost() -> None:
    provider = PricedProvider(ScriptedProvider([answering(Usage())]), OWN)
    assert (await provider.generate(REQUEST)).usage == Usage()


def count_letters(model: str, usage: Usage) -> float | None:
    return None if model == "free" else len(model) * usage.input_tokens


def own_table(model: str) -> dict[str, TokenPrices]:
    return {"another": TokenPrices(input=5, output=5), model: TokenPrices(input=2, output=0)}


OWN_PRICES: dict[str, tuple[Any, float]] = {
    "of one model": (TokenPrices(input=2, output=3), 2 * 3e-6 + 3 * 4e-6),
    "cached": (TokenPrices(input=2, output=0, cache_read=1), 2 * 2e-6 + 1e-6),
    "by the name in the answer": (own_table("gpt-4o"), 2 * 3e-6),
    "by the name of the provider": (own_table("mine"), 2 * 3e-6),
    "of a function": (count_letters, 6 * 3),
    "nothing": (TokenPrices(input=0, output=0), 0.0),
}


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("name", OWN_PRICES)
async def test_own_prices_are_taken(name: str, streams: bool) -> None:
    prices, cost = OWN_PRICES[name]
    inner = ScriptedProvider(
        [answering(Usage(input_tokens=3, output_tokens=4, cache_read_tokens=1 if name == "cached" else None))]
    )
    inner.model = "mine"  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    provider = PricedProvider(inner, prices)
    if not streams:
        response = await provider.generate(REQUEST)
    else:
        async with closing(provider.stream(REQUEST)) as events:
            last = [event async for event in events][-1]
        assert isinstance(last, ResponseDone)
        response = last.response
    assert response.usage.cost == pytest.approx(cost)


@pytest.mark.parametrize("cost", ["a lot", -1.0, float("nan"), KeyError("gpt-4o")], ids=repr)
async def test_a_function_that_is_wrong_costs_no_answer(cost: Any, caplog: pytest.LogCaptureFixture) -> None:
    def function(model: str, usage: Usage) -> float:
        if isinstance(cost, KeyError):
            raise cost
        return cast("float", cost)

    response = await PricedProvider(ScriptedProvider([answering(Usage(input_tokens=1))]), function).generate(REQUEST)
    assert (response.text, response.usage.cost) == ("Hello.", None)
    assert caplog.records[0].exc_info is not None


async def test_a_request_that_failed_is_priced_too() -> None:
    error = ProviderError("p", "no")
    error.usage = Usage(input_tokens=MILLION)
    with pytest.raises(ProviderError) as caught:
        await PricedProvider(ScriptedProvider([error]), OWN).generate(REQUEST)
    assert caught.value.usage == Usage(input_tokens=MILLION, cost=1.0)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a server that nobody knows": (
        lambda: PricedProvider(OpenAIProvider("m", base_url="http://localhost:1/v1")),
        r"no vendor with prices is at http://localhost:1/v1: wrap the adapter .*TokenPrices.*vendor='openai'",
    ),
    "a wrapper": (lambda: PricedProvider(FallbackProvider(ScriptedProvider([]))), "has no address"),
    "a vendor that nobody knows": (lambda: PricedProvider(ScriptedProvider([]), vendor="acme"), "no vendor 'acme'"),
    "no provider": (lambda: PricedProvider("gpt-5"), "takes a provider, not 'gpt-5'"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "no prices": (lambda: PricedProvider(ScriptedProvider([]), 3), "prices must be"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a wrong table": (
        lambda: PricedProvider(ScriptedProvider([]), {"m": 3}),  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
        "the price of 'm' must be a TokenPrices, not 3",
    ),
    "a price below nothing": (lambda: TokenPrices(input=-1, output=0), "price input must be 0 or more"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_can_not_be_priced_is_refused_when_it_is_made(name: str) -> None:
    make, why = WRONG[name]
    with pytest.raises(ConfigurationError, match=why):
        make()


async def test_the_vendor_is_told_by_the_address() -> None:
    client = openai.AsyncOpenAI(api_key="k")
    async with client:
        provider = PricedProvider(OpenAIProvider("gpt-4o", client=client))
    assert (provider.model, provider.reports_cost) == ("gpt-4o", True)


CHAT = {
    "prompt_tokens": 1000,
    "completion_tokens": 10,
    "total_tokens": 1010,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 100},
    "completion_tokens_details": {"audio_tokens": 5},
}
RESPONSES = {
    "id": "r",
    "model": "gpt-4o",
    "status": "completed",
    "output": [
        {"type": "web_search_call", "id": "1", "status": "completed", "action": {"type": "search"}},
        {"type": "web_search_call", "id": "2", "status": "completed", "action": {"type": "open_page"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 10},
}
MESSAGES = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-1",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Hello."}],
    "usage": {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "server_tool_use": {"web_search_requests": 2},
    },
}
CANDIDATE = {"finishReason": "STOP", "content": {"parts": [{"text": "Hello."}]}}
CONTENT: dict[str, Any] = {
    "modelVersion": "gemini-2.5-flash",
    "candidates": [CANDIDATE],
    "usageMetadata": {
        "promptTokenCount": 100,
        "candidatesTokenCount": 10,
        "cachedContentTokenCount": 40,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 50}, {"modality": "AUDIO", "tokenCount": 50}],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 40}],
    },
}
WIRES: dict[str, tuple[Callable[[str], ClosableProvider], dict[str, Any], str, dict[str, int]]] = {
    "chat": (
        lambda url: OpenAIProvider("gpt-audio", base_url=url),
        {**completion(usage=CHAT), "model": "gpt-audio"},
        "openai",
        {"input_audio_tokens": 100, "output_audio_tokens": 5},
    ),
    "responses": (lambda url: OpenAIResponsesProvider("m", base_url=url), RESPONSES, "openai", {"web_searches": 1}),
    "anthropic": (
        lambda url: AnthropicProvider("m", base_url=url),
        MESSAGES,
        "anthropic",
        {"cache_write_1h_tokens": 20, "web_searches": 2},
    ),
    "google": (
        lambda url: GoogleProvider("m", base_url=url),
        CONTENT,
        "google",
        {"input_audio_tokens": 50, "cache_audio_read_tokens": 40},
    ),
}


@pytest.mark.parametrize("name", WIRES)
async def test_what_vendors_price_apart_is_read_from_their_answers(server: Server, name: str) -> None:
    make, body, vendor, details = WIRES[name]
    server.answers[:] = [Answer(body)]
    async with make(server.url) as provider:
        usage = (await PricedProvider(provider, vendor=vendor).generate(REQUEST)).usage
    assert usage.details == details
    assert usage.cost
    assert 0 < usage.cost < 0.1


async def test_searches_of_google_have_no_price_that_is_sure(server: Server) -> None:
    grounded = {**CANDIDATE, "groundingMetadata": {"webSearchQueries": ["llamas"]}}
    server.answers[:] = [Answer({**CONTENT, "candidates": [grounded]})]
    async with GoogleProvider("m", base_url=server.url) as provider:
        priced = PricedProvider(provider, vendor="google")
        assert (await priced.generate(REQUEST)).usage.cost is None


async def test_thoughts_that_are_counted_apart_are_output(server: Server) -> None:
    told = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 15}
    server.answers[:] = [Answer(completion(usage={**told, "completion_tokens_details": {"reasoning_tokens": 5}}))]
    async with OpenAIProvider("m", base_url=server.url) as provider:
        usage = (await provider.generate(REQUEST)).usage
    assert (usage.output_tokens, usage.reasoning_tokens) == (8, 5)


@tool
async def work() -> str:
    """Work."""
    return "worked"


def working(*calls: str, price: TokenPrices | None = OWN) -> Provider:
    """A model of which each reply takes a million tokens, and costs a dollar where it has a price."""
    messages = [AssistantMessage([ToolCall("1", name, arguments)]) for name, _, arguments in map(_split, calls)]
    replies = [*messages, AssistantMessage("Done.")]
    script = ScriptedProvider([ChatResponse(message=each, usage=Usage(input_tokens=MILLION)) for each in replies])
    return script if price is None else PricedProvider(script, price)


def _split(call: str) -> tuple[str, str, str]:
    name, space, arguments = call.partition(" ")
    return name, space, arguments or "{}"


async def test_a_run_says_what_it_cost_sub_agents_included() -> None:
    agent = sub_agent_tool("delegate", "Works.", working("work"), ToolRegistry([work]))
    result = await tool_loop(working('delegate {"task": "go"}', "work"), ToolRegistry([agent, work]), "go")
    assert result.usage == Usage(input_tokens=5 * MILLION, cost=5.0)


async def test_a_run_with_a_sub_agent_of_unknown_cost_has_no_cost() -> None:
    agent = sub_agent_tool("delegate", "Works.", working("work", price=None), ToolRegistry([work]))
    result = await tool_loop(working('delegate {"task": "go"}'), ToolRegistry([agent]), "go")
    assert result.usage == Usage(input_tokens=4 * MILLION)


async def test_a_limit_bites_on_a_cost_that_was_filled_in() -> None:
    agent = sub_agent_tool("delegate", "Works.", working("work", "work", "work"), ToolRegistry([work]))
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=3)))
    result = await tool_loop(
        working('delegate {"task": "go"}', "work"), ToolRegistry([agent, work]), "go", config=config
    )
    assert result.reason == UsageLimit("cost", 3.0, 3.0)
    assert result.usage.cost == 3.0


async def test_a_limit_ends_what_has_no_known_price() -> None:
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=3)))
    prices = {"another": OWN}
    provider = PricedProvider(working("work", "work", price=None), prices)
    result = await tool_loop(provider, ToolRegistry([work]), "go", config=config)
    assert (result.reason, result.iterations) == (UsageLimit("cost", 3.0, 0.0), 1)


WRAPPERS: dict[str, Callable[[Provider], Provider]] = {
    "limited": lambda provider: RateLimitedProvider(provider, requests=9),
    "with others": FallbackProvider,
    "cached": CachedProvider,
    "as text": TextToolProvider,
}


@pytest.mark.parametrize("name", WRAPPERS)
async def test_wrappers_pass_the_cost_on(name: str) -> None:
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=3)))
    result = await tool_loop(WRAPPERS[name](working()), ToolRegistry(), "go", config=config)
    assert result.usage.cost == 1.0


def test_prices_are_loaded_when_they_are_first_needed() -> None:
    code = (
        "import sys, toolkit.providers as p; from toolkit.testing import ScriptedProvider as S; "
        "p.PricedProvider(S([]), lambda model, usage: 1.0); assert 'genai_prices' not in sys.modules; "
        "p.PricedProvider(S([]), p.TokenPrices(input=1, output=1)); assert 'genai_prices' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(ModuleNotFoundError, match=r"toolkit-sdk\[prices\]"):
        PricedProvider(ScriptedProvider([]), OWN)
