"""The W3C trace context of the current span, for requests that leave this process, and in the process they reach.

Nothing of OpenTelemetry is imported unless the application has imported it: without it there is no span.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager


def inject_trace_context(carrier: MutableMapping[str, str]) -> None:
    """Write the context of the current span (``traceparent`` and other configured fields) into headers or the like."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return
    from opentelemetry import propagate  # noqa: PLC0415 - it is there, as the application has a span

    propagate.inject(carrier)


@contextmanager
def enter_trace_context(carrier: Mapping[str, str]) -> Generator[None]:
    """Make the span of a carrier the parent of spans that begin here; an empty carrier changes nothing."""
    if not carrier:
        yield
        return
    from opentelemetry import context, propagate  # noqa: PLC0415 - the writer of the carrier has it

    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def link_trace_context(carrier: Mapping[str, str]) -> None:
    """Link the current span to the one whose context was written elsewhere; none is linked to itself."""
    if not carrier or "opentelemetry.trace" not in sys.modules:
        return
    from opentelemetry import context, propagate, trace  # noqa: PLC0415 - the application has it

    current, began = trace.get_current_span(), propagate.extract(carrier, context.Context())
    other = trace.get_current_span(began).get_span_context()
    if other.is_valid and other.span_id != current.get_span_context().span_id:
        current.add_link(other)
