"""Lists of a server that come in pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import mcp.types as wire
from mcp import Client

from toolkit.errors import McpError
from toolkit.sources.mcp.servers import McpServer

__all__ = ["read_all_pages", "list_server_tools"]

T = TypeVar("T")

_MAX_PAGES = 100


async def list_server_tools(client: Client, server: McpServer) -> list[wire.Tool]:
    """Return the tools of all pages."""
    if client.server_capabilities.tools is None:
        return []

    async def page(cursor: str | None) -> tuple[list[wire.Tool], str | None]:
        answer = await client.list_tools(cursor=cursor)
        return answer.tools, answer.next_cursor

    return await read_all_pages(page, server)


async def read_all_pages(
    page: Callable[[str | None], Awaitable[tuple[list[T], str | None]]], server: McpServer
) -> list[T]:
    """Return what is on all pages.

    Args:
        page: Given a page's cursor, None for the first; gives what is on it, and the next one's cursor.
        server: The server of the pages.

    Raises:
        McpError: They never end.
    """
    found: list[T] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        items, following = await page(cursor)
        found += items
        if following is None or following == cursor:
            return found
        cursor = following
    raise McpError(f"MCP server '{server.name}' lists more than {_MAX_PAGES} pages")
