"""The command ``doctor``: which extras, keys, programs and engines are there and work. No key is ever shown."""

from __future__ import annotations

import locale
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from toolkit.cli.endings import ExitCode
from toolkit.cli.model_advice import describe_advice, describe_probe, probe_model
from toolkit.cli.models import open_model, read_model
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen, Style
from toolkit.cli.terminal import Terminal
from toolkit.dataclass import dataclass
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.views import tool_loop
from toolkit.secrets import without_keys
from toolkit.tools.registry import ToolRegistry

__all__ = ["examine_installation"]

_State: TypeAlias = Literal["works", "missing", "broken"]

_STYLE_OF_STATE: dict[_State, Style] = {"works": "good", "missing": "faint", "broken": "bad"}
_PACKAGE = "toolkit-sdk"
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,.-]*\])?(?:>=(?P<least>[\d.]+))?.*extra == ['\"](?P<extra>[\w-]+)['\"]"
)
# What an extra is for: imported, it says whether its packages work here.
_MODULE_OF_EXTRA = {
    "anthropic": "toolkit.providers.anthropic",
    "cli": "rich.console",
    "coding": "toolkit.builtin.bash",
    "config": "yaml",
    "fast": "orjson",
    "google": "toolkit.providers.google",
    "mcp": "toolkit.sources.mcp.tools",
    "openai": "toolkit.providers.openai",
    "openapi": "toolkit.sources.openapi",
    "prices": "genai_prices",
}
_KEYS = {
    "OPENAI_API_KEY": "openai:",
    "ANTHROPIC_API_KEY": "anthropic:",
    "GEMINI_API_KEY": "google:",
    "GOOGLE_API_KEY": "google:",
}
_PROGRAMS = {
    "npx": "MCP servers of npm",
    "uvx": "MCP servers of PyPI",
    "bash": "the tool bash",
    "bwrap": "the sandbox of bash",
}
_ANSWER_TIME = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One thing that was looked at."""

    kind: str
    name: str
    state: _State
    detail: str


def examine_installation(models: tuple[str, ...], url: str, output: OutputFormat, *, is_probing: bool) -> int:
    """Write what is there, and return 1 where something that is installed does not work.

    Args:
        models: The models to ask, beside the local one.
        url: Where a compatible server is; empty for the vendors' own.
        output: The form of the report.
        is_probing: True where those models are asked for calls in each way.
    """
    screen, checks = Screen(output), list[_Finding]()

    def note(check: _Finding) -> None:
        checks.append(check)
        if not screen.is_json:
            screen.stream(f"{check.state:8}", _STYLE_OF_STATE[check.state])
            screen.paragraph(f"{check.kind} {check.name}  {check.detail}")

    async def main() -> int:
        with Steps() as steps:
            for check in _check_place():
                note(check)
            for extra, packages in sorted(_list_extras().items()):
                steps.begin(f"importing what {extra} brings")
                note(await anyio.to_thread.run_sync(_check_extra, extra, packages, abandon_on_cancel=True))
            for check in _check_surroundings():
                note(check)
            for model in ("local:", *models):
                steps.begin(f"asking {model}")
                tried = await _try_model(model, url, is_wanted=model in models)
                note(tried)
                if tried.state == "works" and model in models:
                    await _examine_calls(model, url, note, is_probing=is_probing)
        return ExitCode.FAILED if any(check.state == "broken" for check in checks) else ExitCode.DONE

    code = Terminal().run(main)
    if screen.is_json:
        found = [
            {"kind": check.kind, "name": check.name, "state": check.state, "detail": check.detail} for check in checks
        ]
        screen.document({"checks": found, "exit_code": code})
    return code


def _check_place() -> Iterator[_Finding]:
    yield _Finding(kind="package", name="toolkit", state="works", detail=version(_PACKAGE))
    yield _Finding(kind="package", name="python", state="works", detail=f"{platform.python_version()}, {sys.platform}")
    encoding = (sys.stdout.encoding or locale.getpreferredencoding()).lower()
    is_wide = encoding.replace("-", "") == "utf8"
    hint = "" if is_wide else "; set PYTHONUTF8=1 to see all letters"
    columns = shutil.get_terminal_size().columns
    detail = f"{encoding}, {columns} columns{hint}"
    yield _Finding(kind="terminal", name="output", state="works" if is_wide else "broken", detail=detail)


def _list_extras() -> dict[str, list[tuple[str, str]]]:
    """Return the packages that each extra needs, with the oldest version of each."""
    extras: dict[str, list[tuple[str, str]]] = {}
    for line in requires(_PACKAGE) or ():
        found = _REQUIREMENT.match(line)
        if found is not None and found["extra"] != "dev":
            packages = extras.setdefault(found["extra"], [])
            if found["name"] != _PACKAGE:
                packages.append((found["name"], found["least"] or ""))
    return extras


def _check_extra(extra: str, packages: list[tuple[str, str]]) -> _Finding:
    there, missing, old = list[str](), list[str](), list[str]()
    for name, least in packages:
        try:
            found = version(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        there.append(f"{name} {found}")
        if _read_version(found) < _read_version(least):
            old.append(f"{name} {found}, and {least} or newer is needed")
    install = f"`pip install '{_PACKAGE}[{extra}]'`"
    if missing:
        return _Finding(kind="extra", name=extra, state="missing", detail=f"without {', '.join(missing)}: {install}")
    if old:
        return _Finding(kind="extra", name=extra, state="broken", detail=f"{'; '.join(old)}: {install}")
    try:
        import_module(_MODULE_OF_EXTRA.get(extra, "toolkit"))
    except Exception as error:  # noqa: BLE001 - whatever a broken package does
        detail = f"{type(error).__name__}: {without_keys(str(error))}"
        return _Finding(kind="extra", name=extra, state="broken", detail=detail)
    return _Finding(kind="extra", name=extra, state="works", detail=", ".join(there))


def _read_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def _check_surroundings() -> Iterator[_Finding]:
    for name, use in _KEYS.items():
        is_set = bool(os.environ.get(name))
        detail = f"set, for {use}" if is_set else f"not set; for {use}"
        yield _Finding(kind="key", name=name, state="works" if is_set else "missing", detail=detail)
    for name, use in _PROGRAMS.items():
        path = shutil.which(name)
        detail = f"{path}, for {use}" if path else f"not found; for {use}"
        yield _Finding(kind="program", name=name, state="works" if path else "missing", detail=detail)


async def _try_model(name: str, url: str, *, is_wanted: bool) -> _Finding:
    """Ask a model for a word; one that nobody asked for may be missing."""
    began = time.perf_counter()
    try:
        with anyio.fail_after(_ANSWER_TIME):
            answer = await _ask_for_word(name, url if is_wanted else "")
    except TimeoutError:
        return _Finding(kind="model", name=name, state="broken", detail=f"no answer within {_ANSWER_TIME:g} s")
    except Exception as error:  # noqa: BLE001 - whatever a broken engine does
        is_missing = not is_wanted and "not installed" in str(error)
        detail = without_keys(" ".join(str(error).split()))
        return _Finding(kind="model", name=name, state="missing" if is_missing else "broken", detail=detail)
    seconds = time.perf_counter() - began
    return _Finding(kind="model", name=name, state="works", detail=f"answered {answer!r} in {seconds:.1f} s")


async def _examine_calls(model: str, url: str, note: Callable[[_Finding], None], *, is_probing: bool) -> None:
    """Tell how a model is best asked for calls, and what it does in each way."""
    note(_Finding(kind="calls", name=model, state="works", detail=describe_advice(model)))
    if is_probing:
        note(await _try_calls(model, url))


async def _try_calls(name: str, url: str) -> _Finding:
    """Ask a model for calls in each way."""
    try:
        with anyio.fail_after(_ANSWER_TIME):
            probe = await probe_model(read_model(name, url, _ANSWER_TIME), name)
    except TimeoutError:
        return _Finding(kind="probe", name=name, state="broken", detail=f"no answers within {_ANSWER_TIME:g} s")
    except Exception as error:  # noqa: BLE001 - whatever a broken engine does
        return _Finding(kind="probe", name=name, state="broken", detail=without_keys(" ".join(str(error).split())))
    state: _State = "broken" if probe.way is None else "works"
    return _Finding(kind="probe", name=name, state=state, detail=describe_probe(probe))


async def _ask_for_word(name: str, url: str) -> str:
    async with open_model(read_model(name, url, _ANSWER_TIME), Steps(is_shown=False)) as provider:
        result = await tool_loop(
            provider,
            ToolRegistry[Any](),
            "Say the word yes.",
            ctx=None,
            config=ToolLoopConfig(timeout=_ANSWER_TIME),
        )
    return " ".join(result.text.split())[:40]
