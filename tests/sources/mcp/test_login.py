"""The login of a person at a server: a browser's way there and back, and the file of tokens."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from tests.sources.mcp.threaded import serving_in_thread
from toolkit import ToolCall, ToolRegistry, tool_with_ctx
from toolkit.serving.mcp import McpRequest, mcp_app
from toolkit.sources.mcp import McpAuthError, http, mcp_tools, oauth_login

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]


@tool_with_ctx
def whoami(user: str) -> str:
    """Report who calls."""
    return f"called by {user}"


@dataclass
class LoginServer:
    """A server with a login, and the authorization server beside it.

    Attributes:
        answer: The answer to a login: a code, or the name of an error.
        logins: How many logins there were.
        renewals: How often a token was renewed.
    """

    port: int = 0
    answer: str = "code"
    logins: int = 0
    renewals: int = 0
    valid: dict[str, float] = field(default_factory=dict[str, float])
    required_scopes: tuple[str, ...] = ("orders",)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def resource(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def verify_token(self, token: str) -> AccessToken | None:
        if self.valid.get(token, 0) < time.time():
            return None
        return AccessToken(token=token, client_id="app", scopes=["orders"], subject="ada")

    async def describe(self, request: Request) -> Response:
        ends = {f"{name}_endpoint": f"{self.issuer}{name}" for name in ("authorization", "token", "registration")}
        methods = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
        return JSONResponse({"issuer": self.issuer, **ends, **methods})

    async def register(self, request: Request) -> Response:
        return JSONResponse({**await request.json(), "client_id": "app"}, 201)

    async def authorize(self, request: Request) -> Response:
        self.logins += 1
        asked = request.query_params
        given = "code=a-c0de" if self.answer == "code" else f"error={self.answer}"
        return RedirectResponse(f"{asked['redirect_uri']}?{given}&state={asked['state']}")

    async def grant(self, request: Request) -> Response:
        body = (await request.body()).decode()
        self.renewals += "grant_type=refresh_token" in body
        token = f"s3cret-{secrets.token_hex(8)}"
        self.valid[token] = time.time() + 600
        granted = {"access_token": token, "token_type": "Bearer", "refresh_token": "s3cret-refresh", "scope": "orders"}
        return JSONResponse({**granted, "expires_in": 600})

    def make_app(self, port: int) -> Starlette:
        self.port = port
        app = mcp_app(ToolRegistry[str]([whoami]), context_for=find_user, auth=self)
        routes = [
            Route("/.well-known/oauth-authorization-server", self.describe),
            Route("/registration", self.register, methods=["POST"]),
            Route("/authorization", self.authorize),
            Route("/token", self.grant, methods=["POST"]),
            Mount("/", app),
        ]
        return Starlette(routes=routes, lifespan=app.router.lifespan_context)


def find_user(request: McpRequest) -> str:
    return request.user or "nobody"


@contextmanager
def serving(**settings: Any) -> Generator[LoginServer]:
    server = LoginServer(**settings)
    with serving_in_thread(server.make_app) as server.port:
        yield server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def log_in(page: str) -> None:
    """Log in and come back, as a browser does beside this program; others come to the port before."""

    def visit() -> None:
        with httpx2.Client(timeout=30) as browser:
            back = browser.get(page).headers["location"]
            place = back.partition("?")[0]
            for forged in (f"{place}?code=forged&state=guessed", f"{place}?code=forged", f"{place}/other", place):
                assert browser.get(forged).status_code == 400
            assert browser.get(back).status_code == 200

    threading.Thread(target=visit).start()


def show_nothing(page: str) -> None:
    """Let the person not log in."""


def login(
    server: LoginServer,
    tokens: Path,
    *,
    open_page: Callable[[str], None] = log_in,
    timeout: float = 60,
    port: int | None = None,
) -> OAuthClientProvider:
    port = port or free_port()
    return oauth_login(server.resource, tokens=tokens, port=port, open_page=open_page, timeout=timeout)


async def call(server: LoginServer, auth: OAuthClientProvider) -> str:
    async with mcp_tools(http(server.resource, auth=auth)) as tools:
        return (await ToolRegistry(tools).execute(ToolCall("1", "whoami", "{}"))).text


@pytest.mark.parametrize("is_expired", [False, True], ids=["valid", "expired"])
async def test_a_person_logs_in_once_and_the_tokens_are_for_their_owner_alone(
    *, is_expired: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine" / "tokens.json"
    with serving() as server, anyio.fail_after(240), caplog.at_level("DEBUG"):
        first = await call(server, login(server, file))
        if is_expired:
            server.valid.clear()
            file.write_text(json.dumps({**json.loads(file.read_text()), "expires": 1}))
        second = await call(server, login(server, file))
    assert (first, second) == ("called by ada", "called by ada")
    assert (server.logins, server.renewals) == (1, int(is_expired))
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    own = [record for record in caplog.records if record.threadName == "MainThread"]
    assert not [record.getMessage() for record in own if "s3cret" in record.getMessage()]


async def test_a_login_that_is_refused_is_an_error_that_says_so(tmp_path: Path) -> None:
    refused = pytest.raises(McpAuthError, match="the login was refused: access_denied")
    with serving(answer="access_denied") as server, anyio.fail_after(240), refused:
        await call(server, login(server, tmp_path / "tokens.json"))


@pytest.mark.real
async def test_a_login_that_nobody_ends_is_given_up(tmp_path: Path) -> None:
    with serving() as server, anyio.fail_after(240):
        auth = login(server, tmp_path / "tokens.json", open_page=show_nothing, timeout=0.1)
        with pytest.raises(McpAuthError, match=r"nobody logged in within 0\.1 s"):
            await call(server, auth)


@pytest.mark.real
async def test_a_port_that_is_taken_is_an_error_that_names_it(tmp_path: Path) -> None:
    with serving() as server, anyio.fail_after(240), socket.create_server(("127.0.0.1", 0)) as taken:
        auth = login(server, tmp_path / "tokens.json", port=taken.getsockname()[1])
        with pytest.raises(McpAuthError, match=f"port {taken.getsockname()[1]} is not free"):
            await call(server, auth)


@pytest.mark.real
async def test_the_tokens_of_another_server_are_not_sent_to_this_one(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with serving() as one, serving() as other, anyio.fail_after(240):
        await call(one, login(one, file))
        await call(other, login(other, file))
    assert (one.logins, other.logins) == (1, 1)


@pytest.mark.real
async def test_a_file_that_can_not_be_read_asks_for_a_login(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text("{")
    with serving() as server, anyio.fail_after(240):
        assert await call(server, login(server, file)) == "called by ada"
    assert server.logins == 1
