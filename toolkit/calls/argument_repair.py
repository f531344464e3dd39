"""Repairs arguments that are not valid JSON, if they can be read in exactly one way; otherwise they are refused.

Two readers are tried in turn.

The first (`read_strictly`) does not know the schema. It reads the text once, token by token, and writes one token of
JSON for each, in the same order. Only the spelling changes: quotes, escapes, the words for true, false and null, and
numbers such as ``.5``. It leaves out only commas before a closing bracket, comments, repeated equal members and, around
the object, a code fence with the sentence before it, whole sentences after it, and the tokens that end a call. Nothing
is invented, merged or closed, and whatever has two readings is refused. It takes linear time.

The second (`find_readings`) follows every reading of the text, and the tool's schema must accept exactly one of them.
Each piece of the text is one piece of each reading, in order; names and values without brackets get some. The number of
steps is limited; a text that needs more has no reading.

The text around the object is judged by its place and its punctuation, never by its words.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from functools import cache, partial
from typing import Any, NamedTuple

from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser, MalformedJsonError
from toolkit.schema.arguments import (
    ArgumentsTooLargeError,
    decode_strings,
    find_dropped_nulls,
    open_budget,
    read_amount,
)
from toolkit.schema.nodes import Node, Nodes, is_array, is_object, subschemas

SPACES = " \t\r\n\ufeff\u00a0\u200b\u2060"
# White space and comments, for verbose patterns.
BLANK = r"(?: [ \t\r\n\ufeff\u00a0\u200b\u2060]++ | //[^\n]*+ | \#(?![^\s\#])[^\n]*+ | /\*.*?\*/ )++"
WRAPPERS = frozenset({"arguments", "parameters", "args", "params", "kwargs", "input"})
"""The names that call formats give to the arguments."""

LONGEST_TEXT = 2_000_000
_LONGEST_JSON_NUMBER = 300
_MOST_LEVELS = 100
_MOST_ENCODINGS = 3
_ONLY_BLANK = re.compile(BLANK, re.VERBOSE | re.DOTALL)
_END_TOKENS = re.compile(
    r"(?:\s*(?:<\|/?\w{1,40}\|>|<\uff5c[\w\u2581]{1,40}\uff5c>|</s>|<eos>|<end_of_turn>|\[/TOOL_CALLS\]"
    r"|</(?:tool_call|tool_calls|function|function_call|functioncall|tools|invoke|parameter)>))++\s*"
)
_FENCE_BEFORE = re.compile(r"(?:(`{3,}|~{3,})[A-Za-z][-\w+.]*|(`+|~{3,}))\s*\Z")
# Sentences without digits, quotes and brackets, which data is written with.
_SENTENCES = re.compile(
    r"(?:[^\W\d_]|(?<=[^\W\d_])['\u2019](?=[^\W\d_])"
    r"|[\s.,;!?*\u2026\u2013\u2014\u3001\u3002\uff01\uff0c-])*+[:\uff1a]?"
)
# Whole sentences after the object, which do not continue it.
_OWN_SENTENCES = re.compile(r"[^\W\d_].*[.!?\u2026\u3002\uff01\uff1f]", re.DOTALL)
_LABEL = re.compile(r"(\w++)\s*+[:=]")
_KNOWN_LABELS = {*WRAPPERS, "json"}
# A quote with a space behind it and none before: in a text that is no JSON, they may have been swapped.
_MISPLACED_QUOTE = re.compile(r"(?<=[:,\[{])[\"'][ ]\S")
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
_QUOTED_STRING = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL)
_LOOSE_NUMBER = re.compile(r"([-+]?)(?:(0|[1-9][0-9]*)(?:\.([0-9]*))?|\.([0-9]+))([eE][-+]?[0-9]+)?")
# A single raw line break or tab at an end: the quote may be on the wrong side of it.
_LOST_EDGE = re.compile(r".(?:[\t\r\n][^\t\r\n]*+|[^\t\r\n]*+[\t\r\n]).", re.DOTALL)
_SPECIAL = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|[\"\x00-\x1f]", re.DOTALL)
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
NEVER_KEYS = {*WORDS, "NaN", "Infinity", "nan", "inf", "undefined"}
_UNENDED = "\"'/"  # the beginnings of strings and comments without an end
_QUOTE_IN_COMMENT = re.compile(r"\"|(?<!\w)'|'(?!\w)")
_COMMENT = re.compile(r"//([^\n]*+)|\#([^\n]*+)|/\*(.*?)\*/", re.DOTALL)
# A comment that is a value or continues a sum: `# 2,` may be an item, and `10 // 3` a division.
_DATA_IN_COMMENT = re.compile(
    r"[-+*/%().,\s\]}]*+[0-9][-+*/%().,\s\]}0-9]*+|\s*+(?:true|false|null|True|False|None)[\s,\]}]*+"
)
_NAME_EDGES = " \t\r\n,;:()[]{}<>\"'`\\/#"
_DOUBLED: dict[str, tuple[int, int]] = {"": (0, 0)}  # stands for the members of an object whose braces are doubled

_LONGEST_READ = 100_000
_MOST_READING_STEPS = 20_000
_WORK_OF_STEP = 40  # microseconds
_MOST_CHARACTERS_READ = 1_000_000
_MOST_READINGS = 8
_LONGEST_KEY_READ = 100

# By opening quote, the quotes that may close it; all others are text.
_CLOSERS = {
    '"': '"', "'": "'", "`": "`", "\u201c": "\u201d\u201f\u201c", "\u201d": "\u201d", "\u201e": "\u201c\u201d",
    "\u201f": "\u201d\u201f", "\u2018": "\u2019\u201b", "\u2019": "\u2019", "\u201a": "\u2018\u2019",
    "\u201b": "\u2019\u201b", "\u00ab": "\u00bb", "\u2039": "\u203a", "\u300c": "\u300d", "\u300e": "\u300f",
    "\uff02": "\uff02", "\uff07": "\uff07",
}  # fmt: skip
_QUOTES = "".join(dict.fromkeys("".join([*_CLOSERS, *_CLOSERS.values()])))
_PLAIN_BRACKETS = str.maketrans("\uff5b\uff5d\uff3b\uff3d", "{}[]")
_GAP = rf"(?:{BLANK})?+"
# A comment directly after a string may be the rest of it.
_GAP_AFTER = rf"(?:(?=\s){BLANK})?+"
_KEY_COLON = "(?: => | [:=\uff1a\uff1d] )"
_ANY_KEY = rf"(?: [{_QUOTES}][^{_QUOTES}{{}}\[\]\n]{{1,{_LONGEST_KEY_READ}}}+[{_QUOTES}] | [\w$][-\w$]*+ )"
_KEY_BEFORE = rf"{_ANY_KEY}{_GAP}{_KEY_COLON}"
_FLAGS = re.VERBOSE | re.DOTALL
_SPACE = re.compile(_GAP, _FLAGS)
_MEMBER_NAME = re.compile(rf"({_ANY_KEY}){_GAP}{_KEY_COLON}", _FLAGS)
_AFTER_MEMBER = re.compile(
    rf"{_GAP_AFTER}(?: [}}\uff5d] | [,\uff0c]{_GAP}(?: {_KEY_BEFORE} | [}}\uff5d] ) | {_KEY_BEFORE} )",
    _FLAGS,
)
_AFTER_ITEM = re.compile(rf"{_GAP_AFTER}[,\uff0c\]\uff3d]", _FLAGS)
_NUMBER_LIKE = re.compile(r"[-+.0-9][-+.\w]*+")
# Words without quotes, up to the place of the next member or the end.
_BARE_PART = rf"(?!//|/\*|\#)[^\s,:;=(){{}}\[\]<>\\|{_QUOTES}\uff0c\uff1a\uff1b\uff08\uff09\uff5b\uff5d\uff3b\uff3d]++"
_BARE_WORDS = re.compile(rf"{_BARE_PART}(?:[ ]{_BARE_PART})*+")
_BARE_AMOUNT = re.compile(r"[-+]?+[0-9][0-9,._'\u2019 ]*+")
_FULLWIDTH = "fullwidth punctuation was read as ASCII"
_INNER_QUOTES = "quotes inside a string were kept as text"
_ESCAPED = "characters in strings were escaped"
DOUBTFUL = "a string swallowed what looks like another one"
_ADJACENT = re.compile(rf"[{_QUOTES}]\s*[{_QUOTES}]")
_QUOTE = re.compile(f"[{_QUOTES}]")
_JOINT = re.compile(r"\s*[,+;.&|]*\s*")
_MOST_NAMES_SOUGHT = 500
_NAME_OF_ANY_KIND = r"\w[-\w]*+"
# A slip may have left characters between a quote and a name, or a name and its colon.
_JUNK = r".{0,3}?"
_ITEM_INSIDE = re.compile(rf"[{_QUOTES}]\s*[,;\uff0c]|[,;\uff0c]\s*[{_QUOTES}]")
_SEPARATOR_AT_END = re.compile(r"[,;:\uff0c\uff1a\uff1b]\s*\"\Z")
_DOTTED_NAME = re.compile(r"[^\W\d]\w*[.$]|[.$_]\w*[^\W\d]")
_ENTITY_QUOTE = re.compile(r"&(?:quot|apos|\#34|\#39|\#x22|\#x27);", re.IGNORECASE | re.VERBOSE)
_LAST_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*+)\"[}\]]*+\Z")  # its last bracket may be one of the object's
_EXTRA_CLOSING = re.compile(r"\s*[}\]\uff5d\uff3d]\s*")

_RESERVED_WORDS = {word.casefold() for word in NEVER_KEYS} | {"-infinity", "+infinity", "-nan", "-inf", "..."}
_LITERALS = ("true", "false", "null", "none")
# the contents of strings

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# After a backslash these begin a character code of another language, or an incomplete one of JSON.
_MAYBE_CODES = frozenset("0123456789x")
_WHOLE_UNITS = re.compile(r"\\\\|\\u[0-9a-fA-F]{4}")
_CUT_UNIT = re.compile(r"\\u[0-9a-fA-F]")
_NOT_IN_JSON = re.compile(r"[\t\n\r]|\\'")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")

# Names and values without brackets: `city=Paris, days=3`, or `city: Paris`, each on a line of its own.
_FLAT_TEXT = re.compile(r"\s*(?:[^\W\d]\w* ?=(?!=)[^:{}\[\]]*|(?:[^\W\d]\w*:[ \t]+[^:={}\[\]\n]*(?:\n+|\Z))+)")
_TEXT_OR_NULL = frozenset({"string", "null"})
_FLAT = "names and values were read as an object"


class UnclearError(Exception):
    """The text may have another reading.

    Args:
        is_cut_off: True if the text ends before it has become wrong.
    """

    def __init__(self, *, is_cut_off: bool = False) -> None:
        self.is_cut_off: bool = is_cut_off
        super().__init__()


@dataclass(slots=True)
class Reading:
    """One reading of a broken text: its JSON, and the assumptions that it needs, in words."""

    text: str
    assumed: tuple[str, ...] = ()


def read_strictly(text: str, *, takes_prose: bool = False) -> list[Reading]:
    """Return the reading of a text, by the rules of `repair_arguments`, and those with numbers such as ``.5`` as texts.

    Args:
        text: The text.
        takes_prose: True if whole sentences may follow the object.

    Raises:
        UnclearError: There may be another reading, or the text is cut off.
    """
    if len(text) > LONGEST_TEXT:
        raise UnclearError
    assumed: list[str] = []
    texts = _read_encoded(text, _MOST_ENCODINGS, assumed, takes_prose=takes_prose)
    return [Reading(each, tuple(dict.fromkeys(assumed))) for each in texts]


def _read_encoded(text: str, encodings: int, assumed: list[str], *, takes_prose: bool = False) -> list[str]:
    text = text.strip(SPACES)
    if text in {"", "null", "None"}:
        return ["{}"]
    if text.startswith('{\\"'):
        text = f'"{text}"'  # encoded again, without the quotes around it
    if _QUOTED_STRING.fullmatch(text):
        if not encodings:
            raise UnclearError
        assumed.append("JSON in a string was decoded")
        return _read_encoded(json.loads(_to_json_string(text)), encodings - 1, assumed)
    start = text.find("{")
    if start < 0:
        raise UnclearError
    known = len(assumed)
    reader = _StrictReader(assumed)
    end = reader.read(text, start)
    if reader.may_be_misplaced and len(assumed) > known:
        raise UnclearError
    if not _is_whole_call(text[:start], text[end:], takes_prose=takes_prose):
        raise UnclearError
    if text[:start] or text[end:]:
        assumed.append("the text around the object was left out")
    return reader.list_texts()


def _is_whole_call(before: str, after: str, *, takes_prose: bool) -> bool:
    """Return whether the text around an object is only comments, a fence, an introduction and the end of a call.

    With `takes_prose`, sentences may follow that begin with no small letter and have no punctuation of data.
    """
    before, after = (_drop_comments(part) for part in (before, after))
    fence = _FENCE_BEFORE.search(before[-100:])
    if fence is not None:
        mark = fence[1] or fence[2]
        if not after.startswith(mark) and (after or len(mark) < 3):
            return False
        before, after = before[: len(before) - len(fence[0])], after.removeprefix(mark)
    has_own_lines = fence is not None and before.rstrip(" \t").endswith("\n")
    return _is_introduction(before.strip(SPACES), has_own_lines=has_own_lines) and _is_end(after, takes_prose)


def _is_introduction(text: str, *, has_own_lines: bool) -> bool:
    if (label := _LABEL.fullmatch(text)) is not None:  # `options: {...}` may be the only argument
        return label[1].casefold() in _KNOWN_LABELS
    return not text or (has_own_lines and _SENTENCES.fullmatch(text) is not None)


def _is_end(text: str, takes_prose: bool) -> bool:
    text = pass_end_tokens(text).strip(SPACES)
    if takes_prose and _SENTENCES.fullmatch(text) and _OWN_SENTENCES.fullmatch(text) and not text[0].islower():
        return True
    return not pass_end_tokens(text.removeprefix("." if text[:1] == "." else ";").strip(SPACES))


def _drop_comments(text: str) -> str:
    text = text.strip(SPACES)
    return "" if _ONLY_BLANK.fullmatch(text) is not None else text


def pass_end_tokens(text: str) -> str:
    """Return the text without the tokens at its beginning by which models end a call or a turn."""
    return text[end.end() :] if (end := _END_TOKENS.match(text)) is not None else text


def _may_be_data(blank: str, *, follows_value: bool) -> bool:
    """Return whether a comment may be data: directly after a value or with quotes it may be the rest of a value."""
    is_rest = follows_value and blank[0] in "/#"
    if is_rest or _QUOTE_IN_COMMENT.search(blank):
        return True
    return any(_DATA_IN_COMMENT.fullmatch(comment[comment.lastindex or 0]) for comment in _COMMENT.finditer(blank))


def _may_be_name(key: str) -> bool:
    """Return whether a name in a broken text surely has no character too many."""
    return key.isprintable() and key[:1] not in _NAME_EDGES and key[-1:] not in _NAME_EDGES


class _StrictReader:
    """Reads one object, with its own stack, so that nesting costs no recursion."""

    __slots__ = ("_assumed", "_levels", "_loose_numbers", "_members", "_wants", "may_be_misplaced", "pieces")

    def __init__(self, assumed: list[str]) -> None:
        self.pieces: list[str] = []
        self.may_be_misplaced = False  # true if a quote may be, which is only assumed in a text that is no JSON
        self._assumed = assumed
        # By open object, the places of its members' values in `pieces`; None for a list.
        self._levels: list[dict[str, tuple[int, int]] | None] = []
        self._loose_numbers: dict[int, str] = {}  # those that are no JSON, by their places in `pieces`
        self._members: list[tuple[str, int]] = []  # the name of each open member, and the place of its first piece
        # Or "item" or "key", which a closing bracket may replace; "colon", "comma", "part" of a string, "brace".
        self._wants = "value"

    def read(self, text: str, position: int) -> int:
        """Read the object at `position`, and return its end."""
        last = ""
        for token in _JSON_TOKEN.finditer(text, position):
            kind = token.lastgroup
            try:
                if kind == "blank":
                    self._pass_blank(token[0], last)
                else:
                    self._take_token(kind, token[0])
            except UnclearError:
                # Brackets, commas and strings are complete; any other token may be the beginning of a longer one.
                is_last = token.end() >= len(text) and kind in {"word", "number", "plain", "other"}
                raise UnclearError(is_cut_off=is_last or (kind == "other" and token[0] in _UNENDED)) from None
            if not self._levels:
                return token.end()
            last = kind or ""
            if last == "string" and _MISPLACED_QUOTE.match(text, token.start()):
                self.may_be_misplaced = True
        raise UnclearError(is_cut_off=True)

    def list_texts(self) -> list[str]:
        """Return the JSON, and that with the loose numbers as texts: all of them, and each of the first ones alone."""
        loose = {place: f'"{token}"' for place, token in self._loose_numbers.items() if place < len(self.pieces)}
        alone = [{place: token} for place, token in [*loose.items()][:_MOST_READINGS]] if len(loose) > 1 else []
        nothing: dict[int, str] = {}
        ways = [nothing, loose, *alone] if loose else [nothing]
        return ["".join([quoted.get(place, piece) for place, piece in enumerate(self.pieces)]) for quoted in ways]

    def _pass_blank(self, blank: str, last: str) -> None:
        if blank.strip(SPACES):
            if _may_be_data(blank, follows_value=last in {"string", "plain", "number", "word"}):
                raise UnclearError
            self._assumed.append("comments were left out")
        elif not blank.isspace():
            self._assumed.append("invisible characters were left out")

    def _take_token(self, kind: str | None, piece: str) -> None:
        if kind == "comma" or kind == "colon":
            self._separate_parts(kind)
        elif piece == ";" and self._wants == "comma" and self._levels[-1] is not None:
            self._wants = "semicolon"
        elif self._wants == "semicolon" and kind in {"string", "word"}:
            self._wants = "comma"
            self._separate_parts("comma")
            self._add_key(kind, piece)
            self._assumed.append("a semicolon was read as a comma")
        elif piece == "+" and self._wants == "comma" and self.pieces[-1][0] == '"':
            self._wants = "part"
        elif kind == "opening":
            self._open_bracket(piece)
        elif kind == "closing":
            self._close_bracket(piece)
        elif self._wants == "key":
            self._add_key(kind, piece)
        else:
            self._add_value(kind, piece)

    def _open_bracket(self, bracket: str) -> None:
        is_second = bracket == "{" and self._wants == "key" and self.pieces[-1] == "{"
        if is_second and self._levels[-2:-1] != [_DOUBLED]:
            self._levels.insert(-1, _DOUBLED)  # a template's brace, closed by two
            self._assumed.append("doubled braces were read as single ones")
            return
        if self._wants not in {"value", "item"} or len(self._levels) >= _MOST_LEVELS:
            raise UnclearError
        self.pieces.append(bracket)
        self._levels.append({} if bracket == "{" else None)
        self._wants = "key" if bracket == "{" else "item"

    def _close_bracket(self, bracket: str) -> None:
        if self._wants == "brace" and bracket == "}":
            self._levels.pop()
            self._wants = "comma"
            return
        if self._wants not in {"key", "item", "comma"} or (self._levels[-1] is None) != (bracket == "]"):
            raise UnclearError
        if self._wants == "comma":
            self._end_member()
        self._levels.pop()
        if self.pieces[-1] == ", ":
            self.pieces.pop()
            self._assumed.append("a comma before a closing bracket was left out")
        self.pieces.append(bracket)
        self._wants = "brace" if self._levels and self._levels[-1] == _DOUBLED else "comma"

    def _end_member(self) -> None:
        """Leave out a repeated member if it is equal to the first one."""
        members = self._levels[-1]
        if members is None:
            return
        key, start = self._members.pop()
        place = (start + 2, len(self.pieces))
        before = members.setdefault(key, place)
        if before != place:
            one, other = (json.loads("".join(self.pieces[slice(*where)])) for where in (before, place))
            if repr(one) != repr(other):
                raise UnclearError
            del self.pieces[start - 1 :]
            self._assumed.append("a repeated member was left out")

    def _separate_parts(self, kind: str) -> None:
        if self._wants != kind:
            raise UnclearError
        if kind == "colon":
            self.pieces.append(": ")
            self._wants = "value"
        else:
            self._end_member()
            self.pieces.append(", ")
            self._wants = "item" if self._levels[-1] is None else "key"

    def _add_key(self, kind: str | None, token: str) -> None:
        if kind not in {"string", "word"} or token in NEVER_KEYS or self._levels[-1] is None:
            raise UnclearError
        written = _to_json_string(token if kind == "string" else f'"{token}"')
        key: str = json.loads(written)
        if not _may_be_name(key):
            raise UnclearError
        self._members.append((key, len(self.pieces)))
        if kind == "word":
            self._assumed.append("names were quoted")
        self._add_string(token, written)
        self._wants = "colon"

    def _add_value(self, kind: str | None, token: str) -> None:
        if self._wants == "part" and kind == "string":
            self.pieces[-1] = self.pieces[-1][:-1] + _to_json_string(token)[1:]
            self._assumed.append("strings joined by + were read as one")
            self._wants = "comma"
            return
        if self._wants not in {"value", "item"}:
            raise UnclearError
        if kind == "plain":
            self.pieces.append(token)
        elif kind == "string":
            self._add_string(token, _to_json_string(token))
        else:
            written = _read_number(token) if kind == "number" else WORDS.get(token)
            if written is None:
                raise UnclearError
            self._assumed += _note_spelling(token, written)
            if kind == "number" and written != token:
                self._loose_numbers[len(self.pieces)] = token
            self.pieces.append(written)
        self._wants = "comma"

    def _add_string(self, token: str, written: str) -> None:
        if token[0] == "'":
            self._assumed.append("single quotes were read as double quotes")
        elif token[0] == '"' and written != token:
            self._assumed.append(_ESCAPED)
        self.pieces.append(written)


def _to_json_string(token: str) -> str:
    """Return a string with single or double quotes as JSON.

    Raises:
        UnclearError: It has an escape or a character that JSON lacks, or its end may be on the next line.
    """
    if _LOST_EDGE.fullmatch(token):
        raise UnclearError
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


def _read_number(token: str) -> str | None:
    """Return a number as JSON; None if it is none, or too large."""
    number = _LOOSE_NUMBER.fullmatch(token)
    if number is None or len(token) > _LONGEST_JSON_NUMBER:
        return None
    sign, whole, fraction, bare_fraction, exponent = number.groups()
    written = ("-" if sign == "-" else "") + (whole or "0")
    if fraction is not None or bare_fraction is not None:
        written += "." + (fraction or bare_fraction or "0")
    written += exponent or ""
    return None if not written.lstrip("-").isdecimal() and math.isinf(float(written)) else written


@dataclass(slots=True)
class RepairStep:
    """One step of a repair.

    Args:
        kind: ``text`` if the text was repaired, ``values`` if values in it were.
        after: The arguments after this step, as JSON.
        assumed: The assumptions, in words.
    """

    kind: Any
    after: str
    assumed: tuple[str, ...]


def repair_to_fit(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError, *, tool_name: str = ""
) -> tuple[dict[str, Any], list[RepairStep]]:
    """Return the arguments that a refused text must mean, and the steps of the repair.

    Args:
        text: The text, as the model wrote it.
        parser: The parser of the tool.
        error: The refusal of the parser.
        tool_name: The name of the tool, for a model that wrote a whole call in place of the arguments.

    Raises:
        TooMuchWorkError: It takes more steps than the current trial allows.
        InvalidArgumentsError: No reading fits the schema, or several do; the message is for the model.
    """
    if isinstance(error, ArgumentsTooLargeError):
        raise error
    if not isinstance(error, MalformedJsonError):
        return _repair_values(text, parser, error, tool_name)
    try:
        readings, is_strict = read_strictly(text, takes_prose=True), True
    except UnclearError as unclear:
        if unclear.is_cut_off:
            raise error from None
        if (bare := _read_bare_text(text)) is not None:
            return _repair_values(bare, parser, error, tool_name)
        readings, is_strict = find_readings(text, parser.nodes), False
    return _choose_reading(readings, parser, error, tool_name, is_strict=is_strict)


def _choose_reading(
    readings: list[Reading], parser: ArgumentsParser, error: InvalidArgumentsError, tool_name: str, *, is_strict: bool
) -> tuple[dict[str, Any], list[RepairStep]]:
    """Return the only reading that the schema accepts, after a repair of values if it accepts none without.

    The problems of a strict reading are raised; the others only make it ambiguous.
    """
    for repairs_values in (False, True):
        found: dict[str, tuple[dict[str, Any], list[RepairStep]]] = {}
        for reading in readings:
            first = RepairStep("text", reading.text, reading.assumed)
            try:
                if repairs_values:
                    arguments, more = _repair_values(reading.text, parser, error, tool_name if is_strict else "")
                else:
                    arguments, more = parser.parse_json(reading.text), list[RepairStep]()
            except InvalidArgumentsError as refusal:
                if is_strict and reading is readings[0] and not isinstance(refusal, MalformedJsonError):
                    error = refusal
                continue
            found.setdefault(parser.dump_json(arguments, reveal_secrets=True), (arguments, [first, *more]))
        if len(found) > 1:
            raise MalformedJsonError(f"{error.message} It can be read in more than one way.")
        for arguments, steps in found.values():
            if DOUBTFUL in steps[0].assumed:
                break
            return arguments, steps
    raise error


def _read_bare_text(text: str) -> str | None:
    """Return a text that is a single-quoted string or a word for true, false or null as JSON, else None."""
    text = text.strip(SPACES)
    if text in WORDS:
        return WORDS[text]
    if not _QUOTED_STRING.fullmatch(text) or text[0] != "'":
        return None
    try:
        return _to_json_string(text)
    except UnclearError:
        return None


def _repair_values(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError, tool_name: str
) -> tuple[dict[str, Any], list[RepairStep]]:
    value = json.loads(text.strip() or "{}")  # the parser also strips vertical tabs
    for candidate, assumed in _list_other_values(value, parser, tool_name):
        try:
            arguments = parser.parse(candidate)
        except InvalidArgumentsError as still_wrong:
            # The problems after a step say more than those before it.
            error = still_wrong if candidate is not value and is_object(candidate) and is_object(value) else error
            continue
        return arguments, [RepairStep("values", json.dumps(candidate, ensure_ascii=False), assumed)]
    raise error


def _list_other_values(value: Any, parser: ArgumentsParser, tool_name: str) -> Iterator[tuple[Any, tuple[str, ...]]]:
    for candidate, assumed in ((value, ()), *_list_inner_values(value, parser, tool_name)):
        if assumed:
            yield candidate, assumed
        assumptions = list(assumed)
        decoded = decode_strings(parser, candidate, assumed=assumptions)
        if decoded is not None:
            yield decoded, tuple(assumptions)


def _list_inner_values(value: Any, parser: ArgumentsParser, tool_name: str) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the arguments that a value may contain, or that it may be a part of."""
    unwrapped = _unwrap_arguments(value, parser, tool_name)
    if unwrapped is not None:
        inner, assumed = unwrapped
        yield inner, (assumed,)
    properties = parser.schema.get("properties", {})
    if len(properties) == 1 and value is not None and not is_object(value):
        (name,) = properties
        yield {name: value}, (f'the value was read as "{name}"',)


