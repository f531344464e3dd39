"""What a request that failed has cost is told, and counted."""

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from tests.providers.loopback import chunk, completion, events
from tests.providers.vendor_answers import anthropic_stream, anthropic_text_stream, block_events, gemini_answer
from toolkit import (
    ChatRequest,
    LoopLimits,
    ProviderError,
    ProviderRetryConfig,
    ToolLoopConfig,
    ToolRegistry,
    Usage,
    UsageLimits,
    UserMessage,
    tool_loop,
)
from toolkit.chat.provider import closing
from toolkit.endings import UsageLimit
from toolkit.providers.anthropic import AnthropicProvider
from toolkit.providers.google import GoogleProvider
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider
from toolkit.testing.loopback import Answer, Server, serving

pytestmark = pytest.mark.anyio

SPENT = Usage(input_tokens=7, output_tokens=1)
CUT = Answer(
    pieces=anthropic_stream(block_events(0, {"type": "text", "text": "Half an"}), is_complete=False), is_cut=True
)
FAILED_RESPONSE: dict[str, Any] = {
    "id": "r",
    "status": "failed",
    "error": {"code": "server_error", "message": "Sorry"},
    "output": [],
    "usage": {"input_tokens": 7, "output_tokens": 1},
}
GEMINI_SPENT = {"promptTokenCount": 7, "candidatesTokenCount": 1}
BROKEN: dict[str, tuple[Callable[[Server], Any], Answer]] = {
    "anthropic, cut": (lambda server: AnthropicProvider("m", base_url=server.root), CUT),
    "chat, cut": (
        lambda server: OpenAIProvider("m", base_url=server.url),
        Answer(
            pieces=events(chunk({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 1}), is_done=False),
            is_cut=True,
        ),
    ),
    "responses, failed in pieces": (
        lambda server: OpenAIResponsesProvider("m", base_url=server.url),
        Answer(pieces=events({"type": "response.failed", "response": FAILED_RESPONSE}, is_done=False)),
    ),
    "responses, failed": (
        lambda server: OpenAIResponsesProvider("m", base_url=server.url),
        Answer(FAILED_RESPONSE),
    ),
    "google, unusable": (
        lambda server: GoogleProvider("gemini-2.5-m", base_url=server.root),
        Answer(
            {
                **gemini_answer(finish="MALFORMED_FUNCTION_CALL"),
                "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 1},
            }
        ),
    ),
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.mark.parametrize("name", BROKEN)
async def test_an_error_says_what_its_request_has_cost(server: Server, name: str) -> None:
    make, answer = BROKEN[name]
    server.answers[:] = [answer]
    request = ChatRequest(messages=[UserMessage("Hi")])
    async with make(server) as provider:
        with pytest.raises(ProviderError) as caught, anyio.fail_after(120):
            if answer.pieces is None:
                await provider.generate(request)
            else:
                async with closing(provider.stream(request)) as heard:
                    async for _ in heard:
                        pass
    assert caught.value.usage == SPENT


async def test_an_error_says_nothing_of_a_cost_that_nobody_told(server: Server) -> None:
    server.answers[:] = [Answer({"error": {"message": "No"}}, status=400)]
    async with OpenAIProvider("m", base_url=server.url) as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.generate(ChatRequest(messages=[UserMessage("Hi")]))
    assert caught.value.usage is None


RETRY = ProviderRetryConfig(max_retries=1, initial_backoff=0.001)


async def test_a_run_counts_the_requests_that_were_made_again(server: Server) -> None:
    server.answers[:] = [CUT, Answer(pieces=anthropic_text_stream("Whole."))]
    async with AnthropicProvider("m", base_url=server.root) as provider:
        config = ToolLoopConfig(provider_retry=RETRY, stream=True)
        result = await tool_loop(provider, ToolRegistry(), "Hi", config=config)
    assert result.usage == SPENT + Usage(input_tokens=7, output_tokens=3)


async def test_the_error_of_a_run_counts_all_of_its_requests(server: Server) -> None:
    server.answers[:] = [CUT]
    async with AnthropicProvider("m", base_url=server.root) as provider:
        with pytest.raises(ProviderError) as caught:
            await tool_loop(provider, ToolRegistry(), "Hi", config=ToolLoopConfig(provider_retry=RETRY, stream=True))
    assert caught.value.usage == SPENT + SPENT


async def test_what_failed_counts_against_the_limits(server: Server) -> None:
    server.answers[:] = [CUT, Answer(completion())]
    config = ToolLoopConfig(provider_retry=RETRY, stream=True, limits=LoopLimits(usage=UsageLimits(total_tokens=8)))
    async with AnthropicProvider("m", base_url=server.root) as provider:
        result = await tool_loop(provider, ToolRegistry(), "Hi", config=config)
    assert isinstance(result.reason, UsageLimit)
    assert len(server.requests) == 1
