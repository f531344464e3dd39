"""Servers that answer a call with what is no result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from toolkit import ToolCall, ToolRegistry
from toolkit.sources.mcp import McpServer, http, mcp_tools, stdio

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    # The SDK leaves the generators of a streamed answer to the garbage collector, of which trio tells.
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]

PROGRAM = str(Path(__file__).parent / "malformed.py")
WAYS = ["stdio", "json", "events"]


@contextmanager
def serving(way: str, template: str) -> Generator[McpServer]:
    if way == "stdio":
        yield stdio(sys.executable, PROGRAM, way, template)
        return
    with subprocess.Popen([sys.executable, PROGRAM, way, template], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield http(f"http://127.0.0.1:{int(process.stdout.readline())}/mcp")
        finally:
            process.kill()


@dataclass
class Reply:
    name: str
    template: str
    ways: tuple[str, ...] = ("stdio", "json", "events")


MALFORMED = [
    Reply("no result", '{"jsonrpc": "2.0", "id": ID, "result": null}'),
    Reply("a list", '{"jsonrpc": "2.0", "id": ID, "result": [1]}'),
    Reply("nothing but an id", '{"jsonrpc": "2.0", "id": ID}'),
    Reply("a task without an id", '{"jsonrpc": "2.0", "id": ID, "result": {"task": {"taskId": 7}}}'),
    Reply("no task", '{"jsonrpc": "2.0", "id": ID, "result": {"task": null}}'),
    Reply("the id of another", '{"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}', ways=("json",)),
    Reply("no JSON", "{{{", ways=("json", "events")),
    Reply("deeply nested", '{"jsonrpc": "2.0", "id": ID, "result": ' + "[" * 2_000 + "]" * 2_000 + "}", ways=("json",)),
]


@pytest.mark.parametrize(
    ("way", "template"),
    [pytest.param(way, each.template, id=f"{each.name}-{way}") for each in MALFORMED for way in each.ways],
)
async def test_a_reply_that_is_no_result_ends_the_call_at_once(way: str, template: str) -> None:
    with serving(way, template) as server, anyio.fail_after(50):  # before the call's own limit
        async with mcp_tools(server) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "t", "{}"))
    assert result.is_error
    assert "what it answered is not MCP" in result.text
    assert result.text.endswith("It may have taken effect.")


@pytest.mark.parametrize("way", WAYS)
async def test_half_a_character_is_replaced(way: str) -> None:
    template = r'{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "cut \ud83d"}]}}'
    with serving(way, template) as server, anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "t", "{}"))
    assert (result.text, result.is_error) == ("cut \ufffd", False)
