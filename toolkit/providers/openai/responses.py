"""Responses, OpenAI's format for models that reason: the provider, its requests and its answers.

A request is a flat list of items, in which reasoning, text and calls keep their order. Of what differs between formats
(`toolkit.providers.encoding`) this one has:

- Results hold text, images and files. There is no field for a failed call: the text begins with "Error".
- There is no sound: a user's is refused, and a word in brackets stands for a tool's or the model's own.
- Reasoning goes back as it came where it is sealed; OpenAI refuses it without its seal, other servers read it.
- Items without a counterpart here (calls of tools that run at OpenAI, the phase of a message) are sealed in a
  `ReasoningBlock` and go back as they came.
- There are no stop texts: a request that has some is refused. Nor is there a seed.

Compatible servers leave fields out, the numbers of events among them, so nothing of an answer is taken for granted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field, replace
from functools import partial
from hashlib import sha256
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Unpack, assert_never, cast

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
from toolkit.chat.request import Capabilities, Support, describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.providers.adapter import Decoder, Exchange, PartialCall, split_compacted
from toolkit.providers.encoding import (
    Dialect,
    EncodedOnce,
    JsonObject,
    ToolChange,
    arguments_object,
    arguments_text,
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
    error_text,
    extra_without,
    file_text,
    find_tool_changes,
    sealed,
    strict_format,
    to_bytes,
    unsealed,
    usage_details,
)
from toolkit.providers.openai.background import BackgroundExchange
from toolkit.providers.openai.client import OpenAIClient, OpenAISettings
from toolkit.providers.openai.own_tools import (
    RESPONSES_SEAL,
    answer_own_call,
    find_openai_tool,
    list_own_tools,
    read_own_call,
    sealed_item,
)
from toolkit.schema import project_openai_strict

_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt|gpt-5(\.\d)?-chat)")
RESPONSES_DIALECT = Dialect(longest_call_id=64)
_MERGED_OPTIONS = ("reasoning", "text")
MESSAGE_ITEMS = frozenset({"function_call", "image_generation_call", "message", "reasoning"})
"""Items that have a block of ours."""
SETTLED = frozenset(
    {"additional_tools", "code_interpreter_call", "compaction", "file_search_call", "mcp_approval_response", "mcp_call"}
    | {"mcp_list_tools", "web_search_call"}
    | {"apply_patch_call_output", "computer_call_output", "custom_tool_call_output", "function_call_output"}
    | {"local_shell_call_output", "program_output", "shell_call_output", "tool_search_output"}
)
"""Items that report what happened at OpenAI, and answers that stand in the response already."""
WAITING = frozenset(
    {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request", "program"}
    | {"shell_call", "tool_search_call"}
)
"""Items that the application answers, unless the response holds the answer."""
_ADDITIONAL_TOOLS: JsonObject = {"type": "additional_tools", "role": "developer"}
_TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_DELTAS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_RESPONSES_METADATA = ("id", "service_tier", "prompt_cache_diagnostics", "incomplete_details")
_UNFINISHED = ("queued", "in_progress", "cancelled")
_RESPONSES_CALL_FIELDS = frozenset({"id", "type", "call_id", "name", "arguments", "input", "status"})
_END_OF_TEXT = '"}'
_CALLERS = {"model": "direct", "code": "programmatic"}
_MOST_NAMED_TOOLS = 20
_ECHOED = ("caller", "namespace")  # of a call, in the output
_BETWEEN_SUMMARIES = "\n\n"
_PAID_CALLS = {
    "web_search_call": "web_searches",
    "file_search_call": "storage_searches",
    "code_interpreter_call": "code_executions",
    "image_generation_call": "generated_images",
}
"""The counts by which OpenAI's own tools are priced, beside the tokens."""


