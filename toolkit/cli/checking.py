"""The command ``lint``: what is legal about tools and still makes models fail."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import anyio.to_thread

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, open_sources, read_source
from toolkit.cli.terminal import Terminal
from toolkit.cli.user_modules import gather_registries, import_named
from toolkit.tools.linting import Finding

__all__ = ["lint_tools"]

_Findings: TypeAlias = list[tuple[str, Finding]]  # each with where its tool is


def lint_tools(word: str, output: OutputFormat, settings: dict[str, Any]) -> int:
    """Write what is to be looked at, and return 1 where there is anything, or a module of a package fails."""
    screen, read = Screen(output), SourceSettings(**settings)
    if word.replace(".", "").isidentifier() and not word.endswith((".py", ".yaml", ".yml")) and word != "coding":
        module = import_named(word, read.timeout)
        if hasattr(module, "__path__"):
            return _lint_package(screen, module, read.timeout)
    source = read_source(word, read)

    async def main() -> int:
        with Steps() as steps:
            async with open_sources([source], steps) as tools:
                registry = tools.registry
                if len(registry) > _MANY:
                    steps.begin(f"checking {len(registry):,} tools")
                findings = await anyio.to_thread.run_sync(registry.lint, abandon_on_cancel=True)
        _write_findings(screen, [(source.label, finding) for finding in findings], len(registry))
        return ExitCode.FAILED if findings else ExitCode.DONE

    return Terminal().run(main)


_MANY = 100


def _lint_package(screen: Screen, package: ModuleType, timeout: float) -> int:
    """Look at the tools of all modules of a package, those of each together; a tool counts where it is met first."""
    findings: _Findings = []
    failures: list[str] = []
    met: set[int] = set()
    with Steps() as steps:
        steps.begin(f"checking the modules of {package.__name__}")
        names = [package.__name__, *_list_modules(package, partial(_import_or_note, timeout, failures))]
        for place, name in enumerate(names):
            steps.advance(place, len(names))
            module = _import_or_note(timeout, failures, name)
            for registry in gather_registries(module).values() if module is not None else ():
                fresh = registry.without([key for key, each in registry.registrations.items() if id(each.tool) in met])
                met |= {id(tool) for tool in fresh}
                findings += [(name, finding) for finding in fresh.lint()]
    failures = list(dict.fromkeys(failures))
    _write_findings(screen, findings, len(met), failures)
    return ExitCode.FAILED if findings or failures else ExitCode.DONE


def _list_modules(package: ModuleType, load: Callable[[str], ModuleType | None]) -> Iterator[str]:
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if info.name.endswith(".__main__"):  # which would run
            continue
        yield info.name
        inner = load(info.name) if info.ispkg else None
        if inner is not None:
            yield from _list_modules(inner, load)


def _import_or_note(timeout: float, failures: list[str], name: str) -> ModuleType | None:
    try:
        return import_named(name, timeout)
    except CommandError as error:
        failures.append(str(error))
        return None


def _write_findings(screen: Screen, findings: _Findings, count: int, failures: Sequence[str] = ()) -> None:
    if screen.is_json:
        plain = [
            {"source": source, "tool": each.tool, "parameter": each.parameter, "problem": each.problem}
            for source, each in findings
        ]
        screen.document({"tools": count, "findings": plain, "failures": list(failures)})
        return
    are_several = len({source for source, _ in findings}) > 1
    for source, finding in findings:
        screen.paragraph(f"{source}: {finding}" if are_several else str(finding))
    for failure in failures:
        screen.note(failure, "bad")
    screen.note(f"{count} tool{'' if count == 1 else 's'}, {len(findings) or 'nothing'} to look at")
