"""Guided calls by llama.cpp's own server and a real model."""

import json
from collections.abc import Generator
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from tests.providers.llama_server import LlamaServer, llama_server
from toolkit import ChatRequest, UserMessage
from toolkit.chat import ArgumentsDelta, ResponseDone, TextDelta, ToolDefinition
from toolkit.guided import GuidedProvider
from toolkit.providers.openai import OpenAIProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]

ORDER = ToolDefinition(
    name="get_order",
    description="Get the status of an order.",
    parameters={
        "type": "object",
        "properties": {"order": {"type": "string", "description": "The order.", "examples": ["A-1000"]}},
        "required": ["order"],
    },
)


@pytest.fixture(scope="module")
def llama() -> Generator[LlamaServer]:
    with llama_server() as running:
        yield running


async def test_calls_are_copied_out_of_the_request_whole_and_streamed(llama: LlamaServer) -> None:
    request = ChatRequest(
        messages=[UserMessage("Get the status of the orders A-1042 and B-7.")],
        tools=[ORDER],
        tool_choice="get_order",
        temperature=0,
        max_tokens=120,
    )
    with anyio.fail_after(120):
        async with OpenAIProvider("m", base_url=f"{llama.url}/v1", api_key=llama.key) as server:
            provider = GuidedProvider(server)
            response = await provider.generate(request)
            async with aclosing(provider.stream(request)) as stream:
                events = [event async for event in stream]
    orders = [json.loads(call.arguments)["order"] for call in response.tool_calls]
    assert orders
    assert set(orders) <= {"A-1042", "B-7"}
    assert len(set(orders)) == len(orders)
    assert response.usage.output_tokens > 0
    last = events[-1]
    assert isinstance(last, ResponseDone)
    assert [event.text for event in events[:-1] if isinstance(event, ArgumentsDelta)] == [
        call.arguments for call in last.response.tool_calls
    ]


async def test_a_step_can_be_cancelled_and_an_answer_left_early(llama: LlamaServer) -> None:
    asked = ChatRequest(
        messages=[UserMessage("Write a long poem about the sea.")], tools=[ORDER], temperature=0, max_tokens=100
    )
    with anyio.fail_after(180):
        async with OpenAIProvider("m", base_url=f"{llama.url}/v1", api_key=llama.key) as server:
            provider = GuidedProvider(server)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(provider.generate, asked)
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
            assert scope.cancelled_caught
            async with aclosing(provider.stream(asked)) as stream:
                async for event in stream:
                    assert isinstance(event, TextDelta)
                    break
            assert (await provider.generate(asked)).text
