"""Parses arguments by a JSON Schema of somebody else, which is not trusted.

A schema is refused if it is invalid, needs the network, or could make a check run without bounds (endless references,
very many alternatives). Arguments are refused if a check could take more than a limited number of steps.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.json_text import canonical_json
from toolkit.schema.arguments import (
    ArgumentsParser,
    ArgumentsTooLargeError,
    TooMuchWorkError,
    WorkBudget,
    check_depth,
    check_text,
    decode_clearly,
    drop_nulls,
    hide_secrets,
    is_trial,
    malformed,
    may_be_deep,
    open_budget,
)
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object
from toolkit.schema.problems import WRONG_NAME, Problem, explain, find_nearest, is_wrong_inside
from toolkit.schema.raw_schema import RawSchema, measure

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_MOST_PROBLEMS = 500
_MOST_COPIES = 2_000_000  # of values, each of which the library copies in about 50 nanoseconds
_COPIES_OF_STEP = 20
_MOST_LEVELS_OF_SCHEMA = 150
_STEPS_FOR_EXAMPLES = 20_000
_MAX_DEFAULTS = 1_000
_UNFOUND_PROBLEM = Problem(
    path=(), kind="wrong", reason="It does not fit its schema; finding the place takes too long", is_always_shown=True
)


def raw_arguments(
    parameters: Mapping[str, Any], *, subject: str, formats: bool = False, fills_defaults: bool = False
) -> ArgumentsParser:
    """Return a parser for a JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12 (without ``$schema``: 2020-12).

    Values stay as JSON gave them, without coercion. A reference is followed within the schema, never fetched.

    Args:
        parameters: The schema.
        subject: Its owner, for errors.
        formats: True to check ``format``; otherwise it only informs the model.
        fills_defaults: True to fill in defaults; otherwise they only inform the model.

    Raises:
        SchemaError: The schema is broken, is not about an object, refers to elsewhere, or is too large or too deep.
    """
    return RawArguments(parameters, subject=subject, formats=formats, fills_defaults=fills_defaults)


class RawArguments:
    """Arguments as plain JSON values."""

    __slots__ = ("_fills_defaults", "_schema", "is_strict", "nodes", "schema")

    def __init__(
        self, parameters: Mapping[str, Any], *, subject: str, formats: bool = False, fills_defaults: bool = False
    ) -> None:
        self._schema = RawSchema(parameters, subject=subject, formats=formats)
        self._fills_defaults = fills_defaults and self._schema.has_defaults
        self.schema: Mapping[str, Any] = self._schema.plain
        if self.schema.get("type", "object") != "object":
            raise SchemaError(subject, f"its parameters must be of type object, not {self.schema['type']!r}")
        self.nodes: Nodes = Nodes(self.schema)
        self.is_strict: bool = False

    def parse_json(self, text: str) -> dict[str, Any]:
        """See `ArgumentsParser.parse_json`."""
        if not text.strip():
            return self.parse({})
        check_text(text)
        try:
            value = decode_clearly(text)
        except json.JSONDecodeError as error:
            is_cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
            reason = f"{error.msg} at line {error.lineno} column {error.colno}"
            raise malformed(text, reason, self.nodes, self._is_accepted, is_cut_off=is_cut_off) from None
        if may_be_deep(text):
            check_depth(value)
        return self._parse_value(value, length=len(text))

    def parse(self, value: object, *, repair: bool = True) -> dict[str, Any]:
        """See `ArgumentsParser.parse`."""
        check_depth(value)
        return self._parse_value(value, repair=repair)

    def _parse_value(self, value: object, *, repair: bool = True, length: int | None = None) -> dict[str, Any]:
        value = {} if value is None else value
        problems = self._find_problems(value, length)
        if problems:
            paths = [problem.path for problem in problems]
            without = drop_nulls(value, paths, self.nodes) if repair else None
            if without is None or self._find_problems(without):
                raise explain(problems, value, self.nodes, self._is_accepted)
            value = without
        arguments = cast("dict[str, Any]", value)
        return self._fill_in_defaults(arguments) if self._fills_defaults else arguments

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """See `ArgumentsParser.dump_json`."""
        text = canonical_json(arguments)
        return text if reveal_secrets else hide_secrets(text, arguments, self.nodes)

    def is_strict_at(self, path: JsonPath) -> bool:
        """See `ArgumentsParser.is_strict_at`."""
        del path
        return False

    def _is_accepted(self, value: object) -> bool:
        budget = WorkBudget(min(open_budget().left, _STEPS_FOR_EXAMPLES))
        try:
            return is_object(value) and self._schema.is_valid(value, budget=budget)
        except (TooMuchWorkError, RecursionError, TypeError, ValueError):
            return False

    def _find_problems(self, value: object, length: int | None = None) -> Sequence[Problem]:
        if not is_object(value):
            return [Problem(path=(), kind="wrong", reason="It must be an object")]
        try:
            if self._schema.is_valid(value, length=length):
                return ()
            return find_problems(self._schema, value) or [_UNFOUND_PROBLEM]
        except RecursionError:
            raise InvalidArgumentsError("The arguments are nested too deeply.") from None
        except TooMuchWorkError:
            if is_trial():
                raise
            raise ArgumentsTooLargeError from None
        except (TypeError, ValueError) as error:
            raise InvalidArgumentsError(f"The arguments are not JSON: {error}.") from None

    def _fill_in_defaults(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults of what was left out, as far as they are right."""
        filled = _DefaultsFiller(self.nodes).fill(value, self.nodes.root)
        return filled if filled is value or not self._find_problems(filled) else value


