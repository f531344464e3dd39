"""Converts the canonical schema of a tool to the form that each provider accepts.

A projection is weaker or equivalent; arguments are always validated by the canonical schema. Keywords that a provider
lacks go into the description, so that the model reads them. Schemas that a strict mode can't express are refused.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from toolkit.errors import SchemaError
from toolkit.schema.nodes import Node, Nodes, find_references, is_array, is_object
from toolkit.schema.problems import describe_node

_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_GEMINI_KEYWORDS = frozenset(
    {
        "type", "description", "properties", "required", "items", "anyOf", "enum", "nullable", "format", "pattern",
        "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
    }
)  # fmt: skip
_GEMINI_MOST_REFERENCES = 2000
_GEMINI_SHARED = ("type", "properties", "required", "items")
_GEMINI_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
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
_IN_WORDS = {
    "default": "Default: {}.",
    "format": "Format: {}.",
    "minLength": "Length at least {}.",
    "maxLength": "Length at most {}.",
    "exclusiveMinimum": "Greater than {}.",
    "exclusiveMaximum": "Less than {}.",
    "multipleOf": "A multiple of {}.",
    "uniqueItems": "All items different.",
}


def project_anthropic(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return the schema for Anthropic: JSON Schema with one object at the root.

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


def project_gemini(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema for Gemini: no references (cycles are cut), one type at each place, null as ``nullable``.

    A choice of objects at the root becomes one object with the properties of all.
    """
    projected = _Gemini(parameters).node(parameters, ())
    members: list[Node] = projected.pop("anyOf", [])
    if members:
        properties = {name: member for each in members for name, member in each.get("properties", {}).items()}
        required = [name for name in properties if all(name in each.get("required", ()) for each in members)]
        projected |= {"type": "object", "properties": properties, "required": required}
    return projected


def project_openai_strict(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return the schema for OpenAI's strict mode: every property is required, optional ones become nullable.

    The parser reads null for a property that is not nullable as left out.

    Raises:
        SchemaError: Strict mode can't express it; the message names the place.
    """
    return _OpenAI(parameters, subject).project()


def project_anthropic_strict(schema: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
    """Return the schema for Anthropic's strict mode: closed objects, and one known type at each place.

    It still has limits of numbers, texts and lists: the SDK moves those that its server lacks into descriptions.

    Raises:
        SchemaError: Strict mode can't express it; the message names the place.
    """
    return _Anthropic(schema, subject).project()


class _Gemini:
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.nodes = Nodes(parameters)
        self.followed = 0

    def node(self, node: object, inside: tuple[str, ...]) -> dict[str, Any]:
        if not is_object(node):
            return {}
        node = simplify_unions(node)
        if isinstance(reference := node.get("$ref"), str):
            return self._follow_reference(node, reference, inside)
        for part in node.pop("allOf", ()):
            node = simplify_unions(merge_nodes(self.nodes.resolve(part), node))
        node = _split_types(node)
        kept = {keyword: value for keyword, value in node.items() if keyword in _GEMINI_KEYWORDS}
        if kept.get("format") not in _GEMINI_FORMATS:
            kept.pop("format", None)
        if "enum" in kept:
            self._keep_values(kept)
        _keep_limits(kept, node)
        if "anyOf" in kept:
            self._keep_choices(kept, inside)
        self._keep_properties(kept, node, inside)
        if kept.get("type") == "array":
            self._keep_items(kept, node, inside)
        return _add_words(kept, node)

    def _follow_reference(self, node: Node, reference: str, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the target of a reference; a description in its place for a cycle."""
        name = reference.rsplit("/", maxsplit=1)[-1]
        if reference in inside:
            return {"type": "object", "description": f"Another {name}, with the same fields."}
        self.followed += 1
        if self.followed > _GEMINI_MOST_REFERENCES:  # they may multiply without bounds
            return {"type": "object", "description": f"A {name}."}
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return self.node(merge_nodes(self.nodes.target(reference), beside), (*inside, reference))

    def _keep_properties(self, kept: dict[str, Any], node: Node, inside: tuple[str, ...]) -> None:
        if is_object(kept.get("properties")):
            properties = kept["properties"]
            kept["properties"] = {name: self.node(member, inside) for name, member in properties.items()}
        elif kept.get("type") == "object" and is_object(rest := node.get("additionalProperties")) and rest:
            value = describe_node(self.nodes, cast("Node", rest)) or "any value"
            _add_sentence(kept, f"An object of any names; each value is {value}.")

    def _keep_values(self, kept: dict[str, Any]) -> None:
        """Keep the values of an enum if all are texts, as Gemini requires; else list them in the description."""
        values = kept["enum"]
        if None in values:
            kept["nullable"] = True
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) == len([value for value in values if value is not None]) and texts:
            kept |= {"type": "string", "enum": texts}
            return
        del kept["enum"]
        listed = ", ".join([json.dumps(value, ensure_ascii=False) for value in values])
        _add_sentence(kept, f"One of {listed}.")
        kinds = sorted(self.nodes.types({"enum": values}) - {"null"})
        if "type" not in kept and len(kinds) > 1:
            kept["anyOf"] = [{"type": kind} for kind in kinds]
        else:
            kept.setdefault("type", *(kinds or ["string"]))

    def _keep_choices(self, kept: dict[str, Any], inside: tuple[str, ...]) -> None:
        # Keywords beside the choices are repeated in each of them.
        shared = {keyword: kept.pop(keyword) for keyword in _GEMINI_SHARED if keyword in kept}
        members = [self.node(merge_nodes(shared, member), inside) for member in kept.pop("anyOf")]
        rest = [member for member in members if member.get("type") != "null"]
        if len(rest) < len(members):
            kept["nullable"] = True
        if len(rest) == 1:
            kept |= {key: value for key, value in rest[0].items() if key not in kept}
        elif rest:
            kept["anyOf"] = rest

    def _keep_items(self, kept: dict[str, Any], node: Node, inside: tuple[str, ...]) -> None:
        first = cast("list[Node]", node.get("prefixItems", []))
        if first:
            members = [self.node(member, inside) for member in first]
            different = [member for index, member in enumerate(members) if member not in members[:index]]
            kept["items"] = different[0] if len(different) == 1 else {"anyOf": different}
        else:
            items = node.get("items")
            kept["items"] = self.node(items, inside) if is_object(items) else {}


