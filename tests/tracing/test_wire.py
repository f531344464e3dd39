"""Spans and metrics as a collector gets them, over OTLP; and collectors that are away."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.testing import ScriptedProvider
from toolkit.tracing import Tracing

pytestmark = pytest.mark.real


class Collector(ThreadingHTTPServer):
    """Keeps the bodies that it is sent, by their path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.bodies: dict[str, list[bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.bodies.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run_traced(traces: TracerProvider, meters: MeterProvider | None = None) -> str:
    tracing = Tracing(agent="adder", content="new", tracer_provider=traces, meter_provider=meters)
    config = ToolLoopConfig[None](middleware=(tracing,))
    provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "3"])
    return tool_loop_sync(provider, ToolRegistry([add]), "What is 1 + 2?", config=config).text


def test_a_collector_gets_the_spans_and_the_metrics(collector: Collector) -> None:
    traces = TracerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{collector.url}/v1/metrics"))
    meters = MeterProvider([reader])
    run_traced(traces, meters)
    traces.shutdown()
    meters.shutdown()

    spans = [
        span
        for body in collector.bodies["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for span in spans) == ["chat", "chat", "execute_tool add", "invoke_agent adder"]
    [run] = [span for span in spans if span.name == "invoke_agent adder"]
    assert {span.parent_span_id for span in spans if span is not run} == {run.span_id}
    [call] = [span for span in spans if span.name == "execute_tool add"]
    written = {each.key: each.value.string_value for each in call.attributes}
    assert written["gen_ai.tool.call.arguments"] == '{"a": 1, "b": 2}'
    assert written["gen_ai.tool.call.result"] == "3"

    metrics = {
        metric.name
        for body in collector.bodies["/v1/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {"gen_ai.client.inference.duration", "gen_ai.execute_tool.duration"} <= metrics


def test_a_collector_that_is_away_fails_no_run() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
    traces = TracerProvider()
    processor = BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", timeout=1))
    traces.add_span_processor(processor)
    assert run_traced(traces) == "3"
    traces.shutdown()


def test_a_collector_that_never_answers_fails_no_run() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        traces = TracerProvider()
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", timeout=1)
        traces.add_span_processor(BatchSpanProcessor(exporter))
        assert run_traced(traces) == "3"
        traces.shutdown()
