"""Patterns of `search`: a regular expression of Python, and one for ripgrep that is never too narrow.

The dialects differ in corners (which letters are alike, what a space is, what invalid bytes match). So ripgrep only
says in which files to look, by a pattern that matches whenever Python's does; a pattern that can't be said so safely is
not given to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.builtin.file_tree import Deadline
from toolkit.errors import ToolFailedError
from toolkit.visible_text import escape_in_text

if TYPE_CHECKING:
    import regex

__all__ = ["LinePattern", "line_pattern"]

_ANY_OTHER = r"(?-u:[\x80-\xff]{1,4})"  # a character of more than one byte, or bytes that are none
_PATTERN_TOKEN = re.compile(
    r"""
      (?P<group>\(\?:|\((?!\?)|[)|])
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{]))
    | (?P<start>\^) | (?P<end>\$)
    | (?P<any>\.)
    | (?P<edge>\\b)
    | (?P<kind>\\[wWsSdD])
    | (?P<escape>\\[.^$*+?()\[\]{}|/\\\-])
    | (?P<set>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:;=<>/"'!@#%]|\\[.wsd\-])+\])
    | (?P<letter>[A-Za-z0-9_\ \t,:;=<>/"'!@\#%~`\-])
    """,
    re.VERBOSE,
)
_LONGEST_PATTERN = 1_000
_MOST_REPEATED = 20_000
_PART = re.compile(r"\\.|\{(?:\d{0,9},)?(\d{1,9})\}|.", re.DOTALL)
_WIDE_KINDS = {r"\s": r"[\s\x1c-\x1f]", r"\S": r"[\S\x1c-\x1f]"}


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern for single lines.

    Args:
        lines: For one line.
        text: For a whole text: finds something in each text in which a line matches; None where that can't be had.
        for_ripgrep: For the whole file, in ripgrep's dialect, likewise.
    """

    lines: regex.Pattern[str]
    text: regex.Pattern[str] | None
    for_ripgrep: str | None

    def matches(self, text: str, deadline: Deadline) -> list[int]:
        """Return the numbers, from 0, of the lines that match, none where time runs out: that raises `TimeoutError`."""
        if self.text is not None and self.text.search(text, timeout=deadline.left, concurrent=True) is None:
            return []
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        search = self.lines.search
        return [
            number
            for number, line in enumerate(lines)
            if search(line.removesuffix("\r"), timeout=deadline.left, concurrent=True) is not None
        ]


def line_pattern(pattern: str, *, is_literal: bool, is_case_sensitive: bool) -> LinePattern:
    """Return what to look for.

    Raises:
        ToolFailedError: It is no regular expression, or a very large one; says where it goes wrong.
    """
    import regex  # noqa: PLC0415 - an extra

    if len(pattern) > _LONGEST_PATTERN:
        raise ToolFailedError(
            f"The pattern has {len(pattern):,} characters; at most {_LONGEST_PATTERN:,} can be looked for."
        )
    source = regex.escape(pattern) if is_literal else pattern
    flags = regex.VERSION0 if is_case_sensitive else regex.VERSION0 | regex.IGNORECASE
    if "\n" in pattern:
        raise ToolFailedError("The pattern contains a line break, and lines are searched one by one. Search for one.")
    if not is_literal and _measure_pattern(pattern) > _MOST_REPEATED:
        raise ToolFailedError("The pattern repeats its parts too often. Use smaller numbers in braces, or * and +.")
    try:
        lines = regex.compile(source, flags)
        wide = _widen_pattern(re.escape(pattern) if is_literal else pattern, is_case_sensitive=is_case_sensitive)
        text = None if wide is None else regex.compile(source, flags | regex.MULTILINE)
    except regex.error as error:
        raise ToolFailedError(
            f"'{escape_in_text(pattern)}' is no valid regular expression: {error}. "
            "Mend it, or set literal to true to find it as it is."
        ) from error
    except RecursionError as error:
        raise ToolFailedError("The pattern is nested too deeply. Use fewer brackets.") from error
    return LinePattern(lines, text, wide)


def _measure_pattern(pattern: str) -> int:
    """Return about how many parts a pattern has once its counted repetitions are written out, as they are compiled."""
    sizes, last = [0], 0
    for part in _PART.finditer(pattern):
        if part[0] == "(":
            sizes.append(0)
        elif part[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif part[1] is not None:
            more = last * (max(int(part[1]), 1) - 1)
            sizes[-1] += more
            last += more
        else:
            last = 1
            sizes[-1] += 1
        if sizes[-1] > _MOST_REPEATED:
            break
    return max(sizes)


def _widen_pattern(pattern: str, *, is_case_sensitive: bool) -> str | None:
    """Return the pattern for ripgrep; None where it has something that is not known to mean the same or more there."""
    parts: list[str] = [] if is_case_sensitive else ["(?i)"]
    position = 0
    while position < len(pattern):
        token = _PATTERN_TOKEN.match(pattern, position)
        if token is None:
            return None
        parts.append(_widen_token(token.lastgroup or "", token[0], is_case_sensitive=is_case_sensitive))
        position = token.end()
    return "".join(parts)


def _widen_token(kind: str, text: str, *, is_case_sensitive: bool) -> str:
    match kind:
        case "end":
            return r"(?:\r?$)"
        case "any":
            return rf"(?:.|{_ANY_OTHER})"
        case "edge":
            return "(?:)"  # what a word is, each decides for itself
        case "kind":
            return rf"(?:{_WIDE_KINDS.get(text, text)}|{_ANY_OTHER})"
        case "set":
            return rf"(?:{text}|{_ANY_OTHER}|[\x1c-\x1f])"
        case "letter" if not is_case_sensitive and text.isalpha():
            return rf"(?:{text}|{_ANY_OTHER})"  # such as the long s and the Kelvin sign
        case _:
            return text
