"""The machine, fed right and wrong in every phase."""

import copy
from collections.abc import Callable
from typing import Any, get_args

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
from toolkit.calls.approval import LateDecision, WaitingChild
from toolkit.calls.run import CallCut, CallReturned, CallSuspended, CutCall
from toolkit.chat import ChatResponse, StopReason, validate_transcript
from toolkit.endings import Cancelled, Timeout, TypedAnswer, UsageLimit
from toolkit.errors import LoopUsageError
from toolkit.loop.feeds import (
    ALLOWED_PHASES,
    CALLS_AS_WRITTEN,
    TURN_BEGUN,
    AnswerJudged,
    CallDecided,
    CallReopened,
    CallsPrepared,
    CallStarted,
    ChildDecided,
    CommandGiven,
    Feed,
    MessagesSteered,
    ModelReplied,
    Phase,
    ReplyCutOff,
    RequestRefused,
    RunClosed,
    RunEnded,
    RunResumed,
    RunWoundUp,
    TranscriptCompacted,
    TranscriptEdited,
    Turn,
    UsageSpent,
)
from toolkit.loop.state import LoopState
from toolkit.policies import Sequential, Stop

CALLS = [ToolCall(each, "echo", "{}") for each in "ab"]
WRITTEN = [("echo", "{}")] * 2


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
    state.feed(TURN_BEGUN)
    return state


def compacted() -> LoopState:
    state = compacting()
    state.feed(TranscriptCompacted([UserMessage("go")]))
    return state


def asking() -> LoopState:
    state = ready()
    state.feed(TURN_BEGUN)
    return state


def preparing() -> LoopState:
    state = asking()
    state.feed(ModelReplied(response("a", "b")))
    assert [entry.call for entry in state.calls_to_prepare] == CALLS
    return state


def deciding() -> LoopState:
    state = preparing()
    state.feed(CALLS_AS_WRITTEN)
    return state


def running() -> LoopState:
    state = deciding()
    state.feed(CallDecided("a", Approve()))
    state.feed(CallDecided("b", Approve()))
    assert state.next_calls()
    state.feed(CallStarted("a"))
    return state


def awaiting() -> LoopState:
    state = deciding()
    state.feed(CallDecided("a", Approve()))
    state.feed(CallDecided("b", Defer()))
    assert state.next_calls()
    state.feed(CallStarted("a"))
    state.feed(CallReturned("a", result("a")))
    assert not state.next_calls()
    return state


def finished() -> LoopState:
    state = asking()
    state.feed(ModelReplied(response()))
    return state


def failed() -> LoopState:
    state = running()
    state.feed(RunEnded(None))
    return state


PHASES: dict[str, Callable[[], LoopState]] = {
    made.__name__: made
    for made in (ready, compacting, compacted, asking, preparing, deciding, running, awaiting, finished, failed)
}

AS_ALLOWED: set[str] | None = None
"""Stands for the phases that the table of feeds has."""

