"""The base of every adapter: one request over HTTP, sent by an SDK's client, read here, and closed however it ends.

The SDKs build the request, sign it and hold the connections. Responses are read here, because their parsers fail on
fields that compatible servers leave out or add, and because their streams are not closed on every way out. A vendor's
key in the environment goes to that vendor's servers, or to this machine, and to no other.
"""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import field
from functools import partial
from ipaddress import ip_address
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
import httpx2
from anyio import to_thread
from anyio.lowlevel import checkpoint
from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    ChatRequest,
    ChatResponse,
    Message,
    ResponseDone,
    StreamEvent,
    SystemMessage,
    ToolCall,
    Usage,
    UserMessage,
)
from toolkit.chat.request import Capabilities
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderAuthError, ProviderError
from toolkit.foreign_text import find_lone_halves, may_have_surrogates, repair_surrogates
from toolkit.http_client import (
    ACCEPTED_ENCODINGS,
    MOST_ERROR_BYTES,
    ReplyTooLargeError,
    RequestProgress,
    check_headers,
    check_json_parts,
    closed_with,
    read_bounded,
    request_progress,
)
from toolkit.providers.encoding import as_mapping
from toolkit.providers.failures import NO_KEY, Failures, request_id_of, stage_of
from toolkit.redaction import cut_causes, secrets_in_headers, secrets_in_url, without_credentials
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration, check_setting, to_seconds

ReadingT = TypeVar("ReadingT")
UNREADABLE = (ValueError, ArithmeticError, RecursionError)
"""The exceptions that numbers without measure, and lists without end, raise where they are read."""
JSON_HEADERS = {"content-type": "application/json", "accept-encoding": ACCEPTED_ENCODINGS}
MOST_CONNECTIONS = 1000
"""The default of `max_connections`, as the SDKs have it."""
_MOST_IDLE_CONNECTIONS = 100
_PATIENCE_AFTER_DONE = 0.2
_LONG_ANSWER = 20_000  # bytes; what is longer is read in a thread beside the event loop
_EVENTS_IN_A_ROW = 100
_MOST_INSTEAD = 65_536
_EVENT_PREFIXES = (b"data:", b"event:", b"id:", b"retry:", b":")
_MOST_LINE_BYTES = 32 * 2**20
_MOST_EVENT_LINES = 4_000_000


class Decoder(ABC, Generic[ReadingT]):
    """Turns one answer into our events: `feed` its pieces, then `finish`; or `read_whole`."""

    def __init__(self, failures: Callable[[], Failures], reading: ReadingT, *, request_id: str | None = None) -> None:
        self._failures = failures
        self._reading = reading
        self._request_id = request_id
        self._is_complete = False
        self._begin_answer()

    def _begin_answer(self) -> None:
        """Set up the attributes in which the answer is put together."""

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of a piece.

        Raises:
            ProviderError: It reports a failure.
            ValueError: It is not JSON.
        """

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if not self._is_complete:
            raise self._failures().cut_off(request_id=self._request_id)
        return ResponseDone(self._make_response())

    @abstractmethod
    def _make_response(self) -> ChatResponse:
        """Return the answer from what has come."""

    @abstractmethod
    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return a whole answer.

        Raises:
            BadResponseError: There is no answer in it.
            ProviderError: It reports a failure.
        """


@dataclass(slots=True)
class PartialCall:
    """A call whose arguments come in pieces: its number in the answer, and its id and name as far as they are known."""

    number: int
    id: str = ""
    name: str = ""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    pieces: list[str] = field(default_factory=list[str])

    def more(self, text: str) -> ArgumentsDelta:
        """Return the event of some more of the arguments."""
        self.pieces.append(text)
        return ArgumentsDelta(self.number, self.id, self.name, text)

    def make_call(self) -> ToolCall:
        """Return the call with the arguments that have come."""
        return ToolCall(self.id, self.name, "".join(self.pieces), extra=self.extra or None)


@contextmanager
def _attach_usage(failures: Callable[[], Failures]) -> Generator[list[Decoder[Any]]]:
    """Attach the usage to an error, and remove secrets from it and its causes; the block adds its decoder."""
    decoders: list[Decoder[Any]] = []
    try:
        yield decoders
    except ProviderError as error:
        usage = decoders[0].usage if decoders else Usage()
        error.usage = None if usage == Usage() else usage
        if error.__cause__ is None:
            error.__context__ = None
        cut_causes(error, failures().without_secrets)
        raise