class OpenAIResponsesProvider(OpenAIClient):
    """Connects to a model through OpenAI's responses API, which preserves the model's reasoning between its calls.

    ::

        async with OpenAIResponsesProvider("gpt-5-mini") as provider:
            result = await tool_loop(provider, registry, "What's the weather in Paris?")

    ``OpenAIResponsesProvider("gpt-5-mini")`` needs ``OPENAI_API_KEY``. The whole transcript goes with each request and
    nothing is stored at the server, unless `options` say otherwise; reasoning comes sealed and goes back as it came.
    Sharing, closing and retries are as for `OpenAIProvider`.

    Args:
        model: The model's name as the server knows it.
        options: Fields for each request, such as `ResponsesOptions`; `ChatRequest.options` go over them.
        seals_reasoning: True to ask for sealed reasoning; None means yes, but for the models of OpenAI that don't
            reason, which refuse to be asked.
        stores_transcript: True to have OpenAI store the conversation: a request names the response before it and holds
            only what is new, unless the transcript was changed since. A ``conversation`` in `options` does so, too.
        background: True to have OpenAI make the responses in the background, which it stores while they are made: they
            are polled, or streamed over as many connections as it takes, and cancelled with the run. A mapping, such as
            one of `shelve`, holds the ids of responses that are not done, so that a request that is made again after a
            restart goes on with its response; it is used on the event loop. None leaves it to `options`.
        settings: See `OpenAISettings`.

    Raises:
        ProviderAuthError: There is no key and the server is not on this machine.
    """

    _path = "/responses"
    _protocol = "a response"
    _name = "openai-responses"

    def __init__(
        self,
        model: str,
        *,
        options: Mapping[str, Any] | None = None,
        seals_reasoning: bool | None = None,
        stores_transcript: bool = False,
        background: bool | MutableMapping[str, str] | None = None,
        **settings: Unpack[OpenAISettings],
    ) -> None:
        super().__init__(model, **settings)
        defaults: dict[str, Any] = {"store": stores_transcript}
        if seals_reasoning or (seals_reasoning is None and not _WITHOUT_REASONING.match(model)):
            defaults["include"] = ["reasoning.encrypted_content"]
        self._started = background if isinstance(background, MutableMapping) else dict[str, str]()
        self._under_way = set[str]()
        if background is not None:
            defaults["background"] = background is not False
        self._encoder = ResponsesEncoder(
            model=model,
            defaults=defaults,
            options=options or {},
            is_openai=self._dialect.is_openai,
            stores_transcript=stores_transcript,
        )

    async def compact(self, messages: Sequence[Message]) -> list[Message]:
        """Return a transcript of the user's messages and OpenAI's summary of the others; see `compact_on_server`.

        Raises:
            ProviderError: Or a subclass.
        """
        head, rest, newest = split_compacted(messages)
        if not rest:
            return list(messages)
        body = self._encoder.encode_compaction(head, rest)
        answer = await self._make_exchange("/compact").ask(body, timeout=self._timeout)
        items = [item for item in as_items(answer.json.get("output")) if item.get("type") != "message"]
        if not items:
            raise self._make_failures().empty("output", request_id=answer.request_id)
        summary = AssistantMessage([ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, item)) for item in items])
        return [*head, *[message for message in rest if isinstance(message, UserMessage)], summary, *newest]

    async def _encode_request(self, request: ChatRequest, *, streams: bool) -> tuple[Exchange, bytes]:
        exchange, body = self._make_exchange(), self._encoder.encode(request, streams=streams)
        if not self._encoder.is_background(request):
            return exchange, body
        background = BackgroundExchange(
            send=exchange.send,
            failures=exchange.failures,
            raised=exchange.raised,
            follow=self._follow_response,
            cancel=lambda response_id: self._make_exchange(f"/{response_id}/cancel").ask(b"{}", timeout=None),
            started=self._started,
            under_way=self._under_way,
        )
        return background, body

    def _follow_response(self, response_id: str, after: int | None) -> Exchange:
        """Return the exchange that asks for a response: whole, or its events after a number; -1 is all of them."""
        stream = "" if after is None else "?stream=true"
        stream += f"&starting_after={after}" if after is not None and after >= 0 else ""
        return self._make_exchange(f"/{response_id}{stream}", method="get")

    def _make_decoder(self, request: ChatRequest, request_id: str | None) -> ResponsesDecoder:
        return ResponsesDecoder(self._make_failures, self._encoder.reading_of(request), request_id=request_id)

    def _list_capabilities(self, model: str) -> Capabilities:
        new: Support = "native" if self._dialect.is_openai and not _WITHOUT_REASONING.match(model) else "unused"
        other: Support = "native" if new == "native" else "emulated"
        return Capabilities(
            media_in_results="native",
            files="native",
            output_schemas=new,
            code_callers=new,
            freeform_tools=other,
            shell_tool=other,
            patch_tool=other,
            computer_tool=other,
            deferred_tools=other,
            tool_changes=new,
            background="native" if self._dialect.is_openai else "refused",
            compaction="native" if self._dialect.is_openai else "emulated",
            source="https://platform.openai.com/docs/api-reference/responses",
        )

    def _find_azure_path(self, path: str) -> str:
        return path


