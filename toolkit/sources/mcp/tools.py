"""The tools of an MCP server as values, for the length of a block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, overload

import mcp.types as wire
from mcp import Client

from toolkit.calls.secrecy import redacted
from toolkit.chat import ContentBlock, Message, ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, McpError, SchemaError, ToolFailedError, UnknownToolNameError
from toolkit.loop.depth import LoopFrame, current_frame
from toolkit.schema import ArgumentsParser, raw_arguments
from toolkit.settings import Duration, check_setting, to_seconds
from toolkit.sources.mcp.blocks import read_contents, read_prompt, read_result
from toolkit.sources.mcp.callbacks import ElicitationCallback, Questions, Sampler, Sampling
from toolkit.sources.mcp.servers import McpServer
from toolkit.sources.mcp.session import McpSession, SessionSettings, all_pages
from toolkit.tools.context import ToolContext
from toolkit.tools.naming import legal_names
from toolkit.tools.options import ToolOptions
from toolkit.tools.registry import ToolRegistry

__all__ = ["MCPNativeTool", "McpTools", "ToolFilter", "make_definition", "mcp_tools", "read_options"]

_logger = logging.getLogger("toolkit.sources.mcp")
_MOST_TOOLS = 1_000
_LONGEST_TOOL_DESCRIPTION = 20_000

ToolFilter = Callable[[wire.Tool], bool]
"""Given a tool that the server lists, says whether it is taken."""


class MCPNativeTool:
    """A tool of a server whose session is open; any number of its calls may run at once.

    Attributes:
        definition: What a model is told.
        options: How it is run; tags and idempotence are as the server says.
        arguments: Checks the arguments before anything is sent.
        original_name: What the server calls it.
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


