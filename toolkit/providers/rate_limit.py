"""A provider that keeps to limits: requests and tokens in a time, and requests at once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock

import anyio
from anyio.lowlevel import RunVar

from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.errors import RateLimitedError
from toolkit.settings import Duration, check_setting, to_seconds

__all__ = ["RateLimitedProvider", "Spent", "Window", "estimated_tokens"]

_CHARACTERS_PER_TOKEN = 4


def estimated_tokens(request: ChatRequest) -> int:
    """Return about how many tokens a request will cost: a quarter of its characters, and what it may be answered."""
    characters = 0
    for message in request.messages:
        characters += len(message.text)
        if message.role == "assistant":
            characters += sum([len(call.name) + len(call.arguments) for call in message.tool_calls])
    return characters // _CHARACTERS_PER_TOKEN + (request.max_tokens or 0)


class RateLimitedProvider(ProviderWrapper):
    """Lets requests wait until they are within the limits, first come, first served.

    ::

        provider = RateLimitedProvider(OpenAIProvider("gpt-5"), requests=500, tokens=200_000, concurrency=20)

    Within any `per` seconds no more than `requests` are begun, whoever asks: tasks, threads and event loops that share
    this object share its limits (`concurrency` and the order hold within one event loop). A request counts with its
    estimated tokens until its answer says what it cost; one that alone is over the limit waits until nothing else
    counts. When the server asks to wait, by a `RateLimitedError` with `retry_after`, everybody does. Who is cancelled
    while waiting has used up nothing. A stream holds its place until it is closed. Closing the provider stays with who
    made it.

    Args:
        provider: Answers.
        requests: How many in `per`; None sets no limit.
        tokens: How many in `per`, input and output together; None sets no limit.
        per: The time that both are counted in; a minute, as most vendors have it.
        concurrency: How many requests at once; None sets no limit.
        estimate: Tells the tokens of a request before it is made.

    Raises:
        ConfigurationError: A limit that is no whole number above 0.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        per: Duration = 60.0,
        concurrency: int | None = None,
        estimate: Callable[[ChatRequest], int] = estimated_tokens,
    ) -> None:
        for name, limit in (("requests", requests), ("tokens", tokens), ("concurrency", concurrency)):
            check_setting(name, limit, int, None, least=1)
        seconds = to_seconds(per, "the time of a rate limit")
        super().__init__(provider)
        self._requests = Window(requests, seconds)
        self._tokens = Window(tokens, seconds)
        self._estimate = estimate
        self._concurrency = concurrency
        self._open_at = 0.0
        self._lock = Lock()
        self._lines: RunVar[_Line] = RunVar("line")

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer, when it is this request's turn."""
        async with self._await_turn(request) as spent:
            response = await self._provider.generate(request)
            spent.amount = response.usage.total_tokens
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes, when it is this request's turn."""
        async with self._await_turn(request) as spent, closing(self._provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, ResponseDone):
                    spent.amount = event.response.usage.total_tokens
                yield event

    @asynccontextmanager
    async def _await_turn(self, request: ChatRequest) -> AsyncGenerator[Spent]:
        line = self._lines.get(None)
        if line is None:
            line = _Line(self._concurrency)
            self._lines.set(line)
        async with line.places:
            # The first in the line keeps it while it waits; it is handed on in the order of asking.
            async with line.head:
                spent = Spent(self._estimate(request))
                while (wait := self._count_request(spent)) > 0:  # noqa: ASYNC110 - no event tells that time has passed
                    await anyio.sleep(wait)
            try:
                yield spent
            except RateLimitedError as error:
                self._open_at = max(self._open_at, time.monotonic() + (error.retry_after or 0.0))
                raise

    def _count_request(self, spent: Spent) -> float:
        """Count a request from now on, or return the seconds after which to ask again."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._open_at - now, self._requests.wait(1, now), self._tokens.wait(spent.amount, now))
            if wait <= 0:
                self._requests.count(Spent(1), now)
                self._tokens.count(spent, now)
            return wait


class _Line:
    """The line in which the requests of one event loop wait."""

    def __init__(self, concurrency: int | None) -> None:
        self.places: AbstractAsyncContextManager[object] = (
            nullcontext() if concurrency is None else anyio.Semaphore(concurrency)
        )
        self.head = anyio.Lock()


@dataclass(slots=True)
class Spent:
    """The amount that one request uses up; the amount is put right when the answer tells it."""

    amount: int


class Window:
    """The amount that was spent within the last `seconds`."""

    def __init__(self, limit: int | None, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._counted: deque[tuple[float, Spent]] = deque()

    def wait(self, amount: int, now: float) -> float:
        """Return the seconds until `amount` can be spent, or nothing else counts."""
        while self._counted and self._counted[0][0] + self._seconds <= now:
            self._counted.popleft()
        wait = 0.0
        left = math.inf if self._limit is None else self._limit - sum([spent.amount for _, spent in self._counted])
        for begun, spent in self._counted:
            if amount <= left:
                break
            left += spent.amount
            wait = begun + self._seconds - now
        return wait

    def count(self, spent: Spent, now: float) -> None:
        """Count what is spent from now on."""
        if self._limit is not None:
            self._counted.append((now, spent))
