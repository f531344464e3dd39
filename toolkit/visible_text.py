"""Text for a person's eyes: characters that are not seen, or that change how others are seen, stand as escapes.

Line breaks, escape codes of terminals, marks that turn the direction of writing, characters of no width, private ones
and bytes that are no text make one text pass for another, or for words of somebody else.
"""

from __future__ import annotations

import json
import unicodedata

__all__ = ["escape_in_json", "escape_in_name"]

_HIDDEN_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def escape_in_json(text: str) -> str:
    """Return JSON text that says the same, with each hidden character in its strings as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(json.dumps(character)[1:-1] if _is_hidden(character) else character for character in text)


def escape_in_name(name: str) -> str:
    """Return a name as it is where all of it is seen, else in quotes, with escapes as in a string of Python."""
    if (name.isascii() and name.isprintable()) or not any(map(_is_hidden, name)):
        return name
    return '"' + "".join(map(_escape_character, name)) + '"'


def _escape_character(character: str) -> str:
    if character in ('"', "\\"):
        return f"\\{character}"
    return character.encode("unicode_escape").decode("ascii") if _is_hidden(character) else character


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN_KINDS
