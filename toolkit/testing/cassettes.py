"""Providers that record exchanges with a model and replay them offline, and the file format.

A cassette is JSON lines: ``{"cassette": 1}``, then one line for each exchange with its ``request`` and its outcome: a
``response``; the ``events`` of a stream; an ``error``; or events and ``"left": true`` if the reader stopped early.
Exchanges are in the order in which they ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from functools import cached_property, partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NoReturn, TypeAlias, cast, get_args

import anyio
import anyio.to_thread

from toolkit.calls.argument_repair import list_readings
from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent
from toolkit.chat.provider import (
    ProviderWrapper,
    closing,
    event_from_plain,
    event_to_plain,
    events_of,
    provider_error_from_plain,
    provider_error_to_plain,
    request_to_plain,
    response_from_plain,
    response_to_plain,
)
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.json_text import write_json
from toolkit.private_files import make_private
from toolkit.redaction import MASK, Scrubber, mask_leaves
from toolkit.schema.nodes import Nodes, is_array, is_object
from toolkit.settings import check_setting

Matching: TypeAlias = Literal["strict", "lenient"]
"""The rule that matches requests with recorded ones; see `ReplayProvider`."""


_LONGEST_DIFF = 60
Method: TypeAlias = Literal["generate", "stream"]
CassetteJson: TypeAlias = dict[str, Any]
_CASSETTE_VERSION = 1


class RecordingProvider(ProviderWrapper):
    """Passes requests on to a provider, and records the exchanges for `ReplayProvider`.

    ::

        recording = RecordingProvider(OpenAIProvider("gpt-5-mini"), "tests/paris.jsonl")
        await tool_loop(recording, registry, "What's the weather in Paris?")

    Each exchange is appended atomically when it ends: responses, streams with their deltas, and `ProviderError`s. A
    request that is cancelled before any response is not recorded. Existing exchanges are preserved: delete the file to
    record anew.

    Secrets are redacted: text in the format of well-known vendors' keys, values with secret-sounding names in texts,
    URLs, options and metadata, all headers of options, and the texts in `secrets`. The caller gets unredacted
    responses. Only its owner can read the file (mode 0600 on POSIX).

    Args:
        provider: The provider to record; its creator closes it.
        path: The cassette; it and its folder are created if missing.
        secrets: More texts to redact.
        secret_words: More words that indicate a secret in the name of a field, such as ``tenant``.

    Raises:
        ConfigurationError: The file exists and is not a cassette, or can't be written.
    """

    def __init__(
        self,
        provider: Provider,
        path: str | os.PathLike[str],
        *,
        secrets: Iterable[str] = (),
        secret_words: Iterable[str] = (),
    ) -> None:
        super().__init__(provider)
        self._path = Path(path)
        self._make_scrubber = _scrubber_maker(secrets, secret_words)
        self._lock = Lock()
        prepare_file(self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._provider!r}, {str(self._path)!r})"

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the provider's response, and record it."""
        asked = request_to_plain(request)
        try:
            response = await self._provider.generate(request)
        except ProviderError as error:
            await self._append_exchange(request=asked, error=provider_error_to_plain(error))
            raise
        await self._append_exchange(request=asked, response=response_to_plain(response))
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's events as they arrive; they are recorded when the stream ends or is abandoned."""
        asked = request_to_plain(request)
        recorded: list[CassetteJson] = []
        outcome: CassetteJson = {"left": True}
        try:
            async with closing(self._provider.stream(request)) as events:
                async for event in events:
                    recorded.append(event_to_plain(event))
                    if isinstance(event, ResponseDone):
                        outcome = {}
                    yield event
        except ProviderError as error:
            outcome = {"error": provider_error_to_plain(error)}
            raise
        finally:
            if recorded or "error" in outcome:
                await self._append_exchange(request=asked, events=recorded, **outcome)

    async def _append_exchange(self, *, events: Sequence[CassetteJson] | None = None, **exchange: Any) -> None:
        def append() -> None:
            whole = exchange if events is None else {**exchange, "events": events}
            clean = _scrub_exchange(self._make_scrubber(), whole)
            with self._lock:
                append_exchange(self._path, clean)

        with anyio.CancelScope(shield=True):  # no cancellation between a response and its record
            await anyio.to_thread.run_sync(append)


