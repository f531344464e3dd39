"""Parses the arguments of a function into the types of its hints, and writes them as canonical JSON."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import (
    ErrorDetails,
    SchemaValidator,
    core_schema,
    from_json,
    to_jsonable_python,
)

from toolkit.errors import InvalidArgumentsError
from toolkit.json_text import canonical_json, make_early_validator, without_addresses
from toolkit.logs import get_logger
from toolkit.schema.arguments import (
    ArgumentsTooLargeError,
    TooMuchWorkError,
    check_depth,
    check_structures,
    check_text,
    decode_clearly,
    drop_nulls,
    hide_secrets,
    is_trial,
    malformed,
    may_be_deep,
    without_strings,
)
from toolkit.schema.fields import Fields
from toolkit.schema.json_schema import walk_core
from toolkit.schema.nodes import JsonPath, Nodes, is_array, is_object
from toolkit.schema.problems import KINDS_OF_ERRORS, Problem, explain, find_path, read_validation_errors, value_at

_TAKES_TEXT = frozenset({"string_type", "path_type"})
_REPAIRABLE = frozenset({"enum", "json_type"}) | _TAKES_TEXT
_MOST_ERRORS_READ = 500
_PLAIN_KINDS = frozenset({"str", "int", "float", "bool", "none"})
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
_LONGEST_TUPLE = 1_000
_CRASHES = (Exception, SystemExit)
# Steps of Pydantic, which holds the interpreter's lock: some 3 microseconds with the error of each, and a half without.
_FEW_STEPS = 2_000
_MOST_STEPS_WITH_ERRORS = 15_000
_MOST_STEPS = 100_000
_LONGEST_OF_RECURSION = 40  # characters
_SIMPLE_VALUES_OF_STEP = 8
# Integers beyond 2**61 and UUIDs can have the same hash: as many in a set take a time in their square.
_MAY_COLLIDE = re.compile(r"[0-9A-Fa-f-]{18,}")
_MOST_COLLISIONS = 1_000
_logger = get_logger("toolkit.schema")


class _GivenArguments(dict[str, Any]):
    """Arguments, and the JSON text that they were read from: some objects can't be written as JSON again."""

    __slots__ = ("text",)
    text: str


