"""Reads a reply of a model as text and calls, whole or streamed; place and provenance decide what is a call.

No rule depends on a language: lines, fences, quotation marks, tags and punctuation decide where a call may begin, and a
call that occurs in a result, a user's words or the system prompt is a quotation.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from toolkit.chat import ToolCall, ToolDefinition
from toolkit.dataclass import dataclass
from toolkit.parsing.calls import (
    MOST_CALLS,
    SPACES,
    KnownTools,
    MoreTextNeededError,
    Source,
    UnclearCallError,
    check_count,
)
from toolkit.parsing.forms import (
    RESULT_MARKS,
    TURN_ENDS,
    Form,
    Spot,
    TextFormat,
    beginnings_of,
)
from toolkit.parsing.wording import AUTO, find_format

_TURNS_OF_OTHERS = (
    *RESULT_MARKS,
    "User:",
    "Human:",
    "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>final",
)
_FENCE_MARKS = {"`": re.compile("`{0,20}+"), "~": re.compile("~{0,20}+")}
_LANGUAGE = re.compile(r"[\w.+-]{0,20}+")
_FENCE_LANGUAGES = {"", "json", "json5", "jsonc", "xml", "tool_call", "tool_calls", "tool_code", "tool", "function"}
_COST_OF_BROKEN = 20  # the text after an unreadable call without a mark is read again
_MOST_MISSES = 10_000  # more than any real reply has: the rest is text
_MOST_LOOKED_AT = 1_000_000  # characters; nested values are read again
_MOST_DISPLACED = 8
# Withheld text is read again with each piece, unless that would be more than so many characters, and readings of each.
_MOST_READ_AGAIN = 2_000
_MOST_READINGS = 8
_THINKS = re.compile(r"think|thought|reason|reflect|scratch_?pad|monolog|deliberat|\bcot\b", re.IGNORECASE)
_THINKING_OPENING = r"[<\[\u25c1][/|]?+(?:\Z|[A-Za-z](?:\Z|[\w:.-]))|\u25c1"
_THINKING_TAG = re.compile(r"[\w:.|/-]{0,60}+")
_ATTRIBUTES = re.compile(r"[^<>\n]{0,200}+")
_TAG_ENDS = {"<": ">", "[": "]", "\u25c1": "\u25b7"}
_HARMONY_THOUGHTS = tuple(
    f"{start}<|channel|>{channel}<|message|>"
    for start in ("", "<|start|>assistant")
    for channel in ("analysis", "commentary")
)
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
# The Unicode names of characters at the end of a line that introduces what follows, or asks about it.
_INTRODUCING = re.compile("COLON|COMMA|DASH|HYPHEN|QUESTION MARK|EQUALS SIGN|RATIO$|ARROW|POINTING")
_ASIDE = re.compile(r"\s*[>|\u2502]|.*\|\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+\u2022]|\d{1,3}[.)])\s")
_LONGEST_LINE = 4_096
_MOST_CLOSING = 40
_MOST_OPEN = 100
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_SKIPPED = re.compile(r"[\s\\`]+")
_LINE_BREAK_IN_JSON = re.compile(r"\\+[nrt]")
_AROUND = re.compile(r"\A\s*(?:`{3,}|~{3,})\w*|(?:`{3,}|~{3,})\s*\Z")  # a fence
_LONG_ENOUGH = 24
_NEAR = 80


@dataclass(frozen=True, slots=True)
class UnreadCall:
    """A call that could not be read.

    Args:
        text: The whole call, as it was written.
        reason: The problem, for the model.
    """

    text: str
    reason: str


ReplyPart: TypeAlias = str | ToolCall | UnreadCall
"""A text, a call, or a call that could not be read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a reply, in order; adjacent texts are joined.

    White space before calls is left out, and so is everything after the end of the turn, or after the beginning of a
    result. All other text is unchanged.

    Args:
        parts: The texts, calls, and calls that could not be read.
        displaced: The whole calls in the text, at places where no call may be. They don't run: ask the model whether it
            meant them.
        broken: The unreadable calls in the text, which more text follows.
    """

    parts: tuple[ReplyPart, ...]
    displaced: tuple[ToolCall, ...] = ()
    broken: tuple[UnreadCall, ...] = ()

    @property
    def text(self) -> str:
        """The text, without calls, readable or not."""
        return "".join([part for part in self.parts if isinstance(part, str)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls; their ids are ``call_1``, ``call_2`` and so on."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def unread(self) -> tuple[UnreadCall, ...]:
        """The calls that could not be read."""
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

    The place decides what is a call: it begins a line, or follows thoughts or another call, outside of fences,
    quotations, tags and tables, and below no line that introduces it, such as one that ends with a colon; only other
    calls and the end of the turn follow it; and it does not occur in a text that the model was given. A whole call
    anywhere else is text, and one of the `displaced`. A call without a mark must name a known tool. Arguments are
    repaired if they have one reading; a truncated call is never a call. It takes linear time.

    Args:
        text: The whole reply.
        tools: The tools that the model may call.
        format: The format of calls; ``auto`` for that of the first call.
        given: The texts that the model was given, such as results.
    """
    reader = ReplyReader(tools, format=format, given=GivenTexts(given))
    return reader.collect([*reader.feed(text), *reader.finish()])


