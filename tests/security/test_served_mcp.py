"""A registry served over HTTP: pages and hosts that look allowed, and what a crash tells."""

import logging
from functools import partial
from typing import Annotated, Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.server.streamable_http import EventMessage
from mcp.types import JSONRPCResponse
from pydantic import BeforeValidator

from tests.loop_turns import LONGEST_TURN, longest_turn
from toolkit import ConfigurationError, ToolError, ToolRegistry, tool
from toolkit.serving.mcp import mcp_app, mcp_server, serve_mcp_http
from toolkit.serving.mcp.web import OriginGuard, SessionStreams

GUARD = OriginGuard(["tools.example.com", "any.example.com:*"], ["https://app.example.com", "http://dev.example:8080"])

BAD_ORIGINS = [
    "http://localhost:1234evil.com", "http://127.0.0.1:1@evil.com", "http://localhost:*", "http://localhost.evil.com",
    "http://localhost:80:80", "http://localhost:", "http://localhost:99999", "http://localhost@evil.com",
    "http://evil.com#localhost", "http://evil.com?http://localhost", "http://evil.com/localhost", "http://localhost/",
    "http://localhost\\@evil.com", "null", "", "*", "localhost", "//localhost", "http:localhost", "file://", "http://",
    "http://127.0.0.1.nip.io", "http://0.0.0.0", "http://2130706433", "http://[::1]evil.com", "http://[::1].evil.com",
    "http://[::]", "http://127.1", "ftp://localhost", "https://app.example.com.evil.com", "https://evilapp.example.com",
    "https://app.example.com:8443", "http://app.example.com", "https://app.example.com@evil.com", "http://dev.example",
    "http://dev.example:80800", "http://dev.example:8080.evil.com", "https://app.example.com\n", " http://localhost",
    "http://localhost\t", "http://loc\u0430lhost", "javascript://localhost", "http://127.0.0.1:8000,http://evil.com",
    "http://127.0.0.1:8000 http://evil.com",
]  # fmt: skip
GOOD_ORIGINS = [
    "http://localhost", "http://localhost:3000", "https://localhost:3000", "http://127.0.0.1:65535", "http://[::1]:8000",
    "https://app.example.com", "https://APP.example.com", "https://app.example.com:443", "http://dev.example:8080",
]  # fmt: skip
BAD_HOSTS = [
    "localhost:1234evil.com", "127.0.0.1:1@evil.com", "localhost:*", "localhost.evil.com", "evil.com", "", "localhost:",
    "[::1", "127.0.0.1.evil.com", "tools.example.com.evil.com", "tools.example.com:8443", "any.example.com:*",
    "any.example.com:99999", "localhost,evil.com", "localhost evil.com", "localhost/evil", "user@localhost",
]  # fmt: skip
GOOD_HOSTS = ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "tools.example.com", "any.example.com:8443"]


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_a_page_that_only_looks_allowed_is_refused(origin: str) -> None:
    assert not GUARD.allows_origin([origin])


@pytest.mark.parametrize("origin", GOOD_ORIGINS)
def test_an_allowed_page_is_let_pass(origin: str) -> None:
    assert GUARD.allows_origin([origin])


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_host_that_only_looks_allowed_is_refused(host: str) -> None:
    assert not GUARD.allows_host([host])


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_an_allowed_host_is_answered(host: str) -> None:
    assert GUARD.allows_host([host])


def test_two_headers_are_none() -> None:
    assert not GUARD.allows_host(["localhost", "localhost"])
    assert not GUARD.allows_host([])
    assert not GUARD.allows_origin(["http://localhost", "http://localhost"])
    assert GUARD.allows_origin([])


