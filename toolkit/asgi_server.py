"""Serves a web application with uvicorn, reports when it is reachable, and shuts down cleanly when cancelled.

Requests must arrive in time, head and body.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.errors import ConfigurationError
from toolkit.logs import get_logger

_logger = get_logger("toolkit.asgi_server")
_CLOSE_SECONDS = 5.0
_KEEP_ALIVE_SECONDS = 15  # longer than clients, which would otherwise send on connections that are closing
_HEAD_SECONDS = 15.0
_BODY_SECONDS = 30.0


async def answer_in_time(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Have an application answer a request; one that is not whole in time ends with status 408.

    A client that disconnects before is no error.
    """
    if scope["type"] != "http":
        await app(scope, receive, send)
        return
    request = _TimedRequest(receive, send)
    try:
        await app(scope, request.receive, request.send)
    except ClientDisconnect:
        if request.is_late and not request.is_answered:
            await request.send({"type": "http.response.start", "status": 408, "headers": []})
            await request.send({"type": "http.response.body"})
        else:
            _logger.debug("a client went away before its request was whole")


class _TimedRequest:
    """A request that the application sees as one whose client went away, if it is not whole in time."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._deadline = anyio.current_time() + _BODY_SECONDS
        self._is_whole = False
        self.is_late = self.is_answered = False

    async def receive(self) -> Message:
        """Return the next message of the request."""
        if self._is_whole:
            return await self._receive()
        with anyio.move_on_after(self._deadline - anyio.current_time()):
            message = await self._receive()
            self._is_whole = not message.get("more_body", False)
            return message
        self.is_late = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a message of the answer."""
        self.is_answered = True
        if self.is_late and message["type"] == "http.response.start":
            message = {**message, "status": 408}
        await self._send(message)


def _make_protocol() -> type[Any]:
    """Return a protocol that ends a connection whose next head is not whole in time: that of uvicorn waits for ever."""
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415 - few programs serve anything

    class Protocol(H11Protocol):
        _timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head(None)

        def on_response_complete(self) -> None:
            answered = self.cycle
            super().on_response_complete()
            self._await_head(answered)

        def _await_head(self, answered: object) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(_HEAD_SECONDS, self._end_slow_head, answered)

        def _end_slow_head(self, answered: object) -> None:
            if self.cycle is answered:
                self.transport.close()

    return Protocol


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
        partial(answer_in_time, app),
        host=host,
        port=port,
        http=_make_protocol(),  # which bounds the length of a head, too
        ws="none",
        proxy_headers=False,  # anybody on this machine could choose an address
        interface="asgi3",
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
