"""The text that may have been meant between two quotes, where not all of its escapes are those of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

__all__ = ["is_balanced", "read_contents"]

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# Behind a backslash these begin the code of a character in other languages, or one of JSON's that is not whole.
_MAYBE_CODES = frozenset("0123456789x")
_CUT_UNIT = re.compile(r"\\u[0-9a-fA-F]")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def read_contents(raw: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what may stand between two quotes: backslashes of escapes that JSON lacks stand for themselves."""
    if _CONTROL_CHARACTERS.search(raw):
        return
    escapes = [escape[1] for escape in _ESCAPE.finditer(raw)]
    unknown = [escape for escape in escapes if len(escape) == 1 and escape not in _PLAIN_ESCAPES]
    if any(escape in _MAYBE_CODES for escape in unknown) or _CUT_UNIT.search(_drop_units(raw)):
        return
    known = [escape for escape in escapes if escape not in unknown and escape not in {'"', "'"}]
    ways = [frozenset(unknown)]
    if unknown and known:
        ways.append(frozenset([*unknown, *known]))
    for kept in ways:
        text = _ESCAPE.sub(partial(_unescape_one, kept=kept), raw)
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            continue
        yield json.dumps(text, ensure_ascii=False), ("backslashes were kept as text",) if unknown else ()


def is_balanced(text: str) -> bool:
    """Return whether the brackets in a text match: where they don't, a string may have swallowed its own end."""
    awaited: list[str] = []
    for character in re.findall(r"[{}\[\]]", text):
        if character in "{[":
            awaited.append("}" if character == "{" else "]")
        elif not awaited or awaited.pop() != character:
            return False
    return not awaited


def _drop_units(raw: str) -> str:
    return re.sub(r"\\\\|\\u[0-9a-fA-F]{4}", "", raw)


def _unescape_one(match: re.Match[str], *, kept: frozenset[str]) -> str:
    escape = match[1]
    if escape in {'"', "'"}:
        return escape
    if escape in kept:
        return match[0]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _PLAIN_ESCAPES[escape]
