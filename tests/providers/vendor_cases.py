"""How the tests of the vendors' adapters ask, and what the tables of Anthropic's and Google's are made of."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.providers.loopback import Answer, Server
from toolkit import ChatRequest, ProviderError
from toolkit.chat import ChatResponse, ResponseDone, StreamEvent
from toolkit.chat.provider import closing
from toolkit.providers import ClosableProvider

__all__ = ["Failure", "Said", "assert_refused", "generate", "hear", "response_of"]


@dataclass(frozen=True)
class Said:
    """An answer of the vendor's, and what it is in our words."""

    name: str
    body: dict[str, Any]
    content: tuple[Any, ...]
    stop_reason: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Failure:
    """A refusal of the vendor's, and the error that it is."""

    name: str
    answer: Answer
    kind: type[ProviderError]
    says: str
    is_retryable: bool = False
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


async def generate(provider: ClosableProvider, request: ChatRequest) -> ChatResponse:
    """Ask once, and close."""
    with anyio.fail_after(120):
        async with provider:
            return await provider.generate(request)


async def hear(provider: ClosableProvider, request: ChatRequest) -> list[StreamEvent]:
    """Listen to the end, and close."""
    with anyio.fail_after(120):
        async with provider, closing(provider.stream(request)) as stream:
            return [event async for event in stream]


def response_of(heard: list[StreamEvent]) -> ChatResponse:
    """The whole answer, which comes once and last."""
    assert sum(isinstance(event, ResponseDone) for event in heard) == 1
    last = heard[-1]
    assert isinstance(last, ResponseDone)
    return last.response


async def assert_refused(
    provider: ClosableProvider, server: Server, failure: Failure, request: ChatRequest, *, secret: str
) -> None:
    """The refusal is its error, says what is known, shows no secret, and is not tried again."""
    server.answers[:] = [failure.answer]
    with pytest.raises(failure.kind, match=failure.says) as caught:
        await generate(provider, request)
    assert type(caught.value) is failure.kind
    assert caught.value.is_retryable is failure.is_retryable
    assert {name: getattr(caught.value, name) for name in failure.facts} == failure.facts
    assert secret not in f"{caught.value!s} {caught.value!r}"
    assert len(server.requests) == 1, "the loop retries, the provider does not"
