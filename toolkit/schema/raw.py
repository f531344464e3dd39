"""Arguments checked against a JSON Schema that we did not derive: somebody else's, so not trusted.

A schema is refused where checking with it could run away (endless references, alternatives without number) or would
need the network. Formats are words for the model; they are not checked.

The checking is `jsonschema`'s. Where `jsonschema-rs` is installed (the extra ``fast``) it lets valid arguments pass at
once; what it refuses is checked again for the words. Patterns are matched in linear time by the engine that Pydantic
has; those that only Python's `re` can read (they look ahead or behind, or back to a group) may backtrack without end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from pydantic_core import SchemaError as PatternError, SchemaValidator, core_schema

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.schema.arguments import ArgumentsParser, check_text, decode_clearly, drop_nulls, malformed
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object, subschemas
from toolkit.schema.problems import Problem, explain

__all__ = ["raw_arguments"]

# What Python's engine and the linear one take in different ways.
_READ_OTHERWISE = re.compile(r"&&|--|~~|\\[<>]|\\b\{")
_MAX_NODES = 50_000
_MAX_DEPTH = 150
_MAX_EXPANSION = 20_000
_SAID_BY_THE_SCHEMA = frozenset(
    {"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
     "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "anyOf", "oneOf"}
)  # fmt: skip
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("not", "if", "then", "else")


def raw_arguments(parameters: Mapping[str, Any], *, subject: str) -> ArgumentsParser:
    """Return a parser for any JSON Schema of draft 2020-12 or 7 (2020-12 where ``$schema`` says nothing).

    Values stay as JSON gave them, without coercion. A reference is followed within the schema, never fetched.

    Raises:
        SchemaError: The schema is broken, is not about an object, refers to elsewhere, or is too large or too deep.
    """
    return RawArguments(parameters, subject=subject)


class RawArguments:
    """Arguments as plain JSON values."""

    __slots__ = ("_is_surely_valid", "_nodes", "_validator", "is_strict", "schema")

    def __init__(self, parameters: Mapping[str, Any], *, subject: str) -> None:
        import jsonschema  # noqa: PLC0415 - slow to import, and most tools are functions
        import referencing  # noqa: PLC0415
        from jsonschema.validators import validator_for  # noqa: PLC0415

        _check_bounds(parameters, subject)
        # Its own copy: a schema that is changed later must not slip past what is checked here.
        try:
            schema: dict[str, Any] = json.loads(json.dumps(parameters))
        except (TypeError, ValueError) as error:
            raise SchemaError(subject, f"its parameters are not JSON: {error}") from error
        kind = cast("Any", validator_for)(schema, default=jsonschema.Draft202012Validator)
        try:
            if not _is_surely_schema(schema, kind):
                kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise SchemaError(
                subject, f"its parameters are no JSON Schema, at {error.json_path}: {error.message}"
            ) from error
        if schema.get("type", "object") != "object":
            raise SchemaError(subject, f"its parameters must be of type object, not {schema['type']!r}")
        _check_references(schema, subject)
        nothing_outside = cast("Any", referencing.Registry)()
        self._validator: Any = _with_linear_patterns(kind)(schema, registry=nothing_outside)
        self._is_surely_valid = _fast_check(schema, kind.__name__)
        self._nodes = Nodes(schema)
        self.schema: Mapping[str, Any] = schema
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
            reason = f"{'EOF: ' if is_cut_off else ''}{error.msg} at line {error.lineno} column {error.colno}"
            raise malformed(text, reason, self._nodes, self._accepts) from None
        return self.parse(value)

    def parse(self, value: object, *, mend: bool = True) -> dict[str, Any]:
        """See `ArgumentsParser.parse`."""
        value = {} if value is None else value
        problems = self._problems(value)
        if problems:
            paths = [problem.path for problem in problems]
            without = drop_nulls(value, paths, self._nodes) if mend else None
            if without is not None and not self._problems(without):
                return cast("dict[str, Any]", without)
            raise InvalidArgumentsError(explain(problems, value, self._nodes, self._accepts))
        return cast("dict[str, Any]", value)

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """See `ArgumentsParser.dump_json`."""
        del reveal_secrets  # plain JSON has no secrets of its own
        return json.dumps(arguments, sort_keys=True, separators=(",", ":"))

    def is_strict_at(self, path: JsonPath) -> bool:
        """See `ArgumentsParser.is_strict_at`."""
        del path
        return False

    def _accepts(self, value: object) -> bool:
        return not self._problems(value)

    def _problems(self, value: object) -> list[Problem]:
        if not is_object(value):
            return [Problem(path=(), kind="wrong")]
        if self._is_surely_valid is not None and self._is_surely_valid(value):
            return []
        try:
            found: dict[JsonPath, Problem] = {}
            for error in self._validator.iter_errors(value):
                for problem in _problems_of(error, self._nodes):
                    found.setdefault(problem.path, problem)
        except RecursionError:
            raise InvalidArgumentsError("The arguments are nested too deeply.") from None
        return list(found.values())


def _fast_check(schema: Node, draft: str) -> Callable[[object], bool] | None:
    """Return a quick check whose yes counts, or None where it can't be had: not installed, or not for this schema."""
    try:
        import jsonschema_rs  # noqa: PLC0415 - optional
    except ImportError:
        return None
    kind: Any = getattr(jsonschema_rs, draft, None)
    if kind is None:
        return None
    try:
        is_valid = kind(schema, validate_formats=False, offline=True).is_valid
    except ValueError:  # a pattern that only Python's `re` can read, say
        return None

    def check(value: object) -> bool:
        try:
            return bool(is_valid(value)) and _is_shallow(value)
        except ValueError:  # it gave up, on a number or a depth that it can't hold
            return False

    return check


