"""Tools of other frameworks as tools of a registry, and a registry's tools as theirs.

Nothing of a framework is imported before its functions are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    try:
        return getattr(import_module(f"{__name__}.{framework}"), name)
    except ModuleNotFoundError as error:
        extra = framework.replace("_", "-")
        raise ModuleNotFoundError(
            f"{error.name} is not installed: `pip install 'toolkit-sdk[{extra}]'`", name=error.name
        ) from error
