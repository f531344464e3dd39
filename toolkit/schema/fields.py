"""Compiles the parameters of a signature into one Pydantic validator of a typed dictionary.

The keys of a typed dictionary can have any name, so no parameter name is reserved. The validator fills in defaults:
mutable ones are created for each call, and all arguments are visible before the call.

Each hint is compiled by itself, so that the compilation of a hint that many tools share is cached, and that the error
for one that can't be compiled names its parameter.
"""

from __future__ import annotations

import copy
import inspect
import math
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin

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
from pydantic_core.core_schema import CoreConfig

from toolkit.errors import SchemaError
from toolkit.logs import get_logger
from toolkit.schema.docstring import Documentation, DocumentedParameter, read_attributes
from toolkit.schema.json_schema import (
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
    is_secret,
    join_definitions,
    needs_correction,
    rewrite_hint,
    strip_qualifiers,
)
from toolkit.schema.signature import NOTHING, UNIONS, Parameter, Signature, rebuild_hint

_logger = get_logger("toolkit.schema")
_MOST_KEPT = 512
_ONLY_KEY = "value"
_UNCOMPILABLE = (
    PydanticUserError, PydanticUndefinedAnnotation, CoreSchemaError, NameError, TypeError, RecursionError
)  # fmt: skip
"""The errors of hints that can't be compiled."""
_NOT_IN_JSON = "JSON can't carry its type"
_JSON_TYPES = (str, int, float, bool, list, dict)


class CompiledHint(NamedTuple):
    """A compiled hint; the parts that are shared by a cache are not changed.

    Args:
        field: The field of a typed dictionary in a core schema.
        schema: The JSON Schema of its values.
        is_required: True if the hint has no default.
        core_definitions: The definitions that `field` refers to.
        definitions: The definitions that `schema` refers to, by name.
        has_members: True if the schema has names of enum members for its description.
        is_corrected: True if the core schema is not the one that Pydantic has compiled for the types in it.
        skipped: The members of unions that were left out because JSON can't carry them.
    """

    field: core_schema.TypedDictField
    schema: dict[str, Any]
    is_required: bool
    core_definitions: tuple[CoreSchema, ...]
    definitions: dict[str, Any]
    has_members: bool
    is_corrected: bool
    skipped: tuple[str, ...]


class _GatheredField(NamedTuple):
    """A property before it is compiled; `is_optional` is True if it may be missing without a default."""

    hint: Any
    default: Any
    description: str
    is_optional: bool


