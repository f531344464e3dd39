"""The reading of one place of a reply in the forms of a format, in a fence or without, and the ends of turns."""

from __future__ import annotations

import re
from dataclasses import replace

from toolkit.chat import ToolCall
from toolkit.parsing.calls import KnownTools, UnclearCallError, check_count
from toolkit.parsing.formats import FORMATS_WITHOUT_FENCES, TextFormat, find_forms
from toolkit.parsing.forms import END_OF_TURN, RESULTS, Form, Outcome, Passage, beginnings_of, pass_nothing
from toolkit.parsing.source import Source, Waiting
from toolkit.parsing.speech import Surroundings
from toolkit.parsing.thoughts import THINKING_OPENING

__all__ = ["FormReader", "OTHERS_TURNS", "TURN_ENDS"]

# Harmony ends each message with a token that for others ends the turn.
TURN_ENDS = (
    *[mark for mark in END_OF_TURN if mark != "<|end|>"],
    *("<|user|>", "<|observation|>", "[INST]", "<\uff5cUser\uff5c>"),
)
OTHERS_TURNS = (*RESULTS, "User:", "Human:")
_FENCE_MARKS = {"`": re.compile("`"), "~": re.compile("~")}
_LANGUAGE = re.compile(r"[\w.+-]")
_FENCE_LANGUAGES = {"", "json", "json5", "jsonc", "xml", "tool_call", "tool_calls", "tool_code", "tool", "function"}
_LONGEST_FENCE, _LONGEST_LANGUAGE = 20, 20


class FormReader:
    """Reads what begins at a place in any form of one format, in a fence or without.

    Args:
        format: Its name.
        tools: The tools that may be called.

    Attributes:
        opening: A pattern of all that may begin a call, thoughts, a fence or the end of a turn.
    """

    def __init__(self, format: TextFormat, tools: KnownTools) -> None:  # noqa: A002
        self._tools = tools
        self._forms, self.opening = _sort_forms(format)
        self._takes_fences = format not in FORMATS_WITHOUT_FENCES

    def read(self, source: Source, before: Surroundings) -> Waiting[Outcome]:
        """Read what begins here; see `Form.read`."""
        character = yield from source.peek(1)
        if character in _FENCE_MARKS:
            return (yield from self._read_fence(source, before))
        source.back()
        return (yield from self._read_form(source, before))

    def _read_form(self, source: Source, before: Surroundings) -> Waiting[Outcome]:
        start = source.length
        character = yield from source.peek(1)
        for form in self._forms.get(character.casefold(), ()):
            outcome = yield from form.read(source, self._tools, before)
            if outcome is not None:
                return outcome
            source.back(start)
        return None

    def _read_fence(self, source: Source, before: Surroundings) -> Waiting[Outcome]:
        """Read a fence with nothing but calls in it; any other is passed by, with all that it holds."""
        fence = yield from source.word(_FENCE_MARKS[(yield from source.peek(1))], _LONGEST_FENCE)
        if len(fence) < 3:
            return None
        if not before.is_line_start and not before.is_item and not before.text.rstrip().endswith(":"):
            return pass_nothing()
        language = (yield from source.word(_LANGUAGE, _LONGEST_LANGUAGE)).casefold()
        is_shown = before.is_quoted or (before.is_item and not before.lets_call)
        if language not in _FENCE_LANGUAGES or is_shown or not self._takes_fences:
            return source.past(fence)
        inside = replace(before, text=before.text.rstrip(" \t") + "\n", fence=fence, language=language)
        yield from source.spaces()
        calls: list[ToolCall] = []
        while not calls or not (yield from _is_fence_end(source, fence)):
            try:
                outcome = yield from self._read_form(source, inside)
                calls += outcome if isinstance(outcome, list) else ()
                check_count(calls)
            except UnclearCallError:
                yield from source.past(fence)
                raise
            if not isinstance(outcome, list):
                if not calls:
                    return _chain_passages(outcome, source.past(fence))
                yield from source.past(fence)
                raise UnclearCallError("Where calls stand in a fence, nothing else may stand there.")
            yield from source.spaces()
        return calls


def _sort_forms(name: str) -> tuple[dict[str, list[Form]], re.Pattern[str]]:
    """Return the forms of a format by the characters that they begin with, and a pattern of all their openings."""
    forms = find_forms(name)
    by_character: dict[str, list[Form]] = {}
    for form in forms:
        for character in form.characters:
            by_character.setdefault(character, []).append(form)
    openings = [
        THINKING_OPENING,
        *[beginnings_of(token) for token in TURN_ENDS],
        *[rf"(?<!.){beginnings_of(token)}" for token in OTHERS_TURNS if token[0].isalpha()],
        r"(?<!`)`{1,2}+(?:\Z|`)|(?<!~)~{1,2}+(?:\Z|~)",
        *[form.opening for form in forms],
    ]
    return by_character, re.compile("|".join(openings))


def _is_fence_end(source: Source, fence: str) -> Waiting[bool]:
    return (yield from source.peek(1)) == "" or (yield from source.accepts(fence))


def _chain_passages(first: Passage | None, then: Passage) -> Passage:
    if first is not None:
        yield from first
    return (yield from then)