def _unwrap_arguments(value: Any, parser: ArgumentsParser, tool_name: str) -> tuple[Any, str] | None:
    if is_array(value) and len(value) == 1 and is_object(value[0]):
        return value[0], "the list around the only object was left out"
    if not is_object(value):
        return None
    rest = {key: item for key, item in value.items() if not (key == "name" and item == tool_name)}
    if len(rest) != 1:
        return None
    ((name, inner),) = rest.items()
    nodes = parser.nodes
    is_known = any(name in choice.get("properties", {}) for choice in nodes.choices(nodes.root))
    if name not in WRAPPERS or is_known:
        return None
    if isinstance(inner, str):
        try:
            inner = json.loads(read_strictly(inner)[0].text)
        except UnclearError:
            return None
    return (inner, f'the object under "{name}" was read as the arguments') if is_object(inner) else None


def explain_nulls(text: str, parser: ArgumentsParser) -> RepairStep | None:
    """Return the step that read null for parameters with a default as left out; None if there was none."""
    try:
        value = json.loads(text)
        paths = find_dropped_nulls(parser.nodes, value) if is_object(value) else []
    except (ValueError, RecursionError):
        return None
    if not paths:
        return None
    for path in paths:
        container: Any = value
        for key in path[:-1]:
            container = container[key]
        del container[path[-1]]
    names = [".".join(map(str, path)) for path in paths]
    assumed = tuple([f"{name}: null was read as left out" for name in names])
    return RepairStep("values", json.dumps(value, ensure_ascii=False), assumed)


