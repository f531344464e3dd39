"""Middleware stands around runs, requests and calls, in order, and whatever it does the transcript stays true."""

import json
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from toolkit import (
    Abort,
    ApprovalRequest,
    Approve,
    AssistantMessage,
    ChatRequest,
    Completed,
    ConfigurationError,
    Defer,
    Deny,
    Done,
    Failed,
    Message,
    Middleware,
    Modify,
    OutputLimits,
    ProviderRetryConfig,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    ToolResult,
    ToolRetryConfig,
    Yielded,
    tool,
    tool_loop,
    tool_loop_stream,
    tool_with_ctx,
)
from toolkit.agents import SubAgentEvent, sub_agent_tool
from toolkit.calls.caching import MemoryCache
from toolkit.chat import ChatResponse, ToolDefinition
from toolkit.endings import Aborted, AwaitingApproval, Cancelled, Complete
from toolkit.errors import LoopUsageError, RateLimitedError
from toolkit.events import LoopEvent, RunStart, ToolExecutionEnd, ToolExecutionUpdate
from toolkit.policies import (
    Approval,
    CallInfo,
    CallProceed,
    Delta,
    Refusal,
    ReplyPolicy,
    RequestInfo,
    RequestProceed,
    RunInfo,
    RunProceed,
)
from toolkit.testing import ScriptedProvider, check_transcript

pytestmark = pytest.mark.anyio

NOW = ProviderRetryConfig(initial_backoff=0.0)
CALL = ToolCall("1", "add", '{"a": 1, "b": 2}')
place: ContextVar[str] = ContextVar("place", default="outside")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def where() -> str:
    """Say in which place this runs."""
    return place.get()


@tool
def where_in_a_thread() -> str:
    """Say in which place this runs."""
    return f"{place.get()} {threading.current_thread() is threading.main_thread()}"


TOOLS = ToolRegistry([add, where, where_in_a_thread])


def provider() -> ScriptedProvider:
    return ScriptedProvider([CALL, "It is 3."])


@dataclass
class Recorder(Middleware[Any]):
    """Writes down all that it stands around."""

    name: str = ""
    told: list[str] = field(default_factory=list[str])
    events: list[LoopEvent] = field(default_factory=list[LoopEvent])

    @override
    async def around_run(self, run: RunInfo[Any], proceed: RunProceed) -> None:
        self.told.append(f"{self.name}run")
        try:
            result = await proceed()
            self.told.append(f"{self.name}ran {None if result is None else result.reason.kind}")
        except BaseException as error:
            self.told.append(f"{self.name}run raised {type(error).__name__}")
            raise

    @override
    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        self.told.append(f"{self.name}request {request.iteration}.{request.attempt}")
        response = await proceed()
        self.told.append(f"{self.name}answer {response.text}")
        return response

    @override
    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        self.told.append(f"{self.name}call {call.tool_name} {call.arguments_json}")
        output = await proceed()
        self.told.append(f"{self.name}output {output.text}")
        return output

    @override
    def on_event(self, event: LoopEvent) -> None:
        self.events.append(event)


@dataclass
class AroundRun(Middleware[Any]):
    """Does with a run what it is given."""

    do: Callable[[RunProceed], Awaitable[None]]

    @override
    async def around_run(self, run: RunInfo[Any], proceed: RunProceed) -> None:
        await self.do(proceed)


@dataclass
class AroundRequest(Middleware[Any]):
    """Does with a request what it is given."""

    do: Callable[[RequestInfo[Any], RequestProceed], Awaitable[ChatResponse]]

    @override
    async def around_request(self, request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        return await self.do(request, proceed)


@dataclass
class AroundCall(Middleware[Any]):
    """Does with a call what it is given."""

    do: Callable[[CallProceed], Awaitable[Any]]

    @override
    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        output: ToolOutput = await self.do(proceed)
        return output


def config(*middleware: Middleware[Any], **settings: Any) -> ToolLoopConfig[None]:
    return ToolLoopConfig(middleware=middleware, provider_retry=NOW, **settings)


def ends(events: Sequence[LoopEvent]) -> list[str]:
    return [type(event).__name__ for event in events if isinstance(event, (RunStart, Done, Failed))]


EXPECTED = [
    "run",
    "request 1.1",
    "answer ",
    'call add {"a":1,"b":2}',
    "output 3",
    "request 2.1",
    "answer It is 3.",
    "ran complete",
]


# in each view


async def run(handle: ToolLoopHandle[object, None]) -> None:
    await handle.run()


async def stream(handle: ToolLoopHandle[object, None]) -> None:
    async with handle.stream() as events:
        async for _ in events:
            pass


async def read_channel(handle: ToolLoopHandle[object, None]) -> None:
    async with handle.channel() as (_, task):
        await task.result()


@pytest.mark.parametrize("view", [run, stream, read_channel])
async def test_middleware_stands_around_a_run_its_requests_and_its_calls(
    view: Callable[[ToolLoopHandle[object, None]], Awaitable[None]],
) -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder))
    await view(handle)
    assert recorder.told == EXPECTED
    assert ends(recorder.events) == ["RunStart", "Done"]
    assert handle.result.text == "It is 3."


