"""Generates the JSON Schema of type hints for models: without generated titles, with as few definitions as possible.

`rewrite_hint` replaces types that Pydantic does not know (classes of attrs and msgspec, open tuples) and those that it
offers in a schema and then refuses (members of enums). Neither attrs nor msgspec is imported: a hint with one of their
classes shows that it has been.

Pydantic knows the rules of each type; this module only decides how they are written. The order of keys is Pydantic's,
so the bytes are the same in every run and in every Python version.
"""

from __future__ import annotations

import enum
import inspect
import json
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, count
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    Required,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import typing_extensions
from pydantic import (
    AliasChoices,
    AliasPath,
    Field,
    GetCoreSchemaHandler,
    Secret,
    TypeAdapter,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonRef,
    JsonSchemaMode,
    JsonSchemaValue,
    JsonSchemaWarningKind,
)
from pydantic_core import PydanticCustomError, PydanticSerializationError, core_schema, to_jsonable_python
from typing_extensions import ReadOnly, Unpack

from toolkit.dataclass import dataclass
from toolkit.json_text import canonical_json
from toolkit.redaction import is_marked_secret
from toolkit.schema.nodes import (
    Node,
    find_reached,
    find_references,
    is_array,
    is_object,
    map_subschemas,
    subschemas,
)
from toolkit.schema.signature import NOTHING, UNIONS, collect_type_arguments, rebuild_hint, specialize_hint

MEMBERS = "x-members"
"""Our own key for the names of enum members, until they are added to the description."""

_DEFINITIONS_PREFIX = "#/$defs/"
_MOST_LISTED = 64
_SCALAR_TYPES = (str, int, float, bool)
_MOST_LISTED_FLAGS = 6
_FIELD_QUALIFIERS = (Required, NotRequired, ReadOnly)
_SHOWN_DEFAULTS = (str, int, float, bool, type(None))
_copied_typed_dicts: dict[tuple[type, tuple[Any, ...]], Any] = {}
_typed_dicts: dict[type, Any] = {}
_DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class GeneratedSchema(NamedTuple):
    """A JSON Schema as Pydantic generates it, with a definition for each class; see `finish_schema`.

    Args:
        schema: The schema.
        skipped: The members of unions that were left out because JSON can't carry them.
        has_members: True if it has names of enum members for descriptions.
    """

    schema: dict[str, Any]
    skipped: tuple[str, ...]
    has_members: bool


