"""The provider for Anthropic's messages, its options, and the SDK's client for each event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Literal, TypedDict, cast, get_args

import httpx2
from anthropic import AnthropicError, AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient, RequestOptions, omit
from anthropic.types import (
    CacheControlEphemeralParam,
    MetadataParam,
    OutputConfigParam,
    ThinkingConfigParam,
    ToolUnionParam,
)

from toolkit.chat import ChatRequest, ChatResponse, ResponseDone, StreamEvent, Usage
from toolkit.chat.provider import closing
from toolkit.http_replies import ACCEPTED_ENCODINGS, BoundedClient
from toolkit.providers.adapter import (
    MOST_CONNECTIONS,
    Adapter,
    Decoder,
    Exchange,
    WholeAnswer,
    checked_key,
    is_of,
    key_for,
    withheld_headers,
)
from toolkit.providers.anthropic.decode import (
    AnthropicStreamDecoder,
    continue_request,
    decode_anthropic_usage,
    decode_message,
    join_replies,
)
from toolkit.providers.anthropic.encode import ANTHROPIC_DIALECT, CacheTime, MessagesEncoder
from toolkit.providers.failures import Failures
from toolkit.redaction import without_credentials
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration, check_setting

_ANTHROPIC_URL = "https://api.anthropic.com"
_VERSION_WITH_TEMPERATURE = "2023-06-01"
_MOST_PAUSES = 10
_ANTHROPIC_HOSTS = ("anthropic.com",)
_ANTHROPIC_HEADERS = {"content-type": "application/json", "accept-encoding": ACCEPTED_ENCODINGS}


class AnthropicOptions(TypedDict, total=False):
    """Fields of a request for messages, for `AnthropicProvider` and the `options` of a request to it.

    ``thinking`` asks for reasoning, as in ``{"thinking": {"type": "adaptive", "display": "summarized"}}``.
    ``output_config`` overrides the request's own fields. ``tools`` are those that run at Anthropic's, such as
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


class _AnthropicHttpClient(BoundedClient, DefaultAsyncHttpxClient):
    """The SDK's, with bounds."""


def _make_client(limits: httpx2.Limits, **options: Any) -> AsyncAnthropic:
    return AsyncAnthropic(http_client=_AnthropicHttpClient(limits=limits), **options)


