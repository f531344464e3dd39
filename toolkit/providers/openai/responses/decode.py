"""Answers as our words say them: pure functions from responses, whole or in events.

Compatible servers leave fields out, the numbers of events among them, so nothing of an answer is taken for granted.
What has no word of ours is kept sealed in a `ReasoningBlock`, for the encoder to send back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    ChatResponse,
    ImageBlock,
    ReasoningBlock,
    ReasoningDelta,
    ResponseDone,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    Usage,
)
from toolkit.providers.dialect import sealed
from toolkit.providers.failures import Failures
from toolkit.providers.json_values import as_bytes, as_count, as_items, as_key, as_mapping, as_text, usage_details
from toolkit.providers.openai.responses.encode import RESPONSES_SEAL
from toolkit.providers.openai.responses.items import find_unanswered

__all__ = ["ResponsesStreamDecoder", "decode_response", "decode_responses_usage"]

_TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_DELTAS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_RESPONSES_TOLD = ("id", "service_tier", "prompt_cache_diagnostics", "incomplete_details")
_UNFINISHED = ("queued", "in_progress", "cancelled")
_RESPONSES_CALL_FIELDS = frozenset({"id", "type", "call_id", "name", "arguments", "status"})
_BETWEEN_SUMMARIES = "\n\n"
_PAID_CALLS = {
    "web_search_call": "web_searches",
    "file_search_call": "storage_searches",
    "code_interpreter_call": "code_executions",
    "image_generation_call": "generated_images",
}
"""The counts by which OpenAI's own tools are priced, beside the tokens."""


def decode_response(
    answer: Mapping[str, Any],
    failures: Callable[[], Failures],
    names: Mapping[str, str],
    *,
    request_id: str | None = None,
) -> ChatResponse:
    """Return a response as an answer.

    Args:
        answer: The reply of the server.
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the response's own id is taken.

    Raises:
        BadResponseError: There is no answer in it.
        ProviderError: It tells of a failure.
    """
    if error := answer.get("error"):
        raise failures().reported(error, request_id=request_id)
    if (status := answer.get("status")) in _UNFINISHED:
        problem = f"the response is '{status}' and has no answer: leave `background` out, it is not waited for"
        raise failures().reported({"message": problem, "type": "invalid_request_error"}, request_id=request_id)
    if not isinstance(answer.get("output"), list):
        raise failures().empty("output", request_id=request_id)
    items = as_items(answer.get("output"))
    content = [block for item in items for block in _read_item(item, names)]
    is_refusal = any(part.get("type") == "refusal" for item in items for part in _list_message_parts(item))
    told = {name: answer[name] for name in _RESPONSES_TOLD if answer.get(name)}
    message = AssistantMessage(content)
    return ChatResponse(
        message=message,
        usage=decode_responses_usage(answer),
        stop_reason=_find_response_stop(answer, items, is_refusal=is_refusal),
        model=as_text(answer.get("model")),
        request_id=request_id or as_text(answer.get("id")) or None,
        metadata=told,
        unanswered=find_unanswered(items),
    )


def _read_item(item: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[AssistantContent]:
    match item.get("type"):
        case "message":
            if phase := item.get("phase"):
                yield ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, {"phase": phase}))
            for part in _list_message_parts(item):
                if text := as_text(part.get("text")) or as_text(part.get("refusal")):
                    yield TextBlock(text)
        case "reasoning":
            yield _read_reasoning(item)
        case "function_call":
            yield _read_function_call(item, names)
        case "image_generation_call" if item.get("result"):
            yield _read_drawn_image(item)
        case _:
            yield ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, item))


