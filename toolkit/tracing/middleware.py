"""The middleware that makes spans and metrics of runs, requests and calls, nested as the work is nested."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry import context as contexts, metrics, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from toolkit.calls.events import ApprovalRequested, ToolCallRefused, ToolCallRepaired
from toolkit.chat import ChatRequest, ChatResponse, Message, ToolDefinition, Usage
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
from toolkit.schema.nodes import Nodes
from toolkit.settings import check_setting
from toolkit.tracing import conventions as names

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from toolkit.loop.outcome import ToolLoopResult

_SCOPE = "toolkit"
_MOST_CHARACTERS = 1_000


class Tracing(Middleware[object]):
    """Makes a span of each run, request and call, for runs and for the runs inside their tools.

    ::

        config = ToolLoopConfig(middleware=(Tracing(content="new"),))

    The spans are ``invoke_agent {agent}``, ``chat {model}`` and ``execute_tool {tool}``. Spans that a tool opens inside
    its call, in a worker thread too, are children of its span. A refused call is a span of no length with an error
    type. Approvals that are asked for, retries, repairs, detected loops and compactions are events of the run's span.
    Names are those of `toolkit.tracing.conventions`.

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
        self.instruments = names.Instruments(metrics.get_meter(_SCOPE, release, meter_provider))

    def for_run(self, run: RunInfo[object]) -> Middleware[object]:
        """Return the middleware that traces one run."""
        return _TracedRun(self, run)


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
        self._scrubber = Scrubber()
        self._known_tools: Sequence[ToolDefinition] | None = None
        self._agent = run.agent or tracing.agent
        self._common: dict[str, AttributeValue] = {names.PROVIDER: names.PROVIDERS.get(run.provider, run.provider)}
        if run.model:
            self._common[names.REQUEST_MODEL] = run.model

    # the run

    async def around_run(self, run: RunInfo[object], proceed: RunProceed) -> None:
        """Make one span current during the run, and end it with the run."""
        span = self._span or self._start_run(run)
        token = contexts.attach(self._context or contexts.get_current())
        result: ToolLoopResult[Any] | None = None
        try:
            result = await proceed()
        except BaseException as error:
            _record_error(span, error)
            self._end_run(span, None, _classify_error(error))
            raise
        else:
            if result is not None:
                self._end_run(span, result, None)
        finally:
            contexts.detach(token)

    def _start_run(self, run: RunInfo[object]) -> Span:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: "invoke_agent",
            **self._common,
            names.RUN_ID: run.run_id,
            names.LOOP_ID: run.loop_id,
        }
        if self._agent:
            attributes[names.AGENT_NAME] = self._agent
        conversation = self._tracing.conversation or run.find_fact("conversation")
        if conversation is not None:
            attributes[names.CONVERSATION_ID] = attributes[names.SESSION_ID] = names.describe_text(conversation)
        user = run.find_fact("user")
        if user is not None:
            attributes[names.USER_ID] = names.describe_text(user)
        if run.metadata:
            attributes |= names.describe_metadata(run.metadata)
        self._began = time.perf_counter()
        self._has_input = False
        self._requests = self._calls = 0
        span = self._tracing.tracer.start_span(
            f"invoke_agent {self._agent}".strip(), attributes=attributes, links=self._links
        )
        self._span, self._context = span, trace.set_span_in_context(span)
        return span

    def _end_run(self, span: Span, result: ToolLoopResult[Any] | None, error: str | None) -> None:
        attributes: dict[str, AttributeValue] = {names.OPERATION: "invoke_agent", **self._common}
        if self._agent:
            attributes[names.AGENT_NAME] = self._agent
        if error is not None:
            attributes[names.ERROR_TYPE] = error
        if result is not None:
            span.set_attribute(names.ENDING, result.ending)
            span.set_attributes(names.describe_run(result.usage))
            if self._tracing.content != "none" and span.is_recording():
                span.set_attribute(names.OUTPUT_MESSAGES, names.describe_messages(result.messages[-1:], self._scrubber))
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

        attributes: dict[str, AttributeValue] = {names.OPERATION: "chat", **self._common}
        usage: Usage | None = None
        with self._open_span(
            f"chat {self._common.get(names.REQUEST_MODEL, '')}".strip(),
            {**attributes, **names.describe_chat(request)},
            SpanKind.CLIENT,
        ) as span:
            if self._tracing.content != "none" and span.is_recording():
                self._write_input(span, request.chat)
            try:
                response = await (proceed(on_delta=note_first) if request.is_streamed else proceed())
            except BaseException as error:
                attributes[names.ERROR_TYPE] = _classify_error(error)
                raise
            else:
                usage = response.usage
                if response.model:
                    attributes[names.RESPONSE_MODEL] = response.model
                if span.is_recording():
                    self._write_output(span, response, first)
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
            instructions = names.describe_instructions(messages)
            if instructions is not None:
                span.set_attribute(names.SYSTEM_INSTRUCTIONS, instructions)
            if chat.tools:
                span.set_attribute(names.TOOL_DEFINITIONS, names.describe_tools(chat.tools))
        span.set_attribute(names.INPUT_MESSAGES, names.describe_messages(messages[start:], self._scrubber))
        if self._span is not None and not self._has_input:
            self._has_input = True
            asked = find_question(messages)
            question = [messages[-1] if asked is None else asked]
            self._span.set_attribute(names.INPUT_MESSAGES, names.describe_messages(question, self._scrubber))

    def _write_output(self, span: Span, response: ChatResponse, first: list[float]) -> None:
        span.set_attributes(names.describe_reply(response))
        if first:
            span.set_attribute(names.TIME_TO_FIRST_CHUNK, first[0])
        if self._tracing.content != "none":
            reason = names.STOP_REASONS.get(response.stop_reason, response.stop_reason)
            span.set_attribute(
                names.OUTPUT_MESSAGES, names.describe_messages([response.message], self._scrubber, reason)
            )

    # its calls

    async def around_call(self, call: CallInfo[object], proceed: CallProceed) -> ToolOutput:
        """Make a span of one call that runs, and its tool's work a child of it."""
        self._calls += 1
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: call.tool_name,
            names.TOOL_TYPE: "function",
        }
        own = {**attributes, names.AGENT_NAME: self._agent} if self._agent else attributes
        began = time.perf_counter()
        try:
            with self._open_span(
                f"execute_tool {call.tool_name}", own, SpanKind.INTERNAL, shows_words=self._tracing.content != "none"
            ) as span:
                is_recorded = span.is_recording()
                has_content = self._tracing.content != "none" and is_recorded
                if is_recorded:
                    span.set_attribute(names.TOOL_CALL_ID, names.describe_text(call.call_id))
                if has_content:
                    span.set_attribute(names.TOOL_DESCRIPTION, names.describe_text(call.definition.description))
                    span.set_attribute(names.TOOL_ARGUMENTS, names.describe_arguments(call.arguments_json))
                output = await proceed()
                if output.is_error:
                    attributes[names.ERROR_TYPE] = "tool_error"
                    span.set_attribute(names.ERROR_TYPE, "tool_error")
                    words = names.describe_text(output.text)[:_MOST_CHARACTERS] if has_content else None
                    span.set_status(Status(StatusCode.ERROR, words))
                if has_content:
                    span.set_attribute(names.TOOL_RESULT, names.describe_text(output.text))
                return output
        except BaseException as error:
            attributes[names.ERROR_TYPE] = _classify_error(error)
            raise
        finally:
            self._tracing.instruments.record_call(time.perf_counter() - began, attributes)

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
            _record_error(span, error, shows_words=shows_words)
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
                        names.REQUEST_ATTEMPT: event.attempt,
                        names.ERROR_TYPE: _classify_error(event.error),
                        "toolkit.delay": event.delay,
                    },
                )
            case LoopDetected():
                span.add_event(
                    "toolkit.loop_detected",
                    {names.TOOL_NAME: event.tool_name, "toolkit.count": event.count, "toolkit.action": event.action},
                )
            case Compacted():
                span.add_event("toolkit.compacted", {"toolkit.before": event.before, "toolkit.after": event.after})
            case _:
                pass

    def _add_refused(self, event: ToolCallRefused) -> None:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: "execute_tool",
            names.TOOL_TYPE: "function",
            names.ERROR_TYPE: "refused",
            **_identify_call(event),
        }
        if self._tracing.content != "none":
            attributes[names.TOOL_RESULT] = names.describe_text(event.result.text)
        now = time.time_ns()
        name = names.describe_text(event.tool_name)
        span = self._tracing.tracer.start_span(
            f"execute_tool {name}", self._context, attributes=attributes, start_time=now
        )
        words = attributes.get(names.TOOL_RESULT)
        span.set_status(Status(StatusCode.ERROR, None if words is None else str(words)[:_MOST_CHARACTERS]))
        span.end(now)


def _identify_call(event: ToolCallRefused | ApprovalRequested | ToolCallRepaired) -> dict[str, str]:
    # The model wrote both; the name of a refused call may be any text.
    return {
        names.TOOL_NAME: names.describe_text(event.tool_name),
        names.TOOL_CALL_ID: names.describe_text(event.call_id),
    }


def _classify_error(error: BaseException) -> str:
    """Return the class of an error, or the status of a provider's answer."""
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    kind = type(error)
    return kind.__qualname__ if kind.__module__.startswith(("toolkit", "builtins")) else _qualify_name(kind)


def _qualify_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _record_error(span: Span, error: BaseException, *, shows_words: bool = True) -> None:
    """Record an error on a span, without secrets, and without the traceback, whose lines may hold some."""
    name = _classify_error(error)
    span.set_attribute(names.ERROR_TYPE, name)
    event = {"exception.type": _qualify_name(type(error))}
    if shows_words:
        text = names.describe_text(error.message if isinstance(error, ToolError) else str(error))
        event["exception.message"] = text
        name = f"{name}: {text}"[:_MOST_CHARACTERS] if text else name
    span.add_event("exception", event)
    span.set_status(Status(StatusCode.ERROR, name))
