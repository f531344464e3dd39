"""The other side of an adapter, as the suite speaks to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolkit.chat import (
    ChatRequest,
    ChatResponse,
    Provider,
    StopReason,
)
from toolkit.testing.loopback import Answer, Server

__all__ = ["KEY", "Features", "Peer", "Wire", "WirePeer"]

KEY = "sk-conformance-0123456789abcdef"
"""The key that a `Wire` gives its adapter: no error may show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Abilities of a format; the default is all of them.

    Args:
        tool_choices: Of ``auto``, ``none``, ``required`` and ``one``.
        stop_reasons: Those that an answer can tell.
        usage: The fields of `Usage` that an answer can tell, beside the tokens of input and output.
        parallel_switch: True where calls side by side can be turned off.
        structured_output: True where a schema can be asked for.
        reasoning: True where an answer can tell what the model thought.
        reasoning_back: True where that is sent back with the next request.
        images: True where the user can show some.
        waiting: The kinds of items that only the application can answer; an answer has them in `unanswered`.
    """

    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "one"})
    stop_reasons: frozenset[StopReason] = frozenset(
        {"end_turn", "tool_use", "max_tokens", "stop_sequence", "content_filter", "refusal"}
    )
    usage: frozenset[str] = frozenset({"cache_read_tokens", "cache_write_tokens", "reasoning_tokens"})
    parallel_switch: bool = True
    structured_output: bool = True
    reasoning: bool = True
    reasoning_back: bool = True
    images: bool = True
    waiting: frozenset[str] = frozenset()


class Peer(Protocol):
    """The other side of an adapter: told what to answer, and asked what it was asked.

    Attributes:
        features: The features of both sides.
        provider: The adapter. It is closed after each test, where it has an ``aclose``.
    """

    features: Features
    provider: Provider

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        """Answer the next requests so, whole or in pieces, the last answer again and again."""
        ...

    @property
    def asked(self) -> Sequence[ChatRequest]:
        """The requests so far; settings that the wire does not carry are as in a new `ChatRequest`."""
        ...


class Wire(Protocol):
    """Words answers in one format, and reads its requests: no more than the suite says.

    Attributes:
        features: The features of the format.
    """

    features: Features

    def provider(self, server: Server) -> Provider:
        """Return the adapter, speaking to `server` with `KEY`, without retries of its own."""
        ...

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        """Return the body of a whole answer."""
        ...

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        """Return the events of a streamed answer; texts and arguments come in several, texts word by word."""
        ...

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        """Return the body of an error."""
        ...

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        """Return what a body asks: messages, tools, tool choice, parallel calls, response format and max tokens."""
        ...


class WirePeer:
    """A server on loopback that speaks a `Wire`."""

    def __init__(self, wire: Wire, server: Server) -> None:
        self.features: Features = wire.features
        self.provider: Provider = wire.provider(server)
        self._wire = wire
        self._server = server

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        """Answer the next requests so, the last answer again and again."""
        wire = self._wire
        self._server.answers[:] = [
            Answer(pieces=wire.pieces(response)) if streams else Answer(wire.whole(response)) for response in responses
        ]

    @property
    def asked(self) -> Sequence[ChatRequest]:
        """The requests so far."""
        return [self._wire.asked(body) for body in self._server.requests]
