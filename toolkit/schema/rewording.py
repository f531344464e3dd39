"""Nodes of a schema said in other words, where a provider lacks a keyword: nothing is lost that a model reads."""

from __future__ import annotations

import json
from typing import Any

from toolkit.schema.nodes import Node, is_object

__all__ = ["add_words", "merge_nodes", "simplify_unions"]

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


def simplify_unions(node: Node) -> dict[str, Any]:
    """Say ``oneOf`` as ``anyOf``, ``const`` as ``enum``, and an ``allOf`` of one as that one."""
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
    """Say two nodes as one, with the properties of both."""
    both = {**under, **over}
    if "properties" in under and "properties" in over:
        both["properties"] = {**under["properties"], **over["properties"]}
    if "required" in under and "required" in over:
        both["required"] = list(dict.fromkeys([*under["required"], *over["required"]]))
    return both


def add_words(kept: dict[str, Any], node: Node) -> dict[str, Any]:
    """Put what has no keyword into the description."""
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
