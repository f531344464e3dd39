"""Twenty kinds of run mixed, for as long as one likes: nothing of the process grows.

poe soak                              # ten minutes
pytest -m real tests/flows/test_soak.py  # some seconds
"""

import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
from pydantic import BaseModel

from tests.providers.loopback import Answer, Hang, Server, chunk, completion, events, serving
from tests.providers.test_connections import ANSWERS
from tests.runtime.isolated_functions import report
from toolkit import (
    AnswerFormat,
    AssistantMessage,
    Defer,
    OutputLimits,
    ProviderRetryConfig,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
    tool_loop_sync,
)
from toolkit.agents import sub_agent_tool
from toolkit.builtin import bash_tool
from toolkit.chat import TextDelta
from toolkit.durable import SqliteJournal
from toolkit.endings import AwaitingApproval
from toolkit.events import EventStream
from toolkit.parsing import TextToolProvider
from toolkit.policies import MemoryCache, ResultStore, RunLimit
from toolkit.providers import CachedProvider, RateLimitedProvider
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.run_log import RunLog
from toolkit.sources.openapi import openapi_tools
from toolkit.sources.plugin import plugin_tools
from toolkit.testing import ScriptedProvider

PLUGIN = Path(__file__).parents[1] / "served_plugin.py"
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/hello": {"get": {"operationId": "hello", "responses": {"200": {"description": "ok"}}}}},
}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


class Sum(BaseModel):
    total: int


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def add_later(a: int, b: int) -> int:
    """Add."""
    await anyio.lowlevel.checkpoint()
    return a + b


@tool(timeout=0.01)
def dawdle() -> str:
    """Take too long."""
    time.sleep(0.03)
    return ""


@tool
def write_much() -> str:
    """Write much."""
    return "much " * 20_000


@tool
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


def calling(name: str, arguments: str = "{}", *, last: str = "done") -> ScriptedProvider:
    return ScriptedProvider([ToolCall("1", name, arguments), last], keep_requests=False)


ADDING = '{"a": 1, "b": 2}'


@dataclass
class Place:
    """What the runs share, as a service has it."""

    folder: Path
    servers: dict[str, Server]
    log: RunLog
    openapi: ToolRegistry
    plugin: ToolRegistry
    count: int = 0
    shared: dict[str, Any] = field(default_factory=dict[str, Any])

    def forget(self) -> None:
        """Drop what the servers and the log of this test note."""
        for server in self.servers.values():
            for noted in (server.requests, server.headers, server.paths, server.connections):
                noted.clear()
        self.log.flush()
        for file in (self.folder / "log").iterdir():
            file.unlink()


@asynccontextmanager
async def open_place(folder: Path) -> AsyncGenerator[Place]:
    pieces = events(chunk({"content": "Hel"}), chunk({"content": "lo."}, finish_reason="stop"))
    answers: dict[str, Answer | Hang] = {name: Answer(body) for name, body in ANSWERS.items()}
    answers |= {"stream": Answer(pieces=pieces), "hang": Hang(), "calls": Answer(completion("", tool_calls=[CALL]))}
    async with AsyncExitStack() as stack:
        servers = {name: stack.enter_context(serving(answer)) for name, answer in answers.items()}
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"said": "hello"}))
        opened = await stack.enter_async_context(
            openapi_tools(DOCUMENT, base_url="http://127.0.0.1:1", transport=transport)
        )
        program = [sys.executable, str(PLUGIN)]
        plugged = await stack.enter_async_context(plugin_tools(program[0], program[1:], describe_timeout=60))
        place = Place(folder, servers, RunLog(folder / "log"), ToolRegistry(opened), ToolRegistry(plugged))
        place.shared["openai"] = await stack.enter_async_context(OpenAIProvider("m", base_url=servers["openai"].url))
        yield place


async def ask_vendor(place: Place, name: str) -> None:
    makers: dict[str, Callable[[Server], Any]] = {
        "openai": lambda server: OpenAIProvider("m", base_url=server.url),
        "responses": lambda server: OpenAIResponsesProvider("m", base_url=server.url),
        "anthropic": lambda server: AnthropicProvider("m", base_url=server.root),
        "google": lambda server: GoogleProvider("m", base_url=server.root),
    }
    provider = makers[name](place.servers[name])
    assert (await tool_loop(provider, ToolRegistry([add]), "hi")).text == "Hello."
    if place.count % 2:  # the others are closed when nothing refers to them
        await provider.aclose()


