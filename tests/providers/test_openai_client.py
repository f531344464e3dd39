"""The provider against a real server on loopback: answers, streams, and everything that goes wrong."""

import asyncio
import json
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.busy_machine import with_time_enough
from tests.providers.loopback import Answer, Hang, Server, chunk, closed_port, completion, events, serving
from tests.providers.vendor_cases import generate, hear, response_of
from toolkit import AssistantMessage, ChatRequest, ProviderError, TextDelta, ToolCall, Usage, UserMessage
from toolkit.chat import (
    AudioBlock,
    ChatResponse,
    ImageBlock,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    ToolDefinition,
)
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.providers.adapter import ServerEventReader
from toolkit.providers.encoding import Dialect, sealed
from toolkit.providers.openai import ChatOptions, OpenAIProvider

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("Hi")])


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(completion())) as running:
        yield running


async def ask(server: Server, *answers: Answer | Hang, request: ChatRequest = REQUEST, **options: Any) -> ChatResponse:
    if answers:
        server.answers[:] = answers
    return await generate(OpenAIProvider("test-1", base_url=server.url, api_key=SECRET, **options), request)


async def listen(server: Server, *answers: Answer | Hang, request: ChatRequest = REQUEST) -> list[StreamEvent]:
    if answers:
        server.answers[:] = answers
    return await hear(OpenAIProvider("test-1", base_url=server.url, api_key=SECRET), request)


async def test_an_answer_has_text_usage_stop_reason_and_names(server: Server) -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    body = completion(usage=usage)
    ChatCompletion.model_validate(body)
    response = await ask(server, Answer(body, headers={"x-request-id": "req_1"}))
    assert response == ChatResponse(
        message=AssistantMessage("Hello."),
        usage=Usage(input_tokens=7, output_tokens=3, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=1),
        stop_reason="end_turn",
        model="test-1",
        request_id="req_1",
        metadata={"id": "chatcmpl-1"},
    )
    assert server.requests == [{"model": "test-1", "messages": [{"role": "user", "content": "Hi"}]}]
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


@dataclass(frozen=True)
class Said:
    name: str
    body: dict[str, Any]
    content: tuple[Any, ...]
    stop_reason: str