class TypedArguments:
    """Arguments of a function, through one compiled Pydantic validator.

    Attributes:
        is_plain: True if all arguments are texts, numbers, booleans or null; None until arguments are written as JSON.
    """

    __slots__ = (
        "_allows_any_value",
        "_dump_python",
        "_each",
        "_enums",
        "_fields",
        "_has_hashes",
        "_is_branching",
        "_longest_quick",
        "_may_hide",
        "_members",
        "_validate_json",
        "_validate_python",
        "_validate_quickly",
        "is_plain",
        "is_strict",
        "nodes",
        "schema",
    )

    def __init__(self, fields: Fields, *, strict: bool) -> None:
        self.schema: Mapping[str, Any] = fields.schema
        self.is_strict: bool = strict
        self._fields = fields
        self.nodes: Nodes = Nodes(fields.schema)
        self._allows_any_value = self.nodes.allows_any_value()
        self._members = [f'"{name}":' for name in fields.schema.get("properties", ())]
        self._enums: list[type[enum.Enum]] | None = None
        self._each: SchemaValidator | None = None
        self._dump_python: Callable[..., Any] | None = None
        self.is_plain: bool | None = None
        self._may_hide = True
        validator = fields.validator
        # The configuration makes the parameters strict; the flag also applies inside of models.
        self._validate_json: Callable[[str], dict[str, Any]] = (
            partial(validator.validate_json, strict=True) if strict else validator.validate_json
        )
        self._validate_python: Callable[[object], dict[str, Any]] = validator.validate_python
        self._validate_quickly: Callable[[str], dict[str, Any]] | None = None
        self._longest_quick = -1  # until the first text
        self._is_branching = self._has_hashes = False

    @property
    def aliases(self) -> Mapping[str, str]:
        """The names in the schema of parameters with an alias."""
        return self._fields.aliases

    @property
    def core_schema(self) -> core_schema.CoreSchema:
        """Pydantic's schema of the arguments."""
        return self._fields.core_schema

    def parse_json(self, text: str) -> dict[str, Any]:
        """See `ArgumentsParser.parse_json`."""
        validate = self._validate_json if len(text) <= self._longest_quick else self._choose_validator(text)
        try:
            arguments = validate(text)
        except _CRASHES as error:
            arguments = self._read_refused(text, error)
        # Pydantic accepts repeated names and, in fields of any type, NaN. No name is repeated if each colon follows
        # another parameter, or if there are as many names as colons.
        colons = unknown = text.count(":")
        if colons > 1 and len(self._members) <= 2 * colons:  # otherwise decoding again is quicker
            for member in self._members:
                if member in text:
                    unknown -= 1
        may_repeat_a_name = colons > 1 and unknown > 0 and len(from_json(text)) != colons
        if may_repeat_a_name or (self._allows_any_value and text and not text.isspace()):
            value = decode_clearly(text)
            if may_be_deep(text):
                check_depth(value)
        return arguments

    def _parse_text(self, text: str) -> dict[str, Any]:
        validate = self._validate_json if len(text) <= self._longest_quick else self._choose_validator(text)
        try:
            return validate(text)
        except _CRASHES as error:
            return self._read_refused(text, error)

    def _choose_validator(self, text: str) -> Callable[[str], dict[str, Any]]:
        """Return the validator for a long text: that of all problems, or one that stops at the first of each list.

        Raises:
            TooMuchWorkError: It takes more steps than the current trial allows.
            ArgumentsTooLargeError: It would take more steps than are allowed at all.
        """
        if self._longest_quick < 0:
            self._note_branches()
            if len(text) <= self._longest_quick:
                return self._validate_json
        most, least = _count_parts(text)
        if least > _MOST_STEPS and not is_trial():
            most, least = _count_parts(without_strings(text))
        if self._is_branching or least > _MOST_STEPS:
            try:
                value: object = from_json(text)
            except (ValueError, TypeError):  # the latter for half of a surrogate pair
                return self._validate_json  # which finds that out at once
            if least <= _MOST_STEPS:
                most = least = self._count_steps(value)
        if most > _FEW_STEPS and is_trial():
            raise TooMuchWorkError
        check_structures(text)
        if least > _MOST_STEPS:
            raise ArgumentsTooLargeError
        if self._has_hashes and len(_MAY_COLLIDE.findall(text)) > _MOST_COLLISIONS:
            raise ArgumentsTooLargeError(
                f"a set and the names of an object have at most {_MOST_COLLISIONS:,} UUIDs or numbers of 18 digits."
            )
        if most <= _MOST_STEPS_WITH_ERRORS:
            return self._validate_json
        if self._validate_quickly is None:
            validator = make_early_validator(self._fields.core_schema)
            self._validate_quickly = partial(validator.validate_json, strict=self.is_strict or None)
        return self._validate_quickly

    def _note_branches(self) -> None:
        """Find out, at the first text, how long one may be whose steps need not be counted, and which are stored."""
        parts = list(walk_core(self._fields.core_schema))
        if any(part["type"].startswith("function-") for part in parts):
            self._validate_json = partial(_validate_and_keep, self._validate_json)
        choices = sum(len(part["choices"]) for part in parts if part["type"] == "union")
        self._is_branching = choices > 0
        self._has_hashes = any(map(_is_hashed, parts))
        is_recursive = any(part["type"] == "definition-ref" for part in parts)
        self._longest_quick = _LONGEST_OF_RECURSION if choices and is_recursive else _FEW_STEPS // (choices or 1)

    def _count_steps(self, value: object) -> int:
        try:
            return count_steps(self._fields.core_schema, value)
        except RecursionError:
            return _MOST_STEPS + 1

    def _read_refused(self, text: str, error: Exception | SystemExit) -> dict[str, Any]:
        """Repair refused arguments, or raise the refusal of Pydantic or the unexpected error of a validator."""
        if isinstance(error, ValidationError):
            return self._repair_or_refuse(text, error)
        check_text(text)
        raise self._explain_crash(_decode_text(text), error) from None

    def parse(self, value: object, *, repair: bool = True) -> dict[str, Any]:
        """See `ArgumentsParser.parse`."""
        value = {} if value is None else self._drop_opaque_defaults(value)
        check_depth(value)
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            text = None
        if text is not None and repair:
            return self._parse_text(text)
        try:
            return self._validate_python(value) if text is None else self._validate_json(text)
        except ValidationError as error:
            raise self._describe_errors(error.errors(include_url=False), value) from None
        except _CRASHES as error:
            raise self._explain_crash(value, error) from None

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """See `ArgumentsParser.dump_json`."""
        plain: Any = self._drop_opaque_defaults(arguments) if self._fields.opaque_defaults else arguments
        if self.is_plain is None:
            self.is_plain = _is_made_of_plain(self._fields.core_schema)
            self._may_hide = self.nodes.may_take_secrets
        if self.is_plain:
            text = canonical_json(plain, reveal_secrets=reveal_secrets)
            return text if reveal_secrets or not self._may_hide else hide_secrets(text, None, self.nodes)
        plain, is_complete = self._make_plain(plain)
        if not is_complete and isinstance(arguments, _GivenArguments):
            plain = self._restore_given(arguments, plain)
        text = canonical_json(plain, reveal_secrets=reveal_secrets)
        return text if reveal_secrets or not self._may_hide else hide_secrets(text, None, self.nodes)

    def _make_plain(self, arguments: Any) -> tuple[Any, bool]:
        """Return arguments with the parts that JSON can say as their types say it, and whether there are no others."""
        others: list[object] = []

        def keep(value: object) -> object:
            others.append(value)
            return value

        try:
            if self._dump_python is None:
                self._dump_python = self._fields.serializer.to_python
            plain = self._dump_python(arguments, warnings=False, round_trip=True, by_alias=True, fallback=keep)
        except Exception:
            _logger.warning("the arguments of a call could not be serialized as their types say", exc_info=True)
            return arguments, False
        return plain, not others

    def _restore_given(self, arguments: _GivenArguments, plain: Any) -> dict[str, Any]:
        """Return arguments with what was given in place of the objects that JSON can't say."""
        given: dict[str, Any] = from_json(arguments.text or "{}")
        restored = dict(plain)
        for name, value in arguments.items():
            written, is_complete = self._make_plain({name: value})
            key = next((each for each in (name, self.aliases.get(name, name)) if each in given), None)
            if not is_complete and key is not None:
                restored.pop(name, None)
                restored.pop(next(iter(written), name), None)
                restored[key] = given[key]
        return restored

    def is_strict_at(self, path: JsonPath) -> bool:
        """See `ArgumentsParser.is_strict_at`."""
        return self.is_strict or is_strict_at(self._fields.core_schema, path)

    def _drop_opaque_defaults(self, value: object) -> object:
        """Leave out defaults that are not JSON, such as sentinels."""
        opaque = self._fields.opaque_defaults
        if not opaque or not is_object(value):
            return value
        nothing = object()
        return {name: item for name, item in value.items() if opaque.get(name, nothing) is not item}

    def _repair_or_refuse(self, text: str, error: ValidationError) -> dict[str, Any]:
        """Repair refused arguments, such as an empty text or names of enum members, or raise the problems."""
        check_text(text)
        if error.error_count() > _MOST_STEPS_WITH_ERRORS:
            raise ArgumentsTooLargeError from None
        stripped = text.strip()
        if stripped in ("", "null"):
            return self._parse_text("{}")
        problems = error.errors(include_url=False, include_input=False)
        if problems[0]["type"] == "json_invalid" and not problems[0]["loc"]:
            reason = problems[0].get("ctx", {}).get("error", "")
            is_cut_off = reason.startswith("EOF")
            raise malformed(text, reason, self.nodes, self._is_accepted, is_cut_off=is_cut_off) from None
        value = _decode_text(text)
        if (repaired := self._repair_values(value, problems, text)) is not None:
            try:
                return self._validate_json(json.dumps(repaired))
            except ValidationError as still_wrong:
                problems, value = still_wrong.errors(include_url=False, include_input=False), repaired
            except _CRASHES as crash:
                raise self._explain_crash(repaired, crash) from None
        raise self._describe_errors(problems, value) from None

    def _describe_errors(self, details: Sequence[ErrorDetails], value: Any) -> InvalidArgumentsError:
        omitted = len(details) - _MOST_ERRORS_READ
        if omitted > 0:
            details = sorted(details, key=lambda detail: detail["type"] not in KINDS_OF_ERRORS)[:_MOST_ERRORS_READ]
        problems = read_validation_errors([self._name_tags(detail) for detail in details], value, self.nodes)
        return explain(problems, value, self.nodes, self._is_accepted, omitted=max(0, omitted))

    def _name_tags(self, detail: ErrorDetails) -> ErrorDetails:
        """Return an error with the known tags, if it is about a union with a discriminator function."""
        function = str(detail.get("ctx", {}).get("discriminator", ""))
        if not function.endswith("()"):
            return detail
        unions = (part for part in walk_core(self._fields.core_schema) if part.get("type") == "tagged-union")
        named = (union for union in unions if getattr(union["discriminator"], "__name__", "") == function[:-2])
        tags = dict.fromkeys(
            json.dumps(getattr(tag, "value", tag), default=str) for union in named for tag in union["choices"]
        )
        return {**detail, "msg": f"It must be one of these kinds: {', '.join(tags)}"} if tags else detail

    def _explain_crash(self, value: Any, error: Exception | SystemExit) -> InvalidArgumentsError:
        """Return the refusal of arguments on which code of the author failed unexpectedly."""
        _logger.warning("a validator failed with %s instead of refusing", type(error).__name__, exc_info=error)
        if not is_object(value):
            return explain([Problem(path=(), kind="wrong")], value, self.nodes, self._is_accepted)
        required: list[str] = self.schema.get("required", [])
        found = [Problem(path=(name,), kind="missing") for name in required if name not in value]
        for name, item in value.items():
            found += self._find_problems_of_one(name, item)
        found = found or [_describe_crash(error, ())]
        refusal = explain(found, value, self.nodes, self._is_accepted)
        refusal.crash = error if any(problem.is_crash for problem in found) else None
        return refusal

    def _find_problems_of_one(self, name: str, item: Any) -> list[Problem]:
        """Return the problems of a single argument."""
        if self._each is None:
            self._each = SchemaValidator(_drop_required(self._fields.core_schema))
        value = {name: item}
        try:
            try:
                text = json.dumps(value)
            except (TypeError, ValueError):
                self._each.validate_python(value)
            else:
                self._each.validate_json(text, strict=self.is_strict or None)
        except ValidationError as error:
            return read_validation_errors(
                error.errors(include_url=False, include_input=False)[:_MOST_ERRORS_READ], value, self.nodes
            )
        except _CRASHES as error:
            return [_describe_crash(error, (name,))]
        return []

    def _repair_values(self, value: Any, problems: Sequence[ErrorDetails], text: str) -> Any | None:
        """Drop nulls of optional parameters; unless strict, accept enum names, and numbers as texts.

        Returns None if none of that applies.
        """
        if "null" not in text:
            problems = [problem for problem in problems if problem["type"] in _REPAIRABLE]
        paths = [find_path(problem["loc"], value) for problem in problems]
        is_repaired = not self.is_strict and self._correct_values(value, problems, paths, text)
        without = drop_nulls(value, paths, self.nodes)
        return value if without is None and is_repaired else without

    def _correct_values(
        self, value: Any, problems: Sequence[ErrorDetails], paths: Sequence[JsonPath], text: str
    ) -> bool:
        """Correct each problem of `value` with an obvious solution; return whether there was any."""
        as_written: Any = None
        strict_at: dict[JsonPath, bool] = {}
        is_repaired = False
        for problem, path in zip(problems, paths, strict=True):
            came = value_at(value, path) if path else None
            meant: Any = None
            if problem["type"] == "enum" and isinstance(came, str):
                meant = self._find_member(came, problem.get("ctx", {}).get("expected", ""))
            elif problem["type"] in _TAKES_TEXT and isinstance(came, (int, float)) and not isinstance(came, bool):
                # As a number, 1.10 would lose a digit.
                as_written = as_written or json.loads(text, parse_int=str, parse_float=str)
                # A strict path is refused as a text.
                is_strict = problem["type"] != "path_type" and self._is_strict_like(path, strict_at)
                meant = None if is_strict else value_at(as_written, path)
            elif problem["type"] == "json_type" and came is not None:
                meant = json.dumps(came)  # JSON that should be in a string
            if meant is not None:
                is_repaired = True
                value_at(value, path[:-1])[path[-1]] = meant
        return is_repaired

    def _is_strict_like(self, path: JsonPath, known: dict[JsonPath, bool]) -> bool:
        """Return `is_strict_at`, computed once for all late items of a list, beyond any tuple."""
        like = tuple([min(key, _LONGEST_TUPLE) if isinstance(key, int) else key for key in path])
        if like not in known:
            known[like] = self.is_strict_at(like)
        return known[like]

    def _find_member(self, name: str, expected: str) -> Any:
        if self._enums is None:
            self._enums = list(dict.fromkeys(_find_enums(self._fields.core_schema)))
        for found in self._enums:
            if not all(repr(member.value) in expected for member in found):
                continue
            short = name.removeprefix(f"{found.__name__}.")
            for candidate in (short, *(own for own in found.__members__ if own.casefold() == short.casefold())):
                if candidate in found.__members__:
                    return to_jsonable_python(found.__members__[candidate].value)
        return None

    def _is_accepted(self, value: Any) -> bool:
        try:
            self._validate_json(json.dumps(value))
        except _CRASHES:
            return False
        return True


