"""Arguments that are broken JSON: taken where they can be read in one way only, else refused.

First without the schema: the text is read by a tolerant reader of our own rather than by one that always finds an
answer: it goes through the text token by token, once, and each becomes one token of the answer, in the same order.
Only spelling changes: quotes, escapes, the words for true, false and null, and numbers such as ``.5``. All that is ever
left out is a comma before a closing bracket, comments, a member that stands there twice, and around the object a code
fence with the sentence that introduces it, sentences behind it, and what ends a call. So nothing is invented, merged or
closed that was left open; what can be read in two ways is not read at all.

What stands around the object is judged by its place and its signs, never by its words.

Then, where that has no answer, all readings, of which the tool's schema may take exactly one: where the text goes on in
two ways, both are followed. Each piece of the text stays one piece of each reading, in its order. The
search has a bound of steps; a text that needs more has no reading.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser, MalformedJsonError
from toolkit.schema.arguments import decode_strings, find_dropped_nulls, open_budget, read_amount
from toolkit.schema.nodes import ALL_TYPES, Node, Nodes, is_array, is_object, subschemas

SPACES = " \t\r\n\ufeff\u00a0\u200b\u2060"
# White space and comments, as part of a verbose pattern.
BLANK = r"(?: [ \t\r\n\ufeff\u00a0\u200b\u2060]++ | //[^\n]*+ | \#(?![^\s\#])[^\n]*+ | /\*.*?\*/ )++"
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


def read_surely(text: str, *, takes_prose: bool = False) -> Reading:
    """Do what `repair_arguments` does, and say what was assumed.

    Args:
        text: The text.
        takes_prose: True where whole sentences may follow the object.

    Raises:
        UnclearError: It may mean something else, or is cut off.
    """
    if len(text) > LONGEST_TEXT:
        raise UnclearError
    assumed: list[str] = []
    mended = _read_encoded(text, _MOST_ENCODINGS, assumed, takes_prose=takes_prose)
    return Reading(mended, tuple(dict.fromkeys(assumed)))


def _read_encoded(text: str, encodings: int, assumed: list[str], *, takes_prose: bool = False) -> str:
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
    check_surroundings(text[:start], text[end:], takes_prose=takes_prose)
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
# Behind the object, sentences of their own: they go on with nothing, and are whole.
_OWN_SENTENCES = re.compile(r"[^\W\d_].*[.!?\u2026\u3002\uff01\uff1f]", re.DOTALL)
_LABEL = re.compile(r"(\w++)\s*+[:=]")
_KNOWN_LABELS = {*WRAPPERS, "json"}


def check_surroundings(before: str, after: str, *, takes_prose: bool = False) -> None:
    """Raise unless there is nothing around the object but comments, a fence, and what introduces or ends a call.

    With `takes_prose`, sentences may follow that begin with no small letter and have no sign that data is written with.
    """
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
    if takes_prose and _SENTENCES.fullmatch(after) and _OWN_SENTENCES.fullmatch(after) and not after[0].islower():
        return
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
# One raw line break or tab, at an end: the quote may stand on the wrong side of it.
_LOST_EDGE = re.compile(r".(?:[\t\r\n][^\t\r\n]*+|[^\t\r\n]*+[\t\r\n]).", re.DOTALL)
_SPECIAL = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|[\"\x00-\x1f]", re.DOTALL)
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
NEVER_KEYS = {*WORDS, "NaN", "Infinity", "nan", "inf", "undefined"}


_UNENDED = "\"'/"  # what begins a string or a comment that has no end
_QUOTE_IN_COMMENT = re.compile(r"\"|(?<!\w)'|'(?!\w)")


# A comment that is a value, or goes on with a sum: `# 2,` may be an item, and `10 // 3` a division.
_DATA_IN_COMMENT = re.compile(
    r"(?://|\#|/\*)[ \t]*+"
    r"(?:[-+*/%().,\s\]}]*+[0-9][-+*/%().,\s\]}0-9]*+|(?:true|false|null|True|False|None)[\s,\]}]*+)(?:\*/|\n|\Z)"
)
_NAME_EDGES = " \t\r\n,;:()[]{}<>\"'`\\/#"
_DOUBLED: dict[str, tuple[int, int]] = {"": (0, 0)}  # in place of the members of an object


def _check_blank(blank: str, *, follows_value: bool) -> None:
    """Raise where what would be left out may be a part of the data.

    Directly behind a value, or with quotes in it, a comment may be the rest of that value.
    """
    if (follows_value and blank[0] in "/#") or _QUOTE_IN_COMMENT.search(blank) or _DATA_IN_COMMENT.search(blank):
        raise UnclearError


def _check_name(key: str) -> None:
    """Raise where a name in a broken text may have a character too many."""
    if not key.isprintable() or key[:1] in _NAME_EDGES or key[-1:] in _NAME_EDGES:
        raise UnclearError


class _SureReader:
    """Reads one object, with a stack of its own so that no depth of the text is a depth of calls."""

    __slots__ = ("_assumed", "_levels", "_members", "_wants", "pieces")

    def __init__(self, assumed: list[str]) -> None:
        self.pieces: list[str] = []
        self._assumed = assumed
        # Of each open object, where the pieces of each member's value are; None for a list.
        self._levels: list[dict[str, tuple[int, int]] | None] = []
        self._members: list[tuple[str, int]] = []  # the name of each open member, and where its pieces begin
        # Or "item" or "key", each of which may be a closing bracket; "colon", "comma", "part" of a string, "brace".
        self._wants = "value"

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
        if blank.strip(SPACES):
            _check_blank(blank, follows_value=last in {"string", "plain", "number", "word"})
            self._assumed.append("comments were left out")
        elif not blank.isspace():
            self._assumed.append("characters of no width were left out")

    def _take_token(self, kind: str | None, piece: str) -> None:
        if kind == "comma" or kind == "colon":
            self._separate_parts(kind)
        elif piece == ";" and self._wants == "comma" and self._levels[-1] is not None:
            self._wants = "semicolon"
        elif self._wants == "semicolon" and kind in {"string", "word"}:
            self._wants = "comma"
            self._separate_parts("comma")
            self._add_key(kind, piece)
            self._assumed.append("; was taken for a comma")
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
            self._levels.insert(-1, _DOUBLED)  # as templates write a brace: it must be closed by two as well
            self._assumed.append("doubled braces were taken for single ones")
            return
        if self._wants not in {"value", "item"} or len(self._levels) >= _DEEPEST_OBJECT:
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
        """Leave out a member that stood there before, if it is equal."""
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
            self._assumed.append("a member that stood there twice was left out once")

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
        written = to_json_string(token if kind == "string" else f'"{token}"')
        key: str = json.loads(written)
        _check_name(key)
        self._members.append((key, len(self.pieces)))
        if kind == "word":
            self._assumed.append("names were put into quotes")
        self._add_string(token, written)
        self._wants = "colon"

    def _add_value(self, kind: str | None, token: str) -> None:
        if self._wants == "part" and kind == "string":
            self.pieces[-1] = self.pieces[-1][:-1] + to_json_string(token)[1:]
            self._assumed.append("strings with + between them were joined")
            self._wants = "comma"
            return
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
        UnclearError: It has an escape or a character that JSON lacks, or may have lost its end to the line behind it.
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


@dataclass(slots=True)
class Mended:
    """One step of a repair.

    Args:
        kind: ``text`` where the text was mended, ``values`` where values in it were.
        after: The arguments behind this step, as JSON.
        assumed: The assumptions, in words.
    """

    kind: Any
    after: str
    assumed: tuple[str, ...]


def mend_arguments(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError, *, tool_name: str = ""
) -> tuple[dict[str, Any], list[Mended]]:
    """Return the arguments that a refused text must mean, and the steps that led there.

    Args:
        text: As the model wrote it.
        parser: The tool's.
        error: Why the parser refused it.
        tool_name: The tool, which a whole call in place of its arguments names.

    Raises:
        TooMuchWorkError: It takes longer than the trial that this is part of may.
        InvalidArgumentsError: No reading of the arguments fits the schema, or two do; the text is for the model.
    """
    if not isinstance(error, MalformedJsonError):
        return _mend_values(text, parser, error, tool_name)
    try:
        surely = read_surely(text, takes_prose=True)
    except UnclearError as unclear:
        if unclear.is_cut_off:
            raise error from None
        if (bare := _read_bare_text(text)) is not None:
            return _mend_values(bare, parser, error, tool_name)
        return _choose_reading(find_readings(text, parser.nodes), parser, error)
    first = Mended("text", surely.text, surely.assumed)
    try:
        return parser.parse_json(surely.text), [first]
    except MalformedJsonError:
        raise error from None
    except InvalidArgumentsError as still_wrong:
        arguments, more = _mend_values(surely.text, parser, still_wrong, tool_name)
        return arguments, [first, *more]


def _choose_reading(
    readings: list[Reading], parser: ArgumentsParser, error: InvalidArgumentsError
) -> tuple[dict[str, Any], list[Mended]]:
    """Return the one reading that the schema takes; only where it takes none as it is, are their values mended."""
    for mends_values in (False, True):
        found: dict[str, tuple[dict[str, Any], list[Mended]]] = {}
        for reading in readings:
            first = Mended("text", reading.text, reading.assumed)
            try:
                if mends_values:
                    arguments, more = _mend_values(reading.text, parser, error, "")
                else:
                    arguments, more = parser.parse_json(reading.text), list[Mended]()
            except InvalidArgumentsError:
                continue
            found[parser.dump_json(arguments, reveal_secrets=True)] = (arguments, [first, *more])
        if len(found) > 1:
            raise MalformedJsonError(f"{error.message} It can be read in more than one way.")
        for arguments, steps in found.values():
            if DOUBTFUL in steps[0].assumed:
                break
            return arguments, steps
    raise error


def _read_bare_text(text: str) -> str | None:
    """Return one string in quotes, or one word for true, false and null, as JSON; None where it is something else."""
    text = text.strip(SPACES)
    if text in WORDS:
        return WORDS[text]
    if not _QUOTED_STRING.fullmatch(text) or text[0] != "'":
        return None
    try:
        return to_json_string(text)
    except UnclearError:
        return None


def _mend_values(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError, tool_name: str
) -> tuple[dict[str, Any], list[Mended]]:
    value = json.loads(text.strip() or "{}")  # a vertical tab is space to the parser, and not to this
    for candidate, assumed in _list_other_values(value, parser, tool_name):
        try:
            arguments = parser.parse(candidate)
        except InvalidArgumentsError as still_wrong:
            # What is wrong behind a step says more than what was wrong before it.
            error = still_wrong if candidate is not value and is_object(candidate) and is_object(value) else error
            continue
        return arguments, [Mended("values", json.dumps(candidate, ensure_ascii=False), assumed)]
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
    """Yield what a value may hold that is the arguments, or what it may be a part of."""
    unwrapped = _unwrap_arguments(value, parser, tool_name)
    if unwrapped is not None:
        inner, assumed = unwrapped
        yield inner, (assumed,)
    properties = parser.schema.get("properties", {})
    if len(properties) == 1 and value is not None and not is_object(value):
        (name,) = properties
        yield {name: value}, (f'the value was taken for "{name}"',)


def _unwrap_arguments(value: Any, parser: ArgumentsParser, tool_name: str) -> tuple[Any, str] | None:
    if is_array(value) and len(value) == 1 and is_object(value[0]):
        return value[0], "the list round the one object was left out"
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
            inner = json.loads(read_surely(inner).text)
        except UnclearError:
            return None
    return (inner, f'the object under "{name}" was taken for the arguments') if is_object(inner) else None


def explain_nulls(text: str, parser: ArgumentsParser) -> Mended | None:
    """Return the step by which null for what has a default was taken as left out; None where none was."""
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
    assumed = tuple([f"{name}: null was taken as left out" for name in names])
    return Mended("values", json.dumps(value, ensure_ascii=False), assumed)


_LONGEST_READ = 100_000
_MOST_READING_STEPS = 20_000
_WORK_OF_STEP = 40  # microseconds
_MOST_CHARACTERS_READ = 1_000_000
_MOST_READINGS = 8
_DEEPEST_LEVEL = 100
_LONGEST_KEY_READ = 100

# Each opening quote with what may close it, so that one of another kind stays text.
_CLOSERS = {
    '"': '"', "'": "'", "`": "`", "\u201c": "\u201d\u201f\u201c", "\u201d": "\u201d", "\u201e": "\u201c\u201d",
    "\u201f": "\u201d\u201f", "\u2018": "\u2019\u201b", "\u2019": "\u2019", "\u201a": "\u2018\u2019",
    "\u201b": "\u2019\u201b", "\u00ab": "\u00bb", "\u2039": "\u203a", "\u300c": "\u300d", "\u300e": "\u300f",
    "\uff02": "\uff02", "\uff07": "\uff07",
}  # fmt: skip
_QUOTES = "".join(dict.fromkeys("".join([*_CLOSERS, *_CLOSERS.values()])))
_PLAIN_BRACKETS = str.maketrans("\uff5b\uff5d\uff3b\uff3d", "{}[]")
_GAP = rf"(?:{BLANK})?+"
# Directly behind a string a comment may be the rest of it.
_GAP_BEHIND = rf"(?:(?=\s){BLANK})?+"
_KEY_COLON = "(?: => | [:=\uff1a\uff1d] )"
_ANY_KEY = rf"(?: [{_QUOTES}][^{_QUOTES}{{}}\[\]\n]{{1,{_LONGEST_KEY_READ}}}+[{_QUOTES}] | [\w$][-\w$]*+ )"
_KEY_BEFORE = rf"{_ANY_KEY}{_GAP}{_KEY_COLON}"
_FLAGS = re.VERBOSE | re.DOTALL
_SPACE = re.compile(_GAP, _FLAGS)
_MEMBER_NAME = re.compile(rf"({_ANY_KEY}){_GAP}{_KEY_COLON}", _FLAGS)
_BEHIND_MEMBER = re.compile(
    rf"{_GAP_BEHIND}(?: [}}\uff5d] | [,\uff0c]{_GAP}(?: {_KEY_BEFORE} | [}}\uff5d] ) | {_KEY_BEFORE} )",
    _FLAGS,
)
_BEHIND_ITEM = re.compile(rf"{_GAP_BEHIND}[,\uff0c\]\uff3d]", _FLAGS)
_NUMBER_LIKE = re.compile(r"[-+.0-9][-+.\w]*+")
# Words without quotes, up to where the next member or the end must be.
_BARE_PART = rf"(?!//|/\*|\#)[^\s,:;=(){{}}\[\]<>\\|{_QUOTES}\uff0c\uff1a\uff1b\uff08\uff09\uff5b\uff5d\uff3b\uff3d]++"
_BARE_WORDS = re.compile(rf"{_BARE_PART}(?:[ ]{_BARE_PART})*+")
_BARE_AMOUNT = re.compile(r"[-+]?+[0-9][0-9,._'\u2019 ]*+[^\W\d_]*+")
_INNER_QUOTES = "quotes inside a string were kept as text"
DOUBTFUL = "a string swallowed what looks like another one"
_ADJACENT = re.compile(rf"[{_QUOTES}]\s*[{_QUOTES}]")
_ANY_QUOTE = re.compile(f"[{_QUOTES}]")
_JOINT = re.compile(r"\s*[,+;.&|]*\s*")
_MOST_NAMES_SOUGHT = 500
_NAME_OF_ANY_KIND = r"\w[-\w]*+"
# Between a quote and a name, or a name and its colon, a slip may have left something.
_JUNK = r".{0,3}?"
_ITEM_INSIDE = re.compile(rf"[{_QUOTES}]\s*[,;\uff0c]|[,;\uff0c]\s*[{_QUOTES}]")
_SEPARATOR_AT_END = re.compile(r"[,;:\uff0c\uff1a\uff1b]\s*\"\Z")
_DOTTED_NAME = re.compile(r"[^\W\d]\w*[.$]|[.$_]\w*[^\W\d]")
_ENTITY_QUOTE = re.compile(r"&(?:quot|apos|\#34|\#39|\#x22|\#x27);", re.IGNORECASE | re.VERBOSE)
_LAST_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*+)\"[}\]]*+\Z")  # which may have lost a bracket to the end
_EXTRA_CLOSING = re.compile(r"\s*[}\]\uff5d\uff3d]\s*")


class _Level(NamedTuple):
    """An open object or list: what it may hold, and what it has so far."""

    outer: _Level | None
    is_object: bool
    node: Node
    names: frozenset[str]
    size: int
    depth: int


class _ReadingPlace(NamedTuple):
    """How far one way of reading has come."""

    position: int
    wants: str
    level: _Level | None
    value_node: Node
    written: Any  # (what was before, the piece), so that ways share their beginnings
    assumed: frozenset[str]


def find_readings(text: str, nodes: Nodes) -> list[Reading]:
    """Return all that a text may mean, which no plain reading could make out; nothing where that would take too long.

    A reading that assumes `DOUBTFUL` is there to make others unclear; it is never what was meant.

    Args:
        text: The text that a model sent as arguments. It must not be cut off.
        nodes: The schema of the arguments.
    """
    if len(text) > _LONGEST_READ:
        return []
    if (flat := _read_flat(text, nodes)) is not None:
        return [flat]
    before = frozenset[str]()
    if '"' not in text and _ENTITY_QUOTE.search(text):
        text = html.unescape(text)
        before = frozenset({"HTML entities were decoded"})
        try:
            return [Reading(read_surely(text).text, (*before,))]
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
        """Return the readings, or None where there are too many ways.

        Raises:
            TooMuchWorkError: They take longer than the trial that this is part of may.
        """
        budget = open_budget()
        start = re.search(r"[{\[\uff5b\uff3b]", self.text)
        if start is None:
            return []
        found: dict[str, Reading] = {}
        waiting = [_ReadingPlace(start.start(), "value", None, self._find_root(start[0]), None, assumed)]
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

    def _find_root(self, bracket: str) -> Node:
        return self.nodes.root if bracket in "{\uff5b" else {"type": "array", "items": self.nodes.root}

    def _finish_reading(self, place: _ReadingPlace, start: int) -> Reading | None:
        pieces: list[str] = []
        written = place.written
        while written is not None:
            written, piece = written
            pieces.append(piece)
        whole = "".join(reversed(pieces))
        behind = self.text[place.position :]
        assumed = place.assumed
        if _INNER_QUOTES in assumed and '\\"' in self.text:  # of quotes inside, either all are escaped or none is
            assumed |= {DOUBTFUL}
        if (once := _EXTRA_CLOSING.match(behind)) is not None and _is_balanced("".join(_LAST_STRING.findall(whole))):
            assumed |= {"a closing bracket too many was left out"}
            behind = behind[once.end() :]
        elif self._is_repeated(whole, pass_end_tokens(behind)):
            assumed |= {"the same object stood there twice"}
            behind = ""
        if behind.strip() or start:
            assumed |= {"what stands around the object was left out"}
        try:
            check_surroundings(self.text[:start], behind, takes_prose=True)
        except UnclearError:
            return None
        return Reading(whole, tuple(sorted(assumed)))

    def _is_repeated(self, whole: str, behind: str) -> bool:
        if not behind.strip():
            return False
        try:
            again = read_surely(behind).text
        except UnclearError:
            return False
        return behind.lstrip()[:1] == "{" and json.loads(again) == json.loads(whole)

    # steps

    def _take_steps(self, place: _ReadingPlace) -> Iterator[_ReadingPlace]:
        space = _SPACE.match(self.text, place.position)
        position = place.position if space is None else space.end()
        if blank := self.text[place.position : position].strip(SPACES):
            try:
                _check_blank(blank, follows_value=False)
            except UnclearError:
                place = place._replace(assumed=place.assumed | {DOUBTFUL})
            place = place._replace(assumed=place.assumed | {"comments were left out"})
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
            yield self._write_piece(place, ", ", place.position + 1, wants, assumed=_note_punctuation(character))
        elif (
            level.is_object
            and _MEMBER_NAME.match(self.text, place.position)
            and not _SEPARATOR_AT_END.search(place.written[1])  # it is in the string then
        ):
            yield from self._read_keys(
                self._write_piece(place, ", ", place.position, "key", assumed="a missing comma was added")
            )

    def _close_level(self, place: _ReadingPlace, bracket: str) -> _ReadingPlace:
        level, written, assumed = place.level, place.written, place.assumed
        if written is not None and written[1] == ", ":
            written, assumed = written[0], assumed | {"a comma before a closing bracket was left out"}
        if self.text[place.position] != bracket:
            assumed |= {"fullwidth punctuation was taken for plain"}
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
        if key is None or key in level.names or not self._may_have(level.node, key):
            return
        try:
            _check_name(key)
        except UnclearError:
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
        """Return the key that a token before a colon is, with quotes or without; None where it can be none."""
        if token[0] not in _QUOTES:
            return None if token in NEVER_KEYS or token[0].isdecimal() else token
        is_closed = self.takes_any_closer or token[-1] in _CLOSERS.get(token[0], "")
        return token[1:-1] if is_closed and "\\" not in token[1:-1] else None

    def _may_have(self, node: Node, key: str) -> bool:
        for choice in self.nodes.choices(node):
            if key in choice.get("properties", {}) or choice.get("additionalProperties", True) is not False:
                return True
        return False

    # values

    def _read_values(self, place: _ReadingPlace, character: str) -> Iterator[_ReadingPlace]:
        node = place.value_node if place.wants == "value" else self._find_item_node(place)
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

    def _find_item_node(self, place: _ReadingPlace) -> Node:
        return {} if place.level is None else self.nodes.at_key(place.level.node, place.level.size)

    def _add_value(self, place: _ReadingPlace, piece: str, end: int, assumed: frozenset[str]) -> _ReadingPlace:
        level = place.level
        level = level._replace(size=level.size + 1) if level is not None else None
        return _ReadingPlace(end, "comma", level, {}, (place.written, piece), place.assumed | assumed)

    def _open_level(self, place: _ReadingPlace, bracket: str, node: Node) -> Iterator[_ReadingPlace]:
        outer = place.level
        depth = 1 if outer is None else outer.depth + 1
        if depth > _DEEPEST_LEVEL:
            return
        if outer is not None:
            outer = outer._replace(size=outer.size + 1)
        is_object = bracket == "{"
        level = _Level(outer, is_object, node, frozenset(), 0, depth)
        is_plain = self.text[place.position] == bracket
        assumed = place.assumed if is_plain else place.assumed | {"fullwidth punctuation was taken for plain"}
        written = (place.written, bracket)
        yield _ReadingPlace(place.position + 1, "key" if is_object else "item", level, {}, written, assumed)

    def _read_strings(self, place: _ReadingPlace) -> Iterator[tuple[int, str, frozenset[str]]]:
        opening = self.text[place.position]
        closers = _QUOTES if self.takes_any_closer else _CLOSERS.get(opening, "")
        is_member = place.level is not None and place.level.is_object
        behind = _BEHIND_MEMBER if is_member else _BEHIND_ITEM
        has_inner = False
        for token in _compile_closers(closers).finditer(self.text, place.position + 1):
            if len(token[0]) == 2:
                continue
            end = token.end()
            raw = self.text[place.position + 1 : end - 1]
            is_end = behind.match(self.text, end) is not None
            self.left -= len(raw) if is_end else 0
            if is_end and self.left >= 0 and (not has_inner or _is_balanced(raw)):
                assumed = self._note_inner_quotes(raw, closers, is_member=is_member) if has_inner else set[str]()
                if opening != '"' or token[0] != '"':
                    assumed.add("quotes were put right")
                for piece, more in _read_contents(raw):
                    yield end, piece, frozenset({*assumed, *more})
            has_inner = True

    def _note_inner_quotes(self, raw: str, closers: str, *, is_member: bool) -> set[str]:
        """Return the assumptions that quotes inside a string are text; doubtful where another part may begin there."""
        crossing = self.member_inside if is_member else _ITEM_INSIDE
        core = raw.strip(SPACES + ",;:")
        at_an_end = core[:1] in _QUOTES or core[-1:] in _QUOTES
        is_doubtful = (
            (at_an_end and sum(map(raw.count, closers)) % 2 == 1)
            or self.takes_any_closer
            or _ADJACENT.search(raw)
            or crossing.search(raw)
            or _is_joined_strings(raw)
        )
        return {_INNER_QUOTES, DOUBTFUL} if is_doubtful else {_INNER_QUOTES}

    def _read_plain_value(self, place: _ReadingPlace, node: Node) -> Iterator[tuple[int, str, frozenset[str]]]:
        types = self.nodes.types(node)
        is_text = "string" in types and types <= _TEXT_OR_NULL
        number = _NUMBER_LIKE.match(self.text, place.position)
        written = None if number is None else _read_number(number[0])
        if number is not None and written is not None and self._is_value_end(place, number.end()):
            yield number.end(), written, _note_spelling(number[0], written)
            return
        bare = _BARE_WORDS.match(self.text, place.position)
        if bare is not None and bare[0] in WORDS:
            yield bare.end(), WORDS[bare[0]], _note_spelling(bare[0], WORDS[bare[0]])
            return
        if not is_text:
            yield from self._read_amounts(place, node)
        elif bare is not None and _is_text(bare[0], node, self.nodes) and self._is_value_end(place, bare.end()):
            yield bare.end(), json.dumps(bare[0], ensure_ascii=False), frozenset({"words were put into quotes"})

    def _is_value_end(self, place: _ReadingPlace, end: int) -> bool:
        is_member = place.level is not None and place.level.is_object
        return (_BEHIND_MEMBER if is_member else _BEHIND_ITEM).match(self.text, end) is not None

    def _read_amounts(self, place: _ReadingPlace, node: Node) -> Iterator[tuple[int, str, frozenset[str]]]:
        amount = _BARE_AMOUNT.match(self.text, place.position)
        if amount is None or place.level is None or not place.level.is_object:
            return
        written = amount[0].rstrip(", ")
        names = place.written[1].removesuffix(": ").strip('"')
        value = read_amount(written, node, self.nodes, (names,))
        end = place.position + len(written)
        if value is not None and self._is_value_end(place, end):
            yield end, json.dumps(value), frozenset({f"{names}: the number {value} was read from words"})


@cache
def _compile_closers(closers: str) -> re.Pattern[str]:
    return re.compile(rf"\\.|[{re.escape(closers)}]" if closers else r"(?!)", re.DOTALL)


_RESERVED_WORDS = {word.casefold() for word in NEVER_KEYS} | {"-infinity", "+infinity", "-nan", "-inf", "..."}


def _is_text(words: str, node: Node, nodes: Nodes) -> bool:
    """Return whether words without quotes are a text: one that the schema lists, or no name in a program and no gap.

    Names of variables begin small and those of constants, like gaps, have capitals alone: ``Lima`` and ``New York`` are
    texts, ``recipient``, ``TODO`` and ``user.name`` none.
    """
    if any(words in choice.get("enum", ()) or words == choice.get("const") for choice in nodes.choices(node)):
        return True
    names = {name.casefold() for choice in nodes.choices(nodes.root) for name in choice.get("properties", ())}
    if words.casefold() in names | _RESERVED_WORDS or "_" in words or _DOTTED_NAME.search(words):
        return False
    is_path = words[0] == "/" and words[1:2].isalnum()
    return is_path or (words[0].isalnum() and not words[0].islower() and not (words.isalpha() and words.isupper()))


def _note_spelling(token: str, written: str) -> frozenset[str]:
    return frozenset() if token == written else frozenset({f"{token} was written as {written}"})


def _note_key_spelling(token: str, *, colon: str) -> frozenset[str]:
    assumed: set[str] = set()
    if token[0] != '"' or token[-1] != '"':
        assumed.add("quotes were put right" if token[0] in _QUOTES else "names were put into quotes")
    if colon != ":":
        assumed.add("fullwidth punctuation was taken for plain" if colon > "\xff" else "= was taken for a colon")
    return frozenset(assumed)


def _compile_member(nodes: Nodes) -> re.Pattern[str]:
    """Return the pattern of a member that a string may have swallowed: a name that touches a quote, and a colon."""
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
    return re.compile(rf"(?:{touches}){_JUNK}:{parts}", re.DOTALL)


def _note_punctuation(character: str) -> str:
    return "" if character == "," else "fullwidth punctuation was taken for plain"


def _read_number(token: str) -> str | None:
    try:
        return to_json_number(token)
    except UnclearError:
        return None


def _is_joined_strings(raw: str) -> bool:
    """Return whether a text with quotes inside, between two more, may be whole strings and what stands between them."""
    between = _ANY_QUOTE.split(raw)[1::2]
    return all(_JOINT.fullmatch(part) for part in between)


# the contents of strings

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# Behind a backslash these begin the code of a character in other languages, or one of JSON's that is not whole.
_MAYBE_CODES = frozenset("0123456789x")
_CUT_UNIT = re.compile(r"\\u[0-9a-fA-F]")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def _read_contents(raw: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what may stand between two quotes: backslashes of escapes that JSON lacks stand for themselves."""
    if _CONTROL_CHARACTERS.search(raw) or _LOST_EDGE.fullmatch(f'"{raw}"'):
        return
    escapes = [escape[1] for escape in _ESCAPE.finditer(raw)]
    unknown = [escape for escape in escapes if len(escape) == 1 and escape not in _PLAIN_ESCAPES]
    if any(escape in _MAYBE_CODES for escape in unknown) or _CUT_UNIT.search(_drop_units(raw)):
        return
    known = [escape for escape in escapes if escape not in unknown and escape not in {'"', "'"}]
    ways = [frozenset(unknown)]
    if unknown and known:
        ways.append(frozenset([*unknown, *known]))
    for literal in ways:
        text = _ESCAPE.sub(partial(_unescape_one, literal=literal), raw)
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            continue
        yield json.dumps(text, ensure_ascii=False), ("backslashes were kept as text",) if unknown else ()


