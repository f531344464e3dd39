"""Providers that record what is said with a model, and play it again offline."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import anyio.lowlevel

from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.chat.serialization import (
    event_to_plain,
    provider_error_from_plain,
    provider_error_to_plain,
    request_to_plain,
    response_to_plain,
)
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.json_text import write_json
from toolkit.secrets import Scrubber
from toolkit.settings import check_setting
from toolkit.testing.cassette_file import (
    CassetteJson,
    Method,
    RecordedExchange,
    append_exchange,
    prepare_file,
    read_exchanges,
)

__all__ = ["Matching", "RecordingProvider", "ReplayProvider"]

Matching: TypeAlias = Literal["strict", "lenient"]
"""The rule by which a request is the one that was recorded; see `ReplayProvider`."""


_LONGEST_DIFF = 60


class RecordingProvider(ProviderWrapper):
    """Passes everything on to a provider, and writes it down for `ReplayProvider`.

    ::

        recording = RecordingProvider(OpenAIProvider("gpt-5-mini"), "tests/paris.jsonl")
        await tool_loop(recording, registry, "What's the weather in Paris?")

    Each exchange is appended whole, in one piece, the moment it is over; answers, streams with their deltas, and
    `ProviderError`s too. A request that is cancelled before anything came is not written. What is there already stays:
    delete the file to record anew.

    Secrets are struck out of what is written: what keys of well-known vendors look like, what telling names are given
    in texts and addresses, the fields of options and metadata with telling names, all headers of options, and the texts
    in `secrets`. The caller gets the answers as they are. The file is for its owner alone (mode 0600 on POSIX).

    Args:
        provider: Answers. Closing it stays with who made it.
        path: The cassette; it and its folder are made where there is none.
        secrets: More texts to strike out.
        secret_words: More words that tell of a secret in the name of a field, such as ``tenant``.

    Raises:
        ConfigurationError: The file is there and is no cassette, or can't be written.
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
        self._scrub = Scrubber(secrets, secret_words)
        self._lock = Lock()
        prepare_file(self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._provider!r}, {str(self._path)!r})"

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the provider's answer, written down."""
        asked = request_to_plain(request)
        try:
            response = await self._provider.generate(request)
        except ProviderError as error:
            self._append_exchange(request=asked, error=provider_error_to_plain(error))
            raise
        self._append_exchange(request=asked, response=response_to_plain(response))
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's answer as it comes; it is written down when it is over, or left."""
        asked = request_to_plain(request)
        heard: list[CassetteJson] = []
        outcome: CassetteJson = {"left": True}
        try:
            async with closing(self._provider.stream(request)) as events:
                async for event in events:
                    heard.append(event_to_plain(event))
                    if isinstance(event, ResponseDone):
                        outcome = {}
                    yield event
        except ProviderError as error:
            outcome = {"error": provider_error_to_plain(error)}
            raise
        finally:
            if heard or "error" in outcome:
                self._append_exchange(request=asked, events=heard, **outcome)

    def _append_exchange(self, *, events: Sequence[CassetteJson] | None = None, **exchange: Any) -> None:
        clean = self._scrub(exchange)
        if events is not None:
            clean["events"] = self._scrub.events(events)
        # In no other thread, so that no cancellation comes between an answer and its record.
        with self._lock:
            append_exchange(self._path, clean)


class ReplayProvider:
    """Answers from a cassette, offline: the same answers, deltas and errors as when it was recorded.

    ::

        result = await tool_loop(ReplayProvider("tests/paris.jsonl"), registry, "What's the weather in Paris?")

    - ``strict``: the request must be equal in all but its timeout, asked the same way (`generate` or `stream`); each
      exchange is played once, equal ones in the order in which they were recorded.
    - ``lenient``: only what was said must be equal: the texts, the calls with their arguments as JSON values and the
      results, in order. Settings, tools, ids, reasoning and the way of asking don't count, and the last of equal
      exchanges is played again and again.

    Args:
        path: The cassette.
        matching: As above.
        secrets: The same as for recording.
        secret_words: The same as for recording.

    Raises:
        ConfigurationError: There is no such file, or it is no cassette; it names the line. A request that was not
            recorded raises it too, with the difference from the next exchange that was.
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
        self._scrub = Scrubber(secrets, secret_words)
        self._exchanges = read_exchanges(self._path)
        self._unplayed = dict.fromkeys(range(len(self._exchanges)))
        self._places: dict[str, list[int]] = {}
        for place, exchange in enumerate(self._exchanges):
            key = write_json(self._normalize_request(exchange.request, exchange.method), sort_keys=True)
            self._places.setdefault(key, []).append(place)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r}, matching={self._matching!r})"

    @property
    def unplayed(self) -> int:
        """The number of exchanges that nobody has asked for yet."""
        return len(self._unplayed)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the recorded answer.

        Raises:
            ProviderError: That is what was recorded.
            ConfigurationError: The request was not recorded.
        """
        await anyio.lowlevel.checkpoint()
        exchange = self._next_exchange(request, "generate")
        if exchange.response is None:
            self._end_recording(exchange)
        return exchange.response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the recorded answer, piece by piece as it was recorded.

        Raises:
            ProviderError: That is what was recorded, after the same pieces.
            ConfigurationError: The request was not recorded, or not beyond what was yielded.
        """
        await anyio.lowlevel.checkpoint()
        exchange = self._next_exchange(request, "stream")
        for event in exchange.events:
            yield event
        if exchange.response is None:
            self._end_recording(exchange)

    def _end_recording(self, exchange: RecordedExchange) -> NoReturn:
        if exchange.error is not None:
            raise provider_error_from_plain(exchange.error)
        raise ConfigurationError(
            f"{self._path}, line {exchange.line}: the recording ends here, since whoever listened left the stream"
        )

    def _next_exchange(self, request: ChatRequest, method: Method) -> RecordedExchange:
        compared = self._normalize_request(self._scrub(request_to_plain(request)), method)
        places = self._places.get(write_json(compared, sort_keys=True), ())
        place = next((place for place in places if place in self._unplayed), None)
        if place is None and places and self._matching == "lenient":
            place = places[-1]
        if place is None:
            raise ConfigurationError(self._explain_mismatch(compared))
        self._unplayed.pop(place, None)
        return self._exchanges[place]

    def _normalize_request(self, asked: CassetteJson, method: Method) -> CassetteJson:
        if self._matching == "strict":
            return {"method": method, "request": asked}
        return {"said": [said for message in asked["messages"] for said in _describe_message(message)]}

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


def _describe_message(message: Mapping[str, Any]) -> list[list[Any]]:
    """Return the parts of a message that lenient matching looks at."""
    content: Any = message["content"]
    if isinstance(content, str):
        return [[message["role"], content]]
    said: list[list[Any]] = []
    for block in content:
        match block:
            case {"type": "call", "name": name, "arguments": arguments}:
                said.append(["call", name, _find_value(arguments)])
            case {"type": "text", "text": text}:
                said.append([message["role"], text])
            case {"type": "reasoning"}:
                pass
            case _:
                said.append([message["role"], {name: value for name, value in block.items() if name != "name"}])
    return said


def _find_value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _list_json_lines(plain: CassetteJson) -> list[str]:
    return write_json(plain, indent=1, sort_keys=True).splitlines()
