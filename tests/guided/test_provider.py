"""A small model is led to its calls, one held step at a time."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import Field

from tests.guided.held_model import HeldModel
from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    ProviderError,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    ToolResult,
    Usage,
    UserMessage,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.chat import ArgumentsDelta, ChatResponse, ResponseDone, ResponseFormat, TextDelta, ToolDefinition
from toolkit.errors import BadResponseError
from toolkit.guided import (
    DEFAULT_STEPS,
    AnswerFromResults,
    ChooseTool,
    FillArguments,
    GuidedProvider,
    GuidedTurn,
    RefuseRepeats,
    StepVerdict,
)
from toolkit.testing import FunctionProvider, ScriptedProvider

pytestmark = pytest.mark.anyio


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather in a city. It is measured each hour, at many places.

    Args:
        city: The name of the city.
        unit: The unit of the temperature.
    """
    return f"18 degrees {unit} in {city}"


@tool
def find_customer(name: str) -> str:
    """Find the number of a customer by name."""
    return f"{name} is 417" if name == "Ada Lovelace" else f"{name} is 582"


@tool
def get_balance(customer: int) -> str:
    """Get the balance of a customer's account."""
    return f"The balance is {customer * 10} dollars"


@tool
def now() -> str:
    """Tell the time."""
    return "It is noon"


registry = ToolRegistry([get_weather, find_customer, get_balance, now])
CONFIG = ToolLoopConfig(max_iterations=5)


def asked(prompt: str, **settings: Any) -> ChatRequest:
    return ChatRequest(messages=[UserMessage(prompt)], tools=registry.definitions(), **settings)


def calls_of(response: ChatResponse) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in response.tool_calls]


async def test_a_call_is_two_questions_and_the_answer_a_third() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo"}], "It is 18 degrees.")
    result = await tool_loop(GuidedProvider(model.provider), registry, "What is the weather in Oslo?", config=CONFIG)
    assert result.text == "It is 18 degrees."
    assert [message.text for message in result.messages if isinstance(message, ToolResult)] == [
        "18 degrees celsius in Oslo"
    ]
    assert result.usage.output_tokens == 6
    assert [request.tools for request in model.provider.requests] == [None] * 3
    assert model.prompts[-1] == (
        "What is the weather in Oslo?\n\nThe answer is: 18 degrees celsius in Oslo\n\nSay the answer in a sentence."
    )


async def test_descriptions_stand_as_examples_cut_to_their_first_words() -> None:
    model = HeldModel()
    await GuidedProvider(model.provider).generate(asked("Hi"))
    said = [message.text for message in model.provider.requests[0].messages]
    assert said == [
        "Get the current weather in a city.", '{"tool": "get_weather"}',
        "Hello!", '{"tool": "answer"}',
        "Find the number of a customer by name.", '{"tool": "find_customer"}',
        "Get the balance of a customer's account.", '{"tool": "get_balance"}',
        "Tell the time.", '{"tool": "now"}',
        "Hi",
    ]  # fmt: skip
    assert model.offered(0) == ["get_weather", "find_customer", "get_balance", "now", "answer"]


async def test_what_the_words_ask_for_is_among_the_arguments() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo", "unit": "fahrenheit"}])
    response = await GuidedProvider(model.provider).generate(asked("What is the weather in Oslo, in fahrenheit?"))
    assert calls_of(response) == [("get_weather", {"city": "Oslo", "unit": "fahrenheit"})]


async def test_several_calls_of_a_tool_come_in_one_reply() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo"}, [{"city": "Oslo"}, {"city": "Rome"}, {"city": "Oslo"}]])
    response = await GuidedProvider(model.provider).generate(asked("What is the weather in Oslo and in Rome?"))
    assert calls_of(response) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
    assert len({call.id for call in response.tool_calls}) == 2


async def test_one_call_at_a_time_is_obeyed() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo"}, {}])
    request = asked("What is the weather in Oslo and in Rome?", parallel_tool_calls=False)
    assert calls_of(await GuidedProvider(model.provider).generate(request)) == [("get_weather", {"city": "Oslo"})]


