"""A look at a text's language, for rules that only know English words."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["is_copyable", "is_english", "is_spaced"]

_WORD = re.compile(r"[^\W\d_]+")
# Words of English that are none of German, Dutch, French, Spanish, Portuguese, Italian, Polish or the Nordic languages.
_SMALL_WORDS = (
    "the and of what which who how where when why with for from this that these those is are was were "
    "please can could would should my your you i it its his her their our if then than into about there "
    "here have has had get give show tell find send make set does do did not be been to by at any some "
    "all and it's i'm let next hour hours day days weeks"
)
_ENGLISH_WORDS = frozenset(_SMALL_WORDS.split())
_FEW_WORDS = 3
# What is written without spaces between words, by how its letters are named.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def is_english(text: str) -> bool:
    """Return whether a text may be English: of Latin letters, and with one of its small words if it is no mere name."""
    words = _WORD.findall(text.casefold())
    if any(not _is_latin(word[0]) for word in words):
        return False
    return len(words) <= _FEW_WORDS or any(word in _ENGLISH_WORDS for word in words)


def is_spaced(text: str) -> bool:
    """Return whether a text is written with spaces between its words."""
    return not any(unicodedata.name(letter, "").startswith(_UNSPACED) for letter in text if not letter.isascii())


def is_copyable(text: str) -> bool:
    """Return whether the words of a text can be copied: other scripts have no spaces, or bend their names."""
    return all(_is_latin(letter) for letter in text if letter.isalpha())


def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")
