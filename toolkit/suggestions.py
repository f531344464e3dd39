"""The names that were likely meant where one is unknown, and the question that offers them."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_NAME_COMPARED = 256


def find_similar(name: str, available: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return up to `most` names of `available` that are spelled like `name`, the most similar first.

    Case and separators don't count; of very long names, only the beginning is compared.

    Args:
        name: The one that is unknown.
        available: The ones that there are.
        most: How many to offer.
        cutoff: The least ratio of `difflib.SequenceMatcher`, from 0 to 1.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - nothing is misspelled in most programs

    by_folded: dict[str, list[str]] = {}
    for other in available:
        by_folded.setdefault(_shorten_name(other), []).append(other)
    near = get_close_matches(_shorten_name(name), by_folded, n=most, cutoff=cutoff)
    return tuple([other for folded in near for other in by_folded[folded]][:most])


def ask_whether_meant(names: Iterable[str], *, quote: str = "'", is_sentence: bool = False) -> str:
    """Return ``did you mean 'this' or 'that'?``; empty where there are no names.

    Args:
        names: The names to offer.
        quote: The quotation mark round each name.
        is_sentence: True to begin with a capital letter.
    """
    offered = " or ".join([f"{quote}{name}{quote}" for name in names])
    return f"{'Did' if is_sentence else 'did'} you mean {offered}?" if offered else ""


def fold_name(name: str) -> str:
    """Return a name without its case and separators."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _shorten_name(name: str) -> str:
    start = name[:_LONGEST_NAME_COMPARED]
    return fold_name(start) or start
