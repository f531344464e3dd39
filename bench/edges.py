"""What calls cost that leave the event loop or the process, and what it costs to take up a saved loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams

from bench.clock import BATCHES, cpu_of, on_asyncio, sized
from bench.isolated import forecast_in_a_process
from bench.ours import PRODUCTION, Script, Setting, measure_on_trio, responses_of
from bench.workload import arguments_of, forecast
from toolkit import (
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    allow,
    tool_from_function,
    tool_loop,
)
from toolkit.chat import Trust
from toolkit.policies import Rule, ask_when_tainted, require_known_destinations
from toolkit.serving.mcp import mcp_server
from toolkit.sources.mcp import mcp_tools


def production_on_trio(features: Collection[str]) -> float:
    return measure_on_trio("turns", PRODUCTION)


def process_call(features: Collection[str]) -> float:
    """Wall time, since most of it is spent elsewhere: milliseconds of a call in a process that runs already."""
    registry = ToolRegistry([forecast_in_a_process])

    async def call() -> None:
        result = await registry.execute(ToolCall("1", forecast_in_a_process.definition.name, arguments_of(1)))
        assert not result.is_error, result.text

    return asyncio.run(_measure_wall(call, sized(50)))


@dataclass
class InMemory:
    """A way to a server in this process."""

    server: Any
    name: str = "in memory"

    def open(self, words: deque[str] | None = None) -> Any:
        return self._open()

    def redact(self, text: str) -> str:
        return text

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Any]:
        options = self.server.create_initialization_options()
        async with create_client_server_memory_streams() as (client, (read, write)), anyio.create_task_group() as tasks:
            tasks.start_soon(self.server.run, read, write, options)
            yield client
            tasks.cancel_scope.cancel()


def mcp_call(features: Collection[str]) -> float:
    """Through our client, both sides of the SDK and our server, in one process: microseconds of CPU a call."""
    count = sized(100)

    async def measure() -> float:
        async with mcp_tools(InMemory(mcp_server(Setting().registry))) as tools:
            registry = ToolRegistry(tools)

            async def call() -> None:
                result = await registry.execute(ToolCall("1", "forecast", arguments_of(1)))
                assert not result.is_error, result.text

            await call()
            spent: list[float] = []
            for _ in range(BATCHES):
                began = time.process_time()
                for _ in range(count):
                    await call()
                spent.append(time.process_time() - began)
            return median(spent) / count * 1e6

    return asyncio.run(measure())


def restored_200(features: Collection[str]) -> float:
    """Milliseconds to restore a loop of 200 turns from the JSON text of its snapshot."""
    turns = 200
    setting, responses = Setting(forecast), responses_of(turns)
    config = setting.config(turns)

    async def save() -> str:
        handle = ToolLoopHandle(Script(responses), setting.registry, "What is the weather?", config=config)
        for _ in range(turns):
            await handle.next_turn()
        return json.dumps(handle.snapshot())

    text = asyncio.run(save())

    def restore() -> None:
        for _ in range(sized(5)):
            handle = ToolLoopHandle.restore(json.loads(text), Script(), setting.registry, ctx=None, config=config)
            assert len(handle.messages) == 2 * turns + 1

    return cpu_of(restore, sized(5)) / 1e3


_TURNS = 100


def ruled_turn(features: Collection[str]) -> float:
    """A turn of 100 whose calls a rule allows: what the two below are compared with."""
    return _measure_labels([], "trusted")


def labelled_turn(features: Collection[str]) -> float:
    """The same with a labelled tool and rules on trust, where nothing untrusted was read."""
    return _measure_labels([require_known_destinations(), ask_when_tainted()], "trusted")


def tainted_turn(features: Collection[str]) -> float:
    """The same where all results are untrusted."""
    return _measure_labels([require_known_destinations(), ask_when_tainted()], "untrusted")


def _measure_labels(rules: list[Rule], trust: Trust) -> float:
    options: Any = {"effects": {"send"}, "destinations": ("city",)} if rules else {}
    made = tool_from_function(forecast, trust=trust, **options)
    registry, responses = ToolRegistry([made], permissions=Permissions([*rules, allow("*")])), responses_of(_TURNS)
    config, runs = ToolLoopConfig(max_iterations=_TURNS + 1), sized(10)

    async def work() -> None:
        for _ in range(runs):
            result = await tool_loop(Script(responses), registry, "How is the weather in Paris?", config=config)
            assert not any(message.role == "tool" and message.is_error for message in result.messages)

    return on_asyncio(work, runs * _TURNS)


async def _measure_wall(call: Callable[[], Awaitable[None]], count: int) -> float:
    await call()
    spent: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(count):
            await call()
        spent.append(time.perf_counter() - began)
    return median(spent) / count * 1e3