@cache
def _with_linear_patterns(kind: Any) -> Any:
    """Return a kind of validator that takes no more time for a pattern than the text is long."""
    from jsonschema import ValidationError, validators  # noqa: PLC0415 - slow to import

    def pattern(_: Any, wanted: str, instance: object, __: Node) -> Iterator[Any]:
        if isinstance(instance, str) and not _matcher(wanted)(instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, patterns: Node, instance: object, _: Node) -> Iterator[Any]:
        if is_object(instance):
            for wanted, node in patterns.items():
                matches = _matcher(wanted)
                for name, value in instance.items():
                    if matches(name):
                        yield from validator.descend(value, node, path=name, schema_path=wanted)

    return cast("Any", validators).extend(kind, {"pattern": pattern, "patternProperties": pattern_properties})


@lru_cache(maxsize=1_000)
def _matcher(pattern: str) -> Callable[[str], object]:
    """Return what says whether a pattern is found in a text."""
    if _READ_OTHERWISE.search(pattern) is None:
        try:
            return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
        except PatternError:
            pass
    return re.compile(pattern).search


def _is_surely_schema(schema: Node, kind: Any) -> bool:
    """Whether a quick check, where it is installed, finds nothing wrong: a thousand times as fast as the other."""
    check = _fast_meta_check(kind)
    return check is not None and check(schema) and all(map(_is_pattern, _patterns(schema)))


@cache
def _fast_meta_check(kind: Any) -> Callable[[object], bool] | None:
    return _fast_check(kind.META_SCHEMA, kind.__name__)


def _patterns(schema: Node) -> Iterator[object]:
    for part in _all_parts(schema):
        yield part.get("pattern", "")
        yield from part.get("patternProperties", ())


