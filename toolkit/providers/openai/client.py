"""What both of OpenAI's formats share: the key, one client of the SDK for each event loop, the exchange through it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import cast
from urllib.parse import quote

import httpx2
from openai import AsyncAzureOpenAI, AsyncOpenAI, AsyncStream, OpenAIError, RequestOptions

from toolkit.errors import ProviderAuthError
from toolkit.providers.adapter import Adapter
from toolkit.providers.connection import ClientOfLoop, Exchange, checked_key, is_loopback, is_of
from toolkit.providers.failures import Failures
from toolkit.secrets import without_credentials
from toolkit.tools.settings import Duration

__all__ = ["ApiKey", "OpenAIClient"]

ApiKey = str | Callable[[], Awaitable[str]]
"""A key, or what is asked for one before each request."""

_DEFAULT_URL = "https://api.openai.com/v1"
_OWN_HOSTS = ("openai.com", "azure.com")
_JSON = {"content-type": "application/json"}


class OpenAIClient(Adapter):
    """The ground of both providers."""

    _path: str
    _protocol: str

    def __init__(
        self,
        model: str,
        *,
        api_key: ApiKey | None,
        base_url: str | None,
        timeout: Duration | None,
        headers: Mapping[str, str] | None,
        name: str,
        client: AsyncOpenAI | None,
    ) -> None:
        if client is not None:
            base_url = str(client.base_url)
            api_key = client.api_key or "none"
        super().__init__(
            model,
            name=name,
            base_url=base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL,
            timeout=timeout,
            headers=headers,
            clients=ClientOfLoop(self._make_client, close=AsyncOpenAI.close, is_closed=AsyncOpenAI.is_closed),
        )
        key = api_key or _key_for(self._base_url, name)
        self._api_key = key if callable(key) else checked_key(key, name)
        self._is_own = is_of(self._base_url, *_OWN_HOSTS)
        self._given_client = client
        self._exchange = Exchange(send=self._send, failures=self._failures, raised=OpenAIError)

    def _make_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(
            api_key=self._api_key if isinstance(self._api_key, str) else self._asked_key,
            base_url=self._base_url,
            default_headers=self._headers,
        )

    async def _asked_key(self) -> str:
        given = await cast("Callable[[], Awaitable[str]]", self._api_key)()
        if not given:
            raise ProviderAuthError(self.name, "the function that was passed as api_key gave no key")
        return checked_key(given, self.name)

    def _client(self) -> AsyncOpenAI:
        return self._given_client or self._clients.get()

    async def _send(self, body: bytes, *, streams: bool, timeout: float | None) -> httpx2.Response:
        client = self._client()
        path = self._path
        if isinstance(client, AsyncAzureOpenAI) and "/deployments" not in client.base_url.path:
            path = self._azure_path(path)
        options: RequestOptions = {"headers": _JSON, "max_retries": 0}  # the loop retries
        if timeout is not None:
            options["timeout"] = timeout
        response = await client.post(
            path,
            cast_to=httpx2.Response,
            content=body,
            options=options,
            stream=streams,
            stream_cls=AsyncStream[object],
        )
        return cast("httpx2.Response", response)  # as asked for by cast_to; the SDK's own stream is never made

    def _azure_path(self, path: str) -> str:
        # Where the SDK makes the body itself, it reads the deployment out of it.
        return f"/deployments/{quote(self.model, safe='')}{path}"

    def _failures(self) -> Failures:
        key = self._api_key if isinstance(self._api_key, str) else self._client().api_key
        return Failures(
            provider=self.name,
            url=without_credentials(self._base_url),
            model=self.model,
            key_advice="check the key: api_key or the environment variable OPENAI_API_KEY",
            protocol=self._protocol,
            url_advice="check base_url, which mostly ends in /v1",
            secrets=(key, *self._secrets),
        )


def _key_for(base_url: str, name: str) -> str:
    if is_loopback(base_url):
        return "none"
    if key := os.environ.get("OPENAI_API_KEY"):
        return key
    raise ProviderAuthError(
        name,
        f"no key for {without_credentials(base_url)}: set the environment variable OPENAI_API_KEY, or pass api_key "
        "(any text, for a server that asks for none)",
    )
