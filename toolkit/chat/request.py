"""The request to a model, the definitions of tools in it, and the response."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from toolkit.chat.messages import AssistantMessage, Message, ReasoningBlock, ToolCall
from toolkit.dataclass import dataclass, maker_of
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json
from toolkit.schema import project_openai_strict
from toolkit.schema.nodes import map_subschemas
from toolkit.settings import check_setting

VendorTool: TypeAlias = Literal["shell", "patch", "editor", "memory", "computer", "browser"]
"""A kind of tool that vendors define and train their models on, and that the application runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """Hints on a tool for providers, beyond its schema; a vendor's provider ignores those that it does not support.

    Args:
        examples: Valid arguments; added to the description if the vendor has no field for them.
        callers: The possible callers: ``model``, and ``code`` that the model runs at the vendor. Empty leaves it to the
            vendor. Without such code, the model calls the tool.
        eager_arguments: True to stream arguments before they are known to be valid.
        cache_breakpoint: True to mark the prompt up to this tool for the vendor's cache.
        shows_output_schema: True to show `ToolDefinition.output_schema` to the model.
        deferred: True if the model has to search for the tool.
        group: A group of tools, such as those of one server. Some vendors show the model a group of deferred tools in
            place of each of them.
        native_as: The kind of vendor tool that it implements. If the vendor has such a tool, it is offered instead, and
            its calls arrive as calls of this tool.
    """

    examples: tuple[Mapping[str, Any], ...] = ()
    callers: tuple[Literal["model", "code"], ...] = ()
    eager_arguments: bool = False
    cache_breakpoint: bool = False
    shows_output_schema: bool = False
    deferred: bool = False
    group: str = ""
    native_as: VendorTool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeform:
    """A tool whose only argument is a text that the model writes without JSON.

    Args:
        parameter: The name of the argument; empty for the only one of the tool.
        syntax: ``text`` for any text, or else the syntax of `grammar`.
        grammar: The grammar of the text: a Lark grammar, or a regular expression.
    """

    parameter: str = ""
    syntax: Literal["text", "lark", "regex"] = "text"
    grammar: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """The part of a tool that a model sees.

    Args:
        name: The name, which matches ``^[A-Za-z0-9_-]{1,64}$``.
        description: The purpose of the tool, and its result.
        parameters: A JSON Schema of type object.
        output_schema: A JSON Schema of its result, if that is structured.
        strict: True to enforce `parameters` if the provider can; None leaves it to the provider.
        hints: Further hints for a provider.
        freeform: Set if the only argument is a text; a provider without such tools uses `parameters`.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    strict: bool | None = False
    hints: ToolHints | None = None
    freeform: Freeform | None = None

    @property
    def is_deferred(self) -> bool:
        """True if the model has to search for the tool."""
        return self.hints is not None and self.hints.deferred


def describe_with_hints(definition: ToolDefinition) -> str:
    """Return the description with examples and grammar, for vendors without fields for them."""
    text = definition.description
    if definition.freeform is not None and definition.freeform.grammar:
        form = definition.freeform
        words = "regular expression" if form.syntax == "regex" else "grammar in Lark's syntax"
        text = f"{text}\n\n{form.parameter} must follow this {words}:\n{form.grammar}".strip()
    if definition.hints is not None and definition.hints.examples:
        examples = "\n".join([write_json(dict(example)) for example in definition.hints.examples])
        text = f"{text}\n\nExamples of arguments:\n{examples}".strip()
    return text


def copy_definition(definition: ToolDefinition) -> ToolDefinition:
    """Return a deep copy of the definition."""
    parameters, output_schema = copy.deepcopy((definition.parameters, definition.output_schema))
    return replace(definition, parameters=parameters, output_schema=output_schema)


def without_descriptions(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition without descriptions of the tool and its parameters."""
    output_schema = None if definition.output_schema is None else _leave_words_out(definition.output_schema)
    parameters = _leave_words_out(definition.parameters)
    return replace(definition, description="", parameters=parameters, output_schema=output_schema)


def _leave_words_out(schema: Mapping[str, Any]) -> dict[str, Any]:
    bare = map_subschemas(schema, _leave_words_out)
    bare.pop("description", None)
    return bare


