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
    UserMessage,
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
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import Attributes, AttributeValue

    from toolkit.loop.outcome import ToolLoopResult

__all__ = ["Tracing"]


OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
SESSION_ID = "session.id"  # the same for Langfuse, Phoenix and others
USER_ID = "user.id"
METADATA = "toolkit.metadata."
ERROR_TYPE = "error.type"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
INPUT_TEXT, OUTPUT_TEXT = "input.value", "output.value"  # of a run, which Phoenix and Langfuse show for its session
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
RUN_ID = "toolkit.run.id"
LOOP_ID = "toolkit.loop.id"
REQUEST_ATTEMPT = "toolkit.request.attempt"
ENDING = "toolkit.ending"

PROVIDERS = {
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

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


def describe_chat(request: RequestInfo[object]) -> dict[str, AttributeValue]:
    """Return the attributes of a request to a model."""
    chat = request.chat
    return _without_none(
        {
            "toolkit.turn": request.iteration,
            "gen_ai.request.stream": True if request.is_streamed else None,
            REQUEST_ATTEMPT: request.attempt if request.attempt > 1 else None,
            "gen_ai.request.temperature": chat.temperature,
            "gen_ai.request.max_tokens": chat.max_tokens,
            "gen_ai.request.seed": chat.seed,
            "gen_ai.request.stop_sequences": chat.stop or None,
            "gen_ai.request.reasoning.level": chat.reasoning_effort,
            "gen_ai.output.type": None if chat.response_format is None else "json",
        }
    )


def describe_reply(response: ChatResponse) -> dict[str, AttributeValue]:
    """Return the attributes of a reply and its cost."""
    usage = response.usage
    return _without_none(
        {
            RESPONSE_MODEL: response.model or None,
            "gen_ai.response.id": response.request_id,
            "gen_ai.response.finish_reasons": (STOP_REASONS.get(response.stop_reason, response.stop_reason),),
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cost": usage.cost,  # not in the conventions; Langfuse and others read it under this name
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    )


def describe_metadata(metadata: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the plain values of a run's metadata without secrets, its user and conversation apart."""
    other = {name: each for name, each in metadata.items() if name not in ("user", "conversation")}
    cleaned: Mapping[str, Any] = _SCRUBBER(other)
    return {f"{METADATA}{name}": each for name, each in cleaned.items() if isinstance(each, (str, int, float, bool))}


def describe_run(usage: Usage) -> dict[str, AttributeValue]:
    """Return the usage of a run, with that of the runs inside its tools.

    The spans of requests have the names of the conventions, which some backends add up over a trace: these are ours.
    """
    return _without_none(
        {
            "toolkit.usage.input_tokens": usage.input_tokens,
            "toolkit.usage.output_tokens": usage.output_tokens,
            "toolkit.usage.cost": usage.cost,
        }
    )


def _without_none(given: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in given.items() if value is not None}


_SCRUBBER = Scrubber()


def describe_messages(messages: Sequence[Message], scrubber: Scrubber, finish_reason: str | None = None) -> str:
    """Return messages as JSON; system messages are left out.

    Args:
        messages: The messages.
        scrubber: Redacts their secrets.
        finish_reason: The reason why the model stopped, for its own messages.
    """
    described = [_describe_message(message, scrubber) for message in messages if not isinstance(message, SystemMessage)]
    if finish_reason is not None:
        described = [{**message, "finish_reason": finish_reason} for message in described]
    return _write_json(scrubber(described))


def describe_instructions(messages: Sequence[Message]) -> str | None:
    """Return the system messages as JSON, or None where there are none."""
    parts = [{"type": "text", "content": message.content} for message in messages if isinstance(message, SystemMessage)]
    return _write_json(_SCRUBBER(parts)) if parts else None


def describe_tools(tools: Sequence[ToolDefinition]) -> str:
    """Return the tools that a model was offered as JSON: their names alone, as the conventions advise."""
    return _write_json(_SCRUBBER([{"type": "function", "name": tool.name} for tool in tools]))


def _write_arguments(span: Span, text: str) -> None:
    """Write the JSON of a call's arguments to a span, without secrets."""
    # Under that name, whose fields are searched by their own names, too.
    cleaned = _SCRUBBER({"arguments": _read_json(text)})
    span.set_attribute(TOOL_ARGUMENTS, _write_json(cleaned["arguments"]))


def describe_text(text: str) -> str:
    """Return a text without secrets."""
    cleaned: str = _SCRUBBER(text)
    return cleaned


def _describe_message(message: Message, scrubber: Scrubber) -> dict[str, Any]:
    if not isinstance(message, ToolResult):
        return {"role": message.role, "parts": _describe_message_parts(message, scrubber)}
    response = {"type": "tool_call_response", "id": message.call_id, "response": message.text}
    content = () if isinstance(message.content, str) else message.content
    blocks = [_describe_part(block, scrubber) for block in content if not isinstance(block, TextBlock)]
    return {"role": "tool", "parts": [response, *blocks]}


def _describe_message_parts(
    message: UserMessage | SystemMessage | AssistantMessage, scrubber: Scrubber
) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"type": "text", "content": message.content}]
    return [_describe_part(block, scrubber) for block in message.content]


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
        return {describe_text(name): _clean_names(each) for name, each in value.items()}
    return [_clean_names(each) for each in value] if is_array(value) else value


class Instruments:
    """The instruments of one meter.

    Args:
        meter: Makes them.
    """

    def __init__(self, meter: Meter) -> None:
        seconds = [0.01 * 2**power for power in range(14)]
        run_seconds = [0.1 * 2**power for power in range(13)]
        calls = [float(2**power) for power in range(8)]
        tokens = [float(4**power) for power in range(14)]

        def make_histogram(name: str, unit: str, text: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)

        inference = "gen_ai.client.inference"
        self._inference = make_histogram(f"{inference}.duration", "s", "Duration of a request to a model.", seconds)
        self._first_chunk = make_histogram(
            f"{inference}.time_to_first_chunk", "s", "Time until the first piece of a streamed answer.", seconds
        )
        self._tokens_in = make_histogram(
            f"{inference}.operation.input_tokens", "{token}", "Input tokens of a request.", tokens
        )
        self._tokens_out = make_histogram(
            f"{inference}.operation.output_tokens", "{token}", "Output tokens of a request.", tokens
        )
        self._tool = make_histogram("gen_ai.execute_tool.duration", "s", "Duration of a call of a tool.", seconds)
        self._agent = make_histogram("gen_ai.invoke_agent.duration", "s", "Duration of a run.", run_seconds)
        self._requests = make_histogram(
            "gen_ai.invoke_agent.inference_calls", "{inference_call}", "Requests of a run.", calls
        )
        self._calls = make_histogram("gen_ai.invoke_agent.tool_calls", "{tool_call}", "Calls of tools of a run.", calls)
        self._used = {
            name: meter.create_counter(f"{inference}.usage.{suffix}", "{token}", text)
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


_SCOPE = "toolkit"
_MOST_CHARACTERS = 1_000
_LONG = 10_000


class Tracing(Middleware[object]):
    """Makes a span of each run, request and call, for runs and for the runs inside their tools.

    ::

        config = ToolLoopConfig(middleware=(Tracing(content="new"),))

    The spans are ``invoke_agent {agent}``, ``chat {model}`` and ``execute_tool {tool}``. Spans that a tool opens inside
    its call, in a worker thread too, are children of its span. A refused call is a span of no length with an error
    type. Approvals that are asked for, retries, repairs, detected loops and compactions are events of the run's span.
    Names are those of `toolkit.tracing`.

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
        self.instruments = Instruments(metrics.get_meter(_SCOPE, release, meter_provider))

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
    """Traces one run.

    Args:
        tracing: The settings.
        run: The run.
    """

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
        self._scrubber = Scrubber(is_learning=True)
        self._known_tools: Sequence[ToolDefinition] | None = None
        self._answered: dict[str, AttributeValue] = {}  # who gave the last answer, which wrappers do not show
        self._agent = run.agent or tracing.agent
        self._common: dict[str, AttributeValue] = {PROVIDER: PROVIDERS.get(run.provider, run.provider)}
        if run.model:
            self._common[REQUEST_MODEL] = run.model

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
        attributes: dict[str, AttributeValue] = {
            OPERATION: "invoke_agent",
            **self._common,
            RUN_ID: run.run_id,
            LOOP_ID: run.loop_id,
        }
        if self._agent:
            attributes[AGENT_NAME] = self._agent
        conversation = self._tracing.conversation or run.find_fact("conversation")
        if conversation is not None:
            attributes[CONVERSATION_ID] = attributes[SESSION_ID] = describe_text(conversation)
        user = run.find_fact("user")
        if user is not None:
            attributes[USER_ID] = describe_text(user)
        if run.metadata:
            attributes |= describe_metadata(run.metadata)
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
        attributes: dict[str, AttributeValue] = {OPERATION: "invoke_agent", **self._common, **self._answered}
        span.set_attributes(self._answered)
        if self._agent:
            attributes[AGENT_NAME] = self._agent
        if error is not None:
            attributes[ERROR_TYPE] = error
        if result is not None:
            span.set_attribute(ENDING, result.ending)
            span.set_attributes(describe_run(result.usage))
            if self._tracing.content != "none" and span.is_recording():
                span.set_attribute(OUTPUT_MESSAGES, describe_messages(result.messages[-1:], self._scrubber))
                span.set_attribute(OUTPUT_TEXT, self._scrubber(result.text))
        seconds = time.perf_counter() - self._began
        self._tracing.instruments.record_run(seconds, self._requests, self._calls, attributes)
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

        attributes: dict[str, AttributeValue] = {OPERATION: "chat", **self._common}
        usage: Usage | None = None
        with self._open_span(
            f"chat {self._common.get(REQUEST_MODEL, '')}".strip(),
            {**attributes, **describe_chat(request)},
            SpanKind.CLIENT,
        ) as span:
            if self._tracing.content != "none" and span.is_recording():
                await _write_texts(
                    partial(self._write_input, span, request.chat),
                    _count_characters(request.chat.messages[self._count_written :]),
                )
            try:
                response = await (proceed(on_delta=note_first) if request.is_streamed else proceed())
            except BaseException as error:
                attributes[ERROR_TYPE] = _classify_error(error)
                raise
            else:
                usage = response.usage
                name = response.provider
                answered = {PROVIDER: PROVIDERS.get(name, name), RESPONSE_MODEL: response.model}
                self._answered = {key: value for key, value in answered.items() if value}
                attributes |= self._answered
                span.set_attributes(self._answered)
                if span.is_recording():
                    await _write_texts(
                        partial(self._write_output, span, response, first), _count_characters([response.message])
                    )
                return response
            finally:
                seconds = time.perf_counter() - began
                self._tracing.instruments.record_request(seconds, usage, attributes, first[0] if first else None)

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
            instructions = describe_instructions(messages)
            if instructions is not None:
                span.set_attribute(SYSTEM_INSTRUCTIONS, instructions)
            if chat.tools:
                span.set_attribute(TOOL_DEFINITIONS, describe_tools(chat.tools))
        span.set_attribute(INPUT_MESSAGES, describe_messages(messages[start:], self._scrubber))
        if self._span is not None and not self._has_input:
            self._has_input = True
            asked = find_question(messages)
            question = [messages[-1] if asked is None else asked]
            self._span.set_attribute(INPUT_MESSAGES, describe_messages(question, self._scrubber))
            self._span.set_attribute(INPUT_TEXT, self._scrubber(question[0].text))

    def _write_output(self, span: Span, response: ChatResponse, first: list[float]) -> None:
        span.set_attributes(describe_reply(response))
        if first:
            span.set_attribute(TIME_TO_FIRST_CHUNK, first[0])
        if self._tracing.content != "none":
            reason = STOP_REASONS.get(response.stop_reason, response.stop_reason)
            span.set_attribute(OUTPUT_MESSAGES, describe_messages([response.message], self._scrubber, reason))

    # its calls

    async def around_call(self, call: CallInfo[object], proceed: CallProceed) -> ToolOutput:
        """Make a span of one call that runs, and its tool's work a child of it."""
        self._calls += 1
        attributes: dict[str, AttributeValue] = {
            OPERATION: "execute_tool",
            TOOL_NAME: call.tool_name,
            TOOL_TYPE: "function",
        }
        own = {**attributes, AGENT_NAME: self._agent} if self._agent else attributes
        began = time.perf_counter()
        try:
            with self._open_span(
                f"execute_tool {call.tool_name}", own, SpanKind.INTERNAL, shows_words=self._tracing.content != "none"
            ) as span:
                is_recorded = span.is_recording()
                has_content = self._tracing.content != "none" and is_recorded
                if is_recorded:
                    span.set_attribute(TOOL_CALL_ID, describe_text(call.call_id))
                if has_content:
                    span.set_attribute(TOOL_DESCRIPTION, describe_text(call.definition.description))
                    await _write_texts(partial(_write_arguments, span, call.arguments_json), len(call.arguments_json))
                output = await proceed()
                if output.is_error:
                    attributes[ERROR_TYPE] = "tool_error"
                await _write_texts(partial(self._write_result, span, output, has_content=has_content), len(output.text))
                return output
        except BaseException as error:
            attributes[ERROR_TYPE] = _classify_error(error)
            raise
        finally:
            self._tracing.instruments.record_call(time.perf_counter() - began, attributes)

    def _write_result(self, span: Span, output: ToolOutput, *, has_content: bool) -> None:
        text = self._scrubber.clean_text(output.text) if has_content else None
        if output.is_error:
            span.set_attribute(ERROR_TYPE, "tool_error")
            span.set_status(Status(StatusCode.ERROR, None if text is None else text[:_MOST_CHARACTERS]))
        if text is not None:
            span.set_attribute(TOOL_RESULT, text)

    @contextmanager
    def _open_span(
        self, name: str, attributes: dict[str, AttributeValue], kind: SpanKind, *, shows_words: bool = True
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
                span.add_event(
                    "toolkit.request_retried",
                    {
                        REQUEST_ATTEMPT: event.attempt,
                        ERROR_TYPE: _classify_error(event.error),
                        "toolkit.delay": event.delay,
                    },
                )
            case LoopDetected():
                span.add_event(
                    "toolkit.loop_detected",
                    {TOOL_NAME: event.tool_name, "toolkit.count": event.count, "toolkit.action": event.action},
                )
            case Compacted():
                span.add_event("toolkit.compacted", {"toolkit.before": event.before, "toolkit.after": event.after})
            case _:
                pass

    def _add_refused(self, event: ToolCallRefused) -> None:
        attributes: dict[str, AttributeValue] = {
            OPERATION: "execute_tool",
            TOOL_TYPE: "function",
            ERROR_TYPE: "refused",
            **_identify_call(event),
        }
        if self._tracing.content != "none":
            attributes[TOOL_RESULT] = self._scrubber(event.result.text)
        now = time.time_ns()
        name = describe_text(event.tool_name)
        span = self._tracing.tracer.start_span(
            f"execute_tool {name}", self._context, attributes=attributes, start_time=now
        )
        words = attributes.get(TOOL_RESULT)
        span.set_status(Status(StatusCode.ERROR, None if words is None else str(words)[:_MOST_CHARACTERS]))
        span.end(now)


def _identify_call(event: ToolCallRefused | ApprovalRequested | ToolCallRepaired) -> dict[str, str]:
    # The model wrote both; the name of a refused call may be any text.
    return {
        TOOL_NAME: describe_text(event.tool_name),
        TOOL_CALL_ID: describe_text(event.call_id),
    }


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
    span.set_attribute(ERROR_TYPE, name)
    event = {"exception.type": _qualify_name(type(error))}
    if shows_words:
        text = scrubber.clean_text(error.message if isinstance(error, ToolError) else str(error))
        event["exception.message"] = text
        name = f"{name}: {text}"[:_MOST_CHARACTERS] if text else name
    span.add_event("exception", event)
    span.set_status(Status(StatusCode.ERROR, name))
