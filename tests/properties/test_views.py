"""All views of a loop are one loop: same messages, same events, same usage on the same script."""

import json
import re
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    Completed,
    Defer,
    Deny,
    Done,
    LoopDetectionConfig,
    Modify,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    Usage,
    Yielded,
    tool,
    tool_loop,
    tool_loop_channel,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse, TextBlock, dump_messages, validate_transcript
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd
from toolkit.policies import Batched, Parallel, Sequential, SteeredRetries, ToolOrder
from toolkit.testing import ScriptedProvider


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(run_in_thread=False)
def fail(why: str = "") -> str:
    """Fail."""
    raise ToolError(why) if why else ValueError


@tool_with_ctx
async def count(context: ToolContext[object], to: int) -> int:
    """Count."""
    for number in range(to):
        context.report_progress(str(number))
    return to


@tool(result_as_answer=True, run_in_thread=False)
def answer(text: str) -> str:
    """Answer."""
    return text


TOOLS = ToolRegistry([echo, fail, count, answer])

CALLS = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from(["echo", "Echo", "fail", "count", "answer", "nothing", "coun"]),
    st.sampled_from(
        ['{"text": "x"}', '{"to": 2}', "{}", '{"why": "no"}', '{"text": ', "{'text': 'y',}", "[]", '{"to": "3"}']
    ),
)
REPLIES = st.one_of(
    st.text("ab ", min_size=1, max_size=5).map(AssistantMessage),
    st.lists(CALLS, min_size=1, max_size=4).map(AssistantMessage),
    st.lists(CALLS, min_size=1, max_size=2).map(lambda calls: AssistantMessage([TextBlock("well"), *calls])),
)
SCRIPTS = st.lists(REPLIES, min_size=1, max_size=5)


def decide(request: ApprovalRequest) -> Any:
    """Answer by what is asked, the same for each view."""
    if request.arguments.get("why") == "no":
        return Deny("not that")
    if request.arguments.get("to") == 2:
        return Modify({"to": 1})
    return True


CONFIGS = st.builds(
    ToolLoopConfig,
    execution=st.sampled_from([Sequential(), Parallel(), Parallel(limit=2), Batched(2)]),
    max_iterations=st.integers(1, 4),
    on_max_iterations=st.sampled_from(["stop", "answer"]),
    on_tool_call=st.sampled_from([None, decide]),
    loop_detection=st.sampled_from(
        [
            None,
            LoopDetectionConfig(threshold=2, action="inject_warning"),
            LoopDetectionConfig(threshold=2, action="skip"),
        ]
    ),
    middleware=st.tuples(
        st.sampled_from(
            [
                None,
                ToolOrder(required_steps=("echo",)),
                ToolOrder(after={"answer": "echo", "count": ["fail"]}, max_retries=0),
            ]
        ),
        st.sampled_from([None, SteeredRetries()]),
    ).map(lambda pair: tuple([each for each in pair if each is not None])),
)


def provider(script: list[AssistantMessage]) -> ScriptedProvider:
    replies = [ChatResponse(message=message, usage=Usage(input_tokens=7, output_tokens=3)) for message in script]
    return ScriptedProvider([*replies, *["end"] * 20])


def signature(events: list[LoopEvent]) -> list[str]:
    """Return what happened, without what may differ from run to run: times, and the order of parallel calls."""
    parts: list[str] = []
    for event in events:
        if isinstance(event, Done | RunStart):  # a loop that is taken up again starts again
            continue
        told = replace(event, duration=0.0) if isinstance(event, ToolExecutionEnd) else event
        parts.append(re.sub(r"\btime=[\d.]+", "time=", repr(told)))
    return sorted(parts)


def outcome(result: ToolLoopResult[Any]) -> tuple[Any, ...]:
    validate_transcript(result.messages)
    return (
        dump_messages(result.messages),
        result.text,
        result.usage,
        result.iterations,
        result.tool_rounds,
        result.reason,
    )


async def as_loop(script: list[AssistantMessage], config: ToolLoopConfig) -> tuple[Any, list[str]]:
    events: list[LoopEvent] = []
    result = await tool_loop(provider(script), TOOLS, "go", config=listening(config, events))
    return outcome(result), signature(events)


async def as_stream(script: list[AssistantMessage], config: ToolLoopConfig) -> tuple[Any, list[str]]:
    events: list[LoopEvent] = []
    async with tool_loop_stream(provider(script), TOOLS, "go", config=config) as stream:
        async for event in stream:
            events.append(event)
    assert isinstance(events[-1], Done)
    return outcome(events[-1].result), signature(events)


async def as_channel(script: list[AssistantMessage], config: ToolLoopConfig) -> tuple[Any, list[str]]:
    events: list[LoopEvent] = []
    async with tool_loop_channel(provider(script), TOOLS, "go", config=config, buffer_size=0) as (stream, handle):
        async for event in stream:
            events.append(event)
        return outcome(await handle.result()), signature(events)


async def as_handle(script: list[AssistantMessage], config: ToolLoopConfig) -> tuple[Any, list[str]]:
    events: list[LoopEvent] = []
    handle = ToolLoopHandle(provider(script), TOOLS, "go", config=listening(config, events))
    while isinstance(await handle.next_turn(), Yielded):
        validate_transcript(handle.messages)
    return outcome(handle.into_result()), signature(events)


async def as_saved_handles(script: list[AssistantMessage], config: ToolLoopConfig) -> tuple[Any, list[str]]:
    events: list[LoopEvent] = []
    model = provider(script)
    handle = ToolLoopHandle(model, TOOLS, "go", config=listening(config, events))
    while isinstance(await handle.next_turn(), Yielded):
        snapshot = json.loads(json.dumps(handle.snapshot()))
        handle = ToolLoopHandle.restore(snapshot, model, TOOLS, ctx=None, config=listening(config, events))
    return outcome(handle.into_result()), signature(events)


def listening(config: ToolLoopConfig, events: list[LoopEvent]) -> ToolLoopConfig:
    return replace(config, on_event=events.append)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS, config=CONFIGS)
def test_every_view_is_the_same_loop(backend: str, script: list[AssistantMessage], config: ToolLoopConfig) -> None:
    async def compare() -> None:
        expected = await as_loop(script, config)
        assert await as_stream(script, config) == expected
        assert await as_channel(script, config) == expected
        assert await as_handle(script, config) == expected
        assert await as_saved_handles(script, config) == expected

    anyio.run(compare, backend=backend)


@settings(max_examples=20, deadline=None)
@given(script=SCRIPTS, decisions=st.lists(st.booleans(), min_size=30, max_size=30))
def test_late_decisions_lead_where_early_ones_would(script: list[AssistantMessage], decisions: list[bool]) -> None:
    """Deferring every call and deciding later gives the same transcript as deciding at once."""

    async def compare() -> None:
        early = iter(decisions * 10)
        at_once: ToolLoopConfig = ToolLoopConfig(on_tool_call=lambda request: next(early))
        expected = await tool_loop(provider(script), TOOLS, "go", config=at_once)

        late = iter(decisions * 10)
        later: ToolLoopConfig = ToolLoopConfig(on_tool_call=lambda request: Defer())
        handle = ToolLoopHandle(provider(script), TOOLS, "go", config=later)
        while True:
            turn = await handle.next_turn()
            pending = handle.pending_approvals
            if isinstance(turn, Completed) and not pending:
                break
            for approval in pending:
                await handle.decide(approval.call_id, next(late), binding=approval.binding)
        assert outcome(handle.into_result()) == outcome(expected)

    anyio.run(compare)
