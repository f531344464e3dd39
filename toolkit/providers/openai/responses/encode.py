"""Requests as responses say them: a flat list of items, in which reasoning, text and calls keep their order.

Of what differs between formats (`toolkit.providers.dialect`) this one has:

- Results hold text, images and files. There is no field for a failed call: the text begins with "Error".
- There is no sound: a user's is refused, and a word in brackets stands for a tool's or the model's own.
- Reasoning goes back as it came where it is sealed; OpenAI refuses it without its seal, other servers read it.
- What has no word of ours (calls of tools that run at OpenAI, the phase of a message) is kept sealed in a
  `ReasoningBlock` and goes back as it came.
- There are no stop texts: a request that has some is refused. Nor is there a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never, cast

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
from toolkit.providers.dialect import (
    Dialect,
    arguments_text,
    checked_choice,
    checked_message,
    data_url_of,
    error_text,
    extra_without,
    file_text,
    strict_format,
    unsealed,
)
from toolkit.providers.encoding import EncodedOnce, assemble_body, encode_tools_once, to_bytes
from toolkit.providers.json_values import JsonObject
from toolkit.schema import project_openai_strict

__all__ = [
    "RESPONSES_DIALECT",
    "RESPONSES_SEAL",
    "ResponsesEncoder",
    "encode_responses_message",
    "encode_responses_tool",
]

RESPONSES_SEAL = "openai-responses"
RESPONSES_DIALECT = Dialect(longest_call_id=64)

_RESPONSES_LAID_OVER = ("reasoning", "text")


class ResponsesEncoder:
    """Encodes the requests of one provider, each message and each tool once.

    Args:
        model: The model's name.
        defaults: Fields that the options may overwrite, and the request.
        options: Fields for each request, as `ResponsesOptions`.
        is_openai: True where the server refuses what is not OpenAI's own: reasoning without a seal, say.
    """

    def __init__(
        self,
        *,
        model: str,
        defaults: Mapping[str, Any],
        options: Mapping[str, Any] = MappingProxyType({}),
        is_openai: bool = True,
    ) -> None:
        self._model = model
        self._defaults = dict(defaults)
        _add_options(self._defaults, options)
        self._is_openai = is_openai
        self._messages = EncodedOnce(self._encode_items, size_of=len)
        self._tools = encode_tools_once(encode_responses_tool)

    def encode(self, request: ChatRequest, *, streams: bool) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away.

        Raises:
            ConfigurationError: The request asks for what can't be said.
        """
        if request.stop:
            raise ConfigurationError("responses have no stop texts: leave `stop` out, or use OpenAIProvider")
        body: JsonObject = {**self._defaults, "model": self._model, **_encode_tool_settings(request)}
        if request.response_format is not None:
            schema, is_strict = strict_format(request.response_format.schema, is_openai=self._is_openai)
            name = RESPONSES_DIALECT.tool_name_of(request.response_format.name)
            wanted = {"type": "json_schema", "name": name, "schema": schema, "strict": is_strict}
            _lay_over(body, "text", {"format": wanted})
        if request.reasoning_effort is not None:
            _lay_over(body, "reasoning", {"effort": request.reasoning_effort})
        settings = {
            "temperature": request.temperature,
            "max_output_tokens": request.max_tokens,
            "stream": True if streams else None,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        _add_options(body, request.options)
        members = {"input": [items for items in self._join_items(request.messages) if items]}
        offered = [to_bytes(tool, "a tool of the options") for tool in body.pop("tools", None) or ()]
        if request.tools or offered:
            members["tools"] = [*self._tools.all_of(request.tools or ()), *offered]
        return assemble_body(body, members)

    def _join_items(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the items of each message; the result of a call that a program made names its caller."""
        encoded = self._messages.all_of(messages)
        callers: dict[str, Any] = {}
        for place, message in enumerate(messages):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolCall) and block.extra is not None and block.extra.get("caller"):
                        callers[block.id] = block.extra["caller"]
            elif callers and isinstance(message, ToolResult) and message.call_id in callers:
                caller = to_bytes(callers[message.call_id], "the caller")
                encoded[place] = b"".join([encoded[place][:-1], b',"caller":', caller, b"}"])
        return encoded

    def _encode_items(self, message: Message) -> bytes:
        items = encode_responses_message(checked_message(message), sends_open_reasoning=not self._is_openai)
        return to_bytes(items, f"the {message.role} message")[1:-1]


def encode_responses_message(message: Message, *, sends_open_reasoning: bool = False) -> list[JsonObject]:
    """Return the items that a message is on the wire. Pure: the same message gives the same value."""
    match message:
        case SystemMessage():
            return [_make_message_item("system", message.content)]
        case UserMessage():
            return [_make_message_item("user", _encode_responses_user(message.content))]
        case AssistantMessage():
            return list(_encode_responses_assistant(message, sends_open_reasoning=sends_open_reasoning))
        case ToolResult():
            output = _encode_output(message)
            return [
                {
                    "type": "function_call_output",
                    "call_id": RESPONSES_DIALECT.call_id_of(message.call_id),
                    "output": output,
                }
            ]
        case _:
            assert_never(message)


def encode_responses_tool(definition: ToolDefinition) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as strict mode accepts it.

    Raises:
        SchemaError: The tool is strict and strict mode can't say its schema.
    """
    parameters = project_openai_strict(definition.parameters) if definition.strict else definition.parameters
    return {
        "type": "function",
        "name": RESPONSES_DIALECT.tool_name_of(definition.name),
        "description": definition.description,
        "parameters": parameters,
        "strict": definition.strict,  # left out, it would mean yes
    }


def _encode_tool_settings(request: ChatRequest) -> JsonObject:
    tools = request.tools or ()
    choice = checked_choice(request.tool_choice, tools)
    if not tools:
        return {}
    settings: JsonObject = {}
    if choice == "one":
        settings["tool_choice"] = {"type": "function", "name": RESPONSES_DIALECT.tool_name_of(request.tool_choice)}
    elif choice != "auto":
        settings["tool_choice"] = choice
    if request.parallel_tool_calls is not None:
        settings["parallel_tool_calls"] = request.parallel_tool_calls
    return settings


def _add_options(body: JsonObject, options: Mapping[str, Any]) -> None:
    """Put options over a body; what is asked for beside what is there already is asked for too."""
    for name, value in options.items():
        if name in _RESPONSES_LAID_OVER and isinstance(value, Mapping):
            _lay_over(body, name, cast("Mapping[str, Any]", value))
        elif name == "include" and value is not None:
            body[name] = list(dict.fromkeys([*(body.get(name) or ()), *value]))
        else:
            body[name] = value


def _lay_over(body: JsonObject, name: str, over: Mapping[str, Any]) -> None:
    under = body.get(name)
    body[name] = {**(cast("JsonObject", under) if isinstance(under, Mapping) else {}), **over}


def _make_message_item(role: str, content: str | list[JsonObject]) -> JsonObject:
    return {"type": "message", "role": role, "content": content}


def _encode_responses_user(content: str | Sequence[ContentBlock]) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    parts: list[JsonObject] = []
    for block in content:
        if isinstance(block, AudioBlock):
            raise ConfigurationError("responses take no sound: use OpenAIProvider for an AudioBlock")
        parts.append(_encode_responses_part(block))
    return parts


def _encode_responses_part(block: TextBlock | ImageBlock | FileBlock) -> JsonObject:
    match block:
        case TextBlock():
            return {"type": "input_text", "text": block.text}
        case ImageBlock():
            return {"type": "input_image", "detail": "auto", "image_url": data_url_of(block)}
        case FileBlock():
            if block.data is None:
                return {"type": "input_file", "file_url": data_url_of(block)}
            if text := file_text(block):
                return {"type": "input_text", "text": text}
            return {"type": "input_file", "filename": block.name, "file_data": data_url_of(block)}
        case _:
            assert_never(block)


def _encode_output(result: ToolResult) -> str | list[JsonObject]:
    if isinstance(result.content, str):
        return error_text(result.content) if result.is_error else result.content
    blocks = [TextBlock("[audio]") if isinstance(block, AudioBlock) else block for block in result.content]
    parts = [_encode_responses_part(block) for block in blocks]
    if all(part["type"] == "input_text" for part in parts):
        text = "\n".join([part["text"] for part in parts])
        return error_text(text) if result.is_error else text
    if result.is_error:
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    return parts


def _encode_responses_assistant(message: AssistantMessage, *, sends_open_reasoning: bool) -> Iterator[JsonObject]:
    texts: list[str] = []
    phase: JsonObject = {}
    for block in message.content:
        match block:
            case TextBlock():
                texts.append(block.text)
                continue
            case ImageBlock() | AudioBlock() | FileBlock():
                texts.append(f"[{block.type}]")
                continue
            case ToolCall():
                item: JsonObject | None = _encode_responses_call(block)
            case ReasoningBlock():
                item = _encode_responses_reasoning(block, is_open_sent=sends_open_reasoning)
            case _:
                assert_never(block)
        if item is None:
            continue
        if texts:
            yield {**_make_message_item("assistant", "\n".join(texts)), **phase}
            texts, phase = [], {}
        if "type" in item:
            yield item
        else:
            phase = item
    if texts:
        yield {**_make_message_item("assistant", "\n".join(texts)), **phase}


def _encode_responses_call(call: ToolCall) -> JsonObject:
    return {
        **extra_without(call, "anthropic", "extra_content"),
        "type": "function_call",
        "call_id": RESPONSES_DIALECT.call_id_of(call.id),
        "name": RESPONSES_DIALECT.tool_name_of(call.name),
        "arguments": arguments_text(call.arguments),
    }


def _encode_responses_reasoning(block: ReasoningBlock, *, is_open_sent: bool) -> JsonObject | None:
    """Return an item, the phase of the message that follows, or None for what another provider thought."""
    if block.encrypted is not None and block.encrypted.startswith("{"):  # no seal of OpenAI's own begins so
        return unsealed(RESPONSES_SEAL, block.encrypted)
    if not block.id:
        return None
    if block.encrypted is not None:
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        return {"type": "reasoning", "id": block.id, "summary": summary, "encrypted_content": block.encrypted}
    if is_open_sent and block.text:
        content = [{"type": "reasoning_text", "text": block.text}]
        return {"type": "reasoning", "id": block.id, "summary": [], "content": content}
    return None
