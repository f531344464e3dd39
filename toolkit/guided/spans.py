"""The runs of words of a text that may be values: quotations, names, ids, and any other words in a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache

from toolkit.guided.spoken_numbers import list_plain_numbers
from toolkit.word_stems import STOP_WORDS

__all__ = [
    "EDGES",
    "has_name",
    "has_quotation",
    "has_value",
    "is_value_like",
    "list_named_things",
    "list_names",
    "list_quotations",
    "list_spans",
    "remove_quotations",
]

_WORD = re.compile(r"\S+")
_QUOTED = re.compile(
    r"[\"\u201c]([^\"\u201c\u201d]+)[\"\u201d]|(?<!\w)['\u2018]([^\u2018\u2019]{1,2000}?)['\u2019](?!\w)"
)
EDGES = ",.;:!?\"'()[]{}\u201c\u201d\u2018\u2019"
_BETWEEN_SENTENCES = re.compile(r"(?:^|[.!?:\n])[\s\"'\u201c\u2018]*")
_OBJECT = re.compile(r"\s+(?:an?|the|my|me|our|us|your|this|that|it|some|all|each|another)\b", re.IGNORECASE)
# The point of a title or of an initial ends no sentence: Dr. Novak, St. Gallen, J. Smith.
_NO_ABBREVIATION = "".join(
    [rf"(?<!\b{short})" for short in ("[A-Z]", "Dr", "Mr", "Ms", "St", "Mt", "No", "Jr", "Sr", "Mrs", "Ave", "Prof")]
)
_SENTENCE_END = re.compile(rf"(?:[!?;]|{_NO_ABBREVIATION}\.)\s")
_SPECIAL = re.compile(r"\d|@|\w[A-Z]|\w_\w")
_TAIL_END = rf"([^\n]*?\w)(?=[.!?]*(?:\s*$|{_NO_ABBREVIATION}[.!?]\s|\n))"
# What follows a colon, or a word for a text: "with the message The meeting is moved to Friday".
_TAILS = (
    re.compile(rf": {_TAIL_END}"),
    re.compile(rf"\b(?:message|text|note|body|saying|says|say|that|reading)\b:? {_TAIL_END}", re.IGNORECASE),
)
# What is to be done, where that is longer than a run of words: "remind me to take the cake out of the oven and ...".
_LONG_TAIL = re.compile(rf"\b(?:to|about|of) (?=(?:\S+ ){{8}}){_TAIL_END}")
_GENITIVE_AT_END = re.compile(r"\s*(?:$|[,.;:!?]|(?:on|at|in|for|by|from|to|with|and|or|tomorrow|today|tonight)\b)")
_DIGIT = re.compile(r"\d")
_MOST_WORDS = 8


def has_quotation(text: str) -> bool:
    """Return whether something in a text stands in quotes."""
    return _QUOTED.search(text) is not None


def remove_quotations(text: str) -> str:
    """Return a text without what stands in quotes."""
    return _QUOTED.sub(" ", text)


def list_names(text: str) -> Iterator[str]:
    """Yield what looks like a name in a text: words with capital letters, not one alone that begins a sentence."""
    for line in text.splitlines():
        for value in list_named_things(line):
            is_start = " " not in value and line.lstrip(EDGES + " ").startswith(value) and len(line.split()) > 2
            if value[:1].isupper() and _DIGIT.search(value) is None and not is_start:
                yield value


@lru_cache(maxsize=32)
def list_quotations(text: str) -> Sequence[str]:
    """Return what stands in quotes in a text."""
    return tuple(found[1] or found[2] for found in _QUOTED.finditer(text))


def has_name(text: str) -> bool:
    """Return whether something in a text looks like a name."""
    return any(is_value_like(text, span) and _DIGIT.search(span) is None for span in list_spans(text))


def has_value(text: str) -> bool:
    """Return whether something in a text looks like a value: a name, a number, an id or a quotation."""
    return (
        any(is_value_like(text, span) for span in list_spans(text)) or next(list_plain_numbers(text), None) is not None
    )


@lru_cache(maxsize=32)
def list_spans(text: str) -> Sequence[str]:
    """Return the runs of words of a text that may be a value: those in quotes first, then the others, the short first.

    None begins or ends with a word that says nothing, such as "in"; a name may begin with "the". Of those that begin a
    sentence there are names alone: the others begin with what is to be done.
    """
    return tuple(_find_spans(text))


def _find_spans(text: str) -> Iterator[str]:
    yield from list_quotations(text)
    yield from [found[1].strip(EDGES + " ") for tail in (*_TAILS, _LONG_TAIL) for found in tail.finditer(text)]
    words = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    starts = _find_sentence_starts(text)
    longest = _MOST_WORDS if len(words) <= 40 else 3
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            start, end = words[first][0], words[first + length - 1][1]
            span = text[start:end].strip(EDGES + " ")
            if not span.strip() or _SENTENCE_END.search(span) is not None or _has_silent_edge(span):
                continue
            if start in starts and _begins_order(span, text, start + len(span)):
                continue
            yield from _list_endings(span, text, start, end)


@lru_cache(maxsize=32)
def _find_sentence_starts(text: str) -> Set[int]:
    """Return the places in a text where a sentence may begin, in front of quotes too."""
    return {
        place
        for found in _BETWEEN_SENTENCES.finditer(text)
        for place in range(found.start() + (found[0][:1] in {*".!?:\n"}), found.end() + 1)
    }


def _list_endings(span: str, text: str, start: int, end: int) -> Iterator[str]:
    """Yield a run of words without a genitive, and with what belongs to it: "Luigi's" as a place, a whole bracket."""
    if ")" in span and span.count("(") < span.count(")"):
        span = text[start:end].strip(EDGES.replace("(", "") + " ")
    plain = span.removesuffix("'s").removesuffix("\u2019s")
    yield plain
    if plain != span and _GENITIVE_AT_END.match(text, end) is not None:
        yield span


def _begins_order(span: str, text: str, end: int) -> bool:
    """Return whether a run of words at the beginning of a sentence is no name: "A parcel", "Tell", "Drop" a line."""
    words = span.split()
    if len(words) > 1:
        return words[1].islower()
    return words[0].casefold() in STOP_WORDS or _OBJECT.match(text, end) is not None


def _has_silent_edge(span: str) -> bool:
    words = [word.strip(EDGES) for word in span.split()]
    first, last = (word if word.islower() else "" for word in (words[0], words[-1]))
    return last in STOP_WORDS or (first in STOP_WORDS and (first != "the" or len(words) == 1))


def list_named_things(text: str) -> Iterator[str]:
    """Yield what looks like a name, a number or an id in a text."""
    for line in text.splitlines():
        run: list[str] = []
        for raw in [*line.split(), ""]:
            word = raw.strip(EDGES)
            is_name = word[:1].isupper() and word.isalpha()
            if _SPECIAL.search(word) is not None or (is_name and word.casefold() not in STOP_WORDS):
                yield word
            run = [*run, word] if is_name else []
            if len(run) > 1:
                yield " ".join(run)


def is_value_like(question: str, span: str) -> bool:
    """Return whether a run of words looks like a name, a number, an id or a quotation."""
    if _SPECIAL.search(span) is not None or span in list_quotations(question):
        return True
    if not span[:1].isupper() or span in ("I", "I'm"):
        return False
    # The first word of a sentence has a capital letter, name or not.
    starts = {found.start() for found in re.finditer(rf"(?<!\w){re.escape(span)}(?!\w)", question)}
    return not starts <= _find_sentence_starts(question)
