"""Responses that OpenAI makes in the background: started once, then polled or streamed until they are done.

The id of a response is stored under the hash of its request while it is not done. A request that is made again, after
an error or by another process, finds the id and goes on with that response; a run that ends before it cancels it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import aclosing, asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

import anyio

from toolkit.dataclass import dataclass
from toolkit.errors import ProviderError
from toolkit.providers.adapter import Exchange, Pieces, WholeAnswer
from toolkit.providers.encoding import as_text

WAITING_STATUSES = frozenset({"queued", "in_progress"})
POLL_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""The pauses between polls; the last one is repeated."""
_CANCEL_SECONDS = 5.0
_MOST_CONNECTIONS = 5  # in a row, to a stream that brings nothing new
_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')
_ID = re.compile(rb'"response":\s*\{\s*"id":\s*"([^"\\]+)"')
_END = re.compile(rb'"type":\s*"(?:response\.(?:completed|incomplete|failed|cancelled)|error)"')


@dataclass(slots=True)
class _SeenEvents:
    """The state of a stream, as far as its events have come."""

    number: int = -1  # of the last event
    response_id: str = ""
    is_done: bool = False  # True after the last event of the response
    fruitless: int = 0  # the connections since an event came

    def note(self, events: Iterable[bytes]) -> None:
        """Update the state by more events."""
        for event in events:
            if found := _NUMBER.search(event):
                self.number, self.fruitless = int(found[1]), 0
            if not self.response_id and (found := _ID.search(event)):
                self.response_id = found[1].decode()
            self.is_done = self.is_done or _END.search(event) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundExchange(Exchange):
    """Starts a response in the background, and gives its answer when it is there."""

    follow: Callable[[str, int | None], Exchange]  # asks for a response: whole, or the events after a number
    cancel: Callable[[str], Awaitable[Any]]
    started: MutableMapping[str, str]  # the ids of responses that are not done, by the hashes of their requests
    under_way: set[str]  # the keys in use by this process: equal requests at one time are two

    async def ask(self, body: bytes, *, timeout: float | None) -> WholeAnswer:
        """Return the whole answer, when the response is done."""
        async with self._use_key(body) as key, self._translate_errors(timeout):
            with anyio.fail_after(timeout):
                answer = await self._find_started(key) or await Exchange.ask(self, body, timeout=timeout)
                response_id = as_text(answer.json.get("id"))
                polls = 0
                while answer.json.get("status") in WAITING_STATUSES and response_id:
                    self.started[key] = response_id
                    await anyio.sleep(POLL_SECONDS[min(polls, len(POLL_SECONDS) - 1)])
                    polls += 1
                    answer = await self.follow(response_id, None).ask(b"", timeout=None)
            self.started.pop(key, None)
            return answer

    @asynccontextmanager
    async def listen(self, body: bytes, *, timeout: float | None) -> AsyncGenerator[Pieces]:
        """Give the answer in pieces; a connection that breaks is made again after the last event."""
        deadline = None if timeout is None else anyio.current_time() + timeout
        async with self._use_key(body) as key, aclosing(self._follow_events(key, body, deadline)) as events:
            yield Pieces(events)

    async def _follow_events(self, key: str, body: bytes, deadline: float | None) -> AsyncGenerator[list[bytes]]:
        seen = _SeenEvents()
        while seen.fruitless < _MOST_CONNECTIONS:
            seen.fruitless += 1
            response_id = self.started.get(key)
            source = self if response_id is None else self.follow(response_id, seen.number)
            left = None if deadline is None else max(0.0, deadline - anyio.current_time())
            try:
                async with Exchange.listen(source, body, timeout=left) as pieces:
                    async for events in pieces.events:
                        seen.note(events)
                        if seen.response_id:
                            self.started[key] = seen.response_id
                        if seen.is_done:
                            self.started.pop(key, None)
                        yield events
                        if seen.is_done:
                            return
            except ProviderError as error:
                is_late = deadline is not None and anyio.current_time() >= deadline
                is_last = is_late or not error.is_retryable or seen.fruitless == _MOST_CONNECTIONS
                if is_last or key not in self.started:
                    raise
            if key not in self.started:
                return  # nothing was started: the answer is cut off

    async def _find_started(self, key: str) -> WholeAnswer | None:
        """Return the response that was started before, as far as it has come; None if the server has none."""
        response_id = self.started.get(key)
        if response_id is None:
            return None
        try:
            return await self.follow(response_id, None).ask(b"", timeout=None)
        except ProviderError as error:
            if error.status != 404:
                raise
            del self.started[key]
            return None

    @asynccontextmanager
    async def _use_key(self, body: bytes) -> AsyncGenerator[str]:
        """Give the key of a request, and cancel its response where the run ends before that.

        An error that may pass leaves the response to the next request.
        """
        digest, count = sha256(body).hexdigest(), 0
        while f"{digest}-{count}" in self.under_way:
            count += 1
        key = f"{digest}-{count}"
        self.under_way.add(key)
        try:
            yield key
        except ProviderError as error:
            if not error.is_retryable or isinstance(error.__cause__, TimeoutError):
                await self._cancel_started(key)
            raise
        except BaseException:  # cancelled, or nobody listens anymore
            await self._cancel_started(key)
            raise
        finally:
            self.under_way.discard(key)

    async def _cancel_started(self, key: str) -> None:
        response_id = self.started.pop(key, None)
        if response_id is not None:
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True), suppress(ProviderError):
                await self.cancel(response_id)
