"""What differs between formats, decided once."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

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
from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, ToolDefinition
from toolkit.providers import provider_for
from toolkit.providers.encoding import (
    Dialect,
    arguments_object,
    arguments_text,
    as_user_text,
    checked_choice,
    result_text,
    split_system,
    stop_texts,
    strict_format,
)

DIALECT = Dialect(call_id=re.compile(r"[A-Za-z0-9_-]+"), longest_call_id=40)


def tool(name: str) -> ToolDefinition:
    return ToolDefinition(name=name, description="", parameters={})


@given(st.text())
def test_every_id_becomes_one_that_fits_and_the_same_again(call_id: str) -> None:
    wire = DIALECT.call_id_of(call_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", wire)
    assert DIALECT.call_id_of(call_id) == wire == DIALECT.call_id_of(wire)


@given(st.text())
def test_every_name_becomes_one_that_fits_and_the_same_again(name: str) -> None:
    wire = DIALECT.tool_name_of(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire)
    assert DIALECT.tool_name_of(name) == wire == DIALECT.tool_name_of(wire)


@given(st.lists(st.text(), unique=True))
def test_names_come_back_as_they_were(names: list[str]) -> None:
    back = DIALECT.names_back([tool(name) for name in names])
    wire = [DIALECT.tool_name_of(name) for name in names]
    assert len(set(wire)) == len(names)
    assert [back.get(name, name) for name in wire] == names


def test_what_fits_stays_and_what_does_not_stays_readable() -> None:
    assert DIALECT.call_id_of("call_1") == "call_1"
    assert DIALECT.tool_name_of("get_weather-2") == "get_weather-2"
    assert re.fullmatch(r"look_up_a_word_[0-9a-f]{8}", DIALECT.tool_name_of("look up: a.word"))
    assert re.fullmatch(r"tool_7_zip_[0-9a-f]{8}", DIALECT.tool_name_of("7 zip"))
    assert re.fullmatch(r"tool_+[0-9a-f]{8}", DIALECT.tool_name_of("天气"))
    assert DIALECT.names_back(None) == DIALECT.names_back([tool("get_weather")]) == {}


@dataclass(frozen=True)
class Result:
    name: str
    content: str | tuple[ContentBlock, ...]
    text: str
    attachments: tuple[ContentBlock, ...] = ()
    is_error: bool = False


IMAGE, SOUND, PDF = (
    ImageBlock(b"png"),
    AudioBlock(b"wav"),
    FileBlock(b"pdf", name="a.pdf", media_type="application/pdf"),
)
BEFORE = TextBlock("Attached to the result of draw (c1):")


@pytest.mark.parametrize(
    "case",
    [
        Result("text", "done", "done"),
        Result("failed", "no such city", "Error: no such city", is_error=True),
        Result("failed and says so", "error 5", "error 5", is_error=True),
        Result("nothing", (), ""),
        Result(
            "everything",
            (TextBlock("done"), IMAGE, SOUND, PDF, FileBlock(b"x", name="a.txt", media_type="text/plain")),
            "done\n[image 1: in the next user message]\n[audio 2: in the next user message]\n"
            "[file 3: in the next user message]\n[file a.txt]\nx",
            (BEFORE, IMAGE, SOUND, PDF),
        ),
    ],
    ids=lambda case: case.name,
)
def test_a_result_becomes_text_and_what_no_text_can_hold(case: Result) -> None:
    result = ToolResult("c1", case.content, is_error=case.is_error)
    said = result_text(result, name="draw", call_id="c1")
    assert (said.text, said.attachments) == (case.text, case.attachments)


@pytest.mark.parametrize(
    ("arguments", "wire"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ('{"a": ', {"malformed_arguments": '{"a": '}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ("null", {"malformed_arguments": "null"}),
        ('{"a": NaN}', {"malformed_arguments": '{"a": NaN}'}),
        ('{"a": 1e999}', {"malformed_arguments": '{"a": 1e999}'}),
        ('{"a": 1e300}', {"a": 1e300}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, wire: dict[str, Any]) -> None:
    assert json.loads(arguments_text(arguments)) == arguments_object(arguments) == wire


def test_arguments_that_are_an_object_stay_as_the_model_wrote_them() -> None:
    assert arguments_text('{"a":  1}') == '{"a":  1}'


CALLING = AssistantMessage([ToolCall("1", "f", "{}")])
TRANSCRIPT: list[Message] = [
    SystemMessage("Be brief."),
    SystemMessage("Be kind."),
    UserMessage("Hi"),
    UserMessage(""),
    AssistantMessage(),
    CALLING,
    ToolResult("1", "done"),
    SystemMessage("Now be rude."),
    AssistantMessage("No."),
    AssistantMessage("Never."),
]


def test_system_messages_at_the_beginning_are_told_from_those_in_the_middle() -> None:
    system, rest = split_system(TRANSCRIPT)
    assert system == "Be brief.\n\nBe kind."
    assert rest == TRANSCRIPT[2:]
    assert split_system([SystemMessage("Only.")]) == ("Only.", ())
    assert split_system([]) == ("", ())
    assert as_user_text(SystemMessage("Now be rude.")) == "<system>\nNow be rude.\n</system>"


def test_a_choice_is_checked_against_the_tools() -> None:
    tools = [tool("add"), tool("sub")]
    assert [checked_choice(choice, tools) for choice in ("auto", "none", "required", "sub")] == [
        "auto",
        "none",
        "required",
        "one",
    ]
    assert checked_choice("none", ()) == "none"
    with pytest.raises(ConfigurationError, match="one of: add, sub"):
        checked_choice("ad", tools)
    for choice in ("required", "add"):
        with pytest.raises(ConfigurationError, match="no tools"):
            checked_choice(choice, ())


@pytest.mark.parametrize(
    ("stop", "texts"),
    [((), None), ("", None), ("END", ["END"]), (("a", "b"), ["a", "b"]), (["a", ""], ["a"])],
    ids=["none", "empty", "one", "two", "one of them empty"],
)
def test_one_stop_text_may_stand_alone(stop: Sequence[str], texts: list[str] | None) -> None:
    assert stop_texts(stop) == texts


@pytest.mark.parametrize("provider", ["openai:m", "openai-responses:m", "anthropic:m", "google:m"])
@pytest.mark.anyio
async def test_what_is_no_message_is_refused(provider: str) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with pytest.raises(ConfigurationError, match=r"as in \[UserMessage\('Hi'\)\], not a dict"):
        await provider_for(provider, api_key="key").generate(ChatRequest(messages=messages))


@dataclass(frozen=True)
class Schema:
    name: str
    schema: dict[str, Any]
    is_strict: bool
    at_openai: dict[str, Any] | None = None


CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "null"}},
    "required": ["a"],
    "additionalProperties": False,
}


CHOICE = {**CLOSED, "properties": {"a": {"anyOf": [{"enum": [1]}]}}}
INSIDE = {**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}
SCHEMAS = [
    Schema("closed and all required", CLOSED, True, CLOSED),
    Schema("open", {**CLOSED, "additionalProperties": True}, False),
    Schema("not said", {**CLOSED, "additionalProperties": None}, False, CLOSED),
    Schema("any value", {**CLOSED, "properties": {"a": {}}}, True),
    Schema("a choice", {**CLOSED, "properties": {"a": {"oneOf": [{"const": 1}]}}}, True, CHOICE),
    Schema("optional", {**CLOSED, "required": []}, False),
    Schema("open inside", {**CLOSED, "properties": {"a": {"anyOf": [{"type": "object"}]}}}, False),
    Schema("closed inside", INSIDE, True, INSIDE),
]


@pytest.mark.parametrize("case", SCHEMAS, ids=lambda case: case.name)
def test_a_schema_is_strict_where_strict_mode_takes_it(case: Schema) -> None:
    assert strict_format(case.schema, is_openai=False) == (case.schema, case.is_strict)


@pytest.mark.parametrize("case", SCHEMAS, ids=lambda case: case.name)
def test_openai_is_asked_to_be_strict_where_that_asks_for_no_more(case: Schema) -> None:
    wanted = (case.schema, False) if case.at_openai is None else (case.at_openai, True)
    assert strict_format(case.schema, is_openai=True) == wanted
