"""Conversion of tools from and to other frameworks.

A framework is imported only when its functions are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from toolkit.calls.registration import Ctx
from toolkit.chat import ContentBlock
from toolkit.chat.output import ToolOutput, to_output
from toolkit.errors import ConfigurationError, naming_extra
from toolkit.settings import check_setting, describe_value
from toolkit.tools.registry import Registrable, ToolRegistry

if TYPE_CHECKING:
    from toolkit.interop.langchain import from_langchain, to_langchain
    from toolkit.interop.openai_agents import from_openai_agents, to_openai_agents
    from toolkit.interop.pydantic_ai import from_pydantic_ai, to_pydantic_ai

__all__ = [
    "from_langchain",
    "from_openai_agents",
    "from_pydantic_ai",
    "to_langchain",
    "to_openai_agents",
    "to_pydantic_ai",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    framework = name.partition("_")[2]
    with naming_extra(framework.replace("_", "-")):
        return getattr(import_module(f"{__name__}.{framework}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


Theirs = TypeVar("Theirs")

OneOrMore: TypeAlias = ToolRegistry[Ctx] | Registrable[Ctx] | Iterable[Registrable[Ctx]]
"""A registry, a tool or function, or several of them."""


def read_tools(tools: Any, kind: type[Theirs], name: str) -> list[Theirs]:
    """Return one or several tools of a framework as a list.

    Raises:
        ConfigurationError: An item is not a tool of the framework; the message names its type.
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
    """Return the given registry, or a registry of the given tools or functions.

    Raises:
        ConfigurationError: An item is none of these; the message names its type.
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


def output_from_parts(value: object, block_of: Callable[[Any], ContentBlock | None]) -> ToolOutput:
    """Return a value or a list of parts as an output: parts as the blocks that `block_of` returns, others as text."""
    parts: object = value
    items = list(cast("list[Any]", parts)) if isinstance(parts, (list, tuple)) else [parts]
    blocks = [block_of(item) for item in items]
    if all(block is None for block in blocks):
        return to_output(value)
    pairs = zip(items, blocks, strict=True)
    return to_output([to_output(item).text if block is None else block for item, block in pairs])
