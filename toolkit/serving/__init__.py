"""A registry for others: as an MCP server."""
