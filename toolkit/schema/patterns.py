"""Regular expressions from elsewhere, matched in a bounded number of steps.

Nearly all are matched in linear time by the engine that Pydantic has. Those that look ahead or behind, or refer back to
a group, are run here: a state (place in the program, place in the text) that failed once is not tried again, so only
references back can take more steps than the text is long times the pattern. Each step is taken from a budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from pydantic_core import SchemaError as PydanticSchemaError, SchemaValidator, core_schema

from toolkit.schema.pattern_program import (
    COUNTED_REPEAT,
    MAX_PROGRAM,
    BackStep,
    CharStep,
    EdgeStep,
    LookStep,
    PatternError,
    PatternProgram,
    PatternStep,
    SaveStep,
    SplitStep,
    compile_program,
)
from toolkit.schema.work import WorkBudget

__all__ = ["Matcher", "PatternError", "compile_pattern", "find_fitting_text"]

Matcher: TypeAlias = Callable[[str, WorkBudget], bool]
"""Returns whether a pattern is found in a text, or raises `TooMuchWorkError`."""

# What the linear engine and all others take in different ways.
_READ_OTHERWISE = re.compile(r"&&|--|~~|\\[<>]|\\b\{")
_MAX_PATTERN = 50_000
_PROBES = "aA1b0B2 _-./:@#,;+*%&=?!~|()[]{}<>'\"\\^$`\n\t\u00e9\u4e00"


@lru_cache(maxsize=1_000)
def compile_pattern(pattern: str) -> Matcher:
    """Return what says whether a pattern is found in a text.

    Raises:
        PatternError: It is no regular expression, or too large.
    """
    if len(pattern) > _MAX_PATTERN:
        raise PatternError(f"it is longer than {_MAX_PATTERN} characters")
    if _READ_OTHERWISE.search(pattern) is None:
        try:
            found = SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
        except PydanticSchemaError:
            pass
        else:
            weight = _count_repeats(pattern)

            def match_linearly(text: str, budget: WorkBudget) -> bool:
                budget.spend(1 + len(text) * weight // 5_000)
                return found(text)

            return match_linearly
    program = compile_program(pattern)
    return lambda text, budget: _search_text(program, text, budget)


def _count_repeats(pattern: str) -> int:
    """Return about how many states the linear engine may be in at each character."""
    weight = len(pattern)
    for found in COUNTED_REPEAT.finditer(pattern):
        weight *= max(1, int((found[3] or found[1])[:6]))
        if weight > 10**9:
            break
    return weight


_Found: TypeAlias = tuple[tuple[int, int], ...]  # what each group of a pattern with references back has found
_States: TypeAlias = set[tuple[int, int, _Found]]


def find_fitting_text(pattern: str, *, least: int = 0) -> str | None:
    """Return a short text that a pattern should be found in, found by walking straight through it; None without one.

    Args:
        pattern: The pattern; lookaheads and lookbehinds are left out of account.
        least: How long the text has to be; repeats are repeated until it is.
    """
    try:
        steps = compile_program(pattern).steps
    except PatternError:
        return None
    text, at = "", 0
    for _ in range(MAX_PROGRAM):
        if at >= len(steps):
            return text
        step = steps[at]
        match step:
            case CharStep():
                found = next((one for one in _PROBES if step.fits(one)), None)
                if found is None:
                    return None
                text += found
            case SplitStep():
                at += (min if len(text) < least else max)(step.first, step.second) - 1
            case BackStep():
                return None
            case _:
                pass
        at += 1
    return None


def _search_text(program: PatternProgram, text: str, budget: WorkBudget) -> bool:
    run = _PatternRun(text, budget)
    seen: _States = set()
    groups = ((-1, -1),) * program.groups
    return any(run.match(program.steps, start, groups, seen, None) for start in range(len(text) + 1))


class _PatternRun:
    """One search: a walk through the states of a program, deepest first, with a stack of its own."""

    __slots__ = ("_budget", "_text")

    def __init__(self, text: str, budget: WorkBudget) -> None:
        self._text = text
        self._budget = budget

    def match(
        self,
        steps: list[PatternStep],
        start: int,
        groups: _Found,
        seen: _States,
        end: int | None,
    ) -> bool:
        """Return whether steps fit from a place on, up to `end` if given; `seen` are the states that failed."""
        stack = [(0, start, groups)]
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            self._budget.spend(2)
            seen.add(state)
            at, place, groups = state
            if at == len(steps):
                if end is None or place == end:
                    return True
                continue
            step = steps[at]
            if isinstance(step, SplitStep):
                stack += [(at + step.second, place, groups), (at + step.first, place, groups)]
                continue
            after = self._follow_step(step, place, groups)
            if after is not None:
                stack.append((at + 1, *after))
        return False

    def _follow_step(self, step: PatternStep, place: int, groups: _Found) -> tuple[int, _Found] | None:
        """Return where a step leads from a place; None where it does not fit."""
        match step:
            case CharStep():
                is_there = place < len(self._text) and step.fits(self._text[place])
                return (place + 1, groups) if is_there else None
            case EdgeStep():
                return (place, groups) if self._is_edge(step.kind, place) else None
            case SaveStep():
                return place, _note_group(groups, step, place)
            case BackStep():
                first, last = groups[step.group - 1]
                piece = self._text[first:last] if last >= 0 else ""
                self._budget.spend(len(piece) // 100)
                return (place + len(piece), groups) if self._text.startswith(piece, place) else None
            case LookStep():
                return (place, groups) if self._has_in_sight(step, place, groups) is step.is_wanted else None
            case SplitStep():
                return None  # `match` takes both ways itself

    def _has_in_sight(self, step: LookStep, place: int, groups: _Found) -> bool:
        if step.is_ahead:
            return self.match(step.program, place, groups, set(), None)
        seen: _States = set()
        return any(self.match(step.program, start, groups, seen, place) for start in range(place, -1, -1))

    def _is_edge(self, kind: str, place: int) -> bool:
        if kind in {"start", "end"}:
            return place == (0 if kind == "start" else len(self._text))
        before = place > 0 and _is_word_character(self._text[place - 1])
        after = place < len(self._text) and _is_word_character(self._text[place])
        return (before != after) == (kind == "word")


def _note_group(groups: _Found, step: SaveStep, place: int) -> _Found:
    if not groups:
        return groups
    index = step.group - 1
    found = (groups[index][0], place) if step.is_end else (place, -1)
    return (*groups[:index], found, *groups[index + 1 :])


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"
