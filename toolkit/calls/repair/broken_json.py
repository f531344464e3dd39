"""Broken JSON that can be read in one way only, whatever was asked for.

It is read by a tolerant reader of our own rather than by one that always finds an answer: it goes
through the text token by token, once, and each token of the text becomes one token of the answer, in the same order.
Only spelling changes: quotes, escapes, the words for true, false and null, and numbers such as ``.5``. All that is ever
left out is a comma before a closing bracket, comments, and around the object a code fence with the sentence that
introduces it, and what ends a call. So nothing is invented, merged or closed that was left open; what can be read in
two ways is not read at all.

What stands around the object is judged by its place and its signs, never by its words.
"""

from __future__ import annotations

import json
import re

from toolkit.dataclass import dataclass

SPACES = " \t\r\n\ufeff\u00a0"
# White space and comments, as part of a verbose pattern.
BLANK = r"(?: [ \t\r\n\ufeff\u00a0]++ | //[^\n]*+ | \#(?![^\s\#])[^\n]*+ | /\*.*?\*/ )++"
WRAPPERS = frozenset({"arguments", "parameters", "args", "params", "kwargs", "input"})
"""The names under which formats of calls have the arguments."""

LONGEST_TEXT = 2_000_000
_LONGEST_JSON_NUMBER = 300
_DEEPEST_OBJECT = 100
_MOST_ENCODINGS = 3


class UnclearError(Exception):
    """The text may mean something else.

    Args:
        is_cut_off: True where the text ends before it has become wrong.
    """

    def __init__(self, *, is_cut_off: bool = False) -> None:
        self.is_cut_off: bool = is_cut_off
        super().__init__()


@dataclass(slots=True)
class Reading:
    """A meaning that a broken text may have.

    Args:
        text: It as JSON.
        assumed: The assumptions that this needed, in words.
    """

    text: str
    assumed: tuple[str, ...] = ()


def read_surely(text: str) -> Reading:
    """Do what `repair_arguments` does, and say what was assumed.

    Raises:
        UnclearError: It may mean something else, or is cut off.
    """
    if len(text) > LONGEST_TEXT:
        raise UnclearError
    assumed: list[str] = []
    mended = _read_encoded(text, _MOST_ENCODINGS, assumed)
    return Reading(mended, tuple(dict.fromkeys(assumed)))


def _read_encoded(text: str, encodings: int, assumed: list[str]) -> str:
    text = text.strip(SPACES)
    if text in {"", "null", "None"}:
        return "{}"
    if text.startswith('{\\"'):
        text = f'"{text}"'  # encoded again, but without the quotes around it
    if _QUOTED_STRING.fullmatch(text):
        if not encodings:
            raise UnclearError
        assumed.append("JSON in a string was decoded")
        return _read_encoded(json.loads(to_json_string(text)), encodings - 1, assumed)
    start = text.find("{")
    if start < 0:
        raise UnclearError
    reader = _SureReader(assumed)
    end = reader.read(text, start)
    check_surroundings(text[:start], text[end:])
    if text[:start] or text[end:]:
        assumed.append("what stands around the object was left out")
    return "".join(reader.pieces)


_ONLY_BLANK = re.compile(BLANK, re.VERBOSE | re.DOTALL)
_END_TOKENS = re.compile(
    r"(?:\s*(?:<\|/?\w{1,40}\|>|<\uff5c[\w\u2581]{1,40}\uff5c>|</s>|<eos>|<end_of_turn>|\[/TOOL_CALLS\]"
    r"|</(?:tool_call|tool_calls|function|function_call|functioncall|tools|invoke|parameter)>))++\s*"
)
_FENCE_BEFORE = re.compile(r"(?:(`{3,}|~{3,})[A-Za-z][-\w+.]*|(`+|~{3,}))\s*\Z")
# Sentences without a digit, a quote or a bracket: signs that data is written with.
_SENTENCES = re.compile(
    r"(?:[^\W\d_]|(?<=[^\W\d_])['\u2019](?=[^\W\d_])"
    r"|[\s.,;!?*\u2026\u2013\u2014\u3001\u3002\uff01\uff0c-])*+[:\uff1a]?"
)
_LABEL = re.compile(r"(\w++)\s*+[:=]")
_KNOWN_LABELS = {*WRAPPERS, "json"}