def openai_strict(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition with its schema for OpenAI's strict mode.

    Every property becomes required, optional ones become nullable (null means absent), and unsupported keywords are
    left out. The registry still validates against the original schema.

    Raises:
        SchemaError: No such variant is equivalent; the message names the place and the reason.
    """
    parameters = project_openai_strict(dict(definition.parameters), subject=f"tool '{definition.name}'")
    return replace(definition, parameters=parameters, strict=True)


StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "content_filter", "refusal"]
"""The reason why the model stopped; after ``max_tokens``, the reply is cut off and its last call may be incomplete."""


SAMPLING_OPTIONS = frozenset(
    {"frequency_penalty", "logit_bias", "logprobs", "min_p", "presence_penalty", "top_k", "top_p"}
)
"""Settings that many providers share, passed on in the `options` of a request."""


def _make_nothing() -> dict[str, Any]:
    return {}  # takes a fifth of the time of dict[str, Any]()


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A JSON Schema that the answer must match.

    Args:
        schema: The schema; most providers require the type object.
        name: A short name, which some providers require.
    """

    schema: Mapping[str, Any]
    name: str = "answer"


Support: TypeAlias = Literal["native", "emulated", "unused", "refused"]
"""The support of a feature: by the vendor, emulated, ignored, or an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of a model through its provider; `Adapter.capabilities` returns them.

    Args:
        forced_calls: Forced calls, of any tool or of a given one.
        no_calls: Tools that are offered but must not be called now.
        one_call_at_a_time: `ChatRequest.parallel_tool_calls` of False.
        strict_tools: Arguments constrained by their schema.
        answer_schemas: Answers constrained by a schema.
        images: Images from the user.
        sound: Sound from the user.
        files: Files from the user that are not text.
        media_in_results: Images in the results of tools.
        reasoning_back: Reasoning that is sent back with the transcript.
        cache_marks: `ToolHints.cache_breakpoint`.
        examples: `ToolHints.examples`.
        output_schemas: `ToolHints.shows_output_schema`.
        eager_arguments: `ToolHints.eager_arguments`.
        code_callers: Calls by code that the model runs at the vendor.
        freeform_tools: Tools with a text as their argument.
        shell_tool: A tool with ``native_as="shell"``; emulated means that it is offered like any other.
        patch_tool: A tool with ``native_as="patch"``.
        editor_tool: A tool with ``native_as="editor"``.
        memory_tool: A tool with ``native_as="memory"``.
        computer_tool: A tool with ``native_as="computer"``.
        browser_tool: A tool with ``native_as="browser"``.
        deferred_tools: Tools that the model searches for.
        tool_changes: Tools that change during a conversation without a loss of the vendor's cache.
        compaction: Shortening of long transcripts: natively by `compact_on_server`, or else by this library.
        background: Responses that the vendor generates while no client is connected.
        source: The page of the vendor's documentation.
    """

    forced_calls: Support = "native"
    no_calls: Support = "native"
    one_call_at_a_time: Support = "native"
    strict_tools: Support = "native"
    answer_schemas: Support = "native"
    images: Support = "native"
    sound: Support = "refused"
    files: Support = "native"
    media_in_results: Support = "emulated"
    reasoning_back: Support = "native"
    cache_marks: Support = "unused"
    examples: Support = "emulated"
    output_schemas: Support = "unused"
    eager_arguments: Support = "unused"
    code_callers: Support = "unused"
    freeform_tools: Support = "emulated"
    shell_tool: Support = "emulated"
    patch_tool: Support = "emulated"
    editor_tool: Support = "emulated"
    memory_tool: Support = "emulated"
    computer_tool: Support = "emulated"
    browser_tool: Support = "emulated"
    deferred_tools: Support = "emulated"
    tool_changes: Support = "unused"
    compaction: Support = "emulated"
    background: Support = "refused"
    source: str = ""


@dataclass(frozen=True, slots=True)
class EarlierTools:
    """The tools that were offered earlier in a conversation.

    Args:
        tools: The tools.
        until: The length of the transcript when other tools were first offered.
    """

    tools: Sequence[ToolDefinition]
    until: int


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A request to a model.

    Args:
        messages: The transcript. It may be a live list: read it during the call, and retain no reference to it.
        tools: The tools that the model may call. For a loop, None means those of the registry.
        tool_choice: ``auto``, ``none``, ``required``, or the name of the one tool to call.
        parallel_tool_calls: None leaves it to the provider.
        temperature: None leaves it to the provider.
        max_tokens: The maximum tokens of the answer.
        seed: The seed, for providers that support one.
        stop: Texts at which to stop.
        response_format: The required format of the answer.
        reasoning_effort: The effort of reasoning, for reasoning models.
        timeout: The seconds for this request; None leaves it to the client.
        options: Provider-specific fields, passed on unchanged.
        earlier_tools: The tools of earlier requests of the conversation, oldest first, if they differ from `tools`. For
            vendors that support changes of tools, only the changes are sent, so that the prompt cache remains valid;
            others ignore it.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] | None = None
    tool_choice: str = "auto"
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    timeout: float | None = None
    options: Mapping[str, Any] = field(default_factory=_make_nothing)
    earlier_tools: tuple[EarlierTools, ...] = ()


