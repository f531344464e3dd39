"""An answer of a type: asked for, checked, asked for again."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from toolkit import (
    AnswerFormat,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Permissions,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolRegistry,
    ToolResult,
    UserMessage,
    allow,
    deny,
    tool,
    tool_loop,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import validate_transcript
from toolkit.endings import NoValidAnswer, ResultAsAnswer, TypedAnswer
from toolkit.errors import LoopUsageError, SchemaError
from toolkit.policies import ResultStore
from toolkit.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


class Person(BaseModel):
    name: str
    age: int


@dataclass
class Point:
    x: float


@tool
async def look(name: str) -> str:
    """Look somebody up."""
    return f"{name} is 36"


TOOLS = ToolRegistry([look])


def answer(text: str, call_id: str = "a") -> ToolCall:
    return ToolCall(call_id, "final_answer", f'{{"answer": {text}}}')


async def test_the_model_answers_by_calling_a_tool() -> None:
    provider = ScriptedProvider([ToolCall("1", "look", '{"name": "Ada"}'), answer('{"name": "Ada", "age": 36}')])
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(answer=AnswerFormat(Person)))
    assert result.output == Person(name="Ada", age=36)
    assert result.reason == TypedAnswer()
    assert result.require_output() == Person(name="Ada", age=36)
    assert [definition.name for definition in provider.requests[0].tools or ()] == ["look", "final_answer"]
    assert TOOLS.names == ("look",)
    validate_transcript(result.messages)


async def test_a_wrong_answer_is_refused_and_asked_for_again() -> None:
    provider = ScriptedProvider([answer('{"name": "Ada"}'), answer('{"name": "Ada", "age": 36}', "b")])
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(answer=AnswerFormat(Person)))
    assert result.output == Person(name="Ada", age=36)
    assert "answer.age: required, but missing" in result.messages[2].text


async def test_an_answer_in_words_is_asked_for_as_a_call_a_few_times() -> None:
    provider = ScriptedProvider(["Ada, 36."], repeats=True)
    result = await tool_loop(
        provider,
        TOOLS,
        "Who?",
        config=ToolLoopConfig(
            answer=AnswerFormat(Person, max_retries=2),
        ),
    )
    assert (result.output, result.reason, result.iterations) == (None, NoValidAnswer(result.messages[2].text), 3)
    with pytest.raises(LoopUsageError, match="NoValidAnswer") as failure:
        result.require_output()
    assert failure.value.messages == tuple(result.messages)
    assert result.messages[2].text == "Give your answer by calling the tool final_answer."


async def test_the_provider_can_be_asked_to_hold_to_the_type() -> None:
    provider = ScriptedProvider(["so", '{"name": "Ada"}', '```json\n{"name": "Ada", "age": 36}\n```'])
    config = ToolLoopConfig(
        answer=AnswerFormat(Person, mode="native"),
    )
    result = await tool_loop(provider, TOOLS, "Who?", config=config)
    assert result.output == Person(name="Ada", age=36)
    assert result.reason == TypedAnswer()
    held_to = provider.requests[0].response_format
    assert held_to is not None
    assert list(held_to.schema["properties"]) == ["name", "age"]
    assert [definition.name for definition in provider.requests[0].tools or ()] == ["look"]
    assert result.messages[2].text.startswith("That answer can't be used.")
    assert "\n- age: required, but missing" in result.messages[4].text
    assert 'for example with: {"name": "Ada", "age": 1}' in result.messages[4].text
    for message in result.messages[2:6:2]:
        assert "argument" not in message.text
        assert "call" not in message.text.lower()


@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("wrong", ['{"answer": {}}', "{}", "not JSON", '{"answer": 3}'])
async def test_wrong_calls_of_the_answers_tool_are_asked_for_again_as_often_as_allowed(
    wrong: str, retries: int
) -> None:
    calls = [ToolCall(str(number), "final_answer", wrong) for number in range(50)]
    config = ToolLoopConfig(answer=AnswerFormat(Person, max_retries=retries), max_iterations=100)
    provider = ScriptedProvider(calls)
    result = await tool_loop(provider, TOOLS, "Who?", config=config)
    assert isinstance(result.reason, NoValidAnswer)
    assert result.reason.problem == result.messages[-1].text
    assert (len(provider.requests), result.output) == (retries + 1, None)
    validate_transcript(result.messages)


async def test_wrong_calls_and_answers_in_words_count_together() -> None:
    provider = ScriptedProvider([answer("3"), "Ada", answer("4", "b"), answer("5", "c")])
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(answer=AnswerFormat(Person)))
    assert isinstance(result.reason, NoValidAnswer)
    assert len(provider.requests) == 3


async def test_turns_with_other_tools_do_not_count() -> None:
    looks: list[ScriptedReply] = [ToolCall(str(turn), "look", '{"name": "Ada"}') for turn in range(5)]
    provider = ScriptedProvider([*looks, answer('{"name": "Ada", "age": 36}')])
    config = ToolLoopConfig(
        answer=AnswerFormat(Person, max_retries=0),
    )
    result = await tool_loop(provider, TOOLS, "Who?", config=config)
    assert result.require_output() == Person(name="Ada", age=36)


async def test_a_right_answer_beside_a_wrong_one_is_the_answer() -> None:
    both = AssistantMessage([answer("3"), answer('{"name": "Ada", "age": 36}', "b")])
    config = ToolLoopConfig(
        answer=AnswerFormat(Person, max_retries=0),
    )
    result = await tool_loop(ScriptedProvider([both]), TOOLS, "Who?", config=config)
    assert result.require_output() == Person(name="Ada", age=36)
    assert result.text == '{"name":"Ada","age":36}'


@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_the_count_of_wrong_answers_and_the_answer_itself_survive_saving(mode: Any) -> None:
    config = ToolLoopConfig(
        answer=AnswerFormat(Person, mode=mode, max_retries=1),
    )
    wrong: Any = answer("3") if mode == "tool" else "so"
    right: Any = answer('{"name": "Ada", "age": 36}', "b") if mode == "tool" else '{"name": "A", "age": 1}'
    for last in (right, wrong):
        handle = ToolLoopHandle(ScriptedProvider([wrong, last]), TOOLS, "Who?", config=config)
        provider = ScriptedProvider([last])
        if mode == "tool":
            await handle.next_turn()
            handle = ToolLoopHandle.restore(handle.snapshot(), provider, TOOLS, ctx=None, config=config)
        result = await handle.run()
        assert isinstance(result.reason, TypedAnswer if last is right else NoValidAnswer)
        again = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), TOOLS, ctx=None, config=config)
        assert again.result.reason == result.reason
        assert again.result.output == result.output
        assert again.result.text == result.text


async def test_a_result_that_is_the_answer_of_another_tool_is_no_answer_of_the_type() -> None:
    @tool(result_as_answer=True)
    async def hand_over() -> str:
        return "over"

    provider = ScriptedProvider([ToolCall("1", "hand_over", "{}")])
    result = await tool_loop(provider, ToolRegistry([hand_over]), "?", config=ToolLoopConfig(answer=AnswerFormat(int)))
    assert (result.reason, result.text, result.output) == (ResultAsAnswer("1", "hand_over"), "over", None)
    with pytest.raises(LoopUsageError):
        result.require_output()


async def test_nothing_can_be_an_answer() -> None:
    config = ToolLoopConfig(answer=AnswerFormat(int | None))
    result = await tool_loop(ScriptedProvider([answer("null")]), TOOLS, "?", config=config)
    assert (result.reason, result.require_output()) == (TypedAnswer(), None)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (int | str, "7", 7),
        (Literal["yes", "no"], '"no"', "no"),
        (int, "7", 7),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (str, '"yes"', "yes"),
        (bool, "true", True),
    ],
)
async def test_any_type_can_be_asked_for(kind: Any, text: str, expected: object) -> None:
    result = await tool_loop(
        ScriptedProvider([answer(text)]), TOOLS, "?", config=ToolLoopConfig(answer=AnswerFormat(kind))
    )
    assert result.output == expected


async def test_what_is_no_type_that_json_can_carry_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(SchemaError, match=r"^the type of AnswerFormat: JSON can't carry its type 3: take a dataclass"):
        await tool_loop(ScriptedProvider([]), ToolRegistry(), "go", config=ToolLoopConfig(answer=AnswerFormat(wrong)))


async def test_a_tool_of_the_same_name_is_refused() -> None:
    @tool
    async def final_answer() -> str:
        return ""

    with pytest.raises(ConfigurationError, match=r"rename it, or use AnswerFormat\(\.\.\., mode='native'\)"):
        await tool_loop(
            ScriptedProvider(["x"]), ToolRegistry([final_answer]), "?", config=ToolLoopConfig(answer=AnswerFormat(int))
        )


async def test_the_callers_own_response_format_stays_without_an_output_type() -> None:
    provider = ScriptedProvider(["x"])
    await tool_loop(provider, TOOLS, ChatRequest(messages=[UserMessage("?")], temperature=0.1))
    assert provider.requests[0].response_format is None


@pytest.mark.parametrize("is_inside", [False, True], ids=["own rules", "the rules of a caller"])
@pytest.mark.parametrize("is_denied", [False, True], ids=["by default", "by a rule"])
async def test_what_a_loop_offers_by_itself_need_not_be_allowed_but_may_be_denied(
    is_inside: bool, is_denied: bool
) -> None:
    rules = [allow("asker"), allow("long_text"), *([deny("final_answer"), deny("read_result")] if is_denied else [])]
    permissions = Permissions(rules, default="deny")

    @tool
    async def long_text() -> str:
        """Give a long text."""
        return "long " * 10_000

    asked = ScriptedProvider(
        [
            ToolCall("a", "long_text", "{}"),
            ToolCall("b", "read_result", f'{{"id": "{ResultStore().put("long " * 10_000)}"}}'),
            ToolCall("c", "final_answer", '{"answer": 5}'),
        ]
    )
    config = ToolLoopConfig(
        answer=AnswerFormat(int, max_retries=0),
    )
    if is_inside:
        agent = sub_agent_tool("asker", "Asks.", asked, ToolRegistry([long_text]), config=config)
        outer = ScriptedProvider([ToolCall("1", "asker", '{"task": "Ask."}'), "Done."])
        result = await tool_loop(outer, ToolRegistry([agent], permissions=permissions), "Go")
        assert [message.text == "5" for message in result.messages if message.role == "tool"] == [not is_denied]
        return
    registry = ToolRegistry([long_text], permissions=permissions)
    answer = await tool_loop(asked, registry, "Go", config=config)
    assert (answer.output, isinstance(answer.reason, NoValidAnswer)) == (None if is_denied else 5, is_denied)
    read = next(message for message in answer.messages if isinstance(message, ToolResult) and message.call_id == "b")
    assert read.is_error is is_denied


async def test_an_answer_without_a_type_is_the_text_of_a_call_and_no_reply_in_words() -> None:
    provider = ScriptedProvider(["I will look.", ToolCall("1", "look", '{"name": "Ada"}'), answer('"She is 36."')])
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(answer=AnswerFormat()))
    assert (result.text, result.output, result.reason) == ("She is 36.", None, ResultAsAnswer("a", "final_answer"))
    assert [each.tool_choice for each in provider.requests] == ["auto"] * 3
    validate_transcript(result.messages)


async def test_an_answer_without_a_type_never_comes_where_the_model_writes_words_alone() -> None:
    provider = ScriptedProvider(["It is 36."], repeats=True)
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(answer=AnswerFormat(max_retries=1)))
    assert (result.reason, len(provider.requests)) == (
        NoValidAnswer("Give your answer by calling the tool final_answer."),
        2,
    )


@pytest.mark.parametrize("kind", [None, int])
async def test_each_request_can_be_forced_to_a_call(kind: Any) -> None:
    provider = ScriptedProvider([ToolCall("1", "look", '{"name": "Ada"}'), answer("36" if kind else '"36"')])
    config = ToolLoopConfig(answer=AnswerFormat(kind, forces_calls=True))
    result = await tool_loop(provider, TOOLS, "Who?", config=config)
    assert [each.tool_choice for each in provider.requests] == ["required"] * 2
    assert result.text == "36"


@pytest.mark.parametrize("settings", [{"mode": "native"}, {"type": int, "mode": "native", "forces_calls": True}])
def test_a_native_answer_needs_a_type_and_no_calls(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"use AnswerFormat\(mode='tool'\)"):
        AnswerFormat(**settings)
