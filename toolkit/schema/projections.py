"""The canonical schema of a tool as each provider accepts it.

A projection only says less or says it otherwise; arguments are always checked against the canonical schema. What a
provider has no keyword for goes into the description, so that the model still reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from toolkit.errors import SchemaError
from toolkit.schema.nodes import Node, Nodes, is_array, is_object

__all__ = ["anthropic", "gemini", "openai_strict"]

_OPENAI_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_OPENAI_KEYWORDS = frozenset(
    {
        "type", "description", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref",
        "$defs", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minItems", "maxItems",
    }
)  # fmt: skip
_OPENAI_REFUSED = {
    "not": "'not'",
    "if": "conditions ('if')",
    "dependentRequired": "'dependentRequired'",
    "dependentSchemas": "'dependentSchemas'",
    "patternProperties": "properties named by a pattern",
    "prefixItems": "tuples (lists with a type for each place); use an object with named fields",
}
_OPENAI_MAX_PROPERTIES = 5000
_OPENAI_MAX_DEPTH = 10
_OPENAI_MAX_ENUM = 1000

_GEMINI_KEYWORDS = frozenset(
    {
        "type", "description", "properties", "required", "items", "anyOf", "enum", "nullable", "format", "pattern",
        "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
    }
)  # fmt: skip
_GEMINI_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def openai_strict(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return what OpenAI's strict mode accepts: every property required, those that were not may be null.

    A null for what is not nullable means that it was left out; the parser takes it so.

    Raises:
        SchemaError: Strict mode can't say it; the reason names the place.
    """
    return _OpenAI(parameters, subject).project()


class _OpenAI:
    def __init__(self, parameters: Mapping[str, Any], subject: str) -> None:
        self.nodes = Nodes(parameters)
        self.subject = subject
        self.properties = 0
        self.enum_values = 0

    def refuse(self, path: str, what: str) -> SchemaError:
        where = f"at '{path}'" if path else "at its root"
        return SchemaError(self.subject, f"OpenAI's strict mode can't say it: {where} it has {what}")

    def project(self) -> dict[str, Any]:
        root = self.nodes.root
        if root.get("type", "object") != "object" or "anyOf" in root or "oneOf" in root:
            raise self.refuse("", "something other than one object")
        projected = self.node({"type": "object", **root}, "", 0)
        definitions: Node = root.get("$defs", {})
        if definitions:
            projected["$defs"] = {name: self.node(member, name, 1) for name, member in definitions.items()}
        if self.properties > _OPENAI_MAX_PROPERTIES:
            raise self.refuse("", f"{self.properties} properties; {_OPENAI_MAX_PROPERTIES} are allowed")
        if self.enum_values > _OPENAI_MAX_ENUM:
            raise self.refuse("", f"{self.enum_values} enum values; {_OPENAI_MAX_ENUM} are allowed")
        return projected

    def node(self, node: Node, path: str, depth: int) -> dict[str, Any]:
        if depth > _OPENAI_MAX_DEPTH:
            raise self.refuse(path, f"more than {_OPENAI_MAX_DEPTH} levels")
        if "$ref" in node:
            return {"$ref": node["$ref"]}
        for keyword, what in _OPENAI_REFUSED.items():
            if keyword in node:
                raise self.refuse(path, what)
        node = _plain_unions(node)
        if "allOf" in node:
            raise self.refuse(path, "'allOf'")
        kept = {keyword: value for keyword, value in node.items() if keyword in _OPENAI_KEYWORDS and keyword != "$defs"}
        if kept.get("format") not in _OPENAI_FORMATS:
            kept.pop("format", None)
        self.enum_values += len(kept.get("enum", ()))
        if "anyOf" in kept:
            kept["anyOf"] = [self.node(member, path, depth) for member in kept["anyOf"]]
        elif "type" not in kept and "enum" not in kept:
            raise self.refuse(path, "a value of any type")
        if _has_type(kept, "object"):
            self.object(kept, node, path, depth)
        if _has_type(kept, "array"):
            items = kept.get("items")
            if not is_object(items) or not items:
                raise self.refuse(path, "a list of anything")
            kept["items"] = self.node(items, f"{path}[]", depth + 1)
        return _with_words(kept, node, ("default",))

    def object(self, kept: dict[str, Any], node: Node, path: str, depth: int) -> None:
        if node.get("additionalProperties") not in (False, None) or ("properties" not in node and path):
            raise self.refuse(path, "an object with names that are not known beforehand")
        properties: Node = node.get("properties", {})
        required: list[str] = node.get("required", [])
        self.properties += len(properties)
        kept["properties"] = {}
        for name, member in properties.items():
            inner = self.node(member, f"{path}.{name}" if path else name, depth + 1)
            is_optional = name not in required and "null" not in self.nodes.types(member)
            kept["properties"][name] = _nullable(inner) if is_optional else inner
        kept["required"] = list(properties)
        kept["additionalProperties"] = False


def _has_type(node: Node, kind: str) -> bool:
    given = node.get("type")
    return given == kind or (is_array(given) and kind in given)


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind := node.get("type"), str) and "enum" not in node:
        return {**node, "type": [kind, "null"]}
    described = {"description": node.pop("description")} if "description" in node else {}
    members = node["anyOf"] if set(node) == {"anyOf"} else [node]
    return {"anyOf": [*members, {"type": "null"}], **described}


