"""The forms in which models write calls: marks around JSON, marks around named parts, and special ones.

A form reads the text at a place; `ReplyReader` decides by the place whether it is a call. The table of formats is in
`wording`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from string import ascii_lowercase
from typing import Any, Literal, TypeAlias

from toolkit.calls.argument_repair import repair_arguments
from toolkit.chat import ToolCall
from toolkit.dataclass import dataclass
from toolkit.parsing.calls import (
    ARGUMENTS,
    CALL_KEYS,
    NAMES,
    SPACES,
    KnownTools,
    Source,
    UnclearCallError,
    UnknownToolError,
    check_count,
    explain_unreadable,
    read_calls,
    read_json,
)
from toolkit.schema.nodes import is_object

TextFormat: TypeAlias = Literal[
    "auto", "hermes", "react", "llama", "mistral", "qwen", "pythonic", "json", "fenced", "crew",
    "glm", "deepseek", "kimi", "harmony", "minimax", "phi", "anthropic",
]  # fmt: skip
"""The format of calls. For `read_reply`, ``auto`` is the format of the first call."""

TURN_ENDS = (
    "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|user|>", "<|observation|>", "[INST]", "<\uff5cUser\uff5c>",
    "<|system|>", "<|im_start|>user", "<|im_start|>system", "<|im_start|>tool", "<start_of_turn>user", "<|start|>user",
)  # fmt: skip
"""The tokens that end a turn or begin another one in chat templates, in any format."""

RESULT_MARKS = (
    "<tool_response>", "[TOOL_RESULTS]", "Observation:", "Observation ", "<function_results>", "<tool_result>",
    "<\uff5ctool\u2581outputs\u2581begin\uff5c>",
)  # fmt: skip
"""The beginnings of results in any format; results in a reply are made up by the model."""

_NAME = re.compile(r"[\w.-]{0,64}+")
_LONGEST_NAME = 64
_LONGEST_HEAD = 400
_IS_STRING = re.compile(r"""\bstring\s*=\s*["'](true|false)["']""")
_LINE = re.compile(r"[^\r\n]{0,2000}+")
_OBJECT_STARTS = {"{", "`", "~"}
_TICKS = re.compile(r"[`~]{0,10}+")
_FENCE_OPENING = re.compile(r"[`~]{0,10}+\w{0,20}+")
_CALLED = re.compile(r"(?:\(.*|\s+Action Input.*)", re.IGNORECASE)
_NO_NAMES = {"", "none", "n/a", "null", "no action", "final answer", "finish"}
_OBJECT = r"""\{\s*+(?:\Z|["']|\w{1,20}+(?:\Z|\s*+(?:\Z|:)))"""
# The head of an object that may be a call: its first key and a colon.
_CALL_HEAD = re.compile(rf"""\[?[{SPACES}]*+\{{?[{SPACES}]*+["']?\w{{0,30}}+["']?[{SPACES}]*+:?""")
_CALL_KEY = re.compile(rf"""[\[{{{SPACES}]*\{{[{SPACES}]*(["']?)(?:{"|".join(sorted(CALL_KEYS))})\1[{SPACES}]*:""")
_KEY_PATTERN = r"""["']?(?:{})["']?\s*:\s*"""
_NAMED_CALL = re.compile(
    _KEY_PATTERN.format("|".join(NAMES))
    + r"""(?:\{\s*["']?name["']?\s*:\s*)?(?P<quote>["'])(?P<name>[^"'\n]{1,100})(?P=quote)"""
    + rf"""(?P<arguments>\s*,\s*{_KEY_PATTERN.format("|".join(ARGUMENTS))})?"""
)
_CALL_LANGUAGES = {"tool", "tool_call", "tool_calls", "tool_code", "function"}
_KEYWORD = re.compile(r"(?:\s|\#[^\n]*\n)*+(\w+)\s*=(?!=)")
_LITERAL_TOKEN = re.compile(
    r""""[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' | \#[^\n]*+ | [\[\]{}()"'/,]""",
    re.VERBOSE | re.DOTALL,
)
_REST_KEY = re.compile(r"""["'][\w-]+["']\s*:""")
_CUT_OFF = "The call is cut off, or its brackets don't match."


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place at which a form is read.

    Args:
        begins_reply: True if only white space is before it.
        fence: The marks that end the enclosing fence; empty if there is none.
        language: The language of the fence.
    """

    begins_reply: bool = False
    fence: str = ""
    language: str = ""


class Form(ABC):
    """One way to write calls.

    Attributes:
        opening: A pattern of the beginning of a call, also of an incomplete one at the end of the text.
        characters: The possible first characters of a call, in lower case.
        is_marked: False if a call is recognized by its content alone.
        is_inline: True for tokens that models write directly after a sentence.
        begins_line: True if a call must begin its line, without indentation.
        marks: The marks around a call, which are not text when they follow it.
    """

    opening: str
    characters: str = "<"
    is_marked: bool = True
    is_inline: bool = False
    begins_line: bool = False
    marks: tuple[str, ...] = ()

    @abstractmethod
    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return the calls at this place, with empty ids; None for other text.

        Raises:
            UnclearCallError: A call can't be read; the place is at its end then.
        """


def beginnings_of(literal: str, *, then: str = "") -> str:
    """Return a pattern of a literal followed by `then`, also of an incomplete one at the end of the text."""
    pattern = then
    for character in reversed(literal):
        pattern = re.escape(character) + (rf"(?:\Z|{pattern})" if pattern else "")
    return pattern


@dataclass(kw_only=True, eq=False)
class JsonMarksForm(Form):
    """Objects with names and arguments, or lists of them, after a mark, such as ``<tool_call>{...}</tool_call>``.

    Args:
        pairs: The marks that open and close; the latter is empty if nothing closes.
        named: The marks between a name and its arguments, in place of an object with both; the empty string stands for
            the object of the arguments itself.
        is_closed: True if the closing mark is required, except for the last one of a reply.
        is_inline: See `Form`.
        takes_python: True if ``name.call(key=value)`` is accepted.
        is_word: True for an opening that is a whole word.
    """

    pairs: tuple[tuple[str, str], ...]
    named: tuple[str, ...] = ()
    is_closed: bool = True
    is_inline: bool = False
    takes_python: bool = False
    is_word: bool = False

    def __post_init__(self) -> None:
        before = r"(?<![\w.])" if self.is_word else ""
        self.opening = "|".join([before + beginnings_of(mark) for mark, _ in self.pairs])
        self.characters = "".join({mark[0].casefold() for mark, _ in self.pairs})
        self.marks = tuple(dict.fromkeys([mark for pair in self.pairs for mark in pair if mark]))

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return the calls after one mark."""
        del spot
        start = source.place
        opening, closing = next((pair for pair in self.pairs if source.accepts(pair[0])), ("", ""))
        if not opening:
            return None
        if opening.endswith("["):
            source.place -= 1  # the bracket belongs to the list
        character = source.spaces()
        if self.is_closed and character == "`":
            source.word(_FENCE_OPENING)
            character = source.spaces()
        if self.is_closed and opening != _TOOL_CALL[0] and character not in {"{", "["}:
            return None
        if character == "<" and source.peek(len(_FUNCTION)) == _FUNCTION:
            return None
        try:
            calls = self._read_objects(source, tools, opening, closing)
            if not calls and not self.is_closed:
                calls = [self._read_named(source, opening)]
                source.spaces()
            self._check_closing(source, calls, opening, closing)
        except UnclearCallError:
            if not self.is_closed:
                source.rest()
            elif not source.text.endswith(closing, start, source.place):
                source.past(closing)
            raise
        return calls

    def _read_objects(self, source: Source, tools: KnownTools, opening: str, closing: str) -> list[ToolCall]:
        calls: list[ToolCall] = []
        character = source.spaces()
        while character in {"{", "["} and (opening[0] != "[" or source.peek(len(opening)) != opening):
            value = source.value(stop=closing if closing.startswith("<") else "")
            if not value:
                ended = not self.is_closed or not source.past(closing)
                raise UnclearCallError("The call is cut off." if ended else "The brackets of the call don't match.")
            calls += read_calls(value, tools, is_marked=True)
            check_count(calls)
            there = source.place
            character = source.spaces(" \t\r\n,;`~" if self.is_closed else " \t\r\n,;")
            if not self.is_closed and character != "{":
                source.place = there
                break
        return calls

    def _read_named(self, source: Source, opening: str) -> ToolCall:
        name = source.word(_NAME)
        if self.takes_python and name.removesuffix(".call") and source.peek(1) == "(":
            return _read_python_call(source, name.removesuffix(".call"))
        if self.named and name:
            if source.accepts("[CALL_ID]"):
                source.word(_NAME)
            source.accepts_any(self.named)
            if source.spaces() == "{":
                return ToolCall("", name, _read_object(source))
        ways = "NAME[ARGS]{...}" if self.named else '{"name": ..., "parameters": {...}}'
        raise UnclearCallError(f"After {opening} there must be a call: {ways}.")

    def _check_closing(self, source: Source, calls: list[ToolCall], opening: str, closing: str) -> None:
        if not self.is_closed:
            there = source.place
            source.spaces()
            if closing and source.accepts(closing):
                return
            source.place = there
            _check_end(source)
            return
        character = source.peek(1)
        if not calls or (character and not source.accepts(closing) and source.peek(len(opening)) != opening):
            raise UnclearCallError(f"Between {opening} and {closing} there must be one JSON object.")


def decode_members(arguments: str) -> Mapping[str, Any] | None:
    """Return the members of a JSON object; None for any other text."""
    try:
        members: object = json.loads(arguments)
    except ValueError:
        return None
    return members if is_object(members) else None


@dataclass(kw_only=True, eq=False)
class PartsForm(Form):
    """A name, then its arguments as JSON or each between its own marks: ``<function=name><parameter=key>...``.

    Args:
        begins: The marks that may begin a call; it is written with the first.
        head: A pattern of one piece of its head, the text up to its arguments.
        head_ends: The marks that may end its head; empty if white space or another mark does.
        end: The mark at its end.
        name: A pattern of the head, with the group `name`.
        key: The mark before a parameter; empty if the arguments are an object.
        key_end: The mark after the name of a parameter.
        value: The mark before its value.
        value_end: The mark after its value.
        wrappers: Pairs of marks that may enclose several calls.
        takes_object: True if the arguments may be an object, in a fence or not.
        must_close: True if an opened wrapper must be closed.
        must_begin: True if the opening is shared with other forms: without a name, or a parameter, it is none of this.
        may_lack_end: True if the mark at the end is a token at which servers stop.
        strips: True if a value may be on lines of its own.
        written_name: The text between a mark and its end, for a name ``{}``.
        writes_lines: True if a value is written on lines of its own.
        is_inline: See `Form`.
    """

    begins: tuple[str, ...]
    head: str = r"[^<>{]"
    head_ends: tuple[str, ...]
    end: str
    name: str = r"""[\s"']*(?P<name>.*?)[\s"']*"""
    key: str = ""
    key_end: str = ">"
    value: str = ""
    value_end: str = ""
    wrappers: tuple[tuple[str, str], ...] = ()
    takes_object: bool = False
    must_close: bool = True
    must_begin: bool = False
    may_lack_end: bool = False
    strips: bool = True
    written_name: str = "{}"
    writes_lines: bool = False
    is_inline: bool = False

    def __post_init__(self) -> None:
        self.opening = "|".join([*map(beginnings_of, self.begins), *[beginnings_of(mark) for mark, _ in self.wrappers]])
        self.marks = tuple([mark for pair in self.wrappers for mark in pair])
        if self.may_lack_end:
            self.marks += (self.end,)

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return one call, or all calls of a wrapper."""
        del spot
        wrapper_end = self._read_wrapper(source)
        if not source.accepts_any(self.begins):
            if not wrapper_end or not self.must_close:
                return None
            source.past(wrapper_end)
            raise UnclearCallError(f"Before {wrapper_end} there must be calls: {self.begins[0]} ...")
        try:
            return self._read_wrapped(source, tools, wrapper_end)
        except UnclearCallError:
            source.past(wrapper_end if wrapper_end and self.must_close else self.end)
            raise

    def write(self, name: str, arguments: str) -> str:
        """Return a call as its models write it; arguments that are no object are written as they are."""
        head = self.begins[0] + self.written_name.format(name) + "".join(self.head_ends[:1])
        members = decode_members(arguments) if self.key else None
        if members is None:
            return f"{head}{arguments}{self.end}"
        edge, value_mark = "\n" if self.writes_lines else "", f"\n{self.value}" if self.value else ""
        written: list[str] = []
        for key, value in members.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            mark = f"{self.key}{self.written_name.format(key)}{self.key_end}{value_mark}"
            written.append(f"{mark}{edge}{text}{edge}{self.value_end}\n")
        return f"{head}\n{''.join(written)}{self.end}"

    def _read_wrapper(self, source: Source) -> str:
        for mark, end in self.wrappers:
            if source.accepts(mark):
                source.spaces()
                return end
        return ""

    def _read_wrapped(self, source: Source, tools: KnownTools, wrapper_end: str) -> list[ToolCall] | None:
        calls: list[ToolCall] = []
        while True:
            call = self._read_call(source, tools)
            if call is None:
                return None
            calls.append(call)
            check_count(calls)
            if not wrapper_end:
                return calls
            there = source.place
            source.spaces()
            if source.accepts(wrapper_end):
                return calls
            if not source.accepts_any(self.begins):
                ended = source.peek() == "" or any(source.peek(len(mark)) == mark for mark, _ in self.wrappers)
                if self.must_close or not ended:
                    raise UnclearCallError(f"After {self.end} only {wrapper_end} or another call may come.")
                source.place = there
                return calls

    def _read_call(self, source: Source, tools: KnownTools) -> ToolCall | None:
        name = self._read_name(source)
        if not name:
            if self.must_begin:
                return None
            raise UnclearCallError(f"A call is not complete: write {self.begins[0]}NAME{self.head_ends[0]}.")
        arguments = self._read_arguments(source, tools, name)
        if arguments is None:
            return None
        is_over = source.spaces() == "" and self.may_lack_end
        if not is_over and not source.accepts(self.end):
            raise UnclearCallError(f"A call ends with {self.end}, directly after its arguments.")
        return ToolCall("", name, arguments)

    def _read_name(self, source: Source) -> str:
        name, _ = self._read_head(source, self.head_ends)
        if name == "function" and not self.key and source.spaces() not in _OBJECT_STARTS:
            return source.word(_NAME)  # after DeepSeek's type of a call
        return name

    def _read_arguments(self, source: Source, tools: KnownTools, name: str) -> str | None:
        if self.takes_object and source.spaces() in _OBJECT_STARTS:
            return _read_fenced_object(source)
        if not self.key:
            raise UnclearCallError("The arguments of a call must be a JSON object.")
        source.spaces()
        if self.must_begin and source.peek(len(self.key)) != self.key:
            return "{}" if name in tools and source.peek(len(self.end)) == self.end else None
        return self._read_members(source, tools, name)

    def _read_head(self, source: Source, ends: tuple[str, ...]) -> tuple[str, bool | None]:
        """Go past a name and its end; return it, and the value of an attribute ``string``, if any."""
        if not ends:
            source.spaces()
            return source.word(_NAME), None
        written = source.word(_compile_head(self.head, ends))
        name = re.fullmatch(self.name, written, re.DOTALL)
        is_string = _IS_STRING.search(written)
        if not source.accepts_any(ends):
            if self.must_begin and ends == self.head_ends:
                return "", None
            raise UnclearCallError(f"A tag or token is not complete: {' or '.join(ends)} is missing.")
        return name["name"].strip() if name is not None else "", None if is_string is None else is_string[1] == "true"

    def _read_members(self, source: Source, tools: KnownTools, name: str) -> str:
        members: dict[str, str] = {}
        while source.accepts(self.key):
            key, is_string = self._read_head(source, (self.key_end,))
            if self.value:
                source.spaces()
            if not key or not source.accepts(self.value):
                raise UnclearCallError(f"A parameter is not complete: write {self.key}NAME{self.key_end}{self.value}.")
            start = source.place
            if not source.past(self.value_end):
                raise UnclearCallError(f"The call is cut off: {self.value_end} is missing.")
            text = source.text[start : source.place - len(self.value_end)]
            if self.key in text or (self.value or self.end) in text:
                raise UnclearCallError(f"A parameter has no end: {self.value_end} is missing.")
            if key in members:
                raise UnclearCallError(f"The parameter '{key[:64]}' is there twice.")
            members[key] = self._read_value(tools, name, key, text, is_string)
            source.spaces()
        return "{" + ", ".join([f"{json.dumps(key)}: {value}" for key, value in members.items()]) + "}"

    def _read_value(self, tools: KnownTools, name: str, key: str, text: str, is_string: bool | None) -> str:
        if self.strips:
            text = text.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
        if is_string is None:
            return tools.value(name, key, text)
        read = json.dumps(text) if is_string else read_json(text)
        if read is None:
            raise UnclearCallError(f"The value of '{key[:64]}' is not valid JSON.")
        return read


@cache
def _compile_head(letter: str, ends: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?:(?!{'|'.join(map(re.escape, ends))})(?:{letter})){{0,{_LONGEST_HEAD}}}+")


_LABEL_END = r"[ \t0-9*]{0,8}+(?:\Z|:)"
_ACTION = f"(?i:{beginnings_of('Action', then=_LABEL_END)})"
_LONGEST_LABEL = 40
_LABELS = {
    label: re.compile(rf"(?:\*\*)?(?i:{label})[ \t]{{0,8}}+[0-9]{{0,3}}+(?:\*\*)?:(?:\*\*)?")
    for label in ("Action", "Action Input")
}


class ReactForm(Form):
    """``Action: name`` and ``Action Input: {...}`` on lines of their own: ReAct."""

    characters: str = "a*"
    opening: str = rf"(?<!\w)(?:{beginnings_of('**', then=_ACTION)}|{_ACTION})"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return one action with its input."""
        del spot
        if not _pass_label(source, "Action"):
            return None
        there = source.place
        if source.spaces() in {"{", "[", "`", "~"} and (calls := self._read_json(source, tools)):
            return calls
        source.place = there
        source.spaces(" \t")
        name = source.word(_LINE)[:120].strip(" \t*`\"'[]").removesuffix("()")
        there = source.place
        source.spaces()
        is_none = name.casefold() in _NO_NAMES and name not in tools
        if is_none or not _pass_label(source, "Action Input"):
            source.place = there
            if name in tools or _CALLED.sub("", name) in tools:
                raise UnclearCallError('After "Action: NAME" there must be a line "Action Input: {...}".')
            return None
        start = source.place
        try:
            arguments = _read_input(source, tools, name)
        except UnclearCallError:
            _pass_broken(source, start)
            raise
        return [ToolCall("", name, arguments)]

    def _read_json(self, source: Source, tools: KnownTools) -> list[ToolCall] | None:
        """Return calls of known tools as JSON, in a fence or without; Command R writes them so."""
        source.word(_FENCE_OPENING)
        value = source.value() if source.spaces() in {"{", "["} else ""
        try:
            calls = read_calls(value, tools, is_marked=False)
        except UnclearCallError:
            return None
        _pass_fence_end(source)
        return calls


def _pass_label(source: Source, label: str) -> bool:
    """Go past a label with its colon, and with a number or bold type, if it is here."""
    found = _LABELS[label].match(source.peek(_LONGEST_LABEL))
    source.place += 0 if found is None else found.end()
    return found is not None


def _read_input(source: Source, tools: KnownTools, name: str) -> str:
    ends_line = source.spaces(" \t") in {"", "\r", "\n"}
    there = source.place
    character = source.spaces()
    if ends_line and character not in _OBJECT_STARTS and tools.takes_no_arguments(name):
        source.place = there
        return "{}"
    is_fenced = character in {"`", "~"}
    if is_fenced:
        source.word(_FENCE_OPENING)
        character = source.spaces()
    if character == "{":
        text = _take_value(source)
        if is_fenced:
            source.spaces()
            source.word(_TICKS)
        if source.spaces(" \t`") not in {"", "\r", "\n"} and not _is_over(source, Spot()):
            raise UnclearCallError("After the JSON object of Action Input the line must end.")
        _check_end(source)
    else:
        text = source.word(_LINE)
        if not text.startswith(('"', "'", "null", "None")):
            raise UnclearCallError("Action Input must be a JSON object with an entry for each argument.")
    arguments = repair_arguments(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return arguments


class JsonForm(Form):
    """An object or a list of objects that has calls of known tools and nothing else."""

    characters: str = "{["
    is_marked: bool = False
    opening: str = rf"""{_OBJECT}|\[\s*+(?:\Z|[\["'\d]|{_OBJECT})"""

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return the calls of one object or list."""
        start = source.place
        if not _CALL_KEY.fullmatch(source.word(_CALL_HEAD)):
            return None
        source.place = start
        text = source.value()
        named = _NAMED_CALL.search(source.text[start : source.place], 0, 500)
        is_known = named is not None and named["name"] in tools
        if not text:
            if not is_known:
                return None
            _pass_broken(source, start)
            raise UnclearCallError(_CUT_OFF)
        try:
            calls = read_calls(text, tools, is_marked=False)
        except UnclearCallError as error:
            is_meant = is_known and named is not None and named["arguments"]
            is_unknown = isinstance(error, UnknownToolError) and spot.begins_reply
            if is_meant or (is_unknown and _is_over(source, spot)):
                raise
            return None
        try:
            _check_end(source)
        except UnclearCallError:
            _pass_broken(source, start)
            raise
        there = source.place
        if source.spaces() in {",", ";"}:
            source.place += 1
            if source.spaces() == "{":
                return calls
        source.place = there
        return calls


class PythonListForm(Form):
    """``[name(key=value), ...]``: calls of known tools in Python's syntax; Llama 3.2, Gemma and others."""

    characters: str = "["
    is_marked: bool = False
    opening: str = r"\[\s*+(?:\Z|[\w.-]++(?:\Z|\())"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return the calls of one list."""
        del spot
        start = source.place
        source.accepts("[")
        source.spaces()
        name = source.word(_NAME)
        if not name or source.peek() != "(" or name not in tools:
            return None
        try:
            return self._read_list(source, name)
        except UnclearCallError:
            _pass_broken(source, start)
            raise

    def _read_list(self, source: Source, name: str) -> list[ToolCall]:
        calls = [_read_python_call(source, name)]
        while True:
            source.spaces()
            if source.accepts("]"):
                return calls
            if not source.accepts(","):
                raise UnclearCallError("Calls in a list are parted by commas, and the list ends with ].")
            if source.spaces() == "]":
                continue
            name = source.word(_NAME)
            if not name or source.peek() != "(":
                raise UnclearCallError("The list must hold calls alone: write [name(key=value)].")
            calls.append(_read_python_call(source, name))
            check_count(calls)


class PythonCallForm(Form):
    """``name(key=value)`` at the start of a line, for a known tool."""

    characters: str = ascii_lowercase
    is_marked: bool = False
    begins_line: bool = True
    opening: str = r"(?<!.)(?i:[a-z])[\w.-]{0,63}+(?:\Z|\()"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> list[ToolCall] | None:
        """Return one call."""
        if spot.fence and spot.language not in _CALL_LANGUAGES:
            return None
        name = _NAME.match(source.text, source.place)
        # Words that are no beginning of a tool's name are not withheld.
        if name is None or not tools.has_prefix(name[0]):
            return None
        if source.word(_NAME) not in tools or source.peek() != "(":
            return None
        try:
            calls = [_read_python_call(source, name[0])]
        except UnclearCallError:
            if spot.begins_reply and _is_over(source, spot):
                raise
            return None
        there = source.place
        if source.spaces(" \t\r\n") == ";":
            source.place += 1
        else:
            source.place = there
        return calls


def _read_python_call(source: Source, name: str) -> ToolCall:
    """Return the call with the keyword arguments in parentheses at this place; their values are literals."""
    members: list[str] = []
    for part in _split_keywords(_take_value(source)[1:-1]):
        key = _KEYWORD.match(part)
        if key is None:
            raise UnclearCallError("Each argument needs its name: write name=value.")
        value = part[key.end() :].strip()
        # The line break ends a comment after the value.
        members.append(f"{json.dumps(key[1])}: {value}" + ("\n" if "#" in value else ""))
    arguments = read_json("{" + ", ".join(members) + "}")
    if arguments is None:
        raise UnclearCallError("Each argument must be a literal value, and come once.")
    return ToolCall("", name, arguments)


def _split_keywords(text: str) -> list[str]:
    """Return the parts between commas outside of brackets."""
    parts: list[str] = []
    depth = start = 0
    for token in _LITERAL_TOKEN.finditer(text):
        character = token[0]
        if character == "/":
            raise UnclearCallError("Arguments can't be computed: write the value.")
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start : token.start()])
            start = token.end()
    if text[start:].strip():
        parts.append(text[start:])
    return parts


def _take_value(source: Source) -> str:
    """Go past a JSON value or an argument list, and return it."""
    value = source.value()
    if not value:
        raise UnclearCallError(_CUT_OFF)
    return value


def _read_object(source: Source) -> str:
    text = _take_value(source)
    arguments = read_json(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return arguments


def _read_fenced_object(source: Source) -> str:
    """Go past an object, in a fence or not, and return it."""
    if source.spaces() in {"`", "~"}:
        source.word(_FENCE_OPENING)
    if source.spaces() != "{":
        raise UnclearCallError("The arguments of a call must be a JSON object.")
    arguments = _read_object(source)
    _pass_fence_end(source)
    return arguments


def _pass_fence_end(source: Source) -> None:
    there = source.place
    source.spaces()
    if not source.word(_TICKS):
        source.place = there


def _pass_broken(source: Source, start: int) -> None:
    """Go past the lines of a broken call without a mark, up to a line that begins something else."""
    source.place = start + 1
    while source.past("\n"):
        character = source.peek()
        if not character or character in "\n{[<`~*" or character.isalpha():
            return


def _check_end(source: Source) -> None:
    """Raise if a call is followed by a bracket or a key, which can only be the rest of it."""
    there = source.place
    if source.spaces(f"{SPACES},;") in {'"', "'"}:
        is_rest = _REST_KEY.match(source.peek(60)) is not None
    else:
        is_rest = source.peek() in {"}", "]", ":"}
    source.place = there
    if is_rest:
        raise UnclearCallError("The brackets of the call don't match: it ends before all that belongs to it.")


def _is_over(source: Source, spot: Spot) -> bool:
    """Return whether this place is the end of the fence or the turn."""
    there = source.place
    ends = (spot.fence,) if spot.fence else (*TURN_ENDS, "<|end|>", *RESULT_MARKS)
    is_end = source.spaces() == "" or source.accepts_any(ends, any_case=True) != ""
    source.place = there
    return is_end


_TOOL_CALL, _FUNCTION = ("<tool_call>", "</tool_call>"), "<function="
_BAR, _BLANK = "\uff5c", "\u2581"
_ATTRIBUTE = r"""(?:.*?\s)?name\s*=\s*(?P<q>["'])(?P<name>[^"'<>\n]{1,256})(?P=q).*"""


def _make_invoke(prefix: str, *wrappers: str) -> PartsForm:
    return PartsForm(
        begins=(f"<{prefix}invoke ",),
        head_ends=(">",),
        end=f"</{prefix}invoke>",
        name=_ATTRIBUTE,
        written_name='name="{}"',
        key=f"<{prefix}parameter ",
        value_end=f"</{prefix}parameter>",
        wrappers=tuple([(f"<{name}>", f"</{name}>") for name in wrappers]),
    )


HERMES = JsonMarksForm(pairs=(_TOOL_CALL,))
OTHER_TAGS = JsonMarksForm(
    pairs=(
        ("<tools>", "</tools>"),  # Qwen Coder
        ("<tool_calls>", "</tool_calls>"),  # Jamba
        ("<function_call>", "</function_call>"),
        ("<functioncall>", "</functioncall>"),
        ("<|START_ACTION|>", "<|END_ACTION|>"),  # Command R7B
        ("<|action_start|><|plugin|>", "<|action_end|>"),  # InternLM
    )
)
PHI = JsonMarksForm(pairs=(("<|tool_call|>", "<|/tool_call|>"),))  # also Granite's
FUNCTOOLS = JsonMarksForm(pairs=(("functools[", ""),), is_closed=False, is_word=True)
PYTHON_TAG = JsonMarksForm(pairs=(("<|python_tag|>", ""),), is_closed=False, takes_python=True)
MISTRAL = JsonMarksForm(
    pairs=(("[TOOL_CALLS]", "[/TOOL_CALLS]"),), named=("[ARGS]", ""), is_closed=False, is_inline=True
)
FUNCTION_TAGS = PartsForm(
    begins=(_FUNCTION,),
    head_ends=(">",),
    end="</function>",
    key="<parameter=",
    value_end="</parameter>",
    wrappers=(_TOOL_CALL,),
    takes_object=True,
    must_close=False,
    writes_lines=True,
)
GLM = PartsForm(
    begins=(_TOOL_CALL[0],),
    head_ends=(),
    end=_TOOL_CALL[1],
    key="<arg_key>",
    key_end="</arg_key>",
    value="<arg_value>",
    value_end="</arg_value>",
    must_begin=True,
    strips=False,
    is_inline=True,
)
ASCII_SECTIONS = PartsForm(  # Kimi's tokens, and DeepSeek's in ASCII
    begins=("<|tool_call_begin|>",),
    head_ends=("<|tool_call_argument_begin|>", "<|tool_sep|>"),
    end="<|tool_call_end|>",
    name=r"\s*(?:functions\.)?(?P<name>.*?)(?::\d+)?\s*",
    written_name="functions.{}:0",
    wrappers=(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_calls_begin|>", "<|tool_calls_end|>"),
    ),
    takes_object=True,
    is_inline=True,
)
DEEPSEEK = PartsForm(
    begins=(f"<{_BAR}tool{_BLANK}call{_BLANK}begin{_BAR}>",),
    head_ends=(f"<{_BAR}tool{_BLANK}sep{_BAR}>",),
    end=f"<{_BAR}tool{_BLANK}call{_BLANK}end{_BAR}>",
    wrappers=((f"<{_BAR}tool{_BLANK}calls{_BLANK}begin{_BAR}>", f"<{_BAR}tool{_BLANK}calls{_BLANK}end{_BAR}>"),),
    takes_object=True,
    is_inline=True,
)
DSML = _make_invoke(f"{_BAR}DSML{_BAR}", f"{_BAR}DSML{_BAR}function_calls", f"{_BAR}DSML{_BAR}tool_calls")
INVOKE = _make_invoke("", "function_calls", "minimax:tool_call")
ANTML = _make_invoke("antml:", "antml:function_calls")
HARMONY = PartsForm(  # a message with a recipient
    begins=("<|channel|>", "<|start|>assistant"),
    head=rf"[\w .=-]|{beginnings_of('<|channel|>')}|{beginnings_of('<|constrain|>')}",
    head_ends=("<|message|>",),
    end="<|call|>",
    name=r".*?\bto=(?:functions\.)?(?P<name>[\w.-]{1,64}).*",
    written_name="commentary to=functions.{} <|constrain|>json",
    takes_object=True,
    must_begin=True,
    may_lack_end=True,
)
REACT, JSON = ReactForm(), JsonForm()
PYTHON = (PythonListForm(), PythonCallForm())
