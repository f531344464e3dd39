"""Calls with the credentials of the run's user: on connections of their own, and seen by nobody else."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message, Receive, Scope, Send

from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolError, ToolLoopConfig, ToolRegistry, tool_loop, tool_with_ctx
from toolkit.calls.caching import MemoryCache
from toolkit.events import dump_event
from toolkit.serving.mcp import McpRequest, mcp_app
from toolkit.sources.mcp import Elicitation, MCPToolWrapper, http, mcp_tools
from toolkit.testing import ScriptedProvider
from toolkit.tracing import Tracing

pytestmark = [
    pytest.mark.anyio,
    # The SDK leaves the generators of a streamed answer to the garbage collector, of which trio tells.
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]

SERVICE = "service-s3cret"
USERS = [f"user{number}" for number in range(6)]
TOKENS = {f"{user}-s3cret": user for user in USERS} | {SERVICE: "service"}


@dataclass
class User:
    """A user of the application."""

    name: str

    @property
    def token(self) -> str:
        """The user's token at the server."""
        return f"{self.name}-s3cret"


@tool_with_ctx
async def whoami(request: McpRequest, label: str) -> str:
    """Report who calls, and how."""
    return f"{label} by {request.user} with {request.headers.get('authorization')}"


@tool_with_ctx
async def confirm(request: McpRequest) -> str:
    """Ask the user."""
    answer = await request.elicit("Really?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return str(answer)


@dataclass
class Shop:
    """A server whose requests are recorded.

    Attributes:
        is_modern: Whether it speaks the newest revision; otherwise it has sessions, each for one user.
        requests: The method, the user of the token, and the arguments of each.
    """

    is_modern: bool
    url: str = ""
    requests: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])

    def count(self, method: str) -> int:
        return sum(each[0] == method for each in self.requests)

    def wrap(self, app: Callable[..., Any]) -> Callable[..., Any]:
        async def record(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            received: list[Message] = []
            while scope["method"] == "POST":
                received.append(await receive())
                if not received[-1].get("more_body"):
                    break
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            body = json.loads(b"".join(each.get("body", b"") for each in received) or b"{}")
            user = TOKENS.get(headers.get("authorization", "").removeprefix("Bearer "), "nobody")
            method = body.get("method", scope["method"])
            if not self.is_modern and headers.get("mcp-protocol-version", "").startswith("2026"):
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            self.requests.append((method, user, body.get("params", {}).get("arguments")))

            async def replay() -> Message:
                return received.pop(0) if received else await receive()

            await app(scope, replay, send)

        return record


@contextmanager
def serving(*, is_modern: bool) -> Generator[Shop]:
    shop = Shop(is_modern)

    def make(_: int) -> Callable[..., Any]:
        registry = ToolRegistry[McpRequest]([whoami, confirm])
        return shop.wrap(mcp_app(registry, context_for=lambda request: request, auth=TOKENS))

    with serving_in_thread(make) as port:
        shop.url = f"http://127.0.0.1:{port}/mcp"
        yield shop


@pytest.fixture(autouse=True)
def collected() -> Generator[None]:
    yield
    gc.collect()


ERAS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "with sessions"])


@ERAS
async def test_the_token_of_a_user_is_in_no_call_log_trace_cache_or_event_of_another(
    *, is_modern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    spans, events, cache = InMemorySpanExporter(), dict[str, list[Any]](), MemoryCache(ttl=600)
    tracer = TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(spans))
    seen: dict[str, str] = {}
    with serving(is_modern=is_modern) as shop, caplog.at_level("DEBUG"), anyio.fail_after(240):
        server = http(shop.url, bearer=SERVICE, auth_for=lambda user: user.token)
        async with mcp_tools(server) as tools, anyio.create_task_group() as tasks:
            registry = ToolRegistry[User](tools)

            async def run(name: str) -> None:
                calls = [
                    ToolCall(f"{n}", "whoami", json.dumps({"label": label})) for n, label in enumerate((name, "x"))
                ]
                config = ToolLoopConfig[User](
                    on_event=events.setdefault(name, []).append,
                    cache=cache,
                    middleware=(Tracing(content="all", tracer_provider=tracer),),
                )
                result = await tool_loop(
                    ScriptedProvider([*calls, "ok"]), registry, "go", ctx=User(name), config=config
                )
                seen[name] = "".join(message.text for message in result.messages)

            for name in USERS * 2:
                tasks.start_soon(run, name)
    calls = [(user, arguments["label"]) for method, user, arguments in shop.requests if method == "tools/call"]
    assert sorted(calls) == sorted((name, label) for name in USERS for label in (name, "x") for _ in range(2))
    for name in USERS:
        assert f"x by {name} with ***" in seen[name]
        assert not [other for other in USERS if other != name and other in seen[name]]
    assert shop.count("initialize") == (0 if is_modern else len(USERS) + 1)
    own = [record for record in caplog.records if record.threadName == "MainThread"]  # the server has another
    everywhere = [record.getMessage() + str(record.exc_info) for record in own]
    everywhere += [str(span.to_json()) for span in spans.get_finished_spans()]
    everywhere += [json.dumps(dump_event(event)) for each in events.values() for event in each]
    everywhere += [repr(server), repr(tools)]
    assert not [each for each in everywhere if "s3cret" in each]


class Signing(httpx2.Auth):
    """Signs as a user."""

    def __init__(self, user: str) -> None:
        self.user = user

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["Authorization"] = f"Bearer {self.user}-s3cret"
        yield request


