"""Mistakes in tools that are legal and still make models fail: for the author, not at run time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any, cast

from toolkit.calls.handler import Registration
from toolkit.calls.permissions import Permissions
from toolkit.dataclass import dataclass
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.tools.function_tool import FunctionTool

__all__ = ["Finding", "lint", "lint_names"]

_LONGEST_DESCRIPTION = 1024
_LONGEST_SCHEMA = 8000
_ALIKE = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    Args:
        tool: The name of the tool; the pattern of a rule or the tag where no tool matches that.
        parameter: The parameter it is about, or None.
        problem: The problem, and what would be better.
    """

    tool: str
    parameter: str | None
    problem: str

    def __str__(self) -> str:
        where = self.tool if self.parameter is None else f"{self.tool}({self.parameter})"
        return f"{where}: {self.problem}"


def lint(registrations: Iterable[Registration[Any]]) -> list[Finding]:
    """Return the findings, tool by tool, then those that are about several."""
    known = list(registrations)
    findings = [finding for registration in known for finding in _of_one(registration)]
    for one, other in _find_alike(sorted(registration.name for registration in known)):
        findings.append(Finding(one, None, f"its name is easily taken for '{other}': make them more different"))
    return findings


def lint_names(permissions: Permissions | None, tags: Iterable[str], names: Iterable[str]) -> list[Finding]:
    """Return the rules and tags that match no tool.

    Args:
        permissions: Has the rules.
        tags: The tags that no tool had when a scope was made by them.
        names: The names of all tools that a rule may be about; those that a loop adds itself need not be among them.
    """
    known = list(names)
    rules = [] if permissions is None else permissions.list_unmatched([*known, *_TOOLS_OF_LOOPS])
    findings = [
        Finding(
            rule.tool_pattern,
            None,
            f"this rule to {rule.action} matches no tool{_suggest_name(rule.tool_pattern, known)}",
        )
        for rule in rules
    ]
    return [*findings, *[Finding(tag, None, "no tool has this tag, by which a scope was made") for tag in sorted(tags)]]


_TOOLS_OF_LOOPS = ("final_answer", "read_result")


def _suggest_name(pattern: str, names: Iterable[str]) -> str:
    meant = ask_whether_meant(find_similar(pattern, names, most=1))
    return f": {meant}" if meant else ""


def _find_alike(names: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of names that are easily confused."""
    pairs: list[tuple[int, int]] = []
    matcher = SequenceMatcher[str](None)
    for second, other in enumerate(names):
        matcher.set_seq2(other.lower())  # it caches what it works out about the second text
        for first in range(second):
            matcher.set_seq1(names[first].lower())
            # Of a thousand names there are half a million pairs: the bounds are quick, the ratio is not.
            if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE and matcher.ratio() > _ALIKE:
                pairs.append((first, second))
    return [(names[first], names[second]) for first, second in sorted(pairs)]


def _of_one(registration: Registration[Any]) -> Iterable[Finding]:
    definition, name = registration.definition, registration.name
    if not definition.description.strip():
        yield Finding(name, None, "it has no description: write a docstring that says when to use it and what it gives")
    elif len(definition.description) > _LONGEST_DESCRIPTION:
        yield Finding(
            name,
            None,
            f"its description has {len(definition.description)} characters, and some providers take "
            f"{_LONGEST_DESCRIPTION}: shorten it",
        )
    properties: Mapping[str, Any] = definition.parameters.get("properties", {})
    for parameter, schema in properties.items():
        if isinstance(schema, dict) and "description" not in schema:
            yield Finding(name, parameter, "it has no description: say in the docstring what to put there")
    size = len(json.dumps(definition.parameters))
    if size > _LONGEST_SCHEMA:
        yield Finding(
            name,
            None,
            f"its schema has {size} characters, which each request pays for: ask for less, or split the tool",
        )
    options, takes_context = registration.options, getattr(registration.tool, "takes_context", True)
    if (options.cache or options.should_cache) and takes_context and options.cache_key is None:
        yield Finding(name, None, "it takes a context, so nothing is cached without cache_key=lambda ctx: ...")
    tool: object = registration.tool
    if isinstance(tool, FunctionTool):
        for warning in cast("FunctionTool[Any, ..., Any]", tool).schema.warnings:
            yield Finding(name, None, warning)
