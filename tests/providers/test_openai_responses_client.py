"""The provider for responses against a real server on loopback; the SDK's own types judge what the server says."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest
from openai.types.responses import Response, ResponseInputItemParam, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.providers.loopback import Answer, Hang, Server, serving
from tests.providers.vendor_cases import generate, hear
from toolkit import AssistantMessage, ChatRequest, ProviderError, TextDelta, ToolCall, Usage, UserMessage
from toolkit.chat import (
    ChatResponse,
    ImageBlock,
    ReasoningBlock,
    ResponseDone,
    StreamEvent,
    TextBlock,
    dump_messages,
    load_messages,
)
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    RateLimitedError,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.providers.openai import OpenAIResponsesProvider, ResponsesOptions

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
USAGE = {
    "input_tokens": 7,
    "output_tokens": 3,
    "total_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens_details": {"reasoning_tokens": 1},
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(response(said("Hello.")))) as running:
        yield running


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "test-1",
        "status": "completed",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **fields,
    }
    Response.model_validate(body)
    return body


def said(text: str, **part: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], **part}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def thought(*texts: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"}


def stream_of(*told: dict[str, Any]) -> list[bytes]:
    """The stream of these events, numbered as OpenAI numbers them."""
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(told)]
    for event in numbered:
        TypeAdapter[Any](ResponseStreamEvent).validate_python(event)
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]


def delta(kind: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "item_id": "x", "output_index": 0, "delta": text, **fields}


async def ask(server: Server, *answers: Answer | Hang, request: ChatRequest = REQUEST) -> ChatResponse:
    if answers:
        server.answers[:] = answers
    return await generate(OpenAIResponsesProvider("test-1", base_url=server.url, api_key=SECRET), request)


async def listen(server: Server, *answers: Answer | Hang, request: ChatRequest = REQUEST) -> list[StreamEvent]:
    if answers:
        server.answers[:] = answers
    return await hear(OpenAIResponsesProvider("test-1", base_url=server.url, api_key=SECRET), request)


async def test_an_answer_has_text_usage_stop_reason_and_names(server: Server) -> None:
    body = response(thought("Hm.", "So."), said("Hello."), service_tier="default")
    assert await ask(server, Answer(body, headers={"x-request-id": "req_1"})) == ChatResponse(
        message=AssistantMessage(
            [ReasoningBlock(text="Hm.\n\nSo.", encrypted="sealed", id="rs_1"), TextBlock("Hello.")]
        ),
        usage=Usage(input_tokens=7, output_tokens=3, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=1),
        stop_reason="end_turn",
        model="test-1",
        request_id="req_1",
        metadata={"id": "resp_1", "service_tier": "default"},
    )
    assert server.requests == [
        {
            "model": "test-1",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "input": [{"type": "message", "role": "user", "content": "Hi"}],
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


@dataclass(frozen=True)
class Said:
    name: str
    body: dict[str, Any]
    content: tuple[Any, ...]
    stop_reason: str


IMAGE = {
    "type": "image_generation_call",
    "id": "ig_1",
    "status": "completed",
    "result": "cG5n",
    "output_format": "webp",
}
SAID = [
    Said(
        "cut off",
        response(said("He"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        (TextBlock("He"),),
        "max_tokens",
    ),
    Said(
        "steered",
        response(said("He"), status="incomplete", incomplete_details={"reason": "steered"}),
        (TextBlock("He"),),
        "end_turn",
    ),
    Said(
        "filtered",
        response(status="incomplete", incomplete_details={"reason": "content_filter"}),
        (),
        "content_filter",
    ),
    Said(
        "refused",
        response({**said(""), "content": [{"type": "refusal", "refusal": "No."}]}),
        (TextBlock("No."),),
        "refusal",
    ),
    Said(
        "calls",
        response(said("Wait."), call("c1", "add", '{"a": 1}'), call("c2", "add", "{}")),
        (TextBlock("Wait."), ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "add", "{}")),
        "tool_use",
    ),
    Said(
        "a call with a namespace",
        response({**call("c1", "add", "{}"), "namespace": "sums"}),
        (ToolCall("c1", "add", "{}", extra={"namespace": "sums"}),),
        "tool_use",
    ),
    Said("image", response(IMAGE), (ImageBlock(b"png", media_type="image/webp"),), "end_turn"),
    Said("nothing", response(), (), "end_turn"),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.name)
async def test_whatever_is_said_is_decoded(server: Server, said: Said) -> None:
    answer = await ask(server, Answer(said.body))
    assert answer.message.content == said.content
    assert answer.stop_reason == said.stop_reason
    assert answer.metadata.get("incomplete_details") == said.body.get("incomplete_details")


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.name)
async def test_a_stream_ends_with_what_a_whole_answer_says(server: Server, said: Said) -> None:
    kind = "response.incomplete" if said.body["status"] == "incomplete" else "response.completed"
    heard = await listen(server, Answer(pieces=stream_of({"type": kind, "response": said.body})))
    assert heard == [ResponseDone(await ask(server, Answer(said.body)))]


async def test_reasoning_of_open_models_is_read(server: Server) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    answer = await ask(server, Answer(response(item)))
    assert answer.message.content == (ReasoningBlock(text="Hm.", id="rs_1"),)


async def test_what_has_no_word_of_ours_goes_back_as_it_came(server: Server) -> None:
    action = {"type": "search", "query": "x"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    output = [
        thought("Hm."),
        {**said("Wait."), "phase": "commentary"},
        search,
        {**said("Ok."), "phase": "final_answer"},
    ]
    answer = await ask(server, Answer(response(*output)))
    assert answer.text == "Wait.\nOk."
    transcript = load_messages(dump_messages([UserMessage("Hi"), answer.message]))
    tools = [{"type": "web_search"}]
    await ask(server, request=ChatRequest(messages=transcript, options=ResponsesOptions(tools=tools)))
    assert server.requests[1]["tools"] == tools
    assert server.requests[1]["input"][1:] == [
        output[0],
        {"type": "message", "role": "assistant", "content": "Wait.", "phase": "commentary"},
        search,
        {"type": "message", "role": "assistant", "content": "Ok.", "phase": "final_answer"},
    ]
    TypeAdapter[Any](list[ResponseInputItemParam]).validate_python(server.requests[1]["input"])


ADDED = {**call("c1", "add", ""), "status": "in_progress"}
FULL_STREAM = [
    {"type": "response.created", "response": response(status="in_progress")},
    delta("reasoning_summary_text", "Hm", summary_index=0),
    {
        "type": "response.reasoning_summary_part.added",
        "item_id": "x",
        "output_index": 0,
        "summary_index": 1,
        "part": {"type": "summary_text", "text": ""},
    },
    delta("reasoning_summary_text", "So.", summary_index=1),
    delta("output_text", "Let me ", content_index=0, logprobs=[]),
    delta("output_text", "see.\u2028", content_index=0, logprobs=[]),
    {"type": "response.output_item.added", "output_index": 2, "item": ADDED},
    delta("function_call_arguments", '{"a"', output_index=2),
    {"type": "response.output_item.added", "output_index": 3, "item": {**ADDED, "call_id": "c2", "name": "sub"}},
    delta("function_call_arguments", ": 1}", output_index=2),
    {"type": "response.output_item.done", "output_index": 2, "item": call("c1", "add", '{"a": 1}')},
    {"type": "response.output_item.done", "output_index": 3, "item": call("c2", "sub", "{}")},
]
OUTPUT = [
    thought("Hm", "So."),
    said("Let me see.\u2028"),
    call("c1", "add", '{"a": 1}'),
    call("c2", "sub", "{}"),
]


async def test_a_stream_gives_deltas_and_then_the_whole(server: Server) -> None:
    end = {"type": "response.completed", "response": response(*OUTPUT)}
    heard = await listen(server, Answer(pieces=stream_of(*FULL_STREAM, end), headers={"x-request-id": "req_2"}))
    assert heard[:-1] == [
        ReasoningDelta("Hm"),
        ReasoningDelta("\n\n"),
        ReasoningDelta("So."),
        TextDelta("Let me "),
        TextDelta("see.\u2028"),
        ArgumentsDelta(0, "c1", "add", ""),
        ArgumentsDelta(0, "c1", "add", '{"a"'),
        ArgumentsDelta(1, "c2", "sub", ""),
        ArgumentsDelta(0, "c1", "add", ": 1}"),
        ArgumentsDelta(1, "c2", "sub", "{}"),
    ]
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    assert last.response.message.content == (
        ReasoningBlock(text="Hm\n\nSo.", encrypted="sealed", id="rs_1"),
        TextBlock("Let me see.\u2028"),
        ToolCall("c1", "add", '{"a": 1}'),
        ToolCall("c2", "sub", "{}"),
    )
    assert (last.response.stop_reason, last.response.request_id) == ("tool_use", "req_2")


async def test_a_server_that_numbers_nothing_and_repeats_no_output_is_understood(server: Server) -> None:
    told = [
        {"type": "response.output_item.done", "output_index": 1, "item": call("c1", "add", "{}")},
        {"type": "response.output_item.done", "output_index": 0, "item": said("Wait.")},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
    ]
    pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in told]
    heard = await listen(server, Answer(pieces=pieces))
    assert heard[0] == ArgumentsDelta(0, "c1", "add", "{}")
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    assert last.response.message.content == (TextBlock("Wait."), ToolCall("c1", "add", "{}"))


@dataclass(frozen=True)
class Failure:
    name: str
    answer: Answer
    kind: type[ProviderError]
    says: str
    is_retryable: bool = False


def refusal(status: int, message: str, *, code: str | None = None, **headers: str) -> Answer:
    body = {"error": {"message": message, "type": "some_error", "code": code, "param": None}}
    return Answer(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def failed(code: str, message: str) -> dict[str, Any]:
    return response(status="failed", error={"code": code, "message": message})


HTML = Answer(b"<!doctype html><html><body>Welcome!</body></html>", content_type="text/html")
FAILURES = [
    Failure("wrong key", refusal(401, f"Bad key {SECRET}"), ProviderAuthError, "OPENAI_API_KEY"),
    Failure("unknown model", refusal(404, "No such model"), ProviderError, "check the model 'test-1' and base_url"),
    Failure("too long", refusal(400, "Too many", code="context_length_exceeded"), ContextTooLongError, "compaction"),
    Failure("filtered", refusal(400, "Bad", code="content_filter"), ContentFilteredError, "content filter"),
    Failure("429", refusal(429, "Slow", retry_after="2"), RateLimitedError, "Slow", is_retryable=True),
    Failure("500", refusal(500, "Oops"), ProviderError, "Oops", is_retryable=True),
    Failure("HTML in a 200", HTML, BadResponseError, "did not answer with a response"),
    Failure("failed", Answer(failed("server_error", "Broke")), ProviderError, "Broke", is_retryable=True),
    Failure("rate limit in a 200", Answer(failed("rate_limit_exceeded", "Slow")), RateLimitedError, "Slow", True),
    Failure("refused in a 200", Answer(failed("invalid_prompt", "Bad prompt")), ProviderError, "Bad prompt"),
    Failure("in the background", Answer(response(status="queued")), ProviderError, "is 'queued' and has no answer"),
    Failure("a chat completion", Answer({"choices": []}), BadResponseError, "no output", is_retryable=True),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
async def test_what_the_server_refuses_says_what_and_whether_to_retry(server: Server, failure: Failure) -> None:
    with pytest.raises(failure.kind, match=re.escape(failure.says)) as caught:
        await ask(server, failure.answer)
    assert type(caught.value) is failure.kind
    assert caught.value.is_retryable is failure.is_retryable
    assert SECRET not in f"{caught.value!s} {caught.value!r}"
    assert len(server.requests) == 1, "the loop retries, the provider does not"


BROKEN_STREAMS = [
    Failure("cut", Answer(pieces=stream_of(*FULL_STREAM[:5]), is_cut=True), ProviderError, "was cut", True),
    Failure(
        "stops in mid-argument", Answer(pieces=stream_of(*FULL_STREAM[:8])), ProviderError, "before the answer", True
    ),
    Failure("nothing", Answer(pieces=[]), ProviderError, "before the answer", True),
    Failure("no JSON", Answer(pieces=[b"data: {nonsense\n\n"]), BadResponseError, "check base_url"),
    Failure(
        "an error event",
        Answer(pieces=stream_of({"type": "error", "code": "server_error", "message": "Overloaded", "param": None})),
        ProviderError,
        "Overloaded",
        True,
    ),
    Failure(
        "an error event of another form",
        Answer(pieces=[b'data: {"error": {"message": "Too long", "code": "string_above_max_length"}}\n\n']),
        ContextTooLongError,
        "Too long",
    ),
    Failure(
        "failed in the end",
        Answer(pieces=stream_of({"type": "response.failed", "response": failed("server_error", "Broke")})),
        ProviderError,
        "Broke",
        True,
    ),
    Failure("a refused request", refusal(429, "Slow"), RateLimitedError, "Slow", True),
    Failure("HTML", HTML, BadResponseError, "text/html"),
]


@pytest.mark.parametrize("failure", BROKEN_STREAMS, ids=lambda failure: failure.name)
async def test_a_broken_stream_is_an_error_and_never_a_short_answer(server: Server, failure: Failure) -> None:
    with pytest.raises(failure.kind, match=failure.says) as caught:
        await listen(server, failure.answer)
    assert type(caught.value) is failure.kind
    assert caught.value.is_retryable is failure.is_retryable


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_cancelling_closes_the_connection(server: Server, streams: bool) -> None:
    hang = Hang(stream_of(*FULL_STREAM[:5]) if streams else ())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(listen if streams else ask, server, hang))
        assert await anyio.to_thread.run_sync(hang.has_come.wait, 30)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(hang.has_left.wait, 30)


async def test_a_client_of_your_own_is_used_and_left_open(server: Server) -> None:
    async with openai.AsyncOpenAI(api_key=SECRET, base_url=server.url) as client:
        async with OpenAIResponsesProvider("test-1", client=client) as provider:
            assert (await provider.generate(REQUEST)).text == "Hello."
        assert not client.is_closed()
