"""Compiles the parameters of a signature into one Pydantic validator of a typed dictionary.

The keys of a typed dictionary can have any name, so no parameter name is reserved. The validator fills in defaults:
mutable ones are created for each call, and all arguments are visible before the call.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, NotRequired, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    PydanticUndefined,
    SchemaError as CoreSchemaError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
)

from toolkit.errors import SchemaError
from toolkit.schema.docstring import Documentation, DocumentedParameter, read_attributes
from toolkit.schema.json_schema import (
    GeneratedSchema,
    add_none,
    annotate_hint,
    correct_core_schema,
    find_alias,
    find_description,
    find_unpacked,
    finish_schema,
    generate_schema,
    has_field_description,
    is_nullable,
    needs_correction,
    rewrite_hint,
    strip_qualifiers,
)
from toolkit.schema.signature import NOTHING, UNIONS, Parameter, Signature, rebuild_hint

_logger = logging.getLogger("toolkit.schema")
_MOST_KEPT = 512
_ONLY_KEY = "value"
_UNCOMPILABLE = (
    PydanticUserError, PydanticUndefinedAnnotation, CoreSchemaError, NameError, TypeError, RecursionError
)  # fmt: skip
"""The errors of hints that can't be compiled."""
_NOT_IN_JSON = "JSON can't carry its type"
_JSON_TYPES = (str, int, float, bool, list, dict)


