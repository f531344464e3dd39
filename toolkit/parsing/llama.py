"""``<|python_tag|>`` and what follows: objects with name and parameters, or ``name.call(key=value)``; Llama 3."""

from __future__ import annotations

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, read_calls
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, check_end, pass_spoken_of
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
        if not (yield from source.accepts(_OPEN)):
            return None
        if before.is_spoken_of:
            return pass_spoken_of(source)
        try:
            calls = yield from _read_tagged_calls(source, tools)
            yield from check_end(source)
        except UnclearCallError:
            yield from source.rest()
            raise
        return calls


def _read_tagged_calls(source: Source, tools: KnownTools) -> Waiting[list[ToolCall]]:
    calls: list[ToolCall] = []
    character = yield from source.spaces()
    while character and character in "{[":
        start = source.length
        if not (yield from source.value()):
            raise UnclearCallError("The call is cut off, or its brackets don't match.")
        calls += read_calls(source.piece(start), tools, is_marked=True)
        check_count(calls)
        character = yield from source.spaces(" \t\r\n;,")
    if not calls:
        name = yield from source.word(NAME, 64)
        if not name.removesuffix(".call") or (yield from source.peek(1)) != "(":
            raise UnclearCallError(f'After {_OPEN} there must be a call: {{"name": ..., "parameters": {{...}}}}.')
        calls.append((yield from read_call(source, name.removesuffix(".call"))))
        yield from source.spaces()
    return calls
