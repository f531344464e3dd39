"""Shared by both of OpenAI's formats: options, the key, one client of the SDK for each event loop, the exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypedDict
from urllib.parse import quote

import httpx2
from openai import (
    AsyncAzureOpenAI,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
    omit,
)

from toolkit.errors import ProviderAuthError
from toolkit.http_client import BoundedClient
from toolkit.providers.adapter import (
    JSON_HEADERS,
    MOST_CONNECTIONS,
    Adapter,
    Exchange,
    checked_key,
    is_loopback,
    key_for,
    post_by_sdk,
    withheld_headers,
)
from toolkit.providers.servers import SERVERS, CompatibleServer, find_dialect
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration

KeySource = str | Callable[[], Awaitable[str]]
"""A key, or a function that returns one before each request."""
_ACCOUNT = ("OpenAI-Organization", "OpenAI-Project")


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

    ``reasoning`` and ``text`` override the request's own fields: ``{"reasoning": {"summary": "auto"}}`` keeps
    the effort of the request; ``include`` is added to the provider's own. ``tools`` are those that run
    at OpenAI, such as ``{"type": "web_search"}``, offered beside the request's own; what they did goes back with the
    transcript. With ``previous_response_id`` the server has what came before the transcript. With ``conversation`` it
    stores the transcript, of which only what is new is sent. ``background`` makes
    the response in the background: see `OpenAIResponsesProvider`.
    """

    background: bool
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


class _OpenAIHttpClient(BoundedClient, DefaultAsyncHttpxClient):
    """The SDK's, with bounds."""


async def _ask_key(source: Callable[[], Awaitable[str]], provider: str) -> str:
    given = await source()
    if not given:
        raise ProviderAuthError(provider, "the function that was passed as api_key gave no key")
    return checked_key(given, provider)


class OpenAISettings(TypedDict, total=False):
    """Settings of both providers that speak OpenAI's formats.

    Attributes:
        api_key: None takes ``OPENAI_API_KEY``. A server on this machine needs none, and the variable is not sent
            there. A function is asked before each request.
        base_url: Where the server is, mostly ending in ``/v1``. None takes ``OPENAI_BASE_URL``, else OpenAI's own.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None leaves it to the SDK,
            which waits ten minutes for each piece.
        headers: Sent with each request.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors; None means that of the server.
        server: A server that speaks the format: where it is, the variable of its key, its dialect. None means OpenAI,
            or `base_url` with the dialect that is known of its host.
        client: A client of your own, for a proxy; it is not closed, and `api_key`, `base_url` and `headers`
            are ignored.
    """

    api_key: KeySource | None
    base_url: str | None
    timeout: Duration | None
    headers: Mapping[str, str] | None
    max_connections: int
    name: str | None
    server: CompatibleServer | None
    client: AsyncOpenAI | None


class OpenAIClient(Adapter):
    """The ground of both providers; `OpenAISettings` says what its arguments mean."""

    _path: str
    _name: str
    _url_advice = "check base_url, which mostly ends in /v1"

    def __init__(
        self,
        model: str,
        *,
        api_key: KeySource | None = None,
        base_url: str | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        max_connections: int = MOST_CONNECTIONS,
        name: str | None = None,
        server: CompatibleServer | None = None,
        client: AsyncOpenAI | None = None,
    ) -> None:
        self._server = server or SERVERS["openai"]
        if client is not None:
            base_url = str(client.base_url)
            api_key = client.api_key or "none"
            headers = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
        super().__init__(
            model,
            name=name or (server.name if server else self._name),
            base_url=base_url or self._server.find_url(),
            timeout=timeout,
            headers=headers,
            max_connections=max_connections,
        )
        key = api_key or key_for(
            self._base_url,
            name=self.name,
            variables=self._server.key_variables,
            hosts=self._server.hosts,
            advice=" (any text, for a server that asks for none)",
            is_local=is_loopback(self._server.base_url),
        )
        self._api_key = None if callable(key) else checked_key(key, self.name)
        variables = self._server.key_variables
        self._key_advice = "check the key: api_key" + (
            f" or the environment variable {variables[-1]}" if variables else ""
        )
        self._dialect = server.dialect if server else find_dialect(self._base_url)
        self._given_client = client
        self._request_headers = dict[str, Any](JSON_HEADERS)
        if client is None:
            variable, given = "OPENAI_CUSTOM_HEADERS", self._headers
            withheld = withheld_headers(self._base_url, variable, SERVERS["openai"].hosts, *_ACCOUNT, given=given)
            self._request_headers |= dict.fromkeys(withheld, omit)
        own: dict[str, Any] = {
            "api_key": partial(_ask_key, key, self.name) if callable(key) else self._api_key,
            "base_url": self._base_url,
            "default_headers": self._headers,
        }
        limits = self._limits
        self._clients = LoopLocal(
            lambda: AsyncOpenAI(http_client=_OpenAIHttpClient(limits=limits), **own), AsyncOpenAI.close
        )

    def _make_exchange(self, below: str = "", method: Literal["get", "post"] = "post") -> Exchange:
        """Return the exchange with the address of the format, or with one below it."""
        send = partial(self._post_body, method=method, below=below)
        return Exchange(send=send, failures=self._make_failures, raised=OpenAIError)

    def _get_client(self) -> AsyncOpenAI:
        return self._given_client or self._clients.get()

    async def _post_body(
        self,
        body: bytes,
        *,
        streams: bool,  # noqa: ARG002 - the body says it
        timeout: float | None,
        method: Literal["get", "post"],
        below: str,
    ) -> httpx2.Response:
        client = self._get_client()
        path = self._path + below
        if isinstance(client, AsyncAzureOpenAI) and "/deployments" not in client.base_url.path:
            path = self._find_azure_path(path)
        stream_type = AsyncStream[object]
        return await post_by_sdk(
            client, path, body, self._request_headers, timeout=timeout, stream_type=stream_type, method=method
        )

    def _find_azure_path(self, path: str) -> str:
        # Where the SDK makes the body itself, it reads the deployment out of it.
        return f"/deployments/{quote(self.model, safe='')}{path}"

    def _find_key(self) -> str:
        return self._get_client().api_key if self._api_key is None else self._api_key
