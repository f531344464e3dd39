"""Finding one's way in a JSON Schema: what stands at a path, and which JSON types it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

Node: TypeAlias = Mapping[str, Any]
JsonPath: TypeAlias = tuple[str | int, ...]

_ANY: Node = {}
ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
"""The types of JSON Schema."""
_TELLING_KEYWORDS = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_MOST_REFERENCES = 40
_MAX_CHOICES = 200
_MOST_KNOWN = 2_000
_MOST_TUPLE_PLACES = 50  # more than any tuple has
# The keywords whose value is an object of schemas, a list of them, or one (in old drafts `items` is a list too).
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_KEYWORDS = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems", "contentSchema",
)  # fmt: skip


# To ask whether one of these is a mapping takes five times as long as to look it up here.
_NO_OBJECTS = frozenset({str, int, float, bool, list, type(None)})


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is an object in JSON's sense."""
    kind = type(value)
    return kind is dict or (kind not in _NO_OBJECTS and isinstance(value, Mapping))


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a list in JSON's sense."""
    return isinstance(value, list)


def is_marked_secret(node: Node) -> bool:
    """Return whether a schema says that its value is a secret."""
    return node.get("writeOnly") is True or node.get("format") == "password"


def subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas directly inside a schema; names of properties are not mistaken for keywords."""
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS and is_object(value):
            yield from _keep_schemas(value.values())
        elif keyword in SCHEMA_LISTS and is_array(value):
            yield from _keep_schemas(value)
        elif keyword in SCHEMA_KEYWORDS:
            yield from _keep_schemas(value if is_array(value) else [value])


def _keep_schemas(members: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    return (member for member in members if is_object(member))


def map_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy with each schema directly inside replaced by what `change` makes of it."""
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS and is_object(value):
            members = value
            changed[keyword] = {name: _change_member(member, change) for name, member in members.items()}
        elif keyword in SCHEMA_LISTS and is_array(value):
            changed[keyword] = [_change_member(member, change) for member in value]
        elif keyword in SCHEMA_KEYWORDS:
            changed[keyword] = _change_member(value, change)
        else:
            changed[keyword] = value
    return changed


def _change_member(member: Any, change: Callable[[Any], Any]) -> Any:
    return change(member) if is_object(member) else member


def types_of(value: object) -> frozenset[str]:
    """Return the JSON types whose schemas a value fits."""
    kind = _name_type(value)
    if kind == "integer" or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    return frozenset({kind})


