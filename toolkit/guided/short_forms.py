"""The other forms of currencies, weekdays, months and irregular plurals: tools want one, and people say the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from toolkit.word_stems import list_stems

__all__ = ["CURRENCY_CODES", "MONTHS", "has_short_form", "list_request_stems"]

CURRENCY_CODES: Mapping[str, str] = {
    "dollar": "USD", "euro": "EUR", "pound": "GBP", "sterl": "GBP", "yen": "JPY", "franc": "CHF", "yuan": "CNY",
    "rupee": "INR", "won": "KRW", "peso": "MXN", "krona": "SEK", "zloty": "PLN",
}  # fmt: skip
"""The codes of currencies, by the stems of their names."""
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Not the article at the beginning of a sentence, nor "I".
_LETTER = re.compile(r"(?<![\w'\u2019])(?:[B-HJ-Z]|A(?! [a-z]))(?![\w'\u2019])")
_IRREGULAR = {
    "tooth": "teeth", "foot": "feet", "man": "men", "woman": "women", "child": "children", "mouse": "mice",
    "goose": "geese", "knife": "knives", "leaf": "leaves", "person": "people",
}  # fmt: skip
_SIGNS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}


def _list_long_forms() -> Mapping[str, frozenset[str]]:
    forms: dict[str, set[str]] = defaultdict(set)
    for name in (*_WEEKDAYS, *MONTHS):
        [long] = list_stems(name) or [name]
        forms[name[:3]].add(long)
        forms[long].add(name[:3])
    for name, plural in _IRREGULAR.items():
        [one], [other] = list_stems(name), list_stems(plural)
        forms[one].add(other)
        forms[other].add(one)
    for stem, code in CURRENCY_CODES.items():
        forms[code.casefold()].add(stem)
    return {short: frozenset(stems) for short, stems in forms.items()}


_OTHER_FORMS = _list_long_forms()


def has_short_form(stem: str, stems: frozenset[str]) -> bool:
    """Return whether one of the stems is another form of a stem: Saturday for "sat", dollars for "usd", a tooth."""
    return not stems.isdisjoint(_OTHER_FORMS.get(stem, ()))


def list_request_stems(text: str) -> list[str]:
    """Return the stems of a request's words, single capital letters, and what its signs stand for: $ is "dollar"."""
    return [*list_stems(text), *_LETTER.findall(text), *[word for sign, word in _SIGNS.items() if sign in text]]
