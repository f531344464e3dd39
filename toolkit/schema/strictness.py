"""Fields that their author made strict: no value of another type is taken for theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolkit.schema.nodes import JsonPath, is_array, is_object

__all__ = ["is_strict_at"]

_MOST_WRAPPERS = 50
# What stands in the core schema of Pydantic between a field and the type of its value.
_INNER = ("schema", "lax_schema", "json_schema")


def is_strict_at(schema: Any, path: JsonPath) -> bool:
    """Return whether a core schema of Pydantic is strict about the value at a path; of alternatives, whether one is."""
    definitions = {part.get("ref"): part for part in schema.get("definitions", ())}
    found = [(schema, False)]
    for key in path:
        found = [
            inner
            for part, is_strict in found
            for unwrapped in _unwrap_core(part, is_strict, definitions)
            for inner in _step_inside(*unwrapped, key)
        ]
    return any(is_strict for part, outer in found for _, is_strict in _unwrap_core(part, outer, definitions))


def _unwrap_core(part: Any, is_strict: bool, definitions: dict[Any, Any]) -> Iterator[tuple[Any, bool]]:
    waiting = [(part, is_strict)]
    for _ in range(_MOST_WRAPPERS):
        if not waiting:
            return
        part, is_strict = waiting.pop()
        config: Any = part.get("config") or {}
        is_strict = part.get("strict", config.get("strict", is_strict)) is True
        inner = [part[key] for key in _INNER if is_object(part.get(key)) and "type" in part[key]]
        inner += [definitions[part["schema_ref"]]] if part.get("schema_ref") in definitions else []
        inner += _list_choices(part)
        if inner and part["type"] != "json":
            waiting += [(one, is_strict) for one in inner]
        else:
            yield part, is_strict


def _list_choices(part: Any) -> list[Any]:
    choices: Any = part.get("choices", part.get("steps", ()))
    listed = list(choices.values()) if is_object(choices) else list(choices)
    return [choice[0] if isinstance(choice, tuple) else choice for choice in listed]


def _step_inside(part: Any, is_strict: bool, key: str | int) -> list[tuple[Any, bool]]:
    # What is said of a list or an object itself holds for what is inside only where it is said for all, in a `config`.
    outer = is_strict and "strict" not in part
    if isinstance(key, int):
        items = part.get("items_schema")
        if is_array(items):
            items = items[key] if key < len(items) else None
        return [(items, outer)] if items is not None else []
    fields: Any = part.get("fields", ())
    named = fields if is_object(fields) else {field["name"]: field for field in fields}
    inner = named.get(key) or next((field for field in named.values() if field.get("validation_alias") == key), None)
    inner = inner or part.get("values_schema") or part.get("extras_schema")
    return [(inner, outer)] if is_object(inner) else []
