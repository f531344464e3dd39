"""What each way to write a call has in common, and what tells a call from the mention of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError
from toolkit.parsing.source import SPACES, Source, Waiting

__all__ = [
    "Form",
    "Outcome",
    "Passage",
    "Surroundings",
    "check_end",
    "is_over",
    "nothing_more",
    "partial",
    "spoken_of",
    "stands_alone",
]

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


# Words that say that something is shown, and not done, in the languages that models mostly write.
_EXAMPLE = (
    r"\b(?:examples?|for\s+instance|e\.g|looks?\s+like|as\s+follows|beispiel\w*|z\.\s?b|exemp(?:le|lo)s?|ejemplos?"
    r"|esempi[oa]?|voorbeeld\w*|przykład\w*|пример\w*|например)\b|例|예를|예시"
)
# Words of how calls are written: they speak of one, unless the model announces something.
_ABOUT = r"\b(?:format(?:ted)?|syntax|template|schema|documentation|notation|tags?|tokens?)\b"
# Words that take back what has no mark of its own, or tell of it.
_TELLING = (
    r"\b(?:such\s+as|like|would|could|if|not|never|instead|wrong|bad|incorrect|avoid|used|called|wrote|sent|made|was|were"
    r"|did|had|previous(?:ly)?|earlier|returned|asked|requested|results?|output|show\w*|explain\w*|suggest\w*"
    r"|recommend\w*|give\s+you|you\s+(?:can|may|might|should|must|need|have)"
    r"|würden?|könnten?|wenn|nicht|nie|habe|hatte|wurden?|folgt|so\s+aus|j['\u2019]ai|avais|aurais|pourrais|serait|pas|jamais"
    r"|si|utilisé|appelé|podría|sería|nunca|usé|llamé|poderia|seria|usei|chamei|ho|potrei|sarebbe|mai|бы|если|не)\b"
    r"|(?:n['\u2019]t|['\u2019]d)\b|如果|可以|结果|不|場合|結果|ました|면"
)
# How a model says what it is about to do. What has no mark is a call behind such words, not behind any others.
_ANNOUNCING = re.compile(
    r"\b(?:I|we|me|let(?:['\u2019]?s|\s+us)|ich|wir|mich|je|nous|yo|voy|vamos|déjame|vou|vado|lasciami|ik|я)\b|[我私]|제가"
    r"|\A\W*(?:sure|ok(?:ay)?|certainly|of\s+course|now|next|first|second|third|then|finally|thought|trying|making"
    r"|calling|using|running|invoking|executing|checking|searching|looking|fetching|getting|requesting|retrieving)\b"
    r"|\A\W*(?:the\s+)?(?:(?:tool|function)[\s_-]*)?(?:calls?|use|request|invocation|action|tool|function|assistant)\b"
    r"[\W\d]*\Z"
    r"|\bhere(?:['\u2019]s|\s+is|\s+are)\b.*\b(?:calls?|request|invocation)\b",
    re.IGNORECASE,
)
_SHOWN = re.compile(_EXAMPLE, re.IGNORECASE)
_SPOKEN_OF = re.compile(_ABOUT, re.IGNORECASE)
_TOLD = re.compile(f"{_EXAMPLE}|{_ABOUT}|{_TELLING}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?]\s|[\u3002\uff01\uff1f](?!\Z)")
# An opening quote, or the mark of code; a closing one has something before it.
_QUOTED = re.compile(r"(?:\A|[\s(\[{:=,])[`\"'\u201c\u2018\u00ab]{1,3}\Z")
_ENDING = ".!?\u2026\u3002\uff01\uff1f"
_INTRODUCING = _ENDING + ":\uff1a"
_DECORATION = " \t\r*_"
# What ends a turn. A result ends it, too: the model has made it up.
END_OF_TURN = ("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<end_of_turn>", "</s>")
RESULTS = ("<tool_response>", "[TOOL_RESULTS]", "Observation:", "Observation ")
_KEY = re.compile(r"""["'][\w-]+["']\s*:""")
_LONGEST_KEY = 60
_AFTER = "\r\n,;.{[<`~"


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What stands before a place.

    Args:
        text: The last few hundred characters of the text before it; empty directly after a call.
        fence: The marks that end the fence round it; empty where there is none.
        language: What the fence says that it holds.
    """

    text: str = ""
    fence: str = ""
    language: str = ""

    @property
    def is_line_start(self) -> bool:
        """Whether only spaces stand before it on its line."""
        return not self.text.rpartition("\n")[2].strip()

    @property
    def is_spoken_of(self) -> bool:
        """Whether a quote or the mark of code stands right before it, or it is introduced as an example."""
        introduction = self._introduction
        return bool(
            _QUOTED.search(self.text[-5:])
            or _SHOWN.search(introduction)
            or (_SPOKEN_OF.search(introduction) and not _ends(introduction) and not _ANNOUNCING.search(introduction))
        )

    @property
    def lets_call(self) -> bool:
        """Whether something without a mark of its own may be a call here.

        It must begin a line or follow the end of a sentence. Where the words before it go on with it, they must say
        that the model does something now.
        """
        line = self.text.rpartition("\n")[2].strip(_DECORATION)
        if _QUOTED.search(self.text[-5:]) or (line and (line[-1] not in _INTRODUCING or line[:-1].isdecimal())):
            return False
        introduction = self._introduction
        if not introduction or _ends(introduction):
            return not _SHOWN.search(introduction)
        return bool(_ANNOUNCING.search(introduction) and not _TOLD.search(introduction))

    @property
    def _introduction(self) -> str:
        """The last sentence before it, on its own line or the last one with words."""
        line = self.text.rpartition("\n")[2].strip() or self.text.rstrip().rpartition("\n")[2]
        return _SENTENCE_END.split(line.strip(_DECORATION))[-1]


def _ends(sentence: str) -> bool:
    return sentence[-1:] in _ENDING


def stands_alone(source: Source) -> Waiting[bool]:
    """Say whether nothing goes on after this place: the line or the reply ends, or a new sentence or call begins."""
    there = source.length
    character = yield from source.spaces(" \t*")
    source.back(there)
    return not character or character in _AFTER or character.isupper()


def check_end(source: Source) -> Waiting[None]:
    """Raise where what stands behind a call can only be the rest of it: a bracket, or a key.

    Raises:
        UnclearCallError: The call has ended too early.
    """
    there = source.length
    if (yield from source.spaces(f"{SPACES},;")) in {'"', "'"}:
        is_rest = _KEY.match((yield from source.peek(_LONGEST_KEY))) is not None
    else:
        is_rest = (yield from source.peek(1)) in {"}", "]", ":"}
    source.back(there)
    if is_rest:
        raise UnclearCallError("The brackets of the call don't match: it ends before all that belongs to it.")


def is_over(source: Source, before: Surroundings) -> Waiting[bool]:
    """Say whether nothing follows this place: neither in the fence, nor in the turn."""
    there = source.length
    is_end = (yield from source.spaces()) == ""
    for token in (before.fence,) if before.fence else (*END_OF_TURN, *RESULTS):
        is_end = is_end or (yield from source.accepts(token, any_case=True))
    source.back(there)
    return is_end


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