def json_schema_of(schema: core_schema.CoreSchema, *, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    """Return the JSON Schema of a core schema.

    Raises:
        pydantic.errors.PydanticInvalidForJsonSchema: JSON can't carry the type.
    """
    generated = generate_schema(schema, mode=mode)
    return finish_schema(generated.schema, has_members=generated.has_members)


def finish_schema(schema: dict[str, Any], *, has_members: bool) -> dict[str, Any]:
    """Return a generated schema with as few definitions as possible, and with enum members in descriptions."""
    schema = with_few_definitions(schema)
    return _describe_members(schema) if has_members else schema


def generate_schema(schema: core_schema.CoreSchema, *, mode: JsonSchemaMode = "validation") -> GeneratedSchema:
    """Return the JSON Schema of a core schema as Pydantic generates it.

    Raises:
        pydantic.errors.PydanticInvalidForJsonSchema: JSON can't carry the type.
    """
    generator = _Generator(by_alias=True)
    generated = generator.generate(schema, mode=mode)
    if generator.enum_names:
        generated = _drop_enum_titles(generated, generator.enum_names)
    return GeneratedSchema(generated, skipped=tuple(generator.skipped), has_members=generator.has_members)


def members_text(members: Sequence[enum.Enum]) -> str:
    """Return the names of enum members with their values; empty if the values are strings."""
    if all(isinstance(member.value, str) for member in members):
        return ""
    return ", ".join(f"{json.dumps(member.value)} = {member.name}" for member in members)


class _Generator(GenerateJsonSchema):
    """Leaves out titles that Pydantic generates from names, and keeps those of the author."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012 - as the base class has it
        "skipped-choice",
        "non-serializable-default",
        "skipped-discriminator",
    }

    def __init__(self, *, by_alias: bool) -> None:
        super().__init__(by_alias=by_alias)
        self.enum_names: set[str] = set()
        self.has_members = False
        self.skipped: list[str] = []

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind == "skipped-choice":
            self.skipped.append(detail)
        super().emit_warning(kind, detail)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002
        return value

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        # For keys that are not strings, Pydantic generates no schema, or one that no name fits.
        json_schema = super().dict_schema(schema)
        keys = schema.get("keys_schema")
        if keys is None or self.mode != "validation" or "patternProperties" in json_schema:
            return json_schema
        try:
            alone = self.generate_inner(keys)
        except PydanticInvalidForJsonSchema:
            return json_schema
        if self._resolve_reference(alone).get("type") == "string":
            return json_schema
        names = describe_keys(alone, self._resolve_reference, is_literal=keys["type"] == "literal")
        json_schema.pop("propertyNames", None)
        if names is False:
            return {"type": "object", "maxProperties": 0}
        return json_schema if names is True else {**json_schema, "propertyNames": names}

    def _resolve_reference(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            found = self.get_schema_from_definitions(JsonRef(schema["$ref"]))
            if found is None:
                return {}
            schema = found
        return schema

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        default, writer = schema.get("default"), cast("Any", schema["schema"]).get("serialization", {})
        if isinstance(default, enum.Enum) and writer.get("type") == "function-plain":
            schema = {**schema, "default": writer["function"](default)}
        json_schema = super().default_schema(schema)
        if is_secret(json_schema):
            json_schema.pop("default", None)
        return json_schema

    def encode_default(self, dft: Any) -> Any:
        if dft is None or type(dft) in (bool, int, str):
            return dft
        try:
            encoded = to_jsonable_python(_sort_sets(dft))
            json.dumps(encoded, allow_nan=False)
        except Exception as error:  # a default is any object, and so is what it raises when it is read
            raise PydanticSerializationError(str(error)) from error
        return encoded

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _drop_title(super().model_schema(schema), schema["cls"].__name__)

    def field_is_present(self, field: Any) -> bool:
        # Pydantic offers fields with `init=False`, and refuses them.
        is_taken = self.mode != "validation" or field.get("init") is not False
        return is_taken and super().field_is_present(field)

    def get_decimal_pattern(self, schema: core_schema.DecimalSchema) -> str | None:
        return super().get_decimal_pattern(schema) or _DECIMAL  # without it, any text would be offered

    def named_tuple_schema(self, schema: core_schema.NamedTupleSchema) -> JsonSchemaValue:
        # Pydantic drops the names of the values.
        json_schema = super().named_tuple_schema(schema)
        names = [field["name"] for field in schema["fields"]]
        items: list[dict[str, Any]] = json_schema.get("prefixItems", [])
        named = [
            {**item, "description": f"{name}: {item['description']}" if "description" in item else name}
            for name, item in zip(names, items, strict=True)
        ]
        cls = schema["cls"]
        words = inspect.getdoc(cls) or ""
        own = {"description": words} if words and not words.startswith(f"{cls.__name__}(") else {}
        return {**json_schema, **own, "prefixItems": named} if named else json_schema

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _drop_title(super().dataclass_schema(schema), schema["cls"].__name__)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        cls = schema.get("cls")
        return _drop_title(super().typed_dict_schema(schema), cls.__name__ if cls is not None else None)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        self.enum_names.add(schema["cls"].__name__)  # their titles are added later, by Pydantic's metadata
        # An alias is a repeated member, and a list of choices must not repeat one.
        schema = {**schema, "members": list({id(member): member for member in schema["members"]}.values())}
        json_schema = super().enum_schema(schema)
        text = members_text(schema["members"])
        self.has_members = self.has_members or text != ""
        return {**json_schema, MEMBERS: text} if text else json_schema

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        json_schema = super().generate_inner(schema)
        self.has_members = self.has_members or MEMBERS in json_schema
        return json_schema

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        return self.handle_invalid_for_json_schema(schema, f"a class ({schema['cls'].__qualname__})")

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        json_schema = super().union_schema(schema)
        if json_schema.get("anyOf") == []:  # every choice was skipped
            return self.handle_invalid_for_json_schema(schema, "a union of such types")
        return json_schema

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        # An enum member as a tag is another spelling of its value.
        choices = {tag: choice for tag, choice in schema["choices"].items() if not isinstance(tag, enum.Enum)}
        json_schema = super().tagged_union_schema({**schema, "choices": choices or schema["choices"]})
        json_schema.pop("discriminator", None)  # a keyword of OpenAPI; in JSON Schema the choices have constants
        return json_schema


def _drop_enum_titles(schema: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    drop = ("enum" in schema or "const" in schema) and schema.get("title") in names
    kept = {key: value for key, value in schema.items() if not (drop and key == "title")}
    return map_subschemas(kept, lambda part: _drop_enum_titles(part, names))


def _describe_members(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Append the names of enum members to descriptions."""
    kept = {key: value for key, value in schema.items() if key != MEMBERS}
    if MEMBERS in schema:
        text = schema.get("description")
        kept["description"] = schema[MEMBERS] if text is None else f"{text}\n{schema[MEMBERS]}"
    return map_subschemas(kept, _describe_members)


def is_secret(schema: Mapping[str, Any]) -> bool:
    """Return whether a value of this schema is secret, or contains a secret."""
    return is_marked_secret(schema) or any(map(is_secret, subschemas(schema)))


def _sort_sets(value: Any) -> Any:
    """Return a value with sets as sorted lists, the same in each process; raise for values that are read only once."""
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=canonical_json)
    if is_object(value):
        return {key: _sort_sets(item) for key, item in value.items()}
    if is_array(value) or isinstance(value, tuple):
        return [_sort_sets(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Iterator):  # such as `sys.stdin`, which the function is to read
        raise TypeError("a default that can be read only once")
    return value


def _drop_title(json_schema: JsonSchemaValue, name: str | None) -> JsonSchemaValue:
    if name is not None and json_schema.get("title") == name:
        del json_schema["title"]
    return json_schema


def with_few_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline each definition that is used once and doesn't contain itself."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    if not definitions:
        return schema
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    inside = {name: list(_find_definition_names(definition)) for name, definition in definitions.items()}
    uses: Counter[str] = Counter(_find_definition_names(rest))
    for names in inside.values():
        uses.update(names)
    single = {name for name in definitions if uses[name] == 1 and name not in find_reached(inside[name], inside)}

    def inlined(part: Mapping[str, Any]) -> dict[str, Any]:
        while (name := _read_definition_name(part.get("$ref"))) in single:
            part = {**definitions[name], **{key: value for key, value in part.items() if key != "$ref"}}
        return map_subschemas(part, inlined)

    result = inlined(rest)
    kept = {name: inlined(definition) for name, definition in definitions.items() if name not in single}
    return {**result, "$defs": kept} if kept else result


def _read_definition_name(reference: object) -> str | None:
    if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS_PREFIX):
        return None
    return reference.removeprefix(_DEFINITIONS_PREFIX)


