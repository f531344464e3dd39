"""The main job: what a caller of `tool_loop` sees, setting by setting."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.busy_machine import with_time_enough
from tests.flows.small_tools import TOOLS, echo, say
from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    Deny,
    LoopDetectionConfig,
    LoopLimits,
    Message,
    Modify,
    ProviderError,
    ProviderRetryConfig,
    Steering,
    Timeouts,
    ToolCall,
    ToolContext,
    ToolError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolLoopResult,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    UsageLimits,
    UserMessage,
    stop_after,
    tool,
    tool_loop,
    tool_with_ctx,
)
from toolkit.chat import ChatResponse
from toolkit.endings import (
    Aborted,
    Cancelled,
    Complete,
    MaxIterations,
    ResultAsAnswer,
    StopCondition,
    Timeout,
    UsageLimit,
)
from toolkit.errors import MaxDepthExceededError, RateLimitedError
from toolkit.events import LoopDetected, LoopEvent, ProviderRetried, ToolCallRefused, ToolExecutionEnd
from toolkit.policies import Batched, Parallel, Sequential, ToolExecutionHooks, and_, or_, token_budget, when_called
from toolkit.testing import EventCollector, ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name, name, arguments)


def results(messages: Sequence[Message]) -> list[ToolResult]:
    return [message for message in messages if isinstance(message, ToolResult)]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


def repeating() -> ScriptedProvider:
    """Ask for the same again and again, each time under another id."""
    return ScriptedProvider([lambda request: say("x", f"c{len(request.messages)}")], repeats=True)


# limits


@dataclass(frozen=True)
class Limit:
    most: int
    requests_stop: int
    requests_answer: int


@pytest.mark.parametrize("limit", [Limit(1, 1, 2), Limit(3, 3, 4)])
async def test_max_iterations_counts_tool_turns_and_answer_adds_one_request_without_tools(limit: Limit) -> None:
    stopped = await tool_loop(repeating(), TOOLS, "go", config=ToolLoopConfig(max_iterations=limit.most))
    assert stopped.reason == MaxIterations(limit.most)
    assert (stopped.iterations, stopped.tool_rounds) == (limit.requests_stop, limit.most)
    check_transcript(stopped.messages)

    def answer_without_tools(request: ChatRequest) -> object:
        return say("x", f"c{len(request.messages)}") if request.tools else "my answer"

    provider = ScriptedProvider([answer_without_tools], repeats=True)
    config = ToolLoopConfig(max_iterations=limit.most, on_max_iterations="answer")
    answered = await tool_loop(provider, TOOLS, "go", config=config)
    assert answered.reason == MaxIterations(limit.most)
    assert answered.iterations == limit.requests_answer
    assert answered.text == "my answer"


async def test_no_tool_turn_at_all_is_one_answer_without_tools() -> None:
    config = ToolLoopConfig(max_iterations=0, on_max_iterations="answer")
    provider = ScriptedProvider(["my answer"])
    result = await tool_loop(provider, TOOLS, "go", config=config)
    assert (result.text, result.reason, provider.requests[0].tools) == ("my answer", MaxIterations(0), ())


async def test_calls_in_the_answer_after_the_last_turn_are_not_run() -> None:
    config = ToolLoopConfig(max_iterations=1, on_max_iterations="answer")
    result = await tool_loop(repeating(), TOOLS, "go", config=config)
    check_transcript(result.messages)
    assert results(result.messages)[-1].text == "Not started: no more tool turns are allowed."


async def test_usage_limits_hold_for_requests_and_calls_and_nested_loops_share_them() -> None:
    limited = await tool_loop(
        repeating(),
        TOOLS,
        "go",
        config=ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=2)), max_iterations=9),
    )
    assert limited.reason == UsageLimit("requests", 2, 2)
    assert limited.iterations == 2

    three = AssistantMessage([say("1", "a"), say("2", "b"), say("3", "c")])
    provider = ScriptedProvider([three, "never asked"])
    result = await tool_loop(
        provider, TOOLS, "go", config=ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(tool_calls=2)))
    )
    assert isinstance(result.reason, UsageLimit)
    assert [each.is_error for each in results(result.messages)] == [False, False, True]

    inner = repeating()

    @tool
    async def delegate() -> str:
        """Run a loop in a tool."""
        return str((await tool_loop(inner, TOOLS, "inner")).reason)

    outer = ScriptedProvider([call("delegate"), "done"])
    config = ToolLoopConfig(limits=LoopLimits(usage=UsageLimits(requests=4)))
    shared = await tool_loop(outer, ToolRegistry([delegate]), "go", config=config)
    assert len(inner.requests) + len(outer.requests) == 4
    assert isinstance(shared.reason, UsageLimit)


@pytest.mark.parametrize(
    ("condition", "iterations"),
    [
        (stop_after(steps=2), 2),
        (when_called("echo"), 1),
        (token_budget(40), 3),
        (or_(stop_after(steps=3), token_budget(1)), 1),
        (and_(stop_after(steps=2), when_called("echo")), 2),
    ],
    ids=["stop_after", "when_called", "token_budget", "or_", "and_"],
)
async def test_stop_when_ends_the_loop_before_the_calls_of_that_response(condition: Any, iterations: int) -> None:
    result = await tool_loop(repeating(), TOOLS, "go", config=ToolLoopConfig(stop_when=condition))
    assert isinstance(result.reason, StopCondition)
    assert (result.iterations, result.tool_rounds) == (iterations, iterations - 1)
    check_transcript(result.messages)
    assert results(result.messages)[-1].text == "Not started: the run was stopped."


# execution


@pytest.mark.parametrize(
    ("execution", "together"), [(Parallel(), 3), (Parallel(2), 2), (Batched(2), 2), (Batched(1), 1), (Sequential(), 1)]
)
async def test_results_stand_in_call_order_although_calls_end_in_another(
    execution: Parallel | Batched | Sequential, together: int
) -> None:
    running: list[str] = []
    most: list[int] = []
    ended = {name: anyio.Event() for name in "abc"}

    @tool
    async def wait(name: str) -> str:
        """Of those that run together the last called ends first."""
        running.append(name)
        most.append(len(running))
        await anyio.wait_all_tasks_blocked()
        follower = chr(ord(name) + 1)
        if follower in running:
            await ended[follower].wait()
        running.remove(name)
        ended[name].set()
        return name

    provider = ScriptedProvider(
        [AssistantMessage([ToolCall(name, "wait", f'{{"name": "{name}"}}') for name in "abc"]), "done"]
    )
    events = EventCollector()
    with anyio.fail_after(120):
        result = await tool_loop(
            provider, ToolRegistry([wait]), "go", config=ToolLoopConfig(execution=execution, on_event=events)
        )
    check_transcript(result.messages, events.events)
    assert [each.text for each in results(result.messages)] == ["a", "b", "c"]
    assert max(most) == together
    if execution == Parallel():
        assert events.ended == ["c", "b", "a"]


async def test_a_sequential_tool_runs_alone_among_parallel_ones() -> None:
    running: set[str] = set()

    @tool
    async def beside(name: str) -> int:
        """Run beside others."""
        running.add(name)
        await anyio.wait_all_tasks_blocked()
        count = len(running)
        running.discard(name)
        return count

    @tool(sequential=True)
    async def alone() -> int:
        """Run beside no other."""
        await anyio.wait_all_tasks_blocked()
        return len(running)

    asked = [ToolCall(name, "beside", f'{{"name": "{name}"}}') for name in "abcd"]
    asked.insert(2, ToolCall("x", "alone", "{}"))
    with anyio.fail_after(120):
        result = await tool_loop(
            ScriptedProvider([AssistantMessage(asked), "done"]), ToolRegistry([beside, alone]), "go"
        )
    assert results(result.messages)[2].text == "0"


# what goes wrong in a call


async def test_what_a_model_or_a_tool_does_wrong_becomes_an_error_result_of_non_empty_text() -> None:
    @tool(run_in_thread=False)
    def crash() -> str:
        """Crash without a word."""
        raise ValueError

    @tool(run_in_thread=False)
    def fail() -> str:
        """Fail in words."""
        raise ToolError("the words")

    asked = AssistantMessage([call("crash"), call("fail"), call("zzz"), ToolCall("bad", "echo", '{"text": ')])
    events = EventCollector()
    result = await tool_loop(
        ScriptedProvider([asked, "done"]),
        ToolRegistry([crash, fail, echo]),
        "go",
        config=ToolLoopConfig(on_event=events),
    )
    assert result.reason == Complete()
    check_transcript(result.messages, events.events)
    crashed, failed, unknown, invalid = results(result.messages)
    assert all(each.is_error for each in (crashed, failed, unknown, invalid))
    assert "ValueError" in crashed.text
    assert failed.text == "the words"
    assert "zzz" in unknown.text
    assert "echo" in unknown.text
    assert invalid.text
    assert [event.call_id for event in events.of(ToolCallRefused)] == ["zzz", "bad"]


async def test_a_failed_call_is_retried_under_one_start_and_one_end_and_approved_once() -> None:
    runs: list[int] = []
    asked: list[str] = []

    @tool_with_ctx(retry=ToolRetryConfig(max_retries=2, initial_backoff=0))
    async def flaky(context: ToolContext[object]) -> str:
        """Succeed the third time."""
        runs.append(context.attempt)
        if len(runs) < 3:
            raise ValueError("again")
        return "at last"

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool_name)
        return True

    events = EventCollector()
    config = ToolLoopConfig(on_event=events, on_tool_call=approve)
    result = await tool_loop(ScriptedProvider([call("flaky"), "done"]), ToolRegistry([flaky]), "go", config=config)
    assert runs == [1, 2, 3]
    assert (asked, events.started, events.ended) == (["flaky"], ["flaky"], ["flaky"])
    assert results(result.messages)[0].text == "at last"


async def test_a_result_can_be_the_answer_and_a_failed_one_never_is() -> None:
    @tool(result_as_answer=True)
    async def answer(ok: bool) -> str:
        """Answer."""
        if not ok:
            raise ToolError("not yet")
        return "forty-two"

    provider = ScriptedProvider([ToolCall("a", "answer", '{"ok": false}'), ToolCall("b", "answer", '{"ok": true}')])
    result = await tool_loop(provider, ToolRegistry([answer]), "go")
    assert result.reason == ResultAsAnswer("b", "answer")
    assert result.text == "forty-two"
    assert result.iterations == 2


# approval


async def _never(request: ApprovalRequest) -> bool:
    await anyio.sleep_forever()
    return True


async def _later(request: ApprovalRequest) -> Approve:
    await anyio.wait_all_tasks_blocked()
    return Approve()


def _always(answer: object) -> Callable[[ApprovalRequest], Any]:
    return lambda request: answer


def _raise(request: ApprovalRequest) -> bool:
    raise RuntimeError("the approver is broken")


CHANGED = 'changed\n\n[The approver changed the arguments of this call: it ran with {"text":"changed"}.]'


@pytest.mark.parametrize(
    ("hook", "text", "is_error"),
    [
        (_always(Approve()), "hi", False),
        (_always(True), "hi", False),
        (_later, "hi", False),
        (_always(Modify({"text": "changed"})), CHANGED, False),
        (_always(Deny("Because I say so: «no».")), "Because I say so: «no».", True),
        (_always("not today"), "not today", True),
        (_always(False), None, True),
        (_raise, None, True),
        (_never, None, True),
        (_always(Modify({"wrong": 1})), None, True),
        (_always(42), None, True),
    ],
    ids=["Approve", "True", "async", "Modify", "Deny", "str", "False", "raises", "hangs", "Modify wrongly", "nonsense"],
)
async def test_the_approver_decides(hook: Callable[[ApprovalRequest], Any], text: str | None, is_error: bool) -> None:
    events = EventCollector()
    approval_timeout = 0.05 if hook is _never else None
    config = ToolLoopConfig(on_tool_call=hook, timeouts=Timeouts(approval=approval_timeout), on_event=events)
    with anyio.fail_after(120):
        result = await tool_loop(ScriptedProvider([say("hi"), "done"]), TOOLS, "go", config=config)
    check_transcript(result.messages, events.events)
    (only,) = results(result.messages)
    assert only.is_error == is_error
    assert only.text
    assert text is None or only.text == text
    assert events.started == ([] if is_error else ["1"])


async def test_abort_ends_the_run_and_answers_all_calls_and_none_has_started_before_all_are_decided() -> None:
    def approve(request: ApprovalRequest) -> bool | Abort:
        return Abort("enough") if request.call_id == "b" else True

    events = EventCollector()
    asked = AssistantMessage([say("1", "a"), say("2", "b"), say("3", "c")])
    config = ToolLoopConfig(on_tool_call=approve, on_event=events)
    result = await tool_loop(ScriptedProvider([asked]), TOOLS, "go", config=config)
    assert result.reason == Aborted("enough")
    check_transcript(result.messages, events.events)
    assert [each.text for each in results(result.messages)] == ["Not started: the run was aborted."] * 3
    assert events.started == []


# detection


@pytest.mark.parametrize("mode", ["batch", "call"])
async def test_each_action_of_loop_detection(mode: Any) -> None:
    def config(action: Any) -> tuple[EventCollector, ToolLoopConfig]:
        events = EventCollector()
        detection = LoopDetectionConfig(threshold=2, action=action, mode=mode)
        return events, ToolLoopConfig(loop_detection=detection, on_event=events, max_iterations=3)

    events, settings = config("warn")
    warned = await tool_loop(repeating(), TOOLS, "go", config=settings)
    assert warned.reason == MaxIterations(3)
    assert [event.count for event in events.of(LoopDetected)] == [2, 3]

    events, settings = config("stop")
    stopped = await tool_loop(repeating(), TOOLS, "go", config=settings)
    assert stopped.reason == LoopDetected(tool_name="echo", count=2, action="stop")
    check_transcript(stopped.messages, events.events)

    events, settings = config("inject_warning")
    told = await tool_loop(repeating(), TOOLS, "go", config=settings)
    check_transcript(told.messages, events.events)
    assert roles(told.messages)[:6] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert not any(each.is_error for each in results(told.messages))

    events, settings = config("skip")
    skipped = await tool_loop(repeating(), TOOLS, "go", config=settings)
    check_transcript(skipped.messages, events.events)
    assert len(events.started) == 1
    assert results(skipped.messages)[1].is_error


# time


async def test_the_loops_time_runs_out_while_the_model_thinks() -> None:
    class Silent(ScriptedProvider):
        async def generate(self, request: ChatRequest) -> ChatResponse:
            await anyio.sleep_forever()
            return await super().generate(request)

    result = await tool_loop(Silent([]), TOOLS, "go", config=ToolLoopConfig(timeout=0.02))
    assert result.reason == Timeout(0.02)
    assert result.response is None


async def test_the_loops_time_runs_out_in_tools_and_what_was_done_stays() -> None:
    asked = AssistantMessage([call("hang"), say("done")])

    async def run(seconds: float) -> ToolLoopResult:
        events = EventCollector()
        config = ToolLoopConfig(timeout=seconds, on_event=events)
        with anyio.fail_after(120):
            result = await tool_loop(ScriptedProvider([asked]), TOOLS, "go", config=config)
        assert result.reason == Timeout(seconds)
        check_transcript(result.messages, events.events)
        return result

    result = await with_time_enough(
        run, lambda result: [each for each in results(result.messages) if not each.is_error]
    )
    hung, done = results(result.messages)
    assert "Interrupted: the run's time was up." in hung.text
    assert done.text == "done"
    assert result.response is not None


async def test_no_more_threads_run_at_once_than_are_allowed() -> None:
    running: set[int] = set()
    most = 0
    both = threading.Barrier(2, timeout=20)

    @tool
    def pair(n: int) -> str:
        nonlocal most
        running.add(n)
        most = max(most, len(running))
        both.wait()
        running.remove(n)
        both.wait()
        return str(n)

    calls = [ToolCall(str(n), "pair", f'{{"n": {n}}}') for n in range(6)]
    provider = ScriptedProvider([AssistantMessage(calls), "done"])
    result = await tool_loop(provider, ToolRegistry([pair]), "go", config=ToolLoopConfig(sync_workers=2))
    assert [message.text for message in results(result.messages)] == ["0", "1", "2", "3", "4", "5"]
    assert most == 2


async def test_a_thread_learns_that_the_loops_time_is_up() -> None:
    has_begun, has_seen = threading.Event(), threading.Event()

    @tool_with_ctx
    def watch(context: ToolContext[object]) -> str:
        """Work until nobody waits for it."""
        has_begun.set()
        end = time.monotonic() + 30
        while not context.cancelled and time.monotonic() < end:
            time.sleep(0.001)
        if context.cancelled:
            has_seen.set()
        return "never read"

    async def run(seconds: float) -> ToolLoopResult:
        config = ToolLoopConfig(timeout=seconds)
        return await tool_loop(ScriptedProvider([call("watch")]), ToolRegistry([watch]), "go", config=config)

    result = await with_time_enough(run, lambda _: has_begun.is_set())
    assert "may have taken effect" in results(result.messages)[0].text
    assert await anyio.to_thread.run_sync(has_seen.wait, 20)


async def test_the_loops_time_runs_out_in_the_pause_before_a_retry() -> None:
    @tool(retry=ToolRetryConfig(initial_backoff=60, max_backoff=60))
    async def flaky() -> str:
        """Fail."""
        raise ValueError("again")

    with anyio.fail_after(120):
        result = await tool_loop(
            ScriptedProvider([call("flaky")]), ToolRegistry([flaky]), "go", config=ToolLoopConfig(timeout=0.05)
        )
        assert result.reason == Timeout(0.05)
        busy = ScriptedProvider([RateLimitedError("scripted", "busy", is_retryable=True)])
        retry = ProviderRetryConfig(initial_backoff=20)
        result = await tool_loop(busy, TOOLS, "go", config=ToolLoopConfig(timeout=0.05, provider_retry=retry))
    assert result.reason == Timeout(0.05)


async def test_a_tools_own_time_leaves_its_siblings_alone() -> None:
    asked = AssistantMessage([call("hang"), say("fine")])
    config = ToolLoopConfig(timeouts=Timeouts(tool=0.02))
    with anyio.fail_after(120):
        result = await tool_loop(ScriptedProvider([asked, "done"]), TOOLS, "go", config=config)
    assert result.reason == Complete()
    assert [each.is_error for each in results(result.messages)] == [True, False]


async def test_a_run_in_which_a_tool_was_late_still_ends_by_its_own_time() -> None:
    class SilentLater(ScriptedProvider):
        async def generate(self, request: ChatRequest) -> ChatResponse:
            if len(request.messages) > 1:
                await anyio.sleep_forever()
            return await super().generate(request)

    config = ToolLoopConfig(timeout=0.2, timeouts=Timeouts(tool=0.01))
    with anyio.fail_after(120):
        result = await tool_loop(SilentLater([call("hang")]), TOOLS, "go", config=config)
    assert result.reason == Timeout(0.2)
    assert [each.is_error for each in results(result.messages)] == [True]


async def test_a_run_in_which_a_tool_was_late_can_still_be_cancelled() -> None:
    def cancel(event: LoopEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            handle.cancel("enough")

    config = ToolLoopConfig(timeouts=Timeouts(tool=0.01), on_event=cancel)
    handle = ToolLoopHandle(ScriptedProvider([call("hang"), call("hang"), "done"]), TOOLS, "go", config=config)
    with anyio.fail_after(120):
        result = await handle.run()
    assert result.reason == Cancelled("enough")
    assert [each.is_error for each in results(result.messages)] == [True]


# the provider


async def test_a_request_is_made_again_where_that_may_help() -> None:
    events = EventCollector()
    provider = ScriptedProvider([RateLimitedError("scripted", "busy", is_retryable=True, retry_after=0.01), "at last"])
    retry = ProviderRetryConfig(initial_backoff=0)
    result = await tool_loop(provider, TOOLS, "go", config=ToolLoopConfig(on_event=events, provider_retry=retry))
    assert result.text == "at last"
    (retried,) = events.of(ProviderRetried)
    assert (retried.attempt, retried.delay) == (1, 0.01)


async def test_a_request_that_fails_for_good_raises_with_the_transcript_and_runs_no_tool_again() -> None:
    provider = ScriptedProvider([say("once"), ProviderError("scripted", "broken")])
    events = EventCollector()
    with pytest.raises(ProviderError) as caught:
        await tool_loop(provider, TOOLS, "go", config=ToolLoopConfig(on_event=events))
    assert caught.value.messages is not None
    check_transcript(caught.value.messages, events.events)
    assert [each.text for each in results(caught.value.messages)] == ["once"]


# depth


@dataclass
class Deep:
    """A context that carries its depth."""

    loop_depth: int = 0
    seen: list[int] = field(default_factory=list[int])

    def with_depth(self, depth: int) -> "Deep":
        self.seen.append(depth)
        return replace(self, loop_depth=depth)


@pytest.mark.parametrize("make", [lambda: None, object, Deep], ids=["None", "object", "LoopDepth"])
async def test_the_innermost_loop_raises_and_the_one_around_it_is_told(make: Callable[[], Any]) -> None:
    depths: list[int] = []
    told: list[str] = []

    @tool_with_ctx
    async def deeper(context: ToolContext[object]) -> str:
        """Run a loop in a tool, with more depth than is left."""
        depths.append(context.depth)
        provider = ScriptedProvider([call("deeper"), "done"])
        config = ToolLoopConfig(max_depth=9)
        result = await tool_loop(provider, tools, "deeper", ctx=context.state, config=config)
        told.append(results(result.messages)[0].text)
        return "done"

    tools = ToolRegistry[object]([deeper])
    provider = ScriptedProvider([call("deeper"), "done"])
    result = await tool_loop(provider, tools, "go", ctx=make(), config=ToolLoopConfig(max_depth=2))
    assert result.reason == Complete()
    assert depths == [1, 2]
    assert "MaxDepthExceededError" in told[0]


async def test_a_depth_of_zero_forbids_even_the_outermost_loop() -> None:
    with pytest.raises(MaxDepthExceededError) as caught:
        await tool_loop(ScriptedProvider(["never asked"]), TOOLS, "go", config=ToolLoopConfig(max_depth=0))
    assert (caught.value.depth, caught.value.limit) == (0, 0)


# from outside


async def test_steering_skips_what_has_not_started_and_a_follow_up_waits_for_the_end() -> None:
    steering = Steering()

    @tool
    async def steer() -> str:
        """Interrupt the run from inside."""
        steering.steer("stop that")
        return "steered"

    steering.follow_up("and now this")
    asked = AssistantMessage([call("steer"), say("never")])
    provider = ScriptedProvider([asked, "first answer", "second answer"])
    events = EventCollector()
    config = ToolLoopConfig(steering=steering, execution=Sequential(), on_event=events)
    result = await tool_loop(provider, ToolRegistry([steer, echo]), "go", config=config)
    check_transcript(result.messages, events.events)
    assert roles(result.messages) == ["user", "assistant", "tool", "tool", "user", "assistant", "user", "assistant"]
    assert results(result.messages)[1].text == "Not started: skipped because of a new message."
    assert result.text == "second answer"
    assert steering.is_empty


async def test_a_change_of_the_registry_is_seen_by_the_next_turn() -> None:
    tools = ToolRegistry[object]()

    @tool
    async def learn() -> str:
        """Add a tool."""
        tools.register(echo)
        return "learned"

    tools.register(learn)
    provider = ScriptedProvider([call("learn"), say("it works"), "done"])
    result = await tool_loop(provider, tools, "go")
    assert [each.name for each in provider.requests[0].tools or ()] == ["learn"]
    assert [each.name for each in provider.requests[1].tools or ()] == ["learn", "echo"]
    assert results(result.messages)[1].text == "it works"


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_observer_that_raises_changes_nothing(is_async: bool) -> None:
    def raises(event: LoopEvent) -> None:
        raise RuntimeError("broken observer")

    async def raises_later(event: LoopEvent) -> None:
        raise RuntimeError("broken observer")

    config = ToolLoopConfig(on_event=raises_later if is_async else raises)
    result = await tool_loop(ScriptedProvider([say("hi"), "done"]), TOOLS, "go", config=config)
    assert (result.reason, result.text) == (Complete(), "done")


async def test_the_hook_before_skips_and_the_one_after_is_told_only_of_what_ran() -> None:
    after: list[tuple[str, str, bool]] = []

    def before(name: str, call_id: str, arguments: object) -> bool:
        return call_id != "skip"

    events = EventCollector()
    asked = AssistantMessage([say("1", "skip"), say("2", "run")])
    config = ToolLoopConfig(
        middleware=[
            ToolExecutionHooks(
                before=before, after=lambda name, call_id, is_error: after.append((name, call_id, is_error))
            )
        ],
        on_event=events,
    )
    result = await tool_loop(ScriptedProvider([asked, "done"]), TOOLS, "go", config=config)
    check_transcript(result.messages, events.events)
    assert results(result.messages)[0].text == "Tool execution skipped by before_tool_execution hook."
    assert after == [("echo", "run", False)]
    assert events.started == ["run"]


async def test_the_callers_transcript_is_copied_and_never_changed() -> None:
    mine: list[Message] = [UserMessage("go")]
    result = await tool_loop(ScriptedProvider([say("hi"), "done"]), TOOLS, mine)
    assert len(mine) == 1
    assert result.messages[0] is mine[0]
