"""The context that tools need, where a registry is to be used without one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.tools.handler import Registration
    from toolkit.tools.registry import ToolRegistry

__all__ = ["describe_need", "may_need_context"]


def may_need_context(registration: Registration[Any]) -> bool:
    """Return whether a tool takes a context, or has tools inside that may."""
    return registration.needs_context is not None or bool(getattr(registration.tool, "inner_registries", ()))


def describe_need(needy: Iterable[Registration[Any]], seen: frozenset[int]) -> str | None:
    """Return what the first of these tools needs, in words, or None where none needs a context.

    Args:
        needy: Tools that may need one.
        seen: The registries that were looked at already, by their ids: a sub-agent may be among its own tools.
    """
    for registration in needy:
        if registration.needs_context is not None:
            return f"tool '{registration.name}' needs a context of type {registration.needs_context}"
        inner: Iterable[ToolRegistry[Any]] = getattr(registration.tool, "inner_registries", ())
        for registry in inner:
            need = None if id(registry) in seen else registry.find_context_need(seen)
            if need is not None:
                return f"{need}, inside tool '{registration.name}'"
    return None
