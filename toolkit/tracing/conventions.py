"""The names of OpenTelemetry's conventions for generative AI, in the one place that has to follow them.

They are those of ``open-telemetry/semantic-conventions-genai`` at commit 024a4f9: ``docs/gen-ai/client-inference.md``,
``gen-ai-agent-spans.md``, ``gen-ai-spans.md`` and ``gen-ai-token-metrics.md``. The constants of the Python package
``opentelemetry-semantic-conventions`` are older. What the conventions have no name for begins with ``toolkit.``.
"""

from __future__ import annotations

__all__ = [
    "AGENT_NAME",
    "BUCKETS_OF_CALLS",
    "BUCKETS_OF_RUNS",
    "BUCKETS_OF_SECONDS",
    "BUCKETS_OF_TOKENS",
    "CACHE_READ_TOKENS",
    "CACHE_WRITE_TOKENS",
    "CONVERSATION_ID",
    "COST",
    "ENDING",
    "ERROR_TYPE",
    "FINISH_REASONS",
    "INPUT_MESSAGES",
    "INPUT_TOKENS",
    "IS_STREAMED",
    "LOOP_ID",
    "MAX_TOKENS",
    "OPERATION",
    "OUTPUT_MESSAGES",
    "OUTPUT_TOKENS",
    "OUTPUT_TYPE",
    "PROVIDER",
    "PROVIDERS",
    "REASONING_LEVEL",
    "REASONING_TOKENS",
    "REQUEST_ATTEMPT",
    "REQUEST_MODEL",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "RUN_ID",
    "SEED",
    "STOP_SEQUENCES",
    "STOP_REASONS",
    "SYSTEM_INSTRUCTIONS",
    "TEMPERATURE",
    "TIME_TO_FIRST_CHUNK",
    "TOOL_ARGUMENTS",
    "TOOL_CALL_ID",
    "TOOL_DEFINITIONS",
    "TOOL_DESCRIPTION",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "TURN",
]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"

REQUEST_MODEL = "gen_ai.request.model"
IS_STREAMED = "gen_ai.request.stream"
TEMPERATURE = "gen_ai.request.temperature"
MAX_TOKENS = "gen_ai.request.max_tokens"
SEED = "gen_ai.request.seed"
STOP_SEQUENCES = "gen_ai.request.stop_sequences"
REASONING_LEVEL = "gen_ai.request.reasoning.level"
OUTPUT_TYPE = "gen_ai.output.type"

RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

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
TURN = "toolkit.turn"
REQUEST_ATTEMPT = "toolkit.request.attempt"
ENDING = "toolkit.ending"
COST = "gen_ai.usage.cost"
"""Not in the conventions; the name that Langfuse and others read."""

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
"""The well-known names of providers by ours; others are taken as they are."""

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}

BUCKETS_OF_SECONDS = [0.01 * 2**power for power in range(14)]
BUCKETS_OF_RUNS = [0.1 * 2**power for power in range(13)]
BUCKETS_OF_CALLS = [float(2**power) for power in range(8)]
BUCKETS_OF_TOKENS = [float(4**power) for power in range(14)]