@dataclass(frozen=True, slots=True)
class ResponsesReading:
    """The parts of a request that its answer is read by."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])  # the tools' own, by those on the wire
    freeform: Mapping[str, str] = field(default_factory=dict[str, str])  # the parameters of tools that take a text
    own: Mapping[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])  # by the items that call them
    digest: str = ""  # of the transcript, where OpenAI stores it

    def is_call(self, item: Mapping[str, Any]) -> bool:
        """Return whether an item calls a tool of the application."""
        kind = as_text(item.get("type"))
        if kind == "custom_tool_call":
            return as_text(item.get("name")) in self.freeform
        return kind == "function_call" or (kind in self.own and _is_waiting(item))

    def read_call(self, item: Mapping[str, Any]) -> ToolCall:
        """Return an item as a call; `is_call` must be true of it."""
        kind, name = item["type"], as_text(item.get("name"))
        if kind in self.own:
            return read_own_call(item, self.own[kind])
        call = _read_function_call(item, self.names)
        if kind == "function_call":
            return call
        parameter, text = _escape_text(self.freeform[name]), _escape_text(as_text(item.get("input")))
        text = f'{{"{parameter}": "{text}{_END_OF_TEXT}'
        return replace(call, arguments=text, extra={**(call.extra or {}), RESPONSES_SEAL: {"freeform": True}})


_PLAIN = ResponsesReading()


class ResponsesEncoder:
    """Encodes the requests of one provider, each message and each tool once."""

    def __init__(
        self,
        *,
        model: str,
        defaults: Mapping[str, Any],
        options: Mapping[str, Any] = MappingProxyType({}),
        is_openai: bool = True,
        stores_transcript: bool = False,
    ) -> None:
        self._stores_transcript = stores_transcript
        self._model = model
        self._defaults = dict(defaults)
        _add_options(self._defaults, options)
        self._is_openai = is_openai
        self._has_new_tools = is_openai and not _WITHOUT_REASONING.match(model)
        self._messages = EncodedOnce(partial(_encode_items, sends_open_reasoning=not is_openai), size_of=len)
        self._tools = encode_tools_once(partial(encode_responses_tool, has_new_tools=self._has_new_tools))

    def encode(self, request: ChatRequest, *, streams: bool) -> bytes:
        """Return the body of the request: its `options` over everything, one of None takes the field away."""
        body = self._encode_settings(request, streams=streams)
        tools, changes = find_tool_changes(request) if self._has_new_tools else (request.tools or (), ())
        items = self._join_items(request.messages)
        stored = self._cut_stored(request.messages, items, body) if self._is_stored(request) else 0
        self._add_changes(items, tools, [change for change in changes if change.place >= stored])
        members = {"input": [each for each in items if each]}
        given = body.pop("tools", None) or ()
        given = [*given, *find_openai_tools(request.tools or (), given)] if self._has_new_tools else given
        if tools or given:
            offered = [to_bytes(tool, "a tool of the options") for tool in given]
            members["tools"] = [*self._group_tools(tools), *offered]
        return assemble_body(body, members)

    def _encode_settings(self, request: ChatRequest, *, streams: bool) -> JsonObject:
        """Return the body without the items and the tools."""
        if request.stop:
            raise ConfigurationError("responses have no stop texts: leave `stop` out, or use OpenAIProvider")
        body: JsonObject = {
            **self._defaults,
            "model": self._model,
            **_encode_tool_settings(request, has_new_tools=self._has_new_tools),
        }
        if request.response_format is not None:
            schema, is_strict = strict_format(request.response_format.schema, is_openai=self._is_openai)
            name = RESPONSES_DIALECT.tool_name_of(request.response_format.name)
            wanted = {"type": "json_schema", "name": name, "schema": schema, "strict": is_strict}
            _merge_option(body, "text", {"format": wanted})
        if request.reasoning_effort is not None:
            _merge_option(body, "reasoning", {"effort": request.reasoning_effort})
        settings = {
            "temperature": request.temperature,
            "max_output_tokens": request.max_tokens,
            "stream": streams or None,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        _add_options(body, request.options)
        if body.get("background"):
            body["store"] = True  # it can't be asked for otherwise
        return body

    def _group_tools(self, tools: Sequence[ToolDefinition]) -> list[bytes]:
        """Return the tools as the wire has them; deferred ones of a group together, in the place of the first."""
        encoded = self._tools.all_of(tools)
        groups: dict[str, list[int]] = {}
        for place, tool in enumerate(tools):
            if tool.hints is not None and tool.hints.deferred and tool.hints.group and self._has_new_tools:
                groups.setdefault(tool.hints.group, []).append(place)
        for name, places in groups.items():
            head = {"type": "namespace", "name": RESPONSES_DIALECT.tool_name_of(name)}
            named = ", ".join([tools[place].name for place in places[:_MOST_NAMED_TOOLS]])
            more = f" and {len(places) - _MOST_NAMED_TOOLS} more" if len(places) > _MOST_NAMED_TOOLS else ""
            head["description"] = f"Tools of {name}: {named}{more}."
            members = [encoded[place] for place in places]
            for place in places:
                encoded[place] = b""
            encoded[places[0]] = assemble_body(head, {"tools": members})
        return [each for each in encoded if each]

    def _add_changes(self, items: list[bytes], tools: Sequence[ToolDefinition], changes: Sequence[ToolChange]) -> None:
        """Put the tools that came later before the items of the message that they came before."""
        known = {tool.name for tool in tools}
        for change in changes:
            new = [tool for tool in change.added if tool.name not in known]
            known.update([tool.name for tool in new])
            if new:
                item = assemble_body(_ADDITIONAL_TOOLS, {"tools": self._tools.all_of(new)})
                following = items[change.place : change.place + 1]
                items[change.place : change.place + 1] = [b",".join(filter(None, [item, *following]))]

    def _is_stored(self, request: ChatRequest) -> bool:
        return bool(self._stores_transcript or request.options.get("conversation", self._defaults.get("conversation")))

    def _cut_stored(self, messages: Sequence[Message], items: list[bytes], body: JsonObject) -> int:
        """Take away the items that OpenAI has stored, and return how many messages they were."""
        wanted = body.get("conversation")
        wanted = as_mapping(cast("object", wanted)).get("id") if isinstance(wanted, Mapping) else wanted
        for place in range(len(messages) - 1, -1, -1):
            stored = _find_stored(messages[place])
            if stored is None:
                continue
            if wanted is None and stored.get("digest") == _digest_items(items[:place]):
                body["previous_response_id"] = stored.get("id")
            elif wanted is None or stored.get("conversation") != wanted:
                return 0
            items[: place + 1] = [b""] * (place + 1)
            return place + 1
        return 0

    def encode_compaction(self, head: Sequence[Message], rest: Sequence[Message]) -> bytes:
        """Return the body of a request to compact messages, under the instructions of others."""
        instructions = "\n\n".join([message.text for message in head if message.text])
        body = {"model": self._model, "instructions": instructions or None}
        return assemble_body(body, {"input": [each for each in self._join_items(rest) if each]})

    def is_background(self, request: ChatRequest) -> bool:
        """Return whether the response to a request is made in the background."""
        return bool(request.options.get("background", self._defaults.get("background")))

    def reading_of(self, request: ChatRequest) -> ResponsesReading:
        """Return the reader of the answer to a request."""
        tools = request.tools or ()
        names = RESPONSES_DIALECT.names_back(tools)
        texts = {RESPONSES_DIALECT.tool_name_of(tool.name): tool.freeform for tool in tools}
        freeform = {name: each.parameter for name, each in texts.items() if each is not None}
        own = list_own_tools(tools if self._has_new_tools else ())
        digest = _digest_items(self._join_items(request.messages)) if self._is_stored(request) else ""
        return ResponsesReading(names, freeform, own, digest)

    def _join_items(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the items of each message; a result answers what its call was: an item of OpenAI's, a text, code."""
        encoded = self._messages.all_of(messages)
        calls: dict[str, ToolCall] = {}
        for place, message in enumerate(messages):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolCall) and block.extra is not None:
                        calls[block.id] = block
            elif calls and isinstance(message, ToolResult) and message.call_id in calls:
                call = calls[message.call_id]
                if item := sealed_item(call):
                    answers = answer_own_call(item, RESPONSES_DIALECT.call_id_of(call.id), message)
                    encoded[place] = to_bytes(answers, "a result")[1:-1]
                    continue
                if _is_freeform(call):
                    encoded[place] = encoded[place].replace(b'"function_call_output"', b'"custom_tool_call_output"', 1)
                if fields := {name: value for name, value in (call.extra or {}).items() if name in _ECHOED}:
                    encoded[place] = b"".join([encoded[place][:-1], b",", to_bytes(fields, "a result")[1:]])
        return encoded