class _Level(NamedTuple):
    """An open object or list: its schema, and its names or size so far."""

    outer: _Level | None
    is_object: bool
    node: Node
    names: frozenset[str]
    size: int
    depth: int


class _ReadingPlace(NamedTuple):
    """The progress of one reading."""

    position: int
    wants: str
    level: _Level | None
    value_node: Node
    written: Any  # (the pieces before, this piece), so that readings share their beginnings
    assumed: frozenset[str]


def find_readings(text: str, nodes: Nodes) -> list[Reading]:
    """Return every reading of a text that `read_strictly` refused; none if there would be too many steps.

    A reading that assumes `DOUBTFUL` is never accepted; it only makes others ambiguous.

    Args:
        text: The text that a model sent as arguments. It must not be cut off.
        nodes: The schema of the arguments.
    """
    if len(text) > _LONGEST_READ:
        return []
    before = frozenset[str]()
    if _FLAT_TEXT.fullmatch(text):
        text, before = f"{{{text}\n}}", frozenset({_FLAT})
    if '"' not in text and _ENTITY_QUOTE.search(text):
        text = html.unescape(text)
        before = frozenset({"HTML entities were decoded"})
        try:
            return [Reading(each.text, (*before,)) for each in read_strictly(text)]
        except UnclearError as error:
            if error.is_cut_off:
                return []
    for takes_any_closer in (False, True):
        found = _Search(text, nodes, takes_any_closer=takes_any_closer).run(before)
        if found is None or found:
            return found or []
    return []


