"""An answer of a type: asked for, checked, asked for again."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from toolkit import (
    ChatRequest,
    Complete,
    ConfigurationError,
    ResultAsAnswer,
    SchemaError,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    tool,
    tool_loop,
    validate_transcript,
)
from toolkit.testing import ScriptedProvider

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
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(output_type=Person))
    assert result.output == Person(name="Ada", age=36)
    assert result.reason == ResultAsAnswer("a", "final_answer")
    assert [definition.name for definition in provider.requests[0].tools or ()] == ["look", "final_answer"]
    assert TOOLS.names == ("look",)
    validate_transcript(result.messages)


async def test_a_wrong_answer_is_refused_and_asked_for_again() -> None:
    provider = ScriptedProvider([answer('{"name": "Ada"}'), answer('{"name": "Ada", "age": 36}', "b")])
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(output_type=Person))
    assert result.output == Person(name="Ada", age=36)
    assert "answer.age: required, but missing" in result.messages[2].text


async def test_an_answer_in_words_is_asked_for_as_a_call_a_few_times() -> None:
    provider = ScriptedProvider(["Ada, 36."], repeats=True)
    result = await tool_loop(provider, TOOLS, "Who?", config=ToolLoopConfig(output_type=Person, max_output_retries=2))
    assert (result.output, result.reason, result.iterations) == (None, Complete(), 3)
    assert result.messages[2].text == "Give your answer by calling the tool final_answer."


async def test_the_provider_can_be_asked_to_hold_to_the_type() -> None:
    provider = ScriptedProvider(
        ["so", '{"answer": {"name": "Ada"}}', '```json\n{"answer": {"name": "Ada", "age": 36}}\n```']
    )
    config = ToolLoopConfig(output_type=Person, output_mode="native")
    result = await tool_loop(provider, TOOLS, "Who?", config=config)
    assert result.output == Person(name="Ada", age=36)
    assert result.reason == Complete()
    assert provider.requests[0].response_format is not None
    assert [definition.name for definition in provider.requests[0].tools or ()] == ["look"]
    assert result.messages[2].text.startswith("That answer can't be used.")
    assert "answer.age: required, but missing" in result.messages[4].text


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [(int, "7", 7), (list[Point], '[{"x": 1}]', [Point(1)]), (str, '"yes"', "yes"), (bool, "true", True)],
)
async def test_any_type_can_be_asked_for(kind: Any, text: str, expected: object) -> None:
    result = await tool_loop(ScriptedProvider([answer(text)]), TOOLS, "?", config=ToolLoopConfig(output_type=kind))
    assert result.output == expected


async def test_what_is_no_type_that_json_can_carry_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(SchemaError, match=r"^output_type: JSON can't carry its type 3: take a dataclass"):
        await tool_loop(ScriptedProvider([]), ToolRegistry(), "go", config=ToolLoopConfig(output_type=wrong))


async def test_a_tool_of_the_same_name_is_refused() -> None:
    @tool
    async def final_answer() -> str:
        return ""

    with pytest.raises(ConfigurationError, match="rename it, or use output_mode='native'"):
        await tool_loop(
            ScriptedProvider(["x"]), ToolRegistry([final_answer]), "?", config=ToolLoopConfig(output_type=int)
        )


async def test_the_callers_own_response_format_stays_without_an_output_type() -> None:
    provider = ScriptedProvider(["x"])
    await tool_loop(provider, TOOLS, ChatRequest(messages=[], temperature=0.1))
    assert provider.requests[0].response_format is None
