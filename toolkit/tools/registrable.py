"""The values that can be registered, and the tool made of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any, Protocol, TypeAlias, cast

from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError
from toolkit.settings import check_setting
from toolkit.tools.decorators import tool_from_function
from toolkit.tools.function_tool import FunctionTool
from toolkit.tools.handler import Ctx, Tool

__all__ = ["PlainFunction", "Registrable", "as_tool"]


class PlainFunction(Protocol):
    """A function as ``def`` makes it; a tool, which can be called too, is none."""

    @property
    def __globals__(self) -> dict[str, Any]:
        """The names of its module."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        ...


Registrable: TypeAlias = Tool[Ctx] | PlainFunction
"""The values that a registry takes: a tool whose context fits, or a plain function that is made one."""


def as_tool(value: Any) -> Tool[Any]:
    """Return `value` when it is a tool, else the tool made of it."""
    if isinstance(value, MethodType):
        method: Any = value.__func__
        if isinstance(method, FunctionTool):
            # What a class method over a tool gives from Python 3.13 on.
            return cast("Tool[Any]", value.__func__.__get__(value.__self__, type(value.__self__)))
    if isinstance(value, FunctionTool):
        return cast("Tool[Any]", value)
    if hasattr(value, "definition") and hasattr(value, "execute"):
        tool = cast("Tool[Any]", value)
        check_setting("the definition of a tool", tool.definition, ToolDefinition)
        check_setting(f"the parameters of tool '{tool.definition.name}'", tool.definition.parameters, Mapping)
        return tool
    if callable(value):
        return cast("Tool[Any]", tool_from_function(value))
    raise ConfigurationError(
        f"{type(value).__qualname__} is neither a tool nor a function: register what @tool gives, a function, or an "
        "object with 'definition' and 'execute'"
    )
