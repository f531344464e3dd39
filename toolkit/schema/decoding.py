"""One more look at strings that should have been something else: models put JSON and numbers in words into strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.schema.amounts import read_amount
from toolkit.schema.arguments import ArgumentsParser, decode_json
from toolkit.schema.nodes import JsonPath, Node, Nodes, is_array, is_object, types_of
from toolkit.schema.work import open_budget

__all__ = ["decode_strings", "find_dropped_nulls"]

_STRUCTURED = frozenset({"array", "object"})


def decode_strings(parser: ArgumentsParser, value: Any, *, assumed: list[str] | None = None) -> Any | None:
    """Return the arguments with strings read as what the schema wants there; None where there are none.

    Only for arguments that were refused: ``"[1, 2]"`` where a list is wanted, ``"null"``, ``"3"``, ``"1,000"``. Where a
    string is allowed it stays one. Where its author made a field strict, lists and objects are decoded, no numbers.
    What is assumed for that is appended to `assumed`, in words.
    """
    if open_budget().left < 0:  # a check of this call was given up
        return None
    told: list[str] = [] if assumed is None else assumed
    decoder = _Decoder(parser, told)
    before = len(told)
    try:
        decoded = decoder.decode(value, parser.schema, ())
    except RecursionError:
        return None
    return decoded if len(told) > before else None


def find_dropped_nulls(nodes: Nodes, value: Any) -> list[JsonPath]:
    """Return where null stands in arguments that were accepted although the schema takes none there: left out."""
    found: list[JsonPath] = []
    waiting: list[tuple[Any, Node, JsonPath]] = [(value, nodes.root, ())]
    while waiting:
        part, node, path = waiting.pop()
        if part is None and path and isinstance(path[-1], str) and "null" not in nodes.types(node):
            found.append(path)
        if is_object(part):
            waiting += [(item, nodes.at_key(node, key), (*path, key)) for key, item in part.items()]
        elif is_array(part):
            inside = zip(part, nodes.at_items(node, len(part)), strict=True)
            waiting += [(item, member, (*path, index)) for index, (item, member) in enumerate(inside)]
    return sorted(found, key=str)


def name_of(path: Sequence[str | int]) -> str:
    """Return a path as it is written in what is told of a repair."""
    return ".".join(map(str, path))


class _Decoder:
    def __init__(self, parser: ArgumentsParser, assumed: list[str]) -> None:
        self.nodes = parser.nodes
        self.parser = parser
        self.assumed = assumed

    def decode(self, value: Any, node: Node, path: JsonPath) -> Any:
        if isinstance(value, str):
            value = self._decode_text(value, node, path)
        if is_object(value):
            members = value
            return {key: self.decode(item, self.nodes.at_key(node, key), (*path, key)) for key, item in members.items()}
        if is_array(value):
            items = value
            inside = self.nodes.at_items(node, len(items))
            return [
                self.decode(item, member, (*path, index))
                for index, (item, member) in enumerate(zip(items, inside, strict=True))
            ]
        return value

    def _decode_text(self, text: str, node: Node, path: JsonPath) -> Any:
        types = self.nodes.types(node)
        if "string" in types or len(text) > 1_000_000:
            return text
        try:
            decoded = decode_json(text)
        except (ValueError, RecursionError):
            amount = read_amount(text, node, self.nodes, path)
            if amount is None or self.parser.is_strict_at(path):
                return text
            self.assumed.append(f"{name_of(path)}: the number {amount} was read from words")
            return amount
        found = types_of(decoded)
        if not found & types or (not found & _STRUCTURED and self.parser.is_strict_at(path)):
            return text
        self.assumed.append(f"{name_of(path)}: the string was decoded as JSON")
        return decoded
