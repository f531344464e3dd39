"""`dataclass`: the standard library's, whose classes cost less to define, and to make an object of where frozen.

The standard library writes and compiles the source of `__repr__`, `__eq__` and `__hash__` for each class. With a
hundred classes that is a fifth of the time that importing toolkit takes; here they are the same functions for all. And
it sets each field of a frozen object by `object.__setattr__`, which looks the field up by its name; here `__init__`
knows the slot of each field, and is compiled when it is used first. A field with the metadata `AS_TUPLE` keeps a list,
which its owner could change later, as a tuple. `maker_of` is for what is made in each turn of a loop.

A frozen class with slots and `__post_init__` holds settings. Its `__init__` refuses values without their names, and a
keyword that it does not know, with the one that was likely meant. A function ``__explain_keyword__`` of the class,
given such a keyword, may return what is to be written in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import inspect

__all__ = ["AS_TUPLE", "dataclass", "maker_of"]

P = ParamSpec("P")
T = TypeVar("T")

AS_TUPLE: Mapping[str, bool] = {"as_tuple": True}
"""Metadata of a field of a frozen class with slots."""

if TYPE_CHECKING:
    from dataclasses import dataclass

    def maker_of(made: Callable[P, T], /) -> Callable[P, T]:
        """Return a function that makes the same objects as a frozen class with slots, in a third of the time.

        Python passes names of arguments to a class in a dictionary, and not to a function; and the fields are set
        while the object is not frozen yet.
        """
        ...

else:

    @recursive_repr()
    def _write_repr(self: Any) -> str:
        shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _are_equal(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return _read_compared(self) == _read_compared(other)

    def _hash_fields(self: Any) -> int:
        return hash(_read_compared(self))

    def _read_compared(self: Any) -> tuple[Any, ...]:
        return tuple([read(self) for read in _find_readers(type(self))])

    @cache
    def _find_readers(cls: type[Any]) -> tuple[Any, ...]:
        return tuple(attrgetter(field.name) for field in dataclasses.fields(cls) if field.compare)

    class _NotGiven:
        """The default of what a factory makes."""

        def __repr__(self) -> str:
            return "<factory>"

    _NOT_GIVEN = _NotGiven()

    def _write_field(field: dataclasses.Field[Any], known: dict[str, Any]) -> tuple[str, str]:
        """Return the source of a field's parameter and of its value, either empty where there is none.

        The names in it are added to `known`.
        """
        default = f"_default_{field.name}"
        if field.metadata.get("as_tuple"):
            return field.name, f"tuple({field.name}) if isinstance({field.name}, list) else {field.name}"
        if field.default_factory is not dataclasses.MISSING:
            known[default] = field.default_factory
            if not field.init:
                return "", f"{default}()"
            return f"{field.name}=_NOT_GIVEN", f"{default}() if {field.name} is _NOT_GIVEN else {field.name}"
        if field.default is not dataclasses.MISSING:
            known[default] = field.default
            return (f"{field.name}={default}", field.name) if field.init else ("", default)
        return (field.name, field.name) if field.init else ("", "")

    def _compile_init(made: type[Any]) -> Any:
        """Return the `__init__` of a frozen class with slots.

        For example, of the fields ``x: int`` and ``y: list = field(default_factory=list)``::

            def __init__(self, x, y=_NOT_GIVEN):
                _set_x(self, x)
                _set_y(self, _default_y() if y is _NOT_GIVEN else y)
        """
        known: dict[str, Any] = {}
        positional, named, values = _write_fields(made, known)
        known |= {f"_set_{name}": getattr(made, name).__set__ for name in values}
        lines = [f"_set_{name}(self, {value})" for name, value in values.items()]
        star = ["*"] if named else []
        if _holds_settings(made):
            star, named, known["_refuse_given"] = ["*_given"], [*named, "**_unknown"], _refuse_given
            lines.insert(0, "if _given or _unknown: _refuse_given(self.__class__, _unknown)")
        if hasattr(made, "__post_init__"):
            lines.append("self.__post_init__()")
        init = _compile_function("__init__", ["self", *positional, *star, *named], lines, known)
        init.__qualname__ = f"{made.__qualname__}.__init__"
        init.__module__ = made.__module__
        init.__annotations__ = {field.name: field.type for field in dataclasses.fields(made) if field.init}
        init.__annotations__["return"] = None
        return init

    @cache
    def maker_of(made: type[Any], /) -> Any:
        """Return the maker of a frozen class with slots.

        For example, of the fields ``x: int`` and ``y: int = 0``::

            def make_it(x, y=_default_y):
                self = _open()  # of a class beside it, which is not frozen
                self.x = x
                self.y = y
                self.__class__ = _made
                return self
        """
        as_of_object = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}
        known: dict[str, Any] = {
            "_made": made,
            "_open": type(made)(made.__name__, (made,), {"__slots__": (), **as_of_object}),
        }
        positional, named, values = _write_fields(made, known)
        lines = ["self = _open()", *[f"self.{name} = {value}" for name, value in values.items()]]
        lines.append("self.__class__ = _made")
        if hasattr(made, "__post_init__"):
            lines.append("self.__post_init__()")
        parameters = [*positional, "*", *named] if named else positional
        return _compile_function("make_it", parameters, [*lines, "return self"], known)

    def _write_fields(made: type[Any], known: dict[str, Any]) -> tuple[list[str], list[str], dict[str, str]]:
        """Return the source of the parameters of a class, those by name apart, and of the value of each field."""
        known["_NOT_GIVEN"] = _NOT_GIVEN
        positional: list[str] = []
        named: list[str] = []
        values: dict[str, str] = {}
        for field in dataclasses.fields(made):
            parameter, value = _write_field(field, known)
            if parameter:
                (named if field.kw_only else positional).append(parameter)
            if value:
                values[field.name] = value
        return positional, named, values

    def _compile_function(name: str, parameters: list[str], lines: list[str], known: dict[str, Any]) -> Any:
        head = f"def {name}({', '.join(parameters)}):"
        # Within a function, whose variables are read in less time than those of a module.
        source = f"def make({', '.join(known)}):\n {head}\n  " + "\n  ".join(lines or ["pass"]) + f"\n return {name}"
        space: dict[str, Any] = {}
        exec(source, space)  # noqa: S102 - as the standard library does; of a class of our own
        return space["make"](**known)

    def _holds_settings(made: type[Any]) -> bool:
        return hasattr(made, "__post_init__") or hasattr(made, "__explain_keyword__")

    def _refuse_given(cls: type[Any], unknown: Iterable[str]) -> None:
        """Refuse keywords that a class of settings does not have, or values without a keyword where there are none."""
        from toolkit.errors import ConfigurationError  # noqa: PLC0415 - few keywords are wrong

        name = next(iter(unknown), None)
        if name is None:
            names = ", ".join(
                [f"{field.name}=..." for field in dataclasses.fields(cls) if field.init and field.kw_only]
            )
            raise ConfigurationError(f"{cls.__name__} takes its settings by name: {names}")
        raise ConfigurationError(f"{cls.__name__} takes no '{name}': {_explain_keyword(cls, name)}")

    def _explain_keyword(cls: type[Any], name: str) -> str:
        """Return what to write in the place of a keyword: as the class says, in one of its groups, or a similar one."""
        from toolkit.suggestions import ask_whether_meant, find_similar  # noqa: PLC0415 - as in `_refuse_given`

        explain: Callable[[str], str] | None = getattr(cls, "__explain_keyword__", None)
        advice = "" if explain is None else explain(name)
        if advice:
            return f"write {advice}"
        fields = [field for field in dataclasses.fields(cls) if field.init]
        for field in fields:
            group: Any = field.default_factory
            if dataclasses.is_dataclass(group) and name in {part.name for part in dataclasses.fields(group)}:
                return f"write {field.name}={group.__name__}({name}=...)"
        names = [field.name for field in fields]
        return ask_whether_meant(find_similar(name, names, most=1, cutoff=0.7)) or f"it takes {', '.join(names)}"

    class _ToldSignature:
        """The signature of a class of settings: it takes other keywords only to refuse them."""

        def __get__(self, instance: object, owner: type[Any]) -> inspect.Signature:
            import inspect  # noqa: PLC0415 - it is asked for by tools for developers

            signature = inspect.signature(owner.__init__)
            parameters = signature.parameters.values()
            told = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
            return signature.replace(parameters=told[1:])

    class _DeferredInit:
        """Compiles the `__init__` of a frozen class with slots when the first object is made, or somebody looks."""

        __slots__ = ("_made",)

        def __init__(self, made: type[Any]) -> None:
            self._made = made

        def __get__(self, instance: object, owner: type[Any]) -> Any:
            init = self._made.__init__ = _compile_init(self._made)
            return init if instance is None else init.__get__(instance)

    def _freeze_class(made: type[Any]) -> None:
        """Have a class with slots refuse changes of its objects, and let them be copied and pickled all the same.

        Before Python 3.12 the standard library's methods know the class as it was before it got slots, and raise
        `TypeError` where `FrozenInstanceError` is due. `ToolLoopConfig[int]()` meets that: it tries to keep its type
        argument, and takes an `AttributeError` for an answer.
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
        made.__getstate__, made.__setstate__ = _get_state, _set_state
        made.__dataclass_params__.frozen = True  # which classes over this one must be, too

    def _get_state(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    def dataclass(cls: Any = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> Any:
        """Do what `dataclasses.dataclass` does with these options; `InitVar` is not for frozen classes with slots."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only)
        own = vars(cls)
        has_own_init = "__init__" in own
        if frozen and slots:
            # Told that it is frozen, the standard library would compile what `_freeze_class` does for all alike.
            is_over_frozen = any(
                base.__dataclass_params__.frozen for base in filter(dataclasses.is_dataclass, cls.__mro__)
            )
            made = dataclasses.dataclass(
                cls, frozen=is_over_frozen, slots=True, kw_only=kw_only, init=False, repr=False, eq=False
            )
            _freeze_class(made)
            if not has_own_init:
                made.__init__ = _DeferredInit(made)
                if _holds_settings(made):
                    made.__signature__ = _ToldSignature()
        else:
            made = dataclasses.dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, repr=False, eq=False)
        if "__repr__" not in own:
            made.__repr__ = _write_repr
        if "__eq__" not in own:
            made.__eq__ = _are_equal
            made.__hash__ = _hash_fields if frozen else None
        return made
