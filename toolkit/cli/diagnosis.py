"""The command ``doctor``: which extras, keys, programs and engines are installed and work. No key is ever shown."""

from __future__ import annotations

import locale
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from toolkit.cli.screen import ExitCode, OutputFormat, Screen, Steps, Style
from toolkit.cli.sources import open_model, read_model
from toolkit.cli.terminal import Terminal
from toolkit.dataclass import dataclass
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.handle import tool_loop
from toolkit.parsing import advise_calling, probe_calling
from toolkit.redaction import without_keys
from toolkit.tools.registry import ToolRegistry

_State: TypeAlias = Literal["works", "missing", "broken"]

_STYLES: dict[_State, Style] = {"works": "good", "missing": "faint", "broken": "bad"}
_PACKAGE = "toolkit-sdk"
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,.-]*\])?(?:>=(?P<least>[\d.]+))?.*extra == ['\"](?P<extra>[\w-]+)['\"]"
)
# The module whose import shows that the packages of an extra work here.
_MODULES = {
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


@dataclass(frozen=True, slots=True)
class _Check:
    kind: str
    name: str
    state: _State
    detail: str


def examine_installation(models: tuple[str, ...], url: str, output: OutputFormat, *, is_probing: bool) -> int:
    """Report what is installed, and return 1 if some of it does not work."""
    screen, checks = Screen(output), list[_Check]()

    def add(check: _Check) -> None:
        checks.append(check)
        screen.stream(f"{check.state:8}", _STYLES[check.state])
        screen.paragraph(f"{check.kind} {check.name}  {check.detail}")

    async def main() -> int:
        with Steps() as steps:
            for check in _check_place():
                add(check)
            for extra, packages in sorted(_list_extras().items()):
                steps.begin(f"importing what {extra} brings")
                add(await anyio.to_thread.run_sync(_check_extra, extra, packages, abandon_on_cancel=True))
            for check in _check_surroundings():
                add(check)
            for model in models or ("local:",):
                steps.begin(f"asking {model}")
                tried = await _check_model(model, "" if model == "local:" else url, is_wanted=bool(models))
                add(tried)
                if models and tried.state == "works":
                    add(_Check("calls", model, "works", describe_advice(model)))
                    if is_probing:
                        add(await _run_check("probe", model, partial(_probe_model, model, url)))
        return ExitCode.FAILED if any(check.state == "broken" for check in checks) else ExitCode.DONE

    code = Terminal().run(main)
    if screen.is_json:
        screen.document({"checks": [asdict(check) for check in checks], "exit_code": code})
    return code


def _check_place() -> Iterator[_Check]:
    yield _Check("package", "toolkit", "works", version(_PACKAGE))
    yield _Check("package", "python", "works", f"{platform.python_version()}, {sys.platform}")
    encoding = (sys.stdout.encoding or locale.getpreferredencoding()).lower()
    is_wide = encoding.replace("-", "") == "utf8"
    hint = "" if is_wide else "; set PYTHONUTF8=1 to see all letters"
    columns = shutil.get_terminal_size().columns
    yield _Check("terminal", "output", "works" if is_wide else "broken", f"{encoding}, {columns} columns{hint}")


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


def _check_extra(extra: str, packages: list[tuple[str, str]]) -> _Check:
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
        return _Check("extra", extra, "missing", f"without {', '.join(missing)}: {install}")
    if old:
        return _Check("extra", extra, "broken", f"{'; '.join(old)}: {install}")
    try:
        import_module(_MODULES.get(extra, "toolkit"))
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything
        return _Check("extra", extra, "broken", f"{type(error).__name__}: {without_keys(str(error))}")
    return _Check("extra", extra, "works", ", ".join(there))


def _read_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def _check_surroundings() -> Iterator[_Check]:
    for name, use in _KEYS.items():
        is_set = bool(os.environ.get(name))
        yield _Check(
            "key", name, "works" if is_set else "missing", f"set, for {use}" if is_set else f"not set; for {use}"
        )
    for name, use in _PROGRAMS.items():
        path = shutil.which(name)
        yield _Check("program", name, "works" if path else "missing", f"{path or 'not found'}, for {use}")


async def _check_model(name: str, url: str, *, is_wanted: bool) -> _Check:
    """Ask a model for a word; the local one may be missing where nobody asked for it."""

    async def ask() -> tuple[_State, str]:
        began = time.perf_counter()
        async with open_model(read_model(name, url, _ANSWER_TIME), Steps(is_shown=False)) as provider:
            config: ToolLoopConfig[None] = ToolLoopConfig(timeout=_ANSWER_TIME)
            result = await tool_loop(provider, ToolRegistry[Any](), "Say the word yes.", ctx=None, config=config)
        answer = " ".join(result.text.split())[:40]
        return "works", f"answered {answer!r} in {time.perf_counter() - began:.1f} s"

    check = await _run_check("model", name, ask)
    is_missing = check.state == "broken" and not is_wanted and "not installed" in check.detail
    return _Check("model", name, "missing", check.detail) if is_missing else check


async def _probe_model(name: str, url: str) -> tuple[_State, str]:
    """Ask a model for a call in each way."""
    async with open_model(read_model(name, url, _ANSWER_TIME), Steps(is_shown=False)) as provider:
        probe = await probe_calling(provider, model=name)
    ways = {"native": probe.native, "text": probe.text, "guided": probe.guided}
    detail = "; ".join([f"{way}: {problem or 'works'}" for way, problem in ways.items()])
    return "broken" if probe.way is None else "works", detail


async def _run_check(kind: str, name: str, examine: Callable[[], Awaitable[tuple[_State, str]]]) -> _Check:
    try:
        with anyio.fail_after(_ANSWER_TIME):
            state, detail = await examine()
    except TimeoutError:
        return _Check(kind, name, "broken", f"no answer within {_ANSWER_TIME:g} s")
    except Exception as error:  # noqa: BLE001 - a broken engine may raise anything
        return _Check(kind, name, "broken", without_keys(" ".join(str(error).split())))
    return _Check(kind, name, state, detail)


def describe_advice(name: str) -> str:
    """Return in a line how a model is best asked for calls, by its name or the metadata of its GGUF file.

    Args:
        name: As in ``openai:qwen3:8b`` or ``local:model.gguf``.
    """
    prefix, _, model = name.partition(":")
    metadata = None
    if prefix.strip().lower() == "local" and model.strip():
        from toolkit.providers.local.gguf import read_gguf_metadata

        path = Path(model.strip())
        model, metadata = path.stem, read_gguf_metadata(path)
    advice = advise_calling(model or name, metadata)
    parts = [f"best asked {advice.way}: {advice.reason}"]
    family = advice.family
    if family is not None:
        parts.append(f"as text it writes calls like {advice.format}")
        if family.sampling is not None:
            warning = ", and never greedily" if family.sampling.forbids_greedy else ""
            parts.append(f"its makers recommend {family.sampling}{warning}")
        parts.append(f"see {' '.join(family.sources)}")
    return "; ".join(parts)
