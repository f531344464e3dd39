"""The base of every adapter: asks through an exchange, answers whole or in pieces, closes what it opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from toolkit.chat import ChatRequest, ChatResponse, ResponseDone, StreamEvent, Usage
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.providers.connection import ClientOfLoop, Exchange, WholeAnswer, checked_headers
from toolkit.providers.credentials import checked_url, split_login
from toolkit.providers.failures import Failures
from toolkit.secrets import cut_causes, secrets_in_url, secrets_of_headers, without_credentials
from toolkit.settings import Duration, check_setting, to_seconds

__all__ = ["UNREADABLE", "Adapter", "Decoder"]


class Decoder(Protocol):
    """Turns the pieces of one answer into our events."""

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        ...

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield what a piece tells.

        Raises:
            ProviderError: It tells of a failure.
            ValueError: It is not JSON.
        """
        ...

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        ...


UNREADABLE = (ValueError, ArithmeticError, RecursionError)
"""The exceptions that numbers without measure, and lists without end, raise where they are read."""


class _KnownUsage:
    """The known cost of a request, once it is under way."""

    def __init__(self) -> None:
        self.usage: Callable[[], Usage] = Usage


@contextmanager
def _attach_usage(failures: Callable[[], Failures]) -> Generator[_KnownUsage]:
    """Hang what was spent on an error; and let neither it nor one behind it show a secret."""
    spent = _KnownUsage()
    try:
        yield spent
    except ProviderError as error:
        usage = spent.usage()
        error.usage = None if usage == Usage() else usage
        if error.__cause__ is None:
            error.__context__ = None
        cut_causes(error, failures().without_secrets)
        raise


class Adapter(ABC):
    """A provider on an SDK: one request at a time through one exchange, one client for each event loop.

    Args:
        model: The model's name as the server knows it.
        name: The provider's name in errors.
        base_url: Where requests go.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the client.
        headers: Sent with each request.
        clients: The clients that hold the connections.

    Raises:
        ConfigurationError: There is no model, `base_url` is not an address, `timeout` no time, or a header no text.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str,
        base_url: str,
        timeout: Duration | None,
        headers: Mapping[str, str] | None,
        clients: ClientOfLoop[Any],
    ) -> None:
        check_setting("model", model, str)
        if not model.strip():
            raise ConfigurationError("model is empty: name one, as the server knows it")
        self.model = model
        self.name = name
        self._base_url, login, secrets = split_login(checked_url(base_url))
        self._headers: Mapping[str, str] = {**login, **checked_headers(headers)}
        self._secrets = (*secrets, *secrets_in_url(base_url), *secrets_of_headers(headers))
        self._timeout = to_seconds(timeout, "timeout")
        self._clients = clients

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request makes new ones. May be called again."""
        await self._clients.aclose()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for what the format can't say.
        """
        with _attach_usage(self._make_failures) as spent:
            exchange, body = await self._encode_request(request, streams=False)
            answer = await exchange.ask(body, timeout=self._find_timeout(request))
            spent.usage = lambda: self._read_usage(answer.json)
            try:
                return self._decode_answer(answer, request)
            except UNREADABLE as error:
                raise self._make_failures().not_an_answer(str(error), request_id=answer.request_id) from error

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; leaving early closes the connection.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for what the format can't say.
        """
        with _attach_usage(self._make_failures) as spent:
            exchange, body = await self._encode_request(request, streams=True)
            async with exchange.listen(body, timeout=self._find_timeout(request)) as pieces:
                decoder = self._make_decoder(request, pieces.request_id)
                spent.usage = lambda: decoder.usage
                async for events in pieces:
                    for data in events:
                        for event in decoder.feed(data):
                            yield event
                done = decoder.finish()
        yield done

    def _find_timeout(self, request: ChatRequest) -> float | None:
        """Return the seconds for a request; None leaves it to the client."""
        return self._timeout if request.timeout is None else request.timeout

    @property
    def base_url(self) -> str:
        """The address that requests go to, without what is secret in it."""
        return without_credentials(self._base_url)

    @property
    def tells_cost(self) -> bool:
        """True where answers may say what they cost: without that, `UsageLimits.cost` is refused."""
        return False

    @abstractmethod
    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        """Return what sends the request, and its body."""

    @abstractmethod
    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        """Read a whole answer."""

    @abstractmethod
    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        """Return what a whole answer says that it cost."""

    @abstractmethod
    def _make_failures(self) -> Failures:
        """Return what makes errors."""

    @abstractmethod
    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        """Return what reads an answer in pieces."""
