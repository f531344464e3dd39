"""The view of a schema that a small model can fill in: flat, short, without what the request does not ask for.

A view only leaves out and renames. What is filled in becomes arguments of the whole schema again by `unfold`, and those
are validated as all arguments are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolkit.guided.short_forms import has_short_form, list_request_stems
from toolkit.guided.spoken_numbers import list_free_numbers
from toolkit.schema.nodes import Node, Nodes, is_array, is_object, map_subschemas
from toolkit.schema.projections import merge_nodes, simplify_unions
from toolkit.word_stems import list_stems, split_words, stem_word

__all__ = ["FoldedSchema", "find_named_values", "fold_schema", "is_choice", "is_named"]

_DEEPEST_REFERENCE = 4
_LONGEST_ENUM = 12
_SYNONYMS = (
    frozenset({"people", "persons", "guests", "adults", "passengers", "seats", "travelers", "travellers"}),
    frozenset({"called", "named", "titled", "title", "label"}),
    frozenset({"urgent", "urgently", "asap", "priority"}),
)
# What bounds are called, and what is said of them.
_UPPER = frozenset(["max", "maximum", "most", "highest", "upper", "largest", "longest", "latest"])
_LOWER = frozenset(["min", "minimum", "least", "lowest", "lower", "smallest", "shortest", "earliest"])
_SAYS_UPPER = frozenset(
    ["less", "fewer", "under", "below", "cheaper", "most", "maximum", "max", "up", "within", "until", "between"]
)
_SAYS_LOWER = frozenset(
    ["more", "over", "above", "least", "minimum", "min", "from", "starting", "higher", "bigger", "between"]
)
_COUNT = re.compile(r"\b(?:how many|number of|count|quantity|copies|pieces)\b", re.IGNORECASE)
_SHORTEST_ROOT, _LONGEST_ENDING = 5, 3
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
# What engines of grammars follow to the letter. Other keywords (patterns, formats, lengths) are left to the tool's own
# validation: some engines fail on them.
_SHAPE_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "anyOf"}
    | {"minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "description"}
)
# Those that each engine knows or leaves alone.
_KNOWN_FORMATS = frozenset({"date", "time", "date-time", "email"})


@dataclass(frozen=True, slots=True)
class FoldedSchema:
    """A view of a tool's parameters.

    Args:
        schema: The view, an object. Its properties are required, but for those that the request may only mean.
        paths: Where the value of each property belongs, as keys from the root.
        filled: The arguments that can have only one value, and are not asked for: constants, and null where allowed.
        asked: The names that are optional in the whole schema, and in the view because the request names them.
    """

    schema: Mapping[str, Any]
    paths: Mapping[str, tuple[str, ...]]
    filled: Mapping[tuple[str, ...], Any]
    asked: frozenset[str]

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """The properties of the view, by name."""
        found: Mapping[str, Mapping[str, Any]] = self.schema["properties"]
        return found

    def unfold(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the values of a view stand for.

        ::

            >>> fold_schema(parameters).unfold({"address.city": "Rome"})
            {'address': {'city': 'Rome'}}
        """
        arguments: dict[str, Any] = {}
        for name, value in values.items():
            _set_at_path(arguments, self.paths.get(name, (name,)), value)
        for path, value in self.filled.items():
            _set_at_path(arguments, path, value)
        return arguments

    def fold(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the view that arguments stand for; what the view has not is left out."""
        values: dict[str, Any] = {}
        for name, path in self.paths.items():
            value: Any = arguments
            for key in path:
                value = value.get(key, _ABSENT) if is_object(value) else _ABSENT
            if value is not _ABSENT:
                values[name] = value
        return values


_ABSENT = object()


def fold_schema(
    parameters: Mapping[str, Any], request: str | None = None, *, longest_enum: int = _LONGEST_ENUM
) -> FoldedSchema:
    """Return a view of a schema for small models.

    References are inlined, of unions the simplest arm is kept, objects inside objects become names with dots, constants
    and nulls are filled in. With the words of a request, optional parameters that these don't name are left out, and an
    enum of which they name values has only those. What they may mean without a name, such as how many, may be given.

    Args:
        parameters: A JSON Schema of type object.
        request: The user's words; None keeps the optional parameters and all values of enums.
        longest_enum: Shorter enums keep all their values.
    """
    return _Folding(parameters, request, longest_enum).fold()


def is_named(name: str, node: Mapping[str, Any], stems: frozenset[str]) -> bool:
    """Return whether words name a parameter: a word of its name, of its description, or one of its values."""
    name_stems = list_stems(name.rpartition(".")[2])
    about = [*name_stems, *list_stems(str(node.get("description", "")))]
    if any(stem in stems for stem in about) or any(_has_same_root(one, other) for one in name_stems for other in stems):
        return True
    items = node.get("items")
    values = [*node.get("enum", ()), *(items.get("enum", ()) if is_object(items) else ())]
    return bool(find_named_values(values, stems))


def find_named_values(values: Sequence[Any], stems: frozenset[str]) -> list[Any]:
    """Return the values of which every word is there, by itself or as its short form."""
    return [
        value
        for value in values
        if isinstance(value, str)
        and (words := list_stems(value) or [value])
        and all(word in stems or has_short_form(word, stems) for word in words)
    ]


def _has_same_root(one: str, other: str) -> bool:
    """Return whether one stem goes on a little where the other ends: assign, and the assignee."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_ROOT and len(long) - len(short) <= _LONGEST_ENDING and long.startswith(short)


def is_choice(node: Mapping[str, Any]) -> bool:
    """Return whether a value is chosen from a few, rather than taken from what was said."""
    return "enum" in node or node.get("type") == "boolean"


def _list_synonyms(request: str) -> list[str]:
    """Return what optional parameters are called that a request names in other words: seats for "two people"."""
    words = set(split_words(request))
    return [stem_word(other) for group in _SYNONYMS if words & group for other in group]


def _may_be_bound(name: str, node: Mapping[str, Any], request: str) -> bool:
    """Return whether a request says how much at most or at least, for a parameter that is such a bound."""
    about, said = set(split_words(f"{name} {node.get('description', '')}")), set(split_words(request))
    return bool((about & _UPPER and said & _SAYS_UPPER) or (about & _LOWER and said & _SAYS_LOWER))


def _may_be_count(name: str, node: Mapping[str, Any]) -> bool:
    """Return whether a parameter tells how many of a thing there are."""
    about = f"{' '.join(split_words(name))} {node.get('description', '')}"
    return node.get("type") == "integer" and _COUNT.search(about) is not None


class _Folding:
    def __init__(self, parameters: Mapping[str, Any], request: str | None, longest_enum: int) -> None:
        self._nodes = Nodes(parameters)
        self._request = request or ""
        self._stems = None if request is None else frozenset([*list_request_stems(request), *_list_synonyms(request)])
        self._longest_enum = longest_enum
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._paths: dict[str, tuple[str, ...]] = {}
        self._filled: dict[tuple[str, ...], Any] = {}
        self._asked: set[str] = set()

    def fold(self) -> FoldedSchema:
        root = self._simplify_node(self._nodes.root, 0)
        self._add_members(root, (), is_asked=False)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
            "additionalProperties": False,
        }
        return FoldedSchema(schema, self._paths, self._filled, frozenset(self._asked))

    def _may_be_meant(self, name: str, member: Node) -> bool:
        """Return whether the request may say an optional parameter without naming it: a bound, or how many."""
        return _may_be_bound(name, member, self._request) or (_may_be_count(name, member) and self._has_spare_numbers)

    @cached_property
    def _has_spare_numbers(self) -> bool:
        """True where the request says more numbers than the tool requires."""
        required = self._nodes.root.get("required", ())
        members = [
            self._simplify_node(member, 0) for key, member in self._list_members(self._nodes.root) if key in required
        ]
        taken = sum(member.get("type") in ("integer", "number") for member in members)
        return len(list_free_numbers(self._request)) > taken

    def _add_members(self, node: Node, path: tuple[str, ...], *, is_asked: bool) -> None:
        required = node.get("required", ())
        may_be_any = not required and not path
        for key, member in self._list_members(node):
            name = ".".join([*path, key])
            is_required = key in required
            if is_required and "enum" in member and len(member["enum"]) == 1:
                self._filled[(*path, key)] = member["enum"][0]
            elif is_required and member.get("nullable") and not self._is_asked_for(name, member):
                self._filled[(*path, key)] = None
            elif is_required or self._is_asked_for(name, member):
                asked = is_asked or not is_required or bool(member.get("nullable"))
                self._add_property((*path, key), name, member, is_asked=asked)
            elif not member.get("properties") and (may_be_any or self._may_be_meant(name, member)):
                self._add_property((*path, key), name, member, is_asked=True, is_left_open=True)

    def _add_property(
        self, path: tuple[str, ...], name: str, member: Node, *, is_asked: bool, is_left_open: bool = False
    ) -> None:
        if member.get("properties"):
            self._add_members(member, path, is_asked=is_asked)
            return
        while name in self._properties:  # a key with a dot of its own
            name += "_"
        self._properties[name] = _keep_shape(member)
        self._paths[name] = path
        if is_asked:
            self._asked.add(name)
        if not is_left_open and (self._stems is not None or not is_asked):
            self._required.append(name)

    def _list_members(self, node: Node) -> Iterator[tuple[str, Node]]:
        properties: Mapping[str, Any] = node.get("properties", {})
        for key, member in properties.items():
            yield key, self._simplify_node(member, 0)

    def _is_asked_for(self, name: str, member: Node) -> bool:
        if self._stems is None or is_named(name, member, self._stems):
            return True
        return any(
            self._is_asked_for(f"{name}.{key}", self._simplify_node(inner, 0))
            for key, inner in member.get("properties", {}).items()
        )

    def _simplify_node(self, node: Any, depth: int) -> dict[str, Any]:
        """Return a node without references and unions, as far as they can be done without."""
        if not is_object(node):
            return {}
        if "$ref" in node:
            depth += 1
            if depth > _DEEPEST_REFERENCE:
                return {"type": "object"}
        node = simplify_unions(self._nodes.resolve(node))
        for part in node.pop("allOf", ()):
            node = simplify_unions(merge_nodes(self._nodes.resolve(part), node))
        node = self._choose_arm(_split_null(node), depth)
        simple = map_subschemas(node, lambda member: self._simplify_node(member, depth))
        if "enum" in simple:
            simple["enum"] = self._shorten_enum(simple["enum"])
        return simple

    def _choose_arm(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        arms: list[dict[str, Any]] = [self._simplify_node(arm, depth + 1) for arm in node.pop("anyOf", ())]
        useful = [arm for arm in arms if arm.get("type") != "null" and arm.get("enum") != [None]]
        if not arms:
            return node
        if len(useful) < len(arms):
            node["nullable"] = True
        if all(arm.get("type") in _SCALARS or "enum" in arm for arm in useful) and len(useful) > 1:
            return {**node, "anyOf": useful}
        best: dict[str, Any] = min(useful, key=_rate_arm) if useful else {}
        return {**best, **node}

    def _shorten_enum(self, values: list[Any]) -> list[Any]:
        if self._stems is None or len(values) <= self._longest_enum:
            return values
        return find_named_values(values, self._stems) or values


def _split_null(node: dict[str, Any]) -> dict[str, Any]:
    """Say that a value may be null beside its type."""
    types: object = node.get("type")
    if is_array(types) and "null" in types:
        others = [each for each in types if each != "null"]
        node = {**node, "type": others[0] if len(others) == 1 else others, "nullable": True}
    values: object = node.get("enum")
    if is_array(values) and None in values and len(values) > 1:
        node = {**node, "enum": [value for value in values if value is not None], "nullable": True}
    return node


def _rate_arm(arm: dict[str, Any]) -> int:
    """Return how hard an arm of a union is to fill in; less is easier."""
    if arm.get("type") in _SCALARS or "enum" in arm:
        return 0
    return 1 if arm.get("type") == "array" else 2


def _keep_shape(node: Any) -> Any:
    if not is_object(node):
        return node
    shape = {keyword: value for keyword, value in node.items() if keyword in _SHAPE_KEYWORDS}
    if node.get("format") in _KNOWN_FORMATS:
        shape["format"] = node["format"]
    shape = map_subschemas(shape, _keep_shape)
    if "properties" in shape and "additionalProperties" not in shape:
        shape["additionalProperties"] = False
    return shape


def _set_at_path(arguments: dict[str, Any], path: Sequence[str], value: Any) -> None:
    inside = arguments
    for key in path[:-1]:
        inside = inside.setdefault(key, {})
    inside[path[-1]] = value
