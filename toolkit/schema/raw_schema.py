"""A JSON Schema of somebody else, which is not trusted: its references, the cost of its checks, its compilation.

jsonschema-rs validates values. That library does not limit its work and holds the interpreter's lock, so the highest
cost of a check is computed here, from the schema and the size of the value, before it runs. Nothing is fetched:
references lead to parts of the same document, or to the schemas of JSON Schema itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin

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

_NEWEST_DRAFT = 2020
_DRAFTS = {
    "json-schema.org/draft-03/schema": 3,
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
_STANDARD = ("https://json-schema.org/", "http://json-schema.org/")
# The first and the last draft with a keyword; all others are in every draft.
_KNOWN_FROM = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "dependentRequired": 2019,
    "dependentSchemas": 2019, "unevaluatedItems": 2019, "unevaluatedProperties": 2019, "minContains": 2019,
    "maxContains": 2019, "$anchor": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019, "prefixItems": 2020,
    "$dynamicRef": 2020, "$dynamicAnchor": 2020, "contentSchema": 2019,
}  # fmt: skip
_KNOWN_TO = {"additionalItems": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor")
# Keywords that are not needed, or do not exist, in the newest draft.
_OUTDATED = frozenset({*_REFERENCES, *_NAMES, *_KNOWN_TO})
_HERE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)  # applied to the same value as the schema that they stand in
_NOWHERE = frozenset({"$defs", "definitions", "contentSchema"})
# Annotations, whose types are wrong in some published schemas.
_ANNOTATIONS = {"examples": list, "deprecated": bool, "readOnly": bool, "writeOnly": bool}
_CONTENT = ("contentEncoding", "contentMediaType")
_REPAIRED = frozenset({*_ANNOTATIONS, *_CONTENT, "$schema", "required", "pattern", "patternProperties"})
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
_MOST_STEPS_AT_ONCE = 50_000
_STEPS_NOT_WORTH_MEASURING = 5_000
_MOST_LETTERS_ESTIMATED = 20_000
_MOST_WAYS_FOLLOWED = 50_000
_LONG_NUMBER = 2**64
_COSTLY = frozenset(
    {"required", "enum", "const", "dependentRequired", "dependencies", "patternProperties", "pattern", "uniqueItems"}
)
_LOOKAROUND = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]|[*+?}]\+")
_QUANTIFIER = re.compile(r"(?<!\\)(?:[*+]|\{\d)")
_PIECE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\{(\d+)(?:,(\d*))?\}|(\()|(\))|.", re.DOTALL)
_PLAIN_URI = "urn:toolkit:schema"
# The values of keywords, for errors.
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
        schema: JSON; it is copied, so that later changes have no effect.
        subject: Its owner, for errors.
        formats: True to check ``format``.

    Attributes:
        plain: The same schema in the newest draft, with every reference as a pointer from its root, and without
            defaults that their own schemas refuse.
        has_defaults: True if some part has a default.

    Raises:
        SchemaError: The schema is invalid, refers to another document, or has no bound on the cost of a check.
    """

    __slots__ = ("_bound", "_formats", "_registry", "_validator", "has_defaults", "plain")

    def __init__(self, schema: Mapping[str, Any], *, subject: str, formats: bool = False) -> None:
        document = _Document(_copy_json(schema, subject), subject)
        self._formats = formats
        self._bound = _WorkBound(document)
        self._registry: Any = None
        self._validator = self._compile_part(document.root.node, document)
        document.modernize()
        self.plain: dict[str, Any] = document.root.node
        defaulted = [part for part in document.parts if "default" in part.node]
        self.has_defaults = bool(defaulted)
        for part in [part for part in defaulted if not self._accepts_default(part)]:
            del part.node["default"]

    def is_valid(self, value: object, *, length: int | None = None, budget: WorkBudget | None = None) -> bool:
        """Return whether the schema accepts a value.

        Args:
            value: Decoded JSON.
            length: The length of its JSON text, if known: short values are not measured.
            budget: Pays for the check; by default the budget of the call.

        Raises:
            TooMuchWorkError: It could take more steps.
            RecursionError: It is nested too deeply.
            TypeError, ValueError: It is not JSON.
        """
        budget = budget or open_budget()
        if budget.left < 0:  # an earlier check of this call was given up
            raise TooMuchWorkError
        if budget.is_trial:
            budget.spend(self._bound.parts)
        steps = None if length is None else self._bound.estimate(length)
        if steps is None or steps > _STEPS_NOT_WORTH_MEASURING:
            steps = self._bound.count_steps(measure(value))
        budget.spend(steps if steps <= _MOST_STEPS_AT_ONCE else max(steps, budget.left + 1))
        return self._validator.is_valid(value)

    def errors(self, value: object) -> Iterator[ValidationError]:
        """Yield the library's errors; each holds a copy of its part of the value, see `count_copies`."""
        return self._validator.iter_errors(value)

    def count_copies(self, size: Size) -> int:
        """Return the highest number of values that the library copies into its errors about a value of a size.

        Raises:
            TooMuchWorkError: Counting takes too many steps.
        """
        return self._bound.count_copies(size)

    def _compile_at(self, pointer: str) -> Validator:
        """Return the validator of the part of `plain` at a JSON pointer.

        Raises:
            ValueError: There is none.
        """
        if self._registry is None:
            from jsonschema_rs import Registry  # noqa: PLC0415 - as in `_compile_part`

            root: Any = {key: value for key, value in self.plain.items() if key != "$schema"}
            self._registry = Registry([(_PLAIN_URI, root)])
        return self._compile_part({"$ref": f"{_PLAIN_URI}#{pointer}"})

    def _compile_part(self, schema: dict[str, Any], document: _Document | None = None) -> Validator:
        # The import takes 20 ms, and functions don't need it.
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

    def _accepts_default(self, part: _Part) -> bool:
        """Return whether a part accepts its own default; False if the check is expensive."""
        node, default = part.node, part.node["default"]
        kind = node.get("type")
        if node.keys() <= _TYPE_AND_WORDS and isinstance(kind, str) and kind in types_of(default):
            return True
        try:
            is_cheap = self._bound.count_steps(measure(default)) <= _STEPS_NOT_WORTH_MEASURING
            return is_cheap and self._compile_at(part.pointer).is_valid(default)
        except (TypeError, ValueError, TooMuchWorkError, RecursionError):
            return False


