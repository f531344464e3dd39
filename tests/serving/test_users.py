"""A served registry with users: each caller has the context and the tools that belong to their token."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import jwt
import mcp.types as wire
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastapi import FastAPI
from jwt.algorithms import RSAAlgorithm
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.types import jsonrpc
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from tests.serving.test_mcp import ERAS, Era, InMemory
from toolkit import ConfigurationError, ToolError, ToolRegistry, tool, tool_with_ctx
from toolkit.serving.mcp import JwtVerifier, McpRequest, mcp_app, mcp_server
from toolkit.serving.mcp.web import Auth

pytestmark = pytest.mark.anyio

ORDERS = {"ada": ["a lamp"], "bob": ["a chair", "a rug"]}
TOKENS = {"s3cret-of-ada": "ada", "s3cret-of-bob": "bob"}
URL = "http://127.0.0.1:8000/mcp"


@dataclass
class User:
    """Who calls."""

    name: str
    scopes: frozenset[str] = frozenset()


@tool_with_ctx
def orders(user: User) -> list[str]:
    """List the caller's orders."""
    return ORDERS[user.name]


@tool_with_ctx
def cancel_order(user: User, name: str) -> str:
    """Cancel an order."""
    return f"{user.name} has cancelled {name}"


def find_user(request: McpRequest) -> User:
    assert request.user is not None
    return User(request.user, request.scopes)


def made() -> ToolRegistry[User]:
    return ToolRegistry[User]([orders, cancel_order])


def shop(auth: Auth, **options: Any) -> Starlette:
    return mcp_app(made(), context_for=find_user, auth=auth, **options)


