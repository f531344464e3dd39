"""What a small model is asked, step by step: pure functions, no model."""

from typing import Any

import pytest

from toolkit import AssistantMessage, ChatRequest, ConfigurationError, Message, ToolCall, ToolResult, UserMessage
from toolkit.chat import ChatResponse, ResponseFormat, ToolDefinition
from toolkit.providers.local.calling import (
    answer_request,
    arguments_request,
    choice_request,
    chosen_tool,
    offered_tools,
)


def definition(name: str, **properties: Any) -> ToolDefinition:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name=name, description=f"Do {name}.", parameters=parameters)


ADD = definition("add", a={"type": "integer", "description": "The first."}, b={"type": "integer"})
SEARCH = definition("search", query={"type": "string", "pattern": "^a"}, order={"enum": ["old", "new"]})
TOOLS = (ADD, SEARCH)
ASKED: tuple[Message, ...] = (UserMessage("What is 1 plus 2?"),)
CALLED = (*ASKED, AssistantMessage([ToolCall("1", "add", '{"a": 1, "b": 2}')]))


def request(messages: tuple[Message, ...] = ASKED, **settings: Any) -> ChatRequest:
    return ChatRequest(messages=messages, tools=TOOLS, **settings)


def test_after_results_nothing_may_be_called_unless_it_must() -> None:
    done = (*CALLED, ToolResult("1", "3"))
    assert offered_tools(request()) == TOOLS
    assert offered_tools(request(done)) == ()
    assert offered_tools(request(tool_choice="none")) == ()
    assert offered_tools(request(done, tool_choice="required")) == TOOLS
    assert offered_tools(request(done, tool_choice="search")) == (SEARCH,)


def test_a_tool_choice_that_is_no_tool_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="add, search"):
        offered_tools(request(tool_choice="ad"))
    with pytest.raises(ConfigurationError, match="no tools"):
        offered_tools(ChatRequest(messages=ASKED, tool_choice="required"))


def test_the_descriptions_are_examples_of_requests() -> None:
    step = choice_request(request(), TOOLS)
    assert step.messages == [
        UserMessage("Do add."),
        AssistantMessage('{"tool": "add"}'),
        UserMessage("Hello!"),
        AssistantMessage('{"tool": "answer"}'),
        UserMessage("Do search."),
        AssistantMessage('{"tool": "search"}'),
        UserMessage("What is 1 plus 2?"),
    ]
    assert step.tools is None
    assert step.response_format is not None
    assert step.response_format.schema["properties"] == {"tool": {"enum": ["add", "answer", "search"]}}


def test_who_must_call_has_no_answer_to_choose() -> None:
    step = choice_request(request(tool_choice="required"), TOOLS)
    assert step.response_format is not None
    assert step.response_format.schema["properties"] == {"tool": {"enum": ["add", "search"]}}


@pytest.mark.parametrize(
    ("reply", "tool"),
    [('{"tool": "add"}', ADD), ('{\n  "tool": "search"\n}', SEARCH), ('{"tool": "answer"}', None), ("", None)],
)
def test_the_choice_is_read_from_the_reply(reply: str, tool: ToolDefinition | None) -> None:
    assert chosen_tool(ChatResponse(message=AssistantMessage(reply)), TOOLS) == tool


def test_arguments_are_held_to_the_shape_of_the_schema_without_what_the_engine_fails_on() -> None:
    step = arguments_request(request(), SEARCH)
    assert step.messages[0].text == (
        "Fill in the arguments of search from the words of the request. Do search. The arguments:\n"
        "- query (string)\n- order (old or new)\nReply with JSON.\n\nRequest: What is 1 plus 2?"
    )
    assert step.response_format is not None
    assert step.response_format.schema == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "order": {"enum": ["old", "new"]}},
        "required": ["query", "order"],
    }


def test_a_property_named_like_a_keyword_stays() -> None:
    tool = definition("f", pattern={"type": "string"}, title={"type": "string", "title": "Title"})
    step = arguments_request(request(), tool)
    assert step.response_format is not None
    assert step.response_format.schema["properties"] == {"pattern": {"type": "string"}, "title": {"type": "string"}}


def test_what_was_said_before_is_told_with_the_request() -> None:
    step = arguments_request(request((UserMessage("I am in Oslo."), AssistantMessage("Nice."), *ASKED)), ADD)
    assert "Before that:\nI am in Oslo.\nNice.\n\nRequest: What is 1 plus 2?" in step.messages[0].text


def test_a_short_result_is_quoted() -> None:
    step = answer_request(request((*CALLED, ToolResult("1", 'say "3".'))))
    assert step.messages[0].text == ('What is 1 plus 2?\n\nThe answer is: say "3".\n\nSay the answer in a sentence.')
    assert step.options["grammar"].endswith('"say \\"3\\"" "."?')


@pytest.mark.parametrize("text", ["two\nlines", "x" * 300, ""])
def test_other_results_are_told_freely(text: str) -> None:
    assert "grammar" not in answer_request(request((*CALLED, ToolResult("1", text)))).options


def test_a_format_that_was_asked_for_is_kept() -> None:
    wanted = ResponseFormat({"type": "object"})
    step = answer_request(request((*CALLED, ToolResult("1", "3")), response_format=wanted))
    assert step.response_format == wanted
    assert "grammar" not in step.options


def test_a_failure_is_told_as_one() -> None:
    step = answer_request(request((*CALLED, ToolResult("1", "no such city", is_error=True))))
    assert "That failed: no such city" in step.messages[0].text


def test_an_old_call_is_told_as_text() -> None:
    step = answer_request(request((*CALLED, ToolResult("1", "3", tool_name="add"), UserMessage("Thanks."))))
    assert [message.text for message in step.messages] == [
        "What is 1 plus 2?",
        'add({"a": 1, "b": 2})',
        "Result of add: 3",
        "Thanks.",
    ]
