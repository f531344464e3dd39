"""What the functions for other frameworks are given: one tool or many, in or out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from toolkit.errors import ConfigurationError
from toolkit.tools.handler import Ctx
from toolkit.tools.registry import Registrable, ToolRegistry
from toolkit.tools.settings import check_setting, shown

__all__ = ["OneOrMore", "read_registry", "read_tools"]

Theirs = TypeVar("Theirs")

OneOrMore: TypeAlias = ToolRegistry[Ctx] | Registrable[Ctx] | Iterable[Registrable[Ctx]]
"""A registry, a tool or function, or several of them."""


def read_tools(tools: object, kind: type[Theirs], name: str) -> list[Theirs]:
    """Return a framework's tools, given one of them or several.

    Raises:
        ConfigurationError: It is neither, or one of several is none; names what it is.
    """
    if isinstance(tools, kind):
        return [tools]
    if not isinstance(tools, Iterable) or isinstance(tools, (str, bytes, Mapping, ToolRegistry)):
        raise ConfigurationError(f"{name} or a list of them is needed here, not {shown(cast('object', tools))}")
    found = list(cast("Iterable[Theirs]", tools))
    for tool in found:
        check_setting(name, tool, kind)
    return found


def read_registry(tools: object) -> ToolRegistry[Any]:
    """Return the registry that is given, or one of the tools or functions that are: one or several.

    Raises:
        ConfigurationError: It is none of these; names what it is.
    """
    if isinstance(tools, ToolRegistry):
        return cast("ToolRegistry[Any]", tools)
    if isinstance(tools, Callable) or hasattr(tools, "definition"):
        return ToolRegistry[Any]([cast("Any", tools)])
    if not isinstance(tools, Iterable) or isinstance(tools, (str, bytes, Mapping)):
        raise ConfigurationError(
            f"a ToolRegistry, a tool or a list of tools is needed here, not {shown(cast('object', tools))}"
        )
    return ToolRegistry[Any](cast("Iterable[Any]", tools))
