"""Tools of others as they were when they were first seen, in a lock file: a change is refused until a person agrees."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from pydantic_core import from_json

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.foreign_text import escape_in_text
from toolkit.logs import get_logger
from toolkit.schema.nodes import is_object

__all__ = ["PinnedChange", "ToolPins"]

_logger = get_logger("toolkit.sources.pins")

_VERSION = 1
_MOST_FILE_BYTES = 32_000_000
_MOST_DIFF_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedChange:
    """A difference between what a server offers and what was pinned.

    Args:
        server: The name of the server or plugin.
        tool: The name of the tool, as the server has it; None where the server's address has changed.
        diff: The difference, line by line, with hidden characters as escapes.
    """

    server: str
    tool: str | None
    diff: str


ChangeApproval: TypeAlias = Callable[[PinnedChange], bool | Awaitable[bool]]
"""Asks a person about a change, and returns whether it is accepted."""


class ToolPins:
    r"""Pins the tools of MCP servers and plugins: names, descriptions, schemas and annotations.

    ::

        pins = ToolPins("toolkit.lock")
        async with mcp_tools(server, pins=pins) as tools:
            ...

    The first time that a server is seen, its tools are written to the file, which belongs into version control. Later,
    a tool that is new or differs is left out, with the difference in the log, until a person has accepted it; so is
    every tool of a server whose address differs. A tool that is gone stays pinned.

    Args:
        path: The file; it is made when first needed.
        approve: Asks a person about each change while the program runs, sync or async. None refuses all changes:
            ``toolkit pin`` shows and accepts them.
    """

    def __init__(self, path: str | Path = "toolkit.lock", *, approve: ChangeApproval | None = None) -> None:
        self._path = Path(path)
        self._approve = approve
        self._checking = anyio.Lock()

    async def find_refusals(self, server: str, address: str, tools: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return why tools may not be used, by their names, after asking about changes and pinning what is new.

        Args:
            server: The name of the server.
            address: Where it is, or the command that starts it, without secrets.
            tools: The facts that a model or a rule sees of each tool, as JSON values, by its name.

        Raises:
            ConfigurationError: The file can't be read or written.
        """
        async with self._checking:
            servers = self._read_servers()
            pinned = servers.get(server)
            if pinned is None:
                servers[server] = {"address": address, "tools": {name: dict(tool) for name, tool in tools.items()}}
                self._write_servers(servers)
                return {}
            refused: dict[str, str] = {}
            is_changed = False
            if pinned.get("address") != address:
                change = PinnedChange(server=server, tool=None, diff=_write_diff(pinned.get("address"), address))
                if not await self._ask_person(change):
                    return dict.fromkeys(tools, f"the server's address has changed since it was pinned:\n{change.diff}")
                pinned["address"], is_changed = address, True
            for name, tool in tools.items():
                before = pinned["tools"].get(name)
                if before == tool:
                    continue
                change = PinnedChange(
                    server=server, tool=name, diff=await to_thread.run_sync(_write_diff, before, tool)
                )
                if await self._ask_person(change):
                    pinned["tools"][name], is_changed = dict(tool), True
                elif before is None:
                    refused[name] = "it is not pinned: it was not there when the server was first seen"
                else:
                    refused[name] = f"it has changed since it was pinned:\n{change.diff}"
            if is_changed:
                self._write_servers(servers)
            return refused

    async def _ask_person(self, change: PinnedChange) -> bool:
        if self._approve is None:
            return False
        answer = self._approve(change)
        is_accepted = await answer if isawaitable(answer) else answer
        what = "address" if change.tool is None else f"tool '{escape_in_text(change.tool)}'"
        verb = "accepted" if is_accepted is True else "refused"
        _logger.warning("a change of the %s of '%s' was %s", what, change.server, verb)
        return is_accepted is True

    def _read_servers(self) -> dict[str, dict[str, Any]]:
        try:
            if self._path.stat().st_size > _MOST_FILE_BYTES:
                raise ConfigurationError(f"{self._path} has more than {_MOST_FILE_BYTES:,} bytes: it is no lock file")
            content = from_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the lock file {self._path} can't be read: {error}") from error
        version = content.get("version") if is_object(content) else None
        if version != _VERSION:
            raise ConfigurationError(
                f"the lock file {self._path} has version {version!r}, and this is for version {_VERSION}"
            )
        servers: dict[str, Any] = content["servers"] if is_object(content.get("servers")) else {"": None}
        if not all(is_object(each) and is_object(each.get("tools")) for each in servers.values()):
            raise ConfigurationError(f"the lock file {self._path} is damaged: restore it from version control")
        return servers

    def _write_servers(self, servers: Mapping[str, Any]) -> None:
        text = json.dumps({"version": _VERSION, "servers": servers}, indent=2, sort_keys=True, ensure_ascii=True)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            fresh.write_text(f"{text}\n", encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:
            raise ConfigurationError(f"the lock file {self._path} can't be written: {error}") from error


def _write_diff(before: object, after: object) -> str:
    lines = list(difflib.unified_diff(_write_lines(before), _write_lines(after), "pinned", "now", lineterm="", n=1))
    if len(lines) > _MOST_DIFF_LINES:
        left = len(lines) - _MOST_DIFF_LINES
        lines = [*lines[:_MOST_DIFF_LINES], f"... and {left} more lines"]
    return "\n".join(map(escape_in_text, lines))


def _write_lines(value: object) -> list[str]:
    """Return a value as lines of a diff: texts by their lines, the rest as JSON."""
    if value is None:
        return []
    if isinstance(value, str):
        return value.splitlines()
    if not is_object(value):
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
    lines: list[str] = []
    for key, member in sorted(value.items()):  # as they stand in the file
        lines += [f"{key}:", *(f"  {line}" for line in _write_lines(member))]
    return lines
