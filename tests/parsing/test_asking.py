"""Whole calls that stand where no call may stand: the model is asked, at most twice in a run; and native tools."""

import json

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
)
from toolkit.chat import (
    ArgumentsDelta,
    ChatResponse,
    Message,
    ResponseDone,
    StreamEvent,
    TextBlock,
    TextDelta,
    validate_transcript,
)
from toolkit.endings import Complete
from toolkit.errors import ConfigurationError
from toolkit.parsing import TextToolProvider, ToolOffer
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"a {place}"


registry = ToolRegistry([add, look])
CALL = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
LOOK = '<tool_call>{"name": "look", "arguments": {"place": "tree"}}</tool_call>'
QUESTION = "Nothing was called. If you meant to call add, reply with that call alone. Otherwise reply with one word."
every_offer = pytest.mark.parametrize("offer", ["prompt", "native"])


def request(*messages: Message) -> ChatRequest:
    return ChatRequest(messages=messages or [UserMessage("What is 2 + 3?")], tools=registry.definitions())


async def answers_of(
    replies: list[ScriptedReply], offer: ToolOffer = "prompt"
) -> tuple[ChatResponse, ScriptedProvider]:
    """Return what `generate` gives, which is what `stream` gives, and the provider."""
    model = ScriptedProvider(replies)
    response = await TextToolProvider(model, tools=offer).generate(request())
    events: list[StreamEvent] = [
        event async for event in TextToolProvider(ScriptedProvider(replies), tools=offer).stream(request())
    ]
    done = events[-1]
    assert isinstance(done, ResponseDone)
    assert done.response == response
    assert "".join([event.text for event in events if isinstance(event, TextDelta)]) == response.text
    assert "".join([event.text for event in events if isinstance(event, ArgumentsDelta)]) == "".join(
        [call.arguments for call in response.tool_calls]
    )
    return response, model


@every_offer
async def test_a_call_that_was_meant_is_added_to_the_text_that_stands(offer: ToolOffer) -> None:
    response, model = await answers_of([f"I add: {CALL}", CALL], offer)
    assert response.text == f"I add: {CALL}"
    assert [(call.id, call.name, json.loads(call.arguments)) for call in response.tool_calls] == [
        ("call_1", "add", {"a": 2, "b": 3})
    ]
    assert response.stop_reason == "tool_use"
    assert response.usage.total_tokens == 30
    reply, question = model.requests[1].messages[-2:]
    assert (reply, question.text) == (AssistantMessage(f"I add: {CALL}"), QUESTION)


@every_offer
@pytest.mark.parametrize("answer", ["No.", "", "I only showed it.", "<tool_call>"])
async def test_a_call_that_was_not_meant_stays_text(offer: ToolOffer, answer: str) -> None:
    broken = 2 if answer == "<tool_call>" else 0  # a broken call is sent back as often as any other
    response, _ = await answers_of([f"They write: {CALL}", answer, *[answer] * broken], offer)
    assert (response.text, response.tool_calls, response.unanswered) == (f"They write: {CALL}", (), ())
    assert response.stop_reason == "end_turn"


async def test_several_calls_are_asked_about_by_their_names() -> None:
    response, model = await answers_of([f"- {CALL}\n- {LOOK}", f"{CALL}\n{LOOK}"])
    assert [call.name for call in response.tool_calls] == ["add", "look"]
    assert "If you meant to call add and look, reply with those calls alone." in model.requests[1].messages[-1].text


async def test_nothing_runs_before_it_is_clear_which_calls_were_meant() -> None:
    reply = f"First {LOOK}, then:\n\nI add.\n{CALL}"
    response, model = await answers_of([reply, f"{LOOK}\n{CALL}"])
    assert [call.name for call in response.tool_calls] == ["look", "add"]
    assert "look and add" in model.requests[1].messages[-1].text
    response, _ = await answers_of([reply, "No."])
    assert [call.name for call in response.tool_calls] == ["add"]  # that one stands where a call may stand