@asynccontextmanager
async def reached(app: Starlette, asgi: Callable[..., Any] | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run an application in this event loop, and give a client for it."""
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(asgi or app), base_url="http://127.0.0.1:8000") as client,
    ):
        yield client


@asynccontextmanager
async def asking(client: httpx2.AsyncClient, token: str, url: str = URL) -> AsyncGenerator[Client]:
    client.headers["Authorization"] = f"Bearer {token}"
    async with Client(streamable_http_client(url, http_client=client)) as official:
        yield official


HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}


async def post(client: httpx2.AsyncClient, token: str = "", session: str = "", **message: Any) -> httpx2.Response:
    headers = {"accept": "application/json, text/event-stream"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    if session:
        headers["mcp-session-id"] = session
    return await client.post("/mcp", json={**HELLO, **message}, headers=headers)


async def test_ada_sees_her_orders_and_bob_his(caplog: pytest.LogCaptureFixture) -> None:
    seen: dict[str, Any] = {}
    with caplog.at_level("DEBUG"), anyio.fail_after(240):
        async with reached(shop(TOKENS)) as http_client:
            for token, name in TOKENS.items():
                async with asking(http_client, token) as client:
                    seen[name] = (await client.call_tool("orders")).structured_content
    assert seen == {name: {"result": things} for name, things in ORDERS.items()}
    own = [record for record in caplog.records if not record.name.startswith(("httpx2", "httpcore2"))]
    assert "s3cret" not in "".join(record.getMessage() for record in own)


async def test_calls_of_two_users_at_once_have_each_their_own_context() -> None:
    answers: list[tuple[str, str]] = []
    async with reached(shop(TOKENS)) as client:

        async def call(token: str, name: str) -> None:
            opened = await post(client, token)
            session = opened.headers["mcp-session-id"]
            await post(client, token, session, id=None, method="notifications/initialized", params={})
            answer = await post(client, token, session, id=2, method="tools/call", params={"name": "orders"})
            answers.append((name, answer.text))

        with anyio.fail_after(240):
            async with anyio.create_task_group() as tasks:
                for token, name in [*TOKENS.items()] * 10:
                    tasks.start_soon(call, token, name)
    assert len(answers) == 20
    for name, text in answers:
        assert all((thing in text) == (owner == name) for owner, things in ORDERS.items() for thing in things)


async def test_a_scope_of_the_token_decides_which_tools_there_are() -> None:
    registry = made()
    table = {
        "reader": AccessToken(token="reader", client_id="app", subject="ada", scopes=["orders"]),
        "writer": AccessToken(token="writer", client_id="app", subject="ada", scopes=["orders", "cancel_order"]),
    }
    app = mcp_app(registry, context_for=find_user, tools_for=lambda user: registry.only(user.scopes), auth=table)
    with anyio.fail_after(240):
        async with reached(app) as http_client:
            async with asking(http_client, "reader") as client:
                assert [each.name for each in (await client.list_tools()).tools] == ["orders"]
                with pytest.raises(MCPError, match="Unknown tool: cancel_order"):
                    await client.call_tool("cancel_order", {"name": "a lamp"})
            async with asking(http_client, "writer") as client:
                done = await client.call_tool("cancel_order", {"name": "a lamp"})
    assert isinstance(done.content[0], wire.TextContent)
    assert done.content[0].text == "ada has cancelled a lamp"


async def test_a_session_is_only_for_the_user_who_opened_it() -> None:
    with anyio.fail_after(240):
        async with reached(shop(TOKENS)) as client:
            session = (await post(client, "s3cret-of-ada")).headers["mcp-session-id"]
            asked = {"id": 2, "method": "tools/call", "params": {"name": "orders"}}
            foreign = await post(client, "s3cret-of-bob", session, **asked)
            own = await post(client, "s3cret-of-ada", session, **asked)
    assert (foreign.status_code, own.status_code) == (404, 200)
    assert "lamp" not in foreign.text


async def test_no_more_sessions_are_open_at_once_than_are_allowed() -> None:
    with anyio.fail_after(240):
        async with reached(shop(TOKENS, max_sessions=1)) as client:
            first = await post(client, "s3cret-of-ada")
            second = await post(client, "s3cret-of-bob")
            own = {"authorization": "Bearer s3cret-of-ada", "mcp-session-id": first.headers["mcp-session-id"]}
            await client.delete("/mcp", headers=own)
            third = await post(client, "s3cret-of-bob")
    assert [first.status_code, second.status_code, third.status_code] == [200, 503, 200]


async def check_token(token: str) -> str | None:
    await anyio.lowlevel.checkpoint()
    if token == "broken":
        raise RuntimeError("the database is away")
    return {"s3cret-of-ada": "ada"}.get(token)


@pytest.mark.parametrize("auth", ["s3cret-of-ada", TOKENS, check_token], ids=["one", "table", "function"])
@pytest.mark.parametrize("wrong", ["", "s3cret", "broken", "é", "x" * 20_000])
async def test_a_request_without_a_right_token_is_refused(auth: Auth, wrong: str) -> None:
    registry: ToolRegistry[object] = ToolRegistry([made_by_all])
    with anyio.fail_after(240):
        async with reached(mcp_app(registry, auth=auth)) as client:
            headers = [(b"accept", b"application/json, text/event-stream")]
            headers += [(b"authorization", f"Bearer {wrong}".encode())] if wrong else []
            refused = await client.post("/mcp", json=HELLO, headers=headers)
            allowed = await post(client, "s3cret-of-ada")
    assert (refused.status_code, allowed.status_code) == (401, 200)
    assert refused.headers["www-authenticate"].startswith("Bearer ")


@tool
def made_by_all() -> str:
    """Be there."""
    return "here"


@pytest.mark.parametrize("returned", [5, {"user": "ada"}])
async def test_a_function_that_returns_no_user_lets_nobody_in(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    with anyio.fail_after(240):
        async with reached(shop(lambda _: returned)) as client:
            assert (await post(client, "s3cret-of-ada")).status_code == 401
    assert "not a user's name" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("auth", [{}, {"": "ada"}, 5, ""], ids=str)
async def test_tokens_that_can_not_be_are_refused_when_the_server_is_made(auth: Any) -> None:
    with pytest.raises(ConfigurationError, match="auth="):
        mcp_app(ToolRegistry([made_by_all]), auth=auth)


KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
ISSUER = "https://login.example.com"


def sign(key: Any = KEY, algorithm: str = "RS256", kid: str = "one", **claims: Any) -> str:
    payload = {"iss": ISSUER, "aud": URL, "sub": "ada", "exp": int(time.time()) + 600, "scope": "orders", **claims}
    return jwt.encode({k: v for k, v in payload.items() if v is not None}, key, algorithm, headers={"kid": kid})


@asynccontextmanager
async def verifying(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[httpx2.AsyncClient, list[str]]]:
    fetched: list[str] = []
    published = json.loads(RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "one", "use": "sig"}

    def fetch(self: jwt.PyJWKClient) -> Any:
        fetched.append(self.uri)
        assert self.jwk_set_cache is not None
        self.jwk_set_cache.put({"keys": [published]})
        return {"keys": [published]}

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fetch)
    async with reached(shop(JwtVerifier(ISSUER, audience=URL, required_scopes=["orders"]))) as client:
        yield client, fetched


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def forge_with_public_key() -> str:
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = encode(b'{"alg":"HS256","kid":"one","typ":"JWT"}') + "." + sign().split(".")[1]
    return f"{text}.{encode(hmac.digest(public, text.encode(), 'sha256'))}"


def leave_unsigned() -> str:
    head = encode(b'{"alg":"none","kid":"one"}')
    return f"{head}.{sign().split('.')[1]}."


@pytest.mark.parametrize(
    ("make_token", "status"),
    [
        (sign, 200),
        (lambda: sign(aud=["other", URL]), 200),
        (lambda: sign(scope=None, scp=["orders"]), 200),
        (lambda: sign(exp=int(time.time()) - 60), 401),
        (lambda: sign(exp=None), 401),
        (lambda: sign(sub=None), 401),
        (lambda: sign(iss="https://evil.example.com"), 401),
        (lambda: sign(aud="https://other.example.com/mcp"), 401),
        (lambda: sign(OTHER_KEY), 401),
        (lambda: sign(kid="unknown"), 401),
        (forge_with_public_key, 401),
        (leave_unsigned, 401),
        (lambda: "no token at all", 401),
        (lambda: sign(scope="profile"), 403),
    ],
    ids=[
        "right",
        "one of two audiences",
        "scopes as a list",
        "expired",
        "no expiry",
        "no user",
        "another issuer",
        "another audience",
        "another key",
        "an unknown key",
        "signed with the public key",
        "not signed",
        "no token",
        "without the scope",
    ],
)
async def test_tokens_of_an_issuer_are_verified_by_its_keys(
    make_token: Callable[[], str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with anyio.fail_after(240):
        async with verifying(monkeypatch) as (client, fetched):
            answer = await post(client, make_token())
            for _ in range(3):
                await post(client, sign(kid="unknown"))
            where = (await client.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert answer.status_code == status
    assert len(fetched) <= 2  # a token with an unknown key makes nobody fetch again and again
    assert set(fetched) == {f"{ISSUER}/.well-known/jwks.json"}
    assert where["resource"] == URL
    assert where["authorization_servers"] == [ISSUER]
    if status != 200:
        metadata = 'resource_metadata="http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"'
        assert metadata in answer.headers["www-authenticate"]


async def test_keys_that_can_not_be_fetched_let_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    verifier = JwtVerifier(ISSUER, audience=URL, jwks_url="http://127.0.0.1:1/keys", timeout=2)
    with anyio.fail_after(240):
        async with reached(shop(verifier)) as client:
            assert (await post(client, sign())).status_code == 401
    assert "no token is accepted" in caplog.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_context_that_is_a_context_manager_is_left_after_each_request(era: Era, *, is_async: bool) -> None:
    happened: list[str] = []

    @contextmanager
    def connect(request: McpRequest) -> Generator[User]:
        happened.append(f"opened for {request.client.split(' ')[0]}")
        try:
            yield User("ada")
        finally:
            happened.append("closed")

    @asynccontextmanager
    async def connect_async(request: McpRequest) -> AsyncGenerator[User]:
        with connect(request) as user:
            await anyio.lowlevel.checkpoint()
            yield user

    @tool_with_ctx
    def fail(user: User) -> None:
        """Fail."""
        happened.append(user.name)
        raise RuntimeError

    server = mcp_server(ToolRegistry[User]([fail]), context_for=connect_async if is_async else connect)
    with anyio.fail_after(240):
        async with Client(InMemory(server, era).open()) as client:
            happened.clear()
            assert (await client.call_tool("fail")).is_error
    assert happened[-3:] == ["opened for mcp", "ada", "closed"]


@pytest.mark.parametrize(
    ("error", "text"),
    [(ToolError("Your account is closed."), "Your account is closed."), (KeyError("s3cret"), "could not prepare")],
)
async def test_a_context_that_can_not_be_made_is_an_error_of_the_request(
    error: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: McpRequest) -> User:
        raise error

    with anyio.fail_after(240):
        async with Client(InMemory(mcp_server(made(), context_for=refuse)).open()) as client:
            with pytest.raises(MCPError, match=text) as refused:
                await client.call_tool("orders")
    assert "s3cret" not in str(refused.value)
    assert ("s3cret" in caplog.text) == isinstance(error, KeyError)


async def test_what_is_no_registry_is_an_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:

    def choose(_: User) -> Any:
        return [orders]

    with anyio.fail_after(240):
        async with Client(
            InMemory(mcp_server(made(), context_for=lambda _: User("ada"), tools_for=choose)).open()
        ) as client:
            with pytest.raises(MCPError, match="could not prepare"):
                await client.list_tools()
    assert "tools_for= returned" in caplog.text
    with pytest.raises(ConfigurationError, match="not both"):
        mcp_server(made(), User("ada"), context_for=find_user)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_asks_and_logs_in_the_request_that_it_serves(era: Era) -> None:
    async def book(request: McpRequest, room: str) -> str:
        """Book a room."""
        await request.log("not asked for", "debug")
        await request.log(f"looking for {room}")
        name = await request.elicit("Your name?", {"type": "object", "properties": NAME}, name="name")
        answer = await request.elicit("For how many nights?", {"type": "object", "properties": NIGHTS})
        return f"{room} for {answer} of {name}"

    logged: list[Any] = []
    asked: list[str] = []

    async def log(params: wire.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async def answer(context: Any, params: Any) -> wire.ElicitResult:
        asked.append(params.message)
        return wire.ElicitResult(
            action="accept", content={"nights": 2} if "nights" in params.message else {"name": "Ada"}
        )

    marked = tool_with_ctx(name="book", idempotent=True)(book)
    unmarked = tool_with_ctx(name="book_once")(book)
    server = mcp_server(ToolRegistry[McpRequest]([marked, unmarked]), context_for=lambda request: request)
    with anyio.fail_after(240):
        way = InMemory(server, era).open()
        async with Client(way, elicitation_callback=answer, logging_callback=log) as client:
            if era == "legacy":
                await client.set_logging_level("info")  # pyright: ignore[reportDeprecated]
            block = (await client.call_tool("book", {"room": "A"})).content[0]
            assert isinstance(block, wire.TextContent)
            assert block.text == "A for {'nights': 2} of {'name': 'Ada'}"
            assert asked == ["Your name?", "For how many nights?"]
            if era == "legacy":
                assert logged == ["looking for A"]
                await client.call_tool("book_once", {"room": "A"})
            else:  # to run it again from its beginning could do twice what it does
                with pytest.raises(MCPError, match="lacks a capability") as caught:
                    await client.call_tool("book_once", {"room": "A"})
                assert caught.value.error.code == jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert list(caught.value.error.data["requiredCapabilities"]["extensions"]) == [
                    "io.modelcontextprotocol/tasks"
                ]


NAME = {"name": {"type": "string"}}
NIGHTS = {"nights": {"type": "integer"}}


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    is_cancelled = False

    @tool
    async def wait() -> None:
        """Wait."""
        nonlocal is_cancelled
        try:
            await anyio.sleep_forever()
        finally:
            is_cancelled = True

    with anyio.fail_after(240):
        async with Client(InMemory(mcp_server(ToolRegistry([wait]), call_timeout=0.05)).open()) as client:
            block = (await client.call_tool("wait")).content[0]
    assert isinstance(block, wire.TextContent)
    assert block.text == "The call took longer than 0.05 s, so it was cancelled."
    assert is_cancelled


async def test_who_asks_too_often_waits_and_nobody_else() -> None:
    with anyio.fail_after(240):
        async with reached(shop(TOKENS, requests_per_minute=3)) as client:
            statuses = [(await post(client, "s3cret-of-ada")).status_code for _ in range(4)]
            last = await post(client, "s3cret-of-ada")
            other = await post(client, "s3cret-of-bob")
    assert statuses == [200, 200, 200, 429]
    assert 1 <= int(last.headers["retry-after"]) <= 21
    assert other.status_code == 200


async def test_a_request_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.asgi_server._BODY_SECONDS", 0.05)
    app = shop(TOKENS)
    sent: list[Any] = []

    async def receive_slowly() -> Any:
        await anyio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer s3cret-of-ada")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
    headers += [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    with anyio.fail_after(240):
        async with app.router.lifespan_context(app):
            await app(scope, receive_slowly, send)
    assert [message.get("status") for message in sent if message["type"] == "http.response.start"] == [408]


async def test_without_sessions_any_process_answers_any_request() -> None:
    first, second = shop(TOKENS, sessions=False), shop(TOKENS, sessions=False)
    with anyio.fail_after(240):
        async with reached(first) as one, reached(second) as other:
            opened = await post(one, "s3cret-of-ada")
            answer = await post(other, "s3cret-of-ada", id=2, method="tools/call", params={"name": "orders"})
    assert "mcp-session-id" not in opened.headers
    assert "a lamp" in answer.text


@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
async def test_it_is_mounted_in_an_application(kind: str) -> None:
    inner = shop(TOKENS)
    lifespan: Any = inner.router.lifespan_context
    outer: Starlette
    if kind == "starlette":

        async def health(_: Any) -> JSONResponse:
            return JSONResponse({"ok": True})

        outer = Starlette(routes=[Route("/health", health), Mount("/shop", inner)], lifespan=lifespan)
    else:
        outer = FastAPI(lifespan=lifespan)
        outer.mount("/shop", inner)
    with anyio.fail_after(240):
        async with reached(outer) as http_client:
            url = "http://127.0.0.1:8000/shop/mcp"
            async with asking(http_client, "s3cret-of-ada", url) as client:
                assert (await client.call_tool("orders")).structured_content == {"result": ["a lamp"]}
