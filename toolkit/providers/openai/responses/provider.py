"""The provider for responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from openai import AsyncOpenAI

from toolkit.chat import ChatRequest, ChatResponse, Usage
from toolkit.providers.adapter import Decoder
from toolkit.providers.connection import Exchange, WholeAnswer
from toolkit.providers.openai.client import KeySource, OpenAIClient
from toolkit.providers.openai.responses.decode import ResponsesStreamDecoder, decode_response, decode_responses_usage
from toolkit.providers.openai.responses.encode import RESPONSES_DIALECT, ResponsesEncoder
from toolkit.settings import Duration

__all__ = ["OpenAIResponsesProvider"]

_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt|gpt-5(\.\d)?-chat)")


class OpenAIResponsesProvider(OpenAIClient):
    """Talks to a model through OpenAI's responses, which keep what a model thought between its calls.

    ::

        async with OpenAIResponsesProvider("gpt-5-mini") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``OpenAIResponsesProvider("gpt-5-mini")`` needs ``OPENAI_API_KEY``. The whole transcript goes with each request and
    nothing is stored at the server, unless `options` say otherwise; reasoning comes sealed and goes back as it came.
    Sharing, closing and retries are as for `OpenAIProvider`.

    Args:
        model: The model's name as the server knows it.
        api_key: As for `OpenAIProvider`.
        base_url: Where the server is, mostly ending in ``/v1``. None takes ``OPENAI_BASE_URL``, else OpenAI's own.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the SDK,
            which waits ten minutes for each piece.
        headers: Sent with each request.
        options: Fields for each request, such as `ResponsesOptions`; `ChatRequest.options` go over them.
        seals_reasoning: True to ask for sealed reasoning; None means yes, but for the models of OpenAI that don't
            reason, which refuse to be asked.
        name: The name in errors.
        client: A client of your own, for Azure or a proxy; it is not closed, and `api_key`, `base_url` and
            `headers` are its own matter.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    _path = "/responses"
    _protocol = "a response"

    def __init__(
        self,
        model: str,
        *,
        api_key: KeySource | None = None,
        base_url: str | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        seals_reasoning: bool | None = None,
        name: str = "openai-responses",
        client: AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(
            model, api_key=api_key, base_url=base_url, timeout=timeout, headers=headers, name=name, client=client
        )
        defaults: dict[str, Any] = {"store": False}
        if seals_reasoning or (seals_reasoning is None and not _WITHOUT_REASONING.match(model)):
            defaults["include"] = ["reasoning.encrypted_content"]
        self._encoder = ResponsesEncoder(model=model, defaults=defaults, options=options or {}, is_openai=self._is_own)

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        return self._exchange, self._encoder.encode(request, streams=streams)

    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        names = RESPONSES_DIALECT.names_back(request.tools)
        return decode_response(answer.json, self._make_failures, names, request_id=answer.request_id)

    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        return decode_responses_usage(answer)

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        return ResponsesStreamDecoder(
            self._make_failures, RESPONSES_DIALECT.names_back(request.tools), request_id=request_id
        )

    def _find_azure_path(self, path: str) -> str:
        return path
