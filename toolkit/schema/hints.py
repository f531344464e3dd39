"""One hint compiled by itself: plain values by hand, others by Pydantic, once for all tools that use them.

An application's types come back in tool after tool. To compile the parameters of each as one typed dictionary takes
twice the time of what a model class by hand would; to put them together of parts that are known takes a third of it.
What is written here of plain hints (text, numbers, lists of them) is what Pydantic says; a test compares both.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, core_schema

from toolkit.schema.compilation import UNCOMPILABLE, compile_members
from toolkit.schema.json_schema import generate_schema
from toolkit.schema.signature import UNIONS

__all__ = [
    "compiled_hint",
    "CompiledHint",
    "plain_hint",
]

_MOST_KEPT = 512
_ONLY_KEY = "value"


class CompiledHint(NamedTuple):
    """A hint as what validates it and what a model reads.

    Args:
        core: The validator's half.
        schema: The JSON Schema, for the caller to change.
        core_definitions: The definitions that `core` refers to.
        definitions: The definitions that `schema` refers to, by name: not to be changed.
        has_members: True where the schema has names of members that are to be described when it is finished.
    """

    core: core_schema.CoreSchema
    schema: dict[str, Any]
    core_definitions: tuple[core_schema.CoreSchema, ...] = ()
    definitions: Mapping[str, Any] = {}
    has_members: bool = False


def compiled_hint(hint: Any, *, strict: bool) -> CompiledHint | None:
    """Return what a hint compiles to; None where it has to be compiled together with the others.

    That is so for names that are not defined yet, for what has a default or an alias in its hint, and for what can't be
    compiled at all.
    """
    plain = plain_hint(hint)
    if plain is not None:
        return plain
    words = _describe_hint(hint)
    try:
        kept = _compile_hint(_HintKey(hint, strict, words))
    except TypeError:  # a hint without a hash
        return None
    return None if kept is None else kept._replace(schema=copy.deepcopy(kept.schema))


def _describe_hint(hint: Any) -> tuple[Any, ...]:
    """Return what two hints must have in common to mean the same.

    ``int | str`` and ``str | int`` are equal but not the same, and two ``Field(ge=0)`` are the same but not equal.
    """
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return (
            inner,
            repr(inner),
            *[_describe_field(item) if isinstance(item, FieldInfo) else item for item in metadata],
        )
    return (hint, repr(hint))


def _describe_field(field: FieldInfo) -> object:
    """Return what a `Field` says where it says only what can be compared; else the field itself."""
    others = (
        field.default_factory, field.alias, field.validation_alias, field.serialization_alias, field.title,
        field.field_title_generator, field.examples, field.exclude, field.discriminator, field.deprecated,
        field.json_schema_extra, field.frozen, field.validate_default,
    )  # fmt: skip
    is_simple = field.default is PydanticUndefined and all(other is None for other in others)
    return (repr(field.metadata), field.description) if is_simple else field


class _HintKey:
    """A hint in a cache."""

    __slots__ = ("hint", "strict", "words")

    def __init__(self, hint: Any, strict: bool, words: tuple[Any, ...]) -> None:
        self.hint = hint
        self.strict = strict
        self.words = words

    def __hash__(self) -> int:
        return hash(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HintKey) and self.strict == other.strict and self.words == other.words


@lru_cache(maxsize=_MOST_KEPT)
def _compile_hint(key: _HintKey) -> CompiledHint | None:
    try:
        adapter = compile_members({_ONLY_KEY: key.hint}, ConfigDict(strict=key.strict))
        if not adapter.pydantic_complete:
            return None
        core: Any = adapter.core_schema
        schema, skipped, has_members = generate_schema(core)
    except UNCOMPILABLE:
        return None
    core_definitions: tuple[core_schema.CoreSchema, ...] = ()
    if core["type"] == "definitions":
        core_definitions, core = tuple(core["definitions"]), core["schema"]
    if core["type"] != "typed-dict" or schema.get("required") != [_ONLY_KEY] or skipped:
        return None
    return CompiledHint(
        core["fields"][_ONLY_KEY]["schema"],
        schema["properties"][_ONLY_KEY],
        core_definitions,
        schema.get("$defs", {}),
        has_members,
    )


_PLAIN_SCALARS: dict[Any, tuple[core_schema.CoreSchema, dict[str, Any]]] = {
    str: (core_schema.str_schema(), {"type": "string"}),
    int: (core_schema.int_schema(), {"type": "integer"}),
    float: (core_schema.float_schema(), {"type": "number"}),
    bool: (core_schema.bool_schema(), {"type": "boolean"}),
    Any: (core_schema.any_schema(), {}),
}


def plain_hint(hint: Any) -> CompiledHint | None:
    """Return how a plain hint is compiled; None where it is not plain."""
    if isinstance(hint, type) or hint is Any:
        found = _PLAIN_SCALARS.get(hint)
        return CompiledHint(found[0], dict(found[1])) if found is not None else None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _compile_choice(arguments)
    if origin is list and len(arguments) == 1 and (item := plain_hint(arguments[0])) is not None:
        return CompiledHint(core_schema.list_schema(item.core), {"type": "array", "items": item.schema})
    if origin is dict and arguments[:1] == (str,) and (item := plain_hint(arguments[-1])) is not None:
        return CompiledHint(
            core_schema.dict_schema(core_schema.str_schema(), item.core),
            {"type": "object", "additionalProperties": item.schema or True},
        )
    if origin in UNIONS and len(arguments) == 2 and arguments[1] is types.NoneType:
        item = plain_hint(arguments[0])
        if item is not None and item.schema:
            schema = {"anyOf": [item.schema, {"type": "null"}]}
            return CompiledHint(core_schema.nullable_schema(item.core), schema)
    return None


def _compile_choice(values: tuple[Any, ...]) -> CompiledHint | None:
    if not all(type(value) is str for value in values):
        return None
    choice = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return CompiledHint(core_schema.literal_schema(list(values)), {**choice, "type": "string"})
