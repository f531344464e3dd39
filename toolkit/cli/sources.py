"""Finds and opens the tools, models, contexts and Python modules that the command line names."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from dataclasses import replace
from functools import partial
from inspect import isroutine
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeGuard, cast, get_origin

import anyio
import click

from toolkit.calls.context import open_context
from toolkit.calls.registration import Tool
from toolkit.chat import Provider
from toolkit.cli.screen import Command, CommandError, ExitCode, MisuseError, Screen, Steps
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.foreign_text import escape_in_text, strip_hidden
from toolkit.redaction import program_name, without_credentials, without_keys
from toolkit.sources.pins import PinnedChange, ToolPins
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.decorators import tools_of
from toolkit.tools.registry import ToolRegistry

_SOURCE_IN_PYTHON = re.compile(r"(?P<path>.+?\.py|[A-Za-z_][\w.]*)(?::(?P<name>[A-Za-z_]\w*))?")
_MODEL_IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_PRICED = ("openai", "openai-responses", "anthropic", "google")
_MACHINERY = ("importlib", str(Path(__file__).parent))
_EXAMPLES = {
    "openapi": "write openapi:pets.json or openapi:https://example.com/openapi.json",
    "mcp": "write mcp:https://example.com/mcp or, with quotes, 'mcp:npx -y a-server'",
    "plugin": "write plugin:./my_plugin or, with quotes, 'plugin:python my_plugin.py'",
}
_KINDS = "a source is FILE.py[:NAME], MODULE[:NAME], FILE.yaml, openapi:..., mcp:..., plugin:... or coding[:FOLDER]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The options of every source of a command."""

    timeout: float = 30.0  # seconds that a source may take to open
    variables: Sequence[str] = ()  # the names of those that programs are given
    token_variable: str = ""  # holds the token for a server at a URL
    base_url: str = ""  # of the operations of an OpenAPI document, if it is not the one in the document
    lock: str = ""  # the file that pins the tools of servers and plugins
    approve_change: Callable[[PinnedChange], bool] | None = None  # of a tool that differs; None refuses it
    context: str = ""  # the function that makes the context of the tools

    def make_pins(self) -> ToolPins | None:
        """Return the pins of the tools, or None."""
        return ToolPins(self.lock, approve=self.approve_change) if self.lock else None

    def read_variables(self) -> dict[str, str]:
        """Return the environment variables for programs, with their values."""
        return {name: read_variable(name, "--env") for name in self.variables}

    def read_token(self) -> str | None:
        """Return the token, or None."""
        return read_variable(self.token_variable, "--token-env") if self.token_variable else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTools:
    """The tools of the sources of a command."""

    registry: ToolRegistry[Any]
    own: Collection[str]  # the names of those in the user's Python, which declare whether they need approval
    label: str  # the names of the sources, without secrets
    steps: Steps  # shows further long work
    ctx: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A source that can be opened; `step` describes the work of opening it, if that takes time."""

    label: str
    opening: AbstractAsyncContextManager[Any]
    step: str = ""
    register: Callable[[Any], ToolRegistry[Any]] = ToolRegistry
    is_own: bool = False
    module: ModuleType | None = None


def run_with_tools(
    command: Command,
    words: Sequence[str],
    work: Callable[[OpenedTools], Awaitable[int]],
    *,
    is_shown: bool = True,
    **more: Any,
) -> int:
    """Open sources, do the work of a command with their tools, and return its exit code.

    Modules of Python are imported first, on the main thread. Where names of tools collide, those of a later source get
    its label as a prefix. A source that names nothing is a `CommandError` that lists the kinds.

    Args:
        command: Has the options of the sources.
        words: The sources.
        work: The command's work, in the event loop.
        is_shown: False shows no progress.
        more: Further `SourceSettings`.
    """
    read = SourceSettings(**{**command.source_options, **more})
    steps = Steps(is_shown=is_shown)
    sources = [_read_source(word, read, steps) for word in words]
    make_context = _read_context(read, {each.label: each.module for each in sources if each.module is not None})

    async def main() -> int:
        with steps:
            async with AsyncExitStack() as opened:
                registry: ToolRegistry[Any] | None = None
                own = set[str]()
                for source in sources:
                    if source.step:
                        steps.begin(source.step)
                    tools = await opened.enter_async_context(source.opening)
                    more = tools if _is_registry(tools) else source.register(tools)
                    if registry is not None and set(registry.names) & set(more.names):
                        more = more.prefixed(re.sub(r"[^A-Za-z0-9_-]", "_", source.label))
                    own |= set(more.names) if source.is_own else set()
                    registry = more if registry is None else registry | more
                steps.end()
                assert registry is not None
                label = "+".join([source.label for source in sources])
                found = OpenedTools(registry=registry, own=own, label=label, steps=steps)
                if make_context is None:
                    return await work(found)
                return await _work_in_context(make_context, read, found, work)

    return command.terminal.run(main)


async def _work_in_context(
    make: Callable[[], object],
    settings: SourceSettings,
    tools: OpenedTools,
    work: Callable[[OpenedTools], Awaitable[int]],
) -> int:
    """Do the work with the context that a function makes in time, and close the context."""
    code: int | None = None
    # The scope includes the work, because an open context manager may have entered scopes inside it.
    with anyio.move_on_after(settings.timeout) as opening:
        try:
            async with AsyncExitStack() as stack:
                ctx = await _open_context(make, settings.context, stack)
                opening.deadline = math.inf
                code = await work(replace(tools, ctx=ctx))
        except Exception as error:
            if code is None:
                raise
            note = f"--ctx {settings.context} did not close its context: {type(error).__name__}: {error}"
            Screen().note(note, "bad")
            return code or ExitCode.FAILED
        return code
    raise CommandError(
        f"--ctx {settings.context} made no context within {settings.timeout:g} s: --timeout gives it more time"
    )


async def _open_context(make: Callable[[], object], word: str, stack: AsyncExitStack) -> Any:
    """Return the context, or raise a `CommandError` that says why there is none."""
    try:
        ctx = await open_context(make(), stack)
    except Exception as error:
        raise CommandError(f"--ctx {word} made no context: {type(error).__name__}: {error}") from error
    if ctx is None:
        raise CommandError(f"--ctx {word} made no context: it returned None")
    return ctx


def _read_context(settings: SourceSettings, modules: Mapping[str, ModuleType]) -> Callable[[], object] | None:
    """Return the function that makes the context, None if none is named; a module of the sources is used again."""
    word = settings.context
    if not word:
        return None
    found = _SOURCE_IN_PYTHON.fullmatch(word)
    if found is None or not found["name"]:
        raise MisuseError(
            f"--ctx {escape_in_text(word)} names no function: write --ctx MODULE:NAME, as in app:make_context"
        )
    path = found["path"]
    label = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    module = modules.get(label) or import_module(path, settings.timeout)
    function = find_member(module, found["name"], path)
    if not callable(function):
        raise MisuseError(
            f"--ctx {escape_in_text(word)} is no function: name one without parameters that returns the context"
        )
    return cast("Callable[[], object]", function)


def leave_out_unusable(tools: OpenedTools, note: Callable[[str], None]) -> ToolRegistry[Any]:
    """Return the tools without those that lack their context, whose names are noted."""
    registry = tools.registry
    if tools.ctx is not None:
        return registry
    needy = [name for name in registry.names if registry.only([name]).find_context_need() is not None]
    if needy:
        note(f"left out, as they need a context: {', '.join(needy)}; --ctx MODULE:NAME gives one")
    return registry.without(needy) if needy else registry


def read_variable(name: str, option: str) -> str:
    """Return the value of a variable of the environment, or raise a `CommandError` where it is not set."""
    value = os.environ.get(name)
    if not value:
        raise MisuseError(
            f"{option} names {escape_in_text(name)}, and there is no such variable in the environment: set it"
        )
    return value


def _read_source(word: str, settings: SourceSettings, steps: Steps) -> _Source:
    kind, _, rest = word.partition(":")
    if kind in _EXAMPLES:
        place = rest.strip()
        if not place:
            raise MisuseError(f"{kind}: names nothing: {_EXAMPLES[kind]}")
        if kind == "openapi":
            return _read_openapi(place, settings, steps)
        return (_read_mcp if kind == "mcp" else _read_plugin)(place, settings)
    if kind == "coding":
        from toolkit.builtin import coding_tools

        return _Source(label="coding", opening=nullcontext(coding_tools(rest or ".", "all")))
    if word.endswith((".yaml", ".yml")):
        from toolkit.tool_config import load_tools

        return _Source(label=Path(word).stem, opening=load_tools(word))
    return _read_python(word, settings)


def _read_python(word: str, settings: SourceSettings) -> _Source:
    found = _SOURCE_IN_PYTHON.fullmatch(word)
    kind, colon, _ = word.partition(":")
    near = find_similar(kind, [*_EXAMPLES, "coding"], most=1, cutoff=0.6) if colon else ()
    if found is None or (near and not found["path"].endswith(".py")):
        shown = escape_in_text(without_keys(without_credentials(word)))
        question = ask_whether_meant(f"{kind}:" for kind in near)
        raise MisuseError(f"{shown} names no source; {question or _KINDS}")
    path = found["path"]
    module = import_module(path, settings.timeout)
    label = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    tools = _find_tools(module, found["name"] or "", path)
    return _Source(label=label, opening=nullcontext(tools), is_own=True, module=module)


def _read_openapi(place: str, settings: SourceSettings, steps: Steps) -> _Source:
    from toolkit.sources import ServerLimits
    from toolkit.sources.openapi import Bearer, openapi_tools

    is_url = place.startswith(("http://", "https://"))
    if not is_url and not Path(place).is_file():
        raise MisuseError(f"there is no file {escape_in_text(place)}: {_EXAMPLES['openapi']}")
    label = without_credentials(place).rstrip("/").rpartition("/")[2] if is_url else Path(place).stem
    token = settings.read_token()
    opening = openapi_tools(
        place if is_url else Path(place),
        auth=None if token is None else Bearer(token),
        base_url=settings.base_url or None,
        limits=ServerLimits(timeout=settings.timeout),
        on_progress=steps.advance,
    )
    return _Source(label=label, step=f"reading the operations of {label}", opening=opening)


def _read_mcp(place: str, settings: SourceSettings) -> _Source:
    from toolkit.sources.mcp import http, mcp_tools, stdio

    if place.startswith(("http://", "https://")):
        server: Any = http(place, bearer=settings.read_token())
    else:
        program, *arguments = _split_command(place, "mcp")
        server = stdio(program, *arguments, env=settings.read_variables())

    def register_live(tools: Any) -> ToolRegistry[Any]:
        registry = ToolRegistry[Any]()
        tools.keep_registered(registry)
        return registry

    opening = mcp_tools(server, connect_timeout=settings.timeout, pins=settings.make_pins())
    return _Source(label=server.name, step=f"connecting to {server.name}", opening=opening, register=register_live)


def _read_plugin(command: str, settings: SourceSettings) -> _Source:
    from toolkit.sources.plugin import plugin_tools

    program, *arguments = _split_command(command, "plugin")
    label = program_name(program, arguments)
    opening = plugin_tools(
        program,
        arguments,
        env=settings.read_variables(),
        describe_timeout=settings.timeout,
        pins=settings.make_pins(),
    )
    return _Source(label=label, step=f"starting {label}", opening=opening)


def _split_command(command: str, kind: str) -> list[str]:
    try:
        return shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise MisuseError(f"the command of {kind}: can't be read: {error}") from None


def read_model(name: str, url: str, timeout: float, **options: Any) -> Provider:
    """Return the provider of a name such as ``openai:gpt-5-mini``, or the value or result of ``file.py:NAME``.

    Args:
        name: The model.
        url: The address of a compatible server; empty for the vendor's own.
        timeout: Seconds that the import of a file may take.
        options: Further arguments of `provider_for`.

    Raises:
        ToolkitError: There is no such model, or no key for it.
    """
    file = _MODEL_IN_FILE.fullmatch(name)
    if file is not None:
        found: Any = getattr(import_module(file["path"], timeout), file["name"], None)
        if callable(found) and not hasattr(found, "generate"):
            found = found()
        if not (hasattr(found, "generate") and hasattr(found, "stream")):
            shown = escape_in_text(file["path"])
            raise MisuseError(f"{shown}:{file['name']} is no model: name a Provider, or a function that returns one")
        return cast("Provider", found)
    from toolkit.providers import PricedProvider, provider_for

    address: dict[str, Any] = {"base_url": url} if url else {}
    provider = provider_for(name, **address, **options)
    is_priced = name.partition(":")[0].strip().lower() in _PRICED
    if is_priced and importlib.util.find_spec("genai_prices"):
        with suppress(ConfigurationError):  # a server of one's own has no public prices
            return PricedProvider(provider)
    return provider


@asynccontextmanager
async def open_model(provider: Provider, steps: Steps) -> AsyncGenerator[Provider]:
    """Start the provider if needed, and close it after the block."""
    async with AsyncExitStack() as opened:
        inner: Any = getattr(provider, "provider", provider)
        if hasattr(inner, "start"):
            steps.begin("loading the model")
        if hasattr(inner, "__aenter__"):
            await opened.enter_async_context(inner)
        steps.end()
        yield provider


def import_module(word: str, timeout: float) -> ModuleType:
    """Return the module of a name, or of a file that ends in ``.py``; it may import what is beside it, as a script can.

    Names are also found in the working folder. Raise a `CommandError` where there is none, it raises, or takes longer
    than `timeout` seconds.
    """
    path = Path(word)
    if not word.endswith(".py"):
        return _import_named(word, timeout)
    if not path.is_file():
        near = find_similar(path.name, (other.name for other in path.parent.glob("*.py")), most=1)
        raise MisuseError(f"there is no file {path}{'; ' if near else ''}{ask_whether_meant(near)}")
    _add_to_path(path.absolute().parent)
    name = path.stem if _is_found_as(path.stem, path) else f"_tools_in_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _bound_import(str(path), timeout):
        spec.loader.exec_module(module)
    return module


def find_member(module: ModuleType, name: str, source: str) -> Any:
    """Return the member of a module that has a name, or raise a `CommandError` that names a similar one."""
    if not hasattr(module, name):
        names = [key for key in vars(module) if not key.startswith("_")]
        question = ask_whether_meant(find_similar(name, names))
        raise MisuseError(f"{source} has nothing named {escape_in_text(name)}{'; ' if question else ''}{question}")
    return getattr(module, name)


def gather_registries(module: ModuleType) -> dict[str, ToolRegistry[Any]]:
    """Return the registries of a module by name, each once; if it has none, its tools as one, under no name."""
    members = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    found: dict[str, ToolRegistry[Any]] = {}
    for key, value in members.items():
        if _is_registry(value) and not any(value is other for other in found.values()):
            found[key] = value
    if found:
        return found
    tools = {id(value): value for value in members.values() if _is_tool(value)}
    return {"": ToolRegistry(tools.values())} if tools else {}


def _find_tools(module: ModuleType, name: str, source: str) -> ToolRegistry[Any]:
    """Return the tools under a name of a module, or all of its tools where `name` is empty."""
    if name:
        return _gather_named(find_member(module, name, source), f"{source}:{name}")
    registries = gather_registries(module)
    if len(registries) == 1:
        return next(iter(registries.values()))
    if registries:
        names = sorted(registries)
        problem = f"has {len(names)} registries, {', '.join(names)}: say which, as in {source}:{names[0]}"
    else:
        problem = (
            "has no tools: decorate a function with @toolkit.tool, or name a function or a registry, as in "
            f"{source}:NAME"
        )
    raise MisuseError(f"{source} {problem}")


def _gather_named(found: object, source: str) -> ToolRegistry[Any]:
    if _is_registry(found):
        return found
    if _is_tool(found) or isroutine(found) or isinstance(found, partial):
        return ToolRegistry([cast("Any", found)])
    if _is_list(found):
        return ToolRegistry(found)
    tools: list[Any] = [] if isinstance(found, type) else tools_of(found)
    if not tools:
        raise MisuseError(
            f"{source} is no tool: name a registry, a tool, a function, a list of these, or an object whose methods "
            "are tools"
        )
    return ToolRegistry(tools)


def _is_tool(value: object) -> bool:
    is_class = isinstance(value, type | ModuleType) or get_origin(value) is not None  # an alias shows its class
    return not is_class and isinstance(value, Tool)


def _is_registry(value: object) -> TypeGuard[ToolRegistry[Any]]:
    return isinstance(value, ToolRegistry)


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | type)


def _import_named(name: str, timeout: float) -> ModuleType:
    _add_to_path(Path.cwd())
    with _bound_import(name, timeout):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise MisuseError(f"there is no module {error.name} here; {_KINDS}") from None


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_found_as(name: str, path: Path) -> bool:
    """Return True if `import` finds that file under a name, and not another module."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).samefile(path)


