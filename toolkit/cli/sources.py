"""One word names where tools come from; here it is read, and what it names is opened."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.progress import Steps
from toolkit.cli.user_modules import find_tools, import_file, import_named
from toolkit.dataclass import dataclass
from toolkit.secrets import program_name, without_credentials, without_keys
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.registry import ToolRegistry
from toolkit.visible_text import escape_in_text

__all__ = [
    "OpenedTools",
    "SourceSettings",
    "ToolSource",
    "leave_out_unusable",
    "open_sources",
    "read_source",
    "read_variable",
]

_SOURCE_IN_FILE = re.compile(r"(?P<path>.+?\.py)(?::(?P<name>[A-Za-z_]\w*))?")
_SOURCE_IN_MODULE = re.compile(r"(?P<path>[A-Za-z_][\w.]*)(?::(?P<name>[A-Za-z_]\w*))?")
_Opened: TypeAlias = AbstractAsyncContextManager[ToolRegistry[Any]]

_SOURCE_KINDS = ("openapi", "mcp", "plugin", "coding")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The options of every source of a command.

    Args:
        timeout: Seconds that a source may take to open.
        variables: Names of variables that programs are given.
        token_variable: The name of the variable with the token for a server at a URL; empty for none.
        base_url: Where the operations of an OpenAPI document are, instead of where it says; empty for that.
    """

    timeout: float = 30.0
    variables: Sequence[str] = ()
    token_variable: str = ""
    base_url: str = ""

    def read_variables(self) -> dict[str, str]:
        """Return the variables that programs are given, with their values."""
        return {name: read_variable(name, "--env") for name in self.variables}

    def read_token(self) -> str | None:
        """Return the token, or None."""
        return read_variable(self.token_variable, "--token-env") if self.token_variable else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSource:
    """Where tools come from.

    Args:
        label: A short name that shows no secret.
        is_own: True for Python of the user's own: its tools say themselves what needs approval.
        open: Gives the tools, for the length of a block.
    """

    label: str
    is_own: bool
    open: Callable[[Steps], _Opened]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTools:
    """The tools of one or several sources.

    Args:
        registry: All of them.
        own: The names of those that are the user's own.
    """

    registry: ToolRegistry[Any]
    own: frozenset[str]


def read_source(word: str, settings: SourceSettings) -> ToolSource:
    """Return what a word names; a module of Python is imported here, on the main thread.

    Raises:
        CommandError: There is no such thing; it says what there is.
    """
    kind, colon, rest = word.partition(":")
    if kind == "coding":
        return _read_coding(rest)
    if kind in _SOURCE_KINDS:
        if not rest.strip():
            raise CommandError(f"{kind}: names nothing: {_EXAMPLES[kind]}", ExitCode.MISUSED)
        return _READERS[kind](rest.strip(), settings)
    if word.endswith((".yaml", ".yml")):
        return _read_config(Path(word))
    file = _SOURCE_IN_FILE.fullmatch(word)
    if file is not None:
        module = import_file(Path(file["path"]), settings.timeout)
        return _of_registry(Path(file["path"]).stem, find_tools(module, file["name"] or "", file["path"]))
    named = _SOURCE_IN_MODULE.fullmatch(word)
    near = find_similar(kind, _SOURCE_KINDS, most=1, cutoff=0.6) if colon else ()
    if named is None or near:
        shown = escape_in_text(without_keys(word))
        question = ask_whether_meant(f"{kind}:" for kind in near)
        raise CommandError(f"{shown} names no source; {question or _EXAMPLES['all']}", ExitCode.MISUSED)
    module = import_named(named["path"], settings.timeout)
    return _of_registry(named["path"].rpartition(".")[2], find_tools(module, named["name"] or "", named["path"]))


_EXAMPLES = {
    "openapi": "write openapi:pets.json or openapi:https://example.com/openapi.json",
    "mcp": "write mcp:https://example.com/mcp or, with quotes, 'mcp:npx -y a-server'",
    "plugin": "write plugin:./my_plugin or, with quotes, 'plugin:python my_plugin.py'",
    "all": "a source is FILE.py[:NAME], MODULE[:NAME], FILE.yaml, openapi:..., mcp:..., plugin:... or coding[:FOLDER]",
}


@asynccontextmanager
async def open_sources(sources: Sequence[ToolSource], steps: Steps) -> AsyncGenerator[OpenedTools]:
    """Give the tools of all sources in one registry; where names collide, those of a later source have its label.

    Raises:
        ToolkitError: A source can't be opened.
    """
    async with AsyncExitStack() as opened:
        registry: ToolRegistry[Any] | None = None
        own: set[str] = set()
        for source in sources:
            more = await opened.enter_async_context(source.open(steps))
            if registry is not None and set(registry.names) & set(more.names):
                more = more.prefixed(re.sub(r"[^A-Za-z0-9_-]", "_", source.label))
            own |= set(more.names) if source.is_own else set()
            registry = more if registry is None else registry | more
        steps.end()
        assert registry is not None
        yield OpenedTools(registry=registry, own=frozenset(own))