class ReplayProvider:
    """Replays the responses, deltas and errors of a cassette, offline.

    ::

        result = await tool_loop(ReplayProvider("tests/paris.jsonl"), registry, "What's the weather in Paris?")

    - ``strict``: requests must be equal except for the timeout, and use the same method (`generate` or `stream`); each
      exchange is replayed once, equal ones in the order of recording.
    - ``lenient``: only the conversation must be equal: the texts, the calls with their arguments as JSON values and the
      results, in order. Settings, tools, ids, reasoning and the method are ignored, and the last of equal exchanges
      repeats.

    Args:
        path: The cassette.
        matching: ``strict`` or ``lenient``.
        secrets: The same as for recording.
        secret_words: The same as for recording.

    Raises:
        ConfigurationError: The file does not exist or is not a cassette; the message names the line. It is also raised
            for a request that was not recorded, with the difference from the next recorded one, and for an exchange
            that can't be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        matching: Matching = "strict",
        secrets: Iterable[str] = (),
        secret_words: Iterable[str] = (),
    ) -> None:
        check_setting("matching", matching, *get_args(Matching))
        self._path = Path(path)
        self._matching: Matching = matching
        self._make_scrubber = _scrubber_maker(secrets, secret_words)
        self._lock = Lock()
        self._exchanges = read_exchanges(self._path)
        self._unplayed = dict.fromkeys(range(len(self._exchanges)))
        self._places: dict[str, list[int]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r}, matching={self._matching!r})"

    @property
    def unplayed(self) -> int:
        """The number of exchanges that have not been requested yet."""
        return len(self._unplayed)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the recorded response.

        Raises:
            ProviderError: It was recorded.
            ConfigurationError: The request was not recorded.
        """
        exchange = await self._next_exchange(request, "generate")
        if exchange.response is None:
            self._end_recording(exchange)
        return exchange.response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the recorded events.

        Raises:
            ProviderError: It was recorded, after the same events.
            ConfigurationError: The request was not recorded, or not beyond the yielded events.
        """
        exchange = await self._next_exchange(request, "stream")
        for event in exchange.events:
            yield event
        if exchange.response is None:
            self._end_recording(exchange)

    def _end_recording(self, exchange: RecordedExchange) -> NoReturn:
        if exchange.error is not None:
            raise provider_error_from_plain(exchange.error)
        raise ConfigurationError(
            f"{self._path}, line {exchange.line}: the recording ends here, since the reader left the stream"
        )

    async def _next_exchange(self, request: ChatRequest, method: Method) -> RecordedExchange:
        compared, places = await anyio.to_thread.run_sync(self._find_places, request, method)
        place = next((place for place in places if place in self._unplayed), None)
        if place is None and places and self._matching == "lenient":
            place = places[-1]
        if place is None:
            raise ConfigurationError(self._explain_mismatch(compared))
        self._unplayed.pop(place, None)
        exchange = self._exchanges[place]
        await anyio.to_thread.run_sync(getattr, exchange, "answer")
        return exchange

    def _find_places(self, request: ChatRequest, method: Method) -> tuple[CassetteJson, Sequence[int]]:
        """Return the normalized request and the places of the exchanges that match it."""
        with self._lock:
            if not self._places:
                for place, exchange in enumerate(self._exchanges):
                    try:
                        key = write_json(self._normalize_request(exchange.request, exchange.method), sort_keys=True)
                    except _UNREADABLE as error:
                        raise _explain_line(self._path, exchange.line, error) from error
                    self._places.setdefault(key, []).append(place)
        clean = _scrub_exchange(self._make_scrubber(), {"request": request_to_plain(request)})["request"]
        compared = self._normalize_request(clean, method)
        found = self._places.get(write_json(compared, sort_keys=True))
        if found is None:  # as a secret that only the reply told of is struck out of the recorded request, too
            masked = [key for key in self._places if MASK in key and _fits_masked(json.loads(key), compared)]
            found = [place for key in masked for place in self._places[key]]
        return compared, found

    def _normalize_request(self, asked: CassetteJson, method: Method) -> CassetteJson:
        if self._matching == "strict":
            return {"method": method, "request": asked}
        return {"said": [part for message in asked["messages"] for part in _describe_message(message)]}

    def _explain_mismatch(self, asked: CassetteJson) -> str:
        what = f"{self._path}: this request was not recorded, or has been played already"
        again = "record anew (delete the file first) if it is right as it is"
        if not self._unplayed:
            return f"{what}: all {len(self._exchanges)} exchanges are played; {again}"
        nearest = self._exchanges[next(iter(self._unplayed))]
        recorded = self._normalize_request(nearest.request, nearest.method)
        lines = list(
            unified_diff(
                _list_json_lines(recorded),
                _list_json_lines(asked),
                f"recorded, line {nearest.line}",
                "asked now",
                lineterm="",
            )
        )
        left_out = len(lines) - _LONGEST_DIFF
        if left_out > 0:
            lines[_LONGEST_DIFF:] = [f"... and {left_out} lines more"]
        difference = "\n".join(lines)
        return f"{what}; {again}. The next one that was recorded differs so:\n{difference}"


def _scrubber_maker(secrets: Iterable[str], words: Iterable[str]) -> Callable[[], Scrubber]:
    """Return a function that makes the scrubber of one exchange."""
    return partial(
        Scrubber, tuple(secrets), tuple(words), replace=mask_leaves, is_learning=True, list_readings=list_readings
    )


def _scrub_exchange(scrub: Scrubber, exchange: CassetteJson) -> CassetteJson:
    """Return an exchange without secrets, including those that the schemas of the request's tools mark."""
    for tool in exchange["request"].get("tools") or ():
        scrub.learn_tool(tool["name"], partial(Nodes, tool["parameters"]))
    known = scrub.secrets
    clean = _scrub_parts(scrub, exchange)
    return clean if scrub.secrets == known else _scrub_parts(scrub, clean)


