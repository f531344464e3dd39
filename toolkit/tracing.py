"""Runs as OpenTelemetry spans and metrics, by the conventions for generative AI; the extra ``otel``.

::

    from toolkit.tracing import Tracing

    config = ToolLoopConfig(middleware=(Tracing(),))

The tracer and meter providers are those that the application has set up; without any, nothing is recorded.

The conventions (names, attributes and instruments) are those of ``open-telemetry/semantic-conventions-genai`` at commit
024a4f9: ``docs/gen-ai/client-inference.md``, ``gen-ai-agent-spans.md``, ``gen-ai-spans.md`` and
``gen-ai-token-metrics.md``. The constants of the Python package ``opentelemetry-semantic-conventions`` are older. Names
that the conventions lack begin with ``toolkit.``. Messages and tools are described without secrets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, assert_never

from anyio import CancelScope, to_thread
from opentelemetry import context as contexts, metrics, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from toolkit.calls.argument_repair import list_readings
from toolkit.calls.events import ApprovalRequested, ToolCallRefused, ToolCallRepaired
from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    ChatResponse,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)
from toolkit.chat.output import ToolOutput
from toolkit.chat.provider import Delta
from toolkit.errors import ProviderError, ToolError
from toolkit.loop.events import Compacted, LoopEvent, ProviderRetried
from toolkit.loop.middleware import (
    CallInfo,
    CallProceed,
    Middleware,
    RequestInfo,
    RequestProceed,
    RunInfo,
    RunProceed,
    find_question,
)
from toolkit.loop.outcome import LoopDetected
from toolkit.redaction import Scrubber
from toolkit.schema.nodes import Nodes, is_array, is_object
from toolkit.settings import check_setting

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import Attributes, AttributeValue

    from toolkit.loop.outcome import ToolLoopResult

__all__ = ["Tracing"]


_OPERATION = "gen_ai.operation.name"
_PROVIDER = "gen_ai.provider.name"
_AGENT = "gen_ai.agent.name"
_ERROR = "error.type"
_REQUEST_MODEL = "gen_ai.request.model"
_RESPONSE_MODEL = "gen_ai.response.model"
_INPUT_MESSAGES = "gen_ai.input.messages"
_OUTPUT_MESSAGES = "gen_ai.output.messages"
_TOOL_NAME = "gen_ai.tool.name"
_TOOL_CALL_ID = "gen_ai.tool.call.id"
_TOOL_TYPE = "gen_ai.tool.type"
_TOOL_RESULT = "gen_ai.tool.call.result"
_ATTEMPT = "toolkit.request.attempt"

_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "deepseek": "deepseek",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "openai-responses": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""The well-known names of providers by ours; others are unchanged."""

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}
_OF_REQUESTS = {
    "temperature": "gen_ai.request.temperature",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "reasoning_effort": "gen_ai.request.reasoning.level",
}
_OF_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cost": "gen_ai.usage.cost",  # not in the conventions; Langfuse and others read it under this name
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# The spans of requests have the names of the conventions, which some backends add up over a trace: these are ours.
_OF_RUN_USAGE = {name: f"toolkit.usage.{name}" for name in ("input_tokens", "output_tokens", "cost")}
_SCRUBBER = Scrubber()
_SCOPE = "toolkit"
_MOST_CHARACTERS = 1_000
_LONG = 10_000


def _read_facts(source: object, names: Mapping[str, str]) -> dict[str, AttributeValue]:
    """Return fields of an object as attributes of these names, without those that are not set."""
    found = {attribute: getattr(source, name) for name, attribute in names.items()}
    return {attribute: value for attribute, value in found.items() if value not in (None, ())}


def _describe_request(request: RequestInfo[object]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"toolkit.turn": request.iteration}
    if request.is_streamed:
        attributes["gen_ai.request.stream"] = True
    if request.attempt > 1:
        attributes[_ATTEMPT] = request.attempt
    if request.chat.response_format is not None:
        attributes["gen_ai.output.type"] = "json"
    return attributes | _read_facts(request.chat, _OF_REQUESTS)


