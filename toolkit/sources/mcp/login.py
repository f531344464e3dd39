"""The login of a person at an MCP server, in a browser here or elsewhere; the tokens are in a file for its owner."""

from __future__ import annotations

import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx2
from anyio.abc import SocketListener, SocketStream
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyHttpUrl, BaseModel, Field, ValidationError

from toolkit.dataclass import dataclass
from toolkit.foreign_text import strip_hidden
from toolkit.http_client import is_inner_host, may_redirect, split_url
from toolkit.logs import get_logger
from toolkit.private_files import replace_private
from toolkit.sources.mcp.servers import WEB_PAGE

_logger = get_logger("toolkit.sources.mcp")
_PATH = "/callback"
_MOST_HEAD_BYTES = 16_384
_HEAD_SECONDS = 10.0
_LONGEST_ERROR = 200
_PAGE = "<!doctype html><title>Login</title><p>{}</p>"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_SHORTEST_POLL = 0.05
_SLOWER = 5.0  # seconds that are added to the pause where a server asks for it (RFC 8628)


class _ServerMetadata(OAuthMetadata):
    device_authorization_endpoint: AnyHttpUrl | None = None


class _Saved(BaseModel):
    """The content of a file of tokens: those of another server are never sent to this one."""

    url: str
    tokens: OAuthToken | None = None
    expires: float | None = None  # in seconds since 1970
    client: OAuthClientInformationFull | None = None
    issuer: _ServerMetadata | None = None  # the authorization server: other processes renew the tokens there


class _TokenFile:
    """The tokens of one person at one server."""

    def __init__(self, path: Path, url: str, client_id: str | None) -> None:
        self._path = path
        self._url = url
        self._client_id = client_id

    async def get_tokens(self) -> OAuthToken | None:
        saved = await self.read_file()
        if saved.tokens is None or saved.expires is None or time.time() < saved.expires:
            return saved.tokens
        # The SDK does not know the age of a token that was stored: one without text it renews.
        return saved.tokens.model_copy(update={"access_token": ""})

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self.update_file(tokens=tokens, expires=expires)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._client_id is not None:
            return OAuthClientInformationFull(client_id=self._client_id)
        return (await self.read_file()).client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.update_file(client=client_info)

    async def read_file(self) -> _Saved:
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

    async def update_file(self, **fields: Any) -> None:
        saved = (await self.read_file()).model_copy(update=fields)

        def write() -> None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(self._path, saved.model_dump_json(exclude_none=True))

        await anyio.to_thread.run_sync(write)


class _Login(OAuthClientProvider):
    """The SDK's login, which after a restart renews the tokens at the authorization server that issued them."""

    def __init__(self, url: str, tokens: str | Path, client_id: str | None, metadata: OAuthClientMetadata) -> None:
        split_url(url, "the URL of an MCP server")
        self._file = _TokenFile(Path(tokens).expanduser(), url, client_id)
        super().__init__(url, metadata, self._file)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests of a login, as its class does.

        Raises:
            OAuthFlowError: One goes to an address that the server may not name.
        """
        flow = super().async_auth_flow(request)
        try:
            asked = await anext(flow)
            while True:
                if asked is not request:
                    self.check_address(asked.url)
                asked = await flow.asend((yield asked))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def check_address(self, url: httpx2.URL) -> None:
        """Check that a login may lead to an address.

        Raises:
            OAuthFlowError: It is one inside of the network, and the server is outside; or it is not encrypted, and the
                server is.
        """
        server = httpx2.URL(self.context.server_url)
        is_downgrade = server.scheme == "https" and url.scheme != "https" and not is_inner_host(server.host)
        if is_downgrade or not may_redirect(server, url):
            raise OAuthFlowError(
                f"the server names {url.scheme}://{url.host} for it, and may name only encrypted addresses outside of "
                "this network"
            )

    async def _initialize(self) -> None:
        await super()._initialize()
        if self.context.oauth_metadata is None:
            self.context.oauth_metadata = (await self._file.read_file()).issuer

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        if (issuer := self.context.oauth_metadata) is not None:
            await self._file.update_file(issuer=_ServerMetadata.model_validate(issuer.model_dump()))


def oauth_login(
    url: str,
    *,
    tokens: str | Path,
    scope: str | None = None,
    open_page: Callable[[str], object] | None = None,
    port: int = 33_418,
    timeout: float = 300.0,
    name: str = "toolkit",
    client_id: str | None = None,
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
        client_id: The id of this application, where it was registered by hand; None registers it at the first login.

    Raises:
        ConfigurationError: The URL is none, or not absolute.
    """
    browser = _Browser(open_page or _open_browser, port, timeout)
    metadata = OAuthClientMetadata.model_validate(
        {"client_name": name, "redirect_uris": [f"http://127.0.0.1:{port}{_PATH}"], "scope": scope}
    )
    login = _Login(url, tokens, client_id, metadata)

    async def visit_page(page: str) -> None:
        login.check_address(httpx2.URL(page))
        await browser.visit_page(page)

    login.context.redirect_handler, login.context.callback_handler = visit_page, browser.wait_for_return
    return login


