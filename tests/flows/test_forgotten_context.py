"""A context that tools need and nobody gave is told to who wrote the code, before anything is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from toolkit import (
    ConfigurationError,
    ToolContext,
    ToolLoopHandle,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.agents import SubAgent, coworker_tools, sub_agent_tool
from toolkit.testing import ScriptedProvider

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

pytestmark = pytest.mark.anyio


@dataclass
class App:
    user: str = "ada"


@tool_with_ctx
async def by_state(ctx: App) -> str:
    """Say who asks."""
    return ctx.user


@tool_with_ctx
async def by_envelope(context: ToolContext[App]) -> str:
    """Say who asks."""
    return context.state.user


@tool_with_ctx
async def by_name(context: ToolContext[OnlyForCheckers]) -> str:
    """Say who asks."""
    return str(context.state)


class Clerk:
    @tool_with_ctx
    async def by_method(self, ctx: App) -> str:
        """Say who asks."""
        return ctx.user


@tool_with_ctx
async def maybe(ctx: App | None) -> str:
    """Say who asks, if anybody."""
    return "nobody" if ctx is None else ctx.user


@tool_with_ctx
async def anything(ctx: object) -> str:
    """Say nothing."""
    return "nobody"


@tool_with_ctx
async def bare(context: ToolContext) -> str:
    """Say nothing."""
    return "nobody"


@tool
async def plain() -> str:
    """Say nothing."""
    return "nobody"


def agent(*tools: Any) -> Any:
    return sub_agent_tool("clerk", "Works.", ScriptedProvider([]), cast("Any", ToolRegistry(tools)))


def coworkers(*tools: Any) -> list[Any]:
    registry: Any = ToolRegistry(tools)
    agents = [SubAgent(name="clerk", provider=ScriptedProvider([]), registry=registry)]
    return list(coworker_tools(agents))


NEEDY: dict[str, list[Any]] = {
    "the context itself": [by_state],
    "the envelope": [by_envelope],
    "a type for checkers": [by_name],
    "a method": [Clerk().by_method],
    "one of many": [plain, maybe, by_state],
    "a sub-agent's tool": [agent(by_state)],
    "a sub-agent's sub-agent's tool": [
        sub_agent_tool(
            "boss",
            "Leads.",
            ScriptedProvider([]),
            cast("Any", ToolRegistry([agent(by_envelope)])),
            allow_sub_agents=True,
        )
    ],
    "a coworker's tool": coworkers(by_state),
}
CONTENT: list[Any] = [maybe, anything, bare, plain, agent(plain, maybe)]


async def run(registry: Any, provider: ScriptedProvider) -> None:
    await tool_loop(provider, registry, "go")


async def step(registry: Any, provider: ScriptedProvider) -> None:
    await ToolLoopHandle(provider, registry, "go").next_turn()


async def stream(registry: Any, provider: ScriptedProvider) -> None:
    async with tool_loop_stream(provider, registry, "go") as events:
        async for _ in events:
            pass


async def channel(registry: Any, provider: ScriptedProvider) -> None:
    async with tool_loop_channel(provider, registry, "go") as (_, task):
        await task.result()


async def restored(registry: Any, provider: ScriptedProvider) -> None:
    handle = ToolLoopHandle(provider, registry, "go", ctx=App())
    await ToolLoopHandle.restore(handle.snapshot(), provider, registry, ctx=None).run()


@pytest.mark.parametrize("view", [run, step, stream, channel, restored], ids=lambda view: view.__name__)
@pytest.mark.parametrize("needy", NEEDY)
async def test_it_is_refused_before_the_first_request_in_every_view(view: Any, needy: str) -> None:
    provider = ScriptedProvider([])
    with pytest.raises(ConfigurationError, match=r"tool '\w+' needs a context of type \w+.*: pass it as ctx"):
        await view(ToolRegistry(NEEDY[needy]), provider)
    assert provider.requests == []


def test_it_is_refused_without_async_too() -> None:
    provider = ScriptedProvider([])
    with pytest.raises(ConfigurationError, match="tool 'by_state' needs a context of type App: pass it as ctx"):
        tool_loop_sync(provider, cast("Any", ToolRegistry([by_state])), "go")
    assert provider.requests == []


@pytest.mark.parametrize("scope", ["only", "prefixed", "renamed", "joined"])
async def test_scopes_know_it_too(scope: str) -> None:
    all_tools: Any = ToolRegistry[Any]([plain, by_state])
    scopes: dict[str, Any] = {
        "only": all_tools.only(["by_state"]),
        "prefixed": all_tools.prefixed("x"),
        "renamed": all_tools.renamed({"by_state": "other"}),
        "joined": ToolRegistry([maybe]) | all_tools,
    }
    with pytest.raises(ConfigurationError, match="needs a context"):
        await run(scopes[scope], ScriptedProvider([]))
    await run(all_tools.without(["by_state"]), ScriptedProvider(["ok"]))


async def test_tools_that_need_none_run_without_one() -> None:
    await run(ToolRegistry(CONTENT), ScriptedProvider(["ok"]))


async def test_a_tool_that_was_registered_later_counts() -> None:
    registry: Any = ToolRegistry([plain])
    await run(registry, ScriptedProvider(["ok"]))
    registry.register(by_state)
    with pytest.raises(ConfigurationError, match="needs a context"):
        await run(registry, ScriptedProvider([]))
    registry.unregister("by_state")
    await run(registry, ScriptedProvider(["ok"]))


async def test_an_agent_among_its_own_tools_is_looked_at_once() -> None:
    registry: Any = ToolRegistry([plain])
    registry.register(sub_agent_tool("again", "Again.", ScriptedProvider([]), registry, allow_sub_agents=True))
    await run(registry, ScriptedProvider(["ok"]))
