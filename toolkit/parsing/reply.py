"""A reply of a model as text and calls, whole or while it comes; place and provenance decide what is a call.

Nothing here knows a language: lines, fences, quotation marks, tags and punctuation tell where a call may begin, and a
call that stands in a result, a user's words or the system prompt is a quotation.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from toolkit.chat import ToolCall, ToolDefinition
from toolkit.parsing.calls import MOST_CALLS, SPACES, KnownTools, Source, UnclearCallError, Waiting, check_count
from toolkit.parsing.forms import (
    RESULT_MARKS,
    TURN_ENDS,
    Form,
    Spot,
    TextFormat,
    beginnings_of,
    find_format,
)


@dataclass(frozen=True, slots=True)
class UnreadCall:
    """A call that was meant and could not be read.

    Args:
        text: All that belongs to it, as it was written.
        reason: The problem, for the model.
    """

    text: str
    reason: str


ReplyPart: TypeAlias = str | ToolCall | UnreadCall
"""Some text, a call, or one that could not be read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a reply, in its order; no two texts stand side by side.

    White space before calls is left out, and so is what a model wrote behind the end of its turn or as the result of
    its call. All other text stays as it was written.

    Args:
        parts: The texts, calls, and calls that could not be read.
        displaced: The whole calls in the text: they stand where no call may stand, and don't run. Ask the model whether
            it meant them.
        broken: The calls in the text that could not be read, behind which the reply goes on.
    """

    parts: tuple[ReplyPart, ...]
    displaced: tuple[ToolCall, ...] = ()
    broken: tuple[UnreadCall, ...] = ()

    @property
    def text(self) -> str:
        """The text, without the calls and what was meant as one."""
        return "".join([part for part in self.parts if isinstance(part, str)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls; their ids are ``call_1``, ``call_2`` and so on."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def unread(self) -> tuple[UnreadCall, ...]:
        """The calls that were meant and could not be read."""
        return (*self.broken, *[part for part in self.parts if isinstance(part, UnreadCall)])


def read_reply(
    text: str,
    tools: Iterable[ToolDefinition],
    *,
    format: TextFormat = "auto",  # noqa: A002
    given: Iterable[str] = (),
) -> Reply:
    """Return the text and the calls of a reply.

    ::

        reply = read_reply('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', registry.definitions())

    A call is one by its place: it begins a line, or follows thoughts or another call, outside of fences, quotations,
    tags and tables, and below no line that goes on with it, such as one that ends with a colon; nothing but other calls
    and the end of the turn follows it; and it does not stand in a text that the model was given. A whole call anywhere
    else is text, and one of the `displaced`. Without a mark of its own a call must name a known tool. Arguments are
    taken as `toolkit.tool_names` takes them: only what was surely written; what is cut off is never a call.
    It takes time linear in the length of the text.

    Args:
        text: The whole reply.
        tools: The tools that the model may call.
        format: The only format that is looked for; ``auto`` keeps to that of the first call.
        given: The texts that the model was given, such as results.
    """
    reader = ReplyReader(tools, format=format, given=GivenTexts(given))
    return reader.collect([*reader.feed(text), *reader.finish()])


@dataclass(slots=True)
class _Held:
    """Something read behind which the reply may go on: then it was text.

    Args:
        written: The text of it.
        parts: Its calls, or the one that can't be read; empty for what is no text behind a call.
        marks: The marks of their form: one of them too many is no text.
    """

    written: str
    parts: list[ReplyPart]
    marks: tuple[str, ...] = ()


class ReplyReader:
    """Reads a reply while it comes.

    What may still become a call is withheld, and white space, which may stand before one; all other text is returned at
    once. Calls are returned when the reply is over, since nothing may follow them. The parts are the same however the
    reply is cut into pieces, but for text, which comes in more of them.

    Args:
        tools: The tools that the model may call.
        format: The only format that is looked for; ``auto`` keeps to that of the first call.
        given: The texts that the model was given: what stands there is no call.

    Raises:
        ConfigurationError: There is no such format.
    """

    def __init__(
        self,
        tools: Iterable[ToolDefinition],
        *,
        format: TextFormat = "auto",  # noqa: A002
        given: GivenTexts | None = None,
    ) -> None:
        self._tools = KnownTools(tools)
        self._row = find_format(format)
        self._forms = self._row.forms
        self._opening = _compile_opening(self._forms)
        self._given = GivenTexts() if given is None else given
        self._source = Source()
        self._own_tags = _list_tags(self._row.forms)
        self._place = CallPlace(self._own_tags)
        self._parts: list[ReplyPart] = []
        self._space = ""  # white space whose text may still come
        self._said: list[str] = []  # the text that is neither thought nor behind the end of a turn
        self._broken: list[UnreadCall] = []
        self._had_thoughts = False
        self._left = MOST_CALLS
        self._misses = 0
        self._running = self._read_all()

    def feed(self, text: str) -> list[ReplyPart]:
        """Take some more of the reply, and return what is known now."""
        self._source.feed(text)
        return self._read_further()

    def finish(self) -> list[ReplyPart]:
        """Return the rest: the reply is over."""
        self._source.is_ended = True
        return self._read_further()

    def collect(self, parts: Iterable[ReplyPart]) -> Reply:
        """Return the whole reply from the parts that `feed` and `finish` returned."""
        joined: list[ReplyPart] = []
        for part in parts:
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            else:
                joined.append(part)
        return Reply(tuple(joined), self._find_displaced(), tuple(self._broken))

    def _read_further(self) -> list[ReplyPart]:
        next(self._running, None)
        parts, self._parts = self._parts, []
        return parts

    def _read_all(self) -> Generator[None]:
        source = self._source
        while True:
            if not source.until(_NEVER if self._misses > _MOST_MISSES else self._opening):
                self._add_text(source.take())
                if source.is_ended:
                    break
                yield
                continue
            self._add_text(source.take())
            kind = yield from self._read_here()
            if kind == "end":
                yield from source.rest()
                self._add_text(source.take(), is_said=False)
                break
            if kind == "nothing":
                self._misses += 1
                # The next opening is behind the first character at the earliest.
                source.skip(len((yield from source.peek(1))))
        if self._space:
            self._parts.append(self._space)

    def _read_here(self) -> Waiting[Literal["something", "nothing", "end"]]:
        """Read thoughts, calls or the end of the turn, where one of them begins here."""
        if (yield from self._pass_thoughts()):
            return "something"
        if (yield from self._is_end()):
            return "end"
        spot = Spot(begins_reply=self._place.begins_reply)
        found = yield from self._read_group(self._forms, spot)
        if found is None:
            self._source.back()
            return "nothing"
        yield from self._read_tail(found)
        return "something"

    def _is_end(self) -> Waiting[bool]:
        """Return whether the model's own turn ends here: what it writes from here on it makes up."""
        source = self._source
        begins_line = self._place.is_line_start and self._place.is_open
        character = yield from source.peek(1)
        for token in (*TURN_ENDS, *_TURNS_OF_OTHERS) if begins_line else TURN_ENDS:
            if token[0] == character and (yield from source.accepts(token)):
                return True
        return False

    def _pass_thoughts(self) -> Waiting[bool]:
        """Go past thoughts, where they begin or end here: what comes behind them is the reply."""
        source, place = self._source, self._place
        may_begin = place.is_line_start and place.is_open
        if not may_begin and self._had_thoughts:
            return False
        closing = yield from _find_thinking_end(source)
        if closing == "/" and not self._had_thoughts and place.lets_thoughts_end:
            # The template of the prompt has opened the thoughts: all before their end was one.
            self._said.clear()
            self._broken.clear()
            self._place = CallPlace(self._own_tags)
        elif closing and closing != "/" and may_begin:
            passing = source.past(closing)
            for _ in passing:
                self._add_thoughts(source.take())
                yield
        else:
            source.back()
            return False
        self._had_thoughts = True
        self._add_thoughts(source.take())
        return True

    def _read_group(self, forms: Sequence[Form], spot: Spot, *, follows: bool = False) -> Waiting[_Held | None]:
        """Read the calls of one form, in a fence or without; None where no call may stand or none does."""
        source = self._source
        try:
            if not follows and not self._place.lets_call(is_marked=True, is_inline=True):
                return None
            character = yield from source.peek(1)
            if character in _FENCE_MARKS:
                found = yield from self._read_fence(forms, follows=follows)
            else:
                found = yield from self._read_form(forms, spot, follows=follows)
        except UnclearCallError as error:
            self._left -= _COST_OF_BROKEN
            if self._left <= 0:
                yield from source.rest()
            written = source.take()
            return _Held(written, [] if self._given.hold(written, ()) else [UnreadCall(written, str(error))])
        if found is None:
            return None
        form, calls = found
        written = source.take()
        if self._given.hold(written, calls, form.marks):
            return _Held(written, [])
        if self._row is _AUTO:
            self._forms = (form,)
        self._left -= len(calls)
        if self._left < 0:
            yield from source.rest()
            reason = f"A reply may have {MOST_CALLS} calls, and this has more."
            return _Held(written, [UnreadCall(written + source.take(), reason)])
        return _Held(written, list(calls), form.marks)

    def _read_form(
        self, forms: Sequence[Form], spot: Spot, *, follows: bool
    ) -> Waiting[tuple[Form, list[ToolCall]] | None]:
        source = self._source
        start = source.length
        character = (yield from source.peek(1)).casefold()
        for form in forms:
            if not character or character not in form.characters:
                continue
            if form.begins_line and not follows and not self._place.is_unindented:
                continue
            if follows or self._place.lets_call(is_marked=form.is_marked, is_inline=form.is_inline):
                calls = yield from form.read(source, self._tools, spot)
                if calls:
                    return form, calls
                source.back(start)
        return None

    def _read_fence(self, forms: Sequence[Form], *, follows: bool) -> Waiting[tuple[Form, list[ToolCall]] | None]:
        """Read a fence with nothing but calls in it."""
        source = self._source
        fence = yield from source.word(_FENCE_MARKS[(yield from source.peek(1))], 20)
        language = (yield from source.word(_LANGUAGE, 20)).casefold()
        may_hold = len(fence) >= 3 and language in _FENCE_LANGUAGES and self._row.takes_fences
        if not may_hold or not (follows or self._place.lets_call(is_marked=False)):
            return None
        try:
            return (yield from self._read_fenced(forms, Spot(fence=fence, language=language)))
        except UnclearCallError:
            yield from source.past(fence)
            raise

    def _read_fenced(self, forms: Sequence[Form], spot: Spot) -> Waiting[tuple[Form, list[ToolCall]] | None]:
        source = self._source
        form: Form | None = None
        calls: list[ToolCall] = []
        while True:
            yield from source.spaces()
            if form is not None and ((yield from source.peek(1)) == "" or (yield from source.accepts(spot.fence))):
                return form, calls
            found = yield from self._read_form(forms if form is None else (form,), spot, follows=True)
            if found is None and form is None:
                return None
            if found is None:
                raise UnclearCallError("Where calls stand in a fence, nothing else may stand there.")
            form = found[0]
            calls += found[1]
            check_count(calls)

    def _read_tail(self, first: _Held) -> Waiting[None]:
        """Read what follows a call: where that is neither a call nor the end, all of it is text."""
        source = self._source
        held = [first]
        while first.parts:
            yield from source.spaces()
            held.append(_Held(source.take(), []))
            if (yield from source.peek(1)) == "":
                self._give_held(held)
                return
            if (yield from self._ends_turn()):
                yield from source.rest()
                source.take()
                self._give_held(held)
                return
            if (yield from self._pass_closing(held)):
                continue
            found = yield from self._read_group(self._forms, Spot(), follows=True)
            if found is None or not found.parts:
                source.back()
                if found is not None:
                    held.append(found)
                break
            held.append(found)
        self._give_text_of(held)

    def _ends_turn(self) -> Waiting[bool]:
        for mark in (*TURN_ENDS, "<|end|>", *self._row.result_marks):
            if (yield from self._source.accepts(mark, any_case=True)):
                return True
        return False

    def _pass_closing(self, held: list[_Held]) -> Waiting[bool]:
        """Go past a closing tag too many: it is no text."""
        for mark in held[0].marks:
            if mark.startswith("</") and (yield from self._source.accepts(mark)):
                held.append(_Held(self._source.take(), []))
                return True
        return False

    def _give_held(self, held: list[_Held]) -> None:
        """Return the calls: nothing follows them."""
        number = 0
        for item in held:
            for part in item.parts:
                if isinstance(part, ToolCall):
                    number += 1
                    part = replace(part, id=f"call_{number}")  # noqa: PLW2901
                self._parts.append(part)
        self._space = ""

    def _give_text_of(self, held: list[_Held]) -> None:
        """Return the calls as text: something follows them."""
        for item in held:
            self._add_text(item.written, is_call=bool(item.written.strip()))
            self._broken += [part for part in item.parts if isinstance(part, UnreadCall)]

    def _add_text(self, text: str, *, is_said: bool = True, is_call: bool = False) -> None:
        """Return text, as far as it is not white space before a call."""
        if not text:
            return
        if is_call:
            self._place.add_call(text)
        else:
            self._place.add_text(text)
        if is_said:
            self._said.append(text)
        self._emit_text(text)

    def _add_thoughts(self, text: str) -> None:
        self._place.add_thoughts(text)
        self._emit_text(text)

    def _emit_text(self, text: str) -> None:
        visible = text.rstrip(SPACES)
        if visible:
            self._parts.append(self._space + visible)
            self._space = text[len(visible) :]
        else:
            self._space += text

    def _find_displaced(self) -> tuple[ToolCall, ...]:
        """Return the whole calls in the text, wherever they stand; what the model was given is none of them."""
        text = "".join(self._said)
        found: dict[tuple[str, str], ToolCall] = {}
        source = Source()
        source.feed(text)
        source.is_ended = True
        opening = _compile_opening(self._row.forms, is_for_place=False)
        left = min(4 * len(text) + 1_000, _MOST_LOOKED_AT)
        while left > 0 and len(found) < _MOST_DISPLACED:
            source.take()
            if not source.until(opening):
                break
            source.take()
            calls, form = _end_waiting(self._try_forms(source))
            written = source.piece()
            left -= len(written) + 20
            if form is None:
                source.back()
                source.skip(1)
            elif calls and not self._given.hold(written, calls, form.marks):
                for call in calls:
                    found.setdefault((call.name, call.arguments), call)
        return tuple(found.values())

    def _try_forms(self, source: Source) -> Waiting[tuple[list[ToolCall], Form | None]]:
        """Return the calls that begin here in any form; where a value or a broken call does, go past it."""
        character = (yield from source.peek(1)).casefold()
        for form in self._row.forms:
            if character not in form.characters:
                continue
            source.back()
            try:
                calls = yield from form.read(source, self._tools, Spot())
            except UnclearCallError:
                return [], form
            if calls:
                return calls, form
            if character in "{[" and not form.is_marked:
                source.back()
                if (yield from source.value()):
                    return [], form  # data: what stands in it is no call
        return [], None


