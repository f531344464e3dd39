"""Finding one's way in a JSON Schema: what stands at a path, which JSON types it takes, what it says in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

__all__ = [
    "JsonPath",
    "Node",
    "Nodes",
    "is_array",
    "is_marked_secret",
    "is_object",
    "map_subschemas",
    "subschemas",
    "types_of",
]

Node: TypeAlias = Mapping[str, Any]
JsonPath: TypeAlias = tuple[str | int, ...]

_ANY: Node = {}
_ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_TELLING = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_MAX_DEPTH = 40
_MAX_CHOICES = 200
_MOST_KNOWN = 2_000
_MOST_PLACES = 50  # more than any tuple has
_MOST_SHOWN = 50
_MOST_SHOWN_INSIDE = 12
_LONGEST_SHOWN = 200

_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems", "contentSchema",
)  # fmt: skip
_FORMATS = {
    "date-time": "a date and time like 2026-01-31T12:00:00Z",
    "date": "a date like 2026-01-31",
    "time": "a time like 12:00:00",
    "duration": "a duration like PT1H30M",
    "uuid": "a UUID like 123e4567-e89b-42d3-a456-426614174000",
    **{f"uuid{n}": f"a UUID of version {n}" for n in (1, 3, 4, 5, 6, 7, 8)},
    "zoneinfo": "a time zone like Europe/Paris",
    "email": "an email address",
    "uri": "a URL like https://example.com",
    "path": "a path",
    "file-path": "the path of an existing file",
    "directory-path": "the path of an existing folder",
    "regex": "a regular expression",
    "json-string": "a string that holds JSON",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "password": "a string (secret)",
}
_WORDS = {
    "boolean": "true or false",
    "null": "null",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
}


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is an object in JSON's sense."""
    return type(value) is dict or isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list in JSON's sense."""
    return isinstance(value, list)


def is_marked_secret(node: Node) -> bool:
    """Whether a schema says that its value is a secret."""
    return node.get("writeOnly") is True or node.get("format") == "password"


def subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas directly inside a schema; names of properties are not mistaken for keywords."""
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAPS and is_object(value):
            yield from _schemas(value.values())
        elif keyword in _SCHEMA_LISTS and is_array(value):
            yield from _schemas(value)
        elif keyword in _SCHEMAS:
            yield from _schemas(value if is_array(value) else [value])


def _schemas(members: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    return (member for member in members if is_object(member))


def map_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy with each schema directly inside replaced by what `change` makes of it."""
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAPS and is_object(value):
            members = value
            changed[keyword] = {name: _change(member, change) for name, member in members.items()}
        elif keyword in _SCHEMA_LISTS and is_array(value):
            changed[keyword] = [_change(member, change) for member in value]
        elif keyword in _SCHEMAS:
            changed[keyword] = _change(value, change)
        else:
            changed[keyword] = value
    return changed


def _change(member: Any, change: Callable[[Any], Any]) -> Any:
    return change(member) if is_object(member) else member


