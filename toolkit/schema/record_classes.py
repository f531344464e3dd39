"""Classes of attrs and structs of msgspec as parameters: their fields as a typed dictionary, themselves made of it.

Neither library is imported: where a class of theirs is a hint, it has been.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NotRequired, cast, get_args, get_origin

import typing_extensions
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import core_schema

from toolkit.dataclass import dataclass
from toolkit.schema.signature import rebuild_hint

__all__ = ["record_fields", "record_of"]

_SHOWN_DEFAULTS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordField:
    """One field: as its class calls it, as JSON does, and its default where it can be shown."""

    name: str
    key: str
    parameter: str
    is_required: bool
    default: Any = ...


def record_of(hint: type, rewrite: Callable[[Any], Any]) -> Any:
    """Return a hint that Pydantic understands for a class of attrs or a struct of msgspec; any other as it is.

    Values are checked field by field, then given to the class, whose own converters and validators do the rest.
    """
    if record_fields(hint) is None or hasattr(hint, "__get_pydantic_core_schema__"):
        return hint
    return Annotated[hint, _Record(hint, rewrite)]


def record_fields(cls: type) -> list[_RecordField] | None:
    """Return the fields of a class of attrs or a struct of msgspec; None for any other class."""
    if "attr" in sys.modules and isinstance(vars(cls).get("__attrs_attrs__"), tuple):
        return list(_read_attrs_fields(cls))
    if "msgspec" in sys.modules and isinstance(getattr(cls, "__struct_fields__", None), tuple):
        return list(_read_struct_fields(cls))
    return None


def _read_attrs_fields(cls: Any) -> Iterator[_RecordField]:
    nothing = sys.modules["attr"].NOTHING
    for field in cls.__attrs_attrs__:
        if field.init:
            yield _RecordField(
                name=field.name,
                key=field.alias,
                parameter=field.alias,
                is_required=field.default is nothing,
                default=field.default if isinstance(field.default, _SHOWN_DEFAULTS) else ...,
            )


def _read_struct_fields(cls: Any) -> Iterator[_RecordField]:
    for field in sys.modules["msgspec"].structs.fields(cls):
        yield _RecordField(
            name=field.name,
            key=field.encode_name,
            parameter=field.name,
            is_required=field.required,
            default=field.default if isinstance(field.default, _SHOWN_DEFAULTS) else ...,
        )


class _Record:
    """How Pydantic reads such a class, and writes its objects."""

    def __init__(self, cls: type, rewrite: Callable[[Any], Any]) -> None:
        self.cls = cls
        self.rewrite = rewrite
        self.fields = record_fields(cls) or []
        config: Any = getattr(cls, "__struct_config__", None)
        self.tag: tuple[str, Any] | None = (config.tag_field, config.tag) if getattr(config, "tag", None) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Record) and self.cls is other.cls

    def __hash__(self) -> int:
        return hash(self.cls)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        inner = handler.generate_schema(_make_typed_dict(self))
        return core_schema.no_info_wrap_validator_function(
            self.build,
            inner,
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump, return_schema=inner),
        )

    def build(self, value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        """Return the object that a model's JSON means."""
        if isinstance(value, self.cls):
            return value
        checked = validate(value)
        given = {field.parameter: checked[field.key] for field in self.fields if field.key in checked}
        try:
            return self.cls(**given)
        except (TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise ValueError(str(error) or type(error).__name__) from error

    def dump(self, value: Any) -> dict[str, Any]:
        """Return what would make the same object again."""
        said = {field.key: getattr(value, field.name) for field in self.fields}
        return said if self.tag is None else {self.tag[0]: self.tag[1], **said}


_typed_dicts: dict[type, Any] = {}


def _make_typed_dict(record: _Record) -> Any:
    """Return the typed dictionary of a class; its keys come last, for it may hold itself."""
    known = _typed_dicts.get(record.cls)
    if known is not None:
        return known
    made: Any = cast("Any", typing_extensions.TypedDict)(record.cls.__name__, {})
    _typed_dicts[record.cls] = made
    hints = typing_extensions.get_type_hints(record.cls, include_extras=True)
    annotations: dict[str, Any] = {} if record.tag is None else {record.tag[0]: Literal[record.tag[1]]}
    for field in record.fields:
        hint = record.rewrite(_translate_constraints(hints.get(field.name, Any)))
        if field.default is not ...:
            hint = Annotated[hint, Field(json_schema_extra={"default": field.default})]
        annotations[field.key] = hint if field.is_required else NotRequired[hint]
    made.__annotations__ = annotations
    made.__required_keys__ = frozenset(annotations) - {f.key for f in record.fields if not f.is_required}
    made.__optional_keys__ = frozenset(annotations) - made.__required_keys__
    made.__doc__ = record.cls.__doc__ if "__init__" not in (record.cls.__doc__ or "") else None
    made.__module__ = record.cls.__module__
    return made


def _translate_constraints(hint: Any) -> Any:
    """Return a hint with the constraints of msgspec's ``Meta`` as Pydantic's."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return Annotated[(_translate_constraints(inner), *map(_translate_constraint, metadata))]
    return rebuild_hint(hint, _translate_constraints)


def _translate_constraint(item: Any) -> Any:
    if type(item).__module__.partition(".")[0] != "msgspec":
        return item
    names = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "description", "examples")
    said = {name: getattr(item, name, None) for name in names}
    return Field(**{name: value for name, value in said.items() if value is not None})
