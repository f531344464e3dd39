"""Streams of answers that a server ends, and that clients come back to: no call is lost, and none runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx2
import pytest
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore

from tests.serving.test_users import HELLO, ORDERS, TOKENS, find_user, made, reached
from tests.sources.mcp.test_callers import Shop
from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolContext, ToolLoopConfig, ToolRegistry, tool, tool_loop, tool_with_ctx
from toolkit.events import ToolProgress
from toolkit.serving.mcp import mcp_app
from toolkit.sources.mcp import http, mcp_tools
from toolkit.testing import ScriptedProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]

REVISION = "2025-11-25"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.serving.mcp.web._RETRY_MILLISECONDS", 20)


class Raw:
    """A client that says what is on the wire."""

    def __init__(self, client: httpx2.AsyncClient, token: str = "") -> None:
        self._client = client
        self._headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": REVISION}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    async def greet(self) -> None:
        hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": REVISION}}
        opened = await self._client.post("/mcp", json=hello, headers=self._headers)
        self._headers["mcp-session-id"] = opened.headers["mcp-session-id"]

    async def ask(self, number: int, method: str, **params: Any) -> str:
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        return (await self._client.post("/mcp", json=asked, headers=self._headers)).text

    async def call(self, number: int, name: str) -> str:
        return await self.ask(number, "tools/call", name=name, arguments={})

    async def resume(self, last_id: str) -> str:
        return (await self._client.get("/mcp", headers={**self._headers, "last-event-id": last_id})).text


def read_events(stream: str) -> list[dict[str, str]]:
    """Return the events of a stream that has ended."""
    parts = [part for part in stream.replace("\r\n", "\n").split("\n\n") if part and not part.startswith(":")]
    lines = [[line.partition(":") for line in part.split("\n")] for part in parts]
    return [{name: value.removeprefix(" ") for name, _, value in each} for each in lines]


async def test_a_stream_is_ended_and_the_rest_comes_to_the_client_that_resumes_it() -> None:
    may_end, runs = anyio.Event(), 0

    @tool_with_ctx
    async def work(context: ToolContext[object]) -> str:
        """Work."""
        nonlocal runs
        runs += 1
        await may_end.wait()
        return "done"

    with anyio.fail_after(240):
        async with reached(mcp_app(ToolRegistry([work]), stream_seconds=0.05, task_after=None)) as client:
            raw = Raw(client)
            await raw.greet()
            (priming,) = read_events(await raw.call(7, "work"))
            assert (priming["data"], priming["retry"]) == ("", "20")
            assert read_events(await raw.resume(priming["id"])) == []
            may_end.set()
            events: list[dict[str, str]] = []
            while not events:
                events = read_events(await raw.resume(priming["id"]))
            (answer,) = events
            again = read_events(await raw.resume(priming["id"]))
            after = read_events(await raw.resume(answer["id"]))
    message = json.loads(answer["data"])
    assert (message["id"], message["result"]["content"][0]["text"]) == (7, "done")
    assert again == [answer]  # a client that lost its connection once more
    assert after == []
    assert runs == 1


async def test_the_streams_of_a_session_are_for_nobody_else() -> None:
    app = mcp_app(made(), context_for=find_user, auth=TOKENS, stream_seconds=60)
    with anyio.fail_after(240):
        async with reached(app) as client:
            ada, bob = (Raw(client, token) for token in TOKENS)
            await ada.greet()
            await bob.greet()
            first, answer = read_events(await ada.call(7, "orders"))
            mine = await ada.resume(first["id"])
            await bob.call(8, "orders")
            other = await bob.resume(first["id"])
    assert ORDERS["ada"][0] in answer["data"]
    assert ORDERS["ada"][0] in mine
    assert "lamp" not in other
    assert "The answer is not available any more." in other


async def test_of_many_answers_the_last_are_kept() -> None:
    with anyio.fail_after(240):
        async with reached(mcp_app(ToolRegistry([tool(name="add")(lambda: 1)]), stream_seconds=5)) as client:
            raw = Raw(client)
            await raw.greet()
            ids = [read_events(await raw.call(number, "add"))[0]["id"] for number in range(2, 24)]
            answers = [json.loads(read_events(await raw.resume(each))[0]["data"]) for each in ids]
    assert ["error" in each for each in answers] == [True, True] + [False] * 20
    assert answers[0]["error"]["message"] == "The answer is not available any more."


@contextmanager
def serving(make: Callable[[], Callable[..., Any]]) -> Generator[str]:
    """Serve for clients of the revisions with sessions."""
    shop = Shop(is_modern=False)
    with serving_in_thread(lambda _: shop.wrap(make())) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def serve_ours(runs: list[str]) -> Callable[..., Any]:
    @tool_with_ctx
    async def work(context: ToolContext[object]) -> str:
        """Work."""
        runs.append("work")
        for step in range(5):
            context.report_progress(f"step {step}")
            await anyio.sleep(0.1)  # longer than a stream
        return "done"

    return mcp_app(ToolRegistry([work]), stream_seconds=0.05, task_after=None)


def serve_fastmcp(runs: list[str]) -> Callable[..., Any]:
    server: FastMCP[Any] = FastMCP("others")

    @server.tool
    async def work(ctx: Context) -> str:
        """Work."""
        runs.append("work")
        for step in range(5):
            await ctx.report_progress(step, message=f"step {step}")
            await ctx.close_sse_stream()
            await anyio.sleep(0.1 if step < 4 else 1)  # FastMCP loses an answer in the moment of a return
        return "done"

    return server.http_app(event_store=EventStore(), retry_interval=20)


@pytest.mark.parametrize("serve", [serve_ours, serve_fastmcp], ids=["ours", "FastMCP's"])
async def test_our_client_comes_back_to_streams_that_a_server_ends(
    serve: Callable[[list[str]], Callable[..., Any]],
) -> None:
    runs: list[str] = []
    events: list[object] = []
    with serving(lambda: serve(runs)) as url, anyio.fail_after(240):
        async with mcp_tools(http(url)) as tools:
            provider = ScriptedProvider([ToolCall("1", "work", "{}"), "ok"])
            config = ToolLoopConfig(on_event=events.append)
            outcome = await tool_loop(provider, ToolRegistry(tools), "Work.", config=config)
    assert outcome.messages[2].text == "done"
    assert runs == ["work"]
    steps = [event.text.rpartition(": ")[2] for event in events if isinstance(event, ToolProgress)]
    assert steps == [f"step {number}" for number in range(5)]


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_stream_that_can_not_be_resumed_is_a_lost_connection(*, is_idempotent: bool) -> None:
    runs: list[str] = []

    def make() -> Callable[..., Any]:
        server: FastMCP[Any] = FastMCP("others")

        @server.tool(annotations={"idempotentHint": is_idempotent})
        async def work(ctx: Context) -> str:
            """Work."""
            runs.append("work")
            if len(runs) == 1:
                await ctx.close_sse_stream()
                await anyio.sleep_forever()
            return "done"

        app = server.http_app(event_store=EventStore(), retry_interval=20)

        async def forget(scope: Any, receive: Any, send: Any) -> None:
            names = {name for name, _ in scope.get("headers", ())}
            if b"last-event-id" in names:
                await send({"type": "http.response.start", "status": 404, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            else:
                await app(scope, receive, send)

        return forget

    with serving(make) as url, anyio.fail_after(240):
        async with mcp_tools(http(url), hints="trusted") as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "work", "{}"))
    if is_idempotent:
        assert (result.text, runs) == ("done", ["work", "work"])
    else:
        assert "It may have taken effect and was not repeated." in result.text
        assert runs == ["work"]


async def test_a_long_answer_in_a_stream_arrives_whole() -> None:
    @tool
    def write_much() -> str:
        """Write."""
        return "x" * 3_000_000

    with serving(lambda: mcp_app(ToolRegistry([write_much]))) as url, anyio.fail_after(240):
        async with mcp_tools(http(url)) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "write_much", "{}"))
    assert not result.is_error
    assert result.text.startswith("xxx")
