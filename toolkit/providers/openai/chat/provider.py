"""The provider for chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from openai import AsyncOpenAI

from toolkit.chat import ChatRequest, ChatResponse, Usage
from toolkit.providers.adapter import Decoder
from toolkit.providers.connection import Exchange, WholeAnswer
from toolkit.providers.openai.chat.decode import ChatStreamDecoder, decode_chat_usage, decode_completion
from toolkit.providers.openai.chat.encode import ChatEncoder
from toolkit.providers.openai.client import KeySource, OpenAIClient
from toolkit.settings import Duration, check_setting

__all__ = ["MaxTokensField", "OpenAIProvider"]

MaxTokensField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]


class OpenAIProvider(OpenAIClient):
    """Talks to a model through chat completions: OpenAI's, or any server that speaks them.

    ::

        async with OpenAIProvider("gpt-5-mini") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``OpenAIProvider("gpt-5-mini")`` needs ``OPENAI_API_KEY``; ``OpenAIProvider("qwen3", base_url=
    "http://127.0.0.1:11434/v1")`` speaks to Ollama, and so to llama.cpp, vLLM, OpenRouter and others. It may be shared
    by tasks, and used in one event loop after another; connections are made at the first request and closed by
    `aclose` or by leaving ``async with``. It never retries by itself: the loop does.

    Each message is encoded once, however often it is sent.

    Args:
        model: The model's name as the server knows it.
        api_key: None takes ``OPENAI_API_KEY``. A server on this machine needs none, and the variable is not sent
            there. A function is asked before each request.
        base_url: Where the server is, mostly ending in ``/v1``. None takes ``OPENAI_BASE_URL``, else OpenAI's own.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the SDK,
            which waits ten minutes for each piece.
        headers: Sent with each request.
        options: Fields for each request, such as `ChatOptions`; `ChatRequest.options` go over them.
        max_tokens_field: The name of that field; None means ``max_completion_tokens`` at OpenAI and Azure,
            ``max_tokens`` elsewhere.
        reasoning_field: The field in which the model's reasoning is sent back; None means ``reasoning_content``, and
            nothing at OpenAI and Azure, which refuse it. An empty text leaves it out.
        name: The name in errors.
        client: A client of your own, for Azure or a proxy; it is not closed, and `api_key`, `base_url` and
            `headers` are its own matter.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    _path = "/chat/completions"
    _protocol = "a chat completion"

    def __init__(
        self,
        model: str,
        *,
        api_key: KeySource | None = None,
        base_url: str | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_tokens_field: MaxTokensField | None = None,
        reasoning_field: str | None = None,
        name: str = "openai",
        client: AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(
            model, api_key=api_key, base_url=base_url, timeout=timeout, headers=headers, name=name, client=client
        )
        check_setting("max_tokens_field", max_tokens_field, *get_args(MaxTokensField), None)
        if reasoning_field is None and not self._is_own:
            reasoning_field = "reasoning_content"
        self._encoder = ChatEncoder(
            model=model,
            defaults=options or {},
            max_tokens_field=max_tokens_field or ("max_completion_tokens" if self._is_own else "max_tokens"),
            reasoning_field=reasoning_field or None,
            is_openai=self._is_own,
        )

    @property
    def tells_cost(self) -> bool:
        """True where answers may say what they cost: routers' do, OpenAI's and Azure's don't."""
        return not self._is_own

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        return self._exchange, self._encoder.encode(request, streams=streams)

    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        reading = self._encoder.reading_of(request)
        return decode_completion(answer.json, self._make_failures, reading, request_id=answer.request_id)

    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        return decode_chat_usage(answer.get("usage"))

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        return ChatStreamDecoder(self._make_failures, self._encoder.reading_of(request), request_id=request_id)
