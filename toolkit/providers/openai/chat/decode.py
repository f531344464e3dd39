"""Answers as our words say them: pure functions from chat completions, whole or in pieces.

Compatible servers leave out, add and bend fields, so nothing of an answer is taken for granted: what is missing is
empty, what can't be an answer is a `BadResponseError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    AudioBlock,
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
from toolkit.providers.json_values import (
    as_amount,
    as_bytes,
    as_count,
    as_items,
    as_key,
    as_mapping,
    as_text,
    usage_details,
)
from toolkit.providers.openai.chat.encode import CHAT_SEAL, ChatReading

__all__ = ["ChatStreamDecoder", "decode_completion", "decode_chat_usage"]

# The words of compatible servers for a reply that is not whole, or that a filter stopped.
_CHAT_STOP_REASONS: Mapping[str, StopReason] = {
    **dict.fromkeys(
        (
            "length", "max_tokens", "max_length", "max_output_tokens", "model_length", "context_length",
            "model_context_window_exceeded", "incomplete", "abort", "aborted", "cancelled", "error", "timeout",
            "network_error", "insufficient_system_resource",
        ),
        "max_tokens",
    ),
    **dict.fromkeys(
        ("content_filter", "content_filtered", "safety", "sensitive", "recitation", "blocklist", "prohibited_content"),
        "content_filter",
    ),
}  # fmt: skip
_ANSWER_FIELDS = ("id", "model", "usage", "system_fingerprint", "service_tier")
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_SPOKEN_DETAILS = ("text", "summary", "data")
_CHAT_CALL_FIELDS = frozenset({"id", "index", "type", "function", "custom"})


def decode_completion(
    answer: Mapping[str, Any],
    failures: Callable[[], Failures],
    reading: ChatReading,
    *,
    request_id: str | None = None,
) -> ChatResponse:
    """Return the first choice as an answer.

    Args:
        answer: The reply of the server.
        failures: Makes errors.
        reading: The settings of the request that decide how the answer is read.
        request_id: From the headers; else the completion's own id is taken.

    Raises:
        BadResponseError: There is no answer in it.
        ProviderError: It is an error dressed as a success.
    """
    if error := answer.get("error"):
        raise failures().reported(error, request_id=request_id)
    choice = _find_first_choice(answer)
    message = as_mapping(choice.get("message"))
    if not message:
        raise failures().empty("choices", request_id=request_id)
    reply = _ChatReply(reading)
    for _ in reply.read(message):
        pass
    return reply.finish(answer, choice, request_id)


class ChatStreamDecoder:
    """Puts an answer together from its pieces: `feed` each one, then `finish`.

    Args:
        failures: Makes errors.
        reading: The settings of the request that decide how the answer is read.
        request_id: From the headers; else the completion's own id is taken.
    """

    def __init__(
        self, failures: Callable[[], Failures], reading: ChatReading, *, request_id: str | None = None
    ) -> None:
        self._failures = failures
        self._request_id = request_id
        self._reply = _ChatReply(reading)
        self._choice: Mapping[str, Any] = {}
        self._answer: dict[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        return decode_chat_usage(self._answer.get("usage"))

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield what is new in a piece, the JSON of a chat completion chunk.

        Raises:
            ProviderError: The piece tells of an error.
            ValueError: It is not JSON.
        """
        piece = as_mapping(from_json(data))
        if error := piece.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        choice = _find_first_choice(piece)
        for name in _ANSWER_FIELDS:
            if value := piece.get(name):
                self._answer[name] = value
        if choice.get("finish_reason"):
            self._choice = choice
        yield from self._reply.read(as_mapping(choice.get("delta")))

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if not self._choice.get("finish_reason"):
            raise self._failures().cut_off(request_id=self._request_id)
        return ResponseDone(self._reply.finish(self._answer, self._choice, self._request_id))