def _copy_json(schema: Mapping[str, Any], subject: str) -> dict[str, Any]:
    # Counted first: a part that is used many times is one object, but its text can have any length.
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
        copied: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        raise SchemaError(subject, f"its parameters are not JSON: {error}") from error
    return copied


class _Part:
    """One schema in a document, its place, and the parts that are applied with it.

    Attributes:
        base: The base URI of its references.
        draft: Its draft: 4, 6, 7, 2019 or 2020.
        targets: The targets of its references, in the order of `_REFERENCES`.
        here: The parts that are applied to the same value, targets included.
        keyed: The parts that are applied to a member or an item, by its key.
        others: The parts that are applied to members or items of any key.
        load: The cost of this part alone.
    """

    __slots__ = (
        "_parent", "_steps", "_written", "base", "draft", "here", "keyed", "load", "node", "others", "targets",
    )  # fmt: skip

    def __init__(
        self,
        node: dict[str, Any],
        *,
        base: str = "",
        draft: int = _NEWEST_DRAFT,
        parent: _Part | None = None,
        steps: tuple[str | int, ...] = (),
        written: str | None = None,
    ) -> None:
        self.node = node
        self.base = base
        self.draft = draft
        self._parent = parent
        self._steps = steps
        self._written = written
        self.targets: list[_Part] = []
        self.here: list[_Part] = []
        self.keyed: list[tuple[str | int, _Part]] = []
        self.others: list[_Part] = []
        self.load = _LIGHT

    @property
    def steps(self) -> tuple[str | int, ...]:
        """The keys that lead to it in its document."""
        return self._steps if self._parent is None else (*self._parent.steps, *self._steps)

    @property
    def pointer(self) -> str:
        """The JSON pointer to it in the same document written in the newest draft."""
        if self._parent is None:
            return ""
        steps = self._steps if self._written is None else (self._written, *self._steps[1:])
        return self._parent.pointer + "".join([f"/{_escape_step(str(step))}" for step in steps])


