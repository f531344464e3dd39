"""Converts any Python value to JSON types; a part that JSON can't represent does not affect the rest.

Values of numpy, pandas, attrs and msgspec are recognized by class, without importing these libraries.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set as AbstractSet
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import to_jsonable_python

from toolkit.dataclass import dataclass
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import canonical_json, without_addresses
from toolkit.redaction import MASK, holds_secret, is_secret_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_MOST_ITEMS = 100_000
_MOST_CELLS = 20_000
_DEEPEST_VALUE = 100
_LONGEST_SHOWN_TEXT = 500
_NOT_DATA = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, BaseException)

_NO_NUMBERS = "NaN and infinite numbers are shown as null."
_BASE64 = "Bytes are shown as Base64."
_MASKED = f"What looks like a secret by its name is shown as {MASK}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainValue:
    """A value converted to JSON types.

    Args:
        value: The converted value.
        notes: Notes for the reader, in sentences.
        unserializable: The path and type of each value that became text because JSON can't represent it.
    """

    value: Any
    notes: tuple[str, ...] = ()
    unserializable: tuple[str, ...] = ()


def read_plain(value: object) -> PlainValue:
    """Convert a value to JSON types; never raises. The result shares nothing with live objects."""
    reader = _PlainReader()
    plain = reader.read(value, "")
    return PlainValue(value=plain, notes=tuple(reader.notes), unserializable=tuple(reader.unserializable))


@lru_cache(maxsize=256)  # bounded, since classes may be created dynamically
def serializer_of(kind: type) -> TypeAdapter[Any]:
    """Return the cached Pydantic adapter that serializes values of a class."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - half of the import time, and rarely needed

    return TypeAdapter(kind)