class McpTools(Sequence[MCPNativeTool]):
    """The tools of a server as they are now, in its order; made by `mcp_tools`, and open inside of its block.

    The server may change them, at any time or when it is started again: then this sequence changes, too, and with it
    every registry that `keep_registered` was given. A registry that was just made of them keeps what it has.

    Attributes:
        refused: Why a tool that the server lists is none of these, by its name: its schema can't be used.
    """

    def __init__(self, server: McpServer, settings: _Settings) -> None:
        self._settings = settings
        self._tools: tuple[MCPNativeTool, ...] = ()
        self._listed: list[wire.Tool] = []
        self._followers: list[tuple[ToolRegistry[Any], dict[str, MCPNativeTool]]] = []
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
        """Put the tools into a registry, and keep them there as the server has them while the block lasts.

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

    def _on_listed(self, listed: list[wire.Tool]) -> None:
        if self._tools and listed == self._listed:
            return
        self._tools, self.refused = _make_tools_of(self._session, listed, self._settings, is_first=not self._listed)
        self._listed = listed
        for registry, registered in self._followers:
            _update_registry(registry, registered, self._tools)

    async def resources(self) -> list[wire.Resource]:
        """Return what the server offers to read, of all pages.

        Raises:
            McpError: It offers no resources, or can't be reached.
        """

        async def every(client: Client) -> list[wire.Resource]:
            async def page(cursor: str | None) -> tuple[list[wire.Resource], str | None]:
                answer = await client.list_resources(cursor=cursor)
                return answer.resources, answer.next_cursor

            return await all_pages(page, self._session.server)

        return await self._session.request("list the resources", every)

    async def read_resource(self, uri: str) -> tuple[ContentBlock, ...]:
        """Return the content of a resource.

        Raises:
            McpError: There is none of that URI, or the server can't be reached.
        """

        async def read(client: Client) -> tuple[ContentBlock, ...]:
            return tuple(read_contents(content) for content in (await client.read_resource(uri)).contents)

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

            return await all_pages(page, self._session.server)

        return await self._session.request("list the prompts", every)

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> list[Message]:
        """Return the messages of a prompt, for the beginning of a loop.

        Raises:
            McpError: There is none of that name, its arguments are wrong, or the server can't be reached.
        """

        async def get(client: Client) -> list[Message]:
            return read_prompt(await client.get_prompt(name, dict(arguments or {})))

        return await self._session.request(f"get the prompt '{name}'", get)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    prefix: str | None
    allowed: frozenset[str] | None
    blocked: frozenset[str]
    filter: ToolFilter | None
    timeout: float | None
    connect_timeout: float
    sampling: Sampling | None
    elicitation: ElicitationCallback | None


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
) -> McpTools:
    """Give the tools of an MCP server, for the length of an ``async with``.

    ::

        async with mcp_tools(stdio("npx", "-y", "@modelcontextprotocol/server-everything")) as tools:
            registry = ToolRegistry(tools)

    One connection serves all calls, several at once. A call that is cancelled or takes too long is cancelled on the
    server, too. A connection that is lost is made again, and the tools are listed again, at the next call or when a
    call fails of it; such a call is repeated only where the server says that the tool reads or is idempotent, else
    the model is told that it may have taken effect. A session that the server has ended is opened again in the same
    way; what it refused for that has not been run, and is sent again.

    What the server says of a tool becomes tags: ``read``, ``destructive``, ``idempotent``, ``open_world``. An approval
    hook is asked about each call and sees them; `ToolRegistry.tagged` chooses by them. They are what a server claims:
    ask about all calls of one that you don't trust.

    Args:
        server: What `stdio`, `http` or `sse` give.
        prefix: Put before each name, as ``{prefix}__{name}``; None puts nothing.
        allowed: The names, as the server has them, of the tools to take; None takes all.
        blocked: The names of those to leave out, also of those that are allowed.
        filter: Says of each other tool whether it is taken.
        timeout: Seconds for a call; None leaves it to the loop's `timeouts.tool`.
        connect_timeout: Seconds to start, connect, greet and list the tools.
        sampling: What the server may ask of a model, and who sees it first; None offers no model.
        elicitation: Answers where the server asks the user something; None offers no such thing.

    Raises:
        McpError: On entering: the server can't be reached, or is none.
        UnknownToolNameError: On entering: the server has no tool of a name in `allowed` or `blocked`.
        ConfigurationError: A setting that can't be.
    """
    check_setting("sampling", sampling, Sampling, None)
    for names in (allowed, blocked):
        if isinstance(names, str):
            raise ConfigurationError(f"give several names, such as [{names!r}], not one string")
    return McpTools(
        server,
        _Settings(
            prefix=prefix,
            allowed=None if allowed is None else frozenset(allowed),
            blocked=frozenset(blocked),
            filter=filter,
            timeout=to_seconds(timeout, "timeout"),
            connect_timeout=to_seconds(connect_timeout, "connect_timeout") or 30.0,
            sampling=sampling,
            elicitation=elicitation,
        ),
    )


def _make_tools_of(
    session: McpSession, listed: list[wire.Tool], settings: _Settings, *, is_first: bool
) -> tuple[tuple[MCPNativeTool, ...], dict[str, str]]:
    if len(listed) > _MOST_TOOLS:
        raise McpError(f"MCP server '{session.server.name}' lists more than {_MOST_TOOLS} tools; no model chooses well")
    names = [tool.name for tool in listed]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise McpError(
            f"MCP server '{session.server.name}' lists several tools named {', '.join(map(repr, repeated))}: which of "
            "them a call means can't be known; leave them out there"
        )
    if is_first:  # later the server may have changed what it has
        for name in sorted((settings.allowed or frozenset()) | settings.blocked):
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


def _is_wanted(tool: wire.Tool, settings: _Settings) -> bool:
    if tool.name in settings.blocked or (settings.allowed is not None and tool.name not in settings.allowed):
        return False
    return settings.filter is None or settings.filter(tool)


def _update_registry(
    registry: ToolRegistry[Any], registered: dict[str, MCPNativeTool], tools: tuple[MCPNativeTool, ...]
) -> None:
    """Make what a registry has of a server what the server has; another tool of a name is left alone."""
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