class Adapter(ABC):
    """A provider on an SDK: one request at a time through one exchange, one client for each event loop.

    Attributes:
        known_capabilities: Set it where the table is wrong about a model; None leaves it to the table.
    """

    _clients: LoopLocal[Any]
    _api_key: str | None
    _key_advice: str
    _protocol: str
    _url_advice: str = "check base_url"
    known_capabilities: Capabilities | None = None

    def __init__(
        self,
        model: str,
        *,
        name: str,
        base_url: str,
        timeout: Duration | None,
        headers: Mapping[str, str] | None,
        max_connections: int,
    ) -> None:
        check_setting("model", model, str)
        if not model.strip():
            raise ConfigurationError("model is empty: name one, as the server knows it")
        self.model = model
        self.name = name
        self._base_url, login, secrets = split_login(checked_url(base_url))
        check_headers(headers)
        self._headers: Mapping[str, str] = {**login, **(headers or {})}
        self._secrets = (*secrets, *secrets_in_url(base_url), *secrets_in_headers(headers))
        self._timeout = to_seconds(timeout, "timeout")
        check_setting("max_connections", max_connections, int, least=1)
        self._limits = httpx2.Limits(
            max_connections=max_connections, max_keepalive_connections=min(max_connections, _MOST_IDLE_CONNECTIONS)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
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
        with _attach_usage(self._make_failures) as decoders:
            exchange, body = await self._encode_request(request, streams=False)
            answer = await exchange.ask(body, timeout=self._find_timeout(request))
            decoder = self._make_decoder(request, answer.request_id)
            decoders.append(decoder)
            decode = partial(decoder.read_whole, answer.json)
            try:
                if answer.size <= _LONG_ANSWER:
                    return decode()
                return await to_thread.run_sync(decode, abandon_on_cancel=True)
            except UNREADABLE as error:
                raise self._make_failures().not_an_answer(str(error), request_id=answer.request_id) from error

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; leaving early closes the connection.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for something that the format can't express.
        """
        with _attach_usage(self._make_failures) as decoders:
            exchange, body = await self._encode_request(request, streams=True)
            async with exchange.listen(body, timeout=self._find_timeout(request)) as pieces:
                decoder = self._make_decoder(request, pieces.request_id)
                decoders.append(decoder)
                size = 0
                async for events in pieces.events:
                    for place, data in enumerate(events):
                        if place % _EVENTS_IN_A_ROW == _EVENTS_IN_A_ROW - 1:
                            await checkpoint()
                        size += len(data)
                        found: Iterable[StreamEvent] = decoder.feed(data)
                        if len(data) > _LONG_ANSWER:
                            found = await to_thread.run_sync(list, found)
                        for event in found:
                            yield event
                is_long = size > _LONG_ANSWER
                done = await to_thread.run_sync(decoder.finish) if is_long else decoder.finish()
        yield done

    def _find_timeout(self, request: ChatRequest) -> float | None:
        """Return the seconds for a request; None leaves it to the client."""
        return self._timeout if request.timeout is None else request.timeout

    @property
    def base_url(self) -> str:
        """The address that requests go to, without secrets."""
        return without_credentials(self._base_url)

    def capabilities(self, model: str | None = None) -> Capabilities:
        """Return what a model of this provider can do: what `known_capabilities` says, else the table.

        Args:
            model: None means that of the provider.
        """
        return self.known_capabilities or self._list_capabilities(model or self.model)

    @abstractmethod
    def _list_capabilities(self, model: str) -> Capabilities:
        """Return the row of the table for a model."""

    @property
    def reports_cost(self) -> bool:
        """True if answers may report their cost; otherwise `UsageLimits.cost` is refused."""
        return False

    @abstractmethod
    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        """Return the exchange that sends the request, and its body."""

    def _make_failures(self) -> Failures:
        return Failures(
            provider=self.name,
            url=self.base_url,
            model=self.model,
            key_advice=self._key_advice,
            protocol=self._protocol,
            url_advice=self._url_advice,
            secrets=(self._find_key(), *self._secrets),
        )

    def _find_key(self) -> str:
        return self._api_key or ""

    @abstractmethod
    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder[Any]:
        """Return the reader of the answer to a request."""


def split_compacted(messages: Sequence[Message]) -> tuple[list[Message], list[Message], list[Message]]:
    """Return the instructions of a transcript, the messages that a vendor may compact, and the user's newest ones."""
    start = next((place for place, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    end = len(messages)
    while end > start and isinstance(messages[end - 1], UserMessage):
        end -= 1
    return list(messages[:start]), list(messages[start:end]), list(messages[end:])


def key_for(
    url: str, *, name: str, variables: Sequence[str], hosts: Sequence[str], advice: str, is_local: bool = False
) -> str:
    """Return the key that the environment has for a server, from the first variable that is set.

    It goes to the hosts of its vendor alone; the key of a local server to this machine. Otherwise a `ProviderAuthError`
    gives advice.
    """
    found = next((variable for variable in variables if os.environ.get(variable)), None)
    if is_loopback(url):
        return os.environ[found] if found and is_local else NO_KEY
    if not hosts:
        raise ProviderAuthError(
            name,
            f"no key for {without_credentials(url)}: those of the environment go nowhere else; pass api_key{advice}",
        )
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

    Those that the application has given itself may go there.
    """
    if is_loopback(url) or is_home(url, hosts):
        return ()
    lines = os.environ.get(variable, "").split("\n")
    found = (*names, *(line.partition(":")[0].strip() for line in lines if ":" in line))
    own = {name.lower() for name in given}
    return tuple(name for name in found if name.lower() not in own)


def checked_url(url: str) -> str:
    """Return the URL of a server, or raise a `ConfigurationError` without it, since it may hold a password."""
    check_setting("base_url", url, str)
    try:
        parts = urlsplit(url)
        _ = parts.port
        host = httpx2.URL(url).host
    except (ValueError, httpx2.InvalidURL):
        raise ConfigurationError("base_url is not an address: its host or its port can't be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("base_url is not an address: it begins with http:// or https:// and names a host")
    if "\\" in parts.netloc or (host.isascii() and host.lower() != parts.hostname.strip("[]")):
        raise ConfigurationError("base_url is not an address: its host can be read in two ways")
    return url


def checked_key(key: str, provider: str) -> str:
    """Return the key as a header takes it, without the line end of a file; raise where no header can hold it."""
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


class EventReader(Protocol):
    """Cuts the bytes of a stream into the JSON of its events."""

    is_done: bool

    def feed(self, received: bytes) -> list[bytes]:
        """Return the events that are now complete, or raise a ValueError where it is no such stream."""
        ...


class Send(Protocol):
    """Posts a body through an SDK's client."""

    def __call__(self, body: bytes, *, streams: bool, timeout: float | None) -> Awaitable[httpx2.Response]:
        """Return the response; a successful one's body is not read yet.

        Raises the SDK's exception for any failure, including a status of 400 or above.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """A whole answer: the JSON object in it, the server's name for the request, and how many bytes it had."""

    json: dict[str, Any]
    request_id: str | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Pieces:
    """An answer in pieces: the data of the events that came together, and the server's name for the request."""

    events: AsyncIterator[list[bytes]]
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Sends bodies and gives answers, with whatever goes wrong as one of our errors."""

    send: Send
    failures: Callable[[], Failures]
    raised: type[Exception]  # of the SDK, beside those of the HTTP client
    make_reader: Callable[[], EventReader] = field(default_factory=lambda: ServerEventReader)

    async def ask(self, body: bytes, *, timeout: float | None) -> WholeAnswer:
        """Return the whole answer within a time; None leaves that to the client. A failure closes the connection."""
        async with self._translate_errors(timeout) as progress:
            with anyio.fail_after(timeout):
                response = await self._send_body(body, progress, streams=False, timeout=timeout)
                content = await read_bounded(response)
            request_id = request_id_of(response.headers)

            def read() -> object:
                check_json_parts(content)
                return from_json(repair_surrogates(content))

            try:
                is_long = len(content) > _LONG_ANSWER
                found: object = await to_thread.run_sync(read, abandon_on_cancel=True) if is_long else read()
            except ReplyTooLargeError:
                raise
            except ValueError as error:
                raise self._make_no_answer(response) from error
            if not isinstance(found, dict):
                raise self._make_no_answer(response)
            return WholeAnswer(json=cast("dict[str, Any]", found), request_id=request_id, size=len(content))

    @asynccontextmanager
    async def listen(self, body: bytes, *, timeout: float | None) -> AsyncGenerator[Pieces]:
        """Give the answer in pieces within a time; leaving the block closes the connection.

        A `ValueError` that the block raises for a piece that is not JSON is reported as a bad answer.
        """
        deadline = None if timeout is None else anyio.current_time() + timeout
        async with self._translate_errors(timeout) as progress:
            with anyio.fail_after(timeout):
                response = await self._send_body(body, progress, streams=True, timeout=timeout)
            async with closed_with(response) as received:
                content_type = response.headers.get("content-type", "no content type")
                if "html" in content_type:
                    raise self._make_no_answer(response)
                request_id = request_id_of(response.headers)
                async with aclosing(self._read_events(received, content_type, deadline)) as events:
                    try:
                        yield Pieces(events, request_id)
                    except ReplyTooLargeError:
                        raise
                    except UNREADABLE as error:
                        raise self.failures().not_an_answer(str(error), request_id=request_id) from error

    async def _read_events(
        self, received: AsyncIterator[bytes], content_type: str, deadline: float | None
    ) -> AsyncGenerator[list[bytes]]:
        """Yield the events that come together, or raise a ValueError where it is no such stream."""
        reader, surrogates = self.make_reader(), SurrogateMender()
        is_done, has_events, before_events = False, False, b""
        while not is_done:
            data = await _receive_piece(received, deadline)
            if not data:
                error = None if has_events else _find_plain_error(before_events.strip(), content_type)
                if error is not None:
                    yield [error]
                break
            events = reader.feed(data)
            is_done = reader.is_done
            if is_done:
                # Most servers end where they are done; reading the end keeps the connection for the next request.
                with anyio.move_on_after(_PATIENCE_AFTER_DONE):
                    while await _receive_piece(received, None):
                        pass
            if events:
                has_events = True
                is_long = sum(map(len, events)) > _LONG_ANSWER
                mend = partial(surrogates.feed, events)
                yield await to_thread.run_sync(mend, abandon_on_cancel=True) if is_long else mend()
            elif not has_events and len(before_events) < _MOST_INSTEAD:
                before_events += data
        if surrogates.holds_events:
            yield await to_thread.run_sync(surrogates.finish, abandon_on_cancel=True)

    async def _send_body(
        self, body: bytes, progress: RequestProgress, *, streams: bool, timeout: float | None
    ) -> httpx2.Response:
        token = request_progress.set(progress)
        try:
            return await self.send(body, streams=streams, timeout=timeout)
        finally:
            request_progress.reset(token)

    @asynccontextmanager
    async def _translate_errors(self, timeout: float | None) -> AsyncGenerator[RequestProgress]:
        progress = RequestProgress()
        deadline = math.inf if timeout is None else anyio.current_time() + timeout
        try:
            yield progress
        except TimeoutError as error:
            late_by = anyio.current_time() - deadline
            raise self.failures().late(timeout or 0, stage=progress.stage, late_by=late_by) from error
        except (httpx2.HTTPError, *UNREADABLE, self.raised) as error:
            failures = self.failures()
            stage = stage_of(error)
            if stage is not None:
                late_by = anyio.current_time() - min(deadline, progress.deadline)
                raise failures.late(timeout, stage=stage, late_by=late_by) from failures.cause_of(error)
            raise failures.of(error) from failures.cause_of(error)

    def _make_no_answer(self, response: httpx2.Response) -> Exception:
        found = response.headers.get("content-type", "no content type")
        return self.failures().not_an_answer(found, request_id=request_id_of(response.headers))


async def _receive_piece(received: AsyncIterator[bytes], deadline: float | None) -> bytes:
    """Return the next bytes of a stream; none at its end."""
    if deadline is None:
        return await anext(received, b"")
    seconds = deadline - anyio.current_time()
    if seconds <= 0:  # data that has arrived would be returned without checking the clock
        raise TimeoutError
    # A scope may not stay open over a yield, so each piece has one of its own.
    with anyio.fail_after(seconds):
        return await anext(received, b"")


def _find_plain_error(came: bytes, content_type: str) -> bytes | None:
    """Return the JSON of an error sent in place of events, None for nothing; raise a ValueError for something else."""
    if not came or "eventstream" in content_type.replace("-", "") or came.startswith(_EVENT_PREFIXES):
        return None
    with suppress(ValueError):
        if as_mapping(from_json(came)).get("error"):
            return came
    raise ValueError(f"{content_type}, without events")


async def post_by_sdk(
    client: Any,
    path: str,
    body: bytes,
    headers: Mapping[str, Any],
    *,
    timeout: float | None,
    stream_type: Any,
    method: Literal["get", "post"] = "post",
) -> httpx2.Response:
    """Post a body through a client of OpenAI's or Anthropic's SDK, and return the response with its body unread.

    Both come from one generator. The SDK's own stream is never made.
    """
    # The loop retries, and a redirect would take key and prompt elsewhere.
    options: dict[str, Any] = {"headers": headers, "max_retries": 0, "follow_redirects": False}
    if timeout is not None:
        options["timeout"] = timeout
    content = {"content": body} if method == "post" else {}
    found: httpx2.Response = await getattr(client, method)(
        path, cast_to=httpx2.Response, options=options, stream=True, stream_cls=stream_type, **content
    )
    return found


async def post_plainly(
    client: httpx2.AsyncClient,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout: float | None,
    failures: Callable[[], Failures],
) -> httpx2.Response:
    """Post a body without an SDK's client, and return the response with its body unread; raise for a refusal."""
    headers = {**headers, "accept-encoding": ACCEPTED_ENCODINGS}
    request = client.build_request("POST", url, content=body, headers=headers, timeout=timeout)
    response = await client.send(request, stream=True, follow_redirects=False)
    if response.is_success:
        return response
    content = await read_bounded(response, most_bytes=MOST_ERROR_BYTES, is_cut=True)
    try:
        refusal: object = from_json(content)
    except ValueError:
        refusal = content.decode("utf-8", "replace")
    raise failures().refused(response.status_code, response.headers, refusal)


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
        """Return the data of the events that are now complete, or raise where a line or their number has no end."""
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


_MOST_HELD = 16  # a server may send other events between the halves of a character
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_EVENT_NUMBER = re.compile(rb'"(?:sequence_number|created)": ?\d+')


class SurrogateMender:
    r"""Joins halves of characters that a server has put into two events; a half that stays alone becomes U+FFFD.

    Servers that cut text by UTF-16 end one event with ``\ud83d`` and begin the next with ``\ude00``, which is no JSON
    for a strict parser. An event that ends so is held until the next piece of the same text is there; if that begins
    with the other half, it is moved into the first.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, events: list[bytes]) -> list[bytes]:
        """Return the events that are ready.

        Raises:
            ReplyTooLargeError: One has too many parts.
        """
        for event in events:
            check_json_parts(event)
        if not self._held and not any(map(may_have_surrogates, events)):
            return events
        ready: list[bytes] = []
        for event in events:
            ready += self._feed_one(event)
        return ready

    @property
    def holds_events(self) -> bool:
        """True while events wait for the other half of a character."""
        return bool(self._held)

    def finish(self) -> list[bytes]:
        """Return the events that still wait."""
        held, self._held = self._held, []
        return [repair_surrogates(event) for event in held]

    def _feed_one(self, event: bytes) -> list[bytes]:
        low = _find_low_at_start(event)
        if self._held and low is not None:
            first = self._held[0]
            place = _find_high_at_end(first)
            self._held[0] = first[:place] + event[low : low + 6] + first[place:]
            return self._release_first(event[:low] + event[low + 6 :])
        if self._held and _continues_text(self._held[0], event):
            return self._release_first(event)
        self._held.append(event)
        if _find_high_at_end(self._held[0]) is None or len(self._held) > _MOST_HELD:
            return self.finish()
        return []

    def _release_first(self, event: bytes) -> list[bytes]:
        """Return the first event that is held, and of those behind it and the new one what is ready then."""
        first, *others = self._held
        self._held = []
        return [repair_surrogates(first), *self.feed([*others, event])]


def _find_high_at_end(data: bytes) -> int | None:
    """Return the place behind the last lone first half that ends a text; None where none does."""
    ends = [start + 6 for start, is_first in find_lone_halves(data) if is_first]
    return next((end for end in reversed(ends) if data[end : end + 1] == b'"'), None)


def _continues_text(first: bytes, event: bytes) -> bool:
    """Return whether an event has more of the text that ends with a first half: the same JSON up to that text."""
    place = _find_high_at_end(first) or 0
    text = next(found for found in _STRING.finditer(first) if found.end() > place)
    opening = _EVENT_NUMBER.sub(b"", first[: text.start() + 1])
    following = _EVENT_NUMBER.sub(b"", event)
    return following.startswith(opening) and not following.startswith(opening + b'"')


def _find_low_at_start(data: bytes) -> int | None:
    """Return the place of the first lone second half that begins a text; None where none does."""
    starts = [start for start, is_first in find_lone_halves(data) if not is_first]
    return next((start for start in starts if data[start - 1 : start] == b'"'), None)