class _PlainReader:
    """Reads one value, part by part."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self.unserializable: list[str] = []
        self._open: set[int] = set()

    def read(self, value: Any, path: str) -> Any:
        kind = cast("Any", type(value))
        if value is None or kind is bool or kind is int:
            return value
        if kind is str:
            return replace_surrogates(value)
        if kind is float:
            return self._read_float(value)
        if id(value) in self._open or len(self._open) > _DEEPEST_VALUE:
            return self._note_as_text(value, path)
        self._open.add(id(value))
        try:
            return self._read_whole(value, path)
        except Exception:  # noqa: BLE001 - one object that can't be read must not lose the others
            return self._note_as_text(value, path)
        finally:
            self._open.discard(id(value))

    def _read_whole(self, value: Any, path: str) -> Any:
        read = _find_reader(cast("Any", type(value)))
        if read is not None:
            return read(self, value, path)
        if isinstance(value, str):
            return (
                replace_surrogates(str.__str__(value)) if type(value).__str__ is str.__str__ else self._read_leaf(value)
            )
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._read_leaf(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            self.notes[_BASE64] = None
            return b64encode(bytes(cast("bytes", value))).decode()
        if isinstance(cast("object", value), Mapping):
            members: Any = value
            return self.read_members(members.items(), path)
        if isinstance(value, (set, frozenset, AbstractSet)) and not isinstance(value, MappingView):
            return sorted(self.read_items(cast("Iterable[Any]", value), path), key=_make_sort_key)
        if isinstance(value, (Sequence, MappingView, Iterator)):
            return self.read_items(cast("Iterable[Any]", value), path)
        return self._read_object(value, path)

    def _read_object(self, value: Any, path: str) -> Any:
        kind = cast("Any", type(value))
        if hasattr(kind, "__pydantic_serializer__") or dataclasses.is_dataclass(kind):
            try:
                dumped = serializer_of(kind).dump_python(value, by_alias=True)
            except Exception:  # noqa: BLE001 - one field that can't be read must not lose the others
                dumped = _read_each_field(value)
            return self.read(dumped, path) if type(dumped) is not kind else self._read_leaf(value)
        attributes = None if isinstance(value, _NOT_DATA) else _read_public_attributes(value)
        try:
            return self.read(to_jsonable_python(value), path)
        except Exception:
            if attributes is None:
                raise
            if MASK in attributes.values():
                self.notes[_MASKED] = None
            return self.read_members(attributes.items(), path)

    def _read_leaf(self, value: Any) -> Any:
        plain = to_jsonable_python(value)
        return self._read_float(plain) if type(plain) is float else plain

    def _read_float(self, value: float) -> float | None:
        if math.isfinite(value):
            return value
        self.notes[_NO_NUMBERS] = None
        return None

    def read_items(self, items: Iterable[Any], path: str) -> list[Any]:
        """Return the values of an iterable, up to the limit."""
        found = [self.read(item, f"{path}[{index}]") for index, item in enumerate(islice(iter(items), _MOST_ITEMS))]
        size: Any = len(cast("Any", items)) if hasattr(items, "__len__") else None
        if len(found) == _MOST_ITEMS and size != len(found):
            self.note_cut(len(found), size, "values")
        return found

    def read_members(self, members: Iterable[tuple[Any, Any]], path: str) -> dict[str, Any]:
        """Return an object; keys with the same text remain distinct."""
        found: dict[str, Any] = {}
        for key, item in members:
            name = _write_member_name(key)
            if name in found:
                name = next(new for number in count(2) if (new := f"{name} ({number})") not in found)
            found[name] = self.read(item, f"{path}.{name}" if path else name)
        return found

    def note_cut(self, shown: int, size: int | None, what: str) -> None:
        """Add a note that something was truncated."""
        of = f" of {size:,}" if size is not None else ""
        self.notes[f"The first {shown:,}{of} {what} are shown."] = None

    def _note_as_text(self, value: Any, path: str) -> str:
        self.unserializable.append(f"{path or 'the value'}: {type(value).__qualname__}")
        return _write_text(value)


def _write_text(value: Any) -> str:
    """Return the text of a value, truncated and without memory addresses."""
    if isinstance(value, types.ModuleType):
        return f"<module {value.__name__}>"
    try:
        text = without_addresses(replace_surrogates(str(value)))
        text = f"{type(value).__name__}: {text}" if isinstance(value, BaseException) else text
    except Exception:  # noqa: BLE001 - its own __str__ raised
        text = f"<{type(value).__qualname__} object>"
    return text if len(text) <= _LONGEST_SHOWN_TEXT else f"{text[:_LONGEST_SHOWN_TEXT]}..."


def _write_member_name(key: Any) -> str:
    if type(key) is str:
        return replace_surrogates(key)
    try:
        return str(next(iter(to_jsonable_python({key: None}))))
    except Exception:  # noqa: BLE001 - Pydantic knows no rule for it
        plain = key.item() if hasattr(key, "item") else key
        return _write_text(plain)


def _make_sort_key(item: object) -> tuple[bool, Any, str]:
    # Numbers first, by size; then everything else, by JSON text.
    if isinstance(item, (int, float)):
        return (False, item, "")
    return (True, 0, canonical_json(item))


def _read_each_field(value: Any) -> dict[str, Any]:
    """Return the fields of a model or dataclass, with an error in place of one that can't be read."""
    kind = cast("Any", type(value))
    if dataclasses.is_dataclass(kind):
        names = {field.name: field.name for field in dataclasses.fields(kind)}
    else:
        fields = {name: field.serialization_alias or field.alias or name for name, field in kind.model_fields.items()}
        names = {**fields, **{name: name for name in kind.model_computed_fields}}
    return {alias: _read_attribute(value, name) for name, alias in names.items()}


def _read_attribute(owner: Any, name: str) -> Any:
    """Return the value of an attribute, or the error that reading it raised."""
    try:
        return getattr(owner, name)
    except Exception as error:  # noqa: BLE001 - a property of the author's
        return error


def _read_public_attributes(value: Any) -> dict[str, Any] | None:
    """Return the public attributes of a plain object; None if it has none."""
    names: list[str] = [*getattr(value, "__dict__", {})]
    for cls in type(value).__mro__:
        slots: Any = vars(cls).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    public = [name for name in dict.fromkeys(names) if not name.startswith("_") and hasattr(value, name)]
    if not public:
        return {} if isinstance(value, types.SimpleNamespace) else None
    if isinstance(value, types.SimpleNamespace):
        return {name: getattr(value, name) for name in public}
    return {name: _mask_secret(name, getattr(value, name)) for name in public}


def _mask_secret(name: str, value: Any) -> Any:
    return MASK if is_secret_name(name) and holds_secret(value, name) else value


_Read = Callable[[_PlainReader, Any, str], Any]


def _find_reader(kind: type) -> _Read | None:
    """Return the reader for values of a library's class, if that library is loaded."""
    for cls in kind.__mro__:
        package = cls.__module__.partition(".")[0]
        found = _CLASS_READERS.get((package, cls.__name__)) if package in sys.modules else None
        if found is not None:
            return found
    if "attr" in sys.modules and isinstance(getattr(kind, "__attrs_attrs__", None), tuple):
        return _read_attrs
    return None