class Fields:
    """The fields of one signature, gathered one parameter at a time, then compiled."""

    __slots__ = (
        "_defaults", "_extra", "_hints", "_is_of_parts", "_optional", "_parts", "_serializer", "_signature", "_strict",
        "aliases", "core_schema", "docstring_errors", "extra_descriptions", "opaque_defaults", "schema", "validator",
        "warnings",
    )  # fmt: skip

    core_schema: CoreSchema
    schema: dict[str, Any]
    validator: Any  # a SchemaValidator, or one of a plugin of Pydantic

    def __init__(self, signature: Signature, *, strict: bool) -> None:
        self._signature = signature
        self._strict = strict
        self._hints: dict[str, tuple[Any, Any, str]] = {}
        self._parts: dict[str, tuple[CompiledHint, Any, str]] = {}
        self._is_of_parts = True
        self._optional: set[str] = set()
        self._serializer: SchemaSerializer | None = None
        self._defaults: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self._extra: Any = NOTHING
        self.opaque_defaults: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.docstring_errors: list[str] = []
        self.extra_descriptions: list[str] = []

    def add(self, parameter: Parameter, documentation: Documentation) -> None:
        """Add the property of a parameter, or the additional properties for ``**keywords``."""
        name = parameter.name
        documented = documentation.parameters.get(name)
        hint = self._choose_hint(parameter, documented)
        unpacked = find_unpacked(hint)
        if isinstance(unpacked, (typing.TypeVarTuple, typing_extensions.TypeVarTuple)):
            hint, unpacked = Any, None
        description = documented.description_beside(hint, parameter.default) if documented is not None else ""
        match parameter.kind:
            case inspect.Parameter.VAR_KEYWORD if unpacked is not None:
                self.extra_descriptions += [f"{name}: {description}"] if description else []
                self._add_unpacked(unpacked, documentation)
            case inspect.Parameter.VAR_KEYWORD:
                self._add_keywords(name, hint, description, documentation)
            case inspect.Parameter.VAR_POSITIONAL if unpacked is not None:
                self._add_field(name, unpacked, NOTHING, description)
            case inspect.Parameter.VAR_POSITIONAL:
                # The description of the item stays with the item.
                item = self._rewrite_parameter(name, hint, described=True)
                self._add_field(name, types.GenericAlias(list, (item,)), Field(default_factory=list), description)
            case _:
                self._add_field(name, hint, parameter.default, description)

    def _choose_hint(self, parameter: Parameter, documented: DocumentedParameter | None) -> Any:
        """Return the hint of a parameter, else the type in its docstring, else `Any`."""
        hint = parameter.hint
        if hint is NOTHING:
            hint = documented.type_in(self._signature.namespace) if documented is not None else NotImplemented
            if hint is NotImplemented or not _fits_hint(hint, parameter.default):
                self.warnings.append(f"parameter '{parameter.name}' has no type: any value is accepted")
                return Any
            self.warnings.append(f"parameter '{parameter.name}' has no hint: its type is taken from the docstring")
        return Any if isinstance(hint, (typing.ParamSpecArgs, typing.ParamSpecKwargs)) else hint

    def _add_keywords(self, name: str, hint: Any, description: str, documentation: Documentation) -> None:
        """Accept any other arguments, and offer those that the docstring describes."""
        known = {*self._hints, *self._signature.hidden, *(parameter.name for parameter in self._signature.parameters)}
        self._extra = self._rewrite_parameter(name, hint)
        for key, documented in documentation.parameters.items():
            if key in known:
                continue
            own = documented.type_in(self._signature.namespace) if hint is Any else NotImplemented
            own = hint if own is NotImplemented else own
            self._add_optional(key, own, documented.description_beside(own, NOTHING))
        if description and not has_field_description(self._extra, None):
            self._extra = Annotated[self._extra, Field(description=description)]

    def _add_optional(self, name: str, hint: Any, description: str) -> None:
        self._add_field(name, hint, NOTHING, description)
        self._optional.add(name)
        self._is_of_parts = False

    def _rewrite_parameter(self, name: str, hint: Any, *, described: bool = False) -> Any:
        try:
            return rewrite_hint(hint, described=described)
        except (TypeError, NameError) as error:
            raise SchemaError(self._signature.subject, _explain_failure(error, hint), parameter=name) from error

    def _add_unpacked(self, typed_dict: Any, documentation: Documentation) -> None:
        origin = get_origin(typed_dict) or typed_dict
        hints = typing_extensions.get_type_hints(origin, localns=dict(self._signature.namespace), include_extras=True)
        substitutes = dict(zip(getattr(origin, "__parameters__", ()), get_args(typed_dict), strict=False))
        own_documentation = read_attributes(origin.__doc__, hints)
        for name, qualified in hints.items():
            hint, is_required = strip_qualifiers(qualified, is_required=name in origin.__required_keys__)
            hint = substitutes.get(hint, hint)
            documented = documentation.parameters.get(name) or own_documentation.get(name)
            description = documented.description_beside(hint, NOTHING) if documented is not None else ""
            self._check_keyword(name)
            if is_required:
                self._add_field(name, hint, NOTHING, description)
            else:
                self._add_optional(name, hint, description)
        extra = getattr(origin, "__extra_items__", typing_extensions.NoExtraItems)
        if extra is not typing_extensions.NoExtraItems and extra is not None:
            self._extra = extra

    def _check_keyword(self, name: str) -> None:
        if name in self._hints:
            raise SchemaError(
                self._signature.subject,
                "it is a key of the typed dictionary too, and JSON has one value of a name: rename one of them",
                parameter=name,
            )

    def _add_field(self, name: str, hint: Any, default: Any, documented: str) -> None:
        described = find_description(hint, default)
        hint = self._rewrite_parameter(name, hint, described=described is not None)
        if (alias := find_alias(hint, default)) is not None:
            self.aliases[name] = alias
            self._is_of_parts = False
        value = default.default if isinstance(default, FieldInfo) else default
        if value is None and not is_nullable(hint):
            hint = add_none(hint)
        self._note_default(name, value)
        text = "" if has_field_description(hint, default) else described or documented
        self._is_of_parts = self._is_of_parts and is_plain_default(default)
        if self._is_of_parts and (part := compiled_hint(hint, strict=self._strict)) is not None:
            self._parts[name] = (part, default, text)
        else:
            self._is_of_parts = False
        self._hints[name] = (hint, default, text)

    def _note_default(self, name: str, value: Any) -> None:
        """Store a default: one of JSON is checked against its hint, any other is not part of the JSON of arguments."""
        if type(value) in _JSON_TYPES or value is None:
            self._defaults[name] = value
        elif value is not NOTHING and value is not PydanticUndefined:
            self.opaque_defaults[name] = value

    def warn_about_unknown(self, documentation: Documentation) -> None:
        """Warn about documented parameters that do not exist."""
        if self._extra is not NOTHING:
            return
        known = self._hints.keys() | self._signature.hidden | {p.name for p in self._signature.parameters}
        self.docstring_errors = [
            f"the docstring describes '{name}', which is no parameter"
            for name in documentation.parameters
            if name not in known
        ]
        self.warnings += self.docstring_errors

    def compile(self) -> None:
        """Set `validator` and `schema`.

        Raises:
            SchemaError: Two parameters have one alias, JSON can't carry a type, or a default does not fit its hint.
        """
        definitions = self._join_definitions() if self._is_of_parts and self._extra is NOTHING else None
        if definitions is None:
            self._compile_whole()
        else:
            self._compile_parts(definitions)
        self._check_defaults()

    def _join_definitions(self) -> dict[str, Any] | None:
        """Return the definitions of all parts; None if two of them have the same name."""
        joined: dict[str, Any] = {}
        for part, _, _ in self._parts.values():
            for name, definition in part.definitions.items():
                if joined.setdefault(name, definition) != definition:
                    return None
        return joined

    def _compile_parts(self, definitions: dict[str, Any]) -> None:
        fields: dict[str, core_schema.TypedDictField] = {}
        properties: dict[str, Any] = {}
        required: list[str] = []
        for name, (part, default, text) in self._parts.items():
            core, member = part.core, part.schema
            if default is NOTHING:
                required.append(name)
            else:
                core = core_schema.with_default_schema(core, default=default)
                member["default"] = copy.copy(default)
            if text:
                member["description"] = text
            fields[name] = core_schema.typed_dict_field(core, required=default is NOTHING)
            properties[name] = member
        config = core_schema.CoreConfig(
            title="arguments",
            extra_fields_behavior="forbid",
            allow_inf_nan=False,
            strict=self._strict,
        )
        self.core_schema = core_schema.typed_dict_schema(fields, config=config)
        parts = [part for part, _, _ in self._parts.values()]
        core_definitions = {core["ref"]: core for part in parts for core in part.core_definitions if "ref" in core}
        if core_definitions:
            self.core_schema = core_schema.definitions_schema(self.core_schema, list(core_definitions.values()))
        self.validator = SchemaValidator(self.core_schema)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if definitions:
            schema["$defs"] = _copy_schema(definitions)
        self.schema = finish_schema(schema, has_members=any(part.has_members for part in parts))

    def _compile_whole(self) -> None:
        """Compile all hints as one typed dictionary, without optional parts that JSON can't carry."""
        hints = {name: self._find_annotated(name) for name in self._hints}
        adapter, core, generated = self._compile_hints(hints)
        if generated.skipped:
            narrowed = [name for name in self._hints_to_compile(hints) if self._narrow_union(name, hints)]
            adapter, core, generated = self._compile_hints(hints) if narrowed else (adapter, core, generated)
        self.warnings += [
            f"a choice inside a type is left out, for JSON can't carry it: {s}" for s in generated.skipped
        ]
        self.schema = finish_schema(generated.schema, has_members=generated.has_members)
        self.core_schema, self.validator, self._serializer = adapter.core_schema, adapter.validator, adapter.serializer
        if core is not self.core_schema:
            self.core_schema = core
            self.validator = SchemaValidator(self.core_schema, _use_prebuilt=False)
            self._serializer = SchemaSerializer(self.core_schema, _use_prebuilt=False)

    def _compile_hints(self, hints: dict[str, Any]) -> tuple[TypeAdapter[dict[str, Any]], CoreSchema, GeneratedSchema]:
        """Return Pydantic's adapter of the hints, the corrected core schema, and the JSON Schema."""
        config = ConfigDict(allow_inf_nan=False, strict=self._strict)
        if self.aliases:
            config["validate_by_name"] = self._check_aliases()
            config["validate_by_alias"] = True
        try:
            adapter = _compile_members(hints, config, extra=self._extra, namespace=self._signature.namespace)
            core = (
                correct_core_schema(adapter.core_schema)
                if needs_correction(adapter.core_schema)
                else adapter.core_schema
            )
            return adapter, core, generate_schema(core)
        except _UNCOMPILABLE as error:
            if not self._drop_inexpressible(hints):
                reason = f"its parameters can't be compiled: {_read_first_line(error)}"
                raise SchemaError(self._signature.subject, reason) from error
        return self._compile_hints(hints)

    def _hints_to_compile(self, hints: Mapping[str, Any]) -> list[str]:
        """Return the names of all hints, ``**keywords`` last."""
        kinds = {parameter.kind: parameter.name for parameter in self._signature.parameters}
        keywords = kinds.get(inspect.Parameter.VAR_KEYWORD)
        return [*hints, keywords] if keywords is not None and self._extra is not NOTHING else [*hints]

    def _drop_inexpressible(self, hints: dict[str, Any]) -> bool:
        """Narrow or drop each hint that can't be compiled; return False if each can be compiled by itself.

        Raises:
            SchemaError: A required parameter has such a hint.
        """
        found = False
        for name in self._hints_to_compile(hints):
            reason = self._find_reason(name, hints)
            if reason is None:
                continue
            found = True
            if self._narrow_union(name, hints):
                reason = self._find_reason(name, hints)
            if reason is not None and not self._may_be_left_out(name, reason):
                raise SchemaError(self._signature.subject, reason, parameter=name)
            if reason is not None:
                del hints[name]
                self._defaults.pop(name, None)
                self.warnings.append(f"parameter '{name}' is left out, its default applies: {reason}")
        return found

    def _find_reason(self, name: str, hints: Mapping[str, Any]) -> str | None:
        """Return why a hint can't be compiled by itself, or None."""
        hint = hints.get(name, self._extra)
        try:
            _check_compiles(hint, self._signature.namespace)
        except _UNCOMPILABLE as error:
            return _explain_failure(error, hint)
        return None

    def _narrow_union(self, name: str, hints: dict[str, Any]) -> bool:
        """Drop the members of a union that JSON can't carry; return whether there were any."""
        dropped: list[Any] = []
        narrowed = _narrow_hint(hints.get(name, self._extra), self._signature.namespace, dropped)
        if name in hints:
            hints[name] = narrowed
        else:
            self._extra = narrowed
        self.warnings += [
            f"parameter '{name}' is offered without {_write_type(hint)}, which JSON can't carry" for hint in dropped
        ]
        return bool(dropped)

    def _may_be_left_out(self, name: str, reason: str) -> bool:
        """Return whether a parameter that JSON can't carry can be left out, such as a callback with a default."""
        parameters = {parameter.name: parameter for parameter in self._signature.parameters}
        if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters.values()):
            return False
        found = parameters.get(name)
        return (
            _NOT_IN_JSON in reason
            and found is not None
            and found.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD)
            and found.default is not NOTHING
            and not isinstance(found.default, FieldInfo)
        )

    def _find_annotated(self, name: str) -> Any:
        annotated = annotate_hint(*self._hints[name])
        return NotRequired[annotated] if name in self._optional else annotated

    @property
    def serializer(self) -> SchemaSerializer:
        """The serializer of validated arguments; made at first use."""
        if self._serializer is None:
            self._serializer = SchemaSerializer(self.core_schema)
        return self._serializer

    def _check_aliases(self) -> bool:
        """Refuse repeated aliases; return whether no name is the alias of another parameter."""
        taken: dict[str, str] = {}
        for name in self._hints:
            alias = self.aliases.get(name, name)
            if alias in taken:
                raise SchemaError(
                    self._signature.subject,
                    f"a model would know it as '{alias}', and parameter '{taken[alias]}' too: give each its own alias",
                    parameter=name,
                )
            taken[alias] = name
        return not any(taken.get(name, name) != name for name in self.aliases)

    def _check_defaults(self) -> None:
        for name, default in self._defaults.items():
            try:
                self.validator.validate_python({self.aliases.get(name, name): default}, strict=False)
            except ValidationError as error:
                problems = [p for p in error.errors(include_url=False) if not _is_harmless(p, default)]
                if not problems:
                    continue
                raise SchemaError(
                    self._signature.subject,
                    f"its default {default!r} is against its own hint ({problems[0]['msg']}): "
                    "change the default, or widen the hint",
                    parameter=name,
                ) from error
            except Exception as error:  # noqa: BLE001 - of an author's validator
                # The validator may need the running program, and defaults are not validated in a call.
                _logger.debug("the default of %s could not be checked: %s", name, type(error).__name__)


