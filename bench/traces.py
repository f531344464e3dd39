"""What a turn costs that is traced; nothing leaves the process."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from bench.clock import on_asyncio, sized
from bench.ours import Script, responses_of
from bench.workload import QUESTION, forecast
from toolkit import ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.tracing import Tracing

_TURNS = 50


class _Counter(SpanExporter):
    """An exporter that counts: what a vendor's does is the vendor's price."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.count += len(spans)
        return SpanExportResult.SUCCESS


def tracing_api_turn(features: Collection[str]) -> float:
    """The API alone: no application has set anything up."""
    return _measure_turn(Tracing())


def tracing_unsampled_turn(features: Collection[str]) -> float:
    return _measure_turn(Tracing(tracer_provider=TracerProvider(sampler=ALWAYS_OFF)))


def tracing_batched_turn(features: Collection[str]) -> float:
    return _measure_recorded("none")


def tracing_content_turn(features: Collection[str]) -> float:
    return _measure_recorded("new")


def _measure_recorded(content: Literal["none", "new"]) -> float:
    """All that spans and metrics take: in the run, and in the thread that hands spans to an exporter."""
    exporter = _Counter()
    traces, meters = TracerProvider(sampler=ALWAYS_ON), MeterProvider([InMemoryMetricReader()])
    batches = BatchSpanProcessor(exporter, max_queue_size=10_000)
    traces.add_span_processor(batches)
    try:
        spent = _measure_turn(Tracing(content=content, tracer_provider=traces, meter_provider=meters), batches)
    finally:
        traces.shutdown()
        meters.shutdown()
    assert exporter.count
    return spent


def _measure_turn(tracing: Tracing, batches: BatchSpanProcessor | None = None) -> float:
    runs, responses = sized(40), responses_of(_TURNS)
    registry: ToolRegistry[Any] = ToolRegistry([tool(forecast)])
    config: ToolLoopConfig[Any] = ToolLoopConfig(max_iterations=_TURNS + 1, middleware=(tracing,))

    async def work() -> None:
        for _ in range(runs):
            await tool_loop(Script(responses), registry, QUESTION, config=config)
            if batches is not None:
                batches.force_flush()

    return on_asyncio(work, runs * _TURNS)
