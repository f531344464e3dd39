"""The canonical schema of a tool as it can be held to: for the strict modes of OpenAI and Anthropic.

A projection only says less or says it otherwise; arguments are always checked against the canonical schema. What a
mode has no keyword for goes into the description; what it can't say at all is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from toolkit.errors import SchemaError
from toolkit.schema.nodes import Node, Nodes, find_references, is_array, is_object
from toolkit.schema.rewording import add_words, simplify_unions

__all__ = ["project_anthropic_strict", "project_openai_strict"]

_OPENAI_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_OPENAI_KEYWORDS = frozenset(
    {
        "type", "description", "properties", "required", "additionalProperties", "items", "anyOf", "enum",
        "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minItems", "maxItems",
    }
)  # fmt: skip
_STRICT_REFUSED = {
    "not": "'not'",
    "if": "conditions ('if')",
    "dependentRequired": "'dependentRequired'",
    "dependentSchemas": "'dependentSchemas'",
    "patternProperties": "properties named by a pattern",
    "allOf": "'allOf'",
    "prefixItems": "tuples (lists with a type for each place); use an object with named fields",
}
_MOST_PROPERTIES = 5000
_OPENAI_MAX_DEPTH = 10
_OPENAI_MAX_ENUM = 1000
_SAYS_NOTHING = frozenset({"title", "discriminator", "definitions", "$schema", "$id", "$comment"})


def project_openai_strict(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return what OpenAI's strict mode accepts: every property required, those that were not may be null.

    A null for what is not nullable means that it was left out; the parser takes it so.

    Raises:
        SchemaError: Strict mode can't say it; the reason names the place.
    """
    return _OpenAI(parameters, subject).project()