_AUTO = find_format("auto")
_TURNS_OF_OTHERS = (
    *RESULT_MARKS,
    "User:",
    "Human:",
    "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>final",
)
_FENCE_MARKS = {"`": re.compile("`"), "~": re.compile("~")}
_LANGUAGE = re.compile(r"[\w.+-]")
_FENCE_LANGUAGES = {"", "json", "json5", "jsonc", "xml", "tool_call", "tool_calls", "tool_code", "tool", "function"}
_COST_OF_BROKEN = 20  # behind a broken call without a mark all is read again
_MOST_MISSES = 10_000  # what no reply of a model has: from there on its text is not looked into
_MOST_LOOKED_AT = 1_000_000  # characters: those of values in values are looked at again
_MOST_DISPLACED = 8
_NEVER = re.compile(r"(?!)")
_THINKS = re.compile(r"think|thought|reason|reflect|scratch_?pad|monolog|deliberat|\bcot\b", re.IGNORECASE)
_THINKING_OPENING = r"[<\[\u25c1][/|]?+(?:\Z|[A-Za-z](?:\Z|[\w:.-]))|\u25c1"
_IN_THINKING_TAG = re.compile(r"[\w:.|/-]")
_IN_ATTRIBUTES = re.compile(r"[^<>\n]")
_TAG_ENDS = {"<": ">", "[": "]", "\u25c1": "\u25b7"}
_HARMONY_THOUGHTS = tuple(
    f"{start}<|channel|>{channel}<|message|>"
    for start in ("", "<|start|>assistant")
    for channel in ("analysis", "commentary")
)