def _list_message_parts(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return as_items(item.get("content")) if item.get("type") == "message" else ()


class ResponsesStreamDecoder:
    """Turns the events of a response into ours: `feed` each one, then `finish`.

    Args:
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the response's own id is taken.
    """

    def __init__(
        self, failures: Callable[[], Failures], names: Mapping[str, str], *, request_id: str | None = None
    ) -> None:
        self._failures = failures
        self._names = names
        self._request_id = request_id
        self._items: list[tuple[int, Mapping[str, Any]]] = []
        self._calls: dict[int | str | None, _ResponsesCall] = {}
        self._response: ChatResponse | None = None
        self._ended: Mapping[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        return decode_responses_usage(self._ended)

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield what an event tells.

        Raises:
            ProviderError: It tells of a failure.
            ValueError: It is not JSON.
        """
        event = as_mapping(from_json(data))
        kind = as_text(event.get("type"))
        if kind in _TEXT_DELTAS:
            yield TextDelta(as_text(event.get("delta")))
        elif kind in _REASONING_DELTAS:
            yield ReasoningDelta(as_text(event.get("delta")))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta(_BETWEEN_SUMMARIES)
        elif kind == "response.function_call_arguments.delta":
            yield from self._continue_call(event, as_text(event.get("delta")))
        elif kind == "response.output_item.added":
            yield from self._begin_call(event)
        elif kind == "response.output_item.done":
            yield from self._end_item(event)
        elif kind in _ENDINGS:
            self._end_response(as_mapping(event.get("response")), is_cut=kind == "response.incomplete")
        elif kind == "error" or (not kind and event.get("error")):
            raise self._failures().reported(event.get("error") or event, request_id=self._request_id)

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if self._response is None:
            raise self._failures().cut_off(request_id=self._request_id)
        return ResponseDone(self._response)

    def _begin_call(self, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        item = as_mapping(event.get("item"))
        if item.get("type") == "function_call":
            name = as_text(item.get("name"))
            call = _ResponsesCall(len(self._calls), as_text(item.get("call_id")), self._names.get(name, name))
            self._calls[_find_item_key(event)] = call
            yield call.more(as_text(item.get("arguments")))

    def _continue_call(self, event: Mapping[str, Any], text: str) -> Iterator[StreamEvent]:
        call = self._calls.get(_find_item_key(event))
        if call is not None:
            yield call.more(text)

    def _end_item(self, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        item = as_mapping(event.get("item"))
        index = event.get("output_index")
        self._items.append((index if isinstance(index, int) else len(self._items), item))
        if item.get("type") == "function_call":
            call = self._calls.get(_find_item_key(event))
            if call is None:
                yield from self._begin_call(event)
            elif not call.has_arguments:
                # Some servers send the arguments only whole.
                yield from self._continue_call(event, as_text(item.get("arguments")))

    def _end_response(self, answer: Mapping[str, Any], *, is_cut: bool) -> None:
        self._ended = answer
        output = answer.get("output") or [item for _, item in sorted(self._items, key=itemgetter(0))]
        whole: dict[str, Any] = {**answer, "output": output}
        if is_cut:
            whole["status"] = "incomplete"
        self._response = decode_response(whole, self._failures, self._names, request_id=self._request_id)


class _ResponsesCall:
    __slots__ = ("has_arguments", "id", "name", "number")

    def __init__(self, number: int, call_id: str, name: str) -> None:
        self.number = number
        self.id = call_id
        self.name = name
        self.has_arguments = False

    def more(self, text: str) -> ArgumentsDelta:
        self.has_arguments = self.has_arguments or bool(text)
        return ArgumentsDelta(self.number, self.id, self.name, text)


def decode_responses_usage(answer: Mapping[str, Any]) -> Usage:
    """Return the usage that an answer tells; zeros where the server did not say."""
    told = as_mapping(answer.get("usage"))
    read = as_mapping(told.get("input_tokens_details"))
    wrote = as_mapping(told.get("output_tokens_details"))
    return Usage(
        input_tokens=as_count(told.get("input_tokens")) or 0,
        output_tokens=as_count(told.get("output_tokens")) or 0,
        reasoning_tokens=as_count(wrote.get("reasoning_tokens")),
        cache_read_tokens=as_count(read.get("cached_tokens")),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        details=usage_details(**_count_paid_calls(as_items(answer.get("output")))),
    )


def _count_paid_calls(items: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Count the calls of OpenAI's own tools that cost something beside their tokens."""
    kinds = [_PAID_CALLS.get(as_text(item.get("type"))) for item in items if not _is_page_view(item)]
    return Counter([kind for kind in kinds if kind is not None])


def _is_page_view(item: Mapping[str, Any]) -> bool:
    """Return whether a call of the search opens a page of an earlier search, which is free."""
    return as_text(as_mapping(item.get("action")).get("type")) in ("open_page", "find_in_page")


def _find_response_stop(
    answer: Mapping[str, Any], items: Sequence[Mapping[str, Any]], *, is_refusal: bool
) -> StopReason:
    details = as_mapping(answer.get("incomplete_details"))
    if details.get("reason") == "content_filter":
        return "content_filter"
    calls = [item for item in items if item.get("type") == "function_call"]
    is_cut = answer.get("status") == "incomplete" or any(call.get("status") == "incomplete" for call in calls)
    if is_cut or details:
        # Other reasons to stop early, such as a word of the user, cut nothing off but a call.
        return "max_tokens" if calls or details.get("reason") in (None, "max_output_tokens") else "end_turn"
    if is_refusal:
        return "refusal"
    return "tool_use" if calls else "end_turn"


def _read_reasoning(item: Mapping[str, Any]) -> ReasoningBlock:
    summaries = [as_text(part.get("text")) for part in as_items(item.get("summary"))]
    thoughts = [as_text(part.get("text")) for part in as_items(item.get("content"))]
    return ReasoningBlock(
        text=_BETWEEN_SUMMARIES.join(summaries) or "".join(thoughts),
        encrypted=as_text(item.get("encrypted_content")) or None,
        id=as_text(item.get("id")) or None,
    )


def _read_function_call(item: Mapping[str, Any], names: Mapping[str, str]) -> ToolCall:
    name = as_text(item.get("name"))
    extra = {field: value for field, value in item.items() if field not in _RESPONSES_CALL_FIELDS and value is not None}
    return ToolCall(
        as_text(item.get("call_id")), names.get(name, name), as_text(item.get("arguments")), extra=extra or None
    )


def _read_drawn_image(item: Mapping[str, Any]) -> ImageBlock:
    media_type = f"image/{as_text(item.get('output_format')) or 'png'}"
    return ImageBlock(as_bytes(item.get("result")), media_type=media_type)


def _find_item_key(event: Mapping[str, Any]) -> int | str | None:
    """Return what tells the items of a response apart; llama.cpp leaves the index out."""
    index = as_key(event.get("output_index"))
    if index is None:
        return as_key(event.get("item_id")) or as_key(as_mapping(event.get("item")).get("id"))
    return index