class Fields:
    """The fields of one signature, gathered one parameter at a time, then compiled."""

    __slots__ = (
        "_defaults", "_extra", "_gathered", "_is_corrected", "_serializer", "_signature", "_strict", "aliases",
        "core_schema", "docstring_errors", "extra_descriptions", "opaque_defaults", "schema", "validator", "warnings",
    )  # fmt: skip

    core_schema: CoreSchema
    schema: dict[str, Any]
    validator: SchemaValidator

    def __init__(self, signature: Signature, *, strict: bool) -> None:
        self._signature = signature
        self._strict = strict
        self._gathered: dict[str, _GatheredField] = {}
        self._is_corrected = False
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
        known = self._known_names()
        self._extra = self._rewrite_parameter(name, hint)
        for key, documented in documentation.parameters.items():
            if key in known:
                continue
            own = documented.type_in(self._signature.namespace) if hint is Any else NotImplemented
            own = hint if own is NotImplemented else own
            self._add_field(key, own, NOTHING, documented.description_beside(own, NOTHING), is_optional=True)
        if description and not has_field_description(self._extra, None):
            self._extra = Annotated[self._extra, Field(description=description)]

    def _known_names(self) -> set[str]:
        return {*self._gathered, *self._signature.hidden, *(parameter.name for parameter in self._signature.parameters)}

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
            if name in self._gathered:
                reason = "it is a key of the typed dictionary too, and JSON has one value of a name: rename one of them"
                raise SchemaError(self._signature.subject, reason, parameter=name)
            self._add_field(name, hint, NOTHING, description, is_optional=not is_required)
        extra = getattr(origin, "__extra_items__", typing_extensions.NoExtraItems)
        if extra is not typing_extensions.NoExtraItems and extra is not None:
            self._extra = extra

    def _add_field(self, name: str, hint: Any, default: Any, documented: str, *, is_optional: bool = False) -> None:
        described = find_description(hint, default)
        hint = self._rewrite_parameter(name, hint, described=described is not None)
        if (alias := find_alias(hint, default)) is not None:
            self.aliases[name] = alias
        value = default.default if isinstance(default, FieldInfo) else default
        if value is None and not is_nullable(hint):
            hint = add_none(hint)
        # A default of JSON is checked against its hint.
        if type(value) in _JSON_TYPES or value is None:
            self._defaults[name] = value
        elif value is not NOTHING and value is not PydanticUndefined:
            self.opaque_defaults[name] = value
        text = "" if has_field_description(hint, default) else described or documented
        if not is_plain_default(default):
            hint, default, text = annotate_hint(hint, default, text), NOTHING, ""
        self._gathered[name] = _GatheredField(hint, default, text, is_optional)

    def warn_about_unknown(self, documentation: Documentation) -> None:
        """Warn about documented parameters that do not exist."""
        if self._extra is not NOTHING:
            return
        known = self._known_names()
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
        config = CoreConfig(title="arguments", allow_inf_nan=False, strict=self._strict)
        if self.aliases:
            config["validate_by_name"] = self._check_aliases()
            config["validate_by_alias"] = True
        compiled = {name: self._compile_parameter(name, field.hint) for name, field in self._gathered.items()}
        extra: CompiledHint | None = None
        if self._extra is NOTHING:
            config["extra_fields_behavior"] = "forbid"
        else:
            kinds = {parameter.kind: parameter.name for parameter in self._signature.parameters}
            extra = self._compile_parameter(kinds[inspect.Parameter.VAR_KEYWORD], self._extra)
        parts = {name: part for name, part in compiled.items() if part is not None}
        self._join_core(parts, extra, config)
        self._join_json(parts, extra)
        self._check_defaults()

    def _join_core(self, parts: Mapping[str, CompiledHint], extra: CompiledHint | None, config: CoreConfig) -> None:
        """Set the core schema, and its validator."""
        fields: dict[str, Any] = {}
        for name, part in parts.items():
            gathered, field = self._gathered[name], part.field
            if gathered.default is not NOTHING:
                inner = core_schema.with_default_schema(field["schema"], default=gathered.default)
                field = {**field, "schema": inner, "required": False}
            fields[name] = {**field, "required": False} if gathered.is_optional else field
        options: dict[str, Any] = {"config": config}
        if extra is not None:
            options |= {"extras_schema": extra.field["schema"], "extra_behavior": "allow"}
        core: CoreSchema = core_schema.typed_dict_schema(fields, **options)
        everything = [*parts.values(), *([extra] if extra is not None else [])]
        definitions = {each["ref"]: each for part in everything for each in part.core_definitions if "ref" in each}
        if definitions:
            core = core_schema.definitions_schema(core, list(definitions.values()))
        self.core_schema = core
        self._is_corrected = any(part.is_corrected for part in everything)
        try:
            self.validator = SchemaValidator(core, _use_prebuilt=not self._is_corrected)
        except CoreSchemaError as error:
            reason = f"its parameters can't be compiled: {_read_first_line(error)}"
            raise SchemaError(self._signature.subject, reason) from error

    def _join_json(self, parts: Mapping[str, CompiledHint], extra: CompiledHint | None) -> None:
        """Set the JSON Schema."""
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for name, part in parts.items():
            gathered, member = self._gathered[name], join_definitions(part.schema, part.definitions, definitions)
            if gathered.default is not NOTHING and not is_secret(member):
                member["default"] = copy.copy(gathered.default)
            if gathered.description:
                member["description"] = gathered.description
            properties[self.aliases.get(name, name)] = member
            if "default" in member:  # JSON can say it, so it is part of the arguments
                self.opaque_defaults.pop(name, None)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [
            self.aliases.get(name, name)
            for name, part in parts.items()
            if part.is_required and self._gathered[name].default is NOTHING and not self._gathered[name].is_optional
        ]
        if required:
            schema["required"] = required
        rest = False if extra is None else join_definitions(extra.schema, extra.definitions, definitions) or True
        schema["additionalProperties"] = rest
        if definitions:
            schema["$defs"] = definitions
        has_members = any(part.has_members for part in (*parts.values(), *([extra] if extra is not None else [])))
        self.schema = finish_schema(schema, has_members=has_members)

    def _compile_parameter(self, name: str, hint: Any) -> CompiledHint | None:
        """Return a compiled hint, without the members of unions that JSON can't carry.

        None leaves the parameter out: JSON can't carry its type, and its default applies.

        Raises:
            SchemaError: It can't be compiled.
        """
        namespace = self._signature.namespace
        part, failure = _try_to_compile(hint, self._strict, namespace)
        if part is None or part.skipped:
            dropped: list[Any] = []
            narrowed = _narrow_hint(hint, namespace, dropped)
            if dropped:
                hint = narrowed
                part, failure = _try_to_compile(hint, self._strict, namespace)
            self.warnings += [
                f"parameter '{name}' is offered without {_write_type(each)}, which JSON can't carry" for each in dropped
            ]
        if part is not None:
            self.warnings += [
                f"a choice inside a type is left out, for JSON can't carry it: {each}" for each in part.skipped
            ]
            return part
        assert failure is not None
        reason = _explain_failure(failure, hint)
        if not self._may_be_left_out(name, reason):
            raise SchemaError(self._signature.subject, reason, parameter=name) from failure
        self._defaults.pop(name, None)
        self.warnings.append(f"parameter '{name}' is left out, its default applies: {reason}")
        return None

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

    @property
    def serializer(self) -> SchemaSerializer:
        """The serializer of validated arguments; made at first use."""
        if self._serializer is None:
            self._serializer = SchemaSerializer(self.core_schema, _use_prebuilt=not self._is_corrected)
        return self._serializer

    def _check_aliases(self) -> bool:
        """Refuse repeated aliases; return whether no name is the alias of another parameter."""
        taken: dict[str, str] = {}
        for name in self._gathered:
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