def _find_definition_names(schema: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in map(_read_definition_name, find_references(schema)) if name is not None)


def join_definitions(schema: Any, own: Mapping[str, Any], joined: dict[str, Any]) -> Any:
    """Add the definitions of a schema to those of others, and return a copy of the schema that refers to them.

    They are renamed if one of them has the name of another.
    """
    if all(joined.get(name, definition) == definition for name, definition in own.items()):
        joined.update({name: copy_schema(definition) for name, definition in own.items() if name not in joined})
        return copy_schema(schema)
    names = {name: next(new for number in count(2) if (new := f"{name}{number}") not in joined) for name in own}

    def rename(part: Mapping[str, Any]) -> dict[str, Any]:
        name = _read_definition_name(part.get("$ref"))
        return map_subschemas(part if name is None else {**part, "$ref": f"{_DEFINITIONS_PREFIX}{names[name]}"}, rename)

    joined.update({names[name]: rename(copy_schema(definition)) for name, definition in own.items()})
    return rename(copy_schema(schema))


def copy_schema(part: Any) -> Any:
    """Return a deep copy, in less time than `copy.deepcopy` takes."""
    kind: object = type(part)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict:
        return {key: copy_schema(value) for key, value in part.items()}
    return [copy_schema(item) for item in part] if kind is list else part


def describe_keys(keys: Node, resolve: Callable[[Node], Node], *, is_literal: bool) -> dict[str, Any] | bool:
    """Return the schema of the names that are accepted as keys; True for any name, False for none.

    Args:
        keys: The schema of the keys as values.
        resolve: Returns the target of a reference.
        is_literal: True if the listed values are compared without coercion, so that no name is a number.
    """
    keys = resolve(keys)
    if is_array(arms := keys.get("anyOf", keys.get("oneOf"))):
        return _describe_arms([describe_keys(arm, resolve, is_literal=is_literal) for arm in arms])
    values = keys.get("enum", [keys["const"]] if "const" in keys else None)
    if values is not None:
        return _describe_listed(values, is_literal=is_literal)
    match keys.get("type"):
        case "string":
            return {name: value for name, value in keys.items() if name not in ("type", "title", "description")} or True
        case "integer":
            return _describe_numbers(keys.get("minimum"), keys.get("maximum"))
        case "number":
            return {"pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"}
        case "boolean":
            return {"enum": ["true", "false"]}
        case "array" | "object" | "null":
            return False
        case _:
            return True


