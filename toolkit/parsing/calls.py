"""A text that may be incomplete, and the calls in JSON.

JSON is repaired by `toolkit.calls.argument_repair` alone; here it is only split into its members, as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from toolkit.calls.argument_repair import LONGEST_TEXT, repair_arguments
from toolkit.chat import ToolCall, ToolDefinition
from toolkit.schema.arguments import decode_json
from toolkit.schema.nodes import Nodes
from toolkit.suggestions import fold_name
from toolkit.tool_names import nearest_names, repair_name, sort_by_letters

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
_PART = re.compile(r"[^\s,:]")
_MOST_UNKNOWN_NAMES = 8  # in a reply, for which similar names are searched, which takes up to a millisecond

_DEEPEST_BRACKETS = 100
_FLAT = r"""[^\[\]{}()"'/\#<]*+"""
# A whole string is one token, and so are a comment and brackets with plain content, which takes a fraction of the time.
_STRUCTURE_TOKENS = rf"""  (?:"[^"\\]*+(?:\\.[^"\\]*+)*+"{_FLAT})++ | (?:'[^'\\]*+(?:\\.[^'\\]*+)*+'{_FLAT})++
    | (?:(?:\[{_FLAT}\] | \{{{_FLAT}\}} | \({_FLAT}\)){_FLAT})++
    | (?://|\#(?=[\#\s]|\Z))[^\n]*+ | /\*(?:.*?\*/)? | [\[\]{{}}()"']  """
_STRUCTURAL = re.compile(_STRUCTURE_TOKENS, re.VERBOSE | re.DOTALL)
_STRUCTURAL_IN_TAGS = re.compile(f"{_STRUCTURE_TOKENS} | <(?![^/|])", re.VERBOSE | re.DOTALL)
_UNENDED = {'"', "'", "/*"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class MoreTextNeededError(Exception):
    """The available text may be read in several ways, depending on what follows."""


class Source:
    """The text of a reply so far, and a place in it.

    Methods that reach the end of an incomplete text raise `MoreTextNeededError`; reading is then repeated from its
    beginning, once there is more text.

    Attributes:
        text: The available text.
        place: The position of the next character.
        is_ended: True if the text is complete.
    """

    __slots__ = ("is_ended", "place", "text")

    def __init__(self, text: str = "", *, is_ended: bool = False) -> None:
        self.text: str = text
        self.place: int = 0
        self.is_ended: bool = is_ended

    def require_end(self) -> None:
        """Raise `MoreTextNeededError` unless the text is complete."""
        if not self.is_ended:
            raise MoreTextNeededError

    def peek(self, count: int = 1) -> str:
        """Return the next characters, fewer at the end of the text."""
        found = self.text[self.place : self.place + count]
        if len(found) < count:
            self.require_end()
        return found

    def spaces(self, characters: str = SPACES) -> str:
        """Go past white space, or other `characters`, and return the next character; empty at the end."""
        while self.place < len(self.text):
            if self.text[self.place] not in characters:
                return self.text[self.place]
            self.place += 1
        self.require_end()
        return ""

    def accepts(self, literal: str, *, any_case: bool = False) -> bool:
        """Go past `literal` if it is here."""
        there = self.text[self.place : self.place + len(literal)]
        wanted = literal[: len(there)]
        if there != wanted and not (any_case and there.casefold() == wanted.casefold()):
            return False
        if len(there) < len(literal):
            self.require_end()
            return False
        self.place += len(literal)
        return True

    def accepts_any(self, literals: Iterable[str], *, any_case: bool = False) -> str:
        """Go past the first of these literals that is here, and return it; empty if none is."""
        character = self.peek().casefold()
        for literal in literals:
            if literal[:1].casefold() == character and self.accepts(literal, any_case=any_case):
                return literal
        return ""

    def word(self, pattern: re.Pattern[str]) -> str:
        """Go past the characters that a pattern matches, which may be none, and return them."""
        match = pattern.match(self.text, self.place)
        assert match is not None
        if match.end() == len(self.text):
            self.require_end()
        self.place = match.end()
        return match[0]

    def rest(self) -> None:
        """Go to the end."""
        self.require_end()
        self.place = len(self.text)

    def past(self, literal: str) -> bool:
        """Go past the next `literal`, or to the end; return whether there was one."""
        found = self.text.find(literal, self.place)
        if found < 0:
            self.rest()
            return False
        self.place = found + len(literal)
        return True

    def value(self, stop: str = "") -> str:
        """Go past the list, object or argument list at this place, and return it; empty if it has no end.

        It has no end if brackets don't match, are more than 100 deep, or are open at `stop` (which begins with ``<``)
        or at the end of the text; the place is there then. Brackets in strings and comments are ignored.
        """
        start, awaited = self.place, [_CLOSING[self.text[self.place]]]
        for token in (_STRUCTURAL_IN_TAGS if stop else _STRUCTURAL).finditer(self.text, start + 1):
            piece = token[0]
            self.place = token.start()
            if piece[0] in _CLOSING:
                if len(awaited) == _DEEPEST_BRACKETS:
                    return ""
                if len(piece) == 1:
                    awaited.append(_CLOSING[piece])
            elif piece in "]})":
                if awaited.pop() != piece:
                    return ""
                if not awaited:
                    self.place += 1
                    return self.text[start : self.place]
            elif piece in _UNENDED:
                break
            elif piece == "<" and self.text.startswith(stop, self.place):
                return ""
        self.rest()
        return ""


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

    def takes_no_arguments(self, name: str) -> bool:
        """Return whether this is a tool without named parameters, though it may accept any."""
        definition = self._find_tool(name)
        return definition is not None and not any(definition.parameters.get(keyword) for keyword in _PARAMETER_KEYWORDS)

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
    parts = list(_split_parts(json_object))
    return {json.loads(key): value for key, value in zip(parts[::2], parts[1::2], strict=True)}


def _split_parts(json_text: str) -> Iterator[str]:
    """Yield the items of a JSON list, or the keys and values of an object, each as it was written."""
    position = 1
    while (found := _PART.search(json_text, position)) is not None and found.start() < len(json_text) - 1:
        _, position = _RAW_DECODER.raw_decode(json_text, found.start())
        yield json_text[found.start() : position]


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
        items = list(_split_parts(read))
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
    name_key, arguments_key = _find_keys(members)
    name: Any = json.loads(members[name_key])
    if not isinstance(name, str) or not name.strip():
        raise UnclearCallError(f'"{name_key}" must be the name of a tool.')
    if not is_marked and name not in tools:
        unknown = UnknownToolError if arguments_key == "arguments" else UnclearCallError
        raise unknown(tools.explain_unknown(name))
    if arguments_key is None:
        if not is_marked and name_key not in _SPECIFIC_NAMES:
            raise UnclearCallError('"arguments" are missing.')
        return ToolCall("", name.strip(), "{}")
    arguments = _unpack_arguments(members[arguments_key], arguments_key)
    if tools.is_echo(name, arguments):
        raise UnclearCallError(f'"{arguments_key}" must be values, not their description.')
    return ToolCall("", name.strip(), arguments)


def _find_keys(members: dict[str, str]) -> tuple[str, str | None]:
    """Return the keys of a call's name and of its arguments, which may be missing."""
    named = [key for key in NAMES if key in members]
    given = [key for key in ARGUMENTS if key in members]
    if len(named) != 1 or len(given) > 1 or members.keys() - _BESIDE - {*named, *given}:
        listed = ", ".join([f'"{key[:64]}"' for key in sorted(members)[:10]])
        wrong = f" It has {listed}." if members else ""
        raise UnclearCallError(f'A call has the tool\'s "name" and its "arguments", nothing else.{wrong}')
    return named[0], given[0] if given else None


def _unpack_arguments(read: str, key: str) -> str:
    if read.startswith('"'):
        # Encoded again: the tool parses the text inside.
        read = repair_arguments(json.loads(read)) or ""
    elif read == "null":
        read = "{}"
    if not read.startswith("{"):
        raise UnclearCallError(f'"{key}" must be a JSON object with an entry for each argument.')
    return read