def find_references(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield each reference in a schema, as often as it is there, whatever it leads to."""
    waiting: list[Mapping[str, Any]] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(reference := part.get("$ref"), str):
            yield reference
        waiting.extend(subschemas(part))


class Nodes:
    """A schema whose references are followed within it, and never out of it."""

    __slots__ = ("_known_choices", "_known_types", "_secret", "root")

    def __init__(self, root: Node) -> None:
        self.root: Node = root
        self._secret: dict[int, bool] | None = None
        # By the id of a node, with the node itself: an id of what is no more could be taken by another.
        self._known_choices: dict[int, tuple[Node, list[Node]]] = {}
        self._known_types: dict[int, tuple[Node, frozenset[str]]] = {}

    def resolve(self, node: Any) -> Node:
        """Return what a node refers to, with the words beside the reference on top; any value where that is unknown."""
        for _ in range(_MOST_REFERENCES):
            if not is_object(node):
                return _ANY
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            beside = {key: value for key, value in node.items() if key != "$ref"}
            node = {**self.target(reference), **beside}
        return _ANY

    def has(self, reference: str) -> bool:
        """Return whether a reference leads to a schema in here."""
        return self._find_target(reference) is not None

    def target(self, reference: str) -> Node:
        """Return what a reference leads to; any value where that is not in here."""
        found = self._find_target(reference)
        return found if is_object(found) else _ANY

    def _find_target(self, reference: str) -> object:
        found: Any = self.root
        if reference != "#" and not reference.startswith("#/"):
            return None
        for raw in reference[1:].split("/")[1:]:
            part = unquote(raw).replace("~1", "/").replace("~0", "~")
            if is_object(found):
                found = found.get(part)
            elif is_array(found) and part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            else:
                return None
        return cast("object", found) if isinstance(found, (Mapping, bool)) else None

    def choices(self, node: Node) -> list[Node]:
        """Return the alternatives of a node, the first of very many, or the node alone."""
        known = self._known_choices.get(id(node))
        if known is None:
            known = (node, self._find_choices(node))
            if len(self._known_choices) < _MOST_KNOWN:
                self._known_choices[id(node)] = known
        return known[1]

    def _find_choices(self, node: Node) -> list[Node]:
        found: list[Node] = []
        waiting: list[tuple[Any, int]] = [(node, 0)]
        while waiting and len(found) < _MAX_CHOICES:
            one, depth = waiting.pop()
            one = self.resolve(one)
            members: list[Any] = [*one.get("anyOf", ()), *one.get("oneOf", ())]
            if not members and len(one.get("allOf", ())) == 1 and "type" not in one:
                members = one["allOf"]
            if members and depth < _MOST_REFERENCES:
                waiting += [(member, depth + 1) for member in reversed(members[:_MAX_CHOICES])]
            else:
                found.append(one)
        return found

    def that_hold(self, node: Node, value: object) -> list[Node]:
        """Return the schemas that surely hold for a value: the node, its parts, the one alternative of its type."""
        found: list[Node] = []
        waiting: list[Any] = [node]
        while waiting and len(found) < _MAX_CHOICES:
            one = self.resolve(waiting.pop())
            found.append(one)
            waiting += one.get("allOf", ())
            members: list[Any] = one.get("anyOf", one.get("oneOf", []))
            fitting = [member for member in members if types_of(value) & self.types(member)]
            if len(fitting) == 1:
                waiting.append(fitting[0])
        return found

    def inside(self, node: Node, key: str | int) -> list[Node]:
        """Return what may stand under a key, or at an index, of values of a node."""
        found: list[Node] = []
        for choice in self.choices(node):
            if isinstance(key, str):
                properties: Node = choice.get("properties", {})
                member = properties.get(key, choice.get("additionalProperties"))
            else:
                first: list[Any] = choice.get("prefixItems", [])
                member = first[key] if key < len(first) else choice.get("items")
            if is_object(member):
                found.append(member)
        return found

    def at_key(self, node: Node, key: str | int) -> Node:
        """Return what may stand under a key: one node, of alternatives where there are several; empty where unknown."""
        found = list({id(one): one for one in self.inside(node, key)}.values())
        return found[0] if len(found) == 1 else {"anyOf": found} if found else _ANY

    def at_items(self, node: Node, count: int) -> Iterator[Node]:
        """Yield what may stand at each index of a list of so many items."""
        for index in range(min(count, _MOST_TUPLE_PLACES)):
            yield self.at_key(node, index)
        yield from repeat(self.at_key(node, _MOST_TUPLE_PLACES), count - _MOST_TUPLE_PLACES)

    def at(self, path: Iterable[str | int]) -> Node:
        """Return what may stand at a path."""
        node = self.root
        for key in path:
            node = self.at_key(node, key)
        return node

    def types(self, node: Node) -> frozenset[str]:
        """Return the JSON types that a node takes."""
        known = self._known_types.get(id(node))
        if known is None:
            known = (node, self._find_types(node))
            if len(self._known_types) < _MOST_KNOWN:
                self._known_types[id(node)] = known
        return known[1]

    def _find_types(self, node: Node) -> frozenset[str]:
        types: set[str] = set()
        for choice in self.choices(node):
            given = choice.get("type")
            if isinstance(given, str):
                types.add(given)
            elif is_array(given):
                types.update(given)
            elif "enum" in choice or "const" in choice:
                types.update(_name_type(value) for value in choice.get("enum", [choice.get("const")]))
            elif "properties" in choice:
                types.add("object")
            else:
                return ALL_TYPES
        return frozenset(types)

    def have_any(self) -> bool:
        """Return whether any value may stand somewhere."""
        waiting: list[Any] = [self.root]
        while waiting:
            node = waiting.pop()
            if not (node.keys() & _TELLING_KEYWORDS) or node.get("additionalProperties") is True:
                return True
            waiting.extend(subschemas(node))
        return False

    def is_secret(self, node: Node) -> bool:
        """Return whether a value of this node must not be shown, or holds one that must not."""
        if self._secret is None:
            self._secret = self._find_secrets()
        if not self._secret:
            return False
        if (known := self._secret.get(id(node))) is not None:
            return known
        # A node that was put together here, of some of the schema.
        reference = node.get("$ref")
        return (
            is_marked_secret(node)
            or (isinstance(reference, str) and self._secret.get(id(self.target(reference)), False))
            or any(self.is_secret(part) for part in subschemas(node))
        )

    def _find_secrets(self) -> dict[int, bool]:
        """Return, by the id of each part, whether it is secret or holds what is; nothing where none is."""
        holders: dict[int, list[int]] = {}
        secret: list[int] = []
        waiting: list[Node] = [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) in holders:
                continue
            holders[id(node)] = []
            if is_marked_secret(node):
                secret.append(id(node))
            waiting.extend(self._list_parts(node))
        if not secret:
            return {}
        waiting = [self.root]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            for part in self._list_parts(node):
                holders[id(part)].append(id(node))
                waiting.append(part)
        found = dict.fromkeys(holders, False)
        while secret:
            one = secret.pop()
            if not found[one]:
                found[one] = True
                secret += holders[one]
        return found

    def _list_parts(self, node: Node) -> list[Node]:
        """Return the schemas directly inside a node, and the one that it refers to."""
        parts = list(subschemas(node))
        if isinstance(reference := node.get("$ref"), str) and is_object(target := self._find_target(reference)):
            parts.append(target)
        return parts


def _name_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