def _encode_items(message: Message, *, sends_open_reasoning: bool) -> bytes:
    items = encode_responses_message(checked_message(message), sends_open_reasoning=sends_open_reasoning)
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


def encode_responses_tool(definition: ToolDefinition, *, has_new_tools: bool = True) -> JsonObject:
    """Return a tool as the wire has it; a strict one with its schema as strict mode accepts it, or a `SchemaError`.

    Other servers and old models have no new tools: they know functions alone.
    """
    name, freeform = RESPONSES_DIALECT.tool_name_of(definition.name), definition.freeform
    hints = _encode_hints(definition) if has_new_tools else {}
    if has_new_tools and (own := find_openai_tool(definition)) is not None:
        callers = (
            {"allowed_callers": hints["allowed_callers"]} if own.has_callers and "allowed_callers" in hints else {}
        )
        return {**own.wire, **callers}
    if freeform is not None and has_new_tools:
        form = {"type": "grammar", "syntax": freeform.syntax, "definition": freeform.grammar}
        described = describe_with_hints(replace(definition, freeform=None))
        wire: JsonObject = {"type": "custom", "name": name, "description": described}
        hints.pop("output_schema", None)
        return {**wire, "format": form if freeform.grammar else {"type": "text"}, **hints}
    wire = {
        "type": "function",
        "name": name,
        "description": describe_with_hints(definition),
        "parameters": project_openai_strict(definition.parameters) if definition.strict else definition.parameters,
        **hints,
    }
    # Left out, it means that the server decides.
    return wire if definition.strict is None else {**wire, "strict": definition.strict}