@pytest.mark.parametrize(
    ("hosts", "origins"), [(["https://x"], []), (["a b"], []), ([], ["app.example.com"]), ([], ["*"])]
)
def test_settings_that_can_not_be_are_the_callers_mistake(hosts: list[str], origins: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="is no"):
        mcp_app(ToolRegistry([]), allowed_hosts=hosts, allowed_origins=origins)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:1234evil.com"}, 421),
        ({"host": "evil.com"}, 421),
        ({"origin": "http://localhost:1234evil.com"}, 403),
        ({"origin": "http://127.0.0.1:1@evil.com"}, 403),
        ({"origin": "http://localhost:*"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_the_application_refuses_them_before_anything_runs(headers: dict[str, str], status: int) -> None:
    app = mcp_app(ToolRegistry([]), auth="t0ken")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        response = await client.post("/mcp", json={}, headers={"authorization": "Bearer t0ken", **headers})
    assert response.status_code == status


SECRET = "postgres://admin:hunter2@10.0.0.1/payments"


def crashing(error: BaseException) -> ToolRegistry[object]:
    @tool
    def work() -> str:
        """Work."""
        raise error

    return ToolRegistry([work])


def refusing(error: Exception) -> ToolRegistry[object]:
    def check(value: object) -> object:
        raise error

    @tool
    def work(customer: Annotated[str, BeforeValidator(check)]) -> str:
        """Work."""
        return customer

    return ToolRegistry([work])


async def call(registry: ToolRegistry[object], arguments: dict[str, Any] | None = None, **options: Any) -> str:
    async with Client(mcp_server(registry, **options)) as client:
        result = await client.call_tool("work", arguments or {})
    assert result.is_error
    return "".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error", [RuntimeError(SECRET), ValueError(f"can't connect to {SECRET}"), KeyError(SECRET), OSError(2, SECRET)]
)
async def test_the_text_of_a_crash_stays_here(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        said = await call(crashing(error))
    assert "hunter2" not in said
    assert "payments" not in said
    reference = said.rpartition("as ")[2].rstrip(".")
    assert said.startswith(f"{type(error).__name__}: the tool failed.")
    assert any(f"reference {reference}" in record.getMessage() for record in caplog.records)


@pytest.mark.anyio
@pytest.mark.parametrize("error", [RuntimeError(SECRET), KeyError(SECRET), OSError(2, SECRET)])
async def test_so_does_that_of_a_validator_that_crashes(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        said = await call(refusing(error), {"customer": "Ann"})
    assert "hunter2" not in said
    reference = said.rpartition("as ")[2].rstrip(".")
    assert said.startswith(f"{type(error).__name__}: the tool failed.")
    assert any(f"reference {reference}" in record.getMessage() for record in caplog.records)
    assert SECRET in await call(refusing(error), {"customer": "Ann"}, crashes="text")


@pytest.mark.anyio
async def test_what_a_validator_refuses_on_purpose_is_handed_on() -> None:
    said = await call(refusing(ValueError("it must be a customer of ours")), {"customer": "Ann"})
    assert "it must be a customer of ours" in said


@pytest.mark.anyio
async def test_what_a_tool_says_on_purpose_is_handed_on_and_all_of_it_where_that_is_asked_for() -> None:
    assert await call(crashing(ToolError("No such customer."))) == "No such customer."
    assert SECRET in await call(crashing(RuntimeError(SECRET)), crashes="text")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_nobody_chooses_the_address_that_requests_are_counted_for(anyio_backend: str) -> None:
    statuses: list[int] = []
    async with anyio.create_task_group() as tasks:
        url = await tasks.start(partial(serve_mcp_http, ToolRegistry([]), port=0, requests_per_minute=1))
        async with httpx2.AsyncClient() as client:
            for number in range(3):
                answer = await client.post(url, json={}, headers={"x-forwarded-for": f"10.0.0.{number}"})
                statuses.append(answer.status_code)
        tasks.cancel_scope.cancel()
    assert statuses[1:] == [429, 429]


LARGE = {
    "arguments of many objects": b'{"method": "tools/call", "params": {"arguments": {"a": ['
    + b"{}," * 300_000
    + b"1]}}}",
    "arguments of many lists": b'{"method": "tools/call", "params": {"arguments": {"a": ['
    + b"[]," * 300_000
    + b"1]}}}",
    "a client of many icons": b'{"method": "initialize", "params": {"protocolVersion": "2025-11-25", '
    b'"capabilities": {}, "clientInfo": {"name": "x", "version": "1", "icons": ['
    + b'{"src": "a:b"},' * 40_000
    + b'{"src": "a:b"}]}}}',
}


@pytest.mark.parametrize("name", LARGE)
def test_no_request_holds_the_event_loop(name: str) -> None:
    statuses: list[int] = []
    body = b'{"jsonrpc": "2.0", "id": 1, ' + LARGE[name][1:]

    async def ask() -> None:
        app = mcp_app(ToolRegistry([]), auth="t0ken")
        headers = {"authorization": "Bearer t0ken", "content-type": "application/json", "accept": "application/json"}
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            statuses.append((await client.post("/mcp", content=body, headers=headers)).status_code)

    assert longest_turn(ask) < LONGEST_TURN
    assert statuses == [413]


@pytest.mark.anyio
async def test_a_request_of_few_parts_may_be_long() -> None:
    @tool
    def count(text: str) -> int:
        """Count."""
        return len(text)

    app = mcp_app(ToolRegistry([count]), sessions=False)
    params = {"name": "count", "arguments": {"text": "{[,]}" * 100_000}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client,
    ):
        answer = await client.post("/mcp", json=call, headers={"accept": "application/json, text/event-stream"})
    assert "500000" in answer.text


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["9" * 5_000, "1:" + "9" * 5_000, "1:\u00b2", ":", ""])
async def test_a_place_that_is_none_is_the_begin_of_a_stream(place: str) -> None:
    streams, sent = SessionStreams(), list[EventMessage]()

    async def send(message: EventMessage) -> None:
        sent.append(message)

    streams.store("1", JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    await streams.replay(place, send, 1.0)
    assert len(sent) == 1
