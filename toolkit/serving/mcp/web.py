"""Streamable HTTP: as an application for a server of your own, and on uvicorn; only on loopback by default.

Hosts and pages that may call it are compared exactly, by scheme, host and port. Its users come with tokens: from a
table, a function or an OAuth issuer; how often each may ask has a bound.
"""

from __future__ import annotations

import hmac
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias, cast, overload, runtime_checkable
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import jwt
from anyio.abc import TaskStatus
from mcp.server import Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier, principal_components
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventCallback, EventMessage, EventStore
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import Unpack

from toolkit.asgi_server import answer_in_time, serve_app
from toolkit.calls.registration import Ctx
from toolkit.errors import ConfigurationError
from toolkit.json_text import parse_long_json
from toolkit.logs import get_logger
from toolkit.runtime.backend import cancellation_mark, start_detached
from toolkit.schema.nodes import count_parts
from toolkit.serving.mcp.server import ContextMaker, McpServerKeywords, mcp_server
from toolkit.settings import check_setting, describe_value
from toolkit.tools.registry import ToolRegistry

_logger = get_logger("toolkit.serving")

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST_TOKEN = 16_384
_NUMBER = re.compile("[0-9]{1,15}")
_COUNTED_CALLERS = 10_000

Holder: TypeAlias = str | AccessToken | None
"""The holder of a token: a user's name, the SDK's `AccessToken` with scopes and claims, or None if it is not valid."""

Auth: TypeAlias = str | Mapping[str, str | AccessToken] | Callable[[str], Holder | Awaitable[Holder]] | TokenVerifier
"""The tokens that a server takes: one, a table of holders by token, a function of the token, or a verifier."""


@runtime_checkable
class OAuthResource(Protocol):
    """A verifier of tokens that an OAuth server gives; clients are referred to that server when they are refused.

    They find it in the metadata of the protected resource (RFC 9728).
    """

    issuer: str
    """The URL of the OAuth server."""
    resource: str
    """The URL under which clients reach this server."""
    required_scopes: Sequence[str]
    """The scopes that each token must have."""


class JwtVerifier(TokenVerifier):
    """Verifies JSON Web Tokens of an OAuth issuer by the keys that it publishes (RFC 7519, RFC 7517).

    ::

        mcp_app(registry, context_for=..., auth=JwtVerifier("https://login.example.com", audience="https://here/mcp"))

    Signature, issuer, audience and expiry are checked. Only asymmetric algorithms are taken, so that no token can be
    signed with a public key. Keys are fetched when first needed, and again at most every 30 s.

    Args:
        issuer: The ``iss`` of its tokens.
        audience: The ``aud`` that tokens for this server have: the URL under which clients reach it.
        required_scopes: Scopes that each token must have.
        jwks_url: Where the issuer publishes its keys; ``/.well-known/jwks.json`` below the issuer by default.
        timeout: Seconds for fetching the keys.
    """

    def __init__(
        self,
        issuer: str,
        *,
        audience: str,
        required_scopes: Sequence[str] = (),
        jwks_url: str | None = None,
        timeout: float = 10,
    ) -> None:
        self.issuer = issuer
        self.resource = audience
        self.required_scopes = tuple(required_scopes)
        self._keys = jwt.PyJWKClient(jwks_url or f"{issuer.rstrip('/')}/.well-known/jwks.json", timeout=timeout)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token's user, scopes and claims, or None if it is not valid."""
        try:
            claims = await anyio.to_thread.run_sync(self._read_claims, token)
        except jwt.PyJWKClientConnectionError:
            _logger.exception("the keys of %s can't be fetched, so that no token is accepted", self.issuer)
            return None
        except jwt.PyJWTError as error:
            _logger.info("a token was refused: %s", error)
            return None
        subject = claims["sub"]
        scope = claims.get("scope", claims.get("scp", ()))
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or subject),
            scopes=scope.split() if isinstance(scope, str) else [str(each) for each in scope],
            expires_at=int(claims["exp"]),
            subject=subject,
            claims=claims,
        )

    def _read_claims(self, token: str) -> dict[str, Any]:
        key = self._keys.get_signing_key_from_jwt(token)
        options: Any = {"require": ["exp", "iss", "aud", "sub"]}
        return jwt.decode(
            token, key, algorithms=_ALGORITHMS, audience=self.resource, issuer=self.issuer, options=options
        )