@dataclass(frozen=True, kw_only=True)  # without slots, fields with default values cost nothing
class Usage:
    """The tokens and the cost of requests; usages can be added.

    `input_tokens` includes tokens read from a cache, `output_tokens` includes reasoning. None means that the provider
    did not report it. A sum has no cost if a part with tokens has none, since a partial cost would mislead.

    Args:
        input_tokens: All tokens that the model read.
        output_tokens: All tokens that the model wrote.
        reasoning_tokens: The part of the output that was reasoning.
        cache_read_tokens: The part of the input that came from a cache.
        cache_write_tokens: The part of the input that was written to a cache.
        cost: The cost in dollars, from the provider or from `toolkit.providers.PricedProvider`.
        details: The counts of items with separate prices, by names such as ``input_audio_tokens``,
            ``output_image_tokens``, ``cache_write_1h_tokens`` (parts of the sums above) and ``web_searches``.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    details: Mapping[str, int] | None = None

    @property
    def total_tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def has_unknown_cost(self) -> bool:
        """True if tokens were used and their cost is unknown."""
        return self.cost is None and self.input_tokens + self.output_tokens > 0

    def __add__(self, other: Usage) -> Usage:
        return Usage.total((self, other))

    def __sub__(self, other: Usage) -> Usage:
        """Return the difference between a sum and an earlier one."""
        optional = {
            name: None if more is None else more - (getattr(other, name) or 0)
            for name, more in zip(_OPTIONAL, _read_optional(self), strict=False)
        }
        less = other.details or {}
        details = {name: count - less.get(name, 0) for name, count in (self.details or {}).items()}
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            **optional,
            details=details or None,
        )

    @staticmethod
    def total(usages: Iterable[Usage]) -> Usage:
        """Return the sum."""
        usages = tuple(usages)
        input_tokens = output_tokens = 0
        others: list[Usage] = []  # usages with other fields than these two
        for usage in usages:
            reported = usage.__dict__  # the fields without default values
            if not reported:
                continue
            input_tokens += usage.input_tokens
            output_tokens += usage.output_tokens
            if len(reported) != 2 or "input_tokens" not in reported or "output_tokens" not in reported:
                others.append(usage)
        if not others:
            return _make_usage(input_tokens=input_tokens, output_tokens=output_tokens)
        sums: dict[str, Any] = {}
        for name, values in zip(_OPTIONAL, zip(*map(_read_optional, others), strict=True), strict=True):
            known = [value for value in values if value is not None]
            sums[name] = sum(known) if known else None
        if any(usage.has_unknown_cost for usage in usages):
            sums["cost"] = None
        details = Counter[str]()
        for usage in others:
            details.update(usage.details or {})
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens, **sums, details=dict(details) or None)


_OPTIONAL = ("reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_read_optional = attrgetter(*_OPTIONAL)
_make_usage = maker_of(Usage)


@dataclass(frozen=True, slots=True)
class UnansweredItem:
    """An item of a reply that requires an answer which this library can't give.

    Args:
        kind: The provider's name for such items, such as ``computer_call``.
        id: The id for an answer.
        name: The tool that it requests, if any.
    """

    kind: str
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """A response of a model.

    Args:
        message: The message of the model.
        usage: The usage of the request.
        stop_reason: The reason why the model stopped.
        model: The model that answered, as named by the provider.
        request_id: The provider's id of the request.
        metadata: All other data that the provider sent, unchanged.
        unanswered: Items other than calls that require an answer; the message contains them as opaque blocks.
        provider: The name of the provider that a `FallbackProvider` chose; else empty.

    Raises:
        ConfigurationError: `stop_reason` is not a `StopReason`.
    """

    message: AssistantMessage
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason = "end_turn"
    model: str = ""
    request_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=_make_nothing)
    unanswered: tuple[UnansweredItem, ...] = ()
    provider: str = ""

    __expected__: ClassVar[Mapping[str, tuple[str, ...]]] = {"stop_reason": get_args(StopReason)}

    def __check_fields__(self) -> None:
        check_setting("the stop_reason of a ChatResponse", self.stop_reason, *get_args(StopReason))

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the message."""
        return self.message.tool_calls

    @property
    def unfinished_calls(self) -> tuple[ToolCall, ...]:
        """The calls of a truncated reply, or one that a stop text ended, whose arguments may be incomplete.

        These are calls without arguments, and the last block unless its arguments are a complete, non-empty JSON
        object.
        """
        if self.stop_reason not in ("max_tokens", "stop_sequence"):
            return ()
        blocks = [block for block in self.message.content if not isinstance(block, ReasoningBlock)]
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        return tuple([call for call in calls if not _is_whole(call.arguments, is_last=call is blocks[-1])])


def _is_whole(arguments: str, *, is_last: bool) -> bool:
    """Return True if arguments are complete; every block but the last one is."""
    if not is_last:
        return arguments.strip() not in ("", "null")
    from pydantic_core import from_json  # noqa: PLC0415 - slow to import, and few replies are cut off

    try:
        found: object = from_json(arguments)
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found)  # pyright: ignore[reportUnknownArgumentType]


def callable_tools(request: ChatRequest) -> tuple[ToolDefinition, ...]:
    """Return the tools that a request lets a model call now.

    Raises:
        ConfigurationError: `tool_choice` names an unknown tool.
    """
    tools = tuple(request.tools or ())
    match request.tool_choice:
        case "none":
            return ()
        case "auto":
            return tools
        case "required":
            named = tools
        case name:
            named = tuple([tool for tool in tools if tool.name == name])
    if not named:
        offer = ", ".join([tool.name for tool in tools]) or "no tools"
        raise ConfigurationError(f"tool_choice is '{request.tool_choice}', but the request has: {offer}")
    return named