def test_middleware_stands_around_a_synchronous_run() -> None:
    recorder = Recorder()
    ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder)).run_sync()
    assert recorder.told == EXPECTED


async def test_each_turn_that_is_stepped_is_stood_around_and_the_last_one_tells_the_end() -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder))
    while not isinstance(await handle.next_turn(), Completed):
        recorder.told.append("between")
    assert recorder.told == [*EXPECTED[:5], "ran None", "between", "run", *EXPECTED[5:]]
    assert ends(recorder.events) == ["RunStart", "Done"]


async def test_turns_may_be_stepped_in_other_tasks_each_with_its_own_scopes_around() -> None:
    async def in_a_group(proceed: RunProceed) -> None:
        token = place.set("inside")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.lowlevel.checkpoint)
            await proceed()
        place.reset(token)

    scripted = ScriptedProvider([ToolCall("1", "where", "{}"), ToolCall("2", "where_in_a_thread", "{}"), "Done."])
    handle = ToolLoopHandle(scripted, TOOLS, "Where?", config=config(AroundRun(in_a_group)))
    outcomes: list[object] = []

    async def step() -> None:
        outcomes.append(await handle.next_turn())

    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)
    assert [result.text for result in handle.messages if isinstance(result, ToolResult)] == ["inside", "inside False"]
    assert isinstance(outcomes[-1], Completed)
    assert place.get() == "outside"


async def test_the_first_middleware_is_the_outermost() -> None:
    told: list[str] = []
    outer, inner = Recorder("outer ", told), Recorder("inner ", told)
    await tool_loop(ScriptedProvider(["Hi."]), TOOLS, "Hello", config=config(outer, inner))
    assert told == [
        "outer run",
        "inner run",
        "outer request 1.1",
        "inner request 1.1",
        "inner answer Hi.",
        "outer answer Hi.",
        "inner ran complete",
        "outer ran complete",
    ]


async def test_a_run_says_what_it_is() -> None:
    runs: list[RunInfo[Any]] = []

    class Look(Middleware[str]):
        @override
        def for_run(self, run: RunInfo[str]) -> Middleware[str]:
            runs.append(run)
            return self

    registry: ToolRegistry[str] = ToolRegistry([add])
    handle = ToolLoopHandle(
        provider(), registry, "Add.", ctx="mine", config=ToolLoopConfig(middleware=[Look()], metadata={"user": 7})
    )
    await handle.run()
    assert runs == [
        RunInfo(
            run_id=handle.loop_id,
            loop_id=handle.loop_id,
            provider="ScriptedProvider",
            tool_names=("add",),
            metadata={"user": 7},
            ctx="mine",
        )
    ]


async def test_each_run_may_be_served_by_an_object_of_its_own() -> None:
    made: list[Recorder] = []

    class Factory(Middleware[Any]):
        @override
        def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
            made.append(Recorder())
            return made[-1]

    shared: ToolLoopConfig[None] = config(Factory())
    async with anyio.create_task_group() as tasks:
        for _ in range(3):

            async def run_one() -> None:
                await tool_loop(provider(), TOOLS, "Add.", config=shared)

            tasks.start_soon(run_one)
    assert [each.told for each in made] == [EXPECTED] * 3
    assert all(len({event.loop_id for event in each.events}) == 1 for each in made)


# requests


