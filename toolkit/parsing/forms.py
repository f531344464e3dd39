"""The parts that all ways to write a call share, and the rules that tell a call from the mention of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeAlias

from toolkit.calls.repair.idle_words import SPACES
from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError
from toolkit.parsing.source import Source, Waiting
from toolkit.parsing.speech import Surroundings

__all__ = [
    "Form",
    "Outcome",
    "Passage",
    "Surroundings",
    "check_end",
    "is_over",
    "pass_nothing",
    "pass_ticks",
    "beginnings_of",
    "pass_broken",
    "pass_fence",
    "pass_spoken_of",
    "read_behind_mark",
    "stands_alone",
    "take_value",
]

Passage: TypeAlias = Waiting[object]
"""Goes past text in which no calls are looked for; what it has passed is text at once."""

Outcome: TypeAlias = list[ToolCall] | Passage | None
"""Calls, whose ids are empty; text; or None, for something else that may be read in another form."""


class Form(Protocol):
    """One way to write calls."""

    @property
    def characters(self) -> str:
        """The characters that a call may begin with, in lower case."""
        ...

    @property
    def opening(self) -> str:
        """A pattern of how a call begins, and of the beginnings of that where the text ends for now."""
        ...

    def read(self, source: Source, tools: KnownTools, before: Surroundings) -> Waiting[Outcome]:
        """Read what begins here; where it is None, wherever the place is then.

        It looks no further ahead than a bounded number of characters until it knows that this is a call.

        Raises:
            UnclearCallError: A call is meant and can't be read; the place is behind all that belongs to it.
        """
        ...


# What ends a turn. A result ends it, too: the model has made it up.
END_OF_TURN = (
    "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
RESULTS = (
    "<tool_response>", "[TOOL_RESULTS]", "Observation:", "Observation ", "<function_results>", "<tool_result>",
    "<\uff5ctool\u2581outputs\u2581begin\uff5c>",
)  # fmt: skip
_REST_KEY = re.compile(r"""["'][\w-]+["']\s*:""")
_LONGEST_REST_KEY = 60
_TICK = re.compile("[`~]")
_LANGUAGE_LETTER = re.compile(r"\w")
_LINE_BREAK = re.compile("\n")
_BEGINNINGS = "\n{[<`~*"
_AFTER = "\r\n,;.{[<`~"


def stands_alone(source: Source) -> Waiting[bool]:
    """Say whether nothing goes on after this place: the line or the reply ends, or a new sentence or call begins."""
    there = source.length
    character = yield from source.spaces(" \t*")
    source.back(there)
    return not character or character in _AFTER or character.isupper()


def check_end(source: Source) -> Waiting[None]:
    """Raise where what stands behind a call can only be the rest of it: a bracket, or a key.

    Raises:
        UnclearCallError: The call has ended too early.
    """
    there = source.length
    if (yield from source.spaces(f"{SPACES},;")) in {'"', "'"}:
        is_rest = _REST_KEY.match((yield from source.peek(_LONGEST_REST_KEY))) is not None
    else:
        is_rest = (yield from source.peek(1)) in {"}", "]", ":"}
    source.back(there)
    if is_rest:
        raise UnclearCallError("The brackets of the call don't match: it ends before all that belongs to it.")


def read_behind_mark(
    source: Source,
    tools: KnownTools,
    before: Surroundings,
    mark: str,
    read: Callable[[Source, KnownTools], Waiting[list[ToolCall]]],
    *,
    closing: str = "",
) -> Waiting[Outcome]:
    """Read the calls behind a mark that announces them; what is broken takes the rest of the reply with it.

    Args:
        source: The text.
        tools: The tools that may be called.
        before: The text before the mark.
        mark: The mark, which must begin here; None is the outcome otherwise.
        read: Reads what stands behind it.
        closing: A mark that may stand behind the calls, and is no text then.
    """
    if not (yield from source.accepts(mark)):
        return None
    if before.is_spoken_of:
        return pass_spoken_of(source)
    try:
        calls = yield from read(source, tools)
        yield from check_end(source)
    except UnclearCallError:
        yield from source.rest()
        raise
    if closing:
        there = source.length
        yield from source.spaces()
        if not (yield from source.accepts(closing)):
            source.back(there)
    return calls


def take_value(source: Source) -> Waiting[str]:
    """Go past a JSON value, and return it.

    Raises:
        UnclearCallError: It has no end.
    """
    start = source.length
    if not (yield from source.value()):
        raise UnclearCallError("The call is cut off, or its brackets don't match.")
    return source.piece(start)


def is_over(source: Source, before: Surroundings) -> Waiting[bool]:
    """Say whether nothing follows this place: neither in the fence, nor in the turn."""
    there = source.length
    is_end = (yield from source.spaces()) == ""
    for token in (before.fence,) if before.fence else (*END_OF_TURN, *RESULTS):
        is_end = is_end or (yield from source.accepts(token, any_case=True))
    source.back(there)
    return is_end


def pass_broken(source: Source, start: int) -> Waiting[None]:
    """Go back to a broken call without a mark, and past its lines: what begins a line behind it is something else."""
    source.back(start + 1)
    while True:
        if source.until(_LINE_BREAK):
            source.skip(1)
            character = yield from source.peek(1)
            if not character or character in _BEGINNINGS or character.isalpha():
                return
        elif source.is_ended:
            return
        else:
            yield


def pass_fence(source: Source) -> Waiting[None]:
    """Go past the marks that begin a fence, and the word behind them for what it holds."""
    yield from source.word(_TICK, 10)
    yield from source.word(_LANGUAGE_LETTER, 20)


def pass_ticks(source: Source) -> Waiting[None]:
    """Go past the marks that end a fence."""
    yield from source.word(_TICK, 10)


def pass_nothing() -> Passage:
    """Return the passage that ends where it begins: what has been read is text."""
    yield from ()
    return None


def pass_spoken_of(source: Source) -> Passage:
    """Return the passage past the list or object that follows, if one does: what is shown in it is no call either."""
    if (yield from source.spaces()) in {"{", "["}:
        return (yield from source.value())
    return None


def beginnings_of(literal: str, *, then: str = "") -> str:
    """Return a pattern of a literal and what follows, and of the beginnings of that where the text ends for now."""
    pattern = then
    for character in reversed(literal):
        pattern = re.escape(character) + (rf"(?:\Z|{pattern})" if pattern else "")
    return pattern
