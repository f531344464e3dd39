"""Fields of a request to OpenAI beyond our own words; a plain mapping may say more."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["ChatOptions", "ResponsesOptions"]


class _Options(TypedDict, total=False):
    top_p: float
    top_logprobs: int
    metadata: dict[str, str]
    prompt_cache_key: str
    prompt_cache_options: dict[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"]
    safety_identifier: str
    service_tier: str
    store: bool
    moderation: dict[str, Any]


class ChatOptions(_Options, total=False):
    """Fields of a chat completion, for `OpenAIProvider` and the `options` of a request to it.

    ``prompt_cache_key`` groups requests that share a beginning; ``audio`` with ``modalities`` asks for sound, as in
    ``{"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}``.
    """

    audio: dict[str, Any]
    frequency_penalty: float
    logit_bias: dict[str, int]
    logprobs: bool
    modalities: list[Literal["text", "audio"]]
    prediction: dict[str, Any]
    presence_penalty: float
    verbosity: Literal["low", "medium", "high"]
    web_search_options: dict[str, Any]


class ResponsesOptions(_Options, total=False):
    """Fields of a response, for `OpenAIResponsesProvider` and the `options` of a request to it.

    ``reasoning`` and ``text`` are laid over what the request says itself: ``{"reasoning": {"summary": "auto"}}`` keeps
    the effort of the request; ``include`` is added to what the provider asks for itself. ``tools`` are those that run
    at OpenAI, such as ``{"type": "web_search"}``, offered beside the request's own; what they did goes back with the
    transcript. With ``previous_response_id`` the server has the history: send only what is new.
    """

    context_management: list[dict[str, Any]]
    conversation: str | dict[str, Any]
    include: list[str]
    instructions: str
    max_tool_calls: int
    previous_response_id: str
    prompt: dict[str, Any]
    reasoning: dict[str, Any]
    text: dict[str, Any]
    tools: list[dict[str, Any]]
    truncation: Literal["auto", "disabled"]
