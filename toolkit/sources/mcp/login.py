"""The login of a person at an MCP server, in a browser; the tokens are in a file for its owner alone."""

from __future__ import annotations

import logging
import sys
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketListener, SocketStream
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import BaseModel, ValidationError

from toolkit.foreign_text import strip_hidden
from toolkit.http_client import split_url
from toolkit.private_files import replace_private

_logger = logging.getLogger("toolkit.sources.mcp")
_PATH = "/callback"
_MOST_HEAD_BYTES = 16_384
_HEAD_SECONDS = 10.0
_LONGEST_ERROR = 200
_PAGE = "<!doctype html><title>Login</title><p>{}</p>"


class _Saved(BaseModel):
    """The content of a file of tokens: those of another server are never sent to this one."""

    url: str
    tokens: OAuthToken | None = None
    expires: float | None = None  # in seconds since 1970
    client: OAuthClientInformationFull | None = None


class _TokenFile:
    """The tokens of one person at one server."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url

    async def get_tokens(self) -> OAuthToken | None:
        saved = await self._read_file()
        if saved.tokens is None or saved.expires is None or time.time() < saved.expires:
            return saved.tokens
        # The SDK does not know the age of a token that was stored: one without text it renews.
        return saved.tokens.model_copy(update={"access_token": ""})

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self._update_file(tokens=tokens, expires=expires)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return (await self._read_file()).client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._update_file(client=client_info)

    async def _read_file(self) -> _Saved:
        def read() -> _Saved:
            saved = _Saved.model_validate_json(self._path.read_bytes())
            return saved if saved.url == self._url else _Saved(url=self._url)

        try:
            return await anyio.to_thread.run_sync(read)
        except FileNotFoundError:
            return _Saved(url=self._url)
        except (OSError, ValidationError) as error:
            _logger.warning("%s has no tokens that can be read (%s): log in again", self._path, type(error).__name__)
            return _Saved(url=self._url)

    async def _update_file(self, **fields: Any) -> None:
        saved = (await self._read_file()).model_copy(update=fields)

        def write() -> None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(self._path, saved.model_dump_json(exclude_none=True))

        await anyio.to_thread.run_sync(write)


def oauth_login(
    url: str,
    *,
    tokens: str | Path,
    scope: str | None = None,
    open_page: Callable[[str], object] | None = None,
    port: int = 33_418,
    timeout: float = 300.0,
    name: str = "toolkit",
) -> OAuthClientProvider:
    """Return the `auth` of a server at which a person logs in, in a browser on this machine.

    ::

        url = "https://example.com/mcp"
        server = http(url, auth=oauth_login(url, tokens="~/.config/my-app/example.json"))
        async with mcp_tools(server, connect_timeout=300) as tools:
            ...

    The SDK finds the authorization server, registers this client, checks state and issuer, and renews tokens. A page is
    opened only where there is no token that is valid or can be renewed.

    Args:
        url: That of the server.
        tokens: The file for the tokens of this person at this server, readable for its owner alone.
        scope: The scopes to ask for, with spaces; None asks for those that the server names.
        open_page: Takes the address of the login page, shows it to the person, and returns at once; None opens a
            browser, and writes the address on standard error.
        port: The port of this machine to which the browser returns. Servers compare it with that of the registration.
        timeout: Seconds for the login; `connect_timeout` of `mcp_tools` ends it as well.
        name: The name of this application on the login page.

    Raises:
        ConfigurationError: The URL is none, or not absolute.
    """
    split_url(url, "the URL of an MCP server")
    browser = _Browser(open_page or _open_browser, port, timeout)
    metadata = OAuthClientMetadata.model_validate(
        {"client_name": name, "redirect_uris": [f"http://127.0.0.1:{port}{_PATH}"], "scope": scope}
    )
    storage = _TokenFile(Path(tokens).expanduser(), url)
    return OAuthClientProvider(url, metadata, storage, browser.visit_page, browser.wait_for_return)


def _open_browser(page: str) -> None:
    sys.stderr.write(f"Log in at {page}\n")
    webbrowser.open(page)


class _Browser:
    """A person's visit to a login page, and the way back to this machine."""

    def __init__(self, open_page: Callable[[str], object], port: int, timeout: float) -> None:
        self._open_page = open_page
        self._port = port
        self._timeout = timeout
        self._state = ""
        self._listener: SocketListener | None = None
        self._answer: dict[str, str] = {}

    async def visit_page(self, page: str) -> None:
        """Listen for the return, then open the page."""
        self._state, self._answer = _read_query(page).get("state", ""), {}
        try:
            listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        except OSError as error:
            raise OAuthFlowError(f"port {self._port} is not free for the return from the login: give port=") from error
        self._listener = listener
        try:
            self._open_page(page)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
            raise

    async def wait_for_return(self) -> AuthorizationCodeResult:
        """Return the code with which the browser came back."""
        listener = self._listener
        if listener is None:
            raise OAuthFlowError("no login page was opened")
        async with listener:
            with anyio.move_on_after(self._timeout):
                async with anyio.create_task_group() as tasks:

                    async def take(stream: SocketStream) -> None:
                        async with stream:
                            if await self._take_return(stream):
                                tasks.cancel_scope.cancel()

                    await listener.serve(take)
        answer = self._answer
        if not answer:
            raise OAuthFlowError(f"nobody logged in within {self._timeout:g} s")
        if "code" not in answer:
            reason = strip_hidden(answer.get("error", "no code"))[:_LONGEST_ERROR]
            raise OAuthFlowError(f"the login was refused: {reason}")
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer.get("iss"))

    async def _take_return(self, stream: SocketStream) -> bool:
        """Answer a request of a browser; return whether it is the return: a page may send others, without the state."""
        received = b""
        with anyio.move_on_after(_HEAD_SECONDS):
            try:
                while b"\r\n" not in received and len(received) < _MOST_HEAD_BYTES:
                    received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return False
        target = received.partition(b"\r\n")[0].decode("latin-1").split(" ")
        query = _read_query(target[1]) if len(target) == 3 and urlsplit(target[1]).path == _PATH else {}
        is_return = bool(self._state) and query.get("state") == self._state and not self._answer
        if is_return:
            self._answer = query
        text = _PAGE.format("You can close this page." if is_return else "This is not the login that is awaited.")
        status = "200 OK" if is_return else "400 Bad Request"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(text)}\r\nConnection: close"
        with anyio.move_on_after(_HEAD_SECONDS), suppress(anyio.BrokenResourceError):
            await stream.send(f"{head}\r\n\r\n{text}".encode())
        return is_return


def _read_query(url: str) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    except ValueError:
        return {}