async def test_a_request_may_be_changed_and_the_transcript_stays_as_it_is() -> None:
    async def shorten(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        return await proceed(replace(request.chat, messages=request.chat.messages[-1:], temperature=0.5))

    scripted = provider()
    result = await tool_loop(scripted, TOOLS, "Add.", config=config(AroundRequest(shorten)))
    assert [len(request.messages) for request in scripted.requests] == [1, 1]
    assert scripted.requests[0].temperature == 0.5
    assert len(result.messages) == 4


async def test_a_later_middleware_is_given_the_request_as_an_earlier_one_changed_it() -> None:
    seen: list[float | None] = []

    async def warm(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        return await proceed(replace(request.chat, temperature=0.5))

    async def look(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        seen.append(request.chat.temperature)
        return await proceed()

    both = config(AroundRequest(warm), AroundRequest(look))
    await tool_loop(ScriptedProvider(["Hi."]), TOOLS, "Hello", config=both)
    assert seen == [0.5]


async def test_each_attempt_is_seen_with_its_error() -> None:
    seen: list[str] = []

    async def look(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        try:
            response = await proceed()
        except RateLimitedError:
            seen.append(f"{request.attempt} failed")
            raise
        seen.append(f"{request.attempt} answered")
        return response

    scripted = ScriptedProvider([RateLimitedError("test", "slow down"), "Hi."])
    await tool_loop(scripted, TOOLS, "Hello", config=config(AroundRequest(look)))
    assert seen == ["1 failed", "2 answered"]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_middleware_may_answer_instead_of_the_provider(streams: bool) -> None:
    async def answer(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        return await ScriptedProvider(["From the cache."]).generate(request.chat)

    scripted = ScriptedProvider([])
    pieces: list[str] = []
    settings = config(AroundRequest(answer), stream=streams)
    async with tool_loop_stream(scripted, TOOLS, "Hello", config=settings) as events:
        pieces.extend([event.text async for event in events if isinstance(event, TextDelta)])
    assert events.result.text == "From the cache."
    assert scripted.requests == []
    assert pieces == (["From the cache."] if streams else [])


async def test_deltas_pass_through_middleware_before_anybody_else_sees_them() -> None:
    def shout(delta: Delta) -> Delta | None:
        if isinstance(delta, TextDelta):
            return TextDelta(delta.text.upper()) if delta.text.strip() != "secret" else None
        return delta

    async def change(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        return await proceed(on_delta=shout)

    pieces: list[str] = []
    settings = config(AroundRequest(change))
    async with tool_loop_stream(ScriptedProvider(["a secret word"]), TOOLS, "Hello", config=settings) as events:
        pieces.extend([event.text async for event in events if isinstance(event, TextDelta)])
    assert "".join(pieces).split() == ["A", "WORD"]


async def test_an_error_of_a_middleware_is_taken_as_the_providers() -> None:
    tried: list[int] = []

    async def fail(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
        tried.append(request.attempt)
        if request.attempt == 1:
            raise RateLimitedError("middleware", "once more")
        raise ValueError("broken")

    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder, AroundRequest(fail)))
    with pytest.raises(ValueError, match="broken"):
        await handle.run()
    assert tried == [1, 2]
    assert ends(recorder.events) == ["RunStart", "Failed"]
    check_transcript(handle.messages)


async def test_an_answer_that_is_none_is_refused_by_the_name_of_its_middleware() -> None:
    async def forget(request: RequestInfo[Any], proceed: RequestProceed) -> Any:
        await proceed()

    with pytest.raises(ConfigurationError, match="around_request of an AroundRequest must return a ChatResponse"):
        await tool_loop(provider(), TOOLS, "Add.", config=config(AroundRequest(forget)))


async def test_what_only_watches_does_not_have_the_model_stream() -> None:
    class Unstreamed(ScriptedProvider):
        @override
        def stream(self, request: ChatRequest) -> Any:
            raise AssertionError("asked for pieces")

    recorder = Recorder()
    await tool_loop(Unstreamed(["Hi."]), TOOLS, "Hello", config=config(recorder))
    assert ends(recorder.events) == ["RunStart", "Done"]


# calls


@pytest.mark.parametrize(("name", "text"), [("where", "inside"), ("where_in_a_thread", "inside False")])
async def test_context_variables_set_around_a_call_are_seen_inside_and_nowhere_else(name: str, text: str) -> None:
    async def set_place(proceed: CallProceed) -> ToolOutput:
        place.set("inside")  # never reset: the call has a context of its own
        return await proceed()

    scripted = ScriptedProvider([ToolCall("1", name, "{}"), "Done."])
    result = await tool_loop(scripted, TOOLS, "Where?", config=config(AroundCall(set_place)))
    assert result.messages[2].text == text
    assert place.get() == "outside"


async def test_an_output_may_be_changed_or_given_instead() -> None:
    async def double(proceed: CallProceed) -> ToolOutput:
        output = await proceed()
        return replace(output, content=output.text * 2)

    async def instead(proceed: CallProceed) -> ToolOutput:
        return ToolOutput("mine")

    changed = await tool_loop(provider(), TOOLS, "Add.", config=config(AroundCall(double)))
    assert changed.messages[2].text == "33"
    replaced = await tool_loop(provider(), TOOLS, "Add.", config=config(AroundCall(double), AroundCall(instead)))
    assert replaced.messages[2].text == "minemine"


async def test_one_call_is_stood_around_once_whatever_is_retried_or_cached() -> None:
    runs: list[int] = []

    @tool(retry=ToolRetryConfig(initial_backoff=0.0), cache=True)
    def shaky() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise OSError("once")
        return "well"

    recorder = Recorder()
    script = ScriptedProvider([ToolCall("1", "shaky", "{}"), ToolCall("2", "shaky", "{}"), "Done."])
    await tool_loop(script, ToolRegistry([shaky]), "Go.", config=config(recorder, cache=MemoryCache()))
    assert len(runs) == 2
    assert [told for told in recorder.told if told.startswith(("call", "output"))] == [
        "call shaky {}",
        "output well",
    ] * 2


async def test_the_error_of_a_tool_comes_out_of_proceed() -> None:
    seen: list[str] = []

    @tool
    def crash() -> str:
        raise KeyError("gone")

    async def look(proceed: CallProceed) -> ToolOutput:
        try:
            return await proceed()
        except KeyError as error:
            seen.append(str(error))
            raise

    result = await tool_loop(
        ScriptedProvider([ToolCall("1", "crash", "{}"), "Done."]),
        ToolRegistry([crash]),
        "Go.",
        config=config(AroundCall(look)),
    )
    assert seen == ["'gone'"]
    assert result.messages[2].text == "KeyError: 'gone'"


async def _raise(proceed: CallProceed) -> ToolOutput:
    raise RuntimeError("broken")


async def _proceed_twice(proceed: CallProceed) -> ToolOutput:
    await proceed()
    return await proceed()


async def _forget(proceed: CallProceed) -> None:
    await proceed()


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (_raise, "broken"),
        (_proceed_twice, "around_call of an AroundCall called proceed twice"),
        (_forget, "around_call of an AroundCall must return a ToolOutput, not None"),
    ],
)
async def test_a_middleware_that_fails_around_a_call_makes_an_error_of_its_result(
    do: Callable[[CallProceed], Awaitable[Any]], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with caplog.at_level(logging.CRITICAL, "toolkit"):
        result = await tool_loop(provider(), TOOLS, "Add.", config=config(AroundCall(do), recorder))
    answer = result.messages[2]
    assert isinstance(answer, ToolResult)
    assert answer.is_error
    assert answer.text
    [error] = [event.error for event in recorder.events if isinstance(event, ToolExecutionEnd)]
    assert text in str(error)
    assert isinstance(result.reason, Complete)


async def test_a_call_that_its_middleware_gave_up_tells_the_tool_so_and_the_run_goes_on() -> None:
    given_up: list[bool] = []

    @tool_with_ctx
    async def wait(context: ToolContext[object]) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            given_up.append(context.cancelled)
        return ""

    async def hurry(proceed: CallProceed) -> ToolOutput:
        with anyio.move_on_after(0.01):
            return await proceed()
        return ToolOutput.error("Too slow.")

    script = ScriptedProvider([ToolCall("1", "wait", "{}"), "Done."])
    result = await tool_loop(script, ToolRegistry([wait]), "Go.", config=config(AroundCall(hurry)))
    assert given_up == [True]
    assert result.messages[2].text == "Too slow."
    assert isinstance(result.reason, Complete)


# guards


@dataclass
class Guard(Middleware[Any]):
    """Answers what it is given, and writes down what it was asked about."""

    answer: Any = None
    name: str = ""
    asked: list[str] = field(default_factory=list[str])

    @override
    async def guard_call(self, call: CallInfo[Any]) -> Approval | None:
        self.asked.append(f"{self.name}{call.tool_name} {call.arguments_json}")
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Approval | None = self.answer
        return answer


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "3"),
        (Approve(), "3"),
        (Deny("Not today."), "Not today."),
        (Modify({"a": 5, "b": 5}), "10"),
        (Modify({"a": 5}), "The approver changed the arguments wrongly."),
        (RuntimeError("broken"), "Tool call denied: a guard failed."),
    ],
    ids=str,
)
async def test_a_guard_decides_before_the_approver_is_asked(
    answer: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(f"approver {dict(request.arguments)}")
        return True

    first, second = Guard(answer, "first ", asked), Guard(None, "second ", asked)
    with caplog.at_level(logging.CRITICAL, "toolkit"):
        result = await tool_loop(
            provider(), TOOLS, "Add.", config=config(first, second, Recorder(), on_tool_call=approve)
        )
    assert result.messages[2].text.startswith(text)
    assert isinstance(result.reason, Complete)
    expected = ['first add {"a":1,"b":2}']
    if text == "3":
        expected += ['second add {"a":1,"b":2}', "approver {'a': 1, 'b': 2}"]
    elif text == "10":
        expected += ['second add {"a":5,"b":5}', "approver {'a': 5, 'b': 5}"]
    assert asked == expected


async def test_a_guard_may_end_the_run_or_leave_the_decision_to_somebody_later() -> None:
    ended = await tool_loop(provider(), TOOLS, "Add.", config=config(Guard(Abort("Enough."))))
    assert ended.reason == Aborted("Enough.")
    check_transcript(ended.messages)
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Guard(Defer())))
    assert isinstance((await handle.run()).reason, AwaitingApproval)
    await handle.decide("1", True, binding=handle.pending_approvals[0].binding)
    assert (await handle.run()).text == "It is 3."