def check_surroundings(before: str, after: str) -> None:
    """Raise unless there is nothing around the object but comments, a fence, and what introduces or ends a call."""
    before, after = (_drop_comments(part) for part in (before, after))
    fence = _FENCE_BEFORE.search(before[-100:])
    if fence is not None:
        mark = fence[1] or fence[2]
        before = before[: len(before) - len(fence[0])]
        if after.startswith(mark):
            after = after[len(mark) :]
        elif after or len(mark) < 3:
            raise UnclearError
    lead = before.strip(SPACES)
    label = _LABEL.fullmatch(lead)
    if label is not None and label[1].casefold() not in _KNOWN_LABELS:  # `options: {...}` may be the one argument
        raise UnclearError
    has_own_lines = fence is not None and before.rstrip(" \t").endswith("\n")
    if lead and label is None and not (has_own_lines and _SENTENCES.fullmatch(lead)):
        raise UnclearError
    after = pass_end_tokens(after).strip(SPACES)
    if pass_end_tokens(after.removeprefix("." if after[:1] == "." else ";").strip(SPACES)):
        raise UnclearError


def _drop_comments(text: str) -> str:
    text = text.strip(SPACES)
    return "" if _ONLY_BLANK.fullmatch(text) is not None else text


def pass_end_tokens(text: str) -> str:
    """Return what stands behind the tokens by which models end a call or a turn."""
    return text[end.end() :] if (end := _END_TOKENS.match(text)) is not None else text


_JSON_TOKEN = re.compile(
    rf"""
    (?P<blank>   {BLANK} )
    | (?P<string>  "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' )
    | (?P<opening> [{{\[] )
    | (?P<closing> [}}\]] )
    | (?P<comma>   , )
    | (?P<colon>   : )
    | (?P<plain>   -?+(?:0|[1-9][0-9]{{0,17}}+)(?![-+.\w]) )
    | (?P<number>  [-+.0-9][-+.\w]*+ )
    | (?P<word>    [^\W\d][-$\w]*+ | \$[-$\w]*+ )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED_STRING = re.compile(
    r"""  "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+'  """, re.VERBOSE | re.DOTALL
)
_LOOSE_NUMBER = re.compile(r"([-+]?)(?:(0|[1-9][0-9]*)(?:\.([0-9]*))?|\.([0-9]+))([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|[\"\x00-\x1f]", re.DOTALL)
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
NEVER_KEYS = {*WORDS, "NaN", "Infinity", "nan", "inf", "undefined"}


_UNENDED = "\"'/"  # what begins a string or a comment that has no end
_QUOTE_IN_COMMENT = re.compile(r"\"|(?<!\w)'|'(?!\w)")


