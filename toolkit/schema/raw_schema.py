"""A JSON Schema that somebody else wrote, so not trusted: its references, the work that it can cause, its compilation.

jsonschema-rs checks values against it. That library has no bound on work and holds the interpreter's lock, so what a
check can cost at most is computed here, from the schema and the size of the value, before it runs. Nothing is fetched:
a reference leads to a part of the same document, or to the schemas of JSON Schema itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin

from toolkit.dataclass import dataclass
from toolkit.errors import SchemaError
from toolkit.schema.arguments import MAX_DEPTH, TooMuchWorkError, WorkBudget, open_budget
from toolkit.schema.nodes import (
    ALL_TYPES,
    SCHEMA_KEYWORDS,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    Node,
    is_array,
    is_object,
    types_of,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

__all__ = ["RawSchema"]

_NEWEST_DRAFT = 2020
_DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    "json-schema.org/draft-03/schema": 3,
}
_STANDARD = ("https://json-schema.org/", "http://json-schema.org/")
# The first and the last draft that know a keyword; the others are in all of them.
_KNOWN_FROM = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "dependentRequired": 2019,
    "dependentSchemas": 2019, "unevaluatedItems": 2019, "unevaluatedProperties": 2019, "minContains": 2019,
    "maxContains": 2019, "$anchor": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019, "prefixItems": 2020,
    "$dynamicRef": 2020, "$dynamicAnchor": 2020, "contentSchema": 2019,
}  # fmt: skip
_KNOWN_TO = {"additionalItems": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019}
_HOLDING_SCHEMAS = frozenset({*SCHEMA_MAPS, *SCHEMA_LISTS, *SCHEMA_KEYWORDS})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# They say nothing about values, and published schemas get them wrong.
_UNCHECKED = frozenset(
    {"default", "example", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"}
)
_TYPE_AND_WORDS = frozenset({"type", "default", "title", "description"})
_PYTHON_END = re.compile(r"(?<!\\)((?:\\\\)*)\\Z")
_BACKTRACK_LIMIT = 100_000
_MOST_VALUES = 50_000
_MOST_LEVELS = 150
_MOST_LINKS = 150
_MOST_EXPANSION = 20_000
_LONGEST_PATTERN = 50_000
_MOST_STATES = 500_000
_MOST_STATES_WITH_LOOKAROUND = 10_000
_MOST_STEPS_AT_ONCE = 200_000
_STEPS_NOT_WORTH_MEASURING = 5_000
_MOST_LETTERS_ESTIMATED = 20_000
_MOST_WAYS_FOLLOWED = 50_000
_PLAIN_URI = "urn:toolkit:schema"
# What each keyword must be set to, for errors; in the words of JSON Schema elsewhere.
_OPERANDS: Mapping[str, str] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "a number"),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), "a whole number of 0 or more"),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), "a whole number of 0 or more"),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor"), "a string"),
    **dict.fromkeys(("format", "title", "description", "$comment", "$schema"), "a string"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "a list of one or more schemas"),
    **dict.fromkeys((*SCHEMA_KEYWORDS, "items"), "a schema"),
    **dict.fromkeys((*SCHEMA_MAPS, "$defs"), "an object of schemas"),
    "uniqueItems": "true or false",
    "required": "a list of strings",
    "dependentRequired": "an object of lists of strings",
    "enum": "a list",
    "multipleOf": "a number greater than 0",
    "type": "one or more of " + ", ".join(sorted(ALL_TYPES)),
}


class RawSchema:
    """Checks values against one schema document, of draft 4, 6, 7, 2019-09 or 2020-12.

    Args:
        schema: JSON; it is copied, so that what is changed later does not slip past what is checked here.
        subject: Its owner, for errors.
        formats: True where ``format`` is checked; else it only describes.

    Attributes:
        plain: The same schema with each reference written as a pointer from its root, in the words of the newest draft:
            for looking into it. A default that its own schema refuses is left out.
        has_defaults: True where some part of it has a default.

    Raises:
        SchemaError: The schema is broken, refers to elsewhere, or could cost any amount of work to check.
    """

    __slots__ = ("_bound", "_formats", "_parts", "_registry", "_validator", "has_defaults", "plain")

    def __init__(self, schema: Mapping[str, Any], *, subject: str, formats: bool = False) -> None:
        copied = _copy_json(schema, subject)
        document = _Document(copied, subject)
        self._formats = formats
        self._bound = _WorkBound(document)
        self._parts: dict[str, Validator] = {}
        self._registry: Any = None
        self.plain: dict[str, Any] = document.write_plainly()
        has_defaults = any("default" in part for part in document.parts)
        _prepare_for_library(document)
        self._validator = self._compile(copied, document)
        self.has_defaults = has_defaults and _drop_wrong_defaults(self, self.plain)

    def is_valid(self, value: object, *, length: int | None = None, budget: WorkBudget | None = None) -> bool:
        """Return whether the schema accepts a value.

        Args:
            value: Decoded JSON.
            length: The length of its JSON text, where that is known: what is short is not measured.
            budget: Steps that may be taken; by default those of the call.

        Raises:
            TooMuchWorkError: It could take more steps than that.
            RecursionError: It is nested too deeply.
            TypeError, ValueError: It is not JSON.
        """
        budget = budget or open_budget()
        if budget.left < 0:  # a check of the same call was given up: no other is begun
            raise TooMuchWorkError
        steps = None if length is None else self._bound.estimate(length)
        if steps is None or steps > _STEPS_NOT_WORTH_MEASURING:
            steps = self._bound.count_steps(measure(value))
        budget.spend(steps if steps <= _MOST_STEPS_AT_ONCE else max(steps, budget.left + 1))
        return self._validator.is_valid(value)

    def errors(self, value: object, pointer: str = "") -> Iterator[ValidationError]:
        """Yield the library's errors; each holds a copy of what it is about, so only for small values."""
        return (self.part(pointer) if pointer else self._validator).iter_errors(value)

    def count_visits(self, size: Size) -> int:
        """Return how many times, at most, some part of the schema looks at some part of a value of a size.

        Raises:
            TooMuchWorkError: It takes too many steps to count.
        """
        return self._bound.count_visits(size)

    def part(self, pointer: str) -> Validator:
        """Return the validator of the part of `plain` at a JSON pointer.

        Raises:
            ValueError: There is none.
        """
        from jsonschema_rs import Registry  # noqa: PLC0415 - as in `_compile`

        if self._registry is None:
            root: Any = {key: value for key, value in self.plain.items() if key != "$schema"}
            self._registry = Registry([(_PLAIN_URI, root)])
        found = self._parts.get(pointer)
        if found is None:
            found = self._parts[pointer] = self._compile({"$ref": f"{_PLAIN_URI}#{pointer}"})
        return found

    def _compile(self, schema: dict[str, Any], document: _Document | None = None) -> Validator:
        # Importing it takes 20 ms, and most tools are functions, which don't need it.
        from jsonschema_rs import FancyRegexOptions, ValidationError, validator_for  # noqa: PLC0415

        try:
            return validator_for(
                schema,
                validate_formats=self._formats,
                registry=self._registry,
                pattern_options=FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
                mask="the value",
                offline=True,
            )
        except ValidationError as error:
            if document is None:
                raise
            raise document.explain_error(error) from None


