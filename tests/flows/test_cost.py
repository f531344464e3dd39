"""A limit of the cost bites, or is refused before anything is asked."""

from collections.abc import Callable

import pytest

from toolkit import (
    ConfigurationError,
    LoopLimits,
    Provider,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    Usage,
    UsageLimits,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import AssistantMessage, ChatResponse
from toolkit.endings import UsageLimit
from toolkit.providers import FallbackProvider, RateLimitedProvider
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

LIMITED: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=1.0)))


@tool
async def work() -> str:
    """Work."""
    return "worked"


def costly(call_id: str, cost: float | None) -> ChatResponse:
    usage = Usage(input_tokens=1, cost=cost)
    return ChatResponse(message=AssistantMessage([ToolCall(call_id, "work", "{}")]), usage=usage)


def priced(*costs: float | None) -> ScriptedProvider:
    return ScriptedProvider([costly(str(place), cost) for place, cost in enumerate(costs)])


async def test_a_script_without_a_price_is_refused() -> None:
    provider = ScriptedProvider(["hi"])
    with pytest.raises(ConfigurationError, match="would limit nothing"):
        await tool_loop(provider, ToolRegistry(), "go", config=LIMITED)
    assert provider.requests == []


PRICED: dict[str, Callable[[], Provider]] = {
    "a script": lambda: priced(0.6, 0.6, 0.6),
    "a limited one": lambda: RateLimitedProvider(priced(0.6, 0.6, 0.6), requests=1000),
    "both of two": lambda: FallbackProvider(priced(0.6, 0.6, 0.6), priced(0.1)),
}


@pytest.mark.parametrize("provider", PRICED)
async def test_it_bites_where_a_price_is_known(provider: str) -> None:
    result = await tool_loop(PRICED[provider](), ToolRegistry([work]), "go", config=LIMITED)
    assert result.reason == UsageLimit("cost", 1.0, 1.2)


async def test_an_answer_without_its_cost_is_the_last_one() -> None:
    result = await tool_loop(priced(0.1, None, 0.1), ToolRegistry([work]), "go", config=LIMITED)
    assert (result.reason, result.iterations) == (UsageLimit("cost", 1.0, 0.1), 2)


async def test_a_sub_agent_without_a_price_ends_what_is_limited_by_cost() -> None:
    inner = ScriptedProvider([ToolCall("1", "work", "{}"), "never"])
    agent = sub_agent_tool("delegate", "Works.", inner, ToolRegistry([work]))
    asked = AssistantMessage([ToolCall("1", "delegate", '{"task": "go"}')])
    first = ChatResponse(message=asked, usage=Usage(input_tokens=1, cost=0.1))
    outer = ScriptedProvider([first, costly("2", 0.1)])
    config: ToolLoopConfig = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(cost=1.0)))
    result = await tool_loop(outer, ToolRegistry([agent]), "go", config=config)
    assert (len(inner.requests), len(outer.requests)) == (1, 1)
    assert isinstance(result.reason, UsageLimit)