def _read_attrs(reader: _PlainReader, value: Any, path: str) -> Any:
    fields: Any = value.__attrs_attrs__
    members = {field.alias or field.name: _read_attribute(value, field.name) for field in fields}
    return reader.read_members(members.items(), path)


def _read_struct(reader: _PlainReader, value: Any, path: str) -> Any:
    config = value.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag is not None else {}
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    members = {**tag, **{alias: getattr(value, name) for alias, name in names}}
    return reader.read_members(members.items(), path)


def _read_array(reader: _PlainReader, value: Any, path: str) -> Any:
    if value.ndim == 0:
        return reader.read(value[()], path)
    if value.size > _MOST_ITEMS:
        rows = max(1, _MOST_ITEMS * len(value) // value.size)
        reader.note_cut(rows, len(value), "rows" if value.ndim > 1 else "values")
        value = value[:rows]
    if value.dtype.names is None and value.dtype.kind in "biufUS":
        return reader.read(value.tolist(), path)
    return reader.read_items(list(value), path)


def _read_scalar(reader: _PlainReader, value: Any, path: str) -> Any:
    if value.dtype.names is not None:
        return reader.read_members(((name, value[name]) for name in value.dtype.names), path)
    if value.dtype.kind in "mM":
        return None if str(value) == "NaT" else str(value)
    plain = value.item()
    return reader.read(plain if type(plain) is not type(value) else str(value), path)


def _read_frame(reader: _PlainReader, value: Any, path: str) -> Any:
    rows, columns = value.shape
    most = max(1, _MOST_CELLS // max(1, columns))
    if rows > most:
        reader.note_cut(most, rows, "rows")
        value = value.iloc[:most]
    if not _is_counted(value.index):
        value = value.reset_index(names=_choose_index_names(value))
    names = list(value.columns)
    return [
        reader.read_members(zip(names, row, strict=True), f"{path}[{index}]")
        for index, row in enumerate(value.itertuples(index=False, name=None))
    ]


def _choose_index_names(frame: Any) -> list[Any]:
    """Return the names of an index's levels, with new ones for unnamed levels and names of columns."""
    taken = {str(name) for name in frame.columns}
    names = list(frame.index.names)
    made = ["index"] if len(names) == 1 else [f"level_{level}" for level in range(len(names))]
    wanted = [new if name is None else name for name, new in zip(names, made, strict=True)]
    return [f"{name} (index)" if str(name) in taken else name for name in wanted]


def _is_counted(index: Any) -> bool:
    """Return True if an index is only the row number."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None


def _read_series(reader: _PlainReader, value: Any, path: str) -> Any:
    if len(value) > _MOST_CELLS:
        reader.note_cut(_MOST_CELLS, len(value), "values")
        value = value.iloc[:_MOST_CELLS]
    if _is_counted(value.index):
        return reader.read_items(list(value), path)
    return reader.read_members(zip(value.index, value, strict=True), path)


def _read_index(reader: _PlainReader, value: Any, path: str) -> Any:
    if len(value) > _MOST_CELLS:
        reader.note_cut(_MOST_CELLS, len(value), "values")
    return reader.read_items(list(value[:_MOST_CELLS]), path)


def _read_nothing(reader: _PlainReader, value: Any, path: str) -> None:  # noqa: ARG001 - as the others
    return None


def _read_moment(reader: _PlainReader, value: Any, path: str) -> Any:  # noqa: ARG001 - as the others
    return value.isoformat()


def _read_text(reader: _PlainReader, value: Any, path: str) -> str:  # noqa: ARG001 - as the others
    return str(value)


def _read_complex(reader: _PlainReader, value: Any, path: str) -> str:  # noqa: ARG001 - as the others
    return str(value).strip("()")


_CLASS_READERS: dict[tuple[str, str], _Read] = {
    ("builtins", "complex"): _read_complex,
    ("msgspec", "Struct"): _read_struct,
    ("numpy", "ndarray"): _read_array,
    ("numpy", "generic"): _read_scalar,
    ("numpy", "dtype"): _read_text,
    ("pandas", "DataFrame"): _read_frame,
    ("pandas", "Series"): _read_series,
    ("pandas", "Index"): _read_index,
    ("pandas", "ExtensionArray"): _read_index,
    ("pandas", "NAType"): _read_nothing,
    ("pandas", "NaTType"): _read_nothing,
    ("pandas", "Timestamp"): _read_moment,
    ("pandas", "Timedelta"): _read_moment,
    ("pandas", "Period"): _read_text,
    ("pandas", "Interval"): _read_text,
}
