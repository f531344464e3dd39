"""A server of the SDK's in this process, that can be killed and told to offer other tools."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp.types as wire
from mcp.client import Transport
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.runner import serve_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.memory import create_client_server_memory_streams

Handler = Callable[[ServerRequestContext[Any, Any], dict[str, Any]], Awaitable[wire.CallToolResult]]


def text(words: str, *, is_error: bool = False) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=words)], is_error=is_error)


def listed(name: str, **fields: Any) -> wire.Tool:
    schema = fields.pop("input_schema", {"type": "object", "properties": {}})
    return wire.Tool(name=name, description=f"Does {name}.", input_schema=schema, **fields)


@dataclass
class MemoryServer:
    """A server without a process.

    Attributes:
        tools: What it lists, and what runs.
        page_size: How many tools a page holds.
        opened: How often it has been connected.
        calls: The names of the calls that began.
        is_modern: Whether it speaks the newest revision, in which clients subscribe to changes.
    """

    tools: list[tuple[wire.Tool, Handler]]
    name: str = "memory"
    page_size: int = 100
    opened: int = 0
    calls: list[str] = field(default_factory=list[str])
    resources: dict[str, str] = field(default_factory=dict[str, str])
    is_modern: bool = True
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    _kill: Callable[[], None] = lambda: None

    def open(self, words: deque[str]) -> Transport:
        return self._open()

    def redact(self, text: str) -> str:
        return text.replace("s3cret", "***")

    def kill(self) -> None:
        """End the connection as the death of a process would."""
        self._kill()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Any]:
        self.opened += 1
        server = self._made()
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with create_client_server_memory_streams() as (client, (read, write)), anyio.create_task_group() as tasks:

            async def serve() -> None:
                with anyio.CancelScope() as scope:
                    self._kill = scope.cancel
                    async with read, write:
                        if self.is_modern:
                            await server.run(read, write, options)
                        else:
                            await serve_loop(server, read, write, lifespan_state={}, init_options=options)

            tasks.start_soon(serve)
            yield client
            tasks.cancel_scope.cancel()

    def _made(self) -> Server[Any]:
        async def on_list(ctx: Any, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
            start = int(params.cursor) if params is not None and params.cursor else 0
            end = start + self.page_size
            more = str(end) if end < len(self.tools) else None
            return wire.ListToolsResult(tools=[tool for tool, _ in self.tools[start:end]], next_cursor=more)

        async def on_call(ctx: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
            self.calls.append(params.name)
            for tool, handler in self.tools:
                if tool.name == params.name:
                    return await handler(ctx, params.arguments or {})
            return text(f"unknown tool {params.name}", is_error=True)

        async def on_resources(ctx: Any, params: Any) -> wire.ListResourcesResult:
            return wire.ListResourcesResult(resources=[wire.Resource(uri=uri, name=uri) for uri in self.resources])

        async def on_read(ctx: Any, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
            uri = str(params.uri)
            return wire.ReadResourceResult(contents=[wire.TextResourceContents(uri=uri, text=self.resources[uri])])

        return Server(
            self.name,
            version="1",
            on_list_tools=on_list,
            on_call_tool=on_call,
            on_list_resources=on_resources,
            on_read_resource=on_read,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def tell_of_change(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Say that the tools have changed, as servers of this revision do."""
        if self.is_modern:
            await self.bus.publish(ToolsListChanged())
        else:
            await ctx.session.send_notification(wire.ToolListChangedNotification())
