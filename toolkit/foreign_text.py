"""Text of others, made fit to read and to show: known encodings, no lone surrogates, hidden characters as escapes.

Line breaks, escape codes of terminals, marks that turn the direction of writing, characters of no width, private ones
and bytes that are no text make one text pass for another, or for the words of somebody else. The name of an encoding
that somebody else gives may lead to a codec that is none.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata

_HIDDEN_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Lines, columns, and the joiners that Persian, Hindi and emoji are written with.
_PROSE_CHARACTERS = frozenset("\n\t\u200c\u200d")
_ALIKE_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "GREEK"})
# Escape codes of terminals: colours and movements; titles, links and the clipboard, which are closed by BEL or ESC \\.
_TERMINAL_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
# Of other kinds, and drawn as nothing. Not U+FE0F and U+FE0E, which choose how an emoji looks.
_DRAWN_AS_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


def escape_in_json(text: str) -> str:
    """Return equivalent JSON text, with each hidden character in its strings as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(json.dumps(character)[1:-1] if is_hidden(character) else character for character in text)


def escape_in_name(name: str) -> str:
    """Return a name as it is where all of it is seen, else in quotes, with escapes as in a string of Python.

    A name in quotes is quoted again, so that it can't pass for another one with escapes.
    """
    is_quoted = len(name) > 1 and name[0] == name[-1] == '"'
    if not is_quoted and ((name.isascii() and name.isprintable()) or not any(map(is_hidden, name))):
        return name
    return '"' + "".join(map(_escape_character, name)) + '"'


def escape_in_text(text: str) -> str:
    """Return a foreign text for use inside a sentence, with its hidden characters as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_character(character) if is_hidden(character) else character for character in text)


def is_hidden(character: str) -> bool:
    """Return whether a character is not seen, or changes how others are seen."""
    return unicodedata.category(character) in _HIDDEN_KINDS or _DRAWN_AS_NOTHING.fullmatch(character) is not None


def has_mixed_scripts(word: str) -> bool:
    """Return whether a word has letters of several scripts that look alike: a Cyrillic one among Latin ones."""
    if word.isascii():
        return False
    return len({unicodedata.name(each, "?").partition(" ")[0] for each in word if each.isalpha()} & _ALIKE_SCRIPTS) > 1


def strip_hidden(text: str) -> str:
    """Return foreign prose for display: of the hidden characters, line breaks, tabs and joiners stay.

    Codes that a terminal would obey go as a whole.
    """
    if text.isascii() and text.isprintable():
        return text
    plain = _TERMINAL_CODES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(character for character in plain if character in _PROSE_CHARACTERS or not is_hidden(character))


def shorten_to_line(text: str, longest: int) -> str:
    """Return a text as one line, cut after so many characters, with ``...``."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}..."


def _escape_character(character: str) -> str:
    if character in ('"', "\\"):
        return f"\\{character}"
    return character.encode("unicode_escape").decode("ascii") if is_hidden(character) else character


# Those in which texts are, and whose codecs take time in proportion to the text: some others (punycode, idna) don't.
_ENCODINGS = frozenset({
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7",
    *(f"iso8859-{number}" for number in range(1, 17) if number != 12), "koi8-r", "koi8-u", "mac-roman", "hp-roman8",
    *(f"cp{number}" for number in (437, 850, 852, 855, 858, 862, 864, 866, 874, 932, 936, 949, 950)),
    *(f"cp{number}" for number in range(1250, 1259)),
    "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "shift_jis_2004", "euc_jp", "euc_jis_2004",
    "iso2022_jp", "iso2022_kr", "euc_kr", "johab",
})  # fmt: skip
_LONGEST_ENCODING = 30


def is_text_encoding(name: str) -> bool:
    """Return whether this names an encoding of text that is safe to read in: known, linear, and never refused whole."""
    try:
        return len(name) <= _LONGEST_ENCODING and codecs.lookup(name).name in _ENCODINGS
    except (LookupError, ValueError):
        return False


def replace_surrogates(text: str) -> str:
    """Return `text` with each lone surrogate, which no wire can carry, as a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def repair_surrogates(data: bytes) -> bytes:
    """Return JSON in which each half of a surrogate pair that stands alone is U+FFFD."""
    if not may_have_surrogates(data):
        return data
    pieces: list[bytes] = []
    end = 0
    for start, _ in find_lone_halves(data):
        pieces += [data[end:start], rb"\ufffd"]
        end = start + 6
    return b"".join([*pieces, data[end:]])


def may_have_surrogates(data: bytes) -> bool:
    """Return whether JSON may have halves of surrogate pairs, as escapes."""
    return b"\\ud" in data or b"\\uD" in data


def find_lone_halves(data: bytes) -> list[tuple[int, bool]]:
    """Return where each escaped half without its other one stands, and whether it is a first half."""
    halves: list[tuple[int, bool]] = []
    for found in _ESCAPE.finditer(data):
        code = int(found[1] or b"0", 16)
        if 0xDC00 <= code < 0xE000 and halves and halves[-1] == (found.start() - 6, True):
            halves.pop()
        elif 0xD800 <= code < 0xE000:
            halves.append((found.start(), code < 0xDC00))
    return halves
