"""The adapters against llama.cpp's server and a real model: answers, streams, calls, schemas, errors."""

import json
from collections.abc import Generator
from contextlib import aclosing
from typing import TypeAlias

import anyio
import pytest

from tests.providers.llama_server import LlamaServer, llama_server
from toolkit import (
    AssistantMessage,
    ChatRequest,
    Message,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import (
    ChatResponse,
    ReasoningBlock,
    ResponseDone,
    ResponseFormat,
    StreamEvent,
    TextBlock,
    ToolDefinition,
)
from toolkit.errors import ContextTooLongError, ProviderAuthError
from toolkit.events import ArgumentsDelta
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]

Adapter: TypeAlias = type[OpenAIProvider] | type[OpenAIResponsesProvider] | type[AnthropicProvider]
ADAPTERS: list[Adapter] = [OpenAIProvider, OpenAIResponsesProvider, AnthropicProvider]
OBEYED = ADAPTERS[:2]  # of the choice of tools, llama.cpp's messages know only that some must be called
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", description="Get the weather in a city.", parameters=CITY)
ASKED = UserMessage("What is the weather in Tokyo?")


@pytest.fixture(scope="module")
def llama() -> Generator[LlamaServer]:
    with llama_server() as running:
        yield running


def made(
    llama: LlamaServer, adapter: Adapter, key: str | None = None
) -> OpenAIProvider | OpenAIResponsesProvider | AnthropicProvider:
    if adapter is AnthropicProvider:
        return AnthropicProvider("m", base_url=llama.url, api_key=key or llama.key)
    return adapter("m", base_url=f"{llama.url}/v1", api_key=key or llama.key)


async def ask(llama: LlamaServer, adapter: Adapter, request: ChatRequest, *, key: str | None = None) -> ChatResponse:
    with anyio.fail_after(120):
        async with made(llama, adapter, key) as provider:
            return await provider.generate(request)


async def listen(llama: LlamaServer, adapter: Adapter, request: ChatRequest) -> list[StreamEvent]:
    with anyio.fail_after(120):
        provider = made(llama, adapter)
        async with provider, aclosing(provider.stream(request)) as stream:
            return [event async for event in stream]


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_stream_says_what_a_whole_answer_says(llama: LlamaServer, adapter: Adapter) -> None:
    request = ChatRequest(messages=[SystemMessage("Be brief."), UserMessage("Hi")], max_tokens=20, temperature=0)
    whole = await ask(llama, adapter, request)
    heard = await listen(llama, adapter, request)
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    assert whole.text
    assert last.response.message == whole.message
    assert "".join([event.text for event in heard if isinstance(event, TextDelta)]) == whole.text
    assert (whole.usage.input_tokens > 5, whole.usage.output_tokens > 0) == (True, True)
    assert last.response.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("adapter", OBEYED)
async def test_the_model_calls_a_tool_in_pieces_and_whole(llama: LlamaServer, adapter: Adapter) -> None:
    request = ChatRequest(
        messages=[ASKED],
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=60,
    )
    whole = await ask(llama, adapter, request)
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == [
        ("get_weather", {"city": "Tokyo"})
    ]
    assert whole.stop_reason == "tool_use"
    heard = await listen(llama, adapter, request)
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    (call,) = last.response.tool_calls
    pieces = [event for event in heard if isinstance(event, ArgumentsDelta)]
    assert "".join([piece.text for piece in pieces]) == call.arguments == whole.tool_calls[0].arguments
    assert {(piece.index, piece.call_id, piece.tool_name) for piece in pieces} == {(0, call.id, "get_weather")}


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_several_calls_of_one_reply_are_told_apart(llama: LlamaServer, adapter: Adapter) -> None:
    request = ChatRequest(
        messages=[ASKED],
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=True,
        temperature=0,
        max_tokens=60,
    )
    heard = await listen(llama, adapter, request)
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    assert len({call.id for call in last.response.tool_calls}) == len(last.response.tool_calls) > 1
    for index, call in enumerate(last.response.tool_calls):
        pieces = [event.text for event in heard if isinstance(event, ArgumentsDelta) and event.index == index]
        assert "".join(pieces) == call.arguments


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_whole_history_is_understood(llama: LlamaServer, adapter: Adapter) -> None:
    history: list[Message] = [
        SystemMessage("Be brief."),
        ASKED,
        AssistantMessage(
            [ReasoningBlock(text="Hm.", id="rs_1"), TextBlock("Let me see."), ToolCall("c1", "get_weather", "{}")]
        ),
        ToolResult("c1", "no such city", tool_name="get_weather", is_error=True),
        AssistantMessage([ToolCall("c2", "get_weather", '{"city": "Tokyo"}')]),
        ToolResult("c2", "Sunny, 21 degrees", tool_name="get_weather"),
        AssistantMessage("Sunny."),
        UserMessage((TextBlock("And"), TextBlock("tomorrow?"))),
    ]
    choice, limit = ("none", 10) if adapter in OBEYED else ("required", 60)
    answer = await ask(
        llama, adapter, ChatRequest(messages=history, tools=[WEATHER], tool_choice=choice, max_tokens=limit)
    )
    assert answer.message.content
    assert answer.usage.input_tokens > 50


async def test_an_answer_keeps_to_a_schema(llama: LlamaServer) -> None:
    request = ChatRequest(
        messages=[UserMessage("Name a city.")],
        response_format=ResponseFormat(CITY, name="a place!"),
        max_tokens=40,
        temperature=0,
    )
    assert set(json.loads((await ask(llama, OpenAIProvider, request)).text)) == {"city"}


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_loop_runs_the_tool_and_asks_again(llama: LlamaServer, adapter: Adapter) -> None:
    @tool
    def get_weather(city: str) -> str:
        """Get the weather in a city."""
        return f"Sunny in {city}."

    request = ChatRequest(
        messages=[ASKED], tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=60
    )
    with anyio.fail_after(120):
        async with made(llama, adapter) as provider:
            result = await tool_loop(
                provider, ToolRegistry([get_weather]), request, config=ToolLoopConfig(max_iterations=1)
            )
    results = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert results[0] == "Sunny in Tokyo."
    assert len(results) == 1 or adapter not in OBEYED


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_wrong_key_is_told_without_it(llama: LlamaServer, adapter: Adapter) -> None:
    with pytest.raises(ProviderAuthError) as caught:
        await ask(llama, adapter, ChatRequest(messages=[ASKED]), key="wrong-key-0123")
    assert caught.value.status == 401
    assert "wrong-key-0123" not in str(caught.value)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_context_that_is_too_long_is_an_error_of_its_own(llama: LlamaServer, adapter: Adapter) -> None:
    with pytest.raises(ContextTooLongError, match="compaction"):
        await ask(llama, adapter, ChatRequest(messages=[UserMessage("fox " * 9000)]))
