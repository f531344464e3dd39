"""One tool of a server whose session is open: its definition, its options and its calls."""

from __future__ import annotations

from typing import Any

import mcp.types as wire
from mcp import Client

from toolkit.calls.context import ToolContext
from toolkit.calls.options import ToolOptions
from toolkit.calls.output import redacted
from toolkit.chat import ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.errors import McpError, ToolFailedError
from toolkit.loop.depth import current_frame
from toolkit.schema import ArgumentsParser, raw_arguments
from toolkit.sources.mcp.blocks import read_result
from toolkit.sources.mcp.servers import McpServer
from toolkit.sources.mcp.session import McpSession

__all__ = ["MCPNativeTool", "call_tool", "make_definition", "read_options"]


class MCPNativeTool:
    """A tool of a server whose session is open; any number of its calls may run at once.

    Attributes:
        definition: The definition that a model sees.
        options: How it is run; tags and idempotence are as the server says.
        arguments: Checks the arguments before anything is sent.
        original_name: Its name on the server.
        listed: All that the server says of it.
    """

    def __init__(self, session: McpSession, tool: wire.Tool, *, name: str, timeout: float | None) -> None:
        self.definition: ToolDefinition = make_definition(tool, name)
        self.options: ToolOptions = read_options(tool, session.server, timeout)
        self.arguments: ArgumentsParser = raw_arguments(tool.input_schema, subject=f"tool '{tool.name}'")
        self.original_name: str = tool.name
        self.listed = tool
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} of {self._session.server.name}>"

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Call it on the server; what that reports of its progress is reported here, and a cancellation is sent."""
        return await call_tool(
            self._session, self.original_name, arguments, context, is_repeatable=self.options.idempotent
        )


async def call_tool(
    session: McpSession,
    name: str,
    arguments: dict[str, Any],
    context: ToolContext[object],
    *,
    is_repeatable: bool,
) -> ToolOutput:
    """Call a tool of an open session.

    Raises:
        ToolFailedError: The server can't be reached or refused the call; says whether it may have taken effect.
    """
    report = session.back(context.report_progress)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        so_far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        report(session.server.redact(f"{so_far}: {message}") if message else so_far)

    async def call(client: Client) -> wire.CallToolResult:
        # Asking for progress makes some servers send it; where nobody takes it, it is not asked for.
        callback = progressed if context.is_observed else None
        return await client.call_tool(name, arguments, progress_callback=callback)

    frame = current_frame.get()
    if frame is not None:
        session.frames.append(frame)
    try:
        result = await session.request(f"call '{name}'", call, is_repeatable=is_repeatable)
    except McpError as error:
        raise ToolFailedError(str(error)) from error
    finally:
        if frame is not None:
            session.frames.remove(frame)
    return redacted(read_result(result), session.server.redact)


def make_definition(tool: wire.Tool, name: str) -> ToolDefinition:
    """Return what a model is told of a server's tool."""
    return ToolDefinition(
        name=name,
        description=tool.description or _find_title(tool) or "MCP tool (no description)",
        parameters=tool.input_schema,
        output_schema=tool.output_schema,
    )


def read_options(tool: wire.Tool, server: McpServer, timeout: float | None) -> ToolOptions:
    """Return how a server's tool is run, by its annotations: a server that is not trusted may say what it likes."""
    hints = tool.annotations or wire.ToolAnnotations()
    is_read = hints.read_only_hint is True
    tags = {
        "read": is_read,
        "destructive": hints.destructive_hint is True and not is_read,
        "idempotent": hints.idempotent_hint is True,
        "open_world": hints.open_world_hint is True,
    }
    return ToolOptions(
        label=_find_title(tool),
        timeout=timeout,
        idempotent=is_read or hints.idempotent_hint is True,
        cache=False,
        tags=frozenset(tag for tag, is_meant in tags.items() if is_meant),
        metadata={"mcp_server": server.name, "mcp_name": tool.name},
    )


def _find_title(tool: wire.Tool) -> str:
    return tool.title or (tool.annotations.title if tool.annotations else None) or ""
