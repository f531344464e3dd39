"""The file of a cassette: exchanges with a provider as JSON lines.

``{"cassette": 1}``, then one line for each exchange with its ``request`` and what came of it: a ``response``; the
``events`` of a stream, as they came; an ``error``; or events and ``"left": true``, where whoever listened went away.
Exchanges stand in the order in which they ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from toolkit.chat import ChatResponse, ResponseDone, StreamEvent
from toolkit.chat.provider import events_of
from toolkit.chat.serialization import (
    event_from_plain,
    provider_error_from_plain,
    response_from_plain,
)
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.private_files import make_private

if sys.platform != "win32":  # there only the threads of one process take turns
    import fcntl

__all__ = [
    "CassetteJson",
    "Method",
    "RecordedExchange",
    "append_exchange",
    "prepare_file",
    "read_exchanges",
]

Method: TypeAlias = Literal["generate", "stream"]

CassetteJson: TypeAlias = dict[str, Any]

_CASSETTE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedExchange:
    """One request and what came of it.

    Args:
        line: Of the file, from 1.
        method: How it was asked.
        request: The request, as JSON values.
        events: The events of the stream; else those that a stream of the answer would have.
        response: The whole answer, if it came.
        error: The exception, if one was raised.
    """

    line: int
    method: Method
    request: CassetteJson
    events: Sequence[StreamEvent]
    response: ChatResponse | None
    error: CassetteJson | None


def prepare_file(path: Path) -> None:
    """Make the file, and its folder, where there is none; check it where there is one. It is for its owner alone.

    Raises:
        ConfigurationError: It can't be written, or is no cassette.
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
    """Write an exchange at the end, whole or not at all; other processes may do the same.

    Raises:
        ConfigurationError: It can't be written; what was there is as it was.
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
                file.truncate(end)  # a disk that is full leaves no half of a line
                raise
    except OSError as error:
        raise _explain_failure(path, error) from error


def _explain_failure(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"the cassette {path} can't be written: {error.strerror or error}")


def read_exchanges(path: Path) -> list[RecordedExchange]:
    """Return the exchanges of a cassette, in order.

    Raises:
        ConfigurationError: There is no such file, or it is no cassette; it names the line.
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
    exchanges: list[RecordedExchange] = []
    for number, line in enumerate(lines, 1):
        try:
            found: object = json.loads(line)
            if number == 1:
                _check_cassette_version(found)
            else:
                exchanges.append(_read_exchange(number, found))
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigurationError(f"{path}, line {number}: not what a cassette has there: {error}") from error
    return exchanges


def _check_cassette_version(header: object) -> None:
    if header != {"cassette": _CASSETTE_VERSION}:
        raise ValueError(
            f'the first line must be {{"cassette": {_CASSETTE_VERSION}}}; record anew what another version has recorded'
        )


def _read_exchange(line: int, found: object) -> RecordedExchange:
    if not isinstance(found, dict):
        raise TypeError("an exchange is an object")
    plain = cast("CassetteJson", found)
    request = plain["request"]
    request["messages"]
    if "events" in plain:
        events = [event_from_plain(event) for event in plain["events"]]
        done = events[-1] if events else None
        response = done.response if isinstance(done, ResponseDone) else None
    else:
        response = response_from_plain(plain["response"]) if "response" in plain else None
        events = [] if response is None else list(events_of(response))
    error = plain.get("error")
    if error is not None:
        provider_error_from_plain(error)
    elif response is None and not plain.get("left"):
        raise ValueError("an exchange has a response, events that end with one, an error, or was left")
    method: Method = "stream" if "events" in plain else "generate"
    return RecordedExchange(line=line, method=method, request=request, events=events, response=response, error=error)


@contextmanager
def _lock_file(file: FileIO) -> Generator[None]:
    """Keep other processes out of the file until it is closed."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX)
    yield
