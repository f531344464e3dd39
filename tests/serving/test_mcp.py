"""A registry as an MCP server, asked by the SDK's client and by ours."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp.types as wire
import pytest
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.server import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.shared.memory import create_client_server_memory_streams
from mcp.types.version import LATEST_MODERN_VERSION

from tests.serving.served_mcp import App, made
from toolkit import (
    ConfigurationError,
    Permissions,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolRegistry,
    deny,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.errors import McpError
from toolkit.events import ToolProgress
from toolkit.serving.mcp import mcp_app, mcp_server, serve_mcp_http
from toolkit.sources.mcp import Elicitation, McpAuthError, http, mcp_tools, stdio
from toolkit.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

Era = Literal["modern", "legacy"]
ERAS: list[Era] = ["modern", "legacy"]
PROGRAM = str(Path(__file__).parent / "served_mcp.py")


@dataclass
class InMemory:
    """A way to a server in this process, for our client and the SDK's."""

    server: Server[Any]
    era: Era = "modern"
    name: str = "in memory"

    def open(self, words: deque[str] | None = None) -> Transport:
        return self._open()

    def redact(self, text: str) -> str:
        return text

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Any]:
        options = self.server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with create_client_server_memory_streams() as (client, (read, write)), anyio.create_task_group() as tasks:

            async def serve() -> None:
                if self.era == "modern":
                    await self.server.run(read, write, options)
                else:
                    async with self.server.lifespan(self.server) as state:
                        await serve_loop(self.server, read, write, lifespan_state=state, init_options=options)

            tasks.start_soon(serve)
            yield client
            tasks.cancel_scope.cancel()


@tool(name="match")
def match() -> str:
    """Match."""
    return "matched"


def served(registry: ToolRegistry[App] | None = None, app: App | None = None, era: Era = "modern") -> InMemory:
    return InMemory(mcp_server(registry or made(), app or App("ada")), era)


@pytest.mark.parametrize("era", ERAS)
async def test_clients_see_the_instructions_of_the_server(era: Era) -> None:
    server = mcp_server(made(), App("ada"), name="adder", instructions="Add before you forecast.")
    with anyio.fail_after(240):
        async with Client(InMemory(server, era).open()) as client:
            assert client.server_info is not None
            assert client.server_info.name == "adder"
            assert client.instructions == "Add before you forecast."


async def test_clients_see_schemas_titles_and_annotations() -> None:
    with anyio.fail_after(240):
        async with Client(served().open()) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == list(made().names)
    assert tools["add"].input_schema == made().definitions()[0].parameters
    assert tools["add"].title == "Add two numbers"
    assert tools["add"].annotations is not None
    assert tools["add"].annotations.read_only_hint is True
    assert tools["wipe"].annotations is not None
    assert tools["wipe"].annotations.destructive_hint is True
    assert tools["forecast"].output_schema == {
        "type": "object",
        "description": "What the weather will be.",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
    }


@dataclass
class Case:
    tool: str
    arguments: dict[str, Any]
    text: str
    structured: Any = None
    is_error: bool = False


CASES = [
    Case("add", {"a": 17, "b": 25}, "42", {"result": 42}),
    Case("forecast", {"city": "Rome"}, '{"city":"Rome","degrees":21}', {"city": "Rome", "degrees": 21}),
    Case(
        "forecasts",
        {"cities": ["Rome"]},
        '[{"city":"Rome","degrees":21}]',
        {"result": [{"city": "Rome", "degrees": 21}]},
    ),
    Case("whoami", {}, "ada", {"result": "ada"}),
    Case("fail", {}, "It can't be done today.", is_error=True),
    Case("wipe", {"path": "/a"}, "Tool 'wipe' needs approval. This client can't ask its user", is_error=True),
    Case("add", {"a": 1}, "b", is_error=True),
    Case("count", {"to": 3}, "3", {"result": "3"}),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tool} {case.arguments}")
async def test_a_call_gives_what_the_tool_gives(case: Case, era: Era) -> None:
    with anyio.fail_after(240):
        async with Client(served(era=era).open()) as client:
            result = await client.call_tool(case.tool, case.arguments)
    (block,) = result.content
    assert isinstance(block, wire.TextContent)
    assert case.text in block.text
    assert result.structured_content == case.structured
    assert result.is_error is case.is_error


async def test_an_image_arrives_as_an_image() -> None:
    with anyio.fail_after(240):
        async with Client(served().open()) as client:
            (block,) = (await client.call_tool("picture")).content
    assert isinstance(block, wire.ImageContent)
    assert (block.data, block.mime_type) == ("aW1hZ2U=", "image/webp")


async def test_an_unknown_tool_is_an_error_of_the_protocol() -> None:
    with anyio.fail_after(240):
        async with Client(served().open()) as client:
            with pytest.raises(MCPError, match="Unknown tool: ad"):
                await client.call_tool("ad", {"a": 1, "b": 2})


