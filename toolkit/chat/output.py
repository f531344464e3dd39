"""The output of a tool, and the one total function that turns any Python value into what JSON can carry.

Nothing is lost because of one part that JSON can't carry: that part stands as its text.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set as AbstractSet
from dataclasses import KW_ONLY, replace
from functools import cache, partial
from gc import get_referents
from itertools import count, islice
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from pydantic_core import to_jsonable_python

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, ToolResult, text_of
from toolkit.dataclass import dataclass
from toolkit.errors import ToolError, ToolkitError
from toolkit.foreign_text import replace_surrogates
from toolkit.json_text import canonical_json, without_addresses
from toolkit.secrets import MASK, is_secret_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "copy_details",
    "copy_result",
    "describe_error",
    "dump_output",
    "is_content",
    "load_output",
    "plain_text",
    "PlainValue",
    "read_plain",
    "serializer_of",
    "to_output",
    "ToolOutput",
    "words_of",
]


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
    """A value made of JSON's own types.

    Args:
        value: It.
        notes: Notes for its reader, in sentences.
        unsaid: The values that became text because JSON can't carry them: a path and a type each.
    """

    value: Any
    notes: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()


def read_plain(value: object) -> PlainValue:
    """Return a value as JSON's own types; never raises, and changes with no live object later."""
    reader = _PlainReader()
    plain = reader.read(value, "")
    return PlainValue(value=plain, notes=tuple(reader.notes), unsaid=tuple(reader.unsaid))


@cache
def serializer_of(kind: type) -> TypeAdapter[Any]:
    """Return a writer of a class's values by Pydantic's rules; created once."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - half of the import time, and rarely needed

    return TypeAdapter(kind)


class _PlainReader:
    """Reads one value, part by part."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self.unsaid: list[str] = []
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
            return self.read_members(members, path)
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
            return self.read_members(attributes, path)

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

    def read_members(self, members: Mapping[Any, Any], path: str) -> dict[str, Any]:
        """Return an object; two keys with the same text stay distinct."""
        found: dict[str, Any] = {}
        for key, item in members.items():
            name = _write_member_name(key)
            if name in found:
                name = next(new for number in count(2) if (new := f"{name} ({number})") not in found)
            found[name] = self.read(item, f"{path}.{name}" if path else name)
        return found

    def note_cut(self, shown: int, size: int | None, what: str) -> None:
        """Note that not all of something is here."""
        of = f" of {size:,}" if size is not None else ""
        self.notes[f"The first {shown:,}{of} {what} are shown."] = None

    def _note_as_text(self, value: Any, path: str) -> str:
        self.unsaid.append(f"{path or 'the value'}: {type(value).__qualname__}")
        return _write_text(value)


def _write_text(value: Any) -> str:
    """Return the text of a value, without an address and not too long."""
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
    # Numbers by size, before everything else by its JSON text.
    if isinstance(item, (int, float)):
        return (False, item, "")
    return (True, 0, canonical_json(item))


def _read_each_field(value: Any) -> dict[str, Any]:
    """Return the fields of a model or dataclass; one that can't be read is an error in its place."""
    kind = cast("Any", type(value))
    if dataclasses.is_dataclass(kind):
        names = {field.name: field.name for field in dataclasses.fields(kind)}
    else:
        fields = {name: field.serialization_alias or field.alias or name for name, field in kind.model_fields.items()}
        names = {**fields, **{name: name for name in kind.model_computed_fields}}
    return {said: _Attribute(value, name).read() for name, said in names.items()}


class _Attribute:
    """An attribute, or the error that reading it gave."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name

    def read(self) -> Any:
        try:
            return getattr(self.owner, self.name)
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
    # Whether there is a secret is none.
    return MASK if is_secret_name(name) and value is not None and not isinstance(value, bool) else value


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
    members = {field.alias or field.name: _Attribute(value, field.name).read() for field in fields}
    return reader.read_members(members, path)


def _read_struct(reader: _PlainReader, value: Any, path: str) -> Any:
    config = value.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag is not None else {}
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return reader.read_members({**tag, **{said: getattr(value, name) for said, name in names}}, path)


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
        return reader.read_members({name: value[name] for name in value.dtype.names}, path)
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
        reader.read_members(_Pairs(zip(names, row, strict=True)), f"{path}[{index}]")
        for index, row in enumerate(value.itertuples(index=False, name=None))
    ]


def _choose_index_names(frame: Any) -> list[Any]:
    """Return the names of an index's levels, or new ones for those that have none or that of a column."""
    taken = {str(name) for name in frame.columns}
    names = list(frame.index.names)
    made = ["index"] if len(names) == 1 else [f"level_{level}" for level in range(len(names))]
    wanted = [new if name is None else name for name, new in zip(names, made, strict=True)]
    return [f"{name} (index)" if str(name) in taken else name for name in wanted]


