"""The protocol of providers, their stream events, the base of wrapping providers, and serialization.

Requests, responses and stream events are converted to JSON values for storage and comparison.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from toolkit import errors
from toolkit.chat.messages import ReasoningBlock, TextBlock, ToolCall
from toolkit.chat.request import Capabilities, ChatRequest, ChatResponse
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ProviderError
from toolkit.json_text import make_adapter

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, kw_only=True)
class Stamped:
    """The time and the run of an event.

    Set by the loop and not by the provider; ignored when events are compared.

    Attributes:
        run_id: The run of the outermost loop, shared by the loops inside its tools.
        loop_id: The loop that emits it; for a loop inside a tool, the `ToolResult.child_loop_id`.
        time: Seconds since 1970.
    """

    run_id: str = field(default="", compare=False, repr=False)
    loop_id: str = field(default="", compare=False, repr=False)
    time: float = field(default=0.0, compare=False, repr=False)


@dataclass(frozen=True)
class TextDelta(Stamped):
    """A piece of text."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta(Stamped):
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class ArgumentsDelta(Stamped):
    """A piece of a call's arguments.

    Args:
        index: The position of the call in this reply, from 0.
        call_id: The id of the call; empty until the provider sends it.
        tool_name: The tool; empty until the provider sends it.
        text: The next piece of the JSON text; may be empty at the start of a call.
    """

    index: int
    call_id: str
    tool_name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The complete response: the last event, exactly once."""

    response: ChatResponse


Delta: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta
"""A piece of a streamed response."""

StreamEvent: TypeAlias = Delta | ResponseDone
"""An event of `Provider.stream`; the last one is always `ResponseDone`."""


def events_of(response: ChatResponse) -> Iterator[StreamEvent]:
    """Yield the stream events of a complete response, each block in one piece."""
    position = 0
    for block in response.message.content:
        if isinstance(block, TextBlock):
            yield TextDelta(block.text)
        elif isinstance(block, ReasoningBlock):
            yield ReasoningDelta(block.text)
        elif isinstance(block, ToolCall):
            yield ArgumentsDelta(position, block.id, block.name, block.arguments)
            position += 1
    yield ResponseDone(response)


class Provider(Protocol):
    """A connection to one model.

    Both methods raise `toolkit.ProviderError` or a subclass for any failure outside this process. On cancellation they
    close their resources and let it propagate. They neither change the request nor retain its message list, which may
    be live; messages are immutable and may be retained.
    """

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the model's response."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the response as it arrives: deltas, then exactly one `ResponseDone`.

        A consumer that stops early calls the iterator's ``aclose``, if it has one, which closes the connection.
        """
        ...


def find_capabilities(provider: Provider, model: str | None = None) -> Capabilities:
    """Return the capabilities of a provider's model, or the defaults if it does not report them."""
    find = getattr(provider, "capabilities", None)
    return Capabilities() if find is None else find(model)


class ProviderWrapper:
    """The base of providers that wrap another one, which its creator closes."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._provider!r})"

    @property
    def name(self) -> str:
        """The name of the wrapped provider, or of its class."""
        return str(getattr(self._provider, "name", "") or type(self._provider).__name__)

    @property
    def model(self) -> str:
        """The name of the wrapped provider's model; empty if it has none."""
        return str(getattr(self._provider, "model", ""))

    def capabilities(self, model: str | None = None) -> Capabilities:
        """Return the capabilities of the wrapped provider's model."""
        return find_capabilities(self._provider, model)

    @property
    def reports_cost(self) -> bool:
        """True if responses may report their cost."""
        return bool(getattr(self._provider, "reports_cost", True))


@asynccontextmanager
async def closing(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    """Yield a provider's stream, and close it at the end of the block if it has ``aclose``."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


_FACTS = ("status", "retry_after", "is_retryable", "request_id")
_NOT_IN_REQUESTS = {"timeout": True, "earlier_tools": True, "messages": {"__all__": {"details", "time"}}}


def request_to_plain(request: ChatRequest) -> dict[str, Any]:
    """Return a request as JSON values.

    The `timeout` and `earlier_tools` are left out because they do not change the meaning, and the `details` and `time`
    of results because no model reads them.

    Raises:
        ConfigurationError: A value in it, usually in its options, can't be serialized as JSON.
    """
    return _dump_plain(_make_request_adapter(), request, "request", exclude=_NOT_IN_REQUESTS)


def response_to_plain(response: ChatResponse) -> dict[str, Any]:
    """Return a response as JSON values; `response_from_plain` restores an equal one.

    Raises:
        ConfigurationError: A value in it, usually in its metadata, can't be serialized as JSON.
    """
    return _dump_plain(_make_response_adapter(), response, "response")


def response_from_plain(plain: object) -> ChatResponse:
    """Return the response that `response_to_plain` serialized.

    Raises:
        ValueError: It is not a response; the message gives the place and the reason.
    """
    return _make_response_adapter().validate_json(json.dumps(plain))


def event_to_plain(event: StreamEvent) -> dict[str, Any]:
    """Return an event as an object with one key, its kind; `event_from_plain` restores an equal one."""
    match event:
        case TextDelta(text):
            return {"text": text}
        case ReasoningDelta(text):
            return {"reasoning": text}
        case ArgumentsDelta(index, call_id, tool_name, text):
            return {"arguments": [index, call_id, tool_name, text]}
        case ResponseDone(response):
            return {"response": response_to_plain(response)}


def event_from_plain(plain: Any) -> StreamEvent:
    """Return the event that `event_to_plain` serialized.

    Raises:
        ValueError: It is not an event.
    """
    match plain:
        case {"text": str(text)}:
            return TextDelta(text)
        case {"reasoning": str(text)}:
            return ReasoningDelta(text)
        case {"arguments": [int(index), str(call_id), str(tool_name), str(text)]}:
            return ArgumentsDelta(index, call_id, tool_name, text)
        case {"response": response}:
            return ResponseDone(response_from_plain(response))
        case _:
            raise ValueError(f"{plain!r} is no event of a stream: its key is text, reasoning, arguments or response")


def provider_error_to_plain(error: ProviderError) -> dict[str, Any]:
    """Return an error as JSON values; `provider_error_from_plain` restores it, without its transcript."""
    # A subclass of the application is stored as its base class in this library.
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    facts = {name: getattr(error, name) for name in _FACTS}
    return {"type": kind.__name__, "provider": error.provider, "message": error.message, **facts}


def provider_error_from_plain(plain: dict[str, Any]) -> ProviderError:
    """Return the error that `provider_error_to_plain` serialized.

    Raises:
        LookupError, TypeError: It is not a serialized error.
    """
    kind = getattr(errors, plain["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, ProviderError)):
        raise TypeError(f"{plain['type']} is no error of a provider")
    return kind(plain["provider"], plain["message"], **{name: plain.get(name) for name in _FACTS})


def _dump_plain(adapter: TypeAdapter[Any], value: object, what: str, **options: Any) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = adapter.dump_python(value, mode="json", **options)
    except ValueError as error:
        raise ConfigurationError(f"the {what} can't be written as JSON: {error}") from error
    return plain


# Created on first use, since few programs store requests or responses.
@cache
def _make_request_adapter() -> TypeAdapter[ChatRequest]:
    return make_adapter(ChatRequest)


@cache
def _make_response_adapter() -> TypeAdapter[ChatResponse]:
    return make_adapter(ChatResponse)
