"""Keys of dictionaries that are no text: how JSON says them, where a name is always text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolkit.schema.nodes import Node, is_array

__all__ = ["describe_keys"]

_MOST_LISTED = 64


def describe_keys(keys: Node, resolve: Callable[[Node], Node], *, is_literal: bool) -> dict[str, Any] | bool:
    """Return the schema of the names that are taken for keys; true for any name, false where no name can be one.

    Args:
        keys: The schema of a key, as if it stood by itself.
        resolve: Returns what a schema refers to.
        is_literal: True where the values that it lists are taken as they are: no name is a number then.
    """
    keys = resolve(keys)
    if is_array(arms := keys.get("anyOf", keys.get("oneOf"))):
        return _describe_arms([describe_keys(arm, resolve, is_literal=is_literal) for arm in arms])
    values = keys.get("enum", [keys["const"]] if "const" in keys else None)
    if values is not None:
        return _describe_listed(values, is_literal=is_literal)
    match keys.get("type"):
        case "string":
            return {name: value for name, value in keys.items() if name not in ("type", "title", "description")} or True
        case "integer":
            return _describe_numbers(keys.get("minimum"), keys.get("maximum"))
        case "number":
            return {"pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"}
        case "boolean":
            return {"enum": ["true", "false"]}
        case "array" | "object" | "null":
            return False
        case _:
            return True


def _describe_listed(values: list[Any], *, is_literal: bool) -> dict[str, Any] | bool:
    names = [v if isinstance(v, str) else json.dumps(v) for v in values if isinstance(v, str) or not is_literal]
    return {"enum": names} if names else False


def _describe_numbers(least: int | None, most: int | None) -> dict[str, Any]:
    if least is not None and most is not None and most - least < _MOST_LISTED:
        return {"enum": [str(number) for number in range(least, most + 1)]}
    return {"pattern": "^[0-9]+$" if least is not None and least >= 0 else "^-?[0-9]+$"}


def _describe_arms(arms: list[dict[str, Any] | bool]) -> dict[str, Any] | bool:
    kept = [arm for arm in arms if arm is not False]
    if not kept or True in kept:
        return bool(kept)
    return kept[0] if len(kept) == 1 else {"anyOf": kept}