class _Search:
    def __init__(self, text: str, nodes: Nodes, *, takes_any_closer: bool) -> None:
        self.text = text
        self.nodes = nodes
        self.takes_any_closer = takes_any_closer
        self.member_inside = _compile_member(nodes)
        self.left = _MOST_CHARACTERS_READ

    def run(self, assumed: frozenset[str]) -> list[Reading] | None:
        """Return the readings; None if there are too many.

        Raises:
            TooMuchWorkError: It takes more steps than the current trial allows.
        """
        budget = open_budget()
        start = re.search(r"[{\[\uff5b\uff3b]", self.text)
        if start is None:
            return []
        found: dict[str, Reading] = {}
        root = self.nodes.root if start[0] in "{\uff5b" else {"type": "array", "items": self.nodes.root}
        waiting = [_ReadingPlace(start.start(), "value", None, root, None, assumed)]
        for _ in range(_MOST_READING_STEPS):
            if self.left < 0:
                return None
            if budget.is_trial:
                budget.spend(_WORK_OF_STEP)
            if not waiting:
                return list(found.values())
            place = waiting.pop()
            if place.level is None and place.written is not None:
                reading = self._finish_reading(place, start.start())
                if reading is not None:
                    found.setdefault(reading.text, reading)
                    if len(found) > _MOST_READINGS:
                        return None
            else:
                waiting += self._take_steps(place)
        return None

    def _finish_reading(self, place: _ReadingPlace, start: int) -> Reading | None:
        pieces: list[str] = []
        written = place.written
        while written is not None:
            written, piece = written
            pieces.append(piece)
        whole = "".join(reversed(pieces))
        after = self.text[place.position :]
        assumed = place.assumed
        if _INNER_QUOTES in assumed and '\\"' in self.text:  # either all inner quotes are escaped, or none
            assumed |= {DOUBTFUL}
        if (once := _EXTRA_CLOSING.match(after)) is not None and _is_balanced("".join(_LAST_STRING.findall(whole))):
            assumed |= {"an extra closing bracket was left out"}
            after = after[once.end() :]
        elif self._is_repeated(whole, pass_end_tokens(after)):
            assumed |= {"a repetition of the object was left out"}
            after = ""
        if after.strip() or start:
            assumed |= {"the text around the object was left out"}
        is_call = _is_whole_call(self.text[:start], after, takes_prose=True)
        return Reading(whole, tuple(sorted(assumed))) if is_call else None

    def _is_repeated(self, whole: str, after: str) -> bool:
        if not after.strip():
            return False
        try:
            again = read_strictly(after)[0].text
        except UnclearError:
            return False
        return after.lstrip()[:1] == "{" and json.loads(again) == json.loads(whole)

    def _take_steps(self, place: _ReadingPlace) -> Iterator[_ReadingPlace]:
        space = _SPACE.match(self.text, place.position)
        position = place.position if space is None else space.end()
        if blank := self.text[place.position : position].strip(SPACES):
            doubt = {DOUBTFUL} if _may_be_data(blank, follows_value=False) else set[str]()
            place = place._replace(assumed=place.assumed | {"comments were left out"} | doubt)
        place = place._replace(position=position)
        character = self.text[position : position + 1].translate(_PLAIN_BRACKETS)
        match place.wants:
            case "comma":
                yield from self._read_separators(place, character)
            case "key":
                if character == "}":
                    yield self._close_level(place, character)
                yield from self._read_keys(place)
            case "item" if character == "]":
                yield self._close_level(place, character)
            case _:
                yield from self._read_values(place, character)

    def _read_separators(self, place: _ReadingPlace, character: str) -> Iterator[_ReadingPlace]:
        level = place.level
        if level is None:
            return
        if character == ("}" if level.is_object else "]"):
            yield self._close_level(place, character)
        elif character and character in ",\uff0c":
            wants = "key" if level.is_object else "item"
            assumed = "" if character == "," else _FULLWIDTH
            yield self._write_piece(place, ", ", place.position + 1, wants, assumed=assumed)
        elif (
            level.is_object
            and _MEMBER_NAME.match(self.text, place.position)
            and not _SEPARATOR_AT_END.search(place.written[1])  # which then has the separator inside
        ):
            yield from self._read_keys(
                self._write_piece(place, ", ", place.position, "key", assumed="a missing comma was added")
            )

    def _close_level(self, place: _ReadingPlace, bracket: str) -> _ReadingPlace:
        level, written, assumed = place.level, place.written, place.assumed
        if written is not None and written[1] == ", ":
            written, assumed = written[0], assumed | {"a comma before a closing bracket was left out"}
        if self.text[place.position] != bracket:
            assumed |= {_FULLWIDTH}
        outer = level.outer if level is not None else None
        return _ReadingPlace(place.position + 1, "comma", outer, {}, (written, bracket), assumed)

    def _write_piece(self, place: _ReadingPlace, piece: str, end: int, wants: str, *, assumed: str) -> _ReadingPlace:
        more = place.assumed | {assumed} if assumed else place.assumed
        return place._replace(position=end, wants=wants, written=(place.written, piece), assumed=more)

    def _read_keys(self, place: _ReadingPlace) -> Iterator[_ReadingPlace]:
        level = place.level
        name = _MEMBER_NAME.match(self.text, place.position)
        if name is None or level is None:
            return
        key = self._find_key(name[1])
        if key is None or key in level.names or not self._may_have(place, level.node, key) or not _may_be_name(key):
            return
        yield _ReadingPlace(
            name.end(),
            "value",
            level._replace(names=level.names | {key}),
            self.nodes.at_key(level.node, key),
            (place.written, f"{json.dumps(key, ensure_ascii=False)}: "),
            place.assumed | _note_key_spelling(name[1], colon=name[0][-1]),
        )

    def _find_key(self, token: str) -> str | None:
        """Return the key in a token before a colon, quoted or not; None if it can't be a key."""
        if token[0] not in _QUOTES:
            return None if token in NEVER_KEYS or token[0].isdecimal() else token
        is_closed = self.takes_any_closer or token[-1] in _CLOSERS.get(token[0], "")
        return token[1:-1] if is_closed and "\\" not in token[1:-1] else None

    def _may_have(self, place: _ReadingPlace, node: Node, key: str) -> bool:
        is_flat = _FLAT in place.assumed  # each name must be one of the schema
        for choice in self.nodes.choices(node):
            if key in choice.get("properties", {}):
                return True
            if not is_flat and choice.get("additionalProperties", True) is not False:
                return True
        return False

    def _read_values(self, place: _ReadingPlace, character: str) -> Iterator[_ReadingPlace]:
        node = place.value_node
        if place.wants == "item" and place.level is not None:
            node = self.nodes.at_key(place.level.node, place.level.size)
        if not character:
            return
        if character in "{[":
            yield from self._open_level(place, character, node)
        elif character in _QUOTES:
            for end, piece, assumed in self._read_strings(place):
                yield self._add_value(place, piece, end, assumed)
        else:
            for end, piece, assumed in self._read_plain_value(place, node):
                yield self._add_value(place, piece, end, assumed)

    def _add_value(self, place: _ReadingPlace, piece: str, end: int, assumed: frozenset[str]) -> _ReadingPlace:
        level = place.level
        level = level._replace(size=level.size + 1) if level is not None else None
        return _ReadingPlace(end, "comma", level, {}, (place.written, piece), place.assumed | assumed)

    def _open_level(self, place: _ReadingPlace, bracket: str, node: Node) -> Iterator[_ReadingPlace]:
        outer = place.level
        depth = 1 if outer is None else outer.depth + 1
        if depth > _MOST_LEVELS:
            return
        if outer is not None:
            outer = outer._replace(size=outer.size + 1)
        is_object = bracket == "{"
        level = _Level(outer, is_object, node, frozenset(), 0, depth)
        is_plain = self.text[place.position] == bracket
        assumed = place.assumed if is_plain else place.assumed | {_FULLWIDTH}
        written = (place.written, bracket)
        yield _ReadingPlace(place.position + 1, "key" if is_object else "item", level, {}, written, assumed)

    def _read_strings(self, place: _ReadingPlace) -> Iterator[tuple[int, str, frozenset[str]]]:
        opening = self.text[place.position]
        closers = _QUOTES if self.takes_any_closer else _CLOSERS.get(opening, "")
        is_member = place.level is not None and place.level.is_object
        following = _AFTER_MEMBER if is_member else _AFTER_ITEM
        has_inner = False
        for token in _compile_closers(closers).finditer(self.text, place.position + 1):
            if len(token[0]) == 2:
                continue
            end = token.end()
            raw = self.text[place.position + 1 : end - 1]
            is_end = following.match(self.text, end) is not None
            self.left -= len(raw) if is_end else 0
            if is_end and self.left >= 0 and (not has_inner or _is_balanced(raw)):
                assumed = self._note_inner_quotes(raw, closers, is_member=is_member) if has_inner else set[str]()
                if opening != '"' or token[0] != '"':
                    assumed.add("quotes were corrected")
                may_be_misplaced = _MISPLACED_QUOTE.match(self.text, place.position) is not None
                for piece, more in _read_contents(raw, may_be_misplaced=may_be_misplaced):
                    yield end, piece, frozenset({*assumed, *more})
            has_inner = True

    def _note_inner_quotes(self, raw: str, closers: str, *, is_member: bool) -> set[str]:
        """Return the assumption that quotes inside a string are text, doubtful if they may delimit another string."""
        crossing = self.member_inside if is_member else _ITEM_INSIDE
        core = raw.strip(SPACES + ",;:")
        at_an_end = core[:1] in _QUOTES or core[-1:] in _QUOTES
        is_doubtful = (
            (at_an_end and sum(map(raw.count, closers)) % 2 == 1)
            or self.takes_any_closer
            or _ADJACENT.search(raw)
            or crossing.search(raw)
            # Whole strings, and only punctuation between them.
            or all(_JOINT.fullmatch(part) for part in _QUOTE.split(raw)[1::2])
        )
        return {_INNER_QUOTES, DOUBTFUL} if is_doubtful else {_INNER_QUOTES}

    def _read_plain_value(self, place: _ReadingPlace, node: Node) -> Iterator[tuple[int, str, frozenset[str]]]:
        types = self.nodes.types(node)
        is_text = "string" in types and types <= _TEXT_OR_NULL
        number = _NUMBER_LIKE.match(self.text, place.position)
        written = None if number is None else _read_number(number[0])
        if number is not None and written is not None and self._is_value_end(place, number.end()):
            if written != number[0] and "string" in types:
                return  # it may be a text
            yield number.end(), written, _note_spelling(number[0], written)
            return
        bare = _BARE_WORDS.match(self.text, place.position)
        if bare is not None and bare[0] in WORDS:
            yield bare.end(), WORDS[bare[0]], _note_spelling(bare[0], WORDS[bare[0]])
            return
        if not is_text:
            yield from self._read_amounts(place, node)
        elif bare is not None and _is_text(bare[0], node, self.nodes) and self._is_value_end(place, bare.end()):
            yield bare.end(), json.dumps(bare[0], ensure_ascii=False), frozenset({"words were quoted"})

    def _is_value_end(self, place: _ReadingPlace, end: int) -> bool:
        is_member = place.level is not None and place.level.is_object
        return (_AFTER_MEMBER if is_member else _AFTER_ITEM).match(self.text, end) is not None

    def _read_amounts(self, place: _ReadingPlace, node: Node) -> Iterator[tuple[int, str, frozenset[str]]]:
        amount = _BARE_AMOUNT.match(self.text, place.position)
        if amount is None or place.level is None or not place.level.is_object:
            return
        written = amount[0].rstrip(", ")
        value = read_amount(written, node, self.nodes)
        end = place.position + len(written)
        if value is not None and self._is_value_end(place, end):
            yield end, json.dumps(value), _note_spelling(written, str(value))


