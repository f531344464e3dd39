"""Finds values in texts, and the untrusted text that spells a call out.

Texts are split once, as they come, into pieces: what stands between spaces, quotes and brackets. A value is found by
its pieces too. A piece is whole: ``corp.com.evil.com`` is not the ``corp.com`` of a user.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from html import unescape
from typing import Any, Literal
from unicodedata import decimal, normalize
from urllib.parse import unquote

from toolkit.dataclass import dataclass
from toolkit.foreign_text import escape_in_text, is_hidden, shorten_to_line
from toolkit.schema.nodes import is_array, is_object

_SEPARATORS = re.compile(r"[\s\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb,;(){}\[\]<>|\u3001\u3002]+")
_ESCAPES = re.compile(r"\\+[\"'nrt/]")  # in a string of JSON that is quoted somewhere
_NUMBER = re.compile(r"\d{1,30}(?:[.,]\d{1,30})?")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,4096}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){8,2048}")
_GROUPED = re.compile(r"\+?[A-Za-z0-9]+(?:[ ./-][A-Za-z0-9]+)*")
_LEAVES = re.compile(r'"(?:[^"\\]++|\\.)*+"\s*+:|("(?:[^"\\]++|\\.)*+"|-?\d[\d.eE+-]*)')  # of valid JSON
LEAF_TYPES = frozenset({str, int, float, bool})
_LEADING, _TRAILING = "*#_~:$€£?!", ".,;:!?*_~/€"
_MARK = " \0 "  # between leaves of JSON
_LONGEST_JSON = 200_000
_LONGEST_VALUE = 4_000
_LONGEST_ACCOUNT = 40
_SAMPLE = 50
_NEARBY = 400
_MOST_PLACES = 5_000
_QUOTED = 60


@dataclass(frozen=True, slots=True)
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
            inner = [(f"{path}.{name}" if path else str(name), member) for name, member in value.items()]
            inner.reverse()
            waiting += inner
        elif is_array(value):
            waiting += reversed([(f"{path}[{index}]", item) for index, item in enumerate(value)])
        elif value is not None:
            yield path, value


def split_pieces(text: str) -> list[str]:
    """Return what stands between spaces, quotes and brackets, in lower case, without the punctuation around it."""
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    pieces = [piece if piece.isalnum() else _trim_piece(piece) for piece in _SEPARATORS.split(text.lower())]
    return list(filter(None, pieces))


def _trim_piece(piece: str) -> str:
    return piece.lstrip(_LEADING).rstrip(_TRAILING).removeprefix("./")


def _list_parts(piece: str) -> Iterator[str]:
    """Yield what else is named where a piece is: ``to:bob@x.org`` names an address, ``https://x.org/`` a host."""
    _, colon, rest = piece.partition("://")
    if colon:
        yield rest
        return
    for sign in ":=":
        _, found, rest = piece.partition(sign)
        if found and not rest.isdigit():
            yield _trim_piece(rest)
    if piece.startswith("@"):
        yield piece[1:]


def _list_wanted(piece: str) -> tuple[str, ...]:
    """Return the forms of a piece of a value of which one has to stand somewhere: a URL itself, or its host alone."""
    _, colon, rest = piece.partition("://")
    if colon:
        host = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
        return (piece, rest) if "@" in host or "\\" in rest else (piece, rest, host)
    return (piece, piece[1:]) if piece.startswith("@") else (piece,)


def _list_forms(value: str) -> Iterator[str]:
    """Yield a value as it is, and decoded."""
    yield value
    if "%" in value and (plain := unquote(value)) != value:
        yield plain
    if _BASE64.fullmatch(value) and (plain := _decode_text(value)):
        yield plain


def _decode_text(text: str) -> str:
    """Return the text that is written in hexadecimal digits or base64; empty where none is."""
    try:
        is_hex = _HEX.fullmatch(text) is not None
        data = bytes.fromhex(text) if is_hex else base64.b64decode(text.replace("-", "+").replace("_", "/") + "==")
        plain = data.decode()
    except (binascii.Error, ValueError):
        return ""
    return plain if "".join(plain.split()).isprintable() else ""