def _scrub_parts(scrub: Scrubber, exchange: CassetteJson) -> CassetteJson:
    return {name: scrub.events(part) if name == "events" else scrub(part) for name, part in exchange.items()}


def _fits_masked(recorded: Any, asked: Any) -> bool:
    """Return whether JSON values are equal, but for what masks have taken the place of."""
    if isinstance(recorded, str) and isinstance(asked, str):
        first, *parts = recorded.split(MASK)
        if not parts or not asked.startswith(first):
            return recorded == asked
        last, place = parts.pop(), len(first)
        for part in parts:
            found = asked.find(part, place)
            if found < 0:
                return False
            place = found + len(part)
        return len(asked) - len(last) >= place and asked.endswith(last)
    if is_object(recorded) and is_object(asked):
        return recorded.keys() == asked.keys() and all(
            _fits_masked(part, asked[name]) for name, part in recorded.items()
        )
    if is_array(recorded) and is_array(asked):
        return len(recorded) == len(asked) and all(map(_fits_masked, recorded, asked))
    return bool(recorded == asked)


def _describe_message(message: Mapping[str, Any]) -> list[list[Any]]:
    """Return the parts of a message that lenient matching compares."""
    content: Any = message["content"]
    if isinstance(content, str):
        return [[message["role"], content]]
    parts: list[list[Any]] = []
    for block in content:
        match block:
            case {"type": "call", "name": name, "arguments": arguments}:
                parts.append(["call", name, _find_value(arguments)])
            case {"type": "text", "text": text}:
                parts.append([message["role"], text])
            case {"type": "reasoning"}:
                pass
            case _:
                parts.append([message["role"], {name: value for name, value in block.items() if name != "name"}])
    return parts


def _find_value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _list_json_lines(plain: CassetteJson) -> list[str]:
    return write_json(plain, indent=1, sort_keys=True).splitlines()


if sys.platform != "win32":  # Windows has no file locks here: only the threads of one process take turns
    import fcntl


@dataclass(frozen=True, kw_only=True)
class RecordedExchange:
    """A request and its outcome, which is parsed on first use.

    Args:
        path: The cassette.
        line: The line in the file, from 1.
        plain: The exchange as JSON values.
    """

    path: Path
    line: int
    plain: CassetteJson

    @property
    def request(self) -> CassetteJson:
        """The request, as JSON values."""
        request: CassetteJson = self.plain["request"]
        return request

    @property
    def method(self) -> Method:
        """The provider method of the request."""
        return "stream" if "events" in self.plain else "generate"

    @property
    def error(self) -> CassetteJson | None:
        """The exception, if one was raised."""
        return self.plain.get("error")

    @property
    def events(self) -> Sequence[StreamEvent]:
        """The recorded events, or those that a stream of the response would have."""
        return self.answer[0]

    @property
    def response(self) -> ChatResponse | None:
        """The complete response; None if there is none."""
        return self.answer[1]

    @cached_property
    def answer(self) -> tuple[Sequence[StreamEvent], ChatResponse | None]:
        """The events and the response; raises `ConfigurationError` if they are invalid."""
        try:
            return _read_answer(self.plain)
        except _UNREADABLE as error:
            raise _explain_line(self.path, self.line, error) from error


