"""The tools of an MCP server as values, for the length of a block, and the settings that choose and rename them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias, overload

import anyio
import anyio.to_thread
import mcp.types as wire
from mcp import Client

from toolkit.chat import ContentBlock, Message
from toolkit.errors import ConfigurationError, McpError, SchemaError, UnknownToolNameError
from toolkit.loop.limits import LoopFrame
from toolkit.settings import Duration, Seconds, check_fields, to_seconds
from toolkit.sources.mcp.callbacks import ElicitationCallback, Questions, Sampler, Sampling
from toolkit.sources.mcp.native_tool import MCPNativeTool, read_prompt, read_resource_contents
from toolkit.sources.mcp.servers import McpServer
from toolkit.sources.mcp.session import McpSession, SessionSettings, read_all_pages
from toolkit.sources.pins import ToolPins
from toolkit.tool_names import legal_names
from toolkit.tools.registry import ToolRegistry

_logger = logging.getLogger("toolkit.sources.mcp")


class McpTools(Sequence[MCPNativeTool]):
    """The tools of a server as they are now, in its order; made by `mcp_tools`, and open inside its block.

    The server may change them, at any time or when it is started again: then this sequence changes, too, and with it
    every registry that `keep_registered` was given. A registry that was created from them is not changed.

    Attributes:
        refused: Why a tool that the server lists is none of these, by its name: its schema can't be used.
    """

    def __init__(self, server: McpServer, settings: McpToolSettings) -> None:
        self._settings = settings
        self._tools: tuple[MCPNativeTool, ...] = ()
        self._listed: list[wire.Tool] = []
        self._followers: list[tuple[ToolRegistry[Any], dict[str, MCPNativeTool]]] = []
        self._renewing = anyio.Lock()
        self._is_entered = False
        self.refused: Mapping[str, str] = {}
        sampling, elicitation = settings.sampling, settings.elicitation
        self._session = McpSession(
            server,
            SessionSettings(
                connect_timeout=settings.connect_timeout,
                sampling=None if sampling is None else Sampler(sampling, server.name, self._find_frame).sample,
                elicitation=None if elicitation is None else Questions(elicitation, server.name).elicit,
                on_listed=self._on_listed,
            ),
        )

    async def __aenter__(self) -> McpTools:
        if self._is_entered:
            raise ConfigurationError("these tools can be opened once; call mcp_tools again")
        self._is_entered = True
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    @overload
    def __getitem__(self, index: int) -> MCPNativeTool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MCPNativeTool]: ...
    def __getitem__(self, index: int | slice) -> MCPNativeTool | Sequence[MCPNativeTool]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[MCPNativeTool]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"<McpTools of {self._session.server.name}: {', '.join(tool.definition.name for tool in self._tools)}>"

    def keep_registered(self, registry: ToolRegistry[Any]) -> None:
        """Add the tools to a registry, and update them as the server changes while the block lasts.

        Raises:
            McpError: A name is taken by another tool; nothing is registered then.
        """
        registered = {tool.definition.name: tool for tool in self._tools}
        for name in registered:
            if name in registry:
                raise McpError(
                    f"a tool named '{name}' is there already: give mcp_tools(...) a prefix=, or rename the other"
                )
        for tool in registered.values():
            registry.register(tool)
        self._followers.append((registry, registered))

    def _find_frame(self) -> LoopFrame | None:
        return next(iter(self._session.frames), None)

    async def _on_listed(self, listed: list[wire.Tool]) -> None:
        async with self._renewing:
            if self._tools and listed == self._listed:
                return
            server_name = self._session.server.name
            chosen = choose_tools(server_name, listed, self._settings, is_first=not self._listed)
            unpinned = await self._find_unpinned(chosen)
            make = partial(make_tools, self._session, chosen, self._settings, unpinned)
            schemas = [(tool.input_schema, tool.output_schema) for tool in chosen]
            if len(json.dumps(schemas)) <= _LONG_SCHEMAS:
                self._tools, self.refused = make()
            else:
                self._tools, self.refused = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
            self._listed = listed
            for registry, registered in self._followers:
                _update_registry(registry, registered, self._tools)

    async def _find_unpinned(self, chosen: Sequence[wire.Tool]) -> Mapping[str, str]:
        pins, server = self._settings.pins, self._session.server
        if pins is None:
            return {}
        address = str(getattr(server, "address", server.name))
        return await pins.find_refusals(server.name, address, {tool.name: _describe_tool(tool) for tool in chosen})

    async def resources(self) -> list[wire.Resource]:
        """Return the resources of the server, of all pages.

        Raises:
            McpError: It offers no resources, or can't be reached.
        """

        async def every(client: Client) -> list[wire.Resource]:
            async def page(cursor: str | None) -> tuple[list[wire.Resource], str | None]:
                answer = await client.list_resources(cursor=cursor)
                return answer.resources, answer.next_cursor

            return await read_all_pages(page, self._session.server)

        return await self._session.request("list the resources", every)

    async def read_resource(self, uri: str) -> tuple[ContentBlock, ...]:
        """Return the content of a resource.

        Raises:
            McpError: There is none of that URI, or the server can't be reached.
        """

        async def read(client: Client) -> tuple[ContentBlock, ...]:
            return tuple(read_resource_contents(content) for content in (await client.read_resource(uri)).contents)

        return await self._session.request(f"read '{uri}'", read)

    async def prompts(self) -> list[wire.Prompt]:
        """Return the prompts that the server offers, of all pages.

        Raises:
            McpError: It offers none, or can't be reached.
        """

        async def every(client: Client) -> list[wire.Prompt]:
            async def page(cursor: str | None) -> tuple[list[wire.Prompt], str | None]:
                answer = await client.list_prompts(cursor=cursor)
                return answer.prompts, answer.next_cursor

            return await read_all_pages(page, self._session.server)

        return await self._session.request("list the prompts", every)

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Message]:
        """Return the messages of a prompt, for the beginning of a loop.

        Raises:
            McpError: There is none of that name, its arguments are wrong, or the server can't be reached.
        """

        async def get(client: Client) -> list[Message]:
            return read_prompt(await client.get_prompt(name, dict(arguments or {})))

        return await self._session.request(f"get the prompt '{name}'", get)


def mcp_tools(
    server: McpServer,
    *,
    prefix: str | None = None,
    allowed: Collection[str] | None = None,
    blocked: Collection[str] = (),
    filter: ToolFilter | None = None,  # noqa: A002 - what it is
    timeout: Duration | None = 60.0,
    connect_timeout: Duration = 30.0,
    sampling: Sampling | None = None,
    elicitation: ElicitationCallback | None = None,
    pins: ToolPins | None = None,
) -> McpTools:
    """Yield the tools of an MCP server, for the duration of an ``async with``.

    ::

        async with mcp_tools(stdio("npx", "-y", "@modelcontextprotocol/server-everything")) as tools:
            registry = ToolRegistry(tools)

    One connection serves all calls, several at once. A call that is cancelled or takes too long is cancelled on the
    server, too. A connection that is lost is made again, and the tools are listed again, at the next call or when a
    call fails of it; such a call is repeated only where the server says that the tool reads or is idempotent, else
    the model is told that it may have taken effect. A session that the server has ended is opened again in the same
    way; requests that it refused for that reason did not run, and are sent again.

    The server's annotations of a tool become tags: ``read``, ``destructive``, ``idempotent``, ``open_world``. An
    approval hook is asked about each call and sees them; `ToolRegistry.tagged` chooses by them. They are what a server
    claims: ask about all calls of one that you don't trust.

    Args:
        server: A server from `stdio`, `http` or `sse`.
        prefix: Put before each name, as ``{prefix}__{name}``; None puts nothing.
        allowed: The names, as the server has them, of the tools to take; None takes all.
        blocked: The names of those to leave out, also of those that are allowed.
        filter: Decides for each other tool whether it is included.
        timeout: Seconds for a call; None leaves it to the loop's `timeouts.tool`.
        connect_timeout: Seconds to start, connect, greet and list the tools.
        sampling: The rules for the server's requests to a model, and who approves them; None offers no model.
        elicitation: Answers where the server asks the user something; None offers no such thing.
        pins: Leaves out tools that have changed since they were first seen; None takes them as the server has them now.

    Raises:
        McpError: On entering: the server can't be reached, or is none.
        UnknownToolNameError: On entering: the server has no tool of a name in `allowed` or `blocked`.
        ConfigurationError: A setting that can't be.
    """
    settings = McpToolSettings(
        prefix=prefix,
        allowed=allowed,
        blocked=blocked,
        filter=filter,
        timeout=to_seconds(timeout, "timeout"),
        connect_timeout=to_seconds(connect_timeout, "connect_timeout"),
        sampling=sampling,
        elicitation=elicitation,
        pins=pins,
    )
    return McpTools(server, settings)


def _update_registry(
    registry: ToolRegistry[Any], registered: dict[str, MCPNativeTool], tools: tuple[MCPNativeTool, ...]
) -> None:
    """Update a registry's tools of a server to the server's current ones; other tools of the same names stay."""
    wanted = {tool.definition.name: tool for tool in tools}
    for name in [name for name in registered if name not in wanted]:
        old = registered.pop(name)
        if registry.get(name) is old:
            registry.unregister(name)
    for name, tool in wanted.items():
        if name in registry and registry.get(name) is not registered.get(name):
            _logger.warning("a tool named '%s' is there already: that of the MCP server is left out", name)
            continue
        registry.register_or_replace(tool)
        registered[name] = tool


_MOST_TOOLS = 1_000
_LONGEST_TOOL_DESCRIPTION = 20_000
_LONG_SCHEMAS = 20_000  # characters that take some 20 ms to compile at most

ToolFilter: TypeAlias = Callable[[wire.Tool], bool]
"""Takes a tool that the server lists, and returns whether it is included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolSettings:
    """The settings of `mcp_tools`, which documents them."""

    prefix: str | None
    allowed: Collection[str] | None
    blocked: Collection[str]
    filter: ToolFilter | None
    timeout: Seconds | None
    connect_timeout: Seconds
    sampling: Sampling | None
    elicitation: ElicitationCallback | None
    pins: ToolPins | None

    def __post_init__(self) -> None:
        check_fields(self)


