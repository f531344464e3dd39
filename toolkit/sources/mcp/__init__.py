"""Tools of MCP servers, on the official SDK: over a session that stays open, on demand, or by a client of your own.

The SDK is imported on first use: `McpService` and the functions that register one do not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from toolkit.calls.registration import Ctx
from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError, McpError, UnknownToolNameError, naming_extra
from toolkit.tool_names import legal_names
from toolkit.tools.decorators import tool_from_schema
from toolkit.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolkit.sources.mcp.login import DeviceCode, device_login, oauth_login
    from toolkit.sources.mcp.native_tool import MCPNativeTool
    from toolkit.sources.mcp.servers import HttpServer, McpServer, StdioServer, http, mcp_servers, sse, stdio
    from toolkit.sources.mcp.session import McpAuthError, McpConnectionError, McpNotFoundError
    from toolkit.sources.mcp.tools import (
        Elicitation,
        ElicitationCallback,
        McpTools,
        MCPToolWrapper,
        Sampling,
        SamplingApproval,
        SamplingRequest,
        mcp_tools,
    )

__all__ = [
    "DeviceCode",
    "Elicitation",
    "ElicitationCallback",
    "HttpServer",
    "MCPNativeTool",
    "MCPToolWrapper",
    "McpAuthError",
    "McpConnectionError",
    "McpNotFoundError",
    "McpServer",
    "McpService",
    "McpTools",
    "Sampling",
    "SamplingApproval",
    "SamplingRequest",
    "StdioServer",
    "device_login",
    "http",
    "mcp_servers",
    "mcp_tools",
    "oauth_login",
    "register_mcp_service",
    "register_mcp_tools_by_name",
    "sse",
    "stdio",
]

_LAZY_MODULES = ("tools", "native_tool", "session", "servers", "login")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with naming_extra("mcp"):
        modules = [import_module(f"{__name__}.{module}") for module in _LAZY_MODULES]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class McpService(Protocol):
    """Any client of an MCP server."""

    async def list_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools that the server offers."""
        ...

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool by its name in `list_tools`; returns and raises the same as a tool."""
        ...


async def register_mcp_service(
    registry: ToolRegistry[Ctx], service: McpService, *, prefix: str | None = None, replace: bool = False
) -> int:
    """Register all tools of a service and return how many there are; all or, when something is wrong, none.

    Args:
        registry: Where to.
        service: The service with the tools; it must live as long as they are used.
        prefix: Put before each name, as ``{prefix}__{name}``.
        replace: True to replace tools of the same names.

    Raises:
        McpError: A name is taken, or is there twice.
    """
    return _register_tools(registry, service, await service.list_tools(), prefix=prefix, replace=replace)


async def register_mcp_tools_by_name(
    registry: ToolRegistry[Ctx],
    service: McpService,
    names: Iterable[str],
    *,
    prefix: str | None = None,
    replace: bool = False,
    missing_ok: bool = False,
) -> int:
    """Do the same as `register_mcp_service`, for the service's tools with these names.

    Raises:
        McpError: A name is taken, or is there twice.
        UnknownToolNameError: The service has no tool of a name, unless `missing_ok`.
    """
    if isinstance(names, str):
        raise ConfigurationError(f"give several names, such as [{names!r}], not one string")
    wanted = frozenset(names)
    listed = await service.list_tools()
    known = [definition.name for definition in listed]
    if not missing_ok:
        for name in sorted(wanted):
            if name not in known:
                raise UnknownToolNameError(name, known)
    chosen = [definition for definition in listed if definition.name in wanted]
    return _register_tools(registry, service, chosen, prefix=prefix, replace=replace)


def _register_tools(
    registry: ToolRegistry[Any],
    service: McpService,
    definitions: Sequence[ToolDefinition],
    *,
    prefix: str | None,
    replace: bool,
) -> int:
    originals = [definition.name for definition in definitions]
    names = legal_names([f"{prefix}__{name}" if prefix else name for name in originals])
    taken = set[str]() if replace else set(registry.names)
    for name in names:
        if name in taken:
            raise McpError(
                f"a tool named '{name}' is there already: give prefix= to keep both, or replace=True to replace it"
            )
        taken.add(name)
    tools = [
        tool_from_schema(
            name,
            definition.description or "MCP tool (no description)",
            definition.parameters or {"type": "object", "properties": {}},
            partial(service.call_tool, definition.name),
            fills_defaults=False,
            cache=False,
        )
        for name, definition in zip(names, definitions, strict=True)
    ]
    for tool in tools:
        registry.register_or_replace(tool)
    return len(tools)
