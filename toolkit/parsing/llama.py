"""``<|python_tag|>`` and what follows: objects with name and parameters, or ``name.call(key=value)``; Llama 3."""

from __future__ import annotations

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, read_calls
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, read_behind_mark, take_value
from toolkit.parsing.keywords import NAME, read_call
from toolkit.parsing.source import Source, Waiting

__all__ = ["LlamaForm"]

_OPEN = "<|python_tag|>"


class LlamaForm:
    """Everything behind the tag up to the end of the turn is calls."""

    characters = "<"
    opening: str = beginnings_of(_OPEN)

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read the calls behind one tag."""
        return read_behind_mark(source, tools, before, _OPEN, _read_tagged_calls)


def _read_tagged_calls(source: Source, tools: KnownTools) -> Waiting[list[ToolCall]]:
    calls: list[ToolCall] = []
    character = yield from source.spaces()
    while character and character in "{[":
        calls += read_calls((yield from take_value(source)), tools, is_marked=True)
        check_count(calls)
        character = yield from source.spaces(" \t\r\n;,")
    if not calls:
        name = yield from source.word(NAME, 64)
        if not name.removesuffix(".call") or (yield from source.peek(1)) != "(":
            raise UnclearCallError(f'After {_OPEN} there must be a call: {{"name": ..., "parameters": {{...}}}}.')
        calls.append((yield from read_call(source, name.removesuffix(".call"))))
        yield from source.spaces()
    return calls