@cache
def _compile_opening(forms: tuple[Form, ...], *, is_for_place: bool = True) -> re.Pattern[str]:
    """Return a pattern of all that may begin a call, thoughts, a fence or the end of a turn."""
    openings = [form.opening for form in forms]
    if is_for_place:
        openings += [
            _THINKING_OPENING,
            *[beginnings_of(token) for token in TURN_ENDS],
            *[rf"(?<!.){beginnings_of(token)}" for token in _TURNS_OF_OTHERS],
            r"(?<!`)`{1,2}+(?:\Z|`)|(?<!~)~{1,2}+(?:\Z|~)",
        ]
    return re.compile("|".join(openings))


@cache
def _list_tags(forms: tuple[Form, ...]) -> frozenset[str]:
    marks = [mark for form in forms for mark in form.marks]
    return frozenset([mark[1:-1].casefold() for mark in marks if mark[0] == "<" and mark[1].isalpha()])


def _find_thinking_end(source: Source) -> Waiting[str]:
    """Go past a tag that begins thoughts, and return what ends them; past one that ends them, and return ``/``.

    It returns nothing, wherever the place is then, where there is another tag or none.
    """
    bracket = yield from source.peek(1)
    closing = _TAG_ENDS.get(bracket, "")
    if not closing:
        return ""
    for opening in _HARMONY_THOUGHTS if bracket == "<" else ():
        if (yield from source.accepts(opening)):
            return "<|end|>"
    source.skip(1)
    name = yield from source.word(_IN_THINKING_TAG, 60)
    if not _THINKS.search(name):
        return ""
    if closing == ">" and not name.endswith("|") and (yield from source.peek(1)) in {" ", "\t"}:
        yield from source.word(_IN_ATTRIBUTES, 200)
    if not (yield from source.accepts(closing)):
        return ""
    if name.strip("|").startswith(("/", "end_")):
        return "/"
    if "begin_" in name:
        return bracket + name.replace("begin_", "end_") + closing
    return f"{bracket}|/{name[1:]}{closing}" if name.startswith("|") else f"{bracket}/{name}{closing}"