@cache
def _compile_closers(closers: str) -> re.Pattern[str]:
    return re.compile(rf"\\.|[{re.escape(closers)}]" if closers else r"(?!)", re.DOTALL)


def _is_text(words: str, node: Node, nodes: Nodes) -> bool:
    """Return whether words without quotes are a text: a value of the schema, or no identifier, placeholder or literal.

    Names of variables begin with a small letter, those of constants and placeholders are in capitals: ``Lima`` and
    ``New York`` are texts; ``recipient``, ``TODO``, ``user.name`` and ``0null`` are not.
    """
    if any(words in choice.get("enum", ()) or words == choice.get("const") for choice in nodes.choices(node)):
        return True
    folded = words.casefold()
    names = {name.casefold() for choice in nodes.choices(nodes.root) for name in choice.get("properties", ())}
    if folded in names | _RESERVED_WORDS or "_" in words or _DOTTED_NAME.search(words) or _is_misspelled(folded):
        return False
    is_path = words[0] == "/" and words[1:2].isalnum()
    return is_path or (words[0].isalnum() and not words[0].islower() and not (words.isalpha() and words.isupper()))


def _is_misspelled(word: str) -> bool:
    """Return whether a word has the letters of a literal, or one more or one less."""
    letters = Counter(word)
    return any(((known := Counter(each)) - letters).total() + (letters - known).total() <= 1 for each in _LITERALS)


