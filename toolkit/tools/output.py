"""What a tool returns, and the one total function that turns any Python value into it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, MappingView
from dataclasses import KW_ONLY, replace
from functools import cache, partial
from gc import get_referents, is_tracked
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from pydantic_core import PydanticSerializationError, to_json

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, text_of
from toolkit.dataclass import dataclass
from toolkit.errors import ToolError, ToolkitError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "ToolOutput",
    "describe_error",
    "dump_output",
    "encodable",
    "load_output",
    "plain_text",
    "to_output",
    "words_of",
]

_BLOCKS = (TextBlock, ImageBlock, AudioBlock, FileBlock)
_CONTAINERS = frozenset({list, tuple, dict})
_PLAIN = _CONTAINERS | {str, int, float, bool, type(None)}
_NOTHING = "(no output)"
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_NOT_A_NUMBER_NOTE = "\n(NaN and infinite numbers are shown as null.)"


@dataclass(slots=True)
class ToolOutput:
    """What a tool gives back.

    Args:
        content: What the model reads: text, or blocks.
        details: For the application alone; never reaches a model.
        is_error: Whether the content tells of a failure.
        result_as_answer: End the loop with this as the answer. Ignored on an error: a failed tool is never the answer.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
    """

    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    details: Any = None
    is_error: bool = False
    result_as_answer: bool = False
    child_loop_id: str | None = None

    @classmethod
    def error(cls, message: str | BaseException, *, details: Any = None) -> ToolOutput:
        """Return a failure that the model reads as `message`; an exception is told as if the tool had raised it."""
        text = describe_error(message) if isinstance(message, BaseException) else message
        return cls(text or "The tool failed and gave no reason.", details=details, is_error=True)

    @property
    def text(self) -> str:
        """The text in the content."""
        return text_of(self.content)

    @property
    def is_nothing(self) -> bool:
        """Whether the tool returned None."""
        return self.content is _NOTHING


def to_output(value: object) -> ToolOutput:
    """Turn whatever a tool returned into a `ToolOutput`; never raises.

    A string stays as it is; None is said in words; content blocks stay blocks; bytes become a file block; everything
    else becomes JSON by Pydantic's rules, with sets sorted, bytes as base64, Decimal as a string, and NaN as null with
    a note. Lone surrogates are replaced. A value that JSON can't say is an error that names its type for the author;
    so is an iterator inside a value, while one that is the value itself is read to its end.
    The text is made here and now: a live object that changes later changes nothing.
    """
    text = plain_text(value)
    if text is not None:
        return ToolOutput(text)
    if isinstance(value, str):
        return ToolOutput(encodable(value))
    if isinstance(value, ToolOutput):
        return _checked(value)
    if value is None:
        return ToolOutput(_NOTHING)
    kind: Any = type(value)
    try:
        blocks = _as_blocks(value)
        return ToolOutput(_as_json(value) if blocks is None else blocks)
    except Exception as error:  # noqa: BLE001 - what the author's object raises when it is read is no less its answer
        return ToolOutput.error(
            f"The tool returned a value of type {kind.__qualname__} that can't be written as JSON: "
            f"{_ADDRESS.sub('', words_of(error))}. "
            "Its author should return text, plain data, a dataclass or a Pydantic model."
        )


def plain_text(value: object) -> str | None:
    """Return the text of what is text, or data made of nothing but JSON's own types; None of all else."""
    kind = type(value)
    if kind is str:
        return encodable(cast("str", value))
    if kind is not dict and kind is not list:
        return None
    is_plain = not is_tracked(value)
    dump = _fast_dump()
    if dump is not None:
        try:
            text = dump(value).decode()
        except TypeError:
            pass  # it takes less than JSON can say
        else:
            if "null" not in text:
                return text
            is_plain = True  # but a null may be a number that is none
    try:
        text = to_json(value, bytes_mode="base64", inf_nan_mode="constants").decode()
    except (ValueError, TypeError, RecursionError):
        return None
    # The single letters are looked for first because they are found, or not, fifteen times as fast.
    if ("N" in text and "NaN" in text) or ("I" in text and "Infinity" in text):
        return None
    return text if is_plain or _is_plain(value) else None


@cache
def _fast_dump() -> Callable[[Any], bytes] | None:
    """Return what says the same in a third of the time, where the extra ``fast`` is installed."""
    try:
        import orjson  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    others = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    return partial(orjson.dumps, option=others)


def dump_output(output: ToolOutput) -> str:
    """Return the output as JSON text, for a cache; `details` are left out."""
    plain: bytes = _serializer(ToolOutput).dump_json(output, exclude={"details"})
    return plain.decode()


def load_output(text: str) -> ToolOutput:
    """Return the output that `dump_output` wrote."""
    output: ToolOutput = _serializer(ToolOutput).validate_json(text)
    return output


