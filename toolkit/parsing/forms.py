"""The forms in which models write calls: marks around JSON, marks around named parts, and special ones.

Each format is a row of `FORMATS`. A form reads the text at a place; `ReplyReader` decides by the place whether it is a
call.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Literal, TypeAlias

from toolkit.calls.argument_repair import repair_arguments
from toolkit.chat import ToolCall
from toolkit.errors import ConfigurationError
from toolkit.parsing.calls import (
    ARGUMENTS,
    CALL_KEYS,
    NAMES,
    SPACES,
    KnownTools,
    Source,
    UnclearCallError,
    UnknownToolError,
    Waiting,
    check_count,
    explain_unreadable,
    read_calls,
    read_json,
)

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

_IN_NAME = re.compile(r"[\w.-]")
_LONGEST_NAME = 64
_IN_HEAD = re.compile(r"[^<>{]")
_LONGEST_HEAD = 400
_IS_STRING = re.compile(r"""\bstring\s*=\s*["'](true|false)["']""")
_IN_HARMONY_HEADER = re.compile(r"[\w .=-]")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?P<name>[\w.-]{1,64})")
_IN_LINE = re.compile(r"[^\r\n]")
_DIGIT = re.compile(r"[0-9]")
_CALLED = re.compile(r"(?:\(.*|\s+Action Input.*)", re.IGNORECASE)
_NO_NAMES = {"", "none", "n/a", "null", "no action", "final answer", "finish"}
_OBJECT = r"""\{\s*+(?:\Z|["']|\w{1,20}+(?:\Z|\s*+(?:\Z|:)))"""
_KEY_STARTS = {key[:length] for key in CALL_KEYS for length in range(1, len(key) + 1)}
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
_TICK = re.compile("[`~]")
_LANGUAGE_LETTER = re.compile(r"\w")
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
    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
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

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return the calls after one mark."""
        del spot
        opening, closing = yield from self._read_opening(source)
        if not opening:
            return None
        if opening.endswith("["):
            source.skip(-1)  # the bracket belongs to the list
        character = yield from source.spaces()
        if self.is_closed and character == "`":
            yield from _pass_fence(source)
            character = yield from source.spaces()
        if self.is_closed and opening != _TOOL_CALL[0] and character not in {"{", "["}:
            return None
        if character == "<" and (yield from source.peek(len(_FUNCTION))) == _FUNCTION:
            return None
        try:
            calls = yield from self._read_objects(source, tools, opening, closing)
            if not calls and not self.is_closed:
                calls = [(yield from self._read_named(source, opening))]
                yield from source.spaces()
            yield from self._check_closing(source, calls, opening, closing)
        except UnclearCallError:
            if not self.is_closed:
                yield from source.rest()
            elif not source.piece().endswith(closing):
                yield from source.past(closing)
            raise
        return calls

    def _read_opening(self, source: Source) -> Waiting[tuple[str, str]]:
        for pair in self.pairs:
            if (yield from source.accepts(pair[0])):
                return pair
        return "", ""

    def _read_objects(self, source: Source, tools: KnownTools, opening: str, closing: str) -> Waiting[list[ToolCall]]:
        calls: list[ToolCall] = []
        character = yield from source.spaces()
        while character in {"{", "["} and (opening[0] != "[" or (yield from source.peek(len(opening))) != opening):
            start = source.length
            if not (yield from source.value(stop=closing if closing.startswith("<") else "")):
                ended = not self.is_closed or not (yield from source.past(closing))
                raise UnclearCallError("The call is cut off." if ended else "The brackets of the call don't match.")
            calls += read_calls(source.piece(start), tools, is_marked=True)
            check_count(calls)
            there = source.length
            character = yield from source.spaces(" \t\r\n,;`~" if self.is_closed else " \t\r\n,;")
            if not self.is_closed and character != "{":
                source.back(there)
                break
        return calls

    def _read_named(self, source: Source, opening: str) -> Waiting[ToolCall]:
        name = yield from source.word(_IN_NAME, _LONGEST_NAME)
        if self.takes_python and name.removesuffix(".call") and (yield from source.peek(1)) == "(":
            return (yield from _read_python_call(source, name.removesuffix(".call")))
        if self.named and name:
            if (yield from source.accepts("[CALL_ID]")):
                yield from source.word(_IN_NAME, _LONGEST_NAME)
            for mark in self.named:
                if (yield from source.accepts(mark)):
                    break
            if (yield from source.spaces()) == "{":
                return ToolCall("", name, (yield from _read_object(source)))
        ways = "NAME[ARGS]{...}" if self.named else '{"name": ..., "parameters": {...}}'
        raise UnclearCallError(f"After {opening} there must be a call: {ways}.")

    def _check_closing(self, source: Source, calls: list[ToolCall], opening: str, closing: str) -> Waiting[None]:
        if not self.is_closed:
            there = source.length
            yield from source.spaces()
            if closing and (yield from source.accepts(closing)):
                return
            source.back(there)
            yield from _check_end(source)
            return
        character = yield from source.peek(1)
        if not calls or (
            character and not (yield from source.accepts(closing)) and (yield from source.peek(len(opening))) != opening
        ):
            raise UnclearCallError(f"Between {opening} and {closing} there must be one JSON object.")


@dataclass(kw_only=True, eq=False)
class PartsForm(Form):
    """A name, then its arguments as JSON or each between its own marks: ``<function=name><parameter=key>...``.

    Args:
        begin: The mark at the beginning of a call.
        head_ends: The marks that may end its name; empty if white space or another mark does.
        end: The mark at its end.
        name: A pattern of the text between `begin` and the end of the head, with the group `name`.
        key: The mark before a parameter; empty if the arguments are an object.
        key_end: The mark after the name of a parameter.
        value: The mark before its value.
        value_end: The mark after its value.
        wrappers: Pairs of marks that may enclose several calls.
        takes_object: True if the arguments may be an object, in a fence or not.
        must_close: True if an opened wrapper must be closed.
        must_begin: True if the opening is shared with other forms: without a parameter it is none of this one.
        strips: True if a value is on lines of its own.
        is_inline: See `Form`.
    """

    begin: str
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
    strips: bool = True
    is_inline: bool = False

    def __post_init__(self) -> None:
        self.opening = "|".join([beginnings_of(self.begin), *[beginnings_of(mark) for mark, _ in self.wrappers]])
        self.marks = tuple([mark for pair in self.wrappers for mark in pair])

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return one call, or all calls of a wrapper."""
        del spot
        wrapper_end = yield from self._read_wrapper(source)
        if not (yield from source.accepts(self.begin)):
            if not wrapper_end or not self.must_close:
                return None
            yield from source.past(wrapper_end)
            raise UnclearCallError(f"Before {wrapper_end} there must be calls: {self.begin} ...")
        try:
            return (yield from self._read_wrapped(source, tools, wrapper_end))
        except UnclearCallError:
            yield from source.past(wrapper_end if wrapper_end and self.must_close else self.end)
            raise

    def _read_wrapper(self, source: Source) -> Waiting[str]:
        for mark, end in self.wrappers:
            if (yield from source.accepts(mark)):
                yield from source.spaces()
                return end
        return ""

    def _read_wrapped(self, source: Source, tools: KnownTools, wrapper_end: str) -> Waiting[list[ToolCall] | None]:
        calls: list[ToolCall] = []
        while True:
            call = yield from self._read_call(source, tools)
            if call is None:
                return None
            calls.append(call)
            check_count(calls)
            if not wrapper_end:
                return calls
            there = source.length
            yield from source.spaces()
            if (yield from source.accepts(wrapper_end)):
                return calls
            if not (yield from source.accepts(self.begin)):
                ended = (yield from source.peek(1)) == "" or (yield from self._is_opened(source))
                if self.must_close or not ended:
                    raise UnclearCallError(f"After {self.end} only {wrapper_end} or another call may come.")
                source.back(there)
                return calls

    def _is_opened(self, source: Source) -> Waiting[bool]:
        for mark, _ in self.wrappers:
            if (yield from source.peek(len(mark))) == mark:
                return True
        return False

    def _read_call(self, source: Source, tools: KnownTools) -> Waiting[ToolCall | None]:
        name, _ = yield from self._read_head(source, self.head_ends)
        character = yield from source.spaces()
        if self.must_begin and not name:
            return None
        if name == "function" and not self.key and character not in {"{", "`", "~"}:
            name = (yield from source.word(_IN_NAME, _LONGEST_NAME)).strip()  # DeepSeek's type of a call
            character = yield from source.spaces()
        if not name:
            raise UnclearCallError(f"A call is not complete: write {self.begin}NAME{self.head_ends[0]}.")
        if self.takes_object and character in {"{", "`", "~"}:
            arguments = yield from _read_fenced_object(source)
        elif not self.key:
            raise UnclearCallError("The arguments of a call must be a JSON object.")
        elif self.must_begin and (yield from source.peek(len(self.key))) != self.key:
            is_call = name in tools and (yield from source.accepts(self.end))
            return ToolCall("", name, "{}") if is_call else None
        else:
            arguments = yield from self._read_members(source, tools, name)
        yield from source.spaces()
        if not (yield from source.accepts(self.end)):
            raise UnclearCallError(f"A call ends with {self.end}, directly after its arguments.")
        return ToolCall("", name, arguments)

    def _read_head(self, source: Source, ends: tuple[str, ...]) -> Waiting[tuple[str, bool | None]]:
        """Go past a name and its end; return it, and the value of an attribute ``string``, if any."""
        if not ends:
            yield from source.spaces()
            return (yield from source.word(_IN_NAME, _LONGEST_NAME)), None
        written = yield from source.word(_IN_HEAD, _LONGEST_HEAD)
        name = re.fullmatch(self.name, written, re.DOTALL)
        is_string = _IS_STRING.search(written)
        for end in ends:
            if (yield from source.accepts(end)):
                break
        else:
            raise UnclearCallError(f"A tag or token is not complete: {' or '.join(ends)} is missing.")
        return name["name"].strip() if name is not None else "", None if is_string is None else is_string[1] == "true"

    def _read_members(self, source: Source, tools: KnownTools, name: str) -> Waiting[str]:
        members: dict[str, str] = {}
        while (yield from source.accepts(self.key)):
            key, is_string = yield from self._read_head(source, (self.key_end,))
            if self.value:
                yield from source.spaces()
            if not key or not (yield from source.accepts(self.value)):
                raise UnclearCallError(f"A parameter is not complete: write {self.key}NAME{self.key_end}{self.value}.")
            start = source.length
            if not (yield from source.past(self.value_end)):
                raise UnclearCallError(f"The call is cut off: {self.value_end} is missing.")
            text = source.piece(start)[: -len(self.value_end)]
            if self.key in text or (self.value or self.end) in text:
                raise UnclearCallError(f"A parameter has no end: {self.value_end} is missing.")
            if key in members:
                raise UnclearCallError(f"The parameter '{key[:64]}' is there twice.")
            members[key] = self._read_value(tools, name, key, text, is_string)
            yield from source.spaces()
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


