"""Validation of settings, so that mistakes are reported where they are made and not during a run."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeAlias, Union, cast, get_args, get_origin, overload

from typing_extensions import get_protocol_members, is_protocol, is_typeddict

from toolkit.errors import ConfigurationError
from toolkit.suggestions import ask_whether_meant, find_similar

Duration: TypeAlias = float | timedelta
"""Seconds, or a `timedelta`."""

Kind: TypeAlias = type | str | bool | None
"""A type, an allowed value (a word, True or False), or None."""

FUNCTION = cast("type", Callable)


class Bounds:
    """The minimum and maximum of a numeric field, for the ``Annotated`` of its hint."""

    __slots__ = ("least", "most")

    def __init__(self, least: float, most: float | None = None) -> None:
        self.least = least
        self.most = most


PositiveInt: TypeAlias = Annotated[int, Bounds(1)]
NonNegativeInt: TypeAlias = Annotated[int, Bounds(0)]
NonNegativeFloat: TypeAlias = Annotated[float, Bounds(0)]
ZeroToOne: TypeAlias = Annotated[float, Bounds(0, 1)]
Seconds: TypeAlias = Annotated[float, timedelta]
"""Positive seconds. `check_fields` also accepts a `timedelta`, and stores its seconds."""

_WORDS: dict[Kind, str] = {
    None: "None",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    bytes: "bytes",
    timedelta: "a timedelta",
    FUNCTION: "a function",
    Mapping: "a mapping",
    Iterable: "a list or the like",
    Collection: "a list or the like",
    tuple: "a list or the like",
    frozenset: "a list or the like",
    Sequence: "a list",
}


def check_setting(
    name: str, value: object, *kinds: Kind, least: float | None = None, most: float | None = None
) -> None:
    """Refuse a value of other kinds; a boolean is not a number, and an integer is also a `float`.

    Args:
        name: The name of the setting, for errors.
        value: The value.
        kinds: The accepted kinds.
        least: The smallest accepted number.
        most: The largest accepted number.

    Raises:
        ConfigurationError: The value is not accepted; the message says which ones are.
    """
    if type(value) not in kinds and not any(_has_kind(value, kind) for kind in kinds):
        words = [_write_kind(kind) for kind in kinds]
        fitting = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
        raise ConfigurationError(f"{name} must be {fitting}, not {describe_value(value)}")
    if least is None or not isinstance(value, (int, float)):
        return
    if not least <= value <= (math.inf if most is None else most):
        limits = f"{least:g} or more" if most is None else f"between {least:g} and {most:g}"
        raise ConfigurationError(f"{name} must be {limits}, not {value:g}")


class _InitSignature:
    """The signature of a class of settings: that of its `__init__`, not that of `Settings.__new__`."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Settings:
    """The base of settings dataclasses; the error for an unknown keyword suggests the one that was probably meant.

    A static method ``__explain_keyword__`` of the class may return a replacement for a keyword, or an empty text.
    """

    __slots__ = ()
    __signature__ = _InitSignature()

    def __new__(cls, *values: object, **keywords: object) -> Self:
        """Refuse keywords that `__init__` does not accept."""
        if values or not keywords.keys() <= _find_keywords(cast("Any", cls)):
            _refuse_arguments(cls, len(values), keywords)
        return super().__new__(cls)


@cache
def _find_keywords(cls: Any) -> frozenset[str]:
    return frozenset([field.name for field in dataclasses.fields(cls) if field.init])


def _refuse_arguments(cls: Any, count: int, keywords: Iterable[str]) -> None:
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if count > sum(not field.kw_only for field in fields):
        names = ", ".join([f"{field.name}=..." for field in fields if field.kw_only])
        raise ConfigurationError(f"{cls.__name__} takes its settings by name: {names}")
    for name in keywords:
        if name not in _find_keywords(cls):
            raise ConfigurationError(f"{cls.__name__} takes no '{name}': {_explain_keyword(cls, name, fields)}")


def _explain_keyword(cls: Any, name: str, fields: Sequence[dataclasses.Field[Any]]) -> str:
    """Return a replacement for a keyword: from the class, from a group of settings, or a similar one."""
    explain: Callable[[str], str] | None = getattr(cls, "__explain_keyword__", None)
    advice = "" if explain is None else explain(name)
    if advice:
        return f"write {advice}"
    for field in fields:
        group: Any = field.default_factory
        if dataclasses.is_dataclass(group) and name in {part.name for part in dataclasses.fields(group)}:
            return f"write {field.name}={cast('type', group).__name__}({name}=...)"
    names = [field.name for field in fields]
    return ask_whether_meant(find_similar(name, names, most=1, cutoff=0.7)) or f"it takes {', '.join(names)}"


def check_fields(settings: Any, naming: str = "{}") -> None:
    """Check each field of a dataclass by its hint, for its ``__post_init__``.

    ::

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Limits:
            turns: PositiveInt = 10
            timeout: Seconds | None = None
            mode: Literal["fast", "safe"] = "safe"
            names: frozenset[str] = frozenset()

            def __post_init__(self) -> None:
                check_fields(self)

    Defaults are not checked, and a hint is evaluated when its field is first set to another value, so neither costs
    time at import. Iterables are converted to a `tuple` or `frozenset`, and a `timedelta` to seconds. The names in a
    hint must exist in the module of its class at run time.

    Args:
        settings: The dataclass.
        naming: The name of a field in errors, such as ``the {} of a cache``.

    Raises:
        ConfigurationError: A field is invalid; the message names it and the accepted values.
    """
    cls = settings.__class__
    for name, default, factory in _read_defaults(cls):
        value = getattr(settings, name)
        if value is default or value.__class__ is factory:
            continue
        checked = _read_check(cls, name).apply(naming.format(name), value)
        if checked is not value:
            object.__setattr__(settings, name, checked)