@dataclass(slots=True)
class _PendingItem:
    """Something that becomes text if the reply continues after it.

    Args:
        written: Its text.
        parts: Its calls, readable or not; empty for white space and marks after a call.
        marks: The marks of their form; an extra one is not text.
    """

    written: str
    parts: list[ReplyPart]
    marks: tuple[str, ...] = ()


class ReplyReader:
    """Reads a streamed reply.

    Text that may become a call is withheld, and so is white space, which may precede one; all other text is returned at
    once. Calls are returned at the end of the reply, since nothing may follow them. The parts do not depend on the
    pieces in which the reply arrives, except that text may be in more parts.

    Args:
        tools: The tools that the model may call.
        format: The format of calls; ``auto`` for that of the first call.
        given: The texts that the model was given, which contain no call of its own.

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
        self._start = 0  # of the text that is in no part yet
        self._unread: list[str] = []  # pieces that wait until there are enough of them
        self._withheld = 0  # the number of characters that are in no part yet
        self._may_read = _MOST_READ_AGAIN
        self._own_tags = _list_tags(self._row.forms)
        self._place = CallPlace(self._own_tags)
        self._parts: list[ReplyPart] = []
        self._space = ""  # white space that text may follow
        self._thinking_end = ""  # the end of the thoughts at this place
        self._pending: list[_PendingItem] = []  # calls, and what stands between them
        self._is_over = False
        self._own_text: list[str] = []  # the text without thoughts, up to the end of the turn
        self._broken: list[UnreadCall] = []
        self._had_thoughts = False
        self._left = MOST_CALLS
        self._misses = 0

    def feed(self, text: str) -> list[ReplyPart]:
        """Add a piece of the reply, and return the parts that are complete."""
        self._unread.append(text)
        self._withheld += len(text)
        self._may_read += _MOST_READINGS * len(text)
        if self._may_read < self._withheld:
            return []
        self._may_read -= self._withheld
        return self._read_further()

    def finish(self) -> list[ReplyPart]:
        """Return the remaining parts, at the end of the reply."""
        self._source.is_ended = True
        return self._read_further()

    def collect(self, parts: Iterable[ReplyPart]) -> Reply:
        """Return the whole reply, given all parts from `feed` and `finish`."""
        joined: list[ReplyPart] = []
        for part in parts:
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            else:
                joined.append(part)
        return Reply(tuple(joined), self._find_displaced(), tuple(self._broken))

    def _read_further(self) -> list[ReplyPart]:
        source = self._source
        # Patterns may look at the character before the place.
        left_out = self._start - 1 if self._start else 0
        source.text = source.text[left_out:] + "".join(self._unread)
        source.place = self._start = self._start - left_out
        self._unread.clear()
        try:
            while not self._is_over:
                if self._thinking_end:
                    self._read_thoughts()
                elif self._pending:
                    self._read_behind_calls()
                else:
                    self._read_text()
        except MoreTextNeededError:
            self._withheld = len(source.text) - self._start
        parts, self._parts = self._parts, []
        return parts

    def _take_text(self) -> str:
        """Return the text that was read, and no longer go back behind it."""
        start, self._start = self._start, self._source.place
        return self._source.text[start : self._start]

    def _read_text(self) -> None:
        """Add the text up to what may be a call, and read that."""
        source = self._source
        opening = None if self._misses > _MOST_MISSES else self._opening.search(source.text, source.place)
        source.place = len(source.text) if opening is None else opening.start()
        self._add_text(self._take_text())
        if opening is None:
            source.require_end()
            self._parts += [self._space] if self._space else []
            self._is_over = True
        elif self._pass_thoughts():
            pass
        elif self._is_end():
            source.rest()
            self._add_text(self._take_text(), is_own=False)
        elif (found := self._read_group()) is None:
            self._misses += 1
            source.place = min(self._start + 1, len(source.text))  # search again after the first character
        else:
            self._pending.append(found)
            if not found.parts:
                self._emit_as_text()

    def _is_end(self) -> bool:
        """Return whether the model's turn ends here; what follows is made up."""
        begins_line = self._place.is_line_start and self._place.is_open
        return self._source.accepts_any((*TURN_ENDS, *_TURNS_OF_OTHERS) if begins_line else TURN_ENDS) != ""

    def _pass_thoughts(self) -> bool:
        """Go past a tag that begins or ends thoughts."""
        may_begin = self._place.is_line_start and self._place.is_open
        if not may_begin and self._had_thoughts:
            return False
        closing = _find_thinking_end(self._source)
        if closing == "/" and not self._had_thoughts and self._place.allows_end_of_thoughts:
            # The template of the prompt has opened the thoughts.
            self._own_text.clear()
            self._broken.clear()
            self._place = CallPlace(self._own_tags)
        elif closing and closing != "/" and may_begin:
            self._thinking_end = closing
        else:
            self._source.place = self._start
            return False
        self._had_thoughts = True
        self._add_thoughts(self._take_text())
        return True

    def _read_thoughts(self) -> None:
        """Add thoughts as they come; the reply follows them."""
        source, closing = self._source, self._thinking_end
        found = source.text.find(closing, source.place)
        if found >= 0:
            source.place = found + len(closing)
            self._thinking_end = ""
        else:
            possible = next((n for n in range(len(closing) - 1, 0, -1) if source.text.endswith(closing[:n])), 0)
            source.place = max(source.place, len(source.text) - (0 if source.is_ended else possible))
        self._add_thoughts(self._take_text())
        if self._thinking_end:
            source.require_end()
            self._thinking_end = ""

    def _read_group(self, *, follows: bool = False) -> _PendingItem | None:
        """Read the calls of one form, in a fence or not; None if there are none, or none are allowed here."""
        source = self._source
        try:
            if not follows and not self._place.allows_call(is_marked=True, is_inline=True):
                return None
            if source.peek() in _FENCE_MARKS:
                found = self._read_fence(follows=follows)
            else:
                spot = Spot(begins_reply=self._place.begins_reply and not follows)
                found = self._read_form(self._forms, spot, follows=follows)
        except UnclearCallError as error:
            if self._left <= _COST_OF_BROKEN:
                source.rest()
            self._left -= _COST_OF_BROKEN
            written = self._take_text()
            return _PendingItem(written, [] if self._given.contains(written, ()) else [UnreadCall(written, str(error))])
        if found is None:
            source.place = self._start
            return None
        form, calls = found
        is_given = self._given.contains(source.text[self._start : source.place], calls, form.marks)
        if not is_given and len(calls) > self._left:
            source.rest()
            reason = f"A reply may have {MOST_CALLS} calls, and this has more."
            written = self._take_text()
            return _PendingItem(written, [UnreadCall(written, reason)])
        written = self._take_text()
        if is_given:
            return _PendingItem(written, [])
        if self._row is AUTO:
            self._forms = (form,)
        self._left -= len(calls)
        return _PendingItem(written, list(calls), form.marks)

    def _read_form(self, forms: Sequence[Form], spot: Spot, *, follows: bool) -> tuple[Form, list[ToolCall]] | None:
        source = self._source
        start = source.place
        character = source.peek().casefold()
        for form in forms:
            if not character or character not in form.characters:
                continue
            if form.begins_line and not follows and not self._place.is_unindented:
                continue
            if follows or self._place.allows_call(is_marked=form.is_marked, is_inline=form.is_inline):
                calls = form.read(source, self._tools, spot)
                if calls:
                    return form, calls
                source.place = start
        return None

    def _read_fence(self, *, follows: bool) -> tuple[Form, list[ToolCall]] | None:
        """Read a fence that contains only calls."""
        source = self._source
        fence = source.word(_FENCE_MARKS[source.peek()])
        language = source.word(_LANGUAGE).casefold()
        may_hold = len(fence) >= 3 and language in _FENCE_LANGUAGES and self._row.takes_fences
        if not may_hold or not (follows or self._place.allows_call(is_marked=False)):
            return None
        try:
            return self._read_fenced(Spot(fence=fence, language=language))
        except UnclearCallError:
            source.past(fence)
            raise

    def _read_fenced(self, spot: Spot) -> tuple[Form, list[ToolCall]] | None:
        source = self._source
        form: Form | None = None
        calls: list[ToolCall] = []
        while form is None or not (source.spaces() == "" or source.accepts(spot.fence)):
            source.spaces()
            found = self._read_form(self._forms if form is None else (form,), spot, follows=True)
            if found is not None:
                form = found[0]
                calls += found[1]
                check_count(calls)
            elif form is None:
                return None
            else:
                raise UnclearCallError("A fence with calls may contain nothing else.")
        return form, calls

    def _read_behind_calls(self) -> None:
        """Read the text after a call: if it is neither a call nor the end, all of it is text."""
        source = self._source
        source.spaces()
        self._pending.append(_PendingItem(self._take_text(), []))
        if source.peek() == "" or self._ends_turn():
            source.rest()
            self._emit_calls()
        elif not self._pass_closing():
            found = self._read_group(follows=True)
            self._pending += [] if found is None else [found]
            if found is None or not found.parts:
                self._emit_as_text()

    def _ends_turn(self) -> bool:
        return self._source.accepts_any((*TURN_ENDS, "<|end|>", *self._row.result_marks), any_case=True) != ""

    def _pass_closing(self) -> bool:
        """Go past an extra closing tag, which is not text."""
        if not self._source.accepts_any([mark for mark in self._pending[0].marks if mark.startswith("</")]):
            return False
        self._pending.append(_PendingItem(self._take_text(), []))
        return True

    def _emit_calls(self) -> None:
        """Add the calls to the parts, at the end of the reply."""
        number = 0
        for part in [part for item in self._pending for part in item.parts]:
            if isinstance(part, ToolCall):
                number += 1
                self._parts.append(replace(part, id=f"call_{number}"))
            else:
                self._parts.append(part)
        self._is_over = True

    def _emit_as_text(self) -> None:
        """Add the calls as text, since the reply continues."""
        for item in self._pending:
            self._add_text(item.written, is_call=bool(item.written.strip()))
            self._broken += [part for part in item.parts if isinstance(part, UnreadCall)]
        self._pending.clear()

    def _add_text(self, text: str, *, is_own: bool = True, is_call: bool = False) -> None:
        """Add text; white space is withheld."""
        if not text:
            return
        if is_call:
            self._place.add_call(text)
        else:
            self._place.add_text(text)
        if is_own:
            self._own_text.append(text)
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
        """Return the whole calls in the text at any place, except those that the model was given."""
        text = "".join(self._own_text)
        found: dict[tuple[str, str], ToolCall] = {}
        source = Source(text, is_ended=True)
        opening = _compile_opening(self._row.forms, is_for_place=False)
        left = min(4 * len(text) + 1_000, _MOST_LOOKED_AT)
        while left > 0 and len(found) < _MOST_DISPLACED and (match := opening.search(text, source.place)) is not None:
            start = source.place = match.start()
            calls, form = self._try_forms(source)
            written = text[start : source.place]
            left -= len(written) + 20
            if form is None:
                source.place = start + 1
            elif calls and not self._given.contains(written, calls, form.marks):
                for call in calls:
                    found.setdefault((call.name, call.arguments), call)
        return tuple(found.values())

    def _try_forms(self, source: Source) -> tuple[list[ToolCall], Form | None]:
        """Return the calls at this place in any form; go past a value or an unreadable call."""
        start = source.place
        character = source.peek().casefold()
        for form in self._row.forms:
            if character not in form.characters:
                continue
            source.place = start
            try:
                calls = form.read(source, self._tools, Spot())
            except UnclearCallError:
                return [], form
            if calls:
                return calls, form
            source.place = start
            if character in "{[" and not form.is_marked and source.value():
                return [], form  # data, which contains no call
        return [], None