class AnthropicProvider(Adapter):
    """Talks to a model through Anthropic's messages: Anthropic's own, or any server that speaks them.

    ::

        async with AnthropicProvider("claude-sonnet-5-5", cache="5m") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``AnthropicProvider("claude-sonnet-5-5")`` needs ``ANTHROPIC_API_KEY``. It works on asyncio and on trio, may be
    shared by tasks, and used in one event loop after another; connections are made at the first request and closed by
    `aclose` or by leaving ``async with``. It never retries by itself: the loop does.

    Each message is encoded once, however often it is sent. Reasoning comes with its signature and goes back as it
    came; so does what tools that run at Anthropic's said. Where the server pauses a long turn of those, it is asked to
    go on, with the same timeout again, and the answer is one; after ten pauses it is what has come, and
    `ChatResponse.metadata` has ``{"stop_reason": "pause_turn"}``.

    Args:
        model: The model's name as the server knows it.
        api_key: None takes ``ANTHROPIC_API_KEY``. A server on this machine needs none, and the variable is not sent
            there.
        base_url: Where the server is, without ``/v1``. None takes ``ANTHROPIC_BASE_URL``, else Anthropic's own.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the SDK,
            which waits ten minutes for each piece.
        headers: Sent with each request, such as ``anthropic-beta``.
        options: Fields for each request, such as `AnthropicOptions`; `ChatRequest.options` go over them.
        max_tokens: The limit for requests that set none: Anthropic wants one. What today's models all can give.
        cache: Lets the server cache the request for five minutes or an hour, so that the next request of the same
            conversation costs a tenth for it: marks the end of the tools, of the system text, and of the messages.
            None marks nothing, which is right where no second request follows.
        takes_system_messages: True where the model takes a system message after the user's, as those from Claude Opus
            4.8 on do: the instructions of a turn are one. Else they are text of the user's, marked as the system's.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors.
        client: A client of your own, for a proxy or other credentials; it is not closed, and `api_key`, `base_url` and
            `headers` are its own matter.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_tokens: int = 16_384,
        cache: CacheTime | None = None,
        takes_system_messages: bool = False,
        max_connections: int = MOST_CONNECTIONS,
        name: str = "anthropic",
        client: AsyncAnthropic | None = None,
    ) -> None:
        self._given_client = client
        if client is not None:
            base_url = str(client.base_url)
            api_key = client.api_key or client.auth_token or "none"
            headers = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
        super().__init__(
            model,
            name=name,
            base_url=base_url or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC_URL,
            timeout=timeout,
            headers=headers,
            max_connections=max_connections,
        )
        check_setting("max_tokens", max_tokens, int, least=1)
        check_setting("cache", cache, *get_args(CacheTime), None)
        key = api_key or key_for(
            self._base_url,
            name=name,
            variables=["ANTHROPIC_API_KEY"],
            hosts=_ANTHROPIC_HOSTS,
            advice="; for other credentials pass a client of your own",
        )
        self._api_key = checked_key(key, name)
        self._request_headers = dict[str, Any](_ANTHROPIC_HEADERS)
        variable, given = "ANTHROPIC_CUSTOM_HEADERS", self._headers
        if client is None:
            withheld = withheld_headers(self._base_url, variable, _ANTHROPIC_HOSTS, given=given)
            self._request_headers |= dict.fromkeys(withheld, omit)
        self._clients = LoopLocal(
            partial(_make_client, self._limits, api_key=self._api_key, base_url=self._base_url, default_headers=given),
            AsyncAnthropic.close,
        )
        self._encoder = MessagesEncoder(
            model=model,
            defaults=options or {},
            max_tokens=max_tokens,
            cache=cache,
            takes_temperature=_takes_temperature(self._base_url, headers),
            takes_system_messages=takes_system_messages,
        )

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for something that the format can't express.
        """
        response = await super().generate(request)
        for _ in range(_MOST_PAUSES):
            rest = continue_request(request, response)
            if rest is None:
                break
            response = join_replies(response, await super().generate(rest))
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; leaving early closes the connection.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for something that the format can't express.
        """
        asked = request
        answer: ChatResponse | None = None
        for _ in range(_MOST_PAUSES + 1):
            async with closing(super().stream(asked)) as events:
                async for event in events:
                    if isinstance(event, ResponseDone):
                        answer = event.response if answer is None else join_replies(answer, event.response)
                    else:
                        yield event
            rest = None if answer is None else continue_request(request, answer)
            if rest is None:
                break
            asked = rest
        if answer is not None:
            yield ResponseDone(answer)

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        exchange = Exchange(send=self._post_body, failures=self._make_failures, raised=AnthropicError)
        return exchange, self._encoder.encode(request, streams=streams)

    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        names = ANTHROPIC_DIALECT.names_back(request.tools)
        return decode_message(answer.json, self._make_failures, names, request_id=answer.request_id)

    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        return decode_anthropic_usage(answer.get("usage"))

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        return AnthropicStreamDecoder(
            self._make_failures, ANTHROPIC_DIALECT.names_back(request.tools), request_id=request_id
        )

    async def _post_body(self, body: bytes, *, streams: bool, timeout: float | None) -> httpx2.Response:  # noqa: ARG002 - the body says it
        client = self._given_client or self._clients.get()
        # The loop retries, and a redirect would take key and prompt elsewhere.
        options: RequestOptions = {"headers": self._request_headers, "max_retries": 0, "follow_redirects": False}
        if timeout is not None:
            options["timeout"] = timeout
        response = await client.post(
            "/v1/messages",
            cast_to=httpx2.Response,
            content=body,
            options=options,
            stream=True,
            stream_cls=AsyncStream[object],
        )
        return cast("httpx2.Response", response)  # as asked for by cast_to; the SDK's own stream is never made

    def _make_failures(self) -> Failures:
        return Failures(
            provider=self.name,
            url=without_credentials(self._base_url),
            model=self.model,
            key_advice="check the key: api_key or the environment variable ANTHROPIC_API_KEY",
            protocol="a message of Anthropic's format",
            url_advice="check base_url, which must not end in /v1",
            secrets=(self._api_key, *self._secrets),
        )


def _takes_temperature(base_url: str, headers: Mapping[str, str] | None) -> bool:
    versions = {value for name, value in (headers or {}).items() if name.lower() == "anthropic-version"}
    return not is_of(base_url, "anthropic.com") or versions == {_VERSION_WITH_TEMPERATURE}
