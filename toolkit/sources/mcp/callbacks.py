"""What a server may ask of its client: a model's words, or the user's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import mcp.types as wire
from mcp.client import ClientRequestContext
from mcp.client.session import ElicitationFnT, SamplingFnT

from toolkit.chat import AssistantMessage, ChatRequest, Message, Provider, SystemMessage, UserMessage
from toolkit.errors import ProviderError
from toolkit.sources.mcp.blocks import blocks_of

__all__ = ["Elicitation", "ElicitationCallback", "elicitation_callback", "sampling_callback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A server's question to the user.

    Args:
        message: What it asks.
        schema: A flat JSON Schema of the answer; None where the user is to open `url`.
        url: A page to open, with the user's consent, in a browser; None where an answer is asked for.
    """

    message: str
    schema: Mapping[str, Any] | None = None
    url: str | None = None


ElicitationAnswer: TypeAlias = Mapping[str, Any] | bool | None
ElicitationCallback: TypeAlias = Callable[[Elicitation], ElicitationAnswer | Awaitable[ElicitationAnswer]]
"""Answers a question: a mapping is the answer, True consents, False declines, None puts it off.

What a mapping or True leaves open takes the defaults of the schema.
"""


def elicitation_callback(answer: ElicitationCallback) -> ElicitationFnT:
    """Return what the SDK calls, for a callback of the caller's; what that raises is told as a cancellation."""

    async def elicit(
        context: ClientRequestContext,  # noqa: ARG001 - the name is the SDK's
        params: wire.ElicitRequestParams,
    ) -> wire.ElicitResult | wire.ErrorData:
        if isinstance(params, wire.ElicitRequestURLParams):
            question = Elicitation(message=params.message, url=params.url)
        else:
            question = Elicitation(message=params.message, schema=params.requested_schema)
        given = answer(question)
        value = await given if inspect.isawaitable(given) else given
        if value is None:
            return wire.ElicitResult(action="cancel")
        if value is False:
            return wire.ElicitResult(action="decline")
        content = {**_defaults(question.schema), **(value if isinstance(value, Mapping) else {})}
        return wire.ElicitResult(action="accept", content=content or None)

    return elicit


def _defaults(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    properties: Mapping[str, Any] = (schema or {}).get("properties", {})
    return {
        name: part["default"] for name, part in properties.items() if isinstance(part, Mapping) and "default" in part
    }


def sampling_callback(provider: Provider) -> SamplingFnT:
    """Return what the SDK calls: the provider's model answers; its tools and the server's context are not handed on."""

    async def sample(
        context: ClientRequestContext,  # noqa: ARG001 - the name is the SDK's
        params: wire.CreateMessageRequestParams,
    ) -> wire.CreateMessageResult | wire.ErrorData:
        messages: list[Message] = [SystemMessage(params.system_prompt)] if params.system_prompt else []
        try:
            messages += [_message(message) for message in params.messages]
            response = await provider.generate(
                ChatRequest(
                    messages=messages,
                    max_tokens=params.max_tokens,
                    temperature=params.temperature,
                    stop=tuple(params.stop_sequences or ()),
                )
            )
        except (ProviderError, ValueError) as error:
            return wire.ErrorData(code=wire.INTERNAL_ERROR, message=f"The model gave no answer: {type(error).__name__}")
        reason = {"max_tokens": "maxTokens", "stop_sequence": "stopSequence"}.get(response.stop_reason, "endTurn")
        return wire.CreateMessageResult(
            role="assistant",
            content=wire.TextContent(type="text", text=response.text),
            model=response.model or "unknown",
            stop_reason=reason,
        )

    return sample


def _message(message: wire.SamplingMessage) -> Message:
    blocks: list[Any] = []
    for item in message.content if isinstance(message.content, list) else [message.content]:
        if isinstance(item, (wire.ToolUseContent, wire.ToolResultContent)):
            raise ValueError("calls and results in a request for sampling are not taken")  # noqa: TRY004 - a value of it
        blocks += blocks_of(item)
    return UserMessage(tuple(blocks)) if message.role == "user" else AssistantMessage(blocks)
