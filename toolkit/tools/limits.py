"""How often a tool may be used, and how much of its text a model reads."""

from __future__ import annotations

import unicodedata
from threading import Lock
from typing import Literal
from weakref import WeakKeyDictionary

from toolkit.errors import ConfigurationError, ToolUsageLimitExceededError

__all__ = ["UsageCounter", "limit_text"]


class UsageCounter:
    """Counts the uses of one tool; safe between threads.

    Args:
        maximum: How many uses there are; None sets no limit.
        scope: ``run`` counts in each run, and once more outside of any; ``process`` counts in the whole process.

    Raises:
        ConfigurationError: `maximum` is negative.
    """

    __slots__ = ("_current", "_lock", "_of_runs", "_outside", "maximum", "scope")

    def __init__(self, maximum: int | None = None, scope: Literal["run", "process"] = "run") -> None:
        if maximum is not None and maximum < 0:
            raise ConfigurationError(f"a tool can't be used {maximum} times: give a number from 0 on, or None")
        self.maximum: int | None = maximum
        self.scope: Literal["run", "process"] = scope
        self._current = self._outside = 0
        self._of_runs: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._lock = Lock()

    @property
    def current(self) -> int:
        """How many uses were claimed in all, in every run and outside of runs."""
        return self._current

    @property
    def is_exhausted(self) -> bool:
        """True where none is left outside of runs."""
        return self._is_exhausted(self._current if self.scope == "process" else self._outside)

    def _is_exhausted(self, used: int) -> bool:
        return self.maximum is not None and used >= self.maximum

    def used_in(self, run: object) -> int:
        """Return how many uses a run has claimed."""
        return self._of_runs.get(run, 0)

    def restore(self, run: object, used: int) -> None:
        """Have a run that was saved go on with what it had claimed."""
        with self._lock:
            self._of_runs[run] = used

    def claim(self, run: object = None) -> bool:
        """Take one use, if one is left for this run, or outside of runs; checking and taking are one step."""
        with self._lock:
            if self.maximum is None and run is not None:  # nobody asks what a run has used of what has no limit
                self._current += 1
                return True
            used = self._outside if run is None else self._of_runs.get(run, 0)
            if self._is_exhausted(self._current if self.scope == "process" else used):
                return False
            self._current += 1
            if run is None:
                self._outside += 1
            else:
                self._of_runs[run] = used + 1
            return True

    def require(self, tool: str) -> None:
        """Take one use outside of runs.

        Raises:
            ToolUsageLimitExceededError: None is left.
        """
        if not self.claim():
            raise ToolUsageLimitExceededError(tool, self.maximum or 0)

    def reset(self) -> None:
        """Forget all uses, those of the runs that go on too."""
        with self._lock:
            self._current = self._outside = 0
            self._of_runs.clear()


def limit_text(
    text: str,
    max_chars: int,
    keep: Literal["head", "tail", "both"] = "both",
    *,
    reference: str | None = None,
    reader: str = "read_result",
) -> str:
    """Return `text` with what is too much cut out, and a notice in its place that says how much that is.

    At most `max_chars` characters of the text stay, a few fewer where a cut would split what a reader sees as one
    character. The notice comes on top: the result is never longer than
    ``max_chars + 160 + len(reference) + len(reader)``. A text
    of at most `max_chars` characters comes back as the same object.

    Args:
        text: The whole text.
        max_chars: In characters (Unicode code points), from 1 on.
        keep: The start, the end, or as much of both.
        reference: The id under which `reader` gives the whole text; None where it is not kept.
        reader: The name of the tool that does.

    Raises:
        ConfigurationError: `max_chars` is below 1.
    """
    if max_chars < 1:
        raise ConfigurationError(f"an output can't be limited to {max_chars} characters: give at least 1")
    if len(text) <= max_chars:
        return text
    head_chars = {"head": max_chars, "tail": 0, "both": (max_chars + 1) // 2}[keep]
    start = _boundary_before(text, head_chars)
    end = _boundary_after(text, len(text) - max_chars + head_chars)
    way = f"call {reader} with id '{reference}' to read them" if reference else "ask for a smaller part to see them"
    notice = f"[... {end - start} of {len(text)} characters are left out here; {way} ...]"
    return "\n".join(part for part in (text[:start], notice, text[end:]) if part)


# A run of combining marks can be of any length: after this many steps a cut splits it.
_FURTHEST = 64
_JOINER = "\u200d"


def _boundary_before(text: str, index: int) -> int:
    for candidate in range(index, max(index - _FURTHEST, 0), -1):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if index > _FURTHEST else 0


def _boundary_after(text: str, index: int) -> int:
    for candidate in range(index, min(index + _FURTHEST, len(text))):
        if not _is_inside_character(text, candidate):
            return candidate
    return index if len(text) - index > _FURTHEST else len(text)


def _is_inside_character(text: str, index: int) -> bool:
    """Return whether a cut before `index` splits what a reader sees as one character, for all common scripts."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if after < "\u0300":
        return (before, after) == ("\r", "\n") or before == _JOINER
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the colour of a skin
        or "\U000e0020" <= after <= "\U000e007f"  # the letters of a flag
        or "\u1160" <= after <= "\u11ff"  # the later parts of a Korean syllable
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (_is_flag_letter(before) and _is_flag_letter(after) and _flag_letters_before(text, index) % 2 == 1)
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, index: int) -> int:
    start = index
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return index - start
