"""Numbers as people say them: in digits, in words, with a unit that tells of a smaller one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.word_stems import split_words

__all__ = ["list_converted_numbers", "list_free_numbers", "list_numbers", "list_plain_numbers"]

# Not within ids such as A17 and TR-2041, nor within days and times.
# A zero before other digits makes it a code: 02108.
_NUMBER = re.compile(r"(?<![\w.,:])(?<!\w[-/])[-\u2212]?(?!0\d)\d+(?:,\d{3})*(?:\.\d+)?(?![-/:]?\d)(?!-\w)")
_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY_OF_MONTH = re.compile(
    rf"\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}}\b)?"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}(?:,?\s+\d{{4}}\b)?",
    re.IGNORECASE,
)
_TIME_PARTS = re.compile(r"(?<![\w:])(\d{1,2}):(\d\d)(?!\d)")
_AFTERNOON = re.compile(r"(\d{1,2})(?::\d\d)?\s*p\.?m")
_THOUSANDS = re.compile(r"(\d+(?:\.\d+)?)\s*k\b")
_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = ["zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_WORDS = {
    **{word: number for number, word in enumerate(_ONES)},
    **{word: number for number, word in enumerate(_ORDINALS)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
}
_MULTIPLES = {"hundred": 100, "thousand": 1000, "million": 1_000_000, "dozen": 12}
_SPOKEN = frozenset(_WORDS) | frozenset(_MULTIPLES)
_OTHER_WORDS = {
    "half": 0.5,
    "quarter": 0.25,
    "once": 1.0,
    "single": 1.0,
    "twice": 2.0,
    "couple": 2.0,
    "both": 2.0,
    "pair": 2.0,
}
_CLOCK_WORDS = {"noon": 12.0, "midday": 12.0, "midnight": 0.0}
# What a number of the one is in the other: "two weeks" is 14 for a tool that asks for days.
_SMALLER_UNITS = {
    "week": (7.0,), "day": (24.0,), "hour": (60.0, 3600.0), "minute": (60.0,), "year": (12.0,), "meter": (100.0,),
    "metre": (100.0,), "kilometer": (1000.0,), "kilometre": (1000.0,), "km": (1000.0,), "kilo": (1000.0,),
    "kilogram": (1000.0,), "kg": (1000.0,), "dollar": (100.0,), "euro": (100.0,), "dozen": (12.0,),
}  # fmt: skip
# What is measured, and how much of it in the smallest unit.
_UNITS = {
    "second": ("time", 1.0), "sec": ("time", 1.0), "minute": ("time", 60.0), "min": ("time", 60.0),
    "hour": ("time", 3600.0), "hr": ("time", 3600.0), "day": ("time", 86400.0), "week": ("time", 604800.0),
    "fortnight": ("time", 1209600.0), "month": ("months", 1.0), "year": ("months", 12.0),
    "millimeter": ("length", 1.0), "millimetre": ("length", 1.0), "mm": ("length", 1.0), "centimeter": ("length", 10.0),
    "centimetre": ("length", 10.0), "cm": ("length", 10.0), "meter": ("length", 1e3), "metre": ("length", 1e3),
    "kilometer": ("length", 1e6), "kilometre": ("length", 1e6), "km": ("length", 1e6), "gram": ("mass", 1.0),
    "kilo": ("mass", 1e3), "kilogram": ("mass", 1e3), "kg": ("mass", 1e3), "cent": ("money", 1.0),
    "dollar": ("money", 100.0), "euro": ("money", 100.0), "dozen": ("count", 12.0), "pair": ("count", 2.0),
    "item": ("count", 1.0),
}  # fmt: skip


def list_numbers(text: str) -> Iterator[float]:
    """Yield the numbers that a text says, some of them twice."""
    folded = text.casefold()
    for found in _NUMBER.findall(folded):
        number = float(found.replace(",", "").replace("\u2212", "-"))
        yield number
        yield abs(number)
        yield number / 100  # of a percentage
    for parts in _TIME_PARTS.findall(folded):
        yield from map(float, parts)
    for hours in _AFTERNOON.findall(folded):
        yield int(hours) % 12 + 12
    for thousands in _THOUSANDS.findall(folded):
        yield 1000 * float(thousands)
    words = split_words(folded)
    yield from _list_spoken(words)
    yield from _list_in_smaller_units(words)


def list_free_numbers(text: str) -> list[float]:
    """Return the numbers that a text says as they are, without those of a day such as "May 3, 2026"."""
    return list(list_plain_numbers(_DAY_OF_MONTH.sub(" ", text)))


def list_plain_numbers(text: str) -> Iterator[float]:
    """Yield the numbers that a text says, as they are: no parts of them, and none of another unit."""
    folded = text.casefold()
    for found in _NUMBER.findall(folded):
        yield float(found.replace(",", "").replace("\u2212", "-"))
    words = split_words(folded)
    for index, word in enumerate(words):
        before = [other for other in words[max(0, index - 2) : index] if other != "and"]
        if word in _WORDS and word not in _ORDINALS and not (before and before[-1] in _SPOKEN):
            run: list[str] = []
            for other in words[index:]:
                if other not in _SPOKEN and other != "and":
                    break
                run.append(other)
            yield float(max(_list_spoken(run)))


def list_converted_numbers(text: str, about: str) -> Iterator[float]:
    """Yield the amounts of a text in another unit: "two weeks" is 14 for what is about days.

    Args:
        text: The words that were said.
        about: The name and the description of a parameter. Without a unit in it each smaller unit counts.
    """
    words = split_words(text)
    yield from _list_in_other_units(words, {word.removesuffix("s") for word in split_words(about)})
    yield from [_OTHER_WORDS[word] for word in words if word in _OTHER_WORDS]
    yield from [_CLOCK_WORDS[word] for word in words if word in _CLOCK_WORDS]
    yield from [float(int(hours) % 12 + 12) for hours in _AFTERNOON.findall(text.casefold())]
    yield from [1000 * float(thousands) for thousands in _THOUSANDS.findall(text.casefold())]


def _list_in_other_units(words: list[str], wanted: set[str]) -> Iterator[float]:
    for index, word in enumerate(words):
        unit = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        amount = None if unit is None else _read_amount_before(words, index)
        if unit is None or amount is None:
            continue
        kind, size = unit
        named = [other for name, (other_kind, other) in _UNITS.items() if other_kind == kind and name in wanted]
        smaller = sorted({other for other_kind, other in _UNITS.values() if other_kind == kind and other < size})
        yield from [round(amount * size / other, 6) for other in named or smaller]


def _list_spoken(words: list[str]) -> Iterator[float]:
    """Yield the numbers in words; "two hundred and five" is 205, and 2, 200 and 5 too."""
    whole, part, is_open = 0.0, 0.0, False
    for word in [*words, ""]:
        if word in _WORDS:
            part = part + _WORDS[word] if part >= 20 and _WORDS[word] < 10 else _WORDS[word]
            yield _WORDS[word]
            is_open = True
        elif word in _MULTIPLES:
            whole, part, is_open = whole + (part or 1) * _MULTIPLES[word], 0.0, True
        elif word in _OTHER_WORDS or word in _CLOCK_WORDS:
            yield _OTHER_WORDS.get(word, _CLOCK_WORDS.get(word, 0.0))
        if is_open and word != "and":
            yield whole + part
        if is_open and word not in _WORDS and word not in _MULTIPLES and word != "and":
            whole, part, is_open = 0.0, 0.0, False


def _list_in_smaller_units(words: list[str]) -> Iterator[float]:
    for index, word in enumerate(words):
        for factor in _SMALLER_UNITS.get(word.removesuffix("s"), ()):
            before = words[max(0, index - 3) : index]
            yield factor
            for amount in before:
                number = _read_amount(amount)
                if number is not None:
                    yield number * factor


def _read_amount_before(words: list[str], index: int) -> float | None:
    """Return how much of a unit there is: "an hour" is 1, "half an hour" a half, "an hour and a half" 1.5."""
    before = [word for word in words[max(0, index - 4) : index] if word not in ("of", "and", "the")]
    article = before[-1:] in (["a"], ["an"])
    amounts = [number for number in map(_read_amount, before) if number is not None]
    after = words[index + 1 : index + 4]
    more = _OTHER_WORDS.get(after[2], 0.0) if after[:2] == ["and", "a"] and len(after) == 3 else 0.0
    if article:
        part = _OTHER_WORDS.get(before[-2], 1.0) if len(before) > 1 else 1.0
        return part + more
    if not amounts:
        return None
    return max(_list_spoken([word for word in before if word in _SPOKEN]), default=amounts[-1]) + more


def _read_amount(word: str) -> float | None:
    if word in _WORDS or word in _OTHER_WORDS:
        return float(_WORDS.get(word, _OTHER_WORDS.get(word, 0.0)))
    try:
        return float(word.replace(",", ""))
    except ValueError:
        return None
