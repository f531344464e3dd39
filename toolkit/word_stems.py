"""Words by their stems, so that "booked a flight" and `book_flights` are about the same thing.

The stems are cut by a few rules of English: they are keys to compare by, not words to show. Words of other languages
keep their letters, so that equal words stay equal.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["STOP_WORDS", "list_stems", "split_words", "stem_word"]

_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SHORTEST_STEM = 3
# The longest first. "ss" and "us" stand for themselves: "address" and "status" are no plurals.
_SUFFIXES = (
    ("iness", "y"), ("ings", ""), ("edly", ""), ("ies", "y"), ("ied", "y"), ("ing", ""), ("sses", "ss"), ("xes", "x"),
    ("ches", "ch"), ("shes", "sh"), ("ily", "y"), ("ss", "ss"), ("us", "us"), ("ed", ""), ("ly", ""), ("s", ""),
)  # fmt: skip

_SILENT_WORDS = (
    "a about after again all also am an and any are as at be because been before being but by can could d did do "
    "does doing don for from get give had has have he hello her here hers hey hi him his how i if in into is it its "
    "just let like ll m make many may me might more most much must my need nor now of ok on one or our ours out "
    "over please re s shall she should show so some such t tell than thank thanks that the their them then there "
    "these they this those to too up us ve very want was we well were what when where whether which while who whom "
    "whose why will with would you your yours"
)
STOP_WORDS = frozenset(_SILENT_WORDS.split())
"""Words that stand in every request and say nothing of what it is about."""


def split_words(text: str) -> list[str]:
    """Return the words and numbers of a text, in its order and in small letters; `get_weather` is two."""
    plain = unicodedata.normalize("NFKC", text)
    return [word.casefold() for word in _WORD.findall(_CAMEL_HUMP.sub(" ", plain))]


def stem_word(word: str) -> str:
    """Return what a word has in common with its other forms: `booking`, `booked` and `books` are `book`."""
    word = word.casefold().replace("\u2019", "'").split("'")[0]
    for suffix, other in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            word = word[: -len(suffix)] + other
            break
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > _SHORTEST_STEM and word.endswith("e") else word


def list_stems(text: str) -> list[str]:
    """Return the stems of a text's words in their order, without the words that say nothing.

    ::

        >>> list_stems("Could you book the flights to New York?")
        ['book', 'flight', 'new', 'york']
    """
    return [stem_word(word) for word in split_words(text) if word not in STOP_WORDS]
