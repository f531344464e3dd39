"""``<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>``: GLM 4.5 and later."""

from __future__ import annotations

import json
import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, pass_nothing
from toolkit.parsing.keywords import NAME
from toolkit.parsing.source import Source, Waiting

__all__ = ["GlmForm"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_LONGEST_GLM_NAME = 64
_IN_GLM_KEY = re.compile(r"[^<>\n]")


class GlmForm:
    """The name, then keys and values in turn; each tag must be closed."""

    characters = "<"
    opening: str = beginnings_of(_OPEN)

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one call."""
        if not (yield from source.accepts(_OPEN)):
            return None
        yield from source.spaces()
        name = yield from source.word(NAME, _LONGEST_GLM_NAME)
        yield from source.spaces()
        if not name or (yield from source.peek(1)) != "<":
            return None
        if (yield from source.accepts(_CLOSE)):
            is_call = before.is_line_start and not before.is_spoken_of and name in tools
            return [ToolCall("", name, "{}")] if is_call else pass_nothing()
        if (yield from source.peek(len(_KEY))) != _KEY:
            return None
        if before.is_spoken_of:
            return pass_nothing()
        try:
            arguments = yield from _read_members(source, tools, name)
        except UnclearCallError:
            yield from source.past(_CLOSE)
            raise
        return [ToolCall("", name, arguments)]


def _read_members(source: Source, tools: KnownTools, name: str) -> Waiting[str]:
    members: dict[str, str] = {}
    while (yield from source.accepts(_KEY)):
        key = (yield from source.word(_IN_GLM_KEY, _LONGEST_GLM_NAME)).strip()
        if not key or not (yield from source.accepts(_KEY_END)):
            raise UnclearCallError(f"A key is not complete: write {_KEY}NAME{_KEY_END}.")
        yield from source.spaces()
        if not (yield from source.accepts(_VALUE)):
            raise UnclearCallError(f"After {_KEY_END} there must be {_VALUE}.")
        text = yield from _read_member_value(source)
        if key in members:
            raise UnclearCallError(f"The parameter '{key[:64]}' is there twice.")
        members[key] = tools.value(name, key, text)
        yield from source.spaces()
    if not (yield from source.accepts(_CLOSE)):
        raise UnclearCallError(f"A call has only {_KEY} and {_VALUE} elements, and ends with {_CLOSE}.")
    return "{" + ", ".join([f"{json.dumps(key)}: {value}" for key, value in members.items()]) + "}"


def _read_member_value(source: Source) -> Waiting[str]:
    start = source.length
    is_whole = yield from source.past(_VALUE_END)
    text = source.piece(start)
    if not is_whole or _KEY in text or _VALUE in text:
        raise UnclearCallError(f"A value has no end: {_VALUE_END} is missing.")
    return text.removesuffix(_VALUE_END)
