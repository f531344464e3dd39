"""A model that only writes text gets through a loop of tools."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import get_args

import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    SystemMessage,
    ToolCall,
    ToolRegistry,
    ToolResult,
    UserMessage,
    tool,
    tool_loop,
    tool_loop_sync,
)
from toolkit.chat import (
    ArgumentsDelta,
    ChatResponse,
    ImageBlock,
    Message,
    ReasoningDelta,
    ResponseDone,
    StreamEvent,
    TextBlock,
    TextDelta,
    Usage,
)
from toolkit.errors import BadResponseError, ConfigurationError
from toolkit.parsing import TextFormat, TextToolProvider
from toolkit.testing import ScriptedProvider, ScriptedReply

FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather.

    Args:
        city: Such as Paris.
    """
    return f"Sunny in {city}"


registry = ToolRegistry([add, get_weather])
CALL = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
WEATHER_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
BROKEN = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": '


def request(text: str = "What is 2 + 3?", tool_choice: str = "auto") -> ChatRequest:
    return ChatRequest(messages=[UserMessage(text)], tools=registry.definitions(), tool_choice=tool_choice)


async def streamed(provider: TextToolProvider, asked: ChatRequest) -> tuple[list[StreamEvent], ChatResponse]:
    events = [event async for event in provider.stream(asked)]
    done = events.pop()
    assert isinstance(done, ResponseDone)
    return events, done.response


@pytest.mark.parametrize("name", FORMATS)
def test_a_loop_works_in_every_format(name: TextFormat) -> None:
    def imitated(asked: ChatRequest) -> str:
        """Write the call as the prompt's example shows it."""
        assert asked.tools is None
        system = asked.messages[0]
        assert isinstance(system, SystemMessage)
        return system.text.rpartition("For example:\n")[2].rpartition("\n\nWhen no tool")[0]

    model = ScriptedProvider([imitated, "It is done."])
    result = tool_loop_sync(TextToolProvider(model, format=name), registry, "Add.")
    assert result.text == "It is done."
    assert isinstance(result.messages[1], AssistantMessage)
    (call,) = result.messages[1].tool_calls
    assert (call.id, call.name) == ("call_1", "add")
    assert json.loads(call.arguments).keys() == {"a", "b"}
    assert isinstance(result.messages[2], ToolResult)
    assert not result.messages[2].is_error
    # The model reads its own call in the words that it wrote it in, and the result as text.
    told = model.requests[1].messages
    assert [message.role for message in told] == ["system", "user", "assistant", "user"]
    assert told[2].text == imitated(model.requests[0])
    assert result.messages[2].text in told[3].text


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    format: TextFormat
    call: str
    result: str


@pytest.mark.parametrize(
    "case",
    [
        Told(
            format="hermes",
            call='<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>',
            result="<tool_response>\n5\n</tool_response>",
        ),
        Told(format="react", call='Action: add\nAction Input: {"a": 2, "b": 3}', result="Observation: 5"),
        Told(format="llama", call='{"name": "add", "parameters": {"a": 2, "b": 3}}', result="Result of add: 5"),
        Told(
            format="mistral",
            call='[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2, "b": 3}}]',
            result='[TOOL_RESULTS]{"content": "5"}[/TOOL_RESULTS]',
        ),
        Told(
            format="qwen",
            call="<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\n3\n</parameter>\n"
            "</function>\n</tool_call>",
            result="<tool_response>\n5\n</tool_response>",
        ),
        Told(format="pythonic", call="[add(a=2, b=3)]", result="Result of add: 5"),
        Told(format="json", call='{"name": "add", "arguments": {"a": 2, "b": 3}}', result="Result of add: 5"),
        Told(
            format="fenced",
            call='```json\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n```',
            result="Result of add: 5",
        ),
        Told(format="crew", call='{"tool_name": "add", "arguments": {"a": 2, "b": 3}}', result="Result of add: 5"),
    ],
    ids=lambda case: case.format,
)
def test_calls_and_results_are_told_in_the_words_of_the_format(case: Told) -> None:
    model = ScriptedProvider([case.call, "5"])
    tool_loop_sync(TextToolProvider(model, format=case.format), registry, "What is 2 + 3?")
    assert [message.text for message in model.requests[1].messages[2:]] == [case.call, case.result]


