"""JSON on the wire, both ways, and content that a format can't express: handled once for all formats.

Messages and tools are encoded once, however often they are sent. JSON from a server is read with nothing taken for
granted: a value of another kind is empty.

- Call ids and tool names of the wrong letters or lengths become others: the same one gives the same other one, in the
  definition, in the call, in the result and in the next process; `Dialect.names_back` gives the tools' own again.
- A result whose images, sounds or files don't fit into a tool's message goes as text that says where they are; they
  follow in a user message.
- A failed call says so in its text where there is no field for it.
- Arguments that are not a JSON object are wrapped in one: servers parse the history, and fail on them.
- A system message in the middle goes as marked text of the user where only the beginning may have one.
- Neighbours of one role become one message where roles must alternate, and empty messages are left out there.
- A schema of the answer is only called strict where strict mode can say it.
"""

from __future__ import annotations

import json
import math
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from typing import Any, Generic, Literal, TypeAlias, TypeVar, assert_never, cast

from pydantic_core import from_json

from toolkit.chat import (
    AssistantContent,
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    ContentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolDefinition,
    ToolResult,
    UserMessage,
    VendorTool,
)
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, SchemaError
from toolkit.json_text import write_json
from toolkit.schema import project_openai_strict
from toolkit.schema.nodes import subschemas
from toolkit.settings import describe_value
from toolkit.tool_names import LONGEST_TOOL_NAME, hash_name

JsonObject: TypeAlias = dict[str, Any]
"""An object as JSON has it, while it is made."""

