"""Streamable HTTP: as an application for a server of your own, and on uvicorn. Loopback unless you say otherwise."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence
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

from toolkit.calls.handler import Ctx
from toolkit.errors import ConfigurationError
from toolkit.runtime.backend import cancellation_mark
from toolkit.serving.mcp.origins import LOOPBACK, OriginGuard
from toolkit.serving.mcp.server import CrashReport, McpServerKeywords, mcp_server
from toolkit.tools.registry import ToolRegistry
from toolkit.web_server import serve_app

__all__ = ["McpAppKeywords", "mcp_app", "serve_mcp_http"]

_logger = logging.getLogger("toolkit.serving")

_PATH = "/mcp"


class McpAppKeywords(McpServerKeywords, total=False):
    """The keywords of `mcp_app`, which says what they mean."""

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
        instructions: A text about the server that clients may give their models.
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

    Started by ``await tasks.start(...)`` of a task group, it gives its URL once it can be reached. It runs on uvicorn,
    and so on asyncio: on trio, give `mcp_app` to a server that runs there.

    Args:
        registry: As for `mcp_server`.
        ctx: As for `mcp_server`.
        host: Where to listen. Elsewhere than on loopback it takes a `bearer` and `allowed_hosts`.
        port: Where to listen; 0 takes one that is free.
        task_status: Told of the URL.
        options: Those of `mcp_app`.

    Raises:
        ConfigurationError: The network could call the tools without a token, or this runs on trio.
        OSError: The port is taken.
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
    """Lets pass only requests for a host, and from a page, that are allowed. A client that goes away is no error."""

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
