"""Arguments as a person types them, ``key=value``, read by the schema of the tool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.schema.nodes import Nodes, is_array
from toolkit.visible_text import escape_in_text

__all__ = ["read_pairs"]


def read_pairs(pairs: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that pairs say: a value is text where the schema takes text, else JSON.

    A key that is repeated, or stands once where only a list may stand, makes a list. What is no JSON stays text: what
    checks the call says what is wrong with it.

    Raises:
        CommandError: A pair has no ``=``.
    """
    nodes = Nodes(parameters)
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise CommandError(
                f"{escape_in_text(pair)} is not key=value: write the name of a parameter, '=' and its value",
                ExitCode.MISUSED,
            )
        texts.setdefault(key, []).append(text)
    return {key: _read_values(given, nodes, key) for key, given in texts.items()}


def _read_values(texts: Sequence[str], nodes: Nodes, key: str) -> Any:
    node = nodes.at_key(nodes.root, key)
    types = nodes.types(node)
    if len(texts) == 1:
        value = _read_typed_value(texts[0], types)
        is_lone_item = value is not None and not is_array(value) and "array" in types and types <= {"array", "null"}
        if not is_lone_item:
            return value
    return [_read_typed_value(text, nodes.types(nodes.at_key(node, place))) for place, text in enumerate(texts)]


def _read_typed_value(text: str, types: frozenset[str]) -> Any:
    if "string" in types:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
