"""Messages and requests as chat completions say them; the SDK's own types judge the result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Message,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from toolkit.chat import AudioBlock, FileBlock, ImageBlock, ReasoningBlock, ResponseFormat, TextBlock, ToolDefinition
from toolkit.providers.openai.chat import ChatEncoder, encode_chat_message, encode_chat_tool
from toolkit.providers.servers import OPENAI_CHAT

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", description="Get the weather.", parameters=PARAMETERS)
TIME = ToolDefinition(name="get_time", description="Get the time.", parameters=PARAMETERS)


def encoded(request: ChatRequest, *, streams: bool = False, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    encoder = ChatEncoder(model="test-1", defaults=defaults or {})
    body = encoder.encode(request, streams=streams)
    assert encoder.encode(request, streams=streams) == body, "what is kept is the same"
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = encoded(ChatRequest(messages=messages))["messages"]
    return wire


def is_what_the_sdk_takes(wire: Sequence[dict[str, Any]]) -> bool:
    TypeAdapter[Any](list[ChatCompletionMessageParam]).validate_python(list(wire), strict=False)
    return True


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    wire: dict[str, Any]


CASES = [
    Case("system", SystemMessage("Be brief."), {"role": "system", "content": "Be brief."}),
    Case("user text", UserMessage("Hi"), {"role": "user", "content": "Hi"}),
    Case(
        "user text blocks",
        UserMessage((TextBlock("a"), TextBlock("b"))),
        {"role": "user", "content": "a\nb"},
    ),
    Case(
        "user with everything",
        UserMessage(
            (
                TextBlock("Look"),
                ImageBlock(b"png"),
                ImageBlock(url="https://example.com/a.png"),
                AudioBlock(b"wav"),
                AudioBlock(b"mp3", media_type="audio/mpeg"),
                FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
                FileBlock(b"x,y", name="a.csv", media_type="text/csv"),
                FileBlock(url="https://example.com/b.pdf", name="b.pdf"),
            )
        ),
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}},
                {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
                {"type": "text", "text": "[file a.csv]\nx,y"},
                {"type": "text", "text": "[file b.pdf: https://example.com/b.pdf]"},
            ],
        },
    ),
    Case("assistant text", AssistantMessage("Hello."), {"role": "assistant", "content": "Hello."}),
    Case("empty assistant", AssistantMessage(), {"role": "assistant", "content": ""}),
    Case(
        "assistant call",
        AssistantMessage([ToolCall("1", "get_weather", '{"city": "Oslo"}')]),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
    ),
    Case(
        "assistant with reasoning and a thought signature",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm."),
                TextBlock("Let me see."),
                ToolCall("1", "get_time", "", extra={"extra_content": {"google": {"thought_signature": "s"}}}),
            ]
        ),
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "extra_content": {"google": {"thought_signature": "s"}},
                    "id": "1",
                    "type": "function",
                    "function": {"name": "get_time", "arguments": "{}"},
                }
            ],
        },
    ),
    Case("assistant image", AssistantMessage([ImageBlock(b"png")]), {"role": "assistant", "content": "[image]"}),
    Case(
        "malformed arguments stay readable and become JSON",
        AssistantMessage([ToolCall("1", "get_time", '{"city": ')]),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "get_time", "arguments": '{"malformed_arguments": "{\\"city\\": "}'},
                }
            ],
        },
    ),
    Case("result", ToolResult("1", "sunny"), {"role": "tool", "tool_call_id": "1", "content": "sunny"}),
    Case(
        "error result",
        ToolResult("1", "no such city", is_error=True),
        {"role": "tool", "tool_call_id": "1", "content": "Error: no such city"},
    ),
    Case(
        "error result that says so itself",
        ToolResult("1", "Error: no such city", is_error=True),
        {"role": "tool", "tool_call_id": "1", "content": "Error: no such city"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_message_is_encoded_as_the_sdk_takes_it(case: Case) -> None:
    wire = encode_chat_message(case.message).wire
    assert wire == case.wire
    assert is_what_the_sdk_takes([wire])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_message_is_encoded_the_same_again(case: Case) -> None:
    assert encode_chat_message(case.message) == encode_chat_message(case.message)


def test_reasoning_is_left_out_where_the_server_refuses_it() -> None:
    message = AssistantMessage([ReasoningBlock(text="Hm."), TextBlock("Hi.")])
    assert encode_chat_message(message, dialect=OPENAI_CHAT).wire == {"role": "assistant", "content": "Hi."}


def test_images_of_results_follow_the_last_result_of_the_turn() -> None:
    wire = encode_messages(
        [
            UserMessage("Draw two."),
            AssistantMessage([ToolCall("1", "draw", "{}"), ToolCall("2", "draw", "{}")]),
            ToolResult("1", (TextBlock("done"), ImageBlock(b"one")), tool_name="draw"),
            ToolResult("2", (ImageBlock(b"two"),), tool_name="draw"),
            AssistantMessage("There."),
        ]
    )
    assert [message["role"] for message in wire] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert wire[2]["content"] == "done\n[image 1: in the next user message]"
    assert wire[3]["content"] == "[image 1: in the next user message]"
    assert wire[4]["content"] == [
        {"type": "text", "text": "Attached to the result of draw (1):"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,b25l"}},
        {"type": "text", "text": "Attached to the result of draw (2):"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,dHdv"}},
    ]
    assert is_what_the_sdk_takes(wire)


def test_images_of_the_last_result_are_not_lost() -> None:
    wire = encode_messages([ToolResult("1", (ImageBlock(b"one"),))])
    assert [message["role"] for message in wire] == ["tool", "user"]


def test_long_ids_become_the_same_short_ones_in_call_and_result() -> None:
    long_id = "x" * 100
    call, result = encode_messages([AssistantMessage([ToolCall(long_id, "f", "{}")]), ToolResult(long_id, "ok")])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40


def test_an_image_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="neither data nor url"):
        encode_chat_message(UserMessage((ImageBlock(),)))


def test_a_request_with_every_setting() -> None:
    request = ChatRequest(
        messages=[UserMessage("Hi")],
        tools=[WEATHER],
        tool_choice="get_weather",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=5,
        seed=1,
        stop=("END",),
        response_format=ResponseFormat(PARAMETERS, name="place"),
        reasoning_effort="low",
        options={"top_k": 3},
    )
    assert encoded(request, streams=True) == {
        "model": "test-1",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [encode_chat_tool(WEATHER)],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": PARAMETERS, "strict": True},
        },
        "temperature": 0,
        "max_tokens": 5,
        "seed": 1,
        "stop": ["END"],
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 3,
    }


def test_a_bare_request_says_nothing_that_was_not_asked() -> None:
    assert encoded(ChatRequest(messages=[])) == {"model": "test-1", "messages": []}


def test_options_go_over_the_request_and_the_request_over_the_defaults() -> None:
    request = ChatRequest(messages=[], temperature=1, options={"stream_options": None, "seed": 3})
    body = encoded(request, streams=True, defaults={"temperature": 0, "top_p": 0.5})
    assert body == {"model": "test-1", "messages": [], "stream": True, "temperature": 1, "top_p": 0.5, "seed": 3}


def test_what_the_request_leaves_open_is_as_the_defaults_say() -> None:
    body = encoded(ChatRequest(messages=[], tools=[WEATHER]), defaults={"parallel_tool_calls": False})
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize("choice", ["none", "required"])
def test_tool_choice_in_words_is_passed_on(choice: str) -> None:
    assert encoded(ChatRequest(messages=[], tools=[WEATHER], tool_choice=choice))["tool_choice"] == choice


def test_a_tool_choice_that_is_no_tool_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="one of: get_weather, get_time"):
        encoded(ChatRequest(messages=[], tools=[WEATHER, TIME], tool_choice="get_wether"))


def test_a_tool_choice_without_tools_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no tools"):
        encoded(ChatRequest(messages=[], tool_choice="required"))


def test_a_strict_tool_has_its_schema_as_strict_mode_takes_it() -> None:
    wire = encode_chat_tool(replace(WEATHER, strict=True))
    assert wire["function"]["strict"] is True
    TypeAdapter[Any](ChatCompletionToolParam).validate_python(wire)


def test_a_schema_that_strict_mode_refuses_is_sent_as_not_strict() -> None:
    loose: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {}}}},
        "required": ["a"],
    }
    body = encoded(ChatRequest(messages=[], response_format=ResponseFormat(loose)))
    assert body["response_format"]["json_schema"]["strict"] is False