async def test_permissions_of_the_registry_hold() -> None:
    registry = made()
    registry.permissions = Permissions([deny("add", args={"a": lambda value: value > 10})])
    with anyio.fail_after(240):
        async with Client(served(registry).open()) as client:
            allowed = await client.call_tool("add", {"a": 1, "b": 2})
            denied = await client.call_tool("add", {"a": 11, "b": 2})
    assert not allowed.is_error
    assert denied.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_reports_are_progress_where_it_is_asked_for(era: Era) -> None:
    told: list[tuple[float, str | None]] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    with anyio.fail_after(240):
        async with Client(served(era=era).open()) as client:
            await client.call_tool("work", {"steps": 3}, progress_callback=take)
            await client.call_tool("work", {"steps": 3})
    assert told == [(1, "step 1"), (2, "step 2"), (3, "step 3")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_cancelled_cancels_the_tool(era: Era) -> None:
    app = App("ada", anyio.Event(), anyio.Event())
    assert app.has_begun is not None
    assert app.was_cancelled is not None
    with anyio.fail_after(240):
        async with Client(served(app=app, era=era).open()) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "hang")
            await app.has_begun.wait()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await app.was_cancelled.wait()


@dataclass
class Asking:
    name: str
    answer: Any
    text: str
    is_error: bool


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "case",
    [
        Asking("approved", {"approve": True}, "/a is gone", is_error=False),
        Asking("not approved", {"approve": False}, "did not approve", is_error=True),
        Asking("declined", False, "did not approve", is_error=True),
        Asking("put off", None, "did not approve", is_error=True),
    ],
    ids=lambda case: case.name,
)
async def test_a_tool_that_needs_approval_asks_the_user_of_the_client(case: Asking, era: Era) -> None:
    asked: list[Elicitation] = []

    def answer(question: Elicitation) -> Any:
        asked.append(question)
        return case.answer

    with anyio.fail_after(240):
        async with mcp_tools(served(era=era), elicitation=answer) as tools:
            result = await ToolRegistry(tools).execute(ToolCall("1", "wipe", '{"path": "/a"}'))
    assert case.text in result.text
    assert result.is_error is case.is_error
    (question,) = asked
    assert "'wipe' needs approval" in question.message
    assert "/a" in question.message


async def test_an_approval_counts_only_for_the_call_that_was_asked_about() -> None:
    yes: dict[str, Any] = {"approval": wire.ElicitResult(action="accept", content={"approve": True})}

    async def never(context: Any, params: Any) -> wire.ElicitResult:
        raise AssertionError

    with anyio.fail_after(240):
        async with Client(served().open(), elicitation_callback=never) as client:
            asked = await client.session.call_tool("wipe", {"path": "/a"}, allow_input_required=True)
            assert isinstance(asked, wire.InputRequiredResult)
            for path, state in [("/b", asked.request_state), ("/a", "approval"), ("/a", f"{asked.request_state}A")]:
                with pytest.raises(MCPError, match="Invalid or expired requestState"):
                    await client.session.call_tool(
                        "wipe", {"path": path}, input_responses=yes, request_state=state, allow_input_required=True
                    )
            unasked = await client.session.call_tool(
                "wipe", {"path": "/a"}, input_responses=yes, allow_input_required=True
            )
    assert isinstance(unasked, wire.InputRequiredResult)


