"""The words that a hint itself carries: `Field(description=)`, ``Annotated[T, "text"]`` and ``Doc("text")``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import typing_extensions
from pydantic import Field
from pydantic.fields import FieldInfo

from toolkit.schema.generics import UNIONS

__all__ = ["describe_part", "find_description", "has_field_description", "metadata_of"]


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