def types_of(value: object) -> frozenset[str]:
    """Return the JSON types whose schemas a value fits."""
    kind = _type_of(value)
    if kind == "integer" or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    return frozenset({kind})


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
        for _ in range(_MAX_DEPTH):
            if not is_object(node):
                return _ANY
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            beside = {key: value for key, value in node.items() if key != "$ref"}
            node = {**self.target(reference), **beside}
        return _ANY

    def has(self, reference: str) -> bool:
        """Whether a reference leads to a schema in here."""
        return self._find(reference) is not None

    def target(self, reference: str) -> Node:
        """Return what a reference leads to; any value where that is not in here."""
        found = self._find(reference)
        return found if is_object(found) else _ANY

    def _find(self, reference: str) -> object:
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
            if members and depth < _MAX_DEPTH:
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
        for index in range(min(count, _MOST_PLACES)):
            yield self.at_key(node, index)
        yield from repeat(self.at_key(node, _MOST_PLACES), count - _MOST_PLACES)

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
                types.update(_type_of(value) for value in choice.get("enum", [choice.get("const")]))
            elif "properties" in choice:
                types.add("object")
            else:
                return _ALL_TYPES
        return frozenset(types)

    def have_any(self) -> bool:
        """Whether any value may stand somewhere."""
        waiting: list[Any] = [self.root]
        while waiting:
            node = waiting.pop()
            if not (node.keys() & _TELLING) or node.get("additionalProperties") is True:
                return True
            waiting.extend(subschemas(node))
        return False

    def is_secret(self, node: Node) -> bool:
        """Whether a value of this node must not be shown, or holds one that must not."""
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
            waiting.extend(self._parts_of(node))
        if not secret:
            return {}
        waiting = [self.root]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            for part in self._parts_of(node):
                holders[id(part)].append(id(node))
                waiting.append(part)
        found = dict.fromkeys(holders, False)
        while secret:
            one = secret.pop()
            if not found[one]:
                found[one] = True
                secret += holders[one]
        return found

    def _parts_of(self, node: Node) -> list[Node]:
        """Return the schemas directly inside a node, and the one that it refers to."""
        parts = list(subschemas(node))
        if isinstance(reference := node.get("$ref"), str) and is_object(target := self._find(reference)):
            parts.append(target)
        return parts

    def describe(self, node: Node, *, depth: int = 0) -> str:
        """Return what a node takes as a short phrase; empty for any value."""
        phrases = list(dict.fromkeys(self._describe_one(choice, depth) for choice in self.choices(node)))
        if "" in phrases:
            return ""
        constants = [phrase for phrase in phrases if phrase[:1] in '"0123456789-']
        if len(phrases) > _MOST_SHOWN:
            phrases[_MOST_SHOWN:] = [f"{len(phrases) - _MOST_SHOWN} more"]
        if len(constants) > 1 and len(constants) == len(phrases):
            return "one of " + ", ".join(constants)
        return " or ".join(phrases)

    def names_form(self, node: Node) -> bool:
        """Whether the words about a node name the form of a text: "a date like ..."."""
        return any(choice.get("format") in _FORMATS for choice in self.choices(node))

    def _describe_one(self, node: Node, depth: int) -> str:
        if "const" in node:
            return _json(node["const"])
        if "enum" in node:
            return _listed(node["enum"])
        kind = node.get("type", "object" if "properties" in node else None)
        if is_array(kind):
            return " or ".join(self._describe_one({**node, "type": one}, depth) for one in kind)
        match kind:
            case "array":
                return self._describe_array(node, depth)
            case "object":
                return self._describe_object(node, depth)
            case "string":
                return (_FORMATS.get(str(node.get("format"))) or "a string") + _string_limits(node)
            case "integer" | "number":
                return _WORDS[kind] + _number_limits(node)
            case str():
                return _WORDS.get(kind, kind)
            case _:
                return ""

    def _describe_array(self, node: Node, depth: int) -> str:
        first: list[Any] = node.get("prefixItems", [])
        if first and depth < 2:
            inside = ", ".join(
                self.describe(member, depth=depth + 1) or "any value" for member in first[:_MOST_SHOWN_INSIDE]
            ) + (", ..." if len(first) > _MOST_SHOWN_INSIDE else "")
            goes_on = node.get("maxItems") != len(first) and node.get("items", True) is not False
            return f"a list of {inside} and more" if goes_on else f"a list of exactly {len(first)} items: {inside}"
        items = node.get("items")
        inside = self.describe(items, depth=depth + 1) if is_object(items) and depth < 2 else ""
        words = "a list"
        if counted := _range(node.get("minItems"), node.get("maxItems"), "item"):
            words += f" of {counted}"
        if node.get("uniqueItems"):
            words += ", all different"
        return f"{words}, each {inside}" if inside else words

    def _describe_object(self, node: Node, depth: int) -> str:
        properties: Node = node.get("properties", {})
        counted = _range(node.get("minProperties"), node.get("maxProperties"), "member")
        words = f"an object of {counted}" if counted else "an object"
        if not properties or depth >= 2:
            return words
        required: frozenset[str] = frozenset(node.get("required", ()))
        named = ", ".join(
            f'"{name[:_LONGEST_SHOWN]}" ({self.describe(member, depth=depth + 1) or "any value"}'
            f"{'' if name in required else ', optional'})"
            for name, member in list(properties.items())[:_MOST_SHOWN_INSIDE]
        )
        more = len(properties) - _MOST_SHOWN_INSIDE
        return f"{words} with {named}" + (f" and {more} more" if more > 0 else "")


def _type_of(value: Any) -> str:
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


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _listed(values: list[Any]) -> str:
    shown = ", ".join(_json(value) for value in values[:_MOST_SHOWN])
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return shown if len(values) == 1 else f"one of {shown}{more}"


def _range(least: Any, most: Any, unit: str) -> str:
    if least is None and most is None:
        return ""
    if least == most:
        return f"exactly {least} {unit}{'' if least == 1 else 's'}"
    if least is None:
        return f"at most {most} {unit}{'' if most == 1 else 's'}"
    if most is None:
        return f"at least {least} {unit}{'' if least == 1 else 's'}"
    return f"{least} to {most} {unit}s"


def _string_limits(node: Node) -> str:
    words = ""
    if length := _range(node.get("minLength"), node.get("maxLength"), "character"):
        words += f" of {length}"
    if pattern := node.get("pattern"):
        shown = pattern if len(pattern) <= _LONGEST_SHOWN else f"{pattern[:_LONGEST_SHOWN]}..."
        words += f" that matches the regular expression {shown}"
    return words


def _number_limits(node: Node) -> str:
    least, most = node.get("minimum"), node.get("maximum")
    parts: list[str] = []
    if least is not None and most is not None:
        parts.append(f"from {least} to {most}")
    elif least is not None:
        parts.append(f"of at least {least}")
    elif most is not None:
        parts.append(f"of at most {most}")
    if (above := node.get("exclusiveMinimum")) is not None:
        parts.append(f"greater than {above}")
    if (below := node.get("exclusiveMaximum")) is not None:
        parts.append(f"less than {below}")
    if (step := node.get("multipleOf")) is not None:
        parts.append(f"that is a multiple of {step}")
    return (" " + " and ".join(parts)) if parts else ""
