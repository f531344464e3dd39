"""The cut of a text that is longer than a model is to read, between what a reader sees as characters."""

from __future__ import annotations

import unicodedata
from typing import Literal

from toolkit.errors import ConfigurationError

__all__ = ["limit_text"]


def limit_text(
    text: str,
    max_chars: int,
    keep: Literal["head", "tail", "both"] = "both",
    *,
    reference: str | None = None,
    reader: str = "read_result",
) -> str:
    """Return `text` with what is too much cut out, and a notice in its place that says how much that is.

    At most `max_chars` characters of the text stay, a few fewer where a cut would split what a reader sees as one
    character. The notice comes on top: the result is never longer than
    ``max_chars + 160 + len(reference) + len(reader)``. A text
    of at most `max_chars` characters comes back as the same object.

    Args:
        text: The whole text.
        max_chars: In characters (Unicode code points), from 1 on.
        keep: The start, the end, or as much of both.
        reference: The id under which `reader` gives the whole text; None where it is not kept.
        reader: The name of the tool that does.

    Raises:
        ConfigurationError: `max_chars` is below 1.
    """
    if max_chars < 1:
        raise ConfigurationError(f"an output can't be limited to {max_chars} characters: give at least 1")
    if len(text) <= max_chars:
        return text
    head_chars = {"head": max_chars, "tail": 0, "both": (max_chars + 1) // 2}[keep]
    start = _boundary_before(text, head_chars)
    end = _boundary_after(text, len(text) - max_chars + head_chars)
    way = f"call {reader} with id '{reference}' to read them" if reference else "ask for a smaller part to see them"
    notice = f"[... {end - start} of {len(text)} characters are left out here; {way} ...]"
    return "\n".join(part for part in (text[:start], notice, text[end:]) if part)


# A run of combining marks can be of any length: after this many steps a cut splits it.
_FURTHEST = 64
_JOINER = "\u200d"


def _boundary_before(text: str, index: int) -> int:
    for candidate in range(index, max(index - _FURTHEST, 0), -1):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if index > _FURTHEST else 0


def _boundary_after(text: str, index: int) -> int:
    for candidate in range(index, min(index + _FURTHEST, len(text))):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if len(text) - index > _FURTHEST else len(text)


def _is_inside_character(text: str, index: int) -> bool:
    """Return whether a cut before `index` splits what a reader sees as one character, for all common scripts."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if after < "\u0300":
        return (before, after) == ("\r", "\n") or before == _JOINER
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the colour of a skin
        or "\U000e0020" <= after <= "\U000e007f"  # the letters of a flag
        or "\u1160" <= after <= "\u11ff"  # the later parts of a Korean syllable
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (_is_flag_letter(before) and _is_flag_letter(after) and _flag_letters_before(text, index) % 2 == 1)
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, index: int) -> int:
    start = index
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return index - start
