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
from contextvars import ContextVar
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
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
_NUMBER = re.compile(r"\d+(?:[.,'\u2019 \u00a0\u202f]\d+)*")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,4096}={0,2}")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_INDEXES = re.compile(r"\[\d+\]")
_FOUND_OUTSIDE = re.compile(r'"type": ?"(?:web_search|web_fetch|file_search|mcp)(?:_tool_result|_call)"')
_LEADING, _TRAILING = "*#_~:$€£", ".,;:!?*_~/€"
_LONGEST_JSON = 200_000
_LONGEST_VALUE = 4_000
_SAMPLE = 50
_QUOTED = 60
_MOST_INNER = 20_000
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
        if is_object(value):
            inner = [(f"{path}.{name}" if path else str(name), member) for name, member in value.items()]
            waiting += reversed(inner)
        elif is_array(value):
            waiting += reversed([(f"{path}[{index}]", item) for index, item in enumerate(value)])
        elif value is not None and value != "":
            yield path, value


def _split_pieces(text: str) -> list[str]:
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    pieces = [piece if piece.isalnum() else _trim_piece(piece) for piece in _SEPARATORS.split(text.lower())]
    return list(filter(None, pieces))


def _trim_piece(piece: str) -> str:
    piece = piece.lstrip(_LEADING).rstrip(_TRAILING)
    return piece.removeprefix("./")


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
    if _BASE64.fullmatch(value):
        try:
            plain = base64.b64decode(value.replace("-", "+").replace("_", "/") + "==").decode()
        except (binascii.Error, ValueError):
            return
        if plain.isprintable():
            yield plain


class TextIndex:
    """Finds values in texts, in steps that depend on the value and not on how many texts there are."""

    __slots__ = ("_by_piece", "_counted", "_joined", "_numbers", "sources")

    def __init__(self) -> None:
        self.sources: list[TextSource] = []
        self._joined: list[str] = []
        self._by_piece: dict[str, list[int]] = {}
        self._numbers: dict[str, int] = {}
        self._counted = 0

    def add(self, source: TextSource) -> None:
        """Add a text."""
        number, pieces = len(self.sources), _split_pieces(source.text)
        self.sources.append(source)
        self._joined.append(f" {' '.join(pieces)} ")
        by_piece = self._by_piece
        for piece in set(pieces):
            by_piece.setdefault(piece, []).append(number)
            if ":" in piece or "=" in piece or "@" in piece:
                for part in _list_parts(piece):
                    by_piece.setdefault(part, []).append(number)

    def find(self, value: object) -> TextSource | None:
        """Return a text in which a value stands; None where there is none."""
        number = next(self._find_numbers(value), None)
        return None if number is None else self.sources[number]

    def _find_numbers(self, value: object) -> Iterator[int]:
        if isinstance(value, str):
            for form in _list_forms(value[:_LONGEST_VALUE]):
                yield from self._find_text(form)
        elif isinstance(value, (int, float)):
            yield from self._find_number(value)

    def _find_text(self, text: str) -> Iterator[int]:
        if not text.isascii() and any(not each.isascii() and each.lower().isascii() for each in text):
            return  # letters that only look like those of ASCII
        pieces = _split_pieces(text)
        addresses = [piece for piece in pieces if "@" in piece[1:]]
        if addresses and all(piece in addresses or piece.isalnum() for piece in pieces):
            pieces = addresses if len(addresses) == 1 else []
        yield from self.find_row(pieces)
        if text and not text.isascii() and not any(map(has_boundary, text)):  # a script without spaces
            yield from (number for number, joined in enumerate(self._joined) if text in joined)

    def _find_number(self, value: float) -> Iterator[int]:
        for number in range(self._counted, len(self.sources)):
            for digits in _list_numbers(self.sources[number].text):
                self._numbers.setdefault(digits, number)
        self._counted = len(self.sources)
        found = self._numbers.get(_write_digits(value))
        if found is not None:
            yield found

    def find_row(self, pieces: Sequence[str]) -> Iterator[int]:
        """Yield the numbers of the texts in which pieces stand one after the other."""
        if len(pieces) == 1:
            for wanted in _list_wanted(pieces[0]):
                yield from self._by_piece.get(wanted, ())
            return
        rarest: Sequence[int] | None = None
        for piece in pieces:
            found = self._by_piece.get(piece)
            if found is None:
                return
            if rarest is None or len(found) < len(rarest):
                rarest = found
        row = f" {' '.join(pieces)} "
        for number in rarest or ():
            if row in self._joined[number]:
                yield number

    def find_spelling(self, destinations: Sequence[str], rows: Sequence[Sequence[str]]) -> TextSource | None:
        """Return a text that has one of these rows of pieces and all destinations, among more words."""
        for pieces in rows:
            for number in self.find_row(pieces):
                is_longer = len(self._joined[number]) > len(" ".join(pieces)) + 2
                if is_longer and all(number in self._find_text(each) for each in destinations):
                    return self.sources[number]
        return None

    def quote(self, value: str) -> tuple[TextSource, str] | None:
        """Return a text in which a value or a telling part of it stands, and the words around it; reads all texts."""
        forms = [form.lower() for form in _list_forms(value[:_LONGEST_VALUE])]
        parts = [part for form in forms for part in re.split(r"[@/?#\s]+", form) if len(part) > 3]
        for wanted in (*forms, *sorted(parts, key=len, reverse=True)):
            for source in self.sources:
                at = source.text.lower().find(wanted)
                if at >= 0:
                    around = source.text[max(0, at - _QUOTED) : at + len(wanted) + _QUOTED]
                    return source, escape_in_text(shorten_to_line(around, 3 * _QUOTED))
        return None