def _add_sentence(kept: dict[str, Any], sentence: str) -> None:
    kept["description"] = " ".join(filter(None, (kept.get("description"), sentence)))


def _keep_limits(kept: dict[str, Any], node: dict[str, Any]) -> None:
    """Convert exclusive limits to inclusive ones: ``x > 2`` to ``x >= 3`` for integers, else with a description."""
    for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if exclusive in node:
            limit = node[exclusive]
            if kept.get("type") == "integer":
                limit += step
                del node[exclusive]
            kept[inclusive] = limit


def _split_types(node: dict[str, Any]) -> dict[str, Any]:
    """Convert several types to choices."""
    kinds = node.get("type")
    if not is_array(kinds):
        return node
    rest = [kind for kind in kinds if kind != "null"]
    node = {key: value for key, value in node.items() if key != "type"}
    if "null" in kinds:
        node["nullable"] = True
    return {**node, "type": rest[0]} if len(rest) == 1 else {**node, "anyOf": [{"type": kind} for kind in rest]}


class _Strict(ABC):
    """A projection for a grammar, which requires known names in objects and known types."""

    mode: str
    most_levels = 100

    def __init__(self, schema: Mapping[str, Any], subject: str) -> None:
        self.nodes = Nodes(schema)
        self.subject = subject
        self.properties = 0

    def refuse(self, path: str, what: str) -> SchemaError:
        where = f"at '{path}'" if path else "at its root"
        return SchemaError(self.subject, f"{self.mode} can't express it: {where} it has {what}")

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
        """Keep a reference to a definition; inline its target if there are keywords beside it."""
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
        """Return the supported keywords of a node."""


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
        return _add_words(kept, node)

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
        edges: dict[str, list[str]] = {}
        waiting = [reference]
        for one in waiting:  # which grows
            if one not in edges:
                edges[one] = [*find_references(self.nodes.target(one))]
                waiting += edges[one]
        return any(reference in edge for edge in edges.values())

    def keywords(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords that the SDK supports or describes; several types become choices."""
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


def simplify_unions(node: Node) -> dict[str, Any]:
    """Convert ``oneOf`` to ``anyOf``, ``const`` to ``enum``, and inline an ``allOf`` of one."""
    changed = dict(node)
    if "oneOf" in changed:
        changed["anyOf"] = [*changed.get("anyOf", []), *changed.pop("oneOf")]
    if "const" in changed:
        changed["enum"] = [changed.pop("const")]
    if len(whole := changed.get("allOf", [])) == 1 and is_object(whole[0]):
        del changed["allOf"]
        changed = simplify_unions(merge_nodes(whole[0], changed))
    return changed


def merge_nodes(under: Node, over: Node) -> dict[str, Any]:
    """Return a node with the keywords and properties of both."""
    both = {**under, **over}
    if "properties" in under and "properties" in over:
        both["properties"] = {**under["properties"], **over["properties"]}
    if "required" in under and "required" in over:
        both["required"] = list(dict.fromkeys([*under["required"], *over["required"]]))
    return both


def _add_words(kept: dict[str, Any], node: Node) -> dict[str, Any]:
    """Add unsupported keywords to the description."""
    given = {keyword: node[keyword] for keyword in _IN_WORDS if keyword in node and keyword not in kept}
    if given.get("uniqueItems") is False:
        del given["uniqueItems"]
    words = [
        _IN_WORDS[keyword].format(json.dumps(value, ensure_ascii=False))
        for keyword, value in given.items()
        if value is not None
    ]
    if words:
        kept["description"] = " ".join([*([kept["description"]] if kept.get("description") else []), *words])
    return kept
