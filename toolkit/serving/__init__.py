"""A registry for others: as a plugin, as an MCP server."""

from toolkit.serving.plugin_sdk import serve_plugin

__all__ = ["serve_plugin"]