def _decode_text(text: str) -> Any:
    try:
        return decode_clearly(text)
    except json.JSONDecodeError:  # which Pydantic accepts
        return from_json(text)


def _describe_crash(error: Exception | SystemExit, path: JsonPath) -> Problem:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Problem(path=path, kind="wrong", reason=without_addresses(words), is_crash=True)


def _drop_required(schema: Any) -> core_schema.CoreSchema:
    """Return the schema of all arguments with every argument optional."""
    if schema["type"] == "definitions":
        inner = _drop_required(schema["schema"])
        return cast("core_schema.CoreSchema", {**schema, "schema": inner})
    if schema["type"] != "typed-dict":
        return cast("core_schema.CoreSchema", schema)
    fields = {name: {**field, "required": False} for name, field in schema["fields"].items()}
    return cast("core_schema.CoreSchema", {**schema, "fields": fields})


def _find_enums(schema: Any) -> list[type[enum.Enum]]:
    found = [part.get("cls") for part in walk_core(schema) if part.get("type") == "enum"]
    return [cls for cls in found if isinstance(cls, type)]


def _validate_and_keep(validate: Callable[[str], dict[str, Any]], text: str) -> dict[str, Any]:
    arguments = _GivenArguments(validate(text))
    arguments.text = text
    return arguments