def _describe_listed(values: list[Any], *, is_literal: bool) -> dict[str, Any] | bool:
    names = [v if isinstance(v, str) else json.dumps(v) for v in values if isinstance(v, str) or not is_literal]
    return {"enum": names} if names else False


def _describe_numbers(least: int | None, most: int | None) -> dict[str, Any]:
    if least is not None and most is not None and most - least < _MOST_LISTED:
        return {"enum": [str(number) for number in range(least, most + 1)]}
    return {"pattern": "^[0-9]+$" if least is not None and least >= 0 else "^-?[0-9]+$"}


def _describe_arms(arms: list[dict[str, Any] | bool]) -> dict[str, Any] | bool:
    kept = [arm for arm in arms if arm is not False]
    if not kept or True in kept:
        return bool(kept)
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def rewrite_hint(hint: Any, *, described: bool = False) -> Any:
    """Return the hint in a form that Pydantic handles.

    The text of each inner ``Annotated[T, "text"]`` becomes a description; that of the outermost is for the property.

    Raises:
        TypeError: JSON Schema can't express it; the message says why.
    """
    origin: Any = get_origin(hint)
    if origin is None and isinstance(hint, type) and not _is_unknown_typed_dict(hint):
        is_record = not hasattr(hint, "__get_pydantic_core_schema__") and _read_record(hint) is not None
        return Annotated[hint, _Record(hint)] if is_record else hint
    if origin is Secret:  # which Pydantic does not mark, unlike `SecretStr`
        return Annotated[hint, Field(json_schema_extra={"writeOnly": True})]
    if origin is Iterable:  # which Pydantic would validate lazily, and which can be read only once
        hint = types.GenericAlias(list, get_args(hint))
    if origin is tuple and any(find_unpacked(part) is not None for part in get_args(hint)):
        return _rewrite_open_tuple(hint)
    cls: Any = origin or hint
    if _is_unknown_typed_dict(cls):
        arguments = [rewrite_hint(part) for part in get_args(hint)]
        return _copy_typed_dict(cls, dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False)))
    if origin is Annotated:
        return rebuild_hint(hint, lambda part: rewrite_hint(part, described=described))
    return rebuild_hint(hint, lambda part: _rewrite_part(part, described=described and origin in UNIONS))


def _rewrite_part(hint: Any, *, described: bool) -> Any:
    hint = rewrite_hint(hint, described=described)
    text = None if described else _text_in(metadata_of(hint))
    return hint if text is None or has_field_description(hint, None) else Annotated[hint, Field(description=text)]


