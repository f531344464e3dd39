"""An answer of a type while it comes: as far as it is there, and valid.

Pydantic parses the text, and validates it by the schema of the type in which nothing is required. Texts grow by pieces
and lists by whole items; everything else is there once it is whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from toolkit.chat.provider import ArgumentsDelta, TextDelta
from toolkit.loop.events import IterationStart, LoopEvent, ProviderRetried

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[\[\]{},]', re.DOTALL)
_BEGINS = re.compile(r'[{\["]')
_PARTS = 64
_NOTHING = object()


class _CutText(str):
    """A text of which more may come."""

    __slots__ = ()


class PartialAnswers:
    """Reads an answer of a type from the pieces of the reply that gives it.

    The text is parsed again once it has grown by a part of itself, so that reading costs in proportion to its length.

    Args:
        schema: The core schema of an object with the member ``answer``.
        tool_name: The tool by whose calls the answer is given; None where it is given in words.
        is_wrapped: True where the answer comes as the member ``answer`` of an object.
    """

    __slots__ = ("_index", "_is_wrapped", "_last", "_length", "_pieces", "_read", "_tool_name", "_validator")

    def __init__(self, schema: CoreSchema, tool_name: str | None, *, is_wrapped: bool) -> None:
        self._validator = _make_validator(schema)
        self._tool_name = tool_name
        self._is_wrapped = is_wrapped
        self._begin_answer(None)

    def _begin_answer(self, index: int | None) -> None:
        self._index = index  # of the call in its reply
        self._pieces: list[str] = []
        self._length = self._read = 0
        self._last: object = _NOTHING

    def take(self, event: LoopEvent) -> list[Any]:
        """Return the answer as far as it is there after an event, in a list; an empty one where nothing is new."""
        match event:
            case IterationStart() | ProviderRetried():
                self._begin_answer(None)
            case TextDelta(text) if self._tool_name is None:
                return self._add_piece(text)
            case ArgumentsDelta(index=index, tool_name=name, text=text):
                if name == self._tool_name and index != self._index:
                    self._begin_answer(index)
                if index == self._index:
                    return self._add_piece(text)
            case _:
                pass
        return []

    def _add_piece(self, piece: str) -> list[Any]:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length - self._read < max(1, self._read // _PARTS):
            return []
        self._read = self._length
        text = "".join(self._pieces)
        self._pieces = [text]
        data = _read_data(text, is_wrapped=self._is_wrapped)
        if data is _NOTHING or (data == self._last and type(data) is type(self._last)):
            return []
        self._last = data
        from pydantic import ValidationError  # noqa: PLC0415 - slow to import

        try:
            found = self._validator.validate_python({"answer": data}, allow_partial=True)
        except ValidationError:
            return []
        return [found["answer"]] if "answer" in found else []


def _read_data(text: str, *, is_wrapped: bool) -> Any:
    """Return the JSON values of an answer that is still coming; `_NOTHING` where none is there yet."""
    from pydantic_core import from_json  # noqa: PLC0415 - slow to import

    begin = _BEGINS.search(text)
    whole, is_cut = _cut_to_whole(text[begin.start() :] if begin else "")
    try:
        data = from_json(whole, allow_partial="trailing-strings")
    except ValueError:  # nothing yet, or no JSON
        return _NOTHING
    if is_cut:
        data = _mark_cut(data)
    if not is_wrapped:
        return data
    return cast("dict[str, Any]", data).get("answer", _NOTHING) if isinstance(data, dict) else _NOTHING


def _cut_to_whole(text: str) -> tuple[str, bool]:
    """Return the text without a number, word or item of a list of which more may come, and whether it ends in a text.

    For example, ``{"days": [{"n": 1}, {"n"`` becomes ``{"days": [{"n": 1}``.
    """
    lists: list[int] = []  # the depths at which a list is open
    depth = end = whole = 0
    for token in _TOKEN.finditer(text):
        kind, end = token[0][0], token.end()
        if kind in "[{":
            depth += 1
            if kind == "[":
                lists.append(depth)
                whole = end if len(lists) == 1 else whole
        elif kind in "]}":
            if lists and lists[-1] == depth:
                lists.pop()
            depth -= 1
        elif kind == '"' and not token[1]:
            is_value = not depth or text[: token.start()].rstrip().endswith(":")
            return (text[:whole], False) if lists else (text, is_value)
        if lists == [depth] and kind != "[":  # right behind an item of the outermost list, or its comma
            whole = token.start() if kind == "," else end
        if not depth:
            break
    return text[: whole if lists else end], False


def _mark_cut(data: Any) -> Any:
    """Return values of which the last one is a text that may go on."""
    if isinstance(data, str):
        return _CutText(data)
    if isinstance(data, dict) and data:
        values = cast("dict[str, Any]", data)
        last = next(reversed(values))
        values[last] = _mark_cut(values[last])
    return data  # pyright: ignore[reportUnknownVariableType]


# the schema of a type in which nothing is required


def _make_validator(schema: CoreSchema) -> SchemaValidator:
    from pydantic_core import SchemaValidator  # noqa: PLC0415 - slow to import

    return SchemaValidator(cast("CoreSchema", _loosen_schema(schema)))


def _loosen_schema(schema: Any) -> Any:
    """Return a core schema in which fields may be missing; what is in lists is whole, and stays as it is."""
    kind = schema["type"]
    match kind:
        case "definitions":
            definitions = [*schema["definitions"], *map(_loosen_schema, schema["definitions"])]
            return {**schema, "schema": _loosen_schema(schema["schema"]), "definitions": definitions}
        case "definition-ref":
            return {**schema, "schema_ref": _name_loose(schema["schema_ref"])}
        case "nullable":
            loose = {**schema, "schema": _loosen_schema(schema["schema"])}
        case "default":
            loose = _loosen_schema(schema["schema"])  # what has not come is left out
        case "union" | "tagged-union":
            loose = {**schema, "choices": _loosen_choices(schema["choices"])}
        case "model" | "dataclass" | "typed-dict":
            loose = _loosen_object(schema)
        case "function-before" | "function-after" | "function-wrap" if _is_object(schema["schema"]):
            loose = _loosen_schema(schema["schema"])  # a validator of the whole object, which is not there
        case "str" | "any":
            return schema
        case _:
            return _refuse_cut_text(schema)
    if "ref" in schema:
        loose = {**loose, "ref": _name_loose(schema["ref"])}
    return loose


def _loosen_choices(choices: dict[Any, Any] | list[Any]) -> Any:
    if isinstance(choices, list):  # a choice may have a label
        return [_loosen_schema(each[0] if isinstance(each, tuple) else each) for each in choices]
    return {tag: _loosen_schema(each) for tag, each in choices.items()}


def _name_loose(reference: str) -> str:
    return f"{reference}:partial"


def _is_object(schema: Any) -> bool:
    while schema["type"] in ("function-before", "function-after", "function-wrap"):
        schema = schema["schema"]
    return schema["type"] in ("model", "dataclass", "typed-dict", "definition-ref")


def _loosen_object(schema: Any) -> Any:
    """Return the schema of a mapping of an object's fields, none of which is required, and of what it becomes."""
    from pydantic_core import core_schema  # noqa: PLC0415 - slow to import

    parts = schema if schema["type"] == "typed-dict" else schema["schema"]
    while parts["type"].startswith("function-"):
        parts = parts["schema"]
    if parts["type"] not in ("typed-dict", "model-fields", "dataclass-args"):  # of a root model
        return _refuse_cut_text(schema)
    named: dict[str, Any] | list[Any] = parts["fields"]
    fields: dict[str, Any] = {each["name"]: each for each in named} if isinstance(named, list) else named
    loose = {
        name: core_schema.typed_dict_field(
            _loosen_schema(field["schema"]), required=False, validation_alias=field.get("validation_alias")
        )
        for name, field in fields.items()
    }
    config = schema.get("config") or parts.get("config")
    mapping = core_schema.typed_dict_schema(loose, total=False, config=config)
    if schema["type"] == "typed-dict":
        return mapping
    build = _build_model if schema["type"] == "model" else _build_dataclass
    return core_schema.no_info_after_validator_function(lambda values: build(schema["cls"], values), mapping)


def _build_model(cls: Any, values: dict[str, Any]) -> Any:
    made = cls.model_construct(**values)
    for name in made.__dict__.keys() - values.keys():  # a default is no part of what has come
        del made.__dict__[name]
    return made


def _build_dataclass(cls: Any, values: dict[str, Any]) -> Any:
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _refuse_cut_text(schema: Any) -> Any:
    from pydantic_core import core_schema  # noqa: PLC0415 - slow to import

    return core_schema.no_info_before_validator_function(_require_whole, schema)


def _require_whole(value: Any) -> Any:
    if isinstance(value, _CutText):
        raise ValueError("more of this text may come")  # noqa: TRY004 - Pydantic takes this one for a refusal
    return value