def _open_browser(page: str) -> None:
    sys.stderr.write(f"Log in at {page}\n")
    webbrowser.open(page)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A code with which a person logs in on any device with a browser.

    Args:
        page: The page on which the code is entered.
        code: The code.
        link: The page with the code filled in, such as for a QR code; None if the server has none.
        seconds: How long the code is valid.
    """

    page: str
    code: str
    link: str | None
    seconds: float


def device_login(
    url: str,
    *,
    tokens: str | Path,
    scope: str | None = None,
    show_code: Callable[[DeviceCode], object | Awaitable[object]] | None = None,
    timeout: float = 900.0,
    name: str = "toolkit",
    client_id: str | None = None,
) -> OAuthClientProvider:
    """Return the `auth` of a server at which a person logs in on another device, such as a phone (RFC 8628).

    ::

        url = "https://example.com/mcp"
        server = http(url, auth=device_login(url, tokens="~/.config/my-app/example.json"))
        async with mcp_tools(server, connect_timeout=900) as tools:
            ...

    For programs on machines without a browser. All else is as for `oauth_login`, also the errors and the files.

    Args:
        url: That of the server.
        tokens: The file for the tokens of this person at this server, readable for its owner alone.
        scope: The scopes to ask for, with spaces; None asks for those that the server names.
        show_code: Shows the person a code and its page; it may be async. None writes them on standard error.
        timeout: Seconds for the login, if the code is valid so long; `connect_timeout` of `mcp_tools` ends it as well.
        name: The name of this application on the login page.
        client_id: The id of this application, where it was registered by hand; None registers it at the first login.
    """
    grants = [_DEVICE_GRANT, "refresh_token"]
    metadata = OAuthClientMetadata(
        redirect_uris=None, client_name=name, scope=scope, grant_types=grants, response_types=[]
    )
    return _DeviceLogin(url, tokens, client_id, metadata, show_code or _write_code, timeout)


def _write_code(code: DeviceCode) -> None:
    sys.stderr.write(f"Log in at {code.page} with the code {code.code}\n")


class _DeviceGrant(BaseModel):
    device_code: str
    user_code: str = Field(max_length=100)
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float = Field(gt=0)
    interval: float = 5.0


class _Refusal(BaseModel):
    error: str = "no reason"


class _DeviceLogin(_Login):
    """A login by a code: the SDK's flow, in which the token is requested until it is granted."""

    def __init__(
        self,
        url: str,
        tokens: str | Path,
        client_id: str | None,
        metadata: OAuthClientMetadata,
        show_code: Callable[[DeviceCode], object | Awaitable[object]],
        timeout: float,
    ) -> None:
        super().__init__(url, tokens, client_id, metadata)
        self._show_code = show_code
        self._timeout = timeout
        self._offered: _ServerMetadata | None = None
        self._code_request: httpx2.Request | None = None

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super()._auth_flow(request)
        try:
            asked = await anext(flow)
            while True:
                response = yield asked
                if asked is self._code_request:
                    grant = await self._read_grant(response)
                    ends, pause = anyio.current_time() + min(grant.expires_in, self._timeout), grant.interval
                    error: str | None = "authorization_pending"
                    while error in ("authorization_pending", "slow_down"):
                        pause += _SLOWER if error == "slow_down" else 0
                        await self._wait_for_poll(pause, ends)
                        response = yield self._make_request(
                            self._get_token_endpoint(), grant_type=_DEVICE_GRANT, device_code=grant.device_code
                        )
                        error = None if response.is_success else await _read_refusal(response)
                    if error is not None:
                        raise OAuthFlowError(f"the login was refused: {error}")
                elif "/.well-known/" in asked.url.path and response.status_code == 200:
                    with suppress(ValidationError):
                        self._offered = _ServerMetadata.model_validate_json(await response.aread())
                asked = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _perform_authorization(self) -> httpx2.Request:
        server, offered = self.context.oauth_metadata, self._offered
        # The SDK has checked the issuer, and dropped the field that is needed here.
        if server is not None and offered is not None and offered.issuer == server.issuer:
            server = self.context.oauth_metadata = offered
        endpoint = server.device_authorization_endpoint if isinstance(server, _ServerMetadata) else None
        if endpoint is None:
            raise OAuthFlowError("the authorization server offers no login by a code: use oauth_login")
        scope = self.context.client_metadata.scope
        self._code_request = self._make_request(str(endpoint), **({"scope": scope} if scope else {}))
        return self._code_request

    def _make_request(self, url: str, **fields: str) -> httpx2.Request:
        if self.context.client_info is not None:
            fields["client_id"] = self.context.client_info.client_id
        if self.context.should_include_resource_param(self.context.protocol_version):
            fields["resource"] = self.context.get_resource_url()
        data, headers = self.context.prepare_token_auth(fields, {"Accept": "application/json"})
        return httpx2.Request("POST", url, data=data, headers=headers)

    async def _read_grant(self, response: httpx2.Response) -> _DeviceGrant:
        """Return the code that a server has issued, which the person has been shown."""
        if not response.is_success:
            raise OAuthFlowError(f"no code was issued: {await _read_refusal(response)}")
        try:
            grant = _DeviceGrant.model_validate_json(await response.aread())
        except ValidationError as error:
            raise OAuthFlowError(f"no code was issued: the answer has {error.error_count()} problems") from None
        link = grant.verification_uri_complete
        if not all(WEB_PAGE.fullmatch(page) for page in (grant.verification_uri, link or grant.verification_uri)):
            raise OAuthFlowError("the code is to be entered on what is no page of the web")
        code = strip_hidden(grant.user_code)
        shown = DeviceCode(page=grant.verification_uri, code=code, link=link, seconds=grant.expires_in)
        outcome = self._show_code(shown)
        if isawaitable(outcome):
            await outcome
        return grant

    async def _wait_for_poll(self, pause: float, ends: float) -> None:
        pause = max(pause, _SHORTEST_POLL)
        if not anyio.current_time() + pause < ends:  # also where the server sends no number
            raise OAuthFlowError("nobody logged in while the code was valid")
        await anyio.sleep(pause)