def _copy_json(schema: Mapping[str, Any], subject: str) -> dict[str, Any]:
    # Counted first: parts that stand in it many times are one object, and a text of any length.
    count = depth = 0
    level: list[Any] = [schema]
    while level:
        count += len(level)
        if count > _MOST_VALUES:
            raise SchemaError(subject, f"its parameters are too large: more than {_MOST_VALUES} values")
        if depth > _MOST_LEVELS:
            raise SchemaError(subject, f"its parameters are nested too deeply: more than {_MOST_LEVELS} levels")
        inside: list[Any] = []
        for part in level:
            if is_object(part):
                inside.extend(part.values())
            elif isinstance(part, (list, tuple)):
                inside.extend(cast("Sequence[Any]", part))
        level, depth = inside, depth + 1
    try:
        return json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SchemaError(subject, f"its parameters are not JSON: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a part of a schema stands.

    Args:
        base: The URI against which its references are read.
        draft: The draft that it is written in: 4, 6, 7, 2019 or 2020.
        steps: The keys that lead to it in its document.
        pointer: The JSON pointer to it in the same document written in the newest draft.
    """

    base: str
    draft: int
    steps: tuple[str | int, ...]
    pointer: str


class _Document:
    """A schema with all parts of it that can be referred to."""

    def __init__(self, root: dict[str, Any], subject: str) -> None:
        self.root = root
        self.parts: list[dict[str, Any]] = []
        self._subject = subject
        self._places: dict[int, _Place] = {}
        self._roots: dict[str, dict[str, Any]] = {"": root}
        self._anchors: dict[tuple[str, str], dict[str, Any]] = {}
        self._dynamic: dict[str, list[dict[str, Any]]] = {}
        self._targets: dict[int, list[dict[str, Any]]] = {}
        draft = self._read_draft(root, _NEWEST_DRAFT)
        self._index_parts(root, _Place(base="", draft=draft, steps=(), pointer=""))
        for part in self.parts:  # which grow: what a reference leads to under no keyword of schemas becomes a part
            self._targets[id(part)] = self._find_targets(part)

    def place_of(self, part: Node) -> _Place:
        """Return where a part stands."""
        return self._places[id(part)]

    def targets_of(self, part: Node) -> list[dict[str, Any]]:
        """Return the parts that the references of a part may lead to."""
        return self._targets[id(part)]

    def explain_error(self, error: ValidationError) -> SchemaError:
        """Return the error for an author about what the library refuses in a schema."""
        steps: list[str | int] = list(error.instance_path)
        if error.kind.name == "$ref":
            return SchemaError(self._subject, f"a reference in it can't be followed: {error.message}")
        if steps and (steps[-1] == "pattern" or "patternProperties" in steps[-2:]) and error.kind.name == "format":
            return self.refuse_pattern(steps, "it is no regular expression")
        # What is wrong may stand further inside of what the keyword is set to.
        while steps and (steps[-1] not in _OPERANDS or steps[-2:-1] in [[name] for name in SCHEMA_MAPS]):
            steps.pop()
        found = self._find_at(steps)
        reason = f"{_shorten_value(found)} is not {_OPERANDS[str(steps[-1])]}" if steps else error.message
        return SchemaError(self._subject, f"its parameters are no JSON Schema, at {write_steps(steps)}: {reason}")

    def _find_at(self, steps: Sequence[str | int]) -> Any:
        found: Any = self.root
        for step in steps:
            found = found[step]
        return found

    def refuse_pattern(self, steps: Sequence[str | int], reason: str) -> SchemaError:
        """Return the error about a pattern, which stands at some steps or is the last of them."""
        is_name = len(steps) > 1 and steps[-2] == "patternProperties"
        pattern = steps[-1] if is_name else self._find_at(steps)
        path = write_steps(steps[:-1] if is_name else steps)
        reason = f"{_shorten_value(pattern)} can't be read: {reason}"
        return SchemaError(self._subject, f"its parameters are no JSON Schema, at {path}: {reason}")

    def refuse(self, reason: str) -> SchemaError:
        """Return an error about the schema as a whole."""
        return SchemaError(self._subject, reason)

    def write_plainly(self) -> dict[str, Any]:
        """Return the schema with each reference in it written as a pointer from its root, and in the newest draft.

        A dynamic reference is written as what it leads to from there; schemas of JSON Schema itself are any value.
        """

        def plain(node: Any) -> Any:
            if is_array(node):
                return [plain(item) for item in node]
            if not is_object(node):
                return node
            written = self._modernize_node(node) if id(node) in self._places else node
            return {name: plain(item) for name, item in written.items()}

        return plain(self.root)

    def _find_targets(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if "$ref" not in part and "$dynamicRef" not in part and "$recursiveRef" not in part:
            return found
        place = self.place_of(part)
        for keyword in _REFERENCES:
            reference = part.get(keyword)
            if isinstance(reference, str) and _applies(keyword, place.draft):
                target = self._resolve(reference, place)
                if is_object(target):
                    found.append(target)
                if keyword == "$dynamicRef":  # may lead to any of its name, as the check has come
                    others = self._dynamic.get(reference.rpartition("#")[2], ())
                    found += [other for other in others if other is not target]
        return found

    def _resolve(self, reference: str, place: _Place) -> Any:
        """Return the schema that a reference leads to; True for a schema of JSON Schema itself.

        Raises:
            SchemaError: It leads out of the document, or to nothing.
        """
        uri, fragment = _join_reference(place.base, reference)
        root = self._roots.get(uri)
        at = f"(at {write_steps(place.steps)})"
        if root is None and uri.startswith(_STANDARD):
            return True
        if root is None:
            raise self.refuse(f"it refers to {reference!r}, which is never fetched: put what it means into $defs {at}")
        if not fragment:
            return root
        found = self._follow_pointer(root, unquote(fragment)) if fragment.startswith("/") else None
        if found is None:
            found = self._anchors.get((uri, unquote(fragment)))
        if found is None:
            raise self.refuse(f"it refers to {reference!r}, which is not in it {at}")
        return found

    def _read_draft(self, node: Node, otherwise: int) -> int:
        given = node.get("$schema")
        if not isinstance(given, str):
            return otherwise
        draft = _DRAFTS.get(given.rstrip("#").partition("://")[2], otherwise)
        if draft == 3:
            raise self.refuse("it is of draft 3; the drafts 4, 6, 7, 2019-09 and 2020-12 are read")
        return draft

    def _index_parts(self, node: dict[str, Any], place: _Place) -> None:
        waiting = [(node, place)]
        while waiting:
            node, place = waiting.pop()
            if id(node) in self._places:
                continue
            place = self._places[id(node)] = self._note_names(node, place)
            self.parts.append(node)
            for steps, part in _list_parts(node, place.draft):
                waiting.append((part, self._place_inside(node, place, steps)))

    def _place_inside(self, node: Node, place: _Place, steps: tuple[str | int, ...]) -> _Place:
        modern = steps
        if place.draft < 2020 and is_array(node.get("items")):
            renamed = {"items": "prefixItems", "additionalItems": "items"}
            modern = tuple(renamed.get(str(step), step) for step in steps[:1]) + steps[1:]
        pointer = place.pointer
        for step in modern:
            pointer += f"/{step if isinstance(step, int) else _escape_step(step)}"
        return _Place(base=place.base, draft=place.draft, steps=(*place.steps, *steps), pointer=pointer)

    def _note_names(self, node: dict[str, Any], place: _Place) -> _Place:
        """Note the names that a part gives itself, and return its place with its own base and draft."""
        base, draft = place.base, place.draft
        own = node.get("id" if draft == 4 else "$id")
        if isinstance(own, str) and not (draft <= 7 and "$ref" in node):
            uri, fragment = _join_reference(base, own)
            if fragment and draft <= 7:
                self._anchors[uri, fragment] = node
            if uri != base:
                base, draft = uri, self._read_draft(node, draft)
                self._roots.setdefault(uri, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str) and _applies(keyword, draft):
                self._anchors[base, name] = node
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(node)
        return _Place(base=base, draft=draft, steps=place.steps, pointer=place.pointer)

    def _follow_pointer(self, root: dict[str, Any], pointer: str) -> Any:
        found: Any = root
        place = self._places[id(root)]
        taken: tuple[str | int, ...] = ()
        for raw in pointer.split("/")[1:]:
            step = raw.replace("~1", "/").replace("~0", "~")
            if is_object(found) and step in found:
                found, taken = found[step], (*taken, step)
            elif is_array(found) and step.isdecimal() and int(step) < len(found):
                found, taken = found[int(step)], (*taken, int(step))
            else:
                return None
            if id(found) in self._places:
                place, taken = self._places[id(found)], ()
        if is_object(found):
            if taken:  # under no keyword that holds schemas
                self._index_parts(found, self._place_inside({}, place, taken))
            return found
        return found if isinstance(found, bool) else None

    def _modernize_node(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return a part as the newest draft writes it, with pointers from the root for references.

        In draft 4, ``{"minimum": 1, "exclusiveMinimum": true}`` becomes ``{"exclusiveMinimum": 1}``.
        """
        draft = self.place_of(node).draft
        names = ("$id", "$anchor", "$dynamicAnchor")
        written = {key: value for key, value in node.items() if key not in names and _applies(key, draft)}
        written = self._modernize_references(written, node)
        if draft == 4:
            for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
                if written.pop(exclusive, None) is True and limit in written:
                    written[exclusive] = written.pop(limit)
        if draft < 2020 and is_array(written.get("items")):
            written["prefixItems"] = written.pop("items")
            if "additionalItems" in written:
                written["items"] = written.pop("additionalItems")
        return written

    def _modernize_references(self, written: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
        """Write the references of a part as pointers; until draft 7, one hides what stands beside it."""
        place = self.place_of(node)
        found: list[str] = []
        for keyword in _REFERENCES:
            reference = written.pop(keyword, None)
            if not isinstance(reference, str):
                continue
            if place.draft <= 7:
                kept = ("title", "description", "$defs", "definitions")
                written = {key: written[key] for key in kept if key in written}
            target = self._resolve(reference, place)
            if is_object(target):
                found.append(f"#{self.place_of(target).pointer}")
        if found:
            written["$ref"] = found[0]
        if found[1:]:
            written["allOf"] = [*written.get("allOf", ()), *({"$ref": pointer} for pointer in found[1:])]
        return written


def write_steps(steps: Iterable[str | int]) -> str:
    """Return a place in a schema as errors name it: ``$.properties.name``."""
    text = "$"
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if step.replace("$", "_").isidentifier() else f"[{step[:80]!r}]"
    return text


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _applies(keyword: str, draft: int) -> bool:
    """Return whether a draft knows a keyword."""
    return _KNOWN_FROM.get(keyword, 0) <= draft <= _KNOWN_TO.get(keyword, _NEWEST_DRAFT)


def _join_reference(base: str, reference: str) -> tuple[str, str]:
    try:
        whole = urldefrag(base)[0] + reference if reference.startswith("#") else urljoin(base, reference)
        uri, fragment = urldefrag(whole)
    except ValueError:  # such as "http://["
        return reference, ""
    return uri, fragment


def _list_parts(node: Node, draft: int) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    for keyword, value in node.items():
        if keyword not in _HOLDING_SCHEMAS or not _applies(keyword, draft):
            continue
        if keyword in SCHEMA_MAPS and is_object(value):
            yield from (((keyword, name), part) for name, part in value.items() if is_object(part))
        elif (keyword in SCHEMA_LISTS or keyword == "items") and is_array(value):
            yield from (((keyword, index), part) for index, part in enumerate(value) if is_object(part))
        elif keyword in SCHEMA_KEYWORDS and is_object(value):
            yield (keyword,), value


def _escape_step(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _prepare_for_library(document: _Document) -> None:
    """Write a schema so that the library takes what earlier validators took: the meaning stays the same."""
    for part in document.parts:
        for keyword in _UNCHECKED & part.keys():
            del part[keyword]
        given = part.get("$schema")
        if isinstance(given, str) and given.rstrip("#").partition("://")[2] not in _DRAFTS:
            del part["$schema"]  # some address of its author's
        for keyword in ("required", "type"):
            named = part.get(keyword)
            if is_array(named) and all(isinstance(name, str) for name in named):
                part[keyword] = list(dict.fromkeys(named))
        if isinstance(pattern := part.get("pattern"), str):
            part["pattern"] = _PYTHON_END.sub(r"\1\\z", pattern)
        if is_object(patterns := part.get("patternProperties")):
            part["patternProperties"] = {_PYTHON_END.sub(r"\1\\z", name): inner for name, inner in patterns.items()}


def _drop_wrong_defaults(schema: RawSchema, plain: dict[str, Any]) -> bool:
    """Take out of a plain schema the defaults that their own schema refuses; return whether there were any."""
    has_defaults = False
    waiting: list[tuple[dict[str, Any], str]] = [(plain, "")]
    wrong: list[dict[str, Any]] = []
    while waiting:
        node, pointer = waiting.pop()
        if "default" in node:
            has_defaults = True
            if not _accepts_default(schema, node, pointer):
                wrong.append(node)
        for steps, part in _list_parts(node, _NEWEST_DRAFT):
            waiting.append((part, pointer + "".join([f"/{_escape_step(str(step))}" for step in steps])))
    for node in wrong:
        del node["default"]
    return has_defaults


def _accepts_default(schema: RawSchema, node: Node, pointer: str) -> bool:
    default = node["default"]
    kind = node.get("type")
    if node.keys() <= _TYPE_AND_WORDS and isinstance(kind, str) and kind in types_of(default):
        return True
    try:
        return schema.count_visits(measure(default)) <= _STEPS_NOT_WORTH_MEASURING and schema.part(pointer).is_valid(
            default
        )
    except (TypeError, ValueError, TooMuchWorkError, RecursionError):
        return False


class Load(NamedTuple):
    """What the parts of a schema that look at one value cost.

    Args:
        visits: Parts that look at it, and what else they look up.
        states: States of the regular expressions that its letters are matched with.
        lookarounds: How many of these look ahead or behind, or refer back.
        unique: How many want its items to be different.
    """

    visits: int = 0
    states: int = 0
    lookarounds: int = 0
    unique: int = 0

    def plus(self, other: Load, times: int = 1) -> Load:
        """Return the load of both."""
        return Load(*[mine + times * more for mine, more in zip(self, other, strict=True)])


_IN_PLACE = frozenset(
    {*_REFERENCES, "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_LONG_NUMBER = 2**64
_LIGHT = Load(visits=1)
_COSTLY = frozenset(
    {"required", "enum", "const", "dependentRequired", "dependencies", "patternProperties", "pattern", "uniqueItems"}
)


class Level(NamedTuple):
    """What stands at one depth of a value.

    Args:
        values: How many.
        letters: Of its texts and names.
        squares: The same, each text's number of letters squared.
    """

    values: int
    letters: int
    squares: int


class Size(NamedTuple):
    """The size of a value.

    Args:
        levels: By depth.
        digits: Microseconds that its longest numbers take to read.
    """

    levels: list[Level]
    digits: int

    @property
    def total(self) -> int:
        """All values in it."""
        return sum(level.values for level in self.levels)

    @property
    def weight(self) -> int:
        """What a copy of it takes, in values."""
        return sum(level.values + level.letters // 100 for level in self.levels)


def measure(value: object) -> Size:
    """Return the size of a value.

    Raises:
        RecursionError: It is nested more deeply than arguments may be.
        TypeError: A name in it is no text.
    """
    parts: list[Any] = [value]
    levels: list[Level] = []
    digits = 0
    while parts:
        if len(levels) > MAX_DEPTH + 1:
            raise RecursionError
        inside: list[Any] = []
        letters = squares = 0
        for part in parts:
            kind = cast("object", type(part))
            if kind is str:
                letters += len(part)
                squares += len(part) ** 2
            elif kind is int:
                if not -_LONG_NUMBER < part < _LONG_NUMBER:
                    digits += part.bit_length() ** 2 // 40_000
            elif is_object(part):
                inside.extend(part.values())
                lengths = [*map(len, part)]
                letters += sum(lengths)
                squares += sum(lengths) * max(lengths, default=0)
            elif is_array(part):
                inside.extend(part)
        levels.append(Level(len(parts), letters, squares))
        parts = inside
    return Size(levels, digits)


class _Reach(NamedTuple):
    """What looks at a value where one part of a schema does, and where that leads: children by key, and for any key."""

    load: Load
    keyed: dict[str | int, list[dict[str, Any]]]
    others: list[dict[str, Any]]


class _WorkBound:
    """The most work that a check can be, by the size of the value.

    How often the parts of a schema look at a value at some depth does not depend on the other values: it is what the
    ways through the schema of that length add up to, for the worst of keys.
    """

    def __init__(self, document: _Document) -> None:
        self._document = document
        self._left = _MOST_WAYS_FOLLOWED
        self._reaches: dict[int, _Reach] = {}
        self._most: dict[tuple[int, int], Load] = {}
        self._states = 0
        self._own = {id(part): self._read_load(part) for part in document.parts}
        if self._states > _MOST_STATES:
            raise document.refuse("its regular expressions are too large")
        if any(document.targets_of(part) for part in document.parts):
            self._check_expansion()
        try:
            self._total = self._add_up(document.root, {})
        except RecursionError:  # of definitions that lead on to each other
            self._total = None

    def _add_up(self, part: dict[str, Any], known: dict[int, Load | None]) -> Load | None:
        """Return the load of a part and of all that it leads to; None where it leads back to itself."""
        if id(part) in known:
            return known[id(part)]
        known[id(part)] = None
        total = self._own[id(part)]
        for inner in self._in_place(part) + [inner for _, inner in self._inside(part)]:
            more = self._add_up(inner, known)
            if more is None:
                return None
            total = total.plus(more)
        known[id(part)] = total
        return total

    def estimate(self, length: int) -> int | None:
        """Return a rough bound of the steps for a value of so many letters of JSON; None where only measuring helps."""
        if self._total is None or length > _MOST_LETTERS_ESTIMATED:
            return None
        return _count_steps(Level(length // 2 + 1, length, length**2), self._total, items=length // 2 + 1)

    def count_steps(self, size: Size) -> int:
        """Return how many steps, about microseconds, a check of a value of this size takes at most.

        Raises:
            TooMuchWorkError: It takes too many to count.
        """
        count = size.total
        return size.digits + sum(
            _count_steps(level, self._most_load(self._document.root, depth), items=count)
            for depth, level in enumerate(size.levels)
        )

    def count_visits(self, size: Size) -> int:
        """See `RawSchema.count_visits`."""
        return sum(
            level.values * self._most_load(self._document.root, depth).visits for depth, level in enumerate(size.levels)
        )

    def _read_load(self, part: Node) -> Load:
        """Return what a part costs by itself."""
        if _COSTLY.isdisjoint(part):
            return _LIGHT
        visits = 1 + 8 * _length_of(part.get("required"))
        options = [*(part["enum"] if is_array(part.get("enum")) else ()), part.get("const")]
        visits += sum(50 * measure(option).total for option in options if is_object(option) or is_array(option))
        for needs in (part.get("dependentRequired"), part.get("dependencies")):
            visits += sum(map(_length_of, needs.values())) if is_object(needs) else 0
        named = part.get("patternProperties")
        patterns = [*(named if is_object(named) else ()), part.get("pattern")]
        states = lookarounds = 0
        for pattern in patterns:
            if isinstance(pattern, str):
                more, looks = self._read_pattern(part, pattern)
                states += more
                lookarounds += looks
        return Load(visits, states, lookarounds, 1 if part.get("uniqueItems") is True else 0)

    def _read_pattern(self, part: Node, pattern: str) -> tuple[int, bool]:
        states, looks = _count_states(pattern), _LOOKAROUND.search(pattern) is not None
        if len(pattern) > _LONGEST_PATTERN or (looks and states > _MOST_STATES_WITH_LOOKAROUND):
            steps = self._document.place_of(part).steps
            inside = ("pattern",) if part.get("pattern") == pattern else ("patternProperties", pattern)
            raise self._document.refuse_pattern((*steps, *inside), "it is too large")
        self._states += states
        is_one_repeat = pattern.startswith("^") and ")" not in pattern and len(_QUANTIFIER.findall(pattern)) == 1
        # So many states are not all made beforehand, and may all be taken at once.
        return states if states <= 500 or is_one_repeat else states * 250, looks

    def _in_place(self, part: Node) -> list[dict[str, Any]]:
        """Return the parts that look at the same value as a part does."""
        if _IN_PLACE.isdisjoint(part):
            return []
        found = list(self._document.targets_of(part))
        for keyword in ("allOf", "anyOf", "oneOf"):
            found += [one for one in part.get(keyword, ()) if is_object(one)] if is_array(part.get(keyword)) else ()
        found += [part[keyword] for keyword in ("not", "if", "then", "else") if is_object(part.get(keyword))]
        for keyword in ("dependentSchemas", "dependencies"):
            if is_object(part.get(keyword)):
                found += [one for one in part[keyword].values() if is_object(one)]
        return [one for one in found if id(one) in self._own]

    def _check_expansion(self) -> None:
        """Refuse what leads back to itself without taking a step, and alternatives without number."""
        counts: dict[int, int] = {}
        for part in self._document.parts:
            if self._count_expansion(part, counts, set()) > _MOST_EXPANSION:
                raise self._document.refuse("its alternatives and references multiply without bounds")

    def _count_expansion(self, part: dict[str, Any], counts: dict[int, int], inside: set[int]) -> int:
        """Count the parts that look at one and the same value."""
        if id(part) in counts:
            return counts[id(part)]
        if id(part) in inside:
            raise self._document.refuse("a reference in it leads back to itself: it could never be checked")
        if len(inside) > _MOST_LINKS:
            raise self._document.refuse(f"more than {_MOST_LINKS} of its references lead on to each other")
        inside.add(id(part))
        count = 1 + sum(self._count_expansion(one, counts, inside) for one in self._in_place(part))
        inside.discard(id(part))
        counts[id(part)] = count
        return count

    def _reach_of(self, part: dict[str, Any]) -> _Reach:
        known = self._reaches.get(id(part))
        if known is None:
            known = self._reaches[id(part)] = self._find_reach(part)
        return known

    def _find_reach(self, part: dict[str, Any]) -> _Reach:
        load = Load()
        keyed: dict[str | int, list[dict[str, Any]]] = {}
        others: list[dict[str, Any]] = []
        waiting = [part]
        while waiting:
            one = waiting.pop()
            load = load.plus(self._own[id(one)])
            waiting += self._in_place(one)
            for key, inner in self._inside(one):
                others.append(inner) if key is None else keyed.setdefault(key, []).append(inner)
        return _Reach(load, keyed, others)

    def _inside(self, part: Node) -> Iterator[tuple[str | int | None, dict[str, Any]]]:
        """Yield the parts that look at members and items, with their key; None where it may be any."""
        for steps, inner in _list_parts(part, self._document.place_of(part).draft):
            match steps:
                case ("properties", name):
                    yield name, inner
                case ("prefixItems" | "items", int(index)):
                    yield index, inner
                case ("patternProperties" | "additionalProperties" | "items" | "contains" | "propertyNames", *_):
                    yield None, inner
                case ("unevaluatedItems" | "unevaluatedProperties" | "additionalItems", *_):
                    yield None, inner
                case _:
                    pass

    def _most_load(self, part: dict[str, Any], depth: int) -> Load:
        """Return the load on a value so deep inside one that a part looks at, for the worst of keys."""
        known = self._most.get((id(part), depth))
        if known is not None:
            return known
        reach = self._reach_of(part)
        if depth == 0:
            found = reach.load
        else:
            self._left -= 1 + len(reach.others) + len(reach.keyed)
            if self._left < 0:
                raise TooMuchWorkError
            always = self._add_loads(reach.others, depth - 1)
            found = always
            for inner in reach.keyed.values():
                found = Load(*map(max, found, always.plus(self._add_loads(inner, depth - 1))))
        self._most[id(part), depth] = found
        return found

    def _add_loads(self, parts: Collection[dict[str, Any]], depth: int) -> Load:
        total = Load()
        for part in parts:
            total = total.plus(self._most_load(part, depth))
        return total


def _count_steps(level: Level, load: Load, *, items: int) -> int:
    """Return how many steps the values of a level take; the divisors were measured, and are on the safe side."""
    return (
        level.values * load.visits // 20
        + level.letters * load.states // 5_000
        + level.squares * load.lookarounds // 100
        + (3 * items * load.unique if level.values else 0)
    )


def _length_of(value: Any) -> int:
    return len(value) if is_array(value) else 0


_LOOKAROUND = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]|[*+?}]\+")
_QUANTIFIER = re.compile(r"(?<!\\)(?:[*+]|\{\d)")
_PIECE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\{(\d+)(?:,(\d*))?\}|(\()|(\))|.", re.DOTALL)


def _count_states(pattern: str) -> int:
    """Return about how many states the machine of a regular expression has: ``(ab{3}){10}`` has 40."""
    groups = [0]
    last = 0
    for piece in _PIECE.finditer(pattern):
        if piece[1] is not None:
            times = int((piece[2] or piece[1])[:6])
            groups[-1] += last * max(0, times - 1)
            last *= max(1, times)
        elif piece[3]:
            groups.append(0)
        elif piece[4] and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            last = 1
            groups[-1] += 1
        if groups[-1] > 10**9:
            break
    return max(1, *groups)
