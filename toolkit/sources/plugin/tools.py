"""What a plugin offers, as tools for a registry."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
from typing_extensions import Unpack

from toolkit.errors import PluginError, SchemaError
from toolkit.secrets import program_name, secrets_in_arguments, secrets_of, without_secrets
from toolkit.sources.plugin.protocol import Description, PluginToolDefinition
from toolkit.sources.plugin.session import PluginSession
from toolkit.tools.context import ToolContext
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.home import Home
from toolkit.tools.naming import legal_names
from toolkit.tools.options import ToolOptionKeywords
from toolkit.tools.output import ToolOutput

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["PluginTools", "plugin_tools"]

_TIMEOUT = 60.0


class PluginTools:
    """What `plugin_tools` gives: enter it for the tools, leave it to end the plugin."""

    def __init__(self, session: PluginSession, options: ToolOptionKeywords) -> None:
        self._session = session
        self._options = options
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> list[FunctionTool[object, ..., Any]]:
        if self._tasks is not None:
            raise PluginError(f"plugin {self._session.name}: it was entered already; call plugin_tools again")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        is_open = False
        try:
            description = await self._session.open(self._tasks)
            tools = self._tools(description)
            is_open = True
        finally:
            if not is_open:
                await self.__aexit__(None, None, None)
        return tools

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._session.close()
        self._tasks.cancel_scope.cancel()
        # Not told of the body's exception: it leaves as itself, not in a group.
        await self._tasks.__aexit__(None, None, None)

    def _tools(self, description: Description) -> list[FunctionTool[object, ..., Any]]:
        if "concurrent" not in description.extensions:
            # A call that waits for its turn must not wait on its own time, as it would inside of the session.
            self._options.setdefault("lock", lambda _: self._session)
        names = legal_names([tool.name for tool in description.tools])
        return [self._tool(tool, name) for tool, name in zip(description.tools, names, strict=True)]

    def _tool(self, definition: PluginToolDefinition, name: str) -> FunctionTool[object, ..., Any]:
        session, home = self._session, Home()

        async def call(context: ToolContext[object], arguments: dict[str, Any]) -> ToolOutput:
            report = home.back(context.report_update)
            return await home.call(partial(session.call, definition.name, arguments, context.call_id, report))

        try:
            return tool_from_schema_with_ctx(name, definition.description, definition.parameters, call, **self._options)
        except SchemaError as error:
            raise PluginError(
                f"plugin {session.name}: what it says of its tool '{definition.name}' is wrong: {error.reason}"
            ) from error


def plugin_tools(
    path: str | Path,
    args: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    describe_timeout: float = 5.0,
    **options: Unpack[ToolOptionKeywords],
) -> PluginTools:
    """Start a program that offers tools, and give them as long as the block lasts.

    ::

        async with plugin_tools("python3", ["examples/plugins/stats.py"]) as tools:
            result = await tool_loop(provider, ToolRegistry(tools), "How much do these numbers vary?")

    The program reads requests from standard input and writes answers to standard output, one line of JSON each; what it
    writes to standard error goes to the logger ``toolkit.plugins``. It is kept running; if it ends, the call that it
    worked on is an error result, and the next one starts it again, after a pause that grows. A call is never repeated.
    With the block its whole process group ends: closing its input asks it to, TERM after a second, KILL after another.

    Args:
        path: The program: a name to look up in PATH, or a path, which counts from `cwd`.
        args: Its arguments.
        env: Variables to add to this process's environment. The values of those whose names tell of secrets, and of
            options such as ``--api-key``, are struck out of whatever it says.
        cwd: Where to start it; None means here.
        describe_timeout: Seconds that it may take to describe itself.
        options: How its tools are run; see `ToolOptions`. Unless given, ``timeout`` is 60 seconds.

    Raises:
        PluginError: On entering: it can't be started, or does not describe itself as it should; says what would help.
    """
    where = None if cwd is None else Path(cwd)
    program = str(path)
    if "/" in program or "\\" in program:
        program = str(((where or Path()) / path).absolute())
    elif (found := shutil.which(program)) is not None:
        program = found
    options.setdefault("timeout", _TIMEOUT)
    session = PluginSession(
        program_name(program, args),
        [program, *args],
        env=env,
        cwd=where,
        describe_timeout=describe_timeout,
        redact=partial(without_secrets, secrets=[*secrets_of(env or {}), *secrets_in_arguments(args)]),
    )
    return PluginTools(session, options)