class _TokenReader(TokenVerifier):
    """A verifier by a function of the token; tokens that are too long to be any are refused before they are read."""

    def __init__(self, find_holder: Callable[[str], Holder | Awaitable[Holder]]) -> None:
        self._find_holder = find_holder

    async def verify_token(self, token: str) -> AccessToken | None:
        if len(token) > _LONGEST_TOKEN:
            return None
        try:
            found = self._find_holder(token)
            holder = await found if isawaitable(found) else found
        except Exception:  # an error must not let anybody in
            _logger.exception("auth= failed, so that a token was refused")
            return None
        if isinstance(holder, str):
            return AccessToken(token=token, client_id=holder, scopes=[], subject=holder)
        if holder is None or isinstance(cast("object", holder), AccessToken):
            return holder
        _logger.error("auth= returned %s, not a user's name, an AccessToken or None", describe_value(holder))
        return None


def make_verifier(auth: Auth) -> TokenVerifier:
    """Return the verifier that `auth` means.

    Raises:
        ConfigurationError: It is none of the kinds of `Auth`.
    """
    given = cast("Any", auth)
    if isinstance(given, str):
        given = {given: AccessToken(token=given, client_id="token", scopes=[])}
    if isinstance(given, Mapping):
        table = [(token.encode(), holder) for token, holder in cast("Mapping[str, str | AccessToken]", given).items()]
        if not table or not all(token for token, _ in table):
            raise ConfigurationError("auth= has a token without text: everybody could call the tools")
        return _TokenReader(lambda token: _find_in_table(token, table))
    find = getattr(given, "verify_token", given)
    if not callable(find):
        raise ConfigurationError(
            f"auth= takes a token, a table of users by token, a function of the token or a TokenVerifier, not "
            f"{describe_value(given)}"
        )
    return _TokenReader(cast("Callable[[str], Holder]", find))


def _find_in_table(token: str, table: Iterable[tuple[bytes, str | AccessToken]]) -> Holder:
    """Compare with all tokens, so that the time reveals nothing about any."""
    found: Holder = None
    for known, holder in table:
        if hmac.compare_digest(known, token.encode()):
            found = holder
    return found


class RateBound:
    """Answers 429 to a caller who asks more than `per_minute` times a minute, with the seconds to wait.

    Callers are distinguished by their token's user, and without tokens by their address. Each has a bucket of
    `per_minute` requests that fills evenly; the buckets of the last 10,000 callers are kept.
    """

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self._app = app
        self._per_minute = per_minute
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        wait = self._take_request(_find_caller(scope)) if scope["type"] == "http" else 0.0
        if wait > 0:
            refusal = PlainTextResponse("Too many requests.", 429, {"Retry-After": str(int(wait) + 1)})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _take_request(self, caller: object) -> float:
        """Take one request from a caller's bucket, or return the seconds until there is one."""
        now, rate = anyio.current_time(), self._per_minute / 60
        left, before = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - before) * rate)
        taken = left >= 1
        self._buckets[caller] = (left - 1 if taken else left, now)
        if len(self._buckets) > _COUNTED_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) / rate


def _find_caller(scope: Scope) -> object:
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return principal_components(user.access_token)
    return (scope.get("client") or ("",))[0]