@pytest.mark.anyio
async def test_a_call_in_thoughts_that_the_prompt_has_begun_is_not_run() -> None:
    text = f"I might.\n{CALL}\n</think>\nIt is five."
    generated = await TextToolProvider(ScriptedProvider([text])).generate(request())
    assert (generated.tool_calls, generated.text) == ((), text)
    _, last = await streamed(TextToolProvider(ScriptedProvider([text])), request())
    assert (last.tool_calls, last.text) == ((), text)


@pytest.mark.anyio
async def test_the_model_is_told_of_every_tool_after_the_system_prompt() -> None:
    model = ScriptedProvider(["Hello."])
    asked = ChatRequest(
        messages=[SystemMessage("Be brief."), UserMessage("Hi.")],
        tools=registry.definitions(),
        parallel_tool_calls=False,
        stop=("END",),
        temperature=0.5,
    )
    await TextToolProvider(model, format="react").generate(asked)
    (sent,) = model.requests
    prompt = sent.messages[0].text
    assert prompt.startswith("Be brief.\n\nYou can call these tools:\n")
    assert json.loads(prompt.splitlines()[4]) == {
        "name": "get_weather",
        "description": "Get the weather.",
        "parameters": get_weather.definition.parameters,
    }
    assert prompt.endswith("When no tool is needed, answer in plain text. Call one tool at a time.")
    assert (sent.tools, sent.tool_choice, sent.parallel_tool_calls) == (None, "auto", None)
    assert sent.stop == ("END", "\nObservation:")
    assert sent.temperature == 0.5


@pytest.mark.anyio
async def test_without_tools_a_reply_is_what_it_is() -> None:
    asked = ChatRequest(
        messages=[UserMessage("Hi."), AssistantMessage([ToolCall("1", "add", "{}")]), ToolResult("1", "x")]
    )
    for forbidden in (asked, ChatRequest(messages=asked.messages, tools=registry.definitions(), tool_choice="none")):
        model = ScriptedProvider([CALL], repeats=True)
        provider = TextToolProvider(model)
        response = await provider.generate(forbidden)
        assert (response.text, response.tool_calls) == (CALL, ())
        events, again = await streamed(provider, forbidden)
        assert "".join([event.text for event in events if isinstance(event, TextDelta)]) == CALL == again.text
        assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "user"]


@pytest.mark.anyio
async def test_an_unreadable_call_is_told_to_the_model_and_asked_again() -> None:
    model = ScriptedProvider([f"Let me see.\n{BROKEN}", CALL])
    response = await TextToolProvider(model).generate(request())
    assert [(call.id, call.name) for call in response.tool_calls] == [("call_1", "add")]
    assert response.text == ""
    assert response.stop_reason == "tool_use"
    assert response.usage.total_tokens == 30
    reply, told = model.requests[1].messages[-2:]
    assert reply == AssistantMessage(f"Let me see.\n{BROKEN}")
    assert told.text == (
        "Your call was not run: it could not be read. The call is cut off. Write all of it again. "
        "To call a tool, write a JSON object with its name and arguments between <tool_call> and </tool_call>. "
        "For example:\n"
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 1}}\n</tool_call>'
    )


@pytest.mark.anyio
async def test_nothing_of_a_reply_runs_in_which_one_call_is_unreadable() -> None:
    model = ScriptedProvider([f"{CALL}\n{BROKEN}", f"{CALL}\n{CALL}"])
    response = await TextToolProvider(model).generate(request())
    assert [call.id for call in response.tool_calls] == ["call_1", "call_2"]
    assert model.requests[1].messages[-1].text.startswith("None of your calls was run, because one could not be read.")


@pytest.mark.anyio
async def test_attempts_are_bounded_and_what_can_not_be_read_then_is_text() -> None:
    model = ScriptedProvider([BROKEN], repeats=True)
    response = await TextToolProvider(model, max_parsing_attempts=2).generate(request())
    assert len(model.requests) == 2
    assert (response.text, response.tool_calls, response.stop_reason) == (BROKEN, (), "end_turn")


@dataclass(frozen=True, slots=True)
class Choice:
    tool_choice: str
    replies: tuple[str, ...]
    calls: tuple[str, ...]
    requests: int
    text: str = ""