class _Pairs(Mapping[Any, Any]):
    """Pairs of which two may have one key, as columns do."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.pairs = list(pairs)

    def __getitem__(self, key: Any) -> Any:
        return next(item for name, item in self.pairs if name == key)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self.pairs])

    def __len__(self) -> int:
        return len(self.pairs)

    def items(self) -> Any:
        return self.pairs


def _is_counted(index: Any) -> bool:
    """Return whether an index is only the number of each row."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None


def _read_series(reader: _PlainReader, value: Any, path: str) -> Any:
    if len(value) > _MOST_CELLS:
        reader.note_cut(_MOST_CELLS, len(value), "values")
        value = value.iloc[:_MOST_CELLS]
    if _is_counted(value.index):
        return reader.read_items(list(value), path)
    return reader.read_members(_Pairs(zip(value.index, value, strict=True)), path)


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


_BLOCKS = (TextBlock, ImageBlock, AudioBlock, FileBlock)
_CONTAINERS = frozenset({list, tuple, dict})
_JSON_KINDS = _CONTAINERS | {str, int, float, bool, type(None)}
_MOST_LEVELS = 200
_BLOCK_CONTAINERS = (list, tuple, Union, UnionType)
_NOTHING = "(no output)"


@dataclass(slots=True)
class ToolOutput:
    """The output of a tool.

    Args:
        content: The content that the model reads: text, or blocks.
        details: For the application alone; never reaches a model.
        is_error: True if the content describes a failure.
        result_as_answer: End the loop with this as the answer. Ignored on an error: a failed tool is never the answer.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
        unsaid: The values that were converted to text because JSON can't carry them: a path and a type each.
    """

    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    details: Any = None
    is_error: bool = False
    result_as_answer: bool = False
    child_loop_id: str | None = None
    unsaid: tuple[str, ...] = ()

    @classmethod
    def error(cls, message: str | BaseException, *, details: Any = None) -> ToolOutput:
        """Return a failure with a text for the model; exceptions are described as if the tool had raised them."""
        text = describe_error(message) if isinstance(message, BaseException) else message
        return cls(text or "The tool failed and gave no reason.", details=details, is_error=True)

    @property
    def text(self) -> str:
        """The text in the content."""
        return text_of(self.content)

    @property
    def is_nothing(self) -> bool:
        """True where the tool returned None."""
        return self.content is _NOTHING


def to_output(value: object) -> ToolOutput:
    """Turn whatever a tool returned into a `ToolOutput`; never raises.

    A string is unchanged; None becomes a sentence; content blocks stay blocks; bytes become a file block; everything
    else becomes JSON by Pydantic's rules, with sets sorted and Decimal as a string; bytes are Base64 and NaN is null,
    with a note. Arrays and scalars of numpy, frames (as records) and series of pandas, objects of attrs and msgspec and
    the public attributes of plain objects become JSON too, very long ones cut with a note. Iterators are read out. Lone
    surrogates are replaced. A value that JSON can't carry is converted to text, without losing the rest:
    `ToolOutput.unsaid` lists them.
    The text is made here and now: a live object that changes later changes nothing.
    """
    text = plain_text(value)
    if text is not None:
        return ToolOutput(text)
    if isinstance(value, str):
        return ToolOutput(replace_surrogates(value))
    if isinstance(value, ToolOutput):
        return _check_output(value)
    if value is None:
        return ToolOutput(_NOTHING)
    blocks = _as_blocks(value)
    return _write_value(value) if blocks is None else ToolOutput(blocks)


def is_content(hint: Any) -> bool:
    """Return whether a return hint means content for a model, and not data."""
    if hint in (ToolOutput, *_BLOCKS):
        return True
    return get_origin(hint) in _BLOCK_CONTAINERS and any(map(is_content, get_args(hint)))


def plain_text(value: object) -> str | None:
    """Return the text of a string, or of data that consists only of JSON's own types; else None."""
    kind = type(value)
    if kind is str:
        return replace_surrogates(cast("str", value))
    if kind is not dict and kind is not list:
        return None
    is_plain = False
    dump = _fast_dump()
    if dump is not None:
        try:
            text = dump(value).decode()
        except TypeError:
            pass  # it accepts less than JSON allows
        else:
            if "null" not in text:
                return text
            is_plain = True  # but a null may be a number that is none
    if not is_plain and not _is_plain(value):
        return None
    try:
        text = _exact_dump()(value).decode()
    except (ValueError, TypeError, RecursionError):
        return None
    if ("N" in text and "NaN" in text) or ("I" in text and "Infinity" in text):  # a letter is found sooner than a word
        return None
    return text