def leave_out_unusable(registry: ToolRegistry[Any], tell: Callable[[str], None]) -> ToolRegistry[Any]:
    """Return the tools that need no context, and tell of the others."""
    needy = [name for name in registry.names if registry.only([name]).find_context_need() is not None]
    if needy:
        tell(f"left out, as they need a context: {', '.join(needy)}")
    return registry.without(needy) if needy else registry


def _of_registry(label: str, registry: ToolRegistry[Any], *, is_own: bool = True) -> ToolSource:
    @asynccontextmanager
    async def open_it(steps: Steps) -> AsyncGenerator[ToolRegistry[Any]]:  # noqa: ARG001 - nothing of it is slow
        yield registry

    return ToolSource(label=label, is_own=is_own, open=open_it)


def _read_coding(folder: str) -> ToolSource:
    from toolkit.builtin import coding_tools  # noqa: PLC0415 - each kind brings its own packages

    return _of_registry("coding", ToolRegistry(coding_tools(folder or ".", "all")), is_own=False)


def _read_config(path: Path) -> ToolSource:
    from toolkit.tool_config import load_tools  # noqa: PLC0415 - each kind brings its own packages

    @asynccontextmanager
    async def open_it(steps: Steps) -> AsyncGenerator[ToolRegistry[Any]]:  # noqa: ARG001 - nothing of it is slow
        async with load_tools(path) as registry:
            yield registry

    return ToolSource(label=path.stem, is_own=False, open=open_it)


def _read_openapi(place: str, settings: SourceSettings) -> ToolSource:
    from toolkit.sources.openapi import Bearer, openapi_tools  # noqa: PLC0415 - each kind brings its own packages

    is_url = place.startswith(("http://", "https://"))
    if not is_url and not Path(place).is_file():
        raise CommandError(f"there is no file {escape_in_text(place)}: {_EXAMPLES['openapi']}", ExitCode.MISUSED)
    label = without_credentials(place).rstrip("/").rpartition("/")[2] if is_url else Path(place).stem
    token = settings.read_token()

    @asynccontextmanager
    async def open_it(steps: Steps) -> AsyncGenerator[ToolRegistry[Any]]:
        steps.begin(f"reading the operations of {label}")
        async with openapi_tools(
            place if is_url else Path(place),
            auth=None if token is None else Bearer(token),
            base_url=settings.base_url or None,
            timeout=settings.timeout,
            on_progress=steps.advance,
        ) as tools:
            yield ToolRegistry(tools)

    return ToolSource(label=label, is_own=False, open=open_it)


def _read_mcp(place: str, settings: SourceSettings) -> ToolSource:
    from toolkit.sources.mcp import http, mcp_tools, stdio  # noqa: PLC0415 - each kind brings its own packages

    if place.startswith(("http://", "https://")):
        server: Any = http(place, bearer=settings.read_token())
    else:
        program, *arguments = _split_command(place, "mcp")
        server = stdio(program, *arguments, env=settings.read_variables())

    @asynccontextmanager
    async def open_it(steps: Steps) -> AsyncGenerator[ToolRegistry[Any]]:
        steps.begin(f"connecting to {server.name}")
        async with mcp_tools(server, connect_timeout=settings.timeout) as tools:
            registry = ToolRegistry[Any]()
            tools.keep_registered(registry)
            yield registry

    return ToolSource(label=server.name, is_own=False, open=open_it)


def _read_plugin(command: str, settings: SourceSettings) -> ToolSource:
    from toolkit.sources.plugin import plugin_tools  # noqa: PLC0415 - each kind brings its own packages

    program, *arguments = _split_command(command, "plugin")
    label = program_name(program, arguments)

    @asynccontextmanager
    async def open_it(steps: Steps) -> AsyncGenerator[ToolRegistry[Any]]:
        steps.begin(f"starting {label}")
        variables = settings.read_variables()
        async with plugin_tools(program, arguments, env=variables, describe_timeout=settings.timeout) as tools:
            yield ToolRegistry(tools)

    return ToolSource(label=label, is_own=False, open=open_it)


_READERS: dict[str, Callable[[str, SourceSettings], ToolSource]] = {
    "openapi": _read_openapi,
    "mcp": _read_mcp,
    "plugin": _read_plugin,
}


def _split_command(command: str, kind: str) -> list[str]:
    try:
        return shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise CommandError(f"the command of {kind}: can't be read: {error}", ExitCode.MISUSED) from None


def read_variable(name: str, option: str) -> str:
    """Return the value of a variable of the environment.

    Raises:
        CommandError: It is not set.
    """
    value = os.environ.get(name)
    if not value:
        raise CommandError(
            f"{option} names {escape_in_text(name)}, and there is no such variable in the environment: set it",
            ExitCode.MISUSED,
        )
    return value
