"""The provider: one client of the SDK for each event loop, one request at a time through it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
from anyio.lowlevel import RunVar
from openai import APIError, AsyncAPIResponse, AsyncOpenAI, AsyncStream, not_given
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from toolkit.chat import ChatRequest, ChatResponse, ResponseDone, StreamEvent
from toolkit.errors import ProviderAuthError
from toolkit.providers.openai.decode import EventReader, StreamDecoder, decode_completion
from toolkit.providers.openai.encode import encode_request
from toolkit.providers.openai.failures import bad_response, failure_of, timed_out

__all__ = ["OpenAIProvider"]

MaxTokensField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

_DEFAULT_URL = "https://api.openai.com/v1"
_OWN_HOSTS = ("openai.com", "azure.com")
_SHORTEST_SECRET = 6
_PATIENCE_AFTER_DONE = 0.2


class OpenAIProvider:
    """Talks to a model through chat completions: OpenAI's, or any server that speaks them.

    ``OpenAIProvider("gpt-5-mini")`` needs ``OPENAI_API_KEY``; ``OpenAIProvider("qwen3", base_url=
    "http://127.0.0.1:11434/v1")`` speaks to Ollama, and so to llama.cpp, vLLM, OpenRouter and others. It may be shared
    by tasks, and used in one event loop after another; connections are made at the first request and closed by
    `aclose` or by leaving ``async with``. It never retries by itself: the loop does.

    Args:
        model: The model's name as the server knows it.
        api_key: None takes ``OPENAI_API_KEY``. A server on this machine needs none, and the variable is not sent
            there. A function is asked before each request.
        base_url: Where the server is, mostly ending in ``/v1``. None takes ``OPENAI_BASE_URL``, else OpenAI's own.
        timeout: Seconds for a request that doesn't set its own; None leaves it to the SDK (ten minutes).
        headers: Sent with each request.
        options: Fields for each request; `ChatRequest.options` go over them.
        max_tokens_field: The name of that field; None means ``max_completion_tokens`` at OpenAI and Azure,
            ``max_tokens`` elsewhere.
        reasoning_field: The field in which the model's reasoning is sent back; None means ``reasoning_content``, and
            nothing at OpenAI and Azure, which refuse it. An empty text leaves it out.
        name: What errors call it.
        client: A client of your own, for Azure or a proxy; it is not closed, and `api_key`, `base_url`, `headers` are
            its own matter.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | Callable[[], Awaitable[str]] | None = None,
        base_url: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_tokens_field: MaxTokensField | None = None,
        reasoning_field: str | None = None,
        name: str = "openai",
        client: AsyncOpenAI | None = None,
    ) -> None:
        self.model = model
        self.name = name
        if client is not None:
            base_url = str(client.base_url)
            api_key = client.api_key
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        host = urlsplit(self._base_url).hostname or ""
        self._api_key = api_key or _key_for(host, self._base_url, name)
        self._timeout = timeout
        self._headers = headers
        self._options = dict(options or {})
        is_own = host.endswith(_OWN_HOSTS)
        self._max_tokens_field = max_tokens_field or ("max_completion_tokens" if is_own else "max_tokens")
        self._reasoning_field = (
            (None if is_own else "reasoning_content") if reasoning_field is None else reasoning_field
        )
        self._given_client = client
        self._client_of_run: RunVar[AsyncOpenAI] = RunVar("client")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={_without_credentials(self._base_url)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request makes new ones. May be called again."""
        client = self._client_of_run.get(None)
        if client is not None:
            with anyio.CancelScope(shield=True):
                await client.close()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's answer.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for what chat completions can't say.
        """
        body = self._encode(request, stream=False)
        try:
            with anyio.fail_after(request.timeout):
                raw = await self._client().chat.completions.with_raw_response.create(
                    model=self.model,
                    messages=(),
                    extra_body=body,
                    timeout=not_given if request.timeout is None else request.timeout,
                )
        except TimeoutError as error:
            raise self._late(request) from error
        except APIError as error:
            raise self._failure(error) from error
        try:
            completion = cast("object", raw.parse())  # text, where the server sent no JSON
        except ValueError as error:
            raise self._failure(error) from error
        if not isinstance(completion, ChatCompletion):
            found = raw.headers.get("content-type", "no content type")
            raise bad_response(self.name, self._place(), found, request_id=raw.request_id)
        return decode_completion(
            completion, provider=self.name, request_id=raw.request_id, audio_format=_audio_format(body)
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it comes; leaving early closes the connection.

        Raises:
            ProviderError: Or a subclass; the connection is closed.
            ConfigurationError: The request asks for what chat completions can't say.
        """
        body = self._encode(request, stream=True)
        deadline = None if request.timeout is None else anyio.current_time() + request.timeout
        events = EventReader()
        try:
            async with AsyncExitStack() as stack:
                with anyio.fail_after(request.timeout):
                    response = await stack.enter_async_context(self._streaming(body, request))
                headers = response.headers
                if "html" in (found := headers.get("content-type", "")):
                    raise bad_response(self.name, self._place(), found, request_id=headers.get("x-request-id"))
                decoder = StreamDecoder(
                    provider=self.name, request_id=headers.get("x-request-id"), audio_format=_audio_format(body)
                )
                pieces = await stack.enter_async_context(_closed_with(response.http_response))
                while received := await _next(pieces, deadline):
                    for data in events.feed(received):
                        for event in decoder.feed(data):
                            yield event
                    if events.is_done:
                        # Most servers end here; reading the end keeps the connection for the next request.
                        with anyio.move_on_after(_PATIENCE_AFTER_DONE):
                            while await _next(pieces, None):
                                pass
                        break
        except TimeoutError as error:
            raise self._late(request) from error
        except (httpx2.HTTPError, APIError, ValueError) as error:
            raise self._failure(error) from error
        yield ResponseDone(decoder.finish())

    def _streaming(
        self, body: dict[str, Any], request: ChatRequest
    ) -> AbstractAsyncContextManager[AsyncAPIResponse[AsyncStream[ChatCompletionChunk]]]:
        return self._client().chat.completions.with_streaming_response.create(
            model=self.model,
            messages=(),
            stream=True,
            extra_body=body,
            timeout=not_given if request.timeout is None else request.timeout,
        )

    def _client(self) -> AsyncOpenAI:
        # Connections belong to the event loop that made them, so each loop has a client of its own.
        client = self._client_of_run.get(None)
        if client is None or client.is_closed():
            if self._given_client is not None:
                return self._given_client.with_options(max_retries=0)
            client = AsyncOpenAI(
                api_key=self._api_key,
                base_url=self._base_url,
                max_retries=0,
                default_headers=self._headers,
                timeout=not_given if self._timeout is None else self._timeout,
            )
            self._client_of_run.set(client)
        return client

    def _encode(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        return encode_request(
            request,
            model=self.model,
            defaults=self._options,
            max_tokens_field=self._max_tokens_field,
            reasoning_field=self._reasoning_field,
            stream=stream,
        )

    def _late(self, request: ChatRequest) -> Exception:
        seconds = request.timeout or 0
        return timed_out(self.name, f"no complete answer from {self._place()} within {seconds:g} s")

    def _place(self) -> str:
        return _without_credentials(self._base_url)

    def _failure(self, error: httpx2.HTTPError | APIError | ValueError) -> Exception:
        key = self._api_key if isinstance(self._api_key, str) else self._client().api_key
        secret = key if len(key) >= _SHORTEST_SECRET else ""
        return failure_of(error, provider=self.name, url=self._place(), model=self.model, secret=secret)


@asynccontextmanager
async def _closed_with(response: httpx2.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The pieces of the response, with the connection and every generator between closed at the end."""
    pieces = response.aiter_bytes()
    try:
        yield pieces
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
            # Generators of the HTTP client are still suspended inside one another, and nothing but an error from
            # the closed connection ends them all; trio warns of those that are left to the garbage collector.
            with suppress(Exception):
                await anext(pieces)


async def _next(pieces: AsyncIterator[bytes], deadline: float | None) -> bytes:
    """Return the next piece; nothing at the end."""
    if deadline is None:
        return await anext(pieces, b"")
    # A scope may not stay open over a yield, so each piece has one of its own.
    with anyio.fail_after(deadline - anyio.current_time()):
        return await anext(pieces, b"")


def _key_for(host: str, base_url: str, name: str) -> str:
    if _is_loopback(host):
        return "none"
    if key := os.environ.get("OPENAI_API_KEY"):
        return key
    raise ProviderAuthError(
        name,
        f"no key for {_without_credentials(base_url)}: set the environment variable OPENAI_API_KEY, or pass api_key "
        "(any text, for a server that asks for none)",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _audio_format(body: Mapping[str, Any]) -> str:
    try:
        return str(body["audio"]["format"])
    except (KeyError, TypeError):
        return "wav"
