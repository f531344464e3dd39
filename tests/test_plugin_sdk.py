"""A registry as a plugin, read by what reads plugins."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, ToolResult, tool_loop
from toolkit.chat import ImageBlock, TextBlock
from toolkit.events import LoopEvent, ToolExecutionUpdate
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.real

SERVED = Path(__file__).with_name("served_plugin.py")
NAMES = ("double", "take_input", "detail", "count", "refuse", "danger", "show")


@asynccontextmanager
async def served() -> AsyncGenerator[ToolRegistry]:
    async with plugin_tools(sys.executable, [str(SERVED)], describe_timeout=20) as tools:
        yield ToolRegistry(tools)


async def ask(tools: ToolRegistry, name: str, **arguments: object) -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps(arguments)))


@pytest.mark.anyio
async def test_its_tools_come_over_with_their_schemas_and_rules() -> None:
    async with served() as tools:
        assert tools.names == NAMES
        assert tools.definitions()[0].parameters["properties"]["number"] == {"type": "integer", "description": "Any."}
        assert (await ask(tools, "double", number=21)).text == "42"
        refused = await ask(tools, "refuse", why="so")
        assert (refused.text, refused.is_error) == ("no: so", True)
        assert "approval" in (await ask(tools, "danger")).text
        assert (await ask(tools, "show")).content == (TextBlock("look"), ImageBlock(b"hi"))


@pytest.mark.anyio
async def test_no_tool_takes_the_requests_of_others_or_ends_their_calls_by_its_details() -> None:
    async with served() as tools:
        assert (await ask(tools, "take_input")).text == "nothing"
        for kind in ("circle", "keys", "no number"):
            assert (await ask(tools, "detail", kind=kind)).text == "x"
        assert (await ask(tools, "double", number=21)).text == "42"


@pytest.mark.parametrize("call_id", ["a", 7, 1.5, None, True, [1], {"a": "b"}])
def test_an_id_of_any_kind_comes_back_as_it_was(call_id: object) -> None:
    request = json.dumps({"type": "call", "call_id": call_id, "tool": "double", "params": {"number": 1}})
    run = subprocess.run([sys.executable, str(SERVED)], input=request, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["call_id"] == call_id


@pytest.mark.anyio
async def test_updates_come_over_and_calls_run_at_once() -> None:
    events: list[LoopEvent] = []
    provider = ScriptedProvider([ToolCall("1", "count", '{"to": 3}'), "Done."])
    async with served() as tools:
        await tool_loop(provider, tools, "Go.", config=ToolLoopConfig(on_event=events.append))
        results = await tools.execute_all([ToolCall(str(n), "double", json.dumps({"number": n})) for n in range(50)])
    updates = [event.output.text for event in events if isinstance(event, ToolExecutionUpdate)]
    assert updates == ["at 1", "at 2", "at 3"]
    assert [result.text for result in results] == [str(2 * n) for n in range(50)]


@pytest.mark.anyio
async def test_a_cancelled_call_is_cancelled_there_and_others_go_on() -> None:
    async with served() as tools:
        with anyio.move_on_after(0.5) as scope:
            await ask(tools, "count", to=6)
        assert scope.cancelled_caught
        assert (await ask(tools, "double", number=1)).text == "2"


def answers_to(command: list[str], *asked: object) -> tuple[list[Any], str]:
    lines = "".join(json.dumps(each) + "\n" for each in asked)
    done = subprocess.run([sys.executable, *command], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_tool_by_itself_is_described_and_called_as_one_that_needs_no_name() -> None:
    alone = (
        "from toolkit import ToolRegistry, tool\n"
        "from toolkit.plugin_sdk import serve_plugin\n"
        "serve_plugin(ToolRegistry([tool(lambda number: number * 2, name='double')]))\n"
    )
    call = {"type": "call", "call_id": "c1", "params": {"number": 2}}
    (description, answer), _ = answers_to(["-c", alone], {"type": "describe"}, call)
    assert description["name"] == "double"
    assert answer["content"] == [{"type": "text", "text": "4"}]


def test_calls_without_ids_or_arguments_are_answered_and_what_is_no_call_is_passed_over() -> None:
    calls = [{"type": "call", "tool": "double", "params": {"number": number}} for number in (1, 2)]
    nothing = {"type": "call", "tool": "refuse"}
    told, errors = answers_to([str(SERVED)], *calls, nothing, {"type": "cancel", "call_id": []}, [1])
    assert sorted(answer["content"][0]["text"][:25] for answer in told) == ["2", "4", "The arguments have 1 prob"]
    assert [answer["error"] for answer in told].count(True) == 1
    assert "not a request: a line of" in errors


def test_it_can_be_tried_by_hand_and_says_what_it_does_not_understand() -> None:
    asked = '{"type":"describe"}\nhello\n{"type":"call","call_id":"c1","tool":"double","params":{"number":2}}\n'
    done = subprocess.run([sys.executable, str(SERVED)], input=asked, capture_output=True, text=True, check=True)
    description, answer = map(json.loads, done.stdout.splitlines())
    assert answer["content"] == [{"type": "text", "text": "4"}]
    assert [tool["name"] for tool in description["tools"]] == list(NAMES)
    assert "not a request: a line of" in done.stderr
