"""The login of a person at a server: by a browser here or by a code elsewhere, and the file of tokens."""

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
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

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
from toolkit.sources.mcp import DeviceCode, McpAuthError, device_login, http, mcp_tools, oauth_login

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
        authority: The authorization server of this one, where it stands elsewhere.
        polls: The answers to requests for the token of a device, before the person has entered the code.
        offer: What differs in the answer with a code.
        asked: The forms that were posted for a login by a code.
    """

    port: int = 0
    answer: str = "code"
    logins: int = 0
    renewals: int = 0
    authority: LoginServer | None = None
    polls: list[str] = field(default_factory=list[str])
    offer: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    grants: list[str] = field(default_factory=list[str])
    has_devices: bool = True
    valid: dict[str, float] = field(default_factory=dict[str, float])
    required_scopes: tuple[str, ...] = ("orders",)

    @property
    def issuer(self) -> str:
        if self.authority is not None:
            return self.authority.issuer
        return f"http://127.0.0.1:{self.port}/"

    @property
    def resource(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def verify_token(self, token: str) -> AccessToken | None:
        if (self.authority or self).valid.get(token, 0) < time.time():
            return None
        return AccessToken(token=token, client_id="app", scopes=["orders"], subject="ada")

    async def describe(self, request: Request) -> Response:
        ends = {f"{name}_endpoint": f"{self.issuer}{name}" for name in ("authorization", "token", "registration")}
        methods = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
        if self.has_devices:
            ends["device_authorization_endpoint"] = f"{self.issuer}device"
        return JSONResponse({"issuer": self.issuer, **ends, **methods})

    async def register(self, request: Request) -> Response:
        asked = await request.json()
        self.grants = asked["grant_types"]
        return JSONResponse({**asked, "client_id": "app"}, 201)

    async def give_code(self, request: Request) -> Response:
        self.asked.append(await read_form(request))
        if self.answer not in ("code", "access_denied"):
            return JSONResponse({"error": self.answer}, 400)
        self.logins += 1
        page = f"{self.issuer}enter"
        code = {"device_code": "s3cret-device", "user_code": "BDWP-HQPK", "verification_uri": page, "interval": 0}
        return JSONResponse({**code, "verification_uri_complete": f"{page}?code=1", "expires_in": 60, **self.offer})

    async def authorize(self, request: Request) -> Response:
        self.logins += 1
        asked = request.query_params
        given = "code=a-c0de" if self.answer == "code" else f"error={self.answer}"
        return RedirectResponse(f"{asked['redirect_uri']}?{given}&state={asked['state']}")

    async def grant(self, request: Request) -> Response:
        form = await read_form(request)
        self.renewals += form["grant_type"] == "refresh_token"
        if form["grant_type"].endswith("device_code"):
            self.asked.append(form)
            error = self.polls.pop(0) if self.polls else ("" if self.answer == "code" else self.answer)
            if form["device_code"] != "s3cret-device" or error:
                return JSONResponse({"error": error or "invalid_grant"}, 400)
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
            Route("/device", self.give_code, methods=["POST"]),
            Mount("/", app),
        ]
        return Starlette(routes=routes, lifespan=app.router.lifespan_context)


async def read_form(request: Request) -> dict[str, str]:
    return dict(parse_qsl((await request.body()).decode()))


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
            for line in (
                b"GET //[ HTTP/1.1",
                b"GET http://[x/callback HTTP/1.1",
                b"GET /callback?state=%ff HTTP/1.1",
                b"\0",
            ):
                with socket.create_connection(("127.0.0.1", httpx2.URL(back).port or 0), timeout=30) as stream:
                    stream.sendall(line + b"\r\n\r\n")
                    assert stream.recv(100).startswith(b"HTTP/1.1 400")
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


async def test_tokens_are_renewed_at_the_server_that_gave_them_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with serving() as authority, serving(authority=authority) as server, anyio.fail_after(240):
        await call(server, login(server, file))
        authority.valid.clear()
        file.write_text(json.dumps({**json.loads(file.read_text()), "expires": 1}))
        assert await call(server, login(server, file)) == "called by ada"
    assert (authority.logins, authority.renewals, server.renewals) == (1, 1, 0)


def by_code(server: LoginServer, tokens: Path, **options: Any) -> tuple[OAuthClientProvider, list[DeviceCode]]:
    shown: list[DeviceCode] = []

    async def show(code: DeviceCode) -> None:
        await anyio.lowlevel.checkpoint()
        shown.append(code)

    return device_login(server.resource, tokens=tokens, show_code=show, **options), shown


@pytest.mark.parametrize("is_expired", [False, True], ids=["valid", "expired"])
async def test_a_person_logs_in_by_a_code_on_another_device(
    *, is_expired: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkit.sources.mcp.login._SLOWER", 0.01)
    file = tmp_path / "mine" / "tokens.json"
    polls = ["authorization_pending", "slow_down", "authorization_pending"]
    with serving(polls=polls) as server, anyio.fail_after(240), caplog.at_level("DEBUG"):
        auth, shown = by_code(server, file)
        first = await call(server, auth)
        if is_expired:
            server.valid.clear()
            file.write_text(json.dumps({**json.loads(file.read_text()), "expires": 1}))
        second = await call(server, login(server, file, open_page=show_nothing))  # the file serves both logins
        page = f"{server.issuer}enter"
    assert (first, second) == ("called by ada", "called by ada")
    assert shown == [DeviceCode(page=page, code="BDWP-HQPK", link=f"{page}?code=1", seconds=60)]
    assert (server.logins, server.renewals) == (1, int(is_expired))
    assert server.grants == ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"]
    code_request, *polled = server.asked
    assert code_request == {"client_id": "app", "scope": "orders", "resource": server.resource}
    assert [form["device_code"] for form in polled] == ["s3cret-device"] * 4
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    own = [record for record in caplog.records if record.threadName == "MainThread"]
    assert not [record.getMessage() for record in own if "s3cret" in record.getMessage()]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"answer": "access_denied"}, "the login was refused: access_denied"),
        ({"answer": "unauthorized_client"}, "no code was issued: unauthorized_client"),
        ({"has_devices": False}, "offers no login by a code: use oauth_login"),
        ({"polls": ["expired_token"]}, "the login was refused: expired_token"),
        ({"offer": {"interval": 3_600}}, "nobody logged in while the code was valid"),
        ({"offer": {"expires_in": "soon"}}, "no code was issued: the answer has 1 problem"),
        ({"offer": {"verification_uri": "javascript:alert(1)"}}, "what is no page of the web"),
        ({"offer": {"verification_uri_complete": "https://good@evil.example"}}, "what is no page of the web"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_login_by_a_code_that_fails_says_why(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with serving(**deepcopy(settings)) as server, anyio.fail_after(240):
        auth, _ = by_code(server, tmp_path / "tokens.json")
        with pytest.raises(McpAuthError, match=words):
            await call(server, auth)
    assert not (tmp_path / "tokens.json").exists() or "s3cret" not in (tmp_path / "tokens.json").read_text()


async def test_an_application_that_is_registered_by_hand_logs_in_with_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server, anyio.fail_after(240):
        auth = device_login(server.resource, tokens=tmp_path / "tokens.json", client_id="by-hand")
        assert await call(server, auth) == "called by ada"
        page = f"{server.issuer}enter"
    assert {form["client_id"] for form in server.asked} == {"by-hand"}
    assert server.grants == []
    assert capsys.readouterr().err == f"Log in at {page} with the code BDWP-HQPK\n"