def _describe_metadata(metadata: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the plain values of a run's metadata without secrets, except for its user and conversation."""
    other = {name: each for name, each in metadata.items() if name not in ("user", "conversation")}
    cleaned: Mapping[str, Any] = _SCRUBBER(other)
    plain = {name: each for name, each in cleaned.items() if isinstance(each, (str, int, float, bool))}
    return {f"toolkit.metadata.{name}": each for name, each in plain.items()}


def _describe_messages(messages: Sequence[Message], scrubber: Scrubber, finish_reason: str | None = None) -> str:
    """Return messages as JSON without secrets; system messages are left out."""
    described = [_describe_message(message, scrubber) for message in messages if not isinstance(message, SystemMessage)]
    if finish_reason is not None:
        described = [{**message, "finish_reason": finish_reason} for message in described]
    return _write_json(scrubber(described))


def _describe_instructions(messages: Sequence[Message]) -> str:
    """Return the system messages as JSON; empty if there are none."""
    parts = [{"type": "text", "content": message.content} for message in messages if isinstance(message, SystemMessage)]
    return _write_json(_SCRUBBER(parts)) if parts else ""


def _write_arguments(span: Span, text: str) -> None:
    # Under this name, since the values of fields are searched by their names.
    cleaned = _SCRUBBER({"arguments": _read_json(text)})
    span.set_attribute("gen_ai.tool.call.arguments", _write_json(cleaned["arguments"]))


def _clean_text(text: str) -> str:
    cleaned: str = _SCRUBBER(text)
    return cleaned


def _describe_message(message: Message, scrubber: Scrubber) -> dict[str, Any]:
    blocks = [TextBlock(message.content)] if isinstance(message.content, str) else message.content
    if not isinstance(message, ToolResult):
        return {"role": message.role, "parts": [_describe_part(block, scrubber) for block in blocks]}
    response = {"type": "tool_call_response", "id": message.call_id, "response": message.text}
    media = [_describe_part(block, scrubber) for block in blocks if not isinstance(block, TextBlock)]
    return {"role": "tool", "parts": [response, *media]}


def _describe_part(block: ContentBlock | ReasoningBlock | ToolCall, scrubber: Scrubber) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ReasoningBlock():
            return {"type": "reasoning", "content": block.text}
        case ToolCall():
            arguments = _read_json(scrubber.mask_arguments(block.name, block.arguments))
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}
        case ImageBlock() | FileBlock() if block.url is not None:
            return {"type": "uri", "modality": block.type, "mime_type": block.media_type, "uri": block.url}
        case ImageBlock() | FileBlock() | AudioBlock():
            # Bytes are as large as their file is, and no page that shows traces shows them.
            size = len(block.data or b"")
            return {"type": "blob", "modality": block.type, "mime_type": block.media_type, "size": size}
        case _:
            assert_never(block)


def _read_json(text: str) -> Any:
    try:
        return _clean_names(json.loads(text or "{}"))
    except ValueError:
        return text


def _write_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _clean_names(value: Any) -> Any:
    """Return JSON values without secrets in the names of fields, which a model may have made of anything."""
    if is_object(value):
        return {_clean_text(name): _clean_names(each) for name, each in value.items()}
    return [_clean_names(each) for each in value] if is_array(value) else value


def _list_powers(base: int, count: int, first: float = 1.0) -> list[float]:
    return [first * base**power for power in range(count)]


_INFERENCE = "gen_ai.client.inference"
_SECONDS, _TOKENS = _list_powers(2, 14, 0.01), _list_powers(4, 14)
_RUN_SECONDS, _COUNTS = _list_powers(2, 13, 0.1), _list_powers(2, 8)
_HISTOGRAMS: Mapping[str, tuple[str, str, str, list[float]]] = {
    "request": (f"{_INFERENCE}.duration", "s", "Duration of a request to a model.", _SECONDS),
    "first_chunk": (
        f"{_INFERENCE}.time_to_first_chunk", "s", "Time until the first piece of a streamed answer.", _SECONDS
    ),
    "input_tokens": (f"{_INFERENCE}.operation.input_tokens", "{token}", "Input tokens of a request.", _TOKENS),
    "output_tokens": (f"{_INFERENCE}.operation.output_tokens", "{token}", "Output tokens of a request.", _TOKENS),
    "call": ("gen_ai.execute_tool.duration", "s", "Duration of a call of a tool.", _SECONDS),
    "run": ("gen_ai.invoke_agent.duration", "s", "Duration of a run.", _RUN_SECONDS),
    "requests": ("gen_ai.invoke_agent.inference_calls", "{inference_call}", "Requests of a run.", _COUNTS),
    "calls": ("gen_ai.invoke_agent.tool_calls", "{tool_call}", "Calls of tools of a run.", _COUNTS),
}  # fmt: skip
_COUNTERS = {
    "input_tokens": ("input_tokens", "Input tokens, those from a cache included."),
    "output_tokens": ("output_tokens", "Output tokens, reasoning included."),
    "cache_read_tokens": ("cache_read.input_tokens", "Input tokens that were read from a cache."),
    "cache_write_tokens": ("cache_write.input_tokens", "Input tokens that were written to a cache."),
    "reasoning_tokens": ("reasoning.output_tokens", "Output tokens of reasoning."),
}