def _is_made_of_plain(schema: Any) -> bool:
    """Return whether all arguments are texts, numbers, booleans or null, which need no serializer."""
    if schema["type"] != "typed-dict" or not schema.keys() <= {"type", "fields", "config", "metadata"}:
        return False
    if schema.get("config", {}).get("extra_fields_behavior") != "forbid":
        return False
    for field in schema["fields"].values():
        if not field.keys() <= {"type", "schema", "required", "metadata"}:  # but has an alias, say
            return False
        inner = field["schema"]
        while inner["type"] in ("default", "nullable") and "serialization" not in inner:
            if "default_factory" in inner or type(inner.get("default")) not in _PLAIN_TYPES:
                return False
            inner = inner["schema"]
        if inner["type"] not in _PLAIN_KINDS or "serialization" in inner:
            return False
    return True


_MOST_WRAPPERS = 50
# The keys between a field and the type of its value in a core schema.
_INNER = ("schema", "lax_schema", "json_schema")
_INSIDE = ("items_schema", "fields", "values_schema", "extras_schema")


def is_strict_at(schema: Any, path: JsonPath) -> bool:
    """Return whether a core schema, or one of its alternatives, is strict about the value at a path."""
    definitions = {part.get("ref"): part for part in schema.get("definitions", ())}
    found = [(schema, False)]
    for key in path:
        found = [
            inner
            for part, is_strict in found
            for unwrapped in _unwrap_core(part, is_strict, definitions)
            for inner in _step_inside(*unwrapped, key)
        ]
    return any(is_strict for part, outer in found for _, is_strict in _unwrap_core(part, outer, definitions))


