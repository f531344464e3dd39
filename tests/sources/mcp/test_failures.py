"""What is wrong with a server is said with what to do about it, and without a secret."""

from __future__ import annotations

import logging
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.auth import OAuthTokenError

from toolkit import ConfigurationError
from toolkit.errors import McpError
from toolkit.sources.mcp import (
    McpAuthError,
    McpConnectionError,
    McpNotFoundError,
    McpServer,
    http,
    mcp_tools,
    sse,
    stdio,
)
from toolkit.testing.loopback import closed_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]


@contextmanager
def answering(status: int, body: bytes, content_type: str, context: ssl.SSLContext | None = None) -> Generator[int]:
    """Answer everything with the same, on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names are the library's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def refusal(server: McpServer) -> McpError:
    """Return how connecting fails."""
    with anyio.fail_after(240), pytest.raises(McpError) as refused:
        async with mcp_tools(server, connect_timeout=10):
            raise AssertionError
    return refused.value


# Under an id of no request, as servers answer that could not read one.
UNADDRESSED = b'{"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32000, "message": "Server overloaded"}}'


@dataclass
class Page:
    name: str
    status: int
    body: bytes
    content_type: str
    kind: type[McpError]
    words: str


@pytest.mark.parametrize(
    "case",
    [
        Page("a web page", 200, b"<html>", "text/html", McpError, "is it an MCP server, and is this its whole URL?"),
        Page("JSON of something else", 200, b'{"a": 1}', "application/json", McpError, "what it answered is not MCP"),
        Page(
            "an error for no request", 200, UNADDRESSED, "application/json", McpError, "Server overloaded (code -32000)"
        ),
        Page("not found", 404, b"no", "text/plain", McpNotFoundError, "is it the whole URL, such as .../mcp"),
        Page("no token", 401, b"no", "text/plain", McpAuthError, "give the right bearer="),
        Page("broken", 503, b"no", "text/plain", McpConnectionError, "it failed (HTTP 503); try again later"),
    ],
    ids=lambda case: case.name,
)
async def test_what_is_no_server_at_a_url_is_said_to_be_none(case: Page) -> None:
    with answering(case.status, case.body, case.content_type) as port:
        error = await refusal(http(f"http://127.0.0.1:{port}/mcp?key=s3cret", bearer="s3cret-token", name="mine"))
    assert type(error) is case.kind
    assert case.words in str(error)
    assert "MCP server 'mine': could not connect" in str(error)
    assert "s3cret" not in str(error)


async def test_events_of_what_is_no_server_are_refused() -> None:
    with answering(200, b"<html>", "text/html") as port:
        error = await refusal(sse(f"http://127.0.0.1:{port}/sse"))
    assert "could not connect" in str(error)


class FailingSignIn(httpx2.Auth):
    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        yield self.signed(request)

    def signed(self, request: httpx2.Request) -> httpx2.Request:
        raise OAuthTokenError("Token exchange failed (400): invalid_grant for s3cret-token")


async def test_signing_in_that_fails_is_not_said_to_be_a_matter_of_the_network() -> None:
    with answering(200, b"{}", "application/json") as port:
        server = http(f"http://127.0.0.1:{port}/mcp", headers={"X-Token": "s3cret-token"}, auth=FailingSignIn())
        error = await refusal(server)
    assert type(error) is McpAuthError
    assert "signing in failed (Token exchange failed (400): invalid_grant for ***); give the right auth=" in str(error)


async def test_a_port_that_nobody_listens_on_is_said_to_be_closed() -> None:
    error = await refusal(http(f"http://127.0.0.1:{closed_port()}/mcp"))
    assert type(error) is McpConnectionError
    assert "is it running, and is the URL right?" in str(error)


async def test_a_certificate_that_is_not_trusted_is_said_to_be_with_what_to_do(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout {key} -out {certificate}"
    try:
        await anyio.run_process(command.split())
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with answering(200, b"", "text/plain", context) as port:
        error = await refusal(http(f"https://127.0.0.1:{port}/mcp"))
    assert "its certificate is not trusted" in str(error)
    assert "verify=ssl.create_default_context(cafile=...)" in str(error)


@dataclass
class Program:
    name: str
    server: McpServer
    kind: type[McpError]
    words: str


@pytest.mark.parametrize(
    "case",
    [
        Program("missing", stdio("no-such-program"), McpNotFoundError, "'no-such-program' was not found"),
        Program("no program", stdio(str(Path(__file__).parent)), McpNotFoundError, "can't be executed"),
        Program("ends at once", stdio(sys.executable, "-c", ""), McpConnectionError, "did the server end"),
        Program(
            "says why",
            stdio(sys.executable, "-c", "import sys; sys.exit('no key: s3cret-key')", env={"A_KEY": "s3cret-key"}),
            McpConnectionError,
            "Its last words: no key: ***",
        ),
    ],
    ids=lambda case: case.name,
)
async def test_a_program_that_is_no_server_is_said_to_be_none(case: Program, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "toolkit"):
        error = await refusal(case.server)
    assert type(error) is case.kind
    assert case.words in str(error)
    assert "s3cret" not in str(error) + caplog.text + repr(case.server)


async def test_a_program_that_never_answers_is_given_up_and_ended() -> None:
    silent = stdio(sys.executable, "-c", "import time; time.sleep(600)", name="silent")
    with anyio.fail_after(240), pytest.raises(McpConnectionError, match=r"no answer within 0\.5 s"):
        async with mcp_tools(silent, connect_timeout=0.5):
            raise AssertionError


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("npx", [["-y", "a-server"]]),
        (["npx", "-y", "a-server"], []),
        (Path("server.py"), []),
        ("node", [Path("server.js")]),
        ("node", ["server.js", "--port", 80]),
    ],
    ids=repr,
)
def test_what_is_no_text_is_no_program_and_no_argument(command: Any, arguments: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"must be texts, as in stdio\('npx', '-y', 'a-server'\), not "):
        stdio(command, *arguments)


def test_a_url_that_is_not_absolute_is_refused_when_it_is_given() -> None:
    with pytest.raises(ConfigurationError, match="must be an absolute URL"):
        http("example.com/mcp")


def test_no_secret_is_in_a_repr() -> None:
    servers: list[McpServer] = [
        http("https://user:s3cret@example.com/mcp?key=s3cret", bearer="s3cret", headers={"X-Key": "s3cret"}),
        sse("https://example.com/sse?key=s3cret", bearer="s3cret"),
        stdio("server", "--key", "s3cret", env={"KEY": "s3cret"}),
    ]
    assert "s3cret" not in repr(servers)
    assert "s3cret" not in repr([mcp_tools(server) for server in servers])
