"""Times of the day as people say them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.guided.spoken_numbers import list_plain_numbers
from toolkit.word_stems import split_words

__all__ = ["list_times"]

_CLOCK = re.compile(r"(?<![\d:.])(\d{1,2})(?:[:.h](\d\d))?\s*([ap])\.?m\b|(?<![\d:])(\d{1,2})[:h](\d\d)(?![\d])")
_HOUR_ALONE = re.compile(r"\b(?:at|by|until|till|from|to|before|after)\s+(\d{1,2})(?![\d:.,/-]|\s*[ap]\.?m|\s*%)")
_HOUR_OF_DAY = re.compile(r"(?<![\w:.,])(\d{1,2}) ?(?:uhr|h|heures?|o'clock)\b(?! ?\d)")
_HOURS_IN_WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_MINUTES_IN_WORDS = ("ten", "fifteen", "twenty", "thirty", "forty", "fifty")
_NAMED = {"noon": (12, 0), "midday": (12, 0), "midnight": (0, 0)}
_PARTS = {"half": 30, "quarter": 15}


def list_times(text: str) -> Iterator[str]:
    """Yield the times that a text says, as HH:MM; both that "at 3" may be."""
    folded = text.casefold()
    for found in _CLOCK.finditer(folded):
        if found[4] is not None:
            yield from _write_times(int(found[4]), int(found[5]), is_exact=True)
        else:
            hour = int(found[1]) % 12 + 12 * (found[3] == "p")
            yield from _write_times(hour, int(found[2] or 0), is_exact=True)
    words = split_words(folded)
    for index, word in enumerate(words):
        if word in _NAMED:
            yield from _write_times(*_NAMED[word], is_exact=True)
        spoken = _read_hour(word)
        if spoken is None:
            continue
        part, link = ["", "", *words[max(0, index - 2) : index]][-2:]
        if link in ("past", "after", "to") and not part.isdecimal():
            yield from _list_parted(spoken, part, is_before=link == "to")
        elif word in _HOURS_IN_WORDS and (minutes := _read_minutes(words[index + 1 : index + 3])):
            yield from _write_times(spoken, minutes, is_exact=False)
        elif words[index + 1 : index + 2] == ["o'clock"] or (link in ("at", "by") and word in _HOURS_IN_WORDS):
            yield from _write_times(spoken, 0, is_exact=False)
    for alone in [*_HOUR_ALONE.findall(folded), *_HOUR_OF_DAY.findall(folded)]:
        yield from _write_times(int(alone), 0, is_exact=False)


def _read_hour(word: str) -> int | None:
    if word in _HOURS_IN_WORDS:
        return _HOURS_IN_WORDS.index(word) + 1
    return int(word) if word.isdecimal() and int(word) <= 24 else None


def _read_minutes(words: list[str]) -> int:
    """Return the minutes after an hour, as in "seven thirty" and "seven forty five"; 0 for none."""
    if not words or words[0] not in _MINUTES_IN_WORDS:
        return 0
    said = [word for word in words if word in _MINUTES_IN_WORDS or word in _HOURS_IN_WORDS]
    return int(next(list_plain_numbers(" ".join(said)), 0))


def _list_parted(hour: int, amount: str, *, is_before: bool) -> Iterator[str]:
    minutes = _PARTS.get(amount)
    if minutes is None:
        minutes = int(next(list_plain_numbers(amount), 0))
    if 0 < minutes < 60:
        yield from _write_times(hour - 1 if is_before else hour, 60 - minutes if is_before else minutes, is_exact=False)


def _write_times(hour: int, minute: int, *, is_exact: bool) -> Iterator[str]:
    if not (0 <= hour <= 24 and 0 <= minute < 60):
        return
    yield f"{hour % 24:02}:{minute:02}"
    if not is_exact and hour <= 12:
        yield f"{(hour % 12) + 12:02}:{minute:02}"