class _Document:
    """A schema with all of its parts."""

    def __init__(self, root: dict[str, Any], subject: str) -> None:
        self.parts: list[_Part] = []
        self.has_references = False
        self._subject = subject
        self._known: dict[int, _Part] = {}
        self._roots: dict[str, dict[str, Any]] = {"": root}
        self._anchors: dict[tuple[str, str], dict[str, Any]] = {}
        self._dynamic: dict[str, list[dict[str, Any]]] = {}
        self.root = self._index_parts(_Part(root, draft=self._read_draft(root, _NEWEST_DRAFT)))
        for part in self.parts:  # which grows: a target outside of all keywords becomes a part
            if not part.node.keys().isdisjoint(_REFERENCES):
                self._follow_references(part)

    def explain_error(self, error: ValidationError) -> SchemaError:
        """Return the error for an author about an error of the library."""
        steps: list[str | int] = list(error.instance_path)
        if error.kind.name == "$ref":
            return SchemaError(self._subject, f"a reference in it can't be followed: {error.message}")
        if steps and (steps[-1] == "pattern" or "patternProperties" in steps[-2:]) and error.kind.name == "format":
            return self.refuse_pattern(steps, "it is no regular expression")
        # The problem may be inside the value of the keyword.
        while steps and (steps[-1] not in _OPERANDS or (len(steps) > 1 and steps[-2] in SCHEMA_MAPS)):
            steps.pop()
        wanted = f"{_shorten_value(self._find_at(steps))} is not {_OPERANDS[str(steps[-1])]}" if steps else None
        reason = wanted or error.message
        return SchemaError(self._subject, f"its parameters are no JSON Schema, at {_write_steps(steps)}: {reason}")

    def refuse_pattern(self, steps: Sequence[str | int], reason: str) -> SchemaError:
        """Return the error about a pattern, which is at some steps or is the last of them."""
        is_name = len(steps) > 1 and steps[-2] == "patternProperties"
        pattern = steps[-1] if is_name else self._find_at(steps)
        path = _write_steps(steps[:-1] if is_name else steps)
        reason = f"{_shorten_value(pattern)} can't be read: {reason}"
        return SchemaError(self._subject, f"its parameters are no JSON Schema, at {path}: {reason}")

    def refuse(self, reason: str) -> SchemaError:
        """Return an error about the schema as a whole."""
        return SchemaError(self._subject, reason)

    def modernize(self) -> None:
        """Convert each part to the newest draft, with pointers from the root for references.

        A dynamic reference becomes its static target; schemas of JSON Schema itself become any value. In draft 4,
        ``{"minimum": 1, "exclusiveMinimum": true}`` becomes ``{"exclusiveMinimum": 1}``.
        """
        for part in self.parts:
            node, draft = part.node, part.draft
            if draft == _NEWEST_DRAFT and node.keys().isdisjoint(_OUTDATED):
                continue
            written = _write_references(part)
            if draft == 4:
                for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
                    if written.pop(exclusive, None) is True and limit in written:
                        written[exclusive] = written.pop(limit)
            if draft < 2020 and is_array(written.get("items")):
                written["prefixItems"] = written.pop("items")
                if "additionalItems" in written:
                    written["items"] = written.pop("additionalItems")
            node.clear()
            node.update(written)

    def _find_at(self, steps: Sequence[str | int]) -> Any:
        found: Any = self.root.node
        for step in steps:
            key: Any = step if is_array(found) else str(step)  # a name of digits comes as a number
            if is_object(found) and key not in found:  # an empty name does not come at all
                found = found[""]
            found = found[key]
        return found

    def _read_draft(self, node: Node, otherwise: int) -> int:
        given = node.get("$schema")
        draft = _DRAFTS.get(_name_draft(given), otherwise) if isinstance(given, str) else otherwise
        if draft == 3:
            raise self.refuse("it is of draft 3; the drafts 4, 6, 7, 2019-09 and 2020-12 are read")
        return draft

    def _index_parts(self, first: _Part) -> _Part:
        """Add a part and all parts inside it, each with those that are applied with it."""
        self._known[id(first.node)] = first
        waiting = [first]
        while waiting:
            part = waiting.pop()
            self.parts.append(part)
            if not _REPAIRED.isdisjoint(part.node) or is_array(part.node.get("type")):
                _repair_details(part.node)
            if not part.node.keys().isdisjoint(_NAMES):
                self._note_names(part)
            for steps, written, node in _list_schemas(part.node, part.draft):
                inner = self._known.get(id(node))
                if inner is None:
                    inner = _Part(node, base=part.base, draft=part.draft, parent=part, steps=steps, written=written)
                    self._known[id(node)] = inner
                    waiting.append(inner)
                keyword, *key = steps
                if keyword in _HERE:
                    part.here.append(inner)
                elif keyword == "properties" or (key and keyword in ("prefixItems", "items")):
                    part.keyed.append((key[0], inner))
                elif keyword not in _NOWHERE:
                    part.others.append(inner)
        return first

    def _note_names(self, part: _Part) -> None:
        """Add the names that a part defines, and set its own base and draft."""
        node = part.node
        own = node.get("id" if part.draft == 4 else "$id")
        if isinstance(own, str) and not (part.draft <= 7 and "$ref" in node):
            uri, fragment = _join_reference(part.base, own)
            if fragment and part.draft <= 7:
                self._anchors[uri, fragment] = node
            if uri != part.base:
                part.base, part.draft = uri, self._read_draft(node, part.draft)
                self._roots.setdefault(uri, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str) and _is_known(keyword, part.draft):
                self._anchors[part.base, name] = node
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(node)

    def _follow_references(self, part: _Part) -> None:
        self.has_references = True
        for keyword in _REFERENCES:
            reference = part.node.get(keyword)
            if not isinstance(reference, str) or not _is_known(keyword, part.draft):
                continue
            target = self._resolve_reference(reference, part)
            part.targets += [self._known[id(target)]] if is_object(target) else []
            # A dynamic reference may lead to any part of its name.
            others = self._dynamic.get(reference.rpartition("#")[2], ()) if keyword == "$dynamicRef" else ()
            part.here += [self._known[id(other)] for other in others if other is not target]
        part.here += part.targets

    def _resolve_reference(self, reference: str, part: _Part) -> Any:
        """Return the target of a reference; True for a schema of JSON Schema itself.

        Raises:
            SchemaError: It is in another document, or does not exist.
        """
        uri, fragment = _join_reference(part.base, reference)
        root = self._roots.get(uri)
        if root is None and uri.startswith(_STANDARD):
            return True
        at = f"(at {_write_steps(part.steps)})"
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

    def _follow_pointer(self, root: dict[str, Any], pointer: str) -> Any:
        found: Any = root
        part = self._known[id(root)]
        taken: tuple[str | int, ...] = ()
        for raw in pointer.split("/")[1:]:
            step = raw.replace("~1", "/").replace("~0", "~")
            if is_object(found) and step in found:
                found, taken = found[step], (*taken, step)
            elif is_array(found) and step.isdecimal() and int(step) < len(found):
                found, taken = found[int(step)], (*taken, int(step))
            else:
                return None
            if id(found) in self._known:
                part, taken = self._known[id(found)], ()
        if is_object(found) and taken:  # under no keyword that holds schemas
            self._index_parts(_Part(found, base=part.base, draft=part.draft, parent=part, steps=taken))
        return found if is_object(found) or isinstance(found, bool) else None