class _Instruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._histograms = {
            key: meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)
            for key, (name, unit, text, buckets) in _HISTOGRAMS.items()
        }
        self._counters = {
            key: meter.create_counter(f"{_INFERENCE}.usage.{suffix}", "{token}", text)
            for key, (suffix, text) in _COUNTERS.items()
        }

    def record(self, attributes: Attributes, **values: float | None) -> None:
        """Record the values that are known."""
        for key, value in values.items():
            if value is not None:
                self._histograms[key].record(value, attributes)

    def count_tokens(self, usage: Usage, attributes: Attributes) -> None:
        """Count the tokens of a request."""
        self.record(attributes, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        for key, counter in self._counters.items():
            count = getattr(usage, key)
            if count:
                counter.add(count, attributes)


class Tracing(Middleware[object]):
    """Makes a span of each run, request and call, for runs and for the runs inside their tools.

    ::

        config = ToolLoopConfig(middleware=(Tracing(content="new"),))

    The spans are ``invoke_agent {agent}``, ``chat {model}`` and ``execute_tool {tool}``. Spans that a tool opens inside
    its call, in a worker thread too, are children of its span. A refused call is a span of no length with an error
    type. Approvals that are asked for, retries, repairs, detected loops and compactions are events of the run's span.
    The page on tracing lists the attributes.

    A run that is stepped by hand is one span from its first turn to its end. A run that awaits a decision has ended;
    going on is a new span, with a link to the first.

    One object serves all runs. The span of a run has its user, its conversation and its other metadata, which are read
    from ``ToolLoopConfig(metadata=...)``; the first two also from attributes of the context.

    Args:
        content: The part of messages, arguments and results that is written: ``none``, all that the last request had
            not (``new``), or ``all`` of each request, which grows with the square of the turns. Texts that look like
            secrets, and fields whose names tell of one, are removed.
        agent: The name of an outermost run; sub-agents have their own.
        conversation: The id of the conversation that the runs belong to; None takes the ``conversation`` of each run,
            as `RunInfo.find_fact` finds it.
        tracer_provider: Makes the spans; None takes the global one.
        meter_provider: Makes the metrics; None takes the global one.
    """

    is_inherited = True

    def __init__(
        self,
        *,
        content: Literal["none", "new", "all"] = "none",
        agent: str = "",
        conversation: str | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        check_setting("the content of Tracing", content, "none", "new", "all")
        check_setting("the agent of Tracing", agent, str)
        check_setting("the conversation of Tracing", conversation, str, None)
        release = version("toolkit-sdk")
        self.content = content
        self.agent = agent
        self.conversation = conversation
        self.tracer: Tracer = trace.get_tracer(_SCOPE, release, tracer_provider)
        self.instruments = _Instruments(metrics.get_meter(_SCOPE, release, meter_provider))

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        """Return the middleware that traces one run."""
        return _TracedRun(self, run)


async def _write_texts(write: Callable[[], None], length: int) -> None:
    """Write texts of a length to a span; long ones are cleaned in a thread, so that the event loop has its turns."""
    if length < _LONG:
        write()
    else:
        with CancelScope(shield=True):  # a span is written whole
            await to_thread.run_sync(write)


def _count_characters(messages: Sequence[Message]) -> int:
    """Return the number of characters of messages that are to be cleaned."""
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    return sum(len(message.text) for message in messages) + sum(len(call.arguments) for call in calls)


class _TracedRun(Middleware[object]):
    """Traces one run."""

    is_inherited = True

    def __init__(self, tracing: Tracing, run: RunInfo[object]) -> None:
        self._tracing = tracing
        self._span: Span | None = None
        self._context: Context | None = None
        self._links: list[Link] = []
        self._began = 0.0
        self._has_input = False
        self._requests = self._calls = 0
        self._count_written = 0  # of messages, in the last request, where only what is new is written
        self._last_written: Message | None = None
        self._scrubber = Scrubber(is_learning=True, list_readings=list_readings)
        self._known_tools: Sequence[ToolDefinition] | None = None
        self._answered: dict[str, AttributeValue] = {}  # who gave the last answer, which wrappers do not show
        self._agent = run.agent or tracing.agent
        self._common: dict[str, AttributeValue] = {_PROVIDER: _PROVIDERS.get(run.provider, run.provider)}
        if run.model:
            self._common[_REQUEST_MODEL] = run.model
        self._of_run: dict[str, AttributeValue] = {_OPERATION: "invoke_agent", **self._common}
        self._of_agent: dict[str, AttributeValue] = {_AGENT: self._agent} if self._agent else {}

    # the run

    async def around_run(self, run: RunInfo[object], proceed: RunProceed) -> None:
        """Make one span current during the run, and end it with the run."""
        span = self._span or self._start_run(run)
        token = contexts.attach(self._context or contexts.get_current())
        result: ToolLoopResult[Any] | None = None
        try:
            result = await proceed()
        except BaseException as error:
            _record_error(span, error, self._scrubber)
            self._end_run(span, None, _classify_error(error))
            raise
        else:
            if result is not None:
                await _write_texts(partial(self._end_run, span, result, None), _count_characters(result.messages[-1:]))
        finally:
            contexts.detach(token)

    def _start_run(self, run: RunInfo[object]) -> Span:
        attributes = {**self._of_run, "toolkit.run.id": run.run_id, "toolkit.loop.id": run.loop_id, **self._of_agent}
        conversation = self._tracing.conversation or run.find_fact("conversation")
        if conversation is not None:  # under both names, for Langfuse, Phoenix and others
            attributes["gen_ai.conversation.id"] = attributes["session.id"] = _clean_text(conversation)
        user = run.find_fact("user")
        if user is not None:
            attributes["user.id"] = _clean_text(user)
        if run.metadata:
            attributes |= _describe_metadata(run.metadata)
        self._began = time.perf_counter()
        self._has_input = False
        self._requests = self._calls = 0
        self._answered = {}
        span = self._tracing.tracer.start_span(
            f"invoke_agent {self._agent}".strip(), attributes=attributes, links=self._links
        )
        self._span, self._context = span, trace.set_span_in_context(span)
        return span

    def _end_run(self, span: Span, result: ToolLoopResult[Any] | None, error: str | None) -> None:
        attributes = {**self._of_run, **self._answered, **self._of_agent}
        span.set_attributes(self._answered)
        if error is not None:
            attributes[_ERROR] = error
        if result is not None:
            span.set_attribute("toolkit.ending", result.ending)
            span.set_attributes(_read_facts(result.usage, _OF_RUN_USAGE))
            if self._tracing.content != "none" and span.is_recording():
                span.set_attribute(_OUTPUT_MESSAGES, _describe_messages(result.messages[-1:], self._scrubber))
                span.set_attribute("output.value", self._scrubber(result.text))  # which Phoenix and Langfuse show
        seconds = time.perf_counter() - self._began
        self._tracing.instruments.record(attributes, run=seconds, requests=self._requests, calls=self._calls)
        span.end()
        self._links = [Link(span.get_span_context())]
        self._span = self._context = None

    # its requests

    async def around_request(self, request: RequestInfo[object], proceed: RequestProceed) -> ChatResponse:
        """Make a span of one attempt to ask the model."""
        self._requests += 1
        began = time.perf_counter()
        first: list[float] = []

        def note_first(delta: Delta) -> Delta:
            if not first:
                first.append(time.perf_counter() - began)
            return delta

        attributes: dict[str, AttributeValue] = {_OPERATION: "chat", **self._common}
        instruments = self._tracing.instruments
        name = f"chat {self._common.get(_REQUEST_MODEL, '')}".strip()
        with self._open_span(name, {**attributes, **_describe_request(request)}, SpanKind.CLIENT) as span:
            if self._tracing.content != "none" and span.is_recording():
                length = _count_characters(request.chat.messages[self._count_written :])
                await _write_texts(partial(self._write_input, span, request.chat), length)
            try:
                response = await (proceed(on_delta=note_first) if request.is_streamed else proceed())
            except BaseException as error:
                attributes[_ERROR] = _classify_error(error)
                raise
            else:
                answered = {
                    _PROVIDER: _PROVIDERS.get(response.provider, response.provider), _RESPONSE_MODEL: response.model
                }  # fmt: skip
                self._answered = {key: value for key, value in answered.items() if value}
                attributes |= self._answered
                span.set_attributes(self._answered)
                if span.is_recording():
                    length = _count_characters([response.message])
                    await _write_texts(partial(self._write_output, span, response, first), length)
                instruments.count_tokens(response.usage, attributes)
                return response
            finally:
                seconds = time.perf_counter() - began
                instruments.record(attributes, request=seconds, first_chunk=first[0] if first else None)

    def _write_input(self, span: Span, chat: ChatRequest) -> None:
        if chat.tools is not self._known_tools:
            self._known_tools = chat.tools
            for tool in chat.tools or ():
                self._scrubber.learn_tool(tool.name, partial(Nodes, tool.parameters))
        messages, start = chat.messages, 0
        if self._tracing.content == "new":
            count = self._count_written
            if count and len(messages) > count and messages[count - 1] is self._last_written:
                start = count + 1  # the answer before is written as the output of its own request
            self._count_written, self._last_written = len(messages), messages[-1] if messages else None
        if not start:
            instructions = _describe_instructions(messages)
            if instructions:
                span.set_attribute("gen_ai.system_instructions", instructions)
            if chat.tools:  # their names alone, as the conventions advise
                names = [{"type": "function", "name": tool.name} for tool in chat.tools]
                span.set_attribute("gen_ai.tool.definitions", _write_json(_SCRUBBER(names)))
        span.set_attribute(_INPUT_MESSAGES, _describe_messages(messages[start:], self._scrubber))
        if self._span is not None and not self._has_input:
            self._has_input = True
            asked = find_question(messages)
            question = [messages[-1] if asked is None else asked]
            self._span.set_attribute(_INPUT_MESSAGES, _describe_messages(question, self._scrubber))
            self._span.set_attribute("input.value", self._scrubber(question[0].text))

    def _write_output(self, span: Span, response: ChatResponse, first: list[float]) -> None:
        reason = _STOP_REASONS.get(response.stop_reason, response.stop_reason)
        span.set_attributes(_read_facts(response.usage, _OF_USAGE))
        span.set_attribute("gen_ai.response.finish_reasons", (reason,))
        if response.request_id is not None:
            span.set_attribute("gen_ai.response.id", response.request_id)
        if first:
            span.set_attribute("gen_ai.response.time_to_first_chunk", first[0])
        if self._tracing.content != "none":
            span.set_attribute(_OUTPUT_MESSAGES, _describe_messages([response.message], self._scrubber, reason))

    # its calls

    async def around_call(self, call: CallInfo[object], proceed: CallProceed) -> ToolOutput:
        """Make a span of one call that runs, and its tool's work a child of it."""
        self._calls += 1
        if secrets := call.secrets:  # of a run that was restored, no message with them is written
            self._scrubber.secrets |= secrets
        attributes: dict[str, AttributeValue] = {_OPERATION: "execute_tool", _TOOL_NAME: call.tool_name}
        attributes[_TOOL_TYPE] = "function"
        shows_words, began = self._tracing.content != "none", time.perf_counter()
        try:
            with self._open_span(
                f"execute_tool {call.tool_name}", {**attributes, **self._of_agent}, shows_words=shows_words
            ) as span:
                has_content = shows_words and span.is_recording()
                if span.is_recording():
                    span.set_attribute(_TOOL_CALL_ID, _clean_text(call.call_id))
                if has_content:
                    span.set_attribute("gen_ai.tool.description", _clean_text(call.definition.description))
                    await _write_texts(partial(_write_arguments, span, call.arguments_json), len(call.arguments_json))
                output = await proceed()
                if output.is_error:
                    attributes[_ERROR] = "tool_error"
                await _write_texts(partial(self._write_result, span, output, has_content=has_content), len(output.text))
                return output
        except BaseException as error:
            attributes[_ERROR] = _classify_error(error)
            raise
        finally:
            self._tracing.instruments.record(attributes, call=time.perf_counter() - began)

    def _write_result(self, span: Span, output: ToolOutput, *, has_content: bool) -> None:
        text = self._scrubber.clean_text(output.text) if has_content else None
        if output.is_error:
            span.set_attribute(_ERROR, "tool_error")
            span.set_status(Status(StatusCode.ERROR, None if text is None else text[:_MOST_CHARACTERS]))
        if text is not None:
            span.set_attribute(_TOOL_RESULT, text)

    @contextmanager
    def _open_span(
        self,
        name: str,
        attributes: dict[str, AttributeValue],
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        shows_words: bool = True,
    ) -> Generator[Span]:
        """Open a span below that of the run, and make it the current one; `shows_words` of an error, too."""
        span = self._tracing.tracer.start_span(name, self._context, kind=kind, attributes=attributes)
        # Not by `start_as_current_span`, whose nested context managers cost the most where nothing is recorded.
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            _record_error(span, error, self._scrubber, shows_words=shows_words)
            raise
        finally:
            contexts.detach(token)
            span.end()

    # its other events

    def on_event(self, event: LoopEvent) -> None:
        """Make a span of a refused call, and span events for the other events of the run."""
        span = self._span
        if span is None:
            return
        match event:
            case ToolCallRefused():
                self._add_refused(event)
            case ApprovalRequested():
                span.add_event("toolkit.approval_requested", _identify_call(event))
            case ToolCallRepaired():
                span.add_event("toolkit.call_repaired", {**_identify_call(event), "toolkit.repair": event.kind})
            case ProviderRetried():
                retry: dict[str, AttributeValue] = {
                    _ERROR: _classify_error(event.error),
                    _ATTEMPT: event.attempt,
                    "toolkit.delay": event.delay,
                }
                span.add_event("toolkit.request_retried", retry)
            case LoopDetected():
                found: dict[str, AttributeValue] = {
                    _TOOL_NAME: event.tool_name,
                    "toolkit.count": event.count,
                    "toolkit.action": event.action,
                }
                span.add_event("toolkit.loop_detected", found)
            case Compacted():
                span.add_event("toolkit.compacted", {"toolkit.before": event.before, "toolkit.after": event.after})
            case _:
                pass

    def _add_refused(self, event: ToolCallRefused) -> None:
        attributes: dict[str, AttributeValue] = {_OPERATION: "execute_tool", _TOOL_TYPE: "function", _ERROR: "refused"}
        attributes |= _identify_call(event)
        words: str | None = None
        if self._tracing.content != "none":
            words = attributes[_TOOL_RESULT] = str(self._scrubber(event.result.text))
        now = time.time_ns()
        span = self._tracing.tracer.start_span(
            f"execute_tool {_clean_text(event.tool_name)}", self._context, attributes=attributes, start_time=now
        )
        span.set_status(Status(StatusCode.ERROR, None if words is None else words[:_MOST_CHARACTERS]))
        span.end(now)


def _identify_call(event: ToolCallRefused | ApprovalRequested | ToolCallRepaired) -> dict[str, str]:
    # The model wrote both; the name of a refused call may be any text.
    return {_TOOL_NAME: _clean_text(event.tool_name), _TOOL_CALL_ID: _clean_text(event.call_id)}


def _classify_error(error: BaseException) -> str:
    """Return the class of an error, or the status of a provider's answer."""
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    kind = type(error)
    return kind.__qualname__ if kind.__module__.startswith(("toolkit", "builtins")) else _qualify_name(kind)


def _qualify_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _record_error(span: Span, error: BaseException, scrubber: Scrubber, *, shows_words: bool = True) -> None:
    """Record an error on a span, without secrets, and without the traceback, whose lines may hold some."""
    name = _classify_error(error)
    span.set_attribute(_ERROR, name)
    event = {"exception.type": _qualify_name(type(error))}
    if shows_words:
        text = scrubber.clean_text(error.message if isinstance(error, ToolError) else str(error))
        event["exception.message"] = text
        name = f"{name}: {text}"[:_MOST_CHARACTERS] if text else name
    span.add_event("exception", event)
    span.set_status(Status(StatusCode.ERROR, name))
