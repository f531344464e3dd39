"""Names and broken JSON of a model, repaired where the meaning is no guess."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from toolkit.calls.repair.broken_json import UnclearError, read_surely
from toolkit.suggestions import find_similar

_SIMILAR = 0.85
_LONGEST_NAME_REPAIRED = 256
_SHORT_WORD = 3


def repair_name(
    name: str, available: Collection[str], *, similar: bool = False, hidden: Collection[str] = ()
) -> str | None:
    """Return the one name of `available` that `name` must mean, or None.

    That is the name itself; else the only one of the same letters. Case, separators and camelCase may differ, quotes
    or brackets may stand round it, a namespace or ``functions.`` before it, and it may stand there twice. As little as
    possible is taken away, and where two names fit equally well it is neither.

    Args:
        name: As a model wrote it.
        available: The names that there are.
        similar: True to take other letters too: then the single most similar name counts, with a
            `difflib.SequenceMatcher` ratio above 0.85.
        hidden: Names that are there elsewhere. What is one of them, or fits one of them as well, means nothing here.
    """
    if name in available:
        return name
    if name in hidden or len(name) > _LONGEST_NAME_REPAIRED:
        return None
    everything = {*available, *hidden}
    by_letters: dict[str, list[str]] = {}
    for other in everything:
        by_letters.setdefault(_read_letters(other), []).append(other)
    for reading in _list_readings(name):
        found = by_letters.get(reading)
        if found is not None:
            return found[0] if len(found) == 1 and found[0] in available else None
    if not similar:
        return None
    best, highest = [""], _SIMILAR
    for other, ratio in _compare_names(name, everything):
        if ratio > highest:
            best, highest = [other], ratio
        elif ratio == highest:
            best.append(other)
    return best[0] if len(best) == 1 and best[0] in available else None


_AROUND = " \t\r\n\"'`\u2018\u2019\u201c\u201d*[](){}<>"
_SEPARATORS = re.compile(r"[\s_.:/-]+")
_NAMESPACE = re.compile(r"[.:/]+|__+")


def _list_readings(name: str) -> Iterator[str]:
    """Yield the letters that a name may mean, those of which the least is taken away first."""
    name = name.strip(_AROUND)
    starts = [0, *(match.end() for match in _NAMESPACE.finditer(name))]
    for start in starts:
        letters = _read_letters(name[start:])
        half = letters[: len(letters) // 2]
        if letters:
            yield letters
        if half and letters == half * 2:
            yield half


def _read_letters(name: str) -> str:
    """Return a name without its case and separators, "" where it has other signs; digits stay as far apart as they are.

    ``read_v1_2`` is not ``read_v12``.
    """
    parts = [part for part in _SEPARATORS.split(name.casefold()) if part]
    if not all(part.isalnum() for part in parts):
        return ""
    joined = ""
    for part in parts:
        joined += f"_{part}" if joined[-1:].isdigit() and part[0].isdigit() else part
    return joined


def nearest_names(name: str, available: Collection[str], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` names of `available` to offer for one that is unknown.

    The most similar come first, then those that have a word in common with it.
    """
    found = [*find_similar(name, available, most=n)]
    words = _split_words(name[:_LONGEST_NAME_REPAIRED])
    found += [other for other in available if words & _split_words(other)] if words else []
    return tuple(dict.fromkeys(found))[:n]


def _split_words(name: str) -> set[str]:
    parts = re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))
    return {part.casefold() for part in parts if len(part) > _SHORT_WORD}


def _compare_names(name: str, available: Collection[str]) -> Iterator[tuple[str, float]]:
    from difflib import SequenceMatcher  # noqa: PLC0415 - few names are misspelled

    # Names whose lengths alone rule them out are never looked at, so a hostile one of any length costs nothing.
    candidates = [other for other in available if 2 * min(len(name), len(other)) > _SIMILAR * (len(name) + len(other))]
    matcher = SequenceMatcher(autojunk=False)
    for other in candidates:
        matcher.set_seqs(other, name)
        if matcher.quick_ratio() > _SIMILAR:
            yield other, matcher.ratio()


def repair_arguments(text: str) -> str | None:
    """Return `text` as a JSON object where it surely means one, or None.

    It takes an object in a code fence, which a sentence on the lines before may introduce, single quotes, unquoted
    keys, trailing commas, comments, ``True``, ``False`` and ``None``, raw line breaks in strings, ``+1``, ``.5`` and
    ``5.``, and all of that encoded again as a string, up to three times. An empty text or ``null`` is an empty object.

    What is cut off is None, and so is what lacks a comma, a quote or a bracket or has one too many, a key that comes
    twice, an unknown escape or word, NaN and infinite numbers, numbers with leading zeros or more than 300 digits, lone
    surrogates, control characters, data outside of the object, more than 100 levels and more than 2 million characters.
    It takes time linear in the length of the text, and never raises.
    """
    try:
        return read_surely(text).text
    except UnclearError:
        return None