def _repair_details(node: dict[str, Any]) -> None:
    """Drop or correct common mistakes of published schemas that the library refuses, without changing the meaning."""
    for keyword, kind in _ANNOTATIONS.items():
        if keyword in node and not isinstance(node[keyword], kind):
            del node[keyword]
    for keyword in _CONTENT:
        node.pop(keyword, None)
    given = node.get("$schema")
    if isinstance(given, str) and _name_draft(given) not in _DRAFTS:
        del node["$schema"]  # some address of its author's
    for keyword in ("required", "type"):
        named = node.get(keyword)
        if is_array(named) and all(isinstance(name, str) for name in named):
            node[keyword] = list(dict.fromkeys(named))
    if isinstance(pattern := node.get("pattern"), str):
        node["pattern"] = _PYTHON_END.sub(r"\1\\z", pattern)
    if is_object(patterns := node.get("patternProperties")):
        node["patternProperties"] = {_PYTHON_END.sub(r"\1\\z", name): one for name, one in patterns.items()}


def _list_schemas(node: Node, draft: int) -> Iterator[tuple[tuple[str | int, ...], str, dict[str, Any]]]:
    """Yield the schemas directly inside a schema, each with its steps and its keyword in the newest draft."""
    for keyword, value in node.items():
        if keyword not in _OPERANDS or not _is_known(keyword, draft):
            continue
        if is_object(value):
            if keyword in SCHEMA_MAPS:
                yield from (((keyword, name), keyword, one) for name, one in value.items() if is_object(one))
            elif keyword in SCHEMA_KEYWORDS:
                is_rest = keyword == "additionalItems" and is_array(node.get("items"))
                yield (keyword,), "items" if is_rest else keyword, value
        elif is_array(value) and (keyword in SCHEMA_LISTS or keyword == "items"):
            written = "prefixItems" if keyword == "items" else keyword
            yield from (((keyword, index), written, one) for index, one in enumerate(value) if is_object(one))


