"""The vendors' formats against a server that is not ours: scripted calls over turns, streams, faults."""

import json
from collections.abc import Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import pytest

from tests.providers.aimock import Aimock, aimock
from toolkit import (
    ChatRequest,
    Done,
    ProviderError,
    TextDelta,
    ToolOutput,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.chat import (
    ImageBlock,
    ReasoningBlock,
    ResponseDone,
    ResponseFormat,
    StreamEvent,
    TextBlock,
    ToolDefinition,
    validate_transcript,
)
from toolkit.errors import BadResponseError, ContextTooLongError, ProviderAuthError, RateLimitedError
from toolkit.events import ArgumentsDelta
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.encoding import Dialect
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]

Adapter: TypeAlias = OpenAIProvider | OpenAIResponsesProvider | AnthropicProvider | GoogleProvider

KEY = "key-of-this-test"
ADAPTERS: dict[str, Callable[[str], Adapter]] = {
    "chat": lambda url: OpenAIProvider("gpt-test", base_url=f"{url}/v1", api_key=KEY),
    "responses": lambda url: OpenAIResponsesProvider("gpt-test", base_url=f"{url}/v1", api_key=KEY),
    "anthropic": lambda url: AnthropicProvider("claude-test", base_url=url, api_key=KEY),
    "google": lambda url: GoogleProvider("gemini-test", base_url=url, api_version="v1beta", api_key=KEY),
}
ODD = "look up a word, please"
DONE = "Sunny, noon, and here is the map."
LONG = "This answer is long enough to come in several pieces."


def answers(asked: str, response: dict[str, Any], *, has_result: bool = False, **more: Any) -> dict[str, Any]:
    return {"match": {"userMessage": asked, "hasToolResult": has_result}, "response": response, **more}


FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"toolCallId": "call_2"},
        "response": {"toolCalls": [{"id": "call_3", "name": "draw_map", "arguments": {"city": "Oslo"}}]},
    },
    {"match": {"toolCallId": "call_3"}, "response": {"content": DONE}},
    # Where a tool's message can't hold the image, it comes after it.
    {"match": {"userMessage": "Attached to the result of draw_map (call_3)"}, "response": {"content": DONE}},
    answers("greet", {"content": "Hello!", "reasoning": "A greeting."}),
    answers("long", {"content": LONG}),
    answers(
        "trip",
        {
            "content": "Let me look.",
            "toolCalls": [
                {"id": "call_1", "name": "get_weather", "arguments": {"city": "Oslo"}},
                {"id": "call_2", "name": "get_time", "arguments": {"city": "Oslo"}},
            ],
        },
    ),
    answers("as data", {"content": {"city": "Oslo"}}),
    answers("odd name", {"toolCalls": [{"name": Dialect().tool_name_of(ODD), "arguments": {}}]}),
    answers("cut", {"content": LONG * 5}, chunkSize=5, truncateAfterChunks=4),
    answers("wrong call", {"toolCalls": [{"name": "get_weather", "arguments": {"town": "Oslo"}}]}),
    answers("wrong call", {"content": "Mended."}, has_result=True),
    answers(
        "slow down", {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}
    ),
    answers("key", {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}, "status": 401}),
    answers(
        "too much",
        {"error": {"message": "No context window for it", "code": "context_length_exceeded"}, "status": 400},
    ),
    answers("drop", {"content": "x"}, chaos={"dropRate": 1.0}),
    answers("malformed", {"content": "x"}, chaos={"malformedRate": 1.0}),
    answers("disconnect", {"content": "x"}, chaos={"disconnectRate": 1.0}),
]


@pytest.fixture(scope="module")
def mock() -> Generator[Aimock]:
    with aimock(FIXTURES) as running:
        yield running


def made(mock: Aimock, adapter: str) -> Adapter:
    return ADAPTERS[adapter](mock.url)


async def listen(mock: Aimock, adapter: str, request: ChatRequest) -> list[StreamEvent]:
    with anyio.fail_after(120):
        provider = made(mock, adapter)
        async with provider, aclosing(provider.stream(request)) as stream:
            return [event async for event in stream]


def asking(text: str, **settings: Any) -> ChatRequest:
    return ChatRequest(messages=[UserMessage(text)], **settings)


@tool
def get_weather(city: str) -> str:
    """Get the weather."""
    return f"Sunny in {city}."


@tool
def get_time(city: str) -> str:
    """Get the time."""
    raise ValueError(f"no clock in {city}")


@tool
def draw_map(city: str) -> ToolOutput:
    """Draw a map."""
    return ToolOutput((TextBlock(f"A map of {city}."), ImageBlock(b"png")))