_LABEL_END = r"[ \t0-9*]{0,8}+(?:\Z|:)"
_ACTION = f"(?i:{beginnings_of('Action', then=_LABEL_END)})"


class HarmonyForm(Form):
    """``<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>``; GPT-OSS."""

    marks: tuple[str, ...] = ("<|call|>",)
    opening: str = f"{beginnings_of('<|channel|>')}|{beginnings_of('<|start|>assistant')}"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return the call of one message with a recipient."""
        del tools, spot
        header = "<|channel|>" if (yield from source.accepts("<|channel|>")) else ""
        if not header and not (yield from source.accepts("<|start|>assistant")):
            return None
        while not (yield from source.accepts("<|message|>")):
            words = yield from source.word(_IN_HARMONY_HEADER, 100)
            mark = ""
            for token in ("<|channel|>", "<|constrain|>"):
                if token not in header and (yield from source.accepts(token)):
                    mark = token
            if not words and not mark:
                return None
            header += words + mark
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            return None
        try:
            arguments = yield from self._read_arguments(source)
        except UnclearCallError:
            yield from source.past("<|call|>")
            raise
        return [ToolCall("", recipient["name"], arguments)]

    def _read_arguments(self, source: Source) -> Waiting[str]:
        arguments = yield from _read_fenced_object(source)
        if (yield from source.spaces()) and not (yield from source.accepts("<|call|>")):
            raise UnclearCallError("A call ends with <|call|>, directly after the arguments.")
        return arguments


class ReactForm(Form):
    """``Action: name`` and ``Action Input: {...}`` on lines of their own: ReAct."""

    characters: str = "a*"
    opening: str = rf"(?<!\w)(?:{beginnings_of('**', then=_ACTION)}|{_ACTION})"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return one action with its input."""
        del spot
        if not (yield from _pass_label(source, "Action")):
            return None
        there = source.length
        if (yield from source.spaces()) in {"{", "[", "`", "~"}:
            calls = yield from self._read_json(source, tools)
            if calls:
                return calls
        source.back(there)
        yield from source.spaces(" \t")
        written = yield from source.word(_IN_LINE, 120)
        name = written.strip(" \t*`\"'[]").removesuffix("()")
        there = source.length
        yield from source.spaces()
        is_none = name.casefold() in _NO_NAMES and name not in tools
        if is_none or not (yield from _pass_label(source, "Action Input")):
            source.back(there)
            if name in tools or _CALLED.sub("", name) in tools:
                raise UnclearCallError('After "Action: NAME" there must be a line "Action Input: {...}".')
            return None
        start = source.length
        try:
            arguments = yield from _read_input(source, tools, name)
        except UnclearCallError:
            yield from _pass_broken(source, start)
            raise
        return [ToolCall("", name, arguments)]

    def _read_json(self, source: Source, tools: KnownTools) -> Waiting[list[ToolCall] | None]:
        """Return calls of known tools as JSON, in a fence or without; Command R writes them so."""
        yield from _pass_fence(source)
        if (yield from source.spaces()) not in {"{", "["}:
            return None
        start = source.length
        if not (yield from source.value()):
            return None
        try:
            calls = read_calls(source.piece(start), tools, is_marked=False)
        except UnclearCallError:
            return None
        there = source.length
        yield from source.spaces()
        if not (yield from source.word(_TICK, 10)):
            source.back(there)
        return calls