@cache
def _exact_dump() -> Callable[[Any], bytes]:
    """Return a function that dumps values as JSON, and writes ``NaN`` and ``Infinity`` for numbers that JSON lacks."""
    from pydantic_core import to_json  # noqa: PLC0415 - slow to import where no tool is called

    return partial(to_json, inf_nan_mode="constants")


@cache
def _fast_dump() -> Callable[[Any], bytes] | None:
    """Return a faster function that dumps finite values the same way if the extra ``fast`` is installed; else None."""
    try:
        import orjson  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    others = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    return partial(orjson.dumps, option=others)


def dump_output(output: ToolOutput) -> str:
    """Return the output as JSON text, for a cache; `details` are left out."""
    from toolkit.chat.output import serializer_of  # noqa: PLC0415 - as in `_write_value`

    plain: bytes = serializer_of(ToolOutput).dump_json(output, exclude={"details"})
    return plain.decode()


def load_output(text: str) -> ToolOutput:
    """Return the output that `dump_output` wrote."""
    from toolkit.chat.output import serializer_of  # noqa: PLC0415 - as in `_write_value`

    output: ToolOutput = serializer_of(ToolOutput).validate_json(text)
    return output


def copy_details(details: Any) -> Any:
    """Return a copy of plain data that may be changed; the application's own objects are not copied."""
    if type(details) not in (dict, list, set):
        return details
    import copy  # noqa: PLC0415 - few outputs have details

    try:
        return copy.deepcopy(details)
    except Exception:  # noqa: BLE001 - whatever a value of the application's own does when it is copied
        return details


def copy_result(result: ToolResult) -> ToolResult:
    """Return a copy of a result whose details may be changed."""
    return result if result.details is None else replace(result, details=copy_details(result.details))


def describe_error(error: BaseException) -> str:
    """Return an error as text for the model: a `ToolError` as written, another as ``Type: message``; never empty."""
    if isinstance(error, ToolError):
        return replace_surrogates(error.message)
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return f"{name}: " + "; ".join(describe_error(inner) for inner in group.exceptions)
    text = replace_surrogates(error.model_text) if isinstance(error, ToolkitError) else words_of(error)
    return f"{name}: {text}" if text and text != name else f"{name} (it gave no message)"


def words_of(error: BaseException) -> str:
    """Return the message of an error, or its type if the message can't be read."""
    try:
        return replace_surrogates(str(error)).strip()
    except Exception:  # noqa: BLE001 - its own __str__ raised
        return type(error).__name__


def _check_output(output: ToolOutput) -> ToolOutput:
    """Return an output that can be sent: its author created it, and its content was not checked."""
    content = output.content
    if isinstance(content, str) and content.isascii():
        return output
    if content == ():
        return output
    made = to_output(content)
    if made.content == content:
        return output
    return replace(output, content=made.content, unsaid=(*output.unsaid, *made.unsaid))


def _as_block(item: object) -> ContentBlock:
    if isinstance(item, str):
        return TextBlock(replace_surrogates(item))
    if isinstance(item, TextBlock) and not item.text.isascii():
        return replace(item, text=replace_surrogates(item.text))
    return cast("ContentBlock", item)


def _as_blocks(value: object) -> tuple[ContentBlock, ...] | None:
    if isinstance(value, _BLOCKS):
        return (_as_block(value),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (FileBlock(bytes(cast("bytes", value))),)
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("list[object]", value)
    if set(map(type, items)) <= _JSON_KINDS:
        return None
    if not any(isinstance(item, _BLOCKS) for item in items):
        return None
    if not all(isinstance(item, (str, *_BLOCKS)) for item in items):
        return None
    return tuple(_as_block(item) for item in items)


def _write_value(value: object) -> ToolOutput:
    """Return any value as JSON text; values that JSON can't carry become text, and `unsaid` lists them."""
    from toolkit.chat.output import read_plain  # noqa: PLC0415 - few tools return values that are not plain

    plain = read_plain(value)
    is_text = isinstance(plain.value, str) and len(plain.unsaid) > 0  # the value itself
    text = plain.value if is_text else _exact_dump()(plain.value).decode()
    notes = f"\n({' '.join(plain.notes)})" if plain.notes else ""
    return ToolOutput(text + notes, unsaid=plain.unsaid)


def _is_plain(value: object) -> bool:
    """Return whether `value` is made of JSON's own types alone, and does not contain itself.

    It looks at one whole level of nesting after the other, which needs no Python code for each value.
    """
    level: list[object] = get_referents(value)
    for _ in range(_MOST_LEVELS):
        if not _JSON_KINDS.issuperset(map(type, level)):
            return False
        inside = {id(item): item for item in level if type(item) in _CONTAINERS}
        if not inside:
            return True
        level = get_referents(*inside.values())
    return False
