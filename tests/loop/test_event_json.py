"""Events and results as JSON: each comes back as it was, and what is no event is refused in words."""

import dataclasses
import json
from typing import Any, cast, get_args

import pytest

from toolkit import (
    AssistantMessage,
    Message,
    ProviderError,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolLoopConfig,
    ToolLoopResult,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    Usage,
    UserMessage,
    tool,
    tool_loop_sync,
)
from toolkit.calls.events import (
    ApprovalRequested,
    ToolCallRefused,
    ToolCallRepaired,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import AudioBlock, ChatResponse, FileBlock, ImageBlock, ReasoningBlock, TextBlock, UnansweredItem
from toolkit.endings import TerminationReason
from toolkit.errors import RateLimitedError, RecordedError
from toolkit.events import (
    ArgumentsDelta,
    LoopDetected,
    LoopEvent,
    ReasoningDelta,
    dump_event,
    dump_result,
    load_event,
    load_result,
    name_event,
)
from toolkit.loop.events import Compacted, Done, Failed, IterationStart, ProviderRetried, ResponseReceived, RunStart
from toolkit.loop.outcome import (
    Aborted,
    AwaitingApproval,
    Cancelled,
    Complete,
    MaxIterations,
    MissingSteps,
    NoValidAnswer,
    ResultAsAnswer,
    StopCondition,
    Timeout,
    TypedAnswer,
    UnansweredItems,
    UsageLimit,
)
from toolkit.testing import ScriptedProvider


@tool
def add_up(a: int) -> int:
    """Add up."""
    return a


TOOLS = ToolRegistry([add_up])  # else the name might be repaired to that of a tool that takes secrets
STAMP: dict[str, Any] = {"run_id": "r" * 32, "loop_id": "l" * 32, "time": 1_790_000_000.25}
CALL: dict[str, Any] = {"call_id": "1", "tool_name": "add_up", "label": "Add", "tags": frozenset({"math", "pure"})}
ASKED = ToolCall("1", "add_up", '{"a": 1}', extra={"signature": "s"})
MESSAGES: list[Message] = [
    SystemMessage("Be brief."),
    UserMessage((TextBlock("What is it?"), ImageBlock(b"\x89PNG\xff", media_type="image/png"), AudioBlock(b"\x00"))),
    AssistantMessage([ReasoningBlock(text="hm", signature="sig"), TextBlock("I add."), ASKED]),
    ToolResult("1", (TextBlock("3"), FileBlock(b"\xff\xfe", name="a.bin")), tool_name="add_up", child_loop_id="c"),
]
RESPONSE = ChatResponse(
    message=AssistantMessage([TextBlock("Hi"), ASKED]),
    usage=Usage(input_tokens=3, output_tokens=4, cost=0.25),
    stop_reason="tool_use",
    model="m",
    request_id="q",
    metadata={"region": "eu"},
    unanswered=(UnansweredItem("computer_call", "2"),),
)
DETECTED = LoopDetected(tool_name="add", count=3, action="stop", **STAMP)
REASONS: list[TerminationReason] = [
    Complete(),
    MaxIterations(10),
    Timeout(1.5),
    StopCondition("enough"),
    DETECTED,
    ResultAsAnswer("1", "add"),
    TypedAnswer(),
    NoValidAnswer("no number"),
    MissingSteps(("look", "add")),
    UsageLimit("cost", 1.0, 1.25),
    AwaitingApproval((ASKED,)),
    UnansweredItems((UnansweredItem("computer_call", "2", "click"),)),
    Aborted("stop it"),
    Cancelled("left"),
]


def result_with(reason: TerminationReason) -> ToolLoopResult[Any]:
    return ToolLoopResult(
        text="3",
        output={"sum": 3},
        response=RESPONSE,
        messages=MESSAGES,
        usage=Usage(input_tokens=1, output_tokens=2, reasoning_tokens=0, cost=0.5),
        iterations=2,
        tool_rounds=1,
        reason=reason,
        snapshot={"version": 2},
    )


EVENTS: list[LoopEvent] = [
    RunStart(depth=1, parent_loop_id="p", message_count=2, **STAMP),
    IterationStart(iteration=1, message_count=2, **STAMP),
    TextDelta("a\u2028b", **STAMP),
    ReasoningDelta("hm", **STAMP),
    ArgumentsDelta(0, "1", "add_up", '{"a"', **STAMP),
    ResponseReceived(iteration=1, response=RESPONSE, **STAMP),
    ToolCallRepaired(kind="values", before='"1"', after="1", assumed=("a number",), **CALL, **STAMP),
    ApprovalRequested(arguments={"a": 1}, arguments_json='{"a":1}', reason="a rule", agent="clerk", **CALL, **STAMP),
    ToolCallRefused(result=ToolResult("1", "No.", tool_name="add", is_error=True), **CALL, **STAMP),
    ToolExecutionStart(arguments={"b": [2, None], "a": "é"}, arguments_json='{"a":"\\u00e9","b":[2,null]}', **CALL),
    ToolExecutionUpdate(output=ToolOutput((TextBlock("so far"),)), dropped=2, **CALL, **STAMP),
    ToolExecutionEnd(
        result=ToolResult("1", "3", tool_name="add"),
        duration=0.5,
        is_cached=True,
        unserializable=("$.a: object",),
        **CALL,
    ),
    ToolProgress(text="half", dropped=1, **CALL, **STAMP),
    DETECTED,
    Compacted(before=9, after=3, **STAMP),
    ProviderRetried(attempt=1, delay=0.5, error=RateLimitedError("p", "slow", status=429, retry_after=2), **STAMP),
    Done(result_with(Complete()), **STAMP),
    Failed(error=RecordedError("ValueError", "odd"), iterations=1, usage=Usage(), messages=tuple(MESSAGES), **STAMP),
]


def through_text(plain: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(json.dumps(plain)))


def test_every_member_of_the_union_is_among_those_that_are_tried() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(LoopEvent))
    assert {type(reason) for reason in REASONS} == set(get_args(TerminationReason))


