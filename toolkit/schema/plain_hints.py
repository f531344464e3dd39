"""Hints of plain values (text, numbers, lists of them...), compiled without asking Pydantic what they are.

Most parameters of most tools are plain, and making a tool should cost little. What is said here of a hint is what
Pydantic says of it, and a test holds the two together; whatever isn't here goes the general way.
"""

from __future__ import annotations

import types
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic_core import core_schema

__all__ = ["PlainHint", "plain_hint"]


class PlainHint(NamedTuple):
    """A hint as what validates it and what a model reads."""

    core: core_schema.CoreSchema
    schema: dict[str, Any]


_PLAIN_SCALARS: dict[Any, tuple[core_schema.CoreSchema, dict[str, Any]]] = {
    str: (core_schema.str_schema(), {"type": "string"}),
    int: (core_schema.int_schema(), {"type": "integer"}),
    float: (core_schema.float_schema(), {"type": "number"}),
    bool: (core_schema.bool_schema(), {"type": "boolean"}),
    Any: (core_schema.any_schema(), {}),
}
_UNIONS = (Union, types.UnionType)


def plain_hint(hint: Any) -> PlainHint | None:
    """Return how a plain hint is compiled; None where it is not plain."""
    if isinstance(hint, type) or hint is Any:
        found = _PLAIN_SCALARS.get(hint)
        return PlainHint(found[0], dict(found[1])) if found is not None else None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _compile_choice(arguments)
    if origin is list and len(arguments) == 1 and (item := plain_hint(arguments[0])) is not None:
        return PlainHint(core_schema.list_schema(item.core), {"type": "array", "items": item.schema})
    if origin is dict and arguments[:1] == (str,) and (item := plain_hint(arguments[-1])) is not None:
        return PlainHint(
            core_schema.dict_schema(core_schema.str_schema(), item.core),
            {"type": "object", "additionalProperties": item.schema or True},
        )
    if origin in _UNIONS and len(arguments) == 2 and arguments[1] is types.NoneType:
        item = plain_hint(arguments[0])
        if item is not None and item.schema:
            schema = {"anyOf": [item.schema, {"type": "null"}]}
            return PlainHint(core_schema.nullable_schema(item.core), schema)
    return None


def _compile_choice(values: tuple[Any, ...]) -> PlainHint | None:
    if not all(type(value) is str for value in values):
        return None
    choice = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return PlainHint(core_schema.literal_schema(list(values)), {**choice, "type": "string"})