def find_problems(schema: RawSchema, value: object) -> list[Problem]:
    """Return the problems of a value that a schema refuses, one for each place; none if there are too many to list.

    Raises:
        TooMuchWorkError: Listing them takes more steps than the current trial allows.
    """
    found: dict[JsonPath, Problem] = {}
    copies = schema.count_copies(measure(value))
    budget = open_budget()
    if budget.is_trial:
        budget.spend(copies // _COPIES_OF_STEP)
    nodes = Nodes(schema.plain)
    errors = schema.errors(value) if copies <= _MOST_COPIES else ()
    for problem in (problem for error in errors for problem in _read_error(error, value, nodes)):
        found.setdefault(problem.path, problem)
        if len(found) > _MOST_PROBLEMS:
            break
    return list(found.values())


def _read_error(error: ValidationError, value: Any, nodes: Nodes) -> Iterator[Problem]:
    """Yield the problems that an error of the library is about."""
    kind: Any = error.kind
    path: JsonPath = tuple(error.instance_path)
    match kind.name:
        case "required":
            yield Problem(path=(*path, kind.property), kind="missing")
        case "additionalProperties" | "unevaluatedProperties":
            for name in kind.unexpected:
                yield _refuse_name((*path, name), nodes)
        case "propertyNames":
            yield Problem(path=(*path, kind.error.instance), kind="wrong", reason=WRONG_NAME)
        case "falseSchema" if path and isinstance(path[-1], str):
            yield Problem(path=path, kind="unknown")
        case "anyOf" | "oneOf" if any(kind.context):
            yield from _read_nearest(kind.context, value, path, nodes)
        case _:
            if "BacktrackLimit" in type(kind).__name__:
                reason = "To find out whether it matches the regular expression takes too long"
                yield Problem(path=path, kind="wrong", reason=reason, is_always_shown=True)
            else:
                reason = _REASONS.get(kind.name, lambda _: "")(kind)
                yield Problem(path=path, kind="wrong", reason=reason, is_constant=kind.name in ("const", "enum"))


def _refuse_name(path: JsonPath, nodes: Nodes) -> Problem:
    choices = nodes.choices(nodes.at(path[:-1]))
    patterns = [pattern for choice in choices for pattern in choice.get("patternProperties", ())]
    if not patterns:
        return Problem(path=path, kind="unknown")
    reason = "No such name is accepted; names must match " + " or ".join(patterns[:5])
    return Problem(path=path, kind="wrong", reason=reason)


def _read_nearest(
    alternatives: Sequence[Sequence[ValidationError]], value: Any, path: JsonPath, nodes: Nodes
) -> Sequence[Problem]:
    """Return the problems of the one alternative that was meant, if the value is wrong only further inside."""
    choices = [[problem for error in errors for problem in _read_error(error, value, nodes)] for errors in alternatives]
    nearest = find_nearest(choices, path, value, nodes)
    is_meant = all(is_wrong_inside([problem], path) for problem in nearest)
    return nearest if is_meant else [Problem(path=path, kind="wrong")]


_Words = Callable[[Any], str]
_REASONS: Mapping[str, _Words] = {
    "type": lambda kind: f"It must be of type {' or '.join(sorted(kind.types))}",
    "minimum": lambda kind: f"It must be at least {kind.limit}",
    "maximum": lambda kind: f"It must be at most {kind.limit}",
    "exclusiveMinimum": lambda kind: f"It must be greater than {kind.limit}",
    "exclusiveMaximum": lambda kind: f"It must be less than {kind.limit}",
    "multipleOf": lambda kind: f"It must be a multiple of {kind.multiple_of}",
    "minLength": lambda kind: f"It must have at least {kind.limit} characters",
    "maxLength": lambda kind: f"It must have at most {kind.limit} characters",
    "pattern": lambda kind: f"It must match the regular expression {kind.pattern}",
    "minItems": lambda kind: f"It must have at least {kind.limit} items",
    "maxItems": lambda kind: f"It must have at most {kind.limit} items",
    "minProperties": lambda kind: f"It must have at least {kind.limit} members",
    "maxProperties": lambda kind: f"It must have at most {kind.limit} members",
    "uniqueItems": lambda _: "Its items must all be different",
    "format": lambda kind: f"It must be of the format {kind.format}",
    "contains": lambda _: "It has too few or too many items of a kind that it must contain",
    "oneOf": lambda _: "It fits several of the alternatives, and may fit only one",
    "not": lambda _: "It is just what is excluded here",
    "falseSchema": lambda _: "Nothing is accepted here",
    "additionalItems": lambda kind: f"It must have at most {kind.limit} items",
    "unevaluatedItems": lambda _: "It has items that are not accepted",
}
"""By the keyword that refuses a value, why; in the words of a message to a model."""


class _DefaultsFiller:
    """Fills in defaults; what it changes, it copies."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._left = _MAX_DEFAULTS

    def fill(self, value: Any, node: Node, depth: int = 0) -> Any:
        if depth > _MOST_LEVELS_OF_SCHEMA:
            return value
        if is_array(value):
            inside = self._nodes.at_items(node, len(value))
            items = [self.fill(item, member, depth + 1) for item, member in zip(value, inside, strict=True)]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if not is_object(value):
            return value
        new: dict[str, Any] = {}
        for one in self._nodes.find_applying(node, value):
            properties: Node = one.get("properties", {})
            for name, member in properties.items():
                if name in value or name in new:
                    item = new.get(name, value.get(name))
                    if (filled := self.fill(item, member, depth + 1)) is not item:
                        new[name] = filled
                elif self._left > 0 and "default" in (resolved := self._nodes.resolve(member)):
                    self._left -= 1
                    new[name] = self.fill(copy.deepcopy(resolved["default"]), member, depth + 1)
        return {**value, **new} if new else value
