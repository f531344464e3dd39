"""Globs over paths in the dialect of ``.gitignore``, matched in time that grows with the path alone.

Globs come from models and from repositories. Python's own regular expressions, which `pathspec` makes of them, can take
time that grows without bound with the path: so `re2` matches what `pathspec` has read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, cast

__all__ = ["PathRules", "UnreadableGlobError"]

_LONGEST_GLOB = 1_000
_MOST_RULE_LINES = 2_000
_RULES_A_SET = 200  # one automaton for too many rules would outgrow its memory
_SET_BYTES = 32_000_000
_FOLDER_MARK = "(?P<ps_d>/)"  # by which pathspec marks what is in a folder that matches


class UnreadableGlobError(ValueError):
    """A line is no glob."""


class _RuleSet(Protocol):
    """A ``re2.Set``, which has no types of its own."""

    def Add(self, pattern: str) -> int: ...  # noqa: N802 - named by re2
    def Compile(self) -> None: ...  # noqa: N802
    def Match(self, text: str) -> Sequence[int] | None: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rules that are matched together, each with what it says."""

    leaves_out: tuple[bool, ...]
    rules: _RuleSet


class PathRules:
    """The lines of a ``.gitignore``: of those that match a path the last one decides.

    Args:
        lines: The lines as they are written. A line of more than 1,000 characters is none, and lines after the first
            2,000 are not read.
        for_contents: True where a line that names a folder speaks of all that is in it, too.
        is_strict: True where a line that is no glob raises; else it is passed over, as git does.

    Raises:
        UnreadableGlobError: A line is no glob, and `is_strict`.
    """

    __slots__ = ("_batches",)

    def __init__(self, lines: Iterable[str], *, for_contents: bool, is_strict: bool = False) -> None:
        rules: list[tuple[bool, str]] = []
        for line in islice(lines, _MOST_RULE_LINES):
            try:
                rules += _read_line(line, for_contents=for_contents)
            except UnreadableGlobError:
                if is_strict:
                    raise
        self._batches = tuple(
            _compile_rules(rules[start : start + _RULES_A_SET]) for start in range(0, len(rules), _RULES_A_SET)
        )

    def __bool__(self) -> bool:
        return bool(self._batches)

    def decide(self, path: str) -> bool | None:
        """Return True for what a line names, False for what one with ``!`` lets in again; None where none matches."""
        text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for batch in reversed(self._batches):
            matching = batch.rules.Match(text)
            if matching:
                return batch.leaves_out[max(matching)]
        return None


def _read_line(line: str, *, for_contents: bool) -> list[tuple[bool, str]]:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - an extra

    if len(line) > _LONGEST_GLOB:
        raise UnreadableGlobError(line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of classes in brackets, which re reads in another way
            patterns = GitIgnoreSpec.from_lines([line], backend="simple").patterns
    except (ValueError, re.error) as error:
        raise UnreadableGlobError(line) from error
    found: list[tuple[bool, str]] = []
    for pattern in patterns:
        compiled = cast("re.Pattern[str] | None", pattern.regex)  # pyright: ignore[reportUnknownMemberType]
        if pattern.include is not None and compiled is not None:
            source = compiled.pattern
            if not for_contents and _FOLDER_MARK in source:
                source = rf"(?:{source})\z"
            source = source.replace(_FOLDER_MARK, "/")
            _check_source(source, line)
            found.append((pattern.include, source))
    return found


def _check_source(source: str, line: str) -> None:
    """Make sure that `re2` reads a pattern alone: in a set it does not say which one is wrong."""
    re2 = _load_re2()
    try:
        re2.compile(source, _make_options())
    except re2.error as error:
        raise UnreadableGlobError(line) from error


def _compile_rules(rules: Sequence[tuple[bool, str]]) -> _Batch:
    compiled: _RuleSet = _load_re2().Set.SearchSet(_make_options())
    for _, source in rules:
        compiled.Add(source)
    compiled.Compile()
    return _Batch(tuple(leaves_out for leaves_out, _ in rules), compiled)


def _load_re2() -> Any:
    import re2  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415 - an extra

    return re2


def _make_options() -> Any:
    options = _load_re2().Options()
    options.log_errors = False
    options.max_mem = _SET_BYTES
    return options
