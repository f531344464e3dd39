"""A registry as a plugin, read by what reads plugins."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from toolkit import (
    ImageBlock,
    LoopEvent,
    TextBlock,
    ToolCall,
    ToolExecutionUpdate,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    tool_loop,
)
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.real

SERVED = Path(__file__).with_name("served_plugin.py")


@asynccontextmanager
async def served() -> AsyncGenerator[ToolRegistry]:
    async with plugin_tools(sys.executable, [str(SERVED)], describe_timeout=20) as tools:
        yield ToolRegistry(tools)


async def ask(tools: ToolRegistry, name: str, **arguments: object) -> ToolResult:
    return await tools.execute(ToolCall("1", name, json.dumps(arguments)))


@pytest.mark.anyio
async def test_its_tools_come_over_with_their_schemas_and_rules() -> None:
    async with served() as tools:
        assert tools.names == ("double", "count", "refuse", "danger", "show")
        assert tools.definitions()[0].parameters["properties"]["number"] == {"type": "integer", "description": "Any."}
        assert (await ask(tools, "double", number=21)).text == "42"
        refused = await ask(tools, "refuse", why="so")
        assert (refused.text, refused.is_error) == ("no: so", True)
        assert "approval" in (await ask(tools, "danger")).text
        assert (await ask(tools, "show")).content == (TextBlock("look"), ImageBlock(b"hi"))


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


def test_it_can_be_tried_by_hand_and_says_what_it_does_not_understand() -> None:
    asked = '{"type":"describe"}\nhello\n{"type":"call","call_id":"c1","tool":"double","params":{"number":2}}\n'
    done = subprocess.run([sys.executable, str(SERVED)], input=asked, capture_output=True, text=True, check=True)
    description, answer = map(json.loads, done.stdout.splitlines())
    assert answer["content"] == [{"type": "text", "text": "4"}]
    assert [tool["name"] for tool in description["tools"]] == ["double", "count", "refuse", "danger", "show"]
    assert "not a request: b'hello\\n'" in done.stderr