async def ask_shared(place: Place) -> None:
    assert (await tool_loop(place.shared["openai"], ToolRegistry([add]), "hi")).text == "Hello."


def open_stream(place: Place) -> EventStream[None]:
    return tool_loop_stream(OpenAIProvider("m", base_url=place.servers["stream"].url), ToolRegistry([add]), "hi")


async def stream(place: Place) -> None:
    async with open_stream(place) as received:
        assert "".join([event.text async for event in received if isinstance(event, TextDelta)]) == "Hello."


async def leave_stream(place: Place) -> None:
    async with open_stream(place) as received:
        async for event in received:
            if isinstance(event, TextDelta):
                break


async def cancel(place: Place) -> None:
    async with OpenAIProvider("m", base_url=place.servers["hang"].url) as provider:
        with anyio.move_on_after(0.02):
            await tool_loop(provider, ToolRegistry([add]), "hi")


async def time_out(place: Place) -> None:
    config = ToolLoopConfig(timeout=0.02)
    assert (await tool_loop(calling("hang"), ToolRegistry([hang]), "hi", config=config)).text == ""


async def call_sync_tool(place: Place) -> None:
    assert (await tool_loop(calling("add", ADDING), ToolRegistry([add]), "hi")).messages[2].text == "3"


async def call_many(place: Place) -> None:
    message = AssistantMessage([ToolCall(str(number), "add_later", ADDING) for number in range(20)])
    provider = ScriptedProvider([message, "done"], keep_requests=False)
    assert (await tool_loop(provider, ToolRegistry([add_later]), "hi")).text == "done"


async def abandon(place: Place) -> None:
    await tool_loop(calling("dawdle"), ToolRegistry([dawdle]), "hi")


async def isolate(place: Place) -> None:
    result = await tool_loop(calling("report", '{"word": "x"}'), ToolRegistry([report]), "hi")
    assert '"words":["x"]' in result.messages[2].text


async def delegate(place: Place) -> None:
    agent = sub_agent_tool("clerk", "Adds.", calling("add", ADDING), ToolRegistry([add]))
    assert (await tool_loop(calling("clerk", '{"task": "add"}'), ToolRegistry([agent]), "hi")).messages[
        2
    ].text == "done"


async def defer(place: Place) -> None:
    config = ToolLoopConfig(on_tool_call=lambda request: Defer())
    result = await tool_loop(calling("add", ADDING), ToolRegistry([add]), "hi", config=config)
    assert isinstance(result.reason, AwaitingApproval)
    saved = json.loads(json.dumps(result.snapshot))
    provider = ScriptedProvider(["done"], keep_requests=False)
    assert (await tool_loop(provider, ToolRegistry([add]), saved, decisions={"1": True})).text == "done"


async def answer_typed(place: Place) -> None:
    provider = calling("final_answer", '{"answer": {"total": 3}}')
    result = await tool_loop(provider, ToolRegistry([add]), "hi", config=ToolLoopConfig(answer=AnswerFormat(Sum)))
    assert result.output == Sum(total=3)


async def log_run(place: Place) -> None:
    config = ToolLoopConfig(middleware=(place.log, place.shared.setdefault("limit", RunLimit(50))))
    await tool_loop(calling("add", ADDING), ToolRegistry([add]), "hi", config=config)


async def journal(place: Place) -> None:
    place.count += 1
    with SqliteJournal(place.folder / "runs.db", f"run {place.count}") as kept:
        config = ToolLoopConfig[None](journal=kept)
        assert (await tool_loop(calling("add", ADDING), ToolRegistry([add]), "hi", config=config)).text == "done"
    SqliteJournal(place.folder / "runs.db", f"run {place.count}").forget_run()


async def call_plugin(place: Place) -> None:
    assert (await tool_loop(calling("double", '{"number": 2}'), place.plugin, "hi")).messages[2].text == "4"


async def call_openapi(place: Place) -> None:
    assert "hello" in (await tool_loop(calling("hello"), place.openapi, "hi")).messages[2].text


async def retry(place: Place) -> None:
    with serving(Answer({"error": {"message": "busy"}}, status=500), Answer(completion())) as server:
        async with OpenAIProvider("m", base_url=server.url) as provider:
            config = ToolLoopConfig(provider_retry=ProviderRetryConfig(initial_backoff=0))
            assert (await tool_loop(provider, ToolRegistry([add]), "hi", config=config)).text == "Hello."


async def run_sync(place: Place) -> None:
    def run() -> str:
        return tool_loop_sync(place.shared["openai"], ToolRegistry([add]), "hi").text

    assert await anyio.to_thread.run_sync(run) == "Hello."


