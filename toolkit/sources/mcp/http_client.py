"""The HTTP client below the SDK's transports: it bounds what it receives and reports what fails."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from pydantic_core import from_json

from toolkit.http_replies import MOST_REPLY_BYTES, BoundedClient, ReplyTooLargeError, closed_with
from toolkit.schema.nodes import is_object

__all__ = ["HttpFault", "NotingClient", "faults_of_call"]


@dataclass(frozen=True, slots=True)
class HttpFault:
    """A failure below the protocol: a status, or an exception of the network's."""

    status: int | None = None
    error: Exception | None = None


faults_of_call: ContextVar[list[HttpFault] | None] = ContextVar("toolkit_mcp_http_faults", default=None)
"""Collects failures in the requests of the current call: the SDK passes on no status."""


class NotingClient(BoundedClient):
    """Reports a failed request to the call that made it; responses are bounded."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, as its class does."""
        faults = faults_of_call.get()
        try:
            response = await super().send(request, stream=stream, **options)
        except Exception as error:
            if faults is not None:
                faults.append(HttpFault(error=error))
            raise
        # A GET that is refused is no fault: a server need not offer the stream of its own messages.
        if faults is not None and request.method == "POST":
            if response.status_code >= 400:
                faults.append(HttpFault(status=response.status_code))
            else:
                faults.clear()
        if not (stream and response.is_success):
            return response
        response = _bound_body(response)
        return await _address_refusal(response, request) if _is_json_reply(response) else response


def _is_json_reply(response: httpx2.Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("application/json"))


async def _address_refusal(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """Return a reply as it is, but an error under another id with that of its request.

    A server that could not read a request answers without its id, or with 0: the SDK would wait for another answer, and
    over HTTP none will come.
    """
    content = await response.aread()
    reply, asked = _read_message_object(content), _read_message_object(request.content)
    if "error" not in reply or "id" not in asked or reply.get("id") == asked["id"]:
        return response
    headers = {"content-type": "application/json"}
    return httpx2.Response(
        response.status_code, headers=headers, json={**reply, "id": asked["id"]}, request=response.request
    )


def _read_message_object(content: bytes) -> dict[str, Any]:
    try:
        found: object = from_json(content)
    except ValueError:
        return {}
    return found if is_object(found) else {}


def _bound_body(response: httpx2.Response) -> httpx2.Response:
    """Return a response whose body is unpacked and bounded as it is read: a reply whole, a stream event by event."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    headers = response.headers.copy()
    headers.pop("content-encoding", None)
    if "content-type" in headers:  # the messages are UTF-8, whatever charset it names
        headers["content-type"] = headers["content-type"].partition(";")[0]
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_BoundedStream(response, is_of_events=is_stream),
        request=response.request,
        extensions=response.extensions,
    )


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, *, is_of_events: bool) -> None:
        self._response = response
        self._is_of_events = is_of_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        waiting = 0  # bytes of the event that has not ended
        most_bytes = sys.maxsize if self._is_of_events else MOST_REPLY_BYTES
        async with closed_with(self._response, most_bytes=most_bytes) as pieces:
            async for piece in pieces:
                if self._is_of_events:
                    *ended, last = piece.replace(b"\r\n", b"\n").split(b"\n\n")
                    waiting = len(last) if ended else waiting + len(last)
                    if waiting > MOST_REPLY_BYTES:
                        raise ReplyTooLargeError(f"an event is larger than {MOST_REPLY_BYTES} bytes and was not read")
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
