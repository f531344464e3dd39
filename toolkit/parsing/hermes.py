"""``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen, and others with tags of their own."""

from __future__ import annotations

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count, read_calls
from toolkit.parsing.forms import (
    Outcome,
    Passage,
    Surroundings,
    beginnings_of,
    pass_fence,
    pass_nothing,
    pass_spoken_of,
)
from toolkit.parsing.source import Source, Waiting

__all__ = ["HermesForm"]

_OPEN, _CLOSE, _FUNCTION = "<tool_call>", "</tool_call>", "<function="
_TAGS = {
    _OPEN: _CLOSE,
    "<tools>": "</tools>",  # Qwen Coder
    "<tool_calls>": "</tool_calls>",  # Jamba
    "<function_call>": "</function_call>",
    "<functioncall>": "</functioncall>",
    "<|tool_call|>": "<|/tool_call|>",  # Granite, Phi
    "<|START_ACTION|>": "<|END_ACTION|>",  # Command R7B
    "<|action_start|><|plugin|>": "<|action_end|>",  # InternLM
}


class HermesForm:
    """One object, several, or a list of them between the tags; the last closing tag may be missing.

    Args:
        tags: The opening tags that are read; all that are known where there are none.
    """

    characters = "<"

    def __init__(self, *tags: str) -> None:
        self._tags = {tag: _TAGS[tag] for tag in tags or _TAGS}
        self.opening: str = "|".join(map(beginnings_of, self._tags))

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read the calls of one pair of tags."""
        opening = yield from self._read_opening(source)
        if not opening:
            return None
        closing = self._tags[opening]
        character = yield from source.spaces()
        if before.is_spoken_of:
            return None if character == "<" else _pass_examples(source, opening, closing)
        if character == "`":
            yield from pass_fence(source)
            character = yield from source.spaces()
        if character == "<" and (yield from source.peek(len(_FUNCTION))) == _FUNCTION:
            return None
        if character not in {"{", "["} and (opening != _OPEN or not before.is_line_start):
            return pass_nothing()
        calls: list[ToolCall] = []
        while character in {"{", "["}:
            yield from _add_calls(calls, source, tools, closing)
            character = yield from source.spaces(" \t\r\n,;`~")
        if calls and (not character or (yield from _is_closed(source, opening, closing))):
            return calls
        yield from source.past(closing)
        raise UnclearCallError(f"Between {opening} and {closing} there must be one JSON object.")

    def _read_opening(self, source: Source) -> Waiting[str]:
        for tag in self._tags:
            if (yield from source.accepts(tag)):
                return tag
        return ""


def _add_calls(calls: list[ToolCall], source: Source, tools: KnownTools, closing: str) -> Waiting[None]:
    """Add the calls that one JSON value says; one that can't be read is passed with all up to the closing tag."""
    start = source.length
    if not (yield from source.value(stop=closing)):
        ended = not (yield from source.past(closing))
        raise UnclearCallError("The call is cut off." if ended else "The brackets of the call don't match.")
    try:
        calls += read_calls(source.piece(start), tools, is_marked=True)
        check_count(calls)
    except UnclearCallError:
        yield from source.past(closing)
        raise


def _pass_examples(source: Source, opening: str, closing: str) -> Passage:
    """Go past an example, and the ones that follow it directly."""
    yield from pass_spoken_of(source)
    yield from source.spaces()
    while (yield from source.accepts(closing)):
        yield from source.spaces()
        if not (yield from source.accepts(opening)):
            return None
        yield from pass_spoken_of(source)
        yield from source.spaces()
    return None


def _is_closed(source: Source, opening: str, closing: str) -> Waiting[bool]:
    if (yield from source.accepts(closing)):
        return True
    return (yield from source.peek(len(opening))) == opening
