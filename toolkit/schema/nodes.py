"""Finding one's way in a JSON Schema: what stands at a path, which JSON types it takes, what it says in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

__all__ = ["JsonPath", "Node", "Nodes", "is_array", "is_object", "map_subschemas", "subschemas", "types_of"]

Node: TypeAlias = Mapping[str, Any]
JsonPath: TypeAlias = tuple[str | int, ...]

_ANY: Node = {}
_ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_TELLING = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_MAX_DEPTH = 40

_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
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
_EXAMPLES = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00",
    "duration": "PT1H",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "email": "name@example.com",
    "uri": "https://example.com",
    "json-string": "{}",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
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
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list in JSON's sense."""
    return isinstance(value, list)


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

    __slots__ = ("root",)

    def __init__(self, root: Node) -> None:
        self.root: Node = root

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

    def choices(self, node: Node, _depth: int = 0) -> list[Node]:
        """Return the alternatives of a node, or the node alone."""
        node = self.resolve(node)
        members: list[Any] = [*node.get("anyOf", ()), *node.get("oneOf", ())]
        if not members or _depth > _MAX_DEPTH:
            whole: list[Any] = node.get("allOf", [])
            return self.choices(whole[0], _depth + 1) if len(whole) == 1 and "type" not in node else [node]
        return [choice for member in members for choice in self.choices(member, _depth + 1)]

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
        found = self.inside(node, key)
        return found[0] if len(found) == 1 else {"anyOf": found} if found else _ANY

    def at(self, path: Iterable[str | int]) -> Node:
        """Return what may stand at a path."""
        node = self.root
        for key in path:
            node = self.at_key(node, key)
        return node

    def types(self, node: Node) -> frozenset[str]:
        """Return the JSON types that a node takes."""
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

    def is_secret(self, node: Node, _seen: frozenset[str] = frozenset()) -> bool:
        """Whether a value of this node must not be shown, or holds one that must not."""
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in _seen:
                return False
            _seen |= {reference}
            if self.is_secret(self.target(reference), _seen):
                return True
        return node.get("writeOnly") is True or any(self.is_secret(part, _seen) for part in subschemas(node))

    def describe(self, node: Node, *, depth: int = 0) -> str:
        """Return what a node takes as a short phrase; empty for any value."""
        phrases = list(dict.fromkeys(self._describe_one(choice, depth) for choice in self.choices(node)))
        if "" in phrases:
            return ""
        constants = [phrase for phrase in phrases if phrase[:1] in '"0123456789-']
        if len(constants) > 1 and len(constants) == len(phrases):
            return "one of " + ", ".join(constants)
        return " or ".join(phrases)

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
            inside = ", ".join(self.describe(member, depth=depth + 1) or "any value" for member in first)
            return f"a list of exactly {len(first)} items: {inside}"
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
        if not properties or depth >= 2:
            return "an object"
        required: list[str] = node.get("required", [])
        named = ", ".join(
            f'"{name}" ({self.describe(member, depth=depth + 1) or "any value"}'
            f"{'' if name in required else ', optional'})"
            for name, member in properties.items()
        )
        return f"an object with {named}"

    def example(self, node: Node, *, depth: int = 0) -> Any:
        """Return a small value that a node should take; a guess where patterns or formats decide."""
        node = self.resolve(node)
        for key in ("default", "const"):
            if key in node:
                return node[key]
        if is_array(listed := node.get("examples")) and listed:
            return listed[0]
        if "enum" in node:
            return node["enum"][0]
        choices = self.choices(node)
        choice = next((one for one in choices if one.get("type") != "null"), choices[0])
        if choice is not node:
            return self.example(choice, depth=depth + 1)
        if depth > 12:
            return None
        kind = node.get("type")
        kind = kind[0] if is_array(kind) else kind
        match cast("str | None", kind):
            case "object":
                properties: Node = node.get("properties", {})
                return {
                    name: self.example(properties.get(name, _ANY), depth=depth + 1) for name in node.get("required", [])
                }
            case "array":
                first: list[Any] = node.get("prefixItems", [])
                some = [self.example(member, depth=depth + 1) for member in first]
                rest = (
                    self.example(node.get("items") or _ANY, depth=depth + 1)
                    if len(some) < node.get("minItems", 0)
                    else None
                )
                return some + [rest] * (node.get("minItems", 0) - len(some))
            case "string":
                text = _EXAMPLES.get(str(node.get("format")), "...")
                return text.ljust(node.get("minLength", 0), ".")[: node.get("maxLength", len(text) + 1000)]
            case "integer" | "number":
                return _example_number(node)
            case "boolean":
                return True
            case _:
                return None


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
    return json.dumps(value, ensure_ascii=False)


def _listed(values: list[Any]) -> str:
    shown = ", ".join(_json(value) for value in values[:50])
    more = f" and {len(values) - 50} more" if len(values) > 50 else ""
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
        words += f" that matches the regular expression {pattern}"
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


def _example_number(node: Node) -> Any:
    step = node.get("multipleOf", 1)
    least = node.get("minimum", node["exclusiveMinimum"] + step if "exclusiveMinimum" in node else None)
    if least is not None:
        return -(-least // step) * step if node.get("multipleOf") else least
    most = node.get("maximum", node["exclusiveMaximum"] - step if "exclusiveMaximum" in node else None)
    return min(most // step * step if node.get("multipleOf") else most, step) if most is not None else step
