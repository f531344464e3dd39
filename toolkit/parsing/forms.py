"""What each way to write a call has in common, and what tells a call from the mention of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools
from toolkit.parsing.source import Source, Waiting

__all__ = ["Form", "Outcome", "Passage", "Surroundings", "nothing_more", "partial", "spoken_of", "stands_alone"]

Passage: TypeAlias = Waiting[object]
"""Goes past text in which no calls are looked for; what it has passed is text at once."""

Outcome: TypeAlias = list[ToolCall] | Passage | None
"""Calls, whose ids are empty; text; or None, for something else that may be read in another form."""


class Form(Protocol):
    """One way to write calls."""

    @property
    def characters(self) -> str:
        """What a call may begin with, in lower case."""
        ...

    @property
    def opening(self) -> str:
        """A pattern of how a call begins, and of the beginnings of that where the text ends for now."""
        ...

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read what begins here; where it is None, wherever the place is then.

        It looks no further ahead than a bounded number of characters until it knows that this is a call.

        Raises:
            UnclearCallError: A call is meant and can't be read; the place is behind all that belongs to it.
        """
        ...


# Words that say that something is shown, and not done.
_EXAMPLE = r"\b(?:examples?|instance|e\.g|template|syntax|documentation)\b"
# Words that take back what has no mark of its own, or tell of it.
_TELLING = (
    r"\b(?:such\s+as|like|format(?:ted)?|schema|would|could|if|not|never|instead|wrong|bad|incorrect|avoid|used|called"
    r"|wrote|sent|made|was|were|did|had|previous(?:ly)?|earlier|returned|asked|requested|results?|output"
    r"|you\s+(?:can|may|might|should|must|need|have))\b|(?:n['\u2019]t|['\u2019]d)\b"
)
_SHOWN = re.compile(_EXAMPLE, re.IGNORECASE)
_TOLD = re.compile(f"{_EXAMPLE}|{_TELLING}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?]\s")
# An opening quote, or the mark of code; a closing one has something before it.
_QUOTED = re.compile(r"(?:\A|[\s(\[{:=,])[`\"'\u201c\u2018\u00ab]{1,3}\Z")
_INTRODUCING = ".:!?\u2026"
_DECORATION = " \t\r*_"
_AFTER = "\r\n,;.{[<`~"


@dataclass(slots=True)
class Surroundings:
    """What stands before a place.

    Args:
        text: The last few hundred characters of the text before it; empty directly after a call.
    """

    text: str = ""

    @property
    def is_line_start(self) -> bool:
        """Whether only spaces stand before it on its line."""
        return not self.text.rpartition("\n")[2].strip()

    @property
    def is_spoken_of(self) -> bool:
        """Whether a quote or the mark of code stands right before it, or it is introduced as an example."""
        return bool(_QUOTED.search(self.text[-5:]) or _SHOWN.search(self._introduction))

    @property
    def lets_call(self) -> bool:
        """Whether something without a mark of its own may be a call here.

        It must begin a line or follow the end of a sentence, and what introduces it must not tell of it.
        """
        if _QUOTED.search(self.text[-5:]) or _TOLD.search(self._introduction):
            return False
        line = self.text.rpartition("\n")[2].strip(_DECORATION)
        return not line or (line[-1] in _INTRODUCING and not line[:-1].isdecimal())

    @property
    def _introduction(self) -> str:
        """The sentence before it: of its own line, or, with a colon at the end, of the line before."""
        line = self.text.rpartition("\n")[2].strip()
        if not line:
            line = self.text.rstrip().rpartition("\n")[2]
            if not line.rstrip(_DECORATION).endswith(":"):
                return ""
        return _SENTENCE_END.split(line)[-1]


def stands_alone(source: Source) -> Waiting[bool]:
    """Say whether nothing goes on after this place: the line or the reply ends, or a new sentence or call begins."""
    there = source.length
    character = yield from source.spaces(" \t*")
    source.back(there)
    return not character or character in _AFTER or character.isupper()


def nothing_more() -> Passage:
    """Return the passage that ends where it begins: what has been read is text."""
    yield from ()
    return None


def spoken_of(source: Source) -> Passage:
    """Return the passage past the list or object that follows, if one does: what is shown in it is no call either."""
    if (yield from source.spaces()) in {"{", "["}:
        return (yield from source.value())
    return None


def partial(literal: str, *, then: str = "") -> str:
    """Return a pattern of a literal and what follows, and of the beginnings of that where the text ends for now."""
    pattern = then
    for character in reversed(literal):
        pattern = re.escape(character) + (rf"(?:\Z|{pattern})" if pattern else "")
    return pattern
