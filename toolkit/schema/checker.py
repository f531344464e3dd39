"""A JSON Schema compiled to checks, for values that somebody else sends and schemas that somebody else wrote.

Each check takes its steps from a budget, so no schema and no value takes longer than that. Mistakes in a schema are
found when it is compiled, and named with their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from toolkit.errors import SchemaError
from toolkit.schema.checks import (
    ANYTHING,
    NEVER,
    UNKNOWN_NAME,
    Check,
    CheckRun,
    CompiledSchema,
    EnoughProblemsError,
    Marks,
    check_items,
    check_members,
    check_other_items,
    check_other_members,
    choose,
    contain,
    exclude,
    fit_all,
    fit_any,
    fit_one,
    name_members,
    require,
    schema_of,
)
from toolkit.schema.keywords import ASSERTIONS, Assertion, check_operand
from toolkit.schema.nodes import Node, is_array, is_object
from toolkit.schema.patterns import Matcher, PatternError, compile_pattern
from toolkit.schema.problems import Problem
from toolkit.schema.resources import Place, Resources, applies
from toolkit.schema.work import TooMuchWorkError, WorkBudget, open_budget

__all__ = ["Checker"]

_MAX_LINKS = 150
_STEPS_FOR_PROBLEMS = 50_000
_MAX_EXPANSION = 20_000


class Checker:
    """Checks values against one schema document.

    Args:
        schema: Plain JSON, which nobody changes.
        subject: Its owner, for errors.
        formats: True where ``format`` is checked, and not only told.

    Raises:
        SchemaError: The schema is broken, refers to elsewhere, or could never be checked.
    """

    def __init__(self, schema: Node, *, subject: str, formats: bool = False) -> None:
        self.resources = Resources(schema, subject)
        self._subject = subject
        self._formats = formats
        self._parts: dict[int, CompiledSchema] = {}
        self._waiting: list[CompiledSchema] = []
        self._root = self.part(schema)
        compiled = 0
        while self._waiting or compiled < len(self.resources.parts()):
            while self._waiting:
                self._compile_part(self._waiting.pop())
            # Also those that nothing leads to yet: what is wrong with them is said now.
            for node in self.resources.parts()[compiled:]:
                compiled += 1
                self.part(node)
        self._check_costs()

    def part(self, schema: Any, *, otherwise: CompiledSchema = NEVER) -> CompiledSchema:
        """Return the compiled form of a schema of the document; `otherwise` stands for ``false``."""
        if not is_object(schema):
            return ANYTHING if schema is True else otherwise
        found = self._parts.get(id(schema))
        if found is None:
            found = self._parts[id(schema)] = CompiledSchema(schema, self.resources.place_of(schema).base)
            self._waiting.append(found)
        return found

    def is_valid(self, value: object, *, part: CompiledSchema | None = None, budget: WorkBudget | None = None) -> bool:
        """Return whether a value is as the schema says.

        Raises:
            TooMuchWorkError: It takes more steps than it may.
            RecursionError: It is nested too deeply.
        """
        return self._run_check(value, None, part or self._root, budget or open_budget())

    def problems(self, value: object) -> list[Problem]:
        """Return what is wrong with a value, as far as that is found in as many steps."""
        found: list[Problem] = []
        with suppress(EnoughProblemsError, TooMuchWorkError):
            self._run_check(value, found, self._root, WorkBudget(min(_STEPS_FOR_PROBLEMS, open_budget().left)))
        by_path: dict[tuple[str | int, ...], Problem] = {}
        for problem in found:
            by_path.setdefault(problem.path, problem)
        return list(by_path.values())

    def _run_check(
        self, value: object, problems: list[Problem] | None, part: CompiledSchema, budget: WorkBudget
    ) -> bool:
        run = CheckRun(budget, problems)
        if self.resources.has_dynamic_references:
            run.scope.append(part.base)
        return part.check(value, run, None)

    def _compile_part(self, part: CompiledSchema) -> None:
        node, place = part.node, self.resources.place_of(part.node)
        if place.draft <= 7 and isinstance(node.get("$ref"), str):
            part.checks.append(self._make_reference(part, "$ref", place))
            return
        for keyword in node:
            if applies(keyword, place.draft) and (right := check_operand(keyword, node, place.draft)) is not None:
                raise self._make_error(place, keyword, f"{_shorten_value(node[keyword])} is not {right}")
        for keyword, assertion in ASSERTIONS.items():
            if keyword in node and applies(keyword, place.draft) and (keyword != "format" or self._formats):
                part.checks += self._make_assertion(keyword, assertion, node, place)
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in node and applies(keyword, place.draft):
                part.checks.append(self._make_reference(part, keyword, place))
        part.checks += self._make_object_checks(node, place)
        part.checks += self._make_array_checks(node, place)
        part.checks += self._make_in_place_checks(part, node, place)
        part.late += self._make_late_checks(node, place)

    def _make_error(self, place: Place, keyword: str, reason: str) -> SchemaError:
        return SchemaError(self._subject, f"its parameters are no JSON Schema, at {place.path}.{keyword}: {reason}")

    def _make_assertion(self, keyword: str, assertion: Assertion, node: Node, place: Place) -> list[Check]:
        operand = node[keyword]
        if place.draft == 4 and keyword.startswith("exclusive"):
            operand = node.get("minimum" if keyword == "exclusiveMinimum" else "maximum")
            if node[keyword] is False or operand is None:
                return []
        try:
            prepared = assertion.prepare(operand)
        except PatternError as error:
            raise self._make_error(place, keyword, f"{_shorten_value(operand)} can't be read: {error}") from None
        reason = assertion.words(operand)
        concerns, holds = assertion.concerns, assertion.holds

        def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:  # noqa: ARG001
            return not concerns(value) or holds(value, prepared, run.budget) or run.refuse(reason)

        return [check]

    def _make_reference(self, part: CompiledSchema, keyword: str, place: Place) -> Check:
        reference: str = part.node[keyword]
        found = self.resources.resolve(reference, place)
        target = self.part(found)
        name = reference.rpartition("#")[2]
        is_dynamic = is_object(found) and (
            (keyword == "$dynamicRef" and found.get("$dynamicAnchor") == name and bool(name))
            or (keyword == "$recursiveRef" and found.get("$recursiveAnchor") is True)
        )
        if not is_dynamic:
            part.in_place.append(target)
            return target.check

        def check(value: Any, run: CheckRun, marks: Marks | None) -> bool:
            outermost = self._find_outermost(target, name if keyword == "$dynamicRef" else None, run.scope)
            return outermost.check(value, run, marks)

        return check

    def _find_outermost(self, target: CompiledSchema, name: str | None, scope: Sequence[str]) -> CompiledSchema:
        """Return what a dynamic reference leads to, from where the check has come."""
        if name is not None:
            nodes = (self.resources.anchored(base, name) for base in scope)
            return next((self.part(node) for node in nodes if node is not None), target)
        for base in reversed(scope):
            node = self.resources.root_of(base)
            if not is_object(node) or node.get("$recursiveAnchor") is not True:
                break
            target = self.part(node)
        return target

    def _make_matcher(self, pattern: str, place: Place) -> Matcher:
        try:
            return compile_pattern(pattern)
        except PatternError as error:
            raise self._make_error(
                place, "patternProperties", f"{_shorten_value(pattern)} can't be read: {error}"
            ) from None

    def _make_object_checks(self, node: Node, place: Place) -> list[Check]:
        checks: list[Check] = []
        if required := node.get("required"):
            checks.append(require(list(dict.fromkeys(required))))
        if node.keys() & {"properties", "patternProperties", "additionalProperties"}:
            checks.append(self._make_member_check(node, place))
        if "propertyNames" in node and applies("propertyNames", place.draft):
            checks.append(name_members(self.part(node["propertyNames"])))
        needs: dict[str, Any] = dict(node.get("dependencies", {}))
        for keyword in ("dependentRequired", "dependentSchemas"):
            if applies(keyword, place.draft):
                checks += [self._make_dependency(name, need) for name, need in node.get(keyword, {}).items()]
        checks += [self._make_dependency(name, need) for name, need in needs.items()]
        return checks

    def _make_dependency(self, name: str, need: Any) -> Check:
        inner = require(need) if is_array(need) else self.part(need).check
        return lambda value, run, marks: not is_object(value) or name not in value or inner(value, run, marks)

    def _make_member_check(self, node: Node, place: Place) -> Check:
        named = {name: self.part(part, otherwise=UNKNOWN_NAME) for name, part in node.get("properties", {}).items()}
        patterns = [
            (self._make_matcher(pattern, place), self.part(part))
            for pattern, part in node.get("patternProperties", {}).items()
        ]
        others = None
        if "additionalProperties" in node:
            names_fit = "No such name is accepted; names must match " + " or ".join(
                list(node.get("patternProperties", ()))[:5]
            )
            refused = schema_of(lambda _value, run, _marks: run.refuse(names_fit)) if patterns else UNKNOWN_NAME
            others = self.part(node["additionalProperties"], otherwise=refused)
        return check_members(named, patterns, others)

    def _make_array_checks(self, node: Node, place: Place) -> list[Check]:
        checks: list[Check] = []
        first: Any = node.get("prefixItems") if place.draft >= 2020 else None
        rest: Any = node.get("items")
        if is_array(rest):
            first, rest = rest, node.get("additionalItems")
        if first or rest is not None:
            checks.append(
                check_items([self.part(part) for part in first or ()], None if rest is None else self.part(rest))
            )
        if "contains" in node and applies("contains", place.draft):
            has_limits = place.draft >= 2019
            least = node.get("minContains", 1) if has_limits else 1
            most = node.get("maxContains") if has_limits else None
            checks.append(contain(self.part(node["contains"]), least, most, marks_items=place.draft >= 2020))
        return checks

    def _make_in_place_checks(self, part: CompiledSchema, node: Node, place: Place) -> list[Check]:
        checks: list[Check] = []
        for keyword, check in (("allOf", fit_all), ("anyOf", fit_any), ("oneOf", fit_one)):
            if keyword in node:
                parts = [self.part(member) for member in node[keyword]]
                part.in_place += parts
                checks.append(check(parts))
        if "not" in node:
            excluded = self.part(node["not"])
            part.in_place.append(excluded)
            checks.append(exclude(excluded))
        if "if" in node and applies("if", place.draft):
            parts = [self.part(node[keyword]) if keyword in node else ANYTHING for keyword in ("if", "then", "else")]
            part.in_place += parts
            checks.append(choose(*parts))
        return checks

    def _make_late_checks(self, node: Node, place: Place) -> list[Check]:
        checks: list[Check] = []
        if "unevaluatedProperties" in node and applies("unevaluatedProperties", place.draft):
            checks.append(check_other_members(self.part(node["unevaluatedProperties"], otherwise=UNKNOWN_NAME)))
        if "unevaluatedItems" in node and applies("unevaluatedItems", place.draft):
            checks.append(check_other_items(self.part(node["unevaluatedItems"])))
        return checks

    def _check_costs(self) -> None:
        """Refuse what leads back to itself without taking a step, and alternatives without number."""
        costs: dict[int, int] = {}
        for part in self._parts.values():
            if self._count_cost(part, costs, set()) > _MAX_EXPANSION:
                raise SchemaError(self._subject, "its alternatives and references multiply without bounds")

    def _count_cost(self, part: CompiledSchema, costs: dict[int, int], inside: set[int]) -> int:
        """Count the schemas that are tried on one and the same value."""
        if id(part) in costs:
            return costs[id(part)]
        if id(part) in inside:
            raise SchemaError(self._subject, "a reference in it leads back to itself: it could never be checked")
        if len(inside) > _MAX_LINKS:
            raise SchemaError(self._subject, f"more than {_MAX_LINKS} of its references lead on to each other")
        inside.add(id(part))
        cost = 1 + sum(self._count_cost(member, costs, inside) for member in part.in_place)
        inside.discard(id(part))
        costs[id(part)] = cost
        return cost


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
