"""Tools of a server to which nothing is connected between calls."""

from __future__ import annotations

from typing import Any, Self

import anyio
import mcp.types as wire

from toolkit.backoff import backoff_pause, run_again
from toolkit.calls.context import ToolContext
from toolkit.calls.registration import ToolOptions
from toolkit.chat import ToolDefinition
from toolkit.chat.output import ToolOutput
from toolkit.errors import McpError, ToolFailedError
from toolkit.schema import ArgumentsParser, raw_arguments
from toolkit.settings import Duration, to_seconds
from toolkit.sources.mcp.failures import McpConnectionError
from toolkit.sources.mcp.native_tool import ResultSchema, call_tool, make_definition, read_options
from toolkit.sources.mcp.servers import McpServer
from toolkit.sources.mcp.session import McpSession, SessionSettings
from toolkit.sources.mcp.tools import mcp_tools

_TRIES = 3
_LONGEST_TRY_PAUSE = 60.0


class _PassingError(Exception):
    """A try failed in a way that another one may not."""


class MCPToolWrapper:
    """A tool of a server that is connected for each call, and closed after it.

    A call is tried three times in all, after one second and after two, where the server can't be reached in time; not
    where it refuses who calls, or has no such tool. A call that failed after it was sent is retried only if the
    server says that the tool reads or is idempotent.

    Args:
        server: A server from `stdio`, `http` or `sse`.
        tool: The tool, as the server lists it.
        name: The name that a model sees; None takes the server's name.
        connect_timeout: Seconds for one try to start, connect and greet.
        timeout: Seconds for one run.
        first_pause: Seconds before the second try; twice as many before the third.
    """

    def __init__(
        self,
        server: McpServer,
        tool: wire.Tool,
        *,
        name: str | None = None,
        connect_timeout: Duration = 15.0,
        timeout: Duration = 60.0,
        first_pause: float = 1.0,
    ) -> None:
        self.definition: ToolDefinition = make_definition(tool, name or tool.name)
        # No timeout: it is that of one run, and there may be several.
        self.options: ToolOptions = read_options(tool, server, None)
        self.arguments: ArgumentsParser = raw_arguments(tool.input_schema, subject=f"tool '{tool.name}'")
        self._results = ResultSchema(tool, server.name)
        self.original_name: str = tool.name
        self._server = server
        self._connect_timeout = to_seconds(connect_timeout, "connect_timeout")
        self._timeout = to_seconds(timeout, "timeout")
        self._first_pause = first_pause

    @classmethod
    async def all_of(
        cls, server: McpServer, *, prefix: str | None = None, connect_timeout: Duration = 15.0
    ) -> list[Self]:
        """Connect once to ask which tools there are, and return them all.

        Raises:
            McpError: The server can't be reached, or is none.
        """
        async with mcp_tools(server, prefix=prefix, connect_timeout=connect_timeout) as tools:
            return [
                cls(server, tool.listed, name=tool.definition.name, connect_timeout=connect_timeout) for tool in tools
            ]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.definition.name} of {self._server.name}>"

    async def execute(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Connect, call and close, as often as it takes."""
        try:
            return await self._try_call(arguments, context)
        except _PassingError as error:
            failure = error
        try:
            return await run_again(
                lambda _: self._try_call(arguments, context),
                failure,
                retries=_TRIES - 1,
                is_worth_it=lambda error: isinstance(error, _PassingError),
                pause=lambda retry, _: backoff_pause(retry, initial=self._first_pause, longest=_LONGEST_TRY_PAUSE),
            )
        except _PassingError as error:
            raise ToolFailedError(f"The call of the MCP server failed after {_TRIES} attempts: {error}") from None

    async def _try_call(self, arguments: dict[str, Any], context: ToolContext[object]) -> ToolOutput:
        """Connect, call and close.

        Raises:
            ToolFailedError: It failed for good.
            _PassingError: Another try may help, and does no harm.
        """
        is_under_way = False
        try:
            async with McpSession(self._server, self._make_settings()) as session:
                is_under_way = True
                with anyio.fail_after(self._timeout):
                    return await call_tool(
                        session,
                        self.original_name,
                        arguments,
                        context,
                        results=self._results,
                        is_repeatable=self.options.idempotent,
                    )
        except TimeoutError:
            failure = f"MCP tool '{self.definition.name}' timed out after {self._timeout:g} seconds."
            may_repeat = self.options.idempotent
        except ToolFailedError as error:
            failure = error.message
            may_repeat = self.options.idempotent and isinstance(error.__cause__, McpConnectionError)
        except McpError as error:
            failure = str(error)
            may_repeat = isinstance(error, McpConnectionError)
        if may_repeat:
            raise _PassingError(failure)
        after = " It may have taken effect." if is_under_way and "taken effect" not in failure else ""
        raise ToolFailedError(f"{failure}{after}")

    def _make_settings(self) -> SessionSettings:
        return SessionSettings(connect_timeout=self._connect_timeout, on_listed=_ignore_list)


async def _ignore_list(listed: list[wire.Tool]) -> None:
    """Take no tools: the one that is called is known."""
