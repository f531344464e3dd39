"""Short phrases for what a part of a JSON Schema takes, as a model or a developer reads them."""

from __future__ import annotations

import json
from typing import Any

from toolkit.schema.nodes import Node, Nodes, is_array, is_object

__all__ = ["describe_node", "names_form"]

_MOST_SHOWN = 50
_MOST_SHOWN_INSIDE = 12
_LONGEST_VALUE = 200

_PHRASES_OF_FORMATS = {
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
_PHRASES_OF_TYPES = {
    "boolean": "true or false",
    "null": "null",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
}


def describe_node(nodes: Nodes, node: Node, *, depth: int = 0) -> str:
    """Return what a node takes as a short phrase; empty for any value."""
    phrases = list(dict.fromkeys(_describe_one(nodes, choice, depth) for choice in nodes.choices(node)))
    if "" in phrases:
        return ""
    constants = [phrase for phrase in phrases if phrase[:1] in '"0123456789-']
    if len(phrases) > _MOST_SHOWN:
        phrases[_MOST_SHOWN:] = [f"{len(phrases) - _MOST_SHOWN} more"]
    if len(constants) > 1 and len(constants) == len(phrases):
        return "one of " + ", ".join(constants)
    return " or ".join(phrases)


def names_form(nodes: Nodes, node: Node) -> bool:
    """Return whether the words about a node name the form of a text: "a date like ..."."""
    return any(choice.get("format") in _PHRASES_OF_FORMATS for choice in nodes.choices(node))


def _describe_one(nodes: Nodes, node: Node, depth: int) -> str:
    if "const" in node:
        return _write_constant(node["const"])
    if "enum" in node:
        return _list_values(node["enum"])
    kind = node.get("type", "object" if "properties" in node else None)
    if is_array(kind):
        return " or ".join(_describe_one(nodes, {**node, "type": one}, depth) for one in kind)
    match kind:
        case "array":
            return _describe_array(nodes, node, depth)
        case "object":
            return _describe_object(nodes, node, depth)
        case "string":
            return (_PHRASES_OF_FORMATS.get(str(node.get("format"))) or "a string") + _describe_string_limits(node)
        case "integer" | "number":
            return _PHRASES_OF_TYPES[kind] + _describe_number_limits(node)
        case str():
            return _PHRASES_OF_TYPES.get(kind, kind)
        case _:
            return ""


def _describe_array(nodes: Nodes, node: Node, depth: int) -> str:
    first: list[Any] = node.get("prefixItems", [])
    if first and depth < 2:
        inside = ", ".join(
            describe_node(nodes, member, depth=depth + 1) or "any value" for member in first[:_MOST_SHOWN_INSIDE]
        ) + (", ..." if len(first) > _MOST_SHOWN_INSIDE else "")
        goes_on = node.get("maxItems") != len(first) and node.get("items", True) is not False
        return f"a list of {inside} and more" if goes_on else f"a list of exactly {len(first)} items: {inside}"
    items = node.get("items")
    inside = describe_node(nodes, items, depth=depth + 1) if is_object(items) and depth < 2 else ""
    words = "a list"
    if counted := _describe_range(node.get("minItems"), node.get("maxItems"), "item"):
        words += f" of {counted}"
    if node.get("uniqueItems"):
        words += ", all different"
    return f"{words}, each {inside}" if inside else words


def _describe_object(nodes: Nodes, node: Node, depth: int) -> str:
    properties: Node = node.get("properties", {})
    counted = _describe_range(node.get("minProperties"), node.get("maxProperties"), "member")
    words = f"an object of {counted}" if counted else "an object"
    if not properties or depth >= 2:
        return words
    required: frozenset[str] = frozenset(node.get("required", ()))
    named = ", ".join(
        f'"{name[:_LONGEST_VALUE]}" ({describe_node(nodes, member, depth=depth + 1) or "any value"}'
        f"{'' if name in required else ', optional'})"
        for name, member in list(properties.items())[:_MOST_SHOWN_INSIDE]
    )
    more = len(properties) - _MOST_SHOWN_INSIDE
    return f"{words} with {named}" + (f" and {more} more" if more > 0 else "")


def _write_constant(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _list_values(values: list[Any]) -> str:
    shown = ", ".join(_write_constant(value) for value in values[:_MOST_SHOWN])
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return shown if len(values) == 1 else f"one of {shown}{more}"


def _describe_range(least: Any, most: Any, unit: str) -> str:
    if least is None and most is None:
        return ""
    if least == most:
        return f"exactly {least} {unit}{'' if least == 1 else 's'}"
    if least is None:
        return f"at most {most} {unit}{'' if most == 1 else 's'}"
    if most is None:
        return f"at least {least} {unit}{'' if least == 1 else 's'}"
    return f"{least} to {most} {unit}s"


def _describe_string_limits(node: Node) -> str:
    words = ""
    if length := _describe_range(node.get("minLength"), node.get("maxLength"), "character"):
        words += f" of {length}"
    if pattern := node.get("pattern"):
        shown = pattern if len(pattern) <= _LONGEST_VALUE else f"{pattern[:_LONGEST_VALUE]}..."
        words += f" that matches the regular expression {shown}"
    return words


def _describe_number_limits(node: Node) -> str:
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
