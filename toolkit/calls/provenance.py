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
    Ways,
    is_number,
    join_pieces,
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
from toolkit.redaction import strike_keys
from toolkit.schema.nodes import is_array, is_object

if TYPE_CHECKING:
    from toolkit.calls.prepare import Ready
    from toolkit.calls.registration import Registration
    from toolkit.chat.output import ToolOutput

_INDEXES = re.compile(r"\[\d+\]")
_FOUND_OUTSIDE = re.compile(
    r'"type": ?"(?:(?:web_search|web_fetch|file_search|mcp)(?:_tool_result|_call)|nova_grounding\w*|url_citation)"'
    r'|"toolResponse": ?\{|"(?:groundingChunks|webSearchQueries|urlContextMetadata)": ?[\[{]|"location": ?\{"web"'
)  # as Anthropic, OpenAI, Amazon and Google write it
_LONG_PENDING = 100_000
_LONGEST_SHOWN = 240


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
        self._known, self._outside = TextIndex(), OutsideTexts()
        self._waiting: list[Message | TextSource] = []
        self._waiting_chars = 0
        self.found: dict[object, TextSource] = {}
        self._ways: dict[object, Ways] = {}
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

    def _make_ways(self, value: object) -> Ways:
        return self._ways.setdefault(value, Ways(value))

    def _list_anchors(self, destinations: Sequence[Ways], texts: Sequence[str]) -> list[Any]:
        """Return what of a call is looked for in untrusted texts: pieces of its texts that no trusted text has."""
        if texts:
            rows = [join_pieces(sample) for text in texts for sample in take_samples(text) if sample]
            return [row for row in rows if not any(run.index()._known.has_row(row) for run in self._list_runs())]
        return [
            anchor for each in destinations[:1] for anchor in (each.ways[0] if each.number is None else [each.number])
        ]

    def describe(self, parameter: str, value: object, spelled: TextSource | None = None) -> Origin:
        """Return where a value comes from, for a person; reads all untrusted texts."""
        text = str(value)
        found = next(filter(None, (run.index()._outside.quote(text) for run in self._list_runs())), None)
        shown = escape_in_text(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
        marks = ["hidden characters"] if any(map(is_hidden, text)) else []
        marks += ["letters of several alphabets that look alike"] if has_mixed_scripts(text) else []
        kind: Literal["untrusted", "dictated"] = "untrusted"
        if spelled is not None:
            (source, quote), kind = quote_leaf(spelled, text.lower()), "dictated"
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


def _list_given(registration: Registration[Any], arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the leaves of the arguments of a call, and the names in them that the schema of its tool does not have."""
    if LEAF_TYPES.issuperset(map(type, arguments.values())):
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
    if names is None or path in names or (spends and (not isinstance(leaf, str) or is_number(leaf))):
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
        is_undeclared = self._registration.options.destinations is None
        if is_undeclared and not self.is_tainted:
            return []
        destinations, texts, unknown = self._sort_leaves()
        path, leaf = destinations[0] if destinations else ("", self._registration.name)
        if is_undeclared and not destinations:  # nobody can have named the call itself
            return [(path, leaf, None)]
        if unknown or not self.is_tainted:
            return unknown
        spelled = self._trust.find_spelling([leaf for _, leaf in destinations], texts)
        return [] if spelled is None else [(path, leaf, spelled)]

    def _sort_leaves(self) -> tuple[list[tuple[str, Any]], list[str], list[tuple[str, Any, TextSource | None]]]:
        """Return the destinations of the call, its other texts, and which destinations and secrets are not known."""
        options, found = self._registration.options, self._trust.found
        names, spends = options.destinations, "spend" in options.effects
        destinations: list[tuple[str, Any]] = []
        texts: list[str] = []
        unknown: list[tuple[str, Any, TextSource | None]] = []
        for path, leaf in _list_given(self._registration, self._read_arguments()):
            is_text = isinstance(leaf, str)
            if _is_destination(path, leaf, names, spends=spends):
                destinations.append((path, leaf))
                if leaf not in found and not self._is_known(path, leaf):
                    unknown.append((path, leaf, None))
            elif is_text:
                texts.append(leaf)
            if is_text and _MAY_BE_SECRET.search(leaf) and self._is_secret(leaf):
                unknown.append((path, leaf, _SECRET))
        return destinations, texts, unknown

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
