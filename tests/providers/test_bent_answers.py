"""Answers that a server bends, and streams in any pieces: an answer or one of our errors, never a crash."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from tests.testing.wires.anthropic import MessagesWire
from tests.testing.wires.google import GenerateWire
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit import ProviderError
from toolkit.chat import ChatResponse, ReasoningBlock, ResponseDone, StreamEvent, TextBlock
from toolkit.providers.adapter import Decoder, ServerEventReader
from toolkit.providers.anthropic.decode import AnthropicStreamDecoder, decode_message
from toolkit.providers.failures import Failures
from toolkit.providers.google.decode import GeminiStreamDecoder, decode_answer
from toolkit.providers.openai.chat import ChatReading, ChatStreamDecoder, decode_completion
from toolkit.providers.openai.responses import ResponsesStreamDecoder, decode_response
from toolkit.testing.conformance import ADD, ADD_MORE, Wire, response_of

ODD: tuple[Any, ...] = (None, -1, 1.5, 10**400, float("nan"), "x", True, [], ["x"], {}, {"a": 1})
SAID = response_of(ReasoningBlock(text="Hm.", signature="c2VhbA=="), TextBlock("Grüße 🦉"), ADD, ADD_MORE)


def failures() -> Failures:
    return Failures(provider="p", url="http://127.0.0.1", model="m", key_advice="a key", protocol="the format")


@dataclass(frozen=True)
class Format:
    wire: Wire
    decoder: Callable[[], Decoder]
    decode: Callable[[dict[str, Any]], ChatResponse]


FORMATS = {
    "chat": Format(
        ChatWire(),
        lambda: ChatStreamDecoder(failures, ChatReading()),
        lambda body: decode_completion(body, failures, ChatReading()),
    ),
    "responses": Format(
        ResponsesWire(), lambda: ResponsesStreamDecoder(failures, {}), lambda body: decode_response(body, failures, {})
    ),
    "messages": Format(
        MessagesWire(), lambda: AnthropicStreamDecoder(failures, {}), lambda body: decode_message(body, failures, {})
    ),
    "generate": Format(
        GenerateWire(), lambda: GeminiStreamDecoder(failures, {}), lambda body: decode_answer(body, failures, {})
    ),
}

every_format = pytest.mark.parametrize("name", FORMATS)


def heard(decoder: Decoder, *received: bytes) -> list[StreamEvent]:
    reader = ServerEventReader()
    events = [event for piece in received for data in reader.feed(piece) for event in decoder.feed(data)]
    return [*events, decoder.finish()]


def bent(value: Any) -> Iterator[Any]:
    """Copies of a JSON value, each with something odd in one place."""
    for path in places(value):
        for odd in ODD:
            copy = deepcopy(value)
            inside = copy
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = odd
            yield copy


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for key, member in members:
        yield from places(member, (*path, key))


def check_counts(response: ChatResponse) -> None:
    usage = response.usage
    assert (type(usage.input_tokens), type(usage.output_tokens)) == (int, int)
    assert all(type(call.arguments) is str for call in response.tool_calls)


@every_format
def test_a_bent_answer_is_read_or_refused(name: str) -> None:
    for body in bent(FORMATS[name].wire.whole(SAID)):
        try:
            check_counts(FORMATS[name].decode(body))
        except ProviderError:
            continue


@every_format
def test_a_bent_stream_is_read_or_refused(name: str) -> None:
    lines = b"".join(FORMATS[name].wire.pieces(SAID)).splitlines()
    events = [json.loads(line[5:]) for line in lines if line.startswith(b"data:") and b"[DONE]" not in line]
    for position, event in enumerate(events):
        for odd in bent(event):
            told = [*events[:position], odd, *events[position + 1 :]]
            try:
                done = heard(FORMATS[name].decoder(), *[b"data: %s\n\n" % json.dumps(each).encode() for each in told])[
                    -1
                ]
            except (ProviderError, ValueError):  # a ValueError is told as a bad answer by whoever feeds
                continue
            assert isinstance(done, ResponseDone)
            check_counts(done.response)


@every_format
def test_where_a_stream_is_divided_does_not_matter(name: str) -> None:
    stream = b"".join(FORMATS[name].wire.pieces(SAID))
    whole = heard(FORMATS[name].decoder(), stream)
    for at in range(0, len(stream), 5):
        assert heard(FORMATS[name].decoder(), stream[:at], stream[at:]) == whole
    assert heard(FORMATS[name].decoder(), *[stream[at : at + 1] for at in range(len(stream))]) == whole


@every_format
def test_a_stream_that_is_cut_anywhere_gives_all_or_an_error_that_may_pass(name: str) -> None:
    stream = b"".join(FORMATS[name].wire.pieces(SAID))
    whole = heard(FORMATS[name].decoder(), stream)[-1]
    assert isinstance(whole, ResponseDone)
    for at in range(0, len(stream), 5):
        response = answer_unless_it_breaks_off(FORMATS[name].decoder(), stream[:at])
        assert response is None or response.message == whole.response.message


def answer_unless_it_breaks_off(decoder: Decoder, received: bytes) -> ChatResponse | None:
    try:
        done = heard(decoder, received)[-1]
    except ProviderError as error:
        if not error.is_retryable:
            raise
        return None
    assert isinstance(done, ResponseDone)
    return done.response