def _list_readings(text: str) -> Iterator[str]:
    """Yield what a text from outside says, too, to somebody who decodes it."""
    decoded: set[str] = set()
    if "%" in text:
        decoded.add(unquote(text))
    if "&" in text:
        decoded.add(unescape(text))
    if not text.isascii():
        plain = normalize("NFKC", text.translate(_TAGS))
        hidden = [each for each in set(plain) if not each.isspace() and is_hidden(each)]
        decoded.add(_write_ascii_digits(plain.translate(dict.fromkeys(map(ord, hidden)))))
    if decoded:
        yield from decoded - {text}
    for match in _BASE64.finditer(text):
        if plain := _decode_text(match[0]):
            yield plain


_TAGS = {0xE0000 + code: code for code in range(32, 127)}  # drawn as nothing, and read as ASCII by some models
_TURNED = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")  # rot13, of texts in lower case
_DISGUISES: tuple[Callable[[str], str], ...] = (
    lambda row: row.replace(" .", " "),
    lambda row: row[::-1].replace(" .", " "),  # the end of a sentence is its beginning there
    lambda row: row.translate(_TURNED).replace(" .", " "),
)


def join_pieces(pieces: Iterable[str]) -> str:
    """Return pieces between spaces, each with what else is named there."""
    row = f" {' '.join(pieces)} "
    if ":" in row or "=" in row or "@" in row:
        row = f" {' '.join([part for piece in pieces for part in (piece, *_list_parts(piece))])} "
    return row


class _Finder:
    """Finds the texts that something is true of; each is read once for each question."""

    __slots__ = ("_found", "texts")

    def __init__(self) -> None:
        self.texts: list[Any] = []
        self._found: dict[object, tuple[list[Any], int]] = {}

    def find(self, key: object, is_there: Callable[[Any], bool], among: Sequence[Any] | None = None) -> Sequence[Any]:
        """Return the texts of which something is true that `key` names; `among` may only grow from time to time."""
        texts = self.texts if among is None else among
        found, count = self._found.get(key, ([], 0))
        if count < len(texts):
            found += filter(is_there, texts[count:])
            self._found[key] = found, len(texts)
        return found


class TextIndex:
    """Finds values in texts; a value with a word that no text contains is not searched for."""

    __slots__ = ("_finder", "_words")

    def __init__(self) -> None:
        self._finder = _Finder()  # of texts: their source, their pieces, and as they are for numbers
        self._words: set[str] = set()

    def add(self, source: TextSource) -> None:
        """Add a text."""
        plain = _read_json(source.text) if "\\u" in source.text else None
        text = source.text if plain is None else _MARK.join(map(str, list_leaves(plain)))
        joined = join_pieces(split_pieces(text))
        self._finder.texts.append((source, joined, _write_ascii_digits(source.text)))
        self._words.update(joined.split())

    def find(self, value: object) -> TextSource | None:
        """Return a text in which a value stands; None where there is none."""
        found: TextSource | None = None
        if isinstance(value, str):
            found = next(filter(None, map(self._find_row, _list_rows(value))), None)
            if found is None and not value.isascii() and not any(map(has_boundary, value)):
                found = self._find_pattern(re.compile(re.escape(value)))  # of a script without spaces
            if found is None and (account := _match_account(value)) is not None:
                found = self._find_pattern(account)
        if found is None and (isinstance(value, (int, float)) or (isinstance(value, str) and is_number(value))):
            found = self._find_pattern(_match_number(value))
        return found

    def has_row(self, row: str) -> bool:
        """Return whether a row of pieces stands in a text."""
        return self._find_row(row) is not None

    def _find_row(self, row: str) -> TextSource | None:
        is_there = self._words.issuperset(row.split())
        return (
            next((text[0] for text in self._finder.find(row, lambda text: row in text[1])), None) if is_there else None
        )

    def _find_pattern(self, pattern: re.Pattern[str]) -> TextSource | None:
        found = self._finder.find(pattern, lambda text: pattern.search(text[2]) is not None)
        return next((text[0] for text in found), None)


class Ways:
    """How a value may be written: a text as one of some rows of pieces, in each disguise.

    Attributes:
        number: The pattern of a number; None for a text.
        ways: The rows of a text in each disguise, or the pattern.
        words: The first pieces of all rows, and the same as JSON where the row has no more of them.
    """

    __slots__ = ("number", "ways", "words")

    def __init__(self, value: Any) -> None:
        rows = list(_list_rows(value)) if isinstance(value, str) else []
        self.number = None if isinstance(value, str) else _match_number(value)
        self.ways: list[Any] = [
            [*map(disguise, rows)] if self.number is None else self.number for disguise in _DISGUISES
        ]
        split = [disguise(row).split() for disguise in _DISGUISES for row in rows]
        self.words: list[tuple[str, str]] = [(row[0], f'"{row[0]}"' if len(row) == 1 else "\0") for row in split]