def _encode_hints(definition: ToolDefinition) -> JsonObject:
    hints = definition.hints
    if hints is None:
        return {}
    wire: JsonObject = {
        "allowed_callers": [_CALLERS[caller] for caller in hints.callers] or None,
        "defer_loading": hints.deferred or None,
        "output_schema": definition.output_schema if hints.shows_output_schema else None,
    }
    return {name: value for name, value in wire.items() if value is not None}


def find_openai_tools(tools: Sequence[ToolDefinition], given: Sequence[Any]) -> Iterator[Mapping[str, str]]:
    """Yield the tools of OpenAI's own that the hints of tools need, unless they are given."""
    hints = [tool.hints for tool in tools if tool.hints is not None]
    if not hints:
        return
    kinds = [as_mapping(tool).get("type") for tool in given]
    if any("code" in each.callers for each in hints) and "programmatic_tool_calling" not in kinds:
        yield {"type": "programmatic_tool_calling"}
    if any(each.deferred for each in hints) and "tool_search" not in kinds:
        yield {"type": "tool_search"}


def _encode_tool_settings(request: ChatRequest, *, has_new_tools: bool) -> JsonObject:
    tools = request.tools or ()
    choice = checked_choice(request.tool_choice, tools)
    if not tools:
        return {}
    settings: JsonObject = {}
    if has_new_tools and choice in ("auto", "required") and any(each.removed for each in find_tool_changes(request)[1]):
        allowed = [_name_tool(tool, has_new_tools=True) for tool in tools]
        settings["tool_choice"] = {"type": "allowed_tools", "mode": choice, "tools": allowed}
    elif choice == "one":
        chosen = next(tool for tool in tools if tool.name == request.tool_choice)
        settings["tool_choice"] = _name_tool(chosen, has_new_tools=has_new_tools)
    elif choice != "auto":
        settings["tool_choice"] = choice
    if request.parallel_tool_calls is not None:
        settings["parallel_tool_calls"] = request.parallel_tool_calls
    return settings


def _name_tool(tool: ToolDefinition, *, has_new_tools: bool) -> JsonObject:
    if has_new_tools and (own := find_openai_tool(tool)) is not None:
        return {"type": own.wire["type"]}
    kind = "custom" if has_new_tools and tool.freeform is not None else "function"
    return {"type": kind, "name": RESPONSES_DIALECT.tool_name_of(tool.name)}


def _add_options(body: JsonObject, options: Mapping[str, Any]) -> None:
    """Override a body with options; lists of things to include are joined."""
    for name, value in options.items():
        if name in _MERGED_OPTIONS and isinstance(value, Mapping):
            _merge_option(body, name, cast("Mapping[str, Any]", value))
        elif name == "include" and value is not None:
            body[name] = list(dict.fromkeys([*(body.get(name) or ()), *value]))
        else:
            body[name] = value


