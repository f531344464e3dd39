"""The names that were likely meant where one is unknown, and the question that offers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from heapq import nlargest
from typing import TYPE_CHECKING, ClassVar, NoReturn

_LONGEST_NAME_COMPARED = 96
_MOST_NAMES_COMPARED = 8
_PLACES = 1021


def find_similar(name: str, available: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return up to `most` names of `available` that are spelled like `name`, the most similar first.

    Case and separators don't count; of very long names, only the beginning is compared. A comparison can take some
    milliseconds, so it is made for the few names alone that have most letters in common with `name`.

    Args:
        name: The one that is unknown.
        available: The ones that there are.
        most: How many to offer.
        cutoff: The least ratio of `difflib.SequenceMatcher`, from 0 to 1.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415 - nothing is misspelled in most programs

    wanted = _shorten_name(name)
    by_folded: dict[str, list[str]] = {}
    for other in available:
        by_folded.setdefault(_shorten_name(other), []).append(other)
    bounds = ((bound_similarity(wanted, folded), folded) for folded in by_folded)
    likely = nlargest(_MOST_NAMES_COMPARED, (each for each in bounds if each[0] >= cutoff))
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    compared: list[tuple[float, str]] = []
    for _, folded in likely:
        matcher.set_seq1(folded)
        ratio = matcher.ratio()
        if ratio >= cutoff:
            compared.append((ratio, folded))
    near = [folded for _, folded in nlargest(most, compared)]
    return tuple([other for folded in near for other in by_folded[folded]][:most])


def bound_similarity(name: str, other: str) -> float:
    """Return the most that the ratio of `difflib.SequenceMatcher` can be for two texts, by their letters alone.

    For the same text again, as for the names of tools, it takes less than a microsecond.
    """
    count, most = len(name) + len(other), 2 * min(len(name), len(other))
    if not most:
        return float(count == 0)
    places, lost = _place_letters(name)
    other_places, other_lost = _place_letters(other)
    return min(most, 2 * ((places & other_places).bit_count() + min(lost, other_lost))) / count


@lru_cache(maxsize=4096)
def _place_letters(text: str) -> tuple[int, int]:
    """Return the letters of a text as a set of bits, one for each time that one occurs, and how many share a bit."""
    places = 0
    for letter in set(text):
        places |= ((1 << text.count(letter)) - 1) << (37 * ord(letter) % _PLACES)
    return places, len(text) - places.bit_count()


def ask_whether_meant(names: Iterable[str], *, quote: str = "'", is_sentence: bool = False) -> str:
    """Return ``did you mean 'this' or 'that'?``; empty where there are no names.

    Args:
        names: The names to offer.
        quote: The quotation mark round each name.
        is_sentence: True to begin with a capital letter.
    """
    offered = " or ".join([f"{quote}{name}{quote}" for name in names])
    return f"{'Did' if is_sentence else 'did'} you mean {offered}?" if offered else ""


class OtherWords:
    """The base of classes whose attributes have other names elsewhere: one that is missing is answered with ours.

    A class names them in ``__other_words__``, each with what to write.
    """

    __slots__ = ()
    __other_words__: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # for a checker, such a method would be every attribute

        def __getattr__(self, name: str) -> NoReturn:
            advice = type(self).__other_words__.get(name)
            if advice is None:
                known = [each for each in dir(self) if not each.startswith("_")]
                meant = "" if name.startswith("_") else ask_whether_meant(find_similar(name, known, most=1, cutoff=0.7))
            else:
                meant = f"write {advice}"
            text = f"a {type(self).__name__} has no '{name}'"
            raise AttributeError(f"{text}: {meant}" if meant else text)


def fold_name(name: str) -> str:
    """Return a name without its case and separators."""
    return "".join(character for character in name.casefold() if character.isalnum())


@lru_cache(maxsize=4096)
def _fold_name_once(name: str) -> str:
    return fold_name(name) or name


def _shorten_name(name: str) -> str:
    return _fold_name_once(name[:_LONGEST_NAME_COMPARED])
