"""Requests as chat completions say them: pure functions from our words to theirs.

What the format can't say is decided here, once:

- A tool's message is text. Images, sounds and files of a result go into one user message after the last result of the
  turn, and the result says so.
- There is no field for a failed call: the text begins with "Error".
- What a model drew or spoke can't be sent back to it: a word in brackets stands for it.
- A file that is text goes as text; one that is only a URL goes as its address.
- Arguments that are not a JSON object are wrapped in one, because servers parse the history and fail on them.
- Ids longer than 40 characters are replaced by a hash, the same in the call and in its result.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias, assert_never, cast

from pydantic_core import from_json

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
from toolkit.errors import ConfigurationError
from toolkit.schema import openai_strict

__all__ = ["EncodedMessage", "encode_message", "encode_messages", "encode_request", "encode_tool"]

JsonObject: TypeAlias = dict[str, Any]

_LONGEST_ID = 40
_AUDIO_FORMATS = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}
_TEXT_MEDIA_TYPES = ("application/json", "application/xml", "application/yaml")


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """One message as the wire has it.

    Args:
        wire: The message.
        attachments: Parts of a tool's result that its own message can't hold; they go to the user's side.
    """

    wire: JsonObject
    attachments: tuple[JsonObject, ...] = ()


def encode_request(
    request: ChatRequest,
    *,
    model: str,
    defaults: Mapping[str, Any],
    max_tokens_field: str,
    reasoning_field: str | None,
    stream: bool,
) -> JsonObject:
    """Return the body of the request.

    Args:
        request: What is asked. Its `options` are set last, over everything else; one of None takes the field away.
        model: The model's name.
        defaults: Fields that the request may overwrite.
        max_tokens_field: Where the limit goes.
        reasoning_field: Where reasoning goes back; None leaves it out.
        stream: Whether the answer should come in pieces.

    Raises:
        ConfigurationError: The request asks for what can't be said.
    """
    messages = encode_messages(request.messages, reasoning_field=reasoning_field)
    body: JsonObject = {**defaults, "model": model, "messages": messages}
    body |= _encode_tools(request)
    if request.response_format is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": request.response_format.name,
                "schema": request.response_format.schema,
                "strict": _is_strict(request.response_format.schema),
            },
        }
    sampling = {
        "temperature": request.temperature,
        max_tokens_field: request.max_tokens,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "reasoning_effort": request.reasoning_effort,
    }
    body |= {name: value for name, value in sampling.items() if value is not None}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= request.options
    return {name: value for name, value in body.items() if value is not None}


def encode_messages(messages: Iterable[Message], *, reasoning_field: str | None = None) -> list[JsonObject]:
    """Return the transcript as the wire has it; what results could not hold follows the last result of each turn."""
    wire: list[JsonObject] = []
    waiting: list[JsonObject] = []
    for message in messages:
        encoded = encode_message(message, reasoning_field=reasoning_field)
        if waiting and not isinstance(message, ToolResult):
            wire.append({"role": "user", "content": waiting})
            waiting = []
        wire.append(encoded.wire)
        waiting.extend(encoded.attachments)
    if waiting:
        wire.append({"role": "user", "content": waiting})
    return wire


def encode_message(message: Message, *, reasoning_field: str | None = None) -> EncodedMessage:
    """Return one message as the wire has it. Pure: the same message gives the same value, which may be kept.

    Args:
        message: What to encode.
        reasoning_field: The field in which the server wants its reasoning back; None leaves it out.
    """
    match message:
        case SystemMessage():
            return EncodedMessage({"role": "system", "content": message.content})
        case UserMessage():
            return EncodedMessage({"role": "user", "content": _encode_user_content(message.content)})
        case AssistantMessage():
            return EncodedMessage(_encode_assistant(message, reasoning_field))
        case ToolResult():
            return _encode_result(message)
        case _:
            assert_never(message)


def encode_tool(definition: ToolDefinition) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as strict mode accepts it.

    Raises:
        SchemaError: The tool is strict and strict mode can't say its schema.
    """
    function: JsonObject = {"name": definition.name, "description": definition.description}
    if definition.strict:
        function |= {"parameters": openai_strict(definition.parameters), "strict": True}
    else:
        function["parameters"] = definition.parameters
    return {"type": "function", "function": function}