@overload
def to_seconds(duration: Duration, name: str) -> float: ...
@overload
def to_seconds(duration: Duration | None, name: str) -> float | None: ...
def to_seconds(duration: Duration | None, name: str) -> float | None:
    """Return a duration in seconds.

    Raises:
        ConfigurationError: It is not positive, or not a duration; `name` names the setting.
    """
    if duration is None:
        return None
    check_setting(name, duration, float, timedelta)
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not seconds > 0:
        raise ConfigurationError(f"{name} must be more than 0 seconds, not {seconds:g}")
    return seconds


def describe_value(value: object) -> str:
    """Return the text of a value in an error: plain values themselves, others only by type."""
    if value is None or isinstance(value, (str, int, float)):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:80]}..."
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return _describe_type(type(value))


class _FieldCheck:
    """The accepted values of a hint: their kinds, their bounds, and the kinds of their parts."""

    __slots__ = ("bounds", "is_time", "kinds", "parts")

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.bounds: Bounds | None = None
        self.is_time = False
        self.parts: _FieldCheck | None = None

    def add(self, hint: Any) -> _FieldCheck:
        """Accept values of another hint as well."""
        origin = get_origin(hint)
        if origin is Union or origin is UnionType:
            for member in get_args(hint):
                self.add(member)
        elif origin is Annotated:
            self._add_annotated(*get_args(hint))
        elif origin is Literal:
            self.kinds += get_args(hint)
        elif hint is None or hint is NoneType:
            self.kinds.append(None)
        elif is_typeddict(hint):
            self.kinds.append(Mapping)
        else:
            kind = origin or hint
            self.kinds.append(kind if isinstance(kind, type) and kind is not Any else object)
            self._add_parts(kind, get_args(hint))
        return self

    def _add_annotated(self, hint: Any, *notes: object) -> None:
        self.add(hint)
        for note in notes:
            if isinstance(note, Bounds):
                self.bounds = note
            elif note is timedelta:
                self.kinds.append(timedelta)
                self.is_time = True

    def _add_parts(self, kind: Any, arguments: tuple[Any, ...]) -> None:
        # An iterable may be exhausted by iteration, so its parts are not checked.
        is_plain = kind in (list, set, frozenset, Sequence, Collection) and len(arguments) == 1
        if is_plain or (kind is tuple and arguments[1:] == (...,)):
            self.parts = _FieldCheck().add(arguments[0])

    def apply(self, name: str, value: object) -> Any:
        """Check a value, and return the one to store."""
        if value is None and None in self.kinds:
            return None
        if self.parts is not None and not (str in self.kinds and isinstance(value, str)):
            return self._apply_to_parts(name, value, self.parts)
        bounds = self.bounds
        if bounds is None:
            check_setting(name, value, *self.kinds)
        else:
            check_setting(name, value, *self.kinds, least=bounds.least, most=bounds.most)
        return to_seconds(cast("Any", value), name) if self.is_time else value

    def _apply_to_parts(self, name: str, value: Any, parts: _FieldCheck) -> Any:
        if isinstance(value, str):
            raise ConfigurationError(f"{name} must be several, such as [{value!r}], not one string")
        if tuple in self.kinds and _has_items(value):
            value = tuple(value)
        elif frozenset in self.kinds and _has_items(value):
            value = frozenset(value)
        check_setting(name, value, *self.kinds)
        for part in value:
            parts.apply(f"each of {name}", part)
        return value


@cache
def _read_defaults(cls: Any) -> list[tuple[str, object, object]]:
    """Return the name, the default, and the class that creates the default, of each field."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [(field.name, field.default, get_origin(field.default_factory) or field.default_factory) for field in fields]


@cache
def _read_check(cls: Any, name: str) -> _FieldCheck:
    field = cls.__dataclass_fields__[name]
    # The module of the class that defines the field has the names of the hint.
    bases = [base for base in reversed(cls.__mro__) if dataclasses.is_dataclass(base)]
    owner = next(base for base in bases if base.__dataclass_fields__.get(name) is field)
    hint: Any = field.type
    if isinstance(hint, str):
        hint = eval(hint, vars(sys.modules[owner.__module__]))  # noqa: S307 - source of a class
    return _FieldCheck().add(hint)


def _has_items(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping)


def _has_kind(value: object, kind: Kind) -> bool:
    if not isinstance(kind, type):  # an allowed value
        return value is kind or (isinstance(value, str) and value == kind)
    if isinstance(value, bool):
        return kind is bool or kind is object
    if is_protocol(kind):
        return not isinstance(value, type) and all(hasattr(value, name) for name in get_protocol_members(kind))
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


def _write_kind(kind: Kind) -> str:
    if not isinstance(kind, type) or kind in _WORDS:
        return _WORDS.get(kind) or repr(kind)
    if is_protocol(kind):
        members = " and ".join(f"'{member}'" for member in sorted(get_protocol_members(kind)))
        return f"{_describe_type(kind)} with {members}"
    return _describe_type(kind)


def _describe_type(kind: type) -> str:
    name = kind.__qualname__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
