"""Which tools fit which registry: checked by pyright and mypy, never run.

Each expected error carries an ignore, and both checkers report an ignore that is not needed.
"""

from typing import Any, assert_type

from toolkit import (
    AnswerFormat,
    ToolContext,
    ToolLoopConfig,
    ToolLoopResult,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_sync,
    tool_with_ctx,
)
from toolkit.serving.mcp import McpRequest, mcp_app, mcp_server
from toolkit.testing import ScriptedProvider


class App:
    user: str = "ada"


class Admin(App):
    rights: int = 7


@tool
def plain(a: int) -> int:
    return a


@tool_with_ctx
def for_app(app: App, a: int) -> str:
    return app.user * a


@tool_with_ctx
async def for_admin(admin: Admin) -> int:
    return admin.rights


@tool_with_ctx
async def with_envelope(context: ToolContext[App], a: int = 0) -> str:
    return context.state.user


# A tool that needs nothing fits everywhere; one that needs less fits where more is given.
ToolRegistry[object]([plain])
ToolRegistry[App]([plain, for_app, with_envelope])
ToolRegistry[Admin]([plain, for_app, for_admin, with_envelope])

# One that needs more does not.
ToolRegistry[App]([for_admin])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
ToolRegistry[object]([for_app])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

registry = ToolRegistry[App]()
assert_type(registry.register(for_app)(App(), 1), str)
registry.register(for_admin)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
assert_type(registry.only(["for_app"]), ToolRegistry[App])
assert_type(registry | registry, ToolRegistry[App])
assert_type(registry.widened(Admin), ToolRegistry[Admin])


async def loops(provider: ScriptedProvider) -> None:
    assert_type(await tool_loop(provider, ToolRegistry([plain]), "go"), ToolLoopResult[None])
    assert_type(await tool_loop(provider, registry, "go", ctx=App()), ToolLoopResult[None])
    assert_type(await tool_loop(provider, registry, "go", ctx=Admin()), ToolLoopResult[None])
    # A context that tools need can't be left out, nor be of another type.
    await tool_loop(provider, registry, "go")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await tool_loop(provider, registry, "go", ctx="ada")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    result = await tool_loop(provider, registry, "go", ctx=App(), config=ToolLoopConfig(answer=AnswerFormat(int)))
    assert_type(result, ToolLoopResult[int])
    assert_type(result.output, int | None)


def sync_loops(provider: ScriptedProvider) -> Any:
    assert_type(tool_loop_sync(provider, ToolRegistry([plain]), "go"), ToolLoopResult[None])
    tool_loop_sync(provider, registry, "go")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# What a context decides is a function of it.
def greet(app: App) -> str:
    return app.user


async def greet_admin(admin: Admin) -> str:
    return str(admin.rights)


async def prompts(provider: ScriptedProvider) -> None:
    assert_type(await tool_loop(provider, registry, "go", ctx=App(), system_prompt=greet), ToolLoopResult[None])
    assert_type(await tool_loop(provider, registry, "go", ctx=Admin(), system_prompt=greet), ToolLoopResult[None])
    await tool_loop(provider, registry, "go", ctx=App(), system_prompt=lambda app: app.user)
    await tool_loop(provider, registry, "go", ctx=App(), system_prompt=greet_admin)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(registry.for_context(App()), ToolRegistry[App])


# A served registry gets its context, or a function that makes it, also by a context manager.
def find_app(request: McpRequest) -> App:
    return App()


async def find_admin(request: McpRequest) -> Admin:
    return Admin()


def find_text(request: McpRequest) -> str:
    return request.client


shop = ToolRegistry[App]([for_app])
mcp_server(shop, App())
mcp_app(shop, context_for=find_app, tools_for=lambda app: shop.only(app.user), auth={"token": "ada"})
mcp_app(shop, context_for=find_admin)
mcp_app(shop, context_for=find_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
mcp_server(shop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
