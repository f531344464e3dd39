"""The base of every adapter: it asks through an exchange, answers whole or in pieces, and closes what it opened.

A vendor's key in the environment goes to that vendor's servers, or to this machine, and to no other.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2

from toolkit.chat import ChatRequest, ChatResponse, ResponseDone, StreamEvent, Usage
from toolkit.errors import ConfigurationError, ProviderAuthError, ProviderError
from toolkit.providers.connection import ClientOfLoop, Exchange, WholeAnswer, checked_headers
from toolkit.providers.failures import NO_KEY, Failures
from toolkit.secrets import cut_causes, secrets_in_headers, secrets_in_url, without_credentials
from toolkit.settings import Duration, check_setting, to_seconds

__all__ = [
    "Adapter",
    "checked_key",
    "checked_url",
    "Decoder",
    "withheld_headers",
    "is_home",
    "is_loopback",
    "is_of",
    "key_for",
    "split_login",
    "UNREADABLE",
]


class Decoder(Protocol):
    """Turns the pieces of one answer into our events."""

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        ...

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of a piece.

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
    """Attach the usage to an error, and remove secrets from it and its causes."""
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
        self._secrets = (*secrets, *secrets_in_url(base_url), *secrets_in_headers(headers))
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
            ConfigurationError: The request asks for something that the format can't express.
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
            ConfigurationError: The request asks for something that the format can't express.
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
        """The address that requests go to, without secrets."""
        return without_credentials(self._base_url)

    @property
    def reports_cost(self) -> bool:
        """True if answers may report their cost; otherwise `UsageLimits.cost` is refused."""
        return False

    @abstractmethod
    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        """Return the exchange that sends the request, and its body."""

    @abstractmethod
    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        """Read a whole answer."""

    @abstractmethod
    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        """Return the cost that a whole answer reports."""

    @abstractmethod
    def _make_failures(self) -> Failures:
        """Return the maker of errors."""

    @abstractmethod
    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        """Return the reader of a streamed answer."""


def key_for(url: str, *, name: str, variables: Sequence[str], hosts: Sequence[str], advice: str) -> str:
    """Return the key that the environment has for a server.

    Args:
        url: Where requests go.
        name: The provider's name in errors.
        variables: Where the key may stand; the first that is set counts.
        hosts: The vendor's own.
        advice: Other advice, for the error.

    Raises:
        ProviderAuthError: There is none, or it is for another host.
    """
    if is_loopback(url):
        return NO_KEY
    found = next((variable for variable in variables if os.environ.get(variable)), None)
    if found is None:
        raise ProviderAuthError(
            name,
            f"no key for {without_credentials(url)}: set the environment variable {variables[-1]}, "
            f"or pass api_key{advice}",
        )
    if not is_home(url, hosts):
        raise ProviderAuthError(
            name,
            f"no key for {without_credentials(url)}: {found} of the environment goes to https://*.{hosts[0]} alone; "
            f"pass api_key{advice}",
        )
    return os.environ[found]


def is_home(url: str, hosts: Sequence[str]) -> bool:
    """Return whether a vendor's key in the environment may be sent to a URL: one of the vendor's hosts, encrypted."""
    return urlsplit(url).scheme == "https" and is_of(url, *hosts)


def withheld_headers(
    url: str, variable: str, hosts: Sequence[str], *names: str, given: Iterable[str]
) -> tuple[str, ...]:
    """Return the names of the headers that an SDK takes from a variable and that must not go to a URL.

    Args:
        url: Where requests go.
        variable: The variable.
        hosts: The vendor's own.
        *names: Headers that it takes from variables of their own.
        given: The headers that the application has set itself: those may go there.
    """
    if is_loopback(url) or is_home(url, hosts):
        return ()
    lines = os.environ.get(variable, "").split("\n")
    found = (*names, *(line.partition(":")[0].strip() for line in lines if ":" in line))
    own = {name.lower() for name in given}
    return tuple(name for name in found if name.lower() not in own)


def checked_url(url: str) -> str:
    """Return the URL where it can be one of a server.

    Raises:
        ConfigurationError: It can't; the URL is not shown, since it may hold a password.
    """
    check_setting("base_url", url, str)
    try:
        parts = urlsplit(url)
        _ = parts.port
        host = httpx2.URL(url).host
    except (ValueError, httpx2.InvalidURL) as error:
        raise ConfigurationError(f"base_url is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("base_url is not an address: it begins with http:// or https:// and names a host")
    if "\\" in parts.netloc or (host.isascii() and host.lower() != parts.hostname.strip("[]")):
        raise ConfigurationError("base_url is not an address: its host can be read in two ways")
    return url


def checked_key(key: str, provider: str) -> str:
    """Return the key as a header takes it: without the line end that a file may have left at its end.

    Raises:
        ProviderAuthError: It has letters that no key has.
        ConfigurationError: It is no text.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a pydantic.SecretStr, say
        raise ConfigurationError(f"api_key must be text, not a {type(key).__name__}")
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ProviderAuthError(provider, "the key has letters that no header can hold: copy it anew")
    return key


def split_login(url: str) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return the URL without user and password, the headers that say them, and what of that is secret.

    HTTP clients log the URL of each request.
    """
    parts = urlsplit(url)
    if parts.username is None:
        return url, {}, ()
    password = unquote(parts.password or "")
    token = b64encode(f"{unquote(parts.username)}:{password}".encode()).decode()
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return plain, {"Authorization": f"Basic {token}"}, (token, password)


def is_of(url: str, *domains: str) -> bool:
    """Return whether the host of a URL is one of these, or within one."""
    host = f".{urlsplit(url).hostname or ''}"
    return any(host.endswith(f".{domain}") for domain in domains)


def is_loopback(url: str) -> bool:
    """Return whether the URL is of this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
