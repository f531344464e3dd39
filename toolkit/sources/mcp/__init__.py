"""Tools of MCP servers, on the official SDK: over a session that stays open, on demand, or by a client of your own.

The SDK is imported on first use: `McpService` and the functions that register one do not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkit.errors import naming_extra
from toolkit.sources.mcp.services import McpService, register_mcp_service, register_mcp_tools_by_name

if TYPE_CHECKING:
    from toolkit.sources.mcp.callbacks import (
        Elicitation,
        ElicitationCallback,
        Sampling,
        SamplingApproval,
        SamplingRequest,
    )
    from toolkit.sources.mcp.failures import McpAuthError, McpConnectionError, McpNotFoundError
    from toolkit.sources.mcp.native_tool import MCPNativeTool
    from toolkit.sources.mcp.on_demand import MCPToolWrapper
    from toolkit.sources.mcp.servers import HttpServer, McpServer, StdioServer, http, mcp_servers, sse, stdio
    from toolkit.sources.mcp.tools import McpTools, mcp_tools

__all__ = [
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
    "http",
    "mcp_servers",
    "mcp_tools",
    "register_mcp_service",
    "register_mcp_tools_by_name",
    "sse",
    "stdio",
]

_LAZY_MODULES = ("tools", "native_tool", "callbacks", "failures", "on_demand", "servers")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with naming_extra("mcp"):
        modules = [import_module(f"{__name__}.{module}") for module in _LAZY_MODULES]
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
