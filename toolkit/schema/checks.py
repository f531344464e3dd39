"""The checks that a compiled JSON Schema is made of: of one value, in one run, which counts its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias

from toolkit.schema.nodes import Node, is_array, is_object
from toolkit.schema.patterns import Matcher
from toolkit.schema.problems import WRONG_NAME, Problem
from toolkit.schema.work import WorkBudget

__all__ = [
    "ANYTHING", "Check", "CheckRun", "CompiledSchema", "EnoughProblemsError", "Marks", "NEVER", "UNKNOWN_NAME",
    "check_items", "check_members", "check_other_items", "check_other_members", "choose", "contain", "exclude",
    "fit_all", "fit_any", "fit_one", "name_members", "require", "schema_of",
]  # fmt: skip

_MOST_PROBLEMS_NOTED = 1_000
_Kind: TypeAlias = Literal["wrong", "missing", "unknown"]


class EnoughProblemsError(Exception):
    """More problems were found than anybody reads."""


class Marks:
    """The members and items of one value that some part of a schema has said something about."""

    __slots__ = ("items", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.items: set[int] = set()

    def add(self, other: Marks) -> None:
        """Mark what another has marked."""
        self.names |= other.names
        self.items |= other.items


class CheckRun:
    """One check of one value; with `problems` it looks for all of them, without it stops at the first."""

    __slots__ = ("budget", "path", "problems", "scope")

    def __init__(self, budget: WorkBudget, problems: list[Problem] | None = None) -> None:
        self.budget = budget
        self.problems = problems
        self.path: list[str | int] = []
        self.scope: list[str] = []

    def refuse(self, reason: str = "", *, kind: _Kind = "wrong", key: str | int | None = None) -> bool:
        """Note a problem of the value at hand, or under a key of it; return False."""
        if self.problems is not None:
            path = (*self.path, key) if key is not None else tuple(self.path)
            self.problems.append(Problem(path=path, kind=kind, reason=reason))
            if len(self.problems) > _MOST_PROBLEMS_NOTED:
                raise EnoughProblemsError
        return False

    def descend(self, part: CompiledSchema, value: Any, key: str | int) -> bool:
        """Check what stands under a key."""
        self.path.append(key)
        fits = part.check(value, self, None)
        self.path.pop()
        return fits

    def fits(self, part: CompiledSchema, value: Any, marks: Marks | None = None) -> bool:
        """Check without noting any problem."""
        problems, self.problems = self.problems, None
        try:
            return part.check(value, self, marks)
        finally:
            self.problems = problems

    def refuse_nearest(self, parts: Sequence[CompiledSchema], value: Any) -> bool:
        """Note the problems of the one alternative that is nearest to right: it is wrong only further inside."""
        if self.problems is None:
            return False
        noted = self.problems
        best: list[Problem] | None = None
        for part in parts:
            found: list[Problem] = []
            self.problems = found
            part.check(value, self, None)
            depth = len(self.path)
            is_inside = all(len(problem.path) > depth for problem in found)
            if is_inside and (best is None or len(found) < len(best)):
                best = found
        self.problems = noted
        if best is None:
            return self.refuse()
        noted += best
        return False


Check: TypeAlias = Callable[[Any, CheckRun, Marks | None], bool]


class CompiledSchema:
    """One schema of a document, compiled."""

    __slots__ = ("base", "checks", "in_place", "late", "node")

    def __init__(self, node: Node, base: str) -> None:
        self.node = node
        self.base = base
        self.checks: list[Check] = []
        self.late: list[Check] = []  # of what no other has said anything about
        self.in_place: list[CompiledSchema] = []  # those that look at the same value

    def check(self, value: Any, run: CheckRun, marks: Marks | None) -> bool:
        """Return whether a value is as the schema says."""
        run.budget.spend(1 + len(self.checks))
        moves = bool(run.scope) and run.scope[-1] != self.base
        if moves:
            run.scope.append(self.base)
        own = Marks() if self.late else marks
        fits = True
        for check in (*self.checks, *self.late) if self.late else self.checks:
            if not check(value, run, own):
                fits = False
                if run.problems is None:
                    break
        if moves:
            run.scope.pop()
        if fits and marks is not None and own is not None and own is not marks:
            marks.add(own)
        return fits


def schema_of(check: Check) -> CompiledSchema:
    """Return a schema that is one check."""
    part = CompiledSchema({}, "")
    part.checks.append(check)
    return part


ANYTHING = CompiledSchema({}, "")
NEVER = schema_of(lambda _value, run, _marks: run.refuse("Nothing is accepted here"))
UNKNOWN_NAME = schema_of(lambda _value, run, _marks: run.refuse(kind="unknown"))


def require(names: Sequence[str]) -> Check:
    """Return the check that an object has all of these names."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:  # noqa: ARG001
        if not is_object(value):
            return True
        run.budget.spend(len(names))
        fits = True
        for name in names:
            if name not in value:
                fits = run.refuse(kind="missing", key=name)
                if run.problems is None:
                    return False
        return fits

    return check