def collect_fields(signature: Signature, documentation: Documentation, *, strict: bool) -> Fields:
    """Return the compiled fields of a signature.

    Raises:
        SchemaError: See `Fields.compile`.
    """
    fields = Fields(signature, strict=strict)
    for parameter in signature.parameters:
        fields.add(parameter, documentation)
    fields.warn_about_unknown(documentation)
    fields.compile()
    return fields


def _is_harmless(problem: ErrorDetails, default: Any) -> bool:
    """Return whether a default may differ from valid arguments: an infinite number, or a number for a text."""
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    return problem["type"] in ("missing", "finite_number") or (problem["type"] == "string_type" and is_number)


def _fits_hint(hint: Any, default: Any) -> bool:
    """Return whether a default fits a type from a docstring, which may be wrong."""
    if default is NOTHING or default is None or isinstance(default, FieldInfo):
        return True
    try:
        TypeAdapter(hint).validate_python(default)
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001 - the error is raised where all hints are compiled
        return True
    return True


def is_plain_default(default: Any) -> bool:
    """Return whether a default is written in the schema without encoding."""
    if type(default) in (list, dict):
        return not default
    if type(default) is float:
        return math.isfinite(default)
    return default is NOTHING or default is None or type(default) in (str, int, bool)


class CompiledHint(NamedTuple):
    """A compiled hint.

    Args:
        core: The core schema, for the validator.
        schema: The JSON Schema, which the caller may change.
        core_definitions: The definitions that `core` refers to.
        definitions: The definitions that `schema` refers to, by name; immutable.
        has_members: True if the schema has names of enum members for its description.
    """

    core: CoreSchema
    schema: dict[str, Any]
    core_definitions: tuple[CoreSchema, ...] = ()
    definitions: Mapping[str, Any] = {}
    has_members: bool = False


