"""Globs over paths, as models write them: those of ``.gitignore`` and ripgrep, with braces."""

from __future__ import annotations

import re
from collections.abc import Callable

from toolkit.builtin.path_rules import PathRules, UnreadableGlobError
from toolkit.errors import ToolFailedError
from toolkit.visible_text import escape_in_text

__all__ = ["expanded_braces", "name_pattern"]

_LONGEST_NAME_GLOB = 1_000
_MOST_ALTERNATIVES = 1_000
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def name_pattern(glob: str, parameter: str) -> Callable[[str], bool]:
    """Return what says whether a glob means a path.

    Without a slash it is a name at any depth, else a path from the folder on; a ``!`` in front negates it.

    Raises:
        ToolFailedError: It is no glob, or has more than 1,000 characters; names the parameter.
    """
    if len(glob) > _LONGEST_NAME_GLOB:
        raise ToolFailedError(
            f"The glob in the argument {parameter} has {len(glob):,} characters; "
            f"at most {_LONGEST_NAME_GLOB:,} can be read."
        )
    is_negated = glob.startswith("!")
    lines = [re.sub(r"^(?=[#!])", r"\\", line) for line in expanded_braces(glob.removeprefix("!").removeprefix("./"))]
    try:
        rules = PathRules(lines, for_contents=True, is_strict=True)
    except UnreadableGlobError as error:
        raise _refuse_glob(glob, parameter) from error
    if not rules:
        raise _refuse_glob(glob, parameter)
    return lambda path: (rules.decide(path) is True) != is_negated


def expanded_braces(text: str) -> list[str]:
    """Return the alternatives of ``a{b,c}d``: ``abd`` and ``acd``.

    Raises:
        ToolFailedError: There are too many.
    """
    texts = [text]
    while any(found := [_BRACES.search(text) for text in texts]):
        texts = [
            alternative
            for text, match in zip(texts, found, strict=True)
            for alternative in (_split_alternatives(text, match) if match else [text])
        ]
        if len(texts) > _MOST_ALTERNATIVES:
            raise ToolFailedError("The braces stand for too many alternatives. Use fewer.")
    return texts


def _refuse_glob(glob: str, parameter: str) -> ToolFailedError:
    return ToolFailedError(
        f"'{escape_in_text(glob)}' is no valid glob in the argument {parameter}. "
        "Write one like *.py, src/**/*.py or *.{js,ts}."
    )


def _split_alternatives(text: str, match: re.Match[str]) -> list[str]:
    return [f"{text[: match.start()]}{choice}{text[match.end() :]}" for choice in match[1].split(",")]
