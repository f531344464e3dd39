"""``functools[{"name": ..., "arguments": {...}}]``: Phi-4-mini, where it doesn't write its tokens."""

from __future__ import annotations

from toolkit.parsing.calls import KnownTools, UnclearCallError, read_calls
from toolkit.parsing.forms import Outcome, Surroundings, beginnings_of, check_end, pass_nothing
from toolkit.parsing.source import Source, Waiting

__all__ = ["FunctoolsForm"]

_FUNCTOOLS = "functools"
_BRACKET = r"(?:\Z|\[)"


class FunctoolsForm:
    """A list of calls behind the word; Python's module of that name is no call."""

    characters = "f"
    opening: str = rf"(?<![\w.]){beginnings_of(_FUNCTOOLS, then=_BRACKET)}"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one list."""
        if not (yield from source.accepts(_FUNCTOOLS)) or (yield from source.peek(1)) != "[":
            return None
        if before.is_spoken_of:
            return pass_nothing()
        start = source.length
        if not (yield from source.value()):
            yield from source.rest()
            raise UnclearCallError("The call is cut off, or its brackets don't match.")
        calls = read_calls(source.piece(start), tools, is_marked=True)
        yield from check_end(source)
        return calls
