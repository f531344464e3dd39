"""A run as a tree of spans: what the model was asked, which tools ran, and what happened inside them.

Prints:

    The lamp is 39.50 euros.
    invoke_agent shop
      chat
      execute_tool find_price
        SELECT price
      chat
"""

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolkit import ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.testing import ScriptedProvider
from toolkit.tracing import Tracing

exporter = InMemorySpanExporter()  # for a collector: OTLPSpanExporter() in a BatchSpanProcessor
traces = TracerProvider()
traces.add_span_processor(SimpleSpanProcessor(exporter))
tracer = trace.get_tracer("shop", tracer_provider=traces)


@tool
def find_price(article: str) -> float:
    """Return the price of an article in euros."""
    with tracer.start_as_current_span("SELECT price"):
        return {"lamp": 39.5}[article]


provider = ScriptedProvider([ToolCall("1", "find_price", '{"article": "lamp"}'), "The lamp is 39.50 euros."])
config = ToolLoopConfig(middleware=(Tracing(agent="shop", tracer_provider=traces),))
result = tool_loop_sync(provider, ToolRegistry([find_price]), "How much is the lamp?", config=config)
print(result.text)


def print_tree(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print the spans below one, each below its parent."""
    for span in spans:
        if span.context is not None and (span.parent.span_id if span.parent else None) == parent:
            print("  " * depth + span.name)
            print_tree(spans, span.context.span_id, depth + 1)


print_tree(sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0))
