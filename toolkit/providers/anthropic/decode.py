"""Answers from Anthropic's messages, whole or in events: pure functions.

Compatible servers leave fields out, so nothing of an answer is taken for granted. Blocks without a counterpart here
(calls of tools that run at Anthropic, and their results) are sealed in a `ReasoningBlock` and sent back as they
came. A turn that the server pauses is continued, and its parts are joined to one answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
    AssistantContent,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
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
from toolkit.providers.anthropic.encode import ANTHROPIC_SEAL
from toolkit.providers.dialect import sealed
from toolkit.providers.encoding import as_count, as_items, as_key, as_mapping, as_text, usage_details
from toolkit.providers.failures import Failures

PAUSED = ("pause_turn", "compaction")
"""The reason for which the server pauses a turn; another request continues it."""
_ANTHROPIC_STOP_REASONS: Mapping[str, StopReason] = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded", *PAUSED), "max_tokens"),
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
}
_ANTHROPIC_SERVER_BLOCKS = frozenset({"server_tool_use", "mcp_tool_use"})
_SAID = frozenset({"text", "thinking", "tool_use"})
_ANTHROPIC_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_ANTHROPIC_METADATA = ("id", "stop_sequence", "stop_details", "container", "diagnostics")
_USAGE_METADATA = ("service_tier", "server_tool_use", "speed", "inference_geo")


def continue_request(request: ChatRequest, response: ChatResponse) -> ChatRequest | None:
    """Return the request that continues a paused turn; None if the turn is over, or waits for results."""
    if response.metadata.get("stop_reason") not in PAUSED or response.tool_calls or response.unanswered:
        return None
    options = dict(request.options)
    if container := as_mapping(response.metadata.get("container")).get("id"):
        options.setdefault("container", container)  # what its tools have made is in there
    return replace(request, messages=[*request.messages, response.message], options=options)


def join_replies(earlier: ChatResponse, later: ChatResponse) -> ChatResponse:
    """Return the parts of a turn as one: all content and usage, and other fields from the later part."""
    metadata: dict[str, Any] = {**earlier.metadata, **later.metadata}
    if later.metadata.get("stop_reason") is None:
        metadata.pop("stop_reason", None)
    if citations := [*earlier.metadata.get("citations", ()), *later.metadata.get("citations", ())]:
        metadata["citations"] = citations
    if used := _add_counts(earlier.metadata.get("server_tool_use"), later.metadata.get("server_tool_use")):
        metadata["server_tool_use"] = used
    metadata["requests"] = earlier.metadata.get("requests", 1) + 1
    message = AssistantMessage([*earlier.message.content, *later.message.content])
    unanswered = (*earlier.unanswered, *later.unanswered)
    return replace(later, message=message, usage=earlier.usage + later.usage, metadata=metadata, unanswered=unanswered)


def _add_counts(earlier: object, later: object) -> Mapping[str, int]:
    both = [as_mapping(earlier), as_mapping(later)]
    return {name: sum([as_count(each.get(name)) or 0 for each in both]) for name in {**both[0], **both[1]}}


def decode_message(
    answer: Mapping[str, Any],
    failures: Callable[[], Failures],
    names: Mapping[str, str],
    *,
    request_id: str | None = None,
) -> ChatResponse:
    """Return a message as an answer.

    Args:
        answer: The reply of the server.
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the message's own id is taken.

    Raises:
        BadResponseError: There is no answer in it.
        ProviderError: It tells of a failure.
    """
    if error := answer.get("error"):
        raise failures().reported(error, request_id=request_id)
    if not isinstance(answer.get("content"), list):
        raise failures().empty("content", request_id=request_id)
    reply = _AnthropicReply(names)
    reply.learn(answer)
    for index, block in enumerate(as_items(answer.get("content"))):
        for _ in reply.begin(index, block):
            pass
    return reply.finish(request_id)


class AnthropicStreamDecoder:
    """Turns the events of a message into ours: `feed` each one, then `finish`.

    Args:
        failures: Makes errors.
        names: The tools' own names by those on the wire, where they differ.
        request_id: From the headers; else the message's own id is taken.
    """

    def __init__(
        self, failures: Callable[[], Failures], names: Mapping[str, str], *, request_id: str | None = None
    ) -> None:
        self._failures = failures
        self._request_id = request_id
        self._reply = _AnthropicReply(names)
        self._is_complete = False

    @property
    def usage(self) -> Usage:
        """The usage that the answer tells, as far as it does."""
        return decode_anthropic_usage(self._reply.usage)

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of an event.

        Raises:
            ProviderError: It tells of a failure.
            ValueError: It is not JSON.
        """
        event = as_mapping(from_json(data))
        match event.get("type"):
            case "content_block_delta":
                yield from self._reply.more(as_key(event.get("index")), as_mapping(event.get("delta")))
            case "content_block_start":
                yield from self._reply.begin(as_key(event.get("index")), as_mapping(event.get("content_block")))
            case "content_block_stop":
                yield from self._reply.end(as_key(event.get("index")))
            case "message_start":
                self._reply.learn(as_mapping(event.get("message")))
            case "message_delta":
                delta = as_mapping(event.get("delta"))
                self._is_complete = self._is_complete or bool(delta.get("stop_reason"))
                self._reply.learn({**delta, "usage": event.get("usage")})
                yield from self._reply.explain()
            case "message_stop":
                self._is_complete = True
            case kind if kind == "error" or event.get("error"):
                raise self._failures().reported(event.get("error") or event, request_id=self._request_id)
            case _:
                pass  # a ping, or an unknown event

    def finish(self) -> ResponseDone:
        """Return the end, with the whole answer.

        Raises:
            ProviderError: The stream ended before the answer did; the same request may work.
        """
        if not self._is_complete:
            raise self._failures().cut_off(request_id=self._request_id)
        return ResponseDone(self._reply.finish(self._request_id))


