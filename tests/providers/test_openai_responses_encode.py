"""Messages and requests as responses say them; the SDK's own types judge the result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.function_tool_param import FunctionToolParam
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
from toolkit.providers.encoding import sealed
from toolkit.providers.openai import OpenAIResponsesProvider, ResponsesOptions
from toolkit.providers.openai.responses import ResponsesEncoder, encode_responses_message, encode_responses_tool

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", description="Get the weather.", parameters=PARAMETERS)


def encoded(request: ChatRequest, *, streams: bool = False, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    encoder = ResponsesEncoder(model="test-1", defaults=defaults or {})
    body = encoder.encode(request, streams=streams)
    assert encoder.encode(request, streams=streams) == body, "what is kept is the same"
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def is_what_the_sdk_takes(items: Sequence[dict[str, Any]]) -> bool:
    TypeAdapter[Any](list[ResponseInputItemParam]).validate_python(list(items), strict=False)
    return True


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    items: list[dict[str, Any]]


CASES = [
    Case("system", SystemMessage("Be brief."), [said("system", "Be brief.")]),
    Case("user text", UserMessage("Hi"), [said("user", "Hi")]),
    Case(
        "user with everything",
        UserMessage(
            (
                TextBlock("Look"),
                ImageBlock(b"png"),
                ImageBlock(url="https://example.com/a.png"),
                FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
                FileBlock(b"x,y", name="a.csv", media_type="text/csv"),
                FileBlock(url="https://example.com/b.pdf", name="b.pdf"),
            )
        ),
        [
            said(
                "user",
                [
                    {"type": "input_text", "text": "Look"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"},
                    {"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.png"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
                    {"type": "input_text", "text": "[file a.csv]\nx,y"},
                    {"type": "input_file", "file_url": "https://example.com/b.pdf"},
                ],
            )
        ],
    ),
    Case("assistant text", AssistantMessage("Hello."), [said("assistant", "Hello.")]),
    Case("empty assistant", AssistantMessage(), []),
    Case(
        "reasoning, text and calls keep their order",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm.", encrypted="sealed", id="rs_1"),
                TextBlock("Let me"),
                TextBlock("see."),
                ToolCall("1", "get_weather", '{"city": "Oslo"}'),
                ReasoningBlock(encrypted="sealed too", id="rs_2"),
                ToolCall("2", "get_time", "", extra={"namespace": "clock"}),
                ImageBlock(b"png"),
            ]
        ),
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "sealed",
            },
            said("assistant", "Let me\nsee."),
            {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": '{"city": "Oslo"}'},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "sealed too"},
            {"namespace": "clock", "type": "function_call", "call_id": "2", "name": "get_time", "arguments": "{}"},
            said("assistant", "[image]"),
        ],
    ),
    Case(
        "reasoning without a seal, or of another provider, stays here",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm.", id="rs_1"),
                ReasoningBlock(text="Hm.", signature="s"),
                ReasoningBlock(text="Hm.", id="rs_2", encrypted=sealed("openai", {"type": "reasoning.encrypted"})),
            ]
        ),
        [],
    ),
    Case(
        "malformed arguments become JSON",
        AssistantMessage([ToolCall("1", "get_time", '{"city": ')]),
        [
            {
                "type": "function_call",
                "call_id": "1",
                "name": "get_time",
                "arguments": '{"malformed_arguments": "{\\"city\\": "}',
            }
        ],
    ),
    Case("result", ToolResult("1", "sunny"), [{"type": "function_call_output", "call_id": "1", "output": "sunny"}]),
    Case(
        "failed result",
        ToolResult("1", (TextBlock("no such"), TextBlock("city")), is_error=True),
        [{"type": "function_call_output", "call_id": "1", "output": "Error: no such\ncity"}],
    ),
    Case(
        "result with an image",
        ToolResult("1", (TextBlock("done"), ImageBlock(b"png"), AudioBlock(b"wav"))),
        [
            {
                "type": "function_call_output",
                "call_id": "1",
                "output": [
                    {"type": "input_text", "text": "done"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"},
                    {"type": "input_text", "text": "[audio]"},
                ],
            }
        ],
    ),
    Case(
        "failed result with an image",
        ToolResult("1", (ImageBlock(b"png"),), is_error=True),
        [
            {
                "type": "function_call_output",
                "call_id": "1",
                "output": [
                    {"type": "input_text", "text": "Error:"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"},
                ],
            }
        ],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_message_is_encoded_as_the_sdk_takes_it(case: Case) -> None:
    items = encode_responses_message(case.message)
    assert items == case.items
    assert is_what_the_sdk_takes(items)


def test_a_transcript_is_one_flat_list() -> None:
    messages = [case.message for case in CASES]
    assert encoded(ChatRequest(messages=messages))["input"] == [item for case in CASES for item in case.items]


def test_open_reasoning_goes_to_servers_that_read_it() -> None:
    items = encode_responses_message(
        AssistantMessage([ReasoningBlock(text="Hm.", id="rs_1")]), sends_open_reasoning=True
    )
    assert items == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    ]
    assert is_what_the_sdk_takes(items)


def test_long_ids_become_the_same_short_ones_in_call_and_result() -> None:
    long_id = "x" * 100
    call, result = encoded(
        ChatRequest(messages=[AssistantMessage([ToolCall(long_id, "f", "{}")]), ToolResult(long_id, "ok")])
    )["input"]
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) <= 64


def test_a_request_with_every_setting() -> None:
    request = ChatRequest(
        messages=[UserMessage("Hi")],
        tools=[WEATHER],
        tool_choice="get_weather",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=5,
        seed=1,
        response_format=ResponseFormat(PARAMETERS, name="place"),
        reasoning_effort="low",
        options=ResponsesOptions(
            text={"verbosity": "low"}, reasoning={"summary": "auto"}, prompt_cache_key="user-1", top_p=0.5
        ),
    )
    assert encoded(request, streams=True) == {
        "model": "test-1",
        "input": [said("user", "Hi")],
        "tools": [encode_responses_tool(WEATHER)],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "parallel_tool_calls": False,
        "text": {
            "format": {"type": "json_schema", "name": "place", "schema": PARAMETERS, "strict": True},
            "verbosity": "low",
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "temperature": 0,
        "max_output_tokens": 5,
        "stream": True,
        "prompt_cache_key": "user-1",
        "top_p": 0.5,
    }


def test_a_bare_request_says_nothing_that_was_not_asked() -> None:
    assert encoded(ChatRequest(messages=[])) == {"model": "test-1", "input": []}


def test_options_go_over_the_request_and_the_request_over_the_defaults() -> None:
    request = ChatRequest(messages=[], temperature=1, options={"store": None, "top_p": 0.7})
    body = encoded(request, defaults={"temperature": 0, "top_p": 0.5, "store": False})
    assert body == {"model": "test-1", "input": [], "temperature": 1, "top_p": 0.7}


def test_what_the_options_include_is_added_to_the_reasoning() -> None:
    provider = OpenAIResponsesProvider("gpt-5-mini", api_key="key", options={"include": ["a", *SEALED]})
    encoder = provider._encoder  # pyright: ignore[reportPrivateUsage]
    for included, wanted in ((["b"], [*SEALED, "a", "b"]), ([], [*SEALED, "a"]), (None, None)):
        request = ChatRequest(messages=[], options={"include": included})
        assert json.loads(encoder.encode(request, streams=False)).get("include") == wanted


@pytest.mark.parametrize("choice", ["none", "required"])
def test_tool_choice_in_words_is_passed_on(choice: str) -> None:
    assert encoded(ChatRequest(messages=[], tools=[WEATHER], tool_choice=choice))["tool_choice"] == choice


def test_a_tool_says_whether_it_is_strict() -> None:
    optional = ToolDefinition(
        name="f", description="", parameters={"type": "object", "properties": {"a": {"type": "integer"}}}, strict=True
    )
    wire = encode_responses_tool(optional)
    assert (wire["strict"], wire["parameters"]["required"]) == (True, ["a"])
    assert encode_responses_tool(WEATHER)["strict"] is False
    for tool in (wire, encode_responses_tool(WEATHER)):
        TypeAdapter[Any](FunctionToolParam).validate_python(tool)


def test_tools_that_run_at_the_server_are_offered_beside_our_own() -> None:
    search = {"type": "web_search"}
    assert encoded(ChatRequest(messages=[], tools=[WEATHER]), defaults={"tools": [search]})["tools"] == [
        encode_responses_tool(WEATHER),
        search,
    ]
    assert encoded(ChatRequest(messages=[], options={"tools": [search]}))["tools"] == [search]
    assert "tools" not in encoded(ChatRequest(messages=[], options={"tools": None}), defaults={"tools": [search]})


def test_stop_texts_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no stop texts"):
        encoded(ChatRequest(messages=[], stop=("END",)))


def test_sound_of_the_user_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="take no sound"):
        encoded(ChatRequest(messages=[UserMessage((AudioBlock(b"wav"),))]))


@dataclass(frozen=True)
class Asks:
    model: str
    base_url: str
    include: list[str] | None
    seals_reasoning: bool | None = None


SEALED = ["reasoning.encrypted_content"]
OWN = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    "asks",
    [
        Asks("gpt-5-mini", OWN, SEALED),
        Asks("o4-mini", OWN, SEALED),
        Asks("gpt-4.1", OWN, None),
        Asks("gpt-5-chat-latest", OWN, None),
        Asks("gpt-4.1", OWN, SEALED, seals_reasoning=True),
        Asks("gpt-5-mini", OWN, None, seals_reasoning=False),
        Asks("gpt-oss-20b", "http://127.0.0.1:8000/v1", SEALED),
    ],
    ids=lambda asks: f"{asks.model}-{asks.seals_reasoning}",
)
def test_sealed_reasoning_is_asked_of_models_that_reason(asks: Asks) -> None:
    provider = OpenAIResponsesProvider(
        asks.model, api_key="key", base_url=asks.base_url, seals_reasoning=asks.seals_reasoning
    )
    encoder = provider._encoder  # pyright: ignore[reportPrivateUsage]
    body = json.loads(encoder.encode(ChatRequest(messages=[]), streams=False))
    assert body.get("include") == asks.include
    assert body["store"] is False
