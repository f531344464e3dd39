"""Other names and descriptions of tools, in a file of their own: the sources of the tools stay as they are.

::

    words:
      track_parcel:
        name: find_parcel
        description: Find out where a parcel is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from toolkit.checked_yaml import check_sections, read_yaml_file
from toolkit.dataclass import dataclass
from toolkit.evaluation.tasks import TaskSet
from toolkit.tools.registry import ToolRegistry

__all__ = ["ToolWords", "load_tool_words"]

Context = TypeVar("Context")

_HEAD = "# The words that models are told in the place of the tools' own; `load_tool_words(path).apply(registry)`.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWords:
    """Names and descriptions in the place of those that tools have.

    ::

        registry = load_tool_words("words.yaml").apply(registry)

    Args:
        names: The new names, by the names that the tools have.
        descriptions: The new descriptions, by the names that the tools have.
    """

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return bool(self.names or self.descriptions)

    def __or__(self, other: ToolWords) -> ToolWords:
        return ToolWords(names={**self.names, **other.names}, descriptions={**self.descriptions, **other.descriptions})

    def apply(self, registry: ToolRegistry[Context]) -> ToolRegistry[Context]:
        """Return a registry in which the tools have these words; they stay the same tools.

        Raises:
            UnknownToolNameError: A tool is not there.
            DuplicateToolError: Two tools end up with one name.
            ConfigurationError: A name is not allowed.
        """
        return registry.described(self.descriptions).renamed(self.names)

    def rename_tasks(self, tasks: TaskSet) -> TaskSet:
        """Return tasks that name the tools by these names."""

        def rename(name: str) -> str:
            return self.names.get(name, name)

        renamed = [
            replace(
                task,
                calls=None
                if task.calls is None
                else tuple(replace(call, tool=rename(call.tool)) for call in task.calls),
                may_call=frozenset(map(rename, task.may_call)),
            )
            for task in tasks.tasks
        ]
        returns = {rename(name): text for name, text in tasks.returns.items()}
        return TaskSet(tasks=tuple(renamed), instructions=tasks.instructions, returns=returns)

    def dump(self) -> str:
        """Return the words as the text of a YAML file."""
        import yaml  # noqa: PLC0415 - an extra

        entries: dict[str, dict[str, str]] = {}
        for name in dict.fromkeys((*self.names, *self.descriptions)):
            entries[name] = {
                key: words[name]
                for key, words in (("name", self.names), ("description", self.descriptions))
                if name in words
            }
        return _HEAD + yaml.safe_dump({"words": entries}, sort_keys=False, allow_unicode=True, width=110)


class WordsEntry(BaseModel):
    """The words of one tool as they stand in a file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str | None = None
    description: str | None = None


def load_tool_words(path: str | Path) -> ToolWords:
    """Read a file of words, as ``toolkit tune`` writes it.

    Raises:
        ConfigurationError: It can't be read, or says what can't be.
        ModuleNotFoundError: PyYAML is not installed; it names the extra.
    """
    file = Path(path)
    content: Any = read_yaml_file(file, needed_by="load_tool_words")

    def read(words: dict[str, WordsEntry]) -> None: ...

    entries: dict[str, WordsEntry] = check_sections(content or {}, read, file)["words"]
    return ToolWords(
        names={name: entry.name for name, entry in entries.items() if entry.name is not None},
        descriptions={name: entry.description for name, entry in entries.items() if entry.description is not None},
    )