def name_members(part: CompiledSchema) -> Check:
    """Return the check that each name of an object fits a schema."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:  # noqa: ARG001
        fits = True
        if is_object(value):
            for name in value:
                if not run.fits(part, name):
                    fits = run.refuse(WRONG_NAME, key=name)
                    if run.problems is None:
                        return False
        return fits

    return check


def check_members(
    named: Mapping[str, CompiledSchema],
    patterns: Sequence[tuple[Matcher, CompiledSchema]],
    others: CompiledSchema | None,
) -> Check:
    """Return the check of an object: of each member by its name, by the patterns its name matches, else by one schema.

    Args:
        named: The schemas of names.
        patterns: The schemas of the names that match a pattern.
        others: The schema of all other members; None where nothing is said of them.
    """

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        if not is_object(value):
            return True
        fits = True
        run.budget.spend(len(value))
        for name, item in value.items():
            parts = [named[name]] if name in named else []
            parts += [part for matches, part in patterns if matches(name, run.budget)]
            if not parts and others is not None:
                parts = [others]
            for part in parts:
                fits = run.descend(part, item, name) and fits
            if parts and marks is not None:
                marks.names.add(name)
            if not fits and run.problems is None:
                return False
        return fits

    return check


def check_items(first: Sequence[CompiledSchema], rest: CompiledSchema | None) -> Check:
    """Return the check of a list: of its first items each by its own schema, of the rest by one."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        if not is_array(value):
            return True
        fits = True
        parts = first if rest is None else chain(first, repeat(rest))
        for index, (part, item) in enumerate(zip(parts, value)):  # noqa: B905 - as many as there are of both
            fits = run.descend(part, item, index) and fits
            if not fits and run.problems is None:
                return False
        if marks is not None:
            marks.items.update(range(len(value) if rest is not None else min(len(first), len(value))))
        return fits

    return check


def contain(part: CompiledSchema, least: int, most: int | None, *, marks_items: bool) -> Check:
    """Return the check that a list has so many items that fit a schema."""
    counted = f"at least {least}" if most is None else f"{least} to {most}"

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        if not is_array(value):
            return True
        found = [index for index, item in enumerate(value) if run.fits(part, item)]
        if marks is not None and marks_items:
            marks.items.update(found)
        if len(found) >= least and (most is None or len(found) <= most):
            return True
        return run.refuse(f"It has {len(found)} items of a kind of which it must have {counted}")

    return check


def fit_all(parts: Sequence[CompiledSchema]) -> Check:
    """Return the check that a value fits all of some schemas."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        fits = True
        for part in parts:
            if not part.check(value, run, marks):
                fits = False
                if run.problems is None:
                    break
        return fits

    return check


def _count_fitting(
    parts: Sequence[CompiledSchema], value: Any, run: CheckRun, marks: Marks | None, *, enough: int
) -> int:
    """Count the alternatives that a value fits, up to as many as are enough."""
    count = 0
    for part in parts:
        inner = None if marks is None else Marks()
        if run.fits(part, value, inner):
            count += 1
            if marks is not None and inner is not None:
                marks.add(inner)
            elif count == enough:
                break
    return count


def fit_any(parts: Sequence[CompiledSchema]) -> Check:
    """Return the check that a value fits one or more of some schemas."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        return _count_fitting(parts, value, run, marks, enough=1) > 0 or run.refuse_nearest(parts, value)

    return check


def fit_one(parts: Sequence[CompiledSchema]) -> Check:
    """Return the check that a value fits exactly one of some schemas."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        count = _count_fitting(parts, value, run, marks, enough=2)
        if count > 1:
            return run.refuse("It fits several of the alternatives, and may fit only one")
        return count == 1 or run.refuse_nearest(parts, value)

    return check


def choose(condition: CompiledSchema, then: CompiledSchema, otherwise: CompiledSchema) -> Check:
    """Return the check by one of two schemas, as a third decides."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        inner = None if marks is None else Marks()
        if not run.fits(condition, value, inner):
            return otherwise.check(value, run, marks)
        if marks is not None and inner is not None:
            marks.add(inner)
        return then.check(value, run, marks)

    return check


def check_other_members(part: CompiledSchema) -> Check:
    """Return the check of the members that nothing else has said anything about."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        fits = True
        if is_object(value) and marks is not None:
            for name in [name for name in value if name not in marks.names]:
                fits = run.descend(part, value[name], name) and fits
                marks.names.add(name)
                if not fits and run.problems is None:
                    return False
        return fits

    return check


def check_other_items(part: CompiledSchema) -> Check:
    """Return the check of the items that nothing else has said anything about."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        fits = True
        if is_array(value) and marks is not None:
            for index in [index for index in range(len(value)) if index not in marks.items]:
                fits = run.descend(part, value[index], index) and fits
                marks.items.add(index)
                if not fits and run.problems is None:
                    return False
        return fits

    return check


def exclude(part: CompiledSchema) -> Check:
    """Return the check that a value does not fit a schema."""

    def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
        inner = None if marks is None else Marks()
        return not run.fits(part, value, inner) or run.refuse("It is just what is excluded here")

    return check
