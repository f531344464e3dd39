"""Answers as our words say them: pure functions from chat completions, whole or in pieces.

Compatible servers leave out, add and bend fields, so nothing of an answer is taken for granted: what is missing is
empty, what can't be an answer is a `BadResponseError`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

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
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    Usage,
)
from toolkit.errors import BadResponseError, ProviderError

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

__all__ = ["EventReader", "StreamDecoder", "decode_completion", "decode_usage"]

_STOP_REASONS: Mapping[str, StopReason] = {
    "length": "max_tokens",
    "content_filter": "content_filter",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_CALL_FIELDS = frozenset({"id", "index", "type", "function", "custom"})


def decode_completion(
    completion: ChatCompletion, *, provider: str, request_id: str | None = None, audio_format: str = "wav"
) -> ChatResponse:
    """Return the first choice as an answer.

    Args:
        completion: What the server sent.
        provider: The name for errors.
        request_id: From the headers; else the completion's own id is taken.
        audio_format: What sound was asked for, where it was.

    Raises:
        BadResponseError: There is no answer in it.
        ProviderError: It is an error dressed as a success.
    """
    answer = completion.model_dump(warnings=False)
    choice = _first_choice(answer)
    message = _mapping(choice.get("message"))
    if not choice or not message:
        raise _no_answer(answer, provider, request_id)
    reply = _Reply(audio_format)
    for _ in reply.read(message):
        pass
    return reply.finish(answer, choice, request_id)


class EventReader:
    """Cuts the bytes of an event stream into the data of its events.

    Attributes:
        is_done: Whether the server has said that it is done; what follows is ignored.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are now complete."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        complete: list[bytes] = []
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data and not self.is_done:
                data = b"\n".join(self._data)
                self._data.clear()
                if data.startswith(b"[DONE]"):
                    self.is_done = True
                else:
                    complete.append(data)
        return complete


class StreamDecoder:
    """Puts an answer together from its pieces: `feed` each one, then `finish`."""

    def __init__(self, *, provider: str, request_id: str | None = None, audio_format: str = "wav") -> None:
        self._provider = provider
        self._request_id = request_id
        self._reply = _Reply(audio_format)
        self._choice: dict[str, Any] = {}
        self._answer: dict[str, Any] = {}

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield what is new in a piece, the JSON of a chat completion chunk.

        Raises:
            ProviderError: The piece tells of an error.
            ValueError: It is not JSON.
        """
        piece = _mapping(from_json(data))
        if piece.get("error"):
            raise _no_answer(piece, self._provider, self._request_id)
        choice = _first_choice(piece)
        self._answer |= {name: value for name, value in piece.items() if name != "choices" and value is not None}
        self._choice |= {name: value for name, value in choice.items() if name != "delta" and value is not None}
        yield from self._reply.read(_mapping(choice.get("delta")))

    def finish(self) -> ChatResponse:
        """Return the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if not self._choice.get("finish_reason"):
            raise ProviderError(
                self._provider,
                "the stream ended before the answer was complete: the connection was cut, or the server stopped",
                is_retryable=True,
                request_id=self._request_id,
            )
        return self._reply.finish(self._answer, self._choice, self._request_id)


def decode_usage(usage: object) -> Usage:
    """Return what a request cost; zeros where the server did not say."""
    told = _mapping(usage)
    prompt = _mapping(told.get("prompt_tokens_details"))
    completion = _mapping(told.get("completion_tokens_details"))
    cached = prompt.get("cached_tokens")
    cost = told.get("cost")
    return Usage(
        input_tokens=told.get("prompt_tokens") or 0,
        output_tokens=told.get("completion_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens"),
        cache_read_tokens=told.get("prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=prompt.get("cache_write_tokens"),
        cost=float(cost) if isinstance(cost, (int, float)) else None,
    )


class _Call:
    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}


