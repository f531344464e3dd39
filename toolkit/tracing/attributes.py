"""The attributes of spans: what was asked, what was answered, and what a run cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.chat import ChatResponse
from toolkit.loop.middleware import RequestInfo
from toolkit.tracing import conventions as names

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from toolkit.loop.outcome import ToolLoopResult

__all__ = ["describe_chat", "describe_reply", "describe_run"]


def describe_chat(request: RequestInfo[object]) -> dict[str, AttributeValue]:
    """Return what was asked of a model."""
    chat = request.chat
    given: dict[str, AttributeValue | None] = {
        names.TURN: request.iteration,
        names.IS_STREAMED: True if request.is_streamed else None,
        names.REQUEST_ATTEMPT: request.attempt if request.attempt > 1 else None,
        names.TEMPERATURE: chat.temperature,
        names.MAX_TOKENS: chat.max_tokens,
        names.SEED: chat.seed,
        names.STOP_SEQUENCES: chat.stop or None,
        names.REASONING_LEVEL: chat.reasoning_effort,
        names.OUTPUT_TYPE: None if chat.response_format is None else "json",
    }
    return {name: value for name, value in given.items() if value is not None}


def describe_reply(response: ChatResponse) -> dict[str, AttributeValue]:
    """Return what a model answered, and what that cost."""
    usage = response.usage
    given: dict[str, AttributeValue | None] = {
        names.RESPONSE_MODEL: response.model or None,
        names.RESPONSE_ID: response.request_id,
        names.FINISH_REASONS: (names.STOP_REASONS.get(response.stop_reason, response.stop_reason),),
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cache_read_tokens,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
        names.COST: usage.cost,
    }
    return {name: value for name, value in given.items() if value is not None}


def describe_run(result: ToolLoopResult[Any]) -> dict[str, AttributeValue]:
    """Return what a run cost, with the runs inside its tools."""
    usage = result.usage
    given: dict[str, AttributeValue | None] = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.COST: usage.cost,
    }
    return {name: value for name, value in given.items() if value is not None}
