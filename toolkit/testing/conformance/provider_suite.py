"""The rules for every provider, the peer that plays the server, and how exchanges are compared."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import anyio
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
    UnansweredItem,
    Usage,
    UserMessage,
    dump_messages,
    load_messages,
)
from toolkit.chat.provider import closing
from toolkit.loop.config import ProviderRetryConfig, ToolLoopConfig
from toolkit.loop.handle import tool_loop
from toolkit.loop.outcome import UnansweredItems
from toolkit.testing.events import EventCollector
from toolkit.testing.loopback import Answer, Server
from toolkit.testing.transcripts import check_transcript
from toolkit.tools.decorators import tool
from toolkit.tools.registry import ToolRegistry

__all__ = [
    "ADD",
    "ADD_MORE",
    "both_ways",
    "closed",
    "end_of",
    "Features",
    "gist",
    "hear",
    "hear_answer",
    "hear_first_word",
    "KEY",
    "PARAMETERS",
    "PATIENCE",
    "Peer",
    "ProviderConformance",
    "request_of",
    "response_of",
    "run_loop",
    "SAID",
    "spoken",
    "TEXT",
    "thoughts",
    "TOOLS",
    "TRANSCRIPT",
    "USAGE",
    "Wire",
    "WirePeer",
]


USAGE = Usage(input_tokens=7, output_tokens=3)


def response_of(*content: Any, stop_reason: StopReason | None = None, usage: Usage = USAGE) -> ChatResponse:
    """Return an answer of these blocks; it stops for tools where there are calls."""
    message = AssistantMessage(content)
    reason: StopReason = stop_reason or ("tool_use" if message.tool_calls else "end_turn")
    return ChatResponse(message=message, usage=usage, stop_reason=reason, model="conformance-1")


ADD = ToolCall("call_1", "add", '{"a": 1, "b": 2}')
ADD_MORE = ToolCall("call_2", "add", '{"a": 3, "b": 4}')
TEXT = response_of(TextBlock("The sum of 1 and 2 is 3."))
SAID = {
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
PATIENCE = 30.0

both_ways: pytest.MarkDecorator = pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])


def request_of(text: str = "Hi", **settings: Any) -> ChatRequest:
    """Return a request with one text of the user."""
    return ChatRequest(messages=[UserMessage(text)], **settings)


def gist(message: Message) -> tuple[object, ...]:
    """Return what of a message must reach the other side, and come back."""
    match message:
        case AssistantMessage():
            calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
            return ("assistant", message.text, calls)
        case ToolResult():
            return ("tool", message.call_id, message.text)
        case _:
            return (message.role, message.text)


def thoughts(message: Message) -> str:
    """Return the reasoning in a message."""
    blocks = message.content if isinstance(message, AssistantMessage) else ()
    return "".join([block.text for block in blocks if isinstance(block, ReasoningBlock)])


def spoken(heard: Sequence[StreamEvent]) -> str:
    """Return the text that the deltas of a stream add up to."""
    return "".join([event.text for event in heard if isinstance(event, TextDelta)])


def end_of(heard: Sequence[StreamEvent]) -> ChatResponse:
    """Return the whole answer, which a stream tells once, as its last event."""
    done = [event for event in heard if isinstance(event, ResponseDone)]
    assert len(done) == 1
    assert heard[-1] is done[0]
    return done[0].response


async def hear(provider: Provider, request: ChatRequest) -> list[StreamEvent]:
    """Return all events of a stream, bounded in time."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request)) as events:
            return [event async for event in events]


async def hear_answer(provider: Provider, request: ChatRequest, *, streams: bool) -> ChatResponse:
    """Return the answer, asked for in one of the two ways, bounded in time."""
    if streams:
        return end_of(await hear(provider, request))
    with anyio.fail_after(PATIENCE):
        return await provider.generate(request)


async def hear_first_word(provider: Provider) -> None:
    """Listen to an answer, and leave after its first word."""
    with anyio.fail_after(PATIENCE):
        async with closing(provider.stream(request_of())) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                break


