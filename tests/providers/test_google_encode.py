"""Messages and requests as Gemini's format says them; the SDK's own models judge the result."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest
from google.genai import Client, types
from google.oauth2.credentials import Credentials

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
from toolkit.providers.google import GenerateEncoder, encode_gemini_message, encode_gemini_tool

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", description="Get the weather.", parameters=PARAMETERS)
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
UNSIGNED = "skip_thought_signature_validator"
HI = UserMessage("Hi")


def contents(messages: Sequence[Message], **settings: Any) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = body(ChatRequest(messages=messages), **settings)["contents"]
    for content in wire:
        types.Content.model_validate(content)
    return wire


def body(request: ChatRequest, *, model: str = "gemini-3.8-flash", settings: Any = None) -> dict[str, Any]:
    encoder = GenerateEncoder(model=model, defaults={})
    encoded = encoder.body(request, settings or {})
    assert encoder.body(request, settings or {}) == encoded, "what is kept is the same"
    decoded: dict[str, Any] = json.loads(encoded)
    return decoded


def settings_of(request: ChatRequest, *, model: str = "gemini-3.8-flash", **defaults: Any) -> dict[str, Any]:
    settings = GenerateEncoder(model=model, defaults=defaults).settings(request)
    types.GenerateContentConfig.model_validate(settings)
    return settings


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    parts: list[dict[str, Any]]
    attachments: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def called(call_id: str, args: dict[str, Any], **part: Any) -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": "f", "args": args}, **part}


PAPER = FileBlock(b"pdf", name="a.pdf", media_type="application/pdf")
CASES = [
    Case("system in the middle", SystemMessage("Be brief."), [{"text": "<system>\nBe brief.\n</system>"}]),
    Case("user text", HI, [{"text": "Hi"}]),
    Case(
        "user with everything",
        UserMessage(
            (
                TextBlock(""),
                TextBlock("Look"),
                ImageBlock(b"png"),
                ImageBlock(url="https://example.com/a.png"),
                AudioBlock(b"wav"),
                FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
                FileBlock(b"x,y", name="a.csv", media_type="text/csv"),
                FileBlock(url="https://example.com/b.mp4", media_type="video/mp4"),
            )
        ),
        [
            {"text": "Look"},
            {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/a.png"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}},
            {"text": "[file a.csv]\nx,y"},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/b.mp4"}},
        ],
    ),
    Case(
        "calls with a signature on the first",
        AssistantMessage(
            [TextBlock("Let me see."), ToolCall("1", "f", '{"a": 1}', extra=SIGNED), ToolCall("2", "f", "{}")]
        ),
        [{"text": "Let me see."}, called("1", {"a": 1}, thoughtSignature="c2ln"), called("2", {})],
    ),
    Case(
        "calls that another model made",
        AssistantMessage([ToolCall("1", "f", "{}", extra={"anthropic": {"caller": {}}}), ToolCall("2", "f", '{"a')]),
        [called("1", {}, thoughtSignature=UNSIGNED), called("2", {"malformed_arguments": '{"a'})],
    ),
    Case(
        "what it wants back is where it was",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm.", encrypted=sealed("google", {"thoughtSignature": "dGh0"})),
                TextBlock("Hello."),
                ReasoningBlock(encrypted=sealed("google", {"thoughtSignature": "dHh0"})),
                ImageBlock(b"png"),
                ReasoningBlock(encrypted=sealed("google", {"thoughtSignature": "aW1n"})),
                ReasoningBlock(encrypted=sealed("google", {"part": {"executableCode": {"code": "1", "id": "x"}}})),
            ]
        ),
        [
            {"text": "Hm.", "thought": True, "thoughtSignature": "dGh0"},
            {"text": "Hello."},
            {"text": "", "thoughtSignature": "dHh0"},
            {"inlineData": {"mimeType": "image/png", "data": "cG5n"}, "thoughtSignature": "aW1n"},
            {"executableCode": {"code": "1", "id": "x"}},
        ],
    ),
    Case(
        "what other providers thought stays away",
        AssistantMessage(
            [
                ReasoningBlock(text="Hm."),
                ReasoningBlock(text="Hm.", signature="seal"),
                ReasoningBlock(encrypted="opaque", id="rs_1"),
                ReasoningBlock(encrypted=sealed("anthropic", {"type": "redacted_thinking", "data": "s"})),
                TextBlock("Hello."),
            ]
        ),
        [{"text": "Hello."}],
    ),
    Case(
        "result",
        ToolResult("1", "3", tool_name="f"),
        [{"functionResponse": {"id": "1", "name": "f", "response": {"output": "3"}}}],
    ),
    Case(
        "failed result",
        ToolResult("1", "No.", tool_name="f", is_error=True),
        [{"functionResponse": {"id": "1", "name": "f", "response": {"error": "No."}}}],
    ),
    Case(
        "result with an image",
        ToolResult("1", (TextBlock("A map:"), ImageBlock(b"png")), tool_name="f"),
        [
            {
                "functionResponse": {
                    "id": "1",
                    "name": "f",
                    "response": {"output": "A map:"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}],
                }
            }
        ],
    ),
    Case(
        "failed result with what no result can hold",
        ToolResult("1", (AudioBlock(b"s", media_type="audio/wav"), PAPER), tool_name="f", is_error=True),
        [
            {
                "functionResponse": {
                    "id": "1",
                    "name": "f",
                    "response": {"error": "[audio 1: in the next user message]"},
                    "parts": [{"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}}],
                }
            }
        ],
        [
            {"text": "Attached to the result of f (1):"},
            {"inlineData": {"mimeType": "audio/wav", "data": "cw=="}},
        ],
    ),
]


def test_an_older_model_gets_images_after_the_results() -> None:
    result = ToolResult("1", (TextBlock("A map:"), ImageBlock(b"png")), tool_name="f")
    encoded = encode_gemini_message(result, is_new=False)
    response = {"output": "A map:\n[image 1: in the next user message]"}
    assert list(encoded.parts) == [{"functionResponse": {"id": "1", "name": "f", "response": response}}]
    assert list(encoded.attachments) == [
        {"text": "Attached to the result of f (1):"},
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_message_is_said_as_the_sdk_takes_it(case: Case) -> None:
    encoded = encode_gemini_message(case.message)
    assert list(encoded.parts) == case.parts
    assert list(encoded.attachments) == case.attachments
    for part in (*encoded.parts, *encoded.attachments):
        types.Part.model_validate(part)


def test_roles_take_turns_and_attachments_follow_the_last_result() -> None:
    wire = contents(
        [
            SystemMessage("Be brief."),
            HI,
            AssistantMessage(),
            UserMessage("there"),
            AssistantMessage([ToolCall("1", "f", "{}", extra=SIGNED), ToolCall("2", "g", "{}")]),
            ToolResult("1", (ImageBlock(b"gif", media_type="image/gif"),)),
            ToolResult("2", "4"),
            UserMessage("And?"),
            AssistantMessage("Four."),
            AssistantMessage([TextBlock("")]),
            AssistantMessage("Really."),
        ]
    )
    assert [turn["role"] for turn in wire] == ["user", "model", "user", "model"]
    assert wire[0]["parts"] == [{"text": "Hi"}, {"text": "there"}]
    assert [next(iter(part)) for part in wire[2]["parts"]] == [
        "functionResponse",
        "functionResponse",
        "text",
        "inlineData",
        "text",
    ]
    assert [part["functionResponse"]["name"] for part in wire[2]["parts"][:2]] == ["f", "g"], "found by the call's id"
    assert wire[3]["parts"] == [{"text": "Four."}, {"text": "Really."}]


def test_a_transcript_that_begins_with_the_model_gets_a_user_before_it() -> None:
    wire = contents([AssistantMessage("Hello."), HI])
    assert [turn["role"] for turn in wire] == ["user", "model", "user"]
    assert wire[0]["parts"] == [{"text": "[The beginning of the conversation is left out.]"}]


NOTHING: dict[str, list[Message]] = {
    "no message": [],
    "only a system message": [SystemMessage("Be brief.")],
    "an empty message": [UserMessage("")],
}


@pytest.mark.parametrize("messages", NOTHING.values(), ids=NOTHING)
def test_nothing_to_answer_is_refused(messages: list[Message]) -> None:
    with pytest.raises(ConfigurationError, match="nothing to answer"):
        contents(messages)


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "models/gemini-2.0-flash", "gemma-3-27b-it"])
def test_models_that_sign_nothing_are_told_of_no_signature(model: str) -> None:
    wire = contents([HI, AssistantMessage([ToolCall("1", "f", "{}")]), ToolResult("1", "3")], model=model)
    assert wire[1]["parts"] == [called("1", {})]


def test_names_that_gemini_refuses_are_mapped_in_definition_call_and_result() -> None:
    name = "2_fast"
    tool = ToolDefinition(name=name, description="", parameters=PARAMETERS)
    wire = body(
        ChatRequest(
            messages=[HI, AssistantMessage([ToolCall("1", name, "{}")]), ToolResult("1", "3", tool_name=name)],
            tools=[tool],
        )
    )
    mapped = wire["tools"][0]["functionDeclarations"][0]["name"]
    assert mapped.startswith("tool_2_fast_")
    assert wire["contents"][1]["parts"][0]["functionCall"]["name"] == mapped
    assert wire["contents"][2]["parts"][0]["functionResponse"]["name"] == mapped


def test_a_tool_is_said_in_the_schema_that_gemini_knows() -> None:
    wire = encode_gemini_tool(WEATHER)
    assert wire["parameters"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"nullable": True, "type": "string"}},
        "required": ["city"],
    }
    types.FunctionDeclaration.model_validate(wire)


def test_a_tool_of_any_arguments_says_so_in_words() -> None:
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert encode_gemini_tool(ToolDefinition(name="f", description="Count.", parameters=free)) == {
        "name": "f",
        "description": "Count. An object of any names; each value is an integer.",
    }


def test_a_tool_without_parameters_has_no_schema() -> None:
    tool = ToolDefinition(name="f", description="", parameters={"type": "object", "properties": {}})
    assert encode_gemini_tool(tool) == {"name": "f", "description": ""}


def test_tools_that_run_at_googles_stand_before_our_own() -> None:
    wire = body(ChatRequest(messages=[HI], tools=[WEATHER]), settings={"tools": [{"googleSearch": {}}]})
    assert wire["tools"] == [{"googleSearch": {}}, {"functionDeclarations": [encode_gemini_tool(WEATHER)]}]


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", None),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("get_weather", {"mode": "ANY", "allowed_function_names": ["get_weather"]}),
    ],
)
def test_the_choice_of_tools(choice: str, calling: Any) -> None:
    settings = settings_of(ChatRequest(messages=[HI], tools=[WEATHER], tool_choice=choice))
    assert settings == ({} if calling is None else {"tool_config": {"function_calling_config": calling}})


def test_strict_tools_are_validated_at_googles() -> None:
    strict = ToolDefinition(name="f", description="", parameters=PARAMETERS, strict=True)
    settings = settings_of(ChatRequest(messages=[HI], tools=[strict]))
    assert settings == {"tool_config": {"function_calling_config": {"mode": "VALIDATED"}}}


def test_one_call_at_a_time_is_said_in_words() -> None:
    request = ChatRequest(messages=[SystemMessage("Be brief."), HI], tools=[WEATHER], parallel_tool_calls=False)
    assert settings_of(request) == {"system_instruction": "Be brief.\n\nCall one function at a time."}


def test_the_settings_of_a_request_are_the_sdks() -> None:
    request = ChatRequest(
        messages=[HI],
        temperature=0.2,
        max_tokens=5,
        seed=7,
        stop=("END",),
        response_format=ResponseFormat(PARAMETERS),
        reasoning_effort="low",
        options={"top_p": 0.5, "labels": None},
    )
    defaults: dict[str, Any] = {"labels": {"a": "b"}, "temperature": 1.0, "thinking_config": {"include_thoughts": True}}
    assert settings_of(request, **defaults) == {
        "temperature": 0.2,
        "max_output_tokens": 5,
        "seed": 7,
        "stop_sequences": ["END"],
        "response_mime_type": "application/json",
        "response_json_schema": PARAMETERS,
        "thinking_config": {"include_thoughts": True, "thinking_level": "LOW"},
        "top_p": 0.5,
    }


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3.8-flash", "none", {"thinking_level": "MINIMAL"}),
        ("gemini-3.8-flash", "high", {"thinking_level": "HIGH"}),
        ("gemini-2.5-flash", "none", {"thinking_budget": 0}),
        ("gemini-2.5-flash", "medium", {"thinking_budget": 8192}),
    ],
)
def test_effort_is_a_level_or_a_budget(model: str, effort: str, thinking: dict[str, Any]) -> None:
    settings = settings_of(ChatRequest(messages=[HI], reasoning_effort=effort), model=model)
    assert settings == {"thinking_config": thinking}


@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-2.5-flash"])
def test_an_effort_that_gemini_does_not_know_is_refused(model: str) -> None:
    with pytest.raises(ConfigurationError, match="'huge', which is not one of: none, minimal, low"):
        settings_of(ChatRequest(messages=[HI], reasoning_effort="huge"), model=model)


class SentError(Exception):
    """What the SDK would send."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class Catch(httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise SentError(request.content)


