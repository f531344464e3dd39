"""Provenance: where the values of a call stand, in the user's words, in trusted outputs or in what came from outside.

Texts are indexed once, as they come, by their pieces: what stands between spaces, quotes and brackets. A value is found
by its pieces too, so that no call reads texts again. A piece is whole: ``corp.com.evil.com`` is not the ``corp.com`` of
a user.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from html import unescape
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from unicodedata import decimal, normalize
from urllib.parse import unquote

from toolkit.chat import AssistantMessage, Message, ReasoningBlock, ToolResult, Trust, is_untrusted
from toolkit.dataclass import dataclass
from toolkit.foreign_text import escape_in_text, has_mixed_scripts, is_hidden, shorten_to_line
from toolkit.json_text import digest_json
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from toolkit.calls.prepare import Ready
    from toolkit.calls.registration import Registration
    from toolkit.chat.output import ToolOutput

_SEPARATORS = re.compile(r"[\s\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb,;(){}\[\]<>|\u3001\u3002]+")
_ESCAPES = re.compile(r"\\+[\"'nrt/]")  # in a string of JSON that is quoted somewhere
_NUMBER = re.compile(r"\d{1,30}(?:[.,]\d{1,30})?")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,4096}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){8,2048}")
_GROUPED = re.compile(r"\+?[A-Za-z0-9]+(?:[ ./-][A-Za-z0-9]+)*")
_LEAVES = re.compile(r'"(?:[^"\\]++|\\.)*+"\s*+:|("(?:[^"\\]++|\\.)*+"|-?\d[\d.eE+-]*)')  # of valid JSON
_INDEXES = re.compile(r"\[\d+\]")
_FOUND_OUTSIDE = re.compile(
    r'"type": ?"(?:(?:web_search|web_fetch|file_search|mcp)(?:_tool_result|_call)|nova_grounding\w*|url_citation)"'
    r'|"toolResponse": ?\{|"(?:groundingChunks|webSearchQueries|urlContextMetadata)": ?[\[{]|"location": ?\{"web"'
)  # as Anthropic, OpenAI, Amazon and Google write it
_LEAF_TYPES = frozenset({str, int, float, bool})
_LEADING, _TRAILING = "*#_~:$€£?!", ".,;:!?*_~/€"
_MARK = " \0 "  # between leaves of JSON
_LONGEST_JSON = 200_000
_LONGEST_VALUE = 4_000
_LONGEST_ACCOUNT = 40
_SAMPLE = 50
_NEARBY = 400
_MOST_PLACES = 5_000
_QUOTED = 60
_LONG_PENDING = 100_000


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


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value of a call comes from, for the person who decides on the call.

    Args:
        parameter: The path of the value in the arguments.
        value: The value, with hidden characters as escapes.
        kind: ``untrusted`` where it stands in what came from outside, ``none`` where it stands nowhere,
            ``dictated`` where the user named it, but an untrusted text spells out the whole call, and ``secret`` for
            an argument with a key or password that the user did not write.
        tool_name: The tool that gave the text; empty without one.
        call_id: The id of its call.
        path: The place in output that is JSON.
        quote: The text around the value.
        marks: The properties of the value that make it look like another.
    """

    parameter: str
    value: str
    kind: Literal["untrusted", "none", "dictated", "secret"]
    tool_name: str = ""
    call_id: str = ""
    path: str = ""
    quote: str = ""
    marks: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"'{self.value}' ({self.parameter})" if self.parameter else "this call"
        marks = f" It has {' and '.join(self.marks)}." if self.marks else ""
        if self.kind == "secret":
            return f"{name} holds what looks like a secret, which the user did not write."
        if self.kind == "none":
            return f"{name} stands in nothing that the user wrote or a trusted tool gave.{marks}"
        place = f" at {self.path}" if self.path else ""
        given = f"what '{self.tool_name}' gave{place} (call {self.call_id})" if self.tool_name else "untrusted text"
        verb = "is spelled out in" if self.kind == "dictated" else "stands in"
        return f'{name} {verb} {given}: "{self.quote}".{marks}'


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the texts, numbers and booleans inside arguments."""
    return (leaf for _, leaf in walk_leaves(value))


def walk_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each text, number and boolean inside JSON."""
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if type(value) in _LEAF_TYPES:
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