def encodable(text: str) -> str:
    """Return `text` with each lone surrogate, which no wire can carry, as a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def describe_error(error: BaseException) -> str:
    """Return what a model reads of an error: a `ToolError` as written, another as ``Type: message``; never empty."""
    if isinstance(error, ToolError):
        return encodable(error.message)
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return f"{name}: " + "; ".join(describe_error(inner) for inner in group.exceptions)
    text = encodable(error.model_text) if isinstance(error, ToolkitError) else words_of(error)
    return f"{name}: {text}" if text and text != name else f"{name} (it gave no message)"


def words_of(error: BaseException) -> str:
    """Return the message of an error, also of one that can't tell it: then its type."""
    try:
        return encodable(str(error)).strip()
    except Exception:  # noqa: BLE001 - its own __str__ raised
        return type(error).__name__


def _checked(output: ToolOutput) -> ToolOutput:
    """Return an output that can be sent: its author made it, and nobody has looked at its content."""
    content = output.content
    if isinstance(content, str) and content.isascii():
        return output
    if content == ():
        return output
    made = to_output(content)
    if made.content == content:
        return output
    return replace(output, content=made.content, is_error=output.is_error or made.is_error)


def _as_block(item: object) -> ContentBlock:
    if isinstance(item, str):
        return TextBlock(encodable(item))
    if isinstance(item, TextBlock) and not item.text.isascii():
        return replace(item, text=encodable(item.text))
    return cast("ContentBlock", item)


def _as_blocks(value: object) -> tuple[ContentBlock, ...] | None:
    if isinstance(value, _BLOCKS):
        return (_as_block(value),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (FileBlock(bytes(cast("bytes", value))),)
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("list[object]", value)
    if set(map(type, items)) <= _PLAIN:
        return None
    if not any(isinstance(item, _BLOCKS) for item in items):
        return None
    if not all(isinstance(item, (str, *_BLOCKS)) for item in items):
        return None
    return tuple(_as_block(item) for item in items)


def _as_json(value: object) -> str:
    if isinstance(value, Iterator):
        value = list(cast("Iterator[object]", value))  # it can be read once, and is written twice
    notes: list[str] = []
    try:
        text = _dump(_ordered(value))
    except PydanticSerializationError:
        # Lone surrogates are the one thing that the fast way refuses and that can be mended.
        text = _dump(_ordered(value, clean=True))
    if "NaN" in text or "Infinity" in text:
        plain = _ordered(value, clean=True, finite=notes)
        text = _dump(plain)
    return text + (_NOT_A_NUMBER_NOTE if notes else "")


def _is_plain(value: object) -> bool:
    """Return whether no container in `value`, which must not contain itself, is anything but a list, tuple or dict.

    It looks at one level of nesting after the other, in C: 10 kB of records take a tenth of the time of a walk. What
    the garbage collector does not track holds nothing that it would have to: no set, no object with fields.
    """
    level = get_referents(value)
    while level := list(filter(is_tracked, level)):
        if not _CONTAINERS.issuperset(map(type, level)):
            return False
        level = get_referents(*level)
    return True


def _dump(value: object) -> str:
    return to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants").decode()


@cache
def _serializer(kind: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - half of the import time, and rarely needed

    return TypeAdapter(kind)


def _ordered(value: object, *, clean: bool = False, finite: list[str] | None = None) -> Any:
    """Return `value` with its sets as sorted lists; with `clean`, text that can be encoded; with `finite`, no NaN."""
    kind: Any = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if isinstance(value, str):
        return encodable(value) if clean else value
    if isinstance(value, float):
        if finite is not None and not math.isfinite(value):
            finite.append("null")
            return None
        return value
    if _is_mapping(value):
        return {
            _ordered(key, clean=clean) if clean else key: _ordered(item, clean=clean, finite=finite)
            for key, item in value.items()
        }
    if isinstance(value, Iterator):
        raise TypeError("an iterator inside a value can be read only once, so it should be made a list first")
    if isinstance(value, (list, tuple, range, MappingView)):
        return [_ordered(item, clean=clean, finite=finite) for item in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        plain = [_ordered(item, clean=clean, finite=finite) for item in cast("set[Any]", value)]
        return sorted(plain, key=_sort_key)
    if hasattr(kind, "__pydantic_serializer__") or dataclasses.is_dataclass(kind):
        dumped = _serializer(kind).dump_python(value, by_alias=True)
        return dumped if type(dumped) is kind else _ordered(dumped, clean=clean, finite=finite)
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _sort_key(item: object) -> tuple[bool, Any, bytes]:
    # Numbers by size, before everything else by its JSON text.
    if isinstance(item, (int, float)):
        return (False, item, b"")
    return (True, 0, to_json(item, bytes_mode="base64"))