def _pass_label(source: Source, label: str) -> Waiting[bool]:
    """Go past a label with its colon, and with a number or bold type, if it is here."""
    yield from source.accepts("**")
    if not (yield from source.accepts(label, any_case=True)):
        return False
    yield from source.spaces(" \t")
    yield from source.word(_DIGIT, 3)
    yield from source.accepts("**")
    if not (yield from source.accepts(":")):
        return False
    yield from source.accepts("**")
    return True


def _read_input(source: Source, tools: KnownTools, name: str) -> Waiting[str]:
    ends_line = (yield from source.spaces(" \t")) in {"", "\r", "\n"}
    there = source.length
    character = yield from source.spaces()
    if ends_line and (yield from _is_without_input(source, tools, name, character)):
        source.back(there)
        return "{}"
    is_fenced = character in {"`", "~"}
    if is_fenced:
        yield from _pass_fence(source)
        character = yield from source.spaces()
    if character == "{":
        text = yield from _take_value(source)
        if is_fenced:
            yield from source.spaces()
            yield from source.word(_TICK, 10)
        following = yield from source.spaces(" \t`")
        if following not in {"", "\r", "\n"} and not (yield from _is_over(source, Spot())):
            raise UnclearCallError("After the JSON object of Action Input the line must end.")
        yield from _check_end(source)
    else:
        text = yield from source.word(_IN_LINE, 2_000)
        if not text.startswith(('"', "'", "null", "None")):
            raise UnclearCallError("Action Input must be a JSON object with an entry for each argument.")
    arguments = repair_arguments(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return arguments


def _is_without_input(source: Source, tools: KnownTools, name: str, character: str) -> Waiting[bool]:
    """Return whether a tool is called without input; if it may have parameters, nothing else may follow."""
    if character in {"{", "`", "~"} or not tools.may_take_no_arguments(name):
        return False
    if tools.takes_no_arguments(name):
        return True
    return not character or (yield from source.peek(11)).casefold() == "observation"


class JsonForm(Form):
    """An object or a list of objects that has calls of known tools and nothing else."""

    characters: str = "{["
    is_marked: bool = False
    opening: str = rf"""{_OBJECT}|\[\s*+(?:\Z|[\["'\d]|{_OBJECT})"""

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return the calls of one object or list."""
        start = source.length
        if not (yield from _may_call(source)):
            return None
        source.back(start)
        is_whole = yield from source.value()
        text = source.piece(start)
        named = _NAMED_CALL.search(text, 0, 500)
        is_known = named is not None and named["name"] in tools
        if not is_whole:
            if not is_known:
                return None
            yield from _pass_broken(source, start)
            raise UnclearCallError(_CUT_OFF)
        try:
            calls = read_calls(text, tools, is_marked=False)
        except UnclearCallError as error:
            is_meant = is_known and named is not None and named["arguments"]
            is_unknown = isinstance(error, UnknownToolError) and spot.begins_reply
            if is_meant or (is_unknown and (yield from _is_over(source, spot))):
                raise
            return None
        try:
            yield from _check_end(source)
        except UnclearCallError:
            yield from _pass_broken(source, start)
            raise
        there = source.length
        if (yield from source.spaces()) in {",", ";"}:
            source.skip(1)
            if (yield from source.spaces()) == "{":
                return calls
        source.back(there)
        return calls


def _may_call(source: Source) -> Waiting[bool]:
    """Return whether an object or list may be a call, by its first key."""
    if (yield from source.accepts("[")):
        yield from source.spaces()
    if not (yield from source.accepts("{")):
        return False
    quote = yield from source.spaces()
    is_quoted = quote in {'"', "'"}
    if is_quoted:
        source.skip(1)
    key = ""
    while (character := (yield from source.peek(1))) and (key + character) in _KEY_STARTS:
        key += character
        source.skip(1)
    if key not in CALL_KEYS or (is_quoted and not (yield from source.accepts(quote))):
        return False
    return (yield from source.spaces()) == ":"


class PythonListForm(Form):
    """``[name(key=value), ...]``: calls of known tools in Python's syntax; Llama 3.2, Gemma and others."""

    characters: str = "["
    is_marked: bool = False
    opening: str = r"\[\s*+(?:\Z|[\w.-]++(?:\Z|\())"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return the calls of one list."""
        del spot
        start = source.length
        yield from source.accepts("[")
        yield from source.spaces()
        name = yield from source.word(_IN_NAME, _LONGEST_NAME)
        if not name or (yield from source.peek(1)) != "(" or name not in tools:
            return None
        try:
            return (yield from self._read_list(source, name))
        except UnclearCallError:
            yield from _pass_broken(source, start)
            raise

    def _read_list(self, source: Source, name: str) -> Waiting[list[ToolCall]]:
        calls = [(yield from _read_python_call(source, name))]
        while True:
            yield from source.spaces()
            if (yield from source.accepts("]")):
                return calls
            if not (yield from source.accepts(",")):
                raise UnclearCallError("Calls in a list are parted by commas, and the list ends with ].")
            if (yield from source.spaces()) == "]":
                continue
            name = yield from source.word(_IN_NAME, _LONGEST_NAME)
            if not name or (yield from source.peek(1)) != "(":
                raise UnclearCallError("The list must hold calls alone: write [name(key=value)].")
            calls.append((yield from _read_python_call(source, name)))
            check_count(calls)


class PythonCallForm(Form):
    """``name(key=value)`` at the start of a line, for a known tool."""

    characters: str = ascii_lowercase
    is_marked: bool = False
    begins_line: bool = True
    opening: str = r"(?<!.)(?i:[a-z])[\w.-]{0,63}+(?:\Z|\()"

    def read(self, source: Source, tools: KnownTools, spot: Spot) -> Waiting[list[ToolCall] | None]:
        """Return one call."""
        if spot.fence and spot.language not in _CALL_LANGUAGES:
            return None
        name = ""
        # Only as far as it may be a tool's name, so that other words are not withheld.
        while len(name) < _LONGEST_NAME and _IN_NAME.match(character := (yield from source.peek(1))):
            name += character
            source.skip(1)
            if not tools.has_prefix(name):
                return None
        if name not in tools or (yield from source.peek(1)) != "(":
            return None
        try:
            calls = [(yield from _read_python_call(source, name))]
        except UnclearCallError:
            if spot.begins_reply and (yield from _is_over(source, spot)):
                raise
            return None
        there = source.length
        if (yield from source.spaces(" \t\r\n")) == ";":
            source.skip(1)
        else:
            source.back(there)
        return calls


def _read_python_call(source: Source, name: str) -> Waiting[ToolCall]:
    """Return the call with the keyword arguments in parentheses at this place; their values are literals."""
    members: list[str] = []
    for part in _split_keywords((yield from _take_value(source))[1:-1]):
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


def _take_value(source: Source) -> Waiting[str]:
    """Go past a JSON value or an argument list, and return it."""
    start = source.length
    if not (yield from source.value()):
        raise UnclearCallError(_CUT_OFF)
    return source.piece(start)


def _read_object(source: Source) -> Waiting[str]:
    text = yield from _take_value(source)
    arguments = read_json(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return arguments


def _read_fenced_object(source: Source) -> Waiting[str]:
    """Go past an object, in a fence or not, and return it."""
    if (yield from source.spaces()) in {"`", "~"}:
        yield from _pass_fence(source)
    if (yield from source.spaces()) != "{":
        raise UnclearCallError("The arguments of a call must be a JSON object.")
    arguments = yield from _read_object(source)
    there = source.length
    yield from source.spaces()
    if not (yield from source.word(_TICK, 10)):
        source.back(there)
    return arguments


def _pass_fence(source: Source) -> Waiting[None]:
    """Go past the marks that begin a fence, and its language."""
    yield from source.word(_TICK, 10)
    yield from source.word(_LANGUAGE_LETTER, 20)


def _pass_broken(source: Source, start: int) -> Waiting[None]:
    """Go past the lines of a broken call without a mark, up to a line that begins something else."""
    source.back(start + 1)
    while (yield from source.past("\n")):
        character = yield from source.peek(1)
        if not character or character in "\n{[<`~*" or character.isalpha():
            return


def _check_end(source: Source) -> Waiting[None]:
    """Raise if a call is followed by a bracket or a key, which can only be the rest of it."""
    there = source.length
    if (yield from source.spaces(f"{SPACES},;")) in {'"', "'"}:
        is_rest = _REST_KEY.match((yield from source.peek(60))) is not None
    else:
        is_rest = (yield from source.peek(1)) in {"}", "]", ":"}
    source.back(there)
    if is_rest:
        raise UnclearCallError("The brackets of the call don't match: it ends before all that belongs to it.")


def _is_over(source: Source, spot: Spot) -> Waiting[bool]:
    """Return whether this place is the end of the fence or the turn."""
    there = source.length
    is_end = (yield from source.spaces()) == ""
    for token in (spot.fence,) if spot.fence else (*TURN_ENDS, "<|end|>", *RESULT_MARKS):
        is_end = is_end or (yield from source.accepts(token, any_case=True))
    source.back(there)
    return is_end


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormatRow:
    """The reading rules of one format.

    Args:
        forms: The forms of its calls.
        takes_fences: True if a fence may enclose calls; calls with marks in a fence are code.
        result_marks: The beginnings of results, which are dropped from a reply: the model made them up.
    """

    forms: tuple[Form, ...]
    takes_fences: bool = False
    result_marks: tuple[str, ...] = ()


_TOOL_CALL, _FUNCTION = ("<tool_call>", "</tool_call>"), "<function="
_BAR, _BLANK = "\uff5c", "\u2581"
_ATTRIBUTE = r"""(?:.*?\s)?name\s*=\s*(?P<q>["'])(?P<name>[^"'<>\n]{1,256})(?P=q).*"""


def _make_invoke(prefix: str, *wrappers: str) -> PartsForm:
    return PartsForm(
        begin=f"<{prefix}invoke ",
        head_ends=(">",),
        end=f"</{prefix}invoke>",
        name=_ATTRIBUTE,
        key=f"<{prefix}parameter ",
        value_end=f"</{prefix}parameter>",
        wrappers=tuple([(f"<{name}>", f"</{name}>") for name in wrappers]),
    )


_HERMES = JsonMarksForm(pairs=(_TOOL_CALL,))
_OTHER_TAGS = JsonMarksForm(
    pairs=(
        ("<tools>", "</tools>"),  # Qwen Coder
        ("<tool_calls>", "</tool_calls>"),  # Jamba
        ("<function_call>", "</function_call>"),
        ("<functioncall>", "</functioncall>"),
        ("<|START_ACTION|>", "<|END_ACTION|>"),  # Command R7B
        ("<|action_start|><|plugin|>", "<|action_end|>"),  # InternLM
    )
)
_PHI = JsonMarksForm(pairs=(("<|tool_call|>", "<|/tool_call|>"),))  # also Granite's
_FUNCTOOLS = JsonMarksForm(pairs=(("functools[", ""),), is_closed=False, is_word=True)
_PYTHON_TAG = JsonMarksForm(pairs=(("<|python_tag|>", ""),), is_closed=False, takes_python=True)
_MISTRAL = JsonMarksForm(
    pairs=(("[TOOL_CALLS]", "[/TOOL_CALLS]"),), named=("[ARGS]", ""), is_closed=False, is_inline=True
)
_FUNCTION_TAGS = PartsForm(
    begin=_FUNCTION,
    head_ends=(">",),
    end="</function>",
    key="<parameter=",
    value_end="</parameter>",
    wrappers=(_TOOL_CALL,),
    takes_object=True,
    must_close=False,
)
_GLM = PartsForm(
    begin=_TOOL_CALL[0],
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
_ASCII_SECTIONS = PartsForm(  # Kimi's tokens, and DeepSeek's in ASCII
    begin="<|tool_call_begin|>",
    head_ends=("<|tool_call_argument_begin|>", "<|tool_sep|>"),
    end="<|tool_call_end|>",
    name=r"\s*(?:functions\.)?(?P<name>.*?)(?::\d+)?\s*",
    wrappers=(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_calls_begin|>", "<|tool_calls_end|>"),
    ),
    takes_object=True,
    is_inline=True,
)
_DEEPSEEK = PartsForm(
    begin=f"<{_BAR}tool{_BLANK}call{_BLANK}begin{_BAR}>",
    head_ends=(f"<{_BAR}tool{_BLANK}sep{_BAR}>",),
    end=f"<{_BAR}tool{_BLANK}call{_BLANK}end{_BAR}>",
    wrappers=((f"<{_BAR}tool{_BLANK}calls{_BLANK}begin{_BAR}>", f"<{_BAR}tool{_BLANK}calls{_BLANK}end{_BAR}>"),),
    takes_object=True,
    is_inline=True,
)
_DSML = _make_invoke(f"{_BAR}DSML{_BAR}", f"{_BAR}DSML{_BAR}function_calls", f"{_BAR}DSML{_BAR}tool_calls")
_INVOKE = _make_invoke("", "function_calls", "minimax:tool_call")
_ANTML = _make_invoke("antml:", "antml:function_calls")
_HARMONY, _REACT, _JSON = HarmonyForm(), ReactForm(), JsonForm()
_PYTHON = (PythonListForm(), PythonCallForm())
_WRITTEN_RESULTS = ("Result of ", "Error of ")  # the results that `wording` writes for formats without a mark

FORMATS: dict[str, TextFormatRow] = {
    "hermes": TextFormatRow(forms=(_HERMES,), result_marks=("<tool_response>",)),
    "react": TextFormatRow(forms=(_REACT,), result_marks=("Observation:", "Observation ")),
    "llama": TextFormatRow(
        forms=(_PYTHON_TAG, _FUNCTION_TAGS, _JSON), takes_fences=True, result_marks=_WRITTEN_RESULTS
    ),
    "mistral": TextFormatRow(forms=(_MISTRAL,), result_marks=("[TOOL_RESULTS]",)),
    "qwen": TextFormatRow(forms=(_FUNCTION_TAGS,), result_marks=("<tool_response>",)),
    "pythonic": TextFormatRow(forms=_PYTHON, takes_fences=True, result_marks=_WRITTEN_RESULTS),
    "json": TextFormatRow(forms=(_JSON,), takes_fences=True, result_marks=_WRITTEN_RESULTS),
    "fenced": TextFormatRow(forms=(_JSON,), takes_fences=True, result_marks=_WRITTEN_RESULTS),
    "crew": TextFormatRow(
        forms=(_JSON, _REACT), takes_fences=True, result_marks=(*_WRITTEN_RESULTS, "Observation:", "Observation ")
    ),
    "glm": TextFormatRow(forms=(_GLM,), result_marks=("<tool_response>",)),
    "deepseek": TextFormatRow(
        forms=(_DEEPSEEK, _ASCII_SECTIONS, _DSML, _INVOKE),
        result_marks=(f"<{_BAR}tool{_BLANK}outputs{_BLANK}begin{_BAR}>",),
    ),
    "kimi": TextFormatRow(forms=(_ASCII_SECTIONS,), result_marks=_WRITTEN_RESULTS),
    "harmony": TextFormatRow(forms=(_HARMONY,), result_marks=_WRITTEN_RESULTS),
    "minimax": TextFormatRow(forms=(_INVOKE,), result_marks=_WRITTEN_RESULTS),
    "phi": TextFormatRow(forms=(_PHI, _FUNCTOOLS), result_marks=_WRITTEN_RESULTS),
    "anthropic": TextFormatRow(forms=(_INVOKE, _ANTML), result_marks=("<function_results>",)),
    "auto": TextFormatRow(
        forms=(
            *(_GLM, _HERMES, _OTHER_TAGS, _PHI, _FUNCTION_TAGS, _PYTHON_TAG, _MISTRAL),
            *(_DEEPSEEK, _ASCII_SECTIONS, _HARMONY, _DSML, _INVOKE, _ANTML, _FUNCTOOLS),
            *(_PYTHON[0], _REACT, _PYTHON[1], _JSON),
        ),
        takes_fences=True,
        result_marks=(*RESULT_MARKS, *_WRITTEN_RESULTS),
    ),
}


def find_format(name: str) -> TextFormatRow:
    """Return the row of a format.

    Raises:
        ConfigurationError: There is no such format.
    """
    row = FORMATS.get(name)
    if row is None:
        raise ConfigurationError(f"there is no format '{name}'; there are: {', '.join(FORMATS)}")
    return row
