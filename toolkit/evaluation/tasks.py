"""Tasks: what a user says, which calls that takes, and what the answer must say; written by people in YAML.

::

    tasks:
      - class: one call
        prompt: What is the weather in Paris?
        calls:
          - get_weather: {city: Paris}
            returns: 18 degrees
        says: ["18"]

The arguments are compared as the tool gets them: with defaults filled in, letters in any case. ``{$one_of: [...]}``
stands for any of several values, ``{$any: true}`` for every value. A list in ``says`` holds wordings of one fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from toolkit.checked_yaml import check_sections, read_yaml_file
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, InvalidArgumentsError
from toolkit.evaluation.matching import has_wildcard, pick_first
from toolkit.schema.nodes import is_object
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.registry import ToolRegistry

__all__ = ["EvaluationTask", "TaskCall", "TaskSet", "load_tasks"]

_MOST_TASKS = 5_000
_MOST_TASK_PARTS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One call that a task takes.

    Args:
        tool: The name of the tool.
        arguments: As JSON says them; those that are left out keep their defaults.
        returns: The result of this call where tools are not run; None for that of the whole file.
    """

    tool: str
    arguments: Mapping[str, Any]
    returns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTask:
    """One task.

    Args:
        id: Its name in tables, one of its own.
        kind: The class of tasks that it belongs to.
        prompt: The words of the user.
        calls: The calls that it takes, in any order; None checks none, an empty list allows none.
        says: The facts that the answer must state: each fact in one of its wordings.
        may_call: Tools that may be called besides, with any arguments.
    """

    id: str
    kind: str
    prompt: str
    calls: tuple[TaskCall, ...] | None = None
    says: tuple[tuple[str, ...], ...] = ()
    may_call: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """The tasks of a file.

    Args:
        tasks: In their order.
        instructions: The system prompt of all of them; empty for none.
        returns: By tool, the result of a call that no task names, where tools are not run.
    """

    tasks: tuple[EvaluationTask, ...]
    instructions: str = ""
    returns: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def kinds(self) -> tuple[str, ...]:
        """The classes of the tasks, in the order of their first tasks."""
        return tuple(dict.fromkeys(task.kind for task in self.tasks))

    def check_tools(self, registry: ToolRegistry[Any]) -> None:
        """Refuse tasks that these tools can't solve.

        Raises:
            ConfigurationError: A task names a tool that is not there, or arguments that the tool does not take.
        """
        for task in self.tasks:
            for call in task.calls or ():
                _check_call(task, call, registry)
            for name in (*task.may_call, *(call.tool for call in task.calls or ())):
                _check_tool_name(f"the task '{task.id}'", name, registry)
        for name in self.returns:
            _check_tool_name("'returns'", name, registry)

    def sample(self, per_class: int) -> TaskSet:
        """Return the same with at most so many tasks of each class, the first ones."""
        seen: Counter[str] = Counter()
        kept: list[EvaluationTask] = []
        for task in self.tasks:
            seen[task.kind] += 1
            if seen[task.kind] <= per_class:
                kept.append(task)
        return TaskSet(tasks=tuple(kept), instructions=self.instructions, returns=self.returns)


class TaskEntry(BaseModel):
    """One task as it stands in a file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str = ""
    kind: str = Field(default="tasks", alias="class")
    prompt: str
    calls: list[dict[str, Any]] | None = None
    says: list[str | int | float | list[str | int | float]] = Field(default_factory=list[Any])
    may_call: list[str] = Field(default_factory=list[str])


def load_tasks(path: str | Path) -> TaskSet:
    """Read a YAML file of tasks.

    Args:
        path: The file.

    Raises:
        ConfigurationError: It can't be read, or says what can't be; or a task checks nothing. The error says where.
        ModuleNotFoundError: PyYAML is not installed; it names the extra.
    """
    file = Path(path)
    content = read_yaml_file(file, needed_by="load_tasks", most_parts=_MOST_TASK_PARTS)
    if not is_object(content) or "tasks" not in content:
        raise ConfigurationError(f"{file}: the key 'tasks' is missing")

    def read(tasks: list[TaskEntry], instructions: str = "", returns: dict[str, str] | None = None) -> None: ...

    sections = check_sections(content, read, file)
    entries: list[TaskEntry] = sections["tasks"]
    if not 0 < len(entries) <= _MOST_TASKS:
        raise ConfigurationError(f"{file} has {len(entries)} tasks: give from 1 to {_MOST_TASKS:,}")
    return TaskSet(
        tasks=tuple(_read_entries(entries, file)),
        instructions=sections["instructions"],
        returns=sections["returns"] or {},
    )


def _read_entries(entries: Sequence[TaskEntry], path: Path) -> list[EvaluationTask]:
    numbers: Counter[str] = Counter()
    tasks: dict[str, EvaluationTask] = {}
    for place, entry in enumerate(entries):
        numbers[entry.kind] += 1
        where = f"{path}: tasks.{place} ({entry.prompt[:60]!r})"
        task = _read_task(entry, f"{entry.kind} {numbers[entry.kind]}", where)
        if task.id in tasks:
            raise ConfigurationError(f"{where}: another task has the id '{task.id}', too: give one of its own")
        tasks[task.id] = task
    return list(tasks.values())


def _read_task(entry: TaskEntry, name: str, where: str) -> EvaluationTask:
    if not entry.prompt.strip():
        raise ConfigurationError(f"{where}: its prompt is empty")
    if entry.calls is None and not entry.says:
        raise ConfigurationError(
            f"{where}: it checks nothing: give 'calls' ([] where no tool is to be called), or 'says', or both"
        )
    return EvaluationTask(
        id=entry.id or name,
        kind=entry.kind,
        prompt=entry.prompt,
        calls=None if entry.calls is None else tuple(_read_task_call(call, where) for call in entry.calls),
        says=tuple(tuple(map(str, fact)) if isinstance(fact, list) else (str(fact),) for fact in entry.says),
        may_call=frozenset(entry.may_call),
    )


def _read_task_call(entry: Mapping[str, Any], where: str) -> TaskCall:
    names = [name for name in entry if name != "returns"]
    returns = entry.get("returns")
    if len(names) != 1 or not (returns is None or isinstance(returns, str)):
        raise ConfigurationError(
            f"{where}: each of 'calls' is one tool with its arguments, as in {{get_weather: {{city: Paris}}}}, and may "
            "have 'returns', a text"
        )
    arguments = entry[names[0]]
    if arguments is not None and not is_object(arguments):
        raise ConfigurationError(f"{where}: the arguments of {names[0]} must be an object, as in {{city: Paris}}")
    return TaskCall(tool=names[0], arguments=arguments or {}, returns=returns)


def _check_tool_name(where: str, name: str, registry: ToolRegistry[Any]) -> None:
    if name in registry:
        return
    question = ask_whether_meant(find_similar(name, registry.names))
    raise ConfigurationError(
        f"{where} names the tool '{name}', which is not there; {question or 'there are ' + ', '.join(registry.names)}"
    )


def _check_call(task: EvaluationTask, call: TaskCall, registry: ToolRegistry[Any]) -> None:
    _check_tool_name(f"the task '{task.id}'", call.tool, registry)
    if has_wildcard(call.arguments):
        return
    try:
        registry.registrations[call.tool].arguments.parse(pick_first(call.arguments))
    except InvalidArgumentsError as error:
        problems = " ".join(error.message.split("\n")[1:2])
        raise ConfigurationError(
            f"the task '{task.id}' expects a call of {call.tool} that the tool does not take: {problems}"
        ) from error