async def test_a_dependent_call_takes_its_value_from_the_result() -> None:
    model = HeldModel(["find_customer", "get_balance"], [{"name": "Ada Lovelace"}, {"customer": 417}])
    prompt = "First find the customer number of Ada Lovelace, then get the balance of that customer."
    result = await tool_loop(GuidedProvider(model.provider), registry, prompt, config=CONFIG)
    assert [call for message in result.messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    results = [message.text for message in result.messages if isinstance(message, ToolResult)]
    assert results == ["Ada Lovelace is 417", "The balance is 4170 dollars"]
    assert "Known: Ada Lovelace: Ada Lovelace is 417" in model.prompts[2]
    assert "get_balance" in model.offered(1)


async def test_nothing_is_asked_once_each_word_is_done() -> None:
    model = HeldModel(["get_weather", "find_customer"], [{"city": "Oslo"}])
    result = await tool_loop(GuidedProvider(model.provider), registry, "Get the weather in Oslo.", config=CONFIG)
    assert len(model.provider.requests) == 3
    assert result.text == "Done."


@tool
def add_items(items: list[str]) -> str:
    """Add things to the shopping list."""
    return f"{len(items)} added"


async def test_a_call_that_was_made_is_not_made_again() -> None:
    model = HeldModel(["find_customer", "find_customer"], [{"name": "Ada Lovelace"}] * 2)
    prompt = "Look up the file of Ada Lovelace, would you"
    result = await tool_loop(GuidedProvider(model.provider), registry, prompt, config=CONFIG)
    assert result.text == "Done."
    assert sum(isinstance(message, ToolResult) for message in result.messages) == 1
    assert len(model.provider.requests) == 5  # the first refusal ends the turn


@pytest.mark.parametrize("choice", ["required", "get_weather"])
async def test_a_call_that_must_be_made_is_made_without_ground(choice: str) -> None:
    model = HeldModel(["get_weather"], [{"city": "Rome"}])
    response = await GuidedProvider(model.provider).generate(asked("hello", tool_choice=choice))
    assert calls_of(response) == [("get_weather", {"city": "Rome"})]


async def test_one_tool_that_must_be_called_is_asked_about_at_once() -> None:
    model = HeldModel(values=[{"city": "Rome"}])
    request = asked("hello", tool_choice="required")
    request = replace(request, tools=[get_weather.definition])
    assert calls_of(await GuidedProvider(model.provider).generate(request)) == [("get_weather", {"city": "Rome"})]
    assert len(model.provider.requests) == 1


async def test_no_tools_leave_the_request_to_the_model() -> None:
    model = HeldModel(answer="Hello.")
    response = await GuidedProvider(model.provider).generate(asked("hello", tool_choice="none"))
    assert response.text == "Hello."
    assert len(model.provider.requests) == 1


async def test_a_tool_choice_that_is_no_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="get_weather"):
        await GuidedProvider(HeldModel().provider).generate(asked("hello", tool_choice="get_wether"))


async def test_a_stream_gives_calls_whole_and_the_answer_in_pieces() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo"}], "It is 18 degrees there.")
    provider = GuidedProvider(model.provider)
    async with aclosing(provider.stream(asked("the weather in Oslo"))) as stream:
        events = [event async for event in stream]
    first, last = events
    assert isinstance(first, ArgumentsDelta)
    assert isinstance(last, ResponseDone)
    assert first.text == last.response.tool_calls[0].arguments
    async with tool_loop_stream(
        GuidedProvider(HeldModel(["get_weather"], [{"city": "Oslo"}], "It is 18 degrees there.").provider),
        registry,
        "Get the weather in Oslo.",
    ) as heard:
        texts = [event.text async for event in heard if isinstance(event, TextDelta)]
    assert "".join(texts) == "It is 18 degrees there."
    assert len(texts) > 3


async def test_cancelling_ends_the_step_that_is_under_way() -> None:
    was_cancelled = anyio.Event()

    async def hang(request: ChatRequest) -> str:
        try:
            scope.cancel()
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()
        return ""

    with anyio.CancelScope() as scope:
        await GuidedProvider(FunctionProvider(hang)).generate(asked("hello"))
    assert scope.cancelled_caught
    assert was_cancelled.is_set()


@pytest.mark.parametrize("field", ["json_schema", "guided_json", "format"])
async def test_the_field_that_a_server_obeys_is_found_and_kept_to(field: str) -> None:
    def read_schema(request: ChatRequest) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = request.options.get(field)
        return found

    model = HeldModel(["get_weather", "get_weather"], [{"city": "Oslo"}, {"city": "Oslo"}], schema_of=read_schema)
    provider = GuidedProvider(model.provider)
    for _ in range(2):
        assert calls_of(await provider.generate(asked("the weather in Oslo"))) == [("get_weather", {"city": "Oslo"})]
    assert [field in request.options for request in model.provider.requests[-3:]] == [True] * 3


