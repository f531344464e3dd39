"""One request over HTTP: sent by an SDK's client, read here, within its deadline, closed however it ends.

The SDKs build the request, sign it and hold the connections. The replies are read here, because their parsers
fail on what compatible servers leave out or add, and because their streams are not closed on every way out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
import httpx2
from anyio.lowlevel import RunVar
from pydantic_core import from_json

from toolkit.errors import ConfigurationError
from toolkit.http_replies import ReplyTooLargeError, check_json_parts, closed_with, read_bounded
from toolkit.providers.encoding import as_mapping
from toolkit.providers.failures import Failures, request_id_of
from toolkit.settings import check_setting

__all__ = [
    "AnswerPieces",
    "checked_headers",
    "ClientOfLoop",
    "ServerEventReader",
    "Exchange",
    "Send",
    "WholeAnswer",
]


ClientT = TypeVar("ClientT")

_PATIENCE_AFTER_DONE = 0.2
_MOST_INSTEAD = 65_536
_EVENT_PREFIXES = (b"data:", b"event:", b"id:", b"retry:", b":")


class ClientOfLoop(Generic[ClientT]):
    """A client for each event loop, made at its first use: connections belong to the loop that opened them.

    Args:
        make: Makes one; nothing is opened yet.
        close: Closes one, and may be called again.
        is_closed: True where one is closed; the next use makes another.
    """

    def __init__(
        self,
        make: Callable[[], ClientT],
        *,
        close: Callable[[ClientT], Awaitable[None]],
        is_closed: Callable[[ClientT], bool],
    ) -> None:
        self._make = make
        self._close = close
        self._is_closed = is_closed
        self._run_client: RunVar[ClientT] = RunVar("client")

    def get(self) -> ClientT:
        """Return the client of the running event loop."""
        client = self._run_client.get(None)
        if client is None or self._is_closed(client):
            client = self._make()
            self._run_client.set(client)
        return client

    async def aclose(self) -> None:
        """Close the client of the running event loop, if there is one; cancellation waits for it."""
        client = self._run_client.get(None)
        if client is not None:
            with anyio.CancelScope(shield=True):
                await self._close(client)


class Send(Protocol):
    """Posts a body through an SDK's client."""

    def __call__(self, body: bytes, *, streams: bool, timeout: float | None) -> Awaitable[httpx2.Response]:
        """Return the response; a successful one's body is not read yet.

        Raises the SDK's exception for any failure, including a status of 400 or above.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """A whole answer: the JSON object in it, and the server's name for the request."""

    json: dict[str, Any]
    request_id: str | None = None


