"""Results as values are looked up in them: JSON becomes lines of words, with its texts in quotes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from toolkit.schema.nodes import is_array, is_object

__all__ = ["flatten_json_text"]

_DEEPEST = 8


def flatten_json_text(text: str) -> str:
    """Return a text that is JSON as a line for each value: `customer id: 417`; another text as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_list_lines(value, "", 0)) if is_object(value) or is_array(value) else text


def _list_lines(value: Any, name: str, depth: int) -> Iterator[str]:
    label = f"{name}: " if name else ""
    if depth < _DEEPEST and is_object(value):
        for key, member in value.items():
            yield from _list_lines(member, key.replace("_", " "), depth + 1)
    elif depth < _DEEPEST and is_array(value):
        for item in value:
            yield from _list_lines(item, name, depth + 1)
    elif isinstance(value, str):
        yield f'{label}"{value}"'
    elif value is not None:
        yield f"{label}{value}"
