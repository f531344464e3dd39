"""Answers that a server bends, and streams in any pieces: an answer or one of our errors, never a crash."""

import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from tests.providers.loopback import Answer, chunk, completion, events, serving
from tests.providers.test_connections import REQUEST, make_provider
from tests.testing.wires.anthropic import MessagesWire
from tests.testing.wires.google import GenerateWire
from tests.testing.wires.openai_chat import ChatWire
from tests.testing.wires.openai_responses import ResponsesWire
from toolkit import ProviderError
from toolkit.chat import ChatResponse, ReasoningBlock, ResponseDone, StreamEvent, TextBlock, TextDelta
from toolkit.providers.adapter import Decoder, ServerEventReader
from toolkit.providers.anthropic.client import AnthropicDecoder
from toolkit.providers.anthropic.encode import AnthropicReading
from toolkit.providers.failures import Failures
from toolkit.providers.google import GeminiDecoder
from toolkit.providers.openai.chat import ChatDecoder, ChatReading
from toolkit.providers.openai.responses import ResponsesDecoder, ResponsesReading
from toolkit.testing.conformance import ADD, ADD_MORE, Wire, response_of

ODD: tuple[Any, ...] = (None, -1, 1.5, 10**400, float("nan"), "x", True, [], ["x"], {}, {"a": 1})
SAID = response_of(ReasoningBlock(text="Hm.", signature="c2VhbA=="), TextBlock("Grüße 🦉"), ADD, ADD_MORE)


def failures() -> Failures:
    return Failures(provider="p", url="http://127.0.0.1", model="m", key_advice="a key", protocol="the format")


@dataclass(frozen=True)
class Format:
    wire: Wire
    decoder: Callable[[], Decoder[Any]]


FORMATS = {
    "chat": Format(ChatWire(), lambda: ChatDecoder(failures, ChatReading())),
    "responses": Format(ResponsesWire(), lambda: ResponsesDecoder(failures, ResponsesReading())),
    "messages": Format(MessagesWire(), lambda: AnthropicDecoder(failures, AnthropicReading())),
    "generate": Format(GenerateWire(), lambda: GeminiDecoder(failures, {})),
}

every_format = pytest.mark.parametrize("name", FORMATS)


def heard(decoder: Decoder[Any], *received: bytes) -> list[StreamEvent]:
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
            check_counts(FORMATS[name].decoder().read_whole(body))
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


def answer_unless_it_breaks_off(decoder: Decoder[Any], received: bytes) -> ChatResponse | None:
    try:
        done = heard(decoder, received)[-1]
    except ProviderError as error:
        if not error.is_retryable:
            raise
        return None
    assert isinstance(done, ResponseDone)
    return done.response


# halves of characters

HIGH, LOW = "\ud83d", "\ude00"  # of an emoji, as UTF-16 has it


def stream_texts(vendor: str, *texts: str) -> list[dict[str, Any]]:
    """Return the events of an answer whose text comes in these pieces."""
    if vendor == "openai":
        return [*[chunk({"content": text}) for text in texts], chunk({}, finish_reason="stop")]
    if vendor == "google":
        parts = [{"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]} for text in texts]
        return [*parts, {"candidates": [{"finishReason": "STOP"}]}]
    if vendor == "anthropic":
        begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        spoken = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts
        ]
        between: list[dict[str, Any]] = [each for delta in spoken for each in (delta, {"type": "ping"})]
        ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        return [{"type": "message_start", "message": {"role": "assistant"}}, begun, *between, ended]
    content = [{"type": "output_text", "text": "".join(texts)}]
    output = [{"type": "message", "role": "assistant", "content": content}]
    deltas = [{"type": "response.output_text.delta", "delta": text} for text in texts]
    return [*deltas, {"type": "response.completed", "response": {"status": "completed", "output": output}}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        pytest.param(("Hi ", HIGH, LOW, "!"), "Hi \U0001f600!", id="alone"),
        pytest.param((f"Hi {HIGH}", f"{LOW}{HIGH}", f"{LOW}!"), "Hi \U0001f600\U0001f600!", id="twice"),
        pytest.param((f"Hi {HIGH}", "!"), "Hi \ufffd!", id="no other half"),
        pytest.param((f"Hi {HIGH}",), "Hi \ufffd", id="the end"),
        pytest.param((f"Hi {HIGH}", HIGH, LOW), "Hi \ufffd\U0001f600", id="a first half after another"),
        pytest.param((f"Hi {HIGH}", "!", f"{LOW}?"), "Hi \ufffd!\ufffd?", id="the other half behind another text"),
        pytest.param((f"Hi {HIGH}", "", "", "", "", "", f"{LOW}!"), "Hi \U0001f600!", id="empty pieces between"),
        pytest.param((f"Hi {LOW}", f"{HIGH} {HIGH}{LOW} \\ud83d!"), "Hi \ufffd\ufffd \U0001f600 \\ud83d!", id="bent"),
    ],
)
@pytest.mark.parametrize("vendor", ["openai", "responses", "anthropic", "google"])
async def test_halves_of_a_character_in_two_pieces_are_joined_and_one_alone_is_replaced(
    vendor: str, texts: tuple[str, ...], whole: str
) -> None:
    pieces = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in stream_texts(vendor, *texts)]
    with serving(Answer(pieces=pieces)) as server:
        async with make_provider(vendor, server) as provider, aclosing(provider.stream(REQUEST)) as received:
            came = [event async for event in received]
    assert "".join([event.text for event in came if isinstance(event, TextDelta)]) == whole
    assert isinstance(came[-1], ResponseDone)
    assert came[-1].response.text == whole


@pytest.mark.anyio
async def test_halves_in_the_arguments_of_a_call_are_joined_and_those_of_a_whole_answer_are_replaced() -> None:
    calls = [
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "add", "arguments": f'{{"a": "{HIGH}'}}]},
        {"tool_calls": [{"index": 1, "id": "2", "function": {"name": "add", "arguments": f'{{"a": "{HIGH}'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": f'{LOW}"}}'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": f'{LOW}"}}'}}]},
    ]
    pieces = events(*map(chunk, calls), chunk({}, finish_reason="tool_calls"))
    with serving(Answer(pieces=pieces), Answer(completion(f"Hi {HIGH}"))) as server:
        async with make_provider("openai", server) as provider:
            async with aclosing(provider.stream(REQUEST)) as received:
                came = [event async for event in received]
            whole = await provider.generate(REQUEST)
    assert isinstance(came[-1], ResponseDone)
    assert [call.arguments for call in came[-1].response.tool_calls] == ['{"a": "\U0001f600"}'] * 2
    assert whole.text == "Hi \ufffd"