def compiled_hint(hint: Any, *, strict: bool) -> CompiledHint | None:
    """Return a compiled hint; None if it has to be compiled together with the others.

    That is so for names that are not defined yet, hints with a default or an alias, and hints that can't be
    compiled at all.
    """
    words = _describe_hint(hint)
    try:
        kept = _compile_hint(_HintKey(hint, strict, words))
    except TypeError:  # a hint without a hash
        return None
    return None if kept is None else kept._replace(schema=_copy_schema(kept.schema))


def _copy_schema(part: Any) -> Any:
    kind: object = type(part)  # pyright: ignore[reportUnknownVariableType]
    if kind is dict:
        return {key: _copy_schema(value) for key, value in part.items()}
    return [_copy_schema(item) for item in part] if kind is list else part


def _describe_hint(hint: Any) -> tuple[Any, ...]:
    """Return a key that only hints with the same meaning share.

    ``int | str`` and ``str | int`` are equal and differ in meaning; two ``Field(ge=0)`` mean the same and are unequal.
    """
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return (
            inner,
            repr(inner),
            *[_describe_field(item) if isinstance(item, FieldInfo) else item for item in metadata],
        )
    return (hint,) if isinstance(hint, type) else (hint, repr(hint))


def _describe_field(field: FieldInfo) -> object:
    """Return a key of a `Field` if it has only comparable settings, else the field itself."""
    others = (
        field.default_factory, field.alias, field.validation_alias, field.serialization_alias, field.title,
        field.field_title_generator, field.examples, field.exclude, field.discriminator, field.deprecated,
        field.json_schema_extra, field.frozen, field.validate_default,
    )  # fmt: skip
    is_simple = field.default is PydanticUndefined and all(other is None for other in others)
    return (repr(field.metadata), field.description) if is_simple else field