def _note_spelling(token: str, written: str) -> frozenset[str]:
    return frozenset() if token == written else frozenset({f"{token} was written as {written}"})


def _note_key_spelling(token: str, *, colon: str) -> frozenset[str]:
    assumed: set[str] = set()
    if token[0] != '"' or token[-1] != '"':
        assumed.add("quotes were corrected" if token[0] in _QUOTES else "names were quoted")
    if colon != ":":
        assumed.add(_FULLWIDTH if colon > "\xff" else "= was read as a colon")
    return frozenset(assumed)


def _compile_member(nodes: Nodes) -> re.Pattern[str]:
    """Return the pattern of a member that a string may have swallowed: a name next to a quote, and a colon."""
    names: set[str] = set()
    waiting, is_open = [nodes.root], False
    while waiting:
        node = waiting.pop()
        if "properties" in node or node.get("type") == "object":
            names.update(node.get("properties", ()))
            is_open = is_open or node.get("additionalProperties", True) is not False
        waiting.extend(subschemas(node))
    quote = f"[{_QUOTES}]"
    if is_open or len(names) > _MOST_NAMES_SOUGHT:
        name, within = ".", _NAME_OF_ANY_KIND
    else:
        name = "|".join(map(re.escape, names))
        within = "|".join(r"\W?".join(map(re.escape, each)) for each in names)
    touches = rf"{quote}{_JUNK}(?:{within})|(?:{name}){quote}|(?=\w{{0,80}}{quote})(?:{within})"
    parts = rf"|{quote}\s*[,;]\s*{quote}" if is_open else ""
    return re.compile(rf"(?:{touches}){_JUNK}[:=\uff1a\uff1d]{parts}", re.DOTALL)


