"""Hints taken apart and put together again, and what a method's hints mean in the class that it is taken from."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import typing_extensions

__all__ = ["UNIONS", "class_of", "inherited_docstring", "rebuild_hint", "specialize_hint", "type_arguments"]

UNIONS = (typing.Union, types.UnionType)
_SELF: tuple[Any, ...] = (cast("Any", typing).Self, cast("Any", typing_extensions).Self)


def rebuild_hint(hint: Any, change: Callable[[Any], Any]) -> Any:
    """Return the hint with each of its parts changed; the hint itself where none is."""
    origin: Any = get_origin(hint)
    parts = get_args(hint)
    if origin in (None, Literal, Callable) or not parts:  # no JSON says what a function takes
        return hint
    if origin is Annotated:
        changed = change(parts[0])
        return hint if changed is parts[0] else Annotated[(changed, *parts[1:])]
    inside = tuple([change(part) for part in parts])
    if all(new is old for new, old in zip(inside, parts, strict=True)):
        return hint
    if origin in UNIONS:
        return typing.Union[inside]  # noqa: UP007 - as many as there are
    if getattr(hint, "__unpacked__", False):
        return next(iter(types.GenericAlias(origin, inside)))
    return hint.copy_with(inside) if hasattr(hint, "copy_with") else origin[inside]


def class_of(receiver: Any) -> type | None:
    """Return the class that a method is taken from: the receiver's, or the receiver itself; None without one."""
    if receiver is None:
        return None
    return receiver if isinstance(receiver, type) else type(receiver)


def specialize_hint(hint: Any, owner: type, arguments: Mapping[Any, Any]) -> Any:
    """Return the hint with ``Self`` as the class, and with type parameters as what the class has made of them."""
    if hint in _SELF:
        return owner
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint)
    return rebuild_hint(hint, lambda part: specialize_hint(part, owner, arguments))


def type_arguments(receiver: Any, function: Any) -> dict[Any, Any]:
    """Return what the type parameters in the hints of a method are for this receiver.

    ``T`` of ``Repo(Generic[T])`` is ``Item`` in ``class Items(Repo[Item])``, and for what ``Repo[Item]()`` gives.
    """
    owner = class_of(receiver)
    if owner is None:
        return {}
    found: dict[type, dict[Any, Any]] = {}
    _collect_arguments(getattr(receiver, "__orig_class__", owner), {}, found)
    qualified = getattr(function, "__qualname__", "")
    for cls, arguments in found.items():
        if qualified.rpartition(".")[0] == cls.__qualname__ and function.__module__ == cls.__module__:
            return arguments
    return {}


def _collect_arguments(alias: Any, known: Mapping[Any, Any], found: dict[type, dict[Any, Any]]) -> None:
    """Note for a class and its bases what their type parameters are, given what those of the class below are."""
    generic: dict[str, Any] = getattr(alias, "__pydantic_generic_metadata__", None) or {}
    cls: Any = get_origin(alias) or generic.get("origin") or alias
    given: tuple[Any, ...] = get_args(alias) or generic.get("args") or ()
    if not isinstance(cls, type) or cls in found:
        return
    of_model: dict[str, Any] = getattr(cls, "__pydantic_generic_metadata__", {})
    parameters: Any = of_model.get("parameters", ()) or getattr(cls, "__parameters__", ())
    arguments = {
        parameter: specialize_hint(argument, cls, known) for parameter, argument in zip(parameters, given, strict=False)
    }
    found[cls] = arguments
    if alias is not cls and isinstance(alias, type):
        found[alias] = arguments
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        _collect_arguments(base, arguments, found)


def inherited_docstring(owner: type, name: str) -> str | None:
    """Return what the nearest class that documents a method says of it; None where none does."""
    for cls in owner.__mro__[:-1]:  # the last one is `object`
        text = getattr(vars(cls)[name], "__doc__", None) if name in vars(cls) else None
        if text:
            return cast("str", text)
    return None
