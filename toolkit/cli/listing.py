"""The command ``tools``: the tools of a source, or one with its schema."""

from __future__ import annotations

import json
from typing import Any

from toolkit.calls.handler import Registration
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, open_sources, read_source
from toolkit.cli.terminal import Terminal
from toolkit.errors import UnknownToolNameError
from toolkit.tools.registry import ToolRegistry

__all__ = ["describe_tool", "list_tools", "show_tools", "write_signature"]


def list_tools(word: str, name: str | None, output: OutputFormat, settings: dict[str, Any]) -> int:
    """Write the tools of a source, or the one of a name."""
    screen = Screen(output)
    source = read_source(word, SourceSettings(**settings))

    async def main() -> int:
        with Steps() as steps:
            async with open_sources([source], steps) as tools:
                registry = tools.registry
                if name is not None:
                    _show_tool(screen, find_registration(registry, name))
                elif screen.is_json:
                    described = [describe_tool(registration) for registration in registry.registrations.values()]
                    screen.document({"tools": described})
                else:
                    show_tools(screen, registry)
        return 0

    return Terminal().run(main)


def find_registration(registry: ToolRegistry[Any], name: str) -> Registration[Any]:
    """Return what a registry knows of a tool.

    Raises:
        UnknownToolNameError: It has none of that name; it says which are near.
    """
    registration = registry.registrations.get(name)
    if registration is None:
        raise UnknownToolNameError(name, registry.names)
    return registration


def show_tools(screen: Screen, registry: ToolRegistry[Any]) -> None:
    """Write the tools for a person; where that is no terminal, one a line: its name, a tab, and what it does."""
    for registration in registry.registrations.values():
        summary = (registration.definition.description.strip() or "(no description)").split("\n")[0]
        if not screen.is_terminal:
            screen.say(f"{registration.name}\t{summary}")
            continue
        signature, marks = write_signature(registration), _write_marks(registration)
        room = screen.width - len(registration.name) - len(signature)
        screen.stream(registration.name, "strong")
        screen.stream(signature if room >= 0 else "(...)")
        screen.stream(marks if room >= len(marks) else "", "faint")
        screen.say()
        screen.paragraph(summary, indent=4)
    if screen.is_terminal:
        count = len(registry)
        screen.note(f"{count} tool{'' if count == 1 else 's'}")


def write_signature(registration: Registration[Any]) -> str:
    """Return the parameters of a tool in brackets; those that may be left out have a question mark."""
    parameters = registration.definition.parameters
    required = set(parameters.get("required", ()))
    names = [name if name in required else f"{name}?" for name in parameters.get("properties", {})]
    return f"({', '.join(names)})"


def describe_tool(registration: Registration[Any]) -> dict[str, Any]:
    """Return a tool as JSON; the keys are part of the interface."""
    definition, options = registration.definition, registration.options
    return {
        "name": registration.name,
        "description": definition.description,
        "parameters": definition.parameters,
        "output_schema": definition.output_schema,
        "tags": sorted(options.tags),
        "needs_approval": bool(options.requires_approval),
        "needs_context": registration.needs_context,
    }


def _show_tool(screen: Screen, registration: Registration[Any]) -> None:
    if screen.is_json:
        screen.document(describe_tool(registration))
        return
    screen.stream(registration.name, "strong")
    screen.stream(write_signature(registration))
    screen.say(_write_marks(registration), "faint")
    screen.paragraph(registration.definition.description or "(no description)", indent=4)
    screen.say(json.dumps(registration.definition.parameters, indent=2, ensure_ascii=False))


def _write_marks(registration: Registration[Any]) -> str:
    """Return the tags of a tool, and what it needs."""
    marks = sorted(registration.options.tags)
    marks += ["needs approval"] if registration.options.requires_approval else []
    marks += ["needs a context"] if registration.needs_context is not None else []
    return f"  [{', '.join(marks)}]" if marks else ""
