"""Answers as our words say them: pure functions from Gemini's ``generateContent``, whole or in pieces.

Parts without a counterpart here (thought signatures beside calls, code that the model ran) are sealed in a
`ReasoningBlock` at its place and goes back as it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    AudioBlock,
    ChatResponse,
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    ReasoningDelta,
    ResponseDone,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    UnansweredItem,
    Usage,
)
from toolkit.errors import BadResponseError, ContentFilteredError
from toolkit.providers.dialect import sealed
from toolkit.providers.encoding import as_bytes, as_count, as_items, as_mapping, as_text, usage_details
from toolkit.providers.failures import Failures
from toolkit.providers.google.encode import GEMINI_SEAL

_GEMINI_STOP_REASONS: Mapping[str, StopReason] = {
    "MAX_TOKENS": "max_tokens",
    "CONTINUATION": "max_tokens",
    "STOP": "end_turn",
    "": "end_turn",
    **dict.fromkeys(
        (
            "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION", "MODEL_ARMOR",
        ),
        "content_filter",
    ),
}  # fmt: skip
_UNUSABLE_NOW = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"}
)
_UNUSABLE = _UNUSABLE_NOW | {"MISSING_THOUGHT_SIGNATURE", "PUP_LIMITED_DISABLED"}
_GEMINI_SERVER_PARTS = frozenset({"toolCall"})  # sent back with its response; not answered here
_GEMINI_METADATA = ("citationMetadata", "finishMessage", "groundingMetadata", "safetyRatings", "urlContextMetadata")


def decode_answer(
    answer: Mapping[str, Any],
    failures: Callable[[], Failures],
    names: Mapping[str, str],
    *,
    request_id: str | None = None,
) -> ChatResponse:
    """Return the first candidate as an answer.

    Args:
        answer: The reply of the server.
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the response's own id is taken.

    Raises:
        BadResponseError: There is no answer in it.
        ContentFilteredError: The request was refused before a model read it.
        ProviderError: It is an error dressed as a success.
    """
    reply = _GeminiReply(failures, names, request_id)
    for _ in reply.read(answer):
        pass
    if not reply.candidate:
        raise failures().empty("candidates", request_id=request_id)
    return reply.finish()


class GeminiStreamDecoder:
    """Puts an answer together from its pieces: `feed` each one, then `finish`.

    Args:
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the response's own id is taken.
    """

    def __init__(
        self, failures: Callable[[], Failures], names: Mapping[str, str], *, request_id: str | None = None
    ) -> None:
        self._failures = failures
        self._request_id = request_id
        self._reply = _GeminiReply(failures, names, request_id)

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        return decode_gemini_usage(self._reply.answer.get("usageMetadata"))

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the new deltas of a piece.

        Raises:
            ProviderError: The piece tells of an error.
            ValueError: It is not JSON.
        """
        return self._reply.read(as_mapping(from_json(data)))

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if not self._reply.candidate.get("finishReason"):
            raise self._failures().cut_off(request_id=self._request_id)
        return ResponseDone(self._reply.finish())


def decode_gemini_usage(usage: object, grounding: object = None) -> Usage:
    """Return the usage that an answer tells; zeros where the server did not say.

    Args:
        usage: The ``usageMetadata``.
        grounding: The ``groundingMetadata`` of the candidate, which names the searches.
    """
    reported = as_mapping(usage)
    thought = as_count(reported.get("thoughtsTokenCount"))
    audio = _count_modality("AUDIO", reported.get("promptTokensDetails"), reported.get("toolUsePromptTokensDetails"))
    details = usage_details(
        input_audio_tokens=audio,
        output_audio_tokens=_count_modality("AUDIO", reported.get("candidatesTokensDetails")),
        output_image_tokens=_count_modality("IMAGE", reported.get("candidatesTokensDetails")),
        grounding_searches=1 if as_mapping(grounding).get("webSearchQueries") else 0,
    )
    if details and audio and "cacheTokensDetails" in reported:
        details = {**details, "cache_audio_read_tokens": _count_modality("AUDIO", reported["cacheTokensDetails"])}
    return Usage(
        input_tokens=(as_count(reported.get("promptTokenCount")) or 0)
        + (as_count(reported.get("toolUsePromptTokenCount")) or 0),
        output_tokens=(as_count(reported.get("candidatesTokenCount")) or 0) + (thought or 0),
        reasoning_tokens=thought,
        cache_read_tokens=as_count(reported.get("cachedContentTokenCount")),
        details=details,
    )


