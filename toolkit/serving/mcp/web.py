"""Streamable HTTP: as an application for a server of your own, and on uvicorn; only on loopback by default.

Hosts and pages that may call it are compared exactly, by scheme, host and port.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import anyio
from anyio.abc import TaskStatus
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import Unpack

from toolkit.calls.registration import Ctx
from toolkit.errors import ConfigurationError
from toolkit.runtime.backend import cancellation_mark
from toolkit.serving.mcp.server import CrashReport, McpServerKeywords, mcp_server
from toolkit.tools.registry import ToolRegistry
from toolkit.web_server import serve_app

_logger = logging.getLogger("toolkit.serving")

_PATH = "/mcp"


class McpAppKeywords(McpServerKeywords, total=False):
    """The keywords of `mcp_app`, which documents them."""

    path: str
    bearer: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]


@overload
def mcp_app(
    registry: ToolRegistry[object],
    ctx: object = None,
    **options: Unpack[McpAppKeywords],
) -> Starlette: ...
@overload
def mcp_app(
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    **options: Unpack[McpAppKeywords],
) -> Starlette: ...
def mcp_app(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    name: str = "toolkit",
    instructions: str | None = None,
    crashes: CrashReport = "reference",
    path: str = _PATH,
    bearer: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
) -> Starlette:
    """Return an ASGI application that serves a registry over streamable HTTP, for any server, on asyncio or trio.

    ::

        app = mcp_app(ToolRegistry([search]), bearer=token, allowed_hosts=["tools.example.com"])

    A page that a browser has open must not reach the tools: requests for a host or from an origin that is neither
    loopback nor allowed are refused.

    Args:
        registry: As for `mcp_server`.
        ctx: As for `mcp_server`.
        name: The name of the server.
        instructions: A text about the server that clients may pass to their models.
        crashes: As for `mcp_server`.
        path: Where it is.
        bearer: The token that each request must have, as ``Authorization: Bearer ...``; None asks for none.
        allowed_hosts: Host names besides loopback under which it is reached, such as ``tools.example.com`` or, for
            any port, ``tools.example.com:*``.
        allowed_origins: Origins besides loopback whose pages may call, such as ``https://app.example.com``.
    """
    guard = OriginGuard(allowed_hosts, allowed_origins)
    server = mcp_server(registry, ctx, name=name, instructions=instructions, crashes=crashes)
    # The SDK's own check compares beginnings; what is compared here are whole hosts and ports.
    unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(streamable_http_path=path, transport_security=unguarded)
    if bearer is not None:
        app.add_middleware(_Bearer, token=bearer)
    app.add_middleware(_Guarded, guard=guard)
    return app


@overload
async def serve_mcp_http(
    registry: ToolRegistry[object],
    ctx: object = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    **options: Unpack[McpAppKeywords],
) -> None: ...
@overload
async def serve_mcp_http(
    registry: ToolRegistry[Ctx],
    ctx: Ctx,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    **options: Unpack[McpAppKeywords],
) -> None: ...
async def serve_mcp_http(
    registry: ToolRegistry[Any],
    ctx: Any = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    **options: Unpack[McpAppKeywords],
) -> None:
    """Serve a registry over streamable HTTP until this is cancelled or the process is interrupted.

    ::

        anyio.run(serve_mcp_http, ToolRegistry([search]))  # http://127.0.0.1:8000/mcp

    Started by ``await tasks.start(...)`` of a task group, it reports its URL when it can be reached. It runs on
    uvicorn, and so on asyncio: on trio, give `mcp_app` to a server that runs there.

    Args:
        registry: As for `mcp_server`.
        ctx: As for `mcp_server`.
        host: The address to listen on. Other addresses than loopback require a `bearer` and `allowed_hosts`.
        port: The port to listen on; 0 takes a free one.
        task_status: Receives the URL.
        options: Those of `mcp_app`.

    Raises:
        ConfigurationError: The network could call the tools without a token, or this runs on trio.
        OSError: The port is in use.
    """
    if cancellation_mark() is None:
        raise ConfigurationError("uvicorn runs on asyncio: on trio, give mcp_app(...) to a server such as hypercorn")
    if host not in LOOPBACK and not (options.get("bearer") and options.get("allowed_hosts")):
        raise ConfigurationError(
            f"on {host} everybody in the network could call the tools: give bearer='a token', and allowed_hosts= with "
            "the names under which the server is reached"
        )
    app = mcp_app(registry, ctx, **options)
    shown = f"[{host}]" if ":" in host else host
    await serve_app(
        app, host, port, lambda port: task_status.started(f"http://{shown}:{port}{options.get('path', _PATH)}")
    )


class _Guarded:
    """Accepts only requests for an allowed host and from an allowed page. A client that disconnects is no error."""

    def __init__(self, app: ASGIApp, guard: OriginGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            refusal = None
            if not self._guard.allows_host(headers.getlist("host")):
                refusal = PlainTextResponse("Invalid Host header", 421)
            elif not self._guard.allows_origin(headers.getlist("origin")):
                refusal = PlainTextResponse("Invalid Origin header", 403)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            _logger.debug("a client went away before its request was whole")


class _Bearer:
    """Lets pass only requests with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            if not (scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)):
                refusal = PlainTextResponse("A bearer token is needed.", 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


LOOPBACK = ("127.0.0.1", "localhost", "::1")

_ORIGIN_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}|\*))?")
_ORIGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>[^/?#@\\\s]+)")


@dataclass(frozen=True, slots=True)
class _Place:
    """A host and a port; None means the default one, ``*`` any."""

    host: str
    port: int | str | None


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
        self._hosts = [_Place(host, "*") for host in LOOPBACK] + [_read_host(host) for host in hosts]
        self._origins = [(scheme, _Place(host, "*")) for scheme in _ORIGIN_PORTS for host in LOOPBACK]
        for origin in origins:
            read = _read_origin(origin)
            if read is None:
                raise ConfigurationError(f"{origin!r} is no origin: write one like 'https://app.example.com'")
            self._origins.append(read)

    def allows_host(self, values: Sequence[str]) -> bool:
        """Return whether the ``Host`` headers of a request are one, and name an allowed host."""
        asked = _read_place(values[0]) if len(values) == 1 else None
        return asked is not None and asked.port != "*" and any(_is_meant(asked, place, None) for place in self._hosts)

    def allows_origin(self, values: Sequence[str]) -> bool:
        """Return whether the ``Origin`` headers of a request are none, as of a program, or one that is allowed."""
        if not values:
            return True
        read = _read_origin(values[0]) if len(values) == 1 else None
        if read is None or read[1].port == "*":
            return False
        scheme, place = read
        return any(
            scheme == allowed and _is_meant(place, meant, _ORIGIN_PORTS.get(scheme)) for allowed, meant in self._origins
        )


def _is_meant(asked: _Place, meant: _Place, default_port: int | None) -> bool:
    if asked.host != meant.host:
        return False
    return meant.port == "*" or (asked.port or default_port) == (meant.port or default_port)


def _read_host(host: str) -> _Place:
    place = _read_place(host)
    if place is None:
        raise ConfigurationError(
            f"{host!r} is no host: write one like 'tools.example.com', or 'tools.example.com:*' for any port"
        )
    return place


def _read_place(text: str) -> _Place | None:
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = found["port"]
    if port is not None and port != "*":
        port = int(port)
        if port > 65535:
            return None
    return _Place(found["host"].strip("[]").lower(), port)


def _read_origin(text: str) -> tuple[str, _Place] | None:
    found = _ORIGIN.fullmatch(text)
    place = None if found is None else _read_place(found["place"])
    return None if found is None or place is None else (found["scheme"].lower(), place)
