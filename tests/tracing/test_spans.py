"""Runs as spans and metrics, as an exporter gets them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from tests.tracing.traced_functions import find_parent
from toolkit import (
    AnswerFormat,
    ApprovalRequest,
    AssistantMessage,
    ChatRequest,
    ConfigurationError,
    Defer,
    Deny,
    LoopDetectionConfig,
    LoopLimits,
    Message,
    ProviderError,
    ProviderRetryConfig,
    SystemMessage,
    Timeouts,
    ToolCall,
    ToolFailedError,
    ToolLoopConfig,
    ToolLoopHandle,
    ToolOutput,
    ToolRegistry,
    Usage,
    UsageLimits,
    UserMessage,
    stop_after,
    tool,
    tool_loop,
    tool_loop_stream,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ChatResponse
from toolkit.errors import RateLimitedError
from toolkit.policies import keep_last
from toolkit.testing import ScriptedProvider
from toolkit.tracing import Tracing

pytestmark = pytest.mark.anyio

ADD = ToolCall("1", "add", '{"a": 1, "b": 2}')
SECRET = "sk-proj-" + "a1B2" * 12


@dataclass
class Recorder:
    """Tracing into memory."""

    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.tracing = Tracing(tracer_provider=self.traces, meter_provider=meters, **self.options)

    def config(self, **settings: Any) -> ToolLoopConfig[Any]:
        return ToolLoopConfig(middleware=(self.tracing,), **settings)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [found] = self.named(name)
        return found

    def parents(self) -> set[tuple[str, str | None]]:
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return {(span.name, names.get(span.parent.span_id) if span.parent else None) for span in self.spans}

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail() -> str:
    """Fail."""
    raise ToolFailedError(f"the key {SECRET} was refused")


@tool
async def crash() -> str:
    """Crash."""
    raise ValueError(f"password={SECRET}")


def put_off(request: ApprovalRequest) -> Defer:
    return Defer()


def allow_all(request: ApprovalRequest) -> bool:
    return True


def deny_all(request: ApprovalRequest) -> Deny:
    return Deny("not today")


async def test_spans_nest_as_the_work_nests() -> None:
    recorder = Recorder()
    tracer = trace.get_tracer("app", tracer_provider=recorder.traces)

    @tool
    async def look() -> str:
        """Look."""
        with tracer.start_as_current_span("inside look"):
            return "seen"

    @tool
    def look_in_a_thread() -> str:
        """Look."""
        with tracer.start_as_current_span("inside a thread"):
            return "seen"

    inner = ScriptedProvider([ToolCall("x", "look_in_a_thread", "{}"), "seen"])
    agent = sub_agent_tool("helper", "Help.", provider=inner, registry=ToolRegistry([look_in_a_thread]))
    calls = AssistantMessage([ToolCall("1", "look", "{}"), ToolCall("2", "helper", '{"task": "look"}')])
    registry = ToolRegistry([look, agent])
    await tool_loop(ScriptedProvider([calls, "done"]), registry, "go", config=recorder.config())
    assert recorder.parents() == {
        ("invoke_agent", None),
        ("chat", "invoke_agent"),
        ("execute_tool look", "invoke_agent"),
        ("inside look", "execute_tool look"),
        ("execute_tool helper", "invoke_agent"),
        ("invoke_agent helper", "execute_tool helper"),
        ("chat", "invoke_agent helper"),
        ("execute_tool look_in_a_thread", "invoke_agent helper"),
        ("inside a thread", "execute_tool look_in_a_thread"),
    }
    runs = [attributes_of(span) for span in recorder.spans if span.name.startswith("invoke_agent")]
    assert len({run["toolkit.run.id"] for run in runs}) == 1
    assert len({run["toolkit.loop.id"] for run in runs}) == 2


async def test_a_call_is_the_parent_of_what_its_process_does() -> None:
    recorder = Recorder()
    provider = ScriptedProvider([ToolCall("1", "find_parent", "{}"), "done"])
    result = await tool_loop(provider, ToolRegistry([find_parent]), "go", config=recorder.config())
    call = recorder.span("execute_tool find_parent").context
    assert call is not None
    assert json.loads(result.messages[2].text) == [format(call.trace_id, "032x"), format(call.span_id, "016x")]


async def test_a_span_that_is_current_outside_is_the_parent_of_the_run() -> None:
    recorder = Recorder()
    tracer = trace.get_tracer("app", tracer_provider=recorder.traces)
    with tracer.start_as_current_span("a request of a user") as outer:
        await tool_loop(ScriptedProvider(["hi"]), ToolRegistry(), "go", config=recorder.config())
        assert trace.get_current_span() is outer
    assert ("invoke_agent", "a request of a user") in recorder.parents()


async def test_a_request_says_what_was_asked_and_what_it_cost() -> None:
    recorder = Recorder(options={"agent": "clerk", "conversation": "c1"})
    usage = Usage(
        input_tokens=100, output_tokens=20, cache_read_tokens=60, cache_write_tokens=5, reasoning_tokens=7, cost=0.25
    )
    answer = ChatResponse(message=AssistantMessage("hi"), usage=usage, model="m-2026", request_id="r1")
    request = ChatRequest(
        messages=[UserMessage("go")], temperature=0.5, max_tokens=9, seed=3, stop=("END",), reasoning_effort="low"
    )
    await tool_loop(ScriptedProvider([answer]), ToolRegistry([add]), request, config=recorder.config())
    span = recorder.span("chat")
    assert span.kind is SpanKind.CLIENT
    assert attributes_of(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ScriptedProvider",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.reasoning.level": "low",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_write.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "gen_ai.usage.cost": 0.25,
        "toolkit.turn": 1,
    }
    run = attributes_of(recorder.span("invoke_agent clerk"))
    assert run["gen_ai.agent.name"] == "clerk"
    assert run["gen_ai.conversation.id"] == "c1"
    assert run["toolkit.usage.cost"] == 0.25
    assert run["toolkit.ending"] == "complete"


async def test_a_streamed_answer_tells_when_its_first_piece_came() -> None:
    recorder = Recorder()
    config = recorder.config()
    async with tool_loop_stream(ScriptedProvider(["hello there"]), ToolRegistry(), "go", config=config) as events:
        async for _ in events:
            pass
    found = attributes_of(recorder.span("chat"))
    assert found["gen_ai.request.stream"] is True
    assert found["gen_ai.response.time_to_first_chunk"] >= 0
    assert "gen_ai.client.inference.time_to_first_chunk" in recorder.metrics()


ENDINGS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "complete": (["hi"], {}),
    "complete (max_tokens)": ([ChatResponse(message=AssistantMessage("h"), stop_reason="max_tokens")], {}),
    "max_iterations": ([ADD, ADD], {"max_iterations": 1}),
    "stop_condition": ([ADD, "hi"], {"stop_when": stop_after(steps=1)}),
    "usage_limit": ([ADD, "hi"], {"limits": LoopLimits(usage=UsageLimits(requests=1))}),
    "awaiting_approval": ([ADD], {"on_tool_call": put_off}),
    "loop_detected": ([ADD] * 4, {"loop_detection": LoopDetectionConfig(threshold=2, action="stop")}),
    "no_valid_answer": (["hi"] * 3, {"answer": AnswerFormat(int, max_retries=1)}),
    "typed_answer": ([ToolCall("1", "final_answer", '{"answer": 3}')], {"answer": AnswerFormat(int)}),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_each_ending_stands_on_the_run(ending: str) -> None:
    recorder = Recorder()
    replies, settings = ENDINGS[ending]
    await tool_loop(ScriptedProvider(replies), ToolRegistry([add]), "go", config=recorder.config(**settings))
    span = recorder.span("invoke_agent")
    assert attributes_of(span)["toolkit.ending"] == ending
    assert span.status.status_code is StatusCode.UNSET


async def test_a_timeout_is_an_ending_and_closes_all_spans() -> None:
    recorder = Recorder()

    @tool
    async def wait() -> None:
        """Wait."""
        await anyio.sleep_forever()

    provider = ScriptedProvider([ToolCall("1", "wait", "{}")])
    await tool_loop(provider, ToolRegistry([wait]), "go", config=recorder.config(timeout=0.05))
    assert attributes_of(recorder.span("invoke_agent"))["toolkit.ending"] == "timeout"
    assert recorder.span("execute_tool wait").status.status_code is StatusCode.ERROR


async def test_a_cancelled_run_ends_its_spans() -> None:
    recorder = Recorder()
    started = anyio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        started.set()
        await anyio.sleep_forever()

    provider = ScriptedProvider([ToolCall("1", "wait", "{}")])
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await tool_loop(provider, ToolRegistry([wait]), "go", config=recorder.config())

        tasks.start_soon(run)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert {span.name for span in recorder.spans} == {"invoke_agent", "chat", "execute_tool wait"}
    assert recorder.span("invoke_agent").status.status_code is StatusCode.ERROR


async def test_a_failure_stands_on_request_and_run_and_is_retried_in_sight() -> None:
    recorder = Recorder()
    errors = [RateLimitedError("scripted", "slow down", status=429), ProviderError("scripted", f"no: {SECRET}")]
    config = recorder.config(provider_retry=ProviderRetryConfig(initial_backoff=0, max_backoff=0))
    with pytest.raises(ProviderError):
        await tool_loop(ScriptedProvider(errors), ToolRegistry(), "go", config=config)
    first, second = recorder.named("chat")
    assert attributes_of(first)["error.type"] == "429"
    assert attributes_of(second)["toolkit.request.attempt"] == 2
    run = recorder.span("invoke_agent")
    assert [event.name for event in run.events] == ["toolkit.request_retried", "exception"]
    assert run.status.status_code is StatusCode.ERROR
    assert attributes_of(run)["error.type"] == "ProviderError"
    assert all(SECRET not in span.to_json() for span in recorder.spans)


@pytest.mark.parametrize(("called", "kind"), [(fail, "ToolFailedError"), (crash, "ValueError")])
async def test_a_tool_that_fails_says_so_without_its_secrets(called: Any, kind: str) -> None:
    recorder = Recorder(options={"content": "all"})
    name = called.definition.name
    provider = ScriptedProvider([ToolCall("1", name, "{}"), "done"])
    await tool_loop(provider, ToolRegistry([called]), "go", config=recorder.config())
    span = recorder.span(f"execute_tool {name}")
    assert attributes_of(span)["error.type"] == kind
    assert span.status.status_code is StatusCode.ERROR
    assert all(SECRET not in span.to_json() for span in recorder.spans)


async def test_an_error_that_is_returned_is_an_error_too() -> None:
    recorder = Recorder()

    @tool
    async def refuse() -> ToolOutput:
        """Refuse."""
        return ToolOutput.error("no")

    provider = ScriptedProvider([ToolCall("1", "refuse", "{}"), "done"])
    await tool_loop(provider, ToolRegistry([refuse]), "go", config=recorder.config())
    assert attributes_of(recorder.span("execute_tool refuse"))["error.type"] == "tool_error"


async def test_a_refused_call_is_a_span_of_no_length() -> None:
    recorder = Recorder()
    calls = AssistantMessage([ADD, ToolCall("2", "nope", "{}")])
    config = recorder.config(on_tool_call=deny_all)
    await tool_loop(ScriptedProvider([calls, "done"]), ToolRegistry([add]), "go", config=config)
    for name in ("execute_tool add", "execute_tool nope"):
        span = recorder.span(name)
        assert span.start_time == span.end_time
        assert attributes_of(span)["error.type"] == "refused"
        assert (name, "invoke_agent") in recorder.parents()


async def test_what_happens_to_a_run_is_an_event_of_its_span() -> None:
    recorder = Recorder()
    calls = [ToolCall(str(number), "ADD", '{"a": 1, "b": 2}') for number in range(3)]
    config = recorder.config(
        on_tool_call=allow_all,
        loop_detection=LoopDetectionConfig(threshold=2, action="warn"),
        compaction=keep_last(2),
    )
    await tool_loop(ScriptedProvider([*calls, "done"]), ToolRegistry([add]), "go", config=config)
    assert {event.name for event in recorder.span("invoke_agent").events} == {
        "toolkit.approval_requested",
        "toolkit.call_repaired",
        "toolkit.compacted",
        "toolkit.loop_detected",
    }


async def test_no_content_is_written_unless_it_is_asked_for() -> None:
    recorder = Recorder()
    await tool_loop(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), "go", config=recorder.config())
    written = {name for span in recorder.spans for name in attributes_of(span)}
    assert not {name for name in written if "messages" in name or "arguments" in name or "result" in name}


@pytest.mark.parametrize("content", ["new", "all"])
async def test_content_is_all_of_a_request_or_what_the_last_had_not(content: str) -> None:
    recorder = Recorder(options={"content": content})
    prompt: list[Message] = [SystemMessage("Be brief."), UserMessage("go")]
    await tool_loop(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), prompt, config=recorder.config())
    first, second = [attributes_of(span) for span in recorder.named("chat")]
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(first["gen_ai.tool.definitions"]) == [{"type": "function", "name": "add"}]
    question = {"role": "user", "parts": [{"type": "text", "content": "go"}]}
    call = {"type": "tool_call", "id": "1", "name": "add", "arguments": {"a": 1, "b": 2}}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "3"}]}
    assert json.loads(first["gen_ai.input.messages"]) == [question]
    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
    ]
    said = json.loads(second["gen_ai.input.messages"])
    assert said == ([result] if content == "new" else [question, {"role": "assistant", "parts": [call]}, result])
    found = attributes_of(recorder.span("execute_tool add"))
    assert json.loads(found["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert found["gen_ai.tool.call.result"] == "3"


async def test_secrets_in_messages_and_arguments_are_struck_out() -> None:
    recorder = Recorder(options={"content": "all"})

    @tool
    async def log_in(user: str, password: str) -> str:
        """Log in."""
        return f"{user} has the token {SECRET}"

    call = ToolCall("1", "log_in", json.dumps({"user": "ada", "password": "hunter2hunter2"}))
    registry, provider = ToolRegistry([log_in]), ScriptedProvider([call, "done"])
    await tool_loop(provider, registry, f"My key is {SECRET}.", config=recorder.config())
    for span in recorder.spans:
        assert SECRET not in span.to_json()
        assert "hunter2hunter2" not in span.to_json()


async def test_a_run_that_is_stepped_is_one_span() -> None:
    recorder = Recorder()
    handle = ToolLoopHandle(ScriptedProvider([ADD, ADD, "done"]), ToolRegistry([add]), "go", config=recorder.config())
    while not handle.is_finished:
        await handle.next_turn()
        assert not trace.get_current_span().get_span_context().is_valid
    assert len(recorder.named("invoke_agent")) == 1
    assert {parent for _, parent in recorder.parents()} == {None, "invoke_agent"}


async def test_going_on_after_a_decision_is_a_new_span_with_a_link() -> None:
    recorder = Recorder()
    config = recorder.config(on_tool_call=put_off)
    handle = ToolLoopHandle(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), "go", config=config)
    await handle.run()
    [pending] = handle.pending_approvals
    await handle.decide(pending.call_id, True, binding=pending.binding)
    await handle.run()
    first, second = recorder.named("invoke_agent")
    assert [attributes_of(span)["toolkit.ending"] for span in (first, second)] == ["awaiting_approval", "complete"]
    assert first.context is not None
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


async def test_runs_at_once_do_not_mix() -> None:
    recorder = Recorder()

    async def run() -> None:
        await tool_loop(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), "go", config=recorder.config())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(run)
    traces = [span.context.trace_id for span in recorder.spans if span.context]
    assert len(set(traces)) == 20
    assert {traces.count(each) for each in traces} == {4}  # the run, two requests and a call


async def test_metrics_are_those_of_the_conventions() -> None:
    recorder = Recorder()
    await tool_loop(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), "go", config=recorder.config())
    found = recorder.metrics()
    assert set(found) == {
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.operation.input_tokens",
        "gen_ai.client.inference.operation.output_tokens",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.inference_calls",
        "gen_ai.invoke_agent.tool_calls",
    }
    [requests] = found["gen_ai.invoke_agent.inference_calls"]
    assert requests.sum == 2
    [tokens] = found["gen_ai.client.inference.usage.input_tokens"]
    assert tokens.value == 20
    assert tokens.attributes["gen_ai.response.model"] == "scripted"
    [tools] = found["gen_ai.execute_tool.duration"]
    assert tools.attributes["gen_ai.tool.name"] == "add"


async def test_tracing_changes_nothing_of_a_run() -> None:
    def provider() -> ScriptedProvider:
        return ScriptedProvider([AssistantMessage([ADD, ToolCall("2", "nope", "{}")]), "done"])

    plain = await tool_loop(provider(), ToolRegistry([add]), "go")
    traced = await tool_loop(provider(), ToolRegistry([add]), "go", config=Recorder().config())
    assert [message.role for message in traced.messages] == [message.role for message in plain.messages]
    assert (traced.text, traced.usage, traced.reason) == (plain.text, plain.usage, plain.reason)


async def test_spans_that_are_not_sampled_reach_no_exporter() -> None:
    exporter = InMemorySpanExporter()
    traces = TracerProvider(sampler=ALWAYS_OFF)
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(content="all", tracer_provider=traces)
    config = ToolLoopConfig[None](middleware=(tracing,), timeouts=Timeouts(tool=5))
    result = await tool_loop(ScriptedProvider([ADD, "done"]), ToolRegistry([add]), "go", config=config)
    assert result.text == "done"
    assert exporter.get_finished_spans() == ()


def test_settings_are_checked() -> None:
    wrong: Any = "some"
    with pytest.raises(ConfigurationError, match="the content of Tracing must be 'none', 'new' or 'all', not 'some'"):
        Tracing(content=wrong)
