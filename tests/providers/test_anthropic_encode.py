"""Messages and requests as Anthropic's format says them; the SDK's own types judge the result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
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
from toolkit.errors import SchemaError
from toolkit.providers.anthropic import AnthropicOptions, AnthropicProvider
from toolkit.providers.anthropic.encode import MessagesEncoder, encode_anthropic_message, encode_anthropic_tool
from toolkit.providers.encoding import sealed

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", description="Get the weather.", parameters=PARAMETERS)
MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
HI = UserMessage("Hi")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def encoded(request: ChatRequest, **settings: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {"model": "test-1", "defaults": {}, **settings}
    encoder = MessagesEncoder(**merged)
    body = encoder.encode(request, streams=False)
    assert encoder.encode(request, streams=False) == body, "what is kept is the same"
    decoded: dict[str, Any] = json.loads(body)
    TypeAdapter[Any](MessageCreateParamsNonStreaming).validate_python(decoded)
    return decoded


def encode_messages(messages: Sequence[Message], **settings: Any) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = encoded(ChatRequest(messages=messages), **settings)["messages"]
    return wire


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    blocks: list[dict[str, Any]]


CASES = [
    Case("system in the middle", SystemMessage("Be brief."), [text("<system>\nBe brief.\n</system>")]),
    Case("user text", HI, [text("Hi")]),
    Case("blank texts are left out", UserMessage((TextBlock(" "), TextBlock("Hi"), TextBlock(""))), [text("Hi")]),
    Case(
        "user with everything",
        UserMessage(
            (
                TextBlock("Look"),
                ImageBlock(b"png"),
                ImageBlock(url="https://example.com/a.png"),
                FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
                FileBlock(url="https://example.com/b.pdf", name="b.pdf", media_type="application/pdf"),
                FileBlock(b"x,y", name="a.csv", media_type="text/csv"),
                FileBlock(url="https://example.com/c", name="c"),
            )
        ),
        [
            text("Look"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
            },
            {"type": "document", "title": "b.pdf", "source": {"type": "url", "url": "https://example.com/b.pdf"}},
            text("[file a.csv]\nx,y"),
            text("[file c: https://example.com/c]"),
        ],
    ),
    Case(
        "assistant with reasoning, text and a call",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm.", signature="seal"),
                ReasoningBlock(encrypted=sealed("anthropic", {"type": "redacted_thinking", "data": "secret"})),
                TextBlock("Let me see."),
                TextBlock(" \n"),
                ToolCall(
                    "toolu_1",
                    "get_weather",
                    '{"city": "Oslo"}',
                    extra={"anthropic": {"caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}},
                ),
            ]
        ),
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "seal"},
            {"type": "redacted_thinking", "data": "secret"},
            text("Let me see."),
            {
                "type": "tool_use",
                "id": "toolu_1",
                "name": "get_weather",
                "input": {"city": "Oslo"},
                "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"},
            },
        ],
    ),
    Case(
        "what other providers thought stays away, and what they want back with calls",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm."),
                ReasoningBlock(text="Hm.", encrypted="opaque", id="rs_1"),
                ReasoningBlock(text="Hm.", signature="s", encrypted='{"type": "reasoning.text", "text": "Hm."}'),
                ReasoningBlock(encrypted=sealed("google", {"thoughtSignature": "s"})),
                ToolCall("1", "f", "{}", extra={"extra_content": {"google": {"thought_signature": "s"}}}),
            ]
        ),
        [{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
    ),
    Case(
        "what a model drew and spoke",
        AssistantMessage([ImageBlock(b"png"), AudioBlock(b"wav"), FileBlock(b"pdf", media_type="application/pdf")]),
        [text("[image]"), text("[audio]"), text("[file]")],
    ),
    Case(
        "arguments that are no object",
        AssistantMessage([ToolCall("1", "f", '{"a": '), ToolCall("2", "f", "[1]"), ToolCall("3", "f", "")]),
        [
            {"type": "tool_use", "id": "1", "name": "f", "input": {"malformed_arguments": '{"a": '}},
            {"type": "tool_use", "id": "2", "name": "f", "input": {"malformed_arguments": "[1]"}},
            {"type": "tool_use", "id": "3", "name": "f", "input": {}},
        ],
    ),
    Case("result", ToolResult("1", "3"), [{"type": "tool_result", "tool_use_id": "1", "content": "3"}]),
    Case(
        "failed result",
        ToolResult("1", "No.", is_error=True),
        [{"type": "tool_result", "tool_use_id": "1", "content": "No.", "is_error": True}],
    ),
    Case(
        "result with blocks",
        ToolResult(
            "1",
            (
                TextBlock("A map:"),
                TextBlock(""),
                ImageBlock(b"gif", media_type="image/gif"),
                ImageBlock(b"svg", media_type="image/svg+xml"),
                AudioBlock(b"wav"),
                FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
                FileBlock(b"zip", name="a.zip", media_type="application/zip"),
            ),
        ),
        [
            {
                "type": "tool_result",
                "tool_use_id": "1",
                "content": [
                    text("A map:"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "Z2lm"}},
                    text("[image: not shown]"),
                    text("[audio: not shown]"),
                    {
                        "type": "document",
                        "title": "a.pdf",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                    },
                    text("[file: not shown]"),
                ],
            }
        ],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_message_is_said_as_the_sdk_takes_it(case: Case) -> None:
    blocks = encode_anthropic_message(case.message)
    assert blocks == case.blocks
    role = "assistant" if isinstance(case.message, AssistantMessage) else "user"
    TypeAdapter[Any](MessageParam).validate_python({"role": role, "content": blocks})


@pytest.mark.parametrize(
    "block",
    [AudioBlock(b"wav"), ImageBlock(b"svg", media_type="image/svg+xml"), FileBlock(b"zip", media_type="a/zip")],
    ids=lambda block: block.type,
)
def test_what_anthropic_does_not_take_from_a_user_is_refused(block: AudioBlock | ImageBlock | FileBlock) -> None:
    with pytest.raises(ConfigurationError, match=block.media_type.replace("+", r"\+")):
        encode_anthropic_message(UserMessage((block,)))


def test_roles_take_turns_and_the_beginning_is_the_system() -> None:
    call = ToolCall("1", "f", "{}")
    body = encoded(
        ChatRequest(
            messages=[
                SystemMessage("Be brief."),
                SystemMessage("Be kind."),
                UserMessage("Hi"),
                AssistantMessage(),
                UserMessage(""),
                UserMessage("there"),
                AssistantMessage([call]),
                ToolResult("1", "3"),
                SystemMessage("Be quick."),
                UserMessage("And?"),
                AssistantMessage("Three."),
                AssistantMessage([TextBlock(" ")]),
                AssistantMessage("Really."),
            ]
        )
    )
    assert body["system"] == [text("Be brief.\n\nBe kind.")]
    assert body["messages"] == [
        {"role": "user", "content": [text("Hi"), text("there")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "3"},
                text("<system>\nBe quick.\n</system>"),
                text("And?"),
            ],
        },
        {"role": "assistant", "content": [text("Three."), text("Really.")]},
    ]


def test_a_transcript_that_begins_with_the_model_gets_a_user_before_it() -> None:
    wire = encode_messages([AssistantMessage("Hello."), HI])
    assert wire[0] == {"role": "user", "content": [text("[The beginning of the conversation is left out.]")]}
    assert [turn["role"] for turn in wire] == ["user", "assistant", "user"]


NOTHING: dict[str, list[Message]] = {
    "no message": [],
    "only a system message": [SystemMessage("Be brief.")],
    "a blank message": [UserMessage(" ")],
}


@pytest.mark.parametrize("messages", NOTHING.values(), ids=NOTHING)
def test_nothing_to_answer_is_refused(messages: list[Message]) -> None:
    with pytest.raises(ConfigurationError, match="nothing to answer"):
        encode_messages(messages)


def test_ids_of_other_providers_fit_and_stay_the_same_in_call_and_result() -> None:
    wire = encode_messages([HI, AssistantMessage([ToolCall("a:b/c", "f", "{}")]), ToolResult("a:b/c", "3")])
    call_id = wire[1]["content"][0]["id"]
    assert call_id.startswith("call_")
    assert wire[2]["content"][0]["tool_use_id"] == call_id


def test_a_tool_is_said_as_the_sdk_takes_it() -> None:
    wire = encode_anthropic_tool(WEATHER)
    assert wire == {"name": "get_weather", "description": "Get the weather.", "input_schema": PARAMETERS}
    TypeAdapter[Any](ToolParam).validate_python(wire)


def test_a_strict_tool_has_what_strict_mode_knows_and_says_the_rest_in_words() -> None:
    wire = encode_anthropic_tool(ToolDefinition(name="f", description="", parameters=PARAMETERS, strict=True))
    assert wire["strict"] is True
    assert wire["input_schema"] == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "{minLength: 1}"}},
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
    ],
    ids=["any type", "any names"],
)
def test_a_schema_that_strict_mode_cannot_say_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"tool 'f'.*Anthropic"):
        encode_anthropic_tool(ToolDefinition(name="f", description="", parameters=parameters, strict=True))


@pytest.mark.parametrize(
    ("choice", "parallel", "wire"),
    [
        ("auto", None, None),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ("required", True, {"type": "any", "disable_parallel_tool_use": False}),
        ("get_weather", False, {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}),
    ],
)
def test_the_choice_of_tools_and_how_many_at_once(choice: str, parallel: bool | None, wire: Any) -> None:
    request = ChatRequest(messages=[HI], tools=[WEATHER], tool_choice=choice, parallel_tool_calls=parallel)
    assert encoded(request).get("tool_choice") == wire


def test_an_answer_of_a_schema_is_asked_for_in_the_native_mode() -> None:
    body = encoded(ChatRequest(messages=[HI], response_format=ResponseFormat(PARAMETERS), reasoning_effort="minimal"))
    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "{minLength: 1}"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert body["thinking"] == {"type": "adaptive"}


def test_no_effort_is_no_thinking_and_a_forced_call_forbids_it() -> None:
    assert encoded(ChatRequest(messages=[HI], reasoning_effort="none"))["thinking"] == {"type": "disabled"}
    forced = ChatRequest(messages=[HI], tools=[WEATHER], tool_choice="required", reasoning_effort="high")
    assert "thinking" not in encoded(forced)


def test_a_request_goes_over_the_providers_options_and_its_own_over_everything() -> None:
    options: AnthropicOptions = {
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {}}},
        "tools": [{"type": "web_search_20260209", "name": "web_search"}],
    }
    request = ChatRequest(
        messages=[HI],
        tools=[WEATHER],
        max_tokens=5000,
        stop=("END",),
        reasoning_effort="low",
        options={"service_tier": "auto", "metadata": None, "output_config": {"format": None}},
    )
    body = encoded(request, defaults={**options, "max_tokens": 100})
    assert body == {
        "model": "test-1",
        "max_tokens": 5000,
        "messages": [{"role": "user", "content": [text("Hi")]}],
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"effort": "low", "format": None},
        "service_tier": "auto",
        "tools": [{"type": "web_search_20260209", "name": "web_search"}, encode_anthropic_tool(WEATHER)],
    }


@pytest.mark.parametrize(("defaults", "limit"), [({}, 16_384), ({"max_tokens": 100}, 100)], ids=["none", "an option"])
def test_a_request_without_a_limit_gets_one(defaults: dict[str, Any], limit: int) -> None:
    assert encoded(ChatRequest(messages=[HI]), defaults=defaults)["max_tokens"] == limit


def test_a_cache_is_told_where_what_comes_again_ends() -> None:
    request = ChatRequest(messages=[SystemMessage("Be brief."), HI], tools=[WEATHER])
    body = encoded(request, cache="1h")
    assert body["system"] == [{**text("Be brief."), **MARK}]
    assert body["messages"] == [{"role": "user", "content": [{**text("Hi"), **MARK}]}]
    assert body["tools"] == [encode_anthropic_tool(WEATHER)], "the system's mark is after the tools"
    without_system = encoded(ChatRequest(messages=[HI], tools=[WEATHER]), cache="1h")
    assert without_system["tools"] == [{**encode_anthropic_tool(WEATHER), **MARK}]


def test_a_mark_moves_on_with_the_conversation() -> None:
    encoder = MessagesEncoder(model="test-1", defaults={}, cache="5m")
    messages: list[Message] = [HI]
    encoder.encode(ChatRequest(messages=messages), streams=False)
    messages += [AssistantMessage("Hello."), UserMessage("More")]
    body = json.loads(encoder.encode(ChatRequest(messages=messages), streams=False))
    marked = [block for turn in body["messages"] for block in turn["content"] if "cache_control" in block]
    assert marked == [{**text("More"), "cache_control": {"type": "ephemeral", "ttl": "5m"}}]
    messages.append(AssistantMessage("I was"))
    body = json.loads(encoder.encode(ChatRequest(messages=messages), streams=False))
    assert "cache_control" in body["messages"][-2]["content"][0], "an answer that goes on is read from the cache, too"


def test_a_temperature_goes_only_where_it_is_taken() -> None:
    request = ChatRequest(messages=[HI], temperature=0.2)
    with pytest.raises(ConfigurationError, match=r"2026-10-21.*anthropic-version"):
        encoded(request)
    encoder = MessagesEncoder(model="test-1", defaults={}, takes_temperature=True)
    assert json.loads(encoder.encode(request, streams=False))["temperature"] == 0.2


@pytest.mark.parametrize(
    ("settings", "takes_it"),
    [
        ({}, False),
        ({"headers": {"Anthropic-Version": "2023-06-01"}}, True),
        ({"base_url": "http://127.0.0.1:8080"}, True),
    ],
    ids=["today's version", "an older version", "another server"],
)
def test_who_takes_a_temperature(settings: dict[str, Any], takes_it: bool) -> None:
    provider = AnthropicProvider("test-1", api_key="key", **settings)
    encoder = provider._encoder  # pyright: ignore[reportPrivateUsage]
    request = ChatRequest(messages=[HI], temperature=0.2)
    if takes_it:
        assert json.loads(encoder.encode(request, streams=True))["stream"] is True
    else:
        with pytest.raises(ConfigurationError, match="temperature"):
            encoder.encode(request, streams=True)
