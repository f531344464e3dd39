"""The names that were likely meant where one is unknown, and the question that offers them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["ask_whether_meant", "find_similar"]


def find_similar(name: str, available: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return up to `most` names of `available` that are spelled like `name`, the most similar first."""
    return tuple(get_close_matches(name, list(available), n=most, cutoff=cutoff))


def ask_whether_meant(names: Iterable[str]) -> str:
    """Return ``did you mean 'this' or 'that'?``; empty where there are no names."""
    offered = " or ".join([f"'{name}'" for name in names])
    return f"did you mean {offered}?" if offered else ""