def _end_waiting(waiting: Waiting[tuple[list[ToolCall], Form | None]]) -> tuple[list[ToolCall], Form | None]:
    """Return the outcome of reading a text that is all there."""
    try:
        next(waiting)
    except StopIteration as ended:
        outcome: tuple[list[ToolCall], Form | None] = ended.value
        return outcome
    raise AssertionError("a text that has ended is never waited for")


_UNDERLINE = re.compile(r"\s*(?:-{2,}|={2,})\s*")  # of a heading
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d{1,3}[.)])\s+)?(?P<mark>`{3,}|~{3,})(?P<rest>[^`]*)")
_TAGS_ONLY = re.compile(r"</?[A-Za-z][^<>]*>")
_MARKS = re.compile(
    r"(?P<code>`+)|(?P<quote>[\"\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u2039\u203a]|'{3}|<!--|-->)"
    r"|<(?P<close>/)?(?P<name>[A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,200})?(?P<empty>/)?>"
)
_CLOSING_QUOTES = {
    "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "\u2039": "\u203a", "'''": "'''", "<!--": "-->",
}  # fmt: skip
_DECORATION = " \t\r*_"
_ENDING = ".!\u2026\u3002\uff01\u06d4\u0964"
_CLOSING = ")]\"'\u201d\u2019\u00bb\u300d\u300f`*_"
# A line that ends so goes on with what follows, or asks about it.
_UNFINISHED = ":\uff1a,;\uff0c\uff1b\u3001\u2014\u2013-=?\uff1f\u061f"
_ASIDE = re.compile(r"\s*[>|\u2502]|.*\|\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+\u2022]|\d{1,3}[.)])\s")
_LONGEST_LINE = 4_096
_MOST_OPEN = 100


