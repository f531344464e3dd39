"""The provider that guides a model through small questions: its steps, their order and their prompts.

Prompts are short and share a prefix, so that a server's prompt cache applies.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from toolkit.calls.text_search import list_leaves
from toolkit.chat import (
    ArgumentsDelta,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ResponseDone,
    StreamEvent,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.provider import ProviderWrapper, closing
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError, ContextTooLongError, ProviderError
from toolkit.guided.holding import (
    FoldedSchema,
    GuidedStep,
    GuidedTurn,
    HoldingWay,
    PastCall,
    SchemaHolder,
    StepVerdict,
    describe_shape,
    fold_schema,
    has_values_alike,
    list_codes,
    list_open_words,
    make_check,
    share_word,
    split_words,
    strike_out,
    strip_tools,
)
from toolkit.json_text import canonical_json, write_json
from toolkit.schema.nodes import is_array, is_object
from toolkit.settings import NonNegativeInt, PositiveInt, check_fields

_LONGEST_NAME_TOKENS = 48
_REFUSED_SCHEMA = frozenset({400, 422, 500, 501})
_MOST_LISTED_VALUES = 12
_LONGEST_HISTORY = 2000
_MOST_EXAMPLES = 2
_SHORTEST_WORD = 4
_SENTENCE_END = re.compile(r"(?<=[.!?\u3002])\s|\n")
_QUOTED = re.compile(r"[\"\u201c\u00ab\u300c]([^\"\u201c\u201d\u00ab\u00bb\u300c\u300d]+)[\"\u201d\u00bb\u300d]")

_FORMATS = {
    "email": r"[^@\s]+@[^@\s]+\.[^@\s]+",
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "uri": r"[a-z][a-z0-9+.-]*://\S+",
    "ipv4": r"\d{1,3}(?:\.\d{1,3}){3}",
    "ipv6": r"[0-9a-f:]*:[0-9a-f:]+:[0-9a-f:.]*",
}


@dataclass(frozen=True, slots=True)
class StopWhenDone:
    """Ends the turn without another question if successful calls account for each word of the request."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Compare the words of the request with those of the calls."""
        counts = Counter(call.name for call in turn.past_calls if not call.is_error)
        # If tools were called a different number of times, one may be due for each result of another.
        if turn.must_call or len(set(counts.values())) != 1 or turn.past_calls[-1].is_error or turn.open_words:
            return "next"
        asked = split_words(turn.question)
        used = [word for name in counts for word in split_words(name)]
        named = [tool for tool in turn.tools if tool.name not in counts and _has_own_word(tool, asked, used)]
        return "next" if named else "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseTool:
    """Asks which tool the request needs, if any.

    The prompt presents each tool's description as an example request that is answered with the tool's name, followed
    by up to two requests that the description quotes (`Such as "Is it warm in Oslo?"`). The tool that shares the most
    words with the request is repeated as the last example: a hint that the model may ignore.

    Args:
        description_words: The number of words shown of each description.
        most_at_once: With more tools than this, the model chooses within groups, then among the winners.
        most_repeated: The number of tools that share words with the request to repeat as the last examples.
        small_talk: An example request that needs no tool.
    """

    description_words: PositiveInt = 8
    most_at_once: PositiveInt = 24
    most_repeated: NonNegativeInt = 1
    small_talk: str = "Hello!"

    def __post_init__(self) -> None:
        check_fields(self)

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Choose a tool."""
        tools = list(turn.tools)
        if turn.must_call and len(tools) == 1:
            turn.tool = tools[0]
            return "next"
        while len(tools) > self.most_at_once:
            groups = [tools[start : start + self.most_at_once] for start in range(0, len(tools), self.most_at_once)]
            winners = [await self._choose_among(turn, group) for group in groups]
            tools = [tool for tool in winners if tool is not None]
            if not tools:
                return "answer"
        turn.tool = await self._choose_among(turn, tools)
        return "answer" if turn.tool is None else "next"

    async def _choose_among(self, turn: GuidedTurn, tools: Sequence[ToolDefinition]) -> ToolDefinition | None:
        examples = [(_shorten_description(tool, self.description_words), tool.name) for tool in tools]
        examples += [(request, tool.name) for tool in tools for request in _list_example_requests(tool)]
        answer = None
        if not turn.must_call:
            answer = _name_answer(tools)
            # The last examples weigh most; here it distracts least from the tools.
            examples.insert(1, (self.small_talk, answer))
        if self.most_repeated and len(tools) > self.most_repeated:
            fitting = _rank_tools(turn.question, tools)[: self.most_repeated]
            examples += [(_shorten_description(tool, self.description_words), tool.name) for tool in reversed(fitting)]
        return await _ask_for_tool(turn, tools, examples, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillArguments:
    """Asks for the arguments of the chosen tool, by a flat view of its schema.

    Required arguments come first, with the optional ones that the request mentions. If the request contains another
    word written like a value of the call, a list of calls is requested; if other words remain, the remaining optional
    arguments are. Values are constrained only by the schema; ids that it describes by ``pattern``, ``format`` or
    ``examples`` are offered as a choice of those in the conversation, if there are any.

    Args:
        most_calls: The maximum number of calls of the tool in one reply.
        longest_text: The maximum number of characters of a text in the second attempt, after a reply was cut off. A
            text of that length counts as cut off, too.
    """

    most_calls: PositiveInt = 4
    longest_text: PositiveInt = 400

    def __post_init__(self) -> None:
        check_fields(self)

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Fill in the arguments; a tool that takes none is not asked about."""
        tool = turn.require_tool(self)
        view = turn.view = fold_schema(tool.parameters)
        if not view.properties:
            turn.calls = (view.unfold({}),)
            return "next"
        names = [name for name in view.properties if name not in view.optional or _is_named(turn, view, name)]
        values = await self._fill_in(turn, view, names or list(view.properties))
        if values is None:
            return "answer"
        several: Sequence[Mapping[str, Any]] | None = None
        others = [name for name in view.properties if name not in names] if names else []
        if self._may_be_several(turn, view, values):
            several = await self._fill_in_several(turn, view)
        elif others and _has_more_words(turn, tool, names, values):
            more = await self._fill_in(turn, view, others, values)
            if more is None:
                return "answer"
            values = {**values, **more}
        turn.calls = [view.unfold(each) for each in several or (values,)]
        return "next"

    def _may_be_several(self, turn: GuidedTurn, view: FoldedSchema, values: Mapping[str, Any]) -> bool:
        """Return True if the request may need several calls; never for a named tool, or one that takes a list."""
        has_list = any(node.get("type") == "array" for node in view.properties.values())
        if has_list or turn.is_tool_named or turn.request.parallel_tool_calls is False or self.most_calls == 1:
            return False
        return has_values_alike(turn.question, list(list_leaves(values)))

    async def _fill_in(
        self, turn: GuidedTurn, view: FoldedSchema, names: Collection[str], known: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        schema = _offer_codes(turn, view, view.select(names))
        prompt = [UserMessage(_write_filling(turn, schema["properties"], known=known))]
        values = await _ask_by_types(turn, prompt, schema, view.select(names))
        if values is None:  # the limit stops a model that repeats itself inside a text
            values = await _ask_by_types(turn, prompt, _bound_texts(schema, self.longest_text), view.select(names))
            if any(isinstance(leaf, str) and len(leaf) >= self.longest_text for leaf in list_leaves(values)):
                turn.is_cut_off = True
                return None
        return values

    async def _fill_in_several(self, turn: GuidedTurn, view: FoldedSchema) -> Sequence[Mapping[str, Any]] | None:
        schema = _offer_codes(turn, view, view.schema)
        prompt = [UserMessage(_write_filling(turn, view.properties, has_several=True))]
        several = {"type": "array", "items": schema, "minItems": 1, "maxItems": self.most_calls}
        plain = {**several, "items": _keep_types(view.schema)}
        reply = await _ask_by_types(turn, prompt, _make_object({"calls": several}), _make_object({"calls": plain}))
        turn.is_cut_off = False
        return None if reply is None else reply["calls"]


@dataclass(frozen=True, slots=True)
class RefuseRepeats:
    """Refuses calls that were made before, with the same arguments; the first refusal ends the turn."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Compare each call with earlier ones."""
        tool = turn.require_tool(self)
        if turn.must_call:
            return "next"
        made = {canonical_json(call.arguments) for call in turn.past_calls if call.name == tool.name}
        new = {text: call for call in turn.calls if (text := canonical_json(call)) not in made}
        turn.calls = list(new.values())
        return "next" if new else "answer"


@dataclass(frozen=True, slots=True)
class ConfirmFollowUp:
    """Asks again about a follow-up call that nothing in the request itself supports.

    The request supports a call if it contains a value that no earlier call used, or shares an open word with the name
    or description of a tool that was not called yet. Otherwise the model chooses again between this tool and the
    answer; if it insists, all arguments of the calls are marked as unsaid.
    """

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Compare the calls with the request."""
        tool = turn.require_tool(self)
        if turn.must_call or not turn.past_calls:
            return "next"
        left = strike_out(turn.question, turn.used_values)
        values = [leaf for call in turn.calls for leaf in list_leaves(call)]
        is_new = all(call.name != tool.name for call in turn.past_calls)
        about = split_words(f"{tool.name} {tool.description}") if is_new else []
        about = [word for word in about if len(word) >= _SHORTEST_WORD]
        if strike_out(left, values) != left or share_word(turn.open_words, about):
            return "next"
        answer = _name_answer([tool])
        examples = [(_shorten_description(tool, _CONFIRMED_WORDS), tool.name), ("Hello!", answer)]
        if await _ask_for_tool(turn, [tool], examples, answer) is None:
            return "answer"
        turn.is_unasked = True
        return "next"


_CONFIRMED_WORDS = 8

DEFAULT_STEPS = (StopWhenDone(), ChooseTool(), FillArguments(), RefuseRepeats(), ConfirmFollowUp())
"""The default steps of a turn, in order."""


async def _ask_for_tool(
    turn: GuidedTurn, tools: Sequence[ToolDefinition], examples: Iterable[tuple[str, str]], answer: str | None
) -> ToolDefinition | None:
    """Ask for one of the tools after example requests; None means that the model should answer."""
    messages: list[Message] = []
    for request, chosen in examples:
        messages += [UserMessage(request), AssistantMessage(json.dumps({"tool": chosen}))]
    messages.append(UserMessage(_write_open_question(turn)))
    names = [*(tool.name for tool in tools), *([] if answer is None else [answer])]
    value = await turn.ask(messages, _make_object({"tool": {"enum": names}}), max_tokens=_LONGEST_NAME_TOKENS)
    return next((tool for tool in tools if value is not None and tool.name == value["tool"]), None)


async def _ask_by_types(
    turn: GuidedTurn, messages: Sequence[Message], schema: Mapping[str, Any], plain: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Ask for an object of a schema; fall back to its types if the engine can't convert it to a grammar."""
    try:
        return await turn.ask(messages, schema)
    except ContextTooLongError:
        raise
    except ProviderError as error:
        if error.status not in _REFUSED_SCHEMA:
            raise
        return await turn.ask(messages, _keep_types(plain))


def _is_named(turn: GuidedTurn, view: FoldedSchema, name: str) -> bool:
    """Return True if the request mentions one of a parameter's choices, or a longer word of its name or description."""
    node = view.properties[name]
    if strike_out(turn.question, node.get("enum", ())) != turn.question:
        return True
    about = [word for word in split_words(f"{name} {node.get('description', '')}") if len(word) >= _SHORTEST_WORD]
    return share_word(split_words(turn.question), about)


def _has_more_words(turn: GuidedTurn, tool: ToolDefinition, asked: Sequence[str], values: Mapping[str, Any]) -> bool:
    """Return True if the request has words that may concern arguments not asked for yet."""
    names = [word for name in (tool.name, *asked) for word in split_words(name)]
    return bool(list_open_words(turn.question, [*turn.used_values, *list_leaves(values)], names))


def _offer_codes(turn: GuidedTurn, view: FoldedSchema, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Restrict ids to those in the conversation, if there are enough for all parameters of a kind."""
    properties = dict(schema["properties"])
    kinds = Counter(canonical_json(dict(code)) for code in view.codes.values())
    for name in properties.keys() & view.codes.keys():
        code, node = view.codes[name], properties[name]
        found = list_codes(turn.given_text, _make_code_check(code))
        if not found or len(found) < kinds[canonical_json(dict(code))]:
            continue
        choice = {**{key: node[key] for key in ("description",) if key in node}, "enum": found}
        properties[name] = {**node, "items": choice} if is_object(node.get("items")) else choice
    return {**schema, "properties": properties}


def _make_code_check(code: Mapping[str, Any]) -> Callable[[str], bool]:
    if "pattern" in code:
        return make_check({"type": "string", "pattern": code["pattern"]})
    if "format" in code:
        written = re.compile(_FORMATS[code["format"]], re.IGNORECASE)
        return lambda text: written.fullmatch(text) is not None
    shapes = {describe_shape(example) for example in code["examples"] if isinstance(example, str)}
    return lambda text: "9" in describe_shape(text) and describe_shape(text) in shapes


def _make_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _bound_texts(schema: Any, longest: int) -> Any:
    if is_array(schema):
        return [_bound_texts(item, longest) for item in schema]
    if not is_object(schema):
        return schema
    bounded = {key: _bound_texts(value, longest) for key, value in schema.items()}
    if bounded.get("type") == "string" and "enum" not in bounded:
        bounded["maxLength"] = longest
    return bounded


def _keep_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: {"type": node["type"]} if isinstance(node.get("type"), str) else {}
        for name, node in schema["properties"].items()
    }
    return {"type": "object", "properties": plain, "required": list(schema["required"])}


def _name_answer(tools: Iterable[ToolDefinition]) -> str:
    names, answer = {tool.name for tool in tools}, "answer"
    while answer in names:
        answer += "_"
    return answer


def _rank_tools(question: str, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools that share words with a request, best first; a word that only one tool has counts most."""
    asked = split_words(question)
    shared = {
        tool.name: {
            word
            for text in (tool.name, _shorten_description(tool, 1000), *_list_example_requests(tool))
            for word in split_words(text)
            if len(word) >= _SHORTEST_WORD and share_word([word], asked)
        }
        for tool in tools
    }
    counts = Counter(word for words in shared.values() for word in words)
    fitting = [tool for tool in tools if shared[tool.name]]
    return sorted(fitting, key=lambda tool: sum(1 / counts[word] for word in shared[tool.name]), reverse=True)


def _has_own_word(tool: ToolDefinition, asked: Sequence[str], used: Sequence[str]) -> bool:
    return any(share_word([word], asked) and not share_word([word], used) for word in split_words(tool.name))


def _shorten_description(tool: ToolDefinition, words: int) -> str:
    """Return the first words of the first sentence of a tool's description, or else its name."""
    sentence = _SENTENCE_END.split(tool.description.strip(), maxsplit=1)[0]
    short = " ".join(sentence.split()[:words])
    return short or tool.name.replace("_", " ")


def _list_example_requests(tool: ToolDefinition) -> list[str]:
    """Return the requests that a tool's description quotes after its first sentence."""
    rest = _SENTENCE_END.split(tool.description.strip(), maxsplit=1)[1:]
    return _QUOTED.findall(" ".join(rest))[:_MOST_EXAMPLES]


def _write_open_question(turn: GuidedTurn) -> str:
    """Return the question without the values already used, followed by the results so far."""
    if not turn.past_calls:
        return turn.question
    return f"{strike_out(turn.question, turn.used_values)}\n{_write_known(turn.past_calls)}"


def _write_filling(
    turn: GuidedTurn,
    properties: Mapping[str, Any],
    *,
    known: Mapping[str, Any] | None = None,
    has_several: bool = False,
) -> str:
    """Return the prompt for arguments of the chosen tool: of one call, of several calls, or those still missing."""
    assert turn.tool is not None
    listed = "\n".join([_list_parameter(name, node) for name, node in properties.items()])
    history = _write_history(turn)
    before = f"\n\nBefore that:\n{history}" if history else ""
    results = f"\n\n{_write_known(turn.past_calls)}" if turn.past_calls else ""
    given = "".join([f"\n{name}: {_write_short_value(value)}" for name, value in (known or {}).items()])
    times, reply = (", once for each time it is needed", "a JSON list") if has_several else ("", "JSON")
    rest = f"\nLeave out what the request does not say. Given already:{given}" if given else ""
    return (
        f"Fill in the arguments of {turn.tool.name} from the words of the request{times}. "
        f"{_shorten_description(turn.tool, 24)} The arguments:\n{listed}{rest}\nReply with {reply}.{before}\n\n"
        f"Request: {turn.question}{results}"
    )


def _write_known(past_calls: Sequence[PastCall]) -> str:
    """Return the results of the calls made for this request, one per line."""
    lines = [
        f"Known: {_write_values(call.arguments)}{' failed' if call.is_error else ''}: {call.result}"
        for call in past_calls
    ]
    return "\n".join(lines)


def _write_values(arguments: Mapping[str, Any]) -> str:
    return ", ".join([_write_short_value(value) for value in arguments.values()]) or "done"


def _write_short_value(value: Any) -> str:
    if is_object(value):
        return " ".join([_write_short_value(member) for member in value.values()])
    if is_array(value):
        return " and ".join([_write_short_value(item) for item in value])
    return str(value)


def _write_history(turn: GuidedTurn) -> str:
    """Return the text of the conversation before the question, truncated at the front."""
    texts: list[str] = []
    for message in turn.request.messages:
        if isinstance(message, UserMessage) and message.text == turn.question:
            break
        if message.text:
            texts.append(message.text)
    return "\n".join(texts)[-_LONGEST_HISTORY:]


def _list_parameter(name: str, node: Mapping[str, Any]) -> str:
    description = node.get("description")
    return f"- {name} ({_describe_values(node)})" + (f": {description}" if description else "")


def _describe_values(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        values = [str(value) for value in node["enum"]]
        more = " or another" if len(values) > _MOST_LISTED_VALUES else ""
        return " or ".join(values[:_MOST_LISTED_VALUES]) + more
    if "anyOf" in node:
        return " or ".join([_describe_values(arm) for arm in node["anyOf"]])
    kind = node.get("type", "value")
    return kind if isinstance(kind, str) else " or ".join(kind)


class GuidedAnswer(Protocol):
    """Writes the request for the answer of a turn."""

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFromResults:
    """Asks the model to state the results in a sentence; without results, to answer the conversation.

    Args:
        is_quoting: True to make a short one-line result the whole answer, verbatim, by a llama.cpp grammar: a small
            model tends to compute the result itself, wrongly.
        longest_quoted: The maximum length of a quoted result, in characters.
    """

    is_quoting: bool = False
    longest_quoted: PositiveInt = 200

    def __post_init__(self) -> None:
        check_fields(self)

    def write(self, turn: GuidedTurn) -> ChatRequest:
        """Return the request."""
        request = turn.request
        if not turn.past_calls:
            return strip_tools(request, [_flatten_message(message) for message in request.messages])
        good = [call.result for call in turn.past_calls if not call.is_error]
        results = "\n".join(good or [call.result for call in turn.past_calls])
        if not good:
            prompt = f"{turn.question}\n\nThat failed: {results}\n\nSay in a sentence that it failed, and why."
        else:
            prompt = f"{turn.question}\n\nThe answer is: {results}\n\nSay the answer in a sentence."
        instructions = [message for message in request.messages if isinstance(message, SystemMessage)]
        asked = strip_tools(request, [*instructions, UserMessage(prompt)])
        quoted = " and ".join([result.strip().rstrip(".") for result in good])
        if self._is_quotable(quoted) and request.response_format is None and "grammar" not in request.options:
            asked = replace(asked, options={**asked.options, "grammar": _make_quoting_grammar(quoted)})
        return asked

    def _is_quotable(self, text: str) -> bool:
        return self.is_quoting and bool(text.strip()) and "\n" not in text and len(text) <= self.longest_quoted


class GuidedProvider(ProviderWrapper):
    """Guides a small model to tool calls by small questions whose answers are always well-formed.

    ::

        server = OpenAIProvider("my-model", base_url="http://localhost:8080/v1", api_key="none")
        result = await tool_loop(GuidedProvider(server), registry, "What's the weather in Paris?")

    A reply has calls of one tool; calls of others follow after its results. The server constrains each reply by a JSON
    Schema, so its form is certain; its values are the model's choice, see `docs/weak_models.md`. `ToolCall.unsaid`
    lists the arguments that occur nowhere in the conversation, for rules and approval to act on.

    Args:
        provider: The provider of the model; it never receives tools.
        steps: The steps to take, in order, until one of them leads to the answer.
        answer: Writes the request for the answer.
        hold_by: The request field in which the server takes a schema; ``auto`` detects it at the first request.

    Raises:
        ConfigurationError: `hold_by` is unknown, or `steps` is empty.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        steps: Sequence[GuidedStep] = DEFAULT_STEPS,
        answer: GuidedAnswer | None = None,
        hold_by: HoldingWay | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(provider)
        if not steps:
            raise ConfigurationError("a guided turn needs steps: leave them out for the default ones")
        self._steps = tuple(steps)
        self._answer: GuidedAnswer = AnswerFromResults() if answer is None else answer
        self._holder = SchemaHolder(provider, hold_by)

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the calls that the steps produced, or else the model's answer, with the usage of all steps.

        Raises:
            ConfigurationError: `tool_choice` names a tool that does not exist.
            BadResponseError: The server ignores schemas.
            ProviderError: As for the provider.
        """
        turn = await self._take_steps(request)
        called = _write_calls(turn)
        if called is not None:
            return called
        response = await self._provider.generate(self._answer.write(turn))
        return replace(response, usage=response.usage + turn.usage)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent]:
        """Yield the answer as it arrives; each call arrives in one piece.

        Raises:
            ProviderError: As for `generate`.
        """
        turn = await self._take_steps(request)
        called = _write_calls(turn)
        if called is not None:
            for index, call in enumerate(called.tool_calls):
                yield ArgumentsDelta(index, call.id, call.name, call.arguments)
            yield ResponseDone(called)
            return
        async with closing(self._provider.stream(self._answer.write(turn))) as events:
            async for event in events:
                if isinstance(event, ResponseDone) and turn.usage != Usage():
                    response = event.response
                    yield ResponseDone(replace(response, usage=response.usage + turn.usage))
                else:
                    yield event

    async def _take_steps(self, request: ChatRequest) -> GuidedTurn:
        """Return a turn with a tool and its arguments, or without a tool."""
        turn = GuidedTurn.of(request, self._holder)
        if not turn.tools:
            return turn
        for step in self._steps:
            if await step.take(turn) == "answer":
                turn.tool = turn.tool if turn.must_call else None
                break
        return turn


def _write_calls(turn: GuidedTurn) -> ChatResponse | None:
    """Return a reply with the turn's calls; None if it has none."""
    if turn.tool is None:
        return None
    reply = turn.response or ChatResponse(message=AssistantMessage())
    if turn.is_cut_off:
        calls = [_make_call(turn.tool.name, reply.text, {})]
    else:
        calls = [
            _make_call(turn.tool.name, write_json(dict(call)), {"unsaid": unsaid} if unsaid else {})
            for call in turn.calls
            for unsaid in [turn.list_unsaid(call)]
        ]
    return replace(
        reply,
        message=AssistantMessage(calls),
        usage=turn.usage,
        stop_reason="max_tokens" if turn.is_cut_off else "tool_use",
    )


def _make_call(name: str, arguments: str, extra: Mapping[str, Any]) -> ToolCall:
    return ToolCall(f"call_{secrets.token_hex(6)}", name, arguments, extra=extra or None)


def _make_quoting_grammar(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\t", "\\t")
    return f'root ::= "{quoted}" "."?'


def _flatten_message(message: Message) -> Message:
    """Return a message with calls and results as text; the templates of small models drop them or fail."""
    match message:
        case AssistantMessage():
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            return AssistantMessage("\n".join([text for text in (message.text, *calls) if text]))
        case ToolResult():
            return UserMessage(f"Result of {message.tool_name or 'the call'}: {message.text}")
        case SystemMessage() | UserMessage():
            return message
