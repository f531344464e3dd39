"""The request to a model with the tools that it is offered, and the response."""

from __future__ import annotations

import copy
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """Hints on a tool for a provider, beyond its schema; those for which its vendor has no place are left out.

    Args:
        examples: Valid arguments. Where there is no field for them they stand in the description.
        callers: Its callers: ``model``, and ``code`` that the model has run at the vendor. Empty leaves it to the
            vendor; where there is no such code the model calls it.
        eager_arguments: True where its arguments are streamed as they are written, before they are known to be valid.
        cache_breakpoint: True where the prompt up to this tool is marked for the vendor's cache.
        shows_output_schema: True where the model is shown `ToolDefinition.output_schema`.
        deferred: True where the model has to search for it before it sees it.
    """

    examples: tuple[Mapping[str, Any], ...] = ()
    callers: tuple[Literal["model", "code"], ...] = ()
    eager_arguments: bool = False
    cache_breakpoint: bool = False
    shows_output_schema: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeform:
    """A tool whose only argument is a text that the model writes as it is, with no JSON around it.

    Args:
        parameter: The name of the argument; empty takes the only one that the tool has.
        syntax: ``text`` for any, else what `grammar` is written in.
        grammar: The grammar that the text must follow, in Lark's or a regular expression.
    """

    parameter: str = ""
    syntax: Literal["text", "lark", "regex"] = "text"
    grammar: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """The definition of a tool: the half of it that a model sees.

    Args:
        name: Matches ``^[A-Za-z0-9_-]{1,64}$``.
        description: The purpose of the tool, and its result.
        parameters: A JSON Schema of type object.
        output_schema: A JSON Schema of its result, if that is structured.
        strict: True where providers that can should hold the model to `parameters` exactly; None leaves it to them.
        hints: The hints for a provider beyond that.
        freeform: Set where the only argument is a text; a provider without such tools takes `parameters`.
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
        """True where the model has to search for the tool before it sees it."""
        return self.hints is not None and self.hints.deferred


def describe_with_hints(definition: ToolDefinition) -> str:
    """Return the description for a vendor that has no field for examples and grammars: with those in words."""
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
    """Return a copy of the definition that may be changed."""
    parameters, output_schema = copy.deepcopy((definition.parameters, definition.output_schema))
    return replace(definition, parameters=parameters, output_schema=output_schema)


def without_descriptions(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition without the words that describe the tool and its parameters."""
    output_schema = None if definition.output_schema is None else _leave_words_out(definition.output_schema)
    parameters = _leave_words_out(definition.parameters)
    return replace(definition, description="", parameters=parameters, output_schema=output_schema)


def _leave_words_out(schema: Mapping[str, Any]) -> dict[str, Any]:
    bare = map_subschemas(schema, _leave_words_out)
    bare.pop("description", None)
    return bare