def _encode_tools(request: ChatRequest) -> JsonObject:
    tools = request.tools or ()
    choice = request.tool_choice
    if not tools:
        if choice not in ("auto", "none"):
            raise ConfigurationError(f"tool_choice is '{choice}', but the request has no tools")
        return {}
    body: JsonObject = {"tools": [encode_tool(tool) for tool in tools]}
    if choice in ("none", "required"):
        body["tool_choice"] = choice
    elif choice != "auto":
        names = [tool.name for tool in tools]
        if choice not in names:
            raise ConfigurationError(
                f"tool_choice is '{choice}', which is not 'auto', 'none', 'required' or one of: {', '.join(names)}"
            )
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    return body


def _encode_user_content(content: str | Sequence[ContentBlock]) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if all(isinstance(block, TextBlock) for block in content):
        # Plain text is understood by small servers too, lists of parts are not.
        return "\n".join(block.text for block in content if isinstance(block, TextBlock))
    return [_encode_part(block) for block in content]


def _encode_part(block: ContentBlock) -> JsonObject:
    match block:
        case TextBlock():
            return _text_part(block.text)
        case ImageBlock():
            return {"type": "image_url", "image_url": {"url": _address_of(block, "ImageBlock")}}
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
    if block.data is None:
        return _text_part(f"[file {block.name}: {_address_of(block, 'FileBlock')}]")
    if block.media_type.startswith("text/") or block.media_type in _TEXT_MEDIA_TYPES:
        return _text_part(f"[file {block.name}]\n{block.data.decode('utf-8', 'replace')}")
    return {"type": "file", "file": {"filename": block.name, "file_data": _address_of(block, "FileBlock")}}


def _address_of(block: ImageBlock | FileBlock, kind: str) -> str:
    if block.data is not None:
        return f"data:{block.media_type};base64,{b64encode(block.data).decode()}"
    if block.url is None:
        raise ConfigurationError(f"this {kind} has neither data nor url: give it one of them")
    return block.url


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _encode_assistant(message: AssistantMessage, reasoning_field: str | None) -> JsonObject:
    texts: list[str] = []
    calls: list[JsonObject] = []
    reasoning: list[str] = []
    for block in message.content:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolCall():
                calls.append(_encode_call(block))
            case ReasoningBlock():
                reasoning.append(block.text)
            case ImageBlock() | AudioBlock() | FileBlock():
                texts.append(f"[{block.type}]")
            case _:
                assert_never(block)
    wire: JsonObject = {"role": "assistant", "content": "\n".join(texts) if texts or not calls else None}
    if reasoning_field is not None and any(reasoning):
        wire[reasoning_field] = "\n".join(reasoning)
    if calls:
        wire["tool_calls"] = calls
    return wire


def _encode_call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": _encode_arguments(call.arguments)}
    return {**(call.extra or {}), "id": _encode_id(call.id), "type": "function", "function": function}


def _encode_arguments(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        is_object = isinstance(from_json(arguments), dict)
    except ValueError:
        is_object = False
    return arguments if is_object else json.dumps({"malformed_arguments": arguments}, ensure_ascii=False)


def _encode_id(call_id: str) -> str:
    return call_id if len(call_id) <= _LONGEST_ID else "call_" + sha256(call_id.encode()).hexdigest()[:32]


def _encode_result(result: ToolResult) -> EncodedMessage:
    attachments: list[JsonObject] = []
    if isinstance(result.content, str):
        text = result.content
    else:
        texts: list[str] = []
        for block in result.content:
            part = _encode_part(block)
            if part["type"] == "text":
                texts.append(part["text"])
            else:
                attachments.append(part)
                texts.append(f"[{block.type} {len(attachments)}: in the next user message]")
        text = "\n".join(texts)
    call_id = _encode_id(result.call_id)
    if attachments:
        attachments.insert(0, _text_part(f"Attached to the result of {result.tool_name or 'the call'} ({call_id}):"))
    if result.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return EncodedMessage({"role": "tool", "tool_call_id": call_id, "content": text}, tuple(attachments))


def _is_strict(schema: Any) -> bool:
    """Whether the schema keeps the rules of strict mode: each object closed, each of its properties required."""
    if isinstance(schema, Mapping):
        node = cast("Mapping[str, Any]", schema)
        if node.get("type") == "object" or "properties" in node:
            properties: Mapping[str, Any] = node.get("properties", {})
            if node.get("additionalProperties") is not False or set(node.get("required", ())) != set(properties):
                return False
        return all(_is_strict(value) for value in node.values())
    if isinstance(schema, (list, tuple)):
        return all(_is_strict(item) for item in cast("Sequence[Any]", schema))
    return True
