"""The machine, fed right and wrong in every phase."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from toolkit import (
    Abort,
    Approve,
    AssistantMessage,
    Defer,
    Deny,
    ToolCall,
    ToolLoopConfig,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat import ChatResponse, StopReason, validate_transcript
from toolkit.endings import TypedAnswer, UsageLimit
from toolkit.errors import LoopUsageError
from toolkit.loop.open_calls import OpenCalls
from toolkit.loop.record import LoopRecord
from toolkit.loop.state import LoopState
from toolkit.loop.steps import CallModel, Compact, Finished, RunTools
from toolkit.policies import Sequential

Feed = Callable[[LoopState], object]


CALLS = [ToolCall(each, "echo", "{}") for each in "ab"]


def response(*ids: str, stop_reason: StopReason = "tool_use") -> ChatResponse:
    content = [ToolCall(each, "echo", "{}") for each in ids]
    return ChatResponse(
        message=AssistantMessage(content or "done"), usage=Usage(), stop_reason=stop_reason, model="scripted"
    )


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id, "real", tool_name="echo")


def ready(*, compacts: bool = False) -> LoopState:
    return LoopState([UserMessage("go")], ToolLoopConfig(execution=Sequential()), compacts=compacts)


def compacting() -> LoopState:
    state = ready(compacts=True)
    assert isinstance(state.next_step(), Compact)
    return state


def asking() -> LoopState:
    state = ready()
    assert isinstance(state.next_step(), CallModel)
    return state


def preparing() -> LoopState:
    state = asking()
    assert state.model_replied(response("a", "b")) == CALLS
    return state


def deciding() -> LoopState:
    state = preparing()
    state.calls_prepared(CALLS)
    return state


def running() -> LoopState:
    state = deciding()
    state.approval_decided("a", Approve())
    state.approval_decided("b", Approve())
    assert isinstance(state.next_step(), RunTools)
    state.tool_started("a")
    return state


def awaiting() -> LoopState:
    state = deciding()
    state.approval_decided("a", Approve())
    state.approval_decided("b", Defer())
    state.next_step()
    state.tool_started("a")
    state.tool_returned("a", result("a"))
    assert isinstance(state.next_step(), Finished)
    return state


def finished() -> LoopState:
    state = asking()
    state.model_replied(response())
    return state


def failed() -> LoopState:
    state = running()
    state.failed()
    return state


PHASES: dict[str, Callable[[], LoopState]] = {
    made.__name__: made
    for made in (ready, compacting, asking, preparing, deciding, running, awaiting, finished, failed)
}

FEEDS: dict[str, tuple[Feed, set[str]]] = {
    "compacted": (lambda state: state.compacted([UserMessage("go")]), {"compacting"}),
    "limit_reached": (lambda state: state.limit_reached(UsageLimit("requests", 1, 1)), {"asking"}),
    "model_replied": (lambda state: state.model_replied(response("x")), {"asking"}),
    "calls_prepared": (lambda state: state.calls_prepared(CALLS), {"preparing"}),
    "prepare other calls": (lambda state: state.calls_prepared(CALLS[:1]), set()),
    "judge the answer": (lambda state: state.answer_judged(TypedAnswer()), {"finished"}),
    "refuse the answer": (lambda state: state.answer_judged(UserMessage("Again.")), {"finished"}),
    "reopen a call": (lambda state: state.call_reopened("b"), {"running"}),
    "reopen a call that runs": (lambda state: state.call_reopened("a"), set()),
    "wind_up": (
        lambda state: state.wind_up(UsageLimit("tool_calls", 1, 1)),
        {"preparing", "deciding", "running", "awaiting"},
    ),
    "run a call": (lambda state: state.approval_decided("b", Approve()), {"deciding", "awaiting"}),
    "refuse a call": (lambda state: state.approval_decided("b", Deny("No.")), {"deciding", "awaiting"}),
    "postpone a call": (lambda state: state.approval_decided("b", Defer()), {"deciding", "awaiting"}),
    "end by approval": (lambda state: state.approval_decided("b", Abort("no")), {"deciding", "awaiting"}),
    "decide on no call": (lambda state: state.approval_decided("z", Approve()), set()),
    "start a call": (lambda state: state.tool_started("b"), {"running"}),
    "start it twice": (lambda state: state.tool_started("a"), set()),
    "start no call": (lambda state: state.tool_started("z"), set()),
    "return": (lambda state: state.tool_returned("a", result("a")), {"running"}),
    "return another's result": (lambda state: state.tool_returned("a", result("b")), set()),
    "return no call": (lambda state: state.tool_returned("z", result("z")), set()),
    "steer": (
        lambda state: state.steered([UserMessage("stop")]),
        {"ready", "compacting", "asking", "preparing", "deciding", "running", "finished"},
    ),
}


def everything(state: LoopState) -> dict[str, Any]:
    known = {slot: getattr(state, slot) for slot in LoopRecord.__slots__ if slot not in ("_config", "_open")}
    calls: OpenCalls = getattr(state, "_open")  # noqa: B009 - all that there is, whoever it belongs to
    return copy.deepcopy(known | {f"open {slot}": getattr(calls, slot) for slot in OpenCalls.__slots__})


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("feed", FEEDS)
def test_a_feed_fits_its_phases_and_anywhere_else_raises_and_changes_nothing(phase: str, feed: str) -> None:
    state = PHASES[phase]()
    give, fitting = FEEDS[feed]
    before = everything(state)
    if phase in fitting:
        give(state)
        assert everything(state) != before or feed == "postpone a call"
        return
    with pytest.raises(LoopUsageError):
        give(state)
    assert everything(state) == before


ENDS: dict[str, Feed] = {
    "timed_out": lambda state: state.timed_out(1.0),
    "cancelled": lambda state: state.cancelled(),
    "failed": lambda state: state.failed(),
    "close": lambda state: state.close(),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("end", ENDS)
def test_every_end_in_every_phase_answers_what_is_open_and_is_final(phase: str, end: str) -> None:
    state = PHASES[phase]()
    ENDS[end](state)
    assert state.is_finished
    validate_transcript(state.messages, allow_pending=phase == "awaiting" and end != "close")
    texts = {each.call_id: each.text for each in state.messages if isinstance(each, ToolResult)}
    if phase in ("preparing", "deciding"):
        assert all(text.startswith("Not started: ") for text in texts.values())
        assert list(texts) == ["a", "b"]
    if phase in ("running", "failed"):
        assert texts["a"].startswith("Interrupted: ")
        assert "may have taken effect" in texts["a"]
        assert texts["b"].startswith("Not started: ")
    if phase == "awaiting" and end == "close":
        assert texts == {"a": "real", "b": "Not started: the run was cancelled."}
    before = everything(state)
    for again in ("timed_out", "cancelled", "failed"):
        ENDS[again](state)
    assert everything(state) == before