def _try_to_compile(
    hint: Any, strict: bool, namespace: Mapping[str, Any]
) -> tuple[CompiledHint | None, Exception | None]:
    """Return a compiled hint, or the reason why it can't be compiled."""
    try:
        known = _compile_once(_HintKey(hint, strict))
    except TypeError:  # a hint without a hash
        known = None
    try:
        return known or _compile_hint(hint, strict, namespace), None
    except _UNCOMPILABLE as error:
        return None, error


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
    is_plain = field.default is PydanticUndefined or is_plain_default(field.default)
    is_simple = is_plain and all(other is None for other in others)
    return (repr(field.metadata), field.description, repr(field.default)) if is_simple else field


class _HintKey:
    """A hint in a cache."""

    __slots__ = ("hint", "strict", "words")

    def __init__(self, hint: Any, strict: bool) -> None:
        self.hint = hint
        self.strict = strict
        self.words = _describe_hint(hint)

    def __hash__(self) -> int:
        return hash(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HintKey) and self.strict == other.strict and self.words == other.words


@lru_cache(maxsize=_MOST_KEPT)
def _compile_once(key: _HintKey) -> CompiledHint | None:
    """Return a compiled hint; None if that needs the names of a function, or fails."""
    try:
        return _compile_hint(key.hint, key.strict, None)
    except _UNCOMPILABLE:
        return None


def _compile_hint(hint: Any, strict: bool, namespace: Mapping[str, Any] | None) -> CompiledHint:
    """Return a compiled hint.

    Args:
        hint: The hint.
        strict: True to convert no values.
        namespace: The names for hints that are not resolved yet; None if there must be none of them.

    Raises:
        Exception: One of `_UNCOMPILABLE`.
    """
    make: Any = typing_extensions.TypedDict  # type checkers require literal fields
    typed_dict = make("arguments", {_ONLY_KEY: hint})
    typed_dict.__pydantic_config__ = ConfigDict(extra="forbid", strict=strict)
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(typed_dict)
    if not adapter.pydantic_complete:
        if namespace is None:
            raise NameError("a name that is not defined yet")
        adapter.rebuild(raise_errors=True, _types_namespace=dict(namespace))
    core: Any = adapter.core_schema
    is_corrected = needs_correction(core)
    core = correct_core_schema(core) if is_corrected else core
    generated = generate_schema(core)
    core_definitions: tuple[CoreSchema, ...] = ()
    if core["type"] == "definitions":
        core_definitions, core = tuple(core["definitions"]), core["schema"]
        if core["type"] == "definition-ref":
            core = next(each for each in core_definitions if each.get("ref") == core["schema_ref"])
    schema = generated.schema
    (member,) = schema["properties"].values()
    return CompiledHint(
        core["fields"][_ONLY_KEY],
        member,
        "required" in schema,
        core_definitions,
        schema.get("$defs", {}),
        generated.has_members,
        is_corrected,
        generated.skipped,
    )


def _narrow_hint(hint: Any, namespace: Mapping[str, Any], dropped: list[Any]) -> Any:
    """Return a hint without the members of unions that JSON can't carry, which are appended to `dropped`.

    ``Path | Callable[[], str] | None`` loses the callable; a union without other members is unchanged.
    """
    if get_origin(hint) not in UNIONS:
        return rebuild_hint(hint, lambda part: _narrow_hint(part, namespace, dropped))
    arms = [_narrow_hint(arm, namespace, dropped) for arm in get_args(hint)]
    kept = [arm for arm in arms if arm is types.NoneType or _try_to_compile(arm, False, namespace)[0] is not None]
    if len(kept) == len(arms) or all(arm is types.NoneType for arm in kept):
        return rebuild_hint(hint, lambda part: arms[get_args(hint).index(part)])
    dropped += [arm for arm in arms if not any(arm is other for other in kept)]
    return typing.Union[tuple(kept)]  # noqa: UP007 - as many as there are


def _explain_failure(error: Exception, hint: Any) -> str:
    """Return why a hint can't be compiled, for its author."""
    while get_origin(hint) is Annotated:
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
