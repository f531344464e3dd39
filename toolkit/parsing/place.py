"""Whether a call may begin at a place of a reply, by what stands before it; and whether others wrote that call before.

Nothing here knows a language: lines, fences, quotation marks, tags and punctuation decide.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from toolkit.chat import ToolCall

__all__ = ["CallPlace", "GivenTexts"]

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
        texts: What users, tools and the application wrote.
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
