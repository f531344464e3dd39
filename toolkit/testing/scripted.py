"""Providers without a model: replies from a list or a function, and simulated failures."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from inspect import isawaitable
from random import Random
from typing import Literal, TypeAlias, get_args

import anyio.lowlevel

from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Provider,
    ReasoningBlock,
    ReasoningDelta,
    ResponseDone,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    Usage,
)
from toolkit.chat.provider import ProviderWrapper, closing, events_of
from toolkit.errors import BadResponseError, ConfigurationError, ProviderError, ProviderTimeoutError, RateLimitedError
from toolkit.settings import check_setting

FixedReply: TypeAlias = str | ToolCall | AssistantMessage | ChatResponse | Exception
"""A text, a call, a message, a whole response, or an error to raise."""
ScriptedReply: TypeAlias = FixedReply | Callable[[ChatRequest], object]
"""A text, a call, a message, a whole response, an error to raise, or a function of the request that returns one."""
ModelFunction: TypeAlias = Callable[
    [ChatRequest], FixedReply | Awaitable[FixedReply] | AsyncIterator[StreamEvent | str]
]
"""Returns a reply to a request, sync or async, or is an async generator of events, where text is a `TextDelta`."""
_MODEL = "function"
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


def frozen(request: ChatRequest) -> ChatRequest:
    """Return the request with a copy of its messages: the list of a loop keeps growing."""
    return replace(request, messages=tuple(request.messages))


def make_response(reply: object, *, model: str) -> ChatResponse:
    """Return a reply as a response of `model`.

    Raises:
        Exception: The reply is an exception.
        ConfigurationError: A model can't reply so.
    """
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ChatResponse):
        return reply
    if isinstance(reply, ToolCall):
        reply = AssistantMessage((reply,))
    elif isinstance(reply, str):
        reply = AssistantMessage(reply)
    if not isinstance(reply, AssistantMessage):
        raise ConfigurationError(
            f"a reply can't be of type {type(reply).__qualname__}: give a text, a ToolCall, an AssistantMessage "
            "such as AssistantMessage([call, other_call]), a ChatResponse or an exception"
        )
    return ChatResponse(
        message=reply,
        usage=Usage(input_tokens=10, output_tokens=5),
        stop_reason="tool_use" if reply.tool_calls else "end_turn",
        model=model,
    )


def in_words(response: ChatResponse) -> Iterator[list[StreamEvent]]:
    """Yield the events of each block together, text word by word; the last event is the response."""
    for event in events_of(response):
        if isinstance(event, TextDelta):
            yield [TextDelta(word) for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", event.text)]
        else:
            yield [event]


def put_together(events: Iterable[StreamEvent], *, model: str) -> ChatResponse:
    """Return the response of a stream: its last event, or the sum of its deltas."""
    content: list[TextBlock | ReasoningBlock] = []
    calls: dict[int, ToolCall] = {}
    for event in events:
        match event:
            case TextDelta(text):
                before = content.pop().text if content and isinstance(content[-1], TextBlock) else ""
                content.append(TextBlock(before + text))
            case ReasoningDelta(text):
                before = content.pop().text if content and isinstance(content[-1], ReasoningBlock) else ""
                content.append(ReasoningBlock(text=before + text))
            case ArgumentsDelta(index, call_id, name, text):
                call = calls.get(index, ToolCall("", "", ""))
                calls[index] = ToolCall(call.id or call_id, call.name or name, call.arguments + text)
            case ResponseDone(response):
                return response
    return make_response(AssistantMessage([*content, *[calls[index] for index in sorted(calls)]]), model=model)


class ScriptedProvider:
    """Replays a list of replies in order, in place of a real model.

    ::

        provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])

    Streaming yields each reply word by word.

    Args:
        replies: One reply per request. Several calls in one reply are an `AssistantMessage`.
        repeats: True to start again after the last reply; otherwise one more request is an error.
        keep_requests: False to record no `requests`.

    Attributes:
        requests: The requests, with the transcript at that time.
    """

    def __init__(self, replies: Iterable[ScriptedReply], *, repeats: bool = False, keep_requests: bool = True) -> None:
        if isinstance(replies, str):
            raise ConfigurationError(f"a script is a list of replies, such as [{replies!r}], and not one text")
        self._replies = list(replies)
        self._repeats = repeats
        self._keeps_requests = keep_requests
        self._position = 0
        self._count = 0
        self.requests: list[ChatRequest] = []

    @property
    def reports_cost(self) -> bool:
        """True if a scripted response reports its cost, or a function may return one that does."""
        return any(
            callable(reply) or (isinstance(reply, ChatResponse) and reply.usage.cost is not None)
            for reply in self._replies
        )

    @property
    def unplayed(self) -> int:
        """The number of replies that have not been requested yet."""
        return len(self._replies) - self._position

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the next reply.

        Raises:
            ConfigurationError: There are no more replies.
        """
        await anyio.lowlevel.checkpoint()
        return self._play_next(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the next reply in pieces."""
        response = self._play_next(request)
        for events in in_words(response):
            await anyio.lowlevel.checkpoint()
            for event in events:
                yield event

    def _play_next(self, request: ChatRequest) -> ChatResponse:
        self._count += 1
        if self._keeps_requests:  # the request's messages are the loop's live list
            self.requests.append(frozen(request))
        if self._position == len(self._replies):
            if not self._repeats or not self._replies:
                raise ConfigurationError(
                    f"the script has {len(self._replies)} replies, and this is request {self._count}"
                )
            self._position = 0
        reply: object = self._replies[self._position]
        self._position += 1
        while callable(reply):
            reply = reply(request)
        return make_response(reply, model="scripted")


class FunctionProvider:
    """Answers each request with the result of a function.

    ::

        def model(request: ChatRequest) -> str | ToolCall:
            last = request.messages[-1]
            return last.text if isinstance(last, ToolResult) else ToolCall("1", "add", '{"a": 1, "b": 2}')

        provider = FunctionProvider(model)

    An async generator is for streams: its events are passed on as they arrive, and the response is assembled from them
    unless it ends with its own `ResponseDone`. Any other result is streamed word by word. Exceptions of the function
    are raised as the provider's.

    Args:
        function: Called with each request, once.

    Attributes:
        requests: The requests, with the transcript at that time.
    """

    def __init__(self, function: ModelFunction) -> None:
        self._function = function
        self.requests: list[ChatRequest] = []

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the function's reply."""
        async with aclosing(self.stream(request)) as events:
            return put_together([event async for event in events], model=_MODEL)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the function's reply, piece by piece."""
        self.requests.append(frozen(request))
        await anyio.lowlevel.checkpoint()
        given = self._function(request)
        if isinstance(given, AsyncIterator):
            async with aclosing(_pass_on_events(given)) as passed_on:
                async for event in passed_on:
                    yield event
            return
        response = make_response(await given if isawaitable(given) else given, model=_MODEL)
        for events in in_words(response):
            await anyio.lowlevel.checkpoint()
            for event in events:
                yield event


async def _pass_on_events(given: AsyncIterator[StreamEvent | str]) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a generator, and a `ResponseDone` if it yields none; always close it."""
    events: list[StreamEvent] = []
    try:
        async for item in given:
            event = TextDelta(item) if isinstance(item, str) else item
            events.append(event)
            yield event
            if isinstance(event, ResponseDone):
                return
        yield ResponseDone(put_together(events, model=_MODEL))
    finally:
        if isinstance(given, AsyncGenerator):
            await given.aclose()


class FlakyProvider(ProviderWrapper):
    """Passes requests on to a provider, and makes some of them fail.

    ::

        provider = FlakyProvider(provider, ["rate_limit", None, "cut_stream"])
        provider = FlakyProvider(provider, probability=0.2, seed=7)

    - ``timeout``: `ProviderTimeoutError`, immediately.
    - ``rate_limit``, ``rate_limit_with_retry_after``: `RateLimitedError` with status 429.
    - ``server_error``: a retryable `ProviderError` with status 500.
    - ``cut_stream``: half of the response, up to the middle of a delta, then a retryable `ProviderError`.
    - ``malformed_chunk``: half of the response, then `BadResponseError`, which is not retryable.
    - ``duplicate_ids``, ``missing_ids``: the whole response, in which all calls have the same id, or an empty one.

    `generate` has no partial responses: ``cut_stream`` and ``malformed_chunk`` raise immediately there. The provider is
    not called for failures that raise immediately; a response that broke off is stored for a retry of the same request,
    so that the replies of a `ScriptedProvider` inside stay in step.

    Args:
        provider: The provider that answers.
        script: The faults of the first requests, in order; None is no fault.
        probability: The probability of a fault for each later request, from 0 to 1.
        faults: The faults to choose from at random, with equal probability.
        seed: The random seed: equal seeds give equal faults for requests in the same order.
        retry_after: The `retry_after` of ``rate_limit_with_retry_after``, in seconds.

    Attributes:
        injected: The fault of each request so far.

    Raises:
        ConfigurationError: A fault is unknown, or a probability is out of range.
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
        """Return the provider's response, unless a fault is due."""
        await anyio.lowlevel.checkpoint()
        fault = self._next_fault()
        self._raise_fault(fault)
        return _replace_ids(await self._provider.generate(request), fault)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the provider's events, unless a fault is due."""
        await anyio.lowlevel.checkpoint()
        fault = self._next_fault()
        if fault not in _MID_STREAM:
            self._raise_fault(fault)
        asked = frozen(request)
        if self._broken_off is not None and self._broken_off[0] == asked:
            received, self._broken_off = self._broken_off[1], None
        elif fault in _MID_STREAM:
            async with closing(self._provider.stream(request)) as events:
                received = [event async for event in events]
        else:
            async with closing(self._provider.stream(request)) as events:
                async for event in events:
                    yield _replace_event_ids(event, fault)
            return
        if fault in _MID_STREAM:
            self._broken_off = asked, received
            for event in _cut_response(received):
                yield event
            self._raise_fault(fault)
        for event in received:
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
        cut = "the connection was cut before the answer was complete"
        errors: dict[Fault | None, ProviderError] = {
            "timeout": ProviderTimeoutError(_FAULT_NAME, "no answer in time"),
            "rate_limit": RateLimitedError(_FAULT_NAME, "slow down", status=429),
            "rate_limit_with_retry_after": RateLimitedError(
                _FAULT_NAME, "slow down", status=429, retry_after=self._retry_after
            ),
            "server_error": ProviderError(_FAULT_NAME, "the server failed", status=500, is_retryable=True),
            "cut_stream": ProviderError(_FAULT_NAME, cut, is_retryable=True),
            "malformed_chunk": BadResponseError(_FAULT_NAME, "a piece of the answer is no JSON"),
        }
        if fault in errors:
            raise errors[fault]


def _cut_response(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    deltas = [event for event in events if not isinstance(event, ResponseDone)]
    half = deltas[: (len(deltas) + 1) // 2]
    return [*half[:-1], *[replace(last, text=last.text[: (len(last.text) + 1) // 2]) for last in half[-1:]]]


_FAULTY_IDS: dict[Fault | None, str] = {"duplicate_ids": "call_1", "missing_ids": ""}


def _replace_ids(response: ChatResponse, fault: Fault | None) -> ChatResponse:
    if fault not in _FAULTY_IDS:
        return response
    call_id = _FAULTY_IDS[fault]
    content = [
        replace(block, id=call_id) if isinstance(block, ToolCall) else block for block in response.message.content
    ]
    return replace(response, message=AssistantMessage(content))


def _replace_event_ids(event: StreamEvent, fault: Fault | None) -> StreamEvent:
    if isinstance(event, ArgumentsDelta) and fault in _FAULTY_IDS:
        return replace(event, call_id=_FAULTY_IDS[fault])
    if isinstance(event, ResponseDone):
        return ResponseDone(_replace_ids(event.response, fault))
    return event
