"""How tools, calls and results are put into words for a model that has no tools of its own: one way for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.chat import ToolCall, ToolDefinition, ToolResult
from toolkit.errors import ConfigurationError
from toolkit.parsing.reply import TextFormat
from toolkit.schema.examples import make_example
from toolkit.schema.nodes import Nodes, is_object
from toolkit.schema.work import TooMuchWorkError
from toolkit.tools.repair import repair_arguments

__all__ = ["Wording", "wording_of"]

_CallWriter = Callable[[Sequence[ToolCall]], str]
_ResultWriter = Callable[[ToolResult], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The words of one format.

    Args:
        rule: How to write a call; an example follows it.
        write_calls: Writes calls as the model would.
        write_result: Writes what a tool gave.
        stop: Texts at which the model must stop, because what it would write then is not its to say.
    """

    rule: str
    write_calls: _CallWriter
    write_result: _ResultWriter
    stop: tuple[str, ...] = ()

    def instructions(self, tools: Sequence[ToolDefinition]) -> str:
        """Return what tells a model of its tools and how to call them."""
        listed = "\n".join([_described(tool) for tool in tools])
        return f"You can call these tools:\n{listed}\n\n{self.reminder(tools)}"

    def reminder(self, tools: Sequence[ToolDefinition]) -> str:
        """Return how to call them."""
        return f"{self.rule} For example:\n{self.write_calls([_example(tools)])}"


def _described(tool: ToolDefinition) -> str:
    return json.dumps(
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        ensure_ascii=False,
        default=dict,
    )


def _example(tools: Sequence[ToolDefinition]) -> ToolCall:
    """A call of the first tool that takes something."""
    tool = next((tool for tool in tools if tool.parameters.get("properties")), tools[0])
    try:
        arguments: Any = make_example(Nodes(tool.parameters), tool.parameters)
    except TooMuchWorkError:
        arguments = {}
    return ToolCall("", tool.name, json.dumps(arguments if is_object(arguments) else {}, ensure_ascii=False))


def wording_of(format: TextFormat) -> Wording:  # noqa: A002
    """Return the words of a format; ``auto`` is written as ``hermes``.

    Raises:
        ConfigurationError: There is no such format.
    """
    wording = _WORDINGS.get(format)
    if wording is None:
        raise ConfigurationError(f"there is no format '{format}'; there are: {', '.join(_WORDINGS)}")
    return wording


# calls


def _each(write: Callable[[str, str], str], separator: str = "\n") -> _CallWriter:
    return lambda calls: separator.join([write(call.name, _object(call)) for call in calls])


def _object(call: ToolCall) -> str:
    """The arguments as JSON; what was never read stays as it was written."""
    repaired = repair_arguments(call.arguments)
    return call.arguments if repaired is None else repaired


def _named(name: str, arguments: str, *, keys: tuple[str, str] = ("name", "arguments")) -> str:
    return f'{{"{keys[0]}": {json.dumps(name)}, "{keys[1]}": {arguments}}}'


def _function(name: str, arguments: str) -> str:
    members = _members(arguments)
    if members is None:
        return f"<function={name}>{arguments}</function>"
    elements = "".join([f"<parameter={key}>\n{_unquoted(value)}\n</parameter>\n" for key, value in members.items()])
    return f"<tool_call>\n<function={name}>\n{elements}</function>\n</tool_call>"


def _python(name: str, arguments: str) -> str:
    members = _members(arguments)
    inner = arguments if members is None else ", ".join([f"{key}={value!r}" for key, value in members.items()])
    return f"{name}({inner})"


def _members(arguments: str) -> Mapping[str, Any] | None:
    try:
        members: object = json.loads(arguments)
    except ValueError:
        return None
    return members if is_object(members) else None


def _unquoted(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list(calls: Iterable[ToolCall], write: Callable[[str, str], str]) -> str:
    return "[" + ", ".join([write(call.name, _object(call)) for call in calls]) + "]"


# results


def _told(result: ToolResult) -> str:
    return f"{'Error' if result.is_error else 'Result'} of {result.tool_name or 'the call'}: {result.text}"


def _tagged(result: ToolResult) -> str:
    return f"<tool_response>\n{result.text}\n</tool_response>"


def _mistral_result(result: ToolResult) -> str:
    return f"[TOOL_RESULTS]{json.dumps({'content': result.text}, ensure_ascii=False)}[/TOOL_RESULTS]"


_JSON = Wording(
    rule="To call a tool, reply with a JSON object on lines of its own, and nothing after it.",
    write_calls=_each(_named),
    write_result=_told,
)
_HERMES = Wording(
    rule="To call a tool, write a JSON object with its name and arguments between <tool_call> and </tool_call>.",
    write_calls=_each(lambda name, arguments: f"<tool_call>\n{_named(name, arguments)}\n</tool_call>"),
    write_result=_tagged,
    stop=("<tool_response>",),
)
_WORDINGS: Mapping[str, Wording] = {
    "auto": _HERMES,
    "hermes": _HERMES,
    "react": Wording(
        rule="To call a tool, write a line with Action and its name, and a line with Action Input and a JSON object; "
        "then stop, and wait for the Observation.",
        write_calls=_each(lambda name, arguments: f"Action: {name}\nAction Input: {arguments}"),
        write_result=lambda result: f"Observation: {result.text}",
        stop=("\nObservation:",),
    ),
    "llama": Wording(
        rule=_JSON.rule,
        write_calls=_each(lambda name, arguments: _named(name, arguments, keys=("name", "parameters"))),
        write_result=_told,
    ),
    "mistral": Wording(
        rule="To call tools, write [TOOL_CALLS] and a list of JSON objects with their names and arguments.",
        write_calls=lambda calls: f"[TOOL_CALLS] {_list(calls, _named)}",
        write_result=_mistral_result,
    ),
    "qwen": Wording(
        rule="To call a tool, write a <function> element with a <parameter> element for each argument between "
        "<tool_call> and </tool_call>, and close each of them.",
        write_calls=_each(_function),
        write_result=_tagged,
    ),
    "pythonic": Wording(
        rule="To call tools, reply with a list of calls in Python syntax, with names for all arguments, alone.",
        write_calls=lambda calls: _list(calls, _python),
        write_result=_told,
    ),
    "json": _JSON,
    "fenced": Wording(
        rule="To call a tool, write a JSON object with its name and arguments in a fence of its own.",
        write_calls=_each(lambda name, arguments: f"```json\n{_named(name, arguments)}\n```"),
        write_result=_told,
    ),
    "crew": Wording(
        rule=_JSON.rule,
        write_calls=_each(lambda name, arguments: _named(name, arguments, keys=("tool_name", "arguments"))),
        write_result=_told,
    ),
}
