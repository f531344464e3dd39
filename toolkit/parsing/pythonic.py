"""``[name(key=value), ...]`` and ``name(key=value)``: calls as Python writes them; Llama 3.2, Gemma and others."""

from __future__ import annotations

from string import ascii_lowercase

from toolkit.chat import ToolCall
from toolkit.parsing.calls import MOST_CALLS, KnownTools, UnclearCallError, check_count
from toolkit.parsing.forms import Outcome, Surroundings, is_over, pass_broken, pass_nothing, stands_alone
from toolkit.parsing.keywords import NAME, read_call
from toolkit.parsing.source import Source, Waiting

__all__ = ["BareCallForm", "PythonicForm"]

_LONGEST_KNOWN_NAME = 64
_CALL_LANGUAGES = {"tool", "tool_call", "tool_calls", "tool_code", "function"}


class PythonicForm:
    """A list without a mark of its own: it must name known tools and stand by itself."""

    characters = "["
    opening = r"\[\s*+(?:\Z|[\w.-]++(?:\Z|\())"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one list."""
        start = source.length
        yield from source.accepts("[")
        yield from source.spaces()
        name = yield from source.word(NAME, _LONGEST_KNOWN_NAME)
        if not name or (yield from source.peek(1)) != "(":
            return None
        if not before.lets_call or name not in tools:
            return pass_nothing()
        try:
            calls = yield from _read_call_list(source, name)
        except UnclearCallError:
            yield from pass_broken(source, start)
            raise
        if calls and (yield from stands_alone(source)):
            return calls
        return pass_nothing()


def _read_call_list(source: Source, name: str) -> Waiting[list[ToolCall]]:
    calls = [(yield from read_call(source, name))]
    while True:
        yield from source.spaces()
        if (yield from source.accepts("]")):
            return calls
        if not (yield from source.accepts(",")):
            raise UnclearCallError("Calls in a list are parted by commas, and the list ends with ].")
        if (yield from source.spaces()) == "]":
            continue
        name = yield from source.word(NAME, _LONGEST_KNOWN_NAME)
        if not name or (yield from source.peek(1)) != "(":
            raise UnclearCallError("The list must hold calls alone: write [name(key=value)].")
        calls.append((yield from read_call(source, name)))
        check_count(calls)


class BareCallForm:
    """Lines of calls to known tools, and nothing behind them: otherwise the text speaks of functions."""

    characters = ascii_lowercase
    opening = r"(?<!.)(?i:[a-z])[\w.-]{0,63}+(?:\Z|\()"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read calls up to the end of the reply or of the fence."""
        is_line_start = before.text.endswith("\n") or not before.text.strip()
        if not is_line_start or (before.fence and before.language not in _CALL_LANGUAGES):
            return None
        name = yield from _read_known_name(source, tools)
        if not name or (yield from source.peek(1)) != "(":
            return None
        if not before.lets_call:
            return pass_nothing()
        calls: list[ToolCall] = []
        while name and (yield from source.peek(1)) == "(":
            try:
                calls.append((yield from read_call(source, name)))
            except UnclearCallError:
                if not before.text.strip() and (yield from is_over(source, before)):
                    raise
                return pass_nothing()
            if (yield from is_over(source, before)):
                return calls
            if len(calls) > MOST_CALLS:
                yield from source.rest()
                check_count(calls)
            yield from source.spaces(" \t\r\n;")
            name = yield from _read_known_name(source, tools)
        return pass_nothing()


def _read_known_name(source: Source, tools: KnownTools) -> Waiting[str]:
    """Go past a name, as far as it may be a tool's, so that other words need not wait."""
    name = ""
    while len(name) < _LONGEST_KNOWN_NAME and NAME.match(character := (yield from source.peek(1))):
        name += character
        source.skip(1)
        if not tools.has_beginning(name):
            return ""
    return name if name in tools else ""
