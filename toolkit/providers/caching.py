"""A provider that answers from a cache what has been asked before."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio.lowlevel

from toolkit.calls.caching import Cache, MemoryCache
from toolkit.chat import ChatRequest, ChatResponse, Provider, ResponseDone, StreamEvent, Usage
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.chat.serialization import request_to_plain, response_from_plain, response_to_plain
from toolkit.chat.stream import events_of
from toolkit.json_text import digest_json, write_json
from toolkit.secrets import digest_of, replace_fields

__all__ = ["CachedProvider"]

_WHOLE = ("end_turn", "tool_use", "stop_sequence")


class CachedProvider(ProviderWrapper):
    """Asks the provider once for equal requests, and the cache from then on.

    ::

        provider = CachedProvider(OpenAIProvider("gpt-5"), SqliteCache("answers.db"))

    Requests are equal when all that they ask is: messages, tools, settings and options, whatever their timeouts.
    `generate` and `stream` share the answers; one from the cache has a `Usage` of nothing, since it cost nothing, and
    streams each block in one piece. Kept is what is whole: no error, nor an answer that was cut off, filtered or
    refused. Answers to requests with secrets in their options are for this process alone. Each request is written down
    whole to be looked up, which takes longer the longer its transcript is. Closing the provider and the cache stays
    with who made them.

    Args:
        provider: Answers what is not in the cache.
        cache: None is a `MemoryCache` of its own.
        name: Tells apart the answers of the providers that share a cache. None takes the kind of the provider and its
            ``model``; give one where providers differ in more, such as their servers.
    """

    def __init__(self, provider: Provider, cache: Cache | None = None, *, name: str | None = None) -> None:
        super().__init__(provider)
        self._cache = MemoryCache() if cache is None else cache
        self._name = name or f"{type(provider).__qualname__}:{getattr(provider, 'model', '')}"

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer that is kept, or the provider's.

        Raises:
            ConfigurationError: The request holds something, mostly in its options, that JSON can't say.
        """
        key = self._make_key(request)
        response = await self._find_answer(key)
        if response is None:
            response = await self._provider.generate(request)
            await self._keep_answer(key, response)
        return response

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer that is kept, or the provider's as it comes.

        Raises:
            ConfigurationError: As for `generate`.
        """
        key = self._make_key(request)
        response = await self._find_answer(key)
        if response is not None:
            for event in events_of(response):
                yield event
            return
        async with closing(self._provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, ResponseDone):
                    await self._keep_answer(key, event.response)
                yield event

    def _make_key(self, request: ChatRequest) -> str:
        plain = request_to_plain(request)
        if plain.get("options"):
            # From the digest of the whole, a short secret would be found by trying all.
            plain["options"] = replace_fields(plain["options"], digest_of)
        return f"answer:{digest_json({'provider': self._name, **plain})}"

    async def _find_answer(self, key: str) -> ChatResponse | None:
        await anyio.lowlevel.checkpoint()
        text = await self._cache.get(key)
        try:
            return None if text is None else replace(response_from_plain(json.loads(text)), usage=Usage())
        except ValueError:  # of another version, or damaged: a miss is always right
            return None

    async def _keep_answer(self, key: str, response: ChatResponse) -> None:
        if response.stop_reason in _WHOLE:
            await self._cache.set(key, write_json(response_to_plain(response)))