def _read_contents(raw: str, *, may_be_misplaced: bool = False) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the readings of a text between two quotes; escapes that JSON lacks are backslashes of the text."""
    if may_be_misplaced:
        yield from _read_contents(raw[1:])
    if _CONTROL_CHARACTERS.search(raw) or _LOST_EDGE.fullmatch(f'"{raw}"'):
        return
    escapes = {escape[1] for escape in _ESCAPE.finditer(raw)}
    unknown = {escape for escape in escapes if len(escape) == 1 and escape not in _PLAIN_ESCAPES}
    if not unknown.isdisjoint(_MAYBE_CODES) or _CUT_UNIT.search(_WHOLE_UNITS.sub("", raw)):
        return
    assumed = ("backslashes were kept as text",) if unknown else (_ESCAPED,) if _NOT_IN_JSON.search(raw) else ()
    # Beside an unknown escape, the known ones may be backslashes as well.
    ways = [unknown, escapes - {'"', "'"}] if unknown else [unknown]
    for literal in dict.fromkeys(map(frozenset, ways)):
        text = _ESCAPE.sub(partial(_unescape_one, literal=literal), raw)
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            continue
        yield json.dumps(text, ensure_ascii=False), assumed


def _is_balanced(text: str) -> bool:
    """Return whether the brackets in a text match; if not, a string may have swallowed its own end."""
    awaited: list[str] = []
    for found in re.finditer(r"[{}\[\]]", text):  # in most texts that are not balanced, the first one says so
        character = found[0]
        if character in "{[":
            awaited.append("}" if character == "{" else "]")
        elif not awaited or awaited.pop() != character:
            return False
    return not awaited


def _unescape_one(match: re.Match[str], *, literal: Set[str]) -> str:
    escape = match[1]
    if escape in {'"', "'"}:
        return escape
    if escape in literal:
        return match[0]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _PLAIN_ESCAPES[escape]


def repair_arguments(text: str) -> str | None:
    """Return `text` as a JSON object if that is its only reading, else None.

    Accepted are an object in a code fence, which a sentence on the lines before may introduce, single quotes, unquoted
    keys, trailing commas, comments, ``True``, ``False`` and ``None``, raw line breaks in strings, ``+1``, ``.5`` and
    ``5.``, and all of that encoded again as a string, up to three times. An empty text or ``null`` is an empty object.

    None is returned for text that is cut off; that lacks a comma, a quote or a bracket, or has one too many; for
    repeated keys, unknown escapes and words, NaN and infinite numbers, numbers with leading zeros or more than 300
    digits, lone surrogates, control characters, data outside of the object, more than 100 levels or 2 million
    characters. It takes linear time, and never raises.
    """
    try:
        return read_strictly(text)[0].text
    except UnclearError:
        return None


def list_readings(text: str, schemas: Sequence[object]) -> list[str]:
    """Return the JSON of all readings of a text, for those who look for secrets in it; none where there are too many.

    Args:
        text: The text that a model sent as arguments.
        schemas: Those of the tools that may be called, as `Nodes`; what only a schema makes readable needs one.
    """
    try:
        return [reading.text for reading in read_strictly(text, takes_prose=True)]
    except UnclearError:
        known = [each for each in schemas if isinstance(each, Nodes)]
        if not known or any(each.root != known[0].root for each in known):
            return []
        return [reading.text for reading in find_readings(text, known[0])]
