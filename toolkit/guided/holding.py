"""Replies constrained by a JSON Schema, flat views of tool schemas, and the state of a guided turn.

Servers take a schema in different fields, and each reply is validated, since some servers ignore it. A flat view maps
back to the tool's arguments without loss.

Words are compared letter by letter, the same in every language. The comparison decides whether a turn is over, what
else to ask, and which arguments to mark as unsaid; it never decides a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias, get_args

from toolkit.calls.text_search import TextIndex, TextSource, Wanted, has_boundary, list_leaves
from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ResponseFormat,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.request import callable_tools
from toolkit.dataclass import dataclass
from toolkit.errors import BadResponseError, ConfigurationError, ContextTooLongError, ProviderError, SchemaError
from toolkit.schema.nodes import Node, Nodes, is_array, is_object, map_subschemas
from toolkit.schema.projections import merge_nodes, simplify_unions
from toolkit.schema.raw_schema import RawSchema

HoldingWay: TypeAlias = Literal["response_format", "json_schema", "structured_outputs", "guided_json", "format"]
"""The request field that carries the schema: OpenAI's (and most servers'), llama.cpp's, vLLM's two, and Ollama's."""

# The statuses of servers that don't know a field, or can't convert a schema to a grammar.
_REFUSALS = frozenset({400, 404, 422, 500, 501})
_LONGEST_SHOWN_REPLY = 80


class SchemaHolder:
    """Asks a provider for objects of a schema, in the first request field that its server supports.

    Args:
        provider: The provider of the model.
        way: The request field; ``auto`` tries each in turn and remembers the first that works.

    Raises:
        ConfigurationError: `way` is unknown.
    """

    def __init__(self, provider: Provider, way: HoldingWay | Literal["auto"]) -> None:
        ways: tuple[HoldingWay, ...] = get_args(HoldingWay)
        if way != "auto" and way not in ways:
            known = ", ".join([f"'{each}'" for each in ("auto", *ways)])
            raise ConfigurationError(f"hold_by must be one of {known}, not {way!r}")
        self._provider = provider
        self._ways: tuple[HoldingWay, ...] = ways if way == "auto" else (way,)

    async def ask(
        self,
        request: ChatRequest,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        *,
        max_tokens: int | None = None,
    ) -> tuple[ChatResponse, Mapping[str, Any] | None]:
        """Return the model's reply to the messages, with the settings of the request, and its object.

        The object is None if the reply was cut off.

        Raises:
            BadResponseError: No reply fits the schema: the server ignores it.
            ProviderError: The server failed, or refused the schema in every way.
        """
        asked = strip_tools(request, messages)
        asked = replace(asked, stop=(), max_tokens=max_tokens or request.max_tokens)
        check = RawSchema(schema, subject="the schema of a step")
        spent, failure, invalid_text = Usage(), None, ""
        for way in self._ways:
            try:
                response = await self._provider.generate(_hold_to_schema(asked, schema, way))
            except ContextTooLongError:
                raise
            except ProviderError as error:
                if error.status not in _REFUSALS or len(self._ways) == 1:
                    raise
                failure = failure or error
                continue
            spent += response.usage
            response = replace(response, usage=spent)
            value = read_reply_object(response.text)
            if value is not None and check.is_valid(value):
                # Tried first next time: each of the others costs a request.
                self._ways = (way, *[other for other in self._ways if other != way])
                return response, value
            if response.stop_reason == "max_tokens":
                return response, None
            invalid_text = response.text
        if failure is not None and not invalid_text:
            raise failure
        raise _unconstrained_error(self._provider, self._ways, invalid_text)


def make_check(schema: Mapping[str, Any]) -> Callable[[object], bool]:
    """Return a predicate for values that fit a schema; nothing fits an invalid schema."""
    try:
        return RawSchema(schema, subject="the schema of an argument").is_valid
    except SchemaError:
        return lambda _: False


