"""The words that a task shares with the tools: where all tasks share some, looking words up is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.evaluation.tasks import EvaluationTask
from toolkit.schema.nodes import is_object
from toolkit.tools.registry import ToolRegistry
from toolkit.word_stems import list_stems

__all__ = ["find_shared_words", "is_paraphrase", "list_tool_words"]


def list_tool_words(registry: ToolRegistry[Any]) -> frozenset[str]:
    """Return the stems of the words in the names and descriptions of the tools and in the names of their parameters."""
    stems: set[str] = set()
    for definition in registry.definitions():
        parameters: Any = definition.parameters.get("properties", {})
        names: Mapping[str, Any] = parameters if is_object(parameters) else {}
        stems.update(list_stems(" ".join((definition.name, definition.description, *names))))
    return frozenset(stems)


def find_shared_words(task: EvaluationTask, tool_words: frozenset[str]) -> frozenset[str]:
    """Return the stems that stand in the words of the user and in those of the tools."""
    return frozenset(list_stems(task.prompt)) & tool_words


def is_paraphrase(task: EvaluationTask, tool_words: frozenset[str]) -> bool:
    """Return whether a task takes a tool, and shares no word with any."""
    return bool(task.calls) and not find_shared_words(task, tool_words)
