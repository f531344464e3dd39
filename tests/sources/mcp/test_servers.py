"""The client against servers of others, each in a process of its own: over pipes, streamable HTTP and events."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp.types as wire
import pytest

from tests.npm import npm_packages
from tests.process_state import is_running
from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, UserMessage, tool_loop, tool_loop_sync
from toolkit.chat import ImageBlock, TextBlock
from toolkit.events import ToolProgress
from toolkit.sources.mcp import Elicitation, McpServer, McpTools, Sampling, SamplingRequest, http, mcp_tools, sse, stdio
from toolkit.testing import ScriptedProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    # The SDK leaves the generators of a streamed answer to the garbage collector, of which trio tells.
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]

MORTAL = str(Path(__file__).parent / "mortal.py")


@pytest.fixture(scope="module")
def modules() -> Path:
    return npm_packages(
        "mcp-servers",
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
    )


@pytest.fixture(autouse=True)
def collected() -> Generator[None]:
    yield
    gc.collect()


@pytest.fixture
def everything(modules: Path) -> str:
    return str(modules / "@modelcontextprotocol/server-everything/dist/index.js")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@asynccontextmanager
async def running(port: int, *command: str, **env: str) -> AsyncGenerator[anyio.abc.Process]:
    """Run a program until it listens, and end it after the block."""
    async with await anyio.open_process(command, stdout=None, stderr=None, env={**os.environ, **env}) as process:
        try:
            with anyio.fail_after(240):
                while True:
                    try:
                        stream = await anyio.connect_tcp("127.0.0.1", port)
                    except OSError:
                        await anyio.sleep(0.05)
                    else:
                        await stream.aclose()
                        break
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def call(tools: McpTools, name: str, arguments: str = "{}") -> Any:
    return await ToolRegistry(tools).execute(ToolCall("1", name, arguments))


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_the_server_with_everything_is_used_over_each_transport(transport: str, everything: str) -> None:
    async def use(server: McpServer) -> None:
        async with mcp_tools(server, prefix="all") as tools:
            assert (await call(tools, "all__echo", '{"message": "hi"}')).text == "Echo: hi"
            assert "42" in (await call(tools, "all__get-sum", '{"a": 17, "b": 25}')).text
            image = await call(tools, "all__get-tiny-image")
            assert any(isinstance(block, ImageBlock) and block.data for block in image.content)
            weather = await call(tools, "all__get-structured-content", '{"location": "Chicago"}')
            assert set(weather.details) == {"temperature", "conditions", "humidity"}
            assert "[" in (await call(tools, "all__get-resource-links", '{"count": 2}')).text
            resources = await tools.resources()
            assert isinstance((await tools.read_resource(str(resources[0].uri)))[0], TextBlock)
            (template,) = [each for each in await tools.resource_templates() if "/text/" in each.uri_template]
            read = await tools.read_resource(template.uri_template, {"resourceId": "3"})
            assert isinstance(read[0], TextBlock)
            assert read[0].text.startswith("Resource 3")
            prompts = {prompt.name: prompt for prompt in await tools.prompts()}
            assert await tools.complete(prompts["completable-prompt"], "department", "E") == ["Engineering"]
            (message,) = await tools.prompt("args-prompt", {"city": "Rome"})
            assert isinstance(message, UserMessage)
            assert "Rome" in message.text

    with anyio.fail_after(120):
        if transport == "stdio":
            await use(stdio("node", everything, "stdio"))
            return
        port = free_port()
        kind = "streamableHttp" if transport == "http" else "sse"
        async with running(port, "node", everything, kind, PORT=str(port)):
            await use(
                http(f"http://127.0.0.1:{port}/mcp") if transport == "http" else sse(f"http://127.0.0.1:{port}/sse")
            )


async def test_progress_of_a_long_operation_comes_while_it_runs(everything: str) -> None:
    events: list[object] = []
    provider = ScriptedProvider(
        [ToolCall("1", "trigger-long-running-operation", '{"duration": 0.5, "steps": 3}'), "Done."]
    )
    with anyio.fail_after(240):
        async with mcp_tools(stdio("node", everything, "stdio")) as tools:
            await tool_loop(provider, ToolRegistry(tools), "Work.", config=ToolLoopConfig(on_event=events.append))
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["1 of 3", "2 of 3", "3 of 3"]


async def test_a_tool_that_runs_only_as_a_task_is_followed_and_asks_on_the_way(everything: str) -> None:
    asked: list[str] = []

    def answer(question: Elicitation) -> dict[str, str]:
        asked.append(question.message)
        return {"interpretation": "snake"}

    with anyio.fail_after(240):
        async with mcp_tools(stdio("node", everything), elicitation=answer) as tools:
            arguments = '{"topic": "python", "ambiguous": true}'
            result = await call(tools, "simulate-research-query", arguments)
    assert not result.is_error
    assert result.text.startswith("# Research Report: python (snake)")
    assert len(asked) == 1


async def test_a_model_and_a_user_answer_the_server(everything: str) -> None:
    asked: list[Elicitation] = []

    def answer(question: Elicitation) -> dict[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    requests: list[SamplingRequest] = []

    def approve(request: SamplingRequest) -> bool:
        requests.append(request)
        return True

    server = stdio("node", everything, "stdio")
    sampling = Sampling(provider=ScriptedProvider(["A model's words."]), approve=approve)
    with anyio.fail_after(240):
        async with mcp_tools(server, sampling=sampling, elicitation=answer) as tools:
            sampled = await call(tools, "trigger-sampling-request", '{"prompt": "Speak."}')
            elicited = await call(tools, "trigger-elicitation-request")
    assert "A model's words." in sampled.text
    assert "Ada" in elicited.text
    assert len(asked) == 1
    assert len(requests) == 1
    assert "Speak." in requests[0].messages[-1].text


async def test_secrets_that_a_server_is_given_are_struck_out_of_what_it_says(
    everything: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = stdio("node", everything, "stdio", env={"SOME_API_KEY": "s3cret-value", "MODE": "plain"})
    with caplog.at_level(logging.INFO), anyio.fail_after(240):
        async with mcp_tools(server) as tools:
            told = await call(tools, "get-env")
            shown = repr(tools) + repr(server) + repr(list(tools))
    assert '"SOME_API_KEY": "***"' in told.text
    assert "plain" in told.text
    assert "s3cret" not in shown + caplog.text


async def test_files_are_read_and_written_within_the_folder_that_is_served(modules: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    program = str(modules / "@modelcontextprotocol/server-filesystem/dist/index.js")
    with anyio.fail_after(240):
        async with mcp_tools(stdio("node", program, str(tmp_path))) as tools:
            registry = ToolRegistry(tools)
            assert "read_text_file" in registry.tagged("read")
            assert "write_file" in registry.tagged("destructive")
            read = await call(tools, "read_text_file", f'{{"path": "{tmp_path}/a.txt"}}')
            written = await call(tools, "write_file", f'{{"path": "{tmp_path}/b.txt", "content": "new"}}')
            outside = await call(tools, "read_text_file", '{"path": "/etc/hostname"}')
    assert read.text == "hello"
    assert not written.is_error
    assert (tmp_path / "b.txt").read_text() == "new"
    assert outside.is_error
    assert "outside" in outside.text


async def test_the_time_is_told_by_a_server_in_python() -> None:
    pytest.importorskip("mcp_server_time", reason="`pip install mcp-server-time`")
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")) as tools:
            told = await call(tools, "get_current_time", '{"timezone": "Asia/Tokyo"}')
            wrong = await call(tools, "get_current_time", '{"timezone": "Nowhere"}')
    assert "+09:00" in told.text
    assert wrong.is_error


async def test_tools_run_on_another_event_loop() -> None:
    calls: list[ToolCall | str] = [ToolCall("1", "get_current_time", '{"timezone": "Asia/Tokyo"}'), "It is late."]
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, "-m", "mcp_server_time")) as tools:
            registry = ToolRegistry(tools)
            result = await anyio.to_thread.run_sync(lambda: tool_loop_sync(ScriptedProvider(calls), registry, "Time?"))
    assert "+09:00" in result.messages[2].text


@pytest.mark.real
async def test_a_server_that_has_a_hundred_calls_and_is_killed_in_mid_call_is_started_again_with_its_new_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes: list[int] = []
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, MORTAL, str(tmp_path / "starts"))) as tools:
            registry: ToolRegistry[object] = ToolRegistry()
            tools.keep_registered(registry)
            assert registry.names == ("pid", "hang", "bear", "start_1")
            calls = [ToolCall(str(number), "pid", "{}") for number in range(100)]
            processes += {int(result.text) for result in await registry.execute_all(calls)}
            with anyio.move_on_after(0.2):
                await tool_loop(ScriptedProvider([ToolCall("1", "hang", "{}")]), registry, "Hang.")
            caplog.clear()

            results: list[Any] = []

            async def hang() -> None:
                results.append(await registry.execute(ToolCall("1", "hang", "{}")))

            with caplog.at_level(logging.INFO, "toolkit.sources.mcp"):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hang)
                    while "the call has begun" not in caplog.text:  # noqa: ASYNC110 - a line in a log sets no event
                        await anyio.sleep(0.01)
                    os.kill(processes[0], signal.SIGKILL)
            (result,) = results
            assert result.is_error
            assert "may have taken effect and was not repeated. It is connected again." in result.text
            assert registry.names == ("pid", "hang", "bear", "start_2")
            assert (await registry.execute(ToolCall("2", "start_2", "{}"))).text == "start 2"
            processes.append(int((await call(tools, "pid")).text))
    assert processes[0] != processes[1]
    assert not any(map(is_running, processes))


@pytest.mark.parametrize("is_killed", [False, True], ids=["that ends", "that is killed"])
async def test_what_a_server_has_started_ends_with_it(is_killed: bool, tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, MORTAL, str(tmp_path / "starts"))) as tools:
            child = int((await call(tools, "bear")).text)
            assert is_running(child)
            if is_killed:
                os.kill(int((await call(tools, "pid")).text), signal.SIGKILL)
        while is_running(child):  # noqa: ASYNC110 - a process that is not ours tells nobody of its end
            await anyio.sleep(0.01)


SHOUTER = """
import json, sys
SERVER = {"name": "shouter", "version": "1"}
ANSWERS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": SERVER},
    "tools/list": {"tools": [{"name": "shout", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("params", {}).get("arguments"):
        sys.stdout.write("x" * 34_000_000)
    elif "id" in asked:
        answer = ANSWERS.get(asked["method"])
        said = {"error": {"code": -32601, "message": "What?"}} if answer is None else {"result": answer}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}) + chr(10))
    sys.stdout.flush()
