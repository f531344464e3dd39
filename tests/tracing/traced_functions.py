"""A function that runs in a process of its own, found there by this module."""

from opentelemetry import trace

from toolkit import tool


@tool(isolation="process")
def find_parent() -> list[str]:
    """Return the ids of the span that is current."""
    found = trace.get_current_span().get_span_context()
    return [format(found.trace_id, "032x"), format(found.span_id, "016x")]