async def call_in_text(place: Place) -> None:
    written = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    provider = TextToolProvider(ScriptedProvider([written, "done"], keep_requests=False), format="hermes")
    assert (await tool_loop(provider, ToolRegistry([add]), "hi")).messages[2].text == "3"


async def run_command(place: Place) -> None:
    result = await tool_loop(calling("bash", '{"command": "echo hi"}'), ToolRegistry([bash_tool(place.folder)]), "hi")
    assert "hi" in result.messages[2].text


async def cut_result(place: Place) -> None:
    config = ToolLoopConfig(output=OutputLimits(max_chars=1000))
    read = ToolCall("2", "read_result", f'{{"id": "{ResultStore().put("much " * 20_000)}"}}')
    provider = ScriptedProvider([ToolCall("1", "write_much", "{}"), read, "done"], keep_requests=False)
    result = await tool_loop(provider, ToolRegistry([write_much]), "hi", config=config)
    assert result.messages[4].text.startswith("[characters 0 to 10000 of 100000;")


async def ask_wrapped(place: Place) -> None:
    cached = place.shared.setdefault("cached", CachedProvider(place.shared["openai"], MemoryCache()))
    limited = place.shared.setdefault("limited", RateLimitedProvider(cached, concurrency=3))
    assert (await tool_loop(limited, ToolRegistry([add]), "hi")).text == "Hello."


async def read_channel(place: Place) -> None:
    async with tool_loop_channel(calling("add", ADDING), ToolRegistry([add]), "hi") as (received, handle):
        async for _ in received:
            pass
        assert (await handle.result()).text == "done"


KINDS: tuple[Callable[[Place], Coroutine[Any, Any, None]], ...] = (
    *(lambda place, name=name: ask_vendor(place, name) for name in ANSWERS),
    *(ask_shared, stream, leave_stream, cancel, time_out, call_sync_tool, call_many, abandon, isolate, delegate),
    *(defer, answer_typed, log_run, journal, call_plugin, call_openapi, retry, run_sync, call_in_text, run_command),
    *(cut_result, ask_wrapped, read_channel),
)


def measure(folder: Path) -> dict[str, int]:
    """What the process holds, while no run is under way."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "threads": threading.active_count(),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "tasks": len(asyncio.all_tasks()),
        "temporary files": sum(1 for _ in folder.rglob("*")),
    }


# A connection that was closed here may be open at the server's end for a moment; idle threads end after ten seconds.
SLACK = {"threads": 8, "descriptors": 12, "tasks": 4, "temporary files": 2}


async def soak(folder: Path, seconds: float) -> list[dict[str, int]]:
    """Run all kinds at once, again and again; measure what is left a hundred times, and eight times at least."""
    measured: list[dict[str, int]] = []
    temporary = folder / "tmp"
    temporary.mkdir()
    began = time.monotonic()
    async with open_place(folder) as place:
        while len(measured) < 8 or time.monotonic() < began + seconds:
            async with anyio.create_task_group() as tasks:
                for kind in KINDS:
                    tasks.start_soon(kind, place)
            place.forget()
            if time.monotonic() >= began + len(measured) * seconds / 100:
                gc.collect()
                await anyio.sleep(0.1)  # what is collected is closed in this loop, and then at the servers' ends
                measured.append(measure(temporary))
    return measured


def check_flat(measured: list[dict[str, int]], kilobytes: int) -> None:
    """Check that the last quarter needs no more than the second one: in the first the caches fill up.

    What leaks is there in each measurement, and so in the least of a quarter; a burst of a busy machine is not.
    """
    quarter = len(measured) // 4
    early, late = measured[quarter : 2 * quarter], measured[-quarter:]
    for name, slack in {**SLACK, "kilobytes": kilobytes}.items():
        before, after = (min(each[name] for each in part) for part in (early, late))
        assert after <= before + slack, f"{name}: {before}, then {after}"


@pytest.mark.real
def test_twenty_kinds_of_run_leave_nothing_behind_in_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    check_flat(anyio.run(soak, tmp_path, 5.0), kilobytes=10_000)


@pytest.mark.full
def test_twenty_kinds_of_run_leave_nothing_behind_in_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    measured = anyio.run(soak, tmp_path, float(os.environ.get("SOAK_SECONDS", "600")))
    for each in measured[:: max(1, len(measured) // 20)]:
        print(each)
    check_flat(measured, kilobytes=10_000)
