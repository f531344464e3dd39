"""The conformance suite for provider adapters: pytest classes to inherit, for the adapters here and for your own.

Any implementation of `toolkit.Provider` can use `ProviderConformance`, with a `Peer` that plays the server. An HTTP
adapter uses `ServerConformance`, with a `Wire` that writes responses in its format; the suite provides the rest, a
loopback server that answers, refuses, breaks off and hangs::

    from toolkit.testing.conformance import ServerConformance

    class TestMyAdapter(ServerConformance):
        @pytest.fixture
        def wire(self) -> Wire:
            return MyWire()

Tests run on the backends of the fixture ``anyio_backend``, by default asyncio and trio. Tests of features that a
format lacks, according to its `Features`, are skipped with the reason. Only this module needs pytest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import anyio
import anyio.to_thread
import pytest

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Freeform,
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
    UnansweredItem,
    Usage,
    UserMessage,
    dump_messages,
    load_messages,
)
from toolkit.chat.provider import closing
from toolkit.dataclass import dataclass
from toolkit.errors import (
    BadResponseError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.loop.config import ProviderRetryConfig, ToolLoopConfig
from toolkit.loop.handle import tool_loop
from toolkit.loop.outcome import UnansweredItems
from toolkit.testing.loopback import Answer, Hang, Server, closed_port, serving
from toolkit.testing.transcripts import EventCollector, check_transcript
from toolkit.tools.decorators import tool
from toolkit.tools.registry import ToolRegistry

__all__ = ["KEY", "NOTE", "Features", "Peer", "ProviderConformance", "ServerConformance", "Wire", "WirePeer"]


USAGE = Usage(input_tokens=7, output_tokens=3)
ADD = ToolCall("call_1", "add", '{"a": 1, "b": 2}')
ADD_MORE = ToolCall("call_2", "add", '{"a": 3, "b": 4}')
TRANSCRIPT: tuple[Message, ...] = (
    SystemMessage("Be brief."),
    UserMessage("What is 1 plus 2, and 3 plus 4?"),
    AssistantMessage([TextBlock("Let me see."), ADD, ADD_MORE]),
    ToolResult("call_1", "3", tool_name="add"),
    ToolResult("call_2", "Grüße: 7 🦉", tool_name="add"),
    AssistantMessage("3 and 7."),
    UserMessage("Thanks!"),
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = (
    ToolDefinition(name="add", description="Add.", parameters=PARAMETERS),
    ToolDefinition(name="multiply", description="Multiply.", parameters=PARAMETERS),
)
NOTE_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTE = ToolDefinition(
    name="write_note", description="Write a note.", parameters=NOTE_PARAMETERS, freeform=Freeform(parameter="text")
)
"""A freeform tool, for formats that have them."""
WRITE_NOTE = ToolCall(
    "call_1", NOTE.name, json.dumps({"text": 'if a < "b":\n\treturn {"\\n": 1}  # 🦉'}, ensure_ascii=False)
)
PATIENCE = 30.0
both_ways: pytest.MarkDecorator = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
KEY = "sk-conformance-0123456789abcdef"
"""The API key that a `Wire` passes to its adapter; no error may show it."""
_HTML = b"<!doctype html><html><body>Welcome!</body></html>"


def response_of(*content: Any, stop_reason: StopReason | None = None, usage: Usage = USAGE) -> ChatResponse:
    """Return a response of these blocks; by default calls stop it with ``tool_use``."""
    message = AssistantMessage(content)
    reason: StopReason = stop_reason or ("tool_use" if message.tool_calls else "end_turn")
    return ChatResponse(message=message, usage=usage, stop_reason=reason, model="conformance-1")


TEXT = response_of(TextBlock("The sum of 1 and 2 is 3."))
RESPONSES = {
    "text": TEXT,
    "text in other letters": response_of(TextBlock('Grüße, 世界! 🦉\n\n\tTab, \u2028 "quotes" and \\.')),
    "one call": response_of(ADD),
    "calls side by side": response_of(ADD, ADD_MORE, ToolCall("call_3", "get_weather", '{"city": "Paris"}')),
    "text and a call": response_of(TextBlock("Let me see."), ADD),
    "a call without arguments": response_of(ToolCall("call_1", "now", "{}")),
    "deep arguments in other letters": response_of(
        ToolCall("call_1", "note", '{"items": [{"text": "Grüße \\"🦉\\"\\n"}, [], {"n": null}], "ok": true}')
    ),
    "large arguments": response_of(ToolCall("call_1", "note", json.dumps({"text": "word " * 5000}))),
}


def request_of(text: str = "Hi", **settings: Any) -> ChatRequest:
    """Return a request with one user message."""
    return ChatRequest(messages=[UserMessage(text)], **settings)


def list_compared(message: Message) -> tuple[object, ...]:
    """Return the parts of a message that must survive a round trip."""
    match message:
        case AssistantMessage():
            calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
            return ("assistant", message.text, calls)
        case ToolResult():
            return ("tool", message.call_id, message.text)
        case _:
            return (message.role, message.text)


def join_reasoning(message: Message) -> str:
    """Return the reasoning in a message."""
    blocks = message.content if isinstance(message, AssistantMessage) else ()
    return "".join([block.text for block in blocks if isinstance(block, ReasoningBlock)])


def join_text(events: Sequence[StreamEvent]) -> str:
    """Return the concatenated text deltas of a stream."""
    return "".join([event.text for event in events if isinstance(event, TextDelta)])


def find_response(events: Sequence[StreamEvent]) -> ChatResponse:
    """Return the response of a stream, which must be its last event and occur once."""
    done = [event for event in events if isinstance(event, ResponseDone)]
    assert len(done) == 1
    assert events[-1] is done[0]
    return done[0].response


async def collect_events(provider: Provider, request: ChatRequest) -> list[StreamEvent]:
    """Return all events of a stream, with a timeout."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request)) as events:
            return [event async for event in events]


