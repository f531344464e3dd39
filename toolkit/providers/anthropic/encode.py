"""Requests as Anthropic's messages say them.

Of what differs between formats (`toolkit.providers.encoding`) this one has:

- The system messages at the beginning are a field of their own; a later one is marked text of the user.
- Roles alternate and the user begins. Blank texts are refused there, so they are left out.
- Results hold text, images and PDFs, and have a field for a failed call.
- There is no sound, and of files PDFs and text: a user's others are refused, a word in brackets stands for a tool's.
- Reasoning goes back as it came, with its signature; that of other providers, which would be refused, does not.
- There is no seed, and since the version 2026-10-21 no temperature.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never, cast

from anthropic import transform_schema

from toolkit.chat import (
    AssistantMessage,
    AudioBlock,
    ChatRequest,
    FileBlock,
    ImageBlock,
    Message,
    ReasoningBlock,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolHints,
    ToolResult,
    VendorTool,
)
from toolkit.chat.request import describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.providers.encoding import (
    BEGINNING_LEFT_OUT,
    USER,
    BlockFormat,
    Dialect,
    EncodedOnce,
    JsonObject,
    ToolChange,
    arguments_object,
    as_items,
    as_mapping,
    as_text,
    assemble_body,
    checked_choice,
    checked_message,
    encode_tools_once,
    file_text,
    find_tool_changes,
    join_by_role,
    join_list,
    list_native_tools,
    source_of,
    split_system,
    stop_texts,
    to_bytes,
    unsealed,
)
from toolkit.schema import project_anthropic, project_anthropic_strict

CacheTime: TypeAlias = Literal["5m", "1h"]
"""How long Anthropic caches a prefix."""

ANTHROPIC_DIALECT = Dialect(call_id=re.compile(r"[A-Za-z0-9_-]+"))
ANTHROPIC_SEAL = "anthropic"
_SYSTEM, _MODEL = b"system", b"assistant"

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_EFFORTS = {"minimal": "low"}
_PDF = "application/pdf"
CODE_TOOL: Mapping[str, str] = {"type": "code_execution_20260120", "name": "code_execution"}
"""The tool in which the model runs code at Anthropic's; tools that code may call name it as their caller."""
SEARCH_TOOL: Mapping[str, str] = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
"""The tool by which the model finds deferred tools."""
_TOOL_CHANGES_BETA = "inline-tools-2026-09-15"
_MCP_BETA = "mcp-client-2025-11-20"
_EDIT_BETAS = {"clear": "context-management-2025-06-27", "compact": "compact-2026-01-12"}
_COMPACTION_BETAS = {"": "", "signed": "compact-2026-09-04", "edit": "compact-2026-01-12"}
ANTHROPIC_TOOLS: Mapping[VendorTool, Mapping[str, str]] = {
    "shell": {"type": "bash_20250124", "name": "bash"},
    "editor": {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    "memory": {"type": "memory_20250818", "name": "memory"},
    "computer": {"type": "computer_toolset_20260801"},
    "browser": {"type": "browser_toolset_20260801"},
}
"""The tools that Anthropic defines and the application runs, by the kind that `ToolHints.native_as` names.

Those without a name are sets of tools: the model calls one of the set, and the call names the set.
"""
_CALLERS = {"model": "direct", "code": CODE_TOOL["type"]}
_ANTHROPIC_OPENING = to_bytes({"type": "text", "text": BEGINNING_LEFT_OUT}, "text")


class MessagesEncoder:
    """Encodes the requests of one provider, each message and each tool once."""

    def __init__(
        self,
        *,
        model: str | None,
        defaults: Mapping[str, Any],
        max_tokens: int = 16_384,
        cache: CacheTime | None = None,
        takes_temperature: bool = False,
        takes_system_messages: bool = False,
        has_own_tools: bool = True,
    ) -> None:
        self._model = model
        self._defaults = dict(defaults)
        self._max_tokens = max_tokens
        self._mark: JsonObject = {"cache_control": {"type": "ephemeral", "ttl": cache}} if cache else {}
        self._takes_temperature = takes_temperature
        self._takes_system_messages = takes_system_messages
        self._messages = EncodedOnce(_encode_turn, size_of=lambda turn: len(turn.blocks))
        self._has_own_tools = has_own_tools
        self._tools = encode_tools_once(partial(encode_anthropic_tool, has_own_tools=has_own_tools))

    def encode(self, request: ChatRequest, *, streams: bool) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away."""
        system, messages = split_system(request.messages)
        settings = self._encode_settings(request, system, streams=streams)
        body: JsonObject = {"max_tokens": self._max_tokens, **self._defaults, **settings, **request.options}
        by_default, by_request = self._defaults.get("output_config"), request.options.get("output_config")
        output = {**as_mapping(by_default), **_encode_output_config(request), **as_mapping(by_request)}
        body["output_config"] = output or None
        if "thinking" not in body:
            body["thinking"] = _encode_anthropic_thinking(request)
        encoded = _name_toolsets(messages, self._messages.all_of(messages))
        if container := next((turn.container for turn in reversed(encoded) if turn.container), ""):
            _keep_container(container, body)
        spoken = [(turn.role, turn.blocks) for turn in encoded]
        if encoded and encoded[0].compaction:
            spoken[0] = (USER, spoken[0][1])  # a summary of the beginning must be the first block
        offered: Sequence[ToolDefinition] = request.tools or ()
        if self._takes_system_messages:
            offered = self._say_instructions(request, messages, spoken)
        members = {"messages": self._join_messages(spoken, _count_latest_instructions(messages))}
        given = body.pop("tools", None) or ()
        own = [*given, *find_anthropic_tools(request.tools or (), given)]
        tools = [*[to_bytes(tool, "a tool") for tool in own], *self._tools.all_of(offered)]
        if tools:
            if "system" not in settings:
                tools[-1] = self._add_mark(tools[-1])
            members["tools"] = join_list(tools)
        return assemble_body(body, members)

    def list_betas(self, request: ChatRequest) -> list[str]:
        """Return the betas of the API that a request needs, by its fields and by what its messages hold."""
        options = {**self._defaults, **request.options}
        edits = as_items(as_mapping(options.get("context_management")).get("edits"))
        found = {_EDIT_BETAS.get(as_text(edit.get("type")).partition("_")[0], "") for edit in edits}
        compacted = {turn.compaction for turn in self._messages.all_of(request.messages)}
        found |= {_COMPACTION_BETAS[kind] for kind in compacted}
        if options.get("mcp_servers"):
            found.add(_MCP_BETA)
        if options.get("compaction"):
            found.add(_COMPACTION_BETAS["signed"])
        if request.earlier_tools and self._takes_system_messages:
            found.add(_TOOL_CHANGES_BETA)
        return sorted(found - {""})

    def reading_of(self, request: ChatRequest) -> AnthropicReading:
        """Return the reader of the answer to a request."""
        tools = request.tools or ()
        names, sets = dict(ANTHROPIC_DIALECT.names_back(tools)), dict[str, str]()
        for kind, tool in list_native_tools(tools).items() if self._has_own_tools else ():
            own = ANTHROPIC_TOOLS.get(kind, {})
            if "name" not in own:
                sets[kind] = tool.name
            elif own["name"] != tool.name:
                names[own["name"]] = tool.name
        return AnthropicReading(names, sets)

    def _encode_settings(self, request: ChatRequest, system: str, *, streams: bool) -> JsonObject:
        if request.temperature is not None and not self._takes_temperature:
            raise ConfigurationError(
                "Anthropic takes no temperature since its version 2026-10-21: leave it out, or, for a model that still "
                "does, pass headers={'anthropic-version': '2023-06-01'} to the provider"
            )
        settings: JsonObject = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "system": [{"type": "text", "text": system, **self._mark}] if system.strip() else None,
            "temperature": request.temperature,
            "stop_sequences": stop_texts(request.stop),
            "stream": streams or None,
            "tool_choice": _encode_anthropic_tool_choice(request, has_own_tools=self._has_own_tools),
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _say_instructions(
        self, request: ChatRequest, messages: Sequence[Message], spoken: list[tuple[bytes, bytes]]
    ) -> Sequence[ToolDefinition]:
        """Put later system messages and changes of tools where they came; return the tools of the beginning."""
        for place in _find_instructions(messages, spoken):
            spoken[place] = (_SYSTEM, to_bytes(_make_text(messages[place].text), "the instructions"))
        offered, changes = find_tool_changes(request)
        known = {tool.name for tool in offered}
        before = len(request.messages) - len(messages)
        said = [(max(1, change.place - before), self._encode_change(change, known)) for change in changes]
        for place, blocks in reversed(said):
            spoken.insert(_find_free_place(spoken, place), (_SYSTEM, blocks))
        return offered

    def _encode_change(self, change: ToolChange, known: set[str]) -> bytes:
        """Return the blocks of a change; a tool that is not among the known names is defined, and added to them."""
        blocks = [to_bytes({"type": "tool_removal", "tool": _refer_to(tool)}, "a removal") for tool in change.removed]
        for tool, definition in zip(change.added, self._tools.all_of(change.added), strict=True):
            named = to_bytes(_refer_to(tool), "a tool")
            defined = assemble_body({"type": "tool_definition"}, {"definition": definition})
            blocks.append(assemble_body({"type": "tool_addition"}, {"tool": named if tool.name in known else defined}))
            known.add(tool.name)
        return b",".join(blocks)

    def _join_messages(self, spoken: list[tuple[bytes, bytes]], latest: int) -> bytes:
        """Join the messages; the mark follows the last message that the next request shares."""
        if self._mark:
            places = reversed(range(len(spoken) - latest))
            by_user = (place for place in places if spoken[place][0] == USER and spoken[place][1])
            last = next(by_user, None)
            if last is not None:
                spoken[last] = (USER, self._add_mark(spoken[last][1]))
        joined = join_by_role(spoken, field=b"content", opening=_ANTHROPIC_OPENING)
        if joined == b"[]":
            raise ConfigurationError("there is nothing to answer: Anthropic wants a message of the user with text")
        return joined

    def _add_mark(self, blocks: bytes) -> bytes:
        """Put the mark into the last of the blocks."""
        return blocks[:-1] + b"," + to_bytes(self._mark, "a mark")[1:] if self._mark else blocks


@dataclass(frozen=True, slots=True)
class AnthropicReading:
    """The parts of a request that its answer is read by."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])  # the tools' own, by those on the wire
    sets: Mapping[str, str] = field(default_factory=dict[str, str])  # the tools that implement a set of tools


def find_anthropic_tool(definition: ToolDefinition) -> Mapping[str, str] | None:
    """Return the tool of Anthropic's that is offered in place of a tool; None where there is none."""
    kind = None if definition.hints is None else definition.hints.native_as
    return None if kind is None else ANTHROPIC_TOOLS.get(kind)


def encode_anthropic_tool(definition: ToolDefinition, *, has_own_tools: bool = True) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as the SDK makes it for strict mode."""
    if has_own_tools and (own := find_anthropic_tool(definition)) is not None:
        hints = _encode_hints(definition.hints)
        hints.pop("eager_input_streaming", None)
        return {**own, **(hints if "name" in own else {})}
    subject = f"tool '{definition.name}'"
    schema = project_anthropic(definition.parameters, subject=subject)
    without_examples = definition if definition.hints is None else replace(definition, hints=None)
    tool: JsonObject = {
        "name": ANTHROPIC_DIALECT.tool_name_of(definition.name),
        "description": describe_with_hints(without_examples),
    }
    if definition.strict:
        schema = transform_schema(project_anthropic_strict(schema, subject=subject))
        return {**tool, "input_schema": schema, "strict": True, **_encode_hints(definition.hints)}
    return {**tool, "input_schema": schema, **_encode_hints(definition.hints)}


def find_anthropic_tools(tools: Sequence[ToolDefinition], given: Sequence[Any]) -> Iterator[Mapping[str, str]]:
    """Yield the tools of Anthropic's own that the hints of tools need, unless they are given."""
    hints = [tool.hints for tool in tools if tool.hints is not None]
    if not hints:
        return
    kinds = [as_text(as_mapping(tool).get("type")) for tool in given]
    if any("code" in each.callers for each in hints) and not any(kind.startswith("code_execution") for kind in kinds):
        yield CODE_TOOL
    if any(each.deferred for each in hints) and not any(kind.startswith("tool_search") for kind in kinds):
        yield SEARCH_TOOL


def _encode_hints(hints: ToolHints | None) -> JsonObject:
    if hints is None:
        return {}
    wire: JsonObject = {
        "input_examples": [dict(example) for example in hints.examples] or None,
        "allowed_callers": [_CALLERS[caller] for caller in hints.callers] or None,
        "eager_input_streaming": hints.eager_arguments or None,
        "defer_loading": hints.deferred or None,
        "cache_control": {"type": "ephemeral"} if hints.cache_breakpoint and not hints.deferred else None,
    }
    return {name: value for name, value in wire.items() if value is not None}


class _Turn(NamedTuple):
    """A message as the wire has it.

    Attributes:
        role: Of the user, the model or the system.
        blocks: The blocks, with commas between.
        container: The container that Anthropic's own tools ran in, if any.
        compaction: ``signed`` if it replaces the messages before it, ``edit`` if it contains a summary of them.
    """

    role: bytes
    blocks: bytes
    container: str = ""
    compaction: Literal["", "signed", "edit"] = ""


def _encode_turn(message: Message) -> _Turn:
    blocks = to_bytes(encode_anthropic_message(checked_message(message)), f"the {message.role} message")[1:-1]
    if not isinstance(message, AssistantMessage):
        return _Turn(USER, blocks)
    container = ""
    compaction: Literal["", "signed", "edit"] = ""
    for block in message.content:
        if isinstance(block, ReasoningBlock) and block.encrypted is not None:
            data = unsealed(ANTHROPIC_SEAL, block.encrypted) or {}
            container = as_text(data.get("container")) or container
            if data.get("type") == "compaction":
                compaction = "signed" if data.get("signature") else "edit"
    return _Turn(_MODEL, blocks, container, compaction)


def _refer_to(tool: ToolDefinition) -> JsonObject:
    own = find_anthropic_tool(tool) or {}
    return {"type": "tool_reference", "name": own.get("name") or ANTHROPIC_DIALECT.tool_name_of(tool.name)}


def _find_free_place(spoken: Sequence[tuple[bytes, bytes]], place: int) -> int:
    """Return where a system message may stand: after a message of the user, and before the model's or at the end."""
    while place < len(spoken) and (spoken[place][0] == USER or not spoken[place][1]):
        place += 1
    while place > 1 and spoken[place - 1][0] == _MODEL:
        place -= 1
    return place


def _find_instructions(messages: Sequence[Message], spoken: Sequence[tuple[bytes, bytes]]) -> Iterator[int]:
    """Yield the places of the system messages that follow the user and stand before the model, or at the end."""
    group: list[int] = []
    for place, (message, (role, blocks)) in enumerate(zip(messages, list(spoken), strict=True)):
        if isinstance(message, SystemMessage):
            if group or (place and spoken[place - 1][0] == USER):
                group += [place] if message.text.strip() else []
        elif blocks:
            if role != USER:
                yield from group
            group = []
    yield from group


def _count_latest_instructions(messages: Sequence[Message]) -> int:
    """Return how many system messages stand at the end, after others."""
    spoken = next((count for count, each in enumerate(reversed(messages)) if not isinstance(each, SystemMessage)), None)
    return spoken or 0


def _name_toolsets(messages: Sequence[Message], encoded: list[_Turn]) -> list[_Turn]:
    """Put the name of a set of tools into the results of its calls."""
    sets: dict[str, str] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            own = {call.id: as_mapping((call.extra or {}).get(ANTHROPIC_SEAL)) for call in message.tool_calls}
            sets |= {call_id: name for call_id, data in own.items() if (name := as_text(data.get("toolset_name")))}
        elif sets and isinstance(message, ToolResult) and message.call_id in sets:
            named = to_bytes({"toolset_name": sets[message.call_id]}, "a set of tools")
            encoded[place] = _Turn(USER, b"".join([encoded[place].blocks[:-1], b",", named[1:]]))
    return encoded


def _keep_container(container: str, body: JsonObject) -> None:
    """Ask for the same container again; one that the options name, or take away, goes before."""
    asked: object = body.get("container", "")
    if asked == "":
        body["container"] = container
    elif isinstance(asked, Mapping):
        body["container"] = {"id": container, **as_mapping(cast("object", asked))}


def _encode_anthropic_tool_choice(request: ChatRequest, *, has_own_tools: bool) -> JsonObject | None:
    choice = checked_choice(request.tool_choice, request.tools or ())
    if not request.tools:
        return None
    wire: JsonObject
    match choice:
        case "none":
            return {"type": "none"}
        case "one":
            chosen = next(tool for tool in request.tools if tool.name == request.tool_choice)
            own = find_anthropic_tool(chosen) if has_own_tools else None
            if own is not None and "name" not in own:
                raise ConfigurationError(f"Anthropic can't be made to use a set of tools: '{chosen.name}'")
            name = ANTHROPIC_DIALECT.tool_name_of(chosen.name) if own is None else own["name"]
            wire = {"type": "tool", "name": name}
        case "required":
            wire = {"type": "any"}
        case "auto" if request.parallel_tool_calls is None:
            return None
        case "auto":
            wire = {"type": "auto"}
        case _:
            assert_never(choice)
    if request.parallel_tool_calls is not None:
        wire["disable_parallel_tool_use"] = not request.parallel_tool_calls
    return wire


def _encode_anthropic_thinking(request: ChatRequest) -> JsonObject | None:
    """Let the model think where an effort is asked for; a forced call forbids it."""
    if request.reasoning_effort is None:
        return None
    if request.reasoning_effort == "none":
        return {"type": "disabled"}
    is_forced = bool(request.tools) and request.tool_choice not in ("auto", "none")
    return None if is_forced else {"type": "adaptive"}


def _encode_output_config(request: ChatRequest) -> JsonObject:
    output: JsonObject = {}
    if request.reasoning_effort not in (None, "none"):
        output["effort"] = _EFFORTS.get(request.reasoning_effort, request.reasoning_effort)
    if request.response_format is not None:
        wanted = request.response_format
        schema = project_anthropic_strict(wanted.schema, subject=f"the schema of '{wanted.name}'")
        output["format"] = {"type": "json_schema", "schema": transform_schema(schema)}
    return output


def _make_text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _encode_media(block: ImageBlock | AudioBlock | FileBlock) -> JsonObject | None:
    match block:
        case ImageBlock():
            source = _encode_source(block)
            return {"type": "image", "source": source} if block.data is None or block.media_type in _IMAGES else None
        case FileBlock() if block.media_type == _PDF:
            return {"type": "document", "source": _encode_source(block), "title": block.name}
        case FileBlock():
            text = file_text(block)
            return None if text is None else _make_text(text)
        case AudioBlock():
            return None
        case _:
            assert_never(block)


def _encode_source(block: ImageBlock | FileBlock) -> JsonObject:
    source = source_of(block)
    if isinstance(source, str):
        return {"type": "url", "url": source}
    return {"type": "base64", "media_type": block.media_type, "data": b64encode(source).decode()}


def _encode_anthropic_result(result: ToolResult, blocks: list[JsonObject]) -> JsonObject:
    wire: JsonObject = {
        "type": "tool_result",
        "tool_use_id": ANTHROPIC_DIALECT.call_id_of(result.call_id),
        "content": result.content if isinstance(result.content, str) else blocks,
    }
    return {**wire, "is_error": True} if result.is_error else wire


def _encode_anthropic_call(call: ToolCall) -> JsonObject:
    return {
        "name": ANTHROPIC_DIALECT.tool_name_of(call.name),
        "input": arguments_object(call.arguments),
        **as_mapping((call.extra or {}).get(ANTHROPIC_SEAL)),
        "type": "tool_use",
        "id": ANTHROPIC_DIALECT.call_id_of(call.id),
    }


def _encode_anthropic_reasoning(block: ReasoningBlock) -> JsonObject | None:
    """Return the block that the decoder sealed; None for another provider's."""
    if block.encrypted is not None:
        data = unsealed(ANTHROPIC_SEAL, block.encrypted)
        return data if data and "type" in data else None
    if block.signature is None:
        return None
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


_BLOCKS = BlockFormat(
    takes=("Anthropic", "text, PNG, JPEG, GIF and WebP images, PDFs and files of text"),
    make_text=_make_text,
    encode_media=_encode_media,
    encode_call=_encode_anthropic_call,
    encode_reasoning=_encode_anthropic_reasoning,
    encode_result=_encode_anthropic_result,
)
encode_anthropic_message = _BLOCKS.encode
"""Returns the blocks that a message is on the wire."""
