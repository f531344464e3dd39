"""Arguments without brackets: ``city=Paris, days=3`` on a line, or ``city: Paris`` on a line of its own each."""

from __future__ import annotations

import json
import re

from toolkit.calls.repair.broken_json import WORDS, Reading, UnclearError, to_json_number, to_json_string
from toolkit.schema.amounts import read_amount
from toolkit.schema.nodes import ALL_TYPES, Node, Nodes

__all__ = ["read_flat"]

_LONGEST_FLAT_TEXT = 20_000
_STRING_ONLY = frozenset({"string"})
_FLAT_NAME = re.compile(
    r"(?:\A|(?P<mark>[,;\n]|(?=[ \t])))[ \t]*(?P<name>[^\W\d]\w*)(?:(?P<equals>[ ]?=[ ]?)(?!=)|:(?=[ \t]|\Z))"
)
_OTHER_NAME = re.compile(r"(?:\A|[\s,;])\w+\s?=(?!=)|[\s,;]\w+:(?=\s|\Z)|\s\#")
_QUOTED_VALUE = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL)
_IN_BRACKETS = re.compile(r"[\"'`{}\[\]<>]")


def read_flat(text: str, nodes: Nodes) -> Reading | None:
    """Return arguments that stand there as names and values, where each name is the schema's and each value fits it.

    A name of the schema that stands behind a comma, a space or a line break, with ``=`` behind it, begins an argument;
    with a colon it does so at the beginning of a line alone. Any other name in that way, a comma left over, or a quote
    inside a value makes it unclear.
    """
    text = text.strip()
    known = {name for choice in nodes.choices(nodes.root) for name in choice.get("properties", {})}
    if len(text) > _LONGEST_FLAT_TEXT or not known:
        return None
    begins = [match for match in _FLAT_NAME.finditer(text) if match["name"] in known and _begins_argument(match)]
    if not begins or begins[0].start() or len({match["name"] for match in begins}) < len(begins):
        return None
    ends = [match.start() for match in begins[1:]] + [len(text)]
    members: list[str] = []
    has_lines = all(match["mark"] in {None, "\n"} for match in begins)
    for match, end in zip(begins, ends, strict=True):
        name = match["name"]
        value = text[match.end() : end].strip().removesuffix("," if end < len(text) else "\n").strip()
        written = _read_flat_value(value, nodes.at_key(nodes.root, name), nodes, name, has_lines=has_lines)
        if written is None:
            return None
        members.append(f"{json.dumps(name)}: {written}")
    return Reading("{" + ", ".join(members) + "}", ("names and values were taken for an object",))


def _begins_argument(match: re.Match[str]) -> bool:
    return match["equals"] is not None or match.start() == 0 or match["mark"] == "\n"


def _read_flat_value(text: str, node: Node, nodes: Nodes, name: str, *, has_lines: bool) -> str | None:
    if _QUOTED_VALUE.fullmatch(text):
        try:
            return to_json_string(text)
        except UnclearError:
            return None
    types = nodes.types(node)
    if not text or "\n" in text or _IN_BRACKETS.search(text) or _OTHER_NAME.search(text) or types == ALL_TYPES:
        return None
    if not has_lines and re.search("[,;]", text) and "string" in types:
        return None
    plain = _read_bare_value(text, node, nodes, name)
    if "string" not in types:
        return plain
    # A word or a number for what may be a string or that is not clear.
    return json.dumps(text, ensure_ascii=False) if plain is None or types <= _STRING_ONLY else None


def _read_bare_value(text: str, node: Node, nodes: Nodes, name: str) -> str | None:
    if text in WORDS:
        return WORDS[text]
    try:
        return to_json_number(text)
    except UnclearError:
        amount = read_amount(text, node, nodes, (name,))
        return None if amount is None else json.dumps(amount)
