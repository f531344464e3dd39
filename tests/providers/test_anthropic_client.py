"""The provider for Anthropic's messages against a real server on loopback: what it hears and what it asks."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.providers.loopback import Answer, Server, serving
from tests.providers.vendor_answers import anthropic_message, anthropic_stream, block_events
from tests.providers.vendor_cases import Failure, Said, assert_refused, generate, hear, response_of
from toolkit import AssistantMessage, ChatRequest, ProviderError, TextDelta, ToolCall, Usage, UserMessage
from toolkit.chat import ChatResponse, ReasoningBlock, StreamEvent, TextBlock, ToolDefinition
from toolkit.errors import (
    BadResponseError,
    ContentFilteredError,
    ContextTooLongError,
    ProviderAuthError,
    RateLimitedError,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.encoding import sealed

pytestmark = pytest.mark.anyio

SECRET = "sk-ant-very-secret-0123456789"
REQUEST = ChatRequest(messages=[UserMessage("Hi")])
HELLO = {"type": "text", "text": "Hello."}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Answer(anthropic_message(HELLO))) as running:
        yield running


def made(server: Server, **options: Any) -> AnthropicProvider:
    return AnthropicProvider("test-1", base_url=server.root, api_key=SECRET, **options)


async def ask(server: Server, *answers: Answer, request: ChatRequest = REQUEST, **options: Any) -> ChatResponse:
    if answers:
        server.answers[:] = answers
    return await generate(made(server, **options), request)


async def listen(server: Server, *answers: Answer) -> list[StreamEvent]:
    server.answers[:] = answers
    return await hear(made(server), REQUEST)


async def test_an_answer_has_text_usage_stop_reason_and_names(server: Server) -> None:
    usage = {
        "input_tokens": 7,
        "output_tokens": 3,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 1},
        "service_tier": "standard",
    }
    response = await ask(server, Answer(anthropic_message(HELLO, usage=usage), headers={"request-id": "req_1"}))
    assert response == ChatResponse(
        message=AssistantMessage("Hello."),
        usage=Usage(
            input_tokens=127, output_tokens=3, cache_read_tokens=100, cache_write_tokens=20, reasoning_tokens=1
        ),
        stop_reason="end_turn",
        model="test-1",
        request_id="req_1",
        metadata={"id": "msg_1", "service_tier": "standard"},
    )
    assert server.paths == ["/v1/messages"]
    assert server.requests == [
        {
            "model": "test-1",
            "max_tokens": 16384,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert server.headers[0]["anthropic-version"]


def use(call_id: str, name: str, arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, **fields}


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "owl"}}
CITATION = {
    "type": "char_location",
    "cited_text": "owl",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 3,
}
PROGRAM = {"type": "code_execution_20260120", "tool_id": "srv_1"}
SAID = [
    Said("cut off", anthropic_message(HELLO, stop_reason="max_tokens"), (TextBlock("Hello."),), "max_tokens"),
    Said(
        "out of room",
        anthropic_message(HELLO, stop_reason="model_context_window_exceeded"),
        (TextBlock("Hello."),),
        "max_tokens",
        {"stop_reason": "model_context_window_exceeded"},
    ),
    Said(
        "stopped at a text",
        anthropic_message(HELLO, stop_reason="stop_sequence", stop_sequence="END"),
        (TextBlock("Hello."),),
        "stop_sequence",
        {"stop_sequence": "END"},
    ),
    Said(
        "refused with a reason",
        anthropic_message(
            stop_reason="refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "No."}
        ),
        (TextBlock("No."),),
        "refusal",
        {"stop_details": {"type": "refusal", "category": "bio", "explanation": "No."}},
    ),
    Said(
        "thought and called",
        anthropic_message(
            {"type": "thinking", "thinking": "Hm.", "signature": "seal"},
            {"type": "redacted_thinking", "data": "opaque"},
            use("toolu_1", "add", {"a": 1, "b": "ö"}, caller={"type": "direct"}),
            use("toolu_2", "now", {}, caller=PROGRAM),
            stop_reason="tool_use",
        ),
        (
            ReasoningBlock(text="Hm.", signature="seal"),
            ReasoningBlock(encrypted=sealed("anthropic", {"type": "redacted_thinking", "data": "opaque"})),
            ToolCall("toolu_1", "add", '{"a": 1, "b": "ö"}'),
            ToolCall("toolu_2", "now", "{}", extra={"anthropic": {"caller": PROGRAM}}),
        ),
        "tool_use",
    ),
    Said(
        "cited",
        anthropic_message({**HELLO, "text": "An "}, {**HELLO, "text": "owl", "citations": [CITATION]}),
        (TextBlock("An owl"),),
        "end_turn",
        {"citations": [CITATION]},
    ),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.name)
async def test_whatever_is_said_is_decoded(server: Server, said: Said) -> None:
    response = await ask(server, Answer(said.body))
    assert response.message.content == said.content
    assert response.stop_reason == said.stop_reason
    assert dict(response.metadata) == {"id": "msg_1", **said.metadata}


async def test_a_stream_gives_deltas_and_then_the_whole(server: Server) -> None:
    pieces = anthropic_stream(
        block_events(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm"},
            {"type": "thinking_delta", "thinking": "."},
            {"type": "signature_delta", "signature": "seal"},
        ),
        block_events(1, {"type": "redacted_thinking", "data": "opaque"}),
        block_events(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me see.\u2028"}),
        block_events(
            3,
            {**SEARCH, "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "o'},
            {"type": "input_json_delta", "partial_json": 'wl"}'},
        ),
        block_events(
            4,
            use("toolu_1", "add", {}),
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"a": '},
            {"type": "input_json_delta", "partial_json": "1}"},
        ),
        block_events(5, use("toolu_2", "now", {})),
        stop_reason="tool_use",
        usage={"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4},
    )
    heard = await listen(server, Answer(pieces=pieces, headers={"request-id": "req_2"}))
    assert heard[:-1] == [
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        TextDelta("Let me see.\u2028"),
        ArgumentsDelta(0, "toolu_1", "add", ""),
        ArgumentsDelta(0, "toolu_1", "add", ""),
        ArgumentsDelta(0, "toolu_1", "add", '{"a": '),
        ArgumentsDelta(0, "toolu_1", "add", "1}"),
        ArgumentsDelta(1, "toolu_2", "now", ""),
        ArgumentsDelta(1, "toolu_2", "now", "{}"),
    ]
    response = response_of(heard)
    assert response.message.content == (
        ReasoningBlock(text="Hm.", signature="seal"),
        ReasoningBlock(encrypted=sealed("anthropic", {"type": "redacted_thinking", "data": "opaque"})),
        TextBlock("Let me see.\u2028"),
        ReasoningBlock(encrypted=sealed("anthropic", SEARCH)),
        ToolCall("toolu_1", "add", '{"a": 1}'),
        ToolCall("toolu_2", "now", "{}"),
    )
    assert response.usage == Usage(input_tokens=13, output_tokens=5, cache_read_tokens=4)
    assert (response.stop_reason, response.request_id, response.model) == ("tool_use", "req_2", "test-1")
    assert server.requests[0]["stream"] is True


async def test_arguments_may_come_whole(server: Server) -> None:
    pieces = anthropic_stream(block_events(0, use("toolu_1", "add", {"a": 1})), stop_reason="tool_use")
    heard = await listen(server, Answer(pieces=pieces))
    assert heard[:-1] == [ArgumentsDelta(0, "toolu_1", "add", '{"a": 1}')]
    assert response_of(heard).tool_calls == (ToolCall("toolu_1", "add", '{"a": 1}'),)


async def test_a_refusal_explains_itself_in_a_stream_too(server: Server) -> None:
    details = {"type": "refusal", "category": None, "explanation": "No."}
    heard = await listen(server, Answer(pieces=anthropic_stream(stop_reason="refusal", stop_details=details)))
    assert heard[:-1] == [TextDelta("No.")]
    assert (response_of(heard).text, response_of(heard).stop_reason) == ("No.", "refusal")


BOX = {"id": "box_1", "expires_at": "2026-11-21T12:00:00Z"}


def paused(*content: dict[str, Any]) -> dict[str, Any]:
    used = {"web_search_requests": 2, "web_fetch_requests": 0}
    usage = {"input_tokens": 7, "output_tokens": 3, "server_tool_use": used}
    return anthropic_message(*content, stop_reason="pause_turn", usage=usage, container=BOX)


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
async def test_a_turn_that_the_server_pauses_goes_on_to_its_end(server: Server, streams: bool) -> None:
    search = block_events(0, {**SEARCH, "input": {}}, {"type": "input_json_delta", "partial_json": '{"query": "owl"}'})
    call = use("toolu_1", "add", {"a": 1})
    last = anthropic_message(HELLO, call, stop_reason="tool_use")
    if streams:
        pieces = anthropic_stream(search, stop_reason="pause_turn", container=BOX)
        spoken = block_events(0, {**HELLO, "text": ""}, {"type": "text_delta", "text": "Hello."})
        rest = anthropic_stream(spoken, block_events(1, call), stop_reason="tool_use")
        heard = await listen(server, Answer(pieces=pieces), Answer(pieces=rest))
        assert heard[:-1] == [TextDelta("Hello."), ArgumentsDelta(0, "toolu_1", "add", '{"a": 1}')]
        response = response_of(heard)
    else:
        response = await ask(server, Answer(paused(SEARCH)), Answer(last))
    assert response.message.content == (
        ReasoningBlock(encrypted=sealed("anthropic", SEARCH)),
        TextBlock("Hello."),
        ToolCall("toolu_1", "add", '{"a": 1}'),
    )
    assert (response.stop_reason, response.metadata.get("stop_reason")) == ("tool_use", None)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (14, 6)
    first, second = server.requests
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": [SEARCH]}]
    assert second["container"] == "box_1"


async def test_a_turn_that_is_paused_for_ever_is_given_up(server: Server) -> None:
    response = await ask(server, Answer(paused(SEARCH)))
    assert len(server.requests) == 11
    assert len(response.message.content) == 11
    assert response.metadata["stop_reason"] == "pause_turn"
    assert response.metadata["server_tool_use"] == {"web_search_requests": 22, "web_fetch_requests": 0}


async def test_what_was_said_goes_back_as_it_came(server: Server) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": "seal"},
        {"type": "redacted_thinking", "data": "opaque"},
        SEARCH,
        HELLO,
        use("toolu_1", "add", {"a": 1}, caller=PROGRAM),
    ]
    first = await ask(server, Answer(anthropic_message(*blocks, stop_reason="tool_use")))
    again = ChatRequest(messages=[UserMessage("Hi"), first.message])
    await ask(server, Answer(anthropic_message(HELLO)), request=again)
    assert server.requests[-1]["messages"][1] == {"role": "assistant", "content": blocks}


async def test_names_are_mapped_back(server: Server) -> None:
    tool = ToolDefinition(name="get.weather", description="", parameters={"type": "object"})
    request = ChatRequest(messages=[UserMessage("Hi")], tools=[tool])
    await ask(server, request=request)
    mapped = server.requests[0]["tools"][0]["name"]
    assert mapped != "get.weather"
    response = await ask(
        server, Answer(anthropic_message(use("1", mapped, {}), stop_reason="tool_use")), request=request
    )
    assert response.tool_calls[0].name == "get.weather"


def refusal(status: int, kind: str, message: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_0"}
    return Answer(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


FAILURES = [
    Failure(
        "wrong key",
        refusal(401, "authentication_error", f"invalid key {SECRET}", request_id="req_1"),
        ProviderAuthError,
        "ANTHROPIC_API_KEY",
        facts={"status": 401, "request_id": "req_1"},
    ),
    Failure("no right", refusal(403, "permission_error", "Not yours"), ProviderAuthError, "Not yours"),
    Failure(
        "unknown model", refusal(404, "not_found_error", "model: test-1"), ProviderError, "check the model 'test-1'"
    ),
    Failure("bad request", refusal(400, "invalid_request_error", "max_tokens: too high"), ProviderError, "too high"),
    Failure(
        "too long",
        refusal(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        ContextTooLongError,
        "compaction",
    ),
    Failure(
        "no room for the answer",
        refusal(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9 > 10"),
        ContextTooLongError,
        "context limit",
    ),
    Failure("too large", refusal(413, "request_too_large", "Request too large"), ContextTooLongError, "too large"),
    Failure(
        "filtered",
        refusal(400, "invalid_request_error", "Output blocked by content filtering policy"),
        ContentFilteredError,
        "content filter",
    ),
    Failure(
        "too many",
        refusal(429, "rate_limit_error", "Slow down", retry_after="7"),
        RateLimitedError,
        "Slow down",
        is_retryable=True,
        facts={"retry_after": 7.0},
    ),
    Failure("overloaded", refusal(529, "overloaded_error", "Overloaded"), ProviderError, "Overloaded", True),
    Failure("in a 200", Answer({"type": "error", "error": {"type": "api_error", "message": "Oops"}}), ProviderError,
            "Oops", True),
    Failure("no content", Answer({**anthropic_message(), "content": None}), BadResponseError, "no content", True),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
async def test_what_anthropic_refuses_says_what_and_whether_to_retry(server: Server, failure: Failure) -> None:
    await assert_refused(made(server), server, failure, REQUEST, secret=SECRET)


async def test_an_error_in_a_stream_is_raised(server: Server) -> None:
    overloaded = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Full"}}\n\n'
    with pytest.raises(ProviderError, match="Full") as caught:
        await listen(server, Answer(pieces=[*anthropic_stream(is_complete=False), overloaded]))
    assert caught.value.is_retryable


async def test_a_client_of_your_own_is_used_and_left_open(server: Server) -> None:
    async with anthropic.AsyncAnthropic(api_key=SECRET, base_url=server.root) as client:
        server.answers[:] = [refusal(500, "api_error", "Oops"), Answer(anthropic_message(HELLO))]
        async with AnthropicProvider("test-1", client=client) as provider:
            with pytest.raises(ProviderError, match="Oops"):
                await provider.generate(REQUEST)
        assert not client.is_closed()
        assert (await provider.generate(REQUEST)).text == "Hello."
    assert [headers["authorization"] for headers in server.headers] == [f"Bearer {SECRET}"] * 2


async def test_headers_go_with_each_request(server: Server) -> None:
    await ask(server, headers={"anthropic-beta": "some-beta"})
    assert server.headers[0]["anthropic-beta"] == "some-beta"


def test_no_key_names_the_variable() -> None:
    with pytest.raises(ProviderAuthError, match="ANTHROPIC_API_KEY"):
        AnthropicProvider("claude-sonnet-5-5")


def test_the_key_is_not_in_the_repr() -> None:
    provider = AnthropicProvider("claude-sonnet-5-5", api_key=SECRET, base_url="https://user:pass@example.com/?key=1")
    assert repr(provider) == "AnthropicProvider('claude-sonnet-5-5', base_url='https://example.com/')"
