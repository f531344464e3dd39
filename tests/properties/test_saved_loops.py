"""A loop that is saved at every boundary, whatever its ending, is the loop that was never saved."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolkit import (
    Abort,
    AnswerFormat,
    ApprovalRequest,
    AssistantMessage,
    Defer,
    Deny,
    LoopDetectionConfig,
    LoopLimits,
    Modify,
    Steering,
    ToolCall,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    Usage,
    UsageLimits,
    UserMessage,
    Yielded,
    stop_after,
    tool,
    tool_loop,
)
from toolkit.chat import ChatResponse, TextBlock, dump_messages, validate_transcript
from toolkit.endings import AwaitingApproval
from toolkit.policies import Parallel, Sequential, SteeredRetries, ToolOrder, token_budget, when_called
from toolkit.testing import ScriptedProvider

RUNS: list[str] = []


@tool(run_in_thread=False)
def echo(text: str = "x") -> str:
    """Say it again."""
    RUNS.append(text)
    return text


@tool(run_in_thread=False, sequential=True)
def alone(text: str = "x") -> str:
    """Run beside no other."""
    RUNS.append(f"alone {text}")
    return text


@tool(run_in_thread=False, result_as_answer=True)
def answer(text: str = "x") -> str:
    """Answer."""
    RUNS.append(f"answer {text}")
    return text


TOOLS = ToolRegistry([echo, alone, answer])
CALLS = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["echo", "Echo", "alone", "answer", "final_answer", "nothing"]),
    st.sampled_from(["{}", '{"text": "y"}', '{"answer": 7}', '{"answer": "no"}', '{"text": ']),
)
REPLIES = st.one_of(
    st.sampled_from(["words", '{"answer": 3}', ""]).map(AssistantMessage),
    st.lists(CALLS, min_size=1, max_size=4).map(AssistantMessage),
    st.lists(CALLS, min_size=1, max_size=2).map(lambda calls: AssistantMessage([TextBlock("well"), *calls])),
)
SCRIPTS = st.lists(REPLIES, min_size=1, max_size=6)
LIMITS = [None, UsageLimits(requests=2), UsageLimits(tool_calls=2), UsageLimits(total_tokens=30)]
CONFIGS: st.SearchStrategy[ToolLoopConfig[Any]] = st.builds(
    ToolLoopConfig,
    execution=st.sampled_from([Sequential(), Parallel(), Parallel(limit=1)]),
    max_iterations=st.integers(1, 4),
    on_max_iterations=st.sampled_from(["stop", "answer"]),
    stop_when=st.sampled_from([None, stop_after(steps=2), token_budget(25), when_called("alone")]),
    loop_detection=st.sampled_from(
        [
            None,
            LoopDetectionConfig(threshold=2, action="stop"),
            LoopDetectionConfig(threshold=2, action="skip", mode="call"),
            LoopDetectionConfig(threshold=2, action="inject_warning", window=3, include_results=True),
        ]
    ),
    limits=st.builds(
        LoopLimits,
        usage=st.sampled_from([None, UsageLimits(requests=2), UsageLimits(tool_calls=2), UsageLimits(total_tokens=30)]),
        calls_per_turn=st.sampled_from([1, 2, 128]),
    ),
    answer=st.none()
    | st.builds(AnswerFormat, st.just(int), mode=st.sampled_from(["tool", "native"]), max_retries=st.integers(0, 2)),
    middleware=st.tuples(
        st.sampled_from(
            [
                None,
                ToolOrder(required_steps=("echo",), max_retries=1),
                ToolOrder(required_steps=("alone",), after={"alone": "echo", "answer": ["alone"]}),
            ]
        ),
        st.sampled_from([None, SteeredRetries(), SteeredRetries(max_held=1, max_failures=2)]),
    ).map(lambda pair: tuple([each for each in pair if each is not None])),
    signing_key=st.sampled_from([None, b"key"]),
)
DECISIONS = st.lists(
    st.sampled_from([True, True, False, Deny("no"), Modify({"text": "z"}), Abort("enough")]), min_size=40, max_size=40
)


def provider(script: list[AssistantMessage]) -> ScriptedProvider:
    replies = [ChatResponse(message=message, usage=Usage(input_tokens=7, output_tokens=3)) for message in script]
    return ScriptedProvider([*replies, *["end"] * 20])


def outcome(result: ToolLoopResult[Any]) -> tuple[Any, ...]:
    validate_transcript(result.messages)
    return (
        dump_messages(result.messages),
        result.text,
        result.output,
        result.usage,
        result.iterations,
        result.tool_rounds,
        result.reason,
    )


def put_off(request: ApprovalRequest) -> Defer:
    return Defer()


async def saved_everywhere(
    script: list[AssistantMessage], config: ToolLoopConfig[Any], decisions: Iterator[Any]
) -> ToolLoopResult[Any]:
    """Run with every decision put off, through JSON at each boundary and after each decision."""
    model = provider(script)
    handle: ToolLoopHandle[Any, Any] = ToolLoopHandle(model, TOOLS, "go", config=config)

    def through_json() -> ToolLoopHandle[Any, Any]:
        snapshot = json.loads(json.dumps(handle.snapshot()))
        return ToolLoopHandle.restore(snapshot, model, TOOLS, ctx=None, config=config)

    while True:
        turn = await handle.next_turn()
        validate_transcript(handle.messages)
        handle = through_json()
        if isinstance(turn, Yielded):
            continue
        if not handle.pending_approvals:
            return handle.result
        while handle.pending_approvals:
            first = handle.pending_approvals[0]
            await handle.decide(first.call_id, next(decisions), binding=first.binding)
            handle = through_json()
            if handle.is_finished:
                return handle.result


@pytest.mark.parametrize("defers", [False, True])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS, config=CONFIGS, decisions=DECISIONS)
def test_a_loop_saved_at_every_boundary_is_the_loop_that_was_not(
    defers: bool, script: list[AssistantMessage], config: ToolLoopConfig[Any], decisions: list[Any]
) -> None:
    async def compare() -> None:
        early = iter(decisions * 9)

        def decide_now(request: ApprovalRequest) -> Any:
            return next(early)

        RUNS.clear()
        at_once = replace(config, on_tool_call=decide_now if defers else None)
        expected = await tool_loop(provider(script), TOOLS, "go", config=at_once)
        ran = list(RUNS)

        RUNS.clear()
        later = replace(config, on_tool_call=put_off if defers else None)
        result = await saved_everywhere(script, later, iter(decisions * 9))
        assert not isinstance(result.reason, AwaitingApproval)
        assert outcome(result) == outcome(expected)
        assert ran == RUNS

    anyio.run(compare)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS, config=CONFIGS, words=st.lists(st.integers(0, 8), max_size=6), follow_ups=st.integers(0, 2))
def test_no_word_is_lost_whatever_the_ending(
    script: list[AssistantMessage], config: ToolLoopConfig[Any], words: list[int], follow_ups: int
) -> None:
    """Each word that is said during a run is in its transcript or in the queue, once and in its order."""
    steering = Steering()
    said: list[str] = []
    asked: list[int] = []

    def speak(event: object) -> None:
        asked.append(0)
        for _ in range(words.count(len(asked))):
            said.append(f"word {len(said)}")
            steering.steer(said[-1])

    async def run() -> list[Any]:
        for number in range(follow_ups):
            steering.follow_up(f"follow {number}")
        handle: ToolLoopHandle[Any, Any] = ToolLoopHandle(
            provider(script), TOOLS, "go", config=replace(config, steering=steering, on_event=speak)
        )
        await handle.run()
        validate_transcript(handle.messages)
        return handle.messages

    messages = anyio.run(run)
    left = [message.text for message in steering.take_steered()]
    while more := steering.take_follow_up():
        left += [message.text for message in more]
    texts = [message.text for message in messages if isinstance(message, UserMessage)] + left
    assert [text for text in texts if text.startswith("word ")] == said
    assert [text for text in texts if text.startswith("follow ")] == [
        f"follow {number}" for number in range(follow_ups)
    ]
