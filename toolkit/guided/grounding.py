"""The check that a value was taken from what was said, and not made up.

What is said literally is known for certain. Beyond that the rules are generous: a number may be said in words, a day by
its name. They are there to find what has no ground at all: the city of a question that names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from toolkit.guided.languages import is_english, is_spaced
from toolkit.guided.short_forms import CURRENCY_CODES, MONTHS, has_short_form, list_request_stems
from toolkit.guided.spoken_numbers import list_converted_numbers, list_numbers, list_plain_numbers, write_ordinals
from toolkit.guided.spoken_times import list_times
from toolkit.schema.nodes import is_array, is_object
from toolkit.word_stems import list_stems, split_words, stem_word

__all__ = ["SMALL_NUMBERS", "Ground", "list_dates", "may_have_code", "names_a_day"]

_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})[-/.](\d\d?)[-/.](\d\d?)(?!\d)")
_TIME = re.compile(r"(\d\d?):(\d\d)(?::\d\d)?")
_SLASHED_DATE = re.compile(r"(?<![\d/.])(\d{1,2})[./](\d{1,2})(?:[./]\d{2,4})?(?!\d)")
_MONTH_NAMES = frozenset(MONTHS) | {month[:3] for month in MONTHS} | {"sept"}
_DAYS_BY_NAME = frozenset(
    [
        "today",
        "tomorrow",
        "yesterday",
        "tonight",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "week",
        "weekend",
        "day",
        "days",
        "weeks",
        "month",
        "months",
        "next",
        "last",
        "christmas",
        "easter",
        "eve",
    ]
)
_ORDINAL = re.compile(r"\b\d{1,2}(?:st|nd|rd|th)\b")
_TOKEN = re.compile(r"[^\s,;!?\"'()\[\]{}<>]+")
SMALL_NUMBERS = range(1, 13)
"""Numbers that other languages may say in words, which are not known here."""
_MOST_WORDS_ALL_SAID = 4
_SHORTEST_START, _LONGEST_ENDING = 3, 2
_SUM = re.compile(r"[\d.(][\d\s.()]*[-+*/^%][-\d\s.+*/()^%]*")
_FIGURES = re.compile(r"\d+(?:\.\d+)?")
_FREE_FIGURES = re.compile(r"(?<![\w'\".-])\d+(?:\.\d+)?(?![\w'\"-])")
_LITERAL = re.compile(r"['\"]([^'\"]*)['\"]")
_CODE = re.compile(r"[A-Z]{2,5}")
_SHARE_OF_WORDS_SAID = 0.7


@dataclass(frozen=True)
class Ground:
    """The words that were said, as values are looked up in them.

    Args:
        text: All of it.
    """

    text: str
    _folded: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", " ".join(self.text.casefold().split()))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its words, those that say nothing too."""
        return frozenset([stem_word(word) for word in split_words(self.text)])

    @cached_property
    def numbers(self) -> frozenset[float]:
        """The numbers in it, as digits and as words, and what they are in a smaller unit that is named."""
        said = [*list_numbers(self.text), *list_plain_numbers(self.text)]
        return frozenset([*said, *list_converted_numbers(self.text, "")])

    @cached_property
    def _said_tokens(self) -> frozenset[str]:
        return frozenset([token.strip(".:#$%") for token in _TOKEN.findall(self._folded)])

    @cached_property
    def _said_dates(self) -> frozenset[str]:
        """The days that are said by month and day, as MM-DD, and by year too, as YYYY-MM-DD."""
        return frozenset(list_dates(self.text))

    @cached_property
    def _said_times(self) -> frozenset[str]:
        return frozenset(list_times(self.text))

    @cached_property
    def _is_english(self) -> bool:
        return is_english(self.text)

    @cached_property
    def _names_a_day(self) -> bool:
        return names_a_day(self.text)

    def holds(self, value: Any) -> bool:
        """Return whether a value was said: each number, id and day of it, and most of its other words."""
        if isinstance(value, bool) or value is None:
            return True
        if isinstance(value, (int, float)):
            return float(value) in self.numbers or (not self._is_english and value in SMALL_NUMBERS)
        if isinstance(value, str):
            return self._holds_text(value)
        if is_array(value):
            return bool(value) and all(self.holds(item) for item in value)
        # One of a thing is seldom said: "milk and two eggs".
        return is_object(value) and all(member == 1 or self.holds(member) for member in value.values())

    def holds_values_of(self, formula: str) -> bool:
        """Return whether what is no word of a formula was said: its numbers, and what stands in quotes in it."""
        numbers = all(float(number) in self.numbers for number in _FREE_FIGURES.findall(formula))
        return numbers and all(self.holds(text.strip("%")) for text in _LITERAL.findall(formula) if text.strip("% "))

    def _holds_text(self, text: str) -> bool:
        folded = " ".join(text.casefold().split())
        if not folded:
            return False
        if (date := _ISO_DATE.match(folded)) is not None:
            return self._holds_date(date)
        if self._says_as_written(folded) or folded[:5] in self._said_times:
            return True
        if (time := _TIME.fullmatch(folded)) is not None:
            return float(time[1]) in self.numbers and float(time[2]) in {0.0, *self.numbers}
        if _SUM.fullmatch(folded) is not None:
            return all(float(number) in self.numbers for number in _FIGURES.findall(folded))
        if _CODE.fullmatch(text) is not None and self._holds_code(text):
            return True
        if any(_is_id(token) and not self._holds_id(token) for token in _TOKEN.findall(folded)):
            return False
        return self._holds_words(folded)

    def _says_as_written(self, folded: str) -> bool:
        if not is_spaced(folded) and folded in self._folded:
            return True
        return re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", self._folded) is not None

    def _holds_id(self, token: str) -> bool:
        return token.strip(".:#$%") in self._said_tokens or token in self._folded.split()

    def _holds_code(self, code: str) -> bool:
        """Return whether letters stand for a word that was said: GBP for "pounds", TSLA for "Tesla"."""
        letters = set(code.casefold())
        return any(
            CURRENCY_CODES.get(stem) == code
            or (word[0] == code[0].casefold() and len(word) > 3 and letters <= set(word))
            for word in split_words(self.text)
            for stem in [stem_word(word)]
        ) or any(CURRENCY_CODES.get(stem) == code for stem in list_request_stems(self.text))

    def _holds_words(self, folded: str) -> bool:
        stems = list_stems(folded)
        if not stems:
            return False
        said = sum(self._holds_stem(stem) for stem in stems)
        return said == len(stems) if len(stems) <= _MOST_WORDS_ALL_SAID else said / len(stems) >= _SHARE_OF_WORDS_SAID

    def _holds_stem(self, stem: str) -> bool:
        if stem in self.stems or self._is_english:
            return stem in self.stems or has_short_form(stem, self.stems)
        # Other languages bend the ends of words in ways that are not known here.
        start = stem[: max(_SHORTEST_START, len(stem) - _LONGEST_ENDING)]
        return any(other.startswith(start) for other in self.stems)

    def _holds_date(self, date: re.Match[str]) -> bool:
        year, month, day = date.groups()
        is_said = f"{year}-{month}-{day}" in self._said_dates or f"{month}-{day}" in self._said_dates
        return is_said or self._names_a_day or not self._is_english

    def without_ungrounded(self, value: Any) -> Any:
        """Return a list without the items that were not said; other values as they are."""
        return [item for item in value if self.holds(item)] if is_array(value) else value


