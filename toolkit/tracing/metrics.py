"""The instruments of the conventions, and what is recorded on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.tracing.conventions import BUCKETS_OF_CALLS, BUCKETS_OF_RUNS, BUCKETS_OF_SECONDS, BUCKETS_OF_TOKENS

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.util.types import Attributes

    from toolkit.chat import Usage

__all__ = ["Instruments"]

_USAGE = "gen_ai.client.inference.usage"
_OPERATION = "gen_ai.client.inference.operation"


class Instruments:
    """The instruments of one meter.

    Args:
        meter: Makes them.
    """

    def __init__(self, meter: Meter) -> None:
        seconds, tokens = BUCKETS_OF_SECONDS, BUCKETS_OF_TOKENS

        def make_histogram(name: str, unit: str, text: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)

        inference = "gen_ai.client.inference"
        self._inference = make_histogram(f"{inference}.duration", "s", "Duration of a request to a model.", seconds)
        self._first_chunk = make_histogram(
            f"{inference}.time_to_first_chunk", "s", "Time until the first piece of a streamed answer.", seconds
        )
        self._tokens_in = make_histogram(f"{_OPERATION}.input_tokens", "{token}", "Input tokens of a request.", tokens)
        self._tokens_out = make_histogram(
            f"{_OPERATION}.output_tokens", "{token}", "Output tokens of a request.", tokens
        )
        self._tool = make_histogram("gen_ai.execute_tool.duration", "s", "Duration of a call of a tool.", seconds)
        self._agent = make_histogram("gen_ai.invoke_agent.duration", "s", "Duration of a run.", BUCKETS_OF_RUNS)
        self._requests = make_histogram(
            "gen_ai.invoke_agent.inference_calls", "{inference_call}", "Requests of a run.", BUCKETS_OF_CALLS
        )
        self._calls = make_histogram(
            "gen_ai.invoke_agent.tool_calls", "{tool_call}", "Calls of tools of a run.", BUCKETS_OF_CALLS
        )
        self._used = {
            name: meter.create_counter(f"{_USAGE}.{suffix}", "{token}", text)
            for name, suffix, text in (
                ("input_tokens", "input_tokens", "Input tokens, those from a cache included."),
                ("output_tokens", "output_tokens", "Output tokens, reasoning included."),
                ("cache_read_tokens", "cache_read.input_tokens", "Input tokens that were read from a cache."),
                ("cache_write_tokens", "cache_write.input_tokens", "Input tokens that were written to a cache."),
                ("reasoning_tokens", "reasoning.output_tokens", "Output tokens of reasoning."),
            )
        }

    def record_request(
        self, seconds: float, usage: Usage | None, attributes: Attributes, first_chunk: float | None
    ) -> None:
        """Record one request to a model, which may have failed."""
        self._inference.record(seconds, attributes)
        if first_chunk is not None:
            self._first_chunk.record(first_chunk, attributes)
        if usage is None:
            return
        self._tokens_in.record(usage.input_tokens, attributes)
        self._tokens_out.record(usage.output_tokens, attributes)
        for name, counter in self._used.items():
            count = getattr(usage, name)
            if count:
                counter.add(count, attributes)

    def record_call(self, seconds: float, attributes: Attributes) -> None:
        """Record one call of a tool."""
        self._tool.record(seconds, attributes)

    def record_run(self, seconds: float, requests: int, calls: int, attributes: Attributes) -> None:
        """Record one run, with the requests and calls that it made itself."""
        self._agent.record(seconds, attributes)
        self._requests.record(requests, attributes)
        self._calls.record(calls, attributes)
