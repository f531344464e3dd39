"""OpenTelemetry's conventions for generative AI: names, attributes and instruments, in the one place that follows them.

They are those of ``open-telemetry/semantic-conventions-genai`` at commit 024a4f9: ``docs/gen-ai/client-inference.md``,
``gen-ai-agent-spans.md``, ``gen-ai-spans.md`` and ``gen-ai-token-metrics.md``. The constants of the Python package
``opentelemetry-semantic-conventions`` are older. Names that the conventions lack begin with ``toolkit.``. Messages and
tools are described without secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
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
from toolkit.loop.middleware import RequestInfo
from toolkit.redaction import Scrubber
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.util.types import Attributes, AttributeValue

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
            **_describe_usage(usage),
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    )


def describe_metadata(metadata: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the entries of a run's metadata that are plain values, without secrets."""
    cleaned: Mapping[str, Any] = _SCRUBBER(dict(metadata))
    return {f"{METADATA}{name}": each for name, each in cleaned.items() if isinstance(each, (str, int, float, bool))}


def describe_run(usage: Usage) -> dict[str, AttributeValue]:
    """Return the usage of a run, with that of the runs inside its tools."""
    return _without_none(_describe_usage(usage))


def _describe_usage(usage: Usage) -> dict[str, AttributeValue | None]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cost": usage.cost,  # not in the conventions; Langfuse and others read it under this name
    }


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


def describe_arguments(text: str) -> str:
    """Return the JSON of a call's arguments without secrets."""
    # Under that name, whose fields are searched by their own names, too.
    cleaned = _SCRUBBER({"arguments": _read_json(text)})
    return _write_json(cleaned["arguments"])


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
