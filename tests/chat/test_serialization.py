"""Requests, answers and events become JSON values, and come back."""

import json
from dataclasses import replace

import pytest

from toolkit import (
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat import ChatResponse, ImageBlock, ReasoningBlock, ResponseDone, StreamEvent, TextBlock
from toolkit.chat.provider import (
    event_from_plain,
    event_to_plain,
    request_to_plain,
    response_from_plain,
    response_to_plain,
)
from toolkit.events import ArgumentsDelta, ReasoningDelta
from toolkit.json_text import canonical_json

RESPONSE = ChatResponse(
    message=AssistantMessage(
        [
            ReasoningBlock(text="Hm.", signature="s", encrypted="e", id="r"),
            TextBlock("Grüße \u2028"),
            ImageBlock(b"\xff\x00"),
            ToolCall("1", "add", '{"a": 1}', extra={"seal": [1, None]}),
        ]
    ),
    usage=Usage(input_tokens=1, output_tokens=2, cost=0.25),
    stop_reason="tool_use",
    model="m",
    request_id="q",
    metadata={"id": "x", "nothing": None},
)
EVENTS: list[StreamEvent] = [
    TextDelta("a"),
    ReasoningDelta(""),
    ArgumentsDelta(0, "1", "add", '{"a"'),
    ResponseDone(RESPONSE),
]


def test_an_answer_comes_back_equal() -> None:
    assert response_from_plain(json.loads(json.dumps(response_to_plain(RESPONSE)))) == RESPONSE


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_equal(event: StreamEvent) -> None:
    assert event_from_plain(json.loads(json.dumps(event_to_plain(event)))) == event


@pytest.mark.parametrize("plain", [None, {}, {"txet": "a"}, {"text": 1}, {"arguments": [0]}, {"response": {}}])
def test_what_is_no_event_is_refused(plain: object) -> None:
    with pytest.raises(ValueError, match=r"is no event|validation error"):
        event_from_plain(plain)


def test_a_request_says_what_is_asked_and_no_more() -> None:
    result = ToolResult("1", (TextBlock("x"), ImageBlock(b"\x00")), details=object())
    request = ChatRequest(messages=[UserMessage("Hi"), result], stop=("end",), timeout=5, options={"a": {"b": 1}})
    plain = request_to_plain(request)
    assert "timeout" not in plain
    assert "details" not in plain["messages"][1]
    assert plain["messages"][1]["content"][1]["data"] == "AA=="
    assert plain["options"] == {"a": {"b": 1}}
    same = replace(request, timeout=None, messages=(UserMessage("Hi"), replace(result, details=1)))
    assert canonical_json(request_to_plain(same)) == canonical_json(plain)


def test_what_json_cannot_say_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"request can't be written as JSON.*object"):
        request_to_plain(ChatRequest(messages=[], options={"client": object()}))
