"""Provenance: where the values of a call stand, in the user's words, in trusted outputs or in untrusted ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolkit.calls.text_search import (
    LEAF_TYPES,
    OutsideTexts,
    TextIndex,
    TextSource,
    Wanted,
    fold_spaces,
    is_number,
    list_leaves,
    quote_leaf,
    split_pieces,
    take_samples,
    walk_leaves,
)
from toolkit.chat import AssistantMessage, Message, ReasoningBlock, ToolResult, Trust, is_untrusted
from toolkit.dataclass import dataclass
from toolkit.foreign_text import escape_in_text, has_mixed_scripts, is_hidden
from toolkit.json_text import digest_json
from toolkit.redaction import MASK, without_keys
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from toolkit.calls.prepare import Ready
    from toolkit.calls.registration import Registration, ToolOptions
    from toolkit.chat.output import ToolOutput

_INDEXES = re.compile(r"\[\d+\]")
_FOUND_OUTSIDE = re.compile(
    r'"type": ?"(?:(?:web_search|web_fetch|file_search|mcp)(?:_tool_result|_call)|nova_grounding\w*|url_citation)"'
    r'|"toolResponse": ?\{|"(?:groundingChunks|webSearchQueries|urlContextMetadata)": ?[\[{]|"location": ?\{"web"'
)  # as Anthropic, OpenAI, Amazon and Google write it
_SHORTEST_SECRET = 6
_SECRET = TextSource("trusted")  # marks a value that is a secret,
_READ_THERE = TextSource("untrusted")  # and one that untrusted text was read from
_NAME_TYPES = frozenset({str, int})
_LONG_PENDING = 50_000
_LONGEST_SHOWN = 240


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value of a call comes from, for the person who decides on the call.

    Args:
        parameter: The path of the value in the arguments.
        value: The value, with hidden characters as escapes.
        kind: ``untrusted`` where it stands in what came from outside, ``none`` where it stands nowhere,
            ``dictated`` where the user named it, but an untrusted text spells out the whole call, ``source`` where
            the user named it, but untrusted text was read from it, and ``secret`` for an argument with a key or
            password that the user did not write.
        tool_name: The tool that gave the text; empty without one.
        call_id: The id of its call.
        path: The place in output that is JSON.
        quote: The text around the value.
        marks: The properties of the value that make it look like another.
    """

    parameter: str
    value: str
    kind: Literal["untrusted", "none", "dictated", "source", "secret"]
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
        if self.kind == "source":
            return f"{name} is what untrusted text was read from, which may ask for this call.{marks}"
        if self.kind == "none":
            return f"{name} stands in nothing that the user wrote or a trusted tool gave.{marks}"
        place = f" at {self.path}" if self.path else ""
        given = f"what '{self.tool_name}' gave{place} (call {self.call_id})" if self.tool_name else "untrusted text"
        verb = "is spelled out in" if self.kind == "dictated" else "stands in"
        return f'{name} {verb} {given}: "{self.quote}".{marks}'


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
        read: The arguments of calls with untrusted outputs, in lower case, with the name of the one tool that was
            called with them; empty for several tools.
    """

    __slots__ = (
        "_is_tainted", "_known", "_last", "_list_messages", "_outside", "_parent", "_taken", "_texts", "_waiting",
        "_waiting_chars", "_wanted", "calls", "decided", "found", "read", "written",
    )  # fmt: skip

    def __init__(
        self, list_messages: Callable[[], Sequence[Message]] | None, registrations: Iterable[Registration[Any]] = ()
    ) -> None:
        self._list_messages: Callable[[], Sequence[Message]] = list_messages or tuple
        self._parent = parent = find_trust()
        self._known, self._outside = TextIndex(), OutsideTexts()
        self._waiting: list[Message | TextSource] = []
        self._waiting_chars = 0
        self._wanted: dict[object, Wanted] = {}
        self._texts: set[tuple[str, str]] = set()
        self._taken = 0
        self._last: Message | None = None
        self._is_tainted = list_messages is None
        self.calls: dict[str, None] = {}
        self.found: dict[object, TextSource] = {}
        self.decided: dict[str, bool] = {} if parent is None else parent.decided
        self.written: dict[str, None] = {} if parent is None else parent.written
        self.read: dict[str, str] = {} if parent is None else parent.read
        for each in registrations:
            if getattr(each.tool, "is_described_outside", False):
                name = f"the description of {each.name}"
                self._add_source(TextSource("untrusted", name, "", "", each.definition.description))

    @property
    def is_tainted(self) -> bool:
        """True once the messages that were taken have something untrusted; it never becomes False again."""
        return self._is_tainted or (self._parent is not None and self._parent.is_tainted)

    def save(self) -> dict[str, Any]:
        """Return the facts that a restored run needs as well, as JSON values."""
        self._take_messages()
        return {
            "is_tainted": self.is_tainted,
            "calls": list(self.calls),
            "decided": dict(self.decided),
            "written": list(self.written),
            "read": dict(self.read),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take over the facts of a run that was saved."""
        if saved:
            self._is_tainted = self._is_tainted or bool(saved["is_tainted"])
            self.calls.update(dict.fromkeys(saved["calls"]))
            self.decided.update(saved["decided"])
            self.written.update(dict.fromkeys(saved["written"]))
            self.read.update(saved.get("read", {}))

    def take_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Take what a provider said of a reply beside its message: such as where it searched."""
        if metadata and not self._is_tainted:
            self._is_tainted = _FOUND_OUTSIDE.search(json.dumps(metadata, default=str)) is not None

    # texts

    def _take_messages(self) -> None:
        """Take the messages that are new; all again where the transcript was shortened or edited."""
        messages, taken = self._list_messages(), self._taken
        count = len(messages)
        if taken > count or (taken and messages[taken - 1] is not self._last):
            taken = 0
        if taken == count:
            return
        for message in messages[taken:]:
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ReasoningBlock) and _FOUND_OUTSIDE.search(block.encrypted or ""):
                        self._is_tainted = True  # the vendor has searched or read for the model
                continue
            if message.trust == "untrusted":
                self._is_tainted = True
                if isinstance(message, ToolResult):
                    self.calls[message.call_id] = None
            self._waiting.append(message)
            content = message.content
            self._waiting_chars += len(content if isinstance(content, str) else message.text)
        self._taken, self._last = count, messages[-1]

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
        if not self._waiting:  # which calls take when they are prepared
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
        content = message.content
        text = content if isinstance(content, str) else message.text
        result = message if isinstance(message, ToolResult) else None
        key = (message.role if result is None else result.call_id, text)
        if key in self._texts:
            return None
        self._texts.add(key)
        if is_untrusted(message):
            names = ("", "") if result is None else (result.tool_name, result.call_id)
            return TextSource("untrusted", *names, "", text)
        if result is not None:  # an error may quote the call
            return None if result.is_error else TextSource("trusted", result.tool_name, result.call_id, "", text)
        is_task = message.role == "user" and self._parent is not None and self._parent.is_tainted
        return None if is_task else TextSource("user", text=text)

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
        found = self.index()._known.find(self._make_wanted(value))
        return self._parent.find_known(value) if found is None and self._parent is not None else found

    def _make_wanted(self, value: object) -> Wanted:
        return self._wanted.get(value) or self._wanted.setdefault(value, Wanted(value))

    def find_order(self, tool_name: str, destinations: Sequence[Any], texts: Sequence[str]) -> TextSource | None:
        """Return an untrusted text that may order a call; None without one.

        It names the destinations and has a text that nobody else wrote, or other words where the call has no text. A
        destination that it was read from by another tool needs no name: "delete this file".
        """
        named = [
            self._wanted.get(each) or self._make_wanted(each)
            for each in destinations
            if self.read.get(str(each).lower(), tool_name) == tool_name
        ]
        rows = [row for text in texts for row in take_samples(text) if not self._has_known(row)] if texts else []
        if rows or (named and not texts):
            run: RunTrust | None = self
            while run is not None:
                found = run.index()._outside.find_order(named, rows)
                if found is not None:
                    return found
                run = run._parent
        return _READ_THERE if destinations and not named else None

    def _has_known(self, row: str) -> bool:
        return any(run.index()._known.has_row(row) for run in self._list_runs())

    def _list_runs(self) -> list[RunTrust]:
        """Return this, and those of the runs around it."""
        return [self] if self._parent is None else [self, *self._parent._list_runs()]

    def describe(self, parameter: str, value: object, order: TextSource | None = None) -> Origin:
        """Return where a value comes from, for a person; reads all untrusted texts."""
        text = str(value)
        shown = escape_in_text(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
        marks = ["hidden characters"] if any(map(is_hidden, text)) else []
        marks += ["letters of several alphabets that look alike"] if has_mixed_scripts(text) else []
        if order is _SECRET:
            return Origin(parameter, "***", "secret")
        if order is _READ_THERE:
            return Origin(parameter, shown, "source", marks=tuple(marks))
        kind: Literal["untrusted", "dictated"] = "untrusted" if order is None else "dictated"
        if order is not None:
            found: tuple[TextSource, str] | None = quote_leaf(order, text.lower())
        else:
            found = next(filter(None, (run.index()._outside.quote(text) for run in self._list_runs())), None)
        if found is None:
            return Origin(parameter, shown, "none", marks=tuple(marks))
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
        writes = not ready.registration.options.effects.isdisjoint(("write", "run"))
        if is_outside and not writes:
            return True
        arguments = _read_given(ready)
        leaves = [leaf for _, leaf in _list_given(ready.registration, arguments) if not isinstance(leaf, bool)]
        is_known = not (is_outside or _has_telling_lists(arguments)) and all(self.find_known(leaf) for leaf in leaves)
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

    def note_read(self, ready: Ready[Any]) -> None:
        """Note the arguments of a call with an untrusted output: what that is about without naming it."""
        name, read, arguments = ready.registration.name, self.read, ready.arguments
        for leaf in arguments.values() if _is_flat(arguments) else list_leaves(arguments):
            key = str(leaf).lower() if type(leaf) in _NAME_TYPES else ""
            if key and len(key) <= _LONGEST_SHOWN and read.setdefault(key, name) != name:
                read[key] = ""

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
    run = opened.trust
    if not opened.is_untrusted and (
        (trust == "trusted" and not run.is_tainted) or not run.is_derived(ready, output, trust)
    ):
        trust = "trusted"
    else:
        trust = "untrusted"
        run.note_read(ready)
        opened.is_untrusted = opened.is_untrusted or is_inner
        if opened.outer is not None:
            opened.outer.is_untrusted = True
    if is_inner:
        run.take_inner(ready, output.text, trust)
    return trust


def _list_file_names(text: str) -> list[str]:
    """Return the last parts of what may be paths among the words of a text."""
    pieces = [piece for piece in split_pieces(text) if ("." in piece or "/" in piece) and "@" not in piece]
    return list(filter(None, [piece.rstrip("/").rpartition("/")[2] for piece in pieces]))


def _fold_text(text: str) -> str:
    return " ".join(split_pieces(text))


def _read_given(ready: Ready[Any]) -> Any:
    """Return the arguments of a call without the defaults that nobody gave."""
    try:
        return json.loads(ready.given)
    except (ValueError, RecursionError):
        return json.loads(ready.registration.arguments.dump_json(ready.arguments, reveal_secrets=True))


# one call, as rules see it


def _list_given(registration: Registration[Any], arguments: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the leaves of the arguments of a call, and the names in them that the schema of its tool does not have."""
    known: Mapping[str, Any] = registration.definition.parameters.get("properties", {})
    is_described = arguments.keys() <= known.keys() and not getattr(arguments, "others", None)
    if is_described and _is_flat(arguments) and "" not in arguments.values():
        return arguments.items()
    leaves = list(walk_leaves(arguments))
    described = {name for _, name in _walk_names(registration.definition.parameters)}
    return leaves + [(path, name) for path, name in _walk_names(arguments) if name not in described]


