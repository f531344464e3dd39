"""Numbers as people say them: in digits, in words, with a unit that tells of a smaller one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.word_stems import split_words

__all__ = [
    "has_amount",
    "list_figures",
    "remove_amounts",
    "list_converted_numbers",
    "list_free_numbers",
    "list_numbers",
    "list_plain_numbers",
    "write_ordinals",
]

# Not within ids such as A17 and TR-2041, nor within days and times.
# A zero before other digits makes it a code: 02108.
_NUMBER = re.compile(r"(?<![\w.,:])(?<!\w[-/])[-\u2212]?(?!0\d)\d+(?:,\d{3})*(?:\.\d+)?(?![-/:]?\d)(?!-\w)")
# 2,5 and 1.250,00, as most of Europe writes them.
_COMMA_NUMBER = re.compile(r"(?<![\w.,:])-?(?:\d{1,3}(?:\.\d{3})+(?:,\d{1,2})?|\d+,\d{1,2})(?![\d,]|\.\d)")
_LARGE = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)[ -]?(hundred|thousand|million)\b")
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
_ORDINALS = [
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
    "nineteenth", "twentieth",
]  # fmt: skip
_WORDS = {
    **{word: number for number, word in enumerate(_ONES)},
    **{word: number for number, word in enumerate(_ORDINALS)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
    "thirtieth": 30,
}
_ORDINAL = rf"(?:(?:twenty|thirty)[- ])?(?:{'|'.join([*_ORDINALS[1:], 'thirtieth'])})"
_ORDINAL_OF_MONTH = re.compile(
    rf"\b{_ORDINAL}\b(?=(?: of)? {_MONTH})|(?<=\b(?:[a-z]{{3}}) ){_ORDINAL}\b(?=,? \d{{4}})", re.IGNORECASE
)
_ORDINAL_WORDS = frozenset([*_ORDINALS, "thirtieth"])
_MULTIPLES = {"hundred": 100, "thousand": 1000, "million": 1_000_000, "dozen": 12}
_ARTICLED = (["a", "hundred"], ["a", "thousand"], ["a", "million"], ["a", "dozen"])
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
_AMOUNT_WORDS = frozenset(["a", "an", "and", "of", "the"])
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
    "kilometer": ("length", 1e6), "kilometre": ("length", 1e6), "km": ("length", 1e6), "milligram": ("mass", 1.0),
    "mg": ("mass", 1.0), "gram": ("mass", 1e3), "gramme": ("mass", 1e3), "g": ("mass", 1e3), "kilo": ("mass", 1e6),
    "kilogram": ("mass", 1e6), "kg": ("mass", 1e6), "ton": ("mass", 1e9), "tonne": ("mass", 1e9),
    "milliliter": ("volume", 1.0), "millilitre": ("volume", 1.0), "ml": ("volume", 1.0), "centiliter": ("volume", 10.0),
    "centilitre": ("volume", 10.0), "cl": ("volume", 10.0), "liter": ("volume", 1e3), "litre": ("volume", 1e3),
    "l": ("volume", 1e3), "h": ("time", 3600.0), "cent": ("money", 1.0),
    "dollar": ("money", 100.0), "euro": ("money", 100.0), "dozen": ("count", 12.0), "pair": ("count", 2.0),
    "item": ("count", 1.0),
}  # fmt: skip
_AMOUNT = re.compile(
    rf"[-\u2212]?\b\d+(?:[.,]\d+)*\s?(?:(?:{'|'.join(_UNITS)}|degree|percent|celsius|time|people|person|usd|eur|gbp|euro)s?\b|[%°€$])"
    r"|[€$£]\s?\d+(?:[.,]\d+)*",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"\b\d{4}-\d\d-\d\d\b|\b(?:at|by|until|till|before|after|around)\s+\d{1,2}(?::\d\d)?(?![\w:-])|\b\d{1,2}(?::\d\d)?\s*[ap]\.?m\b"
    r"|\b\d{1,2}:\d\d\b|\b\d{1,2} (?:o'clock|uhr)\b",
    re.IGNORECASE,
)


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
    return list(list_plain_numbers(_DAY_OF_MONTH.sub(" ", write_ordinals(text))))


def has_amount(text: str) -> bool:
    """Return whether a text has a number with its unit: "20 minutes", "3 kg"."""
    return _AMOUNT.search(text) is not None


def remove_amounts(text: str) -> str:
    """Return a text without what no number of a thing can be: amounts with their units, days and times."""
    return _MOMENT.sub(" ; ", _AMOUNT.sub(" ; ", text))


def list_figures(text: str) -> list[float]:
    """Return the numbers that a text says in figures."""
    return [float(found.replace(",", "").replace("\u2212", "-")) for found in _NUMBER.findall(text)]


def write_ordinals(text: str) -> str:
    """Return a text with ordinals beside a month in figures: "the twenty-third of June" has 23rd in it."""
    return _ORDINAL_OF_MONTH.sub(lambda found: f"{_read_ordinal(found[0])}th", text)


def _read_ordinal(words: str) -> int:
    return int(sum(_WORDS[word] for word in split_words(words)))


def list_plain_numbers(text: str) -> Iterator[float]:
    """Yield the numbers that a text says, as they are: no parts of them, and none of another unit."""
    folded = text.casefold()
    for found in _NUMBER.findall(folded):
        yield float(found.replace(",", "").replace("\u2212", "-"))
    yield from [float(found.replace(".", "").replace(",", ".")) for found in _COMMA_NUMBER.findall(folded)]
    yield from [float(number) * _MULTIPLES[word] for number, word in _LARGE.findall(folded)]
    words = split_words(folded)
    for index, word in enumerate(words):
        is_number = word in _WORDS and word not in _ORDINAL_WORDS
        if (is_number and not _continues_number(words, index)) or words[index - 1 : index + 1] in _ARTICLED:
            yield _read_number_at(words, index)


def _read_number_at(words: list[str], index: int) -> float:
    """Return the number in words that begins there: "twenty one and a half" is 21.5, "minus four" is -4."""
    end = index + 1
    while end < len(words) and (_continues_number(words, end) or _continues_number(words, end + 1)):
        end += 1
    after = words[end : end + 3]
    more = _OTHER_WORDS.get(after[2], 0.0) if after[:2] == ["and", "a"] and len(after) == 3 else 0.0
    number = max(_list_spoken(words[index:end])) + more
    return -number if words[max(0, index - 1) : index] in (["minus"], ["negative"]) else number


def _continues_number(words: list[str], index: int) -> bool:
    """Return whether a word goes on with the number before it: "one" after "twenty", or "five" after "hundred and"."""
    if not 0 < index < len(words) or words[index] not in _SPOKEN:
        return False
    word, before = words[index], words[index - 1]
    if before == "and":
        return index > 1 and words[index - 2] in _MULTIPLES and word in _WORDS
    if word in _MULTIPLES or before in _MULTIPLES:
        return before in _SPOKEN
    return 20 <= _WORDS.get(before, 0) < 100 and 0 < _WORDS[word] < 10


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
    last: tuple[str, float, float, int] = ("", 0.0, 0.0, 0)
    for index, word in enumerate(words):
        unit = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        amount = None if unit is None else _read_amount_before(words, index)
        if unit is None or amount is None:
            continue
        kind, size = unit
        total = amount * size
        last_kind, last_size, last_total, place = last
        if kind == last_kind and size < last_size and all(map(_is_of_amount, words[place + 1 : index])):
            total += last_total  # an hour and twenty minutes
        last = (kind, size, total, index)
        named = [other for name, (other_kind, other) in _UNITS.items() if other_kind == kind and name in wanted]
        smaller = sorted({other for other_kind, other in _UNITS.values() if other_kind == kind and other < size})
        also = [size] if total != amount * size else []
        yield from [round(total / other, 6) for other in named or [*smaller, *also]]


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
    start = index
    while start > 0 and _is_of_amount(words[start - 1]):
        start -= 1
    run = [word for word in words[start:index] if word not in ("of", "the")]
    after = words[index + 1 : index + 4]
    more = _read_fraction(after[2]) or 0.0 if after[:2] == ["and", "a"] and len(after) == 3 else 0.0
    amount = _read_amounts(run)
    return None if amount is None else amount + more


def _read_amounts(run: list[str]) -> float | None:
    """Return the last amount that words say: "two and a half" is 2.5, "three quarters of an" 0.75, "a" 1."""
    if not run:
        return None
    part = _read_fraction(run[-1])
    if part is not None and run[-3:-1] == ["and", "a"]:
        return (_read_amounts(run[:-3]) or 0.0) + part
    if run[-1] in ("a", "an"):
        before = _read_fraction(run[-2]) if len(run) > 1 else None
        times = _read_amounts(run[:-2]) if before is not None and run[-2].endswith("s") else None
        return (before or 1.0) * (times or 1.0)
    if part is not None:
        return part
    number = _read_amount(run[-1])
    spoken = [word for word in run if word in _SPOKEN or word == "and"]
    return number if number is not None and run[-1] not in _SPOKEN else max(_list_spoken(spoken), default=None)


def _read_fraction(word: str) -> float | None:
    part = _OTHER_WORDS.get(word, _OTHER_WORDS.get(word.removesuffix("s"), 1.0))
    return part if part < 1 else None


def _is_of_amount(word: str) -> bool:
    return (
        word in _AMOUNT_WORDS or _read_fraction(word) is not None or _read_amount(word) is not None or word in _SPOKEN
    )


def _read_amount(word: str) -> float | None:
    if word in _WORDS or word in _OTHER_WORDS:
        return float(_WORDS.get(word, _OTHER_WORDS.get(word, 0.0)))
    try:
        return float(word.replace(",", ""))
    except ValueError:
        return None