@pytest.mark.parametrize("is_inherited", [False, True])
async def test_a_guard_is_asked_once_about_each_call_of_a_sub_agent(is_inherited: bool) -> None:
    guard = Guard()
    guard.is_inherited = is_inherited
    await tool_loop(ScriptedProvider(NEST), inner_loop("sub-agent"), "Go.", config=config(guard))
    assert guard.asked == ['nest {"task":"Add."}', 'add {"a":2,"b":2}']


async def test_an_update_may_be_kept_from_everybody() -> None:
    @tool_with_ctx
    def paint(context: ToolContext[object]) -> str:
        context.report_update("sketch")
        context.report_update("secret")
        return "done"

    class Discreet(Middleware[Any]):
        @override
        def allow_update(self, update: ToolExecutionUpdate) -> bool:
            return update.output.text != "secret"

    recorder, hook = Recorder(), list[LoopEvent]()
    script = ScriptedProvider([ToolCall("1", "paint", "{}"), "Done."])
    settings = config(Discreet(), recorder, on_event=hook.append)
    await tool_loop(script, ToolRegistry([paint]), "Go.", config=settings)
    for events in (recorder.events, hook):
        assert [event.output.text for event in events if isinstance(event, ToolExecutionUpdate)] == ["sketch"]


# cancellation


