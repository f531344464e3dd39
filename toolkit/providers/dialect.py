"""Decides, once for all formats, how to handle content that a format can't express.

- Call ids and tool names of the wrong letters or lengths become others: the same one gives the same other one, in the
  definition, in the call, in the result and in the next process; `Dialect.names_back` gives the tools' own again.
- A result whose images, sounds or files don't fit into a tool's message goes as text that says where they are; they
  follow in a user message.
- A failed call says so in its text where there is no field for it.
- Arguments that are not a JSON object are wrapped in one: servers parse the history, and fail on them.
- A system message in the middle goes as marked text of the user where only the beginning may have one.
- Neighbours of one role become one message where roles must alternate (`toolkit.providers.encoding`), and
  empty messages are left out there.
- A schema of the answer is only called strict where strict mode can say it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeAlias, cast

from pydantic_core import from_json

from toolkit.chat import (
    AssistantMessage,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
)
from toolkit.errors import ConfigurationError, SchemaError
from toolkit.schema import project_openai_strict
from toolkit.schema.nodes import subschemas
from toolkit.settings import describe_value
from toolkit.tool_names import LONGEST_TOOL_NAME, hash_name

Choice: TypeAlias = Literal["auto", "none", "required", "one"]
"""The choice that `ChatRequest.tool_choice` makes; with ``one`` it names the tool."""

_LARGE = re.compile(r"\d[eE]\+?\d{3}")
_TEXT_MEDIA_TYPES = ("application/json", "application/xml", "application/yaml", "application/javascript")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The letters and lengths that one wire format allows.

    Args:
        call_id: Matches a whole call id.
        longest_call_id: In characters.
        tool_name: Matches a whole tool name.
        longest_tool_name: In characters.
    """

    call_id: re.Pattern[str] = re.compile(r"[\x21-\x7e]+")
    longest_call_id: int = 64
    tool_name: re.Pattern[str] = re.compile(r"[A-Za-z0-9_-]+")
    longest_tool_name: int = LONGEST_TOOL_NAME

    def call_id_of(self, call_id: str) -> str:
        """Return the id as the wire may have it: the same where it fits, else a hash of it."""
        if len(call_id) <= self.longest_call_id and self.call_id.fullmatch(call_id):
            return call_id
        digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"call_{digest[:32]}"[: self.longest_call_id]

    def tool_name_of(self, name: str) -> str:
        """Return the name as the wire may have it: the same where it fits, else what fits of it and a hash."""
        if len(name) <= self.longest_tool_name and self.tool_name.fullmatch(name):
            return name
        readable = re.sub(r"[^A-Za-z0-9_]+", "_", name)
        if not readable[:1].isalpha():
            readable = f"tool_{readable}"
        return hash_name(readable, name, self.longest_tool_name)

    def names_back(self, tools: Iterable[ToolDefinition] | None) -> Mapping[str, str]:
        """Return the tools' own names by those on the wire, where they differ; mostly empty."""
        return {wire: tool.name for tool in tools or () if (wire := self.tool_name_of(tool.name)) != tool.name}


@dataclass(frozen=True, slots=True)
class ResultText:
    """A result as text, and the blocks that no text can hold, for a user message after the turn's last result."""

    text: str
    attachments: tuple[ContentBlock, ...] = ()


def result_text(result: ToolResult, *, name: str = "", call_id: str = "") -> ResultText:
    """Return a result for a format whose tool messages are text; a failed one says so.

    Args:
        result: The result.
        name: The tool as the wire has it, for the text before the attachments.
        call_id: The call as the wire has it.
    """
    texts: list[str] = []
    attachments: list[ContentBlock] = []
    if isinstance(result.content, str):
        texts.append(result.content)
    else:
        for block in result.content:
            text = file_text(block) if isinstance(block, FileBlock) else None
            if isinstance(block, TextBlock):
                text = block.text
            if text is None:
                attachments.append(block)
                text = f"[{block.type} {len(attachments)}: in the next user message]"
            texts.append(text)
    if attachments:
        attachments.insert(0, TextBlock(f"Attached to the result of {name or 'the call'} ({call_id}):"))
    text = "\n".join(texts)
    return ResultText(error_text(text) if result.is_error else text, tuple(attachments))


def error_text(text: str) -> str:
    """Return the text of a failed call so that it says that it failed."""
    return text if text.lower().startswith("error") else f"Error: {text}"


def file_text(block: FileBlock) -> str | None:
    """Return a file as text: its content if that is text, else its address; None for other bytes."""
    if block.data is None:
        return f"[file {block.name}: {url_of(block)}]"
    if block.media_type.startswith("text/") or block.media_type.partition(";")[0] in _TEXT_MEDIA_TYPES:
        return f"[file {block.name}]\n{block.data.decode('utf-8', 'replace')}"
    return None


def source_of(block: ImageBlock | FileBlock) -> bytes | str:
    """Return the bytes of a block, else its URL.

    Raises:
        ConfigurationError: It has neither.
    """
    return url_of(block) if block.data is None else block.data


