"""What goes wrong with small models and odd tools, on llama.cpp's own server and a real model."""

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.providers.llama_server import LlamaServer, llama_server
from toolkit import ChatRequest, ProviderError, UserMessage
from toolkit.chat import ChatResponse, Provider, ResponseDone, StreamEvent, ToolDefinition
from toolkit.chat.provider import ProviderWrapper
from toolkit.guided import ChooseTool, FillArguments, GuidedProvider
from toolkit.providers.openai import OpenAIProvider

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TEXT = {"type": "string"}


@pytest.fixture(scope="module")
def llama() -> Generator[LlamaServer]:
    with llama_server() as running:
        yield running


def define(name: str, description: str, **properties: Any) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": list(properties)},
    )


class Watched(ProviderWrapper):
    """Keeps the schemas that are asked for, and the status of what is refused."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.schemas: list[Mapping[str, Any]] = []
        self.refusals: list[int | None] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        self.schemas += [request.response_format.schema] if request.response_format is not None else []
        try:
            return await self._provider.generate(request)
        except ProviderError as error:
            self.refusals.append(error.status)
            raise

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        yield ResponseDone(await self.generate(request))


async def generate(
    llama: LlamaServer, said: str, tools: list[ToolDefinition], *, steps: Any = None, **settings: Any
) -> ChatResponse:
    asked = ChatRequest(messages=[UserMessage(said)], tools=tools, temperature=0, max_tokens=100)
    asked = replace(asked, **settings)
    with anyio.fail_after(240):
        async with OpenAIProvider("m", base_url=f"{llama.url}/v1", api_key=llama.key) as server:
            provider = GuidedProvider(server) if steps is None else GuidedProvider(server, steps=steps)
            return await provider.generate(asked)


async def test_a_reply_that_is_cut_off_in_mid_step_is_an_unfinished_call(llama: LlamaServer) -> None:
    tool = define("write_note", "Write a note down.", text=TEXT)
    response = await generate(llama, "Write a long note.", [tool], tool_choice="write_note", max_tokens=4)
    assert response.stop_reason == "max_tokens"
    assert [call.name for call in response.unfinished_calls] == ["write_note"]


async def test_a_model_that_loops_inside_a_text_comes_to_an_end(llama: LlamaServer) -> None:
    tool = define("sing", "Sing a song.", words=TEXT)
    said = "Sing la la la la la la la la la la la la la la la la la, and never stop."
    response = await generate(
        llama, said, [tool], tool_choice="sing", steps=[ChooseTool(), FillArguments(longest_text=20)]
    )
    # One reply is cut off, and the next one is held to a short text.
    assert response.usage.output_tokens <= 2 * 100
    if response.stop_reason != "max_tokens":
        [call] = response.tool_calls
        assert set(json.loads(call.arguments)) == {"words"}


async def test_names_that_differ_by_a_letter_are_never_mixed(llama: LlamaServer) -> None:
    names = ["get_user", "get_users", "get_userz"]
    tools = [define(name, f"Call {name}.", id={"type": "integer"}) for name in names]
    response = await generate(llama, "Call get_users with the id 7.", tools, tool_choice="required")
    assert {call.name for call in response.tool_calls} <= set(names)
    assert {call.arguments for call in response.tool_calls} == {'{"id":7}'}


async def test_what_nobody_said_is_marked_or_not_called(llama: LlamaServer) -> None:
    order = define("get_order", "Get an order.", order={"type": "string", "description": "Such as A-1000."})
    response = await generate(llama, "Tell me about the sea.", [order, define("pay", "Pay.", euros={"type": "number"})])
    assert response.text or all(call.unsaid for call in response.tool_calls)


@pytest.mark.full
async def test_a_hundred_tools_are_chosen_from(llama: LlamaServer) -> None:
    tools = [define(f"open_door_{number}", f"Open door {number}.") for number in range(100)]
    response = await generate(llama, "Open door 57.", tools, tool_choice="required")
    [call] = response.tool_calls
    assert call.name in {tool.name for tool in tools}


async def test_a_schema_that_the_grammar_can_not_say_is_asked_for_by_its_types(llama: LlamaServer) -> None:
    huge = {"type": "array", "items": {"type": "string"}, "minItems": 1_000_000, "maxItems": 2_000_000}
    tool = define("fill", "Fill a list.", title=TEXT, items=huge)
    asked = ChatRequest(
        messages=[UserMessage("Fill the list Fruit.")], tools=[tool], tool_choice="fill", temperature=0, max_tokens=60
    )
    with anyio.fail_after(240):
        async with OpenAIProvider("m", base_url=f"{llama.url}/v1", api_key=llama.key) as server:
            watched = Watched(server)
            steps = (ChooseTool(), FillArguments())
            response = await GuidedProvider(watched, steps=steps, hold_by="response_format").generate(asked)
    assert {call.name for call in response.tool_calls} == {"fill"}
    assert set(watched.refusals) == {400}
    assert watched.schemas[0]["properties"]["items"]["minItems"] == 1_000_000
    assert watched.schemas[-1]["properties"]["items"] == {"type": "array"}
