"""Navigation in a JSON Schema: the schema at a path, the JSON types that it accepts, and its secret fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeGuard, TypeVar, cast
from urllib.parse import unquote

from toolkit.dataclass import dataclass
from toolkit.redaction import is_marked_secret, is_secret_field, is_secret_member, replace_secrets

K = TypeVar("K")
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
# The keywords whose value is an object of schemas, a list of them, or one (in old drafts, `items` may be a list).
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_KEYWORDS = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems", "contentSchema",
)  # fmt: skip


_OF_NAMELESS = frozenset({*SCHEMA_LISTS, *SCHEMA_KEYWORDS}) - {"not"}

# This lookup takes a fifth of the time of `isinstance(value, Mapping)`.
_NO_OBJECTS = frozenset({str, int, float, bool, list, type(None)})


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a JSON object."""
    kind = type(value)
    return kind is dict or (kind not in _NO_OBJECTS and isinstance(value, Mapping))


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def count_parts(value: object, most: int, *, opaque: Collection[str] = ()) -> int:
    """Return the number of objects and lists in a value of JSON; where they are more than `most`, some number above.

    Args:
        value: The value.
        most: The number above which they are not counted.
        opaque: The names of fields whose values are not counted.
    """
    waiting, count = [value], 0
    while waiting and count + len(waiting) <= most:
        part = waiting.pop()
        count += 1
        if is_object(part):
            waiting += [each for name, each in part.items() if type(each) in (dict, list) and name not in opaque]
        elif is_array(part):
            waiting += [each for each in part if type(each) in (dict, list)]
    return count + len(waiting)


ReplaceSecret: TypeAlias = Callable[[Any, JsonPath, bool], Any]
"""Returns the replacement for a secret at a path; the flag is True if the schema marks it, not only its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFields:
    """The secret fields of values of a schema, each with all below it.

    Args:
        names: The names of fields that their schemas mark as secret.
        suspects: The names of fields that sound secret.
        holders: The names of fields that contain such fields, so that only an object or a list may be shown there.
        harmless: The names of fields that sound secret, and whose schemas list every value.
        others: The names of all other fields.
        is_rest: True if fields that the schema does not name are secret.
        is_open: True if fields of any name are allowed somewhere.
    """

    names: frozenset[str]
    suspects: frozenset[str]
    holders: frozenset[str]
    harmless: frozenset[str]
    others: frozenset[str]
    is_rest: bool
    is_open: bool


def subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas directly inside a schema, by its keywords."""
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
    """Return a copy with `change` applied to each schema directly inside."""
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
    """Return the JSON types of a value; an integer is a number, too."""
    kind = _name_type(value)
    if kind == "integer" or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    return frozenset({kind})