def _take_samples(text: str) -> list[list[str]]:
    """Return the pieces of a text, or those at the start, in the middle and at the end of a long one."""
    if len(text) <= 2 * _SAMPLE:
        return [_split_pieces(text)]
    middle = len(text) // 2
    cuts = (text[:_SAMPLE], text[middle : middle + _SAMPLE], text[-_SAMPLE:])
    return [_split_pieces(cut)[1:-1] for cut in cuts]


def _list_numbers(text: str) -> set[str]:
    """Return the digits of the numbers in a text: "1 200" is 1200, 1 and 200."""
    found: set[str] = set()
    for match in _NUMBER.finditer(text):
        parts = ["".join(str(int(digit)) for digit in part) for part in re.findall(r"\d+", match[0])]
        found |= {"".join(parts).lstrip("0"), "".join(parts).strip("0"), *(part.lstrip("0") for part in parts)}
    return {digits or "0" for digits in found}


def _write_digits(value: float) -> str:
    if float(value).is_integer():
        return str(abs(int(value)))
    return "".join(re.findall(r"\d", str(abs(value)))).strip("0")


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

    def label(self, ready: Ready[Any], text: str, trust: Trust) -> Trust:
        """Return the label of an output of the call, or of a call inside of it."""
        if not self.trust.is_derived(ready, text, trust) and not self.is_untrusted:
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
        decided: The decisions of people on destinations, by their digests.
        written: The destinations to which something untrusted may have been written.
    """

    __slots__ = (
        "_found",
        "_is_tainted",
        "_known",
        "_last",
        "_list_messages",
        "_outside",
        "_parent",
        "_pending",
        "_pending_chars",
        "_taken",
        "_texts",
        "calls",
        "decided",
        "written",
    )

    def __init__(
        self, list_messages: Callable[[], Sequence[Message]] | None, registrations: Iterable[Registration[Any]] = ()
    ) -> None:
        self._list_messages: Callable[[], Sequence[Message]] = list_messages or tuple
        self._parent = find_trust()
        self._known, self._outside = TextIndex(), TextIndex()
        self._found: dict[object, TextSource] = {}
        self._pending: list[TextSource] = []
        self._pending_chars = 0
        self._texts: set[tuple[str, str]] = set()
        self._taken = 0
        self._last: Message | None = None
        self._is_tainted = list_messages is None
        self.calls: dict[str, None] = {}
        self.decided: dict[str, bool] = {} if self._parent is None else self._parent.decided
        self.written: dict[str, None] = {} if self._parent is None else self._parent.written
        for each in registrations:
            if getattr(each.tool, "is_described_outside", False):
                self._is_tainted = True
                name = f"the description of {each.name}"
                self._pending.append(TextSource("untrusted", name, "", "", each.definition.description))

    @property
    def is_tainted(self) -> bool:
        """True once the model has seen something untrusted; it never becomes False again."""
        self._take_messages()
        return self._is_tainted or (self._parent is not None and self._parent.is_tainted)

    def save(self) -> dict[str, Any]:
        """Return the facts that a restored run needs as well, as JSON values."""
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

    # texts

    def _take_messages(self) -> None:
        """Take the messages that are new; all again where the transcript was shortened or edited."""
        messages = self._list_messages()
        if self._taken > len(messages) or (self._taken and messages[self._taken - 1] is not self._last):
            self._taken = 0
        if self._taken < len(messages):
            for message in messages[self._taken :]:
                if not isinstance(message, AssistantMessage):
                    self._take_message(message)
                elif not self._is_tainted:
                    self._is_tainted = any(map(_has_read_outside, message.content))
            self._taken, self._last = len(messages), messages[-1]

    def _take_message(self, message: Message) -> None:
        text = message.text
        key = (message.call_id if isinstance(message, ToolResult) else message.role, text)
        if key in self._texts:
            return
        self._texts.add(key)
        tool_name, call_id = (message.tool_name, message.call_id) if isinstance(message, ToolResult) else ("", "")
        if is_untrusted(message):
            self._is_tainted = True
            if call_id:
                self.calls[call_id] = None
            self._add_pending(TextSource("untrusted", tool_name, call_id, "", text))
        elif isinstance(message, ToolResult):
            if not message.is_error:  # an error may quote the call
                self._add_pending(TextSource("trusted", tool_name, call_id, "", text))
        elif message.role == "system" or self._parent is None or not self._parent.is_tainted:
            self._add_pending(TextSource("user", text=text))

    def _add_pending(self, source: TextSource) -> None:
        self._pending.append(source)
        self._pending_chars += len(source.text)

    @property
    def is_behind(self) -> bool:
        """True where so much text is not indexed yet that it takes a thread."""
        self._take_messages()
        return self._pending_chars > _LONG_PENDING

    def index(self) -> None:
        """Index the texts that were taken since the last time."""
        self._take_messages()
        if not self._pending:
            return
        pending, self._pending, self._pending_chars = self._pending, [], 0
        for source in pending:
            index = self._outside if source.kind == "untrusted" else self._known
            for path, text in _split_text(source.text, is_outside=source.kind == "untrusted"):
                index.add(TextSource(source.kind, source.tool_name, source.call_id, path, text))

    def find_known(self, value: object) -> TextSource | None:
        """Return a text of the user, the application or a trusted tool in which a value stands; None without one."""
        found = self._found.get(value)
        if found is not None:
            return found
        self.index()
        if isinstance(value, str) and value.count("@") > 1:
            each = [self._find_one(part) for part in re.split(r"[,;]", value) if part.strip()]
            found = each[0] if each and all(each) else None
        else:
            found = self._find_one(value)
        if found is not None:
            self._found[value] = found  # for good: no text leaves an index
        return found

    def _find_one(self, value: object) -> TextSource | None:
        found = self._known.find(value)
        return self._parent.find_known(value) if found is None and self._parent is not None else found

    def find_spelling(self, destinations: Sequence[str], texts: Sequence[str]) -> TextSource | None:
        """Return an untrusted text that spells out a call: its destinations, and a text that nobody else wrote.

        Where a call has no text but its destinations, it is one that names these among other words.
        """
        rows = [row for text in texts for row in _take_samples(text) if row and not self._has_row(row)]
        if not texts and destinations:
            rows = [_split_pieces(destinations[0])]
        trust: RunTrust | None = self
        while trust is not None and rows:
            trust.index()
            found = trust._outside.find_spelling(destinations, rows)
            if found is not None:
                return found
            trust = trust._parent
        return None

    def _has_row(self, row: Sequence[str]) -> bool:
        """Return whether pieces stand one after the other in a text that is trusted."""
        if next(self._known.find_row(row), None) is not None:
            return True
        return self._parent is not None and self._parent._has_row(row)

    def describe(self, parameter: str, value: object, spelled: TextSource | None = None) -> Origin:
        """Return where a value comes from, for a person; reads all untrusted texts."""
        self.index()
        text = str(value)
        found, parent = self._outside.quote(text), self._parent
        while found is None and parent is not None:
            found, parent = parent._outside.quote(text), parent._parent
        shown = escape_in_text(text if len(text) <= 4 * _QUOTED else f"{text[: 4 * _QUOTED]}...")
        marks = ["hidden characters"] if any(map(is_hidden, text)) else []
        marks += ["letters of several alphabets that look alike"] if has_mixed_scripts(text) else []
        kind: Literal["untrusted", "dictated"] = "untrusted"
        if spelled is not None:
            at = max(0, spelled.text.lower().find(text.lower()) - _QUOTED)
            quote = escape_in_text(shorten_to_line(spelled.text[at:], 3 * _QUOTED))
            source, kind = spelled, "dictated"
        elif found is None:
            return Origin(parameter, shown, "none", marks=tuple(marks))
        else:
            source, quote = found
        return Origin(parameter, shown, kind, source.tool_name, source.call_id, source.path, quote, tuple(marks))

    # results

    def enter_call(self) -> None:
        """Note that a call of this run is under way in this context."""
        _open_call.set(_OpenCall(self, _open_call.get()))

    def is_derived(self, ready: Ready[Any], text: str, trust: Trust) -> bool:
        """Return whether an output may say what came from outside: no tool makes that trusted.

        In a run that has seen something untrusted, that is so unless all that its call was given is known, and where
        it names what was written in such a run, or at any time by a tool whose outputs come from outside.
        """
        is_outside, options = trust == "untrusted", ready.registration.options
        writes = not options.effects.isdisjoint(("write", "run"))
        if (is_outside and not writes) or not (is_outside or self.is_tainted):
            return is_outside
        leaves = [leaf for leaf in list_leaves(_read_given(ready)) if not isinstance(leaf, bool)]
        is_known = not is_outside and all(self.find_known(leaf) for leaf in leaves)
        if not is_known and writes:
            found = list_destinations(ready.registration, walk_leaves(write_plain_arguments(ready)))
            paths = [leaf for _, leaf in found if isinstance(leaf, str)]
            # A command names files among other words, and so may any argument of a tool without labels.
            is_mixed = "run" in options.effects or (is_outside and options.destinations is None)
            names = map(_list_file_names, paths) if is_mixed else [[_fold_text(path)] for path in paths]
            self.written.update({name: None for each in names for name in each})
        if not is_known or not self.written:
            return not is_known
        given = " ".join([*[_fold_text(str(leaf)) for leaf in leaves], text.lower()])
        return any(each in given for each in self.written)

    def take_inner(self, ready: Ready[Any], text: str, trust: Trust) -> None:
        """Take the output of a call that was made inside of a call of this run."""
        self._is_tainted = self._is_tainted or trust == "untrusted"
        self._add_pending(TextSource(trust, ready.call.name, ready.call.id, "", text))


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
    text = output.text
    trust = opened.label(ready, text, trust)
    if is_inner:
        opened.is_untrusted = opened.is_untrusted or trust == "untrusted"
        opened.trust.take_inner(ready, text, trust)
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


def write_plain_arguments(ready: Ready[Any]) -> dict[str, Any]:
    """Return the arguments of a call as JSON values, secrets as they are."""
    plain: dict[str, Any] = json.loads(ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True))
    return plain


def _read_given(ready: Ready[Any]) -> Any:
    """Return the arguments of a call without the defaults that nobody gave."""
    try:
        return json.loads(ready.given)
    except (ValueError, RecursionError):
        return write_plain_arguments(ready)


def _split_text(text: str, *, is_outside: bool) -> Iterator[tuple[str, str]]:
    """Yield the texts in a result by their paths: those inside of JSON, or the paragraphs of one from outside."""
    if text[:1] in ("{", "[") and len(text) <= _LONGEST_JSON:
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            plain = None
        if plain is not None:
            leaves = ((path, str(leaf)) for path, leaf in walk_leaves(plain) if not isinstance(leaf, bool))
            for number, (path, leaf) in enumerate(leaves):
                if number >= _MOST_INNER:
                    break
                for part in _PARAGRAPHS.split(leaf) if is_outside else (leaf,):
                    yield path, part
            return
    for part in _PARAGRAPHS.split(text) if is_outside else (text,):
        yield "", part


# one call, as rules see it


def list_destinations(registration: Registration[Any], arguments: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return those leaves of the arguments of a call that say where its effects go.

    They are those of the parameters that its tool names, or all of them where it names none; and the numbers of a call
    that spends.
    """
    options = registration.options
    names = options.destinations
    return [
        (path, leaf)
        for path, leaf in arguments
        if not isinstance(leaf, bool)
        and (names is None or _is_under(path, names) or ("spend" in options.effects and isinstance(leaf, (int, float))))
    ]