@pytest.mark.anyio
@pytest.mark.parametrize(
    "case",
    [
        Choice("required", ("5.", CALL), ("add",), 2),
        Choice("required", ("5.", "5.", "5."), (), 3, "5."),
        Choice("add", (CALL,), ("add",), 1),
        Choice("get_weather", (CALL, WEATHER_CALL), ("get_weather",), 2),
        Choice("get_weather", (CALL, CALL, CALL), (), 3, CALL.replace("{", "\n{", 1).replace("}}", "}}\n")),
    ],
    ids=lambda case: f"{case.tool_choice}-{case.requests}-{len(case.calls)}",
)
async def test_the_choice_of_tools_is_honoured(case: Choice) -> None:
    for is_streamed in (False, True):
        model = ScriptedProvider(case.replies)
        provider = TextToolProvider(model)
        asked = request(tool_choice=case.tool_choice)
        response = (await streamed(provider, asked))[1] if is_streamed else await provider.generate(asked)
        assert tuple([call.name for call in response.tool_calls]) == case.calls
        assert response.text == case.text
        assert len(model.requests) == case.requests
        assert "now." in model.requests[0].messages[0].text.rpartition("\n\n")[2]


@pytest.mark.anyio
async def test_a_choice_that_is_not_there_is_an_error() -> None:
    provider = TextToolProvider(ScriptedProvider(["x"]))
    with pytest.raises(ConfigurationError, match="tool_choice is 'subtract', but the request has: add, get_weather"):
        await provider.generate(request(tool_choice="subtract"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "replies",
    [
        [f"Let me see.\n{CALL}\n"],
        ["It is 5."],
        [f"{CALL}{CALL}"],
        [AssistantMessage([TextBlock("a <tool"), TextBlock(f"_call> b\n{CALL}")])],
        [BROKEN, BROKEN, f"x\n{BROKEN} y"],
        ["", CALL],
        [f"It is so: {CALL}", CALL],
        [f"Let me see:\n{CALL}", f"Sure. {CALL}", f"Sure.\n{CALL}"],
        [f"They write {CALL}", "No."],
        [f"They write {CALL}", BROKEN, CALL],
        [f"{CALL}\nOne moment.", f"{CALL}\nOne moment.", f"{CALL}\nOne moment."],
    ],
    ids=[
        *["prose", "text", "two", "blocks", "broken", "empty"],
        *["asked and meant", "asked twice", "asked and not meant", "asked and broken", "asked in vain"],
    ],
)
async def test_a_stream_says_what_generate_says(replies: list[ScriptedReply]) -> None:
    whole = await TextToolProvider(ScriptedProvider(replies)).generate(request())
    events, response = await streamed(TextToolProvider(ScriptedProvider(replies)), request())
    assert response == whole
    deltas = [event for event in events if isinstance(event, ArgumentsDelta)]
    assert [(delta.index, delta.call_id, delta.tool_name, delta.text) for delta in deltas] == [
        (index, call.id, call.name, call.arguments) for index, call in enumerate(whole.tool_calls)
    ]
    shown = "".join([event.text for event in events if isinstance(event, TextDelta)])
    assert shown.endswith(whole.text)


@pytest.mark.anyio
async def test_reasoning_passes_and_a_broken_stream_is_an_error() -> None:
    class Broken(ScriptedProvider):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
            yield ReasoningDelta("Hm.")
            yield TextDelta("It ")

    provider = TextToolProvider(Broken([]))
    events: list[StreamEvent] = []
    with pytest.raises(BadResponseError, match="ended without the whole response"):
        async for event in provider.stream(request()):
            events.append(event)
    assert events == [ReasoningDelta("Hm."), TextDelta("It")]


@pytest.mark.anyio
async def test_leaving_a_stream_closes_the_one_beneath() -> None:
    closed: list[str] = []

    class Watched(ScriptedProvider):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
            try:
                async with aclosing(super().stream(request)) as events:
                    async for event in events:
                        yield event
            finally:
                closed.append("closed")

    events = TextToolProvider(Watched(["one two three"])).stream(request())
    assert await anext(events) == TextDelta("one")
    await events.aclose()
    assert closed == ["closed"]


@pytest.mark.anyio
async def test_calls_that_the_provider_makes_itself_are_kept() -> None:
    reply = AssistantMessage([TextBlock("Hm."), ToolCall("native", "add", '{"a": 1, "b": 1}')])
    whole = await TextToolProvider(ScriptedProvider([reply])).generate(request())
    assert whole.message == reply
    assert (await streamed(TextToolProvider(ScriptedProvider([reply])), request()))[1] == whole


@pytest.mark.anyio
async def test_ids_are_new_and_the_same_each_time() -> None:
    earlier: list[Message] = [
        UserMessage("x"),
        AssistantMessage([ToolCall("call_2", "add", "{}"), ToolCall("other", "add", "{}")]),
        ToolResult("call_2", "0"),
        ToolResult("other", "0"),
    ]
    for _ in range(2):
        asked = ChatRequest(messages=earlier, tools=registry.definitions())
        response = await TextToolProvider(ScriptedProvider([f"{CALL}{CALL}"])).generate(asked)
        assert [call.id for call in response.tool_calls] == ["call_3", "call_4"]


def test_the_format_is_told_again_after_so_many_results() -> None:
    model = ScriptedProvider([CALL, CALL, CALL, CALL, "done"])
    provider = TextToolProvider(model, remember_format_after_usages=2)
    tool_loop_sync(provider, registry, "Go.")
    results = [message.text for message in model.requests[-1].messages[3::2]]
    assert ["To call a tool" in result for result in results] == [False, True, False, True]


@pytest.mark.parametrize(
    ("model", "attempts", "usages"),
    [
        *[("", 3, 3), ("gpt-4o-mini", 3, 3), ("openai:gpt-4o-mini", 3, 3), ("gpt-4o-mini-2024-07-18", 3, 3)],
        *[("gpt-4o", 2, 4), ("o3-mini", 2, 4), ("gpt-4o-2024-08-06", 2, 4), ("openai:gpt-4o", 2, 4)],
        *[("openai/gpt-4o:free", 2, 4), ("openai:o1-2024-12-17", 2, 4), ("gpt-4-0613", 2, 4), ("GPT-4o", 2, 4)],
        *[("gpt-4.1", 2, 4), ("gpt-5", 2, 4), ("openai:gpt-5.2", 2, 4), ("gpt-5-mini", 3, 3), ("gpt-4.1-nano", 3, 3)],
    ],
)
def test_defaults_suit_the_model(model: str, attempts: int, usages: int) -> None:
    provider = TextToolProvider(ScriptedProvider([]), model=model)
    assert (provider.max_parsing_attempts, provider.remember_format_after_usages) == (attempts, usages)
    given = TextToolProvider(ScriptedProvider([]), model=model, max_parsing_attempts=1, remember_format_after_usages=9)
    assert (given.max_parsing_attempts, given.remember_format_after_usages) == (1, 9)


def test_wrong_settings_are_errors_that_name_them() -> None:
    with pytest.raises(ConfigurationError, match="max_parsing_attempts must be 1 or more, not 0"):
        TextToolProvider(ScriptedProvider([]), max_parsing_attempts=0)
    with pytest.raises(ConfigurationError, match="no format 'yaml'; there are: auto, hermes, react"):
        TextToolProvider(ScriptedProvider([]), format="yaml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
async def test_pictures_in_results_reach_the_model_and_the_user_speaks_once_at_a_time() -> None:
    picture = ImageBlock(b"x")
    model = ScriptedProvider(["Nice."])
    asked = ChatRequest(
        messages=[
            UserMessage("Look."),
            AssistantMessage([ToolCall("1", "add", "{}"), ToolCall("2", "add", "{broken")]),
            ToolResult("1", (TextBlock("A picture"), picture), tool_name="add"),
            ToolResult("2", "wrong", tool_name="add", is_error=True),
            UserMessage("Well?"),
        ],
        tools=registry.definitions(),
    )
    await TextToolProvider(model, format="json").generate(asked)
    _, _, calls, told = model.requests[0].messages
    assert calls.text == '{"name": "add", "arguments": {}}\n{"name": "add", "arguments": {broken}'
    assert isinstance(told, UserMessage)
    assert told.content == (
        TextBlock("Result of add: A picture"),
        picture,
        TextBlock("Error of add: wrong"),
        TextBlock("Well?"),
    )


@pytest.mark.anyio
async def test_a_loop_repairs_and_validates_what_was_written_like_any_call() -> None:
    replies = [
        '<tool_call>{"name": "Add", "arguments": {"a": "2", "b": 3}}</tool_call>',
        '<tool_call>{"name": "subtract", "arguments": {}}</tool_call>',
        "5",
    ]
    result = await tool_loop(TextToolProvider(ScriptedProvider(replies)), registry, "What is 2 + 3?")
    results = [message for message in result.messages if isinstance(message, ToolResult)]
    assert [(found.text, found.is_error) for found in results] == [
        ("5", False),
        ("Unknown tool: subtract. Available tools: add, get_weather.", True),
    ]
    assert result.usage == Usage(input_tokens=30, output_tokens=15)
