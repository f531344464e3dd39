"""Gemini, by the Gemini API and by Vertex AI, on the official SDK: the provider, its requests and its answers.

The SDK knows addresses, keys, tokens of Vertex AI and the words of its settings. It drafts the requests and is stopped
where it would send: its own sending is bound to asyncio, writes the whole history anew for each request, and leaves
streams open that are not read to their end. Of what differs between formats (`toolkit.providers.encoding`):

- The system messages at the beginning are a setting; a later one is marked text of the user.
- Roles alternate and the user begins.
- A result is text, under ``output`` or, of a failed call, ``error``. Images and PDFs are parts of it for Gemini 3 and
  later; what it can't hold follows the last result of the turn.
- Google's own tools beside functions want a flag, which is set for Gemini 3 and later.
- Parts without a counterpart here (thought signatures, code that the model ran) are sealed in a `ReasoningBlock` at
  their place and go back as they came. A call from another provider has no signature; Gemini 3 and later refuse that,
  unless a placeholder takes its place.
- There is no setting for parallel calls: a request for one call at a time says so in the system text.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, assert_never, cast

import anyio
import httpx2
import sniffio
from pydantic_core import from_json

from toolkit.chat import (
    AssistantContent,
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    ChatResponse,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UnansweredItem,
    Usage,
    UserMessage,
)
from toolkit.chat.request import Capabilities, describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import (
    BadResponseError,
    ConfigurationError,
    ContentFilteredError,
    ProviderAuthError,
    naming_extra,
)
from toolkit.http_client import BoundedClient, origin_of
from toolkit.providers.adapter import (
    MOST_CONNECTIONS,
    Adapter,
    Decoder,
    Exchange,
    PartialCall,
    checked_key,
    is_home,
    is_loopback,
    key_for,
    post_plainly,
)
from toolkit.providers.encoding import (
    BEGINNING_LEFT_OUT,
    ONE_AT_A_TIME,
    USER,
    Dialect,
    EncodedOnce,
    JsonObject,
    arguments_object,
    as_bytes,
    as_count,
    as_items,
    as_mapping,
    as_text,
    as_user_text,
    assemble_body,
    checked_choice,
    checked_message,
    encode_tools_once,
    file_text,
    join_by_role,
    join_list,
    result_text,
    sealed,
    source_of,
    split_system,
    stop_texts,
    to_bytes,
    unsealed,
    usage_details,
)
from toolkit.redaction import without_credentials
from toolkit.runtime.backend import LoopLocal
from toolkit.schema import project_gemini
from toolkit.settings import Duration

with naming_extra("google"):
    import google.auth.exceptions
    from google.auth.credentials import Credentials
    from google.genai import Client
    from google.genai.types import GenerateContentConfig, HttpOptions

__all__ = ["GoogleProvider"]

GEMINI_DIALECT = Dialect(tool_name=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*"))
GEMINI_SEAL = "google"

_MERGED_SETTINGS = ("tool_config", "thinking_config")
_GEMINI_OPENING = to_bytes({"text": BEGINNING_LEFT_OUT}, "text")
_OLD_GEMINI = re.compile(r"(models/)?(gemini-[12]|gemma)")
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf"})
_SHOWS_SERVER_TOOLS = "include_server_side_tool_invocations"
_NO_SIGNATURE = "skip_thought_signature_validator"  # Google's word for a call that another model made
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}
_GeminiBytes: TypeAlias = tuple[bytes, bytes, bytes]
"""The role of a message, its parts, and its attachments, with commas between."""


def is_new_gemini(model: str) -> bool:
    """Return whether a model is Gemini 3 or later: it wants signatures, and takes media in results."""
    return _OLD_GEMINI.match(model) is None


@dataclass(frozen=True, slots=True)
class GeminiContent:
    """The parts of a message, and those that a result can't hold, which follow the turn's last result."""

    parts: Sequence[JsonObject]
    attachments: Sequence[JsonObject] = ()


class GenerateEncoder:
    """Encodes the requests of one provider, each message and each tool once."""

    def __init__(self, *, model: str, defaults: Mapping[str, Any], is_vertex: bool = False) -> None:
        self._defaults = dict(defaults)
        self._is_new = is_new_gemini(model)
        self._is_vertex = is_vertex
        self._messages = EncodedOnce(self._encode_once, size_of=lambda encoded: sum(map(len, encoded)))
        self._tools = encode_tools_once(encode_gemini_tool)

    def settings(self, request: ChatRequest) -> JsonObject:
        """Return the settings of the request other than contents and tools, as a ``GenerateContentConfig``.

        The `options` go over everything, those of `tool_config` and `thinking_config` one by one; None takes a setting
        away.
        """
        system, _ = split_system(request.messages)
        if request.tools and request.parallel_tool_calls is False:
            system = f"{system}\n\n{ONE_AT_A_TIME}".strip()
        settings: JsonObject = {
            "system_instruction": system or None,
            "temperature": request.temperature,
            "max_output_tokens": request.max_tokens,
            "seed": request.seed,
            "stop_sequences": stop_texts(request.stop),
            "tool_config": _encode_tool_config(request),
            "thinking_config": self._encode_gemini_thinking(request.reasoning_effort),
        }
        if request.response_format is not None:
            schema = dict(request.response_format.schema)
            settings |= {"response_mime_type": "application/json", "response_json_schema": schema}
        merged = dict(self._defaults)
        for over in ({name: value for name, value in settings.items() if value is not None}, request.options):
            for name, value in over.items():
                merged[name] = (
                    {**as_mapping(merged.get(name)), **value} if name in _MERGED_SETTINGS and value else value
                )
        if merged.get("tools") and request.tools and self._is_new and not self._is_vertex:
            merged["tool_config"] = {_SHOWS_SERVER_TOOLS: True, **as_mapping(merged.get("tool_config"))}
        return {name: value for name, value in merged.items() if value is not None}

    def body(self, request: ChatRequest, settings: Mapping[str, Any]) -> bytes:
        """Return the body of a request with its settings as the wire has them."""
        _, messages = split_system(request.messages)
        members = {"contents": self._join_messages(_name_results(messages))}
        tools = [to_bytes(tool, "a tool") for tool in settings.get("tools", ())]
        if request.tools:
            tools.append(b'{"functionDeclarations":' + join_list(self._tools.all_of(request.tools)) + b"}")
        if tools:
            members["tools"] = join_list(tools)
        return assemble_body({name: value for name, value in settings.items() if name not in members}, members)

    def _encode_gemini_thinking(self, effort: str | None) -> JsonObject | None:
        if effort is None:
            return None
        if effort not in _BUDGETS:
            raise ConfigurationError(f"reasoning_effort is '{effort}', which is not one of: {', '.join(_BUDGETS)}")
        if self._is_new:
            return {"thinking_level": "MINIMAL" if effort == "none" else effort.upper()}
        return {"thinking_budget": _BUDGETS[effort]}

    def _join_messages(self, messages: Sequence[Message]) -> bytes:
        joined = join_by_role(
            _order_parts(messages, self._messages.all_of(messages)), field=b"parts", opening=_GEMINI_OPENING
        )
        if joined == b"[]":
            raise ConfigurationError("there is nothing to answer: Gemini wants a message of the user")
        return joined

    def _encode_once(self, message: Message) -> _GeminiBytes:
        encoded = encode_gemini_message(checked_message(message), is_new=self._is_new)
        subject = f"the {message.role} message"
        role = b"model" if isinstance(message, AssistantMessage) else USER
        return role, to_bytes(encoded.parts, subject)[1:-1], to_bytes(encoded.attachments, subject)[1:-1]


def encode_gemini_message(message: Message, *, is_new: bool = True) -> GeminiContent:
    """Return the parts that a message is on the wire; the same for the same message. A result needs its `tool_name`.

    Gemini 3 and later are new: they refuse calls without a signature and take media in results.
    """
    match message:
        case SystemMessage():
            return GeminiContent([{"text": as_user_text(message)}])
        case UserMessage():
            blocks = (TextBlock(message.content),) if isinstance(message.content, str) else message.content
            return GeminiContent([_encode_gemini_part(block) for block in blocks if not _is_empty(block)])
        case AssistantMessage():
            parts = _encode_gemini_assistant(message)
            calls = [part for part in parts if "functionCall" in part]
            if is_new and calls and not any("thoughtSignature" in part for part in calls):
                calls[0]["thoughtSignature"] = _NO_SIGNATURE
            return GeminiContent(parts)
        case ToolResult():
            return _encode_gemini_result(message, is_new=is_new)
        case _:
            assert_never(message)


def encode_gemini_tool(definition: ToolDefinition) -> JsonObject:
    """Return a tool as the wire has it."""
    description = describe_with_hints(definition)
    tool: JsonObject = {"name": GEMINI_DIALECT.tool_name_of(definition.name), "description": description}
    if definition.hints is not None and definition.hints.shows_output_schema and definition.output_schema is not None:
        tool["responseJsonSchema"] = definition.output_schema
    parameters = project_gemini(definition.parameters)
    if parameters.get("properties"):
        return {**tool, "parameters": parameters}
    # The API refuses an object without properties; its description stays, for the model to read.
    texts = filter(None, (description, parameters.get("description")))
    return {**tool, "description": " ".join(texts)}


def _encode_tool_config(request: ChatRequest) -> JsonObject | None:
    tools = request.tools or ()
    choice = checked_choice(request.tool_choice, tools)
    if not tools:
        return None
    calling: JsonObject
    match choice:
        case "auto" if any(tool.strict for tool in tools):
            calling = {"mode": "VALIDATED"}
        case "auto":
            return None
        case "none":
            calling = {"mode": "NONE"}
        case "required":
            calling = {"mode": "ANY"}
        case "one":
            calling = {"mode": "ANY", "allowed_function_names": [GEMINI_DIALECT.tool_name_of(request.tool_choice)]}
        case _:
            assert_never(choice)
    return {"function_calling_config": calling}


def _name_results(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with the tool's name in each result: Gemini wants it there."""
    if all(message.tool_name for message in messages if isinstance(message, ToolResult)):
        return messages
    names: dict[str, str] = {}
    named: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            names |= {call.id: call.name for call in message.tool_calls}
        elif isinstance(message, ToolResult) and not message.tool_name:
            named.append(replace(message, tool_name=names.get(message.call_id, "unknown")))
            continue
        named.append(message)
    return named


