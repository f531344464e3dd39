"""The JSON Schema of a Pydantic type as a model should read it: no title noise, definitions only where needed.

Pydantic knows the rules of each type; what is here is taste. Key order is Pydantic's own, so the bytes are the same
from run to run and from one Python version to the next.
"""

from __future__ import annotations

import enum
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonRef,
    JsonSchemaMode,
    JsonSchemaValue,
    JsonSchemaWarningKind,
)
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from toolkit.json_text import canonical_json
from toolkit.schema.nodes import (
    Node,
    find_references,
    is_array,
    is_marked_secret,
    is_object,
    map_subschemas,
    subschemas,
)

MEMBERS = "x-members"
"""A key of ours for the names of an enum's members, until they are put into the description."""

_DEFINITIONS_PREFIX = "#/$defs/"
_DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class GeneratedSchema(NamedTuple):
    """A JSON Schema as Pydantic makes it, with a definition for each class; `finish_schema` makes it one for models.

    Args:
        schema: The schema itself.
        skipped: The choices of unions that were left out because JSON can't carry them.
        has_members: True where names of an enum's members are to be described.
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
    """Return a generated schema with as few definitions as it can have, and the names of members said in words."""
    schema = with_few_definitions(schema)
    return _describe_members(schema) if has_members else schema


def generate_schema(schema: core_schema.CoreSchema, *, mode: JsonSchemaMode = "validation") -> GeneratedSchema:
    """Return the JSON Schema of a core schema as Pydantic makes it, and what is to be known of it.

    Raises:
        pydantic.errors.PydanticInvalidForJsonSchema: JSON can't carry the type.
    """
    generator = _Generator(by_alias=True)
    generated = generator.generate(schema, mode=mode)
    if generator.enum_names:
        generated = _drop_enum_titles(generated, generator.enum_names)
    return GeneratedSchema(generated, skipped=tuple(generator.skipped), has_members=generator.has_members)


def members_text(members: Sequence[enum.Enum]) -> str:
    """Return the names that a model can't read off the values of members; nothing where the values are words."""
    if all(isinstance(member.value, str) for member in members):
        return ""
    return ", ".join(f"{json.dumps(member.value)} = {member.name}" for member in members)


class _Generator(GenerateJsonSchema):
    """Leaves out what Pydantic makes up from names, keeps what the author wrote."""

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
        # Of keys that are no text Pydantic says nothing, or what no name can be.
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
        json_schema = super().default_schema(schema)
        if _is_secret(json_schema):
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
        # Pydantic offers what `init=False` keeps out, and refuses it.
        is_taken = self.mode != "validation" or field.get("init") is not False
        return is_taken and super().field_is_present(field)

    def get_decimal_pattern(self, schema: core_schema.DecimalSchema) -> str | None:
        return super().get_decimal_pattern(schema) or _DECIMAL  # else any text would be offered

    def named_tuple_schema(self, schema: core_schema.NamedTupleSchema) -> JsonSchemaValue:
        # The names of the values would be lost.
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
        self.enum_names.add(schema["cls"].__name__)  # their titles are put on later, by Pydantic's metadata
        # An alias is the same member once more, and a list of choices must not repeat one.
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
        if json_schema.get("anyOf") == []:  # every choice was skipped, for JSON can carry none
            return self.handle_invalid_for_json_schema(schema, "a union of such types")
        return json_schema

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        json_schema = super().tagged_union_schema(schema)
        json_schema.pop("discriminator", None)  # a word of OpenAPI: the choices' own constants say it in JSON Schema
        return json_schema


def _drop_enum_titles(schema: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    drop = ("enum" in schema or "const" in schema) and schema.get("title") in names
    kept = {key: value for key, value in schema.items() if not (drop and key == "title")}
    return map_subschemas(kept, lambda part: _drop_enum_titles(part, names))


def _describe_members(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put the names of members behind what is said of their place."""
    kept = {key: value for key, value in schema.items() if key != MEMBERS}
    if MEMBERS in schema:
        said = schema.get("description")
        kept["description"] = schema[MEMBERS] if said is None else f"{said}\n{schema[MEMBERS]}"
    return map_subschemas(kept, _describe_members)


def _is_secret(schema: Mapping[str, Any]) -> bool:
    """Return whether a value of this schema must not be shown, or holds one that must not."""
    return is_marked_secret(schema) or any(map(_is_secret, subschemas(schema)))


def _sort_sets(value: Any) -> Any:
    """Return a value whose sets are lists that are the same in each process; raise where it can be read only once."""
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=canonical_json)
    if is_object(value):
        return {key: _sort_sets(item) for key, item in value.items()}
    if is_array(value) or isinstance(value, tuple):
        return [_sort_sets(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Iterator):  # such as `sys.stdin`: to read it would take what the function is to read
        raise TypeError("a default that can be read only once")
    return value


def _drop_title(json_schema: JsonSchemaValue, name: str | None) -> JsonSchemaValue:
    if name is not None and json_schema.get("title") == name:
        del json_schema["title"]
    return json_schema


def with_few_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Put each definition that is used once and doesn't contain itself where it is used."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    if not definitions:
        return schema
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    inside = {name: list(_find_definition_names(definition)) for name, definition in definitions.items()}
    uses: Counter[str] = Counter(_find_definition_names(rest))
    for names in inside.values():
        uses.update(names)
    single = {name for name in definitions if uses[name] == 1 and name not in _find_reachable(name, inside)}

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


def _find_reachable(name: str, inside: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of all definitions that one leads to, by those that each holds directly."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for reference in inside.get(waiting.pop(), ()):
            if reference not in seen:
                seen.add(reference)
                waiting.append(reference)
    return seen


_MOST_LISTED = 64


def describe_keys(keys: Node, resolve: Callable[[Node], Node], *, is_literal: bool) -> dict[str, Any] | bool:
    """Return the schema of the names that are taken for keys; true for any name, false where no name can be one.

    Args:
        keys: The schema of a key, as if it stood by itself.
        resolve: Returns what a schema refers to.
        is_literal: True where the values that it lists are taken as they are: no name is a number then.
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