def strip_tools(request: ChatRequest, messages: Sequence[Message]) -> ChatRequest:
    """Return the request with other messages and without tools."""
    return replace(request, messages=messages, tools=None, tool_choice="auto", parallel_tool_calls=None)


def read_reply_object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object in a text, with or without a code fence; None if it is not a complete object."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.strip("`").removeprefix("json")
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def _hold_to_schema(request: ChatRequest, schema: Mapping[str, Any], way: HoldingWay) -> ChatRequest:
    if way == "response_format":
        return replace(request, response_format=ResponseFormat(schema, name="reply"))
    value = {"json": schema} if way == "structured_outputs" else schema
    return replace(request, response_format=None, options={**request.options, way: value})


def _unconstrained_error(provider: Provider, ways: Sequence[HoldingWay], text: str) -> BadResponseError:
    shown = text if len(text) <= _LONGEST_SHOWN_REPLY else f"{text[:_LONGEST_SHOWN_REPLY]}..."
    return BadResponseError(
        str(getattr(provider, "name", "the provider")),
        f"the server does not hold a reply to a JSON Schema, which guided calls need (asked by {', '.join(ways)}): it "
        f"answered {shown!r}. Use a server that does (llama.cpp, vLLM, Ollama, OpenAI), or TextToolProvider",
    )


_DEEPEST_REFERENCE = 4
# The keywords that all grammar engines implement. Others (patterns, formats, lengths) are left to the tool's own
# validation, since some engines fail on them.
_SHAPE_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "anyOf"}
    | {"minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "description"}
)
# The formats that every engine knows or ignores.
_KNOWN_FORMATS = frozenset({"date", "time", "date-time", "email"})
# Formats of values that are copied from the conversation, not composed.
_CODE_FORMATS = frozenset({"email", "uuid", "uri", "ipv4", "ipv6"})
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class FoldedSchema:
    """A flat view of a tool's parameters.

    Args:
        schema: The schema of the view, of type object.
        paths: The keys from the root to the argument of each property.
        optional: The names of optional properties.
        codes: The ``pattern``, ``format`` and ``examples`` of each property whose text, or list items, are ids.
        filled: The arguments with only one possible value, which the model is not asked for.
        nullable: The required arguments that become null when omitted.
        objects: The required nested objects.
    """

    schema: dict[str, Any]
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    optional: set[str] = field(default_factory=set[str])
    codes: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    filled: dict[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])
    nullable: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    objects: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """The properties of the view, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.schema["properties"]
        return found

    def select(self, names: Collection[str]) -> dict[str, Any]:
        """Return the view's schema with only these properties."""
        return {
            **self.schema,
            "properties": {name: node for name, node in self.properties.items() if name in names},
            "required": [name for name in self.schema["required"] if name in names],
        }

    def unfold(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool's arguments for values of the view.

        ::

            >>> fold_schema(parameters).unfold({"address.city": "Rome"})
            {'address': {'city': 'Rome'}}
        """
        arguments: dict[str, Any] = {}
        for path in self.objects:
            _set_at_path(arguments, path, {})
        for name, value in values.items():
            _set_at_path(arguments, self.paths.get(name, (name,)), value)
        for path, value in [*self.filled.items(), *((path, None) for path in self.nullable)]:
            parent = _find_at_path(arguments, path[:-1])
            if is_object(parent) and path[-1] not in parent:
                _set_at_path(arguments, path, value)
        return arguments

    def fold(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the view for a tool's arguments; arguments outside the view are dropped."""
        values = {name: _find_at_path(arguments, path) for name, path in self.paths.items()}
        nulls = {name for name, path in self.paths.items() if path in self.nullable and values[name] is None}
        return {name: value for name, value in values.items() if value is not _ABSENT and name not in nulls}


def fold_schema(parameters: Mapping[str, Any]) -> FoldedSchema:
    """Return a flat view of a schema for small models.

    References are inlined, nested objects become dotted names, and properties with one possible value are left out.

    Args:
        parameters: A JSON Schema of type object.
    """
    nodes = Nodes(parameters)
    root = _simplify_node(nodes, nodes.root, 0)
    others = root.get("additionalProperties")
    view = FoldedSchema(
        {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": _keep_shape(others) if is_object(others) else False,
        }
    )
    _add_members(view, nodes, root, (), is_optional=False)
    view.schema["required"] = [name for name in view.properties if name not in view.optional]
    return view


def _add_members(view: FoldedSchema, nodes: Nodes, node: Node, path: tuple[str, ...], *, is_optional: bool) -> None:
    required = node.get("required", ())
    members: Mapping[str, Any] = node.get("properties", {})
    for key, given in members.items():
        member = _simplify_node(nodes, given, 0)
        is_required = key in required
        if is_required and "enum" in member and len(member["enum"]) == 1:
            view.filled[(*path, key)] = member["enum"][0]
            continue
        may_be_null = bool(member.get("nullable"))
        if is_required and may_be_null:
            view.nullable.append((*path, key))
        may_be_absent = is_optional or not is_required or may_be_null
        if not member.get("properties"):
            _add_property(view, (*path, key), member, is_optional=may_be_absent)
            continue
        if not may_be_absent:
            view.objects.append((*path, key))
        _add_members(view, nodes, member, (*path, key), is_optional=may_be_absent)


def _add_property(view: FoldedSchema, path: tuple[str, ...], member: Node, *, is_optional: bool) -> None:
    name = ".".join(path)
    while name in view.paths:  # a key that itself contains a dot
        name += "_"
    view.schema["properties"][name] = _keep_shape(member)
    view.paths[name] = path
    if is_optional:
        view.optional.add(name)
    items = member.get("items")
    code = _find_code(items if is_object(items) else member)
    if code:
        view.codes[name] = code


def _simplify_node(nodes: Nodes, node: Any, depth: int) -> dict[str, Any]:
    """Return a node with references inlined and unions simplified where possible."""
    if not is_object(node):
        return {}
    if "$ref" in node:
        depth += 1
        if depth > _DEEPEST_REFERENCE:
            return {"type": "object"}
    node = simplify_unions(nodes.resolve(node))
    for part in node.pop("allOf", ()):
        node = simplify_unions(merge_nodes(nodes.resolve(part), node))
    node = _join_arms(nodes, _split_null(node), depth)
    return map_subschemas(node, lambda member: _simplify_node(nodes, member, depth))


def _join_arms(nodes: Nodes, node: dict[str, Any], depth: int) -> dict[str, Any]:
    arms: list[dict[str, Any]] = [_simplify_node(nodes, arm, depth + 1) for arm in node.pop("anyOf", ())]
    useful = [arm for arm in arms if arm.get("type") != "null" and arm.get("enum") != [None]]
    if len(useful) < len(arms):
        node["nullable"] = True
    if len(useful) > 1:
        return {**node, "anyOf": useful}
    return {**useful[0], **node} if useful else node


def _find_code(node: Node) -> dict[str, Any]:
    """Return the keywords that describe the form of an id; empty if there are none."""
    if node.get("type") != "string" or "enum" in node:
        return {}
    code = {keyword: node[keyword] for keyword in ("pattern", "examples") if keyword in node}
    if node.get("format") in _CODE_FORMATS:
        code["format"] = node["format"]
    return code


def _split_null(node: dict[str, Any]) -> dict[str, Any]:
    """Replace null in a node's type or enum by ``nullable``."""
    types: object = node.get("type")
    if is_array(types) and "null" in types:
        others = [each for each in types if each != "null"]
        node = {**node, "type": others[0] if len(others) == 1 else others, "nullable": True}
    values: object = node.get("enum")
    if is_array(values) and None in values and len(values) > 1:
        node = {**node, "enum": [value for value in values if value is not None], "nullable": True}
    return node


def _keep_shape(node: Any) -> Any:
    if not is_object(node):
        return node
    shape = {keyword: value for keyword, value in node.items() if keyword in _SHAPE_KEYWORDS}
    if node.get("format") in _KNOWN_FORMATS:
        shape["format"] = node["format"]
    shape = map_subschemas(shape, _keep_shape)
    if "properties" in shape and "additionalProperties" not in shape:
        shape["additionalProperties"] = False
    return shape


def _find_at_path(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = arguments
    for key in path:
        value = value.get(key, _ABSENT) if is_object(value) else _ABSENT
    return value


def _set_at_path(arguments: dict[str, Any], path: Sequence[str], value: Any) -> None:
    inside = arguments
    for key in path[:-1]:
        inside = inside.setdefault(key, {})
    inside[path[-1]] = value


StepVerdict: TypeAlias = Literal["next", "answer"]
"""The continuation of a turn after a step: the next step, or the model's answer."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that was made for the current request.

    Args:
        name: The tool.
        arguments: The parsed arguments; empty if they were not a JSON object.
        result: The text of the result.
        is_error: True if the result reports a failure.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    is_error: bool


@dataclass(kw_only=True, eq=False)
class GuidedTurn:
    """The state that the steps of one turn share: a step reads it, asks the model by `ask`, and stores its findings.

    Attributes:
        request: The application's request.
        holder: Asks the model for objects of a schema.
        tools: The tools that may be called now.
        question: The text of the last user message.
        past_calls: The calls made since that message, with their results.
        tool: The chosen tool; None until one is chosen.
        view: The parameters shown to the model; None until a tool is chosen.
        calls: The arguments of each call of the tool; empty until they are filled in.
        is_unasked: True if nothing in the request itself supports the calls: all arguments count as unsaid.
        is_cut_off: True if the reply with the arguments was cut off at the token limit.
        usage: The usage of the steps so far.
        response: The last reply that a step received.
    """

    request: ChatRequest
    holder: SchemaHolder
    tools: Sequence[ToolDefinition]
    question: str
    past_calls: Sequence[PastCall]
    tool: ToolDefinition | None = None
    view: FoldedSchema | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    is_unasked: bool = False
    is_cut_off: bool = False
    usage: Usage = field(default_factory=Usage)
    response: ChatResponse | None = None

    @classmethod
    def of(cls, request: ChatRequest, holder: SchemaHolder) -> GuidedTurn:
        """Return the turn that a request begins.

        Raises:
            ConfigurationError: `tool_choice` names a tool that does not exist.
        """
        messages = request.messages
        position = max(
            (index for index, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1
        )
        return cls(
            request=request,
            holder=holder,
            tools=callable_tools(request),
            question=messages[position].text if position >= 0 else "",
            past_calls=_list_past_calls(messages[position + 1 :]),
        )

    @property
    def must_call(self) -> bool:
        """True if the request requires a call, of any tool or of a given one."""
        return self.request.tool_choice not in ("auto", "none")

    @property
    def is_tool_named(self) -> bool:
        """True if the request names the tool to call, which vendors treat as exactly one call."""
        return self.request.tool_choice not in ("auto", "none", "required")

    @cached_property
    def given_text(self) -> str:
        """The text of users, results and the application, without the model's own and failed results."""
        return "\n".join(
            message.text
            for message in self.request.messages
            if not isinstance(message, AssistantMessage) and not (isinstance(message, ToolResult) and message.is_error)
        )

    @cached_property
    def used_values(self) -> list[Any]:
        """The values of the calls that succeeded."""
        return [leaf for call in self.past_calls if not call.is_error for leaf in list_leaves(call.arguments)]

    @cached_property
    def open_words(self) -> list[str]:
        """The words of the question that no successful call accounts for."""
        good = [call for call in self.past_calls if not call.is_error]
        names = [word for call in good for name in (call.name, *call.arguments) for word in split_words(name)]
        called = [tool for tool in self.tools if any(call.name == tool.name for call in good)]
        about = [word for tool in called for text in _list_descriptions(tool) for word in split_words(text)]
        return list_open_words(self.question, self.used_values, names, about)

    def require_tool(self, asker: object) -> ToolDefinition:
        """Return the chosen tool.

        Raises:
            ConfigurationError: No earlier step has chosen one.
        """
        if self.tool is None:
            raise ConfigurationError(
                f"{type(asker).__name__} comes before a tool is chosen: put ChooseTool, or a step that sets the turn's "
                "tool, before it in 'steps'"
            )
        return self.tool

    def list_unsaid(self, call: Mapping[str, Any]) -> list[str]:
        """Return the paths of a call's arguments that occur nowhere in the conversation."""
        values = call if self.view is None else self.view.fold(call)
        return list(values) if self.is_unasked else list_unsaid(values, self.given_text)

    async def ask(
        self, messages: Sequence[Message], schema: Mapping[str, Any], *, max_tokens: int | None = None
    ) -> Mapping[str, Any] | None:
        """Return the model's reply as an object of a schema; None if it was cut off.

        Raises:
            BadResponseError: The server ignores the schema.
            ProviderError: The server failed.
        """
        self.response, value = await self.holder.ask(self.request, messages, schema, max_tokens=max_tokens)
        self.is_cut_off = value is None
        self.usage += self.response.usage
        return value


class GuidedStep(Protocol):
    """One step of a turn: asks the model a small question, or checks the findings so far."""

    async def take(self, turn: GuidedTurn) -> StepVerdict:
        """Take the step, and return how the turn continues."""
        ...


def _list_descriptions(tool: ToolDefinition) -> list[str]:
    nodes = fold_schema(tool.parameters).properties.values()
    return [tool.description, *[str(node.get("description", "")) for node in nodes]]


def _list_past_calls(messages: Sequence[Message]) -> list[PastCall]:
    calls = {
        call.id: call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
    }
    return [
        PastCall(call.name, read_reply_object(call.arguments) or {}, message.text, message.is_error)
        for message in messages
        if isinstance(message, ToolResult) and (call := calls.get(message.call_id)) is not None
    ]


_WORD = re.compile(r"[^\W_]+(?:[-'\u2019@/:+#.][^\W_]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Tokens of prose and of JSON; a URL may itself contain brackets and commas.
_PARTS = (re.compile(r"[^\s\"]+"), re.compile(r"[^\s\"',;(){}\[\]<>=]+"))
_EDGES = ".,;:!?*`'\"(){}[]<>\u201c\u201d\u2018\u2019\u00ab\u00bb"
_SHORTEST_WORD = 4
_LONGEST_ENDING = 2
_LONGEST_CODE = 100
_MOST_CODES = 64
_STRUCK = "\ufffc"