def choose_tools(
    server_name: str, listed: list[wire.Tool], settings: McpToolSettings, *, is_first: bool
) -> list[wire.Tool]:
    """Return the tools that are wanted of those that a server lists.

    Raises:
        McpError: The list can't be used.
        UnknownToolNameError: It is the first one, and lacks a tool named in the settings.
    """
    names = [tool.name for tool in listed]
    _check_listed_names(server_name, names)
    if is_first:  # later the server may have changed its tools
        for name in sorted({*(settings.allowed or ()), *settings.blocked}):
            if name not in names:
                raise UnknownToolNameError(name, names)
    return [tool for tool in listed if _is_wanted(tool, settings)]


def make_tools(
    session: McpSession, chosen: list[wire.Tool], settings: McpToolSettings, unpinned: Mapping[str, str]
) -> tuple[tuple[MCPNativeTool, ...], dict[str, str]]:
    """Return the tools that can be used of those that were chosen, and why others can't be, by their names."""
    shown = legal_names([f"{settings.prefix}__{tool.name}" if settings.prefix else tool.name for tool in chosen])
    tools: list[MCPNativeTool] = []
    refused: dict[str, str] = {}
    for tool, name in zip(chosen, shown, strict=True):
        reason = unpinned.get(tool.name) or _find_refusal(tool)
        if reason is None:
            try:
                tools.append(MCPNativeTool(session, tool, name=name, timeout=settings.timeout))
            except SchemaError as error:
                reason = error.reason
        if reason is not None:
            refused[tool.name] = reason
            _logger.warning("MCP server '%s': left out '%s': %s", session.server.name, tool.name, reason)
    return tuple(tools), refused