def openai_strict(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition with the variant of its schema that OpenAI's strict mode accepts.

    Every property becomes required, optional ones become nullable, and keywords that the mode does not know
    are left out; a null for such a property is read as absent. The registry still validates against
    the whole schema.

    Raises:
        SchemaError: No such variant is equivalent; the message names the place and the reason.
    """
    parameters = project_openai_strict(dict(definition.parameters), subject=f"tool '{definition.name}'")
    return replace(definition, parameters=parameters, strict=True)


StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "content_filter", "refusal"]
"""Why the model stopped. ``max_tokens`` is every way in which a reply is cut off: the last call may be unfinished."""


SAMPLING_OPTIONS = frozenset(
    {"frequency_penalty", "logit_bias", "logprobs", "min_p", "presence_penalty", "top_k", "top_p"}
)
"""Settings that vendors name alike and a request passes through as its `options`."""


def _make_nothing() -> dict[str, Any]:
    return {}  # as a function it takes a fifth of the time of dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A JSON Schema that the whole answer must follow.

    Args:
        schema: Of type object, for most providers.
        name: A short name for it; some providers ask for one.
    """

    schema: Mapping[str, Any]
    name: str = "answer"


Support: TypeAlias = Literal["native", "emulated", "unused", "refused"]
"""The way in which a provider takes something: by its vendor's means, by ours, not and in silence, not and in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of a model through its provider; `Adapter.capabilities` returns them.

    Args:
        forced_calls: Calls that must be made, of any tool or of one.
        no_calls: Tools that are offered and must not be called now.
        one_call_at_a_time: `ChatRequest.parallel_tool_calls` of False.
        strict_tools: Arguments that are held to their schema.
        answer_schemas: Answers that are held to a schema.
        images: Images of the user.
        sound: Sound of the user.
        files: Files of the user that are no text.
        media_in_results: Images in the results of tools.
        reasoning_back: Reasoning that goes back with the transcript.
        cache_marks: `ToolHints.cache_breakpoint`.
        examples: `ToolHints.examples`.
        output_schemas: `ToolHints.shows_output_schema`.
        eager_arguments: `ToolHints.eager_arguments`.
        code_callers: Calls by code that the model has run at the vendor.
        freeform_tools: Tools that take a text as it is.
        deferred_tools: Tools that the model searches for.
        tool_changes: Tools that change in mid-conversation without a loss of the vendor's cache.
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
    deferred_tools: Support = "emulated"
    tool_changes: Support = "unused"
    source: str = ""


@dataclass(frozen=True, slots=True)
class EarlierTools:
    """Tools that were offered before others were, in one conversation.

    Args:
        tools: The tools.
        until: The number of messages that the transcript had when others were first offered.
    """

    tools: Sequence[ToolDefinition]
    until: int


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """The content of one request to a model.

    Args:
        messages: The transcript. It may be a live list: read it during the call, store no reference to it.
        tools: The tools that the model may call. For a loop None means the registry's.
        tool_choice: ``auto``, ``none``, ``required``, or the name of the one tool to call.
        parallel_tool_calls: None leaves it to the provider.
        temperature: None leaves it to the provider.
        max_tokens: The most that the answer may have.
        seed: For providers that can repeat themselves.
        stop: Texts at which to stop.
        response_format: The form that the answer must have.
        reasoning_effort: How much to think, for models that do.
        timeout: Seconds for this request; None leaves it to the client.
        options: Provider-specific fields, passed through as they are.
        earlier_tools: The tools of earlier requests of the conversation, the oldest first, where they differ from
            `tools`. A vendor that takes changes of tools in mid-conversation is sent the changes, so that its cache
            of the prompt holds; for others it is ignored.
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


@dataclass(frozen=True, kw_only=True)  # without slots: fields at their defaults cost nothing
class Usage:
    """The tokens and the cost of requests; addition gives the sum.

    `input_tokens` includes tokens read from a cache, `output_tokens` includes reasoning. None means that the
    provider did not report it. A sum has no cost if a part with tokens has none: a partial cost would mislead.

    Args:
        input_tokens: All tokens that the model read.
        output_tokens: All tokens that the model wrote.
        reasoning_tokens: Of the output, those that it thought.
        cache_read_tokens: Of the input, those that came from a cache.
        cache_write_tokens: Of the input, those that were written to a cache.
        cost: In dollars, as the provider names it, or as `toolkit.providers.PricedProvider` fills it in.
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
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def has_unknown_cost(self) -> bool:
        """True if tokens were used and their cost is unknown."""
        return self.cost is None and self.input_tokens + self.output_tokens > 0

    def __add__(self, other: Usage) -> Usage:
        return Usage.total((self, other))

    def __sub__(self, other: Usage) -> Usage:
        """Return what remains of a sum without an earlier one."""
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
        input_tokens = output_tokens = 0
        sums: dict[str, Any] = {}
        details: dict[str, int] = {}
        has_unknown_cost = False
        for usage in usages:
            reported = usage.__dict__  # the fields that are not at their defaults
            if not reported:
                continue
            input_tokens += usage.input_tokens
            output_tokens += usage.output_tokens
            has_unknown_cost = has_unknown_cost or usage.has_unknown_cost
            if len(reported) == 2 and "input_tokens" in reported and "output_tokens" in reported:
                continue
            for name in _OPTIONAL:
                more = getattr(usage, name)
                if more is not None:
                    sums[name] = sums.get(name, 0) + more
            for name, more in (usage.details or {}).items():
                details[name] = details.get(name, 0) + more
        if has_unknown_cost and sums:
            sums["cost"] = None
        if not sums and not details:
            return _make_usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens, **sums, details=details or None)


_OPTIONAL = ("reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_read_optional = attrgetter(*_OPTIONAL)
_make_usage = maker_of(Usage)


@dataclass(frozen=True, slots=True)
class UnansweredItem:
    """An item of a reply that requires an answer which this library can't give.

    Args:
        kind: The provider's name for such items, such as ``computer_call``.
        id: The id by which an answer names it.
        name: The tool that it asks for, where it names one.
    """

    kind: str
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """One answer of a model.

    Args:
        message: The message of the model.
        usage: The tokens that it took.
        stop_reason: Why it stopped.
        model: The model that answered, as the provider names it.
        request_id: The provider's name for the request.
        metadata: Everything else that the provider sent, unchanged.
        unanswered: The items other than calls that require an answer; the message contains them sealed.
        provider: The name of the provider that answered, where a `FallbackProvider` has chosen it; else empty.

    Raises:
        ConfigurationError: `stop_reason` is none of `StopReason`.
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
        """The calls of a truncated reply whose arguments may be incomplete.

        These are calls without arguments, and the last block unless its arguments are a complete, non-empty JSON
        object.
        """
        if self.stop_reason != "max_tokens":
            return ()
        blocks = [block for block in self.message.content if not isinstance(block, ReasoningBlock)]
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        return tuple([call for call in calls if not _is_whole(call.arguments, is_last=call is blocks[-1])])


def _is_whole(arguments: str, *, is_last: bool) -> bool:
    """Return whether arguments are complete; the model itself ended every block that is not the last."""
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
        ConfigurationError: `tool_choice` asks for a tool that is not there.
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