def data_url_of(block: ImageBlock | FileBlock) -> str:
    """Return the URL of a block, or one that holds its bytes.

    Raises:
        ConfigurationError: It has neither.
    """
    source = source_of(block)
    return source if isinstance(source, str) else f"data:{block.media_type};base64,{b64encode(source).decode()}"


def url_of(block: ImageBlock | FileBlock) -> str:
    """Return the URL of a block that has no bytes.

    Raises:
        ConfigurationError: It has none either.
    """
    if block.url is None:
        raise ConfigurationError(f"this {type(block).__name__} has neither data nor url: give it one of them")
    return block.url


def arguments_text(arguments: str) -> str:
    """Return the arguments of an earlier call as the JSON text of an object."""
    if not arguments.strip():
        return "{}"
    return arguments if _read_object(arguments) is not None else json.dumps(_wrap_text(arguments), ensure_ascii=False)


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return the arguments of an earlier call as an object."""
    if not arguments.strip():
        return {}
    found = _read_object(arguments)
    return _wrap_text(arguments) if found is None else found


def _wrap_text(arguments: str) -> dict[str, Any]:
    return {"malformed_arguments": arguments}


def _read_object(arguments: str) -> dict[str, Any] | None:
    try:
        found: object = from_json(arguments, allow_inf_nan=False)
        if _LARGE.search(arguments):
            json.dumps(found, allow_nan=False)  # a number that is too large was read as infinity
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def split_system(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the system messages at the beginning as one text, and the messages after them."""
    first = next((index for index, message in enumerate(messages) if not isinstance(message, SystemMessage)), None)
    leading = messages if first is None else messages[:first]
    text = "\n\n".join([message.text for message in leading if message.text])
    return text, () if first is None else messages[first:]


def as_user_text(message: SystemMessage) -> str:
    """Return a system message in the middle as user text, marked as a system message."""
    return f"<system>\n{message.content}\n</system>"


def checked_message(message: Message) -> Message:
    """Return the message.

    Raises:
        ConfigurationError: It is none of ours.
    """
    if not isinstance(message, SystemMessage | UserMessage | AssistantMessage | ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance] - a mapping, as SDKs take it
        raise ConfigurationError(
            "messages must be SystemMessage, UserMessage, AssistantMessage or ToolResult, "
            f"as in [UserMessage('Hi')], not {describe_value(message)}"
        )
    return message


def stop_texts(stop: Sequence[str]) -> list[str] | None:
    """Return the texts at which to stop, also of a single one that stands alone; None where there are none."""
    texts = [stop] if isinstance(stop, str) else list(stop)
    return [text for text in texts if text] or None


def checked_choice(choice: str, tools: Sequence[ToolDefinition]) -> Choice:
    """Return the tool choice , parsed.

    Raises:
        ConfigurationError: It names a tool that the request doesn't have, or must call and has none.
    """
    match choice:
        case "auto" | "none":
            return choice
        case "required" if tools:
            return "required"
        case _ if not tools:
            raise ConfigurationError(f"tool_choice is '{choice}', but the request has no tools")
        case _:
            names = [tool.name for tool in tools]
    if choice not in names:
        raise ConfigurationError(
            f"tool_choice is '{choice}', which is not 'auto', 'none', 'required' or one of: {', '.join(names)}"
        )
    return "one"


def strict_format(schema: Mapping[str, Any], *, is_openai: bool) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of an answer for OpenAI's formats, and whether the server may be strict about it.

    Requirements of strict mode beyond the schema, such as nulls for optional properties, are not added.

    Args:
        schema: Of the answer.
        is_openai: True where the server takes no keyword that strict mode does not know; others mostly know them.
    """
    if not is_openai:
        return schema, _is_strict(schema)
    if _has_all_required(schema):
        with suppress(SchemaError):
            return project_openai_strict(schema), True
    return schema, False


def _has_all_required(node: Mapping[str, Any]) -> bool:
    if set(node.get("required", ())) != set(node.get("properties", ())):
        return False
    return all(map(_has_all_required, subschemas(node)))


def _is_strict(schema: Any) -> bool:
    """Return whether a schema keeps the rules of strict mode as it is: each object closed, each property required."""
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


def extra_without(call: ToolCall, *others: str) -> dict[str, Any]:
    """Return the extra data that a server sent with a call, without that of other vendors, which servers refuse."""
    return {name: value for name, value in (call.extra or {}).items() if name != "unsaid" and name not in others}


def sealed(provider: str, data: Mapping[str, Any]) -> str:
    """Seal data that only its own provider reads, for `ReasoningBlock.encrypted`."""
    return json.dumps({provider: data}, ensure_ascii=False)


def unsealed(provider: str, encrypted: str) -> dict[str, Any] | None:
    """Return the data given to `sealed`; None if another provider sealed it, or nothing here did."""
    try:
        data: object = from_json(encrypted).get(provider)
    except (ValueError, AttributeError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None
