"""The keywords of JSON Schema that say something of one value by itself, and what each may be set to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from toolkit.dataclass import dataclass
from toolkit.schema.formats import FORMATS
from toolkit.schema.nodes import ALL_TYPES, Node, is_array, is_object, types_of
from toolkit.schema.patterns import compile_pattern
from toolkit.schema.work import WorkBudget

__all__ = ["ASSERTIONS", "Assertion", "check_operand", "exact", "same_as"]


def is_number(value: object) -> bool:
    """Return whether a value is a number in JSON's sense."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def exact(number: float) -> Fraction:
    """Return a number as what its digits say."""
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))


def same_as(value: Any) -> Any:
    """Return what is equal for equal values of JSON, and can be hashed: true is not 1, and 1 is 1.0."""
    if isinstance(value, bool):
        return ("truth", value)
    if is_array(value):
        return ("list", tuple(same_as(item) for item in value))
    if is_object(value):
        return ("object", frozenset((name, same_as(item)) for name, item in value.items()))
    return value


def _size_of(value: Any) -> int:
    """Return about how many values a value holds."""
    count = 0
    waiting = [value]
    while waiting:
        part: Any = waiting.pop()
        count += 1
        if is_object(part):
            waiting.extend(part.values())
        elif is_array(part):
            waiting.extend(part)
    return count


@dataclass(frozen=True, slots=True)
class Assertion:
    """A keyword about one value.

    Args:
        concerns: Of which values it says something.
        prepare: Makes what the keyword is set to ready to compare with.
        holds: A function that says whether a value satisfies the keyword.
        words: The value that was expected, in words.
    """

    concerns: Callable[[Any], bool]
    prepare: Callable[[Any], Any]
    holds: Callable[[Any, Any, WorkBudget], bool]
    words: Callable[[Any], str]


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_anything(value: object) -> bool:  # noqa: ARG001
    return True


def _keep_operand(operand: Any) -> Any:
    return operand


def _is_one_of(value: Any, keys: Any, budget: WorkBudget) -> bool:
    if is_array(value) or is_object(value):
        budget.spend(_size_of(value))
    return same_as(value) in keys


def _is_different(value: Any, operand: bool, budget: WorkBudget) -> bool:
    if not operand:
        return True
    budget.spend(_size_of(value))
    return len({same_as(item) for item in value}) == len(value)


def _make_limit(concerns: Callable[[Any], bool], compare: Callable[[Any, Any], bool], words: str) -> Assertion:
    return Assertion(concerns, _keep_operand, lambda value, limit, _: compare(value, limit), words.format)


def _is_multiple(value: Any, step: Fraction, budget: WorkBudget) -> bool:
    budget.spend(5)
    return exact(value) % step == 0


ASSERTIONS: Mapping[str, Assertion] = {
    "type": Assertion(
        _is_anything,
        lambda kinds: frozenset(kinds if is_array(kinds) else [kinds]),
        lambda value, kinds, _: not kinds.isdisjoint(types_of(value)),
        lambda kinds: f"It must be of type {' or '.join(kinds) if is_array(kinds) else kinds}",
    ),
    "enum": Assertion(_is_anything, lambda values: {same_as(one) for one in values}, _is_one_of, lambda _: ""),
    "const": Assertion(_is_anything, lambda value: {same_as(value)}, _is_one_of, lambda _: ""),
    "minimum": _make_limit(is_number, lambda value, limit: value >= limit, "It must be at least {}"),
    "maximum": _make_limit(is_number, lambda value, limit: value <= limit, "It must be at most {}"),
    "exclusiveMinimum": _make_limit(is_number, lambda value, limit: value > limit, "It must be greater than {}"),
    "exclusiveMaximum": _make_limit(is_number, lambda value, limit: value < limit, "It must be less than {}"),
    "multipleOf": Assertion(is_number, exact, _is_multiple, "It must be a multiple of {}".format),
    "minLength": _make_limit(
        _is_string, lambda value, limit: len(value) >= limit, "It must have at least {} characters"
    ),
    "maxLength": _make_limit(
        _is_string, lambda value, limit: len(value) <= limit, "It must have at most {} characters"
    ),
    "pattern": Assertion(
        _is_string,
        compile_pattern,
        lambda value, matches, budget: matches(value, budget),
        "It must match the regular expression {}".format,
    ),
    "minItems": _make_limit(is_array, lambda value, limit: len(value) >= limit, "It must have at least {} items"),
    "maxItems": _make_limit(is_array, lambda value, limit: len(value) <= limit, "It must have at most {} items"),
    "uniqueItems": Assertion(is_array, _keep_operand, _is_different, lambda _: "Its items must all be different"),
    "minProperties": _make_limit(
        is_object, lambda value, limit: len(value) >= limit, "It must have at least {} members"
    ),
    "maxProperties": _make_limit(
        is_object, lambda value, limit: len(value) <= limit, "It must have at most {} members"
    ),
    "format": Assertion(
        _is_string,
        lambda name: FORMATS.get(name) if isinstance(name, str) else None,
        lambda value, check, budget: check is None or _is_of_format(value, check, budget),
        "It must be of the format {}".format,
    ),
}