def _is_balanced(text: str) -> bool:
    """Return whether the brackets in a text match: where they don't, a string may have swallowed its own end."""
    awaited: list[str] = []
    for character in re.findall(r"[{}\[\]]", text):
        if character in "{[":
            awaited.append("}" if character == "{" else "]")
        elif not awaited or awaited.pop() != character:
            return False
    return not awaited


def _drop_units(raw: str) -> str:
    return re.sub(r"\\\\|\\u[0-9a-fA-F]{4}", "", raw)


def _unescape_one(match: re.Match[str], *, literal: frozenset[str]) -> str:
    escape = match[1]
    if escape in {'"', "'"}:
        return escape
    if escape in literal:
        return match[0]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _PLAIN_ESCAPES[escape]


# names and values without brackets: `city=Paris, days=3` on a line, or `city: Paris` on a line of its own each

_LONGEST_FLAT_TEXT = 20_000
_STRING_ONLY = frozenset({"string"})
_TEXT_OR_NULL = frozenset({"string", "null"})
_FLAT_NAME = re.compile(
    r"(?:\A|(?P<mark>[,;\n]|(?=[ \t])))[ \t]*(?P<name>[^\W\d]\w*)(?:(?P<equals>[ ]?=[ ]?)(?!=)|:(?=[ \t]|\Z))"
)
_OTHER_NAME = re.compile(r"(?:\A|[\s,;])\w+\s?=(?!=)|[\s,;]\w+:(?=\s|\Z)|\s\#")
_QUOTED_VALUE = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL)
_IN_BRACKETS = re.compile(r"[\"'`{}\[\]<>]")


