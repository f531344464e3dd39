"""A text that comes in pieces, read forward by generators that yield while they need more of it.

Their outcome depends on the text alone, never on where it was cut; each character is looked at a bounded number of
times.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
SPACES = " \t\r\n\ufeff\u00a0"
"""White space that may stand round a call."""

Waiting: TypeAlias = Generator[None, None, T]
"""Gives a `T`, and yields each time it needs more text."""

_DEEPEST_BRACKETS = 100
_FLAT = r"""[^\[\]{}()"'/\#<]*+"""
# Whole strings are one token, and so are brackets with nothing special in them: that takes a fraction of the time.
_STRUCTURE_TOKENS = rf"""  (?:"[^"\\]*+(?:\\.[^"\\]*+)*+"{_FLAT})++ | (?:'[^'\\]*+(?:\\.[^'\\]*+)*+'{_FLAT})++
    | (?:(?:\[{_FLAT}\] | \{{{_FLAT}\}} | \({_FLAT}\)){_FLAT})++
    | [\[\]{{}}()"'] | /(?![^/*]) | \#(?![^\#\s])  """
_STRUCTURAL = re.compile(_STRUCTURE_TOKENS, re.VERBOSE | re.DOTALL)
_STRUCTURAL_IN_TAGS = re.compile(f"{_STRUCTURE_TOKENS} | <(?![^/|])", re.VERBOSE | re.DOTALL)
_STRINGS = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'"}
_LINE_END = re.compile("\n")
_HASHES = {"#", "##", "# ", "#\t", "#\n", "#\r"}  # that begin a comment
_FOUND = {"end", "broken"}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class Source:
    """The text so far, with a place in it, and a mark before that from where the text is kept.

    Attributes:
        is_ended: True where no more text comes.
    """

    __slots__ = ("_before_kept", "_kept", "_kept_length", "_mark", "_position", "_text", "is_ended")

    def __init__(self) -> None:
        self.is_ended: bool = False
        self._text = ""
        self._position: int = 0
        self._mark: int = 0
        self._kept: list[str] = []  # what was cut off from the text between the mark and the place
        self._before_kept = ""  # the character before that
        self._kept_length = 0

    def feed(self, text: str) -> None:
        """Append text."""
        # Only what is ahead of the place is copied, and that is little: a long call in small pieces stays linear.
        if self._mark < self._position:
            if not self._kept:
                self._before_kept = self._text[max(0, self._mark - 1) : self._mark]
            self._kept.append(self._text[self._mark : self._position])
            self._kept_length += self._position - self._mark
        # Patterns look at the character before the place.
        before = self._text[max(0, self._position - 1) : self._position]
        self._text = before + self._text[self._position :] + text
        self._position = self._mark = len(before)

    @property
    def length(self) -> int:
        """How far the place is from the mark."""
        return self._kept_length + self._position - self._mark

    def piece(self, start: int = 0) -> str:
        """Return the text up to the place, from so far behind the mark."""
        return ("".join(self._kept) + self._text[self._mark : self._position])[start:]

    def take(self) -> str:
        """Return the text from the mark to the place, and set the mark to the place."""
        piece = self.piece()
        self._drop_kept()
        self._mark = self._position
        return piece

    def back(self, start: int = 0) -> None:
        """Go back to so far behind the mark."""
        if self._kept:
            self._text = self._before_kept + "".join(self._kept) + self._text[self._mark :]
            self._drop_kept()
            self._mark = len(self._before_kept)
        self._position = self._mark + start

    def _drop_kept(self) -> None:
        self._kept.clear()
        self._kept_length = 0

    def skip(self, count: int) -> None:
        """Go on by so many characters; they must be there."""
        self._position += count

    def peek(self, count: int) -> Waiting[str]:
        """Return the next characters, fewer only at the end."""
        while len(self._text) - self._position < count and not self.is_ended:
            yield
        return self._text[self._position : self._position + count]

    def until(self, pattern: re.Pattern[str]) -> bool:
        """Go on to where a pattern matches next; where it doesn't, to the end of what is there."""
        match = pattern.search(self._text, self._position)
        self._position = len(self._text) if match is None else match.start()
        return match is not None

    def run(self, pattern: re.Pattern[str]) -> Waiting[None]:
        """Go past all characters that a pattern of one character matches one after the other."""
        while True:
            if self.until(pattern) or self.is_ended:
                return
            yield

    def spaces(self, characters: str = SPACES) -> Waiting[str]:
        """Go past white space, or other `characters`, and return the character there; empty at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in characters:
                    return self._text[self._position]
                self._position += 1
            if self.is_ended:
                return ""
            yield

    def accepts(self, literal: str, *, any_case: bool = False) -> Waiting[bool]:
        """Go past `literal` where it stands here; it waits no longer than it may still be it."""
        while True:
            there = self._text[self._position : self._position + len(literal)]
            wanted = literal[: len(there)]
            if there != wanted and not (any_case and there.casefold() == wanted.casefold()):
                return False
            if len(there) == len(literal):
                self._position += len(literal)
                return True
            if self.is_ended:
                return False
            yield

    def word(self, pattern: re.Pattern[str], longest: int) -> Waiting[str]:
        """Go past the characters that a pattern of one character matches, and return them; at most `longest`."""
        characters: list[str] = []
        while len(characters) < longest:
            character = yield from self.peek(1)
            if not pattern.match(character):
                break
            characters.append(character)
            self._position += 1
        return "".join(characters)

    def rest(self) -> Waiting[None]:
        """Go to the end."""
        while not self.is_ended:
            self._position = len(self._text)
            yield
        self._position = len(self._text)

    def past(self, literal: str) -> Waiting[bool]:
        """Go past the next `literal`, or to the end where there is none."""
        while True:
            found = self._text.find(literal, self._position)
            if found >= 0:
                self._position = found + len(literal)
                return True
            if self.is_ended:
                self._position = len(self._text)
                return False
            possible = next((n for n in range(len(literal) - 1, 0, -1) if self._text.endswith(literal[:n])), 0)
            self._position = max(self._position, len(self._text) - possible)
            yield

    def value(self, stop: str = "") -> Waiting[bool]:
        """Go past the list, object or argument list in brackets that begins here; False where it has no end.

        That is so where brackets don't match, stand more than 100 deep, or are open where `stop` (which begins with
        ``<``) or the end comes; then the place is there. Brackets in strings and comments don't count.
        """
        tokens = _STRUCTURAL_IN_TAGS if stop else _STRUCTURAL
        awaited = [_CLOSING[self._text[self._position]]]
        self._position += 1
        while True:
            found = self._pass_brackets(awaited, tokens)
            if found in _FOUND:
                return found == "end"
            if not found:
                if self.is_ended:
                    return False
                yield
            elif not (yield from self._pass_special(found, stop)):
                return False

    def _pass_brackets(self, awaited: list[str], tokens: re.Pattern[str]) -> str:
        """Go past brackets, as far as the text is there; say ``end``, ``broken`` or what stands in the way."""
        for token in tokens.finditer(self._text, self._position):
            text = token[0]
            opening = text[0] in _CLOSING
            if len(text) > 1 and (not opening or len(awaited) < _DEEPEST_BRACKETS):
                continue
            self._position = token.end()
            if opening:
                if len(awaited) == _DEEPEST_BRACKETS:
                    self._position = token.start()
                    return "broken"
                awaited.append(_CLOSING[text])
            elif text not in "]})":
                self._position = token.start()
                return text
            elif awaited.pop() != text:
                self._position = token.start()
                return "broken"
            elif not awaited:
                return "end"
        self._position = len(self._text)
        return ""

    def _pass_special(self, character: str, stop: str) -> Waiting[bool]:
        if character in "\"'":
            self._position += 1
            return (yield from self._pass_string(character))
        if character == "<":
            if stop and (yield from self.peek(len(stop))) == stop:
                return False
            self._position += 1
            return True
        opening = yield from self.peek(2)
        if opening == "/*":
            self._position += 2
            yield from self.past("*/")
        elif opening == "//" or opening in _HASHES:
            yield from self.run(_LINE_END)
        else:
            self._position += 1
        return True

    def _pass_string(self, quote: str) -> Waiting[bool]:
        while True:
            match = _STRINGS[quote].match(self._text, self._position)
            self._position = self._position if match is None else match.end()
            if self._text.startswith(quote, self._position):
                self._position += 1
                return True
            if self.is_ended:
                self._position = len(self._text)
                return False
            yield