def _has_telling_lists(arguments: Any) -> bool:
    """Return whether a list in arguments says something by its length, or by booleans: any text can be said so."""
    waiting: list[Any] = [arguments]
    while waiting:
        value = waiting.pop()
        if is_array(value):
            if any(item is None or item is True or item is False or item in ("", [], {}) for item in value):
                return True
            waiting += value
        elif is_object(value):
            waiting += value.values()
    return False


def _is_flat(arguments: Mapping[str, Any]) -> bool:
    for value in arguments.values():  # noqa: SIM110 - half of the time of a generator
        if type(value) not in LEAF_TYPES:
            return False
    return True


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
    if names is None or path in names or (spends and (not isinstance(leaf, str) or is_number(leaf))):
        return True
    bare = _INDEXES.sub("", path) if "[" in path else path
    return (bare is not path or "." in path) and any(bare == name or bare.startswith(f"{name}.") for name in names)


TrustCondition: TypeAlias = Literal["", "tainted", "unknown_destination"]
"""When a rule on trust holds: in a run that has seen something untrusted, or for a destination that nobody named."""


class CallTrust:
    """One call with effects, as rules on trust see it.

    Args:
        trust: The texts of its run.
        registration: The tool.
        read_arguments: Reads the arguments as JSON values; called once, where a rule needs them.

    Attributes:
        options: The options of the tool.
        is_tainted: True where the model has seen something untrusted.
        asked: The digests of what is asked about.
    """

    __slots__ = (
        "_destinations", "_read_arguments", "_registration", "_trust", "_unknown", "asked", "is_tainted", "options",
    )  # fmt: skip

    def __init__(
        self, trust: RunTrust, registration: Registration[Any], read_arguments: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._trust = trust
        self._registration = registration
        self._read_arguments = read_arguments
        self._unknown: list[tuple[str, Any, TextSource | None]] | None = None
        self._destinations: list[tuple[str, Any]] = []
        self.is_tainted: bool = trust.is_tainted
        self.options: ToolOptions = registration.options
        self.asked: Sequence[str] = ()

    def list_unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        """Return the destinations that neither the user nor a trusted tool named, with the text that orders the call.

        Where a tool names no destinations, this holds only in a run that has seen something untrusted.
        """
        if self._unknown is None:
            may_be = self.is_tainted or self.options.destinations is not None
            self._unknown = self._find_unknown() if may_be else self._find_secrets()
        return self._unknown

    def _find_secrets(self) -> list[tuple[str, Any, TextSource | None]]:
        leaves = _list_given(self._registration, self._read_arguments())
        return [(path, leaf, _SECRET) for path, leaf in leaves if isinstance(leaf, str) and self._is_secret(leaf)]

    def _find_unknown(self) -> list[tuple[str, Any, TextSource | None]]:
        names, spends = self.options.destinations, "spend" in self.options.effects
        texts: list[str] = []
        unknown: list[tuple[str, Any, TextSource | None]] = []
        for path, leaf in _list_given(self._registration, self._read_arguments()):
            if names is None or spends or "." in path or "[" in path:
                is_destination = _is_destination(path, leaf, names, spends=spends)
            else:
                is_destination = path in names and leaf is not True and leaf is not False
            if is_destination:
                self._destinations.append((path, leaf))
                if not self._is_known(path, leaf):
                    unknown.append((path, leaf, None))
            if isinstance(leaf, str):
                if not is_destination:
                    texts.append(leaf)
                if self._is_secret(leaf):
                    unknown.append((path, leaf, _SECRET))
        return unknown or (self._find_order(texts) if self.is_tainted else [])

    def _find_order(self, texts: Sequence[str]) -> list[tuple[str, Any, TextSource | None]]:
        """Return the first destination with the untrusted text that orders the call; nothing where none does."""
        name, destinations = self._registration.name, self._destinations
        if not destinations and self.options.destinations is None:  # nobody can have named the call itself
            destinations.append(("", name))
            return [("", name, None)]
        order = self._trust.find_order(name, [leaf for _, leaf in destinations], texts)
        return [] if order is None else [(*(destinations or [("", name)])[0], order)]

    def _is_known(self, path: str, leaf: object) -> bool:
        """Return whether somebody who is trusted named a destination, or a person has approved it."""
        trust = self._trust
        if leaf in trust.found or trust.find_known(leaf) is not None:
            return True
        return bool(trust.decided) and trust.decided.get(_name_destination(path, leaf), False)

    def _is_secret(self, leaf: str) -> bool:
        """Return whether an argument has a text in the format of a key that stands in no message of the user."""
        if len(leaf) <= _SHORTEST_SECRET or (masked := without_keys(leaf)) == leaf:
            return False
        found = [self._trust.find_known(secret) for secret in _list_masked(leaf, masked)]
        return any(source is None or source.kind != "user" for source in found)

    def recall(self, *, is_whole: bool) -> bool | None:
        """Return what people decided on the destinations that are asked about; None where they have not decided on all.

        Args:
            is_whole: True to ask about all destinations, known or not.
        """
        unknown = self.list_unknown()
        if is_whole or not unknown:
            self.asked = [_name_destination(path, leaf) for path, leaf in self._destinations]
        else:
            self.asked = [self._name_doubt(*each) for each in unknown]
        self.asked = self.asked or [self._name_call()]
        answers = [self._trust.decided.get(each) for each in self.asked]
        return False if False in answers else None if None in answers else True

    def describe(self) -> tuple[Origin, ...]:
        """Return where the destinations come from that nobody named, for a person."""
        return tuple([self._trust.describe(path, leaf, order) for path, leaf, order in self.list_unknown()])

    def decide(self, *, is_approved: bool) -> None:
        """Note the decision of a person on what was asked about."""
        self._trust.decided.update(dict.fromkeys(self.asked, is_approved))

    def _name_doubt(self, path: str, leaf: object, order: TextSource | None) -> str:
        if order is None:
            return _name_destination(path, leaf)
        return _digest_name([self._registration.name, leaf]) if order is _READ_THERE else self._name_call()

    def _name_call(self) -> str:
        return _digest_name([self._registration.name, self._read_arguments()])


def _list_masked(text: str, masked: str) -> list[str]:
    """Return the parts of a text that are masked in another."""
    first, *rest = masked.split(MASK)
    found: list[str] = []
    place = len(first)
    for piece in rest:
        end = text.find(piece, place + 1) if piece else len(text)
        found.append(text[place : max(place, end)])
        place = max(place, end) + len(piece)
    return found


def _name_destination(path: str, leaf: object) -> str:
    """Return the digest that names a destination: of a text alone, or of a number and its place."""
    return _digest_name([fold_spaces(leaf)] if isinstance(leaf, str) and path else [path, str(leaf)])


def _digest_name(value: object) -> str:
    return digest_json(value)[:32]