class _SureReader:
    """Reads one object, with a stack of its own so that no depth of the text is a depth of calls."""

    __slots__ = ("_assumed", "_levels", "_wants", "pieces")

    def __init__(self, assumed: list[str]) -> None:
        self.pieces: list[str] = []
        self._assumed = assumed
        self._levels: list[set[str] | None] = []  # the keys of each open object; None for a list
        self._wants = "value"  # or "item" or "key", each of which may be a closing bracket; "colon"; "comma"

    def read(self, text: str, position: int) -> int:
        """Read from `position` on, and return where the object ends."""
        last = ""
        for token in _JSON_TOKEN.finditer(text, position):
            kind = token.lastgroup
            try:
                if kind == "blank":
                    self._pass_blank(token[0], last)
                else:
                    self._take_token(kind, token[0])
            except UnclearError:
                # A bracket, a comma or a string is whole where it ends; all others might go on behind the end.
                is_last = token.end() >= len(text) and kind in {"word", "number", "plain", "other"}
                raise UnclearError(is_cut_off=is_last or (kind == "other" and token[0] in _UNENDED)) from None
            if not self._levels:
                return token.end()
            last = kind or ""
        raise UnclearError(is_cut_off=True)

    def _pass_blank(self, blank: str, last: str) -> None:
        if blank.isspace():
            return
        # Behind a string, or with quotes in it, a comment may be the rest of a string whose quotes were not escaped.
        if (last == "string" and not blank[0].isspace()) or _QUOTE_IN_COMMENT.search(blank):
            raise UnclearError
        if blank.strip(SPACES):
            self._assumed.append("comments were left out")

    def _take_token(self, kind: str | None, token: str) -> None:
        if kind == "comma" or kind == "colon":
            self._separate_parts(kind)
        elif kind == "opening":
            self._open_bracket(token)
        elif kind == "closing":
            self._close_bracket(token)
        elif self._wants == "key":
            self._add_key(kind, token)
        else:
            self._add_value(kind, token)

    def _open_bracket(self, bracket: str) -> None:
        if self._wants not in {"value", "item"} or len(self._levels) == _DEEPEST_OBJECT:
            raise UnclearError
        self.pieces.append(bracket)
        self._levels.append(set() if bracket == "{" else None)
        self._wants = "key" if bracket == "{" else "item"

    def _close_bracket(self, bracket: str) -> None:
        if self._wants not in {"key", "item", "comma"} or (self._levels.pop() is None) != (bracket == "]"):
            raise UnclearError
        if self.pieces[-1] == ", ":
            self.pieces.pop()
            self._assumed.append("a comma before a closing bracket was left out")
        self.pieces.append(bracket)
        self._wants = "comma"

    def _separate_parts(self, kind: str) -> None:
        if self._wants != kind:
            raise UnclearError
        if kind == "colon":
            self.pieces.append(": ")
            self._wants = "value"
        else:
            self.pieces.append(", ")
            self._wants = "item" if self._levels[-1] is None else "key"

    def _add_key(self, kind: str | None, token: str) -> None:
        keys = self._levels[-1]
        if kind not in {"string", "word"} or token in NEVER_KEYS or keys is None:
            raise UnclearError
        written = to_json_string(token if kind == "string" else f'"{token}"')
        key: str = json.loads(written)
        if key in keys:
            raise UnclearError
        keys.add(key)
        if kind == "word":
            self._assumed.append("names were put into quotes")
        self._add_string(token, written)
        self._wants = "colon"

    def _add_value(self, kind: str | None, token: str) -> None:
        if self._wants not in {"value", "item"}:
            raise UnclearError
        if kind == "plain":
            self.pieces.append(token)
        elif kind == "string":
            self._add_string(token, to_json_string(token))
        elif kind == "number":
            self._add_plain(token, to_json_number(token))
        elif token in WORDS:
            self._add_plain(token, WORDS[token])
        else:
            raise UnclearError
        self._wants = "comma"

    def _add_string(self, token: str, written: str) -> None:
        if token[0] == "'":
            self._assumed.append("single quotes were taken for double ones")
        elif token[0] == '"' and written != token:
            self._assumed.append("characters in strings were escaped")
        self.pieces.append(written)

    def _add_plain(self, token: str, written: str) -> None:
        if written != token:
            self._assumed.append(f"{token} was written as {written}")
        self.pieces.append(written)


def to_json_string(token: str) -> str:
    """Return a string in quotes of any kind as JSON.

    Raises:
        UnclearError: It has an escape or a character that JSON lacks.
    """
    written = '"' + _SPECIAL.sub(_to_json_escape, token[1:-1]) + '"'
    if not written.isascii() or "\\u" in written:
        try:
            json.loads(written).encode()
        except UnicodeEncodeError:
            raise UnclearError from None
    return written


def _to_json_escape(special: re.Match[str]) -> str:
    found, escaped = special[0], special[1]
    if escaped is None:
        if found in '"\t\r\n':
            return {'"': '\\"', "\t": "\\t", "\r": "\\r", "\n": "\\n"}[found]
    elif escaped == "'":
        return "'"
    elif escaped in '"\\/bfnrt' or len(escaped) == 5:
        return found
    raise UnclearError


def to_json_number(token: str) -> str:
    """Return a number as JSON.

    Raises:
        UnclearError: It is none, or too large.
    """
    number = _LOOSE_NUMBER.fullmatch(token)
    if number is None or len(token) > _LONGEST_JSON_NUMBER:
        raise UnclearError
    sign, whole, fraction, bare_fraction, exponent = number.groups()
    written = ("-" if sign == "-" else "") + (whole or "0")
    if fraction is not None or bare_fraction is not None:
        written += "." + (fraction or bare_fraction or "0")
    written += exponent or ""
    if (fraction is not None or bare_fraction is not None or exponent) and float(written) in {_INFINITE, -_INFINITE}:
        raise UnclearError
    return written


_INFINITE = float("inf")
