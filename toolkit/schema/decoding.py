"""One more look at strings that should have been something else: models put JSON into strings."""

from __future__ import annotations

from typing import Any

from toolkit.schema.arguments import ArgumentsParser, decode_json
from toolkit.schema.nodes import Node, Nodes, is_array, is_object, types_of

__all__ = ["decode_strings"]

_STRUCTURED = frozenset({"array", "object"})


def decode_strings(parser: ArgumentsParser, value: Any) -> Any | None:
    """Return the arguments with strings decoded as JSON where the schema wants no string; None where there are none.

    Only for arguments that were refused: ``"[1, 2]"`` where a list is wanted, ``"null"``, ``"3"``. Where a string is
    allowed it stays one. A strict parser has lists and objects decoded, no numbers.
    """
    decoder = _Decoder(Nodes(parser.schema), frozenset(_STRUCTURED if parser.is_strict else ()))
    try:
        decoded = decoder.decode(value, parser.schema)
    except RecursionError:
        return None
    return decoded if decoder.has_changed else None


class _Decoder:
    def __init__(self, nodes: Nodes, only: frozenset[str]) -> None:
        self.nodes = nodes
        self.only = only
        self.has_changed = False

    def decode(self, value: Any, node: Node) -> Any:
        if isinstance(value, str):
            value = self._decode_text(value, node)
        if is_object(value):
            members = value
            return {key: self.decode(item, self.nodes.at_key(node, key)) for key, item in members.items()}
        if is_array(value):
            items = value
            return [self.decode(item, self.nodes.at_key(node, index)) for index, item in enumerate(items)]
        return value

    def _decode_text(self, text: str, node: Node) -> Any:
        types = self.nodes.types(node)
        if "string" in types or len(text) > 1_000_000:
            return text
        try:
            decoded = decode_json(text)
        except (ValueError, RecursionError):
            return text
        found = types_of(decoded)
        if not found & types or (self.only and not found & self.only):
            return text
        self.has_changed = True
        return decoded