class _OutsideText:
    """An untrusted text; what is costly to compute is computed at its first use."""

    __slots__ = ("_is_json", "_joined", "_readings", "_text", "lower", "source")

    def __init__(self, source: TextSource) -> None:
        text, self.source = source.text, source
        self._is_json: bool | None = None if text[:1] in ("{", "[") else False
        if self._is_json is None and "\\u" in text and (plain := _read_json(text)) is not None:
            text, self._is_json = _MARK.join(map(str, list_leaves(plain))), False
        self._text, self._readings = text, "".join([f"{_MARK}{each}" for each in _list_readings(text)])
        self.lower = f"{text}{self._readings}".lower() if self._readings else text.lower()
        self._joined: str | None = None

    @property
    def is_json(self) -> bool:
        """True for JSON of which each text is a part by itself."""
        if self._is_json is None:
            self._is_json = _read_json(self._text) is not None
        return self._is_json

    @property
    def leaves(self) -> str:
        """The texts in it, those inside of JSON apart, and what it says in other encodings."""
        text = _MARK.join(filter(None, _LEAVES.findall(self._text))) if self.is_json else self._text
        return text + self._readings

    @property
    def joined(self) -> str:
        """The same as rows of pieces."""
        if self._joined is None:
            self._joined = join_pieces(split_pieces(self.leaves)).replace(" .", " ")
        return self._joined

    def may_name(self, destination: Ways) -> bool:
        """Return whether it may name a destination among other words: a quick check, False only if it does not."""
        if destination.number is not None:
            return destination.number.search(self.lower) is not None
        lower = self.lower
        for word, alone in destination.words:
            if word in lower and (self._readings or lower.count(word) != lower.count(alone) or not self.is_json):
                return True
        return False

    def spells(self, anchor: str | re.Pattern[str], destinations: Sequence[list[str] | re.Pattern[str]]) -> bool:
        """Return whether it has all destinations near an anchor, a row of pieces or a number, and more words."""
        text = self.joined if isinstance(anchor, str) else self.leaves
        for count, (begin, end) in enumerate(_find_spans(text, anchor)):
            if count > _MOST_PLACES:  # so many places are made to take time: treat it as spelled out
                return True
            left = max(begin - _NEARBY, text.rfind("\0", 0, begin + 1) + 1)
            right = text.find("\0", end - 1)
            nearby = text[left : min(end + _NEARBY, right if right >= 0 else len(text))]
            is_longer = len(nearby.strip(' "\n')) > len(text[begin:end].strip())
            if is_longer and all(_stands_in(each, nearby) for each in destinations):
                return True
        return False


class OutsideTexts:
    """Finds the untrusted text that spells a call out."""

    __slots__ = ("_finder",)

    def __init__(self) -> None:
        self._finder = _Finder()

    def add(self, source: TextSource) -> None:
        """Add a text."""
        self._finder.texts.append(_OutsideText(source))

    def find_naming(self, destination: Ways | None) -> Sequence[_OutsideText]:
        """Return the texts that may name a destination; all where there is none."""
        texts = self._finder.texts
        return texts if destination is None else self._finder.find(destination, lambda text: text.may_name(destination))

    def find_spelling(
        self, naming: Sequence[_OutsideText], ways: Sequence[Ways], anchors: Sequence[str | re.Pattern[str]]
    ) -> TextSource | None:
        """Return a text in which all destinations stand near something else of the call, among more words.

        `naming` are the texts that may name the first destination; `anchors` are the rows of pieces or the numbers of
        which one has to be there, too.
        """
        for disguise, *destinations in zip(_DISGUISES, *[each.ways for each in ways], strict=False):
            for anchor in anchors:
                hidden = disguise(anchor) if isinstance(anchor, str) else anchor
                is_spelled = partial(_OutsideText.spells, anchor=hidden, destinations=destinations)
                found = self._finder.find((str(destinations), hidden), is_spelled, naming)
                if found:
                    source: TextSource = found[0].source
                    return source
        return None

    def quote(self, value: str) -> tuple[TextSource, str] | None:
        """Return a text in which a value or a telling part of it stands, and the words around it; reads all texts."""
        forms = [form.lower() for form in _list_forms(value[:_LONGEST_VALUE])]
        parts = [part for form in forms for part in re.split(r"[@/?#\s]+", form) if len(part) > 3]
        for wanted in (*forms, *sorted(parts, key=len, reverse=True)):
            for text in self._finder.texts:
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


