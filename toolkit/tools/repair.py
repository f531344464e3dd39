"""What a model meant by a name or by broken JSON, where that is no guess.

Broken arguments are read by a tolerant reader of our own rather than by one that always finds an answer: it goes
through the text token by token, once, and each token of the text becomes one token of the answer, in the same order.
Only spelling changes: quotes, escapes, the words for true, false and null, and numbers such as ``.5``. All that is ever
left out is a comma before a closing bracket, comments, and around the object a code fence and words without
data. So nothing is invented, merged or closed that was left open; what can be read in two ways is not read at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher, get_close_matches

__all__ = ["LONGEST_TEXT", "nearest_names", "plain_name", "repair_arguments", "repair_name"]

_SIMILAR = 0.85
_LONGEST_NAME = 256
_SHORT_WORD = 3
LONGEST_TEXT = 2_000_000
_LONGEST_NUMBER = 300
_DEEPEST = 100
_MOST_ENCODINGS = 3


def repair_name(
    name: str, available: Collection[str], *, similar: bool = False, hidden: Collection[str] = ()
) -> str | None:
    """Return the one name of `available` that `name` must mean, or None.

    That is the name itself; else the only one of the same letters. Case, separators and camelCase may differ, quotes
    or brackets may stand round it, a namespace or ``functions.`` before it, and it may stand there twice. As little as
    possible is taken away, and where two names fit equally well it is neither.

    Args:
        name: As a model wrote it.
        available: What there is.
        similar: Whether other letters are taken too: then the single most similar name counts, with a
            `difflib.SequenceMatcher` ratio above 0.85.
        hidden: Names that are there elsewhere. What is one of them, or fits one of them as well, means nothing here.
    """
    if name in available:
        return name
    if name in hidden or len(name) > _LONGEST_NAME:
        return None
    everything = {*available, *hidden}
    by_letters: dict[str, list[str]] = {}
    for other in everything:
        by_letters.setdefault(_letters(other), []).append(other)
    for reading in _readings(name):
        found = by_letters.get(reading)
        if found is not None:
            return found[0] if len(found) == 1 and found[0] in available else None
    if not similar:
        return None
    best, highest = [""], _SIMILAR
    for other, ratio in _ratios(name, everything):
        if ratio > highest:
            best, highest = [other], ratio
        elif ratio == highest:
            best.append(other)
    return best[0] if len(best) == 1 and best[0] in available else None


_AROUND = " \t\r\n\"'`\u2018\u2019\u201c\u201d*[](){}<>"
_SEPARATORS = re.compile(r"[\s_.:/-]+")
_NAMESPACE = re.compile(r"[.:/]+|__+")


def _readings(name: str) -> Iterator[str]:
    """Yield the letters that a name may mean, those of which the least is taken away first."""
    name = name.strip(_AROUND)
    starts = [0, *(match.end() for match in _NAMESPACE.finditer(name))]
    for start in starts:
        letters = _letters(name[start:])
        half = letters[: len(letters) // 2]
        if letters:
            yield letters
        if half and letters == half * 2:
            yield half


def _letters(name: str) -> str:
    """Return a name without its case and separators, "" where it has other signs; digits stay as far apart as they are.

    ``read_v1_2`` is not ``read_v12``.
    """
    parts = [part for part in _SEPARATORS.split(name.casefold()) if part]
    if not all(part.isalnum() for part in parts):
        return ""
    joined = ""
    for part in parts:
        joined += f"_{part}" if joined[-1:].isdigit() and part[0].isdigit() else part
    return joined


def nearest_names(name: str, available: Collection[str], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` names of `available` to offer for one that is unknown.

    The most similar come first, then those that have a word in common with it.
    """
    name = name[:_LONGEST_NAME]
    by_plain: dict[str, list[str]] = {}
    for other in available:
        by_plain.setdefault(plain_name(other), []).append(other)
    near = get_close_matches(plain_name(name), by_plain, n=n, cutoff=0.5)
    found = [other for plain in near for other in by_plain[plain]]
    words = _words(name)
    found += [other for other in available if words & _words(other)] if words else []
    return tuple(dict.fromkeys(found))[:n]


def _words(name: str) -> set[str]:
    parts = re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
    return {part.casefold() for part in parts if len(part) > _SHORT_WORD}


