"""Serves a web application with uvicorn, reports when it is reachable, and shuts down cleanly when cancelled."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import anyio

from toolkit.errors import ConfigurationError

_CLOSE_SECONDS = 5.0
_KEEP_ALIVE_SECONDS = 15  # longer than clients, which would otherwise send on connections that are closing


async def serve_app(
    app: Any, host: str, port: int, is_reached: Callable[[int], None], end_streams: Callable[[], None] | None = None
) -> None:
    """Serve an ASGI application until cancelled, or until the process is interrupted.

    Args:
        app: The application.
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        is_reached: Called with the port once the server is reachable.
        end_streams: Called before the server waits for open responses, to end endless streams.

    Raises:
        ConfigurationError: uvicorn is not installed.
        OSError: The port is in use.
    """
    try:
        import uvicorn  # noqa: PLC0415 - few programs serve anything
    except ImportError as error:
        raise ConfigurationError("uvicorn is not installed: pip install 'toolkit-sdk[ui]' or [mcp]") from error

    class Server(uvicorn.Server):
        is_shut = False

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            is_reached(listening.getsockname()[1])

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            self.is_shut = True
            if end_streams is not None:
                end_streams()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        listening.setblocking(False)
        server = Server(config)
        try:
            await server.serve(sockets=[listening])
        finally:
            if server.started and not server.is_shut:  # uvicorn leaves its connections open when its task is cancelled
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await server.shutdown([listening])
