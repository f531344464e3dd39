"""A registry as an MCP server, on the official SDK: over standard input and output, or streamable HTTP."""

try:
    from toolkit.serving.mcp.server import mcp_server, serve_mcp
    from toolkit.serving.mcp.web import mcp_app, serve_mcp_http
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[mcp]'`", name=error.name
    ) from error

__all__ = ["mcp_app", "mcp_server", "serve_mcp", "serve_mcp_http"]
