"""Chat completions, OpenAI's and those of every server that speaks them: the provider, its requests and its answers.

Of what differs between formats (`toolkit.providers.encoding`) this one has:

- A tool's message is text. Images, sounds and files of a result go into one user message after the last result of the
  turn, and the result says so. There is no field for a failed call: the text begins with "Error".
- Images and audio from a model can't be sent back to it: a word in brackets replaces them.
- A file that is text goes as text; one that is only a URL goes as its address.
- System messages stay in their places, and neighbours of one role stay apart: the format has no rule against it.
- Reasoning goes back where the server wants it: as text in a field, and sealed items in ``reasoning_details``.

Compatible servers leave out, add and bend fields, so nothing of an answer is taken for granted: a missing field is
empty, and an answer that can't be one is a `BadResponseError`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias, Unpack, assert_never, cast

from pydantic_core import from_json

from toolkit.chat import (
    ArgumentsDelta,
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
    ResponseFormat,
    StopReason,
    StreamEvent,
    SystemMessage,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.request import Capabilities, describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.providers.adapter import Decoder, Exchange, PartialCall
from toolkit.providers.encoding import (
    ONE_AT_A_TIME,
    ChatDialect,
    EncodedOnce,
    JsonObject,
    arguments_text,
    as_amount,
    as_bytes,
    as_count,
    as_items,
    as_key,
    as_mapping,
    as_text,
    assemble_body,
    checked_choice,
    checked_message,
    data_url_of,
    encode_tools_once,
    extra_without,
    file_text,
    join_list,
    result_text,
    sealed,
    stop_of_calls,
    stop_texts,
    strict_format,
    to_bytes,
    unsealed,
    usage_details,
)
from toolkit.providers.openai.client import OpenAIClient, OpenAISettings
from toolkit.providers.servers import COMPATIBLE_CHAT
from toolkit.schema import project_openai_strict

CHAT_SEAL = "openai"
_SCHEMA_IN_WORDS = "Answer with JSON alone, which must follow this JSON Schema: "
_AUDIO_FORMATS = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}
_ChatBytes: TypeAlias = tuple[bytes, ...]
"""A message; after a result that has some, its attachments."""
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
_CHAT_COMPLETE = frozenset(
    {"stop", "tool_calls", "tool_call", "function_call", "tool_use", "end_turn", "eos", "eos_token"}
)
_ANSWER_FIELDS = ("id", "model", "usage", "system_fingerprint", "service_tier")
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_SPOKEN_DETAILS = ("text", "summary", "data")
_CHAT_CALL_FIELDS = frozenset({"id", "index", "type", "function", "custom"})


class OpenAIProvider(OpenAIClient):
    """Talks to a model through chat completions: OpenAI's, or any server that speaks them.

    ::

        async with OpenAIProvider("gpt-5-mini") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``OpenAIProvider("gpt-5-mini")`` needs ``OPENAI_API_KEY``; ``OpenAIProvider("qwen3", base_url=
    "http://127.0.0.1:11434/v1")`` speaks to Ollama, and so to llama.cpp, vLLM, OpenRouter and others. It may be shared
    by tasks, and used in one event loop after another; connections are made at the first request and closed by
    `aclose` or by leaving ``async with``. It never retries by itself: the loop does.

    Each message is encoded once, however often it is sent.

    Args:
        model: The model's name as the server knows it.
        options: Fields for each request, such as `ChatOptions`; `ChatRequest.options` go over them.
        settings: See `OpenAISettings`.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    _path = "/chat/completions"
    _protocol = "a chat completion"
    _name = "openai"

    def __init__(
        self, model: str, *, options: Mapping[str, Any] | None = None, **settings: Unpack[OpenAISettings]
    ) -> None:
        super().__init__(model, **settings)
        self._encoder = ChatEncoder(model=model, defaults=options or {}, dialect=self._dialect)

    def _list_capabilities(self, model: str) -> Capabilities:  # noqa: ARG002 - all models alike
        dialect = self._dialect
        return Capabilities(
            forced_calls="native" if "required" in dialect.choices else "refused",
            no_calls="native" if "none" in dialect.choices else "emulated",
            one_call_at_a_time="native" if dialect.takes_parallel_switch else "emulated",
            strict_tools="native" if dialect.takes_strict else "unused",
            answer_schemas="native" if dialect.takes_schema else "emulated",
            sound="native" if dialect.is_openai else "refused",
            reasoning_back="native" if dialect.reasoning_field else "unused",
            source="https://platform.openai.com/docs/api-reference/chat" if dialect.is_openai else self._server.source,
        )

    @property
    def reports_cost(self) -> bool:
        """True if answers may report their cost: routers' do, OpenAI's and Azure's don't."""
        return not self._dialect.is_openai

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        return self._make_exchange(), self._encoder.encode(request, streams=streams)

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> ChatDecoder:
        return ChatDecoder(self._make_failures, self._encoder.reading_of(request), request_id=request_id)