@pytest.mark.parametrize("event", EVENTS, ids=[name_event(kind) for kind in map(type, EVENTS)])
def test_an_event_comes_back_as_it_was(event: LoopEvent) -> None:
    plain = through_text(dump_event(event))
    loaded = load_event(plain)
    assert plain["v"] == 1
    assert plain["event"] == name_event(cast("Any", type(event)))
    assert dump_event(loaded) == plain
    assert plain.get("tags", []) == sorted(plain.get("tags", []))
    assert (loaded.run_id, loaded.loop_id, loaded.time) == (event.run_id, event.loop_id, event.time)
    if not isinstance(event, (ProviderRetried, Failed)):  # exceptions are equal only to themselves
        assert loaded == event


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.kind)
def test_a_result_comes_back_with_each_way_to_end(reason: TerminationReason) -> None:
    result = result_with(reason)
    assert load_result(through_text(dump_result(result))) == result


def test_the_events_of_a_run_come_back() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    told: list[LoopEvent] = []
    provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])
    tool_loop_sync(provider, ToolRegistry([add]), "1 + 2?", config=ToolLoopConfig(on_event=told.append))
    assert [load_event(through_text(dump_event(event))) for event in told] == told


def test_errors_are_kept_as_their_class_and_words_without_secrets() -> None:
    key = "sk-proj-" + "a1B2" * 8
    crash = ToolExecutionEnd(
        result=ToolResult("1", "x"), duration=0, error=KeyError(f"no {key}"), call_id="1", tool_name="add"
    )
    retried = ProviderRetried(attempt=1, delay=0, error=ProviderError("p", f"key {key} is wrong", status=401))
    assert key not in json.dumps([dump_event(crash), dump_event(retried)])
    loaded = load_event(dump_event(crash))
    assert isinstance(loaded, ToolExecutionEnd)
    assert isinstance(loaded.error, RecordedError)
    assert loaded.error.kind == "KeyError"
    again = load_event(dump_event(retried))
    assert isinstance(again, ProviderRetried)
    assert (type(again.error), again.error.status, again.error.message) == (ProviderError, 401, "key *** is wrong")


def test_an_answer_of_a_type_of_the_applications_own_is_said_as_json() -> None:
    @dataclasses.dataclass
    class Forecast:
        degrees: int

    result = dataclasses.replace(result_with(TypedAnswer()), output=Forecast(21))
    assert load_result(through_text(dump_result(result))).output == {"degrees": 21}


def test_what_json_can_not_carry_loses_nothing_else() -> None:
    class Odd:
        __slots__ = ()

    response = ChatResponse(message=AssistantMessage("a \ud800 b"), metadata={"raw": Odd(), "n": 1})
    plain = through_text(dump_event(ResponseReceived(iteration=1, response=response)))
    loaded = load_event(plain)
    assert isinstance(loaded, ResponseReceived)
    assert loaded.response.text == "a ? b"
    assert loaded.response.metadata["n"] == 1
    assert "Odd" in loaded.response.metadata["raw"]


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (3, "is an object, not of type int"),
        ({"event": "compacted"}, "of version None, and this library reads version 1"),
        ({"v": 2, "event": "compacted"}, "of version 2"),
        ({"v": 1, "event": "exploded"}, "'exploded' is no event: there are run_start"),
        ({"v": 1, "event": ["x"]}, "is no event"),
        ({"v": 1, "event": "compacted", "before": 1}, "missing"),
        ({"v": 1, "event": "compacted", "before": 1, "after": "few"}, "valid integer"),
        ({"v": 1, "event": "compacted", "before": 1, "after": 2, "more": 3}, "more"),
        ({"v": 1, "event": "compacted", "before": {1, 2}, "after": 2}, "JSON"),
        ({"v": 1, "event": "provider_retried", "attempt": 1, "delay": 1, "error": {"type": "x"}}, "type and a message"),
        (
            {"v": 1, "event": "failed", "error": {"type": "X", "provider": "p"}, "iterations": 1, "usage": {}},
            "error of a provider",
        ),
    ],
    ids=str,
)
def test_what_is_no_event_is_refused_in_words(plain: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_event(plain)


def test_what_is_no_result_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="version"):
        load_result({})
    with pytest.raises(ValueError, match="missing"):
        load_result({"v": 1})