def split_words(text: str) -> list[str]:
    """Return the case-folded words of a text or an identifier."""
    return [word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def strike_out(text: str, values: Iterable[Any], mark: str = "...") -> str:
    """Return a text with each of the values replaced by a mark."""
    written = {form for value in values for form in _list_forms(value)}
    for form in sorted(written, key=len, reverse=True):
        text = re.sub(_find_whole(form), mark, text, flags=re.IGNORECASE)
    return text


def list_open_words(question: str, values: Sequence[Any], names: Iterable[str], about: Iterable[str] = ()) -> list[str]:
    """Return the words of a question that neither values nor names account for.

    Every word after the last value counts. Before it, the first word of the question does not count, nor do words of
    fewer than four letters, unless they have a digit or a capital letter or belong to a script without capitals.

    Args:
        question: The question.
        values: The values of calls.
        names: The words in the names of their tools and parameters.
        about: More words that account for those before the last value, such as those of tool descriptions.
    """
    left = strike_out(question, values, _STRUCK)
    last = left.rfind(_STRUCK)
    known, before = set(names), set(about)
    found: list[str] = []
    for match in _WORD.finditer(left):
        word = match[0]
        is_first = not left[: match.start()].strip(" \t\n\"'(\u201c\u2018\u00ab\u00bf\u00a1")
        is_after = match.start() > last >= 0
        counts = is_after or (not is_first and _is_significant(word)) or _has_digit(word)
        if counts and not share_word([word.casefold()], known if is_after else known | before):
            found.append(word.casefold())
    return found


def share_word(some: Iterable[str], others: Iterable[str]) -> bool:
    """Return True if two groups share a word, or a word of one extends a word of the other by up to two letters."""
    others = set(others)
    return any(one in others or any(_is_longer_form(one, other) for other in others) for one in some)


def has_values_alike(question: str, values: Sequence[Any]) -> bool:
    """Return True if a question contains another word written like one of these values.

    For a value with digits, that is a word with digits in the same places; for a capitalized value, another capitalized
    word; for any other value, a comma after it.
    """
    left = strike_out(question, values, _STRUCK)
    words = [match[0] for match in _WORD.finditer(left) if left[: match.start()].strip()]
    for value in values:
        text = str(value)
        if strike_out(question, [value]) == question:
            continue
        if _has_digit(text):
            if any(describe_shape(word) == describe_shape(text) for word in words):
                return True
        elif text[:1].isupper():
            if any(word[:1].isupper() for word in words):
                return True
        elif re.search(_find_whole(text) + r"\s*[,;\u3001\u060c]\s*\w", question, re.IGNORECASE) is not None:
            return True
    return False


def list_unsaid(values: Mapping[str, Any], conversation: str) -> list[str]:
    """Return the names of values that occur nowhere in a conversation; for a boolean, its name must occur.

    Args:
        values: The values by name.
        conversation: All text of users, results and the application.
    """
    index, words = TextIndex(), set(split_words(conversation))
    index.add(TextSource("user", text=conversation))
    return [
        name
        for name, value in values.items()
        if not all(_is_mentioned(leaf, name, index, words) for leaf in list_leaves(value))
    ]


def list_codes(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the ids in a text that fit as written, in upper case or in lower case; empty if there are too many.

    Args:
        text: The text.
        fits: Returns True for an id of the kind; called with words that have a digit or an ``@``.
    """
    words = [word.strip(_EDGES) for word in text.split()]
    parts = [token.strip(_EDGES) for pattern in _PARTS for token in pattern.findall(text)]
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    found: dict[str, None] = {}
    for token in dict.fromkeys([*words, *parts, *pairs]):
        if len(token) <= _LONGEST_CODE and (_has_digit(token) or "@" in token):
            written = next((form for form in (token, token.upper(), token.lower()) if fits(form)), None)
            if written is not None:
                found[written] = None
        if len(found) > _MOST_CODES:
            return []
    return list(found)


def describe_shape(text: str) -> str:
    """Return a text with one sign for each run of digits or letters: `A-1042` and `B-7` become `A-9`."""
    letters = re.sub(r"[^\W\d_]+", lambda run: "A" if run[0].isupper() else "a", text)
    return re.sub(r"\d+", "9", letters)


def _is_mentioned(value: Any, name: str, index: TextIndex, words: set[str]) -> bool:
    if isinstance(value, bool):
        return share_word([word for word in split_words(name) if len(word) >= _SHORTEST_WORD], words)
    return index.find(Wanted(value)) is not None


def _list_forms(value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        return
    if isinstance(value, float) and value.is_integer():
        yield str(int(value))
    text = str(value).strip()
    if text:
        yield text


def _find_whole(text: str) -> str:
    """Return a pattern that matches a text, as whole words if its script has capitals."""
    before = r"(?<!\w)" if has_boundary(text[:1]) else ""
    after = r"(?!\w)" if has_boundary(text[-1:]) else ""
    return f"{before}{re.escape(text)}{after}"


def _is_significant(word: str) -> bool:
    return len(word) >= _SHORTEST_WORD or word[0].isupper() or any(not has_boundary(each) for each in word[:1])


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_longer_form(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_WORD and len(long) - len(short) <= _LONGEST_ENDING and long.startswith(short)
