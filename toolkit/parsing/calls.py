"""A text that arrives in pieces, and the calls in JSON.

The text is read by generators that yield while they need more of it. Their outcome depends only on the text, not on its
pieces, and each character is read a bounded number of times.

JSON is repaired by `toolkit.calls.argument_repair` alone; here it is only split into its members, as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from toolkit.calls.argument_repair import LONGEST_TEXT, repair_arguments
from toolkit.chat import ToolCall, ToolDefinition
from toolkit.schema.arguments import decode_json
from toolkit.schema.nodes import Nodes
from toolkit.suggestions import fold_name
from toolkit.tool_names import nearest_names, repair_name, sort_by_letters

T = TypeVar("T")
SPACES = " \t\r\n\ufeff\u00a0"
"""The white space around calls."""

NAMES = ("name", "tool_name", "tool", "function", "function_name", "action")
ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "action_input", "tool_input")
_BESIDE = frozenset({"id", "type", "call_id", "tool_call_id", "index", "thought", "thoughts", "reasoning"})
_LIST_WRAPPERS = ("tool_calls", "calls")
_NESTED = ("function", "tool_call", "function_call")
CALL_KEYS = frozenset({*NAMES, *ARGUMENTS, *_BESIDE, *_LIST_WRAPPERS, *_NESTED})
# The keywords of schemas with parameters.
_PARAMETER_KEYWORDS = (
    *("properties", "required", "patternProperties", "allOf", "anyOf", "oneOf"),
    *("$ref", "$dynamicRef", "if", "then", "else"),
)
_SPECIFIC_NAMES = frozenset({"tool_name", "function_name"})
MOST_CALLS = 1_000
_RAW_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[\s,:]*")
_MOST_UNKNOWN_NAMES = 8  # in a reply, for which similar names are searched, which takes up to a millisecond

Waiting: TypeAlias = Generator[None, None, T]
"""Returns a `T`, and yields whenever it needs more text."""

_DEEPEST_BRACKETS = 100
_FLAT = r"""[^\[\]{}()"'/\#<]*+"""
# A whole string is one token, and so are brackets with plain content, which takes a fraction of the time.
_STRUCTURE_TOKENS = rf"""  (?:"[^"\\]*+(?:\\.[^"\\]*+)*+"{_FLAT})++ | (?:'[^'\\]*+(?:\\.[^'\\]*+)*+'{_FLAT})++
    | (?:(?:\[{_FLAT}\] | \{{{_FLAT}\}} | \({_FLAT}\)){_FLAT})++
    | [\[\]{{}}()"'] | /(?![^/*]) | \#(?![^\#\s])  """
_STRUCTURAL = re.compile(_STRUCTURE_TOKENS, re.VERBOSE | re.DOTALL)
_STRUCTURAL_IN_TAGS = re.compile(f"{_STRUCTURE_TOKENS} | <(?![^/|])", re.VERBOSE | re.DOTALL)
_STRINGS = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'"}
_LINE_END = re.compile("\n")
_HASHES = {"#", "##", "# ", "#\t", "#\n", "#\r"}  # that begin a comment
_FOUND = {"end", "broken"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class Source:
    """The text so far, with a place in it, and an earlier mark as of which the text is stored.

    Attributes:
        is_ended: True if the text is complete.
    """

    __slots__ = ("_before_kept", "_kept", "_kept_length", "_mark", "_position", "_text", "is_ended")

    def __init__(self) -> None:
        self.is_ended: bool = False
        self._text = ""
        self._position: int = 0
        self._mark: int = 0
        self._kept: list[str] = []  # the text between the mark and the place, from earlier pieces
        self._before_kept = ""  # the character before that
        self._kept_length = 0

    def feed(self, text: str) -> None:
        """Append text."""
        # Only the text after the place is copied, so that a long call in small pieces takes linear time.
        if self._mark < self._position:
            if not self._kept:
                self._before_kept = self._text[max(0, self._mark - 1) : self._mark]
            self._kept.append(self._text[self._mark : self._position])
            self._kept_length += self._position - self._mark
        # Patterns may look at the character before the place.
        before = self._text[max(0, self._position - 1) : self._position]
        self._text = before + self._text[self._position :] + text
        self._position = self._mark = len(before)

    @property
    def length(self) -> int:
        """The distance of the place from the mark."""
        return self._kept_length + self._position - self._mark

    def piece(self, start: int = 0) -> str:
        """Return the text up to the place, as of an offset from the mark."""
        return ("".join(self._kept) + self._text[self._mark : self._position])[start:]

    def take(self) -> str:
        """Return the text from the mark to the place, and set the mark to the place."""
        piece = self.piece()
        self._drop_kept()
        self._mark = self._position
        return piece

    def back(self, start: int = 0) -> None:
        """Go back to an offset from the mark."""
        if self._kept:
            self._text = self._before_kept + "".join(self._kept) + self._text[self._mark :]
            self._drop_kept()
            self._mark = len(self._before_kept)
        self._position = self._mark + start

    def _drop_kept(self) -> None:
        self._kept.clear()
        self._kept_length = 0

    def skip(self, count: int) -> None:
        """Go forward by available characters."""
        self._position += count

    def peek(self, count: int) -> Waiting[str]:
        """Return the next characters, fewer at the end of the text."""
        while len(self._text) - self._position < count and not self.is_ended:
            yield
        return self._text[self._position : self._position + count]

    def until(self, pattern: re.Pattern[str]) -> bool:
        """Go to the next match of a pattern, or to the end of the available text; return whether it matched."""
        match = pattern.search(self._text, self._position)
        self._position = len(self._text) if match is None else match.start()
        return match is not None

    def spaces(self, characters: str = SPACES) -> Waiting[str]:
        """Go past white space, or other `characters`, and return the next character; empty at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in characters:
                    return self._text[self._position]
                self._position += 1
            if self.is_ended:
                return ""
            yield

    def accepts(self, literal: str, *, any_case: bool = False) -> Waiting[bool]:
        """Go past `literal` if it is here; waits only while it may be."""
        while True:
            there = self._text[self._position : self._position + len(literal)]
            wanted = literal[: len(there)]
            if there != wanted and not (any_case and there.casefold() == wanted.casefold()):
                return False
            if len(there) == len(literal):
                self._position += len(literal)
                return True
            if self.is_ended:
                return False
            yield

    def word(self, pattern: re.Pattern[str], longest: int) -> Waiting[str]:
        """Go past the characters that a pattern of one character matches, and return them; at most `longest`."""
        characters: list[str] = []
        while len(characters) < longest:
            character = yield from self.peek(1)
            if not pattern.match(character):
                break
            characters.append(character)
            self._position += 1
        return "".join(characters)

    def rest(self) -> Waiting[None]:
        """Go to the end."""
        while not self.is_ended:
            self._position = len(self._text)
            yield
        self._position = len(self._text)

    def past(self, literal: str) -> Waiting[bool]:
        """Go past the next `literal`, or to the end; return whether there was one."""
        while True:
            found = self._text.find(literal, self._position)
            if found >= 0:
                self._position = found + len(literal)
                return True
            if self.is_ended:
                self._position = len(self._text)
                return False
            possible = next((n for n in range(len(literal) - 1, 0, -1) if self._text.endswith(literal[:n])), 0)
            self._position = max(self._position, len(self._text) - possible)
            yield

    def value(self, stop: str = "") -> Waiting[bool]:
        """Go past the list, object or argument list at this place; return False if it has no end.

        It has no end if brackets don't match, are more than 100 deep, or are open at `stop` (which begins with ``<``)
        or at the end of the text; the place is there then. Brackets in strings and comments are ignored.
        """
        tokens = _STRUCTURAL_IN_TAGS if stop else _STRUCTURAL
        awaited = [_CLOSING[self._text[self._position]]]
        self._position += 1
        while True:
            found = self._pass_brackets(awaited, tokens)
            if found in _FOUND:
                return found == "end"
            if not found:
                if self.is_ended:
                    return False
                yield
            elif not (yield from self._pass_special(found, stop)):
                return False

    def _pass_brackets(self, awaited: list[str], tokens: re.Pattern[str]) -> str:
        """Go past brackets in the available text; return ``end``, ``broken`` or the next special character."""
        for token in tokens.finditer(self._text, self._position):
            text = token[0]
            opening = text[0] in _CLOSING
            if len(text) > 1 and (not opening or len(awaited) < _DEEPEST_BRACKETS):
                continue
            self._position = token.end()
            if opening:
                if len(awaited) == _DEEPEST_BRACKETS:
                    self._position = token.start()
                    return "broken"
                awaited.append(_CLOSING[text])
            elif text not in "]})":
                self._position = token.start()
                return text
            elif awaited.pop() != text:
                self._position = token.start()
                return "broken"
            elif not awaited:
                return "end"
        self._position = len(self._text)
        return ""

    def _pass_special(self, character: str, stop: str) -> Waiting[bool]:
        if character in "\"'":
            self._position += 1
            return (yield from self._pass_string(character))
        if character == "<":
            if stop and (yield from self.peek(len(stop))) == stop:
                return False
            self._position += 1
            return True
        opening = yield from self.peek(2)
        if opening == "/*":
            self._position += 2
            yield from self.past("*/")
        elif opening == "//" or opening in _HASHES:
            while not self.until(_LINE_END) and not self.is_ended:
                yield
        else:
            self._position += 1
        return True

    def _pass_string(self, quote: str) -> Waiting[bool]:
        while True:
            match = _STRINGS[quote].match(self._text, self._position)
            self._position = self._position if match is None else match.end()
            if self._text.startswith(quote, self._position):
                self._position += 1
                return True
            if self.is_ended:
                self._position = len(self._text)
                return False
            yield


class UnclearCallError(Exception):
    """A call can't be read; the message is for the model."""


class UnknownToolError(UnclearCallError):
    """A complete call of an unknown tool."""


class KnownTools:
    """The tools that may be called.

    Args:
        definitions: The definitions that the model has.
    """

    def __init__(self, definitions: Iterable[ToolDefinition]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}
        self._plain_names = tuple(map(fold_name, self._definitions))
        self._by_letters: Mapping[str, Sequence[str]] | None = None
        self._near: dict[str, tuple[str, ...]] = {}  # by the unknown name

    def __contains__(self, name: object) -> bool:
        """Return whether a name is that of a tool, after a repair."""
        return isinstance(name, str) and self._repair_name(name) is not None

    def _repair_name(self, name: str) -> str | None:
        if self._by_letters is None and name not in self._definitions:
            self._by_letters = sort_by_letters(self._definitions)
        return repair_name(name, self._definitions, by_letters=self._by_letters)

    def has_prefix(self, text: str) -> bool:
        """Return whether the name of a tool begins with a text, ignoring case and separators."""
        beginning = fold_name(text)
        return any(name.startswith(beginning) for name in self._plain_names)

    def _find_tool(self, name: str) -> ToolDefinition | None:
        return self._definitions.get(self._repair_name(name) or "")

    def may_take_no_arguments(self, name: str) -> bool:
        """Return whether this is a tool without named parameters, though it may accept any."""
        definition = self._find_tool(name)
        return definition is not None and not any(definition.parameters.get(keyword) for keyword in _PARAMETER_KEYWORDS)

    def takes_no_arguments(self, name: str) -> bool:
        """Return whether this is surely a tool without parameters."""
        definition = self._find_tool(name)
        is_closed = definition is not None and definition.parameters.get("additionalProperties") is False
        return is_closed and self.may_take_no_arguments(name)

    def is_echo(self, name: str, arguments: str) -> bool:
        """Return whether arguments repeat the schema of a tool's parameters, in place of values."""
        if '"properties"' not in arguments:
            return False
        definition = self._find_tool(name)
        members = split_object(arguments)
        return (
            members.get("type") == '"object"'
            and members.get("properties", "").startswith("{")
            and (definition is None or "properties" not in definition.parameters.get("properties", {}))
        )

    def explain_unknown(self, name: str) -> str:
        """Return the message for the model about an unknown name."""
        near = self._near.get(name, ())
        if not near and len(self._near) < _MOST_UNKNOWN_NAMES:
            near = self._near[name] = nearest_names(name, self._definitions) or tuple(self._definitions)[:20]
        return f"There is no tool '{name[:64]}'. Tools: {', '.join(near) or 'none'}."

    def value(self, name: str, parameter: str, text: str) -> str:
        """Return the JSON of an unquoted argument: a string if the tool accepts one, else JSON if it is JSON."""
        definition = self._find_tool(name)
        read = None
        if definition is not None:
            nodes = Nodes(definition.parameters)
            is_text = "string" in nodes.types(nodes.at_key(definition.parameters, parameter))
            read = None if is_text else read_json(text)
        return json.dumps(text) if read is None else read


def check_count(calls: list[ToolCall]) -> None:
    """Raise if there are more calls than a reply may have, which would take long to read.

    Raises:
        UnclearCallError: There are.
    """
    if len(calls) > MOST_CALLS:
        raise UnclearCallError(f"A reply may have {MOST_CALLS} calls, and this has more.")


def explain_unreadable(text: str) -> str:
    """Return why a JSON text was refused, for the model."""
    if len(text) > LONGEST_TEXT:
        return f"The call is too long: {len(text)} characters, and {LONGEST_TEXT} are read."
    return "The call is not valid JSON."


def read_json(text: str) -> str | None:
    """Return a value as strict JSON, or None if it can't be repaired."""
    if len(text) > LONGEST_TEXT:
        return None
    try:
        text.encode()
        decode_json(text)
    except (ValueError, RecursionError):
        return _repair_value(text)
    return text.strip()


def _repair_value(text: str) -> str | None:
    wrapped = repair_arguments('{"value": ' + text + "}")
    members = {} if wrapped is None else split_object(wrapped)
    return members["value"] if members.keys() == {"value"} else None


def split_object(json_object: str) -> dict[str, str]:
    """Return the members of a JSON object, each as it was written."""
    return dict(_split_members(json_object))


def _split_members(json_object: str) -> Iterator[tuple[str, str]]:
    position = _skip_blank(json_object, 1)
    while json_object[position] != "}":
        key, position = _RAW_DECODER.raw_decode(json_object, position)
        start = _skip_blank(json_object, position)
        _, position = _RAW_DECODER.raw_decode(json_object, start)
        yield key, json_object[start:position]
        position = _skip_blank(json_object, position)


def _split_items(json_array: str) -> Iterator[str]:
    position = _skip_blank(json_array, 1)
    while json_array[position] != "]":
        start = position
        _, position = _RAW_DECODER.raw_decode(json_array, start)
        yield json_array[start:position]
        position = _skip_blank(json_array, position)


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()


def read_calls(text: str, tools: KnownTools, *, is_marked: bool) -> list[ToolCall]:
    """Return the calls in a JSON object or list, with empty ids, and no more than one above the limit.

    Args:
        text: The object or list, as it was written.
        tools: The tools that may be called.
        is_marked: True if a mark announced calls. Otherwise it must contain calls of known tools, and nothing else.

    Raises:
        UnclearCallError: It is no call, or can't be read.
    """
    read = read_json(text)
    if read is None:
        raise UnclearCallError(explain_unreadable(text))
    return list(islice(_read_calls(read, tools, is_marked=is_marked), MOST_CALLS + 1))


def _read_calls(read: str, tools: KnownTools, *, is_marked: bool) -> Iterator[ToolCall]:
    if read.startswith("["):
        items = list(_split_items(read))
        if not items:
            raise UnclearCallError("The list of calls is empty.")
        for item in items:
            yield from _read_calls(item, tools, is_marked=is_marked)
        return
    if not read.startswith("{"):
        raise UnclearCallError('A call is an object such as {"name": ..., "arguments": {...}}.')
    members = split_object(read)
    for key in _LIST_WRAPPERS:
        if members.keys() == {key} and members[key].startswith("["):
            yield from _read_calls(members[key], tools, is_marked=is_marked)
            return
    for key in _NESTED:
        if members.keys() - _BESIDE == {key} and members[key].startswith("{"):
            members = split_object(members[key])
            break
    yield _read_call(members, tools, is_marked=is_marked)


def _read_call(members: dict[str, str], tools: KnownTools, *, is_marked: bool) -> ToolCall:
    named = [key for key in NAMES if key in members]
    given = [key for key in ARGUMENTS if key in members]
    others = members.keys() - _BESIDE - {*named, *given}
    if len(named) != 1 or len(given) > 1 or others:
        listed = ", ".join([f'"{key[:64]}"' for key in sorted(members)[:10]])
        wrong = f" It has {listed}." if members else ""
        raise UnclearCallError(f'A call has the tool\'s "name" and its "arguments", nothing else.{wrong}')
    name: Any = json.loads(members[named[0]])
    if not isinstance(name, str) or not name.strip():
        raise UnclearCallError(f'"{named[0]}" must be the name of a tool.')
    if not is_marked:
        if name not in tools:
            unknown = UnknownToolError if given == ["arguments"] else UnclearCallError
            raise unknown(tools.explain_unknown(name))
        if not given and named[0] not in _SPECIFIC_NAMES:
            raise UnclearCallError('"arguments" are missing.')
    arguments = _unpack_arguments(members[given[0]] if given else "{}", given)
    if tools.is_echo(name, arguments):
        raise UnclearCallError(f'"{given[0]}" must be values, not their description.')
    return ToolCall("", name.strip(), arguments)


def _unpack_arguments(read: str, given: list[str]) -> str:
    if read.startswith('"'):
        # Encoded again: the tool parses the text inside.
        read = repair_arguments(json.loads(read)) or ""
    elif read == "null":
        read = "{}"
    if not read.startswith("{"):
        raise UnclearCallError(f'"{given[0]}" must be a JSON object with an entry for each argument.')
    return read