def _is_under(path: str, names: Sequence[str]) -> bool:
    if path in names:
        return True
    bare = _INDEXES.sub("", path) if "[" in path else path
    return any(bare == name or bare.startswith(f"{name}.") for name in names)


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
        has_destinations: False where the tool says that its effects go nowhere in particular.
        asked: The digests of what is asked about.
    """

    def __init__(
        self, trust: RunTrust, registration: Registration[Any], read_arguments: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._trust = trust
        self._registration = registration
        self._read_arguments = read_arguments
        self._unknown: list[tuple[str, Any, TextSource | None]] | None = None
        self.effects: frozenset[str] = registration.options.effects
        self.has_destinations: bool = registration.options.destinations != ()
        self.asked: list[str] = []

    @cached_property
    def is_tainted(self) -> bool:
        """True where the model has seen something untrusted."""
        return self._trust.is_tainted

    @property
    def unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        """The destinations that neither the user nor a trusted tool named, with the text that spells out the call.

        Where a tool names no destinations, this holds only in a run that has seen something untrusted.
        """
        if self._unknown is None:
            self._unknown = self._find_unknown()
        return self._unknown

    def _find_unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        trust, is_declared = self._trust, self._registration.options.destinations is not None
        is_tainted = self.is_tainted
        if not is_declared and not is_tainted:
            return []
        leaves = list(walk_leaves(self._read_arguments()))
        destinations = self._list_destinations(leaves)
        unknown: list[tuple[str, Any, TextSource | None]] = [
            (path, leaf, None) for path, leaf in destinations if not path or not trust.find_known(leaf)
        ]
        unknown += [(path, leaf, _SECRET) for path, leaf in leaves if self._is_secret(leaf)]
        if unknown or not is_tainted:
            return unknown
        texts = [leaf for _, leaf in destinations if isinstance(leaf, str)]
        rest = [leaf for _, leaf in leaves if isinstance(leaf, str) and leaf not in texts]
        spelled = trust.find_spelling(texts, rest)
        if spelled is None:
            return []
        path, leaf = destinations[0] if destinations else ("", self._registration.name)
        return [(path, leaf, spelled)]

    def _list_destinations(self, leaves: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return the values that say where the effects go, by their paths; the call itself where it takes none."""
        found = list_destinations(self._registration, leaves)
        return found or ([("", self._registration.name)] if self._registration.options.destinations is None else [])

    def _is_secret(self, leaf: object) -> bool:
        """Return whether an argument has a text in the format of a key that stands in no message of the user."""
        if not isinstance(leaf, str) or _MAY_BE_SECRET.search(leaf) is None:
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
            destinations = self._list_destinations(walk_leaves(self._read_arguments()))
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