_MOST = 2**53  # larger numbers are not counted, and not exact in JSON
ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")
_MOST_ITEMS = 10_000
_MOST_KEPT_BYTES = 32 * 2**20
_ENTRY_BYTES = 1024  # the least that an item and its entry take as objects
_OBJECT_FACTOR = 3  # the size of an item and its encoding together, by that of the encoding
_GENERATION_SECONDS = 60.0
USER = b"user"
BEGINNING_LEFT_OUT = "[The beginning of the conversation is left out.]"
"""The user's message where a transcript begins with the model."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_items(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the objects in a list, else none.

    Raises:
        ValueError: It has more than 10,000 items.
    """
    if not isinstance(value, list):
        return ()
    if len(cast("list[object]", value)) > _MOST_ITEMS:
        raise ValueError(f"a list in the reply has more than {_MOST_ITEMS:,} items")
    return [cast("Mapping[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, Mapping)]


def stop_of_calls(reason: str, complete: Collection[str]) -> StopReason:
    """Return the stop reason of a reply with calls: it is complete only if the server gives a reason that says so."""
    return "tool_use" if not reason or reason in complete else "max_tokens"


def as_text(value: object) -> str:
    """Return a text, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """Return how many of something there are, else None."""
    amount = as_amount(value)
    return None if amount is None or amount > _MOST else int(amount)


def as_amount(value: object) -> float | None:
    """Return how much of something there is, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) and value >= 0 else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def as_key(value: object) -> int | str | None:
    """Return the key that identifies a part, else None."""
    return value if isinstance(value, int | str) else None


def as_bytes(value: object) -> bytes:
    """Return the bytes of a base64 text, else nothing."""
    try:
        return b64decode(as_text(value))
    except ValueError:
        return b""


def usage_details(**counts: int | None) -> Mapping[str, int] | None:
    """Return the counts that are not 0, as `Usage.details` has them; None where none is left."""
    return {name: count for name, count in counts.items() if count} or None


class EncodedOnce(Generic[ItemT, EncodedT]):
    """Keeps what items were encoded as, by identity: messages and definitions are not changed once they are made.

    An item is kept alive with its encoding, and both are counted. Items not used recently are dropped when the cache is
    full, half of it at once, and those that no request of the last two minutes used by the next request; nothing is
    lost by that but the time to encode them again.
    """

    def __init__(
        self,
        encode: Callable[[ItemT], EncodedT],
        *,
        size_of: Callable[[EncodedT], int],
        most_bytes: int = _MOST_KEPT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encode = encode
        self._size_of = size_of
        self._most_bytes = most_bytes
        # Two generations: used items move to the young one; when that is full it becomes the old one. Each entry
        # holds its item, so that no other object can have its identity.
        self._young: dict[int, tuple[ItemT, EncodedT]] = {}
        self._old: dict[int, tuple[ItemT, EncodedT]] = {}
        self._size = 0
        self._clock = clock
        self._young_since = clock()

    def all_of(self, items: Sequence[ItemT]) -> list[EncodedT]:
        """Return the encodings in order."""
        if self._clock() - self._young_since > _GENERATION_SECONDS:
            self._drop_oldest()
        young = self._young
        try:
            return [young[id(item)][1] for item in items]
        except KeyError:
            return [self._encode_one(item) for item in items]

    def _encode_one(self, item: ItemT) -> EncodedT:
        key = id(item)
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key) or (item, self._encode(item))
            if self._size > self._most_bytes / 2:
                self._drop_oldest()
            self._young[key] = entry
            self._size += _ENTRY_BYTES + _OBJECT_FACTOR * self._size_of(entry[1])
        return entry[1]

    def _drop_oldest(self) -> None:
        now = self._clock()
        is_old_in_use = now - self._young_since <= 2 * _GENERATION_SECONDS
        self._old, self._young, self._size = (self._young if is_old_in_use else {}), {}, 0
        self._young_since = now


def encode_tools_once(encode: Callable[[ToolDefinition], object]) -> EncodedOnce[ToolDefinition, bytes]:
    """Return a cache of tools encoded as bytes of JSON."""
    return EncodedOnce(lambda tool: to_bytes(encode(tool), f"tool '{tool.name}'"), size_of=len)


def to_bytes(value: object, subject: str) -> bytes:
    """Return JSON, with lone surrogates as question marks; an error names the subject."""
    try:
        return write_json(value, allow_nan=False, default=_make_encodable).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{subject} can't be written as JSON: {error}") from error


def join_list(encodings: Iterable[bytes]) -> bytes:
    """Return a JSON list of items that are JSON already."""
    return b"[" + b",".join(encodings) + b"]"


def assemble_body(body: Mapping[str, Any], members: Mapping[str, bytes | Sequence[bytes]]) -> bytes:
    """Return the body of a request: its fields, without those of None, and members that are JSON already."""
    encoded = to_bytes({name: value for name, value in body.items() if value is not None}, "the request")
    pieces = [encoded[:-1]]
    for name, value in members.items():
        if name not in body:
            pieces += [b"," if pieces != [b"{"] else b"", to_bytes(name, "a name"), b":"]
            pieces += [value] if isinstance(value, bytes) else _join_pieces(value)
    return b"".join([*pieces, b"}"])


def _join_pieces(encodings: Sequence[bytes]) -> list[bytes]:
    # The commas are inserted here, so that megabytes are copied only once.
    pieces = [b","] * (2 * len(encodings) + 1)
    pieces[1::2] = encodings
    pieces[0] = b"["
    pieces[-1] = b"]" if encodings else b"[]"
    return pieces


def _make_encodable(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, tuple | set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def join_by_role(spoken: Iterable[tuple[bytes, bytes]], *, field: bytes, opening: bytes) -> bytes:
    """Return the messages as a JSON list, from the role and the joined blocks of each; no blocks are no message.

    The user says the opening block where the model would begin.
    """
    pieces: list[bytes] = []
    speaker = b""
    for role, blocks in spoken:
        if not blocks:
            continue
        if role == speaker:
            pieces.append(b",")
        else:
            if not pieces and role != USER:
                pieces += [_begin_message(USER, field), opening]
            pieces += [b"]}," if pieces else b"", _begin_message(role, field)]
            speaker = role
        pieces.append(blocks)
    return b"[" + b"".join(pieces) + (b"]}]" if pieces else b"]")


def _begin_message(role: bytes, field: bytes) -> bytes:
    return b'{"role":"%s","%s":[' % (role, field)


Choice: TypeAlias = Literal["auto", "none", "required", "one"]
"""The choice that `ChatRequest.tool_choice` makes; with ``one`` it names the tool."""

ONE_AT_A_TIME = "Call one function at a time."
"""The words for a format without a setting for parallel calls."""
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
        made = f"call_{digest[:32]}"[: self.longest_call_id]
        return made if self.call_id.fullmatch(made) else digest[: self.longest_call_id]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDialect(Dialect):
    """The abilities of a server that speaks chat completions: others are emulated, or refused in words.

    Args:
        is_openai: True if the server refuses whatever is not OpenAI's own, and knows strict mode's keywords alone.
        max_tokens_field: Where the limit of tokens goes.
        reasoning_field: Where reasoning goes back; None leaves it out.
        seed_field: Where the seed goes.
        required_choice: The word for a call that must be made.
        choices: Of ``none``, ``required`` and ``one``. Without ``none`` the tools are left out of such a request;
            without ``one`` the named tool is the only one offered; without ``required`` a forced call is refused.
        takes_parallel_switch: False puts one call at a time in words.
        takes_schema: False asks for JSON, and puts the schema in words.
        takes_strict: False leaves ``strict`` out of tools.
        takes_stream_options: False if usage is in the last piece unasked.
        takes_extra: False leaves out what other servers sent with calls.
    """

    longest_call_id: int = 40
    is_openai: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_field: str | None = "reasoning_content"
    seed_field: str = "seed"
    required_choice: str = "required"
    choices: frozenset[str] = frozenset({"none", "required", "one"})
    takes_parallel_switch: bool = True
    takes_schema: bool = True
    takes_strict: bool = True
    takes_stream_options: bool = True
    takes_extra: bool = True


@dataclass(frozen=True, slots=True)
class ResultText:
    """A result as text, and the blocks that no text can hold, for a user message after the turn's last result."""

    text: str
    attachments: tuple[ContentBlock, ...] = ()


def result_text(result: ToolResult, *, name: str = "", call_id: str = "") -> ResultText:
    """Return a result for a format whose tool messages are text; it names the tool and the call as the wire does."""
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
    """Return the bytes of a block, else its URL; one with neither is a `ConfigurationError`."""
    return url_of(block) if block.data is None else block.data


def data_url_of(block: ImageBlock | FileBlock) -> str:
    """Return the URL of a block, or one that holds its bytes; one with neither is a `ConfigurationError`."""
    source = source_of(block)
    return source if isinstance(source, str) else f"data:{block.media_type};base64,{b64encode(source).decode()}"


def url_of(block: ImageBlock | FileBlock) -> str:
    """Return the URL of a block that has no bytes; one with neither is a `ConfigurationError`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """Messages as lists of blocks, for a format that has blocks for some kinds of content.

    Blank texts are left out. What the format has no block for is refused where it is the user's, and a word in
    brackets otherwise.

    Args:
        takes: The name of the format and what it takes, for the error: ``("Acme", "text and PNG images")``.
        make_text: Returns the block of a text.
        encode_media: Returns the block of an image, a sound or a file; None where there is none.
        encode_call: Returns the block of a call.
        encode_reasoning: Returns the block of reasoning; None for another provider's.
        encode_result: Returns the block of a result with these blocks in it.
    """

    takes: tuple[str, str]
    make_text: Callable[[str], JsonObject]
    encode_media: Callable[[ImageBlock | AudioBlock | FileBlock], JsonObject | None]
    encode_call: Callable[[ToolCall], JsonObject]
    encode_reasoning: Callable[[ReasoningBlock], JsonObject | None]
    encode_result: Callable[[ToolResult, list[JsonObject]], JsonObject]

    def encode(self, message: Message) -> list[JsonObject]:
        """Return the blocks of a message, always the same; raise where it holds what the format takes from no user."""
        match message:
            case SystemMessage():
                return [self.make_text(as_user_text(message))]
            case UserMessage():
                return [self._encode_given(block) for block in _list_blocks(message.content)]
            case AssistantMessage():
                said = [self._encode_said(block) for block in message.content if not _is_blank(block)]
                return [block for block in said if block is not None]
            case ToolResult():
                blocks = _list_blocks(message.content)
                shown = [self._encode_part(block) or self.make_text(f"[{block.type}: not shown]") for block in blocks]
                return [self.encode_result(message, shown)]
            case _:
                assert_never(message)

    def _encode_part(self, block: ContentBlock) -> JsonObject | None:
        return self.make_text(block.text) if isinstance(block, TextBlock) else self.encode_media(block)

    def _encode_given(self, block: ContentBlock) -> JsonObject:
        part = self._encode_part(block)
        if part is None:
            kind, (name, taken) = getattr(block, "media_type", block.type), self.takes
            raise ConfigurationError(f"{name} takes no {kind} here: it takes {taken}")
        return part

    def _encode_said(self, block: AssistantContent) -> JsonObject | None:
        match block:
            case TextBlock():
                return self.make_text(block.text)
            case ToolCall():
                return self.encode_call(block)
            case ReasoningBlock():
                return self.encode_reasoning(block)
            case _:
                return self.make_text(f"[{block.type}]")


def _list_blocks(content: str | Sequence[ContentBlock]) -> list[ContentBlock]:
    blocks = (TextBlock(content),) if isinstance(content, str) else content
    return [block for block in blocks if not _is_blank(block)]


def _is_blank(block: object) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def checked_message(message: Message) -> Message:
    """Return the message, or raise a `ConfigurationError` where it is none of ours."""
    if not isinstance(message, SystemMessage | UserMessage | AssistantMessage | ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance] - a mapping, as SDKs take it
        raise ConfigurationError(
            "messages must be SystemMessage, UserMessage, AssistantMessage or ToolResult, "
            f"as in [UserMessage('Hi')], not {describe_value(message)}"
        )
    return message


def stop_texts(stop: Sequence[str]) -> list[str] | None:
    """Return the texts at which to stop, given as a list or as a single text; None where there are none."""
    texts = [stop] if isinstance(stop, str) else list(stop)
    return [text for text in texts if text] or None


def checked_choice(choice: str, tools: Sequence[ToolDefinition]) -> Choice:
    """Return the choice, or raise where it names a tool that isn't there, or requires one and there is none."""
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


def list_native_tools(tools: Iterable[ToolDefinition]) -> Mapping[VendorTool, ToolDefinition]:
    """Return the tools that implement a vendor's own, by their kind; mostly empty. Two of a kind are refused."""
    found: dict[VendorTool, ToolDefinition] = {}
    for tool in tools:
        kind = None if tool.hints is None else tool.hints.native_as
        if kind is not None and found.setdefault(kind, tool) is not tool:
            raise ConfigurationError(f"'{found[kind].name}' and '{tool.name}' are both native_as='{kind}': offer one")
    return found


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A change of the tools in mid-conversation: after so many messages some were added, and others removed."""

    place: int
    added: Sequence[ToolDefinition]
    removed: Sequence[ToolDefinition]


def find_tool_changes(request: ChatRequest) -> tuple[Sequence[ToolDefinition], Sequence[ToolChange]]:
    """Return the tools with which a conversation began, and their changes since.

    A tool that was defined anew starts a new list: changes before it are left out.
    """
    tools = request.tools or ()
    if not tools or not request.earlier_tools:
        return tools, ()
    offers = [*[(each.tools, each.until) for each in request.earlier_tools], (tools, 0)]
    first, changes = offers[0][0], list[ToolChange]()
    known = {tool.name: tool for tool in first}
    for (before, place), (after, _) in pairwise(offers):
        if place > len(request.messages) or any(known.setdefault(tool.name, tool) != tool for tool in after):
            first, changes, known = after, [], {tool.name: tool for tool in after}
            continue
        change = ToolChange(place, _leave_out(after, before), _leave_out(before, after))
        if change.added or change.removed:
            changes.append(change)
    return first, changes


def _leave_out(tools: Sequence[ToolDefinition], others: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools whose names no other has."""
    names = {tool.name for tool in others}
    return [tool for tool in tools if tool.name not in names]


def strict_format(schema: Mapping[str, Any], *, is_openai: bool) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of an answer for OpenAI's formats, and whether the server may be strict about it.

    OpenAI takes no keyword that strict mode does not know; others mostly know them. Requirements of strict mode beyond
    the schema, such as nulls for optional properties, are not added.
    """
    can_be_strict = _requires_all(schema, is_closed=not is_openai)
    if not (is_openai and can_be_strict):
        return schema, can_be_strict
    with suppress(SchemaError):
        return project_openai_strict(schema), True
    return schema, False


def _requires_all(node: Mapping[str, Any], *, is_closed: bool) -> bool:
    """Return whether each object of a schema requires all of its properties and, where it must, has no others."""
    if set(node.get("required", ())) != set(node.get("properties", ())):
        return False
    is_object = node.get("type") == "object" or "properties" in node
    if is_closed and is_object and node.get("additionalProperties") is not False:
        return False
    return all(_requires_all(each, is_closed=is_closed) for each in subschemas(node))


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