def _split_pieces(text: str) -> list[str]:
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    pieces = [piece if piece.isalnum() else _trim(piece) for piece in _SEPARATORS.split(text.lower())]
    return list(filter(None, pieces))


def _trim(piece: str) -> str:
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
            yield _trim(rest)
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
    if _BASE64.fullmatch(value) and (plain := _decode(value)):
        yield plain


def _decode(text: str) -> str:
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
    decoded = {unquote(text)} if "%" in text else set[str]()
    if "&" in text:
        decoded.add(unescape(text))
    if not text.isascii():
        plain = normalize("NFKC", text.translate(_TAGS))
        hidden = [each for each in set(plain) if not each.isspace() and is_hidden(each)]
        decoded.add(_write_ascii_digits(plain.translate(dict.fromkeys(map(ord, hidden)))))
    yield from decoded - {text}
    for match in _BASE64.finditer(text):
        if plain := _decode(match[0]):
            yield plain


_TAGS = {0xE0000 + code: code for code in range(32, 127)}  # drawn as nothing, and read as ASCII by some models
_TURNED = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")  # rot13, of texts in lower case
_DISGUISES: tuple[Callable[[str], str], ...] = (str, lambda text: text[::-1], lambda text: text.translate(_TURNED))


def _join(pieces: Iterable[str]) -> str:
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
    """Finds values in texts; one of words that stand nowhere is looked for in none."""

    __slots__ = ("_finder", "_words")

    def __init__(self) -> None:
        self._finder = _Finder()  # of texts: their source, their pieces, and as they are for numbers
        self._words: set[str] = set()

    def add(self, source: TextSource) -> None:
        """Add a text."""
        plain = _read_json(source.text) if "\\u" in source.text else None
        text = source.text if plain is None else _MARK.join(map(str, list_leaves(plain)))
        joined = _join(_split_pieces(text))
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
        if found is None and (isinstance(value, (int, float)) or (isinstance(value, str) and _NUMBER.fullmatch(value))):
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


class _Ways:
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
    """An untrusted text. What is costly to find out about it is found out when it is first needed."""

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
            self._joined = _join(_split_pieces(self.leaves))
        return self._joined

    def may_name(self, destination: _Ways) -> bool:
        """Return whether it may name a destination among other words; quick, and False only where it does not."""
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
            if count > _MOST_PLACES:  # somebody wants to keep us busy
                return True
            left = max(begin - _NEARBY, text.rfind("\0", 0, begin + 1) + 1)
            right = text.find("\0", end - 1)
            nearby = text[left : min(end + _NEARBY, right if right >= 0 else len(text))]
            is_longer = len(nearby.strip(' "\n')) > len(text[begin:end].strip())
            if is_longer and all(_stands_in(each, nearby) for each in destinations):
                return True
        return False


