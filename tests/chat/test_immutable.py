"""What was said stays said: messages, calls, results, requests and answers never change once they are made."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import pytest

from toolkit import AssistantMessage, ChatRequest, SystemMessage, ToolCall, ToolResult, Usage, UserMessage
from toolkit.chat import ChatResponse, ImageBlock, Message, ReasoningBlock, TextBlock, ToolDefinition

CALL = ToolCall("a", "look", "{}", extra={"kept": 1})
SAID: list[object] = [
    SystemMessage("s"),
    UserMessage("u"),
    AssistantMessage([TextBlock("t"), CALL]),
    ToolResult("a", "r", tool_name="look", details={"own": 1}),
    CALL,
    TextBlock("t"),
    ImageBlock(b"i"),
    ReasoningBlock(text="hm"),
    Usage(input_tokens=1),
    ChatRequest(messages=()),
    ChatResponse(message=AssistantMessage("x")),
    ToolDefinition(name="look", description="", parameters={"type": "object"}),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_no_field_can_be_set(said: Any) -> None:
    assert is_dataclass(said)
    for field in fields(said):
        with pytest.raises(AttributeError):
            setattr(said, field.name, None)


MAKERS: list[Callable[[Any], Message]] = [UserMessage, AssistantMessage, partial(ToolResult, "a")]


@pytest.mark.parametrize("make", MAKERS, ids=["user", "assistant", "result"])
def test_the_list_that_a_message_was_made_of_is_not_the_messages(make: Callable[[Any], Message]) -> None:
    blocks = [TextBlock("before")]
    message = make(blocks)
    blocks.append(TextBlock("after"))
    assert message.content == (TextBlock("before"),)


def test_adding_usages_changes_neither() -> None:
    one, other = Usage(input_tokens=1, cost=0.5), Usage(output_tokens=2, cost=1.5, details={"web_searches": 1})
    assert one + other == Usage(input_tokens=1, output_tokens=2, cost=2.0, details={"web_searches": 1})
    assert one == Usage(input_tokens=1, cost=0.5)
    assert other == Usage(output_tokens=2, cost=1.5, details={"web_searches": 1})


def test_a_sum_has_no_cost_where_a_part_of_it_is_not_known() -> None:
    known, unknown = Usage(input_tokens=1, cost=0.5), Usage(output_tokens=2)
    assert (known + unknown).cost is None
    assert (known + Usage()).cost == 0.5
