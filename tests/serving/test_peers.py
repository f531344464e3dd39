"""A served registry under many clients at once, slow ones, and ones that break the protocol."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CoroutineType
from typing import Any, Literal

import anyio
import anyio.to_thread
import httpx2
import mcp.types as wire
import pytest
from anyio.streams.text import TextReceiveStream
from fastmcp import FastMCP
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import StreamableHTTPServerTransport

from tests.sources.mcp.test_callers import Shop
from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolContext, ToolRegistry, tool, tool_with_ctx
from toolkit.errors import McpError
from toolkit.serving.mcp import McpRequest, mcp_app
from toolkit.serving.mcp.web import SessionStreams
from toolkit.sources.mcp import http, mcp_tools

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # the clients; what is served is on asyncio as well
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]


@tool(tags={"read"})
def echo(text: str) -> str:
    """Return a text."""
    return text


@tool(tags={"read"})
def write_much(size: int) -> str:
    """Return a long text."""
    return "x" * size


@tool_with_ctx
async def confirm(request: McpRequest) -> str:
    """Ask the user."""
    return str(await request.elicit("Really?", {"type": "object", "properties": {"name": {"type": "string"}}}))


def text_of(result: wire.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


def make_app(_: int) -> Callable[..., Any]:
    registry = ToolRegistry[McpRequest]([echo, write_much, confirm])
    return mcp_app(registry, context_for=lambda request: request, requests_per_minute=None)


MOST_GROWTH = 30 * 2**20  # bytes, of clients and server together; a kilobyte for each answer would be more
ROOT = str(Path(__file__).parents[2])
SERVED = ("mcp.", "mcp_types.", "starlette.", "toolkit.serving.")


def count_leftovers() -> dict[str, int]:
    """Return how many objects of the server, coroutines and open files there are.

    The stored messages of a session do not count: a stopped timer of asyncio holds the context of its task, and these
    with it, until it would have fired.
    """
    gc.collect()
    objects: list[type[Any]] = [type(each) for each in gc.get_objects() if type(each) is not SessionStreams]
    files = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    return {
        "objects": sum(kind.__module__.startswith(SERVED) for kind in objects),
        "coroutines": objects.count(CoroutineType),
        "sessions": objects.count(StreamableHTTPServerTransport),
        "files": files,
    }


def count_resident_bytes() -> int:
    """Return the memory of this process, where the kernel says it."""
    gc.collect()
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("clients", "seconds"), [(20, 1), pytest.param(200, 60, marks=pytest.mark.full)], ids=["small", "large"]
)
async def test_many_clients_at_once_get_each_their_answers_and_leave_nothing_behind(clients: int, seconds: int) -> None:
    answered = 0
    with serving_in_thread(make_app) as port, anyio.fail_after(seconds * 10 + 60):
        url = f"http://127.0.0.1:{port}/mcp"

        async def use(name: str, mode: Literal["legacy", "auto"], ends: float) -> None:
            nonlocal answered
            timeout = httpx2.Timeout(60)
            async with (
                httpx2.AsyncClient(timeout=timeout) as own,
                Client(streamable_http_client(url, http_client=own), mode=mode) as client,
            ):
                number = 0
                while number == 0 or time.monotonic() < ends:
                    number += 1
                    result = await client.call_tool("echo", {"text": f"{name}:{number}"})
                    assert text_of(result) == f"{name}:{number}"
                    answered += 1

        async def use_all(count: int, lasts: float) -> None:
            ends = time.monotonic() + lasts
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(use, f"client {number}", "legacy" if number % 2 else "auto", ends)

        await use_all(clients, seconds / 10)
        await anyio.to_thread.run_sync(lambda: None)
        before, resident = count_leftovers(), count_resident_bytes()
        await use_all(clients, seconds)
        with anyio.move_on_after(30):
            while any(count > before[name] for name, count in count_leftovers().items()):  # noqa: ASYNC110
                await anyio.sleep(0.2)
        after, grown = count_leftovers(), count_resident_bytes() - resident
    print(f"{clients} clients, {answered} answers in {seconds} s; before {before}, after {after}")
    print(f"resident: {resident / 2**20:.1f} MiB before, {grown / 2**20:.1f} MiB more after")
    assert grown < MOST_GROWTH
    assert answered >= clients
    assert {name: (before[name], after[name]) for name in before if after[name] > before[name]} == {}


async def test_our_client_makes_more_calls_at_once_than_a_pool_has_connections() -> None:
    waiting = 0

    def make(_: int) -> Callable[..., Any]:
        all_are_here = anyio.Event()

        @tool
        async def wait_for_all() -> str:
            """Wait for a hundred and fifty calls."""
            nonlocal waiting
            waiting += 1
            if waiting == 150:
                all_are_here.set()
            await all_are_here.wait()
            return "all are here"

        return mcp_app(ToolRegistry([wait_for_all]), requests_per_minute=None, task_after=None)

    answers: list[str] = []
    with serving_in_thread(make) as port, anyio.fail_after(120):
        async with mcp_tools(http(f"http://127.0.0.1:{port}/mcp")) as tools:
            registry = ToolRegistry(tools)

            async def call(number: int) -> None:
                result = await registry.execute(ToolCall(str(number), "wait_for_all", "{}"))
                answers.append(result.text)

            async with anyio.create_task_group() as tasks:
                for number in range(150):
                    tasks.start_soon(call, number)
    assert answers == ["all are here"] * 150


@pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "with sessions"])
async def test_our_client_that_is_killed_in_the_middle_of_a_stream_leaves_nothing_behind(
    *, is_modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkit.serving.mcp.web._IDLE_SECONDS", 0.5)
    outcomes: list[str] = []

    def make(_: int) -> Callable[..., Any]:
        @tool_with_ctx
        async def work(context: ToolContext[object], seconds: float) -> str:
            """Work."""
            try:
                for step in range(int(seconds * 20)):
                    context.report_progress(f"step {step}")
                    await anyio.sleep(0.05)
                outcomes.append("finished")
            except anyio.get_cancelled_exc_class():
                outcomes.append("cancelled")
                raise
            return "done"

        return shop.wrap(mcp_app(ToolRegistry([work]), task_after=None))

    shop = Shop(is_modern)

    @asynccontextmanager
    async def working(seconds: float) -> AsyncGenerator[tuple[anyio.abc.Process, TextReceiveStream]]:
        command = [sys.executable, str(Path(__file__).parent / "working_client.py"), url, str(seconds)]
        async with await anyio.open_process(command, stderr=None, env={**os.environ, "PYTHONPATH": ROOT}) as process:
            assert process.stdout is not None
            yield process, TextReceiveStream(process.stdout)

    async def run_whole() -> str:
        async with working(0.2) as (_, lines):
            return "".join([text async for text in lines])

    with serving_in_thread(make) as port, anyio.fail_after(60):
        url = f"http://127.0.0.1:{port}/mcp"
        whole = await run_whole()
        await wait_for_end(outcomes, 1)
        while (before := count_leftovers())["sessions"]:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        async with working(600) as (process, lines):
            seen = ""
            while "step 3" not in seen:
                seen += await lines.receive()
            os.kill(process.pid, signal.SIGKILL)
        await wait_for_end(outcomes, 2)
        with anyio.move_on_after(30):
            while any(count > before[name] for name, count in count_leftovers().items()):  # noqa: ASYNC110
                await anyio.sleep(0.1)
        after = count_leftovers()
        again = await run_whole()
    assert whole == again == "1: step 0\n2: step 1\n3: step 2\n4: step 3\ndone\n"
    # Up to the revisions of 2025 a lost connection cancels no call: it ends by itself, or with its session.
    assert outcomes in [["finished", end, "finished"] for end in ("cancelled", *(() if is_modern else ("finished",)))]
    assert before["sessions"] == after["sessions"] == 0
    assert {name: (before[name], after[name]) for name in before if after[name] > before[name]} == {}


async def wait_for_end(outcomes: list[str], count: int) -> None:
    while len(outcomes) < count:  # noqa: ASYNC110 - of a call in another thread
        await anyio.sleep(0.05)


HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
JSON = "Content-Type: application/json\r\n"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}}


def post(body: bytes, *, length: int | None = None, more: str = "") -> bytes:
    return f"{HEAD}{JSON}{more}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


HOSTILE: dict[str, bytes] = {
    "no JSON": post(b"{"),
    "no object": post(b"[[[[1]]]]"),
    "deeply nested": post(b"[" * 100_000),
    "no method": post(b'{"jsonrpc": "2.0", "id": 1}'),
    "a call before the greeting": post(json.dumps(CALL).encode()),
    "an unknown session": post(json.dumps(CALL).encode(), more="Mcp-Session-Id: guessed\r\n"),
    "an id that is an object": post(json.dumps({**CALL, "id": {"a": 1}}).encode()),
    "an answer to nothing": post(b'{"jsonrpc": "2.0", "id": 99, "result": {}}'),
    "more than it says": post(b'{"jsonrpc": "2.0"}' + b"x" * 1_000, length=18),
    "less than it says": post(b'{"jsonrpc":', length=1_000),
    "a length that is none": post(b"{}", more="Content-Length: -5\r\n"),
    "a huge body": post(b" " * 5_000_000),
    "a revision of the future": post(json.dumps(CALL).encode(), more="MCP-Protocol-Version: 2999-01-01\r\n"),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
    "endless headers": HEAD.encode() + b"X-A: b\r\n" * 20_000,
}


async def test_a_client_that_breaks_the_protocol_is_refused_and_others_are_served() -> None:
    statuses: dict[str, str] = {}
    with serving_in_thread(make_app) as port, anyio.fail_after(120):
        for name, sent in HOSTILE.items():

            def speak(sent: bytes = sent) -> bytes:
                with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
                    try:
                        peer.sendall(sent)
                        peer.shutdown(socket.SHUT_WR)
                        return peer.recv(100)
                    except OSError:
                        return b"closed"

            statuses[name] = (await anyio.to_thread.run_sync(speak)).partition(b"\r\n")[0].decode("latin-1")
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_of(await client.call_tool("echo", {"text": "still here"})) == "still here"
    ran = {name: status for name, status in statuses.items() if " 200 " in status or " 5" in status[8:11]}
    assert ran == {}


async def test_a_slow_reader_holds_up_nobody() -> None:
    size = 3_000_000
    call = {**CALL, "params": {"name": "write_much", "arguments": {"size": size}}}
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "slow", "version": "1"},
    }
    with serving_in_thread(make_app) as port, anyio.fail_after(240), httpx2.Client(timeout=30) as client:
        headers = {"accept": "application/json, text/event-stream"}
        greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        opened = client.post(f"http://127.0.0.1:{port}/mcp", json=greeting, headers=headers)
        slow = socket.create_connection(("127.0.0.1", port), timeout=30)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with slow:
            slow.sendall(
                post(json.dumps(call).encode(), more=f"Mcp-Session-Id: {opened.headers['mcp-session-id']}\r\n")
            )
            assert slow.recv(15) == b"HTTP/1.1 200 OK"
            async with Client(f"http://127.0.0.1:{port}/mcp") as other:
                for number in range(20):
                    result = await other.call_tool("echo", {"text": str(number)})
                    assert text_of(result) == str(number)


async def test_a_question_that_is_answered_twice_is_answered_once() -> None:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "twice", "version": "1"},
    }
    with serving_in_thread(make_app) as port, anyio.fail_after(240):
        url = f"http://127.0.0.1:{port}/mcp"
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=30, headers=headers) as client:
            opened = await client.post(url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
            client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            call: dict[str, Any] = {**CALL, "params": {"name": "confirm", "arguments": {}}}
            messages: list[dict[str, Any]] = []
            async with client.stream("POST", url, json=call) as answer:
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    messages.append(json.loads(line[6:]))
                    if messages[-1].get("method") == "elicitation/create":
                        for name in ("first", "second"):
                            result = {"action": "accept", "content": {"name": name}}
                            reply = {"jsonrpc": "2.0", "id": messages[-1]["id"], "result": result}
                            assert (await client.post(url, json=reply)).status_code == 202
            again = await client.post(url, json={**CALL, "id": 2})
    assert [each["result"]["content"][0]["text"] for each in messages if "result" in each] == ["{'name': 'first'}"]
    assert "hi" in again.text


def make_library(_: int) -> Callable[..., Any]:
    library: FastMCP[Any] = FastMCP("library")

    @library.resource("library://huge")
    def huge() -> str:
        return "x" * 68_000_000

    return library.http_app()


async def test_a_resource_that_is_too_large_for_a_reply_is_an_error_that_says_so() -> None:
    with serving_in_thread(make_library) as port, anyio.fail_after(240):
        async with mcp_tools(http(f"http://127.0.0.1:{port}/mcp")) as tools:
            with pytest.raises(McpError, match="larger than"):
                await tools.read_resource("library://huge")
