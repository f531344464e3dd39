"""The output of a tool, and the total function that converts any Python value to it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from functools import cache, partial
from gc import get_referents
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from toolkit.chat import AudioBlock, ContentBlock, FileBlock, ImageBlock, TextBlock, ToolResult, Trust, text_of
from toolkit.dataclass import dataclass
from toolkit.errors import ToolError, ToolkitError
from toolkit.foreign_text import replace_surrogates

_BLOCKS = (TextBlock, ImageBlock, AudioBlock, FileBlock)
_CONTAINERS = frozenset({list, tuple, dict})
_PLAIN_KINDS = frozenset({dict, list, int, bool})
_JSON_KINDS = _CONTAINERS | {str, int, float, bool, type(None)}
_MOST_LEVELS = 200
_BLOCK_CONTAINERS = (list, tuple, Union, UnionType)
_NOTHING = "(no output)"


@dataclass(slots=True)
class ToolOutput:
    """The output of a tool.

    Args:
        content: The content that the model reads: text, or blocks.
        details: Data for the application only, never sent to a model.
        is_error: True if the content describes a failure.
        result_as_answer: True to end the loop with this as the answer; ignored on an error.
        child_loop_id: The id of the loop that ran inside the tool, for an agent.
        unserializable: The path and type of each value that was converted to text because JSON can't represent it.
        trust: ``untrusted`` for content from outside; None for the label of the tool.
    """

    content: str | tuple[ContentBlock, ...]
    _: KW_ONLY
    details: Any = None
    is_error: bool = False
    result_as_answer: bool = False
    child_loop_id: str | None = None
    unserializable: tuple[str, ...] = ()
    trust: Trust | None = None

    @classmethod
    def error(cls, message: str | BaseException, *, details: Any = None) -> ToolOutput:
        """Return a failure with a text for the model; an exception is described as if the tool had raised it."""
        text = describe_error(message) if isinstance(message, BaseException) else message
        return cls(text or "The tool failed and gave no reason.", details=details, is_error=True)

    @property
    def text(self) -> str:
        """The text of the content."""
        return text_of(self.content)

    @property
    def is_nothing(self) -> bool:
        """True if the tool returned None."""
        return self.content is _NOTHING


def to_output(value: object) -> ToolOutput:
    """Convert the return value of a tool to a `ToolOutput`; never raises.

    A string is unchanged; None becomes a sentence; content blocks are preserved; bytes become a file block. Everything
    else becomes JSON by Pydantic's rules, with sorted sets and Decimal as a string; nested bytes become Base64, and NaN
    becomes null with a note. Arrays and scalars of numpy, frames (as records) and series of pandas, objects of attrs
    and msgspec and the public attributes of plain objects become JSON, too; very long ones are truncated with a note.
    Iterators are exhausted. Lone surrogates are replaced. A value that JSON can't represent becomes text without
    affecting the rest, and `ToolOutput.unserializable` lists it. Later changes of a live object have no effect.
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


def is_nothing(content: object) -> bool:
    """Return True if the content of an output, possibly a stored one, represents None."""
    return content == _NOTHING


def is_content(hint: Any) -> bool:
    """Return True if a return hint is content for a model, and not data."""
    if hint in (ToolOutput, *_BLOCKS):
        return True
    return get_origin(hint) in _BLOCK_CONTAINERS and any(map(is_content, get_args(hint)))


def plain_text(value: object) -> str | None:
    """Return the text of a string, or of data with only JSON types; else None."""
    kind = type(value)
    if kind is str:
        return replace_surrogates(cast("str", value))
    if kind not in _PLAIN_KINDS:
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
            is_plain = True  # but null may mean NaN
    if not is_plain and not _is_plain(value):
        return None
    try:
        text = _exact_dump()(value).decode()
    except (ValueError, TypeError, RecursionError):
        return None
    if ("N" in text and "NaN" in text) or ("I" in text and "Infinity" in text):  # a letter is found faster than a word
        return None
    return text


@cache
def _exact_dump() -> Callable[[Any], bytes]:
    """Return a function that serializes values as JSON, with ``NaN`` and ``Infinity``."""
    from pydantic_core import to_json  # noqa: PLC0415 - slow to import where no tool is called

    return partial(to_json, inf_nan_mode="constants")


@cache
def _fast_dump() -> Callable[[Any], bytes] | None:
    """Return a faster serializer for finite values if the extra ``fast`` is installed; else None."""
    try:
        import orjson  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    others = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    return partial(orjson.dumps, option=others)


def dump_output(output: ToolOutput) -> str:
    """Return the output as JSON text, for a cache; `details` are left out."""
    from toolkit.plain_values import serializer_of  # noqa: PLC0415 - as in `_write_value`

    plain: bytes = serializer_of(ToolOutput).dump_json(output, exclude={"details"})
    return plain.decode()


def load_output(text: str) -> ToolOutput:
    """Return the output that `dump_output` wrote."""
    from toolkit.plain_values import serializer_of  # noqa: PLC0415 - as in `_write_value`

    output: ToolOutput = serializer_of(ToolOutput).validate_json(text)
    return output


def copy_details(details: Any) -> Any:
    """Return a copy of plain data; objects of the application are not copied."""
    if type(details) not in (dict, list, set):
        return details
    try:
        return copy.deepcopy(details)
    except Exception:  # noqa: BLE001 - an object of the application may raise anything
        return details


def copy_result(result: ToolResult) -> ToolResult:
    """Return a copy of a result with a copy of its details."""
    return result if result.details is None else replace(result, details=copy_details(result.details))


def describe_error(error: BaseException) -> str:
    """Return an error as text for the model: the text of a `ToolError`, else ``Type: message``; never empty."""
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
    """Return a sendable form of an output that a tool created, whose content was not checked."""
    content = output.content
    if isinstance(content, str) and content.isascii():
        return output
    if content == ():
        return output
    made = to_output(content)
    if made.content == content:
        return output
    return replace(output, content=made.content, unserializable=(*output.unserializable, *made.unserializable))


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
    """Return any value as JSON text; `unserializable` lists the values that became text."""
    from toolkit.plain_values import read_plain  # noqa: PLC0415 - few tools return values that are not plain

    plain = read_plain(value)
    is_text = isinstance(plain.value, str) and len(plain.unserializable) > 0  # the value itself
    text = plain.value if is_text else _exact_dump()(plain.value).decode()
    notes = f"\n({' '.join(plain.notes)})" if plain.notes else ""
    return ToolOutput(text + notes, unserializable=plain.unserializable)


def _is_plain(value: object) -> bool:
    """Return True if `value` has only JSON types and does not contain itself.

    Each level of nesting is checked at once, without Python code for each value.
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
