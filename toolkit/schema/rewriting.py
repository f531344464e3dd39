"""Hints rewritten so that Pydantic says of them what is true: what it does not know, or offers and then refuses."""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Iterable
from itertools import combinations
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import typing_extensions
from pydantic import Field, GetCoreSchemaHandler, PlainValidator, Secret
from pydantic_core import PydanticCustomError, core_schema

from toolkit.schema.hint_parts import describe_part
from toolkit.schema.json_schema import MEMBERS, members_text
from toolkit.schema.record_classes import record_of
from toolkit.schema.signature import UNIONS, rebuild_hint

__all__ = ["rewrite_hint"]

_SCALAR_TYPES = (str, int, float, bool)
_MOST_LISTED_FLAGS = 6


def rewrite_hint(hint: Any, *, described: bool = False) -> Any:
    """Return the hint as Pydantic would have it.

    The text of each ``Annotated[T, "text"]`` inside becomes a description; that of the outermost is left alone, for it
    goes on the property. Members of enums are said as JSON, or by their names where their values are none.

    Raises:
        TypeError: JSON Schema has no words for it; says why.
    """
    origin: Any = get_origin(hint)
    if origin is None:
        return _rewrite_class(hint) if isinstance(hint, type) else hint
    if origin is Literal:
        return _rewrite_literal(hint)
    if origin is Secret:  # which Pydantic, unlike `SecretStr`, does not mark
        return Annotated[hint, Field(json_schema_extra={"writeOnly": True})]
    if origin is Iterable:  # which Pydantic would check while the function reads it, and only once
        hint = types.GenericAlias(list, get_args(hint))
    if origin is tuple and any(map(_find_unpacked_parts, get_args(hint))):
        return _rewrite_open_tuple(hint)
    cls: Any = origin
    if typing_extensions.is_typeddict(cls) and _is_unknown_typed_dict(cls):
        arguments = [rewrite_hint(part) for part in get_args(hint)]
        return _copy_typed_dict(cls, dict(zip(cls.__parameters__, arguments, strict=False)))
    is_union = origin in UNIONS
    if origin is Annotated:
        return rebuild_hint(hint, lambda part: rewrite_hint(part, described=described))
    return rebuild_hint(hint, lambda part: _rewrite_part(part, described=described and is_union))


def _rewrite_part(hint: Any, *, described: bool) -> Any:
    hint = rewrite_hint(hint, described=described)
    return hint if described else describe_part(hint)


def _rewrite_class(hint: type) -> Any:
    if isinstance(hint, enum.EnumMeta):
        if issubclass(hint, enum.Flag):
            return _rewrite_flag(hint)
        members = list(cast("type[enum.Enum]", hint))
        is_plain = all(isinstance(member.value, _SCALAR_TYPES) for member in members)
        return hint if is_plain else _say_as(hint, {member.name: member for member in members})
    if typing_extensions.is_typeddict(hint) and _is_unknown_typed_dict(hint):
        return _copy_typed_dict(hint, {})
    return record_of(hint, rewrite_hint)


def _rewrite_literal(hint: Any) -> Any:
    """Say the members of enums in a ``Literal`` as JSON: Pydantic offers ``"red"`` for ``Color.RED`` and refuses it."""
    values = get_args(hint)
    if not any(isinstance(value, enum.Enum) for value in values):
        return hint
    choices: dict[Any, Any] = {}
    for value in values:
        is_plain = not isinstance(value, enum.Enum) or isinstance(value.value, _SCALAR_TYPES)
        said = value.name if not is_plain else value.value if isinstance(value, enum.Enum) else value
        choices[said] = value
    return _say_as(hint, choices)


def _say_as(hint: Any, choices: dict[Any, Any]) -> Any:
    """Return a hint whose values are said as the keys of `choices`; names of members are understood too."""
    members = {value.name: value for value in choices.values() if isinstance(value, enum.Enum)}

    def choose(value: Any) -> Any:
        for said, choice in choices.items():
            if value is choice or (type(value) is type(said) and value == said):
                return choice
        name = value.rpartition(".")[2] if isinstance(value, str) else ""
        if name not in members:
            raise PydanticCustomError("enum", "unknown name")
        return members[name]

    said: Any = Literal[tuple(choices)]
    text = members_text([value for name, value in members.items() if name not in choices])
    if text:
        said = Annotated[said, Field(json_schema_extra={MEMBERS: text})]
    return Annotated[hint, PlainValidator(choose, json_schema_input_type=said)]


def _join_flags(flags: type[enum.Flag], text: str) -> enum.Flag:
    """Return the sum of the members that a text names, such as ``READ|WRITE`` or ``Access.READ, Access.WRITE``."""
    names = [name.strip().rpartition(".")[2] for name in text.replace(",", "|").split("|")]
    if not {*names} <= {*flags.__members__}:
        raise PydanticCustomError("enum", "unknown name")
    return flags(_sum_bits([flags[name].value for name in names]))


