"""Equal requests are asked once."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    MemoryCache,
    Message,
    Provider,
    ProviderError,
    TextDelta,
    ToolCall,
    ToolRegistry,
    ToolResult,
    Usage,
    UserMessage,
    tool,
    tool_loop,
)
from toolkit.chat import (
    ChatResponse,
    ImageBlock,
    ReasoningBlock,
    ResponseDone,
    ResponseFormat,
    StreamEvent,
    TextBlock,
    ToolDefinition,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.parsing import TextToolProvider
from toolkit.policies import SqliteCache
from toolkit.providers import CachedProvider, FallbackProvider, PricedProvider, RateLimitedProvider
from toolkit.testing import FlakyProvider, FunctionProvider, ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio
MESSAGES: tuple[Message, ...] = (
    UserMessage((TextBlock("Hi"), ImageBlock(b"\x00"))),
    AssistantMessage([ToolCall("1", "a", "{}")]),
    ToolResult("1", "x"),
)
REQUEST = ChatRequest(messages=MESSAGES)
RESPONSE = ChatResponse(
    message=AssistantMessage([ReasoningBlock(text="Hm.", signature="s"), TextBlock("Hi."), ToolCall("2", "a", "{}")]),
    usage=Usage(input_tokens=10, output_tokens=5),
    stop_reason="tool_use",
    model="m",
    metadata={"id": "x"},
)


async def listen(provider: CachedProvider, request: ChatRequest = REQUEST) -> list[StreamEvent]:
    async with aclosing(provider.stream(request)) as events:
        return [event async for event in events]


async def test_equal_requests_are_asked_once_whichever_way() -> None:
    model = ScriptedProvider([RESPONSE])
    provider = CachedProvider(model)
    assert await provider.generate(REQUEST) == RESPONSE
    kept = replace(RESPONSE, usage=Usage())
    assert await provider.generate(replace(REQUEST, messages=list(MESSAGES), timeout=5)) == kept
    assert await listen(provider) == [
        ReasoningDelta("Hm."),
        TextDelta("Hi."),
        ArgumentsDelta(0, "2", "a", "{}"),
        ResponseDone(kept),
    ]
    assert len(model.requests) == 1


async def test_what_was_streamed_is_kept() -> None:
    model = ScriptedProvider([RESPONSE])
    provider = CachedProvider(model)
    assert await listen(provider) == await listen(CachedProvider(ScriptedProvider([RESPONSE])))
    assert await provider.generate(REQUEST) == replace(RESPONSE, usage=Usage())
    assert len(model.requests) == 1


OTHERS: dict[str, dict[str, Any]] = {
    "messages": {"messages": MESSAGES[:1]},
    "bytes": {"messages": (UserMessage((TextBlock("Hi"), ImageBlock(b"\x01"))), *MESSAGES[1:])},
    "error": {"messages": (*MESSAGES[:2], ToolResult("1", "x", is_error=True))},
    "tools": {"tools": [ToolDefinition(name="a", description="d", parameters={"type": "object"})]},
    "choice": {"tool_choice": "none"},
    "temperature": {"temperature": 0.5},
    "format": {"response_format": ResponseFormat({"type": "object"})},
    "options": {"options": {"top_k": 1}},
}


@pytest.mark.parametrize("other", OTHERS)
async def test_whatever_is_asked_otherwise_is_another_request(other: str) -> None:
    model = ScriptedProvider(["First.", "Second."])
    provider = CachedProvider(model)
    assert (await provider.generate(REQUEST)).text == "First."
    assert (await provider.generate(replace(REQUEST, **OTHERS[other]))).text == "Second."


@pytest.mark.parametrize("stop_reason", ["max_tokens", "content_filter", "refusal"])
async def test_what_is_not_whole_is_not_kept(stop_reason: Any) -> None:
    model = ScriptedProvider([replace(RESPONSE, stop_reason=stop_reason), "Whole."])
    provider = CachedProvider(model)
    await provider.generate(REQUEST)
    assert (await provider.generate(REQUEST)).text == "Whole."


async def test_errors_and_streams_that_break_off_are_not_kept() -> None:
    async def breaks_off(request: ChatRequest) -> AsyncGenerator[str]:
        yield "Hel"
        raise ProviderError("p", "cut")

    cache = MemoryCache()
    provider = CachedProvider(FunctionProvider(breaks_off), cache)
    with pytest.raises(ProviderError, match="cut"):
        await listen(provider)
    async with aclosing(provider.stream(REQUEST)) as events:
        await anext(events)
    assert len(cache) == 0


class Named(ScriptedProvider):
    model = ""

    @classmethod
    def of(cls, model: str) -> "Named":
        made = cls([f"I am {model}."])
        made.model = model
        return made


WRAPPED: dict[str, Callable[[Provider], Provider]] = {
    "limited": lambda provider: RateLimitedProvider(provider, requests=9),
    "priced": lambda provider: PricedProvider(provider, lambda model, usage: 0.0),
    "with others": FallbackProvider,
    "as text": TextToolProvider,
    "one round another": lambda provider: RateLimitedProvider(FlakyProvider(provider, []), requests=9),
}


@pytest.mark.parametrize("name", WRAPPED)
async def test_models_behind_wrappers_are_told_apart(name: str) -> None:
    cache = MemoryCache()
    one, other = (CachedProvider(WRAPPED[name](Named.of(model)), cache) for model in ("one", "other"))
    assert ((await one.generate(REQUEST)).text, (await other.generate(REQUEST)).text) == ("I am one.", "I am other.")


async def test_a_file_is_shared_and_names_tell_providers_apart(tmp_path: Path) -> None:
    async with SqliteCache(tmp_path / "answers.db") as cache:
        first = CachedProvider(ScriptedProvider(["First."]), cache, name="one")
        assert (await first.generate(REQUEST)).text == "First."
    async with SqliteCache(tmp_path / "answers.db") as cache:
        again = CachedProvider(ScriptedProvider([]), cache, name="one")
        assert (await again.generate(REQUEST)).text == "First."
        other = CachedProvider(ScriptedProvider(["Other."]), cache, name="other")
        assert (await other.generate(REQUEST)).text == "Other."


@pytest.mark.parametrize("damaged", ["{", '{"message": 1}', "null"])
async def test_a_damaged_entry_is_a_miss(damaged: str) -> None:
    class Damaged(MemoryCache):
        async def get(self, key: str) -> str | None:
            return damaged

    provider = CachedProvider(ScriptedProvider(["Asked."]), Damaged())
    assert (await provider.generate(REQUEST)).text == "Asked."


async def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="can't be written as JSON"):
        await CachedProvider(ScriptedProvider([])).generate(replace(REQUEST, options={"x": object()}))


async def test_a_loop_from_the_cache_goes_as_the_first_did() -> None:
    ran: list[int] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        ran.append(a)
        return a + b

    provider = CachedProvider(ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."]))
    results = [await tool_loop(provider, ToolRegistry([add]), "1 + 2?") for _ in range(2)]
    assert results[0].messages == results[1].messages
    assert [result.usage.total_tokens for result in results] == [30, 0]
    assert ran == [1, 1]
    check_transcript(results[1].messages)
