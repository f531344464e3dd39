"""What reads a model's server: its events, and the four formats of `tests.providers.test_bent_answers`."""

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from tests.fuzzing.harness import Target, hold_loop

__all__ = ["TARGETS"]


_LONG = 100_000  # what is longer is read in a thread


def _hold_unless_long(run: Callable[[], Any], data: bytes) -> Any:
    return run() if len(data) > _LONG else hold_loop(run)


def format_target(name: str) -> Callable[[bytes], None]:
    bent = import_module("tests.providers.test_bent_answers")
    adapter = import_module("toolkit.providers.adapter")
    errors = import_module("toolkit.errors")
    reader = import_module("toolkit.providers.adapter").ServerEventReader
    from_json = import_module("pydantic_core").from_json
    format_ = bent.FORMATS[name]
    refused = (errors.ProviderError, *adapter.UNREADABLE)

    def heard(data: bytes, size: int) -> tuple[str, list[Any]]:
        """What a stream says, however it is cut into pieces."""
        decoder, events = format_.decoder(), reader()
        size = min(size, 65_536)  # as they come from a socket
        told: list[Any] = []
        try:
            for start in range(0, len(data), size):
                for event in hold_loop(partial(events.feed, data[start : start + size])):
                    told += _hold_unless_long(lambda event=event: list(decoder.feed(event)), event)  # type: ignore[misc]
            told.append(_hold_unless_long(decoder.finish, data))
        except refused as error:
            return type(error).__name__, []
        bent.check_counts(told[-1].response)
        return "", told

    def test(data: bytes) -> None:
        size, text = 1 + (data[0] if data else 0) % 32, data[1:]
        assert heard(text, size) == heard(text, max(1, len(text))), text
        try:
            body = _hold_unless_long(partial(from_json, text), text)
        except ValueError:
            return
        if isinstance(body, dict):
            try:
                response = _hold_unless_long(partial(format_.decoder().read_whole, body), text)
            except refused:
                return
            bent.check_counts(response)
            assert not response.unfinished_calls or response.stop_reason == "max_tokens"

    return test


def events_target() -> Callable[[bytes], None]:
    reader = import_module("toolkit.providers.adapter").ServerEventReader

    def read(data: bytes, size: int) -> list[bytes]:
        events = reader()
        size = min(size, 65_536)  # as they come from a socket
        return [
            event
            for start in range(0, len(data), size)
            for event in hold_loop(partial(events.feed, data[start : start + size]))
        ]

    def test(data: bytes) -> None:
        size, text = 1 + (data[0] if data else 0) % 32, data[1:]
        whole = read(text, max(1, len(text)))
        assert read(text, size) == whole
        assert sum(map(len, whole)) <= len(text)

    return test


_FORMATS = ("chat", "responses", "messages", "generate")


def _answers(name: str) -> list[bytes]:
    bent = import_module("tests.providers.test_bent_answers")
    wire, said = bent.FORMATS[name].wire, bent.SAID
    return [b"\x07" + json.dumps(wire.whole(said)).encode(), b"\x07" + b"".join(wire.pieces(said))]


def _all_answers() -> list[bytes]:
    return [
        *[seed for name in _FORMATS for seed in _answers(name)],
        b"\x02: hello\r\nevent: a\r\nid: 1\r\ndata: {}\r\ndata:[]\r\n\r\ndata: [DONE]\n\ndata: more\n\n",
    ]


TARGETS = [
    *[
        Target(
            name=name,
            make=partial(format_target, name),
            seeds=partial(_answers, name),
            follows=["toolkit.providers"],
        )
        for name in _FORMATS
    ],
    Target(name="events", make=events_target, seeds=_all_answers, follows=["toolkit.providers.adapter"]),
]
