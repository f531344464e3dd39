"""Finds values in texts, and the untrusted text that spells a call out.

A text is split into pieces: what stands between spaces, quotes and brackets. A value is found by its pieces, too. A
piece is whole: ``corp.com.evil.com`` is not the ``corp.com`` of a user.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from html import unescape
from typing import Any, Literal
from unicodedata import decimal, normalize
from urllib.parse import unquote

from toolkit.dataclass import dataclass
from toolkit.foreign_text import escape_in_text, is_hidden, shorten_to_line
from toolkit.schema.nodes import is_array, is_object

_SEPARATORS = dict.fromkeys(map(ord, "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb,;(){}[]<>|\u3001\u3002"), " ")
_SEPARATING = "".join(map(re.escape, map(chr, _SEPARATORS)))
_MAY_PRECEDE = re.compile(rf"[\s{_SEPARATING}*#_:=]?")
_MAY_FOLLOW = re.compile(rf"[.,;:!?*_]*(?:[\s{_SEPARATING}]|\Z)")
_ESCAPES = re.compile(r"\\+[\"'nrt/]")  # in a string of JSON that is quoted somewhere
_NUMBER = re.compile(r"\d{1,30}(?:[.,]\d{1,30})?")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{12,}")  # base64, or hexadecimal digits
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")
_HEX_PAIR = re.compile(r"(?:0?x)?([0-9a-fA-F]{2})")
_HEX_PAIRS = re.compile(r"[0-9a-fA-F]{2}(?:[^0-9A-Za-z]{1,3}(?:0?x)?[0-9a-fA-F]{2}){7,}")
_WRAPPED = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{8,}+[ \t]{0,80}+\r?\n[ \t]{0,80}+)++[A-Za-z0-9+/_-]++")
_CODES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_MARKUP = re.compile(r"<[!/]?[A-Za-z-][^<>]{0,500}+>")
_MOST_LAYERS = 3  # of encodings
_MARKED = bytes([120 if chr(code).isalnum() or code in b"+/_-" else 32 for code in range(128)] + 128 * [32])
_GROUPED = re.compile(r"\+?[A-Za-z0-9]+(?:[ ./-][A-Za-z0-9]+)*")
LEAF_TYPES = frozenset({str, int, float, bool})
_MAILBOX = re.compile(r"[^<>@]*<(?P<address>[^<>@\s]+@[^<>@\s]+)>\s*")
_GROUPS = re.compile(
    r"(?<!\w)(?:[A-Za-z]{0,2}\d{2,6} )(?:\d{2,6} )+\d{2,6}(?!\w)"
)  # an account, a telephone: one number
_LEADING, _TRAILING = "*#_~:$€£?!", ".,;:!?*_~/€"
# Drawn as nothing: tags, which some models read as ASCII, and selectors of variations.
_TAGS: dict[int, int | None] = {
    **{0xE0000 + code: code for code in range(32, 127)},
    **dict.fromkeys([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]),
}
_MARK = " \0 "  # between texts: no piece
_DECODER = json.JSONDecoder()
_LONGEST_JSON = 200_000
_LONG_TEXT = 20_000
_LONGEST_VALUE = 4_000
_LONGEST_ACCOUNT = 40
_SAMPLE = 50
_QUOTED = 60


@dataclass(slots=True)
class TextSource:
    """A text that a value may stand in.

    Args:
        kind: The writer: ``user`` (or the application), a ``trusted`` tool, or somebody ``untrusted``.
        tool_name: The tool that gave it; empty for a message.
        call_id: The id of its call.
        path: The place in output that is JSON.
        text: The text.
    """

    kind: Literal["user", "trusted", "untrusted"]
    tool_name: str = ""
    call_id: str = ""
    path: str = ""
    text: str = field(default="", repr=False)


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the texts, numbers and booleans inside arguments."""
    return (leaf for _, leaf in walk_leaves(value))


