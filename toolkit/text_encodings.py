"""Text that can be read and written: the encodings that text of others is read in, and characters that have none.

The name of an encoding that somebody else gives may lead to a codec that is none.
"""

from __future__ import annotations

import codecs

__all__ = ["is_text_encoding", "replace_surrogates"]

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