class _HintKey:
    """A hint in a cache."""

    __slots__ = ("hint", "strict", "words")

    def __init__(self, hint: Any, strict: bool, words: tuple[Any, ...]) -> None:
        self.hint = hint
        self.strict = strict
        self.words = words

    def __hash__(self) -> int:
        return hash(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HintKey) and self.strict == other.strict and self.words == other.words


@lru_cache(maxsize=_MOST_KEPT)
def _compile_hint(key: _HintKey) -> CompiledHint | None:
    try:
        adapter = _compile_members({_ONLY_KEY: key.hint}, ConfigDict(strict=key.strict))
        if not adapter.pydantic_complete:
            return None
        core: Any = adapter.core_schema
        if needs_correction(core):
            return None
        generated = generate_schema(core)
    except _UNCOMPILABLE:
        return None
    core_definitions: tuple[CoreSchema, ...] = ()
    if core["type"] == "definitions":
        core_definitions, core = tuple(core["definitions"]), core["schema"]
    schema = generated.schema
    if core["type"] != "typed-dict" or schema.get("required") != [_ONLY_KEY] or generated.skipped:
        return None
    return CompiledHint(
        core["fields"][_ONLY_KEY]["schema"],
        schema["properties"][_ONLY_KEY],
        core_definitions,
        schema.get("$defs", {}),
        generated.has_members,
    )


