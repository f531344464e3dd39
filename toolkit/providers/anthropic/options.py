"""Fields of a request to Anthropic beyond our own words; a plain mapping may say more."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from anthropic.types import (
    CacheControlEphemeralParam,
    MetadataParam,
    OutputConfigParam,
    ThinkingConfigParam,
    ToolUnionParam,
)

__all__ = ["AnthropicOptions"]


class AnthropicOptions(TypedDict, total=False):
    """Fields of a request for messages, for `AnthropicProvider` and the `options` of a request to it.

    ``thinking`` asks for reasoning, as in ``{"thinking": {"type": "adaptive", "display": "summarized"}}``.
    ``output_config`` is laid over what the request says itself. ``tools`` are those that run at Anthropic's, such as
    ``{"type": "web_search_20260209", "name": "web_search"}``; they stand before the request's own.
    """

    cache_control: CacheControlEphemeralParam
    container: str | dict[str, Any]
    inference_geo: str
    metadata: MetadataParam
    output_config: OutputConfigParam
    service_tier: Literal["auto", "standard_only"]
    speed: Literal["standard", "fast"]
    thinking: ThinkingConfigParam
    tools: list[ToolUnionParam]