@cache
def _compile_opening(forms: tuple[Form, ...], *, is_for_place: bool = True) -> re.Pattern[str]:
    """Return a pattern of the beginnings of calls, thoughts, fences and ends of turns."""
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


def _find_thinking_end(source: Source) -> str:
    """Go past a tag that begins thoughts, and return its end; or past one that ends thoughts, and return ``/``.

    The result is empty for other text; the place is undefined then.
    """
    bracket = source.peek()
    closing = _TAG_ENDS.get(bracket, "")
    if not closing:
        return ""
    if bracket == "<" and source.accepts_any(_HARMONY_THOUGHTS):
        return "<|end|>"
    source.place += 1
    name = source.word(_THINKING_TAG)
    if not _THINKS.search(name):
        return ""
    if closing == ">" and not name.endswith("|") and source.peek() in {" ", "\t"}:
        source.word(_ATTRIBUTES)
    if not source.accepts(closing):
        return ""
    if name.strip("|").startswith(("/", "end_")):
        return "/"
    if "begin_" in name:
        return bracket + name.replace("begin_", "end_") + closing
    return f"{bracket}|/{name[1:]}{closing}" if name.startswith("|") else f"{bracket}/{name}{closing}"


def _is_introduction(line: str) -> bool:
    """Return whether a line ends with a character that introduces; closing marks and symbols behind it don't count."""
    for character in reversed(line[-_MOST_CLOSING:]):
        if _INTRODUCING.search(unicodedata.name(character, "")):
            return True
        if character not in _CLOSING and unicodedata.category(character)[0] not in "CMSZ":
            return False
    return False