@dataclass(frozen=True, slots=True)
class ChatWireMessage:
    """A message as the wire has it, and the parts of a tool's result for the user's side."""

    wire: JsonObject
    attachments: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatReading:
    """The parts of a request that its answer is read by."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])  # the tools' own, by those on the wire
    audio_format: str = "wav"  # of the sound that was asked for


class ChatEncoder:
    """Encodes the requests of one provider, each message and each tool once."""

    def __init__(self, *, model: str, defaults: Mapping[str, Any], dialect: ChatDialect = COMPATIBLE_CHAT) -> None:
        self._model = model
        self._defaults = dict(defaults)
        self._dialect = dialect
        self._messages = EncodedOnce(self._encode_once, size_of=lambda encoded: sum(map(len, encoded)))
        self._tools = encode_tools_once(partial(encode_chat_tool, dialect=dialect))

    def encode(self, request: ChatRequest, *, streams: bool) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away."""
        dialect = self._dialect
        body: JsonObject = {**self._defaults, "model": self._model}
        tools, notes = request.tools or (), list[str]()
        if tools:
            tools = self._choose_tools(request, tools, body)
            if request.parallel_tool_calls is not None and dialect.takes_parallel_switch:
                body["parallel_tool_calls"] = request.parallel_tool_calls
            elif request.parallel_tool_calls is False:
                notes.append(ONE_AT_A_TIME)
        else:
            checked_choice(request.tool_choice, tools)
        if request.response_format is not None:
            body["response_format"], note = self._encode_format(request.response_format)
            notes += note
        settings: JsonObject = {
            "temperature": request.temperature,
            dialect.max_tokens_field: request.max_tokens,
            dialect.seed_field: request.seed,
            "stop": stop_texts(request.stop),
            "reasoning_effort": request.reasoning_effort,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        if streams:
            body["stream"] = True
            if dialect.takes_stream_options:
                body["stream_options"] = {"include_usage": True}
        body |= request.options
        members = {"messages": self._join_messages(request.messages)}
        if notes:
            system_message = {"role": "system", "content": "\n\n".join(notes)}
            members["messages"] = [*members["messages"], to_bytes(system_message, "a note")]
        if tools:
            members["tools"] = self._tools.all_of(tools)
        return assemble_body(body, members)

    def _choose_tools(
        self, request: ChatRequest, tools: Sequence[ToolDefinition], body: JsonObject
    ) -> Sequence[ToolDefinition]:
        """Put the choice of tools into a body, and return the tools to offer."""
        dialect = self._dialect
        choice = checked_choice(request.tool_choice, tools)
        if choice == "auto":
            return tools
        if choice == "none" and "none" not in dialect.choices:
            return ()
        if choice == "one" and "one" in dialect.choices:
            name = dialect.tool_name_of(request.tool_choice)
            body["tool_choice"] = {"type": "function", "function": {"name": name}}
            return tools
        if choice == "one":
            tools = [tool for tool in tools if tool.name == request.tool_choice]
        if choice != "none" and "required" not in dialect.choices:
            raise ConfigurationError(
                f"this server can't be made to call a tool: leave tool_choice '{request.tool_choice}' out, or ask in "
                "another way, as by provider_for(..., calling='guided')"
            )
        body["tool_choice"] = "none" if choice == "none" else dialect.required_choice
        return tools

    def _encode_format(self, wanted: ResponseFormat) -> tuple[JsonObject, Sequence[str]]:
        """Return the form of the answer, and what has to be said in words."""
        if not self._dialect.takes_schema:
            return {"type": "json_object"}, [_SCHEMA_IN_WORDS + write_json(dict(wanted.schema))]
        schema, is_strict = strict_format(wanted.schema, is_openai=self._dialect.is_openai)
        name = self._dialect.tool_name_of(wanted.name)
        return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": is_strict}}, ()

    def reading_of(self, request: ChatRequest) -> ChatReading:
        """Return the reader of the answer to a request."""
        audio = request.options.get("audio", self._defaults.get("audio"))
        audio_format = str(cast("JsonObject", audio).get("format", "wav")) if isinstance(audio, Mapping) else "wav"
        return ChatReading(self._dialect.names_back(request.tools), audio_format)

    def _join_messages(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the messages; what results could not hold follows the last result of each turn."""
        encoded = self._messages.all_of(messages)
        if max(map(len, encoded), default=1) == 1:
            return [parts[0] for parts in encoded]
        wire: list[bytes] = []
        waiting: list[bytes] = []
        for message, parts in zip(messages, encoded, strict=True):
            if waiting and not isinstance(message, ToolResult):
                wire.append(_join_user_message(waiting))
                waiting = []
            wire.append(parts[0])
            waiting += parts[1:]
        if waiting:
            wire.append(_join_user_message(waiting))
        return wire

    def _encode_once(self, message: Message) -> _ChatBytes:
        encoded = encode_chat_message(checked_message(message), dialect=self._dialect)
        wire = to_bytes(encoded.wire, f"the {message.role} message")
        return (wire, to_bytes(encoded.attachments, "a result")[1:-1]) if encoded.attachments else (wire,)


def encode_chat_message(message: Message, *, dialect: ChatDialect = COMPATIBLE_CHAT) -> ChatWireMessage:
    """Return one message as the wire has it. Pure: the same message gives the same value, which may be cached."""
    match message:
        case SystemMessage():
            return ChatWireMessage({"role": "system", "content": message.content})
        case UserMessage():
            return ChatWireMessage({"role": "user", "content": _encode_chat_user(message.content)})
        case AssistantMessage():
            return ChatWireMessage(_encode_chat_assistant(message, dialect))
        case ToolResult():
            return _encode_chat_result(message, dialect)
        case _:
            assert_never(message)


def encode_chat_tool(definition: ToolDefinition, *, dialect: ChatDialect = COMPATIBLE_CHAT) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as strict mode accepts it, or a `SchemaError`."""
    function: JsonObject = {
        "name": dialect.tool_name_of(definition.name),
        "description": describe_with_hints(definition),
    }
    if definition.strict and dialect.takes_strict:
        function |= {"parameters": project_openai_strict(definition.parameters), "strict": True}
    else:
        function["parameters"] = definition.parameters
    return {"type": "function", "function": function}


def _join_user_message(parts: list[bytes]) -> bytes:
    return b'{"role":"user","content":' + join_list(parts) + b"}"


def _encode_chat_user(content: str | Sequence[ContentBlock]) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if all(isinstance(block, TextBlock) for block in content):
        # Plain text is understood by small servers too, lists of parts are not.
        return "\n".join(block.text for block in content if isinstance(block, TextBlock))
    return [_encode_chat_part(block) for block in content]


def _encode_chat_part(block: ContentBlock) -> JsonObject:
    match block:
        case TextBlock():
            return _make_text_part(block.text)
        case ImageBlock():
            return {"type": "image_url", "image_url": {"url": data_url_of(block)}}
        case AudioBlock():
            subtype = block.media_type.partition("/")[2].partition(";")[0].removeprefix("x-")
            return {
                "type": "input_audio",
                "input_audio": {"data": b64encode(block.data).decode(), "format": _AUDIO_FORMATS.get(subtype, subtype)},
            }
        case FileBlock():
            text = file_text(block)
            if text is not None:
                return _make_text_part(text)
            return {"type": "file", "file": {"filename": block.name, "file_data": data_url_of(block)}}
        case _:
            assert_never(block)


def _make_text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _encode_chat_assistant(message: AssistantMessage, dialect: ChatDialect) -> JsonObject:
    texts: list[str] = []
    calls: list[JsonObject] = []
    reasoning: list[ReasoningBlock] = []
    for block in message.content:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolCall():
                takes_extra = dialect.takes_extra and not dialect.is_openai
                extra = extra_without(block, "anthropic", "openai-responses") if takes_extra else {}
                function = {"name": dialect.tool_name_of(block.name), "arguments": arguments_text(block.arguments)}
                calls.append({**extra, "id": dialect.call_id_of(block.id), "type": "function", "function": function})
            case ReasoningBlock():
                reasoning.append(block)
            case ImageBlock() | AudioBlock() | FileBlock():
                texts.append(f"[{block.type}]")
            case _:
                assert_never(block)
    wire: JsonObject = {"role": "assistant", "content": "\n".join(texts) if texts or not calls else None}
    if dialect.reasoning_field is not None:
        wire.update(_encode_chat_reasoning(reasoning, dialect.reasoning_field))
    if calls:
        wire["tool_calls"] = calls
    return wire


def _encode_chat_reasoning(reasoning: Sequence[ReasoningBlock], reasoning_field: str) -> JsonObject:
    wire: JsonObject = {}
    if thoughts := [block.text for block in reasoning if block.text]:
        wire[reasoning_field] = "\n".join(thoughts)
    if details := [detail for block in reasoning if (detail := unsealed(CHAT_SEAL, block.encrypted or ""))]:
        wire["reasoning_details"] = details
    return wire


def _encode_chat_result(result: ToolResult, dialect: ChatDialect) -> ChatWireMessage:
    call_id = dialect.call_id_of(result.call_id)
    name = dialect.tool_name_of(result.tool_name) if result.tool_name else ""
    output = result_text(result, name=name, call_id=call_id)
    attachments = tuple([_encode_chat_part(block) for block in output.attachments])
    return ChatWireMessage({"role": "tool", "tool_call_id": call_id, "content": output.text}, attachments)


def decode_chat_usage(usage: object) -> Usage:
    """Return the usage that an answer reports; zeros where the server reported none."""
    reported = as_mapping(usage)
    prompt = as_mapping(reported.get("prompt_tokens_details"))
    completion = as_mapping(reported.get("completion_tokens_details"))
    cached = as_count(prompt.get("cached_tokens"))
    thought = as_count(completion.get("reasoning_tokens"))
    read, wrote = as_count(reported.get("prompt_tokens")) or 0, as_count(reported.get("completion_tokens")) or 0
    if thought and as_count(reported.get("total_tokens")) == read + wrote + thought:
        wrote += thought  # xAI counts them apart
    return Usage(
        input_tokens=read,
        output_tokens=wrote,
        reasoning_tokens=thought,
        cache_read_tokens=as_count(reported.get("prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write_tokens=as_count(prompt.get("cache_write_tokens")),
        cost=as_amount(reported.get("cost")),
        details=usage_details(
            input_audio_tokens=as_count(prompt.get("audio_tokens")),
            output_audio_tokens=as_count(completion.get("audio_tokens")),
        ),
    )


class ChatDecoder(Decoder[ChatReading]):
    """Puts an answer together from its pieces; a whole message is read as one large piece."""

    def _begin_answer(self) -> None:
        self._choice: Mapping[str, Any] = {}
        self._answer: dict[str, Any] = {}
        self._reasoning: list[str] = []
        self._details: dict[tuple[int | str | None, str], dict[str, Any]] = {}
        self._spoken_details: dict[tuple[int | str | None, str, str], list[str]] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._transcript: list[str] = []
        self._audio: list[str] = []
        self._images: list[ImageBlock] = []
        self._calls: list[PartialCall] = []
        self._positions: dict[int | str, int] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""
        return decode_chat_usage(self._answer.get("usage"))

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the new deltas of a piece, the JSON of a chat completion chunk."""
        piece = as_mapping(from_json(data))
        choice = self._read_fields(piece)
        if choice.get("finish_reason"):
            self._choice, self._is_complete = choice, True
        yield from self._read_message(as_mapping(choice.get("delta")))

    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return the first choice as an answer."""
        self._choice = self._read_fields(answer)
        message = as_mapping(self._choice.get("message"))
        if not message:
            raise self._failures().empty("choices", request_id=self._request_id)
        for _ in self._read_message(message):
            pass
        return self._make_response()

    def _read_fields(self, piece: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the fields beside the choices, and return the first choice."""
        if error := piece.get("error"):
            raise self._failures().reported(error, request_id=self._request_id)
        self._answer |= {name: piece[name] for name in _ANSWER_FIELDS if piece.get(name)}
        # There are choices of other indices where the options ask for several.
        choices = [choice for choice in as_items(piece.get("choices")) if not choice.get("index")]
        return choices[0] if choices else {}

    def _read_message(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for name in _REASONING_FIELDS:
            if thought := piece.get(name):
                self._reasoning.append(_join_text_parts(thought))
                yield ReasoningDelta(self._reasoning[-1])
                break
        for position, detail in enumerate(as_items(piece.get("reasoning_details"))):
            self._read_detail(detail, position)
        # Mistral has the reasoning in the list of parts.
        if text := "".join([_join_text_parts(part.get("thinking")) for part in as_items(piece.get("content"))]):
            self._reasoning.append(text)
            yield ReasoningDelta(text)
        if text := _join_text_parts(piece.get("content")):
            self._text.append(text)
            yield TextDelta(text)
        if text := as_text(piece.get("refusal")):
            self._refusal.append(text)
            yield TextDelta(text)
        yield from self._read_media(piece)
        function = as_mapping(piece.get("function_call"))  # of old servers, for a single call
        calls = [{"function": function}] if function else as_items(piece.get("tool_calls"))
        for position, call in enumerate(calls):
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
            self._calls.append(PartialCall(known))
        call = self._calls[known]
        function = as_mapping(piece.get("function")) or as_mapping(piece.get("custom"))
        call.id = call.id or call_id
        if not call.name:
            name = as_text(function.get("name"))
            call.name = self._reading.names.get(name, name)
        arguments = function.get("arguments", function.get("input"))
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call.extra |= {
            name: value for name, value in piece.items() if name not in _CHAT_CALL_FIELDS and value is not None
        }
        return call.more(text)

    def _make_response(self) -> ChatResponse:
        answer = self._answer
        content: list[AssistantContent] = list(self._list_thoughts())
        spoken = (self._text, self._refusal, self._transcript)
        content.extend([TextBlock("".join(pieces)) for pieces in spoken if pieces])
        if any(self._audio):
            content.append(AudioBlock(_read_sound(self._audio), media_type=f"audio/{self._reading.audio_format}"))
        content.extend(self._images)
        content.extend([call.make_call() for call in self._calls])
        metadata = {name: answer[name] for name in ("id", "system_fingerprint", "service_tier") if answer.get(name)}
        return ChatResponse(
            message=AssistantMessage(content),
            usage=decode_chat_usage(answer.get("usage")),
            stop_reason=self._find_stop_reason(self._choice),
            model=as_text(answer.get("model")),
            request_id=self._request_id or as_text(answer.get("id")) or None,
            metadata=metadata,
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
        given = as_text(choice.get("finish_reason")).lower()
        reason = _CHAT_STOP_REASONS.get(given)
        if reason is not None:
            return reason
        if self._refusal:
            return "refusal"
        # Some servers say "stop" though they call, others say "tool_calls" though they don't.
        if self._calls:
            return stop_of_calls(given, _CHAT_COMPLETE)
        # vLLM names the text that it stopped at.
        return "stop_sequence" if isinstance(choice.get("stop_reason"), str) else "end_turn"


def _join_text_parts(value: object) -> str:
    """Return a text; Mistral and others send it as a list of parts."""
    return value if isinstance(value, str) else "".join([as_text(part.get("text")) for part in as_items(value)])


def _read_sound(pieces: Sequence[str]) -> bytes:
    """Return the audio; some servers pad each piece of base64, others cut one text anywhere."""
    if any(len(piece) % 4 for piece in pieces):
        return as_bytes("".join(pieces))
    return b"".join([as_bytes(piece) for piece in pieces])


def _read_image_url(url: str) -> ImageBlock:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageBlock(as_bytes(data), media_type=head.removeprefix("data:").removesuffix(";base64") or "image/png")
    return ImageBlock(url=url)