async def test_a_server_that_ignores_schemas_is_told_of() -> None:
    server = ScriptedProvider(["Hello, how may I help?"], repeats=True)
    with pytest.raises(BadResponseError, match=r"does not hold a reply to a JSON Schema.*TextToolProvider") as caught:
        await GuidedProvider(server).generate(asked("the weather in Oslo"))
    assert not caught.value.is_retryable


async def test_a_model_that_obeys_by_itself_in_a_fence_is_understood() -> None:
    server = ScriptedProvider(['```json\n{"tool": "get_weather"}\n```', '```\n{"city": "Oslo"}\n```'])
    response = await GuidedProvider(server).generate(asked("the weather in Oslo"))
    assert calls_of(response) == [("get_weather", {"city": "Oslo"})]


async def test_a_schema_that_the_engine_can_not_say_is_asked_for_by_its_types() -> None:
    asked_for: list[Any] = []

    def refuse_enums(request: ChatRequest) -> str:
        schema = (request.response_format or ResponseFormat({})).schema
        if "tool" in schema["properties"]:
            return '{"tool": "get_weather"}'
        asked_for.append(schema["properties"]["city"])
        if "description" in schema["properties"]["city"]:
            raise ProviderError("server", "failed to parse grammar", status=400)
        return '{"city": "Oslo"}'

    provider = GuidedProvider(FunctionProvider(refuse_enums), hold_by="response_format")
    assert calls_of(await provider.generate(asked("the weather in Oslo"))) == [("get_weather", {"city": "Oslo"})]
    assert asked_for[-1] == {"type": "string"}


async def test_a_server_that_fails_is_told_of_as_it_failed() -> None:
    def fail(request: ChatRequest) -> str:
        raise ProviderError("server", "out of order", status=503)

    with pytest.raises(ProviderError, match="out of order"):
        await GuidedProvider(FunctionProvider(fail)).generate(asked("the weather in Oslo"))


def cut_off(text: str) -> ChatResponse:
    return ChatResponse(message=AssistantMessage(text), stop_reason="max_tokens", usage=Usage(output_tokens=2))


async def test_a_model_that_loops_inside_a_text_is_asked_for_a_shorter_one() -> None:
    server = ScriptedProvider(['{"tool": "get_weather"}', cut_off('{"city": "lalalalala'), '{"city": "oslo"}'])
    response = await GuidedProvider(server).generate(asked("how is it in oslo"))
    assert calls_of(response) == [("get_weather", {"city": "oslo"})]
    assert server.requests[-1].response_format is not None
    assert server.requests[-1].response_format.schema["properties"]["city"]["maxLength"] == 400


async def test_a_call_that_is_cut_off_twice_is_not_made() -> None:
    cut = cut_off('{"city": "lalalalala')
    server = ScriptedProvider(['{"tool": "get_weather"}', cut, cut, "I can't say."])
    response = await GuidedProvider(server).generate(asked("how warm is it in oslo"))
    assert response.text == "I can't say."
    assert response.usage.output_tokens >= 4


async def test_a_call_that_must_be_made_and_is_cut_off_is_unfinished() -> None:
    cut = cut_off('{"city": "lalalalala')
    server = ScriptedProvider([cut, cut])
    response = await GuidedProvider(server).generate(asked("hello", tool_choice="get_weather"))
    assert response.stop_reason == "max_tokens"
    assert [call.arguments for call in response.unfinished_calls] == ['{"city": "lalalalala']


async def test_a_hundred_tools_are_asked_about_in_groups() -> None:
    tools = [
        ToolDefinition(name=f"tool_{number}", description=f"Do thing {number}.", parameters={"type": "object"})
        for number in range(100)
    ]

    def choose(request: ChatRequest) -> str:
        names = (request.response_format or ResponseFormat({})).schema["properties"]["tool"]["enum"]
        assert len(names) <= 25
        return json.dumps({"tool": "tool_57" if "tool_57" in names else "answer"})

    request = ChatRequest(messages=[UserMessage("do thing 57")], tools=tools)
    assert calls_of(await GuidedProvider(FunctionProvider(choose)).generate(request)) == [("tool_57", {})]


