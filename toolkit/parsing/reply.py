"""A reply of a model as text and calls: all at once, or while it comes."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from toolkit.calls.repair.idle_words import SPACES
from toolkit.chat import ToolCall, ToolDefinition
from toolkit.parsing.calls import MOST_CALLS, KnownTools, UnclearCallError
from toolkit.parsing.form_reader import OTHERS_TURNS, TURN_ENDS, FormReader
from toolkit.parsing.formats import TextFormat
from toolkit.parsing.forms import END_OF_TURN, RESULTS
from toolkit.parsing.reply_parts import Reply, ReplyPart, UnreadCall
from toolkit.parsing.source import Source, Waiting
from toolkit.parsing.speech import LONGEST_REMARK, Speech, Surroundings, read_remark
from toolkit.parsing.thoughts import find_thinking_end

__all__ = ["ReplyReader", "read_reply"]


def read_reply(text: str, tools: Iterable[ToolDefinition], *, format: TextFormat = "auto") -> Reply:  # noqa: A002
    """Return the text and the calls of a reply.

    ::

        reply = read_reply('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', registry.definitions())

    A call is what its format's mark says to be one and is not spoken of as an example; without a mark, what names a
    known tool and stands by itself, at the start, behind a whole sentence, or behind words by which a model says that
    it does something now. Other introductions ("This is the JSON:") make it text. A call to a tool that is not known is
    read as one where it is marked. Arguments are taken as `toolkit.calls.repair.names` takes them: only what was surely
    written; what is cut off is never a call. Nothing in code of another language, in quotes or in ``<think>`` is one.
    It takes time linear in the length of the text.

    Args:
        text: The whole reply.
        tools: The tools that the model may call.
        format: The only format that is looked for.
    """
    reader = ReplyReader(tools, format=format)
    parts = reader.settle([*reader.feed(text), *reader.finish()])
    joined: list[ReplyPart] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return Reply(tuple(joined))


class ReplyReader:
    """Reads a reply while it comes.

    What may still become a call is held back, and white space, which may stand before one; all other text is given at
    once. The parts are the same however the reply was cut into pieces, but for text, which comes in more of them.
    What was given as a call may turn out to be a thought: `settle` says so when the reply is over.

    Args:
        tools: The tools that the model may call.
        format: The only format that is looked for.
        repeated: Texts of others that the model may repeat, such as results: what stands there is no call.

    Raises:
        ConfigurationError: There is no such format.
    """

    def __init__(
        self,
        tools: Iterable[ToolDefinition],
        *,
        format: TextFormat = "auto",  # noqa: A002
        repeated: Iterable[str] = (),
    ) -> None:
        self._forms = FormReader(format, KnownTools(tools))
        self._opening = self._forms.opening
        self._source = Source()
        self._repeated = tuple(repeated)
        self._speech = Speech()
        self._follows_item = False  # whether the last call was an item of a list
        self._has_thought = False
        self._fed: list[str] = []  # all that came, until thoughts have ended
        self._taken = 0  # the length of what was read of it
        self._told = 0
        self._thought: tuple[str, int] | None = None  # what the prompt had begun, and how many parts were told of it
        self._parts: list[ReplyPart] = []
        self._held: list[tuple[int, str]] = []  # calls that the words behind them may take back: where, as written
        self._remark = ""
        self._before = ""
        self._space = ""  # white space whose text may still come
        self._has_text = False
        self._last_is_call = False
        self._count = 0
        self._left = MOST_CALLS
        self._passages = 0
        self._misses = 0
        self._running = self._read_whole_reply()

    def feed(self, text: str) -> list[ReplyPart]:
        """Take some more of the reply, and return what is known now."""
        if not self._has_thought:
            self._fed.append(text)
        self._source.feed(text)
        return self._advance_reading()

    def finish(self) -> list[ReplyPart]:
        """Return the rest: the reply is over."""
        self._source.is_ended = True
        return self._advance_reading()

    def settle(self, parts: Sequence[ReplyPart]) -> list[ReplyPart]:
        """Return all parts of a reply that is over, with the calls that turned out to be thoughts as text.

        A template may begin the thoughts in the prompt. Then only their end stands in the reply, behind all that was
        thought, and no call before it was one.
        """
        if self._thought is None:
            return list(parts)
        text, count = self._thought
        return [text, *parts[count:]]

    def _advance_reading(self) -> list[ReplyPart]:
        next(self._running, None)
        self._decide_held(is_ended=self._source.is_ended)
        cut = self._held[0][0] if self._held else len(self._parts)
        parts, self._parts = self._parts[:cut], self._parts[cut:]
        self._held = [(place - cut, text) for place, text in self._held]
        self._told += len(parts)
        return parts

    def _read_whole_reply(self) -> Generator[None]:
        source = self._source
        is_start = True  # of the reply, or of what follows a call: a call may stand there
        while True:
            if self._passages > _MOST_PASSAGES or self._misses > _MOST_MISSES:
                is_start, self._opening = False, _NEVER
            if is_start:
                yield from source.spaces()
                self._give_text(source.take())
            elif not source.until(self._opening):
                self._give_text(source.take())
                if source.is_ended:
                    break
                yield
                continue
            self._give_text(source.take())
            kind = yield from self._read_part()
            is_start = kind in {"calls", "thoughts"}
            if kind == "neither":
                # The next opening is behind the first character at the earliest.
                character = yield from source.peek(1)
                source.skip(len(character))
                self._misses += 1
        if self._space and not self._last_is_call:
            self._parts.append(self._space)

    def _read_part(self) -> Waiting[Literal["calls", "thoughts", "text", "neither"]]:
        """Read what begins here; say what it was meant as."""
        source = self._source
        if (yield from self._pass_thoughts()):
            return "thoughts"
        if (yield from self._is_over()):
            yield from source.rest()
            self._give_text(source.take(), is_speech=False)
            return "text"
        before = self._find_surroundings()
        try:
            outcome = yield from self._forms.read(source, before)
        except UnclearCallError as error:
            return (yield from self._give_unread(str(error), before))
        if outcome is None:
            source.back()
            return "neither"
        if isinstance(outcome, list):
            return (yield from self._give_calls(outcome, before))
        self._passages += 1
        for _ in outcome:
            self._give_text(source.take(), is_speech=False)
            yield
        self._give_text(source.take(), is_speech=False)
        return "text"

    def _give_unread(self, reason: str, before: Surroundings) -> Waiting[Literal["calls", "text"]]:
        self._left -= _COST_OF_BROKEN
        if self._left <= 0:
            yield from self._source.rest()
        text = self._source.take()
        if self._is_repeated(text):
            self._give_text(text, is_speech=False)
            return "text"
        self._give_call(UnreadCall(text, reason), before, text)
        return "calls"

    def _give_calls(self, calls: list[ToolCall], before: Surroundings) -> Waiting[Literal["calls", "text"]]:
        source = self._source
        if self._is_repeated(source.piece()):
            self._give_text(source.take(), is_speech=False)
            return "text"
        yield from _pass_turn(source)
        self._left -= len(calls)
        if self._left < 0:
            yield from source.rest()
            text = source.take()
            reason = f"A reply may have {MOST_CALLS} calls, and this has more."
            self._give_call(UnreadCall(text, reason), before, text)
            return "calls"
        self._decide_held(is_ended=bool(self._remark.strip()))
        text = source.take()
        for call in calls:
            self._count += 1
            self._give_call(replace(call, id=f"call_{self._count}"), before, text)
            self._held.append((len(self._parts) - 1, text))
            text = ""
        return "calls"

    def _decide_held(self, *, is_ended: bool) -> None:
        """Let the calls pass that are held back, or make text of them, as far as that is known."""
        is_taken_back = read_remark(self._remark, is_ended=is_ended) if self._held else False
        if is_taken_back is None:
            return
        if is_taken_back:
            for place, written in self._held:
                self._parts[place] = f"{written}\n\n" if written and place < self._held[-1][0] else written
            behind = self._parts[self._held[-1][0] + 1]
            if isinstance(behind, str) and not behind[:1].isspace():  # white space behind a call is left out
                space = self._remark[: len(self._remark) - len(self._remark.lstrip())]
                self._parts[self._held[-1][0] + 1] = space + behind
        self._held.clear()
        self._remark = ""

    def _find_surroundings(self) -> Surroundings:
        return Surroundings(text=self._before, is_quoted=self._speech.is_quoting, follows_item=self._follows_item)

    def _is_repeated(self, text: str) -> bool:
        text = text.strip()
        return len(text) >= _SHORTEST_REPETITION and any(text in said for said in self._repeated)

    def _is_over(self) -> Waiting[bool]:
        """Say whether the model's own turn ends here: what it writes from here on is not its to say."""
        source = self._source
        for token in TURN_ENDS:
            if (yield from source.accepts(token)):
                return True
        if Surroundings(text=self._before).is_line_start:
            for token in OTHERS_TURNS:
                if (yield from source.accepts(token)):
                    return True
        return False

    def _pass_thoughts(self) -> Waiting[bool]:
        """Go past thoughts, where they begin or end here: what comes behind them is the reply."""
        source = self._source
        before = self._find_surroundings()
        closing = yield from find_thinking_end(source)
        if not closing:
            return False
        if closing[0] == "/":
            # The template of the prompt may have opened the thoughts; they end once.
            if self._has_thought or before.is_in_quotation or not self._speech.lets_thoughts_end:
                source.back()
                return False
            self._speech = Speech()
            self._give_text(source.take(), is_speech=False)
            self._thought = "".join(self._fed)[: self._taken], self._told + len(self._parts)
            is_cited = False
        elif _MENTIONED.search(self._before[-1:]) or before.is_quoted:
            source.back()
            return False
        else:
            is_cited = before.is_in_quotation
            for _ in source.past(closing):
                is_cited = is_cited and "\n" not in source.piece()
                self._give_text(source.take(), is_speech=False)
                yield
            is_cited = is_cited and "\n" not in source.piece()
        self._has_thought = True
        self._fed.clear()
        self._give_text(source.take(), is_speech=False)
        # The line of a quotation goes on behind thoughts that stand in it.
        self._before = before.text.rpartition("\n")[2] if is_cited else ""
        self._passages += 1
        return True

    def _give_text(self, text: str, *, is_speech: bool = True) -> None:
        """Give text, as far as it is not white space before a call."""
        if not text:
            return
        self._taken += len(text)
        (self._speech.hear if is_speech else self._speech.skip)(text)
        if self._held and len(self._remark) <= LONGEST_REMARK * 2:
            self._remark += text
        if _SAYS_SOMETHING.search(text):
            self._follows_item = False
        self._before = (self._before + text)[-_LONGEST_BEFORE:]
        visible = text.rstrip(SPACES)
        if not visible:
            self._space += text
            return
        begins_reply = self._last_is_call and not self._has_text
        self._parts.append(visible.lstrip(SPACES) if begins_reply else self._space + visible)
        self._space = text[len(visible) :]
        self._has_text = True
        self._last_is_call = False

    def _give_call(self, part: ToolCall | UnreadCall, before: Surroundings, text: str) -> None:
        self._parts.append(part)
        self._taken += len(text)
        self._follows_item = before.is_item
        self._speech.skip("\n")
        self._before = ""
        self._last_is_call = True
        if not self._has_text:
            self._space = ""


_COST_OF_BROKEN = 20  # behind a broken call without a mark all is read again
_SHORTEST_REPETITION = 24
_SAYS_SOMETHING = re.compile(r"[^\W\d]")
# In front of a tag that is only mentioned.
_MENTIONED = re.compile(r"[\w`\"'\u201c\u2018\u201e\u00ab]")
_LONGEST_BEFORE = 300
# What no reply of a model has: from there on its text is not looked into, so that it takes no time.
_MOST_PASSAGES = 5_000
_MOST_MISSES = 10_000
_NEVER = re.compile(r"(?!)")


def _pass_turn(source: Source) -> Waiting[None]:
    """Go past what is no text behind a call: a closing tag too many, and the end of the turn with all behind it.

    The end is a token for that, or a result: what the model writes from there on it makes up.
    """
    there = source.length
    yield from source.spaces()
    if (yield from source.accepts("</tool_call>")):
        return
    for token in (*END_OF_TURN, *RESULTS):
        if (yield from source.accepts(token, any_case=True)):
            yield from source.rest()
            return
    source.back(there)
