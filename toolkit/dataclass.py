"""`dataclass`: the standard library's, without compiling for each class what can be the same function for all.

The standard library writes and compiles the source of `__repr__`, `__eq__` and `__hash__` for each class. With a
hundred classes that is a fifth of the time that importing toolkit takes. What they do here is the same, in a few
microseconds more.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    @recursive_repr()
    def _repr(self: Any) -> str:
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _eq(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return _compared(self) == _compared(other)

    def _hash(self: Any) -> int:
        return hash(_compared(self))

    def _compared(self: Any) -> tuple[Any, ...]:
        return tuple([read(self) for read in _readers(type(self))])

    @cache
    def _readers(cls: type[Any]) -> tuple[Any, ...]:
        return tuple(attrgetter(field.name) for field in dataclasses.fields(cls) if field.compare)

    def _refuse_changes(made: type[Any]) -> None:
        """Raise `FrozenInstanceError` where a class with slots would raise `TypeError` before Python 3.12.

        The standard library's methods know the class as it was before it got slots. `ToolLoopConfig[int]()` meets that:
        it tries to keep its type argument, and takes an `AttributeError` for an answer.
        """
        names = frozenset(field.name for field in dataclasses.fields(made))

        def refuse_change(self: Any, name: str, value: Any) -> None:
            if type(self) is made or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(made, self).__setattr__(name, value)

        def refuse_removal(self: Any, name: str) -> None:
            if type(self) is made or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(made, self).__delattr__(name)

        made.__setattr__, made.__delattr__ = refuse_change, refuse_removal

    def dataclass(cls: Any = None, /, *, frozen: bool = False, **options: Any) -> Any:
        """Do what `dataclasses.dataclass` does, but for `repr`, `eq`, `order` and `unsafe_hash`."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, **options)
        own = vars(cls)
        made = dataclasses.dataclass(cls, frozen=frozen, repr=False, eq=False, **options)
        if frozen and made is not cls:
            _refuse_changes(made)
        if "__repr__" not in own:
            made.__repr__ = _repr
        if "__eq__" not in own:
            made.__eq__ = _eq
            made.__hash__ = _hash if frozen else None
        return made
