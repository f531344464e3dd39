"""Evaluation tasks in YAML and their judge: a prompt, the expected calls, and the facts that the answer must state.

::

    tasks:
      - class: one call
        prompt: What is the weather in Paris?
        calls:
          - get_weather: {city: Paris}
            returns: 18 degrees
        says: ["18"]

Arguments are compared as the tool receives them, with defaults filled in, ignoring case. ``{$one_of: [...]}`` accepts
any of several values, ``{$any: true}`` every value. A list in ``says`` gives several wordings of one fact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from toolkit.checked_yaml import check_sections, read_yaml_file
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, InvalidArgumentsError
from toolkit.schema.nodes import is_array, is_object
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.registry import ToolRegistry

FailureReason: TypeAlias = Literal[
    "",
    "no call",
    "unknown tool",
    "arguments refused",
    "wrong tool",
    "wrong arguments",
    "a call is missing",
    "a call too many",
    "no answer",
    "the answer lacks a fact",
    "out of time",
    "the request failed",
]
"""The reason why a task is not solved; empty if it is. Of several reasons, the first one in a run."""

MadeCall: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a tool and its validated arguments, as JSON."""

_MOST_TASKS = 5_000
_MOST_TASK_PARTS = 200_000
_ANY = "$any"
_ONE_OF = "$one_of"
_EDGES = ".,!?:;()[]{}*\"'`´‘’“”$€£¥%°"  # noqa: RUF001 - quotation marks that models write


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """A call that a task expects.

    Args:
        tool: The name of the tool.
        arguments: The arguments as JSON; omitted ones have their defaults.
        returns: The result of this call when tools do not run; None takes the file's result for the tool.
    """

    tool: str
    arguments: Mapping[str, Any]
    returns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTask:
    """One task.

    Args:
        id: Its unique name in tables.
        kind: The class of tasks that it belongs to.
        prompt: The user message.
        calls: The expected calls, in any order; None skips the check, an empty list allows no call.
        says: The facts that the answer must state, each in one of its wordings.
        may_call: Tools that may also be called, with any arguments.
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
        tasks: The tasks, in the order of the file.
        instructions: The system prompt of every task; empty for none.
        returns: The result, by tool, of a call that no task expects, when tools do not run.
    """

    tasks: tuple[EvaluationTask, ...]
    instructions: str = ""
    returns: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def kinds(self) -> tuple[str, ...]:
        """The classes of the tasks, in the order of their first tasks."""
        return tuple(dict.fromkeys(task.kind for task in self.tasks))

    def check_tools(self, registry: ToolRegistry[Any]) -> None:
        """Check that these tools can solve the tasks.

        Raises:
            ConfigurationError: A task names an unknown tool, or arguments that the tool does not accept.
        """
        for task in self.tasks:
            for call in task.calls or ():
                _check_call(task, call, registry)
            for name in task.may_call:
                _check_tool_name(f"the task '{task.id}'", name, registry)
        for name in self.returns:
            _check_tool_name("'returns'", name, registry)

    def sample(self, per_class: int) -> TaskSet:
        """Return the first `per_class` tasks of each class."""
        seen: Counter[str] = Counter()
        chosen: list[EvaluationTask] = []
        for task in self.tasks:
            seen[task.kind] += 1
            if seen[task.kind] <= per_class:
                chosen.append(task)
        return TaskSet(tasks=tuple(chosen), instructions=self.instructions, returns=self.returns)