def prepare_file(path: Path) -> None:
    """Create a cassette and its folder, readable only by its owner, or check an existing one.

    Raises:
        ConfigurationError: It can't be written, or is not a cassette.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_private(path)
        with path.open("ab") as file:
            is_new = file.tell() == 0
    except OSError as error:
        raise _explain_failure(path, error) from error
    if not is_new:
        read_exchanges(path)


def append_exchange(path: Path, exchange: CassetteJson) -> None:
    """Append an exchange atomically; other processes may do the same.

    Raises:
        ConfigurationError: It can't be written; the file is unchanged.
    """
    line = write_json(exchange, sort_keys=True).encode() + b"\n"
    try:
        with path.open("r+b", buffering=0) as file, _lock_file(file):
            end = file.seek(0, os.SEEK_END)
            if end == 0:
                line = write_json({"cassette": _CASSETTE_VERSION}).encode() + b"\n" + line
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(end)  # a full disk leaves no partial line
                raise
    except OSError as error:
        raise _explain_failure(path, error) from error


def _explain_failure(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"the cassette {path} can't be written: {error.strerror or error}")


def read_exchanges(path: Path) -> list[RecordedExchange]:
    """Return the exchanges of a cassette, in order.

    Raises:
        ConfigurationError: The file does not exist or is not a cassette; the message names the line.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no cassette at {path}: record one with RecordingProvider(provider, path), or, where the "
            "fixture `cassette` wants it, by running pytest with --record-cassettes"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the cassette {path} can't be read: {error}") from error
    lines = text.split("\n")
    if lines.pop():
        raise ConfigurationError(
            f"{path}, line {len(lines) + 1}: the line is cut off; delete it, or record the cassette anew"
        )
    exchanges, number = list[RecordedExchange](), 0
    try:
        for number, line in enumerate(lines, 1):
            found: object = json.loads(line)
            if number == 1:
                _check_cassette_version(found)
            else:
                exchanges.append(RecordedExchange(path=path, line=number, plain=_check_exchange(found)))
    except _UNREADABLE as error:
        raise _explain_line(path, number, error) from error
    return exchanges


_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def _explain_line(path: Path, line: int, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{path}, line {line}: not what a cassette has there: {error}")


def _check_cassette_version(header: object) -> None:
    if header != {"cassette": _CASSETTE_VERSION}:
        raise ValueError(
            f'the first line must be {{"cassette": {_CASSETTE_VERSION}}}; record anew what another version has recorded'
        )


def _check_exchange(found: object) -> CassetteJson:
    """Return a validated exchange."""
    if not isinstance(found, dict):
        raise TypeError("an exchange is an object")
    plain = cast("CassetteJson", found)
    if not all({"role", "content"} <= message.keys() for message in plain["request"]["messages"]):
        raise TypeError("each message of a request has a role and a content")
    if plain.get("error") is not None:
        provider_error_from_plain(plain["error"])
    elif not (plain.get("events") or plain.get("response") or plain.get("left")):
        raise ValueError("an exchange has a response, events that end with one, an error, or was left")
    return plain


def _read_answer(plain: CassetteJson) -> tuple[Sequence[StreamEvent], ChatResponse | None]:
    if "events" not in plain:
        response = response_from_plain(plain["response"]) if "response" in plain else None
        return ([] if response is None else list(events_of(response))), response
    events = [event_from_plain(event) for event in plain["events"]]
    done = events[-1] if events else None
    response = done.response if isinstance(done, ResponseDone) else None
    if response is None and plain.get("error") is None and not plain.get("left"):
        raise ValueError("events end with a response, or with an error, or the stream was left")
    return events, response


@contextmanager
def _lock_file(file: FileIO) -> Generator[None]:
    """Lock the file against other processes until it is closed."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX)
    yield