def _write_references(part: _Part) -> dict[str, Any]:
    """Return a part with its references as pointers; until draft 7, a reference hides the keywords beside it."""
    names = ("$id", "$anchor", "$dynamicAnchor", *_REFERENCES)
    written = {key: value for key, value in part.node.items() if key not in names and _is_known(key, part.draft)}
    if part.draft <= 7 and isinstance(part.node.get("$ref"), str):
        written = {key: written[key] for key in ("title", "description", "$defs", "definitions") if key in written}
    pointers = [f"#{target.pointer}" for target in part.targets]
    if pointers:
        written["$ref"] = pointers[0]
    if pointers[1:]:
        written["allOf"] = [*written.get("allOf", ()), *({"$ref": pointer} for pointer in pointers[1:])]
    return written


def _write_steps(steps: Iterable[str | int]) -> str:
    """Return a place in a schema for errors, such as ``$.properties.name``."""
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


def _name_draft(uri: str) -> str:
    return uri.rstrip("#").partition("://")[2]


def _is_known(keyword: str, draft: int) -> bool:
    """Return whether a draft has a keyword."""
    return _KNOWN_FROM.get(keyword, 0) <= draft <= _KNOWN_TO.get(keyword, _NEWEST_DRAFT)


def _join_reference(base: str, reference: str) -> tuple[str, str]:
    try:
        whole = urldefrag(base)[0] + reference if reference.startswith("#") else urljoin(base, reference)
        uri, fragment = urldefrag(whole)
    except ValueError:  # such as "http://["
        return reference, ""
    return uri, fragment