def _merge_option(body: JsonObject, name: str, over: Mapping[str, Any]) -> None:
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
    if item := sealed_item(call):
        return {**item, "call_id": RESPONSES_DIALECT.call_id_of(call.id)}
    wire: JsonObject = {
        **extra_without(call, "anthropic", "extra_content", RESPONSES_SEAL),
        "type": "custom_tool_call" if _is_freeform(call) else "function_call",
        "call_id": RESPONSES_DIALECT.call_id_of(call.id),
        "name": RESPONSES_DIALECT.tool_name_of(call.name),
    }
    if wire["type"] == "custom_tool_call":
        return {**wire, "input": as_text(next(iter(arguments_object(call.arguments).values()), ""))}
    return {**wire, "arguments": arguments_text(call.arguments)}


def _is_incomplete(item: Mapping[str, Any]) -> bool:
    """Return whether an answer or item says that it is incomplete; an own call of OpenAI is in progress until run."""
    status = item.get("status")
    return status == "incomplete" or (
        status not in (None, "completed") and item.get("type") in (None, "function_call", "custom_tool_call")
    )


def _reopen_text(call: ToolCall) -> ToolCall:
    """Return a call without the end of its JSON, if that JSON is ours: the model's text may be incomplete."""
    if _is_freeform(call) or sealed_item(call):
        return replace(call, arguments=call.arguments[:-1])
    return call


def _is_freeform(call: ToolCall) -> bool:
    return bool(as_mapping((call.extra or {}).get(RESPONSES_SEAL)).get("freeform"))


def _digest_items(items: Sequence[bytes]) -> str:
    return sha256(b",".join(items)).hexdigest()


def _find_stored(message: Message) -> Mapping[str, Any] | None:
    """Return how OpenAI stored a message of the model; None if it did not."""
    if isinstance(message, AssistantMessage) and message.content:
        last = message.content[-1]
        if isinstance(last, ReasoningBlock) and last.encrypted is not None:
            return (unsealed(RESPONSES_SEAL, last.encrypted) or {}).get("stored")
    return None


def _encode_responses_reasoning(block: ReasoningBlock, *, is_open_sent: bool) -> JsonObject | None:
    """Return an item, the phase of the message that follows, or None for what another provider thought."""
    if block.encrypted is not None and block.encrypted.startswith("{"):  # no seal of OpenAI's own begins so
        data = unsealed(RESPONSES_SEAL, block.encrypted)
        return None if data is None or "stored" in data else data
    if not block.id:
        return None
    if block.encrypted is not None:
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        return {"type": "reasoning", "id": block.id, "summary": summary, "encrypted_content": block.encrypted}
    if is_open_sent and block.text:
        content = [{"type": "reasoning_text", "text": block.text}]
        return {"type": "reasoning", "id": block.id, "summary": [], "content": content}
    return None


def find_unanswered(
    items: Sequence[Mapping[str, Any]], reading: ResponsesReading = _PLAIN
) -> tuple[UnansweredItem, ...]:
    """Return the items that wait for an answer, in order.

    A program waits for nobody while calls of its own are answered. What is not known yet waits where it can be
    answered: where it has a ``call_id`` or is a request, and this response has no answer to it.
    """
    waiting = [item for item in items if _is_waiting(item) and not reading.is_call(item)]
    if not waiting:
        return ()
    answered = {name for item in items for name in _list_answered(item)}
    return tuple(
        [
            UnansweredItem(as_text(item.get("type")), _find_item_id(item), as_text(item.get("name")))
            for item in waiting
            if _find_item_id(item) not in answered
        ]
    )


def _is_waiting(item: Mapping[str, Any]) -> bool:
    kind = as_text(item.get("type"))
    if kind in MESSAGE_ITEMS or kind in SETTLED:
        return False
    if kind == "tool_search_call":
        return as_text(item.get("execution", "client" if item.get("call_id") else "server")) == "client"
    if kind == "shell_call":
        return as_text(as_mapping(item.get("environment")).get("type")) != "container_reference"
    if kind in WAITING or kind.endswith("_request"):
        return True
    return bool(item.get("call_id")) and not kind.endswith(("_output", "_response"))


def _find_item_id(item: Mapping[str, Any]) -> str:
    return as_text(item.get("call_id")) or as_text(item.get("id"))


