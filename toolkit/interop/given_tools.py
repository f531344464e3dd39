"""The tools that the functions for other frameworks are given: one or many, in or out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from toolkit.calls.handler import Ctx
from toolkit.errors import ConfigurationError
from toolkit.settings import check_setting, describe_value
from toolkit.tools.registry import Registrable, ToolRegistry

__all__ = ["OneOrMore", "read_registry", "read_tools"]

Theirs = TypeVar("Theirs")

OneOrMore: TypeAlias = ToolRegistry[Ctx] | Registrable[Ctx] | Iterable[Registrable[Ctx]]
"""A registry, a tool or function, or several of them."""


def read_tools(tools: Any, kind: type[Theirs], name: str) -> list[Theirs]:
    """Return a framework's tools, given one of them or several.

    Raises:
        ConfigurationError: It is neither, or one of several is none; names what it is.
    """
    given: object = tools
    if isinstance(given, kind):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping, ToolRegistry)):
        raise ConfigurationError(f"{name} or a list of them is needed here, not {describe_value(tools)}")
    found: list[Theirs] = list(tools)
    for tool in found:
        check_setting(name, tool, kind)
    return found


def read_registry(tools: Any) -> ToolRegistry[Any]:
    """Return the registry that is given, or one of the tools or functions that are: one or several.

    Raises:
        ConfigurationError: It is none of these; names what it is.
    """
    given: object = tools
    if isinstance(given, ToolRegistry):
        registry: ToolRegistry[Any] = tools
        return registry
    if callable(given) or hasattr(given, "definition"):
        return ToolRegistry[Any]([tools])
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise ConfigurationError(
            f"a ToolRegistry, a tool or a list of tools is needed here, not {describe_value(tools)}"
        )
    return ToolRegistry[Any](tools)
