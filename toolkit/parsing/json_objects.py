"""Objects with a tool's name and arguments, without a mark of their own: bare, fenced, with prose round them."""

from __future__ import annotations

import re

from toolkit.parsing.calls import (
    ARGUMENTS,
    CALL_KEYS,
    NAMES,
    KnownTools,
    UnclearCallError,
    UnknownToolError,
    read_calls,
)
from toolkit.parsing.forms import Outcome, Surroundings, check_end, is_over, pass_broken, pass_nothing, stands_alone
from toolkit.parsing.source import Source, Waiting

__all__ = ["JsonForm"]

_KEY_STARTS = {key[:length] for key in CALL_KEYS for length in range(1, len(key) + 1)}
_KEY_PATTERN = r"""["']?(?:{})["']?\s*:\s*"""
_NAMED_CALL = re.compile(
    _KEY_PATTERN.format("|".join(NAMES))
    + r"""(?:\{\s*["']?name["']?\s*:\s*)?(?P<quote>["'])(?P<name>[^"'\n]{1,100})(?P=quote)"""
    + rf"""(?P<arguments>\s*,\s*{_KEY_PATTERN.format("|".join(ARGUMENTS))})?"""
)
_OBJECT = r"""\{\s*+(?:\Z|["']|\w{1,20}+(?:\Z|\s*+(?:\Z|:)))"""
_LONGEST_START = 500


class JsonForm:
    """An object or a list of them that names known tools, says nothing else and stands by itself.

    Other JSON is passed by as a whole: what stands inside it is data.
    """

    characters = "{["
    opening: str = rf"""{_OBJECT}|\[\s*+(?:\Z|[\["'\d]|{_OBJECT})"""

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one object or list."""
        start = source.length
        kind = yield from _tell_kind(source)
        if kind == "prose":
            return None
        source.back(start)
        if kind == "data" or not before.lets_call:
            return source.value()
        is_whole = yield from source.value()
        text = source.piece(start)
        named = _NAMED_CALL.search(text, 0, _LONGEST_START)
        is_known = named is not None and named["name"] in tools
        if not is_whole:
            if not is_known:
                return pass_nothing()
            yield from pass_broken(source, start)
            raise UnclearCallError("The call is cut off, or its brackets don't match.")
        try:
            calls = read_calls(text, tools, is_marked=False)
        except UnclearCallError as error:
            is_meant = is_known and named is not None and named["arguments"]
            is_unknown = isinstance(error, UnknownToolError) and not before.text.strip()
            if is_meant or (is_unknown and (yield from is_over(source, before))):
                raise
            return pass_nothing()
        try:
            yield from check_end(source)
        except UnclearCallError:
            yield from pass_broken(source, start)
            raise
        if not (yield from stands_alone(source)):
            return pass_nothing()
        yield from _pass_separator(source)
        return calls


def _tell_kind(source: Source) -> Waiting[str]:
    """Tell by its first key whether this may become a ``call``; else whether it is ``data`` or ``prose``."""
    if (yield from source.accepts("[")):
        character = yield from source.spaces()
        if character != "{":
            return "data" if character and (character in "[\"'" or character.isdecimal()) else "prose"
    if not (yield from source.accepts("{")):
        return "prose"
    quote = yield from source.spaces()
    is_quoted = quote in {'"', "'"}
    if is_quoted:
        source.skip(1)
    key = ""
    while (character := (yield from source.peek(1))) and (key + character) in _KEY_STARTS:
        key += character
        source.skip(1)
    may_call = key in CALL_KEYS and (not is_quoted or (yield from source.accepts(quote)))
    if may_call and (yield from source.spaces()) == ":":
        return "call"
    return "data" if is_quoted else "prose"


def _pass_separator(source: Source) -> Waiting[None]:
    there = source.length
    character = yield from source.spaces()
    if character and character in ",;":
        source.skip(1)
        if (yield from source.spaces()) == "{":
            return
    source.back(there)