async def test_names_that_differ_by_a_letter_are_told_apart_and_answer_is_a_name_too() -> None:
    names = ["get_user", "get_users", "answer"]
    tools = [ToolDefinition(name=name, description="Get.", parameters={"type": "object"}) for name in names]
    models = [HeldModel([name]) for name in names]
    for name, model in zip(names, models, strict=True):
        request = ChatRequest(messages=[UserMessage("get it")], tools=tools)
        assert calls_of(await GuidedProvider(model.provider).generate(request)) == [(name, {})]
    assert "answer_" in models[0].offered(0)


async def test_what_was_said_before_is_told_with_the_request() -> None:
    model = HeldModel(["get_weather"], [{"city": "Oslo"}, {}])
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage("I am in Oslo."),
        AssistantMessage("Nice."),
        UserMessage("Is it warm?"),
    ]
    response = await GuidedProvider(model.provider).generate(replace(asked(""), messages=messages))
    assert calls_of(response) == [("get_weather", {"city": "Oslo"})]
    assert "Before that:\nBe brief.\nI am in Oslo.\nNice." in model.prompts[1]


async def test_a_short_result_is_quoted_where_that_is_asked_for() -> None:
    messages: list[Message] = [
        UserMessage("Add them."),
        AssistantMessage([ToolCall("1", "now", "{}")]),
        ToolResult("1", 'It is "3".', tool_name="now"),
    ]
    request = replace(asked(""), messages=messages, tool_choice="none")
    for answer, has_grammar in ((AnswerFromResults(is_quoting=True), True), (AnswerFromResults(), False)):
        model = HeldModel()
        await GuidedProvider(model.provider, answer=answer).generate(request)
        grammar = model.provider.requests[0].options.get("grammar", "")
        assert grammar.endswith('"It is \\"3\\"" "."?') is has_grammar


async def test_a_failure_is_told_as_one() -> None:
    messages: list[Message] = [
        UserMessage("Add them."),
        AssistantMessage([ToolCall("1", "now", "{}")]),
        ToolResult("1", "no clock", tool_name="now", is_error=True),
    ]
    model = HeldModel()
    await GuidedProvider(model.provider).generate(replace(asked(""), messages=messages, tool_choice="none"))
    assert "That failed: no clock" in model.prompts[0]


async def test_an_old_call_is_told_as_text() -> None:
    messages: list[Message] = [
        UserMessage("What time is it?"),
        AssistantMessage([ToolCall("1", "now", "{}")]),
        ToolResult("1", "noon", tool_name="now"),
        UserMessage("Thanks."),
    ]
    model = HeldModel()
    await GuidedProvider(model.provider).generate(replace(asked(""), messages=messages, tool_choice="none"))
    texts = [message.text for message in model.provider.requests[0].messages]
    assert texts == ["What time is it?", "now({})", "Result of now: noon", "Thanks."]


