"""A turn of a guided model: its state when it begins, what the steps have found so far, and words compared as written.

Words are compared letter by letter, the same in every language. The comparison decides whether a turn is over, what
else is worth asking about, and which arguments are marked as said by nobody; it never decides a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias

from toolkit.chat import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    ToolDefinition,
    ToolResult,
    Usage,
    UserMessage,
)
from toolkit.chat.request import callable_tools
from toolkit.errors import ConfigurationError
from toolkit.guided.holding import FoldedSchema, SchemaHolder, fold_schema, read_reply_object
from toolkit.schema.nodes import is_array, is_object

StepVerdict: TypeAlias = Literal["next", "answer"]
"""How a turn continues after a step: with the next step, or with the model's answer."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call that was made for the current request.

    Args:
        name: Its tool.
        arguments: As they were sent; empty if they were no object.
        result: The text of its result.
        is_error: True if that reports a failure.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    is_error: bool


@dataclass(kw_only=True, eq=False)
class GuidedTurn:
    """The state that the steps of one turn share: a step reads it, asks by `ask`, and stores what it found.

    Attributes:
        request: The application's request.
        holder: Asks the model, and holds the reply to a schema.
        tools: The tools that may be called now.
        question: The text of the last user message.
        past_calls: The calls made since then, with their results.
        tool: The chosen tool; None before.
        view: The parameters that the model sees; None before.
        calls: The arguments of each call of it; empty before.
        is_unasked: True if the request itself has nothing that speaks for the calls: all arguments count as unsaid.
        is_cut_off: True if the reply with the arguments was cut off at the limit of tokens.
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
        """True if the request names the tool to call, which vendors take for exactly one call."""
        return self.request.tool_choice not in ("auto", "none", "required")

    @cached_property
    def given_text(self) -> str:
        """The texts of users, results and the application, without those of the model and of failures."""
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
            ConfigurationError: No step before has chosen one.
        """
        if self.tool is None:
            raise ConfigurationError(
                f"{type(asker).__name__} comes before a tool is chosen: put ChooseTool, or a step that sets the turn's "
                "tool, before it in 'steps'"
            )
        return self.tool

    def list_unsaid(self, call: Mapping[str, Any]) -> list[str]:
        """Return the arguments of a call that stand nowhere in the conversation, as paths."""
        values = call if self.view is None else self.view.fold(call)
        return list(values) if self.is_unasked else list_unsaid(values, self.given_text)

    async def ask(
        self, messages: Sequence[Message], schema: Mapping[str, Any], *, max_tokens: int | None = None
    ) -> Mapping[str, Any] | None:
        """Ask the model for an object of a schema, and return it; None if the reply was cut off.

        Raises:
            BadResponseError: The server does not hold the reply to the schema.
            ProviderError: The server failed.
        """
        reply = await self.holder.ask(self.request, messages, schema, max_tokens=max_tokens)
        self.response, self.is_cut_off = reply.response, reply.value is None
        self.usage += reply.response.usage
        return reply.value


class GuidedStep(Protocol):
    """One step of a turn: asks the model a small question, or checks what was found so far."""

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
_NUMBER = re.compile(r"\d+(?:[.,'\u2019 \u00a0\u202f]\d+)*")
# Of texts and of JSON; a URL may have brackets and commas of its own.
_PARTS = (re.compile(r"[^\s\"]+"), re.compile(r"[^\s\"',;(){}\[\]<>=]+"))
_EDGES = ".,;:!?*`'\"(){}[]<>\u201c\u201d\u2018\u2019\u00ab\u00bb"
_SHORTEST_WORD = 4
_LONGEST_ENDING = 2
_LONGEST_CODE = 100
_MOST_CODES = 64
_STRUCK = "\ufffc"