class _Reply:
    """What has been said so far. A whole message is read as one large piece."""

    def __init__(self, audio_format: str) -> None:
        self._audio_format = audio_format
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._transcript: list[str] = []
        self._audio: list[str] = []
        self._images: list[ImageBlock] = []
        self._calls: list[_Call] = []
        self._positions: dict[Any, int] = {}

    def read(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for field in _REASONING_FIELDS:
            if thought := piece.get(field):
                self._reasoning.append(_text(thought))
                yield ReasoningDelta(self._reasoning[-1])
                break
        audio = _mapping(piece.get("audio"))
        if data := audio.get("data"):
            self._audio.append(_text(data))
        for value, said in (
            (piece.get("content"), self._text),
            (piece.get("refusal"), self._refusal),
            (audio.get("transcript"), self._transcript),
        ):
            if text := _text(value):
                said.append(text)
                yield TextDelta(text)
        for image in _items(piece.get("images")):
            if url := _mapping(image.get("image_url")).get("url"):
                self._images.append(_image(_text(url)))
        for position, call in enumerate(_items(piece.get("tool_calls"))):
            yield self._read_call(call, position)

    def _read_call(self, piece: Mapping[str, Any], position: int) -> ArgumentsDelta:
        # Some servers leave the index out, others give each call index 0 and an id of its own.
        key: Any = piece.get("index")
        key = position if key is None else key
        call_id = _text(piece.get("id"))
        known = self._positions.get(key)
        if known is None or (call_id and self._calls[known].id not in ("", call_id)):
            known = self._positions[key] = len(self._calls)
            self._calls.append(_Call())
        call = self._calls[known]
        function = _mapping(piece.get("function")) or _mapping(piece.get("custom"))
        call.id = call.id or call_id
        call.name = call.name or _text(function.get("name"))
        arguments = function.get("arguments", function.get("input"))
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call.arguments.append(text)
        call.extra |= {name: value for name, value in piece.items() if name not in _CALL_FIELDS and value is not None}
        return ArgumentsDelta(known, call.id, call.name, text)

    def finish(self, answer: Mapping[str, Any], choice: Mapping[str, Any], request_id: str | None) -> ChatResponse:
        content: list[AssistantContent] = []
        if self._reasoning:
            content.append(ReasoningBlock(text="".join(self._reasoning)))
        spoken = (self._text, self._refusal, self._transcript)
        content.extend([TextBlock("".join(pieces)) for pieces in spoken if pieces])
        if self._audio:
            content.append(AudioBlock(_bytes("".join(self._audio)), media_type=f"audio/{self._audio_format}"))
        content.extend(self._images)
        content.extend(
            [ToolCall(call.id, call.name, "".join(call.arguments), extra=call.extra or None) for call in self._calls]
        )
        told = {name: answer[name] for name in ("id", "system_fingerprint", "service_tier") if answer.get(name)}
        return ChatResponse(
            message=AssistantMessage(content),
            usage=decode_usage(answer.get("usage")),
            stop_reason=self._stop_reason(choice),
            model=_text(answer.get("model")),
            request_id=request_id or _text(answer.get("id")) or None,
            metadata=told,
        )

    def _stop_reason(self, choice: Mapping[str, Any]) -> StopReason:
        reason = _STOP_REASONS.get(_text(choice.get("finish_reason")))
        if reason in ("max_tokens", "content_filter"):
            return reason
        if self._refusal:
            return "refusal"
        # Some servers say "stop" though they call, others say "tool_calls" though they don't.
        if self._calls:
            return "tool_use"
        # vLLM names the text that it stopped at.
        return "stop_sequence" if isinstance(choice.get("stop_reason"), str) else "end_turn"


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = _items(answer.get("choices"))
    return choices[0] if choices else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _items(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        return ()
    return [cast("Mapping[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, Mapping)]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    # Mistral and others send the content as a list of parts.
    return "".join([_text(part.get("text")) for part in _items(value)])


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""


def _image(url: str) -> ImageBlock:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageBlock(_bytes(data), media_type=head.removeprefix("data:").removesuffix(";base64") or "image/png")
    return ImageBlock(url=url)


def _no_answer(answer: Mapping[str, Any], provider: str, request_id: str | None) -> ProviderError:
    error = answer.get("error")
    if not error:
        return BadResponseError(
            provider,
            "the answer has no choices: is this a server for chat completions?",
            is_retryable=True,
            request_id=request_id,
        )
    facts = _mapping(error)
    code = facts.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    message = _text(facts.get("message")) or str(error)
    return ProviderError(
        provider,
        message,
        status=status,
        is_retryable=status is None or status == 429 or status >= 500,
        request_id=request_id,
    )
