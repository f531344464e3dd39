"""A model that knows what a task expects, and answers each guided step as well as its schema lets it."""

import itertools
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

from toolkit import AssistantMessage, ChatRequest, FunctionTool, ToolRegistry
from toolkit.chat import ChatResponse, Provider, ResponseDone, StreamEvent
from toolkit.chat.provider import ProviderWrapper
from toolkit.evaluation import EvaluationTask, TaskCall, Trial, TrialSettings, run_trial
from toolkit.evaluation.tasks import is_expected
from toolkit.guided import GuidedProvider
from toolkit.schema.nodes import is_array, is_object
from toolkit.schema.raw_schema import RawSchema
from toolkit.testing import FunctionProvider

__all__ = ["Oracle", "run_with_oracle"]

_MOST_COMBINATIONS = 2000


class Oracle:
    """Plays a perfect model: it chooses what is still to be called, and fills in what the task expects.

    Args:
        task: The task, with its calls in an order in which they can be made.
        registry: The tools.

    Attributes:
        provider: What speaks with it.
        troubles: What a schema did not let it say.
    """

    def __init__(self, task: EvaluationTask, registry: ToolRegistry[Any]) -> None:
        self.troubles: list[str] = []
        self.provider = FunctionProvider(self._reply)
        self._task = task
        self._registry = registry
        self._left: list[TaskCall] = list(task.calls or ())
        self._tool = ""

    def note_calls(self, request: ChatRequest) -> None:
        """Find out by a transcript which calls are still to be made."""
        made = [
            (call.name, self._read_arguments(call.name, call.arguments))
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        ]
        self._left = [
            call for call in self._task.calls or () if not any(is_expected(one, call, self._registry) for one in made)
        ]
        self._tool = ""

    def _read_arguments(self, name: str, text: str) -> Any:
        tool = self._registry.registrations[name].tool
        assert isinstance(tool, FunctionTool)
        try:
            parsed = tool.parse_args(json.loads(text))
        except Exception as error:  # noqa: BLE001 - such a call never ran
            self.troubles.append(f"{name}({text}): {error}")
            return {}
        parser = self._registry.registrations[name].arguments
        return json.loads(parser.dump_json(parsed))

    def _reply(self, request: ChatRequest) -> ChatResponse | str:
        if request.response_format is None:
            return f"It is {' and '.join(wordings[0] for wordings in self._task.says)}."
        schema = request.response_format.schema
        if "tool" in schema["properties"]:
            return json.dumps({"tool": self._choose(schema["properties"]["tool"]["enum"])})
        if "calls" in schema["properties"]:
            node = schema["properties"]["calls"]
            filled = list(self._list_fitting(node["items"]))[: node["maxItems"]]
            return json.dumps({"calls": filled or [_make_up(node["items"])]})
        return json.dumps(next(self._list_fitting(schema), None) or self._give_in(schema))

    def _choose(self, names: Sequence[str]) -> str:
        self._tool = next((call.tool for call in self._left if call.tool in names), "")
        if self._left and self._left[0].tool not in names:
            self.troubles.append(f"{self._left[0].tool} may not be chosen")
        return self._tool or names[-1]

    def _list_fitting(self, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for call in self._left:
            if call.tool == (self._tool or call.tool):
                values = self._fill_in(call, schema)
                if values is not None:
                    yield values

    def _fill_in(self, call: TaskCall, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        choices: dict[str, list[Any]] = {}
        for name, node in schema["properties"].items():
            wanted = _list_wanted(call.arguments, name)
            if wanted == [_ABSENT] and name not in schema["required"]:
                continue
            fitting = [value for each in wanted for value in _list_values(node, each)]
            if not fitting:
                self.troubles.append(f"{call.tool}: {name} can't be {wanted}")
                return None
            choices[name] = fitting
        for values in itertools.islice(itertools.product(*choices.values()), _MOST_COMBINATIONS):
            filled = dict(zip(choices, values, strict=True))
            if RawSchema(schema, subject="the schema of a step").is_valid(filled):
                return filled
        return None

    def _give_in(self, schema: Mapping[str, Any]) -> Any:
        made_up = _make_up(schema)
        self.troubles.append(f"{self._tool}: it has to say {made_up}")
        return made_up


class _Watched(ProviderWrapper):
    """Tells the oracle what was called before each turn."""

    def __init__(self, provider: Provider, oracle: Oracle) -> None:
        super().__init__(provider)
        self._oracle = oracle

    async def generate(self, request: ChatRequest) -> ChatResponse:
        self._oracle.note_calls(request)
        return await self._provider.generate(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        yield ResponseDone(await self.generate(request))


async def run_with_oracle(
    task: EvaluationTask,
    registry: ToolRegistry[Any],
    *,
    runs_tools: bool = True,
    returns: Mapping[str, str] | None = None,
) -> tuple[Trial, Oracle]:
    """Run a task by guided steps and a perfect model, and return the outcome with the model."""
    oracle = Oracle(task, registry)
    provider = _Watched(GuidedProvider(oracle.provider, hold_by="response_format"), oracle)
    settings = TrialSettings(runs_tools=runs_tools)
    return await run_trial(task, provider, registry, settings, returns=returns), oracle


_ABSENT: Any = object()


def _list_wanted(arguments: Mapping[str, Any], name: str) -> list[Any]:
    """Return what a parameter of the view may be for a task: a value, or one of several, or anything."""
    value: Any = arguments
    if name in arguments:
        value = arguments[name]
    else:
        for key in name.split("."):
            value = value.get(key, _ABSENT) if is_object(value) and key in value else _ABSENT
    return _expand(value)


def _expand(value: Any) -> list[Any]:
    if is_object(value) and "$one_of" in value:
        return list(value["$one_of"])
    if is_object(value) and "$any" in value:
        return [_ABSENT]
    if is_array(value):
        return [list(items) for items in itertools.product(*map(_expand, value))]
    if is_object(value):
        members = itertools.product(*map(_expand, value.values()))
        return [dict(zip(value, each, strict=True)) for each in members]
    return [value]


def _list_values(node: Mapping[str, Any], wanted: Any) -> list[Any]:
    """Return what a schema lets one say for a value; for what the task leaves open, anything."""
    if wanted is _ABSENT:
        return [_make_up(node)]
    if "enum" in node:
        return [each for each in node["enum"] if _is_same(each, wanted)]
    if is_array(wanted) and is_object(node.get("items")):
        items = [_list_values(node["items"], item) for item in wanted]
        return [list(each) for each in itertools.islice(itertools.product(*items), _MOST_COMBINATIONS)]
    if is_object(wanted) and "properties" in node:
        names = [name for name in node["properties"] if name in wanted or name in node.get("required", ())]
        members = [_list_values(node["properties"][name], wanted.get(name, _ABSENT)) for name in names]
        return [dict(zip(names, each, strict=True)) for each in itertools.product(*members)]
    return [wanted]


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        texts = [text.strip(" .").casefold() for text in (one, other)]
        return len({text.removesuffix(":00") if text.count(":") > 1 else text for text in texts}) == 1
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _make_up(node: Mapping[str, Any]) -> Any:
    """Return some value of a schema, as a model that has no choice would."""
    if node.get("enum"):
        return node["enum"][0]
    if "anyOf" in node:
        return _make_up(node["anyOf"][0])
    match node.get("type"):
        case "object":
            return {name: _make_up(node["properties"][name]) for name in node.get("required", ())}
        case "array":
            return [_make_up(node.get("items", {})) for _ in range(node.get("minItems", 0))]
        case "integer" | "number":
            return node.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return ""