class CallPlace:
    """Follows a reply and says where a call may begin.

    That is at the start of a line, but not in a fence, a quotation or a tag, nor below a line that goes on with it: a
    heading, a block quote, a table, or one that ends with a colon, a comma, a dash or a question mark. Thoughts are no
    part of a line.

    Args:
        own_tags: The names of the tags of calls. As text they enclose what follows wherever they stand, other tags only
            at the beginning of a line.

    Attributes:
        begins_reply: True while nothing but white space and thoughts has come.
    """

    def __init__(self, own_tags: frozenset[str] = frozenset()) -> None:
        self.begins_reply: bool = True
        self._own_tags = own_tags
        self._line = ""
        self._is_long = False  # whether the beginning of the line was dropped
        self._fence = ""
        self._quotes: list[str] = []  # the characters that close each quotation
        self._tags: list[str] = []
        self._is_in_quotes = False
        self._is_introduced = False  # whether the last line with words goes on with what follows
        self._is_unfinished = False  # whether it has no end of a sentence
        self._is_aside = False  # whether the line directly above is one of a block quote or a table
        self._is_below_line = False  # whether the line directly above is not blank

    @property
    def is_line_start(self) -> bool:
        """True where nothing stands before it on its line; what is indented belongs to the text above."""
        return not self._is_long and not (self._line.strip() if self.begins_reply else self._line)

    @property
    def is_unindented(self) -> bool:
        """True where nothing stands before it on its line, no white space either."""
        return not self._is_long and not self._line

    @property
    def is_open(self) -> bool:
        """True where nothing encloses it: no fence, quotation or tag, up to the beginning of its line."""
        return not (self._fence or self._quotes or self._tags or self._is_in_quotes)

    def lets_call(self, *, is_marked: bool, is_inline: bool = False) -> bool:
        """Return whether a call may begin here.

        Args:
            is_marked: False for what is a call by its content alone: then the words before it must be a whole sentence.
            is_inline: True for a mark that its model may write directly behind the end of a sentence.
        """
        if not self.is_open:
            return False
        if self.is_line_start:
            return not (self._is_introduced or self._is_aside or (self._is_unfinished and not is_marked))
        return is_inline and self._ends_sentence()

    @property
    def lets_thoughts_end(self) -> bool:
        """True where the end of thoughts that nothing began may stand: then all before it was thought."""
        if not self.is_open or self._is_quoting_line():
            return False
        words = self._line.strip(_DECORATION)
        return words[-1] not in _UNFINISHED if words else not (self._is_introduced or self._is_aside)

    def add_text(self, text: str) -> None:
        """Take text of the reply."""
        first, *lines = text.split("\n")
        self._extend_line(first)
        for line in lines:
            self._end_line()
            self._extend_line(line)

    def add_call(self, text: str) -> None:
        """Take a piece that reads as a call, but is text: the marks in it mean nothing."""
        self._line, self._is_long = "", True
        if text.strip():
            self.begins_reply = self._is_introduced = False

    def add_thoughts(self, text: str) -> None:
        """Take thoughts: they are no part of a line, but may end one."""
        if "\n" in text:
            self._line, self._is_long = "", False

    def _extend_line(self, text: str) -> None:
        if text and self.begins_reply and text.strip():
            self.begins_reply = False
        while len(self._line) + len(text) > _LONGEST_LINE:
            room = _LONGEST_LINE - len(self._line)
            self._take_marks(self._line + text[:room])
            self._line, self._is_long, text = "", True, text[room:]
        self._line += text

    def _end_line(self) -> None:
        line, is_whole = self._line, not self._is_long
        self._line, self._is_long = "", False
        fence = _FENCE.fullmatch(line) if is_whole else None
        if self._fence:
            if fence is not None and fence["mark"].startswith(self._fence) and not fence["rest"].strip():
                self._fence = ""
            return
        if fence is not None:
            self._fence = fence["mark"]
            return
        if is_whole and not line.strip():
            self._is_in_quotes = self._is_aside = self._is_below_line = False
            return
        self._take_marks(line)
        self._is_aside = is_whole and _ASIDE.match(line) is not None
        if self._is_below_line and _UNDERLINE.fullmatch(line):
            self._is_introduced = True
        self._is_below_line = True
        words = _TAGS_ONLY.sub("", line).strip(_DECORATION)
        if any(map(str.isalnum, words)):
            self._is_introduced = words[-1] in _UNFINISHED or (is_whole and line.lstrip().startswith("#"))
            self._is_unfinished = words.rstrip(_CLOSING)[-1:] not in tuple(_ENDING)

    def _take_marks(self, line: str) -> None:
        """Open and close the quotations and tags of a line, or of a long piece of one."""
        if self._fence:
            return
        begins = not self._is_long
        position = 0
        code = ""
        for mark in _MARKS.finditer(line):
            begins = begins and not line[position : mark.start()].strip(_DECORATION + ">|-")
            position = mark.end()
            if mark["code"]:
                code = "" if code == mark["code"] else code or mark["code"]
            elif code:
                continue
            elif mark["quote"] == '"':
                self._is_in_quotes = not self._is_in_quotes
            elif mark["quote"]:
                self._take_quote(mark["quote"])
            elif mark["close"]:
                name = mark["name"].casefold()
                if name in self._tags:
                    del self._tags[self._tags.index(name) :]
            elif not mark["empty"] and len(self._tags) < _MOST_OPEN:
                name = mark["name"].casefold()
                if begins or name in self._own_tags:
                    self._tags.append(name)

    def _take_quote(self, quote: str) -> None:
        if self._quotes and quote in self._quotes[-1]:
            self._quotes.pop()
        elif quote in _CLOSING_QUOTES and len(self._quotes) < _MOST_OPEN:
            self._quotes.append(_CLOSING_QUOTES[quote])

    def _ends_sentence(self) -> bool:
        return self._line[-1:] in tuple(_ENDING) and not self._is_quoting_line()

    def _is_quoting_line(self) -> bool:
        """Return whether the line so far is a quotation, an item or code, or leaves one of them open."""
        line = self._line
        if self._is_long or _ASIDE.match(line) or _ITEM.match(line) or line.count("`") % 2 or line.count('"') % 2:
            return True
        return any(line.count(opening) > sum(map(line.count, closing)) for opening, closing in _CLOSING_QUOTES.items())


