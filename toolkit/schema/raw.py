"""Arguments checked against a JSON Schema that we did not derive: somebody else's, so not trusted.

A schema is refused where it is broken, where checking with it could run away (endless references, alternatives without
number) or would need the network. A check takes a bounded number of steps; what would take more is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolkit.errors import InvalidArgumentsError, SchemaError
from toolkit.json_text import canonical_json
from toolkit.schema.arguments import (
    ArgumentsParser,
    check_depth,
    check_text,
    decode_clearly,
    drop_nulls,
    malformed,
    may_be_deep,
)
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_marked_secret, is_object
from toolkit.schema.problems import Problem, explain
from toolkit.schema.work import TooMuchWorkError, WorkBudget, is_trial, open_budget

__all__ = ["digest_secrets", "raw_arguments"]

_MAX_NODES = 50_000
_MOST_LEVELS_OF_SCHEMA = 150
_STEPS_FOR_EXAMPLES = 20_000
_MAX_DEFAULTS = 1_000


def raw_arguments(parameters: Mapping[str, Any], *, subject: str, formats: bool = False) -> ArgumentsParser:
    """Return a parser for any JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12 (where ``$schema`` says nothing).

    Values stay as JSON gave them, without coercion. What is left out and has a default is filled in. A reference is
    followed within the schema, never fetched.

    Args:
        parameters: The schema.
        subject: Its owner, for errors.
        formats: True where ``format`` is checked; else it only tells the model what is wanted.

    Raises:
        SchemaError: The schema is broken, is not about an object, refers to elsewhere, or is too large or too deep.
    """
    return RawArguments(parameters, subject=subject, formats=formats)


class RawArguments:
    """Arguments as plain JSON values."""

    __slots__ = ("_checker", "_has_defaults", "is_strict", "nodes", "schema")

    def __init__(self, parameters: Mapping[str, Any], *, subject: str, formats: bool = False) -> None:
        # Most tools are functions, and need none of this.
        from toolkit.schema.checker import Checker  # noqa: PLC0415
        from toolkit.schema.resources import with_plain_references  # noqa: PLC0415

        _check_schema_bounds(parameters, subject)
        # Its own copy: a schema that is changed later must not slip past what is checked here.
        try:
            schema: dict[str, Any] = json.loads(json.dumps(parameters, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise SchemaError(subject, f"its parameters are not JSON: {error}") from error
        self._checker = Checker(schema, subject=subject, formats=formats)
        if schema.get("type", "object") != "object":
            raise SchemaError(subject, f"its parameters must be of type object, not {schema['type']!r}")
        self.schema: Mapping[str, Any] = with_plain_references(
            self._checker.resources, schema, without_default=self._find_wrong_defaults()
        )
        self.nodes: Nodes = Nodes(self.schema)
        self._has_defaults = any("default" in part for part in self._checker.resources.parts())
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
            raise malformed(text, reason, self.nodes, self._is_accepted) from None
        if may_be_deep(text):
            check_depth(value)
        return self._parse_value(value)

    def parse(self, value: object, *, mend: bool = True) -> dict[str, Any]:
        """See `ArgumentsParser.parse`."""
        check_depth(value)
        return self._parse_value(value, mend=mend)

    def _parse_value(self, value: object, *, mend: bool = True) -> dict[str, Any]:
        value = {} if value is None else value
        problems = self._find_problems(value)
        if problems:
            paths = [problem.path for problem in problems]
            without = drop_nulls(value, paths, self.nodes) if mend else None
            if without is None or self._find_problems(without):
                raise InvalidArgumentsError(explain(problems, value, self.nodes, self._is_accepted))
            value = without
        arguments = cast("dict[str, Any]", value)
        return self._fill_in_defaults(arguments) if self._has_defaults else arguments

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """See `ArgumentsParser.dump_json`."""
        if not reveal_secrets and self.nodes.is_secret(self.nodes.root):
            arguments = digest_secrets(arguments, self.nodes.root, self.nodes)
        return canonical_json(arguments)

    def is_strict_at(self, path: JsonPath) -> bool:
        """See `ArgumentsParser.is_strict_at`."""
        del path
        return False

    def _is_accepted(self, value: object, part: Node | None = None) -> bool:
        budget = WorkBudget(min(open_budget().left, _STEPS_FOR_EXAMPLES))
        try:
            if part is not None:
                return self._checker.is_valid(value, part=self._checker.part(part), budget=budget)
            return is_object(value) and self._checker.is_valid(value, budget=budget)
        except (TooMuchWorkError, RecursionError):
            return False

    def _find_problems(self, value: object) -> Sequence[Problem]:
        if not is_object(value):
            return [Problem(path=(), kind="wrong", reason="It must be an object")]
        try:
            if self._checker.is_valid(value):
                return ()
            return self._checker.problems(value) or [_UNFOUND_PROBLEM]
        except RecursionError:
            raise InvalidArgumentsError("The arguments are nested too deeply.") from None
        except TooMuchWorkError:
            if is_trial():
                raise
            raise InvalidArgumentsError(
                "The arguments were refused: checking them takes too long. Send fewer or simpler values."
            ) from None

    def _fill_in_defaults(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults of what was left out, as far as they are right."""
        filled = _DefaultsFiller(self.nodes).fill(value, self.nodes.root)
        return filled if filled is value or not self._find_problems(filled) else value

    def _find_wrong_defaults(self) -> set[int]:
        """Return the ids of the schemas that don't fit their own default: it is not filled in, and never an example."""
        checker = self._checker
        return {
            id(part)
            for part in checker.resources.parts()
            if "default" in part and not self._is_accepted(part["default"], part)
        }


_UNFOUND_PROBLEM = Problem(
    path=(), kind="wrong", reason="It is not as its schema says; where takes too long to find out", is_told=True
)


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
        for one in self._nodes.that_hold(node, value):
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


def digest_secrets(value: Any, node: Node, nodes: Nodes) -> Any:
    """Return a JSON value with digests in place of what its schema says is secret."""
    from toolkit.secrets import digest_of  # noqa: PLC0415 - slow to import, and few schemas have secrets

    if value is None or not nodes.is_secret(node):
        return value
    if is_marked_secret(node) or not (is_object(value) or is_array(value)):
        return digest_of(canonical_json(value))
    if is_object(value):
        return {key: digest_secrets(item, nodes.at_key(node, key), nodes) for key, item in value.items()}
    return [digest_secrets(item, nodes.at_key(node, index), nodes) for index, item in enumerate(value)]


def _check_schema_bounds(schema: object, subject: str) -> None:
    waiting: list[tuple[object, int]] = [(schema, 0)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > _MAX_NODES:
            raise SchemaError(subject, f"its parameters are too large: more than {_MAX_NODES} values")
        if depth > _MOST_LEVELS_OF_SCHEMA:
            raise SchemaError(
                subject, f"its parameters are nested too deeply: more than {_MOST_LEVELS_OF_SCHEMA} levels"
            )
        if is_object(value):
            waiting.extend((item, depth + 1) for item in cast("Mapping[str, object]", value).values())
        elif isinstance(value, (list, tuple)):
            waiting.extend((item, depth + 1) for item in cast("Iterable[object]", value))
