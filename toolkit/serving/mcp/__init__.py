"""A registry as an MCP server, on the official SDK: over standard input and output, or streamable HTTP."""

from toolkit.errors import naming_extra

with naming_extra("mcp"):
    from toolkit.serving.mcp.server import McpRequest, mcp_server, serve_mcp
    from toolkit.serving.mcp.web import JwtVerifier, mcp_app, serve_mcp_http

__all__ = ["JwtVerifier", "McpRequest", "mcp_app", "mcp_server", "serve_mcp", "serve_mcp_http"]