@asynccontextmanager
async def closed(provider: Provider) -> AsyncGenerator[Provider]:
    """Give a provider, and close it where it can be closed."""
    try:
        yield provider
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()


async def run_loop(
    provider: Provider, events: EventCollector, *, streams: bool, retry: ProviderRetryConfig | None = None
) -> None:
    """Run a loop with a tool that adds, and without retries unless `retry` says so."""

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    retry = retry or ProviderRetryConfig(max_retries=0)
    config = ToolLoopConfig(provider_retry=retry, on_event=events, stream=streams)
    await tool_loop(provider, ToolRegistry([add]), "What is 1 plus 2?", config=config)


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


class ProviderConformance:
    """The rules for every provider; inherit it as a ``Test...`` class with a fixture ``peer``."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def peer(self) -> Peer:
        """The other side; each test takes a new one."""
        raise NotImplementedError("give the class a fixture `peer` that returns the other side of the provider")

    @pytest.mark.parametrize("said", SAID)
    async def test_whatever_is_said_is_heard_whole_and_in_pieces(self, peer: Peer, said: str) -> None:
        """Texts and calls come as they are; both ways of asking have one answer, which the deltas add up to."""
        response, request = SAID[said], request_of(tools=TOOLS)
        async with closed(peer.provider) as provider:
            peer.say(response, streams=False)
            whole = await hear_answer(provider, request, streams=False)
            peer.say(response, streams=True)
            heard = await hear(provider, request)
        streamed = end_of(heard)
        for answer in (whole, streamed):
            assert gist(answer.message) == gist(response.message)
            assert answer.stop_reason == response.stop_reason
            assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
        assert whole.model == streamed.model
        assert spoken(heard) == "".join([b.text for b in streamed.message.content if isinstance(b, TextBlock)])
        pieces: dict[int, list[ArgumentsDelta]] = {}
        for event in heard:
            if isinstance(event, ArgumentsDelta):
                pieces.setdefault(event.index, []).append(event)
        assert list(pieces) == list(range(len(streamed.tool_calls)))
        for index, call in enumerate(streamed.tool_calls):
            assert "".join([piece.text for piece in pieces[index]]) == call.arguments
            assert (pieces[index][-1].call_id, pieces[index][-1].tool_name) == (call.id, call.name)

    @both_ways
    async def test_many_deltas_are_one_text(self, peer: Peer, streams: bool) -> None:
        """Two thousand words come one by one and are all there."""
        text = " ".join([f"word{number}" for number in range(2_000)])
        peer.say(response_of(TextBlock(text)), streams=streams)
        async with closed(peer.provider) as provider:
            assert (await hear_answer(provider, request_of(), streams=streams)).text == text

    @both_ways
    async def test_the_reason_to_stop_is_told(self, peer: Peer, streams: bool) -> None:
        """The reason that a caller decides by is the same for all formats."""
        async with closed(peer.provider) as provider:
            for reason in sorted(peer.features.stop_reasons):
                content = ADD if reason == "tool_use" else TextBlock("As far as it came")
                peer.say(response_of(content, stop_reason=reason), streams=streams)
                assert (await hear_answer(provider, request_of(tools=TOOLS), streams=streams)).stop_reason == reason

    @both_ways
    async def test_usage_tells_of_caches_and_reasoning(self, peer: Peer, streams: bool) -> None:
        """The parts are told, and are within the whole."""
        parts: dict[str, Any] = dict.fromkeys(peer.features.usage, 2)
        peer.say(response_of(TextBlock("Hi."), usage=replace(USAGE, **parts)), streams=streams)
        async with closed(peer.provider) as provider:
            heard = (await hear_answer(provider, request_of(), streams=streams)).usage
        assert {name: getattr(heard, name) for name in parts} == parts
        assert (heard.input_tokens, heard.output_tokens) == (7, 3)

    @both_ways
    async def test_reasoning_is_told_and_goes_back(self, peer: Peer, streams: bool) -> None:
        """A thought of the model is a block of its message, which the next request carries."""
        if not peer.features.reasoning:
            pytest.skip("this format does not tell what a model thinks")
        thought = ReasoningBlock(text="One and two make three.", signature="c2VhbA==")
        peer.say(response_of(thought, ADD), TEXT, streams=streams)
        async with closed(peer.provider) as provider:
            heard = await hear_answer(provider, request_of(tools=TOOLS), streams=streams)
            assert thoughts(heard.message) == thought.text
            messages: list[Message] = [UserMessage("Hi"), heard.message, ToolResult("call_1", "3", tool_name="add")]
            await hear_answer(provider, ChatRequest(messages=messages, tools=TOOLS), streams=streams)
        if peer.features.reasoning_back:
            assert thoughts(peer.asked[1].messages[1]) == thought.text

    @both_ways
    async def test_the_transcript_is_asked_as_it_stands(self, peer: Peer, streams: bool) -> None:
        """Each message arrives, in order, with its ids; nothing is added and nothing is lost."""
        peer.say(TEXT, streams=streams)
        async with closed(peer.provider) as provider:
            await hear_answer(provider, ChatRequest(messages=TRANSCRIPT, tools=TOOLS), streams=streams)
        (asked,) = peer.asked
        assert list(map(gist, asked.messages)) == list(map(gist, TRANSCRIPT))
        assert [tool.name for tool in asked.tools or ()] == ["add", "multiply"]
        assert [tool.description for tool in asked.tools or ()] == ["Add.", "Multiply."]
        assert [list(tool.parameters["properties"]) for tool in asked.tools or ()] == [["a", "b"]] * 2

    async def test_an_image_reaches_the_model(self, peer: Peer) -> None:
        """Its bytes and its kind are what they were."""
        if not peer.features.images:
            pytest.skip("this format has no images")
        image = ImageBlock(b"\x89PNG\xff\x00", media_type="image/png")
        peer.say(TEXT, streams=False)
        async with closed(peer.provider) as provider:
            messages = [UserMessage((TextBlock("What is this?"), image))]
            await hear_answer(provider, ChatRequest(messages=messages), streams=False)
        asked = peer.asked[0].messages[0]
        assert isinstance(asked, UserMessage)
        assert image in tuple(asked.content)

    async def test_a_failed_result_says_that_it_failed(self, peer: Peer) -> None:
        """In its field where there is one, else in its text."""
        messages = (*TRANSCRIPT[:3], ToolResult("call_1", "no such number", is_error=True), TRANSCRIPT[4])
        peer.say(TEXT, streams=False)
        async with closed(peer.provider) as provider:
            await hear_answer(provider, ChatRequest(messages=messages, tools=TOOLS), streams=False)
        failed, fine = peer.asked[0].messages[3:5]
        assert isinstance(failed, ToolResult)
        assert isinstance(fine, ToolResult)
        assert failed.is_error or "error" in failed.text.lower()
        assert "no such number" in failed.text
        assert not fine.is_error
        assert "error" not in fine.text.lower()

    async def test_the_choice_of_tools_is_asked_for(self, peer: Peer) -> None:
        """Each arrives, a tool by its name."""
        peer.say(TEXT, streams=False)
        wanted = ["multiply" if choice == "one" else choice for choice in sorted(peer.features.tool_choices)]
        async with closed(peer.provider) as provider:
            for choice in wanted:
                await hear_answer(provider, request_of(tools=TOOLS, tool_choice=choice), streams=False)
        assert [asked.tool_choice for asked in peer.asked] == wanted

    async def test_parallel_calls_can_be_turned_off(self, peer: Peer) -> None:
        """Off is off; None leaves it to the provider."""
        if not peer.features.parallel_switch:
            pytest.skip("this format can't turn parallel calls off")
        peer.say(TEXT, streams=False)
        async with closed(peer.provider) as provider:
            for parallel in (None, True, False):
                await hear_answer(provider, request_of(tools=TOOLS, parallel_tool_calls=parallel), streams=False)
        assert [asked.parallel_tool_calls is False for asked in peer.asked] == [False, False, True]

    @both_ways
    async def test_a_schema_for_the_answer_is_asked_for(self, peer: Peer, streams: bool) -> None:
        """The schema arrives, and the answer is the JSON text."""
        if not peer.features.structured_output:
            pytest.skip("this format has no structured output")
        peer.say(response_of(TextBlock('{"a": 1, "b": 2}')), streams=streams)
        async with closed(peer.provider) as provider:
            request = request_of(response_format=ResponseFormat(PARAMETERS, name="pair"))
            heard = await hear_answer(provider, request, streams=streams)
        assert json.loads(heard.text) == {"a": 1, "b": 2}
        asked = peer.asked[0].response_format
        assert asked is not None
        assert list(asked.schema["properties"]) == ["a", "b"]

    async def test_the_limit_of_tokens_is_asked_for(self, peer: Peer) -> None:
        """It arrives under whatever name the format has for it."""
        peer.say(TEXT, streams=False)
        async with closed(peer.provider) as provider:
            await hear_answer(provider, request_of(max_tokens=77), streams=False)
        assert peer.asked[0].max_tokens == 77

    @both_ways
    async def test_a_request_is_left_as_it_is(self, peer: Peer, streams: bool) -> None:
        """The list may be live: what is said later is not said twice, nor what was said before changed."""
        messages = list(TRANSCRIPT)
        request = ChatRequest(messages=messages, tools=TOOLS, options={})
        before = dump_messages(messages)
        peer.say(TEXT, streams=streams)
        async with closed(peer.provider) as provider:
            await hear_answer(provider, request, streams=streams)
            assert dump_messages(messages) == before
            messages.append(AssistantMessage("You're welcome."))
            messages.append(UserMessage("One more."))
            await hear_answer(provider, request, streams=streams)
        assert [len(asked.messages) for asked in peer.asked] == [len(TRANSCRIPT), len(TRANSCRIPT) + 2]

    @both_ways
    async def test_requests_may_run_side_by_side(self, peer: Peer, streams: bool) -> None:
        """One provider serves many tasks."""
        peer.say(*[TEXT] * 10, streams=streams)
        texts: list[str] = []

        async def ask(provider: Provider) -> None:
            texts.append((await hear_answer(provider, request_of(), streams=streams)).text)

        async with closed(peer.provider) as provider, anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, provider)
        assert texts == [TEXT.text] * 10

    async def test_a_stream_may_be_left_early(self, peer: Peer) -> None:
        """Nothing is left open, and the next request is answered."""
        peer.say(TEXT, streams=True)
        async with closed(peer.provider) as provider:
            await hear_first_word(provider)
            assert (await hear_answer(provider, request_of(), streams=True)).text == TEXT.text

    @both_ways
    async def test_a_loop_goes_to_its_end_and_its_transcript_can_be_asked_again(
        self, peer: Peer, streams: bool
    ) -> None:
        """Two turns of tools, the answer, the transcript through JSON and back to the provider."""
        peer.say(
            response_of(TextBlock("First."), ADD, ADD_MORE),
            response_of(replace(ADD, id="call_9")),
            TEXT,
            streams=streams,
        )
        events = EventCollector()
        async with closed(peer.provider) as provider:
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
            await hear_answer(provider, ChatRequest(messages=again, tools=TOOLS), streams=streams)
        assert list(map(gist, peer.asked[-1].messages)) == list(map(gist, again))

    @both_ways
    async def test_what_only_the_application_can_answer_ends_a_loop_by_its_name(
        self, peer: Peer, streams: bool
    ) -> None:
        """Each kind of such items, alone and beside a call, which is answered."""
        if not peer.features.waiting:
            pytest.skip("this format has no items that wait for the application")
        async with closed(peer.provider) as provider:
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