class CallPlace:
    """Tracks the place in a reply, and decides where a call may begin.

    It may begin a line, outside of fences, quotations and tags, but not below a line that introduces it: a heading, a
    block quote, a table, or a line that ends with a colon, a comma, a dash or a question mark. Thoughts are no part of
    a line.

    Args:
        own_tags: The names of the tags of calls. As text they enclose what follows at any place, other tags only at the
            beginning of a line.

    Attributes:
        begins_reply: True if there was only white space and thoughts so far.
    """

    def __init__(self, own_tags: frozenset[str] = frozenset()) -> None:
        self.begins_reply: bool = True
        self._own_tags = own_tags
        self._line = ""
        self._is_long = False  # True if the beginning of the line was dropped
        self._fence = ""
        self._quotes: list[str] = []  # the characters that close each quotation
        self._tags: list[str] = []
        self._is_in_quotes = False
        self._is_introduced = False  # True if the last line with words introduces what follows
        self._is_unfinished = False  # True if that line has no end of a sentence
        self._is_quoted_line = False  # True if the line above is a block quote or a table
        self._is_below_line = False  # True if the line above is not blank

    @property
    def is_line_start(self) -> bool:
        """True at the beginning of a line; indented text belongs to the text above."""
        return not self._is_long and not (self._line.strip() if self.begins_reply else self._line)

    @property
    def is_unindented(self) -> bool:
        """True at the beginning of a line, without indentation."""
        return not self._is_long and not self._line

    @property
    def is_open(self) -> bool:
        """True outside of fences, quotations and tags, as of the beginning of the line."""
        return not (self._fence or self._quotes or self._tags or self._is_in_quotes)

    def allows_call(self, *, is_marked: bool, is_inline: bool = False) -> bool:
        """Return whether a call may begin here.

        Args:
            is_marked: False for a call that is one by its content alone, which must follow a whole sentence.
            is_inline: True for a mark that models write directly after the end of a sentence.
        """
        if not self.is_open:
            return False
        if self.is_line_start:
            return not (self._is_introduced or self._is_quoted_line or (self._is_unfinished and not is_marked))
        return is_inline and self._line[-1:] in tuple(_ENDING) and not self._is_quoting_line()

    @property
    def allows_end_of_thoughts(self) -> bool:
        """True if thoughts may end here that no tag began; all text before is thought then."""
        if not self.is_open or self._is_quoting_line():
            return False
        words = self._line.strip(_DECORATION)
        return not _is_introduction(words) if words else not (self._is_introduced or self._is_quoted_line)

    def add_text(self, text: str) -> None:
        """Add text of the reply."""
        first, *lines = text.split("\n")
        self._extend_line(first)
        for line in lines:
            self._end_line()
            self._extend_line(line)

    def add_call(self, text: str) -> None:
        """Add a call that is text; its punctuation is ignored."""
        self._line, self._is_long = "", True
        if text.strip():
            self.begins_reply = self._is_introduced = False

    def add_thoughts(self, text: str) -> None:
        """Add thoughts, which are no part of a line but may end one."""
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
            self._is_in_quotes = self._is_quoted_line = self._is_below_line = False
            return
        self._take_marks(line)
        self._is_quoted_line = is_whole and _ASIDE.match(line) is not None
        if self._is_below_line and _UNDERLINE.fullmatch(line):
            self._is_introduced = True
        self._is_below_line = True
        words = _TAGS_ONLY.sub("", line).strip(_DECORATION)
        if any(map(str.isalnum, words)):
            self._is_introduced = _is_introduction(words) or (is_whole and line.lstrip().startswith("#"))
            self._is_unfinished = words.rstrip(_CLOSING)[-1:] not in tuple(_ENDING)

    def _take_marks(self, line: str) -> None:
        """Open and close the quotations and tags of a line, or of a piece of a long one."""
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
            elif mark["quote"]:
                self._take_quote(mark["quote"])
            else:
                self._take_tag(mark, begins=begins)

    def _take_tag(self, mark: re.Match[str], *, begins: bool) -> None:
        name = mark["name"].casefold()
        if mark["close"]:
            if name in self._tags:
                del self._tags[self._tags.index(name) :]
        elif not mark["empty"] and len(self._tags) < _MOST_OPEN and (begins or name in self._own_tags):
            self._tags.append(name)

    def _take_quote(self, quote: str) -> None:
        if quote == '"':
            self._is_in_quotes = not self._is_in_quotes
        elif self._quotes and quote in self._quotes[-1]:
            self._quotes.pop()
        elif quote in _CLOSING_QUOTES and len(self._quotes) < _MOST_OPEN:
            self._quotes.append(_CLOSING_QUOTES[quote])

    def _is_quoting_line(self) -> bool:
        """Return whether the line so far is a quotation, an item or code, or has an open one."""
        line = self._line
        if self._is_long or _ASIDE.match(line) or _ITEM.match(line) or line.count("`") % 2 or line.count('"') % 2:
            return True
        return any(line.count(opening) > sum(map(line.count, closing)) for opening, closing in _CLOSING_QUOTES.items())


