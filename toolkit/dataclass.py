"""`dataclass`: the standard library's, with one `repr`, `eq` and `hash` for all classes, and an `__init__` made later.

The standard library compiles these for each class when it is defined, and its frozen classes look each field up by name
to set it. Here a frozen class compiles its `__init__` when the first object is made, to set fields by their slots: with
the standard library's, importing toolkit takes 15 % longer and a plain turn 8 %. One without slots, such as an event of
which many are made and few are stored, sets its fields in the object's dictionary, those at their defaults apart, which
takes a third less.

Such a class may have a mapping ``__expected__``, from a field to its class or to a tuple of all its values: an object
is made without another call where these fit, and else by way of its method ``__check_fields__``, which may raise.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from itertools import starmap
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["dataclass", "maker_of"]

T = TypeVar("T")
Fields = ParamSpec("Fields")


if TYPE_CHECKING:
    from dataclasses import dataclass

    def maker_of(cls: Callable[Fields, T]) -> Callable[Fields, T]:
        """See below."""
        ...
else:
    from toolkit.redaction import MASK, clean_text, replace_fields

    _LONGEST_BYTES = 100

    _FACTORY = type("_Factory", (), {"__repr__": lambda _: "<factory>"})()

    def dataclass(
        cls: Any = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
    ) -> Any:
        """Do the same as `dataclasses.dataclass` with these options; `InitVar` is not for frozen classes."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)
        own, options = vars(cls), {"slots": slots, "kw_only": kw_only, "repr": False, "eq": False}
        if frozen:
            is_over_frozen = any(
                base.__dataclass_params__.frozen for base in cls.__mro__ if dataclasses.is_dataclass(base)
            )
            made = dataclasses.dataclass(cls, frozen=is_over_frozen, init=False, **options)
            made.__dataclass_params__.frozen = True  # which classes over this one must be, too
            made.__setattr__ = made.__delattr__ = _refuse_change
            made.__getstate__, made.__setstate__ = _get_state, _set_state
            if "__init__" not in own:
                made.__init__ = _DeferredInit(made)
        else:
            made = dataclasses.dataclass(cls, frozen=frozen, **options)
        if "__repr__" not in own:
            made.__repr__ = _write_repr
        if eq and "__eq__" not in own:
            made.__eq__, made.__hash__ = _are_equal, _hash_fields if frozen else None
        return made

    def maker_of(cls: type[Any]) -> Any:
        """Return a function that makes objects of a frozen class, as a call of the class does, in a third less time.

        For the few classes of which each turn makes some: a call of a class first puts the arguments that are given by
        name into a dictionary. Without makers, a call takes 5 % more instructions, and a turn 3 %.
        """
        return _compile_init(cls, is_maker=True)

    class _DeferredInit:
        """Compiles an `__init__` when the first object is made, or when it is inspected."""

        def __init__(self, made: type[Any]) -> None:
            self._made = made

        def __get__(self, instance: object, owner: type[Any]) -> Any:
            init = self._made.__init__ = _compile_init(self._made)
            return init if instance is None else init.__get__(instance)

    def _compile_init(made: type[Any], *, is_maker: bool = False) -> Any:
        """Return an `__init__` that sets each field by its slot, such as ``_set_x(self, x)`` for the field ``x``.

        A maker makes the object, too.
        """
        fields, has_slots = dataclasses.fields(made), "__slots__" in vars(made)
        known: dict[str, Any] = {"_FACTORY": _FACTORY, "_make": object.__new__, "_made": made}
        lines = ["self = _make(_made)"] if is_maker else []
        lines += [] if has_slots else ["_fields = self.__dict__"]
        parameters: dict[str, str] = {}
        for field in fields:
            if has_slots:
                known[f"_set_{field.name}"] = getattr(made, field.name).__set__
            parameters[field.name], line = _write_field(field, known, has_slots=has_slots)
            lines.append(line)
        if expected := vars(made).get("__expected__"):
            known |= {f"_expected_{name}": accepted for name, accepted in expected.items()}
            lines.append(f"if {' or '.join(starmap(_write_check, expected.items()))}: self.__check_fields__()")
        lines += ["self.__post_init__()"] if hasattr(made, "__post_init__") else []
        head = _write_parameters(fields, parameters, first=[] if is_maker else ["self"])
        lines += ["return self"] if is_maker else []
        # Within a function, whose variables are read in less time than those of a module.
        source = f"def make({', '.join(known)}):\n def __init__({head}):\n  " + "\n  ".join(lines or ["pass"])
        space: dict[str, Any] = {}
        exec(f"{source}\n return __init__", space)  # noqa: S102 - as the standard library does
        init = space["make"](**known)
        if not is_maker:
            init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
            init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
        return init

    def _write_parameters(fields: Any, parameters: dict[str, str], *, first: list[str]) -> str:
        positional = [parameters[field.name] for field in fields if field.init and not field.kw_only]
        named = [parameters[field.name] for field in fields if field.init and field.kw_only]
        return ", ".join([*first, *positional, *(["*", *named] if named else [])])

    def _write_field(field: dataclasses.Field[Any], known: dict[str, Any], *, has_slots: bool) -> tuple[str, str]:
        """Return the parameter of a field, and the line that sets it; add its default to the known variables."""
        name, default, value = field.name, "", field.name if field.init else ""
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            default, new = "=_FACTORY", f"_make_{name}()"
            value = f"{new} if {name} is _FACTORY else {name}" if field.init else new
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
            value = value or f"_default_{name}"
        if not value:
            return name, "pass"
        if has_slots:
            return name + default, f"_set_{name}(self, {value})"
        if value == f"_default_{name}":  # the class has it
            return name, "pass"
        is_other = f"if {name} is not _default_{name}: " if default == f"=_default_{name}" else ""
        return name + default, f"{is_other}_fields['{name}'] = {value}"

    def _write_check(name: str, accepted: Any) -> str:
        return (
            f"{name} not in _expected_{name}"
            if type(accepted) is tuple
            else f"{name}.__class__ is not _expected_{name}"
        )

    def _refuse_change(self: Any, name: str, *value: Any) -> None:
        """Refuse to change an object; attributes that a class other than a dataclass adds may be changed."""
        if "__dataclass_fields__" in vars(type(self)) or name in self.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
        (object.__setattr__ if value else object.__delattr__)(self, name, *value)

    def _get_state(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    @recursive_repr()
    def _write_repr(self: Any) -> str:
        shown = [
            f"{field.name}={_show_value(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _show_value(value: Any) -> str:
        """Return the `repr` of a value without what its text, or the names of its fields, show to be secret."""
        kind = type(value)
        if kind not in (dict, list, tuple):
            return _show_value(dict(value)) if isinstance(value, Mapping) else _show_part(value)
        try:
            shown = _show_part(replace_fields(value, lambda _: MASK))
        except RecursionError:
            return f"<{kind.__name__}, nested too deep to be shown>"
        return f"({shown[1:-1]}{',' if len(value) == 1 else ''})" if kind is tuple else shown

    def _show_part(value: Any) -> str:
        kind = type(value)
        if kind is str:
            return repr(clean_text(value))
        if kind is dict:
            return f"{{{', '.join([f'{_show_part(name)}: {_show_part(item)}' for name, item in value.items()])}}}"
        if kind is list:
            return f"[{', '.join(map(_show_part, value))}]"
        if kind is bytes and len(value) > _LONGEST_BYTES:
            return f"<{len(value):,} bytes>"
        return repr(value) if kind.__repr__ is _write_repr else clean_text(repr(value))

    def _are_equal(self: Any, other: object) -> Any:
        return _read_compared(self) == _read_compared(other) if type(other) is type(self) else NotImplemented

    def _hash_fields(self: Any) -> int:
        return hash(_read_compared(self))

    def _read_compared(self: Any) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in _find_compared(type(self))])

    @cache
    def _find_compared(cls: type[Any]) -> list[str]:
        return [field.name for field in dataclasses.fields(cls) if field.compare]
