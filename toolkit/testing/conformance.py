"""The suite that every adapter passes: pytest classes to inherit, for the adapters here and for your own.

Whatever fulfils `toolkit.Provider` takes `ProviderConformance`, and says in a `Peer` how its other side is told what to
answer. An adapter that speaks HTTP takes `ServerConformance`, and says in a `Wire` how its format words answers; the
rest, a server on loopback that answers, refuses, breaks off and falls silent, is here::

    from toolkit.testing.conformance import ServerConformance

    class TestMyAdapter(ServerConformance):
        @pytest.fixture
        def wire(self) -> Wire:
            return MyWire()

Tests run on the backends that the fixture ``anyio_backend`` names, by default asyncio and trio. What a format can't
say, by its `Features`, is skipped with the reason. This module is the only one here that needs pytest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.to_thread
import pytest

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    ImageBlock,
    Message,
    Provider,
    ReasoningBlock,
    ResponseDone,
    ResponseFormat,
    StopReason,
    StreamEvent,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
    dump_messages,
    load_messages,
)
from toolkit.chat.provider import closing
from toolkit.errors import (
    BadResponseError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.loop.config import ProviderRetryConfig, ToolLoopConfig
from toolkit.loop.run import tool_loop
from toolkit.testing.events import EventCollector
from toolkit.testing.loopback import Answer, Hang, Server, closed_port, serving
from toolkit.testing.transcripts import check_transcript
from toolkit.tools.decorators import tool
from toolkit.tools.registry import ToolRegistry

__all__ = ["KEY", "Features", "Peer", "ProviderConformance", "ServerConformance", "Wire", "WirePeer"]

KEY = "sk-conformance-0123456789abcdef"
"""The key that a `Wire` gives its adapter: no error may show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a format can say; the default is all of it.

    Args:
        tool_choices: Of ``auto``, ``none``, ``required`` and ``one``.
        stop_reasons: Those that an answer can tell.
        usage: The fields of `Usage` that an answer can tell.
        parallel_switch: Whether calls side by side can be turned off.
        structured_output: Whether a schema can be asked for.
        reasoning: Whether an answer can tell what the model thought.
        reasoning_back: Whether that is sent back with the next request.
        images: Whether the user can show some.
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


class Peer(Protocol):
    """The other side of an adapter: told what to answer, and asked what it was asked.

    Attributes:
        features: What both sides can say.
        provider: The adapter. It is closed after each test, where it has an ``aclose``.
    """

    features: Features
    provider: Provider

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        """Answer the next requests so, whole or in pieces, the last answer again and again."""
        ...

    @property
    def asked(self) -> Sequence[ChatRequest]:
        """What it was asked so far; settings that the wire does not carry are as in a new `ChatRequest`."""
        ...