KINDS: dict[str, Callable[[str], Any]] = {
    "headers": lambda name: {"authorization": f"Bearer {name}-s3cret"},
    "a token": lambda name: f"{name}-s3cret",
    "an object that signs": Signing,
}


@pytest.mark.real
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_credentials_are_headers_a_token_or_an_object_that_signs(kind: Callable[[str], Any]) -> None:
    kept = {name: kind(name) for name in USERS[:2]}

    async def find(user: User) -> Any:
        await anyio.lowlevel.checkpoint()
        return kept[user.name]

    with serving(is_modern=False) as shop, anyio.fail_after(240):
        async with mcp_tools(http(shop.url, bearer=SERVICE, auth_for=find)) as tools:
            registry = ToolRegistry[User](tools)
            texts = [
                (await registry.execute(ToolCall("1", "whoami", '{"label": "x"}'), User(name))).text
                for name in USERS[:2] * 2
            ]
    assert texts == [f"x by {name} with ***" for name in USERS[:2] * 2]
    assert shop.count("initialize") == 3


def fail_with(error: Exception) -> Callable[[Any], str]:
    def fail(user: Any) -> str:
        raise error

    return fail


def give(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (fail_with(RuntimeError("ada-s3cret is not valid")), "auth_for failed with RuntimeError"),
        (fail_with(ToolError("Log in first.")), "Log in first."),
        (give(None), "auth_for returned"),
        (give(""), "auth_for returned"),
        (give({}), "auth_for returned"),
        (give({"Authorization": 5}), "auth_for returned"),
        (give("stolen-s3cret"), "it refuses who calls (HTTP 401)"),
        (give("ada-s3cret\r\nX-Admin: 1"), "auth_for returned"),
    ],
    ids=["raises", "refuses", "None", "no text", "no headers", "a number", "a foreign token", "two lines"],
)
async def test_a_call_without_right_credentials_is_not_made(
    make: Callable[[Any], Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(is_modern=True) as shop, anyio.fail_after(240), caplog.at_level("DEBUG"):
        server = http(shop.url, bearer=SERVICE, auth_for=make)
        async with mcp_tools(server) as tools:
            failed = await ToolRegistry(tools).execute(ToolCall("1", "whoami", '{"label": "x"}'))
            on_demand = await ToolRegistry([MCPToolWrapper(server, tools[0].listed, first_pause=0)]).execute(
                ToolCall("1", tools[0].definition.name, '{"label": "x"}')
            )
    assert shop.count("tools/call") == 0
    for each in (failed, on_demand):
        assert each.is_error
        assert words in each.text
        assert "s3cret" not in each.text
    assert "s3cret" not in caplog.text


async def test_a_tool_on_demand_is_called_as_the_user_of_the_run() -> None:
    with serving(is_modern=True) as shop, anyio.fail_after(240):
        server = http(shop.url, bearer=SERVICE, auth_for=lambda user: user.token)
        registry = ToolRegistry[User](await MCPToolWrapper.all_of(server))
        result = await registry.execute(ToolCall("1", "whoami", '{"label": "x"}'), User("user1"))
    assert result.text == "x by user1 with ***"


@pytest.mark.real
async def test_users_who_were_seen_long_ago_are_connected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.sources.mcp.session._MOST_CALLERS", 2)
    with serving(is_modern=False) as shop, anyio.fail_after(240):
        async with mcp_tools(http(shop.url, bearer=SERVICE, auth_for=lambda user: user.token)) as tools:
            registry = ToolRegistry[User](tools)
            for name in [*USERS, USERS[0]]:
                result = await registry.execute(ToolCall("1", "whoami", '{"label": "x"}'), User(name))
                assert name in result.text
        assert shop.count("initialize") == shop.count("DELETE") == len(USERS) + 2


@pytest.mark.real
async def test_a_question_has_the_context_of_the_run_that_it_is_about() -> None:
    asked: list[tuple[str, Any]] = []

    def answer(question: Elicitation) -> Mapping[str, Any]:
        assert isinstance(question.ctx, User)
        asked.append((question.message, question.ctx.name))
        return {"name": question.ctx.name}

    with serving(is_modern=False) as shop, anyio.fail_after(240):
        server = http(shop.url, bearer=SERVICE, auth_for=lambda user: user.token)
        async with mcp_tools(server, elicitation=answer) as tools, anyio.create_task_group() as tasks:
            registry = ToolRegistry[User](tools)

            async def ask(name: str) -> None:
                result = await registry.execute(ToolCall("1", "confirm", "{}"), User(name))
                assert result.text == f"{{'name': '{name}'}}"

            for name in USERS:
                tasks.start_soon(ask, name)
    assert sorted(asked) == [("Really?", name) for name in USERS]


@pytest.mark.real
async def test_one_connection_serves_the_runs_of_all_where_nothing_depends_on_the_context() -> None:
    with serving(is_modern=False) as shop, anyio.fail_after(240):
        async with mcp_tools(http(shop.url, bearer=SERVICE)) as tools:
            registry = ToolRegistry[User](tools)
            for name in USERS:
                provider = ScriptedProvider([ToolCall("1", "whoami", '{"label": "x"}'), "ok"])
                await tool_loop(provider, registry, "go", ctx=User(name))
    assert (shop.count("initialize"), shop.count("tools/call")) == (1, len(USERS))
