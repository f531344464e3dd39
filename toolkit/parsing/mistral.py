"""``[TOOL_CALLS]`` and a list of calls, or, newer, ``[TOOL_CALLS]name[ARGS]{...}`` once for each; Mistral."""

from __future__ import annotations

import re

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, explain_unreadable, read_calls, read_json
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, read_behind_mark, take_value
from toolkit.parsing.source import Source, Waiting

__all__ = ["MistralForm"]

_OPEN, _CLOSE, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[/TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_IN_MISTRAL_NAME = re.compile(r"[\w.-]")


class MistralForm:
    """The old form and the new one; what is broken takes the rest of the reply with it."""

    characters = "["
    opening: str = beginnings_of(_OPEN)

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read the calls behind one mark."""
        return read_behind_mark(source, tools, before, _OPEN, _read_marked_calls, closing=_CLOSE)


def _read_marked_calls(source: Source, tools: KnownTools) -> Waiting[list[ToolCall]]:
    calls: list[ToolCall] = []
    character = yield from source.spaces()
    while character and character in "[{" and (yield from source.peek(len(_OPEN))) != _OPEN:
        calls += read_calls((yield from take_value(source)), tools, is_marked=True)
        check_count(calls)
        there = source.length
        character = yield from source.spaces(" \t\r\n,")
        if character != "{":
            source.back(there)
            break
    return calls or [(yield from _read_named_call(source))]


def _read_named_call(source: Source) -> Waiting[ToolCall]:
    name = yield from source.word(_IN_MISTRAL_NAME, 64)
    if name and (yield from source.accepts(_ID)):
        yield from source.word(_IN_MISTRAL_NAME, 64)
    if name:
        yield from source.accepts(_ARGUMENTS)
    if not name or (yield from source.spaces()) != "{":
        raise UnclearCallError(f"After {_OPEN} there must be a list of calls, or NAME{_ARGUMENTS}{{...}}.")
    text = yield from take_value(source)
    arguments = read_json(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return ToolCall("", name, arguments)