class Wire(Protocol):
    """How one format words answers, and reads requests: no more than the suite says.

    Attributes:
        features: What the format can say.
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
        self.features = wire.features
        self.provider = wire.provider(server)
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
        """What it was asked so far."""
        return [self._wire.asked(body) for body in self._server.requests]


_USAGE = Usage(input_tokens=7, output_tokens=3)


def _response(*content: Any, stop_reason: StopReason | None = None, usage: Usage = _USAGE) -> ChatResponse:
    message = AssistantMessage(content)
    reason: StopReason = stop_reason or ("tool_use" if message.tool_calls else "end_turn")
    return ChatResponse(message=message, usage=usage, stop_reason=reason, model="conformance-1")


_ADD = ToolCall("call_1", "add", '{"a": 1, "b": 2}')
_ADD_MORE = ToolCall("call_2", "add", '{"a": 3, "b": 4}')
_TEXT = _response(TextBlock("The sum of 1 and 2 is 3."))
_SAID = {
    "text": _TEXT,
    "text in other letters": _response(TextBlock('Grüße, 世界! 🦉\n\n\tTab, \u2028 "quotes" and \\.')),
    "one call": _response(_ADD),
    "calls side by side": _response(_ADD, _ADD_MORE, ToolCall("call_3", "get_weather", '{"city": "Paris"}')),
    "text and a call": _response(TextBlock("Let me see."), _ADD),
    "a call without arguments": _response(ToolCall("call_1", "now", "{}")),
    "deep arguments in other letters": _response(
        ToolCall("call_1", "note", '{"items": [{"text": "Grüße \\"🦉\\"\\n"}, [], {"n": null}], "ok": true}')
    ),
    "large arguments": _response(ToolCall("call_1", "note", json.dumps({"text": "word " * 5000}))),
}
_TRANSCRIPT: tuple[Message, ...] = (
    SystemMessage("Be brief."),
    UserMessage("What is 1 plus 2, and 3 plus 4?"),
    AssistantMessage([TextBlock("Let me see."), _ADD, _ADD_MORE]),
    ToolResult("call_1", "3", tool_name="add"),
    ToolResult("call_2", "Grüße: 7 🦉", tool_name="add"),
    AssistantMessage("3 and 7."),
    UserMessage("Thanks!"),
)
_PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
_TOOLS = (
    ToolDefinition(name="add", description="Add.", parameters=_PARAMETERS),
    ToolDefinition(name="multiply", description="Multiply.", parameters=_PARAMETERS),
)
_PATIENCE = 30.0

_both_ways = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


def _ask(text: str = "Hi", **settings: Any) -> ChatRequest:
    return ChatRequest(messages=[UserMessage(text)], **settings)


def _gist(message: Message) -> tuple[object, ...]:
    """What of a message must reach the other side, and come back."""
    match message:
        case AssistantMessage():
            calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
            return ("assistant", message.text, calls)
        case ToolResult():
            return ("tool", message.call_id, message.text)
        case _:
            return (message.role, message.text)


def _thoughts(message: Message) -> str:
    blocks = message.content if isinstance(message, AssistantMessage) else ()
    return "".join([block.text for block in blocks if isinstance(block, ReasoningBlock)])


def _spoken(heard: Sequence[StreamEvent]) -> str:
    return "".join([event.text for event in heard if isinstance(event, TextDelta)])


def _end_of(heard: Sequence[StreamEvent]) -> ChatResponse:
    """The whole answer, which a stream tells once, as its last event."""
    done = [event for event in heard if isinstance(event, ResponseDone)]
    assert len(done) == 1
    assert heard[-1] is done[0]
    return done[0].response


async def _hear(provider: Provider, request: ChatRequest) -> list[StreamEvent]:
    with anyio.fail_after(_PATIENCE):
        async with closing(provider.stream(request)) as events:
            return [event async for event in events]


async def _answer(provider: Provider, request: ChatRequest, *, streams: bool) -> ChatResponse:
    if streams:
        return _end_of(await _hear(provider, request))
    with anyio.fail_after(_PATIENCE):
        return await provider.generate(request)


@asynccontextmanager
async def _closed(provider: Provider) -> AsyncGenerator[Provider]:
    try:
        yield provider
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()


class ProviderConformance:
    """What every provider does; inherit it as a ``Test...`` class with a fixture ``peer``."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def peer(self) -> Peer:
        """The other side; each test takes a new one."""
        raise NotImplementedError("give the class a fixture `peer` that returns the other side of the provider")

    @pytest.mark.parametrize("said", _SAID)
    async def test_whatever_is_said_is_heard_whole_and_in_pieces(self, peer: Peer, said: str) -> None:
        """Texts and calls come as they are; both ways of asking have one answer, which the deltas add up to."""
        response, request = _SAID[said], _ask(tools=_TOOLS)
        async with _closed(peer.provider) as provider:
            peer.say(response, streams=False)
            whole = await _answer(provider, request, streams=False)
            peer.say(response, streams=True)
            heard = await _hear(provider, request)
        streamed = _end_of(heard)
        for answer in (whole, streamed):
            assert _gist(answer.message) == _gist(response.message)
            assert answer.stop_reason == response.stop_reason
            assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
        assert whole.model == streamed.model
        assert _spoken(heard) == "".join([b.text for b in streamed.message.content if isinstance(b, TextBlock)])
        pieces: dict[int, list[ArgumentsDelta]] = {}
        for event in heard:
            if isinstance(event, ArgumentsDelta):
                pieces.setdefault(event.index, []).append(event)
        assert list(pieces) == list(range(len(streamed.tool_calls)))
        for index, call in enumerate(streamed.tool_calls):
            assert "".join([piece.text for piece in pieces[index]]) == call.arguments
            assert (pieces[index][-1].call_id, pieces[index][-1].tool_name) == (call.id, call.name)

    @_both_ways
    async def test_many_deltas_are_one_text(self, peer: Peer, streams: bool) -> None:
        """Ten thousand words come one by one and are all there."""
        text = " ".join([f"word{number}" for number in range(10_000)])
        peer.say(_response(TextBlock(text)), streams=streams)
        async with _closed(peer.provider) as provider:
            assert (await _answer(provider, _ask(), streams=streams)).text == text

    @_both_ways
    @pytest.mark.parametrize(
        "reason", ["end_turn", "tool_use", "max_tokens", "stop_sequence", "content_filter", "refusal"]
    )
    async def test_the_reason_to_stop_is_told(self, peer: Peer, reason: StopReason, streams: bool) -> None:
        """What the caller decides by is the same for all formats."""
        if reason not in peer.features.stop_reasons:
            pytest.skip(f"this format does not tell {reason}")
        content = _ADD if reason == "tool_use" else TextBlock("As far as it came")
        peer.say(_response(content, stop_reason=reason), streams=streams)
        async with _closed(peer.provider) as provider:
            assert (await _answer(provider, _ask(tools=_TOOLS), streams=streams)).stop_reason == reason

    @_both_ways
    @pytest.mark.parametrize("name", ["cache_read_tokens", "cache_write_tokens", "reasoning_tokens"])
    async def test_usage_tells_of_caches_and_reasoning(self, peer: Peer, name: str, streams: bool) -> None:
        """The parts are told, and are within the whole."""
        if name not in peer.features.usage:
            pytest.skip(f"this format does not tell {name}")
        parts: dict[str, Any] = {name: 2}
        usage = Usage(input_tokens=7, output_tokens=3, **parts)
        peer.say(_response(TextBlock("Hi."), usage=usage), streams=streams)
        async with _closed(peer.provider) as provider:
            heard = (await _answer(provider, _ask(), streams=streams)).usage
        assert getattr(heard, name) == 2
        assert (heard.input_tokens, heard.output_tokens) == (7, 3)

    @_both_ways
    async def test_reasoning_is_told_and_goes_back(self, peer: Peer, streams: bool) -> None:
        """What the model thought is a block of its message, which the next request carries."""
        if not peer.features.reasoning:
            pytest.skip("this format does not tell what a model thinks")
        thought = ReasoningBlock(text="One and two make three.", signature="c2VhbA==")
        peer.say(_response(thought, _ADD), _TEXT, streams=streams)
        async with _closed(peer.provider) as provider:
            heard = await _answer(provider, _ask(tools=_TOOLS), streams=streams)
            assert _thoughts(heard.message) == thought.text
            messages: list[Message] = [UserMessage("Hi"), heard.message, ToolResult("call_1", "3", tool_name="add")]
            await _answer(provider, ChatRequest(messages=messages, tools=_TOOLS), streams=streams)
        if peer.features.reasoning_back:
            assert _thoughts(peer.asked[1].messages[1]) == thought.text

    @_both_ways
    async def test_the_transcript_is_asked_as_it_stands(self, peer: Peer, streams: bool) -> None:
        """Each message arrives, in order, with its ids; nothing is added and nothing is lost."""
        peer.say(_TEXT, streams=streams)
        async with _closed(peer.provider) as provider:
            await _answer(provider, ChatRequest(messages=_TRANSCRIPT, tools=_TOOLS), streams=streams)
        (asked,) = peer.asked
        assert list(map(_gist, asked.messages)) == list(map(_gist, _TRANSCRIPT))
        assert [tool.name for tool in asked.tools or ()] == ["add", "multiply"]
        assert [tool.description for tool in asked.tools or ()] == ["Add.", "Multiply."]
        assert [list(tool.parameters["properties"]) for tool in asked.tools or ()] == [["a", "b"]] * 2

    async def test_an_image_reaches_the_model(self, peer: Peer) -> None:
        """Its bytes and its kind are what they were."""
        if not peer.features.images:
            pytest.skip("this format has no images")
        image = ImageBlock(b"\x89PNG\xff\x00", media_type="image/png")
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            messages = [UserMessage((TextBlock("What is this?"), image))]
            await _answer(provider, ChatRequest(messages=messages), streams=False)
        asked = peer.asked[0].messages[0]
        assert isinstance(asked, UserMessage)
        assert image in tuple(asked.content)

    async def test_a_failed_result_says_that_it_failed(self, peer: Peer) -> None:
        """In its field where there is one, else in its text."""
        messages = (*_TRANSCRIPT[:3], ToolResult("call_1", "no such number", is_error=True), _TRANSCRIPT[4])
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            await _answer(provider, ChatRequest(messages=messages, tools=_TOOLS), streams=False)
        failed, fine = peer.asked[0].messages[3:5]
        assert isinstance(failed, ToolResult)
        assert isinstance(fine, ToolResult)
        assert failed.is_error or "error" in failed.text.lower()
        assert "no such number" in failed.text
        assert not fine.is_error
        assert "error" not in fine.text.lower()

    @pytest.mark.parametrize("choice", ["auto", "none", "required", "one"])
    async def test_the_choice_of_tools_is_asked_for(self, peer: Peer, choice: str) -> None:
        """All four arrive, a tool by its name."""
        if choice not in peer.features.tool_choices:
            pytest.skip(f"this format has no choice '{choice}'")
        wanted = "multiply" if choice == "one" else choice
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            await _answer(provider, _ask(tools=_TOOLS, tool_choice=wanted), streams=False)
        assert peer.asked[0].tool_choice == wanted

    @pytest.mark.parametrize("parallel", [None, True, False])
    async def test_parallel_calls_can_be_turned_off(self, peer: Peer, parallel: bool | None) -> None:
        """Off is off; None leaves it to the provider."""
        if not peer.features.parallel_switch:
            pytest.skip("this format can't turn parallel calls off")
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            await _answer(provider, _ask(tools=_TOOLS, parallel_tool_calls=parallel), streams=False)
        assert (peer.asked[0].parallel_tool_calls is False) is (parallel is False)

    @_both_ways
    async def test_a_schema_for_the_answer_is_asked_for(self, peer: Peer, streams: bool) -> None:
        """The schema arrives, and the answer is the JSON text."""
        if not peer.features.structured_output:
            pytest.skip("this format has no structured output")
        peer.say(_response(TextBlock('{"a": 1, "b": 2}')), streams=streams)
        async with _closed(peer.provider) as provider:
            request = _ask(response_format=ResponseFormat(_PARAMETERS, name="pair"))
            heard = await _answer(provider, request, streams=streams)
        assert json.loads(heard.text) == {"a": 1, "b": 2}
        asked = peer.asked[0].response_format
        assert asked is not None
        assert list(asked.schema["properties"]) == ["a", "b"]

    async def test_the_limit_of_tokens_is_asked_for(self, peer: Peer) -> None:
        """It arrives under whatever name the format has for it."""
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            await _answer(provider, _ask(max_tokens=77), streams=False)
        assert peer.asked[0].max_tokens == 77

    @_both_ways
    async def test_a_request_is_left_as_it_is(self, peer: Peer, streams: bool) -> None:
        """The list may be live: what is said later is not said twice, nor what was said before changed."""
        messages = list(_TRANSCRIPT)
        request = ChatRequest(messages=messages, tools=_TOOLS, options={})
        before = dump_messages(messages)
        peer.say(_TEXT, streams=streams)
        async with _closed(peer.provider) as provider:
            await _answer(provider, request, streams=streams)
            assert dump_messages(messages) == before
            messages.append(AssistantMessage("You're welcome."))
            messages.append(UserMessage("One more."))
            await _answer(provider, request, streams=streams)
        assert [len(asked.messages) for asked in peer.asked] == [len(_TRANSCRIPT), len(_TRANSCRIPT) + 2]

    @_both_ways
    async def test_requests_may_run_side_by_side(self, peer: Peer, streams: bool) -> None:
        """One provider serves many tasks."""
        peer.say(*[_TEXT] * 10, streams=streams)
        texts: list[str] = []

        async def ask(provider: Provider) -> None:
            texts.append((await _answer(provider, _ask(), streams=streams)).text)

        async with _closed(peer.provider) as provider, anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, provider)
        assert texts == [_TEXT.text] * 10

    async def test_a_stream_may_be_left_early(self, peer: Peer) -> None:
        """Nothing is left open, and the next request is answered."""
        peer.say(_TEXT, streams=True)
        async with _closed(peer.provider) as provider:
            with anyio.fail_after(_PATIENCE):
                async with closing(provider.stream(_ask())) as events:
                    async for event in events:
                        assert isinstance(event, TextDelta)
                        break
            assert (await _answer(provider, _ask(), streams=True)).text == _TEXT.text

    @_both_ways
    async def test_a_loop_goes_to_its_end_and_its_transcript_can_be_asked_again(
        self, peer: Peer, streams: bool
    ) -> None:
        """Two turns of tools, the answer, the transcript through JSON and back to the provider."""
        peer.say(
            _response(TextBlock("First."), _ADD, _ADD_MORE),
            _response(replace(_ADD, id="call_9")),
            _TEXT,
            streams=streams,
        )
        events = EventCollector()
        async with _closed(peer.provider) as provider:
            with anyio.fail_after(_PATIENCE):
                await _loop(provider, events, streams=streams)
            result = events.result
            check_transcript(result.messages, events.events)
            assert result.text == _TEXT.text
            assert [message.role for message in result.messages] == [
                *["user", "assistant", "tool", "tool"],
                *["assistant", "tool", "assistant"],
            ]
            assert [message.text for message in result.messages if message.role == "tool"] == ["3", "7", "3"]
            again = [*load_messages(dump_messages(result.messages)), UserMessage("And?")]
            await _answer(provider, ChatRequest(messages=again, tools=_TOOLS), streams=streams)
        assert list(map(_gist, peer.asked[-1].messages)) == list(map(_gist, again))


