"""Tools of other frameworks as tools of a registry, and a registry's tools as theirs.

Nothing of a framework is imported before its functions are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkit.errors import naming_extra

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