def _unwrap_core(part: Any, is_strict: bool, definitions: dict[Any, Any]) -> Iterator[tuple[Any, bool]]:
    waiting = [(part, is_strict)]
    for _ in range(_MOST_WRAPPERS):
        if not waiting:
            return
        part, is_strict = waiting.pop()
        config: Any = part.get("config") or {}
        is_strict = part.get("strict", config.get("strict", is_strict)) is True
        inner = [part[key] for key in _INNER if is_object(part.get(key)) and "type" in part[key]]
        inner += [definitions[part["schema_ref"]]] if part.get("schema_ref") in definitions else []
        inner += _list_choices(part)
        if inner and part["type"] != "json":
            waiting += [(one, is_strict) for one in inner]
        else:
            yield part, is_strict


def _list_choices(part: Any) -> list[Any]:
    choices: Any = part.get("choices", part.get("steps", ()))
    listed = list(choices.values()) if is_object(choices) else list(choices)
    return [choice[0] if isinstance(choice, tuple) else choice for choice in listed]


def _step_inside(part: Any, is_strict: bool, key: str | int) -> list[tuple[Any, bool]]:
    # Strictness of a list or an object applies to its parts only if it is set by a `config`.
    outer = is_strict and "strict" not in part
    if isinstance(key, int):
        items = part.get("items_schema")
        if is_array(items):
            items = items[key] if key < len(items) else None
        return [(items, outer)] if items is not None else []
    fields: Any = part.get("fields", ())
    named = fields if is_object(fields) else {field["name"]: field for field in fields}
    inner = named.get(key) or next((field for field in named.values() if field.get("validation_alias") == key), None)
    inner = inner or part.get("values_schema") or part.get("extras_schema")
    return [(inner, outer)] if is_object(inner) else []