def _order_parts(messages: Sequence[Message], encoded: Sequence[_GeminiBytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield who speaks and what; attachments come after the last result of a turn."""
    waiting: list[bytes] = []
    for message, (role, parts, attachments) in zip(messages, encoded, strict=True):
        if waiting and not isinstance(message, ToolResult):
            yield USER, b",".join(waiting)
            waiting = []
        yield role, parts
        if attachments:
            waiting.append(attachments)
    yield USER, b",".join(waiting)


def _is_empty(block: object) -> bool:
    return isinstance(block, TextBlock) and not block.text


def _encode_gemini_part(block: ContentBlock) -> JsonObject:
    match block:
        case TextBlock():
            return {"text": block.text}
        case AudioBlock():
            return _encode_data_part(block.data, block.media_type)
        case ImageBlock():
            return _encode_source_part(block)
        case FileBlock():
            text = None if block.data is None else file_text(block)
            return _encode_source_part(block) if text is None else {"text": text}
        case _:
            assert_never(block)


def _encode_source_part(block: ImageBlock | FileBlock) -> JsonObject:
    source = source_of(block)
    if isinstance(source, str):
        return {"fileData": {"fileUri": source, "mimeType": block.media_type}}
    return _encode_data_part(source, block.media_type)


def _encode_data_part(data: bytes, media_type: str) -> JsonObject:
    return {"inlineData": {"mimeType": media_type, "data": b64encode(data).decode()}}


def _encode_gemini_result(result: ToolResult, *, is_new: bool) -> GeminiContent:
    call_id = GEMINI_DIALECT.call_id_of(result.call_id)
    name = GEMINI_DIALECT.tool_name_of(result.tool_name)
    blocks = () if isinstance(result.content, str) or not is_new else result.content
    held = [block for block in blocks if _fits_in_result(block)]
    rest = replace(result, is_error=False)
    if held and not isinstance(result.content, str):
        rest = replace(rest, content=tuple([block for block in result.content if not _fits_in_result(block)]))
    output = result_text(rest, name=name, call_id=call_id)
    response: JsonObject = {"id": call_id, "name": name}
    response["response"] = {"error" if result.is_error else "output": output.text}
    if held:
        response["parts"] = [_encode_gemini_part(block) for block in held]
    return GeminiContent([{"functionResponse": response}], [_encode_gemini_part(block) for block in output.attachments])


def _fits_in_result(block: ContentBlock) -> bool:
    return isinstance(block, ImageBlock | FileBlock) and block.data is not None and block.media_type in _IN_RESULTS


def _encode_gemini_assistant(message: AssistantMessage) -> list[JsonObject]:
    parts: list[JsonObject] = []
    for block in message.content:
        match block:
            case ToolCall():
                parts.append(_encode_gemini_call(block))
            case ReasoningBlock():
                for data in _encode_gemini_reasoning(block):
                    if parts and set(data) == {"thoughtSignature"} and set(parts[-1]) == {"inlineData"}:
                        parts[-1] |= data
                    else:
                        parts.append({"text": "", **data} if set(data) == {"thoughtSignature"} else data)
            case _:
                if not _is_empty(block):
                    parts.append(_encode_gemini_part(block))
    return parts


def _encode_gemini_call(call: ToolCall) -> JsonObject:
    function = {
        "id": GEMINI_DIALECT.call_id_of(call.id),
        "name": GEMINI_DIALECT.tool_name_of(call.name),
        "args": arguments_object(call.arguments),
    }
    content = as_mapping((call.extra or {}).get("extra_content"))
    signature = as_text(as_mapping(content.get(GEMINI_SEAL)).get("thought_signature"))
    return {"functionCall": function, **({"thoughtSignature": signature} if signature else {})}


def _encode_gemini_reasoning(block: ReasoningBlock) -> Iterator[JsonObject]:
    """Yield the parts that the decoder sealed; nothing for another provider's."""
    data = unsealed(GEMINI_SEAL, block.encrypted or "")
    if data is None:
        return
    if isinstance(data.get("part"), dict):
        yield cast("JsonObject", data["part"])
    elif block.text:
        yield {"text": block.text, "thought": True, **data}
    else:
        yield data


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
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_PATH = re.compile(rf"\$(?:{_STEP.pattern})+")
_QUOTE = '"'
_GEMINI_METADATA = ("citationMetadata", "finishMessage", "groundingMetadata", "safetyRatings", "urlContextMetadata")


def decode_gemini_usage(usage: object, grounding: object = None) -> Usage:
    """Return the usage of an answer, zeros where none was reported; the candidate's grounding names the searches."""
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


class PartialArguments:
    """Writes arguments as JSON while their values come, each with its path: ``$.places[0].name``.

    Values come in the order of the text: what an object or a list holds comes together.
    """

    def __init__(self) -> None:
        self._path: tuple[str | int, ...] = ()
        self._written: set[tuple[str | int, ...]] = set()
        self._is_text_open = False

    @property
    def has_begun(self) -> bool:
        """True where a value has come."""
        return bool(self._path)

    def write(self, piece: Mapping[str, Any]) -> str:
        """Return the JSON of a piece, which continues where the one before ended; raise where its path goes back."""
        path = _read_path(as_text(piece.get("jsonPath")))
        text = piece.get("stringValue")
        goes_on = self._is_text_open and path == self._path
        begun = "" if goes_on else self._close_text() + self._move_to_path(path)
        if not isinstance(text, str):
            self._is_text_open = False
            value = next((piece[name] for name in ("numberValue", "boolValue") if name in piece), None)
            return begun + ("" if goes_on else json.dumps(value))
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        self._is_text_open = bool(piece.get("willContinue"))
        return f"{begun}{'' if goes_on else _QUOTE}{escaped}{'' if self._is_text_open else _QUOTE}"

    def finish(self) -> str:
        """Return the end of the JSON."""
        if not self._path:
            return "{}"
        return self._close_text() + _close_containers(self._path, 0)

    def _close_text(self) -> str:
        was_open, self._is_text_open = self._is_text_open, False
        return _QUOTE if was_open else ""

    def _move_to_path(self, path: tuple[str | int, ...]) -> str:
        """Return the JSON between the last value and one at a path."""
        before, self._path = self._path, path
        shared = 0
        while shared < min(len(before), len(path)) and before[shared] == path[shared]:
            shared += 1
        started = [path[: end + 1] for end in range(shared, len(path))]
        is_inside = bool(before) and shared == len(before)
        if not started or is_inside or started[0] in self._written or not _is_next(before[shared:], path[shared:]):
            raise ValueError(f"the arguments of a call are out of order at {path}")
        self._written.update(started)
        pieces = [_close_containers(before, shared + 1), ", "] if before else ["{"]
        for depth, name in enumerate(path[shared:]):
            if depth:
                pieces.append("[" if isinstance(name, int) else "{")
            if isinstance(name, str):
                pieces += [json.dumps(name, ensure_ascii=False), ": "]
        return "".join(pieces)


def _read_path(text: str) -> tuple[str | int, ...]:
    if not _PATH.fullmatch(text):
        raise ValueError(f"'{text}' is no path of an argument")
    return tuple([_read_step(*step) for step in _STEP.findall(text)])


def _read_step(plain: str, index: str, single: str, double: str) -> str | int:
    if index or plain:
        return int(index) if index else plain
    escaped = double or single.replace("\\'", "'").replace('"', '\\"')
    return str(json.loads(f'"{escaped}"'))


def _is_next(before: Sequence[str | int], path: Sequence[str | int]) -> bool:
    """Return whether the items of lists follow one another on the way to a path, the first of them by those before."""
    if before and isinstance(before[0], int) != isinstance(path[0], int):
        return False
    counts = [before[0] + 1 if before and isinstance(before[0], int) else 0, *[0] * len(path)]
    return all(isinstance(name, str) or name == count for name, count in zip(path, counts, strict=False))


def _close_containers(path: Sequence[str | int], start: int) -> str:
    return "".join(["]" if isinstance(name, int) else "}" for name in reversed(path[start:])])


class GeminiDecoder(Decoder[Mapping[str, str]]):
    """Puts an answer together from its pieces; a whole one is read as one large piece.

    It is read by the tools' own names by those on the wire, where they differ.
    """

    def _begin_answer(self) -> None:
        self._candidate: dict[str, Any] = {}
        self._answer: dict[str, Any] = {}
        self._content: list[AssistantContent] = []
        self._spoken: list[str] = []
        self._is_thought = False
        self._calls = 0
        self._open: tuple[PartialCall, PartialArguments] | None = None  # the call whose arguments come in pieces
        self._other: list[tuple[str, Mapping[str, Any]]] = []  # parts without a counterpart here

    @property
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""
        return decode_gemini_usage(self._answer.get("usageMetadata"), self._candidate.get("groundingMetadata"))

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the new deltas of a piece."""
        return self._read_piece(as_mapping(from_json(data)))

    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return the first candidate as an answer; a request that a filter refused is a `ContentFilteredError`."""
        for _ in self._read_piece(answer):
            pass
        if not self._candidate:
            raise self._failures().empty("candidates", request_id=self._request_id)
        return self._make_response()

    def _read_piece(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if error := piece.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        self._answer |= {name: value for name, value in piece.items() if name != "candidates" and value is not None}
        candidates = as_items(piece.get("candidates"))
        if not candidates:
            self._check_feedback(as_mapping(piece.get("promptFeedback")))
            return
        self._candidate |= {name: value for name, value in candidates[0].items() if value is not None}
        self._is_complete = bool(self._candidate.get("finishReason"))
        for part in as_items(as_mapping(candidates[0].get("content")).get("parts")):
            yield from self._read_part(part)

    def _make_response(self) -> ChatResponse:
        self._end_text()
        reason = as_text(self._candidate.get("finishReason"))
        if self._open is not None:  # the end of its arguments never came
            self._content.append(self._open[0].make_call())
            reason = "MAX_TOKENS"
        metadata = {name: self._candidate[name] for name in _GEMINI_METADATA if self._candidate.get(name)}
        if tier := as_text(as_mapping(self._answer.get("usageMetadata")).get("trafficType")):
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
            usage=self.usage,
            stop_reason="tool_use" if self._calls and stop_reason == "end_turn" else stop_reason,
            model=as_text(self._answer.get("modelVersion")),
            request_id=self._request_id or as_text(self._answer.get("responseId")) or None,
            metadata=metadata,
            unanswered=self._find_unanswered(),
        )

    def _find_unanswered(self) -> tuple[UnansweredItem, ...]:
        """Return the calls of kinds that are not known yet, that have no response in this answer."""
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
            yield from self._read_call(as_mapping(part["functionCall"]), signature)
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

    def _read_call(self, call: Mapping[str, Any], signature: str) -> Iterator[StreamEvent]:
        if self._open is None:
            name = as_text(call.get("name"))
            # As in Google's endpoint for chat completions, so that a transcript may continue there.
            extra = {"extra_content": {GEMINI_SEAL: {"thought_signature": signature}}} if signature else {}
            opened = PartialCall(self._calls, as_text(call.get("id")), self._reading.get(name, name), extra)
            self._open = opened, PartialArguments()
            self._calls += 1
        opened, arguments = self._open
        for piece in as_items(call.get("partialArgs")):
            yield opened.more(arguments.write(piece))
        if call.get("willContinue"):
            return
        whole = as_mapping(call.get("args"))
        is_whole = whole and not arguments.has_begun
        yield opened.more(json.dumps(whole, ensure_ascii=False) if is_whole else arguments.finish())
        self._content.append(opened.make_call())
        self._open = None

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


_GEMINI = ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")
_VERTEX = ("GOOGLE_VERTEX_BASE_URL", "https://aiplatform.googleapis.com")
_KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_VERTEX_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
_GOOGLE_HOSTS = ("googleapis.com",)
_DRAFT_HEADERS = frozenset({"accept-encoding", "content-length", "host"})


class GoogleProvider(Adapter):
    """Talks to a Gemini model: through the Gemini API with a key, or through Vertex AI with Google Cloud's credentials.

    ::

        async with GoogleProvider("gemini-3.8-flash") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``GoogleProvider("gemini-3.8-flash")`` needs ``GEMINI_API_KEY``. With a key it works on asyncio and on trio; the SDK
    gets Google Cloud's tokens on asyncio alone. It may be shared by tasks, and used in one event loop after another;
    connections are made at the first request and closed by `aclose` or by leaving ``async with``. It never retries by
    itself: the loop does.

    Each message is encoded once, however often it is sent. Thought signatures go back where they were, those of calls
    by way of `ToolCall.extra`. Gemini caches the beginning of a prompt by itself; ``cached_content`` in `options` names
    a cache that you have made.

    Args:
        model: The model's name.
        api_key: None takes ``GOOGLE_API_KEY``, else ``GEMINI_API_KEY``. A server on this machine needs none, and the
            variables are not sent there.
        base_url: Where the server is, without a version. None takes ``GOOGLE_GEMINI_BASE_URL``
            (``GOOGLE_VERTEX_BASE_URL`` for Vertex AI), else Google's own.
        api_version: The version in the address, such as ``v1beta``; None leaves it to ``GOOGLE_GENAI_API_VERSION``,
            else to the SDK.
        timeout: Seconds for a request that doesn't set its own, to the end of its answer; None waits forever.
        headers: Sent with each request.
        options: Settings for each request, as ``google.genai.types.GenerateContentConfigDict`` has them;
            `ChatRequest.options` go over them. A setting that is not known is an error at the first request.
        vertexai: True to use Vertex AI, False to use the Gemini API; None leaves it to ``GOOGLE_GENAI_USE_VERTEXAI``.
        project: The project at Google Cloud; None leaves it to the SDK.
        location: The location at Google Cloud; None leaves it to the SDK.
        credentials: Of Google Cloud; None takes the default ones of this machine.
        max_connections: The most connections of one event loop; more requests wait for one.
        name: The name in errors.
        http_client: A client of your own, for a proxy or certificates; it is not closed.

    Raises:
        ProviderAuthError: There is no key, and neither Vertex AI nor a server on this machine is asked for.
        ConfigurationError: The SDK refuses the combination of key, project, location and credentials.
    """

    _key_advice = "check the key: api_key or the environment variable GEMINI_API_KEY"
    _protocol = "an answer of Gemini's"
    _url_advice = "check base_url, which must not end in a version"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        timeout: Duration | None = 600,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        vertexai: bool | None = None,
        project: str | None = None,
        location: str | None = None,
        credentials: Credentials | None = None,
        max_connections: int = MOST_CONNECTIONS,
        name: str = "google",
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        if vertexai is None:
            vertexai = any(os.environ.get(variable, "").lower() in ("true", "1") for variable in _VERTEX_VARIABLES)
        self._is_vertex = vertexai
        variable, default_url = _VERTEX if self._is_vertex else _GEMINI
        base_url = base_url or os.environ.get(variable) or None
        super().__init__(
            model,
            name=name,
            base_url=base_url or default_url,
            timeout=timeout,
            headers=headers,
            max_connections=max_connections,
        )
        self._clients = LoopLocal(partial(BoundedClient, limits=self._limits, timeout=None), BoundedClient.aclose)
        self._is_address_given = base_url is not None
        if self._is_vertex:
            self._key_advice = "check the credentials of Google Cloud"
            self._check_home(has_credentials=bool(api_key or credentials))
            key = api_key
        else:
            key = api_key or key_for(
                self._base_url,
                name=name,
                variables=_KEY_VARIABLES,
                hosts=_GOOGLE_HOSTS,
                advice="; for Vertex AI pass vertexai=True",
            )
        self._api_key = None if key is None else checked_key(key, name)
        self._given_client = http_client
        self._encoder = GenerateEncoder(model=model, defaults=options or {}, is_vertex=self._is_vertex)
        self._drafts = self._make_drafts(
            api_version, {"project": project, "location": location, "credentials": credentials}
        )

    def _make_drafts(self, api_version: str | None, cloud: Mapping[str, Any]) -> Client:
        """Return the SDK's client, which makes requests and sends none; raise where it refuses the settings."""
        options = HttpOptions(
            base_url=self._base_url if self._is_address_given else None,
            api_version=api_version,
            headers=dict(self._headers),
            httpx_client=httpx2.Client(transport=_Stop()),  # otherwise the SDK creates an unused one
            httpx_async_client=httpx2.AsyncClient(transport=_Stop()),
        )
        try:
            return Client(api_key=self._api_key, vertexai=self._is_vertex, http_options=options, **cloud)
        except ValueError as error:
            raise ConfigurationError(f"Google's SDK refuses these settings: {error}") from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise ProviderAuthError(self.name, f"no credentials of Google Cloud: {error}") from error

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:  # noqa: ARG002 - the URL says it
        draft = await self._draft_request(self._encoder.settings(request), self._find_timeout(request))
        exchange = Exchange(
            send=partial(self._send_draft, draft), failures=self._make_failures, raised=httpx2.HTTPError
        )
        settings: dict[str, Any] = from_json(draft.content)
        del settings["contents"]
        return exchange, self._encoder.body(request, settings)

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> GeminiDecoder:
        return GeminiDecoder(self._make_failures, GEMINI_DIALECT.names_back(request.tools), request_id=request_id)

    def _list_capabilities(self, model: str) -> Capabilities:
        return Capabilities(
            media_in_results="native" if is_new_gemini(model) else "emulated",
            one_call_at_a_time="emulated",
            sound="native",
            files="native",
            output_schemas="native",
            source="https://ai.google.dev/api/generate-content",
        )

    async def _draft_request(self, settings: Mapping[str, Any], timeout: float | None) -> httpx2.Request:
        """Return the request with these settings, complete but for the contents."""
        if self._is_vertex and self._api_key is None and sniffio.current_async_library() != "asyncio":
            raise ConfigurationError("Google's SDK gets the tokens of Google Cloud on asyncio alone: pass an api_key")
        options = {**settings, "automatic_function_calling": {"disable": True}, "automatic_continuation": False}
        if timeout is not None:
            options.setdefault("http_options", {"timeout": max(1, int(timeout * 1000))})
        try:
            config = GenerateContentConfig.model_validate(options)
            with anyio.fail_after(timeout):  # a new token may have to be fetched
                await self._drafts.aio.models.generate_content(  # pyright: ignore[reportUnknownMemberType]
                    model=self.model, contents="-", config=config
                )
        except _DraftedError as drafted:
            self._check_address(str(drafted.request.url))
            return drafted.request
        except ValueError as error:
            raise ConfigurationError(f"Google's SDK refuses the settings of the request: {error}") from error
        except TimeoutError as error:
            raise self._make_failures().late(timeout or 0) from error
        except (google.auth.exceptions.GoogleAuthError, RuntimeError) as error:
            raise ProviderAuthError(self.name, f"no token of Google Cloud: {error}") from error
        raise AssertionError("the SDK sent no request")

    def _check_home(self, *, has_credentials: bool) -> None:
        """Refuse to send this machine's Google Cloud credentials to another host."""
        if not (has_credentials or is_loopback(self._base_url) or is_home(self._base_url, _GOOGLE_HOSTS)):
            raise ProviderAuthError(
                self.name,
                f"no credentials for {without_credentials(self._base_url)}: those of this machine go to Google alone; "
                "pass credentials or api_key",
            )

    def _check_address(self, url: str) -> None:
        """Refuse a request whose options lead elsewhere: what holds the options may not be what holds the key."""
        is_given = self._is_address_given
        if not (origin_of(url) == origin_of(self._base_url) if is_given else is_home(url, _GOOGLE_HOSTS)):
            raise ConfigurationError(
                "the options of the request change where it goes: leave http_options.base_url out, and pass base_url "
                "to the provider"
            )

    async def _send_draft(
        self, draft: httpx2.Request, body: bytes, *, streams: bool, timeout: float | None
    ) -> httpx2.Response:
        url = str(draft.url)
        if streams:
            url = url.replace(":generateContent", ":streamGenerateContent?alt=sse")
        client = self._given_client or self._clients.get()
        headers = {name: value for name, value in draft.headers.items() if name not in _DRAFT_HEADERS}
        return await post_plainly(client, url, body, headers, timeout=timeout, failures=self._make_failures)


class _DraftedError(Exception):
    """Carries a request out of the SDK."""

    def __init__(self, request: httpx2.Request) -> None:
        self.request = request
        super().__init__()


class _Stop(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise _DraftedError(request)