def _rewrite_flag(flags: type[enum.Flag]) -> Any:
    """Return a ``Flag`` as the sum of its members: Pydantic would offer the members alone, and take any sum."""
    members = [member for member in flags if member.value]
    known = _sum_bits([member.value for member in members])

    def choose(value: Any) -> enum.Flag:
        if isinstance(value, flags):
            return value
        if isinstance(value, str) and not value.strip().isdigit():
            return _join_flags(flags, value)
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
        if number < 0 or number & ~known:
            raise PydanticCustomError("enum", "no sum of members")
        return flags(number)

    said: Any = Annotated[int, Field(ge=0, le=known)]
    if known & (known + 1) and len(members) <= _MOST_LISTED_FLAGS:
        values = [member.value for member in members]
        sums = {_sum_bits(list(part)) for size in range(len(values) + 1) for part in combinations(values, size)}
        said = Literal[tuple(sorted(sums))]
    text = f"The sum of any of {members_text(members)}"
    return Annotated[
        flags,
        PlainValidator(choose, json_schema_input_type=Annotated[said, Field(json_schema_extra={MEMBERS: text})]),
    ]


def _sum_bits(values: list[int]) -> int:
    """Return the sum of values of which one may hold another."""
    total = 0
    for value in values:
        total |= value
    return total


def _find_unpacked_parts(part: Any) -> tuple[Any, ...]:
    """Return what ``*tuple[...]`` holds inside a tuple; nothing for any other part."""
    if getattr(part, "__unpacked__", False):
        return get_args(part)
    origin: Any = get_origin(part)
    return get_args(get_args(part)[0]) if origin is typing.Unpack or origin is typing_extensions.Unpack else ()


def _flatten_tuple(parts: tuple[Any, ...]) -> list[Any]:
    """Return the parts of a tuple with those of unpacked ones in their place; an open one as a list of its part."""
    flat: list[Any] = []
    for part in parts:
        inside = _find_unpacked_parts(part)
        if len(inside) == 2 and inside[1] is ...:
            flat.append([inside[0]])
        elif inside:
            flat += _flatten_tuple(inside)
        else:
            flat.append(part)
    return flat


def _rewrite_open_tuple(hint: Any) -> Any:
    parts = _flatten_tuple(get_args(hint))
    opened = [index for index, part in enumerate(parts) if isinstance(part, list)]
    if not opened:
        return types.GenericAlias(tuple, tuple(rewrite_hint(part) for part in parts))
    position = opened[0]
    item = parts[position][0]
    after = parts[position + 1 :]
    if any(part != item for part in after):
        raise TypeError(
            f"JSON Schema can't say {hint}: what follows the open part of a tuple must have its type; put the fixed "
            "values first, or take a dataclass or a TypedDict"
        )
    fixed = [rewrite_hint(part) for part in (*parts[:position], *after)]
    return Annotated[tuple[Any, ...], _OpenTuple(tuple(fixed), rewrite_hint(item))]


class _OpenTuple:
    """The core schema of a tuple with some fixed values and any number of others after them."""

    def __init__(self, fixed: tuple[Any, ...], item: Any) -> None:
        self.fixed = fixed
        self.item = item

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        items = [handler.generate_schema(hint) for hint in (*self.fixed, self.item)]
        return core_schema.tuple_schema(items, variadic_item_index=len(self.fixed))


def _is_unknown_typed_dict(hint: type) -> bool:
    """Return whether Pydantic refuses a typed dictionary: before 3.12 it takes those of typing_extensions only."""
    return sys.version_info < (3, 12) and type(hint).__module__ == "typing"


_copied_typed_dicts: dict[tuple[type, tuple[Any, ...]], Any] = {}


def _copy_typed_dict(hint: type, arguments: dict[Any, Any]) -> Any:
    """Return the same typed dictionary as one of typing_extensions; the keys come last, for it may hold itself."""
    key = (hint, tuple(arguments.items()))
    if key in _copied_typed_dicts:
        return _copied_typed_dicts[key]
    same: Any = cast("Any", typing_extensions.TypedDict)(hint.__name__, {})
    _copied_typed_dicts[key] = same
    try:
        hints = typing_extensions.get_type_hints(hint, include_extras=True)
        same.__annotations__ = {
            name: rewrite_hint(arguments.get(inner, inner), described=False) for name, inner in hints.items()
        }
    except BaseException:
        del _copied_typed_dicts[key]
        raise
    for name in ("__required_keys__", "__optional_keys__", "__doc__", "__module__", "__qualname__"):
        setattr(same, name, getattr(hint, name))
    config = getattr(hint, "__pydantic_config__", None)
    if config is not None:
        same.__pydantic_config__ = config
    return same
