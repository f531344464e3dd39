"""The parts of a hint that are no type: qualifiers, aliases, descriptions, unpacking, and whether null is allowed."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, get_args, get_origin

import typing_extensions
from pydantic import AliasChoices, AliasPath, Field
from pydantic.fields import FieldInfo
from typing_extensions import ReadOnly, Unpack

from toolkit.schema.signature import NOTHING, UNIONS

__all__ = [
    "add_none",
    "annotate_hint",
    "describe_part",
    "find_alias",
    "find_description",
    "find_unpacked",
    "has_field_description",
    "is_nullable",
    "strip_qualifiers",
]

_FIELD_QUALIFIERS = (Required, NotRequired, ReadOnly)


def strip_qualifiers(hint: Any, *, is_required: bool) -> tuple[Any, bool]:
    """Take ``Required`` and the like off; a typed dictionary whose hints are text knows of them only here."""
    while (origin := get_origin(hint)) in _FIELD_QUALIFIERS:
        if origin is not ReadOnly:
            is_required = origin is Required
        hint = get_args(hint)[0]
    return hint, is_required


def find_unpacked(hint: Any) -> Any:
    """Return what ``Unpack[...]`` or ``*tuple[...]`` holds; None where a hint is neither."""
    origin: Any = get_origin(hint)
    if origin is Unpack or origin is typing.Unpack:
        held = get_args(hint)[0]
        return find_unpacked(held) or held
    return types.GenericAlias(tuple, get_args(hint)) if getattr(hint, "__unpacked__", False) else None


def find_alias(hint: Any, default: Any) -> str | None:
    """Return the name by which a parameter is known to a model, where its hint or its default says one."""
    for item in (default, *reversed(metadata_of(hint))):
        alias: Any = (item.validation_alias or item.alias) if isinstance(item, FieldInfo) else None
        if isinstance(alias, AliasChoices):
            alias = alias.choices[0]
        if isinstance(alias, AliasPath):
            alias = alias.path[0]
        if alias is not None:
            return str(alias)
    return None


def is_nullable(hint: Any) -> bool:
    """Return whether a hint allows None."""
    if hint is None or hint is types.NoneType or hint is Any or hint is object:
        return True
    if isinstance(hint, typing_extensions.TypeAliasType):
        return is_nullable(hint.__value__)
    if isinstance(hint, typing.NewType):
        return is_nullable(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_nullable(arguments[0])
    if origin is Literal:
        return None in arguments
    return (origin in UNIONS and any(map(is_nullable, arguments))) or isinstance(hint, typing.TypeVar)


def add_none(hint: Any) -> Any:
    """Return ``T | None``, with what `Field` says of it kept on the outside, where Pydantic looks for it."""
    if get_origin(hint) is not Annotated:
        return Optional[hint]  # noqa: UP045 - a hint that is text has no |
    inner = hint.__origin__
    inside = tuple(item for item in hint.__metadata__ if not isinstance(item, FieldInfo))
    outside = tuple(item for item in hint.__metadata__ if isinstance(item, FieldInfo))
    kept: Any = Annotated[(inner, *inside)] if inside else inner
    nullable: Any = Optional[kept]  # noqa: UP045
    return Annotated[(nullable, *outside)] if outside else nullable


def annotate_hint(hint: Any, default: Any, text: str) -> Any:
    """Return a hint with a default, `NOTHING` for none, and a description in it, for Pydantic."""
    options: dict[str, Any] = {"description": text} if text else {}
    extras: list[Any] = []
    if isinstance(default, FieldInfo):
        extras.append(default)
    elif default is Ellipsis:  # which Pydantic takes for "required"
        options["default_factory"] = lambda: default
    elif default is not NOTHING:
        options["default"] = default
    if options:
        extras.append(Field(**options))
    return Annotated[(hint, *extras)] if extras else hint


def metadata_of(hint: Any) -> tuple[Any, ...]:
    """Return what ``Annotated`` adds to a hint."""
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def has_field_description(hint: Any, default: Any) -> bool:
    """Return whether a `Field` on the hint or as the default has a description, which Pydantic puts on the property."""
    return any(isinstance(item, FieldInfo) and item.description is not None for item in (*metadata_of(hint), default))


def find_description(hint: Any, default: Any) -> str | None:
    """Return what the hint itself says of the parameter: ``Field`` first, then text, then ``Doc``."""
    for metadata in ((default,), *_described_layers(hint)):
        for item in reversed(metadata):
            if isinstance(item, FieldInfo) and item.description is not None:
                return inspect.cleandoc(item.description)
    for metadata in _described_layers(hint):
        text = _text_in(metadata)
        if text is not None:
            return text
    return None


def describe_part(hint: Any) -> Any:
    """Return a hint inside another one with its text as a description."""
    if (text := _text_in(metadata_of(hint))) is None or has_field_description(hint, None):
        return hint
    return Annotated[hint, Field(description=text)]


def _described_layers(hint: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the metadata of a hint, then those of what it is a union of, for ``Annotated[T, "text"] | None``."""
    yield metadata_of(hint)
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(inner) in UNIONS:
        for part in get_args(inner):
            yield metadata_of(part)


def _text_in(metadata: tuple[Any, ...]) -> str | None:
    for item in metadata:
        if isinstance(item, str):
            return inspect.cleandoc(item)
    for item in metadata:
        if isinstance(item, typing_extensions.Doc):
            return inspect.cleandoc(item.documentation)
    return None