@pytest.mark.parametrize("era", ERAS)
async def test_clients_are_notified_of_a_change_that_nobody_of_them_made(era: Era) -> None:
    registry: ToolRegistry[object] = ToolRegistry([match])
    is_listed_again = anyio.Event()

    @tool
    def born() -> str:
        """Be new."""
        return "new"

    def see(listed: wire.Tool) -> bool:
        if listed.name == "born":
            is_listed_again.set()
        return True

    with anyio.fail_after(240):
        async with mcp_tools(InMemory(mcp_server(registry), era), filter=see) as tools:
            await anyio.to_thread.run_sync(registry.register, born)
            await is_listed_again.wait()
            assert [each.definition.name for each in tools] == ["match", "born"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_registry_that_changes_in_a_call_is_told_to_clients(era: Era) -> None:
    registry: ToolRegistry[object] = ToolRegistry()
    is_listed_again = anyio.Event()

    @tool
    def born() -> str:
        """Be new."""
        return "new"

    @registry.register
    @tool
    async def grow() -> str:
        """Add a tool."""
        registry.register(born)
        return "grown"

    def see(listed: wire.Tool) -> bool:
        if listed.name == "born":
            is_listed_again.set()
        return True

    with anyio.fail_after(240):
        async with mcp_tools(InMemory(mcp_server(registry), era), filter=see) as tools:
            mine: ToolRegistry[object] = ToolRegistry()
            tools.keep_registered(mine)
            await mine.execute(ToolCall("1", "grow", "{}"))
            await is_listed_again.wait()
            assert (await mine.execute(ToolCall("2", "born", "{}"))).text == "new"


async def test_a_loop_uses_tools_that_another_process_serves() -> None:
    provider = ScriptedProvider(
        [ToolCall("1", "add", '{"a": 17, "b": 25}'), ToolCall("2", "work", '{"steps": 2}'), "42"]
    )
    events: list[object] = []
    with anyio.fail_after(240):
        async with mcp_tools(stdio(sys.executable, PROGRAM)) as tools:
            config = ToolLoopConfig(on_event=events.append)
            result = await tool_loop(provider, ToolRegistry(tools), "What is 17 + 25?", config=config)
    assert [message.text for message in result.messages if message.role == "tool"] == ["42", "done"]
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["1: step 1", "2: step 2"]


@asynccontextmanager
async def served_over_http(**settings: Any) -> AsyncGenerator[str]:
    async with anyio.create_task_group() as tasks:

        async def serve(*, task_status: anyio.abc.TaskStatus[str]) -> None:
            await serve_mcp_http(made(), App("ada"), port=0, task_status=task_status, **settings)

        url: str = await tasks.start(serve)
        yield url
        tasks.cancel_scope.cancel()


on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what uvicorn runs on


@on_asyncio
async def test_tools_are_served_over_http_and_the_server_ends_with_its_task() -> None:
    with anyio.fail_after(240):
        async with served_over_http() as url, mcp_tools(http(url)) as tools:
            registry = ToolRegistry(tools)
            calls = [ToolCall(str(n), "add", f'{{"a": {n}, "b": 1}}') for n in range(100)]
            results = await registry.execute_all(calls)
            assert [result.text for result in results] == [str(n + 1) for n in range(100)]
        with pytest.raises(McpError, match="is it running"):
            async with mcp_tools(http(url)):
                raise AssertionError


@on_asyncio
async def test_a_client_that_goes_away_in_mid_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    gone = anyio.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "went away" in record.getMessage():
                gone.set()

    logger, watch = logging.getLogger("toolkit.asgi_server"), Watch()
    logger.addHandler(watch)
    head = (
        f"POST /mcp HTTP/1.1\r\nMCP-Protocol-Version: {LATEST_MODERN_VERSION}\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/json\r\nContent-Length: 99\r\n"
        "Accept: application/json, text/event-stream\r\n\r\n{"
    )
    try:
        with caplog.at_level("DEBUG"), anyio.fail_after(240):
            async with served_over_http() as url:
                port = urlsplit(url).port
                assert port is not None
                async with await anyio.connect_tcp("127.0.0.1", port) as client:
                    await client.send(head.encode())
                await gone.wait()
    finally:
        logger.removeHandler(watch)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@on_asyncio
async def test_a_token_is_needed_where_one_is_set_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"), anyio.fail_after(240):
        async with served_over_http(auth="s3cret-token") as url:
            right = http(url, bearer="s3cret-token")
            async with mcp_tools(right) as tools:
                assert "add" in [tool.definition.name for tool in tools]
                assert "s3cret" not in repr(tools) + repr(right) + repr(list(tools))
            for wrong in (http(url), http(url, bearer="s3cret-other")):
                with pytest.raises(McpAuthError, match="bearer=") as refused:
                    async with mcp_tools(wrong):
                        raise AssertionError
                assert "s3cret" not in str(refused.value)
    assert "s3cret" not in caplog.text


async def test_an_application_serves_a_client_of_an_older_revision_on_either_event_loop() -> None:
    app = mcp_app(made(), App("ada"), auth="s3cret-token")
    headers = {"accept": "application/json, text/event-stream", "authorization": "bearer s3cret-token"}
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    adding = {"name": "add", "arguments": {"a": 17, "b": 25}}
    with anyio.fail_after(240):
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8000") as client,
        ):

            async def ask(**message: object) -> httpx2.Response:
                return await client.post("/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)

            greeted = await ask(id=1, method="initialize", params=greeting)
            headers["mcp-session-id"] = greeted.headers["mcp-session-id"]
            await ask(method="notifications/initialized")
            added = await ask(id=2, method="tools/call", params=adding)
    assert '"tools":{"listChanged":true}' in greeted.text
    assert '"text":"42"' in added.text


@on_asyncio
async def test_pages_of_other_origins_and_other_hosts_are_refused() -> None:
    hello: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    with anyio.fail_after(240):
        async with served_over_http(allowed_origins=["https://app.example.com"]) as url, httpx2.AsyncClient() as client:
            evil = await client.post(url, json=hello, headers={**accepted, "Origin": "https://evil.example.com"})
            rebound = await client.post(url, json=hello, headers={**accepted, "Host": "evil.example.com"})
            allowed = await client.post(url, json=hello, headers={**accepted, "Origin": "https://app.example.com"})
    assert (evil.status_code, rebound.status_code) == (403, 421)
    assert allowed.status_code not in (403, 421)


@on_asyncio
async def test_serving_the_network_without_a_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="auth="):
        await serve_mcp_http(made(), App("ada"), host="0.0.0.0", port=0)


async def test_a_context_of_the_application_reaches_each_call() -> None:
    seen: list[object] = []

    @tool_with_ctx
    async def note(context: ToolContext[App]) -> str:
        """Note."""
        seen.append(context.state)
        return context.tool_name

    app = App("ada")
    with anyio.fail_after(240):
        async with Client(served(ToolRegistry[App]([note]), app).open()) as client:
            await client.call_tool("note")
    assert seen == [app]