TOOLS = ToolRegistry([get_weather, get_time, draw_map])


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_stream_says_what_a_whole_answer_says(mock: Aimock, adapter: str) -> None:
    async with made(mock, adapter) as provider:
        whole = await provider.generate(asking("greet"))
    heard = await listen(mock, adapter, asking("greet"))
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    assert (whole.text, whole.stop_reason, whole.request_id is not None) == ("Hello!", "end_turn", True)
    for response in (whole, last.response):
        thought, said = response.message.content
        assert isinstance(thought, ReasoningBlock)
        assert (thought.text, said) == ("A greeting.", TextBlock("Hello!"))


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_long_answer_comes_in_pieces(mock: Aimock, adapter: str) -> None:
    heard = await listen(mock, adapter, asking("long"))
    pieces = [event.text for event in heard if isinstance(event, TextDelta)]
    assert len(pieces) > 2
    assert "".join(pieces) == LONG


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_calls_over_several_turns_are_run_and_answered(mock: Aimock, adapter: str) -> None:
    with anyio.fail_after(120):
        async with made(mock, adapter) as provider:
            result = await tool_loop(provider, TOOLS, "Plan a trip")
    assert result.text == DONE
    assert (result.iterations, result.tool_rounds) == (3, 2)
    validate_transcript(result.messages)
    understood = mock.journal()[-1]["body"]["messages"]
    told = {message["tool_call_id"]: str(message["content"]) for message in understood if message["role"] == "tool"}
    assert list(told) == ["call_1", "call_2", "call_3"]
    assert "Sunny in Oslo." in told["call_1"]
    assert "ValueError: no clock in Oslo" in told["call_2"]
    assert "A map of Oslo." in told["call_3"]


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_calls_over_several_turns_stream(mock: Aimock, adapter: str) -> None:
    with anyio.fail_after(120):
        async with made(mock, adapter) as provider, tool_loop_stream(provider, TOOLS, "Plan a trip") as events:
            told = [event async for event in events]
    last = told[-1]
    assert isinstance(last, Done)
    assert last.result.text == DONE
    assert any(isinstance(event, ArgumentsDelta) and event.call_id == "call_2" for event in told)
    validate_transcript(last.result.messages)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_name_that_the_format_refuses_is_mapped_and_mapped_back(mock: Aimock, adapter: str) -> None:
    odd = ToolDefinition(name=ODD, description="", parameters={"type": "object", "properties": {}})
    request = asking("odd name", tools=[odd], tool_choice=ODD)
    async with made(mock, adapter) as provider:
        assert [call.name for call in (await provider.generate(request)).tool_calls] == [ODD]
    pieces = [event for event in await listen(mock, adapter, request) if isinstance(event, ArgumentsDelta)]
    assert {piece.tool_name for piece in pieces} == {ODD}


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_an_answer_as_data(mock: Aimock, adapter: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    async with made(mock, adapter) as provider:
        answer = await provider.generate(asking("as data", response_format=ResponseFormat(schema)))
    assert json.loads(answer.text) == {"city": "Oslo"}


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_call_with_wrong_arguments_is_refused_and_answered(mock: Aimock, adapter: str) -> None:
    async with made(mock, adapter) as provider:
        result = await tool_loop(provider, TOOLS, "A wrong call")
    assert result.text == "Mended."
    validate_transcript(result.messages)


@dataclass(frozen=True)
class Fault:
    asked: str
    kind: type[ProviderError]
    is_retryable: bool
    status: int | None = None
    retry_after: float | None = None


FAULTS = [
    Fault("slow down", RateLimitedError, True, 429, 7),
    Fault("key", ProviderAuthError, False, 401),
    Fault("too much", ContextTooLongError, False, 400),
    Fault("drop", ProviderError, True, 500),
    Fault("malformed", BadResponseError, False),
    Fault("disconnect", ProviderError, True),
    Fault("nothing that is known", ProviderError, True, 503),
]


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.asked)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_fault_is_one_of_our_errors(mock: Aimock, adapter: str, fault: Fault, streams: bool) -> None:
    with pytest.raises(fault.kind) as caught, anyio.fail_after(120):
        if streams:
            await listen(mock, adapter, asking(fault.asked))
        else:
            async with made(mock, adapter) as provider:
                await provider.generate(asking(fault.asked))
    error = caught.value
    assert type(error) is fault.kind
    assert (error.is_retryable, error.status, error.retry_after) == (
        fault.is_retryable,
        fault.status,
        fault.retry_after,
    )
    assert (error.request_id is None) == (fault.asked == "disconnect")
    assert KEY not in str(error)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_stream_that_is_cut_is_an_error(mock: Aimock, adapter: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await listen(mock, adapter, asking("cut"))
    assert caught.value.is_retryable


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_fault_in_a_loop_carries_the_transcript(mock: Aimock, adapter: str) -> None:
    with pytest.raises(ProviderAuthError) as caught:
        async with made(mock, adapter) as provider:
            await tool_loop(provider, TOOLS, "What is the key?")
    assert [message.text for message in caught.value.messages] == ["What is the key?"]
