"""Requests as Gemini's ``generateContent`` says them: settings in the SDK's words, and the contents and tools in JSON.

Of what differs between formats (`toolkit.providers.encoding`) this one has:

- The system messages at the beginning are a setting; a later one is marked text of the user.
- Roles alternate and the user begins.
- A result is text, under ``output`` or, of a failed call, ``error``. Images and PDFs are parts of it for Gemini 3 and
  later; what it can't hold follows the last result of the turn.
- Google's own tools beside functions want a flag, which is set for Gemini 3 and later.
- Data that the model needs back (thought signatures, code that it ran) is returned in its place. A call from another
  provider has no signature; Gemini 3 and later refuse that, unless a placeholder takes its place.
- There is no setting for parallel calls: a request for one call at a time says so in the system text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from toolkit.chat.request import describe_with_hints
from toolkit.errors import ConfigurationError
from toolkit.providers.encoding import (
    BEGINNING_LEFT_OUT,
    ONE_AT_A_TIME,
    USER,
    Dialect,
    EncodedOnce,
    JsonObject,
    arguments_object,
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
    source_of,
    split_system,
    stop_texts,
    to_bytes,
    unsealed,
)
from toolkit.schema import project_gemini

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
    """One message as the wire has it.

    Args:
        parts: Its parts.
        attachments: The parts that a result can't hold; they follow the turn's last result.
    """

    parts: Sequence[JsonObject]
    attachments: Sequence[JsonObject] = ()


class GenerateEncoder:
    """Encodes the requests of one provider, each message and each tool once.

    Args:
        model: The model's name.
        defaults: Settings that the request may overwrite, as the SDK's ``GenerateContentConfig`` has them.
        is_vertex: True for Vertex AI, which has fewer settings.
    """

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

        Raises:
            ConfigurationError: The request asks for something that the format can't express.
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
        """Return the body of a request.

        Args:
            request: The request.
            settings: Its settings as the wire has them: `settings`, as the SDK says them.
        """
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
    """Return the parts that a message is on the wire. Pure: the same message gives the same value.

    Args:
        message: The message to encode; a result needs its `tool_name`.
        is_new: True for Gemini 3 and later, which refuse calls without a signature and take media in results.
    """
    match message:
        case SystemMessage():
            return GeminiContent([{"text": as_user_text(message)}])
        case UserMessage():
            blocks = (TextBlock(message.content),) if isinstance(message.content, str) else message.content
            return GeminiContent([_encode_gemini_part(block) for block in blocks if not _is_empty(block)])
        case AssistantMessage():
            parts = _encode_gemini_assistant(message)
            if is_new:
                _allow_unsigned(parts)
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


def _allow_unsigned(parts: Sequence[JsonObject]) -> None:
    """Say of a turn's first call that it comes from a model that signs nothing, where no call is signed."""
    calls = [part for part in parts if "functionCall" in part]
    if calls and not any("thoughtSignature" in part for part in calls):
        calls[0]["thoughtSignature"] = _NO_SIGNATURE