def walk_core(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a core schema and all schemas inside it."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if is_object(part):
            is_schema = isinstance(part.get("type"), str)  # otherwise a mapping of fields
            if is_schema:
                yield part
            waiting.extend(item for key, item in part.items() if key != "metadata" or not is_schema)
        elif isinstance(part, (list, tuple)):
            waiting.extend(cast("Sequence[Any]", part))


def needs_correction(schema: Any) -> bool:
    """Return whether `correct_core_schema` changes a core schema."""
    return any(_is_wrong(part) for part in walk_core(schema))


def _is_wrong(part: Mapping[str, Any]) -> bool:
    match part["type"]:
        case "literal" | "enum":
            return _find_constants(part) is not None
        case "tagged-union":
            return any(isinstance(tag, enum.Enum) for tag in part["choices"])
        case "dataclass":
            return bool(find_specialized_hints(part["cls"]))
        case "dataclass-field":
            return part.get("init") is False
        case _:
            return False


def correct_core_schema(schema: Any) -> Any:
    """Return a core schema that accepts the values of its JSON Schema, and no others.

    Enum members that are constants or tags are written as JSON, or by their names if their values are not JSON:
    Pydantic offers ``"red"`` for a ``Literal[Color.RED]``, and refuses it. A ``Flag`` is a sum of its members, of which
    Pydantic would offer single ones. Fields of a generic base have the types that the class gives them. A field with
    ``init=False`` is no argument.
    """
    if isinstance(schema, (list, tuple)):
        parts = [correct_core_schema(part) for part in cast("Sequence[Any]", schema)]
        return parts if isinstance(schema, list) else tuple(parts)
    if not is_object(schema):
        return schema
    if not isinstance(schema.get("type"), str):  # a mapping of fields
        return {name: correct_core_schema(part) for name, part in schema.items()}
    constants = _find_constants(schema)
    if constants is not None:
        made: Any = _correct_flag(constants) if isinstance(constants, type) else _correct_constants(constants)
        return {**made, "ref": schema["ref"]} if "ref" in schema else made
    inner = {key: correct_core_schema(part) for key, part in schema.items() if key != "metadata"}
    corrected: dict[str, Any] = {**schema, **inner}
    if schema["type"] == "dataclass":
        _correct_fields(corrected)
    elif schema["type"] == "tagged-union":
        tags = _choices_of(tag for tag in schema["choices"] if isinstance(tag, enum.Enum))
        corrected["choices"] |= {written: corrected["choices"][tag] for written, tag in tags.items()}
    return corrected


def _find_constants(schema: Mapping[str, Any]) -> dict[Any, Any] | type[enum.Flag] | None:
    """Return the values of a literal or enum by their JSON values, or a flag; None if Pydantic writes them rightly."""
    if schema["type"] == "literal":
        values = schema["expected"]
        return _choices_of(values) if any(isinstance(value, enum.Enum) for value in values) else None
    if schema["type"] != "enum":
        return None
    if issubclass(schema["cls"], enum.Flag):
        flags: type[enum.Flag] = schema["cls"]
        return flags
    members: list[enum.Enum] = list(schema["cls"])
    is_plain = all(isinstance(member.value, _SCALAR_TYPES) for member in members)
    return None if is_plain else {member.name: member for member in members}


def _choices_of(values: Iterable[Any]) -> dict[Any, Any]:
    """Return the values of a ``Literal`` by their JSON values."""
    choices: dict[Any, Any] = {}
    for value in values:
        is_plain = not isinstance(value, enum.Enum) or isinstance(value.value, _SCALAR_TYPES)
        choices[value.name if not is_plain else value.value if isinstance(value, enum.Enum) else value] = value
    return choices


def _correct_constants(choices: dict[Any, Any]) -> core_schema.CoreSchema:
    """Return the schema of values that are written as the keys of `choices`; names of members are accepted, too."""
    members = {value.name: value for value in choices.values() if isinstance(value, enum.Enum)}
    text = members_text([value for name, value in members.items() if name not in choices])

    def choose(value: Any) -> Any:
        for written, choice in choices.items():
            own = choice.value if isinstance(choice, enum.Enum) else choice
            if value is choice or (
                value is not None and any(type(value) is type(one) and value == one for one in (written, own))
            ):
                return choice
        name = value.rpartition(".")[2] if isinstance(value, str) else ""
        if name not in members:
            raise PydanticCustomError("enum", "unknown name")
        return members[name]

    def write(value: Any) -> Any:
        return next((written for written, choice in choices.items() if choice is value), value)

    return _make_choice(choose, core_schema.literal_schema(list(choices), metadata=_note_members(text)), write)


def _correct_flag(flags: type[enum.Flag]) -> core_schema.CoreSchema:
    """Return the schema of a flag as the sum of its members, or a text such as ``READ|WRITE``."""
    members = [member for member in flags if member.value]
    known = _sum_bits([member.value for member in members])

    def choose(value: Any) -> enum.Flag:
        if isinstance(value, flags):
            return value
        if isinstance(value, str) and not value.strip().isdigit():
            names = [name.strip().rpartition(".")[2] for name in value.replace(",", "|").split("|")]
            if not {*names} <= {*flags.__members__}:
                raise PydanticCustomError("enum", "unknown name")
            return flags(_sum_bits([flags[name].value for name in names]))
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
        if number < 0 or number & ~known:
            raise PydanticCustomError("enum", "no sum of members")
        return flags(number)

    return _make_choice(choose, _offer_sums(members, known), lambda value: getattr(value, "value", value))


def _offer_sums(members: Sequence[enum.Flag], known: int) -> core_schema.CoreSchema:
    """Return the schema of the sums of the members of a flag, listed if some number in between is none."""
    noted = _note_members(f"The sum of any of {members_text(members)}")
    if not known & (known + 1) or len(members) > _MOST_LISTED_FLAGS:
        return core_schema.int_schema(ge=0, le=known, metadata=noted)
    values = [member.value for member in members]
    parts = chain.from_iterable(combinations(values, size) for size in range(len(values) + 1))
    return core_schema.literal_schema(sorted({_sum_bits(part) for part in parts}), metadata=noted)


def _make_choice(
    choose: Callable[[Any], Any], offered: core_schema.CoreSchema, write: Callable[[Any], Any]
) -> core_schema.CoreSchema:
    return core_schema.no_info_plain_validator_function(
        choose,
        json_schema_input_schema=offered,
        serialization=core_schema.plain_serializer_function_ser_schema(write),
    )


def _note_members(text: str) -> dict[str, Any] | None:
    return {"pydantic_js_extra": {MEMBERS: text}} if text else None


def _correct_fields(schema: Any) -> None:
    """Correct the fields of a dataclass."""
    specialized = find_specialized_hints(schema["cls"])
    inner = schema["schema"]
    while "fields" not in inner:  # inside the schemas of its validators
        inner = inner["schema"]
    for field in inner["fields"]:
        if field.get("init") is False:
            field["serialization_exclude"] = True
        if field["name"] in specialized:
            holder: Any = field if field["schema"]["type"] != "default" else field["schema"]
            holder["schema"] = correct_core_schema(TypeAdapter(specialized[field["name"]]).core_schema)


def find_specialized_hints(cls: type) -> dict[str, Any]:
    """Return the hints of the fields that a class inherits from a generic base with type arguments.

    In ``class DateBox(Box[date])``, Pydantic accepts any value for ``value: T``.
    """
    if "__orig_bases__" not in {name for base in cls.__mro__ for name in vars(base)}:
        return {}
    special: dict[str, Any] = {}
    owners = {name: base for base in reversed(cls.__mro__) for name in inspect.get_annotations(base)}
    for base, arguments in collect_type_arguments(cls).items():
        hints = typing_extensions.get_type_hints(base, include_extras=True) if arguments and base is not cls else {}
        for name in [name for name in hints if owners.get(name) is base]:
            hint = specialize_hint(hints[name], cls, arguments)
            if hint is not hints[name] and not isinstance(hint, TypeVar):
                special.setdefault(name, hint)
    return special


def _sum_bits(values: Iterable[int]) -> int:
    """Return the bitwise sum of values."""
    total = 0
    for value in values:
        total |= value
    return total


def _flatten_tuple(hint: Any) -> list[tuple[Any, bool]]:
    """Return the parts of a tuple and of the tuples unpacked in it, each with True if it is repeated."""
    flat: list[tuple[Any, bool]] = []
    for part in get_args(hint):
        unpacked = find_unpacked(part)
        if unpacked is None:
            flat.append((part, False))
        elif get_args(unpacked)[1:] == (...,):
            flat.append((get_args(unpacked)[0], True))
        else:
            flat += _flatten_tuple(unpacked)
    return flat


def _rewrite_open_tuple(hint: Any) -> Any:
    parts = _flatten_tuple(hint)
    opened = [place for place, (_, is_repeated) in enumerate(parts) if is_repeated]
    if not opened:
        return types.GenericAlias(tuple, tuple(rewrite_hint(part) for part, _ in parts))
    item, _ = parts.pop(opened[0])
    if any(part != item for part, _ in parts[opened[0] :]):
        raise TypeError(
            f"JSON Schema can't say {hint}: what follows the open part of a tuple must have its type; put the fixed "
            "values first, or take a dataclass or a TypedDict"
        )
    return Annotated[tuple[Any, ...], _OpenTuple(tuple(rewrite_hint(part) for part in (*(p for p, _ in parts), item)))]


@dataclass(frozen=True, slots=True)
class _OpenTuple:
    """The core schema of a tuple with fixed values, followed by any number of the last one."""

    hints: tuple[Any, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        items = [handler.generate_schema(hint) for hint in self.hints]
        return core_schema.tuple_schema(items, variadic_item_index=len(items) - 1)


def _is_unknown_typed_dict(hint: Any) -> bool:
    """Return whether Pydantic refuses a typed dictionary: before 3.12 it accepts those of typing_extensions only."""
    is_old = sys.version_info < (3, 12) and typing_extensions.is_typeddict(hint)
    return is_old and type(hint).__module__ == "typing"


def _copy_typed_dict(hint: type, arguments: dict[Any, Any]) -> Any:
    """Return a typed dictionary of typing_extensions; its keys are set last, since it may contain itself."""
    key = (hint, tuple(arguments.items()))
    if key in _copied_typed_dicts:
        return _copied_typed_dicts[key]
    same: Any = cast("Any", typing_extensions.TypedDict)(hint.__name__, {})
    _copied_typed_dicts[key] = same
    try:
        hints = typing_extensions.get_type_hints(hint, include_extras=True)
        same.__annotations__ = {
            name: rewrite_hint(arguments.get(inner, inner), described=False) for name, inner in hints.items()
        }
    except BaseException:
        del _copied_typed_dicts[key]
        raise
    for name in ("__required_keys__", "__optional_keys__", "__doc__", "__module__", "__qualname__"):
        setattr(same, name, getattr(hint, name))
    config = getattr(hint, "__pydantic_config__", None)
    if config is not None:
        same.__pydantic_config__ = config
    return same


def strip_qualifiers(hint: Any, *, is_required: bool) -> tuple[Any, bool]:
    """Remove ``Required`` and the like; a typed dictionary with text hints has not evaluated them before."""
    while (origin := get_origin(hint)) in _FIELD_QUALIFIERS:
        if origin is not ReadOnly:
            is_required = origin is Required
        hint = get_args(hint)[0]
    return hint, is_required


def find_unpacked(hint: Any) -> Any:
    """Return the argument of ``Unpack[...]`` or ``*tuple[...]``; None for other hints."""
    origin: Any = get_origin(hint)
    if origin is Unpack or origin is typing.Unpack:
        held = get_args(hint)[0]
        return find_unpacked(held) or held
    return types.GenericAlias(tuple, get_args(hint)) if getattr(hint, "__unpacked__", False) else None


def find_alias(hint: Any, default: Any) -> str | None:
    """Return the alias of a parameter in its hint or default, or None."""
    for item in (default, *reversed(metadata_of(hint))):
        alias: Any = (item.validation_alias or item.alias) if isinstance(item, FieldInfo) else None
        if isinstance(alias, AliasChoices):
            alias = alias.choices[0]
        if isinstance(alias, AliasPath):
            alias = alias.path[0]
        if alias is not None:
            return str(alias)
    return None


def is_nullable(hint: Any) -> bool:
    """Return whether a hint allows None."""
    if hint is None or hint is types.NoneType or hint is Any or hint is object:
        return True
    if isinstance(hint, typing_extensions.TypeAliasType):
        return is_nullable(hint.__value__)
    if isinstance(hint, typing.NewType):
        return is_nullable(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_nullable(arguments[0])
    if origin is Literal:
        return None in arguments
    return (origin in UNIONS and any(map(is_nullable, arguments))) or isinstance(hint, typing.TypeVar)


def add_none(hint: Any) -> Any:
    """Return ``T | None`` with its `Field` on the outside, where Pydantic looks for it."""
    if get_origin(hint) is not Annotated:
        return Optional[hint]  # noqa: UP045 - a hint that is text has no |
    inner = hint.__origin__
    inside = tuple(item for item in hint.__metadata__ if not isinstance(item, FieldInfo))
    outside = tuple(item for item in hint.__metadata__ if isinstance(item, FieldInfo))
    kept: Any = Annotated[(inner, *inside)] if inside else inner
    nullable: Any = Optional[kept]  # noqa: UP045
    return Annotated[(nullable, *outside)] if outside else nullable


def annotate_hint(hint: Any, default: Any, text: str) -> Any:
    """Return a hint with a default (`NOTHING` for none) and a description, for Pydantic."""
    options: dict[str, Any] = {"description": text} if text else {}
    extras: list[Any] = []
    if isinstance(default, FieldInfo):
        extras.append(default)
    elif default is Ellipsis:  # which means "required" to Pydantic
        options["default_factory"] = lambda: default
    elif default is not NOTHING:
        options["default"] = default
    if options:
        extras.append(Field(**options))
    return Annotated[(hint, *extras)] if extras else hint


def metadata_of(hint: Any) -> tuple[Any, ...]:
    """Return the metadata of an ``Annotated`` hint."""
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def has_field_description(hint: Any, default: Any) -> bool:
    """Return whether a `Field` on the hint or as the default has a description."""
    return any(isinstance(item, FieldInfo) and item.description is not None for item in (*metadata_of(hint), default))


def find_description(hint: Any, default: Any) -> str | None:
    """Return the description in a hint: of a ``Field``, else a text, else a ``Doc``."""
    for metadata in ((default,), *_described_layers(hint)):
        for item in reversed(metadata):
            if isinstance(item, FieldInfo) and item.description is not None:
                return inspect.cleandoc(item.description)
    for metadata in _described_layers(hint):
        text = _text_in(metadata)
        if text is not None:
            return text
    return None


def _described_layers(hint: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the metadata of a hint, then of its union members, for ``Annotated[T, "text"] | None``."""
    yield metadata_of(hint)
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(inner) in UNIONS:
        for part in get_args(inner):
            yield metadata_of(part)


def _text_in(metadata: tuple[Any, ...]) -> str | None:
    for item in metadata:
        if isinstance(item, str):
            return inspect.cleandoc(item)
    for item in metadata:
        if isinstance(item, typing_extensions.Doc):
            return inspect.cleandoc(item.documentation)
    return None


class _RecordField(NamedTuple):
    """A field: its name in the class, in JSON and in the constructor, and its default."""

    name: str
    key: str
    parameter: str
    is_required: bool
    default: Any


def _read_record(cls: Any) -> list[_RecordField] | None:
    """Return the fields of a class of attrs or a struct of msgspec; None for any other class."""
    if "attr" in sys.modules and isinstance(cast("Any", vars(cls)).get("__attrs_attrs__"), tuple):
        nothing = sys.modules["attr"].NOTHING
        fields = [field for field in cls.__attrs_attrs__ if field.init]
        return [_RecordField(f.name, f.alias, f.alias, f.default is nothing, f.default) for f in fields]
    if "msgspec" in sys.modules and isinstance(getattr(cls, "__struct_fields__", None), tuple):
        fields = sys.modules["msgspec"].structs.fields(cls)
        return [_RecordField(f.name, f.encode_name, f.name, f.required, f.default) for f in fields]
    return None


@dataclass(frozen=True, slots=True)
class _Record:
    """Pydantic's view of such a class: its fields are validated one by one, then passed to its own constructor."""

    cls: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        cls, fields = self.cls, _read_record(self.cls) or []
        config: Any = getattr(cls, "__struct_config__", None)
        tag: dict[str, Any] = {config.tag_field: config.tag} if getattr(config, "tag", None) else {}

        def build(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, cls):
                return value
            checked = validate(value)
            given = {field.parameter: checked[field.key] for field in fields if field.key in checked}
            try:
                return cls(**given)
            except (TypeError, LookupError, ArithmeticError, AttributeError) as error:
                raise ValueError(str(error) or type(error).__name__) from error

        def dump(value: Any) -> dict[str, Any]:
            return {**tag, **{field.key: getattr(value, field.name) for field in fields}}

        inner = handler.generate_schema(_make_typed_dict(cls, fields, tag))
        written = core_schema.plain_serializer_function_ser_schema(dump, return_schema=inner)
        return core_schema.no_info_wrap_validator_function(build, inner, serialization=written)


def _make_typed_dict(cls: type, fields: Sequence[_RecordField], tag: Mapping[str, Any]) -> Any:
    """Return the typed dictionary of a class; its keys are set last, since it may contain itself."""
    known = _typed_dicts.get(cls)
    if known is not None:
        return known
    made: Any = cast("Any", typing_extensions.TypedDict)(cls.__name__, {})
    _typed_dicts[cls] = made
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    annotations: dict[str, Any] = {name: Literal[value] for name, value in tag.items()}
    for field in fields:
        hint = rewrite_hint(_translate_constraints(hints.get(field.name, Any)))
        if isinstance(field.default, _SHOWN_DEFAULTS):
            hint = Annotated[hint, Field(json_schema_extra={"default": field.default})]
        annotations[field.key] = hint if field.is_required else NotRequired[hint]
    made.__annotations__ = annotations
    made.__required_keys__ = frozenset(annotations) - {field.key for field in fields if not field.is_required}
    made.__optional_keys__ = frozenset(annotations) - made.__required_keys__
    made.__doc__ = cls.__doc__ if "__init__" not in (cls.__doc__ or "") else None
    made.__module__ = cls.__module__
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
    given = {name: getattr(item, name, None) for name in names}
    return Field(**{name: value for name, value in given.items() if value is not None})