"""


async def test_a_line_that_does_not_end_is_no_answer_and_the_next_call_has_another_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, "-c", SHOUTER)) as tools:
            endless = await call(tools, "shout", '{"very": "loudly"}')
            after = await call(tools, "shout")
    assert "may have taken effect and was not repeated. It is connected again." in endless.text
    assert after.text == "hello"
    assert "a line has more than 33,554,432 bytes" in caplog.text


@pytest.mark.real
async def test_a_server_over_http_that_is_restarted_is_connected_again(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, MORTAL, str(tmp_path / "starts"), str(port)]
    is_listed_again = anyio.Event()

    def see(listed: wire.Tool) -> bool:
        if listed.name == "start_2":
            is_listed_again.set()
        return True

    tools = mcp_tools(http(f"http://127.0.0.1:{port}/mcp"), filter=see)
    registry: ToolRegistry[object] = ToolRegistry()
    with anyio.fail_after(240):
        async with running(port, *command):
            await tools.__aenter__()
            tools.keep_registered(registry)
            before = await registry.execute(ToolCall("1", "pid", "{}"))
        async with running(port, *command):
            after = await registry.execute(ToolCall("2", "pid", "{}"))
            await is_listed_again.wait()
            born = await registry.execute(ToolCall("4", "start_2", "{}"))
            await tools.__aexit__(None, None, None)
    assert before.text != after.text
    assert not after.is_error
    assert born.text == "start 2"
