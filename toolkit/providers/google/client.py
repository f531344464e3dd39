"""The provider for Gemini, and what makes its requests: the SDK drafts them, and they are sent and read here.

The SDK knows addresses, keys, tokens of Vertex AI and the words of its settings. It is stopped where it would send: its
own sending is bound to asyncio, says the whole history anew for each request, and leaves streams open that are not read
to their end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import google.auth.exceptions
import httpx2
import sniffio
from google.auth.credentials import Credentials
from google.genai import Client
from google.genai.types import GenerateContentConfig, HttpOptions
from pydantic_core import from_json

from toolkit.chat import ChatRequest, ChatResponse, Usage
from toolkit.errors import ConfigurationError, ProviderAuthError
from toolkit.http_replies import ACCEPTED_ENCODINGS, MOST_ERROR_BYTES, BoundedClient, origin_of, read_bounded
from toolkit.providers.adapter import (
    MOST_CONNECTIONS,
    Adapter,
    Decoder,
    Exchange,
    WholeAnswer,
    checked_key,
    is_home,
    is_loopback,
    key_for,
)
from toolkit.providers.failures import Failures
from toolkit.providers.google.decode import GeminiStreamDecoder, decode_answer, decode_gemini_usage
from toolkit.providers.google.encode import GEMINI_DIALECT, GenerateEncoder
from toolkit.redaction import without_credentials
from toolkit.runtime.backend import LoopLocal
from toolkit.settings import Duration

_GEMINI = ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")
_VERTEX = ("GOOGLE_VERTEX_BASE_URL", "https://aiplatform.googleapis.com")
_KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_VERTEX_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
_GOOGLE_HOSTS = ("googleapis.com",)
_DRAFT_HEADERS = frozenset({"accept-encoding", "content-length", "host"})


class GoogleProvider(Adapter):
    """Talks to a Gemini model: through the Gemini API with a key, or through Vertex AI with Google Cloud's credentials.

    ::

        async with GoogleProvider("gemini-3.8-flash") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``GoogleProvider("gemini-3.8-flash")`` needs ``GEMINI_API_KEY``. With a key it works on asyncio and on trio; the SDK
    gets Google Cloud's tokens on asyncio alone. It may be shared by tasks, and used in one event loop after another;
    connections are made at the first request and closed by `aclose` or by leaving ``async with``. It never retries by
    itself: the loop does.

    Each message is encoded once, however often it is sent. Thought signatures go back where they were, those of calls
    by way of `ToolCall.extra`. Gemini caches the beginning of a prompt by itself; ``cached_content`` in `options` names
    a cache that you have made.

    Args:
        model: The model's name.
        api_key: None takes ``GOOGLE_API_KEY``, else ``GEMINI_API_KEY``. A server on this machine needs none, and the
            variables are not sent there.
        base_url: Where the server is, without a version. None takes ``GOOGLE_GEMINI_BASE_URL``
            (``GOOGLE_VERTEX_BASE_URL`` for Vertex AI), else Google's own.
        api_version: The version in the address, such as ``v1beta``; None leaves it to ``GOOGLE_GENAI_API_VERSION``,
            else to the SDK.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None waits forever.
        headers: Sent with each request.
        options: Settings for each request, as ``google.genai.types.GenerateContentConfigDict`` has them;
            `ChatRequest.options` go over them. A setting that is not known is an error at the first request.
        vertexai: True to use Vertex AI, False to use the Gemini API; None leaves it to ``GOOGLE_GENAI_USE_VERTEXAI``.
        project: The project at Google Cloud; None leaves it to the SDK.
        location: The location at Google Cloud; None leaves it to the SDK.
        credentials: Of Google Cloud; None takes the default ones of this machine.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors.
        http_client: A client of your own, for a proxy or certificates; it is not closed.

    Raises:
        ProviderAuthError: There is no key, and neither Vertex AI nor a server on this machine is asked for.
        ConfigurationError: The SDK refuses the combination of key, project, location and credentials.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        timeout: Duration | None = 600,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        vertexai: bool | None = None,
        project: str | None = None,
        location: str | None = None,
        credentials: Credentials | None = None,
        max_connections: int = MOST_CONNECTIONS,
        name: str = "google",
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._is_vertex = _asks_for_vertex() if vertexai is None else vertexai
        variable, default_url = _VERTEX if self._is_vertex else _GEMINI
        base_url = base_url or os.environ.get(variable) or None
        super().__init__(
            model,
            name=name,
            base_url=base_url or default_url,
            timeout=timeout,
            headers=headers,
            max_connections=max_connections,
        )
        self._clients = LoopLocal(partial(BoundedClient, limits=self._limits, timeout=None), BoundedClient.aclose)
        self._is_address_given = base_url is not None
        if self._is_vertex:
            self._check_home(has_credentials=bool(api_key or credentials))
            key = api_key
        else:
            key = api_key or key_for(
                self._base_url,
                name=name,
                variables=_KEY_VARIABLES,
                hosts=_GOOGLE_HOSTS,
                advice="; for Vertex AI pass vertexai=True",
            )
        self._api_key = None if key is None else checked_key(key, name)
        self._given_client = http_client
        self._encoder = GenerateEncoder(model=model, defaults=options or {})
        self._drafts = self._make_drafts(
            api_version, {"project": project, "location": location, "credentials": credentials}
        )

    def _make_drafts(self, api_version: str | None, cloud: Mapping[str, Any]) -> Client:
        """Return the SDK's client, which makes requests and sends none.

        Raises:
            ConfigurationError: The SDK refuses the combination of settings.
            ProviderAuthError: There are no credentials of Google Cloud.
        """
        options = HttpOptions(
            base_url=self._base_url if self._is_address_given else None,
            api_version=api_version,
            headers=dict(self._headers),
            httpx_client=httpx2.Client(transport=_Stop()),  # otherwise the SDK creates an unused one
            httpx_async_client=httpx2.AsyncClient(transport=_Stop()),
        )
        try:
            return Client(api_key=self._api_key, vertexai=self._is_vertex, http_options=options, **cloud)
        except ValueError as error:
            raise ConfigurationError(f"Google's SDK refuses these settings: {error}") from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise ProviderAuthError(self.name, f"no credentials of Google Cloud: {error}") from error

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:  # noqa: ARG002 - the URL says it
        draft = await self._draft_request(self._encoder.settings(request), self._find_timeout(request))
        return self._make_exchange(draft), self._encoder.body(request, _read_settings(draft))

    def _decode_answer(self, answer: WholeAnswer, request: ChatRequest) -> ChatResponse:
        names = GEMINI_DIALECT.names_back(request.tools)
        return decode_answer(answer.json, self._make_failures, names, request_id=answer.request_id)

    def _read_usage(self, answer: Mapping[str, Any]) -> Usage:
        return decode_gemini_usage(answer.get("usageMetadata"))

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> Decoder:
        return GeminiStreamDecoder(self._make_failures, GEMINI_DIALECT.names_back(request.tools), request_id=request_id)

    async def _draft_request(self, settings: Mapping[str, Any], timeout: float | None) -> httpx2.Request:
        """Return the request with these settings, complete but for the contents."""
        if self._is_vertex and self._api_key is None and sniffio.current_async_library() != "asyncio":
            raise ConfigurationError("Google's SDK gets the tokens of Google Cloud on asyncio alone: pass an api_key")
        options = {**settings, "automatic_function_calling": {"disable": True}, "automatic_continuation": False}
        if timeout is not None:
            options.setdefault("http_options", {"timeout": max(1, int(timeout * 1000))})
        try:
            config = GenerateContentConfig.model_validate(options)
            with anyio.fail_after(timeout):  # a new token may have to be fetched
                await self._drafts.aio.models.generate_content(  # pyright: ignore[reportUnknownMemberType]
                    model=self.model, contents="-", config=config
                )
        except _DraftedError as drafted:
            self._check_address(str(drafted.request.url))
            return drafted.request
        except ValueError as error:
            raise ConfigurationError(f"Google's SDK refuses the settings of the request: {error}") from error
        except TimeoutError as error:
            raise self._make_failures().late(timeout or 0) from error
        except (google.auth.exceptions.GoogleAuthError, RuntimeError) as error:
            raise ProviderAuthError(self.name, f"no token of Google Cloud: {error}") from error
        raise AssertionError("the SDK sent no request")

    def _check_home(self, *, has_credentials: bool) -> None:
        """Refuse to send this machine's Google Cloud credentials to another host."""
        if not (has_credentials or is_loopback(self._base_url) or is_home(self._base_url, _GOOGLE_HOSTS)):
            raise ProviderAuthError(
                self.name,
                f"no credentials for {without_credentials(self._base_url)}: those of this machine go to Google alone; "
                "pass credentials or api_key",
            )

    def _check_address(self, url: str) -> None:
        """Refuse a request whose options lead elsewhere: what holds the options may not be what holds the key."""
        is_given = self._is_address_given
        if not (origin_of(url) == origin_of(self._base_url) if is_given else is_home(url, _GOOGLE_HOSTS)):
            raise ConfigurationError(
                "the options of the request change where it goes: leave http_options.base_url out, and pass base_url "
                "to the provider"
            )

    def _make_exchange(self, draft: httpx2.Request) -> Exchange:
        return Exchange(send=partial(self._send_draft, draft), failures=self._make_failures, raised=httpx2.HTTPError)

    async def _send_draft(
        self, draft: httpx2.Request, body: bytes, *, streams: bool, timeout: float | None
    ) -> httpx2.Response:
        url = str(draft.url)
        if streams:
            url = url.replace(":generateContent", ":streamGenerateContent?alt=sse")
        client = self._given_client or self._clients.get()
        headers = {name: value for name, value in draft.headers.items() if name not in _DRAFT_HEADERS}
        headers["accept-encoding"] = ACCEPTED_ENCODINGS
        request = client.build_request("POST", url, content=body, headers=headers, timeout=timeout)
        response = await client.send(request, stream=True, follow_redirects=False)
        if response.is_success:
            return response
        content = await read_bounded(response, most_bytes=MOST_ERROR_BYTES, is_cut=True)
        raise self._make_failures().refused(response.status_code, response.headers, _read_gemini_body(content))

    def _make_failures(self) -> Failures:
        return Failures(
            provider=self.name,
            url=without_credentials(self._base_url),
            model=self.model,
            key_advice=(
                "check the credentials of Google Cloud"
                if self._is_vertex
                else "check the key: api_key or the environment variable GEMINI_API_KEY"
            ),
            protocol="an answer of Gemini's",
            url_advice="check base_url, which must not end in a version",
            secrets=(self._api_key or "", *self._secrets),
        )


class _DraftedError(Exception):
    """Carries a request out of the SDK."""

    def __init__(self, request: httpx2.Request) -> None:
        self.request = request
        super().__init__()


class _Stop(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise _DraftedError(request)


def _read_settings(draft: httpx2.Request) -> Mapping[str, Any]:
    settings: dict[str, Any] = from_json(draft.content)
    return {name: value for name, value in settings.items() if name != "contents"}


def _read_gemini_body(content: bytes) -> object:
    try:
        return from_json(content)
    except ValueError:
        return content.decode("utf-8", "replace")


def _asks_for_vertex() -> bool:
    return any(os.environ.get(variable, "").lower() in ("true", "1") for variable in _VERTEX_VARIABLES)
