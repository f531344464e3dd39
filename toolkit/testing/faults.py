"""A provider that fails as real ones do, when a script or a seeded chance says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Literal, TypeAlias, get_args

import anyio.lowlevel

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Provider,
    ResponseDone,
    StreamEvent,
    ToolCall,
)
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.errors import BadResponseError, ConfigurationError, ProviderError, ProviderTimeoutError, RateLimitedError
from toolkit.settings import check_setting
from toolkit.testing.scripted import frozen

__all__ = ["FAULTS", "Fault", "FlakyProvider"]

Fault: TypeAlias = Literal[
    "timeout",
    "rate_limit",
    "rate_limit_with_retry_after",
    "server_error",
    "cut_stream",
    "malformed_chunk",
    "duplicate_ids",
    "missing_ids",
]
"""The faults of a request; `FlakyProvider` describes each."""

FAULTS: tuple[Fault, ...] = get_args(Fault)
"""All of them."""

_FAULT_NAME = "flaky"
_MID_STREAM: tuple[Fault, ...] = ("cut_stream", "malformed_chunk")


class FlakyProvider(ProviderWrapper):
    """Passes requests on to a provider, and lets some of them go wrong.

    ::

        provider = FlakyProvider(provider, ["rate_limit", None, "cut_stream"])
        provider = FlakyProvider(provider, probability=0.2, seed=7)

    - ``timeout``: `ProviderTimeoutError`, at once.
    - ``rate_limit``, ``rate_limit_with_retry_after``: `RateLimitedError` with status 429.
    - ``server_error``: a retryable `ProviderError` with status 500.
    - ``cut_stream``: half of the answer, in the middle of a delta, then a retryable `ProviderError`.
    - ``malformed_chunk``: half of the answer, then `BadResponseError`, which is not retryable.
    - ``duplicate_ids``, ``missing_ids``: the whole answer, in which all calls have the same id, or an empty one.

    `generate` has no half of an answer: there the middle two raise at once. The provider is not asked for what raises
    at once; an answer that broke off in the middle is kept for the same request made again, so that a script behind
    this is played as written.

    Args:
        provider: Answers.
        script: The faults of the first requests, in order; None is nothing.
        probability: Of each later request going wrong, from 0 to 1.
        faults: Those that chance chooses from, all alike.
        seed: Of the chance: equal seeds fail alike, where requests come in the same order.
        retry_after: Seconds that ``rate_limit_with_retry_after`` asks to wait.

    Attributes:
        injected: The fault of each request so far.

    Raises:
        ConfigurationError: A fault that is not there, or a probability that is none.
    """

    def __init__(
        self,
        provider: Provider,
        script: Iterable[Fault | None] = (),
        *,
        probability: float = 0.0,
        faults: Sequence[Fault] = FAULTS,
        seed: int = 0,
        retry_after: float = 0.01,
    ) -> None:
        super().__init__(provider)
        self._script = list(script)
        for fault in (*self._script, *faults):
            if fault is not None and fault not in FAULTS:
                raise ConfigurationError(f"there is no fault '{fault}'; there are {', '.join(FAULTS)}")
        if not faults:
            raise ConfigurationError("there must be faults to choose from")
        check_setting("probability", probability, float, least=0, most=1)
        self._probability = probability
        self._faults = faults
        self._random = Random(seed)  # noqa: S311 - chance for tests
        self._retry_after = retry_after
        self._broken_off: tuple[ChatRequest, list[StreamEvent]] | None = None
        self.injected: list[Fault | None] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the provider's answer, unless something goes wrong."""
        await anyio.lowlevel.checkpoint()
        fault = self._next_fault()
        self._raise_fault(fault)
        return _replace_ids(await self._provider.generate(request), fault)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's answer, unless something goes wrong."""
        await anyio.lowlevel.checkpoint()
        fault = self._next_fault()
        if fault not in _MID_STREAM:
            self._raise_fault(fault)
        asked = frozen(request)
        if self._broken_off is not None and self._broken_off[0] == asked:
            heard, self._broken_off = self._broken_off[1], None
        elif fault in _MID_STREAM:
            async with closing(self._provider.stream(request)) as events:
                heard = [event async for event in events]
        else:
            async with closing(self._provider.stream(request)) as events:
                async for event in events:
                    yield _replace_event_ids(event, fault)
            return
        if fault in _MID_STREAM:
            self._broken_off = asked, heard
            for event in _cut_response(heard):
                yield event
            self._raise_fault(fault)
        for event in heard:
            yield _replace_event_ids(event, fault)

    def _next_fault(self) -> Fault | None:
        fault: Fault | None = None
        if len(self.injected) < len(self._script):
            fault = self._script[len(self.injected)]
        elif self._random.random() < self._probability:
            fault = self._random.choice(self._faults)
        self.injected.append(fault)
        return fault

    def _raise_fault(self, fault: Fault | None) -> None:
        match fault:
            case "timeout":
                raise ProviderTimeoutError(_FAULT_NAME, "no answer in time")
            case "rate_limit":
                raise RateLimitedError(_FAULT_NAME, "slow down", status=429)
            case "rate_limit_with_retry_after":
                raise RateLimitedError(_FAULT_NAME, "slow down", status=429, retry_after=self._retry_after)
            case "server_error":
                raise ProviderError(_FAULT_NAME, "the server failed", status=500, is_retryable=True)
            case "cut_stream":
                raise ProviderError(
                    _FAULT_NAME, "the connection was cut before the answer was complete", is_retryable=True
                )
            case "malformed_chunk":
                raise BadResponseError(_FAULT_NAME, "a piece of the answer is no JSON")
            case _:
                pass


def _cut_response(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    deltas = [event for event in events if not isinstance(event, ResponseDone)]
    half = deltas[: (len(deltas) + 1) // 2]
    return [*half[:-1], *[replace(last, text=last.text[: (len(last.text) + 1) // 2]) for last in half[-1:]]]


def _map_ids(fault: Fault | None) -> str | None:
    return {"duplicate_ids": "call_1", "missing_ids": ""}.get(fault or "")


def _replace_ids(response: ChatResponse, fault: Fault | None) -> ChatResponse:
    call_id = _map_ids(fault)
    if call_id is None:
        return response
    content = [
        replace(block, id=call_id) if isinstance(block, ToolCall) else block for block in response.message.content
    ]
    return replace(response, message=AssistantMessage(content))


def _replace_event_ids(event: StreamEvent, fault: Fault | None) -> StreamEvent:
    call_id = _map_ids(fault)
    if call_id is not None and isinstance(event, ArgumentsDelta):
        return replace(event, call_id=call_id)
    if isinstance(event, ResponseDone):
        return ResponseDone(_replace_ids(event.response, fault))
    return event