def _read_flat(text: str, nodes: Nodes) -> Reading | None:
    """Return arguments that stand there as names and values, where each name is the schema's and each value fits it.

    A name of the schema that stands behind a comma, a space or a line break, with ``=`` behind it, begins an argument;
    with a colon it does so at the beginning of a line alone. Any other name in that way, a comma left over, or a quote
    inside a value makes it unclear.
    """
    text = text.strip()
    known = {name for choice in nodes.choices(nodes.root) for name in choice.get("properties", {})}
    if len(text) > _LONGEST_FLAT_TEXT or not known:
        return None
    begins = [match for match in _FLAT_NAME.finditer(text) if match["name"] in known and _begins_argument(match)]
    if not begins or begins[0].start() or len({match["name"] for match in begins}) < len(begins):
        return None
    ends = [match.start() for match in begins[1:]] + [len(text)]
    members: list[str] = []
    has_lines = all(match["mark"] in {None, "\n"} for match in begins)
    for match, end in zip(begins, ends, strict=True):
        name = match["name"]
        value = text[match.end() : end].strip().removesuffix("," if end < len(text) else "\n").strip()
        written = _read_flat_value(value, nodes.at_key(nodes.root, name), nodes, name, has_lines=has_lines)
        if written is None:
            return None
        members.append(f"{json.dumps(name)}: {written}")
    return Reading("{" + ", ".join(members) + "}", ("names and values were taken for an object",))


