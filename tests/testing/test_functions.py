"""A function stands for the model."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import ChatResponse, ReasoningBlock, ResponseDone, StreamEvent, TextBlock
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.testing import FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio
REQUEST = ChatRequest(messages=[UserMessage("Hi there")])


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def listen(provider: FunctionProvider) -> list[StreamEvent]:
    async with aclosing(provider.stream(REQUEST)) as events:
        return [event async for event in events]


async def test_a_function_answers_each_request() -> None:
    def model(request: ChatRequest) -> str | ToolCall:
        last = request.messages[-1]
        return f"It is {last.text}." if isinstance(last, ToolResult) else ToolCall("1", "add", '{"a": 1, "b": 2}')

    provider = FunctionProvider(model)
    result = await tool_loop(provider, ToolRegistry([add]), "What is 1 plus 2?")
    assert result.text == "It is 3."
    assert [len(request.messages) for request in provider.requests] == [1, 3]


async def test_the_function_may_be_async_and_is_streamed_word_by_word() -> None:
    async def model(request: ChatRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return request.messages[-1].text

    provider = FunctionProvider(model)
    assert (await provider.generate(REQUEST)).text == "Hi there"
    assert (await listen(provider))[:-1] == [TextDelta("Hi"), TextDelta(" there")]


async def pieces(request: ChatRequest) -> AsyncGenerator[StreamEvent | str]:
    yield ReasoningDelta("Hm")
    yield ReasoningDelta(".")
    yield "Let "
    yield "me."
    yield ArgumentsDelta(1, "", "sub", "{}")
    yield ArgumentsDelta(0, "1", "add", '{"a"')
    yield ArgumentsDelta(0, "", "", ": 1}")


async def test_the_pieces_of_a_generator_are_put_together() -> None:
    provider = FunctionProvider(pieces)
    heard = await listen(provider)
    assert heard[2] == TextDelta("Let ")
    done = heard[-1]
    assert isinstance(done, ResponseDone)
    assert done.response == await provider.generate(REQUEST)
    assert done.response.message.content == (
        ReasoningBlock(text="Hm."),
        TextBlock("Let me."),
        ToolCall("1", "add", '{"a": 1}'),
        ToolCall("", "sub", "{}"),
    )
    assert done.response.stop_reason == "tool_use"


async def test_a_generator_may_end_with_an_answer_of_its_own_and_is_closed() -> None:
    own = ChatResponse(message=AssistantMessage("Own."), model="own")
    closed: list[bool] = []

    async def model(request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        try:
            yield TextDelta("Own.")
            yield ResponseDone(own)
            yield TextDelta("never heard")
        finally:
            closed.append(True)

    provider = FunctionProvider(model)
    assert await listen(provider) == [TextDelta("Own."), ResponseDone(own)]
    async with aclosing(provider.stream(REQUEST)) as events:
        await anext(events)
    assert closed == [True, True]


@pytest.mark.parametrize("streams", [False, True], ids=["generate", "stream"])
@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [(ProviderError("p", "down"), ProviderError, "down"), (7, ConfigurationError, "a reply can't be of type int")],
    ids=["an exception", "no reply"],
)
async def test_what_is_no_answer_is_raised(given: Any, kind: type[Exception], says: str, streams: bool) -> None:
    provider = FunctionProvider(lambda request: given)
    with pytest.raises(kind, match=says):
        await (listen(provider) if streams else provider.generate(REQUEST))


async def test_a_script_that_keeps_no_requests_refers_to_none() -> None:
    provider = ScriptedProvider(["a"], keep_requests=False)
    await provider.generate(ChatRequest(messages=[UserMessage("hi")]))
    assert provider.requests == []
    with pytest.raises(ConfigurationError, match="the script has 1 replies, and this is request 2"):
        await provider.generate(ChatRequest(messages=[UserMessage("hi")]))
