"""Python modules of the user's, from a file or by name, and the tools in them."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager, redirect_stdout
from functools import partial
from inspect import isroutine
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeGuard, cast

import click

from toolkit.calls.handler import Tool
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.errors import ConfigurationError
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.decorators import tools_of
from toolkit.tools.registry import ToolRegistry
from toolkit.visible_text import escape_in_text, strip_hidden

__all__ = ["find_tools", "gather_registries", "import_file", "import_named"]

_MACHINERY = ("importlib", str(Path(__file__).parent))


class _TooSlowError(BaseException):
    """No `Exception`, which the module could catch."""


def import_file(path: Path, timeout: float) -> ModuleType:
    """Return the module of a file, which finds what stands beside it as a script would.

    Raises:
        CommandError: There is no such file, it raises, or takes longer than `timeout` seconds.
    """
    if not path.is_file():
        near = find_similar(path.name, (other.name for other in path.parent.glob("*.py")), most=1)
        raise CommandError(f"there is no file {path}{'; ' if near else ''}{ask_whether_meant(near)}", ExitCode.MISUSED)
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem if _is_found_as(path.stem, path) else f"_tools_in_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _bound_import(str(path), timeout):
        spec.loader.exec_module(module)
    return module


def import_named(name: str, timeout: float) -> ModuleType:
    """Return a module by its name, found from the working folder too.

    Raises:
        CommandError: There is none, it raises, or takes longer than `timeout` seconds.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with _bound_import(name, timeout):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise CommandError(
                f"there is no module {error.name} here; a source is FILE.py[:NAME], MODULE[:NAME], FILE.yaml, "
                "openapi:..., mcp:..., plugin:... or coding[:FOLDER]",
                ExitCode.MISUSED,
            ) from None


def find_tools(module: ModuleType, name: str, source: str) -> ToolRegistry[Any]:
    """Return the tools under a name of a module, or all of its tools where `name` is empty.

    A registry in it stands for all, where there is just one.

    Raises:
        CommandError: There is nothing of that name, or no tool; or a choice of registries.
    """
    if name:
        return _gather_named(module, name, source)
    registries = gather_registries(module)
    if len(registries) > 1:
        names = sorted(registries)
        raise CommandError(
            f"{source} has {len(names)} registries, {', '.join(names)}: say which, as in {source}:{names[0]}",
            ExitCode.MISUSED,
        )
    if not registries:
        raise CommandError(
            f"{source} has no tools: decorate a function with @toolkit.tool, or name a function or a registry, as in "
            f"{source}:NAME",
            ExitCode.MISUSED,
        )
    return next(iter(registries.values()))


def gather_registries(module: ModuleType) -> dict[str, ToolRegistry[Any]]:
    """Return the registries of a module by name, each once; where it has none, one of its tools, under no name."""
    members = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    found: dict[str, ToolRegistry[Any]] = {}
    for key, value in members.items():
        if _is_registry(value) and not any(value is other for other in found.values()):
            found[key] = value
    if found:
        return found
    tools = {id(value): value for value in members.values() if _is_tool(value)}
    return {"": ToolRegistry(tools.values())} if tools else {}


def _gather_named(module: ModuleType, name: str, source: str) -> ToolRegistry[Any]:
    if not hasattr(module, name):
        names = [key for key in vars(module) if not key.startswith("_")]
        question = ask_whether_meant(find_similar(name, names))
        raise CommandError(
            f"{source} has nothing named {escape_in_text(name)}{'; ' if question else ''}{question}", ExitCode.MISUSED
        )
    found: object = getattr(module, name)
    if _is_registry(found):
        return found
    if _is_tool(found) or isroutine(found) or isinstance(found, partial):
        return ToolRegistry([cast("Any", found)])
    if _is_list(found):
        return ToolRegistry(found)
    tools: list[Any] = [] if isinstance(found, type) else tools_of(found)
    if not tools:
        raise CommandError(
            f"{source}:{name} is no tool: name a registry, a tool, a function, a list of these, or an object whose "
            "methods are tools",
            ExitCode.MISUSED,
        )
    return ToolRegistry(tools)


def _is_tool(value: object) -> bool:
    return not isinstance(value, type | ModuleType) and isinstance(value, Tool)


def _is_registry(value: object) -> TypeGuard[ToolRegistry[Any]]:
    return isinstance(value, ToolRegistry)


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | type)


def _is_found_as(name: str, path: Path) -> bool:
    """Return whether that is the module which `import` finds under a name: not where it is taken by another."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).samefile(path)


@contextmanager
def _bound_import(what: str, timeout: float) -> Generator[None]:
    """Import within a time, with what the module prints on standard error, and show a failure of it once."""
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
        raise CommandError(f"{what}: {error}", ExitCode.MISUSED) from error
    except Exception as error:
        _show_traceback(error)
        raise CommandError(f"{what} does not import: {type(error).__name__}: {error}") from error


@contextmanager
def _set_alarm(timeout: float) -> Generator[None]:
    """Raise in the block when it takes too long, where the system has alarms and this is the main thread."""
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
    """Write the traceback of a module's own failure to standard error, without the frames of what imported it."""
    told = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in told.stack if not any(part in frame.filename for part in _MACHINERY)]
    told.stack = traceback.StackSummary.from_list(frames)
    click.echo(strip_hidden("".join(told.format())), err=True, nl=False)