def _is_of_format(value: str, check: Callable[[str], bool], budget: WorkBudget) -> bool:
    budget.spend(1 + len(value) // 50)
    return check(value)


def _is_count(operand: Any) -> bool:
    return is_number(operand) and operand >= 0 and operand == int(operand)


def _is_schema(operand: object) -> bool:
    return isinstance(operand, bool) or is_object(operand)


def _is_list_of_schemas(operand: object) -> bool:
    return is_array(operand) and bool(operand) and all(map(_is_schema, operand))


def _is_items_list(operand: object) -> bool:
    return is_array(operand) and all(map(_is_schema, operand))


def _is_map_of_schemas(operand: object) -> bool:
    return is_object(operand) and all(map(_is_schema, operand.values()))


def _is_list_of_texts(operand: object) -> bool:
    return is_array(operand) and all(isinstance(item, str) for item in operand)


def _is_truth(operand: object) -> bool:
    return isinstance(operand, bool)


def _is_type(operand: object) -> bool:
    kinds = operand if is_array(operand) else [operand]
    return bool(kinds) and all(isinstance(kind, str) and kind in ALL_TYPES for kind in kinds)


_ONE_SCHEMA = (_is_schema, "a schema")
_SCHEMA_LIST = (_is_list_of_schemas, "a list of one or more schemas")
_SCHEMA_MAP = (_is_map_of_schemas, "an object of schemas")
_WHOLE_NUMBER = (_is_count, "a whole number of 0 or more")
_NUMBER_OPERAND = (is_number, "a number")
_ONE_TEXT = (_is_string, "a string")
_TRUE_OR_FALSE = (_is_truth, "true or false")
_TEXT_LIST = (_is_list_of_texts, "a list of strings")
_OPERANDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, "one or more of " + ", ".join(sorted(ALL_TYPES))),
    "enum": (is_array, "a list"),
    "multipleOf": (lambda operand: is_number(operand) and operand > 0, "a number greater than 0"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER_OPERAND),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _WHOLE_NUMBER
    ),
    **dict.fromkeys(("minContains", "maxContains"), _WHOLE_NUMBER),
    **dict.fromkeys(("pattern", "format", "$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor"), _ONE_TEXT),
    **dict.fromkeys(("title", "description", "$comment", "$schema", "$dynamicAnchor"), _ONE_TEXT),
    **dict.fromkeys(("uniqueItems", "$recursiveAnchor"), _TRUE_OR_FALSE),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _SCHEMA_LIST),
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"), _ONE_SCHEMA),
    **dict.fromkeys(("additionalItems", "unevaluatedItems", "unevaluatedProperties"), _ONE_SCHEMA),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), _SCHEMA_MAP),
    "items": _ONE_SCHEMA,
    "required": _TEXT_LIST,
    "dependentRequired": (
        lambda operand: is_object(operand) and all(map(_is_list_of_texts, operand.values())),
        "an object of lists of strings",
    ),
    "dependencies": (
        lambda operand: (
            is_object(operand) and all(_is_schema(one) or _is_list_of_texts(one) for one in operand.values())
        ),
        "an object of schemas or lists of strings",
    ),
}


def check_operand(keyword: str, node: Node, draft: int) -> str | None:
    """Return what a keyword of a schema would have to be set to; None where it is right, or unknown."""
    operand = node[keyword]
    if draft == 4 and keyword in {"exclusiveMinimum", "exclusiveMaximum"}:
        known: tuple[Callable[[Any], bool], str] = _TRUE_OR_FALSE
    elif keyword == "items" and draft < 2020 and is_array(operand):
        known = (_is_items_list, "a list of schemas")
    elif keyword in _OPERANDS:
        known = _OPERANDS[keyword]
    else:
        return None
    return None if known[0](operand) else known[1]