class SessionStreams:
    """The messages of one session, for clients that come back for them.

    Of each stream the last 100 are kept, of the streams that have their answer the last 20.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[str, deque[tuple[int, JSONRPCMessage]]] = OrderedDict()
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._count = 0
        self._changed = anyio.Event()

    def store(self, stream: str, message: JSONRPCMessage | None) -> str:
        """Store a message, or None at the beginning of a stream; return its id."""
        self._count += 1
        if message is None:
            self._streams[stream] = deque(maxlen=_MOST_STREAM_MESSAGES)
            self._answered.pop(stream, None)
        else:
            messages = self._streams.setdefault(stream, deque(maxlen=_MOST_STREAM_MESSAGES))
            messages.append((self._count, message))
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._answered[stream] = None
        while len(self._answered) > _MOST_ANSWERED_STREAMS:
            self._streams.pop(self._answered.popitem(last=False)[0], None)
        self._changed.set()
        self._changed = anyio.Event()
        return f"{stream}:{self._count}"

    async def replay(self, last_id: str, send: EventCallback, seconds: float) -> None:
        """Send what came after a message, and what comes, until the answer has come or the time is over."""
        stream, _, number = last_id.rpartition(":")
        last = int(number) if _NUMBER.fullmatch(number) else 0
        with anyio.move_on_after(seconds):
            while True:
                changed, messages = self._changed, self._streams.get(stream)
                if messages is None:
                    error = ErrorData(code=INVALID_REQUEST, message="The answer is not available any more.")
                    await send(EventMessage(JSONRPCError(jsonrpc="2.0", id=stream, error=error)))
                    return
                for count, message in [each for each in messages if each[0] > last]:
                    await send(EventMessage(message, f"{stream}:{count}"))
                    last = count
                if stream in self._answered:
                    return
                await changed.wait()


_session: ContextVar[SessionStreams] = ContextVar("toolkit_mcp_session_streams")
"""The streams of the session of the current request: the SDK has one store for all sessions, of the same ids."""


class _ResumableStreams(EventStore):
    """Ends streams of answers, and lets the clients come back for the rest.

    A stream that is resumed is read from here alone: the SDK, which would go on with it, may lose messages in between.
    """

    def __init__(self, seconds: float, server: Server[Any]) -> None:
        check_setting("stream_seconds", seconds, float, int)
        self._seconds = seconds
        server.middleware.append(self.end_long_streams)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store a message of the session of this request."""
        return _session.get().store(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Send the messages of the session of this request that came after one, and those that come."""
        await _session.get().replay(last_event_id, send_callback, self._seconds)

    async def end_long_streams(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve a request, whose stream is ended where it takes long and the client can come back."""
        end_stream, scope = ctx.close_sse_stream, anyio.CancelScope()
        if end_stream is None:
            return await call_next(ctx)

        async def end_later() -> None:
            with scope:
                await anyio.sleep(self._seconds)
                await end_stream()

        start_detached(end_later)
        try:
            return await call_next(ctx)
        finally:
            scope.cancel()


# The SDK's own check compares beginnings; what `OriginGuard` compares are whole hosts and ports.
_UNCHECKED = TransportSecuritySettings(enable_dns_rebinding_protection=False)
_PATH = "/mcp"
_LAST_PORT = 65_535
_IDLE_SECONDS = 1_800.0
_LONG_BODY = 50_000
_LARGEST_READ = 4 * 2**20  # the SDK refuses what is larger
_MOST_PARTS = 10_000
_RETRY_MILLISECONDS = 500
_MOST_STREAM_MESSAGES = 100
_MOST_ANSWERED_STREAMS = 20


class McpAppKeywords(McpServerKeywords, total=False):
    """The keywords of `mcp_app`, which documents them."""

    path: str
    auth: Auth | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    sessions: bool
    max_sessions: int
    stream_seconds: float | None
    requests_per_minute: int | None


class McpHttpKeywords(McpAppKeywords, total=False):
    """The keywords of `serve_mcp_http`, which documents them."""

    host: str
    port: int
    task_status: TaskStatus[str]


@overload
def mcp_app(registry: ToolRegistry[object], ctx: object = None, **options: Unpack[McpAppKeywords]) -> Starlette: ...
@overload
def mcp_app(registry: ToolRegistry[Ctx], ctx: Ctx, **options: Unpack[McpAppKeywords]) -> Starlette: ...
@overload
def mcp_app(
    registry: ToolRegistry[Ctx],
    *,
    context_for: ContextMaker[Ctx],
    tools_for: Callable[[Ctx], ToolRegistry[Ctx]] | None = None,
    **options: Unpack[McpAppKeywords],
) -> Starlette: ...
def mcp_app(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    path: str = _PATH,
    auth: Auth | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    sessions: bool = True,
    max_sessions: int = 10_000,
    stream_seconds: float | None = None,
    requests_per_minute: int | None = 6_000,
    **options: Any,
) -> Starlette:
    """Return an ASGI application that serves a registry over streamable HTTP, for any server, on asyncio or trio.

    ::

        app = mcp_app(ToolRegistry([search]), auth=token, allowed_hosts=["tools.example.com"])

    A page that a browser has open must not reach the tools: requests for a host or from an origin that is neither
    loopback nor allowed are refused. A session is only for the user who opened it. Requests have at most 4 MiB, which
    arrive within 30 s. To mount it, give its lifespan to the application around it:
    ``Starlette(routes=[Mount("/", app)], lifespan=app.router.lifespan_context)``.

    Args:
        registry: As for `mcp_server`, like `ctx`.
        ctx: For each call.
        path: Where it is.
        auth: The tokens that it takes, as ``Authorization: Bearer ...``: one token for everybody; a table of users by
            token; a function, also async, that returns the user of a token, an `AccessToken`, or None; or a verifier
            such as `JwtVerifier`. None asks for none.
        allowed_hosts: Hosts besides loopback, such as ``tools.example.com``, or ``tools.example.com:*`` for any port.
        allowed_origins: Origins besides loopback whose pages may call, such as ``https://app.example.com``.
        sessions: False serves clients of older revisions without sessions, so that any process may answer any request;
            such clients can't be asked for approval. Current ones have no sessions.
        max_sessions: How many sessions may be open at once; each ends after 30 minutes without a request.
        stream_seconds: Seconds after which the stream of an answer is ended; a client of the revision of 2025-11-25
            comes back for the rest, also after a lost connection. None ends no stream, and stores no answers.
        requests_per_minute: How often each user may ask, or each address without `auth`; None for no bound.
        options: Those of `mcp_server`.

    Raises:
        ConfigurationError: The settings don't fit together.
    """
    check_setting("sessions", sessions, True, False)
    server = mcp_server(registry, ctx, **options)
    app = server.streamable_http_app(
        streamable_http_path=path,
        stateless_http=not sessions,
        max_sessions=max_sessions,
        session_idle_timeout=_IDLE_SECONDS,
        event_store=None if stream_seconds is None else _ResumableStreams(stream_seconds, server),
        retry_interval=_RETRY_MILLISECONDS,
        transport_security=_UNCHECKED,
        **_read_auth(auth),
    )
    if requests_per_minute is not None:  # inside of what finds out who asks
        app.user_middleware.append(Middleware(RateBound, per_minute=requests_per_minute))
    app.add_middleware(_Guarded, guard=OriginGuard(allowed_hosts, allowed_origins))
    return app


def _read_auth(auth: Auth | None) -> dict[str, Any]:
    """Return the SDK's settings for tokens."""
    if auth is None:
        return {}
    given: object = auth
    announced = given if isinstance(given, OAuthResource) else None
    settings: dict[str, object] = {
        # As text: a URL would gain a slash, and be another issuer. Without one no metadata is served that shows it.
        "issuer_url": announced.issuer if announced else "https://issuer.invalid",
        "resource_server_url": announced.resource if announced else None,
        "required_scopes": list(announced.required_scopes) if announced else [],
        "validate_token_resource": False,  # the audience is the verifier's to check
    }
    return {"auth": AuthSettings.model_validate(settings), "token_verifier": make_verifier(auth)}


@overload
async def serve_mcp_http(
    registry: ToolRegistry[object], ctx: object = None, **options: Unpack[McpHttpKeywords]
) -> None: ...
@overload
async def serve_mcp_http(registry: ToolRegistry[Ctx], ctx: Ctx, **options: Unpack[McpHttpKeywords]) -> None: ...
@overload
async def serve_mcp_http(
    registry: ToolRegistry[Ctx],
    *,
    context_for: ContextMaker[Ctx],
    tools_for: Callable[[Ctx], ToolRegistry[Ctx]] | None = None,
    **options: Unpack[McpHttpKeywords],
) -> None: ...
async def serve_mcp_http(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """Serve a registry over streamable HTTP until this is cancelled or the process is interrupted.

    ::

        anyio.run(serve_mcp_http, ToolRegistry([search]))  # http://127.0.0.1:8000/mcp

    Started by ``await tasks.start(...)`` of a task group, it reports its URL when it can be reached. It runs on
    uvicorn, and so on asyncio: on trio, give `mcp_app` to a server that runs there.

    Args:
        registry: As for `mcp_server`.
        ctx: As for `mcp_server`.
        host: The address to listen on. Other addresses than loopback require `auth` and `allowed_hosts`.
        port: The port to listen on; 0 takes a free one.
        task_status: Receives the URL.
        options: Those of `mcp_app`.

    Raises:
        ConfigurationError: The network could call the tools without a token, or this runs on trio.
        OSError: The port is in use.
    """
    if cancellation_mark() is None:
        raise ConfigurationError("uvicorn runs on asyncio: on trio, give mcp_app(...) to a server such as hypercorn")
    if host not in LOOPBACK and not (options.get("auth") and options.get("allowed_hosts")):
        raise ConfigurationError(
            f"on {host} everybody in the network could call the tools: give auth='a token', and allowed_hosts= with "
            "the names under which the server is reached"
        )
    app = mcp_app(registry, ctx, **options)
    shown = f"[{host}]" if ":" in host else host
    await serve_app(
        app, host, port, lambda port: task_status.started(f"http://{shown}:{port}{options.get('path', _PATH)}")
    )


async def _check_parts(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Have an application answer a request; one that has too many parts is refused before the SDK reads it at once."""
    messages: list[Message] = []
    size = 0
    while scope["type"] == "http" and size <= _LARGEST_READ:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
        if not messages[-1].get("more_body", False):
            break
    if _LONG_BODY < size <= _LARGEST_READ:
        body = b"".join(message.get("body", b"") for message in messages)
        if not await anyio.to_thread.run_sync(_has_few_parts, body):
            await PlainTextResponse(f"A request has at most {_MOST_PARTS:,} objects and lists.", 413)(
                scope, receive, send
            )
            return
    waiting = iter(messages)

    async def receive_again() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    await app(scope, receive_again, send)


def _has_few_parts(body: bytes) -> bool:
    try:
        return count_parts(parse_long_json(body), _MOST_PARTS) <= _MOST_PARTS
    except ValueError:  # the SDK says what is wrong
        return True


class _Guarded:
    """Accepts only requests for an allowed host and from an allowed page, which arrive in time; finds their session."""

    def __init__(self, app: ASGIApp, guard: OriginGuard) -> None:
        self._app = app
        self._guard = guard
        # The tasks of a session hold its streams, as their context is that of the request that opened it.
        self._sessions: WeakValueDictionary[str, SessionStreams] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = None
        if not self._guard.allows_host(headers.getlist("host")):
            refusal = PlainTextResponse("Invalid Host header", 421)
        elif not self._guard.allows_origin(headers.getlist("origin")):
            refusal = PlainTextResponse("Invalid Origin header", 403)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        streams = self._sessions.get(headers.get(MCP_SESSION_ID_HEADER, "")) or SessionStreams()

        async def send_and_note(message: Message) -> None:
            session = Headers(raw=message.get("headers", [])).get(MCP_SESSION_ID_HEADER)
            if session is not None:
                self._sessions.setdefault(session, streams)
            await send(message)

        before = _session.set(streams)
        try:
            await answer_in_time(partial(_check_parts, self._app), scope, receive, send_and_note)
        finally:
            _session.reset(before)


LOOPBACK = ("127.0.0.1", "localhost", "::1")

_PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}|\*))?"
)
_Place: TypeAlias = tuple[str, str, int | str | None]
"""The scheme of an origin, empty for a host; the host; and the port, ``*`` for any."""


class OriginGuard:
    """Decides by the headers of a request; loopback is allowed at any port.

    Args:
        hosts: More hosts, such as ``tools.example.com``, ``tools.example.com:8443`` or, for any port,
            ``tools.example.com:*``.
        origins: More origins, such as ``https://app.example.com`` or ``https://app.example.com:8443``.

    Raises:
        ConfigurationError: One can't be read.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._allowed: set[_Place] = {(scheme, host, "*") for scheme in ("", *_PORTS) for host in LOOPBACK}
        for host in hosts:
            self._allowed.add(_check_place(host, "host", "'tools.example.com', or 'tools.example.com:*' for any port"))
        for origin in origins:
            self._allowed.add(_check_place(origin, "origin", "'https://app.example.com'"))

    def allows_host(self, values: Sequence[str]) -> bool:
        """Return whether the ``Host`` headers of a request are one, and name an allowed host."""
        return len(values) == 1 and self._allows_place(_read_place(values[0], is_origin=False))

    def allows_origin(self, values: Sequence[str]) -> bool:
        """Return whether the ``Origin`` headers of a request are none, as of a program, or one that is allowed."""
        return not values or (len(values) == 1 and self._allows_place(_read_place(values[0], is_origin=True)))

    def _allows_place(self, asked: _Place | None) -> bool:
        if asked is None or asked[2] == "*":
            return False
        return asked in self._allowed or (*asked[:2], "*") in self._allowed


def _check_place(text: str, kind: str, example: str) -> _Place:
    place = _read_place(text, is_origin=kind == "origin")
    if place is None:
        raise ConfigurationError(f"{text!r} is no {kind}: write one like {example}")
    return place


def _read_place(text: str, *, is_origin: bool) -> _Place | None:
    """Return a host or an origin, with the port of its scheme where it names none; None where it is neither."""
    found = _PLACE.fullmatch(text)
    if found is None or (found["scheme"] is not None) != is_origin:
        return None
    scheme, port = (found["scheme"] or "").lower(), found["port"]
    number: int | str | None = int(port) if port and port != "*" else port or _PORTS.get(scheme)
    if isinstance(number, int) and number > _LAST_PORT:
        return None
    return scheme, found["host"].strip("[]").lower(), number