async def request_answer(provider: Provider, request: ChatRequest, *, streams: bool) -> ChatResponse:
    """Return the response, streamed or not, with a timeout."""
    if streams:
        return find_response(await collect_events(provider, request))
    with anyio.fail_after(PATIENCE):
        return await provider.generate(request)


async def read_first_delta(provider: Provider) -> None:
    """Close a stream after its first delta."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request_of())) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                break


@asynccontextmanager
async def closed(provider: Provider) -> AsyncGenerator[Provider]:
    """Yield a provider, and close it at the end if it has ``aclose``."""
    try:
        yield provider
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()


async def run_loop(
    provider: Provider, events: EventCollector, *, streams: bool, retry: ProviderRetryConfig | None = None
) -> None:
    """Run a loop with one tool, and without retries unless `retry` is given."""

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    retry = retry or ProviderRetryConfig(max_retries=0)
    config = ToolLoopConfig(provider_retry=retry, on_event=events, stream=streams)
    await tool_loop(provider, ToolRegistry([add]), "What is 1 plus 2?", config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of a format; the default is all of them.

    Args:
        tool_choices: The supported choices among ``auto``, ``none``, ``required`` and ``one``.
        stop_reasons: The stop reasons that a response can report.
        usage: The fields of `Usage` that a response can report, besides input and output tokens.
        parallel_switch: True if parallel calls can be turned off.
        structured_output: True if a response format can be requested.
        reasoning: True if a response can contain the model's reasoning.
        reasoning_back: True if reasoning is sent back with the next request.
        images: True if user messages can contain images.
        waiting: The kinds of items that only the application can answer, which a response has in `unanswered`.
        settled: Other kinds of items besides texts, reasoning and calls, such as a search by the vendor. The suite also
            passes them in `unanswered`, for the `Wire` to write into the response.
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
    settled: frozenset[str] = frozenset()


class Peer(Protocol):
    """The server side of an adapter: plays the given responses, and records the requests.

    Attributes:
        features: The features of both sides.
        provider: The adapter, closed after each test if it has an ``aclose``.
    """

    features: Features
    provider: Provider

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        """Answer the next requests with these responses, whole or streamed; the last one repeats."""
        ...

    @property
    def asked(self) -> Sequence[ChatRequest]:
        """The requests so far; settings that the format does not carry have their defaults."""
        ...


class Wire(Protocol):
    """Writes responses and reads requests in one format, as far as the suite needs.

    Attributes:
        features: The features of the format.
    """

    features: Features

    def provider(self, server: Server) -> Provider:
        """Return the adapter for `server` with `KEY`, without internal retries."""
        ...

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        ...

    def pieces(self, response: ChatResponse) -> Sequence[bytes]:
        """Return the events of a streamed response, with texts (by words) and arguments split into several."""
        ...

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        """Return the body of an error response."""
        ...

    def asked(self, body: dict[str, Any]) -> ChatRequest:
        """Return the request in a body: messages, tools, choice, parallel calls, response format, max tokens."""
        ...


class WirePeer:
    """A server on loopback that speaks a `Wire`."""

    def __init__(self, wire: Wire, server: Server) -> None:
        self.features: Features = wire.features
        self.provider: Provider = wire.provider(server)
        self._wire = wire
        self._server = server

    def say(self, *responses: ChatResponse, streams: bool) -> None:
        """Answer the next requests with these responses; the last one repeats."""
        self._server.answers[:] = [_make_answer(self._wire, response, streams=streams) for response in responses]

    @property
    def asked(self) -> Sequence[ChatRequest]:
        """The requests so far."""
        return [self._wire.asked(body) for body in self._server.requests]


class ProviderConformance:
    """The rules for every provider; inherit it as a ``Test...`` class with a fixture ``peer``."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def peer(self) -> Peer:
        """The server side, created for each test."""
        raise NotImplementedError("give the class a fixture `peer` that returns the other side of the provider")

    @pytest.fixture
    async def provider(self, peer: Peer) -> AsyncGenerator[Provider]:
        """The adapter, closed after each test."""
        async with closed(peer.provider) as provider:
            yield provider

    @pytest.mark.parametrize("said", RESPONSES)
    async def test_both_methods_return_the_whole_response(self, peer: Peer, provider: Provider, said: str) -> None:
        """Texts and calls are unchanged; both methods return the same response, the sum of the deltas."""
        response, request = RESPONSES[said], request_of(tools=TOOLS)
        peer.say(response, streams=False)
        whole = await request_answer(provider, request, streams=False)
        peer.say(response, streams=True)
        events = await collect_events(provider, request)
        streamed = find_response(events)
        for answer in (whole, streamed):
            assert list_compared(answer.message) == list_compared(response.message)
            assert answer.stop_reason == response.stop_reason
            assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
        assert whole.model == streamed.model
        assert join_text(events) == "".join([b.text for b in streamed.message.content if isinstance(b, TextBlock)])
        pieces: dict[int, list[ArgumentsDelta]] = {}
        for event in events:
            if isinstance(event, ArgumentsDelta):
                pieces.setdefault(event.index, []).append(event)
        assert list(pieces) == list(range(len(streamed.tool_calls)))
        for index, call in enumerate(streamed.tool_calls):
            assert "".join([piece.text for piece in pieces[index]]) == call.arguments
            assert (pieces[index][-1].call_id, pieces[index][-1].tool_name) == (call.id, call.name)

    async def test_the_text_of_a_freeform_tool_is_unchanged(self, peer: Peer, provider: Provider) -> None:
        """Its only argument is the unchanged text; the call and its result are sent back."""
        text = json.loads(WRITE_NOTE.arguments)["text"]
        request = request_of(tools=[NOTE, *TOOLS])
        for streams in (False, True):
            peer.say(response_of(WRITE_NOTE), TEXT, streams=streams)
            events = await collect_events(provider, request) if streams else []
            answer = find_response(events) if streams else await request_answer(provider, request, streams=False)
            assert [(made.name, json.loads(made.arguments)) for made in answer.tool_calls] == [
                ("write_note", {"text": text})
            ]
            assert (answer.stop_reason, answer.unanswered) == ("tool_use", ())
            pieces = [event.text for event in events if isinstance(event, ArgumentsDelta)]
            assert "".join(pieces) == (answer.tool_calls[0].arguments if streams else "")
            result = replace(ToolResult("call_1", "done"), tool_name="write_note")
            messages: list[Message] = [UserMessage("Hi"), answer.message, result]
            await request_answer(provider, replace(request, messages=messages), streams=streams)
            assert list(map(list_compared, peer.asked[-1].messages)) == list(map(list_compared, messages))

    @both_ways
    async def test_many_deltas_join_to_one_text(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """Two thousand deltas arrive without loss."""
        text = " ".join([f"word{number}" for number in range(2_000)])
        peer.say(response_of(TextBlock(text)), streams=streams)
        assert (await request_answer(provider, request_of(), streams=streams)).text == text

    @both_ways
    async def test_the_stop_reason_is_reported(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """Stop reasons are the same for all formats."""
        for reason in sorted(peer.features.stop_reasons):
            content = ADD if reason == "tool_use" else TextBlock("As far as it came")
            peer.say(response_of(content, stop_reason=reason), streams=streams)
            assert (await request_answer(provider, request_of(tools=TOOLS), streams=streams)).stop_reason == reason

    @both_ways
    async def test_usage_includes_cache_and_reasoning_tokens(
        self, peer: Peer, provider: Provider, streams: bool
    ) -> None:
        """The parts are reported and included in the totals."""
        parts: dict[str, Any] = dict.fromkeys(peer.features.usage, 2)
        peer.say(response_of(TextBlock("Hi."), usage=replace(USAGE, **parts)), streams=streams)
        usage = (await request_answer(provider, request_of(), streams=streams)).usage
        assert {name: getattr(usage, name) for name in parts} == parts
        assert (usage.input_tokens, usage.output_tokens) == (7, 3)

    @both_ways
    async def test_reasoning_is_returned_and_sent_back(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """Reasoning is a block of the message, which the next request carries."""
        if not peer.features.reasoning:
            pytest.skip("this format does not tell what a model thinks")
        thought = ReasoningBlock(text="One and two make three.", signature="c2VhbA==")
        peer.say(response_of(thought, ADD), TEXT, streams=streams)
        answer = await request_answer(provider, request_of(tools=TOOLS), streams=streams)
        assert join_reasoning(answer.message) == thought.text
        messages: list[Message] = [UserMessage("Hi"), answer.message, ToolResult("call_1", "3", tool_name="add")]
        await request_answer(provider, ChatRequest(messages=messages, tools=TOOLS), streams=streams)
        if peer.features.reasoning_back:
            assert join_reasoning(peer.asked[1].messages[1]) == thought.text

    @both_ways
    async def test_the_transcript_is_sent_unchanged(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """Each message arrives in order, with its ids; nothing is added or lost."""
        peer.say(TEXT, streams=streams)
        await request_answer(provider, ChatRequest(messages=TRANSCRIPT, tools=TOOLS), streams=streams)
        (asked,) = peer.asked
        assert list(map(list_compared, asked.messages)) == list(map(list_compared, TRANSCRIPT))
        assert [tool.name for tool in asked.tools or ()] == ["add", "multiply"]
        assert [tool.description for tool in asked.tools or ()] == ["Add.", "Multiply."]
        assert [list(tool.parameters["properties"]) for tool in asked.tools or ()] == [["a", "b"]] * 2

    async def test_an_image_reaches_the_model(self, peer: Peer, provider: Provider) -> None:
        """Its bytes and media type are unchanged."""
        if not peer.features.images:
            pytest.skip("this format has no images")
        image = ImageBlock(b"\x89PNG\xff\x00", media_type="image/png")
        peer.say(TEXT, streams=False)
        messages = [UserMessage((TextBlock("What is this?"), image))]
        await request_answer(provider, ChatRequest(messages=messages), streams=False)
        asked = peer.asked[0].messages[0]
        assert isinstance(asked, UserMessage)
        assert image in tuple(asked.content)

    async def test_a_failed_result_says_that_it_failed(self, peer: Peer, provider: Provider) -> None:
        """The failure is in the format's field, or else in the text."""
        messages = (*TRANSCRIPT[:3], ToolResult("call_1", "no such number", is_error=True), TRANSCRIPT[4])
        peer.say(TEXT, streams=False)
        await request_answer(provider, ChatRequest(messages=messages, tools=TOOLS), streams=False)
        failed, fine = peer.asked[0].messages[3:5]
        assert isinstance(failed, ToolResult)
        assert isinstance(fine, ToolResult)
        assert failed.is_error or "error" in failed.text.lower()
        assert "no such number" in failed.text
        assert not fine.is_error
        assert "error" not in fine.text.lower()

    async def test_the_tool_choice_is_sent(self, peer: Peer, provider: Provider) -> None:
        """Each choice arrives; a tool is given by name."""
        peer.say(TEXT, streams=False)
        wanted = ["multiply" if choice == "one" else choice for choice in sorted(peer.features.tool_choices)]
        for choice in wanted:
            await request_answer(provider, request_of(tools=TOOLS, tool_choice=choice), streams=False)
        assert [asked.tool_choice for asked in peer.asked] == wanted

    async def test_parallel_calls_can_be_turned_off(self, peer: Peer, provider: Provider) -> None:
        """False turns them off; None leaves it to the provider."""
        if not peer.features.parallel_switch:
            pytest.skip("this format can't turn parallel calls off")
        peer.say(TEXT, streams=False)
        for parallel in (None, True, False):
            await request_answer(provider, request_of(tools=TOOLS, parallel_tool_calls=parallel), streams=False)
        assert [asked.parallel_tool_calls is False for asked in peer.asked] == [False, False, True]

    @both_ways
    async def test_the_response_schema_is_sent(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """The schema arrives, and the answer is the JSON text."""
        if not peer.features.structured_output:
            pytest.skip("this format has no structured output")
        peer.say(response_of(TextBlock('{"a": 1, "b": 2}')), streams=streams)
        request = request_of(response_format=ResponseFormat(PARAMETERS, name="pair"))
        answer = await request_answer(provider, request, streams=streams)
        assert json.loads(answer.text) == {"a": 1, "b": 2}
        asked = peer.asked[0].response_format
        assert asked is not None
        assert list(asked.schema["properties"]) == ["a", "b"]

    async def test_the_token_limit_is_sent(self, peer: Peer, provider: Provider) -> None:
        """It arrives under the format's name for it."""
        peer.say(TEXT, streams=False)
        await request_answer(provider, request_of(max_tokens=77), streams=False)
        assert peer.asked[0].max_tokens == 77

    @both_ways
    async def test_a_request_is_not_changed(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """The message list may be live: later messages are not sent twice, and earlier ones are not changed."""
        messages = list(TRANSCRIPT)
        request = ChatRequest(messages=messages, tools=TOOLS, options={})
        before = dump_messages(messages)
        peer.say(TEXT, streams=streams)
        await request_answer(provider, request, streams=streams)
        assert dump_messages(messages) == before
        messages.append(AssistantMessage("You're welcome."))
        messages.append(UserMessage("One more."))
        await request_answer(provider, request, streams=streams)
        assert [len(asked.messages) for asked in peer.asked] == [len(TRANSCRIPT), len(TRANSCRIPT) + 2]

    @both_ways
    async def test_requests_may_run_concurrently(self, peer: Peer, provider: Provider, streams: bool) -> None:
        """One provider serves concurrent tasks."""
        peer.say(*[TEXT] * 10, streams=streams)
        texts: list[str] = []

        async def ask(provider: Provider) -> None:
            texts.append((await request_answer(provider, request_of(), streams=streams)).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, provider)
        assert texts == [TEXT.text] * 10

    async def test_a_stream_may_be_closed_early(self, peer: Peer, provider: Provider) -> None:
        """Everything is closed, and the next request is answered."""
        peer.say(TEXT, streams=True)
        await read_first_delta(provider)
        assert (await request_answer(provider, request_of(), streams=True)).text == TEXT.text

    @both_ways
    async def test_a_loop_completes_and_its_transcript_can_be_sent_again(
        self, peer: Peer, provider: Provider, streams: bool
    ) -> None:
        """Two turns with calls, an answer, and the transcript stored as JSON and sent to the provider again."""
        peer.say(
            response_of(TextBlock("First."), ADD, ADD_MORE),
            response_of(replace(ADD, id="call_9")),
            TEXT,
            streams=streams,
        )
        events = EventCollector()
        with anyio.fail_after(PATIENCE):
            await run_loop(provider, events, streams=streams)
        result = events.result
        check_transcript(result.messages, events.events)
        assert result.text == TEXT.text
        assert [message.role for message in result.messages] == [
            *["user", "assistant", "tool", "tool"],
            *["assistant", "tool", "assistant"],
        ]
        assert [message.text for message in result.messages if message.role == "tool"] == ["3", "7", "3"]
        again = [*load_messages(dump_messages(result.messages)), UserMessage("And?")]
        await request_answer(provider, ChatRequest(messages=again, tools=TOOLS), streams=streams)
        assert list(map(list_compared, peer.asked[-1].messages)) == list(map(list_compared, again))

    @both_ways
    async def test_an_item_for_the_application_ends_the_loop(
        self, peer: Peer, provider: Provider, streams: bool
    ) -> None:
        """Each kind of item, alone and beside a call, which is answered."""
        if not peer.features.waiting:
            pytest.skip("this format has no items that wait for the application")
        for kind in sorted(peer.features.waiting):
            for content in ((TextBlock("See."),), (ADD,)):
                item = UnansweredItem(kind, "item_1", "click")
                peer.say(replace(response_of(*content), unanswered=(item,)), streams=streams)
                events = EventCollector()
                with anyio.fail_after(PATIENCE):
                    await run_loop(provider, events, streams=streams)
                reason = events.result.reason
                check_transcript(events.result.messages)
                assert isinstance(reason, UnansweredItems), kind
                assert [(waiting.kind, waiting.id) for waiting in reason.items] == [(kind, "item_1")]
                assert [m.text for m in events.result.messages[2:]] == (["3"] if content == (ADD,) else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """An error status and the exception that it becomes."""

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


class ServerConformance(ProviderConformance):
    """The rules for every adapter that speaks HTTP; inherit it as a ``Test...`` class with a fixture ``wire``.

    Attributes:
        gone_within: Seconds after which a connection that should be closed counts as left open.
    """

    gone_within: ClassVar[float] = 10.0

    @pytest.fixture
    def wire(self) -> Wire:
        """The format, created for each test."""
        raise NotImplementedError("give the class a fixture `wire` that returns how the format words its answers")

    @pytest.fixture
    def server(self) -> Generator[Server]:
        """The loopback server that the adapter connects to."""
        with serving() as running:
            yield running

    @pytest.fixture
    def peer(self, wire: Wire, server: Server) -> Peer:
        """The loopback server with the format."""
        return WirePeer(wire, server)

    @pytest.mark.parametrize("name", _REFUSALS)
    async def test_an_error_response_becomes_the_right_exception(
        self, wire: Wire, server: Server, provider: Provider, name: str
    ) -> None:
        """The error has its class, status, message and retry delay, but not the key; the adapter does not retry."""
        refusal = _REFUSALS[name]
        body = wire.refusal(refusal.status, refusal.message)
        server.answers[:] = [Answer(body, status=refusal.status, headers=refusal.headers)]
        for streams in (False, True):
            with pytest.raises(refusal.kind) as caught:
                await request_answer(provider, request_of(), streams=streams)
            error = caught.value
            assert type(error) is refusal.kind
            assert (error.status, error.is_retryable) == (refusal.status, refusal.is_retryable)
            assert error.retry_after == refusal.retry_after
            assert refusal.message.removesuffix(KEY) in str(error)
            _assert_no_key(error)
        assert len(server.requests) == 2, "the loop tries again, the adapter does not"

    @pytest.mark.parametrize("body", [_HTML, b'{"id": ', b"[1]"], ids=["HTML", "half of JSON", "a list"])
    async def test_a_malformed_body_is_a_bad_response(self, server: Server, provider: Provider, body: bytes) -> None:
        """A proxy's page, and other bodies with a status of 200."""
        whole = Answer(body, content_type="text/html" if body == _HTML else "application/json")
        in_pieces = whole if body == _HTML else Answer(pieces=[b"data: " + body + b"\n\n"])
        server.answers[:] = [whole, in_pieces]
        with pytest.raises(BadResponseError) as caught:
            await request_answer(provider, request_of(), streams=False)
        _assert_no_key(caught.value)
        with pytest.raises(ProviderError) as streamed:
            await request_answer(provider, request_of(), streams=True)
        _assert_no_key(streamed.value)
        # Chunks without content count as a stream that has ended too early, which is retryable.
        assert type(streamed.value) is BadResponseError or (body == b"[1]" and streamed.value.is_retryable)

    @pytest.mark.parametrize("is_cut", [False, True], ids=["ended", "cut"])
    async def test_an_interrupted_stream_is_an_error(
        self, wire: Wire, server: Server, peer: Peer, provider: Provider, is_cut: bool
    ) -> None:
        """The stream breaks off at each place: in text, in arguments, at each kind of item, before the end."""
        see = TextBlock("Let me see.")
        kinds = peer.features.waiting | peer.features.settled
        responses = [response_of(see, ADD), response_of(see, WRITE_NOTE)]
        responses += [_add_item(response_of(see), kind) for kind in sorted(kinds)]
        for response in responses:
            pieces = wire.pieces(response)
            item = _find_item(wire.whole(response))
            for count in range(len(pieces)):
                server.answers[:] = [Answer(pieces=pieces[:count], is_cut=is_cut)]
                answer = await _answer_unless_it_breaks_off(provider)
                if answer is not None:
                    assert count > len(pieces) / 2, "so little can't be the whole"
                    assert list_compared(answer.message) == list_compared(response.message)
                    assert await _send_back(provider, server, wire, answer) == item

    @both_ways
    async def test_each_kind_of_item_is_stored_and_sent_back(
        self, wire: Wire, server: Server, peer: Peer, provider: Provider, streams: bool
    ) -> None:
        """Known or not, it is preserved through the transcript's JSON; only items that wait are unanswered."""
        kinds = peer.features.waiting | peer.features.settled
        if not kinds:
            pytest.skip("this format has only texts, reasoning and calls")
        for kind in sorted(kinds):
            response = _add_item(TEXT, kind)
            server.answers[:] = [_make_answer(wire, response, streams=streams)]
            answer = await request_answer(provider, request_of(), streams=streams)
            assert answer.text == TEXT.text, kind
            assert [item.kind for item in answer.unanswered] == [kind] * (kind in peer.features.waiting)
            item = _find_item(wire.whole(response))
            assert item is not None, f"the wire does not write the item {kind}"
            assert await _send_back(provider, server, wire, answer) == item, kind

    @both_ways
    async def test_an_unreachable_server_is_a_retryable_error(self, wire: Wire, streams: bool) -> None:
        """The error names the address."""
        nowhere = Server(f"http://127.0.0.1:{closed_port()}/v1")
        async with closed(wire.provider(nowhere)) as provider:
            with pytest.raises(ProviderError, match=r"127\.0\.0\.1") as caught:
                await request_answer(provider, request_of(), streams=streams)
        assert caught.value.is_retryable
        _assert_no_key(caught.value)

    @both_ways
    async def test_a_timeout_is_an_error_and_closes_the_connection(
        self, server: Server, peer: Peer, streams: bool
    ) -> None:
        """The request's own timeout applies, and the connection is closed."""
        hang = await _run_out_of_time(server, peer, (), streams=streams)
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    async def test_the_timeout_applies_to_the_whole_stream(self, wire: Wire, server: Server, peer: Peer) -> None:
        """A server that hangs in the middle of a stream exceeds the timeout, too."""
        hang = await _run_out_of_time(server, peer, wire.pieces(TEXT)[:3], streams=True)
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    @pytest.mark.parametrize("where", ["before the answer", "in the middle"])
    @both_ways
    async def test_cancelling_closes_the_connection(
        self, wire: Wire, server: Server, provider: Provider, streams: bool, where: str
    ) -> None:
        """The connection is closed at once."""
        pieces = wire.pieces(TEXT)[:3] if where == "in the middle" else ()
        hang = Hang(pieces)
        server.answers[:] = [hang]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(request_answer, provider, request_of(), streams=streams))
            assert await anyio.to_thread.run_sync(hang.has_come.wait, PATIENCE)
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    async def test_closing_a_stream_closes_the_connection(self, wire: Wire, server: Server, provider: Provider) -> None:
        """A caller that stops after the first delta does not pay for the rest."""
        hang = Hang(wire.pieces(TEXT)[:-1])
        server.answers[:] = [hang]
        await read_first_delta(provider)
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    @both_ways
    async def test_after_an_error_the_next_request_is_answered(
        self, wire: Wire, server: Server, provider: Provider, streams: bool
    ) -> None:
        """A loop that retries recovers from transient failures, and runs nothing twice."""
        refused = Answer(wire.refusal(503, "Overloaded"), status=503)
        cut = Answer(pieces=wire.pieces(response_of(ADD))[:2], is_cut=True)
        say = partial(_make_answer, wire, streams=streams)
        server.answers[:] = [
            *[refused, say(response_of(ADD))],
            *([cut] if streams else [refused]),
            say(TEXT),
        ]
        events = EventCollector()
        retry = ProviderRetryConfig(max_retries=2, initial_backoff=0.001, max_backoff=0.01)
        with anyio.fail_after(PATIENCE):
            await run_loop(provider, events, streams=streams, retry=retry)
        check_transcript(events.result.messages, events.events)
        assert events.result.text == TEXT.text
        assert events.started == ["call_1"]
        assert len(server.requests) == 4

    @both_ways
    async def test_an_error_that_ends_a_loop_has_the_transcript(
        self, wire: Wire, server: Server, provider: Provider, streams: bool
    ) -> None:
        """The work done before the error is not lost."""
        server.answers[:] = [
            _make_answer(wire, response_of(ADD, ADD_MORE), streams=streams),
            Answer(wire.refusal(400, "No more"), status=400),
        ]
        events = EventCollector()
        with pytest.raises(ProviderError) as caught, anyio.fail_after(PATIENCE):
            await run_loop(provider, events, streams=streams)
        assert [message.role for message in caught.value.messages] == ["user", "assistant", "tool", "tool"]
        check_transcript(caught.value.messages, events.events)

    async def test_the_key_is_sent_and_never_shown(self, server: Server, peer: Peer, provider: Provider) -> None:
        """It is in a header, and neither in the body nor in the provider's `repr`."""
        peer.say(TEXT, streams=False)
        await request_answer(provider, request_of(), streams=False)
        assert KEY in str(server.headers[0])
        assert KEY not in json.dumps(server.requests[0])
        assert KEY not in f"{peer.provider!r} {peer.provider!s}"


async def _run_out_of_time(server: Server, peer: Peer, pieces: Sequence[bytes], *, streams: bool) -> Hang:
    async with closed(peer.provider) as provider:
        for seconds in (0.1, 1.0, 10.0):
            hang = Hang(pieces)
            server.answers[:] = [hang]
            with pytest.raises(ProviderTimeoutError) as caught:
                await request_answer(provider, request_of(timeout=seconds), streams=streams)
            assert caught.value.is_retryable
            if hang.has_come.is_set():  # a busy machine may take longer to send the request
                break
    return hang


def _add_item(response: ChatResponse, kind: str) -> ChatResponse:
    return replace(response, unanswered=(UnansweredItem(kind, "item_1", "click"),))


def _find_item(body: Any) -> Any:
    """Return the object in a body that has the id of the item that `_add_item` adds; None if there is none."""
    found: list[dict[str, Any]] = []

    def note_item(value: dict[str, Any]) -> dict[str, Any]:
        if "item_1" in value.values():
            found.append(value)
        return value

    json.loads(json.dumps(body), object_hook=note_item)
    return found[0] if found else None


async def _send_back(provider: Provider, server: Server, wire: Wire, response: ChatResponse) -> Any:
    """Send an answer back, through the transcript's JSON; return the item in the request."""
    messages = load_messages(dump_messages([UserMessage("Hi"), response.message]))
    results = [ToolResult(call.id, "done", tool_name=call.name) for call in response.tool_calls]
    server.answers[:] = [Answer(wire.whole(TEXT))]
    request = ChatRequest(messages=[*messages, *results, UserMessage("And?")], tools=[NOTE, *TOOLS])
    await request_answer(provider, request, streams=False)
    return _find_item(server.requests[-1])


async def _answer_unless_it_breaks_off(provider: Provider) -> ChatResponse | None:
    try:
        return await request_answer(provider, request_of(tools=[NOTE, *TOOLS]), streams=True)
    except ProviderError as error:
        if not error.is_retryable:
            raise
        return None


def _make_answer(wire: Wire, response: ChatResponse, *, streams: bool) -> Answer:
    return Answer(pieces=wire.pieces(response)) if streams else Answer(wire.whole(response))


def _assert_no_key(error: BaseException | None) -> None:
    while error is not None:
        assert KEY not in f"{error!s} {error!r}", "an error shows the key"
        error = error.__cause__
