"""``[name(key=value), ...]``: a list of calls as Python writes them; Llama 3.2 and 4 and others."""

from __future__ import annotations

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count
from toolkit.parsing.forms import Outcome, Surroundings, nothing_more, stands_alone
from toolkit.parsing.keywords import NAME, read_call
from toolkit.parsing.source import Source, Waiting

__all__ = ["PythonicForm"]

_LONGEST_NAME = 64


class PythonicForm:
    """A list without a mark of its own: it must name known tools and stand by itself."""

    characters = "["
    opening = r"\[\s*+(?:\Z|[\w.-]++(?:\Z|\())"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one list."""
        yield from source.accepts("[")
        yield from source.spaces()
        name = yield from source.word(NAME, _LONGEST_NAME)
        if not name or (yield from source.peek(1)) != "(":
            return None
        if not before.lets_call or name not in tools:
            return nothing_more()
        try:
            calls = yield from _calls(source, name)
        except UnclearCallError:
            yield from source.rest()
            raise
        if calls and (yield from stands_alone(source)):
            return calls
        return nothing_more()


def _calls(source: Source, name: str) -> Waiting[list[ToolCall]]:
    calls = [(yield from read_call(source, name))]
    while True:
        yield from source.spaces()
        if (yield from source.accepts("]")):
            return calls
        if not (yield from source.accepts(",")):
            raise UnclearCallError("Calls in a list are parted by commas, and the list ends with ].")
        if (yield from source.spaces()) == "]":
            continue
        name = yield from source.word(NAME, _LONGEST_NAME)
        if not name or (yield from source.peek(1)) != "(":
            raise UnclearCallError("The list must hold calls alone: write [name(key=value)].")
        calls.append((yield from read_call(source, name)))
        check_count(calls)
