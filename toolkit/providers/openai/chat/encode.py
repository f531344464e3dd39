"""Requests as chat completions say them.

Of what differs between formats (`toolkit.providers.dialect`) this one has:

- A tool's message is text. Images, sounds and files of a result go into one user message after the last result of the
  turn, and the result says so. There is no field for a failed call: the text begins with "Error".
- What a model drew or spoke can't be sent back to it: a word in brackets stands for it.
- A file that is text goes as text; one that is only a URL goes as its address.
- System messages stay where they stand, and neighbours of one role stay apart: the format has no rule against it.
- Reasoning goes back where the server wants it: as text in a field, and sealed items in ``reasoning_details``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never, cast

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
)
from toolkit.providers.dialect import (
    Dialect,
    arguments_text,
    checked_choice,
    checked_message,
    data_url_of,
    extra_without,
    file_text,
    result_text,
    stop_texts,
    strict_format,
    unsealed,
)
from toolkit.providers.encoding import EncodedOnce, assemble_body, encode_tools_once, join_list, to_bytes
from toolkit.providers.json_values import JsonObject
from toolkit.schema import project_openai_strict

__all__ = ["CHAT_SEAL", "ChatEncoder", "ChatWireMessage", "ChatReading", "encode_chat_message", "encode_chat_tool"]

CHAT_SEAL = "openai"
CHAT_DIALECT = Dialect(call_id=re.compile(r"[\x21-\x7e]+"), longest_call_id=40)

_AUDIO_FORMATS = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}


@dataclass(frozen=True, slots=True)
class ChatWireMessage:
    """One message as the wire has it.

    Args:
        wire: The message.
        attachments: Parts of a tool's result that its own message can't hold; they go to the user's side.
    """

    wire: JsonObject
    attachments: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatReading:
    """The parts of a request that its answer is read by.

    Args:
        names: The tools' own names by those on the wire, where they differ.
        audio_format: The format of the sound that was asked for.
    """

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    audio_format: str = "wav"


_ChatBytes: TypeAlias = tuple[bytes, ...]
"""A message; after a result that has some, its attachments."""


class ChatEncoder:
    """Encodes the requests of one provider, each message and each tool once.

    Args:
        model: The model's name.
        defaults: Fields that the request may overwrite.
        max_tokens_field: Where the limit goes.
        reasoning_field: Where reasoning goes back; None leaves it out.
        is_openai: True where the server refuses what is not OpenAI's own: what others told with calls, say.
    """

    def __init__(
        self,
        *,
        model: str,
        defaults: Mapping[str, Any],
        max_tokens_field: str = "max_tokens",
        reasoning_field: str | None = None,
        is_openai: bool = False,
    ) -> None:
        self._model = model
        self._defaults = dict(defaults)
        self._max_tokens_field = max_tokens_field
        self._reasoning_field = reasoning_field
        self._is_openai = is_openai
        self._messages = EncodedOnce(self._encode_kept, size_of=lambda kept: sum(map(len, kept)))
        self._tools = encode_tools_once(encode_chat_tool)

    def encode(self, request: ChatRequest, *, streams: bool) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away.

        Raises:
            ConfigurationError: The request asks for what can't be said.
        """
        body: JsonObject = {**self._defaults, "model": self._model}
        tools = request.tools or ()
        choice = checked_choice(request.tool_choice, tools)
        if tools:
            if choice == "one":
                name = CHAT_DIALECT.tool_name_of(request.tool_choice)
                body["tool_choice"] = {"type": "function", "function": {"name": name}}
            elif choice != "auto":
                body["tool_choice"] = choice
            if request.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = request.parallel_tool_calls
        if request.response_format is not None:
            schema, is_strict = strict_format(request.response_format.schema, is_openai=self._is_openai)
            name = CHAT_DIALECT.tool_name_of(request.response_format.name)
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": schema, "strict": is_strict},
            }
        settings: JsonObject = {
            "temperature": request.temperature,
            self._max_tokens_field: request.max_tokens,
            "seed": request.seed,
            "stop": stop_texts(request.stop),
            "reasoning_effort": request.reasoning_effort,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        if streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= request.options
        members = {"messages": self._join_messages(request.messages)}
        if tools:
            members["tools"] = self._tools.all_of(tools)
        return assemble_body(body, members)

    def reading_of(self, request: ChatRequest) -> ChatReading:
        """Return what the answer to a request is read by."""
        audio = request.options.get("audio", self._defaults.get("audio"))
        audio_format = str(cast("JsonObject", audio).get("format", "wav")) if isinstance(audio, Mapping) else "wav"
        return ChatReading(CHAT_DIALECT.names_back(request.tools), audio_format)

    def _join_messages(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the messages; what results could not hold follows the last result of each turn."""
        all_kept = self._messages.all_of(messages)
        if max(map(len, all_kept), default=1) == 1:
            return [kept[0] for kept in all_kept]
        wire: list[bytes] = []
        waiting: list[bytes] = []
        for message, kept in zip(messages, all_kept, strict=True):
            if waiting and not isinstance(message, ToolResult):
                wire.append(_join_user_message(waiting))
                waiting = []
            wire.append(kept[0])
            waiting += kept[1:]
        if waiting:
            wire.append(_join_user_message(waiting))
        return wire

    def _encode_kept(self, message: Message) -> _ChatBytes:
        encoded = encode_chat_message(
            checked_message(message), reasoning_field=self._reasoning_field, sends_extra=not self._is_openai
        )
        wire = to_bytes(encoded.wire, f"the {message.role} message")
        return (wire, to_bytes(encoded.attachments, "a result")[1:-1]) if encoded.attachments else (wire,)


def encode_chat_message(
    message: Message, *, reasoning_field: str | None = None, sends_extra: bool = True
) -> ChatWireMessage:
    """Return one message as the wire has it. Pure: the same message gives the same value, which may be kept.

    Args:
        message: The message to encode.
        reasoning_field: The field in which the server wants its reasoning back; None leaves it out.
        sends_extra: True where what servers told with calls goes back.
    """
    match message:
        case SystemMessage():
            return ChatWireMessage({"role": "system", "content": message.content})
        case UserMessage():
            return ChatWireMessage({"role": "user", "content": _encode_chat_user(message.content)})
        case AssistantMessage():
            return ChatWireMessage(_encode_chat_assistant(message, reasoning_field, sends_extra=sends_extra))
        case ToolResult():
            return _encode_chat_result(message)
        case _:
            assert_never(message)


def encode_chat_tool(definition: ToolDefinition) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as strict mode accepts it.

    Raises:
        SchemaError: The tool is strict and strict mode can't say its schema.
    """
    function: JsonObject = {"name": CHAT_DIALECT.tool_name_of(definition.name), "description": definition.description}
    if definition.strict:
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
            return _encode_file(block)
        case _:
            assert_never(block)


def _encode_file(block: FileBlock) -> JsonObject:
    text = file_text(block)
    if text is not None:
        return _make_text_part(text)
    return {"type": "file", "file": {"filename": block.name, "file_data": data_url_of(block)}}


def _make_text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _encode_chat_assistant(message: AssistantMessage, reasoning_field: str | None, *, sends_extra: bool) -> JsonObject:
    texts: list[str] = []
    calls: list[JsonObject] = []
    reasoning: list[ReasoningBlock] = []
    for block in message.content:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolCall():
                calls.append({**(extra_without(block, "anthropic") if sends_extra else {}), **_encode_chat_call(block)})
            case ReasoningBlock():
                reasoning.append(block)
            case ImageBlock() | AudioBlock() | FileBlock():
                texts.append(f"[{block.type}]")
            case _:
                assert_never(block)
    wire: JsonObject = {"role": "assistant", "content": "\n".join(texts) if texts or not calls else None}
    if reasoning_field is not None:
        wire.update(_encode_chat_reasoning(reasoning, reasoning_field))
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


def _encode_chat_call(call: ToolCall) -> JsonObject:
    function = {"name": CHAT_DIALECT.tool_name_of(call.name), "arguments": arguments_text(call.arguments)}
    return {"id": CHAT_DIALECT.call_id_of(call.id), "type": "function", "function": function}


def _encode_chat_result(result: ToolResult) -> ChatWireMessage:
    call_id = CHAT_DIALECT.call_id_of(result.call_id)
    name = CHAT_DIALECT.tool_name_of(result.tool_name) if result.tool_name else ""
    said = result_text(result, name=name, call_id=call_id)
    attachments = tuple([_encode_chat_part(block) for block in said.attachments])
    return ChatWireMessage({"role": "tool", "tool_call_id": call_id, "content": said.text}, attachments)