def decode_chat_usage(usage: object) -> Usage:
    """Return the usage that an answer tells; zeros where the server did not say."""
    told = as_mapping(usage)
    prompt = as_mapping(told.get("prompt_tokens_details"))
    completion = as_mapping(told.get("completion_tokens_details"))
    cached = as_count(prompt.get("cached_tokens"))
    thought = as_count(completion.get("reasoning_tokens"))
    read, wrote = as_count(told.get("prompt_tokens")) or 0, as_count(told.get("completion_tokens")) or 0
    if thought and as_count(told.get("total_tokens")) == read + wrote + thought:
        wrote += thought  # xAI counts them apart
    return Usage(
        input_tokens=read,
        output_tokens=wrote,
        reasoning_tokens=thought,
        cache_read_tokens=as_count(told.get("prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write_tokens=as_count(prompt.get("cache_write_tokens")),
        cost=as_amount(told.get("cost")),
        details=usage_details(
            input_audio_tokens=as_count(prompt.get("audio_tokens")),
            output_audio_tokens=as_count(completion.get("audio_tokens")),
        ),
    )


class _ChatCall:
    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}


class _ChatReply:
    """An answer as far as it has come. A whole message is read as one large piece."""

    def __init__(self, reading: ChatReading) -> None:
        self._reading = reading
        self._reasoning: list[str] = []
        self._details: dict[tuple[int | str | None, str], dict[str, Any]] = {}
        self._spoken_details: dict[tuple[int | str | None, str, str], list[str]] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._transcript: list[str] = []
        self._audio: list[str] = []
        self._images: list[ImageBlock] = []
        self._calls: list[_ChatCall] = []
        self._positions: dict[int | str, int] = {}

    def read(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for field in _REASONING_FIELDS:
            if thought := piece.get(field):
                self._reasoning.append(_join_text_parts(thought))
                yield ReasoningDelta(self._reasoning[-1])
                break
        for position, detail in enumerate(as_items(piece.get("reasoning_details"))):
            self._read_detail(detail, position)
        if text := _read_thought(piece.get("content")):
            self._reasoning.append(text)
            yield ReasoningDelta(text)
        if text := _join_text_parts(piece.get("content")):
            self._text.append(text)
            yield TextDelta(text)
        if text := as_text(piece.get("refusal")):
            self._refusal.append(text)
            yield TextDelta(text)
        yield from self._read_media(piece)
        for position, call in enumerate(_list_calls(piece)):
            yield self._read_call(call, position)

    def _read_media(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if audio := as_mapping(piece.get("audio")):
            self._audio.append(as_text(audio.get("data")))
            if text := as_text(audio.get("transcript")):
                self._transcript.append(text)
                yield TextDelta(text)
        for image in as_items(piece.get("images")):
            if url := as_mapping(image.get("image_url")).get("url"):
                self._images.append(_read_image_url(as_text(url)))

    def _read_detail(self, piece: Mapping[str, Any], position: int) -> None:
        """Put an item that the server wants back together from its pieces."""
        kind = as_text(piece.get("type"))
        if kind.startswith("reasoning."):
            key = (as_key(piece.get("index", position)), kind)
            detail = self._details.setdefault(key, {})
            for name, value in piece.items():
                if name in _SPOKEN_DETAILS and isinstance(value, str):
                    detail[name] = ""
                    self._spoken_details.setdefault((*key, name), []).append(value)
                elif value is not None:
                    detail[name] = value

    def _read_call(self, piece: Mapping[str, Any], position: int) -> ArgumentsDelta:
        # Some servers leave the index out, others give each call index 0 and an id of its own.
        key = as_key(piece.get("index"))
        key = position if key is None else key
        call_id = as_text(piece.get("id"))
        known = self._positions.get(key)
        if known is None or (call_id and self._calls[known].id not in ("", call_id)):
            known = self._positions[key] = len(self._calls)
            self._calls.append(_ChatCall())
        call = self._calls[known]
        function = as_mapping(piece.get("function")) or as_mapping(piece.get("custom"))
        call.id = call.id or call_id
        if not call.name:
            name = as_text(function.get("name"))
            call.name = self._reading.names.get(name, name)
        arguments = function.get("arguments", function.get("input"))
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call.arguments.append(text)
        call.extra |= {
            name: value for name, value in piece.items() if name not in _CHAT_CALL_FIELDS and value is not None
        }
        return ArgumentsDelta(known, call.id, call.name, text)

    def finish(self, answer: Mapping[str, Any], choice: Mapping[str, Any], request_id: str | None) -> ChatResponse:
        content: list[AssistantContent] = list(self._list_thoughts())
        spoken = (self._text, self._refusal, self._transcript)
        content.extend([TextBlock("".join(pieces)) for pieces in spoken if pieces])
        if any(self._audio):
            content.append(AudioBlock(_read_sound(self._audio), media_type=f"audio/{self._reading.audio_format}"))
        content.extend(self._images)
        content.extend(
            [ToolCall(call.id, call.name, "".join(call.arguments), extra=call.extra or None) for call in self._calls]
        )
        told = {name: answer[name] for name in ("id", "system_fingerprint", "service_tier") if answer.get(name)}
        return ChatResponse(
            message=AssistantMessage(content),
            usage=decode_chat_usage(answer.get("usage")),
            stop_reason=self._find_stop_reason(choice),
            model=as_text(answer.get("model")),
            request_id=request_id or as_text(answer.get("id")) or None,
            metadata=told,
        )

    def _list_thoughts(self) -> Iterator[ReasoningBlock]:
        text = "".join(self._reasoning)
        for (index, kind, name), pieces in self._spoken_details.items():
            self._details[index, kind][name] = "".join(pieces)
        for detail in self._details.values():
            yield ReasoningBlock(
                text=text,
                signature=as_text(detail.get("signature")) or None,
                encrypted=sealed(CHAT_SEAL, detail),
                id=as_text(detail.get("id")) or None,
            )
            text = ""
        if text:
            yield ReasoningBlock(text=text)

    def _find_stop_reason(self, choice: Mapping[str, Any]) -> StopReason:
        reason = _CHAT_STOP_REASONS.get(as_text(choice.get("finish_reason")).lower())
        if reason is not None:
            return reason
        if self._refusal:
            return "refusal"
        # Some servers say "stop" though they call, others say "tool_calls" though they don't.
        if self._calls:
            return "tool_use"
        # vLLM names the text that it stopped at.
        return "stop_sequence" if isinstance(choice.get("stop_reason"), str) else "end_turn"


def _find_first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the choice of index 0; there are more where `options` ask for several."""
    choices = [choice for choice in as_items(answer.get("choices")) if not choice.get("index")]
    return choices[0] if choices else {}


def _list_calls(piece: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the calls; old servers have another field, for a single one."""
    function = as_mapping(piece.get("function_call"))
    return [{"function": function}] if function else as_items(piece.get("tool_calls"))


def _join_text_parts(value: object) -> str:
    """Return a text; Mistral and others send it as a list of parts."""
    return value if isinstance(value, str) else "".join([as_text(part.get("text")) for part in as_items(value)])


def _read_thought(content: object) -> str:
    """Return the reasoning in a list of parts, where Mistral has it."""
    return "".join([_join_text_parts(part.get("thinking")) for part in as_items(content)])


def _read_sound(pieces: Sequence[str]) -> bytes:
    """Return what was spoken; some servers pad each piece of base64, others cut one text anywhere."""
    if any(len(piece) % 4 for piece in pieces):
        return as_bytes("".join(pieces))
    return b"".join([as_bytes(piece) for piece in pieces])


def _read_image_url(url: str) -> ImageBlock:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageBlock(as_bytes(data), media_type=head.removeprefix("data:").removesuffix(";base64") or "image/png")
    return ImageBlock(url=url)