async def _swallow(proceed: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await proceed()
    except BaseException:  # noqa: BLE001 - the very mistake
        return ToolOutput("swallowed")


async def _swallow_run(proceed: RunProceed) -> None:
    await _swallow(proceed)


async def _swallow_request(request: RequestInfo[Any], proceed: RequestProceed) -> ChatResponse:
    try:
        return await proceed()
    except BaseException:  # noqa: BLE001 - the very mistake
        return await ScriptedProvider(["swallowed"]).generate(request.chat)


@pytest.mark.parametrize(
    "middleware",
    [Recorder("extra "), AroundRun(_swallow_run), AroundRequest(_swallow_request), AroundCall(_swallow)],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("stage", ["request", "call"])
async def test_a_cancellation_goes_on_whoever_swallows_it(middleware: Middleware[Any], stage: str) -> None:
    started = anyio.Event()

    @tool
    async def wait() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    class Slow(ScriptedProvider):
        @override
        async def generate(self, request: ChatRequest) -> ChatResponse:
            if stage == "request":
                started.set()
                await anyio.sleep_forever()
            return await super().generate(request)

    recorder = Recorder()
    handle = ToolLoopHandle(
        Slow([ToolCall("1", "wait", "{}"), "Done."]),
        ToolRegistry([wait]),
        "Go.",
        config=config(recorder, middleware, stream=False),
    )
    is_through = False

    async def run_it() -> None:
        nonlocal is_through
        await handle.run()
        is_through = True

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_it)
            await started.wait()
            tasks.cancel_scope.cancel()
    assert not is_through
    assert ends(recorder.events) == ["RunStart", "Done"]
    assert isinstance(handle.result.reason, Cancelled)
    check_transcript(handle.messages)
    assert "swallowed" not in handle.messages[-1].text


async def test_a_run_that_its_own_middleware_cancels_ends_as_cancelled() -> None:
    @tool
    async def wait() -> str:
        await anyio.sleep_forever()
        return ""

    async def hurry(proceed: RunProceed) -> None:
        with anyio.move_on_after(0.01):
            await proceed()

    script = ScriptedProvider([ToolCall("1", "wait", "{}")])
    result = await tool_loop(script, ToolRegistry([wait]), "Go.", config=config(AroundRun(hurry)))
    assert isinstance(result.reason, Cancelled)
    check_transcript(result.messages)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_middleware_that_waits_around_a_run_is_reached_by_cancel(when: str) -> None:
    waiting = anyio.Event()

    async def wait(proceed: RunProceed) -> None:
        if when == "after":
            await proceed()
        waiting.set()
        await anyio.sleep_forever()

    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(AroundRun(wait), recorder))

    async def cancel() -> None:
        await waiting.wait()
        handle.cancel("enough")

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            await handle.run()
    assert handle.result.reason == (Cancelled("enough") if when == "before" else Complete())
    assert ends(recorder.events) == ([] if when == "before" else ["RunStart", "Done"])


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_stream_that_is_left_ends_what_waits_around_its_run(has_begun: bool) -> None:
    waiting = anyio.Event()

    async def wait(proceed: RunProceed) -> None:
        waiting.set()
        await anyio.sleep_forever()

    with anyio.fail_after(120):
        async with tool_loop_stream(provider(), TOOLS, "Add.", config=config(AroundRun(wait))) as events:
            if has_begun:
                await waiting.wait()
    assert isinstance(events.result.reason, Cancelled)


async def test_a_run_that_is_cancelled_between_turns_tells_its_middleware_so() -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder))
    assert isinstance(await handle.next_turn(), Yielded)
    handle.cancel("enough")
    assert isinstance(await handle.next_turn(), Completed)
    assert handle.result.reason == Cancelled("enough")
    assert recorder.told[-2:] == ["run", "ran cancelled"]
    assert ends(recorder.events) == ["RunStart", "Done"]


# runs


async def _raise_before(proceed: RunProceed) -> None:
    raise RuntimeError("broken")


async def _do_nothing(proceed: RunProceed) -> None:
    pass


async def _run_twice(proceed: RunProceed) -> None:
    await proceed()
    await proceed()


async def _raise_after(proceed: RunProceed) -> None:
    await proceed()
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("do", "error", "text", "has_run"),
    [
        (_raise_before, RuntimeError, "broken", False),
        (_do_nothing, LoopUsageError, "returned without 'await proceed", False),
        (_run_twice, LoopUsageError, "called proceed twice", True),
        (_raise_after, RuntimeError, "broken", True),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_goes_wrong_around_a_run_is_raised_to_the_caller(
    do: Callable[[RunProceed], Awaitable[None]], error: type[Exception], text: str, has_run: bool, streamed: bool
) -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(AroundRun(do), recorder))
    with pytest.raises(error, match=text):
        await (stream if streamed else run)(handle)
    assert ends(recorder.events) == (["RunStart", "Done"] if has_run else [])
    check_transcript(handle.messages)
    if has_run:
        assert handle.result.text == "It is 3."
    else:
        with pytest.raises(error, match=text):
            _ = handle.result