def _is_id(token: str) -> bool:
    return any(character.isdigit() for character in token)


def list_dates(text: str) -> Iterator[str]:
    """Yield the days that a text says: as YYYY-MM-DD where the year is said, too, else as MM-DD."""
    folded = text.casefold()
    for year, month, day in _YEAR_FIRST.findall(folded):
        yield f"{year}-{int(month):02}-{int(day):02}"
    for one, other in _SLASHED_DATE.findall(folded):
        yield f"{int(one):02}-{int(other):02}"
        yield f"{int(other):02}-{int(one):02}"
    words = re.findall(r"[a-z]+|\d+", write_ordinals(folded))
    for index, word in enumerate(words):
        if word not in _MONTH_NAMES:
            continue
        month = next(place for place, name in enumerate(MONTHS, start=1) if name.startswith(word[:3]))
        near = [each for each in words[max(0, index - 3) : index + 4] if each.isdigit()]
        for day in near:
            if 1 <= int(day) <= 31:
                yield f"{month:02}-{int(day):02}"
                yield from [f"{year}-{month:02}-{int(day):02}" for year in near if len(year) == 4]


def may_have_code(text: str) -> bool:
    """Return whether a text has a word for a currency, which a tool may want as a code."""
    return any(stem in CURRENCY_CODES for stem in list_request_stems(text))


def names_a_day(text: str) -> bool:
    """Return whether a text has a word for a day, such as "tomorrow" or "the 3rd"."""
    return bool(set(split_words(text)) & _DAYS_BY_NAME) or _ORDINAL.search(text.casefold()) is not None
