"""A registry as a provider of a FastMCP server, beside its resources, prompts, logins and middleware."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict, overload

import mcp.types as wire
from pydantic import PrivateAttr
from typing_extensions import Unpack

from toolkit.calls.registration import Ctx, Registration
from toolkit.errors import naming_extra
from toolkit.serving.mcp.server import ContextMaker, CrashReport, RegistryServing, to_wire_tool
from toolkit.tools.registry import ToolRegistry

with naming_extra("fastmcp"):
    from fastmcp.exceptions import ToolError as FastMcpToolError
    from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
    from fastmcp.server.providers import Provider
    from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
    from fastmcp.utilities.components import FastMCPComponent

__all__ = ["RegistryProvider"]


class RegistryProviderKeywords(TypedDict, total=False):
    """The keywords of `RegistryProvider`, which documents them."""

    crashes: CrashReport
    call_timeout: float | None


class RegistryProvider(Provider):
    """Offers a registry's tools on a FastMCP server; each call has the registry's validation, approval and limits.

    ::

        server = FastMCP("shop", providers=[RegistryProvider(orders, context_for=find_user)])

    Transforms, middleware and authorization of the server see its tools as any others, by their tags, too. Clients of
    revisions up to 2025 are notified when the registry changes; for later ones FastMCP has no subscriptions.

    Args:
        registry: As for `toolkit.serving.mcp.mcp_server`, like the others.
        ctx: For each call.
        context_for: Makes the context of each request, in place of `ctx`.
        tools_for: Returns the tools of a context.
        crashes: The part of an unexpected exception that clients see.
        call_timeout: Seconds for a call; None for no limit.

    Raises:
        ConfigurationError: The settings don't fit together.
    """

    @overload
    def __init__(
        self, registry: ToolRegistry[object], ctx: object = None, **options: Unpack[RegistryProviderKeywords]
    ) -> None: ...
    @overload
    def __init__(self, registry: ToolRegistry[Ctx], ctx: Ctx, **options: Unpack[RegistryProviderKeywords]) -> None: ...
    @overload
    def __init__(
        self,
        registry: ToolRegistry[Ctx],
        *,
        context_for: ContextMaker[Ctx],
        tools_for: Callable[[Ctx], ToolRegistry[Ctx]] | None = None,
        **options: Unpack[RegistryProviderKeywords],
    ) -> None: ...
    def __init__(
        self,
        registry: ToolRegistry[Any],
        ctx: Any = None,
        *,
        context_for: ContextMaker[Any] | None = None,
        tools_for: Callable[[Any], ToolRegistry[Any]] | None = None,
        crashes: CrashReport = "reference",
        call_timeout: float | None = 600,
    ) -> None:
        super().__init__()
        self._serving = RegistryServing(registry, ctx, context_for, tools_for, crashes, call_timeout)

    async def _list_tools(self) -> Sequence[Tool]:
        async with self._serving.enter_context(_find_request()._srctx) as (registry, _):  # pyright: ignore[reportPrivateUsage]
            return [_make_tool(each, self._serving) for each in registry.registrations.values()]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Notify clients of changes of the registry while the server runs."""
        async with self._serving.announce_changes(self):
            yield

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """Return no tools: none is run in the background, and users' tools are unknown before they ask."""
        return ()


class _RegistryTool(Tool):
    _name: str = PrivateAttr()  # in the registry: transforms may rename the tool
    _serving: RegistryServing = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        context = _find_request()._srctx  # pyright: ignore[reportPrivateUsage]
        params = wire.CallToolRequestParams.model_validate({**(context.params or {}), "name": self._name})
        result = await self._serving.call_tool(context, params.model_copy(update={"arguments": arguments}))
        if isinstance(result, wire.InputRequiredResult):
            return InputRequiredToolResult(result)
        return ToolResult.from_mcp_result(result)


def _make_tool(registration: Registration[Any], serving: RegistryServing) -> Tool:
    shown = to_wire_tool(registration)
    tool = _RegistryTool(
        name=shown.name,
        title=shown.title,
        description=shown.description,
        parameters=shown.input_schema,
        output_schema=shown.output_schema,
        annotations=shown.annotations,
        tags=set(registration.options.tags),
    )
    tool._name, tool._serving = shown.name, serving  # pyright: ignore[reportPrivateUsage]
    return tool


def _find_request() -> FastMCPRequestContext:
    request = fastmcp_request_ctx.get()
    if request is None:
        raise FastMcpToolError(
            "The tools of a registry are listed and called in the request of a client; in a test, use fastmcp.Client."
        )
    return request