async def test_what_goes_wrong_between_two_turns_ends_the_run_which_tells_so() -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(AroundRun(_raise_after), recorder))
    outcome = await handle.next_turn()
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "broken"
    assert ends(recorder.events) == ["RunStart", "Failed"]
    assert await handle.next_turn() is outcome
    check_transcript(handle.messages)


async def test_a_failure_that_is_caught_around_a_run_is_still_its_end() -> None:
    seen: list[str] = []

    async def catch(proceed: RunProceed) -> None:
        try:
            await proceed()
        except ValueError as error:
            seen.append(str(error))

    recorder = Recorder()
    failing = ScriptedProvider([ValueError("down")])
    handle = ToolLoopHandle(failing, TOOLS, "Add.", config=config(AroundRun(catch), recorder))
    with pytest.raises(ValueError, match="down"):
        await handle.run()
    assert seen == ["down"]
    assert recorder.told == ["run", "request 1.1", "run raised ValueError"]
    assert ends(recorder.events) == ["RunStart", "Failed"]


async def test_a_run_that_is_closed_between_turns_tells_its_middleware_so() -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(recorder))
    assert isinstance(await handle.next_turn(), Yielded)
    await handle.close()
    assert recorder.told[-2:] == ["run", "ran cancelled"]
    assert ends(recorder.events) == ["RunStart", "Done"]


def put_off(request: ApprovalRequest) -> Defer:
    return Defer()


async def test_a_run_that_goes_on_after_a_decision_is_stood_around_again() -> None:
    recorder = Recorder()
    asked = config(recorder, on_tool_call=put_off)
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=asked)
    await handle.run()
    await handle.decide("1", True, binding=handle.pending_approvals[0].binding)
    await handle.run()
    ran = [told for told in recorder.told if told.startswith(("run", "ran"))]
    assert ran == ["run", "ran awaiting_approval", "run", "ran complete"]
    assert ends(recorder.events) == ["RunStart", "Done", "RunStart", "Done"]


async def test_a_restored_run_says_so() -> None:
    runs: list[RunInfo[Any]] = []

    class Look(Middleware[Any]):
        @override
        def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
            runs.append(run)
            return self

    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Look()))
    await handle.next_turn()
    again = ToolLoopHandle.restore(
        handle.snapshot(), ScriptedProvider(["It is 3."]), TOOLS, ctx=None, config=config(Look())
    )
    await again.run()
    assert [(each.loop_id, each.is_restored) for each in runs] == [(handle.loop_id, False), (handle.loop_id, True)]


# what is offered


@dataclass
class Offer(Middleware[Any]):
    """Offers the tools that it is given the names of, of those that are there."""

    names: list[str]
    seen: list[tuple[list[str], int]] = field(default_factory=list[tuple[list[str], int]])

    @override
    async def offer(self, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> Sequence[str]:
        self.seen.append(([tool.name for tool in tools], len(messages)))
        return self.names


async def test_the_tools_of_a_turn_are_chosen_from_those_of_the_registry_and_the_transcript() -> None:
    scripted, outer, inner = provider(), Offer(["where", "add"]), Offer(["add"])
    result = await tool_loop(scripted, TOOLS, "Add.", config=config(outer, inner))
    assert [[tool.name for tool in request.tools or ()] for request in scripted.requests] == [["add"], ["add"]]
    assert outer.seen == [(["add", "where", "where_in_a_thread"], 1), (["add", "where", "where_in_a_thread"], 3)]
    assert inner.seen == [(["where", "add"], 1), (["where", "add"], 3)]
    assert result.messages[2].text == "3"


@pytest.mark.parametrize("cuts", [False, True])
async def test_a_tool_that_is_not_offered_can_not_be_called(cuts: bool) -> None:
    @tool
    def recite() -> str:
        """Recite."""
        return "word " * 100

    script = ScriptedProvider([ToolCall("0", "recite", "{}"), ToolCall("1", "where", "{}"), "Done."])
    limits = OutputLimits(max_chars=20 if cuts else None)
    settings = config(Offer(["recite"]), output=limits)
    result = await tool_loop(script, ToolRegistry([recite, where]), "Go.", config=settings)
    assert len(script.requests[1].tools or ()) == (2 if cuts else 1)
    refused = result.messages[4]
    assert isinstance(refused, ToolResult)
    assert refused.is_error
    assert "nknown tool" in refused.text


@pytest.mark.parametrize(("names", "text"), [(["ad"], "did you mean 'add'"), (["add", "add"], "a name twice")])
async def test_a_name_that_is_offered_wrongly_is_refused(names: list[str], text: str) -> None:
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Offer(names)))
    with pytest.raises(ConfigurationError, match=text):
        await handle.run()
    check_transcript(handle.messages)


# state in snapshots