DETAILS = [
    {"type": "reasoning.text", "text": "Hm.", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "x", "id": "rs_1", "index": 1},
]
SAID = [
    Said("cut off", completion("He", finish_reason="length"), (TextBlock("He"),), "max_tokens"),
    Said("filtered", completion("", finish_reason="content_filter"), (), "content_filter"),
    Said("refused", completion(None, refusal="No."), (TextBlock("No."),), "refusal"),
    Said(
        "calls",
        completion(None, finish_reason="tool_calls", tool_calls=[CALL]),
        (ToolCall("call_1", "add", '{"a": 1}'),),
        "tool_use",
    ),
    Said(
        "calls but says stop", completion("", tool_calls=[CALL]), (ToolCall("call_1", "add", '{"a": 1}'),), "tool_use"
    ),
    Said(
        "arguments as an object, no id, no reason",
        completion(None, finish_reason=None, tool_calls=[{"function": {"name": "add", "arguments": {"a": 1}}}]),
        (ToolCall("", "add", '{"a": 1}'),),
        "tool_use",
    ),
    Said(
        "thought signature",
        completion(None, tool_calls=[{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}]),
        (ToolCall("call_1", "add", '{"a": 1}', extra={"extra_content": {"google": {"thought_signature": "s"}}}),),
        "tool_use",
    ),
    Said(
        "reasoning",
        completion("Hi.", reasoning_content="Hm."),
        (ReasoningBlock(text="Hm."), TextBlock("Hi.")),
        "end_turn",
    ),
    Said(
        "sealed reasoning",
        completion("Hi.", reasoning="Hm.", reasoning_details=DETAILS),
        (
            ReasoningBlock(text="Hm.", signature="s", encrypted=sealed("openai", DETAILS[0])),
            ReasoningBlock(encrypted=sealed("openai", DETAILS[1]), id="rs_1"),
            TextBlock("Hi."),
        ),
        "end_turn",
    ),
    Said("parts", completion([{"type": "text", "text": "Hi."}]), (TextBlock("Hi."),), "end_turn"),
    Said(
        "reasoning among the parts",
        completion(
            [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Hi."}]
        ),
        (ReasoningBlock(text="Hm."), TextBlock("Hi.")),
        "end_turn",
    ),
    Said(
        "sound",
        completion(None, audio={"id": "a", "data": "d2F2", "expires_at": 1, "transcript": "Hi."}),
        (TextBlock("Hi."), AudioBlock(b"wav", media_type="audio/wav")),
        "end_turn",
    ),
    Said(
        "image",
        completion("", images=[{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,cG5n"}}]),
        (ImageBlock(b"png", media_type="image/jpeg"),),
        "end_turn",
    ),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.name)
async def test_whatever_is_said_is_decoded(server: Server, said: Said) -> None:
    response = await ask(server, Answer(said.body))
    assert response.message.content == said.content
    assert response.stop_reason == said.stop_reason


async def test_a_stream_gives_deltas_and_then_the_whole(server: Server) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "Let me "}),
        chunk({"content": "see.\u2028"}),
        chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "add"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "sub", "arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk({}, finish_reason="tool_calls"),
        chunk(usage=usage),
    ]
    for piece in chunks[4:]:
        ChatCompletionChunk.model_validate(piece)
    heard = await listen(server, Answer(pieces=events(*chunks), headers={"x-request-id": "req_2"}))
    assert heard[:-1] == [
        ReasoningDelta("Hm."),
        TextDelta("Let me "),
        TextDelta("see.\u2028"),
        ArgumentsDelta(0, "c1", "add", ""),
        ArgumentsDelta(0, "c1", "add", '{"a"'),
        ArgumentsDelta(1, "c2", "sub", "{}"),
        ArgumentsDelta(0, "c1", "add", ": 1}"),
    ]
    response = response_of(heard)
    assert response.message.content == (
        ReasoningBlock(text="Hm."),
        TextBlock("Let me see.\u2028"),
        ToolCall("c1", "add", '{"a": 1}'),
        ToolCall("c2", "sub", "{}"),
    )
    assert response.usage == Usage(input_tokens=7, output_tokens=3)
    assert (response.stop_reason, response.request_id, response.model) == ("tool_use", "req_2", "test-1")
    assert server.requests[0]["stream_options"] == {"include_usage": True}


async def test_sealed_reasoning_comes_in_pieces_and_goes_back_whole(server: Server) -> None:
    first, second = DETAILS
    pieces = [
        {**first, "text": "H", "signature": None},
        {**first, "text": "m."},
        {**second, "data": "x"},
    ]
    chunks = [chunk({"reasoning": "", "reasoning_details": [piece]}) for piece in pieces]
    heard = await listen(server, Answer(pieces=events(*chunks, chunk({"content": "Hi."}, finish_reason="stop"))))
    said = response_of(heard).message
    server.answers[:] = [Answer(completion())]
    await ask(server, request=ChatRequest(messages=[UserMessage("Hi"), said]))
    assert server.requests[-1]["messages"][1]["reasoning_details"] == DETAILS


async def test_names_that_the_format_refuses_are_mapped_and_mapped_back(server: Server) -> None:
    odd = ToolDefinition(name="look up", description="", parameters={"type": "object", "properties": {}})
    wire = Dialect().tool_name_of("look up")
    call = {"id": "c1", "type": "function", "function": {"name": wire, "arguments": "{}"}}
    request = ChatRequest(messages=[UserMessage("Hi")], tools=[odd], tool_choice="look up")
    whole = await ask(server, Answer(completion(None, tool_calls=[call])), request=request)
    last = chunk({"tool_calls": [{"index": 0, **call}]}, finish_reason="tool_calls")
    heard = await listen(server, Answer(pieces=events(last)), request=request)
    assert whole.tool_calls == response_of(heard).tool_calls == (ToolCall("c1", "look up", "{}"),)
    assert heard[0] == ArgumentsDelta(0, "c1", "look up", "{}")
    assert server.requests[0]["tool_choice"]["function"]["name"] == wire
    assert server.requests[0]["tools"][0]["function"]["name"] == wire


@pytest.mark.parametrize("pieces", [["d2E=", "dg==", "MQ=="], ["d2", "F2M", "Q=="]], ids=["padded", "cut"])
async def test_sound_comes_in_pieces(server: Server, pieces: list[str]) -> None:
    chunks = [chunk({"audio": {"id": "a", "data": piece, "transcript": "H"}}) for piece in pieces]
    request = ChatRequest(messages=[], options=ChatOptions(audio={"voice": "alloy", "format": "mp3"}))
    heard = await listen(server, Answer(pieces=events(*chunks, chunk({}, finish_reason="stop"))), request=request)
    assert response_of(heard).message.content == (TextBlock("HHH"), AudioBlock(b"wav1", media_type="audio/mp3"))


async def test_of_several_choices_the_first_is_the_answer(server: Server) -> None:
    def choice(index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return {**chunk(), "choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]}

    told = [choice(0, "He"), choice(1, "No"), choice(0, "llo", "stop"), choice(1, "pe", "length")]
    answer = response_of(await listen(server, Answer(pieces=events(*told))))
    assert (answer.text, answer.stop_reason) == ("Hello", "end_turn")


async def test_calls_that_share_an_index_are_told_apart_by_their_ids(server: Server) -> None:
    calls = [{"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in ("one", "two")]
    heard = await listen(
        server,
        Answer(pieces=events(*[chunk({"tool_calls": [call]}) for call in calls], chunk({}, finish_reason="stop"))),
    )
    assert [call.id for call in response_of(heard).tool_calls] == ["one", "two"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_a_stream_may_come_in_pieces_of_any_size(server: Server, size: int) -> None:
    whole = b"".join(events(chunk({"content": "Grüße "}), chunk({"content": "🦉"}), chunk({}, finish_reason="stop")))
    whole = b": a comment\r\n\r\n" + whole.replace(b"\n", b"\r\n")
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    heard = await listen(server, Answer(pieces=pieces))
    assert response_of(heard).text == "Grüße 🦉"


def test_events_of_several_lines_are_put_together() -> None:
    reader = ServerEventReader()
    assert reader.feed(b"data: a\ndata: b\n\nevent: x\ndata:c\n\ndata: [DONE]\n\ndata: d\n\n") == [b"a\nb", b"c"]
    assert reader.is_done


async def test_one_connection_serves_one_request_after_another(server: Server) -> None:
    done = Answer(pieces=events(chunk({"content": "Hi."}), chunk({}, finish_reason="stop")))
    server.answers[:] = [Answer(completion()), done, Answer(completion()), done, Answer(completion())]
    async with OpenAIProvider("test-1", base_url=server.url) as provider:
        for _ in range(2):
            await provider.generate(REQUEST)
            async with aclosing(provider.stream(REQUEST)) as stream:
                assert [event async for event in stream]
        await provider.generate(REQUEST)
    assert len(server.requests) == 5
    assert len(server.connections) == 1


@dataclass(frozen=True)
class Failure:
    name: str
    answer: Answer
    kind: type[ProviderError]
    says: str
    is_retryable: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def refusal(status: int, message: str, *, code: str | None = None, **headers: str) -> Answer:
    body = {"error": {"message": message, "type": "some_error", "code": code, "param": None}}
    return Answer(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


HTML = Answer(b"<!doctype html><html><body>Welcome!</body></html>", content_type="text/html")
FAILURES = [
    Failure("401", refusal(401, f"Bad key {SECRET}"), ProviderAuthError, "OPENAI_API_KEY", facts={"status": 401}),
    Failure("403", refusal(403, "Not yours"), ProviderAuthError, "Not yours", facts={"status": 403}),
    Failure("unknown model", refusal(404, "No such model"), ProviderError, "check the model 'test-1' and base_url"),
    Failure("wrong url", Answer(HTML.body, status=404, content_type="text/html"), ProviderError, "base_url"),
    Failure("bad request", refusal(400, "temperature is too high"), ProviderError, "temperature is too high"),
    Failure(
        "a content filter",
        refusal(400, "Flagged", code="content_filter"),
        ContentFilteredError,
        "the content filter refused the request: Flagged",
    ),
    Failure(
        "too long for OpenAI",
        refusal(400, "Your messages are too many", code="context_length_exceeded"),
        ContextTooLongError,
        "compaction",
    ),
    Failure(
        "too long for llama.cpp",
        Answer(
            {"error": {"code": 400, "message": "request (9 tokens) exceeds the available context size (8 tokens)"}},
            status=400,
        ),
        ContextTooLongError,
        "exceeds the available context size",
    ),
    Failure(
        "429 in seconds",
        refusal(429, "Slow down", retry_after="1.5", x_request_id="req_3"),
        RateLimitedError,
        "Slow down",
        is_retryable=True,
        facts={"retry_after": 1.5, "request_id": "req_3", "status": 429},
    ),
    Failure(
        "429 in milliseconds",
        refusal(429, "Slow down", retry_after_ms="250", retry_after="9"),
        RateLimitedError,
        "Slow down",
        is_retryable=True,
        facts={"retry_after": 0.25},
    ),
    Failure("429 without a time", refusal(429, "Slow down"), RateLimitedError, "Slow", True, {"retry_after": None}),
    Failure(
        "429 with nonsense",
        refusal(429, "Slow down", retry_after="soon"),
        RateLimitedError,
        "Slow",
        True,
        {"retry_after": None},
    ),
    Failure("no money", refusal(429, "Pay first", code="insufficient_quota"), RateLimitedError, "Pay first"),
    Failure("500", refusal(500, "Oops"), ProviderError, "Oops", is_retryable=True),
    Failure("503 without a body", Answer(b"", status=503), ProviderError, "without a message", is_retryable=True),
    Failure("504", refusal(504, "Late"), ProviderTimeoutError, "Late", is_retryable=True),
    Failure("500 that forbids a retry", refusal(500, "Never", x_should_retry="false"), ProviderError, "Never"),
    Failure("HTML in a 200", HTML, BadResponseError, "text/html"),
    Failure("nonsense in a 200", Answer(b'{"id": '), BadResponseError, "check base_url"),
    Failure(
        "an error in a 200", Answer({"error": {"message": "Upstream", "code": 502}}), ProviderError, "Upstream", True
    ),
    Failure("no choices", Answer({**completion(), "choices": []}), BadResponseError, "no choices", True),
    Failure("null choices", Answer({**completion(), "choices": None}), BadResponseError, "no choices", True),
]


# In a stream, a whole answer where pieces were asked for is one that ended early.
ONLY_WHOLE = {"nonsense in a 200", "an error in a 200", "no choices", "null choices"}


@pytest.mark.parametrize(
    ("failure", "streams"),
    [
        pytest.param(failure, streams, id=f"{failure.name}-{'stream' if streams else 'generate'}")
        for failure in FAILURES
        for streams in (False, True)
        if not streams or failure.name not in ONLY_WHOLE
    ],
)
async def test_what_the_server_refuses_says_what_and_whether_to_retry(
    server: Server, failure: Failure, streams: bool
) -> None:
    with pytest.raises(failure.kind, match=re.escape(failure.says)) as caught:
        await (listen if streams else ask)(server, failure.answer)
    assert type(caught.value) is failure.kind
    assert caught.value.is_retryable is failure.is_retryable
    assert {name: getattr(caught.value, name) for name in failure.facts} == failure.facts
    assert SECRET not in f"{caught.value!s} {caught.value!r}"
    assert len(server.requests) == 1, "the loop retries, the provider does not"


async def test_a_date_in_retry_after_is_told_in_seconds(server: Server) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    with pytest.raises(RateLimitedError) as caught:
        await ask(server, refusal(429, "Slow down", retry_after=later))
    assert caught.value.retry_after is not None
    assert 50 < caught.value.retry_after <= 60


BROKEN_STREAMS: dict[str, tuple[Answer, type[ProviderError], str, bool]] = {
    "cut": (
        Answer(pieces=events(chunk({"content": "He"}), is_done=False), is_cut=True),
        ProviderError,
        "was cut",
        True,
    ),
    "ends early": (Answer(pieces=events(chunk({"content": "He"}))), ProviderError, "before the answer was", True),
    "stops in mid-argument": (
        Answer(
            pieces=events(
                chunk({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a'}}]}),
                is_done=False,
            )
        ),
        ProviderError,
        "before the answer was",
        True,
    ),
    "nothing": (Answer(pieces=[]), ProviderError, "before the answer was", True),
    "no JSON": (Answer(pieces=[b"data: {nonsense\n\n"]), BadResponseError, "check base_url", False),
    "an error event": (
        Answer(pieces=events(chunk({"content": "He"}), {"error": {"message": "Overloaded"}})),
        ProviderError,
        "Overloaded",
        True,
    ),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_an_error_and_never_a_short_answer(server: Server, name: str) -> None:
    answer, kind, says, is_retryable = BROKEN_STREAMS[name]
    with pytest.raises(kind, match=says) as caught:
        await listen(server, answer)
    assert type(caught.value) is kind
    assert caught.value.is_retryable is is_retryable


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_server_without_tls_is_told_from_one_that_is_not_there(server: Server, streams: bool) -> None:
    secure = Server(server.url.replace("http:", "https:"))
    with pytest.raises(ProviderError, match=r"no trusted connection to https:.*check the certificate, or the proxy"):
        await (listen if streams else ask)(secure)


async def test_a_proxy_that_refuses_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers[:] = [Answer(b"", status=407)]
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    with pytest.raises(ProviderError, match="HTTP 407"):
        await ask(Server("http://example.invalid/v1"))


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_key_that_the_server_repeats_is_not_in_the_traceback(server: Server, streams: bool) -> None:
    with pytest.raises(ProviderAuthError) as caught:
        await (listen if streams else ask)(server, refusal(401, f"Bad key {SECRET}"))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_key_that_no_header_can_carry_is_not_shown(server: Server) -> None:
    async def wrong_key() -> str:
        return f"{SECRET}\n{SECRET}"

    async with OpenAIProvider("test-1", base_url=server.url, api_key=wrong_key) as provider:
        with pytest.raises(ProviderAuthError, match="no header can hold") as caught:
            await provider.generate(REQUEST)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_password_in_the_url_is_sent_and_no_log_has_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await ask(Server(server.url.replace("http://", "http://ada:hunter2%21@")))
    assert server.headers[0]["authorization"] == "Basic YWRhOmh1bnRlcjIh"
    assert caplog.text
    assert "hunter2" not in caplog.text
    assert "YWRhOmh1" not in caplog.text


async def test_no_log_has_the_key(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await ask(server)
    with pytest.raises(ProviderAuthError):
        await listen(server, refusal(401, "Bad key"))
    assert caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_no_server_names_the_url_and_what_to_do(streams: bool) -> None:
    nowhere = Server(f"http://user:pass@127.0.0.1:{closed_port()}/v1")
    with pytest.raises(ProviderError, match=r"no connection to http://127\.0\.0\.1:\d+/v1.*is the server") as caught:
        await (listen if streams else ask)(nowhere)
    assert caught.value.is_retryable
    assert "pass" not in str(caught.value)


SILENT: dict[str, Callable[[], Hang]] = {
    "no answer": Hang,
    "stops in the middle": lambda: Hang(events(chunk({"content": "He"}), is_done=False)),
}


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("silence", SILENT)
async def test_a_timeout_counts_for_the_whole_answer_and_closes_the_connection(
    server: Server, silence: str, streams: bool
) -> None:
    async with OpenAIProvider("test-1", base_url=server.url) as provider:
        await provider.generate(REQUEST)  # the first request takes longer, and that is not what is timed

        async def run(seconds: float) -> Hang:
            hang = SILENT[silence]()
            server.answers[:] = [hang]
            request = ChatRequest(messages=[UserMessage("Hi")], timeout=seconds)
            with pytest.raises(ProviderTimeoutError, match=f"within {seconds:g} s") as caught, anyio.fail_after(120):
                if streams:
                    async with aclosing(provider.stream(request)) as stream:
                        async for event in stream:
                            assert event == TextDelta("He")
                else:
                    await provider.generate(request)
            assert caught.value.is_retryable
            return hang

        hang = await with_time_enough(run, lambda hang: hang.has_come.is_set())
        assert await anyio.to_thread.run_sync(hang.has_left.wait, 20)


async def test_a_timeout_of_the_provider_ends_a_stream_that_never_falls_silent(server: Server) -> None:
    server.answers[:] = [Answer(pieces=events(chunk({"content": "He"}), chunk({"content": "llo."})))]
    for seconds in (0.2, 2.0, 20.0):
        async with OpenAIProvider("test-1", base_url=server.url, timeout=timedelta(seconds=seconds)) as provider:
            heard: list[StreamEvent] = []
            with pytest.raises(ProviderTimeoutError, match=f"within {seconds:g} s|in time"):
                async with aclosing(provider.stream(REQUEST)) as stream:
                    async for event in stream:
                        heard.append(event)
                        await anyio.sleep(seconds)
        if heard:  # a busy machine may take longer to send the request
            break
    assert heard[0] == TextDelta("He")


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("silence", SILENT)
async def test_cancelling_closes_the_connection(server: Server, silence: str, streams: bool) -> None:
    hang = SILENT[silence]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(listen if streams else ask, server, hang))
        assert await anyio.to_thread.run_sync(hang.has_come.wait, 30)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(hang.has_left.wait, 30)


async def test_leaving_a_stream_early_closes_the_connection(server: Server) -> None:
    hang = SILENT["stops in the middle"]()
    server.answers[:] = [hang]
    async with OpenAIProvider("test-1", base_url=server.url) as provider:
        async with aclosing(provider.stream(REQUEST)) as stream:
            async for event in stream:
                assert event == TextDelta("He")
                break
        assert await anyio.to_thread.run_sync(hang.has_left.wait, 30)


async def test_requests_may_run_concurrently(server: Server) -> None:
    async with OpenAIProvider("test-1", base_url=server.url) as provider, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(provider.generate, REQUEST)
    assert len(server.requests) == 5


async def test_a_closed_provider_opens_again(server: Server) -> None:
    provider = OpenAIProvider("test-1", base_url=server.url)
    await provider.generate(REQUEST)
    await provider.aclose()
    await provider.generate(REQUEST)
    await provider.aclose()
    await provider.aclose()
    assert len(server.connections) == 2


async def test_a_client_of_your_own_is_used_and_left_open(server: Server) -> None:
    client = openai.AsyncOpenAI(api_key=SECRET, base_url=server.url)
    async with client:
        server.answers[:] = [refusal(500, "Oops"), Answer(completion())]
        async with OpenAIProvider("test-1", client=client) as provider:
            with pytest.raises(ProviderError, match="Oops"):
                await provider.generate(REQUEST)
        assert not client.is_closed()
        assert (await provider.generate(REQUEST)).text == "Hello."
    assert [headers["authorization"] for headers in server.headers] == [f"Bearer {SECRET}"] * 2


@pytest.mark.parametrize("deployment", [None, "mine"])
async def test_azure_is_asked_where_its_deployments_are(server: Server, deployment: str | None) -> None:
    client = openai.AsyncAzureOpenAI(
        api_key=SECRET,
        api_version="2025-01-01",
        azure_endpoint=server.url.removesuffix("/v1"),
        azure_deployment=deployment,
    )
    async with client:
        assert (await OpenAIProvider("test 1", client=client).generate(REQUEST)).text == "Hello."
    where = deployment or "test%201"
    assert server.paths == [f"/openai/deployments/{where}/chat/completions?api-version=2025-01-01"]
    assert server.headers[0]["api-key"] == SECRET


async def test_a_key_may_be_asked_for_before_each_request(server: Server) -> None:
    keys = iter(["first", "second"])

    async def next_key() -> str:
        return next(keys)

    async with OpenAIProvider("test-1", base_url=server.url, api_key=next_key) as provider:
        await provider.generate(REQUEST)
        await provider.generate(REQUEST)
    assert [headers["authorization"] for headers in server.headers] == ["Bearer first", "Bearer second"]


async def test_a_function_that_gives_no_key_is_told(server: Server) -> None:
    async def no_key() -> str:
        return ""

    async with OpenAIProvider("test-1", base_url=server.url, api_key=no_key) as provider:
        with pytest.raises(ProviderAuthError, match="the function that was passed as api_key gave no key"):
            await provider.generate(REQUEST)


def test_no_key_names_the_variable() -> None:
    with pytest.raises(ProviderAuthError, match="OPENAI_API_KEY"):
        OpenAIProvider("gpt-5-mini")


async def test_the_key_of_the_environment_is_not_sent_to_a_server_of_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    async with OpenAIProvider("test-1", base_url=server.url) as provider:
        await provider.generate(REQUEST)
    assert SECRET not in str(server.headers)


def test_the_key_is_not_in_the_repr() -> None:
    provider = OpenAIProvider("gpt-5-mini", api_key=SECRET, base_url="https://user:pass@example.com/v1?key=1")
    assert repr(provider) == "OpenAIProvider('gpt-5-mini', base_url='https://example.com/v1')"


@pytest.mark.parametrize(
    ("base_url", "field_name"),
    [("https://api.openai.com/v1", "max_completion_tokens"), ("https://example.com/v1", "max_tokens")],
)
def test_the_limit_goes_where_the_server_reads_it(base_url: str, field_name: str) -> None:
    provider = OpenAIProvider("gpt-5-mini", api_key=SECRET, base_url=base_url)
    encoder = provider._encoder  # pyright: ignore[reportPrivateUsage]
    assert json.loads(encoder.encode(ChatRequest(messages=[], max_tokens=5), streams=False))[field_name] == 5


def test_one_provider_serves_one_event_loop_after_another(server: Server) -> None:
    provider = OpenAIProvider("test-1", base_url=server.url)

    async def ask_and_close() -> str:
        async with provider:
            return (await provider.generate(REQUEST)).text

    assert [asyncio.run(ask_and_close()) for _ in range(2)] == ["Hello.", "Hello."]
    assert anyio.run(ask_and_close, backend="trio") == "Hello."


async def test_tools_reach_the_server_as_they_are_defined(server: Server) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = [ToolDefinition(name="add", description="Add.", parameters=parameters)]
    await ask(server, request=ChatRequest(messages=[], tools=tools))
    assert json.loads(json.dumps(server.requests[0]["tools"])) == [
        {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": parameters}}
    ]