def walk_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each text, number and boolean inside JSON."""
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if type(value) in LEAF_TYPES:
            if value != "":
                yield path, value
        elif is_object(value):
            others: dict[str, Any] = getattr(value, "others", {})  # the same members under further names
            named = [*value.items(), *others.items()] if others else value.items()
            inner = [(f"{path}.{name}" if path else str(name), member) for name, member in named]
            inner.reverse()
            waiting += inner
        elif is_array(value):
            waiting += reversed([(f"{path}[{index}]", item) for index, item in enumerate(value)])
        elif value is not None:
            yield path, value


def normalise(text: str) -> str:
    """Return a text as programs and browsers decode it, also where one encoding is inside of another.

    These are percent, entities, escapes, forms of Unicode, base64, hexadecimal digits, and markup between letters.
    """
    parts: list[str] = []
    waiting = [text]
    for _ in range(_MOST_LAYERS):
        found: list[str] = []
        for each in waiting:
            plain = _decode_characters(each)
            parts.append(plain)
            found += _list_encoded(plain)
            if "<" in plain and _MARKUP.search(plain):
                parts += [_MARKUP.sub("", plain), _MARKUP.sub(" ", plain)]
        waiting = found
    return _MARK.join(parts)


def _decode_characters(text: str) -> str:
    for _ in range(_MOST_LAYERS):
        before = text
        if "%" in text:
            text = unquote(text)
        if "&" in text:
            text = unescape(text)
        if "\\" in text:
            text = _CODES.sub(lambda code: chr(int(code[1] or code[2], 16)), text)
        if text == before:
            break
    if not text.isascii():
        text = normalize("NFKC", text.translate(_TAGS))
        hidden = [ord(each) for each in set(text) if not each.isspace() and is_hidden(each)]
        text = _write_ascii_digits(text.translate(dict.fromkeys(hidden)))
    return text


def _list_encoded(text: str) -> list[str]:
    """Return the texts that are written in base64 or hexadecimal digits, also over lines and with signs in between."""
    words = ["".join(_HEX_PAIR.findall(digits)) for digits in _HEX_PAIRS.findall(text)]
    if 12 * b"x" in text.encode(errors="replace").translate(_MARKED):
        words += _ENCODED.findall(text)
        words += ["".join(lines.split()) for lines in _WRAPPED.findall(text)]
    return list(filter(None, map(_decode_word, dict.fromkeys(words))))


def _decode_word(word: str) -> str:
    """Return the text that is written in base64 or hexadecimal digits; empty where none is."""
    try:
        is_hex = _HEX.fullmatch(word) is not None
        data = bytes.fromhex(word) if is_hex else b64decode(word.replace("-", "+").replace("_", "/") + "==")
        plain = data.decode()
    except (binascii.Error, ValueError):
        return ""
    return plain if "".join(plain.split()).isprintable() else ""


def _write_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return text.translate({ord(each): str(decimal(each)) for each in set(text) if each.isdecimal()})


# pieces


def split_pieces(text: str) -> list[str]:
    """Return what stands between spaces, quotes and brackets, in lower case, without the punctuation around it."""
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    return [
        trimmed
        for piece in text.lower().translate(_SEPARATORS).split()
        if (trimmed := piece if piece.isalnum() else _trim_piece(piece))
    ]


def _trim_piece(piece: str) -> str:
    return piece.lstrip(_LEADING).rstrip(_TRAILING).removeprefix("./")


def join_pieces(pieces: Iterable[str]) -> str:
    """Return pieces between spaces, each with what else is named there: ``to:bob@x.org`` also names an address."""
    row = f" {' '.join(pieces)} "
    if ":" in row or "=" in row or "@" in row:
        row = f" {' '.join([part for piece in pieces for part in (piece, *_list_parts(piece))])} "
    return row


def _list_parts(piece: str) -> Iterator[str]:
    _, colon, rest = piece.partition("://")
    if colon:
        yield f"//{rest}"  # which a value without a scheme names
        return
    for sign in ":=":
        _, found, rest = piece.partition(sign)
        if found and not rest.isdigit():
            yield _trim_piece(rest)
    if piece.startswith("@"):
        yield piece[1:]


def take_samples(text: str) -> list[str]:
    """Return rows of the pieces of both halves of a text, or of the start, middle and end of a long one."""
    if len(text) > 2 * _SAMPLE:
        middle = len(text) // 2
        cuts = (text[:_SAMPLE], text[middle : middle + _SAMPLE], text[-_SAMPLE:])
        samples = [split_pieces(cut)[1:-1] for cut in cuts]
    else:
        pieces = split_pieces(text)
        half = len(pieces) // 2
        samples = [pieces[:half], pieces[half:]] if half > 2 else [pieces]
    return [join_pieces(sample) for sample in samples if sample]


# values


class Wanted:
    """How a value may be written: as one of some rows of pieces, or as what a pattern finds.

    Attributes:
        rows: Of these rows one has to stand in a text that may spell out a call.
        names: Of these rows one has to stand in a text that names the value; none for a value of several pieces, or
            with punctuation of its own around it.
        spellings: Such a value as it has to stand in that text, in lower case and with single spaces.
        whole: The row of the value itself.
        words: The first piece of each, and the same as JSON where the row has no more of them.
        patterns: One of these may match in its place.
    """

    __slots__ = ("names", "patterns", "rows", "spellings", "whole", "words")

    def __init__(self, value: object) -> None:
        text = value[:_LONGEST_VALUE] if isinstance(value, str) else ""
        self.rows: list[str] = list(dict.fromkeys(_list_rows(text)))
        self.names: list[str] = []
        self.spellings: list[str] = []
        for form in _list_forms(value) if isinstance(value, str) else ():
            (piece,) = pieces if len(pieces := split_pieces(form)) == 1 else ("",)
            if piece and form.lower().strip().removeprefix("./").rstrip("/") == piece:
                self.names += [f" {name} " for name in _list_names(piece)]
            elif pieces:
                self.spellings.append(fold_spaces(form))
        self.whole: str = join_pieces(split_pieces(text or str(value)))
        self.patterns: list[re.Pattern[str]] = list(_list_patterns(value))
        split = [row.split() for row in self.rows]
        self.words: list[tuple[str, str]] = [(row[0], f'"{row[0]}"' if len(row) == 1 else "\0") for row in split]

    def stands_in(self, row: str, text: str) -> bool:
        """Return whether the value stands in a text, given as a row of pieces and as it is."""
        return any(each in row for each in self.rows) or self.may_match(text)

    def may_match(self, text: str) -> bool:
        """Return whether a pattern of the value matches in a text."""
        return any(pattern.search(text) for pattern in self.patterns)

    def is_all_of(self, row: str, text: str) -> bool:
        """Return whether a text has nothing but the value."""
        return row == self.whole or row in self.rows or any(each.fullmatch(text) for each in self.patterns)


def _list_forms(value: str) -> Iterator[str]:
    """Yield a value as it is and without percent-encoding; of a mailbox, ``Bob <bob@x.org>``, only the address."""
    for text in {value: None, unquote(value): None}:
        if not text.isascii() and any(not each.isascii() and each.lower().isascii() for each in text):
            continue  # letters that only look like those of ASCII
        mailbox = _MAILBOX.fullmatch(text)
        yield text if mailbox is None else mailbox["address"]


def _list_rows(value: str) -> Iterator[str]:
    """Yield the rows of pieces of which one has to stand in a text that spells out a value."""
    for text in _list_forms(value):
        pieces = split_pieces(text)
        if len(pieces) == 1:
            yield from [f" {wanted} " for wanted in _list_names(pieces[0])]
        elif pieces:
            yield join_pieces(pieces)


def _list_names(piece: str) -> tuple[str, ...]:
    """Return what names the same as a piece: a URL is named by its host alone, too."""
    scheme, colon, rest = piece.partition("://")
    if colon:
        host = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
        bare = (rest,) if "@" in host or "\\" in rest or not host else (rest, host)
        schemes = (scheme, "http") if scheme == "https" else (scheme,)
        return (*[f"{each}://{name}" for name in bare for each in schemes], *filter(None, bare))
    return (piece, piece[1:]) if piece.startswith("@") and piece != "@" else (piece, f"//{piece}")


def _list_patterns(value: object) -> Iterator[re.Pattern[str]]:
    """Yield what finds a number, an account, a card or a telephone in groups or not, and scripts without spaces."""
    if not isinstance(value, str):
        if isinstance(value, (int, float)):
            number = _match_number(f"{abs(value):.10f}" if isinstance(value, float) else str(abs(value)))
            yield number if value >= 0 else re.compile(rf"[-\u2212]\s?{number.pattern}")
        return
    if is_number(value):
        yield _match_number(value)
    signs = re.sub(r"[ ./-]", "", value)
    is_account = 8 <= len(signs) <= _LONGEST_ACCOUNT and sum(map(str.isdigit, signs)) >= 6
    if is_account and _GROUPED.fullmatch(value) and (value.isdigit() or not is_number(value)):
        # Whole: not the beginning or the end of a longer one.
        middle = "[ ./_-]?".join(map(re.escape, signs))
        yield re.compile(rf"(?<![\w+])(?<!\d[ ./-]){middle}(?!\w|[ ./-]\d)", re.IGNORECASE | re.ASCII)
    if not value.isascii() and not any(map(has_boundary, value)):
        yield re.compile(re.escape(value))


def _match_number(text: str) -> re.Pattern[str]:
    """Return what finds a number, its thousands grouped or not: 1200 in "1 200.00", and not 5990 in "59.90"."""
    whole, _, rest = text.replace(",", ".").partition(".")
    grouped = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", r"[.,'\\u2019 \\u00a0\\u202f_]?", whole.lstrip("0") or "0")
    rest = rest.rstrip("0")
    decimals = f"[.,]{rest}0*" if rest else "(?:[.,]0+)?"
    # Whole: no part of a date, of an order's number, or of an account in groups.
    return re.compile(rf"(?<![\d_])(?<!\d[.'\u2019/:-])0*{grouped}{decimals}(?![.'\u2019/:-]?\d|_)")


def is_number(text: str) -> bool:
    """Return whether a text is a number alone."""
    return _NUMBER.fullmatch(text) is not None


def has_boundary(character: str) -> bool:
    """Return whether words that begin or end with a character stand between spaces."""
    return character.isdigit() or character.lower() != character.upper()


def fold_spaces(text: str) -> str:
    """Return a text in lower case, with single spaces; line breaks stay."""
    return "\n".join([" ".join(line.split()) for line in text.lower().strip().splitlines()])


def _stands_whole(spelling: str, text: str) -> bool:
    """Return whether a value stands in a text between spaces, quotes, brackets and the marks of sentences."""
    place = text.find(spelling)
    while place >= 0:
        if _MAY_PRECEDE.fullmatch(text[max(0, place - 1) : place]) and _MAY_FOLLOW.match(text, place + len(spelling)):
            return True
        place = text.find(spelling, place + 1)
    return False


# texts


class TextIndex:
    """Finds values in texts; each text is searched once for a value whose words all stand in some text."""

    __slots__ = ("_searched", "_texts", "_words")

    def __init__(self) -> None:
        # With its pieces, as it is for patterns, and in lower case with single spaces.
        self._texts: list[tuple[TextSource, str, str, str]] = []
        self._words: set[str] = set()
        self._searched: dict[Wanted, int] = {}

    def add(self, source: TextSource) -> None:
        """Add a text."""
        text = _MARK.join(_list_texts(source.text)) if "\\u" in source.text else source.text
        text = _GROUPS.sub(lambda found: found[0].replace(" ", "_"), text)
        row = join_pieces(split_pieces(text))
        self._texts.append((source, row, _write_ascii_digits(text), fold_spaces(text)))
        self._words.update(row.split())

    def find(self, wanted: Wanted) -> TextSource | None:
        """Return a text in which a value stands as a whole; None where there is none."""
        names = [name for name in wanted.names if name.strip() in self._words]
        start = self._searched.get(wanted, 0)
        for source, row, text, folded in self._texts[start:]:
            if any(each in row for each in names) or wanted.may_match(text):
                return source
            if any(_stands_whole(each, folded) for each in wanted.spellings):
                return source
        self._searched[wanted] = len(self._texts)
        return None

    def has_row(self, row: str) -> bool:
        """Return whether a row of pieces stands in a text."""
        return self._words.issuperset(row.split()) and any(row in each for _, each, *_ in self._texts)


class _OutsideText:
    """An untrusted text, with its parts at their first use."""

    __slots__ = ("_is_plain", "_leaves", "lower", "source")

    def __init__(self, source: TextSource) -> None:
        text, self.source = source.text, source
        decoded = normalise(text)
        self._is_plain = decoded == text and "\\u" not in text
        self.lower: str = text.lower() if self._is_plain else _MARK.join([decoded, *_list_texts(text)]).lower()
        self._leaves: list[tuple[str, str]] | None = None
        if len(text) > _LONG_TEXT:  # which is indexed in a thread, and may be searched in the event loop
            _ = self.leaves

    @property
    def leaves(self) -> list[tuple[str, str]]:
        """The texts in it, inside of JSON or alone, and decoded ones: each as a row of pieces, and in lower case."""
        if self._leaves is None:
            texts = dict.fromkeys(_list_texts(self.source.text))
            if not self._is_plain:
                texts.update(dict.fromkeys([*map(normalise, texts), normalise(self.source.text)]))
            self._leaves = [(join_pieces(split_pieces(text)), text.lower()) for text in texts]
        return self._leaves

    def may_name(self, wanted: Wanted) -> bool:
        """Return whether it may name a value among other words: a quick check, False only if it does not."""
        lower = self.lower
        for word, alone in wanted.words:
            if word in lower:
                is_alone = self._is_plain and lower.count(word) == lower.count(alone)
                if not is_alone or _read_json(self.source.text) is None:
                    return True
        return bool(wanted.patterns) and wanted.may_match(lower)

    def has_order(self, destinations: Sequence[Wanted], rows: Sequence[str]) -> bool:
        """Return whether a text in it has all destinations and one of some rows; without rows, some other words."""
        for row, text in self.leaves:
            if all(each.stands_in(row, text) for each in destinations) and (
                any(each in row for each in rows) if rows else not destinations[0].is_all_of(row, text)
            ):
                return True
        return False


class OutsideTexts:
    """Finds the untrusted text that spells a call out; each is searched once for the same."""

    __slots__ = ("_naming", "_searched", "_texts")

    def __init__(self) -> None:
        self._texts: list[_OutsideText] = []
        self._naming: dict[Wanted, tuple[list[_OutsideText], int]] = {}
        self._searched: dict[object, int] = {}

    def add(self, source: TextSource) -> None:
        """Add a text."""
        self._texts.append(_OutsideText(source))

    def find_order(self, destinations: Sequence[Wanted], rows: Sequence[str]) -> TextSource | None:
        """Return a text in which all destinations stand, and one of some rows of pieces; without rows, other words."""
        texts = self._list_naming(destinations[0]) if destinations else self._texts
        if not texts:
            return None
        key = (*destinations, *rows)
        for text in texts[self._searched.get(key, 0) :]:
            if text.has_order(destinations, rows):
                return text.source
        self._searched[key] = len(texts)
        return None

    def _list_naming(self, wanted: Wanted) -> Sequence[_OutsideText]:
        """Return the texts that may name a value."""
        found, count = self._naming.get(wanted) or ([], 0)
        if count < len(self._texts):
            for text in self._texts[count:]:
                if text.may_name(wanted):
                    found.append(text)
            self._naming[wanted] = found, len(self._texts)
        return found

    def quote(self, value: str) -> tuple[TextSource, str] | None:
        """Return a text in which a value or a telling part of it stands, and the words around it; reads all texts."""
        forms = list(dict.fromkeys(each[:_LONGEST_VALUE].lower() for each in (value, unquote(value))))
        parts = [part for form in forms for part in re.split(r"[@/?#\s]+", form) if len(part) > 3]
        for wanted in (*forms, *sorted(parts, key=len, reverse=True)):
            for text in self._texts:
                if wanted in text.lower:
                    return quote_leaf(text.source, wanted)
        return None


def quote_leaf(source: TextSource, wanted: str) -> tuple[TextSource, str]:
    """Return a text, or the text inside of its JSON that has some words, and the words around these."""
    plain = _read_json(source.text)
    leaves = [("", source.text)] if plain is None else [(path, str(leaf)) for path, leaf in walk_leaves(plain)]
    path, text = next((each for each in leaves if wanted in each[1].lower()), ("", source.text))
    at, around = text.lower().find(wanted), text
    if at >= 0:
        end = at + len(wanted)
        before, after = text[max(0, at - _QUOTED) : at], text[end : end + _QUOTED]
        around = before.rpartition("\n\n")[2] + text[at:end] + after.partition("\n\n")[0]
    found = TextSource(source.kind, source.tool_name, source.call_id, path, text)
    return found, escape_in_text(shorten_to_line(around, 3 * _QUOTED))


def _list_texts(text: str) -> list[str]:
    """Return the names, texts and numbers inside of JSON, each member of a name; a text alone where it is none."""
    if _read_json(text) is None:
        return [text]
    plain = json.loads(text, object_pairs_hook=_join_pairs, parse_int=str, parse_float=str)
    return list(map(str, list_leaves(plain)))


def _join_pairs(pairs: Iterable[tuple[str, Any]]) -> list[Any]:
    return [each for pair in pairs for each in pair]


def _read_json(text: str) -> Any:
    """Return the value of a text that is a JSON object or array; None for others."""
    if text[:1] in ("{", "[") and len(text) <= _LONGEST_JSON:
        try:
            value, end = _DECODER.raw_decode(text)  # in half of the time of `json.loads`
        except (ValueError, RecursionError):
            return None
        return None if text[end:].strip() else value
    return None