@every_offer
async def test_a_native_call_wins(offer: ToolOffer) -> None:
    native = ToolCall("native", "look", '{"place": "sea"}')
    response, model = await answers_of([AssistantMessage([TextBlock(f"Hm. {CALL}"), native])], offer)
    assert (response.tool_calls, len(model.requests)) == ((native,), 1)
    response, _ = await answers_of([f"Hm: {CALL}", AssistantMessage([native])], offer)
    assert (response.text, response.tool_calls) == (f"Hm: {CALL}", (native,))


async def test_a_run_asks_at_most_twice() -> None:
    model = ScriptedProvider(
        [
            *[f"I add: {CALL}", CALL],  # asked once
            *[f"I look: {LOOK}", LOOK],  # and once more
            f"I add: {CALL.replace('2', '4')}",  # and not again
        ]
    )
    result = await tool_loop(TextToolProvider(model), registry, "Go.")
    assert (result.text, result.reason) == (f"I add: {CALL.replace('2', '4')}", Complete())
    assert [message.text for message in result.messages if isinstance(message, ToolResult)] == ["5", "a tree"]
    validate_transcript(result.messages)
    # The next run may ask again.
    model = ScriptedProvider([f"I add: {CALL.replace('2', '6')}", CALL.replace("2", "6"), "9"])
    result = await tool_loop(TextToolProvider(model), registry, [*result.messages, UserMessage("And 6?")])
    assert (result.text, len(model.requests)) == ("9", 3)


async def test_a_reply_is_asked_about_twice_and_stands_then() -> None:
    response, model = await answers_of([f"I add: {CALL}", f"Sure: {CALL}", f"Here: {CALL}"])
    assert (response.text, response.tool_calls) == (f"I add: {CALL}", ())
    assert len(model.requests) == 3


async def test_what_was_done_or_given_is_not_asked_about() -> None:
    done: list[Message] = [
        UserMessage("Add."),
        AssistantMessage([ToolCall("call_1", "add", '{"b": 3, "a": 2}')]),
        ToolResult("call_1", "5", tool_name="add"),
    ]
    given: list[list[Message]] = [
        done,
        [UserMessage(f"What is {CALL}?")],
        [SystemMessage(f"Write calls so: {CALL}"), UserMessage("Hi.")],
    ]
    for messages in given:
        model = ScriptedProvider([f"I wrote {CALL} for it."])
        response = await TextToolProvider(model).generate(request(*messages))
        assert (response.text, response.tool_calls) == (f"I wrote {CALL} for it.", ())


async def test_with_native_tools_a_request_is_sent_as_it_is_and_its_text_is_read() -> None:
    model = ScriptedProvider([f"I add.\n{CALL}", "5"])
    result = await tool_loop(TextToolProvider(model, tools="native"), registry, "What is 2 + 3?")
    assert result.text == "5"
    first, second = model.requests
    assert list(first.messages) == [UserMessage("What is 2 + 3?")]
    assert [tool.name for tool in first.tools or ()] == ["add", "look"]
    # The next request has the call as a native one.
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[1] == AssistantMessage([TextBlock("I add."), ToolCall("call_1", "add", '{"a": 2, "b": 3}')])


async def test_with_native_tools_only_the_format_of_the_model_is_read() -> None:
    for model_name, called in (("mistral-small", ()), ("qwen3:8b", ("add",))):
        model = ScriptedProvider([CALL])
        provider = TextToolProvider(model, model=model_name, tools="native")
        response = await provider.generate(request())
        assert tuple([call.name for call in response.tool_calls]) == called
        assert (len(model.requests), response.unanswered) == (1, ())


async def test_with_native_tools_a_broken_call_is_sent_back_without_a_lesson() -> None:
    response, model = await answers_of(["<tool_call>{", CALL], "native")
    assert [call.name for call in response.tool_calls] == ["add"]
    assert model.requests[1].messages[-1].text == (
        "Your call was not run: it could not be read. The call is cut off. Write all of it again."
    )


async def test_a_way_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="must be 'prompt' or 'native', not 'both'"):
        TextToolProvider(ScriptedProvider([]), tools="both")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
