"""Repairs as a whole call sees them: who judges, who is told, and what happens to what can't be repaired."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.counted_work import count_calls
from toolkit import (
    Approve,
    AssistantMessage,
    Permissions,
    Tool,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    allow,
    deny,
    tool,
    tool_from_schema,
    tool_loop,
)
from toolkit.calls.approval import ApprovalRequest
from toolkit.calls.argument_repair import repair_to_fit
from toolkit.errors import InvalidArgumentsError
from toolkit.events import LoopEvent, ToolCallRefused, ToolCallRepaired, ToolEvent, ToolExecutionUpdate, ToolProgress
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@tool(requires_approval=True)
async def delete_file(path: str, tries: int = 1) -> str:
    """Delete a file."""
    return f"{path} {tries}"


async def results_of(call: ToolCall, registry: ToolRegistry, config: ToolLoopConfig[Any]) -> list[ToolResult]:
    result = await tool_loop(ScriptedProvider([call, "ok"]), registry, "go", config=config)
    assert isinstance(result.messages[1], AssistantMessage)
    assert result.messages[1].tool_calls == (call,)  # the transcript keeps what the model wrote
    return [message for message in result.messages if isinstance(message, ToolResult)]


async def test_an_approver_sees_the_repaired_call_and_the_original_and_events_tell_each_repair() -> None:
    asked: list[ApprovalRequest] = []
    events: list[LoopEvent] = []

    def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve()

    config = ToolLoopConfig(on_tool_call=approve, on_event=events.append)
    call = ToolCall("1", "deleteFile", "{'path': '/tmp/x', 'tries': '[2]',}")
    (refused,) = await results_of(call, ToolRegistry([delete_file]), config)
    assert refused.is_error  # a list is no integer, decoded or not
    assert asked == []
    call = ToolCall("1", "deleteFile", "{'path': '/tmp/x', 'tries': \"2\",}")
    (result,) = await results_of(call, ToolRegistry([delete_file]), config)
    assert result.text == "/tmp/x 2"
    (request,) = asked
    assert (request.tool_name, request.original.name) == ("delete_file", "deleteFile")
    assert request.arguments == {"path": "/tmp/x", "tries": 2}
    assert request.original == call
    repairs = [(e.kind, e.tool_name, e.before, e.after) for e in events[-20:] if isinstance(e, ToolCallRepaired)]
    assert repairs[-2:] == [
        ("name", "delete_file", "deleteFile", "delete_file"),
        ("text", "delete_file", call.arguments, '{"path": "/tmp/x", "tries": "2"}'),
    ]


@tool
async def delete_files() -> str:
    """Delete all files."""
    return "all"


@tool
async def delete_one(path: str = "") -> str:
    """Delete a file."""
    return "one"


@pytest.mark.parametrize("similar", [True, False])
@pytest.mark.parametrize("written", ["delete_files", "deleteFiles", "functions.delete_files"])
@pytest.mark.parametrize("scope", ["without", "only", "where", "nested", "union", "widened", "unregistered"])
async def test_a_name_that_a_scope_has_left_out_never_runs_another_tool(
    scope: str, written: str, similar: bool
) -> None:
    whole = ToolRegistry([delete_files, delete_one]).renamed({"delete_one": "delete_file"})
    scopes: dict[str, Callable[[], ToolRegistry]] = {
        "without": lambda: whole.without(["delete_files"]),
        "only": lambda: whole.only(["delete_file"]),
        "where": lambda: whole.where(lambda registration: registration.name != "delete_files"),
        "nested": lambda: whole.without(["delete_files"]).configured(timeout=5).prefixed("").renamed({}),
        "union": lambda: ToolRegistry([delete_one]) | whole.without(["delete_files"]),
        "widened": lambda: whole.without(["delete_files"]).widened(object),
        "unregistered": lambda: _unregistered(whole.only(whole.names)),
    }
    config = ToolLoopConfig(name_repair="similar") if similar else ToolLoopConfig()
    (result,) = await results_of(ToolCall("1", written, "{}"), scopes[scope](), config)
    assert result.text.startswith("Unknown tool")


def _unregistered(registry: ToolRegistry) -> ToolRegistry:
    registry.unregister("delete_files")
    return registry


async def test_rules_judge_the_repaired_name_and_the_repaired_arguments() -> None:
    @tool
    async def run_command(command: str) -> str:
        return command

    rules = Permissions([deny("run_command", args={"command": "rm *"}), allow("*")])
    registry = ToolRegistry([run_command], permissions=rules)
    assert (await registry.execute(ToolCall("1", "runCommand", "{'command': 'ls'}"))).text == "ls"
    denied = await registry.execute(ToolCall("2", "runCommand", "{'command': 'rm -r x'}"))
    assert (denied.is_error, denied.text) == (True, "Tool 'run_command' may not be called with this 'command'.")


@dataclass(frozen=True)
class Switch:
    name: str
    config: bool
    tool: bool | None
    repairs: bool


@pytest.mark.parametrize(
    "case",
    [
        Switch("by default", config=True, tool=None, repairs=True),
        Switch("off for all", config=False, tool=None, repairs=False),
        Switch("off for one", config=True, tool=False, repairs=False),
        Switch("on for one", config=False, tool=True, repairs=True),
    ],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("text", ["{'numbers': [1, 2]}", '{"numbers": "[1, 2]"}'], ids=["text", "values"])
async def test_repair_can_be_switched_off(case: Switch, text: str) -> None:
    @tool(argument_repair=case.tool)
    async def add(numbers: list[int]) -> str:
        return f"{sum(numbers)}"

    events: list[LoopEvent] = []
    config = ToolLoopConfig(argument_repair=case.config, on_event=events.append)
    (result,) = await results_of(ToolCall("1", "add", text), ToolRegistry([add]), config)
    assert (result.text == "3") is case.repairs
    assert result.is_error is not case.repairs
    assert any(isinstance(event, ToolCallRepaired) for event in events) is case.repairs
    assert any(isinstance(event, ToolCallRefused) for event in events) is not case.repairs


@pytest.mark.parametrize("text", ["[1]", "null", "3", '{"a": 1}', "True", "'x'", "{'a': 1,}"])
async def test_what_the_schema_accepts_is_never_touched(text: str) -> None:
    @tool
    async def note(text: str, maybe: str | None = None, any_of_it: str | list[int] = "") -> str:
        return json.dumps([text, maybe, any_of_it])

    events: list[LoopEvent] = []
    call = ToolCall("1", "note", json.dumps({"text": text, "maybe": text, "any_of_it": text}))
    (result,) = await results_of(call, ToolRegistry([note]), ToolLoopConfig(on_event=events.append))
    assert json.loads(result.text) == [text, text, text]
    assert not [event for event in events if isinstance(event, ToolCallRepaired)]


# bad input


@tool
async def typed(
    ratio: float = 0,
    items: list[Any] | None = None,
    text: str = "",
    members: dict[str, int] | None = None,
    count: int = 0,
    anything: Any = None,
) -> str:
    """Take anything."""
    return "it ran"


RAW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ratio": {"type": "number"},
        "items": {"type": "array"},
        "text": {"type": "string"},
        "members": {"type": "object"},
        "count": {"type": "integer"},
        "anything": {},
    },
    "additionalProperties": False,
}
raw = tool_from_schema("raw", "Take anything.", RAW_SCHEMA, lambda arguments: "it ran")
BAD = {
    "a megabyte of brackets": "[" * 1_000_000,
    "a megabyte of braces": "{" * 1_000_000,
    "a hundred thousand levels": '{"items": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "more levels in a string": '{"items": "' + "[" * 100_000 + "]" * 100_000 + '"}',
    "NaN": '{"ratio": NaN}',
    "NaN in a string": '{"ratio": "NaN"}',
    "infinity": '{"ratio": Infinity}',
    "less than all": '{"ratio": -Infinity}',
    "a number too large": '{"ratio": 1e999}',
    "NaN in a list in a string": '{"items": "[NaN]"}',
    "a name twice in an object in a string": '{"members": "{\\"a\\": 1, \\"a\\": 2}"}',
    "a name twice": '{"count": 1, "count": 2}',
    "a name twice, in other letters": '{"count": 1, "c\\u006funt": 2}',
    "a name twice, further in": '{"members": {"a": 1, "b": 2, "a": 3}}',
    "a name twice, in a list": '{"items": [{"a": 1, "a": 2}], "text": "a: b"}',
    "NaN for anything": '{"anything": [NaN]}',
    "infinity for anything": '{"anything": {"a": -Infinity}}',
    "a number too large for anything": '{"anything": 1e999}',
    "a name twice, in single quotes": "{'count': 1, 'count': 2}",
    "half a pair": '{"text": "\ud83d"}',
    "half a pair, escaped": '{"text": "\\ud83d"}',
    "half a pair in a name": '{"\ud83d": 1}',
    "NUL in a string": '{"text": "a\0b"}',
    "NUL at the end": '{"text": "a"}\0',
    "NUL alone": "\0",
    "three megabytes, broken": "{'text': '" + "x" * 3_000_000 + "'}",
    "three megabytes, wrong": '{"count": "' + "x" * 3_000_000 + '"}',
    "three megabytes, cut off": '{"text": "' + "x" * 3_000_000,
    "five thousand digits": '{"count": ' + "9" * 5000 + "}",
    "five thousand digits in a string": '{"count": "' + "9" * 5000 + '"}',
    "twenty thousand unknown names": "{" + ",".join(f'"k{number}": 1' for number in range(20_000)) + "}",
    "a name of a megabyte": '{"' + "k" * 1_000_000 + '": 1}',
    "a megabyte of quotes": '{"count": "' + '\\"' * 500_000 + '"}',
    "no object": '["text"]',
}


@pytest.mark.parametrize("the_tool", [typed, raw], ids=["typed", "raw"])
@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
async def test_bad_arguments_are_a_short_error(text: str, the_tool: Tool[object]) -> None:
    registry = ToolRegistry([the_tool])
    result = await registry.execute(ToolCall("1", the_tool.definition.name, text))
    assert result.is_error
    assert "argument" in result.text
    assert len(result.text) < 2000
    result.text.encode()


@pytest.mark.parametrize("the_tool", [typed, raw], ids=["typed", "raw"])
@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_arguments_take_a_bounded_number_of_steps(text: str, the_tool: Any) -> None:
    parser = the_tool.arguments

    def read() -> None:
        try:
            parser.parse_json(text)
        except InvalidArgumentsError as error:
            with suppress(InvalidArgumentsError):
                repair_to_fit(text, parser, error)

    assert count_calls(read) < 1_000_000


@pytest.mark.parametrize("the_tool", [typed, raw], ids=["typed", "raw"])
async def test_deep_lists_in_a_string_run_or_are_refused_as_deep_as_this_python_reads_them(
    the_tool: Tool[object],
) -> None:
    text = '{"items": "' + "[" * 500 + "]" * 500 + '"}'
    result = await ToolRegistry([the_tool]).execute(ToolCall("1", the_tool.definition.name, text))
    assert (result.text == "it ran") is not result.is_error


async def test_a_name_without_end_is_told_in_short() -> None:
    result = await ToolRegistry([typed]).execute(ToolCall("1", "x" * 1_000_000, "{}"))
    assert result.text == f"Unknown tool: {'x' * 100}.... Available tools: typed."


@pytest.mark.parametrize("the_tool", [typed, raw], ids=["typed", "raw"])
async def test_a_name_that_stands_twice_is_told(the_tool: Tool[object]) -> None:
    call = ToolCall("1", the_tool.definition.name, '{"members": {"a": 1, "c": 1, "c": 2}}')
    assert (await ToolRegistry([the_tool]).execute(call)).text == (
        'The arguments are not valid JSON: the name "c" stands twice in one object. Send one JSON object.'
    )


@pytest.mark.parametrize("the_tool", [typed, raw], ids=["typed", "raw"])
@pytest.mark.parametrize(
    "text",
    [
        '{"text": "NaN, Infinity, 1e999", "anything": "NaN"}',
        '{"text": "\\"a\\": 1, \\"a\\": 2", "anything": [{"a": 1}, {"a": 2}]}',
        " ",
    ],
)
async def test_what_only_looks_unclear_is_taken(text: str, the_tool: Tool[object]) -> None:
    assert (await ToolRegistry([the_tool]).execute(ToolCall("1", the_tool.definition.name, text))).text == "it ran"


async def test_ten_megabytes_that_are_right_are_taken() -> None:
    for the_tool in (typed, raw):
        call = ToolCall("1", the_tool.definition.name, json.dumps({"text": "x" * 10_000_000}))
        assert (await ToolRegistry([the_tool]).execute(call)).text == "it ran"


class Watching:
    def __init__(self) -> None:
        self.events: list[ToolEvent] = []

    async def emit(self, event: ToolEvent) -> None:
        self.events.append(event)

    def offer(self, event: ToolExecutionUpdate | ToolProgress) -> None:
        self.events.append(event)


async def test_an_observer_of_a_call_outside_of_a_loop_is_told_of_each_repair_first() -> None:
    observer = Watching()
    call = ToolCall("1", "deleteFile", "{'path': '/tmp/x',}")
    result = await ToolRegistry([delete_file]).execute(call, approve=lambda request: True, observer=observer)
    assert result.text == "/tmp/x 1"
    repairs = [event for event in observer.events if isinstance(event, ToolCallRepaired)]
    assert [(repair.kind, repair.before, repair.after) for repair in repairs] == [
        ("name", "deleteFile", "delete_file"),
        ("text", "{'path': '/tmp/x',}", '{"path": "/tmp/x"}'),
    ]
    assert observer.events[:2] == repairs
    refused = Watching()
    await ToolRegistry([delete_file]).execute(call, observer=refused)
    assert [type(event) for event in refused.events] == [ToolCallRepaired, ToolCallRepaired, ToolCallRefused]


@tool
def named(a: int, b: int = 2, d: dict[str, int] | None = None) -> str:
    """Take what is given by name."""
    return "it ran"


@pytest.mark.parametrize(
    ("arguments", "doubled"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a": 1, "b": 1, "a": 2}', "a"),
        ('{"a": 1, "a" : 2}', "a"),
        (r'{"a": 1, "\u0061": 2, "b": 3}', "a"),
        (r'{"a": 1, "a": 2, "d": {"x\"b": 1}}', "a"),
        ('{"a": 1, "d": {"b": 1, "b": 2}}', "b"),
        ('{"a": 1, "b": 2, "d": {"x": 1, "x": 2}}', "x"),
        ('{"a": 1, "d": {"a": 1, "b": 2}}', ""),
        ('{"a": 1, "b": 2}', ""),
    ],
)
async def test_a_name_that_stands_twice_is_found_beside_any_others(arguments: str, doubled: str) -> None:
    result = await ToolRegistry([named]).execute(ToolCall("1", "named", arguments))
    assert (result.text == "it ran") is not bool(doubled)
    assert not doubled or f'the name "{doubled}" stands twice' in result.text