async def _read_refusal(response: httpx2.Response) -> str:
    try:
        error = _Refusal.model_validate_json(await response.aread()).error
    except ValidationError:
        error = f"HTTP {response.status_code}"
    return strip_hidden(error)[:_LONGEST_ERROR]


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
        if WEB_PAGE.fullmatch(page) is None:
            raise OAuthFlowError("the login is to be on what is no page of the web")
        self._state, self._answer = _read_query(urlsplit(page)).get("state", ""), {}
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
        query = _read_return(received.partition(b"\r\n")[0].decode("latin-1"))
        is_return = bool(self._state) and query.get("state") == self._state and not self._answer
        if is_return:
            self._answer = query
        text = _PAGE.format("You can close this page." if is_return else "This is not the login that is awaited.")
        status = "200 OK" if is_return else "400 Bad Request"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(text)}\r\nConnection: close"
        with anyio.move_on_after(_HEAD_SECONDS), suppress(anyio.BrokenResourceError):
            await stream.send(f"{head}\r\n\r\n{text}".encode())
        return is_return


def _read_return(line: str) -> dict[str, str]:
    """Return the query of a request's first line; nothing where it is not for the path of the return."""
    try:
        _, target, _ = line.split(" ")
        parts = urlsplit(target)
        return _read_query(parts) if parts.path == _PATH else {}
    except ValueError:
        return {}


def _read_query(parts: SplitResult) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(parts.query).items()}