def _plain_unions(node: Node) -> dict[str, Any]:
    """Say ``oneOf`` as ``anyOf``, ``const`` as ``enum``, and an ``allOf`` of one as that one."""
    changed = dict(node)
    if "oneOf" in changed:
        changed["anyOf"] = [*changed.get("anyOf", []), *changed.pop("oneOf")]
    if "const" in changed:
        changed["enum"] = [changed.pop("const")]
    if len(whole := changed.get("allOf", [])) == 1:
        del changed["allOf"]
        changed = {**whole[0], **changed}
    return changed


def _with_words(kept: dict[str, Any], node: Node, keywords: tuple[str, ...]) -> dict[str, Any]:
    """Put what has no keyword into the description."""
    words = [f"Default: {_json(node[keyword])}." for keyword in keywords if node.get(keyword) is not None]
    if words:
        kept["description"] = " ".join([*([kept["description"]] if kept.get("description") else []), *words])
    return kept


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def anthropic(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return what Anthropic accepts: JSON Schema as it is, with one object at the root.

    Raises:
        SchemaError: The root is a choice of objects, or a property has a name that is not allowed.
    """
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in parameters:
            raise SchemaError(subject, f"Anthropic accepts no '{keyword}' at the root: make it one object")
    for name in parameters.get("properties", {}):
        if _ANTHROPIC_NAME.fullmatch(name) is None:
            raise SchemaError(
                subject,
                "Anthropic accepts names of 1 to 64 of the letters A-Z, digits, '_', '.' and '-': give it an alias",
                parameter=name,
            )
    return {"type": "object", "properties": {}, **parameters}


def gemini(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Gemini accepts: no references (cycles are cut), one type at each place, null as ``nullable``."""
    return _Gemini(parameters).node(parameters, ())


class _Gemini:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.nodes = Nodes(parameters)

    def node(self, node: Node, inside: tuple[str, ...]) -> dict[str, Any]:
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in inside:
                name = reference.rsplit("/", maxsplit=1)[-1]
                return {"type": "object", "description": f"Another {name}, with the same fields."}
            inside = (*inside, reference)
            node = self.nodes.resolve(node)
        node = _plain_unions(node)
        for part in node.get("allOf", ()):
            node = {**self.nodes.resolve(part), **node}
        node = _one_type(node)
        kept = {keyword: value for keyword, value in node.items() if keyword in _GEMINI_KEYWORDS}
        self._values(kept, node)
        if "anyOf" in kept:
            self._choices(kept, inside)
        if is_object(kept.get("properties")):
            properties = kept["properties"]
            kept["properties"] = {name: self.node(member, inside) for name, member in properties.items()}
        elif kept.get("type") == "object" and is_object(rest := node.get("additionalProperties")) and rest:
            words = f"An object of any names; each value is {self.nodes.describe(cast('Node', rest)) or 'any value'}."
            kept["description"] = " ".join(filter(None, (kept.get("description"), words)))
        if kept.get("type") == "array":
            self._items(kept, node, inside)
        return _with_words(kept, node, ("default",))

    def _values(self, kept: dict[str, Any], node: Node) -> None:
        if kept.get("format") not in _GEMINI_FORMATS:
            kept.pop("format", None)
        if "enum" in kept:
            values = kept["enum"]
            if None in values:
                kept["nullable"] = True
            texts = [value for value in values if isinstance(value, str)]
            if len(texts) == len([value for value in values if value is not None]) and texts:
                kept |= {"type": "string", "enum": texts}
            else:
                del kept["enum"]
                words = f"One of {', '.join(map(_json, values))}."
                kept["description"] = " ".join(filter(None, (kept.get("description"), words)))
                kept.setdefault("type", next(iter(self.nodes.types({"enum": values}) - {"null"}), "string"))
        for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if exclusive in node:
                kept[inclusive] = node[exclusive] + (step if kept.get("type") == "integer" else 0)

    def _choices(self, kept: dict[str, Any], inside: tuple[str, ...]) -> None:
        members = [self.node(member, inside) for member in kept.pop("anyOf")]
        rest = [member for member in members if member.get("type") != "null"]
        if len(rest) < len(members):
            kept["nullable"] = True
        if len(rest) == 1:
            kept |= {key: value for key, value in rest[0].items() if key not in kept}
        elif rest:
            kept["anyOf"] = rest

    def _items(self, kept: dict[str, Any], node: Node, inside: tuple[str, ...]) -> None:
        first = cast("list[Node]", node.get("prefixItems", []))
        if first:
            members = [self.node(member, inside) for member in first]
            different = [member for index, member in enumerate(members) if member not in members[:index]]
            kept["items"] = different[0] if len(different) == 1 else {"anyOf": different}
        else:
            items = node.get("items")
            kept["items"] = self.node(items, inside) if is_object(items) else {}


def _one_type(node: dict[str, Any]) -> dict[str, Any]:
    """Say several types as choices."""
    kinds = node.get("type")
    if not is_array(kinds):
        return node
    rest = [kind for kind in kinds if kind != "null"]
    node = {key: value for key, value in node.items() if key != "type"}
    if "null" in kinds:
        node["nullable"] = True
    return {**node, "type": rest[0]} if len(rest) == 1 else {**node, "anyOf": [{"type": kind} for kind in rest]}