def _count_modality(modality: str, *lists: object) -> int:
    """Return the tokens of one modality in lists such as ``promptTokensDetails``."""
    counts = [each for reported in lists for each in as_items(reported) if each.get("modality") == modality]
    return sum([as_count(each.get("tokenCount")) or 0 for each in counts])


class _GeminiReply:
    """An answer as far as it has come. A whole answer is read as one large piece."""

    def __init__(self, failures: Callable[[], Failures], names: Mapping[str, str], request_id: str | None) -> None:
        self.candidate: dict[str, Any] = {}
        self._failures = failures
        self._names = names
        self._request_id = request_id
        self.answer: dict[str, Any] = {}
        self._content: list[AssistantContent] = []
        self._spoken: list[str] = []
        self._is_thought = False
        self._calls = 0
        self._other: list[tuple[str, Mapping[str, Any]]] = []  # parts without a counterpart here

    def read(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if error := piece.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        self.answer |= {name: value for name, value in piece.items() if name != "candidates" and value is not None}
        candidates = as_items(piece.get("candidates"))
        if not candidates:
            self._check_feedback(as_mapping(piece.get("promptFeedback")))
            return
        self.candidate |= {name: value for name, value in candidates[0].items() if value is not None}
        for part in as_items(as_mapping(candidates[0].get("content")).get("parts")):
            yield from self._read_part(part)

    def finish(self) -> ChatResponse:
        self._end_text()
        reason = as_text(self.candidate.get("finishReason"))
        metadata = {name: self.candidate[name] for name in _GEMINI_METADATA if self.candidate.get(name)}
        if tier := as_text(as_mapping(self.answer.get("usageMetadata")).get("trafficType")):
            metadata["service_tier"] = tier.lower().removeprefix("on_demand_")
        if reason in _UNUSABLE and not self._calls:
            message = as_text(metadata.get("finishMessage"))
            advice = "try again" if reason in _UNUSABLE_NOW else "the same request will end so again"
            raise BadResponseError(
                self._failures().provider,
                f"the model's answer can't be used ({reason}{': ' + message if message else ''}): {advice}",
                is_retryable=reason in _UNUSABLE_NOW,
                request_id=self._request_id,
            )
        stop_reason = _GEMINI_STOP_REASONS.get(reason)
        if stop_reason is None:
            # Not the reason of a complete answer: it truncates a call.
            metadata["finishReason"], stop_reason = reason, "max_tokens" if self._calls else "end_turn"
        return ChatResponse(
            message=AssistantMessage(self._content),
            usage=decode_gemini_usage(self.answer.get("usageMetadata"), self.candidate.get("groundingMetadata")),
            stop_reason="tool_use" if self._calls and stop_reason == "end_turn" else stop_reason,
            model=as_text(self.answer.get("modelVersion")),
            request_id=self._request_id or as_text(self.answer.get("responseId")) or None,
            metadata=metadata,
            unanswered=self._find_unanswered(),
        )

    def _find_unanswered(self) -> tuple[UnansweredItem, ...]:
        """Return the calls of kinds that are not known yet, where no response to them stands beside them."""
        answered = {(kind, as_text(value.get("id"))) for kind, value in self._other if kind.endswith("Response")}
        return tuple(
            [
                UnansweredItem(kind, as_text(value.get("id")), as_text(value.get("name")))
                for kind, value in self._other
                if kind.endswith("Call")
                and kind not in _GEMINI_SERVER_PARTS
                and (f"{kind.removesuffix('Call')}Response", as_text(value.get("id"))) not in answered
            ]
        )

    def _check_feedback(self, feedback: Mapping[str, Any]) -> None:
        if reason := as_text(feedback.get("blockReason")):
            message = as_text(feedback.get("blockReasonMessage")) or "Google says no more"
            raise ContentFilteredError(
                self._failures().provider,
                f"the content filter refused the request ({reason}): {message}; change the request",
                request_id=self._request_id,
            )

    def _read_part(self, part: Mapping[str, Any]) -> Iterator[StreamEvent]:
        signature = as_text(part.get("thoughtSignature"))
        if "functionCall" in part:
            self._end_text()
            yield self._read_call(as_mapping(part["functionCall"]), signature)
            return
        if isinstance(part.get("text"), str):
            yield from self._add_text(part["text"], is_thought=bool(part.get("thought")))
            if signature and part.get("thought") and self._spoken:
                self._content.append(
                    ReasoningBlock(text="".join(self._spoken), encrypted=_seal_part(thoughtSignature=signature))
                )
                self._spoken = []
                return
        elif media := _read_inline_media(part):
            self._end_text()
            self._content.append(media)
        else:
            self._end_text()
            self._content.append(ReasoningBlock(encrypted=_seal_part(part=dict(part))))
            self._other += [(kind, as_mapping(value)) for kind, value in part.items()]
            return
        if signature:
            self._end_text()
            self._content.append(ReasoningBlock(encrypted=_seal_part(thoughtSignature=signature)))

    def _read_call(self, call: Mapping[str, Any], signature: str) -> ArgumentsDelta:
        if "partialArgs" in call or call.get("willContinue"):
            raise BadResponseError(
                self._failures().provider,
                "the arguments of a call came in pieces, which is only understood of whole ones: leave "
                "stream_function_call_arguments out of the options",
                request_id=self._request_id,
            )
        name = as_text(call.get("name"))
        arguments = json.dumps(as_mapping(call.get("args")), ensure_ascii=False)
        # As in Google's endpoint for chat completions, so that a transcript may continue there.
        extra = {"extra_content": {GEMINI_SEAL: {"thought_signature": signature}}} if signature else None
        made = ToolCall(as_text(call.get("id")), self._names.get(name, name), arguments, extra=extra)
        self._content.append(made)
        self._calls += 1
        return ArgumentsDelta(self._calls - 1, made.id, made.name, arguments)

    def _add_text(self, text: str, *, is_thought: bool) -> Iterator[StreamEvent]:
        if not text:
            return
        if is_thought != self._is_thought:
            self._end_text()
            self._is_thought = is_thought
        self._spoken.append(text)
        yield ReasoningDelta(text) if is_thought else TextDelta(text)

    def _end_text(self) -> None:
        """Make a block of the text since the last one."""
        if self._spoken:
            text = "".join(self._spoken)
            self._content.append(ReasoningBlock(text=text) if self._is_thought else TextBlock(text))
            self._spoken = []


def _seal_part(**data: Any) -> str:
    return sealed(GEMINI_SEAL, data)


def _read_inline_media(part: Mapping[str, Any]) -> ImageBlock | AudioBlock | FileBlock | None:
    data = as_mapping(part.get("inlineData"))
    file = as_mapping(part.get("fileData"))
    if not data and not file:
        return None
    media_type = as_text((data or file).get("mimeType")) or "application/octet-stream"
    content = as_bytes(data.get("data")) if data else None
    url = as_text(file.get("fileUri")) or None
    name = as_text((data or file).get("displayName")) or "file"
    if media_type.startswith("image/"):
        return ImageBlock(content, media_type=media_type, url=url)
    if media_type.startswith("audio/") and content is not None:
        return AudioBlock(content, media_type=media_type)
    return FileBlock(content, name=name, media_type=media_type, url=url)
