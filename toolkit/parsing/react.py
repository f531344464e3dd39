"""``Action: name`` and ``Action Input: {...}`` on lines of their own: ReAct."""

from __future__ import annotations

import re

from toolkit.calls.repair.names import repair_arguments
from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, explain_unreadable
from toolkit.parsing.forms import (
    Outcome,
    Surroundings,
    beginnings_of,
    check_end,
    pass_broken,
    pass_fence,
    pass_nothing,
    pass_ticks,
)
from toolkit.parsing.source import Source, Waiting

__all__ = ["ReactForm"]

_IN_LINE = re.compile(r"[^\r\n]")
_DIGIT = re.compile(r"[0-9]")
_CALLED = re.compile(r"(?:\(.*|\s+Action Input.*)", re.IGNORECASE)
_LABEL_END = r"[ \t0-9*]{0,8}+(?:\Z|:)"
_LINE_ENDS = {"", "\r", "\n"}
_NO_NAMES = {"", "none", "n/a", "null", "no action", "final answer", "finish"}
_LONGEST_ACTION = 120
_LONGEST_INPUT = 2_000
_ACTION = f"(?i:{beginnings_of('Action', then=_LABEL_END)})"


class ReactForm:
    """One action and its input, each at the start of a line."""

    characters = "a*"
    opening: str = rf"(?<![^\s*])(?:{beginnings_of('**', then=_ACTION)}|{_ACTION})"

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read one action with its input."""
        if not (yield from _pass_label(source, "Action")):
            return None
        if not before.is_line_start or before.is_spoken_of:
            return pass_nothing()
        yield from source.spaces(" \t")
        if (yield from source.peek(3)).startswith(("{", "[{", "```", "~~~")):
            return None  # JSON, as Command R writes it, or a fence with it
        written = yield from source.word(_IN_LINE, _LONGEST_ACTION)
        name = written.strip(" \t*`\"'[]").removesuffix("()")
        there = source.length
        yield from source.spaces()
        is_none = name.casefold() in _NO_NAMES and name not in tools
        if is_none or not (yield from _pass_label(source, "Action Input")):
            source.back(there)
            if name in tools or _CALLED.sub("", name) in tools:
                raise UnclearCallError('After "Action: NAME" there must be a line "Action Input: {...}".')
            return pass_nothing()
        start = source.length
        try:
            arguments = yield from _read_input(source, tools, name)
        except UnclearCallError:
            yield from pass_broken(source, start)
            raise
        return [ToolCall("", name, arguments)]


def _is_without_input(source: Source, tools: KnownTools, name: str, character: str) -> Waiting[bool]:
    """Say whether no input at all is what a tool takes; where it may take something, nothing else may follow."""
    if character in {"{", "`", "~"} or not tools.may_take_nothing(name):
        return False
    if tools.takes_nothing(name):
        return True
    return not character or (yield from source.peek(11)).casefold() == "observation"


def _pass_label(source: Source, label: str) -> Waiting[bool]:
    """Go past a label with its colon, and a number or bold type, where it stands here."""
    yield from source.accepts("**")
    if not (yield from source.accepts(label, any_case=True)):
        return False
    yield from source.spaces(" \t")
    yield from source.word(_DIGIT, 3)
    yield from source.accepts("**")
    if not (yield from source.accepts(":")):
        return False
    yield from source.accepts("**")
    return True


def _read_input(source: Source, tools: KnownTools, name: str) -> Waiting[str]:
    is_empty = (yield from source.spaces(" \t")) in _LINE_ENDS
    there = source.length
    character = yield from source.spaces()
    if is_empty and (yield from _is_without_input(source, tools, name, character)):
        source.back(there)
        return "{}"
    is_fenced = character in {"`", "~"}
    if is_fenced:
        yield from pass_fence(source)
        character = yield from source.spaces()
    if character == "{":
        start = source.length
        if not (yield from source.value()):
            raise UnclearCallError("The call is cut off, or its brackets don't match.")
        text = source.piece(start)
        if is_fenced:
            yield from source.spaces()
            yield from pass_ticks(source)
        following = yield from source.spaces(" \t`")
        if following not in _LINE_ENDS and (yield from source.peek(11)).casefold() != "observation":
            raise UnclearCallError("After the JSON object of Action Input the line must end.")
        yield from check_end(source)
    else:
        text = yield from source.word(_IN_LINE, _LONGEST_INPUT)
        if not text.startswith(('"', "'", "null", "None")):
            raise UnclearCallError("Action Input must be a JSON object with an entry for each argument.")
    arguments = repair_arguments(text)
    if arguments is None:
        raise UnclearCallError(explain_unreadable(text))
    return arguments