class _TooSlowError(BaseException):
    """Not an `Exception`, which the module could catch."""


@contextmanager
def _bound_import(what: str, timeout: float) -> Generator[None]:
    """Limit the time of an import, redirect its output to standard error, and report its failure once."""
    try:
        with redirect_stdout(sys.stderr), _set_alarm(timeout):
            yield
    except _TooSlowError:
        raise CommandError(
            f"{what} is still being imported after {timeout:g} s: move what waits into a function, or give more time "
            "by --timeout"
        ) from None
    except SystemExit as error:
        raise CommandError(
            f"{what} ends the program when it is imported (exit code {error.code}): put what runs under "
            "if __name__ == '__main__'"
        ) from None
    except CommandError:
        raise
    except ConfigurationError as error:  # of a decorator, which says all
        _show_traceback(error)
        raise MisuseError(f"{what}: {error}") from error
    except Exception as error:
        _show_traceback(error)
        raise CommandError(f"{what} does not import: {type(error).__name__}: {error}") from error


@contextmanager
def _set_alarm(timeout: float) -> Generator[None]:
    """Raise in the block when it takes too long, if the system has alarms and this is the main thread."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as `signal` calls it
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _show_traceback(error: Exception) -> None:
    """Write the traceback of a module's failure to standard error, without the frames of the importer."""
    written = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in written.stack if not any(part in frame.filename for part in _MACHINERY)]
    written.stack = traceback.StackSummary.from_list(frames)
    click.echo(strip_hidden(without_keys("".join(written.format()))), err=True, nl=False)