def project_anthropic_strict(schema: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return what Anthropic can hold a model to: every object closed, every type known, one at each place.

    Limits of numbers, texts and lists are still in it: the SDK says as words those that its server doesn't know.

    Raises:
        SchemaError: It can't be held to; the reason names the place.
    """
    return _Anthropic(schema, subject).project()


class _Strict(ABC):
    """A projection for a grammar, which can say objects whose names are all known, values whose type is."""

    mode: str
    most_levels = 100

    def __init__(self, schema: Mapping[str, Any], subject: str) -> None:
        self.nodes = Nodes(schema)
        self.subject = subject
        self.properties = 0

    def refuse(self, path: str, what: str) -> SchemaError:
        where = f"at '{path}'" if path else "at its root"
        return SchemaError(self.subject, f"{self.mode} can't say it: {where} it has {what}")

    def project(self) -> dict[str, Any]:
        root = self.nodes.resolve(self.nodes.root)
        projected = self.node({key: value for key, value in root.items() if key != "$defs"}, "", 0)
        definitions: Node = root.get("$defs", {})
        if definitions:
            projected["$defs"] = {name: self.node(member, name, 1) for name, member in definitions.items()}
        return projected

    def node(self, node: object, path: str, depth: int, inside: tuple[str, ...] = ()) -> dict[str, Any]:
        if depth > self.most_levels:
            raise self.refuse(path, f"more than {self.most_levels} levels")
        if not is_object(node):
            raise self.refuse(path, "a value of any type" if node else "what no value fits")
        node = simplify_unions(node)
        if isinstance(reference := node.get("$ref"), str):
            return self.reference(node, reference, path, depth, inside)
        refused = next((what for keyword, what in _STRICT_REFUSED.items() if keyword in node), None)
        if refused is not None:
            raise self.refuse(path, refused)
        kept = self.keywords(node)
        if "anyOf" in kept:
            kept["anyOf"] = [self.node(member, path, depth, inside) for member in kept["anyOf"]]
        elif "type" not in kept and "enum" not in kept:
            raise self.refuse(path, "a value of any type")
        if _has_type(kept, "object"):
            self.object(kept, node, path, depth, inside)
        if _has_type(kept, "array"):
            self.array(kept, path, depth, inside)
        return kept

    def array(self, kept: dict[str, Any], path: str, depth: int, inside: tuple[str, ...]) -> None:
        items = kept.get("items")
        if not is_object(items) or not items:
            raise self.refuse(path, "a list of anything")
        kept["items"] = self.node(items, f"{path}[]", depth + 1, inside)

    def reference(self, node: Node, reference: str, path: str, depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Keep a reference to a definition; put in its place what it refers to where words stand beside it."""
        if not self.nodes.has(reference):
            raise self.refuse(path, f"a reference to what is not there: {reference}")
        is_definition = reference == "#" or (reference.startswith("#/$defs/") and reference.count("/") == 2)
        if is_definition and (set(node) == {"$ref"} or reference in inside):
            return {"$ref": reference}
        if reference in inside:
            raise self.refuse(path, f"a reference to itself outside of '$defs': {reference}")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return self.node({**self.nodes.target(reference), **beside}, path, depth, (*inside, reference))

    def object(self, kept: dict[str, Any], node: Node, path: str, depth: int, inside: tuple[str, ...]) -> None:
        if node.get("additionalProperties") not in (False, None) or ("properties" not in node and path):
            raise self.refuse(path, "an object with names that are not known beforehand")
        properties: Node = node.get("properties", {})
        self.properties += len(properties)
        if self.properties > _MOST_PROPERTIES:
            raise self.refuse("", f"more than {_MOST_PROPERTIES} properties")
        kept["properties"] = {
            name: self.node(member, f"{path}.{name}" if path else name, depth + 1, inside)
            for name, member in properties.items()
        }
        kept["additionalProperties"] = False

    @abstractmethod
    def keywords(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return what of a node is known there."""


class _OpenAI(_Strict):
    mode = "OpenAI's strict mode"
    most_levels = _OPENAI_MAX_DEPTH

    def __init__(self, schema: Mapping[str, Any], subject: str) -> None:
        super().__init__(schema, subject)
        self.enum_values = 0

    def project(self) -> dict[str, Any]:
        root = self.nodes.resolve(self.nodes.root)
        if root.get("type", "object") != "object" or "anyOf" in root or "oneOf" in root:
            raise self.refuse("", "something other than one object")
        self.nodes = Nodes({"type": "object", **root})
        projected = super().project()
        if self.enum_values > _OPENAI_MAX_ENUM:
            raise self.refuse("", f"{self.enum_values} enum values; {_OPENAI_MAX_ENUM} are allowed")
        return projected

    def keywords(self, node: dict[str, Any]) -> dict[str, Any]:
        kept = {keyword: value for keyword, value in node.items() if keyword in _OPENAI_KEYWORDS}
        if kept.get("format") not in _OPENAI_FORMATS:
            kept.pop("format", None)
        self.enum_values += len(kept.get("enum", ()))
        return add_words(kept, node)

    def object(self, kept: dict[str, Any], node: Node, path: str, depth: int, inside: tuple[str, ...]) -> None:
        super().object(kept, node, path, depth, inside)
        properties: Node = node.get("properties", {})
        required: list[str] = node.get("required", [])
        for name, member in properties.items():
            if name not in required and "null" not in self.nodes.types(member):
                kept["properties"][name] = _allow_null(kept["properties"][name])
        kept["required"] = list(properties)


class _Anthropic(_Strict):
    mode = "Anthropic's strict mode"

    def reference(self, node: Node, reference: str, path: str, depth: int, inside: tuple[str, ...]) -> dict[str, Any]:
        if self.is_recursive(reference):
            raise self.refuse(path, f"what refers to itself: {reference}")
        return super().reference(node, reference, path, depth, inside)

    def is_recursive(self, reference: str) -> bool:
        seen: set[str] = set()
        waiting = [reference]
        while waiting:
            found = set(find_references(self.nodes.target(waiting.pop())))
            if reference in found:
                return True
            waiting += found - seen
            seen |= found
        return False

    def keywords(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return all that the SDK can say, in words where it must; several types become choices."""
        kept = {keyword: value for keyword, value in node.items() if keyword not in _SAYS_NOTHING}
        if kept.get("default", "") is None:
            del kept["default"]
        kinds = kept.get("type")
        if not is_array(kinds) or "enum" in kept:
            return kept
        outside: dict[str, Any] = {}
        for keyword in ("description", "default"):
            if keyword in kept:
                outside[keyword] = kept.pop(keyword)
        choices = [{"type": kind} if kind == "null" else {**kept, "type": kind} for kind in kinds]
        return {"anyOf": choices, **outside}


def _has_type(node: Node, kind: str) -> bool:
    given = node.get("type")
    return given == kind or (is_array(given) and kind in given)


def _allow_null(node: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind := node.get("type"), str) and "enum" not in node:
        return {**node, "type": [kind, "null"]}
    described = {"description": node.pop("description")} if "description" in node else {}
    members = node["anyOf"] if set(node) == {"anyOf"} else [node]
    return {"anyOf": [*members, {"type": "null"}], **described}