@dataclass(frozen=True)
class NeverOnSundays:
    """A step of a user."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        return "answer" if "sunday" in turn.question.casefold() else "next"


async def test_steps_can_be_added_replaced_and_left_out() -> None:
    model = HeldModel(["get_weather"], [{"city": "Paris"}])
    provider = GuidedProvider(model.provider, steps=(NeverOnSundays(), *DEFAULT_STEPS))
    assert (await provider.generate(asked("the weather on Sunday"))).text == "Done."
    free = GuidedProvider(model.provider, steps=(ChooseTool(description_words=2), FillArguments()))
    assert calls_of(await free.generate(asked("the weather"))) == [("get_weather", {"city": "Paris"})]
    assert model.provider.requests[1].messages[0] == UserMessage("Get the")


@pytest.mark.parametrize("steps", [(FillArguments(),), (RefuseRepeats(), *DEFAULT_STEPS)])
async def test_a_step_before_the_choice_of_a_tool_is_refused(steps: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"comes before a tool is chosen: put ChooseTool"):
        await GuidedProvider(HeldModel().provider, steps=steps).generate(asked("the weather in Oslo"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hold_by": "magic"}, "'response_format'"),
        ({"steps": ()}, "needs steps"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GuidedProvider(ScriptedProvider([]), **settings)


@tool
def book(day: date, seats: Annotated[int, Field(ge=1)], name: str) -> str:
    """Book a table."""
    return f"{day} {seats} {name}"


async def test_days_and_numbers_can_be_said_in_words() -> None:
    model = HeldModel(["book"], [{"day": "2026-05-03", "seats": 2, "name": "Ann Lee"}])
    request = ChatRequest(
        messages=[UserMessage("A table for two on the 3rd of may for Ann Lee")], tools=[book.definition]
    )
    response = await GuidedProvider(model.provider).generate(request)
    assert calls_of(response) == [("book", {"day": "2026-05-03", "seats": 2, "name": "Ann Lee"})]


@tool
def find_order(order: str) -> dict[str, Any]:
    """Look an order up.

    Args:
        order: The order, such as A-1000.
    """
    return {"order": order, "customer_id": 417, "state": "late"}


@tool
def show_customer(customer: int) -> str:
    """Show a customer.

    Args:
        customer: The number of the customer.
    """
    return f"Customer {customer} is Ida Berg"


async def test_a_value_is_taken_from_a_result_that_is_json() -> None:
    model = HeldModel(["find_order", "show_customer"], [{"order": "A-7"}, {"customer": 417}])
    tools = ToolRegistry([find_order, show_customer])
    result = await tool_loop(GuidedProvider(model.provider), tools, "Show the customer of order A-7.", config=CONFIG)
    assert [message.text for message in result.messages if isinstance(message, ToolResult)][1:] == [
        "Customer 417 is Ida Berg"
    ]


@tool
def ship(street: str, city: str, code: str, weight: float) -> str:
    """Ship a parcel.

    Args:
        street: The street.
        city: The city.
        code: The postal code.
        weight: In kilograms.
    """
    return f"shipped to {street}, {city} {code}: {weight:g}"


async def test_a_request_with_many_values_is_one_call_where_it_uses_them_all() -> None:
    values = {"street": "5 Main Street", "city": "Boston", "code": "02108", "weight": 2}
    model = HeldModel(["ship"], [values])
    request = ChatRequest(
        messages=[UserMessage("Ship 2 kilograms to 5 Main Street, Boston, and the code is 02108.")],
        tools=[ship.definition],
    )
    assert calls_of(await GuidedProvider(model.provider).generate(request)) == [("ship", values)]
    assert len(model.schemas) == 2


async def test_the_tool_that_fits_best_stands_once_more_as_the_last_example() -> None:
    model = HeldModel()
    tools = [*registry.definitions(), find_order.definition]
    request = ChatRequest(messages=[UserMessage("What about order A-77?")], tools=tools)
    await GuidedProvider(model.provider).generate(request)
    said = [message.text for message in model.provider.requests[0].messages]
    assert said.count("Look an order up.") == 2
    assert said[-3:] == ["Look an order up.", '{"tool": "find_order"}', "What about order A-77?"]
    assert set(model.offered(0)) > {"get_weather", "find_order"}
    plain = GuidedProvider(model.provider, steps=(ChooseTool(most_repeated=0), FillArguments()))
    await plain.generate(request)
    assert [message.text for message in model.provider.requests[-2].messages].count("Look an order up.") == 1


async def test_a_hundred_tools_cost_a_bounded_number_of_words() -> None:
    tools = [
        ToolDefinition(
            name=f"tool_{number}",
            description=f"Do thing {number} {'at length ' * 50}.",
            parameters={"type": "object"},
        )
        for number in range(100)
    ]

    def choose(request: ChatRequest) -> str:
        if request.response_format is None:
            return "Done."
        return json.dumps({"tool": request.response_format.schema["properties"]["tool"]["enum"][-2]})

    server = FunctionProvider(choose)
    await GuidedProvider(server).generate(ChatRequest(messages=[UserMessage("do thing 57")], tools=tools))
    words = sum(len(message.text.split()) for request in server.requests for message in request.messages)
    assert words < 100 * 14


async def test_a_request_in_another_script_is_left_to_the_model() -> None:
    model = HeldModel(["get_weather", "get_weather"], [{"city": "北京"}, {}, {"city": "上海"}, {}])
    result = await tool_loop(GuidedProvider(model.provider), registry, "北京和上海的天气怎么样", config=CONFIG)
    assert [message.text for message in result.messages if isinstance(message, ToolResult)] == [
        "18 degrees celsius in 北京",
        "18 degrees celsius in 上海",
    ]


async def test_requests_that_a_description_quotes_stand_as_examples() -> None:
    model = HeldModel()
    told = replace(get_weather.definition, description='Get the weather. For example: "Is it warm in Oslo?" or "Rain?"')
    tools = [told, find_customer.definition]
    await GuidedProvider(model.provider).generate(ChatRequest(messages=[UserMessage("Hi there")], tools=tools))
    said = [message.text for message in model.provider.requests[0].messages]
    assert said[-5:] == [
        "Is it warm in Oslo?",
        '{"tool": "get_weather"}',
        "Rain?",
        '{"tool": "get_weather"}',
        "Hi there",
    ]
