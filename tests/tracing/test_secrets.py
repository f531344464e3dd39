"""Thirty kinds of secrets, said by the user, the model, a tool and errors: none is in what an exporter gets."""

import contextlib
import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.run_log.planted_secrets import PLANTED, Planted
from toolkit import (
    ApprovalRequest,
    AssistantMessage,
    Deny,
    Message,
    ProviderError,
    ProviderRetryConfig,
    SystemMessage,
    ToolCall,
    ToolLoopConfig,
    ToolRegistry,
    UserMessage,
    tool,
    tool_loop_stream,
)
from toolkit.agents import sub_agent_tool
from toolkit.chat import ReasoningBlock, TextBlock
from toolkit.testing import ScriptedProvider
from toolkit.tracing import Tracing

pytestmark = pytest.mark.anyio


@tool
def repeat(text: str, note: dict[str, Any] | None = None) -> str:
    """Say it again."""
    return f"I was given {text}"


@tool
def crash(text: str) -> str:
    """Crash."""
    raise ValueError(text)


@tool
def guard(text: str) -> str:
    """Do what is not allowed."""
    raise AssertionError


def decide(request: ApprovalRequest) -> bool | Deny:
    return Deny(request.arguments["text"]) if request.tool_name == "guard" else True


def make_replies(text: str) -> list[Any]:
    said = json.dumps({"text": text, "note": {"text": text, text: 1}})
    one = json.dumps({"text": text})
    return [
        ProviderError("Test", text, is_retryable=True),
        AssistantMessage([ReasoningBlock(text=text), TextBlock(text), ToolCall("1", "repeat", said)]),
        AssistantMessage([ToolCall("2", "crash", one), ToolCall("3", text, "{}"), ToolCall("4", "guard", one)]),
        AssistantMessage([ToolCall("5", "repeat", text), ToolCall(text, "repeat", one)]),
        AssistantMessage([ToolCall("6", "ask", json.dumps({"task": text}))]),
        text,
    ]


async def trace_run(text: str, *, is_failed: bool = False) -> str:
    """Return all that an exporter and a reader of metrics get of a run in which everybody says a text."""
    exporter, reader, traces = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(content="all", tracer_provider=traces, meter_provider=MeterProvider([reader]))
    below = ScriptedProvider([ToolCall("1", "repeat", json.dumps({"text": text})), text])
    ask = sub_agent_tool("ask", text, below, ToolRegistry([repeat]), text)
    config: ToolLoopConfig[None] = ToolLoopConfig(
        middleware=(tracing,), on_tool_call=decide, provider_retry=ProviderRetryConfig(initial_backoff=0, jitter=0)
    )
    replies = [ProviderError("Test", text)] if is_failed else make_replies(text)
    registry = ToolRegistry([repeat, crash, guard, ask])
    prompt: list[Message] = [SystemMessage(text), UserMessage(text)]
    with contextlib.suppress(ProviderError):
        async with tool_loop_stream(ScriptedProvider(replies), registry, prompt, config=config) as events:
            async for _ in events:
                pass
    metrics = reader.get_metrics_data()
    assert metrics is not None
    return "\n".join([*(span.to_json() for span in exporter.get_finished_spans()), metrics.to_json()])


@pytest.mark.parametrize("is_failed", [False, True], ids=["whole", "failed"])
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.kind)
async def test_a_planted_secret_is_in_no_span_and_no_metric(planted: Planted, is_failed: bool) -> None:
    seen = await trace_run(planted.text, is_failed=is_failed)
    assert "invoke_agent" in seen
    assert is_failed or "I was given" in seen
    for form in {planted.secret, json.dumps(planted.secret)[1:-1]}:
        assert form not in seen