def _is_pattern(pattern: object) -> bool:
    # The quick check knows other patterns than `re`, by which values are checked.
    try:
        re.compile(str(pattern))
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _is_shallow(value: object) -> bool:
    """Whether what follows can walk through the value by recursion."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [item for part in level for item in _items(part)]
        if not level:
            return True
    return False


def _items(value: object) -> Iterable[object]:
    if is_object(value):
        return value.values()
    return value if is_array(value) else ()


def _problems_of(error: Any, nodes: Nodes) -> Iterator[Problem]:
    path: JsonPath = tuple(error.absolute_path)
    match error.validator:
        case "required":
            for name in cast("list[str]", error.validator_value):
                if name not in error.instance:
                    yield Problem(path=(*path, name), kind="missing")
        case "additionalProperties" | "unevaluatedProperties" if error.validator_value is False:
            known: Node = error.schema.get("properties", {})
            patterns = nodes.resolve(error.schema).get("patternProperties", {})
            if error.validator == "unevaluatedProperties" or patterns:
                yield Problem(path=path, kind="wrong", reason=_short(error.message))
                return
            for name in error.instance:
                if name not in known:
                    yield Problem(path=(*path, name), kind="unknown")
        case _:
            node = nodes.at(path)
            says_enough = error.validator in _SAID_BY_THE_SCHEMA and nodes.describe(node)
            is_secret = nodes.is_secret(node)
            yield Problem(path=path, kind="wrong", reason="" if says_enough or is_secret else _short(error.message))


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}"


def _check_bounds(schema: object, subject: str) -> None:
    waiting: list[tuple[object, int]] = [(schema, 0)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > _MAX_NODES:
            raise SchemaError(subject, f"its parameters are too large: more than {_MAX_NODES} values")
        if depth > _MAX_DEPTH:
            raise SchemaError(subject, f"its parameters are nested too deeply: more than {_MAX_DEPTH} levels")
        if is_object(value):
            waiting.extend((item, depth + 1) for item in cast("Mapping[str, object]", value).values())
        elif isinstance(value, (list, tuple)):
            waiting.extend((item, depth + 1) for item in cast("Sequence[object]", value))


def _check_references(schema: Node, subject: str) -> None:
    """Refuse references to elsewhere or to nothing, and those that lead back to themselves without taking a step."""
    nodes = Nodes(schema)
    names = {name for part in _all_parts(schema) for name in _own_names(part)}
    costs: dict[int, int] = {}
    for part in _all_parts(schema):
        for keyword in ("$ref", "$dynamicRef"):
            reference = part.get(keyword)
            if not isinstance(reference, str) or reference in names or reference == "#":
                continue
            if not reference.startswith("#"):
                raise SchemaError(
                    subject, f"it refers to {reference!r}, which is never fetched: put what it means into $defs"
                )
            if not reference.startswith("#/") or not nodes.has(reference):
                raise SchemaError(subject, f"it refers to {reference!r}, which is not in it")
    for part in _all_parts(schema):
        if _cost(part, nodes, costs, (), subject) > _MAX_EXPANSION:
            raise SchemaError(subject, "its alternatives and references multiply without bounds")


def _all_parts(schema: Node) -> Iterator[Node]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(subschemas(part))


def _own_names(part: Node) -> Iterator[str]:
    for keyword, prefix in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
        if isinstance(name := part.get(keyword), str):
            yield prefix + name


def _cost(part: Node, nodes: Nodes, costs: dict[int, int], inside: tuple[int, ...], subject: str) -> int:
    """Count the schemas that are tried on one and the same value."""
    if id(part) in inside or len(inside) > _MAX_DEPTH:
        raise SchemaError(subject, "a reference in it leads back to itself: it could never be checked")
    if id(part) in costs:
        return costs[id(part)]
    inside = (*inside, id(part))
    members: list[Any] = [member for keyword in _IN_PLACE for member in part.get(keyword, ())]
    members += [part[keyword] for keyword in _IN_PLACE_ONE if keyword in part]
    reference = part.get("$ref")
    if isinstance(reference, str) and nodes.has(reference):
        members.append(nodes.target(reference))
    cost = 1 + sum(_cost(member, nodes, costs, inside, subject) for member in members if is_object(member))
    costs[id(part)] = cost
    return cost