def _escape_step(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1").replace("%", "%25")


class _Load(NamedTuple):
    """The cost of the parts of a schema that are applied to one value.

    Args:
        visits: The number of parts, and of their lookups.
        states: The states of their regular expressions.
        lookarounds: The number of expressions with lookarounds or back references.
        unique: The number of parts with ``uniqueItems``.
    """

    visits: int = 0
    states: int = 0
    lookarounds: int = 0
    unique: int = 0


_LIGHT = _Load(visits=1)


def _add_loads(loads: Iterable[_Load]) -> _Load:
    """Return the sum of loads."""
    return _Load(*map(sum, zip(_Load(), *loads, strict=True)))


class _Level(NamedTuple):
    """The values at one depth of a value.

    Args:
        values: The number of values.
        letters: The letters of texts and names.
        squares: The sum of the squares of the lengths of texts and names.
    """

    values: int
    letters: int
    squares: int

    @property
    def weight(self) -> int:
        """The cost of a copy, in values."""
        return self.values + self.letters // 100


class Size(NamedTuple):
    """The size of a value.

    Args:
        levels: The values by depth.
        digits: The microseconds that it takes to read its longest numbers.
    """

    levels: list[_Level]
    digits: int

    @property
    def total(self) -> int:
        """The number of all values."""
        return sum(level.values for level in self.levels)


def measure(value: object) -> Size:
    """Return the size of a value.

    Raises:
        RecursionError: It is nested too deeply.
        TypeError: A name in it is not a string.
    """
    parts: list[Any] = [value]
    levels: list[_Level] = []
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
        levels.append(_Level(len(parts), letters, squares))
        parts = inside
    return Size(levels, digits)


class _Reach(NamedTuple):
    """The load on a value to which a part is applied, and the parts for its children, by key and for all others."""

    load: _Load
    keyed: dict[str | int, list[_Part]]
    others: list[_Part]


class _WorkBound:
    """The highest cost of a check, by the size of the value.

    The parts that are applied to a value at some depth do not depend on other values: they are the ends of all ways of
    that length through the schema, for the worst keys.
    """

    def __init__(self, document: _Document) -> None:
        self._document = document
        self.parts = len(document.parts)
        self._left = _MOST_WAYS_FOLLOWED
        self._reaches: dict[_Part, _Reach] = {}
        self._most: dict[tuple[_Part, int], _Load] = {}
        states = 0
        for part in document.parts:
            if not _COSTLY.isdisjoint(part.node):
                states += self._read_load(part)
        if states > _MOST_STATES:
            raise document.refuse("its regular expressions are too large")
        self._total: _Load | None = None
        if not document.has_references:
            self._total = _add_loads([part.load for part in document.parts])
            return
        counts: dict[_Part, int] = {}
        for part in document.parts:
            if self._count_here(part, counts, set()) > _MOST_EXPANSION:
                raise document.refuse("its alternatives and references multiply without bounds")
        with suppress(RecursionError):  # for long chains of definitions
            self._total = _add_up(document.root, {})

    def estimate(self, length: int) -> int | None:
        """Return a rough bound of the steps for a JSON text of a length; None if the value has to be measured."""
        if self._total is None or length > _MOST_LETTERS_ESTIMATED:
            return None
        return _count_steps(_Level(length // 2 + 1, length, length**2), self._total, items=length // 2 + 1)

    def count_steps(self, size: Size) -> int:
        """Return the highest number of steps, about microseconds, of a check of a value of a size.

        Raises:
            TooMuchWorkError: Counting takes too many steps.
        """
        count = size.total
        return size.digits + sum(
            _count_steps(level, self._find_most_load(self._document.root, depth), items=count)
            for depth, level in enumerate(size.levels)
        )

    def count_copies(self, size: Size) -> int:
        """See `RawSchema.count_copies`: an error copies a value with all that is inside it."""
        copies = inside = 0
        for depth in reversed(range(len(size.levels))):
            inside += size.levels[depth].weight
            copies += inside * self._find_most_load(self._document.root, depth).visits
        return copies

    def _read_load(self, part: _Part) -> int:
        """Set the load of a part, and return the number of states of its regular expressions."""
        node = part.node
        total = weighted = lookarounds = 0
        for pattern, inside in _list_patterns(node):
            states, looks = _count_states(pattern), _LOOKAROUND.search(pattern) is not None
            if len(pattern) > _LONGEST_PATTERN or (looks and states > _MOST_STATES_WITH_LOOKAROUND):
                raise self._document.refuse_pattern((*part.steps, *inside), "it is too large")
            is_one_repeat = pattern.startswith("^") and ")" not in pattern and len(_QUANTIFIER.findall(pattern)) == 1
            total += states
            # Machines with more states are not built beforehand, and may be in all states at once.
            weighted += states if states <= 500 or is_one_repeat else states * 250
            lookarounds += looks
        part.load = _Load(_count_lookups(node), weighted, lookarounds, 1 if node.get("uniqueItems") is True else 0)
        return total

    def _count_here(self, part: _Part, counts: dict[_Part, int], inside: set[_Part]) -> int:
        """Return the number of parts that are applied to one value; refuse cycles of references."""
        if part in counts:
            return counts[part]
        if part in inside:
            raise self._document.refuse("a reference in it leads back to itself: it could never be checked")
        if len(inside) > _MOST_LINKS:
            raise self._document.refuse(f"more than {_MOST_LINKS} of its references lead on to each other")
        inside.add(part)
        counts[part] = count = 1 + sum(self._count_here(one, counts, inside) for one in part.here)
        inside.discard(part)
        return count

    def _find_reach(self, part: _Part) -> _Reach:
        known = self._reaches.get(part)
        if known is None:
            found = [part]
            for one in found:  # which grows
                found += one.here
            keyed: dict[str | int, list[_Part]] = {}
            for one in found:
                for key, inner in one.keyed:
                    keyed.setdefault(key, []).append(inner)
            others = [inner for one in found for inner in one.others]
            known = self._reaches[part] = _Reach(_add_loads([one.load for one in found]), keyed, others)
        return known

    def _find_most_load(self, part: _Part, depth: int) -> _Load:
        """Return the load on a value at a depth below one to which a part is applied, for the worst keys."""
        known = self._most.get((part, depth))
        if known is not None:
            return known
        reach = self._find_reach(part)
        if depth == 0:
            found = reach.load
        else:
            self._left -= 1 + len(reach.others) + len(reach.keyed)
            if self._left < 0:
                raise TooMuchWorkError
            always = [self._find_most_load(inner, depth - 1) for inner in reach.others]
            found = _add_loads(always)
            for keyed in reach.keyed.values():
                loads = [self._find_most_load(inner, depth - 1) for inner in keyed]
                found = _Load(*map(max, found, _add_loads([*always, *loads])))
        self._most[part, depth] = found
        return found


def _add_up(part: _Part, known: dict[_Part, _Load | None]) -> _Load | None:
    """Return the load of a part and of all parts that can be reached from it; None for a cycle."""
    if part in known:
        return known[part]
    known[part] = None
    loads = [part.load]
    for inner in (*part.here, *(inner for _, inner in part.keyed), *part.others):
        more = _add_up(inner, known)
        if more is None:
            return None
        loads.append(more)
    known[part] = total = _add_loads(loads)
    return total


def _count_steps(level: _Level, load: _Load, *, items: int) -> int:
    """Return the highest number of steps for the values of a level; the divisors are measured, with a margin."""
    return (
        level.values * load.visits // 20
        + level.letters * load.states // 5_000
        + level.squares * load.lookarounds // 100
        + (3 * items * load.unique if level.values else 0)
    )


def _count_lookups(node: Node) -> int:
    """Return the cost of applying a part, without its regular expressions."""
    visits = 1 + 8 * _length_of(node.get("required"))
    options = [*(node["enum"] if is_array(node.get("enum")) else ()), node.get("const")]
    visits += sum(50 * measure(option).total for option in options if is_object(option) or is_array(option))
    for needs in (node.get("dependentRequired"), node.get("dependencies")):
        visits += sum(map(_length_of, needs.values())) if is_object(needs) else 0
    return visits


def _list_patterns(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the regular expressions of a part, and their places in it."""
    named = node.get("patternProperties")
    yield from ((name, ("patternProperties", name)) for name in (named if is_object(named) else ()))
    if isinstance(pattern := node.get("pattern"), str):
        yield pattern, ("pattern",)


def _length_of(value: Any) -> int:
    return len(value) if is_array(value) else 0


def _count_states(pattern: str) -> int:
    """Return the approximate number of states of a regular expression: ``(ab{3}){10}`` has 40."""
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