class Counting(Middleware[Any]):
    """Counts the calls of a run."""

    name = "counting"

    def __init__(self) -> None:
        self.count = 0

    @override
    def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
        return Counting()

    @override
    async def around_call(self, call: CallInfo[Any], proceed: CallProceed) -> ToolOutput:
        self.count += 1
        return ToolOutput(f"call {self.count}")

    @override
    def save(self) -> Any:
        return {"count": self.count}

    @override
    def load(self, state: Any) -> None:
        self.count = state["count"]


async def test_the_state_of_a_run_goes_with_its_snapshot() -> None:
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Counting()))
    await handle.next_turn()
    saved = json.loads(json.dumps(handle.snapshot()))
    rest = ScriptedProvider([replace(CALL, id="2"), "Done."])
    again = ToolLoopHandle.restore(saved, rest, TOOLS, ctx=None, config=config(Counting()))
    unused = json.loads(json.dumps(again.snapshot()))
    assert unused["loop"]["middleware"] == {"counting": {"count": 1}}
    await again.run()
    assert [each.text for each in again.messages if isinstance(each, ToolResult)] == ["call 1", "call 2"]


async def test_a_snapshot_is_not_restored_without_the_middleware_that_it_has_the_state_of() -> None:
    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Counting()))
    await handle.next_turn()
    with pytest.raises(LoopUsageError, match="middleware named counting"):
        ToolLoopHandle.restore(handle.snapshot(), provider(), TOOLS, ctx=None, config=config(Recorder()))


def test_two_middleware_may_not_save_by_one_name() -> None:
    with pytest.raises(ConfigurationError, match="two middleware are named 'counting'"):
        config(Counting(), Counting())


async def test_state_that_is_no_json_is_refused_where_it_is_saved() -> None:
    class Odd(Counting):
        @override
        def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
            return self

        @override
        def save(self) -> Any:
            return object()

    handle = ToolLoopHandle(provider(), TOOLS, "Add.", config=config(Odd()))
    await handle.next_turn()
    with pytest.raises(LoopUsageError, match="can't be saved"):
        handle.snapshot()


# events and inheritance


async def test_a_watcher_that_raises_or_waits_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(Middleware[Any]):
        def __init__(self) -> None:
            self.events: list[LoopEvent] = []

        @override
        async def on_event(self, event: LoopEvent) -> None:
            await anyio.lowlevel.checkpoint()
            self.events.append(event)

    class Raising(Middleware[Any]):
        @override
        def on_event(self, event: LoopEvent) -> None:
            raise RuntimeError("broken")

    first, last, hook = Waiting(), Recorder(), list[LoopEvent]()
    with caplog.at_level(logging.CRITICAL, "toolkit"):
        result = await tool_loop(
            provider(), TOOLS, "Add.", config=config(Raising(), first, Raising(), last, on_event=hook.append)
        )
    assert result.text == "It is 3."
    assert first.events == last.events == hook
    assert ends(hook) == ["RunStart", "Done"]


def inner_loop(kind: str, *own: Middleware[Any]) -> ToolRegistry[object]:
    script = ScriptedProvider([ToolCall("1", "add", '{"a": 2, "b": 2}'), "It is 4."])
    if kind == "sub-agent":
        return ToolRegistry([sub_agent_tool("nest", "Work.", script, TOOLS, config=config(*own))])

    @tool
    async def nest(task: str) -> str:
        return (await tool_loop(script, TOOLS, task, config=config(*own))).text

    @tool(name="nest")
    def nest_in_a_thread(task: str) -> str:
        return ToolLoopHandle(script, TOOLS, task, config=config(*own)).run_sync().text

    return ToolRegistry([nest if kind == "loop" else nest_in_a_thread])


NEST: list[ToolCall | str] = [ToolCall("outer", "nest", '{"task": "Add."}'), "Done."]


@pytest.mark.parametrize("is_own_too", [False, True])
@pytest.mark.parametrize("kind", ["sub-agent", "loop", "loop in a thread"])
async def test_inherited_middleware_serves_inner_loops_once(kind: str, is_own_too: bool) -> None:
    class Inherited(Recorder):
        is_inherited = True

        def __init__(self) -> None:
            super().__init__()
            self.runs: list[RunInfo[Any]] = []

        @override
        def for_run(self, run: RunInfo[Any]) -> Middleware[Any]:
            self.runs.append(run)
            return self

    inherited, plain = Inherited(), Recorder()
    registry = inner_loop(kind, *([inherited] if is_own_too else []))
    handle = ToolLoopHandle(ScriptedProvider(NEST), registry, "Go.", config=config(inherited, plain))
    await handle.run()
    outer, inner = inherited.runs
    assert (inner.run_id, inner.parent_loop_id, inner.parent_call_id) == (outer.run_id, outer.loop_id, "outer")
    assert (outer.depth, inner.depth) == (0, 1)
    assert inner.agent == ("nest" if kind == "sub-agent" else "")
    assert [each for each in inherited.told if each.startswith(("call", "output", "run", "ran"))] == [
        "run",
        'call nest {"task":"Add."}',
        "run",
        'call add {"a":2,"b":2}',
        "output 4",
        "ran complete",
        "output It is 4.",
        "ran complete",
    ]
    assert [(type(event).__name__, event.loop_id) for event in inherited.events if ends([event])] == [
        ("RunStart", outer.loop_id),
        ("RunStart", inner.loop_id),
        ("Done", inner.loop_id),
        ("Done", outer.loop_id),
    ]
    assert not any(isinstance(event, ToolExecutionUpdate) for event in inherited.events)
    relayed = [event for event in plain.events if isinstance(event, ToolExecutionUpdate)]
    assert all(isinstance(event.output.details, SubAgentEvent) for event in relayed)
    assert bool(relayed) == (kind == "sub-agent")


