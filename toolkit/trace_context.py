"""The W3C trace context of the current span, for requests that leave this process.

Nothing of OpenTelemetry is imported unless the application has imported it: without it there is no span.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping

__all__ = ["inject_trace_context"]


def inject_trace_context(carrier: MutableMapping[str, str]) -> None:
    """Write the context of the current span (``traceparent`` and what else is configured) into headers or the like."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return
    from opentelemetry import propagate  # noqa: PLC0415 - it is there, as the application has a span

    propagate.inject(carrier)
