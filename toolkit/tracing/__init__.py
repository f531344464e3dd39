"""Runs as OpenTelemetry spans and metrics, by the conventions for generative AI; the extra ``otel``.

::

    from toolkit.tracing import Tracing

    config = ToolLoopConfig(middleware=(Tracing(),))

The tracer and meter providers are those that the application has set up; without any, nothing is recorded.
"""

from toolkit.tracing.middleware import Tracing

__all__ = ["Tracing"]