def _list_answered(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the items that an item answers or continues."""
    if as_text(item.get("type")).endswith("_output"):
        yield as_text(item.get("call_id"))
    if request := as_text(item.get("approval_request_id")):
        yield request
    if caller := as_text(as_mapping(item.get("caller")).get("caller_id")):
        yield caller


def _read_item(item: Mapping[str, Any], reading: ResponsesReading) -> Iterator[AssistantContent]:
    if reading.is_call(item):
        yield reading.read_call(item)
        return
    match item.get("type"):
        case "message":
            if phase := item.get("phase"):
                yield ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, {"phase": phase}))
            for part in _list_message_parts(item):
                if text := as_text(part.get("text")) or as_text(part.get("refusal")):
                    yield TextBlock(text)
        case "reasoning":
            yield _read_reasoning(item)
        case "image_generation_call" if item.get("result"):
            media_type = f"image/{as_text(item.get('output_format')) or 'png'}"
            yield ImageBlock(as_bytes(item.get("result")), media_type=media_type)
        case _:
            yield ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, item))


def _list_message_parts(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return as_items(item.get("content")) if item.get("type") == "message" else ()


def _escape_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


class ResponsesDecoder(Decoder[ResponsesReading]):
    """Puts a response together from its events, or reads a whole one."""

    def _begin_answer(self) -> None:
        self._items: list[tuple[int, Mapping[str, Any]]] = []
        self._calls: dict[int | str | None, PartialCall] = {}
        self._response: ChatResponse  # once it is complete
        self._answer: Mapping[str, Any] = {}

    @property
    def usage(self) -> Usage:
        """The usage that the answer has reported so far."""
        return decode_responses_usage(self._answer)

    def read_whole(self, answer: Mapping[str, Any]) -> ChatResponse:
        """Return a response as an answer."""
        self._answer = answer
        reading, request_id = self._reading, self._request_id
        self._check_answer(answer)
        items = as_items(answer.get("output"))
        is_refusal = any(part.get("type") == "refusal" for item in items for part in _list_message_parts(item))
        stop_reason = _find_response_stop(answer, items, reading, is_refusal=is_refusal)
        is_cut = stop_reason == "max_tokens"
        content: list[AssistantContent] = []
        for item in items:
            read = list(_read_item(item, reading))
            is_open = is_cut and (item is items[-1] or _is_incomplete(item))
            content += [_reopen_text(each) if is_open and isinstance(each, ToolCall) else each for each in read]
        if reading.digest and (stored_id := as_text(answer.get("id"))):
            conversation = as_mapping(answer.get("conversation")).get("id")
            stored = {"id": stored_id, "conversation": conversation, "digest": reading.digest}
            content.append(ReasoningBlock(encrypted=sealed(RESPONSES_SEAL, {"stored": stored})))
        return ChatResponse(
            message=AssistantMessage(content),
            usage=self.usage,
            stop_reason=stop_reason,
            model=as_text(answer.get("model")),
            request_id=request_id or as_text(answer.get("id")) or None,
            metadata={name: answer[name] for name in _RESPONSES_METADATA if answer.get(name)},
            unanswered=find_unanswered(items, reading),
        )

    def _check_answer(self, answer: Mapping[str, Any]) -> None:
        """Raise the error that a response reports, or that it has no answer."""
        request_id = self._request_id
        if error := answer.get("error"):
            raise self._failures().reported(error, request_id=request_id)
        if (status := answer.get("status")) in _UNFINISHED:
            problem = f"the response is '{status}' and has no answer: ask again"
            raise self._failures().reported(
                {"message": problem, "type": "invalid_request_error"}, request_id=request_id
            )
        if not isinstance(answer.get("output"), list):
            raise self._failures().empty("output", request_id=request_id)

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Yield the deltas of an event."""
        event = as_mapping(from_json(data))
        kind = as_text(event.get("type"))
        if kind in _TEXT_DELTAS:
            yield TextDelta(as_text(event.get("delta")))
        elif kind in _REASONING_DELTAS:
            yield ReasoningDelta(as_text(event.get("delta")))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield ReasoningDelta(_BETWEEN_SUMMARIES)
        elif kind == "response.function_call_arguments.delta":
            yield from self._continue_call(event, as_text(event.get("delta")))
        elif kind == "response.custom_tool_call_input.delta":
            yield from self._continue_call(event, _escape_text(as_text(event.get("delta"))))
        elif kind == "response.output_item.added":
            yield from self._begin_call(event)
        elif kind == "response.output_item.done":
            yield from self._end_item(event)
        elif kind in _ENDINGS:
            self._end_response(as_mapping(event.get("response")), is_cut=kind == "response.incomplete")
        elif kind == "error" or (not kind and event.get("error")):
            raise self._failures().reported(event.get("error") or event, request_id=self._request_id)

    def _make_response(self) -> ChatResponse:
        return self._response

    def _begin_call(self, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        item = as_mapping(event.get("item"))
        if self._reading.is_call(item):
            read = self._reading.read_call(item)
            call = self._calls[_find_item_key(event)] = PartialCall(len(self._calls), read.id, read.name)
            kind = item["type"]
            # An item of OpenAI's own is read when it is whole; of a text the end of the JSON is still missing.
            text = "" if kind in self._reading.own else read.arguments
            yield call.more(text.removesuffix(_END_OF_TEXT) if kind == "custom_tool_call" else text)

    def _continue_call(self, event: Mapping[str, Any], text: str) -> Iterator[StreamEvent]:
        call = self._calls.get(_find_item_key(event))
        if call is not None:
            yield call.more(text)

    def _end_item(self, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        item = as_mapping(event.get("item"))
        index = event.get("output_index")
        self._items.append((index if isinstance(index, int) else len(self._items), item))
        if self._reading.is_call(item):
            if _find_item_key(event) not in self._calls:
                yield from self._begin_call(event)
            call = self._calls[_find_item_key(event)]
            arguments, came = self._reading.read_call(item).arguments, "".join(call.pieces)
            if arguments != came and arguments.startswith(came):  # some servers send the arguments only whole
                yield call.more(arguments[len(came) :])

    def _end_response(self, answer: Mapping[str, Any], *, is_cut: bool) -> None:
        items = answer.get("output") or [item for _, item in sorted(self._items, key=itemgetter(0))]
        cut = {"status": "incomplete"} if is_cut else {}
        self._response, self._is_complete = self.read_whole({**answer, "output": items, **cut}), True


def decode_responses_usage(answer: Mapping[str, Any]) -> Usage:
    """Return the usage that an answer reports; zeros where the server reported none."""
    reported = as_mapping(answer.get("usage"))
    read = as_mapping(reported.get("input_tokens_details"))
    wrote = as_mapping(reported.get("output_tokens_details"))
    # A call of the search that opens a page of an earlier search is free.
    items = as_items(answer.get("output"))
    paid = [item for item in items if as_mapping(item.get("action")).get("type") not in ("open_page", "find_in_page")]
    counts = Counter([_PAID_CALLS.get(as_text(item.get("type")), "") for item in paid])
    return Usage(
        input_tokens=as_count(reported.get("input_tokens")) or 0,
        output_tokens=as_count(reported.get("output_tokens")) or 0,
        reasoning_tokens=as_count(wrote.get("reasoning_tokens")),
        cache_read_tokens=as_count(read.get("cached_tokens")),
        cache_write_tokens=as_count(read.get("cache_write_tokens")),
        details=usage_details(**{name: count for name, count in counts.items() if name}),
    )


def _find_response_stop(
    answer: Mapping[str, Any], items: Sequence[Mapping[str, Any]], reading: ResponsesReading, *, is_refusal: bool
) -> StopReason:
    details = as_mapping(answer.get("incomplete_details"))
    if details.get("reason") == "content_filter":
        return "content_filter"
    calls = [item for item in items if reading.is_call(item)]
    is_cut = any(_is_incomplete(each) for each in (answer, *calls))
    if is_cut or details:
        # Other reasons to stop early, such as a word of the user, cut nothing off but a call.
        return "max_tokens" if calls or details.get("reason") in (None, "max_output_tokens") else "end_turn"
    if is_refusal:
        return "refusal"
    return "tool_use" if calls else "end_turn"


def _read_reasoning(item: Mapping[str, Any]) -> ReasoningBlock:
    summaries = [as_text(part.get("text")) for part in as_items(item.get("summary"))]
    thoughts = [as_text(part.get("text")) for part in as_items(item.get("content"))]
    return ReasoningBlock(
        text=_BETWEEN_SUMMARIES.join(summaries) or "".join(thoughts),
        encrypted=as_text(item.get("encrypted_content")) or None,
        id=as_text(item.get("id")) or None,
    )


def _read_function_call(item: Mapping[str, Any], names: Mapping[str, str]) -> ToolCall:
    name = as_text(item.get("name"))
    extra = {key: value for key, value in item.items() if key not in _RESPONSES_CALL_FIELDS and value is not None}
    return ToolCall(
        as_text(item.get("call_id")), names.get(name, name), as_text(item.get("arguments")), extra=extra or None
    )


def _find_item_key(event: Mapping[str, Any]) -> int | str | None:
    """Return the key that identifies an item of a response; llama.cpp omits the index."""
    index = as_key(event.get("output_index"))
    if index is None:
        return as_key(event.get("item_id")) or as_key(as_mapping(event.get("item")).get("id"))
    return index
