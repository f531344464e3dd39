"""Converts requests, answers and stream events to plain JSON values and back, to store or compare them."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from toolkit import errors
from toolkit.chat.provider import ArgumentsDelta, ReasoningDelta, ResponseDone, StreamEvent, TextDelta
from toolkit.chat.request import ChatRequest, ChatResponse
from toolkit.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_FACTS = ("status", "retry_after", "is_retryable", "request_id")
_NOT_IN_REQUESTS = {"timeout": True, "messages": {"__all__": {"details", "time"}}}


def request_to_plain(request: ChatRequest) -> dict[str, Any]:
    """Return a request as JSON values.

    Left out are its `timeout`, which does not change the meaning, and the `details` and `time` of results, which no
    model reads.

    Raises:
        ConfigurationError: Something in it, mostly in its options, can't be written as JSON.
    """
    return _dump_plain(_make_request_adapter(), request, "request", exclude=_NOT_IN_REQUESTS)


def response_to_plain(response: ChatResponse) -> dict[str, Any]:
    """Return an answer as JSON values; `response_from_plain` restores it, equal.

    Raises:
        ConfigurationError: Something in it, mostly in its metadata, can't be written as JSON.
    """
    return _dump_plain(_make_response_adapter(), response, "response")


def response_from_plain(plain: object) -> ChatResponse:
    """Return the answer that `response_to_plain` serialized.

    Raises:
        ValueError: It is not an answer; the message gives the place and the reason.
    """
    return _make_response_adapter().validate_json(json.dumps(plain))


def event_to_plain(event: StreamEvent) -> dict[str, Any]:
    """Return an event as JSON values with one key, its kind; `event_from_plain` restores it, equal."""
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
        ValueError: It is no event.
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
    # An application's subclass is stored as the class of ours that it derives from.
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    facts = {name: getattr(error, name) for name in _FACTS}
    return {"type": kind.__name__, "provider": error.provider, "message": error.message, **facts}


def provider_error_from_plain(plain: dict[str, Any]) -> ProviderError:
    """Return the error that `provider_error_to_plain` serialized.

    Raises:
        LookupError, TypeError: It is none.
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


# Created on first use: few programs that import this store requests or answers.
@cache
def _make_request_adapter() -> TypeAdapter[ChatRequest]:
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(ChatRequest)


@cache
def _make_response_adapter() -> TypeAdapter[ChatResponse]:
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(ChatResponse)