def _is_hashed(part: Mapping[str, Any]) -> bool:
    """Return whether values become members of a set or names of an object that may be no texts."""
    if part["type"] in ("set", "frozenset"):
        return bool(part.get("items_schema", {}).get("type") != "str")
    return part["type"] == "dict" and part.get("keys_schema", {}).get("type", "any") not in ("any", "str")


def _count_parts(text: str) -> tuple[int, int]:
    """Return how many values the JSON of a text may have, and about how many simple values take as long as they all."""
    structures, commas = text.count("{") + text.count("[") + text.count(":"), text.count(",")
    return structures + commas, structures + commas // _SIMPLE_VALUES_OF_STEP


def count_steps(schema: Any, value: object) -> int:
    """Return how many values Pydantic validates: one that may have several forms is validated as each of them.

    Raises:
        RecursionError: It is nested too deeply.
    """
    definitions = {part["ref"]: part for part in walk_core(schema) if "ref" in part}
    shapes: dict[int, tuple[list[Any], bool]] = {}
    known: dict[tuple[int, int], int] = {}
    decoded: list[object] = []  # an id is used again as soon as its object is gone

    def shape_of(part: Any) -> tuple[list[Any], bool]:
        """Return the parts that validate the same value, and whether others validate what is in it."""
        here = [part[key] for key in _INNER if is_object(part.get(key)) and "type" in part[key]]
        here += [definitions[part["schema_ref"]]] if part["type"] == "definition-ref" else _list_choices(part)
        return here, not part.keys().isdisjoint(_INSIDE)

    def count(part: Any, value: Any) -> int:
        place = id(part), id(value) if type(value) in (dict, list, str) and value else 0
        if place not in known:
            shape = shapes.get(id(part))
            here, goes_inside = shapes[id(part)] = shape_of(part) if shape is None else shape
            if part["type"] == "json" and isinstance(value, str):
                with suppress(ValueError):
                    value = from_json(value)
                    decoded.append(value)
            counts = [count(inner, value) for inner in here]
            if goes_inside and (is_object(value) or is_array(value)):
                members: list[tuple[Any, Any]] = list(value.items() if is_object(value) else enumerate(value))
                counts += [count(inner, item) for key, item in members for inner, _ in _step_inside(part, False, key)]
            known[place] = max(counts) if part["type"] == "tagged-union" else sum(counts) or 1
        return known[place]

    return count(schema, value)