def split_words(text: str) -> list[str]:
    """Return the words of a text, a tool's name or a parameter's name, ignoring case."""
    return [word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the texts, numbers and booleans inside arguments."""
    if is_object(value):
        for member in value.values():
            yield from list_leaves(member)
    elif is_array(value):
        for item in value:
            yield from list_leaves(item)
    elif value is not None and value != "":
        yield value


def strike_out(text: str, values: Iterable[Any], mark: str = "...") -> str:
    """Return a text in which each of the values is replaced by a mark."""
    written = {form for value in values for form in _list_forms(value)}
    for form in sorted(written, key=len, reverse=True):
        text = re.sub(_find_whole(form), mark, text, flags=re.IGNORECASE)
    return text


def list_open_words(question: str, values: Sequence[Any], names: Iterable[str], about: Iterable[str] = ()) -> list[str]:
    """Return the words of a question that neither values nor names account for.

    Each word after the last value counts. Before it, words of fewer than four letters do not, unless they have a digit
    or a capital letter or are of a script without capitals, and neither does the word that the question begins with.

    Args:
        question: The question.
        values: The values of calls.
        names: The words of the names of their tools and parameters.
        about: Words that account for those before the last value, such as those of the tools' descriptions.
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
    """Return True if two groups have a word in common, or one that is the other with up to two letters more."""
    others = set(others)
    return any(one in others or any(_is_longer_form(one, other) for other in others) for one in some)


def has_values_alike(question: str, values: Sequence[Any]) -> bool:
    """Return True if a question has more that is written like one of these values.

    For a value with digits that is a word with digits in the same places, for a value with a capital letter a word with
    one, for another value a comma behind it.
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
    """Return the names of values that stand nowhere in a conversation; of a boolean, its name has to.

    Args:
        values: By name.
        conversation: All that users, results and the application wrote.
    """
    text = " ".join(conversation.casefold().split())
    words, numbers = set(split_words(text)), _list_numbers(text)
    return [
        name
        for name, value in values.items()
        if not all(_is_said(leaf, name, text, words, numbers) for leaf in list_leaves(value))
    ]


def list_codes(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the ids in a text that fit, as they are written or in one case; nothing if there are very many.

    Args:
        text: The text.
        fits: Tells whether a candidate is an id of the kind; called with words that have a digit or an ``@``.
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
    """Return a text with a sign for each run of digits and letters: `A-1042` and `B-7` are `A-9`."""
    letters = re.sub(r"[^\W\d_]+", lambda run: "A" if run[0].isupper() else "a", text)
    return re.sub(r"\d+", "9", letters)


def _is_said(value: Any, name: str, text: str, words: set[str], numbers: set[str]) -> bool:
    if isinstance(value, bool):
        return share_word([word for word in split_words(name) if len(word) >= _SHORTEST_WORD], words)
    if isinstance(value, (int, float)):
        return _write_digits(value) in numbers
    folded = " ".join(str(value).casefold().split()).strip(".")
    return re.search(_find_whole(folded), text) is not None


def _list_numbers(text: str) -> set[str]:
    """Return the digits of the numbers in a text: "1 200" is 1200, 1 and 200."""
    found: set[str] = set()
    for match in _NUMBER.finditer(text):
        parts = ["".join(str(int(digit)) for digit in part) for part in re.findall(r"\d+", match[0])]
        found |= {"".join(parts).lstrip("0"), "".join(parts).strip("0"), *(part.lstrip("0") for part in parts)}
    return {digits or "0" for digits in found}


def _write_digits(value: float) -> str:
    if float(value).is_integer():
        return str(abs(int(value)))
    return "".join(re.findall(r"\d", str(abs(value)))).strip("0")


def _list_forms(value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        return
    if isinstance(value, float) and value.is_integer():
        yield str(int(value))
    text = str(value).strip()
    if text:
        yield text


def _find_whole(text: str) -> str:
    """Return a pattern that finds a text, as whole words where its script has capitals."""
    before = r"(?<!\w)" if _has_boundary(text[:1]) else ""
    after = r"(?!\w)" if _has_boundary(text[-1:]) else ""
    return f"{before}{re.escape(text)}{after}"


def _has_boundary(character: str) -> bool:
    return character.isdigit() or character.lower() != character.upper()


def _is_significant(word: str) -> bool:
    return len(word) >= _SHORTEST_WORD or word[0].isupper() or any(not _has_boundary(each) for each in word[:1])


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_longer_form(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_WORD and len(long) - len(short) <= _LONGEST_ENDING and long.startswith(short)