def plain_name(name: str) -> str:
    """Return a name without its case and separators."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _ratios(name: str, available: Collection[str]) -> Iterator[tuple[str, float]]:
    # Names whose lengths alone rule them out are never looked at, so a hostile one of any length costs nothing.
    candidates = [other for other in available if 2 * min(len(name), len(other)) > _SIMILAR * (len(name) + len(other))]
    matcher = SequenceMatcher(autojunk=False)
    for other in candidates:
        matcher.set_seqs(other, name)
        if matcher.quick_ratio() > _SIMILAR:
            yield other, matcher.ratio()


def repair_arguments(text: str) -> str | None:
    """Return `text` as a JSON object where it surely means one, or None.

    It takes an object in a code fence or with idle words around it ("Here are the arguments:"), single quotes, unquoted
    keys, trailing commas, comments, ``True``, ``False`` and ``None``, raw line breaks in strings, ``+1``, ``.5`` and
    ``5.``, and all of that encoded again as a string, up to three times. An empty text or ``null`` is an empty object.

    What is cut off is None, and so is what lacks a comma, a quote or a bracket or has one too many, a key that comes
    twice, an unknown escape or word, NaN and infinite numbers, numbers with leading zeros or more than 300 digits, lone
    surrogates, control characters, data outside of the object, more than 100 levels and more than 2 million characters.
    It takes time linear in the length of the text, and never raises.
    """
    if len(text) > LONGEST_TEXT:
        return None
    try:
        return _read(text, _MOST_ENCODINGS)
    except _UnclearError:
        return None


class _UnclearError(Exception):
    """The text may mean something else."""


def _read(text: str, encodings: int) -> str:
    text = text.strip(_SPACES)
    if text in {"", "null", "None"}:
        return "{}"
    if text.startswith('{\\"'):
        text = f'"{text}"'  # encoded again, but without the quotes around it
    if _STRING.fullmatch(text):
        if not encodings:
            raise _UnclearError
        return _read(json.loads(_to_json_string(text)), encodings - 1)
    start = text.find("{")
    if start < 0:
        raise _UnclearError
    reader = _Reader()
    end = reader.read(text, start)
    _check_surroundings(text[:start], text[end:])
    return "".join(reader.pieces)


# tokens

_SPACES = " \t\r\n\ufeff\u00a0"
_TOKEN = re.compile(
    r"""
    (?P<blank>   (?: [ \t\r\n\ufeff\u00a0]++ | //[^\n]*+ | \#(?![^\s\#])[^\n]*+ | /\*.*?\*/ )++ )
    | (?P<string>  "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' )
    | (?P<opening> [{\[] )
    | (?P<closing> [}\]] )
    | (?P<comma>   , )
    | (?P<colon>   : )
    | (?P<plain>   -?+(?:0|[1-9][0-9]{0,17}+)(?![-+.\w]) )
    | (?P<number>  [-+.0-9][-+.\w]*+ )
    | (?P<word>    [^\W\d][-$\w]*+ | \$[-$\w]*+ )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_STRING = re.compile(r"""  "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+'  """, re.VERBOSE | re.DOTALL)
_NUMBER = re.compile(r"([-+]?)(?:(0|[1-9][0-9]*)(?:\.([0-9]*))?|\.([0-9]+))([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|[\"\x00-\x1f]", re.DOTALL)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NEVER_KEYS = {*_WORDS, "NaN", "Infinity", "nan", "inf", "undefined"}


class _Reader:
    """Reads one object, with a stack of its own so that no depth of the text is a depth of calls."""

    __slots__ = ("_levels", "_wants", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._levels: list[set[str] | None] = []  # the keys of each open object; None for a list
        self._wants = "value"  # or "item" or "key", each of which may be a closing bracket; "colon"; "comma"

    def read(self, text: str, position: int) -> int:
        """Read from `position` on, and return where the object ends."""
        for token in _TOKEN.finditer(text, position):
            kind = token.lastgroup
            if kind == "blank":
                continue
            if kind == "comma" or kind == "colon":
                self._separate(kind)
            elif kind == "opening":
                self._open(token[0])
            elif kind == "closing":
                self._close(token[0])
                if not self._levels:
                    return token.end()
            elif self._wants == "key":
                self._add_key(kind, token[0])
            else:
                self._add_value(kind, token[0])
        raise _UnclearError

    def _open(self, bracket: str) -> None:
        if self._wants not in {"value", "item"} or len(self._levels) == _DEEPEST:
            raise _UnclearError
        self.pieces.append(bracket)
        self._levels.append(set() if bracket == "{" else None)
        self._wants = "key" if bracket == "{" else "item"

    def _close(self, bracket: str) -> None:
        if self._wants not in {"key", "item", "comma"} or (self._levels.pop() is None) != (bracket == "]"):
            raise _UnclearError
        if self.pieces[-1] == ", ":
            self.pieces.pop()
        self.pieces.append(bracket)
        self._wants = "comma"

    def _separate(self, kind: str) -> None:
        if self._wants != kind:
            raise _UnclearError
        if kind == "colon":
            self.pieces.append(": ")
            self._wants = "value"
        else:
            self.pieces.append(", ")
            self._wants = "item" if self._levels[-1] is None else "key"

    def _add_key(self, kind: str | None, token: str) -> None:
        keys = self._levels[-1]
        if kind not in {"string", "word"} or token in _NEVER_KEYS or keys is None:
            raise _UnclearError
        written = _to_json_string(token if kind == "string" else f'"{token}"')
        key: str = json.loads(written)
        if key in keys:
            raise _UnclearError
        keys.add(key)
        self.pieces.append(written)
        self._wants = "colon"

    def _add_value(self, kind: str | None, token: str) -> None:
        if self._wants not in {"value", "item"}:
            raise _UnclearError
        if kind == "plain":
            self.pieces.append(token)
        elif kind == "string":
            self.pieces.append(_to_json_string(token))
        elif kind == "number":
            self.pieces.append(_to_json_number(token))
        elif token in _WORDS:
            self.pieces.append(_WORDS[token])
        else:
            raise _UnclearError
        self._wants = "comma"


def _to_json_string(token: str) -> str:
    written = '"' + _SPECIAL.sub(_to_json_escape, token[1:-1]) + '"'
    if not written.isascii() or "\\u" in written:
        try:
            json.loads(written).encode()
        except UnicodeEncodeError:
            raise _UnclearError from None
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
    raise _UnclearError


def _to_json_number(token: str) -> str:
    number = _NUMBER.fullmatch(token)
    if number is None or len(token) > _LONGEST_NUMBER:
        raise _UnclearError
    sign, whole, fraction, bare_fraction, exponent = number.groups()
    written = ("-" if sign == "-" else "") + (whole or "0")
    if fraction is not None or bare_fraction is not None:
        written += "." + (fraction or bare_fraction or "0")
    written += exponent or ""
    if (fraction is not None or bare_fraction is not None or exponent) and float(written) in {_INFINITE, -_INFINITE}:
        raise _UnclearError
    return written


_INFINITE = float("inf")

# prose

_FENCE_BEFORE = re.compile(r"(?:(`{3,}|~{3,})[A-Za-z][-\w+.]*|(`+|~{3,}))\s*\Z")
_PROSE = re.compile(r"(?:[^\W\d_]|(?<=[^\W\d_])['\u2019](?=[^\W\d_])|[\s.,;!?*\u2026\u2013\u2014-])*+")
_WORD = re.compile(r"[^\W\d_]+")
_LABEL = re.compile(r"[^\S\n]*([^\W\d]\w*)\s*[:=]\s*\Z")
_INTRODUCING = (":", ".", "!", "\u2026", ",")
_LABELS = frozenset(
    ["args", "argument", "arguments", "input", "json", "output", "parameters", "params", "answer", "result", "response"]
)
# Words that hold no data and take nothing back; all others might.
_IDLE_WORDS = (
    "a about all am an and answer are args argument arguments as ask asked at based be below by call calling can "
    "certainly code course data do executing expected fetch find following follows for format formatted from "
    "function get getting give go have help helpful helps here hope i in input inputs invoking is it its json "
    "know let ll look looking m make makes me my necessary need needed of ok okay our output parameter parameters "
    "params perfect please provide provided question re request requested required response result results run "
    "running s search searching see send sending so sure tell thank thanks that the then there these this those "
    "to tool use used using valid value values ve want we what which will wish wished with you your "
)
_IDLE = frozenset(_IDLE_WORDS.split())


def _check_surroundings(before: str, after: str) -> None:
    """Raise unless there is nothing around the object but comments, or a fence and prose that can hold no data."""
    before, after = (_without_comments(part) for part in (before, after))
    fence = _FENCE_BEFORE.search(before[-100:])
    if fence is not None:
        mark = fence[1] or fence[2]
        before = before[: len(before) - len(fence[0])].strip(_SPACES)
        if after.startswith(mark):
            after = after[len(mark) :].strip(_SPACES)
        elif after or len(mark) < 3:
            raise _UnclearError
    _check_prose_before(before)
    if after.startswith((",", ":", "..", "\u2026")):
        raise _UnclearError
    if after[:1] == ";":
        after = after[1:]
    _check_prose(after)


def _without_comments(text: str) -> str:
    text = text.strip(_SPACES)
    blank = _TOKEN.fullmatch(text)
    return "" if blank is not None and blank.lastgroup == "blank" else text


def _check_prose_before(before: str) -> None:
    last_line = before[before.rfind("\n") + 1 :]
    label = _LABEL.fullmatch(last_line)
    if label is not None:
        # `options: {...}` may be the one argument of that name; these words only say what follows.
        if label[1].casefold() not in _LABELS:
            raise _UnclearError
        before = before[: len(before) - len(last_line)]
    elif before and not before.endswith(_INTRODUCING):
        raise _UnclearError
    _check_prose(before.removesuffix(":"))


def _check_prose(prose: str) -> None:
    if _PROSE.fullmatch(prose) is None or not _IDLE.issuperset(_WORD.findall(prose.casefold())):
        raise _UnclearError