def _compile_members(
    hints: dict[str, Any], config: ConfigDict, *, extra: Any = NOTHING, namespace: Mapping[str, Any] | None = None
) -> TypeAdapter[dict[str, Any]]:
    """Return the adapter of a typed dictionary with these members.

    Args:
        hints: Of the members, by name.
        config: The configuration of the dictionary.
        extra: The hint of all other members; `NOTHING` allows none.
        namespace: The names for hints that are not resolved yet; None leaves the adapter incomplete.

    Raises:
        Exception: One of `_UNCOMPILABLE`.
    """
    make: Any = typing_extensions.TypedDict
    if extra is NOTHING:
        config = {**config, "extra": "forbid"}
        typed_dict = make("arguments", hints)
    else:
        typed_dict = make("arguments", hints, extra_items=extra)
    typed_dict.__pydantic_config__ = config
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(typed_dict)
    if not adapter.pydantic_complete and namespace is not None:
        adapter.rebuild(raise_errors=True, _types_namespace=dict(namespace))
    return adapter


def _check_compiles(hint: Any, namespace: Mapping[str, Any]) -> None:
    """Raise unless a hint can be compiled by itself, and expressed in JSON Schema.

    Raises:
        Exception: One of `_UNCOMPILABLE`.
    """
    generate_schema(_compile_members({"value": hint}, ConfigDict(), namespace=namespace).core_schema)


def _is_expressible(hint: Any, namespace: Mapping[str, Any]) -> bool:
    """Return whether a hint can be compiled by itself, and expressed in JSON Schema."""
    try:
        _check_compiles(hint, namespace)
    except _UNCOMPILABLE:
        return False
    return True


def _narrow_hint(hint: Any, namespace: Mapping[str, Any], dropped: list[Any]) -> Any:
    """Return a hint without the members of unions that JSON can't carry, which are appended to `dropped`.

    ``Path | Callable[[], str] | None`` loses the callable; a union without other members is unchanged.
    """
    if get_origin(hint) not in UNIONS:
        return rebuild_hint(hint, lambda part: _narrow_hint(part, namespace, dropped))
    arms = [_narrow_hint(arm, namespace, dropped) for arm in get_args(hint)]
    kept = [arm for arm in arms if arm is types.NoneType or _is_expressible(arm, namespace)]
    if len(kept) == len(arms) or all(arm is types.NoneType for arm in kept):
        return rebuild_hint(hint, lambda part: arms[get_args(hint).index(part)])
    dropped += [arm for arm in arms if not any(arm is other for other in kept)]
    return typing.Union[tuple(kept)]  # noqa: UP007 - as many as there are


def _explain_failure(error: Exception, hint: Any) -> str:
    """Return why a hint can't be compiled, for its author."""
    while get_origin(hint) in (Annotated, NotRequired):
        hint = get_args(hint)[0]
    shown = _write_type(hint)
    if isinstance(error, (PydanticUndefinedAnnotation, NameError)):
        return (
            f"its type {shown} uses the name '{error.name}', which does not exist when the program runs: "
            "import or define it outside of `if TYPE_CHECKING:` and before the function"
        )
    code = error.code if isinstance(error, PydanticUserError) else None
    if code == "schema-for-unknown-type" or isinstance(error, PydanticInvalidForJsonSchema):
        return (
            f"{_NOT_IN_JSON} {shown}: take a dataclass, a TypedDict, a Pydantic model or plain "
            "values instead; take what only your program can supply from the context; or bind it with functools.partial"
        )
    return f"its type {shown} can't be used: {_read_first_line(error)}"


def _write_type(hint: Any) -> str:
    """Return the text of a hint for errors and warnings."""
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _read_first_line(error: Exception) -> str:
    """Return the first line of an error, or its type if it has no message."""
    text = error.message if isinstance(error, PydanticUserError) else str(error)
    return text.strip().split("\n", maxsplit=1)[0] or type(error).__name__
