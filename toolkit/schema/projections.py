"""The canonical schema of a tool as providers accept it that check nothing: Anthropic and Gemini.

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
from toolkit.schema.phrases import describe_node
from toolkit.schema.rewording import add_words, merge_nodes, simplify_unions

__all__ = ["project_anthropic", "project_gemini"]

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


def project_anthropic(parameters: Mapping[str, Any], *, subject: str = "the schema") -> dict[str, Any]:
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


def project_gemini(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Gemini accepts: no references (cycles are cut), one type at each place, null as ``nullable``.

    A choice of objects at the root becomes one object with the properties of all.
    """
    projected = _Gemini(parameters).node(parameters, ())
    members: list[Node] = projected.pop("anyOf", [])
    if members:
        properties = {name: member for each in members for name, member in each.get("properties", {}).items()}
        required = [name for name in properties if all(name in each.get("required", ()) for each in members)]
        projected |= {"type": "object", "properties": properties, "required": required}
    return projected


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
        return add_words(kept, node)

    def _follow_reference(self, node: Node, reference: str, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return what a reference leads to; words in its place where it leads back to itself."""
        name = reference.rsplit("/", maxsplit=1)[-1]
        if reference in inside:
            return {"type": "object", "description": f"Another {name}, with the same fields."}
        self.followed += 1
        if self.followed > _GEMINI_MOST_REFERENCES:  # of each other they may be without number
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
        """Keep the values of an enum where all are texts, the only ones that Gemini takes; say others in words."""
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
        # What stands beside the choices must be within each of them.
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
    """Say an exclusive limit as an inclusive one: ``x > 2`` as ``x >= 3`` for an integer, else with words beside it."""
    for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if exclusive in node:
            limit = node[exclusive]
            if kept.get("type") == "integer":
                limit += step
                del node[exclusive]
            kept[inclusive] = limit


def _split_types(node: dict[str, Any]) -> dict[str, Any]:
    """Say several types as choices."""
    kinds = node.get("type")
    if not is_array(kinds):
        return node
    rest = [kind for kind in kinds if kind != "null"]
    node = {key: value for key, value in node.items() if key != "type"}
    if "null" in kinds:
        node["nullable"] = True
    return {**node, "type": rest[0]} if len(rest) == 1 else {**node, "anyOf": [{"type": kind} for kind in rest]}