def decode_anthropic_usage(usage: object) -> Usage:
    """Return the usage that an answer tells; zeros where the server did not say."""
    reported = as_mapping(usage)
    read = as_count(reported.get("cache_read_input_tokens"))
    wrote = as_count(reported.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=(as_count(reported.get("input_tokens")) or 0) + (read or 0) + (wrote or 0),
        output_tokens=as_count(reported.get("output_tokens")) or 0,
        reasoning_tokens=as_count(as_mapping(reported.get("output_tokens_details")).get("thinking_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        details=usage_details(
            cache_write_1h_tokens=as_count(as_mapping(reported.get("cache_creation")).get("ephemeral_1h_input_tokens")),
            web_searches=as_count(as_mapping(reported.get("server_tool_use")).get("web_search_requests")),
        ),
    )


class _Block:
    """A block as far as it has come: how it began, and the pieces since."""

    __slots__ = ("began", "citations", "kind", "number", "pieces", "signature")

    def __init__(self, began: Mapping[str, Any], number: int) -> None:
        self.began = began
        self.kind = as_text(began.get("type"))
        self.number = number
        self.pieces: list[str] = []
        self.signature = [as_text(began.get("signature"))]
        self.citations: list[Any] = list(as_items(began.get("citations")))

    @property
    def is_incomplete(self) -> bool:
        """True where it is something of a tool at Anthropic's whose input was cut off: it can't be sent back."""
        if self.kind in _SAID or not self.pieces:
            return False
        try:
            from_json("".join(self.pieces))
        except ValueError:
            return True
        return False


class _AnthropicReply:
    """An answer as far as it has come. A whole message is read as blocks that are complete when they begin."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._blocks: dict[int | str | None, _Block] = {}
        self._calls = 0
        self._has_text = False
        self._metadata: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}

    def learn(self, fields: Mapping[str, Any]) -> None:
        """Store the fields outside the blocks; later values replace earlier ones."""
        self._metadata |= {name: value for name, value in fields.items() if value is not None}
        self.usage |= {name: value for name, value in as_mapping(fields.get("usage")).items() if value is not None}

    def begin(self, index: int | str | None, began: Mapping[str, Any]) -> Iterator[StreamEvent]:
        block = self._blocks[index] = _Block(began, self._calls)
        match block.kind:
            case "text":
                yield from self._add_text(block, TextDelta, began.get("text"))
            case "thinking":
                yield from self._add_text(block, ReasoningDelta, began.get("thinking"))
            case "tool_use":
                self._calls += 1
                arguments = began.get("input")
                yield self._add_arguments(block, json.dumps(arguments, ensure_ascii=False) if arguments else "")
            case _:
                pass

    def more(self, index: int | str | None, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        block = self._blocks.get(index)
        if block is None:
            return
        match delta.get("type"):
            case "text_delta":
                yield from self._add_text(block, TextDelta, delta.get("text"))
            case "input_json_delta" if block.kind == "tool_use":
                yield self._add_arguments(block, as_text(delta.get("partial_json")))
            case "input_json_delta":
                block.pieces.append(as_text(delta.get("partial_json")))
            case "thinking_delta":
                yield from self._add_text(block, ReasoningDelta, delta.get("thinking"))
            case "signature_delta":
                block.signature.append(as_text(delta.get("signature")))
            case "citations_delta":
                block.citations.append(delta.get("citation"))
            case _:
                pass

    def end(self, index: int | str | None) -> Iterator[StreamEvent]:
        """Complete a call for which the server sent no arguments with empty ones."""
        block = self._blocks.get(index)
        if block is not None and block.kind == "tool_use" and not any(block.pieces):
            yield self._add_arguments(block, "{}")

    def explain(self) -> Iterator[StreamEvent]:
        """Give the reason of a refusal if the model gave none itself."""
        if text := self._find_explanation():
            yield TextDelta(text)

    def finish(self, request_id: str | None) -> ChatResponse:
        reason = as_text(self._metadata.get("stop_reason"))
        stop_reason = _ANTHROPIC_STOP_REASONS.get(reason, "tool_use" if self._calls else "end_turn")
        blocks = [block for block in self._blocks.values() if stop_reason != "max_tokens" or not block.is_incomplete]
        content = self._build_content(blocks)
        metadata = {name: self._metadata[name] for name in _ANTHROPIC_METADATA if self._metadata.get(name)}
        metadata |= {name: self.usage[name] for name in _USAGE_METADATA if self.usage.get(name)}
        if citations := [citation for block in self._blocks.values() for citation in block.citations]:
            metadata["citations"] = citations
        if reason in ("model_context_window_exceeded", *PAUSED):
            metadata["stop_reason"] = reason
        container = as_text(as_mapping(self._metadata.get("container")).get("id"))
        if container and reason not in PAUSED:
            content.append(ReasoningBlock(encrypted=sealed(ANTHROPIC_SEAL, {"container": container})))
        return ChatResponse(
            message=AssistantMessage(content),
            usage=decode_anthropic_usage(self.usage),
            stop_reason=stop_reason,
            model=as_text(self._metadata.get("model")),
            request_id=request_id or as_text(self._metadata.get("id")) or None,
            metadata=metadata,
            unanswered=_find_unanswered(blocks),
        )

    def _build_content(self, blocks: Sequence[_Block]) -> list[AssistantContent]:
        content: list[AssistantContent] = []
        spoken: list[str] = []  # a text with citations comes in blocks that are cut in the middle of sentences
        for block in blocks:
            if block.kind == "text":
                spoken += block.pieces
                continue
            if spoken:
                content.append(TextBlock("".join(spoken)))
                spoken = []
            content.append(self._build_block(block))
        if spoken := spoken or [text for text in [self._find_explanation()] if text]:
            content.append(TextBlock("".join(spoken)))
        return content

    def _add_text(
        self, block: _Block, event: type[TextDelta] | type[ReasoningDelta], value: object
    ) -> Iterator[StreamEvent]:
        if text := as_text(value):
            block.pieces.append(text)
            self._has_text = self._has_text or block.kind == "text"
            yield event(text)

    def _add_arguments(self, block: _Block, text: str) -> ArgumentsDelta:
        block.pieces.append(text)
        return ArgumentsDelta(block.number, as_text(block.began.get("id")), self._find_own_name(block), text)

    def _find_own_name(self, block: _Block) -> str:
        name = as_text(block.began.get("name"))
        return self._names.get(name, name)

    def _find_explanation(self) -> str:
        return "" if self._has_text else as_text(as_mapping(self._metadata.get("stop_details")).get("explanation"))

    def _build_block(self, block: _Block) -> AssistantContent:
        text = "".join(block.pieces)
        match block.kind:
            case "thinking":
                return ReasoningBlock(text=text, signature="".join(block.signature) or None)
            case "tool_use":
                data = {name: value for name, value in block.began.items() if name not in _ANTHROPIC_CALL_FIELDS}
                data = {name: value for name, value in data.items() if value not in (None, {"type": "direct"})}
                extra = {ANTHROPIC_SEAL: data} if data else None
                return ToolCall(as_text(block.began.get("id")), self._find_own_name(block), text or "{}", extra=extra)
            case _:
                data = dict(block.began)
                if text:
                    data["input"] = from_json(text)
                return ReasoningBlock(encrypted=sealed(ANTHROPIC_SEAL, data))


def _find_unanswered(blocks: Sequence[_Block]) -> tuple[UnansweredItem, ...]:
    """Return the calls that are neither ours nor those of tools at Anthropic's, and have no result beside them."""
    answered = {as_text(block.began.get("tool_use_id")) for block in blocks}
    return tuple(
        [
            UnansweredItem(block.kind, as_text(block.began.get("id")), as_text(block.began.get("name")))
            for block in blocks
            if block.kind.endswith("_tool_use")
            and block.kind not in _ANTHROPIC_SERVER_BLOCKS
            and as_text(block.began.get("id")) not in answered
        ]
    )