def _begins_argument(match: re.Match[str]) -> bool:
    return match["equals"] is not None or match.start() == 0 or match["mark"] == "\n"


def _read_flat_value(text: str, node: Node, nodes: Nodes, name: str, *, has_lines: bool) -> str | None:
    if _QUOTED_VALUE.fullmatch(text):
        try:
            return to_json_string(text)
        except UnclearError:
            return None
    types = nodes.types(node)
    if not text or "\n" in text or _IN_BRACKETS.search(text) or _OTHER_NAME.search(text) or types == ALL_TYPES:
        return None
    if not has_lines and re.search("[,;]", text) and "string" in types:
        return None
    plain = _read_bare_value(text, node, nodes, name)
    if "string" not in types:
        return plain
    # A word or a number for what may be a string or that is not clear.
    is_clear = plain is None or types <= _STRING_ONLY
    return json.dumps(text, ensure_ascii=False) if is_clear and _is_text(text, node, nodes) else None


def _read_bare_value(text: str, node: Node, nodes: Nodes, name: str) -> str | None:
    if text in WORDS:
        return WORDS[text]
    try:
        return to_json_number(text)
    except UnclearError:
        amount = read_amount(text, node, nodes, (name,))
        return None if amount is None else json.dumps(amount)


def repair_arguments(text: str) -> str | None:
    """Return `text` as a JSON object where it surely means one, or None.

    It takes an object in a code fence, which a sentence on the lines before may introduce, single quotes, unquoted
    keys, trailing commas, comments, ``True``, ``False`` and ``None``, raw line breaks in strings, ``+1``, ``.5`` and
    ``5.``, and all of that encoded again as a string, up to three times. An empty text or ``null`` is an empty object.

    What is cut off is None, and so is what lacks a comma, a quote or a bracket or has one too many, a key that comes
    twice, an unknown escape or word, NaN and infinite numbers, numbers with leading zeros or more than 300 digits, lone
    surrogates, control characters, data outside of the object, more than 100 levels and more than 2 million characters.
    It takes time linear in the length of the text, and never raises.
    """
    try:
        return read_surely(text).text
    except UnclearError:
        return None
