"""An interface without a browser: it asks an ASGI application, and reads the events of the answer as they come."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette

Event = dict[str, Any]


class Answer:
    """The answer of an application, while it comes.

    Attributes:
        status: Its status.
        ids: The ids of the events that were read.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ids: list[str] = []
        self.body = b""
        self._more = anyio.Event()
        self._is_over = False

    def take(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self._is_over = not message.get("more_body", False)
        more, self._more = self._more, anyio.Event()
        more.set()

    async def next(self) -> Event | None:
        """Return the next event; None at the end."""
        while True:
            frame, end, rest = self.body.partition(b"\n\n")
            if end:
                self.body = rest
                lines = dict(line.split(": ", 1) for line in frame.decode().splitlines() if not line.startswith(":"))
                if lines.get("data", "[DONE]") != "[DONE]":
                    self.ids.append(lines.get("id", ""))
                    found: Event = json.loads(lines["data"])
                    return found
            elif self._is_over:
                return None
            else:
                await self._more.wait()

    async def until(self, kind: str) -> Event:
        """Return the next event of a type."""
        while (event := await self.next()) is not None:
            if event["type"] == kind:
                return event
        raise AssertionError(f"the answer ended without {kind}: {self.status} {self.body!r}")

    async def rest(self) -> list[Event]:
        """Return all events that follow, to the end."""
        return [event async for event in self._read()]

    async def _read(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event

    async def text(self) -> str:
        """Return the body of an answer that is no stream."""
        while not self._is_over:
            await self._more.wait()
        return self.body.decode()


@asynccontextmanager
async def asking(
    app: Starlette,
    path: str,
    body: Any = None,
    *,
    method: str = "",
    kind: str = "application/json",
    slow: anyio.Event | None = None,
    left: anyio.Event | None = None,
    **headers: str,
) -> AsyncGenerator[Answer]:
    """Ask an application; leaving the block ends the connection.

    Args:
        slow: Set when the client reads on, after its first event.
        left: Set when it has left.
    """
    answer, left = Answer(), left or anyio.Event()
    sent = [body if isinstance(body, bytes) else json.dumps(body).encode()]
    named = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "server": ("localhost", 80),
    }

    async def receive() -> dict[str, Any]:
        if sent:
            return {"type": "http.request", "body": sent.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await anyio.lowlevel.checkpoint()
        answer.take(message)
        if slow is not None and answer.body:
            await slow.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, receive, send)
        with anyio.fail_after(240):
            yield answer
        left.set()


async def ask(app: Starlette, path: str, body: Any = None, **options: Any) -> list[Event]:
    """Ask an application and return all events of its answer."""
    async with asking(app, path, body, **options) as answer:
        events = await answer.rest()
        assert answer.status == 200, answer.body
        return events
