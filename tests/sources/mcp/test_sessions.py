"""Sessions that a server keeps, and ends when it likes: each server has its own words for that."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolRegistry, ToolResult, tool
from toolkit.serving.mcp import mcp_server
from toolkit.sources.mcp import http, mcp_tools, sse

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]


@dataclass
class SessionServer:
    """A server of the revision of 2025-06-18, with a tool that changes something.

    Attributes:
        refusal: The status and the body for a session that it does not know.
        port: Where it is.
        opened: How many sessions have been opened; the last one is known.
        is_ended: Whether that one is known no more.
        runs: The sessions in which the tool was run.
    """

    refusal: tuple[int, object]
    port: int = 0
    opened: int = 0
    is_ended: bool = False
    runs: list[str] = field(default_factory=list[str])

    def answer(self, session: str | None, message: dict[str, Any]) -> tuple[int, object]:
        result: dict[str, Any]
        if message["method"] == "initialize":
            self.opened += 1
            self.is_ended = False
            server = {"name": "sessions", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        elif session is None:  # asked in a newer revision
            return 400, {"code": -32600, "message": "Which one?"}
        elif self.is_ended or session != str(self.opened):
            return self.refusal
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]}
        else:
            if status := message["params"]["arguments"].get("fail"):
                return status, "no"
            self.runs.append(session)
            result = {"content": [{"type": "text", "text": "written"}]}
        return 200, result


@contextmanager
def serving(server: SessionServer) -> Generator[None]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "id" not in message:
                self.say(202, b"")
                return
            with lock:
                status, said = server.answer(self.headers["mcp-session-id"], message)
            if isinstance(said, str):
                self.say(status, said.encode(), "text/plain")
                return
            kind = "result" if status == 200 else "error"
            self.say(status, json.dumps({"jsonrpc": "2.0", "id": message["id"], kind: said}).encode())

        def do_GET(self) -> None:
            self.say(405, b"")

        def do_DELETE(self) -> None:
            self.say(200, b"")

        def say(self, status: int, body: bytes, content_type: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.send_header("mcp-session-id", str(server.opened))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    class Listener(ThreadingHTTPServer):
        request_queue_size = 100

    listener = Listener(("127.0.0.1", 0), Handler)
    server.port = listener.server_port
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


async def write(registry: ToolRegistry, arguments: str = "{}") -> ToolResult:
    return await registry.execute(ToolCall("1", "write", arguments))


@pytest.mark.parametrize(
    "refusal",
    [
        (404, "gone"),
        (404, {"code": -32001, "message": "Session not found"}),
        (404, {"code": -32600, "message": "Session has expired"}),
        (400, {"code": -32000, "message": "Bad Request: No valid session ID provided"}),
        (400, "what?"),
        (400, {"code": -32600, "message": "Not initialized"}),
        (409, "no"),
        (410, ""),
        (422, {"detail": []}),
    ],
    ids=[
        *("words", "a code of its own", "a code of the protocol", "a bad request", "a bad request in words"),
        *("a bad request by a code", "a conflict", "gone for good", "no message of MCP"),
    ],
)
async def test_an_ended_session_is_opened_again_and_what_was_refused_for_it_is_run_once(
    refusal: tuple[int, object],
) -> None:
    server = SessionServer(refusal)
    with serving(server), anyio.fail_after(240):
        async with mcp_tools(http(f"http://127.0.0.1:{server.port}/mcp")) as tools:
            registry = ToolRegistry(tools)
            assert (await write(registry)).text == "written"
            server.is_ended = True
            results = await registry.execute_all([ToolCall(str(number), "write", "{}") for number in range(10)])
    assert [result.text for result in results] == ["written"] * 10
    assert server.runs == ["1", *["2"] * 10]


async def test_a_call_that_broke_behind_a_gateway_is_not_repeated_and_may_have_taken_effect() -> None:
    server = SessionServer((404, "gone"))
    with serving(server), anyio.fail_after(240):
        async with mcp_tools(http(f"http://127.0.0.1:{server.port}/mcp")) as tools:
            failed = await write(ToolRegistry(tools), '{"fail": 502}')
    assert failed.is_error
    assert failed.text.endswith("it failed (HTTP 502); try again later. It may have taken effect.")


async def test_a_call_that_broke_in_a_session_that_is_gone_is_not_repeated_and_the_next_one_works() -> None:
    server = SessionServer((500, "what?"))
    with serving(server), anyio.fail_after(240):
        async with mcp_tools(http(f"http://127.0.0.1:{server.port}/mcp")) as tools:
            registry = ToolRegistry(tools)
            assert (await write(registry)).text == "written"
            server.is_ended = True
            broken, after = await write(registry), await write(registry)
    assert "It may have taken effect and was not repeated. It is connected again." in broken.text
    assert after.text == "written"
    assert server.runs == ["1", "2"]


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
async def test_a_call_that_is_refused_for_itself_leaves_the_session_as_it_is(status: int) -> None:
    server = SessionServer((404, "gone"))
    with serving(server), anyio.fail_after(240):
        async with mcp_tools(http(f"http://127.0.0.1:{server.port}/mcp")) as tools:
            registry = ToolRegistry(tools)
            refused = await write(registry, json.dumps({"fail": status}))
            assert (await write(registry)).text == "written"
    assert f"(HTTP {status})" in refused.text
    assert ("may have taken effect" in refused.text) == (status == 500)
    assert server.runs == ["1"]


async def test_the_oldest_transport_takes_long_results() -> None:
    @tool
    def repeat(count: int) -> str:
        """Repeat a letter."""
        return "x" * count

    def make_app(_: int) -> Starlette:
        server, transport = mcp_server(ToolRegistry([repeat])), SseServerTransport("/messages/")

        class Stream:
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                async with transport.connect_sse(scope, receive, send) as (read, write):
                    await server.run(read, write, server.create_initialization_options())

        return Starlette(routes=[Route("/sse", Stream()), Mount("/messages/", transport.handle_post_message)])

    with serving_in_thread(make_app) as port, anyio.fail_after(240):
        async with mcp_tools(sse(f"http://127.0.0.1:{port}/sse")) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "repeat", '{"count": 3000000}'))
    assert result.details == {"result": "x" * 3_000_000}