async def sent_by_the_sdk(wire: dict[str, Any], **access: Any) -> dict[str, Any]:
    options = types.HttpOptions(httpx_async_client=httpx2.AsyncClient(transport=Catch()))
    settings = {"tools": wire["tools"], "automatic_function_calling": {"disable": True}}
    config = types.GenerateContentConfig.model_validate(settings)
    contents: list[Any] = [types.Content.model_validate(content) for content in wire["contents"]]
    with pytest.raises(SentError) as caught:
        await Client(http_options=options, **access).aio.models.generate_content(  # pyright: ignore[reportUnknownMemberType]
            model="gemini-3.8-flash", contents=contents, config=config
        )
    body: dict[str, Any] = json.loads(caught.value.body)
    return body


def in_one_spelling(value: Any) -> Any:
    """The SDK spells some names with underscores and types in capitals; Google takes both."""
    text = re.sub(
        r'"[a-z_]+":', lambda name: re.sub(r"_(.)", lambda found: found[1].upper(), name[0]), json.dumps(value)
    )
    return json.loads(re.sub(r'"type": "[A-Z]+"', lambda kind: kind[0].lower(), text))


ACCESS: dict[str, dict[str, Any]] = {
    "Gemini API": {"api_key": "key"},
    "Vertex AI": {
        "vertexai": True,
        "project": "p",
        "location": "l",
        "credentials": Credentials(token="token"),  # type: ignore[no-untyped-call]
    },
}


@pytest.mark.parametrize("access", ACCESS.values(), ids=ACCESS)
def test_the_sdk_would_send_the_same(access: dict[str, Any]) -> None:
    messages: list[Message] = []
    for case in CASES:
        call = ToolCall("1", "f", "{}", extra=SIGNED)
        messages += [AssistantMessage([call]), case.message] if isinstance(case.message, ToolResult) else [case.message]
    wire = body(ChatRequest(messages=[HI, *messages], tools=[WEATHER]))
    sent = anyio.run(lambda: sent_by_the_sdk(wire, **access))
    assert in_one_spelling(sent["contents"]) == in_one_spelling(wire["contents"])
    assert in_one_spelling(sent["tools"]) == in_one_spelling(wire["tools"])