class _OutsideTexts:
    """Finds the untrusted text that spells a call out."""

    __slots__ = ("_finder",)

    def __init__(self) -> None:
        self._finder = _Finder()

    def add(self, source: TextSource) -> None:
        """Add a text."""
        self._finder.texts.append(_OutsideText(source))

    def find_naming(self, destination: _Ways | None) -> Sequence[_OutsideText]:
        """Return the texts that may name a destination; all where there is none."""
        texts = self._finder.texts
        return texts if destination is None else self._finder.find(destination, lambda text: text.may_name(destination))

    def find_spelling(
        self, naming: Sequence[_OutsideText], ways: Sequence[_Ways], anchors: Sequence[str | re.Pattern[str]]
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
                    return _quote_leaf(text.source, wanted)
        return None


def _quote_leaf(source: TextSource, wanted: str) -> tuple[TextSource, str]:
    """Return a text, or the text inside of its JSON that has some words, and the words around these."""
    plain = _read_json(source.text)
    leaves = [("", source.text)] if plain is None else [(path, str(leaf)) for path, leaf in walk_leaves(plain)]
    path, text = next((each for each in leaves if wanted in each[1].lower()), ("", source.text))
    at = text.lower().find(wanted)
    around = text[max(0, at - _QUOTED) : at + len(wanted) + _QUOTED] if at >= 0 else text
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
        pieces = _split_pieces(text)
        addresses = [piece for piece in pieces if "@" in piece[1:]]
        if addresses and all(piece in addresses or piece.isalnum() for piece in pieces):
            pieces = addresses if len(addresses) == 1 else []
        if len(pieces) == 1:
            yield from [f" {wanted} " for wanted in _list_wanted(pieces[0])]
        elif pieces:
            yield _join(pieces)


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


def _take_samples(text: str) -> list[list[str]]:
    """Return the pieces of the halves of a text, or those at the start, in the middle and at the end of a long one."""
    if len(text) > 2 * _SAMPLE:
        middle = len(text) // 2
        cuts = (text[:_SAMPLE], text[middle : middle + _SAMPLE], text[-_SAMPLE:])
        return [_split_pieces(cut)[1:-1] for cut in cuts]
    pieces = _split_pieces(text)
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


def has_boundary(character: str) -> bool:
    """Return whether words that begin or end with a character stand between spaces."""
    return character.isdigit() or character.lower() != character.upper()


@dataclass(slots=True)
class _OpenCall:
    """A call that is under way, which may make calls of its own.

    Args:
        trust: The texts of its run.
        outer: The call inside of which its run is; None where that is the outermost.
        is_untrusted: True once something untrusted came back inside.
    """

    trust: RunTrust
    outer: _OpenCall | None = None
    is_untrusted: bool = False

    def label(self, ready: Ready[Any], output: ToolOutput, trust: Trust) -> Trust:
        """Return the label of an output of the call, or of a call inside of it."""
        if not self.is_untrusted and not self.trust.is_derived(ready, output, trust):
            return "trusted"
        if self.outer is not None:
            self.outer.is_untrusted = True
        return "untrusted"


_open_call: ContextVar[_OpenCall | None] = ContextVar("toolkit_open_call", default=None)


def find_trust() -> RunTrust | None:
    """Return the texts of the run in whose call this code runs; None outside of such a call."""
    around = _open_call.get()
    return None if around is None else around.trust


class RunTrust:
    """The texts that the model of one run has seen, for rules that ask who wrote them.

    Args:
        list_messages: Returns the transcript as it is now; None where it is not known, and all may be untrusted.
        registrations: The tools, of which some descriptions may come from outside.

    Attributes:
        calls: The ids of the calls whose untrusted results the model has seen, in order.
        found: The values of which a trusted text is known.
        decided: The decisions of people on destinations, by their digests.
        written: The destinations to which something untrusted may have been written.
    """

    __slots__ = (
        "_is_tainted",
        "_known",
        "_last",
        "_list_messages",
        "_outside",
        "_parent",
        "_taken",
        "_texts",
        "_waiting",
        "_waiting_chars",
        "_ways",
        "calls",
        "decided",
        "found",
        "written",
    )

    def __init__(
        self, list_messages: Callable[[], Sequence[Message]] | None, registrations: Iterable[Registration[Any]] = ()
    ) -> None:
        self._list_messages: Callable[[], Sequence[Message]] = list_messages or tuple
        self._parent = find_trust()
        self._known, self._outside = TextIndex(), _OutsideTexts()
        self._waiting: list[Message | TextSource] = []
        self._waiting_chars = 0
        self.found: dict[object, TextSource] = {}
        self._ways: dict[object, _Ways] = {}
        self._texts: set[tuple[str, str]] = set()
        self._taken = 0
        self._last: Message | None = None
        self._is_tainted = list_messages is None
        self.calls: dict[str, None] = {}
        self.decided: dict[str, bool] = {} if self._parent is None else self._parent.decided
        self.written: dict[str, None] = {} if self._parent is None else self._parent.written
        for each in registrations:
            if getattr(each.tool, "is_described_outside", False):
                name = f"the description of {each.name}"
                self._add_source(TextSource("untrusted", name, "", "", each.definition.description))

    @property
    def is_tainted(self) -> bool:
        """True once the model has seen something untrusted; it never becomes False again."""
        if not self._is_tainted:
            self._take_messages()
        return self._is_tainted or (self._parent is not None and self._parent.is_tainted)

    @property
    def _was_tainted(self) -> bool:
        """True where that was so when the last call was prepared."""
        return self._is_tainted or (self._parent is not None and self._parent._was_tainted)

    def save(self) -> dict[str, Any]:
        """Return the facts that a restored run needs as well, as JSON values."""
        self._take_messages()
        is_tainted = self.is_tainted
        return {
            "is_tainted": is_tainted,
            "calls": list(self.calls),
            "decided": dict(self.decided),
            "written": list(self.written),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take over the facts of a run that was saved."""
        if saved:
            self._is_tainted = self._is_tainted or bool(saved["is_tainted"])
            self.calls.update(dict.fromkeys(saved["calls"]))
            self.decided.update(saved["decided"])
            self.written.update(dict.fromkeys(saved["written"]))

    def take_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Take what a provider said of a reply beside its message: such as where it searched."""
        if metadata and not self._is_tainted:
            self._is_tainted = _FOUND_OUTSIDE.search(json.dumps(metadata, default=str)) is not None

    # texts

    def _take_messages(self) -> None:
        """Take the messages that are new; all again where the transcript was shortened or edited."""
        messages = self._list_messages()
        count, taken = len(messages), self._taken
        if taken > count or (taken and messages[taken - 1] is not self._last):
            taken = 0
        if taken < count:
            for message in messages[taken:]:
                self._take_message(message)
            self._taken, self._last = count, messages[-1]

    def _take_message(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._is_tainted = self._is_tainted or any(map(_has_read_outside, message.content))
            return
        if message.trust == "untrusted":
            self._is_tainted = True
            if isinstance(message, ToolResult):
                self.calls[message.call_id] = None
        self._waiting.append(message)
        content = message.content
        self._waiting_chars += len(content if isinstance(content, str) else message.text)

    def _add_source(self, source: TextSource) -> None:
        self._is_tainted = self._is_tainted or source.kind == "untrusted"
        self._waiting.append(source)
        self._waiting_chars += len(source.text)

    @property
    def is_behind(self) -> bool:
        """True where so much text is not indexed yet that it takes a thread."""
        self._take_messages()
        return self._waiting_chars > _LONG_PENDING

    def index(self) -> RunTrust:
        """Index the texts that were taken since the last time, and return this."""
        self._take_messages()
        if self._waiting:
            waiting, self._waiting, self._waiting_chars = self._waiting, [], 0
            for each in waiting:
                source = each if isinstance(each, TextSource) else self._read_message(each)
                if source is not None:
                    (self._outside if source.kind == "untrusted" else self._known).add(source)
        return self

    def _read_message(self, message: Message) -> TextSource | None:
        """Return the text of a message; None where it was there before, or may be the model's own words."""
        tool_name, call_id = (message.tool_name, message.call_id) if isinstance(message, ToolResult) else ("", "")
        key = (call_id or message.role, message.text)
        if key in self._texts:
            return None
        self._texts.add(key)
        if is_untrusted(message):
            return TextSource("untrusted", tool_name, call_id, "", message.text)
        if isinstance(message, ToolResult):  # an error may quote the call
            return None if message.is_error else TextSource("trusted", tool_name, call_id, "", message.text)
        is_task = message.role == "user" and self._parent is not None and self._parent.is_tainted
        return None if is_task else TextSource("user", text=message.text)

    def find_known(self, value: object) -> TextSource | None:
        """Return a text of the user, the application or a trusted tool in which a value stands; None without one."""
        found = self.found.get(value)
        if found is not None:
            return found
        if isinstance(value, str) and value.count("@") > 1:
            each = [self._find_one(part) for part in re.split(r"[,;]", value) if part.strip()]
            found = each[0] if each and all(each) else None
        else:
            found = self._find_one(value)
        if found is not None:
            self.found[value] = found  # for good: no text leaves an index
        return found

    def _find_one(self, value: object) -> TextSource | None:
        found = self.index()._known.find(value)
        return self._parent.find_known(value) if found is None and self._parent is not None else found

    def find_spelling(self, destinations: Sequence[Any], texts: Sequence[str]) -> TextSource | None:
        """Return an untrusted text that spells out a call: its destinations, and a text that nobody else wrote.

        Where a call has no text but its destinations, it is one that names these among other words.
        """
        ways = [self._ways.get(each) or self._make_ways(each) for each in destinations]
        anchors: list[str | re.Pattern[str]] | None = None
        for run in self._list_runs():
            naming = run.index()._outside.find_naming(ways[0] if ways else None)
            if naming:
                anchors = self._list_anchors(ways, texts) if anchors is None else anchors
                found = run._outside.find_spelling(naming, ways, anchors)
                if found is not None:
                    return found
        return None

    def _list_runs(self) -> Iterator[RunTrust]:
        """Yield this, and those of the runs around it."""
        run: RunTrust | None = self
        while run is not None:
            yield run
            run = run._parent

    def _make_ways(self, value: object) -> _Ways:
        return self._ways.setdefault(value, _Ways(value))

    def _list_anchors(self, destinations: Sequence[_Ways], texts: Sequence[str]) -> list[Any]:
        """Return what of a call is looked for in untrusted texts: pieces of its texts that no trusted text has."""
        if texts:
            rows = [_join(sample) for text in texts for sample in _take_samples(text) if sample]
            return [row for row in rows if not any(run.index()._known.has_row(row) for run in self._list_runs())]
        return [
            anchor for each in destinations[:1] for anchor in (each.ways[0] if each.number is None else [each.number])
        ]

    def describe(self, parameter: str, value: object, spelled: TextSource | None = None) -> Origin:
        """Return where a value comes from, for a person; reads all untrusted texts."""
        text = str(value)
        found = next(filter(None, (run.index()._outside.quote(text) for run in self._list_runs())), None)
        shown = escape_in_text(text if len(text) <= 4 * _QUOTED else f"{text[: 4 * _QUOTED]}...")
        marks = ["hidden characters"] if any(map(is_hidden, text)) else []
        marks += ["letters of several alphabets that look alike"] if has_mixed_scripts(text) else []
        kind: Literal["untrusted", "dictated"] = "untrusted"
        if spelled is not None:
            (source, quote), kind = _quote_leaf(spelled, text.lower()), "dictated"
        elif found is None:
            return Origin(parameter, shown, "none", marks=tuple(marks))
        else:
            source, quote = found
        return Origin(parameter, shown, kind, source.tool_name, source.call_id, source.path, quote, tuple(marks))

    # results

    def enter_call(self) -> None:
        """Note that a call of this run is under way in this context."""
        _open_call.set(_OpenCall(self, _open_call.get()))

    def is_derived(self, ready: Ready[Any], output: ToolOutput, trust: Trust) -> bool:
        """Return whether an output may say what came from outside: no tool makes that trusted.

        In a run that has seen something untrusted, that is so unless all that its call was given is known, and where
        it names what was written in such a run, or at any time by a tool whose outputs come from outside.
        """
        is_outside = trust == "untrusted"
        if not is_outside and not self._was_tainted:
            return False
        writes = not ready.registration.options.effects.isdisjoint(("write", "run"))
        if is_outside and not writes:
            return True
        leaves = [leaf for leaf in list_leaves(_read_given(ready)) if not isinstance(leaf, bool)]
        is_known = not is_outside and all(self.find_known(leaf) for leaf in leaves)
        if not is_known and writes:
            self._note_written(ready, is_outside=is_outside)
        if not is_known or not self.written:
            return not is_known
        given = " ".join([*[_fold_text(str(leaf)) for leaf in leaves], output.text.lower()])
        return any(each in given for each in self.written)

    def _note_written(self, ready: Ready[Any], *, is_outside: bool) -> None:
        """Note the places that a call may have written something untrusted to."""
        options = ready.registration.options
        plain = json.loads(ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True))
        found = list_destinations(ready.registration, walk_leaves(plain))
        paths = [leaf for _, leaf in found if isinstance(leaf, str)]
        # A command names files among other words, and so may any argument of a tool without labels.
        is_mixed = "run" in options.effects or (is_outside and options.destinations is None)
        names = map(_list_file_names, paths) if is_mixed else [[_fold_text(path)] for path in paths]
        self.written.update({name: None for each in names for name in each})

    def take_inner(self, ready: Ready[Any], text: str, trust: Trust) -> None:
        """Take the output of a call that was made inside of a call of this run."""
        self._add_source(TextSource(trust, ready.call.name, ready.call.id, "", text))


def label_output(ready: Ready[Any], output: ToolOutput, trust: Trust, *, is_inner: bool) -> Trust:
    """Return the label of an output; what comes back inside of another call labels that one, too.

    Args:
        ready: The call.
        output: The output.
        trust: The label of its tool.
        is_inner: True where no loop makes the call, but a tool: such as one that runs code which a model wrote.
    """
    opened = _open_call.get()
    if opened is None:
        return trust
    trust = opened.label(ready, output, trust)
    if is_inner:
        opened.is_untrusted = opened.is_untrusted or trust == "untrusted"
        opened.trust.take_inner(ready, output.text, trust)
    return trust


def _has_read_outside(block: object) -> bool:
    """Return whether a block of the model reports what the vendor found for it: on the web, in files, by MCP."""
    return isinstance(block, ReasoningBlock) and _FOUND_OUTSIDE.search(block.encrypted or "") is not None


def _list_file_names(text: str) -> list[str]:
    """Return the last parts of what may be paths among the words of a text."""
    pieces = [piece for piece in _split_pieces(text) if ("." in piece or "/" in piece) and "@" not in piece]
    return list(filter(None, [piece.rstrip("/").rpartition("/")[2] for piece in pieces]))


def _fold_text(text: str) -> str:
    return " ".join(_split_pieces(text))


def _read_given(ready: Ready[Any]) -> Any:
    """Return the arguments of a call without the defaults that nobody gave."""
    try:
        return json.loads(ready.given)
    except (ValueError, RecursionError):
        return json.loads(ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True))


# one call, as rules see it


def _list_given(registration: Registration[Any], arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the leaves of the arguments of a call, and the names in them that the schema of its tool does not have."""
    if _LEAF_TYPES.issuperset(map(type, arguments.values())):
        return [pair for pair in arguments.items() if pair[1] != ""]
    leaves = list(walk_leaves(arguments))
    described = {name for _, name in _walk_names(registration.definition.parameters)}
    return leaves + [(path, name) for path, name in _walk_names(arguments) if name not in described]


def _walk_names(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each member inside JSON."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, value = waiting.pop()
        if is_object(value):
            for name, member in value.items():
                inner = f"{path}.{name}" if path else name
                yield inner, name
                waiting.append((inner, member))
        elif is_array(value):
            waiting += [(path, item) for item in value]


def list_destinations(registration: Registration[Any], arguments: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return those leaves of the arguments of a call that say where its effects go.

    They are those of the parameters that its tool names, or all of them where it names none; and the numbers of a call
    that spends.
    """
    options = registration.options
    names, spends = options.destinations, "spend" in options.effects
    return [(path, leaf) for path, leaf in arguments if _is_destination(path, leaf, names, spends=spends)]


def _is_destination(path: str, leaf: object, names: Sequence[str] | None, *, spends: bool) -> bool:
    if leaf is True or leaf is False:
        return False
    if names is None or path in names or (spends and (not isinstance(leaf, str) or _NUMBER.fullmatch(leaf))):
        return True
    bare = _INDEXES.sub("", path) if "[" in path else path
    return (bare is not path or "." in path) and any(bare == name or bare.startswith(f"{name}.") for name in names)


TrustCondition: TypeAlias = Literal["", "tainted", "unknown_destination"]
"""When a rule on trust holds: in a run that has seen something untrusted, or for a destination that nobody named."""


_SECRET = TextSource("trusted")
_MAY_BE_SECRET = re.compile(r"[^\s@]{16,}|[=:]\s*\S{6,}")  # a quick look, before patterns that take longer


class CallTrust:
    """One call with effects, as rules on trust see it.

    Args:
        trust: The texts of its run.
        registration: The tool.
        read_arguments: Reads the arguments as JSON values; called once, where a rule needs them.

    Attributes:
        effects: The effects of the tool.
        is_tainted: True where the model has seen something untrusted.
        has_destinations: False where the tool says that its effects go nowhere in particular.
        asked: The digests of what is asked about.
    """

    __slots__ = (
        "_read_arguments", "_registration", "_trust", "_unknown", "asked", "effects", "has_destinations", "is_tainted",
    )  # fmt: skip

    def __init__(
        self, trust: RunTrust, registration: Registration[Any], read_arguments: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._trust = trust
        self._registration = registration
        self._read_arguments = read_arguments
        self._unknown: list[tuple[str, Any, TextSource | None]] | None = None
        self.is_tainted: bool = trust.is_tainted
        options = registration.options
        self.effects: frozenset[str] = options.effects
        self.has_destinations: bool = options.destinations != ()
        self.asked: list[str] = []

    @property
    def unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        """The destinations that neither the user nor a trusted tool named, with the text that spells out the call.

        Where a tool names no destinations, this holds only in a run that has seen something untrusted.
        """
        if self._unknown is None:
            self._unknown = self._find_unknown()
        return self._unknown

    def _find_unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        trust, options = self._trust, self._registration.options
        names, spends = options.destinations, "spend" in options.effects
        if names is None and not self.is_tainted:
            return []
        unknown: list[tuple[str, Any, TextSource | None]] = []
        destinations: list[tuple[str, Any]] = []
        texts: list[str] = []
        for path, leaf in _list_given(self._registration, self._read_arguments()):
            is_text = isinstance(leaf, str)
            if _is_destination(path, leaf, names, spends=spends):
                destinations.append((path, leaf))
                if leaf not in trust.found and not self._is_known(path, leaf):
                    unknown.append((path, leaf, None))
            elif is_text:
                texts.append(leaf)
            if is_text and self._is_secret(leaf):
                unknown.append((path, leaf, _SECRET))
        if not destinations and names is None:  # the call itself, which nobody can have named
            return [("", self._registration.name, None)]
        if not unknown and self.is_tainted:
            spelled = trust.find_spelling([leaf for _, leaf in destinations], texts)
            if spelled is not None:
                return [(*(destinations or [("", self._registration.name)])[0], spelled)]
        return unknown

    def _is_known(self, path: str, leaf: object) -> bool:
        """Return whether somebody who is trusted named a destination, or a person has approved it."""
        if self._trust.find_known(leaf) is not None:
            return True
        decided = self._trust.decided
        return bool(decided) and decided.get(_name_destination(path, leaf), False)

    def _list_destinations(self, leaves: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return the values that say where the effects go, by their paths; the call itself where it takes none."""
        found = list_destinations(self._registration, leaves)
        return found or ([("", self._registration.name)] if self._registration.options.destinations is None else [])

    def _is_secret(self, leaf: str) -> bool:
        """Return whether an argument has a text in the format of a key that stands in no message of the user."""
        if _MAY_BE_SECRET.search(leaf) is None:
            return False
        from toolkit.redaction import strike_keys  # noqa: PLC0415 - its patterns take milliseconds

        if strike_keys(leaf) == leaf:
            return False
        found = self._trust.find_known(leaf)
        return found is None or found.kind != "user"

    def recall(self, *, is_whole: bool) -> bool | None:
        """Return what people decided on the destinations that are asked about; None where they have not decided on all.

        Args:
            is_whole: True to ask about all destinations, known or not.
        """
        if is_whole or not self.unknown:
            destinations = self._list_destinations(_list_given(self._registration, self._read_arguments()))
            self.asked = [_name_destination(path, leaf) for path, leaf in destinations]
        else:
            self.asked = [
                self._name_call() if spelled else _name_destination(path, leaf) for path, leaf, spelled in self.unknown
            ]
        self.asked = self.asked or [self._name_call()]
        answers = [self._trust.decided.get(name) for name in self.asked]
        return False if False in answers else None if None in answers else True

    def describe(self) -> tuple[Origin, ...]:
        """Return where the destinations come from that nobody named, for a person."""
        return tuple(
            [
                Origin(path, "***", "secret") if spelled is _SECRET else self._trust.describe(path, leaf, spelled)
                for path, leaf, spelled in self.unknown
            ]
        )

    def decide(self, *, is_approved: bool) -> None:
        """Note the decision of a person on what was asked about."""
        self._trust.decided.update(dict.fromkeys(self.asked, is_approved))

    def _name_call(self) -> str:
        return digest_json([self._registration.name, self._read_arguments()])[:32]


def _name_destination(path: str, leaf: object) -> str:
    """Return the digest that names a destination: of a text alone, or of a number and its place."""
    return digest_json([(_fold_text(leaf) or leaf)] if isinstance(leaf, str) and path else [path, str(leaf)])[:32]
