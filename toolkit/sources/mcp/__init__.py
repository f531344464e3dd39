"""Tools of MCP servers, on the official SDK: over a session that stays open, on demand, or by a client of your own."""

try:
    from toolkit.sources.mcp.callbacks import (
        Elicitation,
        ElicitationCallback,
        Sampling,
        SamplingApproval,
        SamplingRequest,
    )
    from toolkit.sources.mcp.failures import McpAuthError, McpConnectionError, McpNotFoundError
    from toolkit.sources.mcp.on_demand import MCPToolWrapper
    from toolkit.sources.mcp.servers import HttpServer, McpServer, StdioServer, http, sse, stdio
    from toolkit.sources.mcp.services import McpService, register_mcp_service, register_mcp_tools_by_name
    from toolkit.sources.mcp.tools import MCPNativeTool, McpTools, mcp_tools
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[mcp]'`", name=error.name
    ) from error

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
    "mcp_tools",
    "register_mcp_service",
    "register_mcp_tools_by_name",
    "sse",
    "stdio",
]