class GivenTexts:
    """The texts that a model was given: a call in one of them is not its own.

    Spaces and escapes are ignored. A short call must be a whole line there.

    Args:
        texts: The texts of users, tools and the application.
        results: Those of tools. There, the name of a tool near its arguments is a call in any format.
    """

    def __init__(self, texts: Iterable[str] = (), results: Iterable[str] = ()) -> None:
        self._texts = tuple(texts)
        self._results = tuple(results)
        self._folded: tuple[str, str] | None = None

    def contains(self, written: str, calls: Sequence[ToolCall], marks: Sequence[str] = ()) -> bool:
        """Return whether the texts contain a call.

        Args:
            written: The whole call, as it was written.
            calls: The calls that were read from it.
            marks: The marks around it.
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
        return any(_is_named_near(call, results) for call in calls)

    def _fold_texts(self) -> tuple[str, str]:
        if self._folded is None:
            self._folded = _fold_all(self._texts), _fold_all(self._results)
        return self._folded


def _fold_text(text: str) -> str:
    """Return a text without spaces, backslashes and backticks."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return _SKIPPED.sub("", html.unescape(text) if "&" in text else text)


def _fold_all(texts: Sequence[str]) -> str:
    # Unchanged, and as JSON with escaped line breaks in its strings.
    return "\0".join([_fold_text(each) for text in texts for each in (text, _LINE_BREAK_IN_JSON.sub("", text))])


def _is_named_near(call: ToolCall, results: str) -> bool:
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