async def _loop(
    provider: Provider, events: EventCollector, *, streams: bool, retry: ProviderRetryConfig | None = None
) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    retry = retry or ProviderRetryConfig(max_retries=0)
    config = ToolLoopConfig(provider_retry=retry, on_event=events, stream=streams)
    await tool_loop(provider, ToolRegistry([add]), "What is 1 plus 2?", config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A status of 400 or above, and the error that it is."""

    status: int
    kind: type[ProviderError]
    message: str = "That can't be done"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_retryable: bool = False
    retry_after: float | None = None


_REFUSALS = {
    "400": _Refusal(status=400, kind=ProviderError),
    "401": _Refusal(status=401, kind=ProviderAuthError, message=f"Wrong key {KEY}"),
    "403": _Refusal(status=403, kind=ProviderAuthError),
    "404": _Refusal(status=404, kind=ProviderError, message="No such model"),
    "429": _Refusal(status=429, kind=RateLimitedError, is_retryable=True),
    "429 with Retry-After": _Refusal(
        status=429, kind=RateLimitedError, headers={"retry-after": "7"}, is_retryable=True, retry_after=7
    ),
    "500": _Refusal(status=500, kind=ProviderError, is_retryable=True),
    "503": _Refusal(status=503, kind=ProviderError, is_retryable=True),
    "504": _Refusal(status=504, kind=ProviderTimeoutError, is_retryable=True),
    "too long": _Refusal(
        status=400, kind=ContextTooLongError, message="prompt is too long: 9 tokens exceed the context window of 8"
    ),
}
_HTML = b"<!doctype html><html><body>Welcome!</body></html>"


class ServerConformance(ProviderConformance):
    """What every adapter does that speaks HTTP; inherit it as a ``Test...`` class with a fixture ``wire``."""

    @pytest.fixture
    def wire(self) -> Wire:
        """The format; each test takes a new one."""
        raise NotImplementedError("give the class a fixture `wire` that returns how the format words its answers")

    @pytest.fixture
    def server(self) -> Generator[Server]:
        """The server on loopback that the adapter speaks to."""
        with serving() as running:
            yield running

    @pytest.fixture
    def peer(self, wire: Wire, server: Server) -> Peer:
        """The server, speaking the format."""
        return WirePeer(wire, server)

    @_both_ways
    @pytest.mark.parametrize("name", _REFUSALS)
    async def test_a_refusal_says_what_and_whether_to_try_again(
        self, wire: Wire, server: Server, peer: Peer, name: str, streams: bool
    ) -> None:
        """The class, the status, the server's words and its time to wait; never the key, and no second request."""
        refusal = _REFUSALS[name]
        body = wire.refusal(refusal.status, refusal.message)
        server.answers[:] = [Answer(body, status=refusal.status, headers=refusal.headers)]
        async with _closed(peer.provider) as provider:
            with pytest.raises(refusal.kind) as caught:
                await _answer(provider, _ask(), streams=streams)
        error = caught.value
        assert type(error) is refusal.kind
        assert (error.status, error.is_retryable, error.retry_after) == (
            refusal.status,
            refusal.is_retryable,
            refusal.retry_after,
        )
        assert refusal.message.replace(KEY, "")[:9] in str(error)
        _assert_no_key(error)
        assert len(server.requests) == 1, "the loop tries again, the adapter does not"

    @_both_ways
    @pytest.mark.parametrize("body", [_HTML, b'{"id": ', b"[1]"], ids=["HTML", "half of JSON", "a list"])
    async def test_what_is_no_answer_is_a_bad_response(
        self, server: Server, peer: Peer, body: bytes, streams: bool
    ) -> None:
        """A proxy's page, and whatever else comes with a status of 200."""
        if streams and body != _HTML:
            server.answers[:] = [Answer(pieces=[b"data: " + body + b"\n\n"])]
        else:
            server.answers[:] = [Answer(body, content_type="text/html" if body == _HTML else "application/json")]
        async with _closed(peer.provider) as provider:
            with pytest.raises(ProviderError) as caught:
                await _answer(provider, _ask(), streams=streams)
        # A stream of JSON that says nothing has ended too early, which may be better next time.
        assert type(caught.value) is BadResponseError or (streams and body == b"[1]" and caught.value.is_retryable)
        _assert_no_key(caught.value)

    @pytest.mark.parametrize("is_cut", [False, True], ids=["ended", "cut"])
    async def test_a_stream_that_breaks_off_is_an_error_and_never_a_short_answer(
        self, wire: Wire, server: Server, peer: Peer, is_cut: bool
    ) -> None:
        """Wherever it breaks off: in a text, within arguments, before the end is told."""
        response = _response(TextBlock("Let me see."), _ADD)
        pieces = wire.pieces(response)
        async with _closed(peer.provider) as provider:
            for count in range(len(pieces)):
                server.answers[:] = [Answer(pieces=pieces[:count], is_cut=is_cut)]
                heard = await _answer_unless_it_breaks_off(provider)
                if heard is not None:
                    assert count > len(pieces) / 2, "so little can't be the whole"
                    assert _gist(heard.message) == _gist(response.message)

    @_both_ways
    async def test_no_server_is_an_error_that_may_pass(self, wire: Wire, streams: bool) -> None:
        """The error names the address."""
        nowhere = Server(f"http://127.0.0.1:{closed_port()}/v1")
        async with _closed(wire.provider(nowhere)) as provider:
            with pytest.raises(ProviderError, match=r"127\.0\.0\.1") as caught:
                await _answer(provider, _ask(), streams=streams)
        assert caught.value.is_retryable
        _assert_no_key(caught.value)

    @_both_ways
    async def test_a_timeout_is_an_error_and_closes_the_connection(
        self, server: Server, peer: Peer, streams: bool
    ) -> None:
        """The request's own time counts, and the server is told to stop."""
        hang = Hang()
        server.answers[:] = [hang]
        async with _closed(peer.provider) as provider:
            with pytest.raises(ProviderTimeoutError) as caught:
                await _answer(provider, _ask(timeout=0.3), streams=streams)
            assert await anyio.to_thread.run_sync(hang.has_left.wait, _PATIENCE)
        assert caught.value.is_retryable

    async def test_a_timeout_counts_for_the_whole_stream(self, wire: Wire, server: Server, peer: Peer) -> None:
        """A server that falls silent in the middle is late, too."""
        hang = Hang(wire.pieces(_TEXT)[:3])
        server.answers[:] = [hang]
        async with _closed(peer.provider) as provider:
            with pytest.raises(ProviderTimeoutError):
                await _answer(provider, _ask(timeout=0.3), streams=True)
            assert await anyio.to_thread.run_sync(hang.has_left.wait, _PATIENCE)

    @pytest.mark.parametrize("where", ["before the answer", "in the middle"])
    @_both_ways
    async def test_cancelling_closes_the_connection(
        self, wire: Wire, server: Server, peer: Peer, streams: bool, where: str
    ) -> None:
        """The server learns at once that nobody listens any more."""
        pieces = wire.pieces(_TEXT)[:3] if where == "in the middle" else ()
        hang = Hang(pieces)
        server.answers[:] = [hang]
        async with _closed(peer.provider) as provider:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(_answer, provider, _ask(), streams=streams))
                assert await anyio.to_thread.run_sync(hang.has_come.wait, _PATIENCE)
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(hang.has_left.wait, _PATIENCE)

    async def test_leaving_a_stream_closes_the_connection(self, wire: Wire, server: Server, peer: Peer) -> None:
        """Whoever goes after the first word does not pay for the others."""
        hang = Hang(wire.pieces(_TEXT)[:-1])
        server.answers[:] = [hang]
        async with _closed(peer.provider) as provider:
            with anyio.fail_after(_PATIENCE):
                async with closing(provider.stream(_ask())) as events:
                    async for event in events:
                        assert isinstance(event, TextDelta)
                        break
            assert await anyio.to_thread.run_sync(hang.has_left.wait, _PATIENCE)

    @_both_ways
    async def test_after_an_error_the_next_request_is_answered(
        self, wire: Wire, server: Server, peer: Peer, streams: bool
    ) -> None:
        """A loop that tries again gets over what passes, and runs nothing twice."""
        refused = Answer(wire.refusal(503, "Overloaded"), status=503)
        cut = Answer(pieces=wire.pieces(_response(_ADD))[:2], is_cut=True)
        say = partial(_worded, wire, streams=streams)
        server.answers[:] = [
            *[refused, say(_response(_ADD))],
            *([cut] if streams else [refused]),
            say(_TEXT),
        ]
        events = EventCollector()
        retry = ProviderRetryConfig(max_retries=2, initial_backoff=0.001, max_backoff=0.01)
        async with _closed(peer.provider) as provider:
            with anyio.fail_after(_PATIENCE):
                await _loop(provider, events, streams=streams, retry=retry)
        check_transcript(events.result.messages, events.events)
        assert events.result.text == _TEXT.text
        assert events.started == ["call_1"]
        assert len(server.requests) == 4

    @_both_ways
    async def test_an_error_that_ends_a_loop_has_the_transcript(
        self, wire: Wire, server: Server, peer: Peer, streams: bool
    ) -> None:
        """What was done before it is not lost."""
        server.answers[:] = [
            _worded(wire, _response(_ADD, _ADD_MORE), streams=streams),
            Answer(wire.refusal(400, "No more"), status=400),
        ]
        events = EventCollector()
        async with _closed(peer.provider) as provider:
            with pytest.raises(ProviderError) as caught, anyio.fail_after(_PATIENCE):
                await _loop(provider, events, streams=streams)
        assert [message.role for message in caught.value.messages] == ["user", "assistant", "tool", "tool"]
        check_transcript(caught.value.messages, events.events)

    async def test_the_key_is_sent_and_shown_nowhere(self, server: Server, peer: Peer) -> None:
        """It is in a header, and neither in the body nor in what the provider says of itself."""
        peer.say(_TEXT, streams=False)
        async with _closed(peer.provider) as provider:
            await _answer(provider, _ask(), streams=False)
        assert KEY in str(server.headers[0])
        assert KEY not in json.dumps(server.requests[0])
        assert KEY not in f"{peer.provider!r} {peer.provider!s}"


async def _answer_unless_it_breaks_off(provider: Provider) -> ChatResponse | None:
    try:
        return await _answer(provider, _ask(tools=_TOOLS), streams=True)
    except ProviderError as error:
        if not error.is_retryable:
            raise
        return None


def _worded(wire: Wire, response: ChatResponse, *, streams: bool) -> Answer:
    return Answer(pieces=wire.pieces(response)) if streams else Answer(wire.whole(response))


def _assert_no_key(error: BaseException | None) -> None:
    while error is not None:
        assert KEY not in f"{error!s} {error!r}", "an error shows the key"
        error = error.__cause__