_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_SKIPPED = re.compile(r"[\s\\`]+")
_LINE_BREAK_IN_JSON = re.compile(r"\\+[nrt]")
_AROUND = re.compile(r"\A\s*(?:`{3,}|~{3,})\w*|(?:`{3,}|~{3,})\s*\Z")  # a fence
_LONG_ENOUGH = 24
_NEAR = 80


class GivenTexts:
    """The texts that a model was given: a call that stands in one of them is no call of the model's own.

    Spaces and escapes don't count. A call of a few characters must be a whole line there.

    Args:
        texts: The texts that users, tools and the application wrote.
        results: Those of them that tools wrote. A name of a tool beside its arguments is a call there, in any format.
    """

    def __init__(self, texts: Iterable[str] = (), results: Iterable[str] = ()) -> None:
        self._texts = tuple(texts)
        self._results = tuple(results)
        self._folded: tuple[str, str] | None = None

    def hold(self, written: str, calls: Sequence[ToolCall], marks: Sequence[str] = ()) -> bool:
        """Return whether a call stands there.

        Args:
            written: All that belongs to it.
            calls: The calls that it was read as.
            marks: The marks that may stand round it.
        """
        if not self._texts:
            return False
        piece = _fold_text(written)
        core = _fold_text(_AROUND.sub("", written))
        for mark in marks:
            core = core.removeprefix(_fold_text(mark)).removesuffix(_fold_text(mark))
        texts, results = self._fold_texts()
        for words in {piece, core}:
            if len(words) >= _LONG_ENOUGH:
                if words in texts:
                    return True
            elif words and any(_fold_text(line) == words for text in self._texts for line in text.splitlines()):
                return True
        return any(_stands_near(call, results) for call in calls)

    def _fold_texts(self) -> tuple[str, str]:
        if self._folded is None:
            self._folded = _fold_all(self._texts), _fold_all(self._results)
        return self._folded


def _fold_text(text: str) -> str:
    """Return a text without its spaces, backslashes and marks of code."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return _SKIPPED.sub("", html.unescape(text) if "&" in text else text)


def _fold_all(texts: Sequence[str]) -> str:
    # As they are, and as JSON that has line breaks in its strings.
    return "\0".join([_fold_text(each) for text in texts for each in (text, _LINE_BREAK_IN_JSON.sub("", text))])


def _stands_near(call: ToolCall, results: str) -> bool:
    arguments = _fold_text(call.arguments)
    if arguments == "{}":
        return False
    found = results.find(arguments)
    while found >= 0:
        end = found + len(arguments)
        if call.name in results[max(0, found - _NEAR) : found] or call.name in results[end : end + _NEAR]:
            return True
        found = results.find(arguments, end)
    return False