class AnswerPieces:
    """An answer in pieces: iterate it once, for the data of the events that came together.

    Attributes:
        request_id: The server's name for the request.
    """

    def __init__(
        self, pieces: AsyncIterator[bytes], *, content_type: str, request_id: str | None, deadline: float | None
    ) -> None:
        self.request_id = request_id
        self._pieces = pieces
        self._content_type = content_type
        self._deadline = deadline
        self._reader = ServerEventReader()
        self._before_events: bytes | None = b""

    def __aiter__(self) -> AnswerPieces:
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._reader.is_done:
            received = await self._receive_piece(self._deadline)
            if not received:
                return self._read_plain_error()
            events = self._reader.feed(received)
            for event in events:
                check_json_parts(event)
            await self._read_end()
            if events:
                self._before_events = None
                return events
            if self._before_events is not None and len(self._before_events) < _MOST_INSTEAD:
                self._before_events += received
        raise StopAsyncIteration

    def _read_plain_error(self) -> list[bytes]:
        """Return the text received in place of events if it reports an error, as some servers do in plain JSON.

        Raises:
            StopAsyncIteration: Nothing came, or the events are over, or the first was cut off.
            ValueError: It is something else.
        """
        came, self._before_events = (self._before_events or b"").strip(), None
        if not came or "event-stream" in self._content_type or came.startswith(_EVENT_PREFIXES):
            raise StopAsyncIteration
        with suppress(ValueError):
            if as_mapping(from_json(came)).get("error"):
                return [came]
        raise ValueError(f"{self._content_type}, without events")

    async def _receive_piece(self, deadline: float | None) -> bytes:
        if deadline is None:
            return await anext(self._pieces, b"")
        seconds = deadline - anyio.current_time()
        if seconds <= 0:  # data that has arrived would be returned without checking the clock
            raise TimeoutError
        # A scope may not stay open over a yield, so each piece has one of its own.
        with anyio.fail_after(seconds):
            return await anext(self._pieces, b"")

    async def _read_end(self) -> None:
        # Most servers end where they are done; reading the end keeps the connection for the next request.
        if not self._reader.is_done:
            return
        with anyio.move_on_after(_PATIENCE_AFTER_DONE):
            while await self._receive_piece(None):
                pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Sends bodies and gives answers, with whatever goes wrong as one of our errors.

    Args:
        send: Posts a body.
        failures: Makes the errors.
        raised: The base class of the SDK's exceptions, in addition to those of the HTTP client.
    """

    send: Send
    failures: Callable[[], Failures]
    raised: type[Exception]

    async def ask(self, body: bytes, *, timeout: float | None) -> WholeAnswer:
        """Return the whole answer.

        Args:
            body: The JSON of the request.
            timeout: Seconds for all of it; None leaves it to the client.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
        """
        async with self._translate_errors(timeout):
            with anyio.fail_after(timeout):
                response = await self.send(body, streams=False, timeout=timeout)
                content = await read_bounded(response)
            request_id = request_id_of(response.headers)
            check_json_parts(content)
            try:
                found: object = from_json(content)
            except ValueError as error:
                raise self._make_no_answer(response) from error
            if not isinstance(found, dict):
                raise self._make_no_answer(response)
            return WholeAnswer(json=cast("dict[str, Any]", found), request_id=request_id)

    @asynccontextmanager
    async def listen(self, body: bytes, *, timeout: float | None) -> AsyncGenerator[AnswerPieces]:
        """Give the answer in pieces; leaving the block closes the connection.

        A `ValueError` that the block raises for a piece that is not JSON is reported as a bad answer.

        Args:
            body: The JSON of the request.
            timeout: Seconds from here to the end of the answer; None leaves it to the client.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
        """
        deadline = None if timeout is None else anyio.current_time() + timeout
        async with self._translate_errors(timeout):
            with anyio.fail_after(timeout):
                response = await self.send(body, streams=True, timeout=timeout)
            async with closed_with(response) as pieces:
                content_type = response.headers.get("content-type", "no content type")
                if "html" in content_type:
                    raise self._make_no_answer(response)
                request_id = request_id_of(response.headers)
                try:
                    yield AnswerPieces(pieces, content_type=content_type, request_id=request_id, deadline=deadline)
                except ReplyTooLargeError:
                    raise
                except (ValueError, ArithmeticError, RecursionError) as error:
                    raise self.failures().not_an_answer(str(error), request_id=request_id) from error

    @asynccontextmanager
    async def _translate_errors(self, timeout: float | None) -> AsyncGenerator[None]:
        try:
            yield
        except TimeoutError as error:
            raise self.failures().late(timeout or 0) from error
        except (httpx2.HTTPError, ValueError, ArithmeticError, RecursionError, self.raised) as error:
            failures = self.failures()
            raise failures.of(error) from failures.cause_of(error)

    def _make_no_answer(self, response: httpx2.Response) -> Exception:
        found = response.headers.get("content-type", "no content type")
        return self.failures().not_an_answer(found, request_id=request_id_of(response.headers))


def checked_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the headers where a request can carry them.

    Raises:
        ConfigurationError: It can't; no value is shown, since it may be a secret.
    """
    check_setting("headers", headers, Mapping, None)
    for name, value in (headers or {}).items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a number or bytes, say
            raise ConfigurationError(f"the header '{name}' must be text, not a {type(value).__name__}")
        if not value.isascii() or not value.isprintable():
            raise ConfigurationError(f"the header '{name}' has letters that no header can hold")
    return headers or {}


_MOST_LINE_BYTES = 32 * 2**20
_MOST_EVENT_LINES = 4_000_000


class ServerEventReader:
    """Cuts the bytes of an event stream into the data of its events, in time linear in their number.

    Attributes:
        is_done: True after the server has sent ``[DONE]``; anything that follows is ignored.
    """

    def __init__(self) -> None:
        self.is_done: bool = False
        self._rest = bytearray()  # of a line that has not ended
        self._data: list[bytes] = []
        self._lines = 0

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are now complete.

        Raises:
            ReplyTooLargeError: A line has no end, or there are too many.
        """
        end = received.rfind(b"\n")
        self._rest += received[: end + 1] if end >= 0 else received
        if len(self._rest) > _MOST_LINE_BYTES:
            raise ReplyTooLargeError(f"a line of the stream is larger than {_MOST_LINE_BYTES} bytes")
        if end < 0:
            return []
        lines = bytes(self._rest[:-1]).split(b"\n")
        self._rest = bytearray(received[end + 1 :])
        self._lines += len(lines)
        if self._lines > _MOST_EVENT_LINES:
            raise ReplyTooLargeError(f"the stream has more than {_MOST_EVENT_LINES} lines")
        complete: list[bytes] = []
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data and not self.is_done:
                data = b"\n".join(self._data)
                self._data.clear()
                if data.startswith(b"[DONE]"):
                    self.is_done = True
                else:
                    complete.append(data)
        return complete
