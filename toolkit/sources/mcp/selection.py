"""The tools of a server that are taken, and the settings that say so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

import mcp.types as wire

from toolkit.errors import McpError, SchemaError, UnknownToolNameError
from toolkit.settings import Seconds, check_fields
from toolkit.sources.mcp.callbacks import ElicitationCallback, Sampling
from toolkit.sources.mcp.native_tool import MCPNativeTool
from toolkit.sources.mcp.session import McpSession
from toolkit.tool_names import legal_names

__all__ = ["McpToolSettings", "ToolFilter", "choose_tools"]

_logger = logging.getLogger("toolkit.sources.mcp")
_MOST_TOOLS = 1_000
_LONGEST_TOOL_DESCRIPTION = 20_000

ToolFilter: TypeAlias = Callable[[wire.Tool], bool]
"""Given a tool that the server lists, says whether it is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolSettings:
    """The settings of `mcp_tools`, which says what they mean."""

    prefix: str | None
    allowed: Collection[str] | None
    blocked: Collection[str]
    filter: ToolFilter | None
    timeout: Seconds | None
    connect_timeout: Seconds
    sampling: Sampling | None
    elicitation: ElicitationCallback | None

    def __post_init__(self) -> None:
        check_fields(self)


def choose_tools(
    session: McpSession, listed: list[wire.Tool], settings: McpToolSettings, *, is_first: bool
) -> tuple[tuple[MCPNativeTool, ...], dict[str, str]]:
    """Return the tools that are taken of those that a server lists, and why others can't be used, by their names.

    Raises:
        McpError: The list can't be used.
        UnknownToolNameError: It is the first one, and has no tool of a name that the settings give.
    """
    names = [tool.name for tool in listed]
    _check_listed_names(session.server.name, names)
    if is_first:  # later the server may have changed what it has
        for name in sorted({*(settings.allowed or ()), *settings.blocked}):
            if name not in names:
                raise UnknownToolNameError(name, names)
    chosen = [tool for tool in listed if _is_wanted(tool, settings)]
    shown = legal_names([f"{settings.prefix}__{tool.name}" if settings.prefix else tool.name for tool in chosen])
    tools: list[MCPNativeTool] = []
    refused: dict[str, str] = {}
    for tool, name in zip(chosen, shown, strict=True):
        if len(tool.description or "") > _LONGEST_TOOL_DESCRIPTION:
            refused[tool.name] = f"its description has more than {_LONGEST_TOOL_DESCRIPTION} characters"
            _logger.warning("MCP server '%s': left out '%s': %s", session.server.name, tool.name, refused[tool.name])
            continue
        try:
            tools.append(MCPNativeTool(session, tool, name=name, timeout=settings.timeout))
        except SchemaError as error:
            refused[tool.name] = error.reason
            _logger.warning("MCP server '%s': left out '%s': %s", session.server.name, tool.name, error.reason)
    return tuple(tools), refused


def _is_wanted(tool: wire.Tool, settings: McpToolSettings) -> bool:
    if tool.name in settings.blocked or (settings.allowed is not None and tool.name not in settings.allowed):
        return False
    return settings.filter is None or settings.filter(tool)


def _check_listed_names(server_name: str, names: list[str]) -> None:
    if len(names) > _MOST_TOOLS:
        raise McpError(f"MCP server '{server_name}' lists more than {_MOST_TOOLS} tools; no model chooses well")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise McpError(
            f"MCP server '{server_name}' lists several tools named {', '.join(map(repr, repeated))}: which of "
            "them a call means can't be known; leave them out there"
        )
