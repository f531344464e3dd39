"""Tools in processes of their own, in any language: newline-delimited JSON over standard input and output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from typing_extensions import Unpack

from toolkit.calls.context import ToolContext
from toolkit.calls.registration import ToolOptionKeywords
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, PluginError, SchemaError
from toolkit.foreign_text import escape_in_name
from toolkit.logs import get_logger
from toolkit.redaction import program_name, secrets_in_arguments, secrets_of, without_secrets
from toolkit.runtime.backend import OwnerLoop
from toolkit.runtime.processes import inherited_environment
from toolkit.runtime.workers import enter_gate
from toolkit.settings import check_setting
from toolkit.sources import ServerLimits
from toolkit.sources.pins import ToolPins
from toolkit.sources.plugin.session import Description, PluginSession, PluginToolDefinition
from toolkit.tool_names import legal_names
from toolkit.tools.decorators import tool_from_schema_with_ctx
from toolkit.tools.function_tool import FunctionTool

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["PluginTools", "plugin_tools"]


_logger = get_logger("toolkit.sources.plugin")

_LIMITS = ServerLimits()
_LONG_SCHEMAS = 20_000  # characters that take some 20 ms to compile at most


class PluginTools:
    """The result of `plugin_tools`: enter it for the tools, leave it to end the plugin."""

    def __init__(
        self,
        session: PluginSession,
        options: ToolOptionKeywords,
        address: str,
        pins: ToolPins | None,
        limits: ServerLimits,
    ) -> None:
        self._session = session
        self._address = address
        self._pins = pins
        self._limits = limits
        self._options = options
        self._offered: dict[str, tuple[PluginToolDefinition, FunctionTool[object, ..., Any]]] = {}
        self._tasks: TaskGroup | None = None
        self._owner_loop: OwnerLoop | None = None

    async def __aenter__(self) -> list[FunctionTool[object, ..., Any]]:
        if self._tasks is not None:
            raise PluginError(f"plugin {self._session.name}: it was entered already; call plugin_tools again")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        is_open = False
        try:
            self._owner_loop = OwnerLoop()
            description = await self._session.open(self._tasks)
            tools = await self._make_tools(description)
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
        # Without the body's exception: it is raised as itself, not in a group.
        await self._tasks.__aexit__(None, None, None)

    async def _make_tools(self, description: Description) -> list[FunctionTool[object, ..., Any]]:
        tools = await self._choose_pinned(description.tools)
        names = legal_names([tool.name for tool in tools])
        made = await self._compile_tools(list(zip(tools, names, strict=True)))
        counter = None if "max_usage_count" in self._options else self._limits.make_counter()
        for tool, result in zip(tools, made, strict=True):
            if isinstance(result, PluginError):
                raise result
            result.can_change = True
            result.counter = counter or result.counter
            self._offered[tool.name] = (tool, result)
        self._session.on_described = self._renew_tools
        return [tool for _, tool in self._offered.values()]

    async def _choose_pinned(self, tools: Sequence[PluginToolDefinition]) -> Sequence[PluginToolDefinition]:
        """Return the tools without those that differ from what is pinned."""
        if self._pins is None:
            return tools
        seen = {tool.name: {"description": tool.description, "parameters": tool.parameters} for tool in tools}
        refused = await self._pins.find_refusals(self._session.name, self._address, seen)
        for name, reason in refused.items():
            _logger.warning("plugin %s: left out '%s': %s", self._session.name, escape_in_name(name), reason)
        return [tool for tool in tools if tool.name not in refused]

    async def _renew_tools(self, description: Description) -> None:
        """Update the tools to the description of a restarted plugin."""
        changed: list[tuple[PluginToolDefinition, str]] = []
        for described in await self._choose_pinned(description.tools):
            if described.name not in self._offered:
                _logger.warning(
                    "%s: it was started again and offers another tool now, '%s': open it anew to have it",
                    self._session.name,
                    escape_in_name(described.name),
                )
                continue
            before, tool = self._offered[described.name]
            if described != before:
                changed.append((described, tool.definition.name))
        for (described, _), result in zip(changed, await self._compile_tools(changed), strict=True):
            if isinstance(result, PluginError):
                _logger.warning("%s; it stays as it was", result)
                continue
            _, tool = self._offered[described.name]
            tool.renew(result)
            self._offered[described.name] = (described, tool)

    async def _compile_tools(
        self, described: Sequence[tuple[PluginToolDefinition, str]]
    ) -> list[FunctionTool[object, ..., Any] | PluginError]:
        """Return the tools of named definitions, in a thread where that may take long; an error for a wrong one."""

        def compile_all() -> list[FunctionTool[object, ..., Any] | PluginError]:
            return [self._make_tool(definition, name) for definition, name in described]

        if len(json.dumps([definition.parameters for definition, _ in described])) <= _LONG_SCHEMAS:
            return compile_all()
        return await anyio.to_thread.run_sync(compile_all, abandon_on_cancel=True)

    def _make_tool(self, definition: PluginToolDefinition, name: str) -> FunctionTool[object, ..., Any] | PluginError:
        session, owner_loop, original = self._session, self._owner_loop, definition.name
        assert owner_loop is not None

        async def call(context: ToolContext[object], arguments: dict[str, Any]) -> ToolOutput:
            report, parser = owner_loop.wrap_callback(context.report_update), self._offered[original][1].arguments
            leave: Callable[[], object] = int
            with context.waiting_for(f"the plugin {session.name}"):
                is_ready = False
                try:
                    if not session.is_concurrent:
                        leave = await enter_gate(("plugin", session))
                    await owner_loop.call(session.prepare)
                    is_ready = True
                finally:
                    if not is_ready:
                        leave()
            try:
                current = self._offered[original][1].arguments
                if current is not parser:  # it was started again, and its parameters are others now
                    arguments = current.parse(arguments)
                run = partial(session.call, original, arguments, context.call_id, report)
                return self._limits.check_output(await owner_loop.call(run))
            finally:
                leave()

        try:
            options: ToolOptionKeywords = {
                "cache": False,
                "trust": "untrusted",
                "max_usage_count": self._limits.calls,
                **self._options,
            }
            return tool_from_schema_with_ctx(
                name, definition.description, definition.parameters, call, fills_defaults=False, **options
            )
        except SchemaError as error:
            shown = escape_in_name(original)
            return PluginError(f"plugin {session.name}: the description of its tool '{shown}' is wrong: {error.reason}")


def plugin_tools(
    path: str | Path,
    args: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    env_allowlist: Collection[str] | None = (),
    cwd: str | Path | None = None,
    describe_timeout: float = 5.0,
    pins: ToolPins | None = None,
    limits: ServerLimits = _LIMITS,
    **options: Unpack[ToolOptionKeywords],
) -> PluginTools:
    """Start a program that offers tools, and yield them for the duration of the block.

    ::

        async with plugin_tools("python3", ["examples/plugins/stats.py"]) as tools:
            result = await tool_loop(provider, ToolRegistry(tools), "How much do these numbers vary?")

    The program reads requests from standard input and writes answers to standard output, one line of JSON each; its
    standard error goes to the logger ``toolkit.sources.plugin``. It keeps running; if it ends, the call that it worked
    on is an error result, and the next one restarts it, after a pause that grows, with the definitions that it then
    sends. A call is never repeated. A process whose answer has no ``call_id`` is ended after it, and the next call gets
    a new process, because a second answer could be for any call. Calls wait for each other unless the plugin has the
    extension ``concurrent``. At the end of the block its whole process group is ended: its input is closed, SIGTERM
    follows after a second, and SIGKILL after another.

    Args:
        path: The program: a name to look up in PATH, or a path, which counts from `cwd`.
        args: Its arguments.
        env: Variables that it gets. The values of those whose names indicate secrets, and of options such as
            ``--api-key``, are redacted from its texts.
        env_allowlist: Variables that it inherits, besides those that every program needs (``PATH``, ``HOME``, ``LANG``
            and their like); None lets it inherit all, including keys in the environment.
        cwd: Where to start it; None means here.
        describe_timeout: Seconds that it may take to describe itself.
        pins: Leaves out tools that have changed since they were first seen; None takes them as they are now.
        limits: The limits of calls and outputs.
        options: The options of its tools; see `ToolOptions`. Unless given, ``timeout`` is that of `limits`.

    Raises:
        PluginError: On entering: it can't be started, or its description is invalid; the message has the remedy.
    """
    where = None if cwd is None else Path(cwd)
    program = _find_program(path, where)
    options.setdefault("timeout", limits.timeout)
    if isinstance(env_allowlist, str):
        raise ConfigurationError(f"env_allowlist must be several names, such as [{env_allowlist!r}]")
    check_setting("env_allowlist", env_allowlist, Collection, None)
    environment = {**inherited_environment(env_allowlist), **(env or {})}
    redact = partial(without_secrets, secrets=[*secrets_of(environment), *secrets_in_arguments(program, args)])
    session = PluginSession(
        program_name(program, args),
        [program, *args],
        env=environment,
        cwd=where,
        describe_timeout=describe_timeout,
        redact=redact,
    )
    return PluginTools(session, options, redact(" ".join([str(path), *args])), pins, limits)


def _find_program(path: str | Path, folder: Path | None) -> str:
    program = str(path)
    if "/" in program or "\\" in program:
        return str(((folder or Path()) / path).absolute())
    return shutil.which(program) or program