def _stands_in(destination: list[str] | re.Pattern[str], text: str) -> bool:
    if isinstance(destination, list):
        return any(row in text for row in destination)
    return destination.search(text) is not None


def _find_spans(text: str, anchor: str | re.Pattern[str]) -> Iterator[tuple[int, int]]:
    if not isinstance(anchor, str):
        yield from (match.span() for match in anchor.finditer(text))
        return
    at = text.find(anchor)
    while at >= 0:
        yield at, at + len(anchor)
        at = text.find(anchor, at + len(anchor) - 1)


def _list_rows(value: str) -> Iterator[str]:
    """Yield the rows of pieces of which one has to stand in a text where a value does."""
    for text in _list_forms(value[:_LONGEST_VALUE]):
        if not text.isascii() and any(not each.isascii() and each.lower().isascii() for each in text):
            continue  # letters that only look like those of ASCII
        pieces = split_pieces(text)
        addresses = [piece for piece in pieces if "@" in piece[1:]]
        if addresses and all(piece in addresses or piece.isalnum() for piece in pieces):
            pieces = addresses if len(addresses) == 1 else []
        if len(pieces) == 1:
            yield from [f" {wanted} " for wanted in _list_wanted(pieces[0])]
        elif pieces:
            yield join_pieces(pieces)


def _match_account(value: str) -> re.Pattern[str] | None:
    """Return what finds the number of an account, a card or a telephone, in groups or not; None for other values."""
    signs = re.sub(r"[ ./-]", "", value)
    if not 8 <= len(signs) <= _LONGEST_ACCOUNT or sum(map(str.isdigit, signs)) < 6 or not _GROUPED.fullmatch(value):
        return None
    # Whole: not the beginning or the end of a longer one.
    return re.compile(
        rf"(?<![\w+])(?<!\d[ ./-]){'[ ./-]?'.join(map(re.escape, signs))}(?!\w|[ ./-]\d)", re.IGNORECASE | re.ASCII
    )


def _read_json(text: str) -> Any:
    """Return the value of a text that is a JSON object or array; None for others."""
    if text[:1] in ("{", "[") and len(text) <= _LONGEST_JSON:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return None


def take_samples(text: str) -> list[list[str]]:
    """Return the pieces of the halves of a text, or those at the start, in the middle and at the end of a long one."""
    if len(text) > 2 * _SAMPLE:
        middle = len(text) // 2
        cuts = (text[:_SAMPLE], text[middle : middle + _SAMPLE], text[-_SAMPLE:])
        return [split_pieces(cut)[1:-1] for cut in cuts]
    pieces = split_pieces(text)
    half = len(pieces) // 2
    return [pieces[:half], pieces[half:]] if half > 2 else [pieces]


def _write_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return text.translate({ord(each): str(decimal(each)) for each in set(text) if each.isdecimal()})


def _match_number(value: float | str) -> re.Pattern[str]:
    """Return what finds a number, its thousands grouped or not: 1200 in "1 200.00", and not 5990 in "59.90"."""
    text = value if isinstance(value, str) else f"{abs(value):.10f}" if isinstance(value, float) else str(abs(value))
    whole, _, rest = text.replace(",", ".").partition(".")
    grouped = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", r"[.,'\\u2019 \\u00a0\\u202f]?", whole.lstrip("0") or "0")
    rest = rest.rstrip("0")
    decimals = f"[.,]{rest}0*" if rest else "(?:[.,]0+)?"
    return re.compile(rf"(?<!\d)(?<!\d[.'\u2019])0*{grouped}{decimals}(?![.'\u2019]?\d)")


def is_number(text: str) -> bool:
    """Return whether a text is a number alone."""
    return _NUMBER.fullmatch(text) is not None


def has_boundary(character: str) -> bool:
    """Return whether words that begin or end with a character stand between spaces."""
    return character.isdigit() or character.lower() != character.upper()