FEEDS: dict[str, tuple[Feed, set[str] | None]] = {
    "begin a turn": (TURN_BEGUN, AS_ALLOWED),
    "compact": (TranscriptCompacted([UserMessage("They went.")]), AS_ALLOWED),
    "reach a limit": (RequestRefused(UsageLimit("requests", 1, 1)), AS_ALLOWED),
    "cut the reply off": (ReplyCutOff("I was"), AS_ALLOWED),
    "reply": (ModelReplied(response("x")), AS_ALLOWED),
    "prepare the calls": (CallsPrepared(WRITTEN, {}), AS_ALLOWED),
    "prepare other calls": (CallsPrepared(WRITTEN[:1], {}), set()),
    "judge the answer": (AnswerJudged(TypedAnswer()), AS_ALLOWED),
    "refuse the answer": (AnswerJudged(UserMessage("Again.")), AS_ALLOWED),
    "reopen a call": (CallReopened("b"), AS_ALLOWED),
    "reopen a call that runs": (CallReopened("a"), set()),
    "wind up": (
        RunWoundUp(UsageLimit("tool_calls", 1, 1)),
        {"preparing", "deciding", "running", "awaiting"},
    ),
    "run a call": (CallDecided("b", Approve()), {"deciding", "awaiting"}),
    "refuse a call": (CallDecided("b", Deny("No.")), {"deciding", "awaiting"}),
    "postpone a call": (CallDecided("b", Defer()), {"deciding", "awaiting"}),
    "end by approval": (CallDecided("b", Abort("no")), {"deciding", "awaiting"}),
    "decide on no call": (CallDecided("z", Approve()), set()),
    "start a call": (CallStarted("b"), AS_ALLOWED),
    "start it twice": (CallStarted("a"), set()),
    "start no call": (CallStarted("z"), set()),
    "return": (CallReturned("a", result("a")), AS_ALLOWED),
    "return another's result": (CallReturned("a", result("b")), set()),
    "return no call": (CallReturned("z", result("z")), set()),
    "decide on no sub-agent": (ChildDecided("a", LateDecision(call_id="p", binding="b", kind="approve")), set()),
    "suspend no call": (
        CallSuspended(ToolCall("z", "z", "{}"), WaitingChild(agent="clerk", loop_id="1", calls=(), snapshot={})),
        set(),
    ),
    "cut a call": (CallCut("a", CutCall(None, may_run_on=False)), AS_ALLOWED),
    "spend": (UsageSpent(Usage(input_tokens=1)), AS_ALLOWED),
    "steer": (MessagesSteered([UserMessage("stop")]), AS_ALLOWED),
    "resume": (RunResumed([UserMessage("more")]), AS_ALLOWED),
    "command": (CommandGiven(Stop()), AS_ALLOWED),
    "edit": (TranscriptEdited(), AS_ALLOWED),
    "end": (RunEnded(Cancelled()), AS_ALLOWED),
    "close": (RunClosed(), AS_ALLOWED),
}

CHANGES_NOTHING = {"postpone a call", "cut a call", "command", "edit", "end", "close"}
"""The feeds that leave some phase that they fit as it was: there is no such call, or the end has come already."""


def everything(state: LoopState) -> dict[str, Any]:
    known = {slot: getattr(state, slot) for slot in LoopState.__slots__ if slot not in ("_config", "turn")}
    return copy.deepcopy(known | {f"turn {slot}": getattr(state.turn, slot) for slot in Turn.__slots__})


def test_the_table_of_phases_has_every_feed_and_every_phase_is_tried() -> None:
    assert set(ALLOWED_PHASES) == set(get_args(Feed))
    assert {type(feed) for feed, _ in FEEDS.values()} == set(get_args(Feed))
    assert set(PHASES) == set(get_args(Phase))
    assert set().union(*ALLOWED_PHASES.values()) == set(get_args(Phase))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FEEDS)
def test_a_feed_fits_its_phases_and_anywhere_else_raises_and_changes_nothing(phase: str, name: str) -> None:
    state = PHASES[phase]()
    feed, fitting = FEEDS[name]
    before = everything(state)
    if phase in (ALLOWED_PHASES[type(feed)] if fitting is None else fitting):
        state.feed(feed)
        assert everything(state) != before or name in CHANGES_NOTHING
        return
    with pytest.raises(LoopUsageError):
        state.feed(feed)
    assert everything(state) == before


def test_the_next_calls_are_the_same_until_they_start() -> None:
    state = deciding()
    state.feed(CallDecided("a", Approve()))
    state.feed(CallDecided("b", Approve()))
    calls = state.next_calls()
    before = everything(state)
    assert [entry.call for entry in calls] == CALLS[:1]
    assert state.next_calls() == calls
    assert everything(state) == before


def test_no_further_calls_are_given_while_some_run() -> None:
    with pytest.raises(LoopUsageError, match="still running"):
        running().next_calls()


ENDS: dict[str, Feed] = {
    "timed_out": RunEnded(Timeout(1.0)),
    "cancelled": RunEnded(Cancelled()),
    "failed": RunEnded(None),
    "close": RunClosed(),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("end", ENDS)
def test_every_end_in_every_phase_answers_what_is_open_and_is_final(phase: str, end: str) -> None:
    state = PHASES[phase]()
    state.feed(ENDS[end])
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
        state.feed(ENDS[again])
    assert everything(state) == before