def find_references(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reference in a schema, repeated ones included."""
    waiting: list[Mapping[str, Any]] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(reference := part.get("$ref"), str):
            yield reference
        waiting.extend(subschemas(part))


class Nodes:
    """A schema in which references are followed, never out of it."""

    __slots__ = ("_known_choices", "_known_types", "_secretive", "_secrets", "root")

    def __init__(self, root: Node) -> None:
        self.root: Node = root
        self._secrets: SecretFields | None = None
        self._secretive: dict[JsonPath, frozenset[str]] = {}
        # By the id of a node, with the node, so that the id stays its own.
        self._known_choices: dict[int, tuple[Node, list[Node]]] = {}
        self._known_types: dict[int, tuple[Node, frozenset[str]]] = {}

    def resolve(self, node: Any) -> Node:
        """Return the target of a node's reference with the keywords beside it on top; any value if it is unknown."""
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
        """Return whether a reference has a target in this schema."""
        return self._find_target(reference) is not None

    def target(self, reference: str) -> Node:
        """Return the target of a reference; any value if it is not in this schema."""
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
        """Return the alternatives of a node, up to a limit, or the node alone."""
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

    def find_applying(self, node: Node, value: object) -> list[Node]:
        """Return the schemas that surely apply to a value: the node, its parts, the only alternative of its type."""
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
        """Return the schemas of a key or an index in values of a node."""
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
        """Return the schema of a key, with alternatives if there are several; empty if it is unknown."""
        found = list({id(one): one for one in self.inside(node, key)}.values())
        return found[0] if len(found) == 1 else {"anyOf": found} if found else _ANY

    def at_items(self, node: Node, count: int) -> Iterator[Node]:
        """Yield the schema of each index of a list of so many items."""
        for index in range(min(count, _MOST_TUPLE_PLACES)):
            yield self.at_key(node, index)
        yield from repeat(self.at_key(node, _MOST_TUPLE_PLACES), count - _MOST_TUPLE_PLACES)

    def at(self, path: Iterable[str | int]) -> Node:
        """Return the schema of a path."""
        node = self.root
        for key in path:
            node = self.at_key(node, key)
        return node

    def types(self, node: Node) -> frozenset[str]:
        """Return the JSON types that a node accepts."""
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

    def allows_any_value(self) -> bool:
        """Return whether any value is accepted somewhere."""
        waiting: list[Any] = [self.root]
        while waiting:
            node = waiting.pop()
            if not (node.keys() & _TELLING_KEYWORDS) or node.get("additionalProperties") is True:
                return True
            waiting.extend(subschemas(node))
        return False

    @property
    def secrets(self) -> SecretFields:
        """The secret fields."""
        if self._secrets is None:
            self._secrets = self._find_secrets()
        return self._secrets

    @property
    def takes_secrets(self) -> bool:
        """True if the schema has secret fields, by its marks or by their names."""
        secrets = self.secrets
        return bool(secrets.names or secrets.suspects or secrets.is_rest)

    @property
    def may_take_secrets(self) -> bool:
        """True if a value may have secret fields, also under names that the schema leaves open."""
        return self.secrets.is_open or self.takes_secrets

    def hides(self, path: JsonPath) -> bool:
        """Return whether a field, or one above it, is secret."""
        return any(self._find_hidden(name, is_root=not place) is not None for place, name in enumerate(path))

    def replace_secrets(self, value: Any, replace: ReplaceSecret) -> Any:
        """Return a value of the schema with its secrets replaced, each with all below it; the original stays.

        If it should be an object with secrets and is none, what is in no object counts as one.
        """
        if self.takes_secrets and not is_object(value):
            items = [self.replace_secrets(item, replace) for item in value] if is_array(value) else None
            return replace(value, (), True) if items is None else items
        return replace_secrets(value, self._judge_field, replace)

    def _judge_field(self, name: str | int, path: JsonPath, inside: Any) -> bool | None:
        """Return as `_find_hidden` does; True too where an object or a list with secrets inside is something else.

        A name that an object does not know counts as that of a secret which it lacks: it may be another name for it.
        """
        secrets, is_marked = self.secrets, self._find_hidden(name, is_root=not path)
        if is_marked is not None or not (secrets.names or secrets.suspects):
            return is_marked
        if not isinstance(inside[name], dict | list | None):
            owner = next((each for each in reversed((*path, name)) if isinstance(each, str)), None)
            if owner in secrets.holders:
                return True
        if isinstance(name, int) or name in secrets.others or name in secrets.harmless:
            return None
        lacking = self._secretive_at(path) - inside.keys()
        return True if lacking else None

    def _secretive_at(self, path: JsonPath) -> frozenset[str]:
        """Return the names of the secret fields of an object at a path."""
        if path not in self._secretive:
            secretive = self.secrets.names | self.secrets.suspects
            choices = self.choices(self.at(path)) if secretive else ()
            found = secretive.intersection(*[[*choice.get("properties", ())] for choice in choices]) if choices else ()
            if len(self._secretive) > _MOST_KNOWN:
                self._secretive.clear()
            self._secretive[path] = frozenset(found)
        return self._secretive[path]

    def _find_hidden(self, name: str | int, *, is_root: bool) -> bool | None:
        """Return True for a field that the schema marks as secret, False for one by its name, None for others."""
        if not isinstance(name, str):
            return None
        secrets = self.secrets
        if name in secrets.names or (is_root and secrets.is_rest and name not in self.root.get("properties", ())):
            return True
        if name in secrets.suspects:
            return False
        return False if secrets.is_open and name not in secrets.harmless and is_secret_field(name) else None

    def _find_secrets(self) -> SecretFields:
        """Search the whole schema, also the parts that no value may reach."""
        above: dict[int, list[int]] = {}  # by node, those whose value, or a nameless part of it, it describes
        owners: dict[int, list[int]] = {}  # by the node of a field, the nodes with that field
        members: list[tuple[str, Any]] = []
        parts = self._list_parts()
        for node in parts:
            for part in self._list_nameless(node):
                above.setdefault(id(part), []).append(id(node))
            if is_object(properties := node.get("properties", {})):
                members += properties.items()
                for member in properties.values():
                    owners.setdefault(id(member), []).append(id(node))
        secret = find_reached([id(node) for node in parts if is_marked_secret(node)], above)
        names = frozenset([name for name, member in members if id(member) in secret])
        sounding = [(name, member) for name, member in members if name not in names and is_secret_member(name, member)]
        suspects = frozenset(
            [name for name, member in sounding if not (is_object(member) and self._lists_values(member))]
        )
        secretive = names | suspects
        within = [owner for name, member in members if name in secretive for owner in owners[id(member)]]
        holding = find_reached(within, above, owners)
        return SecretFields(
            names=names,
            suspects=suspects,
            holders=frozenset([name for name, member in members if id(member) in holding]) - secretive,
            harmless=frozenset([name for name, _ in sounding]) - suspects,
            others=frozenset([name for name, _ in members]) - secretive,
            is_rest=id(self.root) in secret,
            is_open=any(map(_takes_any_name, parts)),
        )

    def _list_parts(self) -> list[Node]:
        """Return the schema and all schemas in it, also those that are only referred to."""
        found: dict[int, Node] = {}
        waiting: list[Node] = [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                waiting += [*self._list_nameless(node), *subschemas(node)]
        return [*found.values()]

    def _list_nameless(self, node: Node) -> list[Node]:
        """Return the schemas of a node's own value, and of its parts without names."""
        parts: list[Any] = []
        for keyword, value in node.items():
            if keyword in _OF_NAMELESS:
                parts += value if is_array(value) else [value]
            elif keyword in ("patternProperties", "dependentSchemas") and is_object(value):
                parts += value.values()
        if isinstance(reference := node.get("$ref"), str):
            parts.append(self._find_target(reference))
        return list(_keep_schemas(parts))

    def _lists_values(self, node: Node) -> bool:
        """Return whether a schema lists every value, or accepts booleans only."""
        return all(
            "enum" in one or "const" in one or one.get("type") in ("boolean", "null") for one in self.choices(node)
        )


def find_reached(begin: Iterable[K], *edges: Mapping[K, Iterable[K]]) -> set[K]:
    """Return the nodes of a graph that can be reached from some nodes, including these."""
    reached: set[K] = set()
    waiting = list(begin)
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            for edge in edges:
                waiting += edge.get(one, ())
    return reached


def _takes_any_name(node: Node) -> bool:
    """Return whether values of a schema may have other fields than it names."""
    if "properties" in node or node.get("type") == "object":
        return node.get("additionalProperties", True) is not False and "maxProperties" not in node
    return not node.keys() & _TELLING_KEYWORDS


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