async def test_what_is_not_inherited_serves_its_own_loop_alone() -> None:
    recorder = Recorder()
    await tool_loop(ScriptedProvider(NEST), inner_loop("loop"), "Go.", config=config(recorder))
    assert [each for each in recorder.told if each.startswith("call")] == ['call nest {"task":"Add."}']


# mistakes in the configuration


@pytest.mark.parametrize("given", [[Recorder], ["tracing"], Recorder(), [None]])
def test_what_is_no_middleware_is_refused_when_it_is_configured(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="middleware must be"):
        ToolLoopConfig(middleware=given)


async def test_for_run_must_give_a_middleware() -> None:
    class Wrong(Middleware[Any]):
        @override
        def for_run(self, run: RunInfo[Any]) -> Any:
            return None

    with pytest.raises(ConfigurationError, match="Wrong must return a Middleware, not None"):
        await tool_loop(provider(), TOOLS, "Add.", config=config(Wrong()))


async def test_a_call_can_be_late_inside_of_a_scope_that_stands_around_it() -> None:
    @tool(timeout=0.01)
    async def hang() -> str:
        """Never come back."""
        await anyio.sleep_forever()
        raise AssertionError

    async def limited(proceed: CallProceed) -> ToolOutput:
        with anyio.fail_after(120):
            return await proceed()

    script = ScriptedProvider([ToolCall("1", "hang", "{}"), ToolCall("2", "hang", "{}"), "It hangs."])
    with anyio.fail_after(120):
        result = await tool_loop(script, ToolRegistry([hang]), "Go.", config=config(AroundCall(limited)))
    results = [message for message in result.messages if isinstance(message, ToolResult)]
    assert ["0.01 s" in each.text for each in results] == [True, True]
    assert result.text == "It hangs."


@pytest.mark.parametrize("name", ["around_tool", "around_requests", "guard_tool"])
def test_a_method_that_nothing_would_call_is_refused_when_its_class_is_made(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Mistaken.{name} would never be called: a middleware has around_run"):
        type("Mistaken", (Middleware,), {name: print})


class _OneQuestion(ReplyPolicy):
    """Lets a run make one call, and wants a polite answer."""

    def __init__(self) -> None:
        self.calls = 0

    @override
    def refuse_call(self, call: ToolCall, called: Collection[str], *, is_answer: bool) -> Refusal | None:
        return Refusal(text="Not run: one call is enough.") if self.calls else None

    @override
    def refuse_answer(self) -> Refusal | None:
        return Refusal(text="Not yet: call something first.", next_tool="echo") if not self.calls else None

    @override
    def take_results(self, results: Iterable[ToolResult]) -> None:
        self.calls += len(list(results))

    @override
    def save(self) -> int:
        return self.calls

    @override
    def load(self, state: int) -> None:
        self.calls = state


class _Curt(Middleware[Any]):
    name = "curt"

    @override
    def reply_policy(self, tool_names: Collection[str]) -> ReplyPolicy:
        assert "echo" in tool_names
        return _OneQuestion()


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_policy_refuses_calls_and_answers_also_after_a_restore(steps: int) -> None:
    @tool
    def echo(text: str) -> str:
        """Echo."""
        return text

    replies: list[Any] = [
        "hello",
        ToolCall("1", "echo", '{"text": "a"}'),
        ToolCall("2", "echo", '{"text": "b"}'),
        "bye",
    ]
    config = ToolLoopConfig[None](middleware=(_Curt(),))
    handle = ToolLoopHandle(ScriptedProvider(replies), ToolRegistry([echo]), "Go", config=config)
    for _ in range(steps):
        await handle.next_turn()
    provider, saved = ScriptedProvider(replies[handle.iterations :]), json.loads(json.dumps(handle.snapshot()))
    result = await ToolLoopHandle.restore(saved, provider, ToolRegistry([echo]), ctx=None, config=config).run()
    assert [each.text for each in result.messages if not isinstance(each, AssistantMessage)] == [
        "Go",
        "Not yet: call something first.",
        "a",
        "Not run: one call is enough.",
    ]
    assert result.text == "bye"


def test_a_policy_without_a_name_is_refused() -> None:
    class Nameless(_Curt):
        name = ""

    @tool
    def echo(text: str) -> str:
        """Echo."""
        return text

    with pytest.raises(ConfigurationError, match="give it a name"):
        ToolLoopHandle(
            ScriptedProvider([]), ToolRegistry([echo]), "Go", config=ToolLoopConfig(middleware=(Nameless(),))
        )