def _describe_tool(tool: wire.Tool) -> dict[str, Any]:
    """Return what a model or a rule sees of a tool."""
    seen = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
    return tool.model_dump(mode="json", include=seen, exclude_none=True)


def _find_refusal(tool: wire.Tool) -> str | None:
    """Return why a tool can't be used, before its schemas are looked at; None where it can."""
    if len(tool.description or "") > _LONGEST_TOOL_DESCRIPTION:
        return f"its description has more than {_LONGEST_TOOL_DESCRIPTION} characters"
    if tool.execution is not None and tool.execution.task_support == "required":
        return "it runs only as a task of the protocol, and tasks are not supported"
    return None


def _is_wanted(tool: wire.Tool, settings: McpToolSettings) -> bool:
    if tool.name in settings.blocked or (settings.allowed is not None and tool.name not in settings.allowed):
        return False
    return settings.filter is None or settings.filter(tool)


def _check_listed_names(server_name: str, names: list[str]) -> None:
    if len(names) > _MOST_TOOLS:
        raise McpError(f"MCP server '{server_name}' lists more than {_MOST_TOOLS} tools; no model chooses well")
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise McpError(
            f"MCP server '{server_name}' lists several tools named {', '.join(map(repr, repeated))}: which of "
            "them a call means can't be known; leave them out there"
        )