class TaskEntry(BaseModel):
    """One task in a file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str = ""
    kind: str = Field(default="tasks", alias="class")
    prompt: str
    calls: list[dict[str, Any]] | None = None
    says: list[str | int | float | list[str | int | float]] = Field(default_factory=list[Any])
    may_call: list[str] = Field(default_factory=list[str])


def load_tasks(path: str | Path) -> TaskSet:
    """Read a YAML file of tasks.

    Raises:
        ConfigurationError: The file can't be read or has an invalid entry, or a task checks nothing; the message gives
            the place.
        ModuleNotFoundError: PyYAML is not installed; the error names the extra.
    """
    file = Path(path)
    content = read_yaml_file(file, most_parts=_MOST_TASK_PARTS)
    if not is_object(content) or "tasks" not in content:
        raise ConfigurationError(f"{file}: the key 'tasks' is missing")

    def read(tasks: list[TaskEntry], instructions: str = "", returns: dict[str, str] | None = None) -> None: ...

    sections = check_sections(content, read, file)
    entries: list[TaskEntry] = sections["tasks"]
    if not 0 < len(entries) <= _MOST_TASKS:
        raise ConfigurationError(f"{file} has {len(entries)} tasks: give from 1 to {_MOST_TASKS:,}")
    numbers: Counter[str] = Counter()
    tasks: dict[str, EvaluationTask] = {}
    for place, entry in enumerate(entries):
        numbers[entry.kind] += 1
        where = f"{file}: tasks.{place} ({entry.prompt[:60]!r})"
        task = _read_task(entry, f"{entry.kind} {numbers[entry.kind]}", where)
        if task.id in tasks:
            raise ConfigurationError(f"{where}: another task has the id '{task.id}', too: give one of its own")
        tasks[task.id] = task
    return TaskSet(
        tasks=tuple(tasks.values()), instructions=sections["instructions"], returns=sections["returns"] or {}
    )


def judge_trial(
    task: EvaluationTask,
    calls: Sequence[MadeCall],
    refused: Sequence[str],
    answer: str,
    registry: ToolRegistry[Any],
) -> FailureReason:
    """Return the reason why a task is not solved, or "".

    An expected call may be repeated; any other call that the task does not allow fails it.

    Args:
        task: The task.
        calls: The calls that ran.
        refused: The results of the calls that did not run.
        answer: The model's last text.
        registry: The tools.
    """
    reason = "" if task.calls is None else _judge_calls(task, task.calls, calls, refused, registry)
    if reason:
        return reason
    if not answer.strip():
        return "no answer"
    return "" if all(states_fact(answer, wordings) for wordings in task.says) else "the answer lacks a fact"


def is_expected(call: MadeCall, expected: TaskCall, registry: ToolRegistry[Any]) -> bool:
    """Return True if a call is the one that a task expects.

    They are compared with the tool's defaults filled in, ignoring case, and spaces and full stops around a text.
    """
    name, actual = call
    if name != expected.tool or name not in registry:
        return False
    parser = registry.registrations[name].arguments
    wanted = _resolve_choices(expected.arguments, actual)
    try:
        filled: Any = json.loads(parser.dump_json(parser.parse(wanted)))
    except InvalidArgumentsError:
        filled = wanted
    return bool(_fold_value(filled) == _fold_value(actual))


def pick_first(expected: Any) -> Any:
    """Return a value with each ``{$one_of: [...]}`` replaced by its first value."""
    return _resolve_choices(expected, None)


def states_fact(answer: str, wordings: Sequence[str]) -> bool:
    """Return True if an answer contains one of the wordings as whole words, ignoring case."""
    words = f" {' '.join(_list_answer_words(answer))} "
    return any(f" {' '.join(_list_answer_words(wording))} " in words for wording in wordings)


def _read_task(entry: TaskEntry, name: str, where: str) -> EvaluationTask:
    if not entry.prompt.strip():
        raise ConfigurationError(f"{where}: its prompt is empty")
    if entry.calls is None and not entry.says:
        raise ConfigurationError(
            f"{where}: it checks nothing: give 'calls' ([] if no tool should be called), or 'says', or both"
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
        f"{where} names the tool '{name}', which does not exist; {question or 'there are ' + ', '.join(registry.names)}"
    )


def _check_call(task: EvaluationTask, call: TaskCall, registry: ToolRegistry[Any]) -> None:
    _check_tool_name(f"the task '{task.id}'", call.tool, registry)
    if _has_wildcard(call.arguments):
        return
    try:
        registry.registrations[call.tool].arguments.parse(pick_first(call.arguments))
    except InvalidArgumentsError as error:
        problems = " ".join(error.lines[:1])
        raise ConfigurationError(
            f"the task '{task.id}' expects a call of {call.tool} that the tool does not accept: {problems}"
        ) from error


def _judge_calls(
    task: EvaluationTask,
    expected: Sequence[TaskCall],
    calls: Sequence[MadeCall],
    refused: Sequence[str],
    registry: ToolRegistry[Any],
) -> FailureReason:
    missing = [one for one in expected if not any(is_expected(call, one, registry) for call in calls)]
    others = [
        call
        for call in calls
        if call[0] not in task.may_call and not any(is_expected(call, one, registry) for one in expected)
    ]
    if not missing:
        return "a call too many" if others else ""
    return _explain_missing(missing, others) if calls else _explain_no_call(refused)


def _explain_missing(missing: Sequence[TaskCall], others: Sequence[MadeCall]) -> FailureReason:
    if not others:
        return "a call is missing"
    return "wrong arguments" if {one.tool for one in missing} & {name for name, _ in others} else "wrong tool"


def _explain_no_call(refused: Sequence[str]) -> FailureReason:
    if not refused:
        return "no call"
    return "unknown tool" if refused[0].startswith("Unknown tool") else "arguments refused"


def _has_wildcard(expected: Any) -> bool:
    if is_object(expected):
        return _ANY in expected or any(map(_has_wildcard, expected.values()))
    return is_array(expected) and any(map(_has_wildcard, expected))


def _resolve_choices(expected: Any, actual: Any) -> Any:
    """Replace each placeholder by the actual value if it is allowed, or else by the first allowed value."""
    if is_object(expected):
        if _ANY in expected:
            return actual
        if _ONE_OF in expected:
            choices: Sequence[Any] = expected[_ONE_OF]
            return next((choice for choice in choices if _fold_value(choice) == _fold_value(actual)), choices[0])
        known: Mapping[str, Any] = actual if is_object(actual) else {}
        return {name: _resolve_choices(value, known.get(name)) for name, value in expected.items()}
    if is_array(expected):
        items: Sequence[Any] = actual if is_array(actual) and len(actual) == len(expected) else [None] * len(expected)
        return [_resolve_choices(one, other) for one, other in zip(expected, items, strict=True)]
    return expected


def _fold_value(value: Any) -> Any:
    if is_object(value):
        return {name: _fold_value(inner) for name, inner in value.items() if inner is not None}
    if is_array(value):
        return [_fold_value(inner) for inner in value]
    return value.strip(" .").casefold() if isinstance(value, str) else value


def _list_answer_words(text: str) -> list[str]:
    plain = text.casefold()
    # 1,290 and 1290 are the same number.
    joined = "".join(
        character
        for place, character in enumerate(plain)
        if character != "," or not (plain[place - 1 : place].isdigit() and plain[place + 1 : place + 2].isdigit())
    )
    words = (word.strip(_EDGES) for word in joined.split())
    return [word.removesuffix("°c").removesuffix("°f") for word in words if word]
