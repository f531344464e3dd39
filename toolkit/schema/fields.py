"""Parameters as one Pydantic validator: a typed dictionary with a key for each, whatever its name.

A key of a typed dictionary can have any name, so no parameter name is reserved. Defaults are filled in by the
validator: mutable ones are fresh for each call, and whoever looks at the arguments before the call sees all of them.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, get_args, get_origin

import typing_extensions
from pydantic import AliasChoices, AliasPath, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import (
    ErrorDetails,
    PydanticUndefined,
    SchemaError as CoreSchemaError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
)
from typing_extensions import ReadOnly, Unpack

from toolkit.errors import SchemaError
from toolkit.schema.descriptions import find_description, has_field_description, metadata_of
from toolkit.schema.docstring import Documentation, read_attributes
from toolkit.schema.generics import UNIONS, rebuild_hint
from toolkit.schema.hints import CompiledHint, compiled_hint
from toolkit.schema.json_schema import finish_schema, generate_schema
from toolkit.schema.rewriting import rewrite_hint
from toolkit.schema.signature import NOTHING, Parameter, Signature

__all__ = ["Fields", "collect_fields"]

_FIELD_QUALIFIERS = (Required, NotRequired, ReadOnly)
_UNCOMPILABLE = (
    PydanticUserError, PydanticUndefinedAnnotation, CoreSchemaError, NameError, TypeError, RecursionError
)  # fmt: skip
_logger = logging.getLogger("toolkit.schema")
_JSON_TYPES = (str, int, float, bool, list, dict)
_NOT_IN_JSON = "JSON can't carry its type"


class Fields:
    """The fields of one signature, gathered one parameter at a time, then compiled."""

    __slots__ = (
        "_defaults", "_extra", "_hints", "_is_of_parts", "_optional", "_parts", "_serializer", "_signature", "_strict",
        "aliases", "core_schema", "docstring_errors", "opaque_defaults", "schema", "unplaced", "validator", "warnings",
    )  # fmt: skip

    core_schema: core_schema.CoreSchema
    schema: dict[str, Any]
    validator: Any  # SchemaValidator, or what a plugin of Pydantic makes of it

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
        self.unplaced: list[str] = []

    def add(self, parameter: Parameter, documentation: Documentation) -> None:
        """Add what one parameter takes: a property, or for ``**keywords`` what else is allowed."""
        name = parameter.name
        documented = documentation.parameters.get(name)
        hint = parameter.hint
        if hint is NOTHING:
            hint = documented.type_in(self._signature.namespace) if documented is not None else NotImplemented
            if hint is NotImplemented or not _is_type_of(hint, parameter.default):
                hint = Any
                self.warnings.append(f"parameter '{name}' has no type: any value is accepted")
            else:
                self.warnings.append(f"parameter '{name}' has no hint: its type is taken from the docstring")
        if isinstance(hint, (typing.ParamSpecArgs, typing.ParamSpecKwargs)):
            hint = Any
        unpacked = _find_unpacked(hint)
        if isinstance(unpacked, (typing.TypeVarTuple, typing_extensions.TypeVarTuple)):
            hint, unpacked = Any, None
        description = documented.text_beside(hint, parameter.default) if documented is not None else ""
        match parameter.kind:
            case inspect.Parameter.VAR_KEYWORD if unpacked is not None:
                self.unplaced += [f"{name}: {description}"] if description else []
                self._add_unpacked(unpacked, documentation)
            case inspect.Parameter.VAR_KEYWORD:
                self._add_keywords(name, hint, description, documentation)
            case inspect.Parameter.VAR_POSITIONAL if unpacked is not None:
                self._add_field(name, unpacked, NOTHING, description)
            case inspect.Parameter.VAR_POSITIONAL:
                # The item's own words stay with the item.
                item = self._rewrite_parameter(name, hint, described=True)
                self._add_field(name, types.GenericAlias(list, (item,)), Field(default_factory=list), description)
            case _:
                self._add_field(name, hint, parameter.default, description)

    def _add_keywords(self, name: str, hint: Any, description: str, documentation: Documentation) -> None:
        """Take any other arguments, and offer by name those that the docstring describes."""
        known = {*self._hints, *self._signature.hidden, *(parameter.name for parameter in self._signature.parameters)}
        self._extra = self._rewrite_parameter(name, hint)
        for key, documented in documentation.parameters.items():
            if key in known:
                continue
            own = documented.type_in(self._signature.namespace) if hint is Any else NotImplemented
            own = hint if own is NotImplemented else own
            self._add_optional(key, own, documented.text_beside(own, NOTHING))
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
            raise SchemaError(self._signature.subject, _explain_error(error, hint), parameter=name) from error

    def _add_unpacked(self, typed_dict: Any, documentation: Documentation) -> None:
        origin = get_origin(typed_dict) or typed_dict
        hints = typing_extensions.get_type_hints(origin, localns=dict(self._signature.namespace), include_extras=True)
        substitutes = dict(zip(getattr(origin, "__parameters__", ()), get_args(typed_dict), strict=False))
        own_documentation = read_attributes(origin.__doc__, hints)
        for name, qualified in hints.items():
            hint, is_required = _strip_qualifiers(qualified, is_required=name in origin.__required_keys__)
            hint = substitutes.get(hint, hint)
            documented = documentation.parameters.get(name) or own_documentation.get(name)
            description = documented.text_beside(hint, NOTHING) if documented is not None else ""
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
        if (alias := _find_alias(hint, default)) is not None:
            self.aliases[name] = alias
            self._is_of_parts = False
        value = default.default if isinstance(default, FieldInfo) else default
        if value is None and not _is_nullable(hint):
            hint = _add_none(hint)
        if type(value) in _JSON_TYPES or value is None:
            self._defaults[name] = value
        elif value is not NOTHING and value is not PydanticUndefined:
            self.opaque_defaults[name] = value
        text = "" if has_field_description(hint, default) else described or documented
        self._is_of_parts = self._is_of_parts and _is_plain_default(default)
        if self._is_of_parts and (part := compiled_hint(hint, strict=self._strict)) is not None:
            self._parts[name] = (part, default, text)
        else:
            self._is_of_parts = False
        self._hints[name] = (hint, default, text)

    def warn_of_unknown(self, documentation: Documentation) -> None:
        """Warn of what is documented and does not exist."""
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
        """Make `validator` and `schema` of what was added.

        Raises:
            SchemaError: Two parameters under one alias, a type that JSON can't carry, a default against its own hint.
        """
        definitions = self._join_definitions() if self._is_of_parts and self._extra is NOTHING else None
        if definitions is None:
            self._compile_whole()
        else:
            self._compile_parts(definitions)
        self._check_defaults()

    def _join_definitions(self) -> dict[str, Any] | None:
        """Return the definitions of all parts; None where two give one name to different things."""
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
            schema["$defs"] = copy.deepcopy(definitions)
        self.schema = finish_schema(schema, has_members=any(part.has_members for part in parts))

    def _compile_whole(self) -> None:
        config = ConfigDict(allow_inf_nan=False, strict=self._strict)
        if self.aliases:
            config["validate_by_name"] = self._check_aliases()
            config["validate_by_alias"] = True
        hints = {name: self._annotate_hint(name) for name in self._hints}
        while True:
            try:
                adapter = _make_adapter(hints, self._extra, dict(config), self._signature.namespace)
                generated = generate_schema(adapter.core_schema)
            except _UNCOMPILABLE as error:
                blamed = self._find_culprit(error, hints)
                if not (self._narrow_unions([blamed.parameter], hints) or self._leave_out(blamed, hints)):
                    raise blamed from error
                continue
            if not generated.skipped or not self._narrow_unions([*hints, self._name_of_keywords], hints):
                break
        self.warnings += [
            f"a choice inside a type is left out, for JSON can't carry it: {s}" for s in generated.skipped
        ]
        self.schema = finish_schema(generated.schema, has_members=generated.has_members)
        self.core_schema, self.validator, self._serializer = adapter.core_schema, adapter.validator, adapter.serializer

    @property
    def _name_of_keywords(self) -> str | None:
        """The name of ``**keywords``; None without them."""
        kinds = {parameter.kind: parameter.name for parameter in self._signature.parameters}
        return kinds.get(inspect.Parameter.VAR_KEYWORD)

    def _narrow_unions(self, names: Iterable[str | None], hints: dict[str, Any]) -> bool:
        """Keep of each union what JSON can carry; say whether there was more in any."""
        before = len(self.warnings)
        for name in names:
            dropped: list[Any] = []
            if name in hints:
                hints[name] = self._narrow_hint(hints[name], dropped)
            elif name is not None and name == self._name_of_keywords and self._extra is not NOTHING:
                self._extra = self._narrow_hint(self._extra, dropped)
            self.warnings += [
                f"parameter '{name}' is offered without {_write_type(hint)}, which JSON can't carry" for hint in dropped
            ]
        return len(self.warnings) > before

    def _narrow_hint(self, hint: Any, dropped: list[Any]) -> Any:
        if get_origin(hint) not in UNIONS:
            return rebuild_hint(hint, lambda part: self._narrow_hint(part, dropped))
        arms = [self._narrow_hint(arm, dropped) for arm in get_args(hint)]
        kept = [arm for arm in arms if arm is types.NoneType or self._is_sayable(arm)]
        if len(kept) == len(arms) or all(arm is types.NoneType for arm in kept):
            return rebuild_hint(hint, lambda part: arms[get_args(hint).index(part)])
        dropped += [arm for arm in arms if not any(arm is other for other in kept)]
        return typing.Union[tuple(kept)]  # noqa: UP007 - as many as there are

    def _is_sayable(self, hint: Any) -> bool:
        try:
            generate_schema(
                _make_adapter({"value": hint}, NOTHING, ConfigDict(), self._signature.namespace).core_schema
            )
        except _UNCOMPILABLE:
            return False
        return True

    def _leave_out(self, blamed: SchemaError, hints: dict[str, Any]) -> bool:
        if blamed.parameter is None or not self._is_dispensable(blamed):
            return False
        del hints[blamed.parameter]
        self._defaults.pop(blamed.parameter, None)
        self.warnings.append(f"parameter '{blamed.parameter}' is left out, its default applies: {blamed.reason}")
        return True

    def _is_dispensable(self, blamed: SchemaError) -> bool:
        """Return whether a function works without what JSON can't carry: a callback that has a default, say."""
        if _NOT_IN_JSON not in blamed.reason:
            return False
        if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in self._signature.parameters):
            return False
        found = next(
            (parameter for parameter in self._signature.parameters if parameter.name == blamed.parameter), None
        )
        return (
            found is not None
            and found.kind is not inspect.Parameter.POSITIONAL_ONLY
            and found.default is not NOTHING
            and not isinstance(found.default, FieldInfo)
        )

    def _annotate_hint(self, name: str) -> Any:
        hint, default, text = self._hints[name]
        options: dict[str, Any] = {"description": text} if text else {}
        extras: list[Any] = []
        if isinstance(default, FieldInfo):
            extras.append(default)
        elif default is Ellipsis:  # which Pydantic takes for "required"
            options["default_factory"] = lambda: default
        elif default is not NOTHING:
            options["default"] = default
        if options:
            extras.append(Field(**options))
        annotated = Annotated[(hint, *extras)] if extras else hint
        return NotRequired[annotated] if name in self._optional else annotated

    @property
    def serializer(self) -> SchemaSerializer:
        """The serializer of validated arguments; made at first use."""
        if self._serializer is None:
            self._serializer = SchemaSerializer(self.core_schema)
        return self._serializer

    def _check_aliases(self) -> bool:
        """Refuse one alias for two; say whether names are unmistakable beside the aliases."""
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
                # It may need what there is only when the program runs; and what is left out is never validated.
                _logger.debug("the default of %s could not be checked: %s", name, type(error).__name__)

    def _find_culprit(self, error: Exception, hints: Mapping[str, Any]) -> SchemaError:
        """Find the parameter that can't be compiled."""
        subject = self._signature.subject
        suspects: list[tuple[str | None, Any]] = [*hints.items(), (None, self._extra)]
        for name, hint in suspects:
            if hint is NOTHING:
                continue
            try:
                generate_schema(
                    _make_adapter({"value": hint}, NOTHING, ConfigDict(), self._signature.namespace).core_schema
                )
            except _UNCOMPILABLE as found:
                parameter = name or next(
                    p.name for p in self._signature.parameters if p.kind is inspect.Parameter.VAR_KEYWORD
                )
                return SchemaError(subject, _explain_error(found, hint), parameter=parameter)
        return SchemaError(subject, f"its parameters can't be compiled: {_read_first_line(error)}")


def _is_harmless(problem: ErrorDetails, default: Any) -> bool:
    """Return whether a default may be what no model may send: infinite, or a number that stands for its text."""
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    return problem["type"] in ("missing", "finite_number") or (problem["type"] == "string_type" and is_number)


def _is_type_of(hint: Any, default: Any) -> bool:
    """Return whether a default can be what a docstring says of its type; words of a docstring promise nothing."""
    if default is NOTHING or default is None or isinstance(default, FieldInfo):
        return True
    try:
        TypeAdapter(hint).validate_python(default)
    except ValidationError:
        return False
    except Exception:  # noqa: BLE001 - what the hint itself does not allow is said where all are compiled
        return True
    return True


def _is_plain_default(default: Any) -> bool:
    """Return whether a default stands in the schema as it is, without being encoded."""
    if type(default) in (list, dict):
        return not default
    if type(default) is float:
        return math.isfinite(default)
    return default is NOTHING or default is None or type(default) in (str, int, bool)


def collect_fields(signature: Signature, documentation: Documentation, *, strict: bool) -> Fields:
    """Return the compiled fields of a signature.

    Raises:
        SchemaError: See `Fields.compile`.
    """
    fields = Fields(signature, strict=strict)
    for parameter in signature.parameters:
        fields.add(parameter, documentation)
    fields.warn_of_unknown(documentation)
    fields.compile()
    return fields


def _make_adapter(
    hints: dict[str, Any], extra: Any, config: Any, namespace: Mapping[str, Any]
) -> TypeAdapter[dict[str, Any]]:
    make: Any = typing_extensions.TypedDict
    if extra is NOTHING:
        config["extra"] = "forbid"
        typed_dict = make("arguments", hints)
    else:
        typed_dict = make("arguments", hints, extra_items=extra)
    typed_dict.__pydantic_config__ = config
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(typed_dict)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True, _types_namespace=namespace)
    return adapter


def _explain_error(error: Exception, hint: Any) -> str:
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
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _read_first_line(error: Exception) -> str:
    text = error.message if isinstance(error, PydanticUserError) else str(error)
    return text.strip().split("\n", maxsplit=1)[0] or type(error).__name__


def _strip_qualifiers(hint: Any, *, is_required: bool) -> tuple[Any, bool]:
    """Take ``Required`` and the like off; a typed dictionary whose hints are text knows of them only here."""
    while (origin := get_origin(hint)) in _FIELD_QUALIFIERS:
        if origin is not ReadOnly:
            is_required = origin is Required
        hint = get_args(hint)[0]
    return hint, is_required


def _find_unpacked(hint: Any) -> Any:
    """Return what ``Unpack[...]`` or ``*tuple[...]`` holds; None where a hint is neither."""
    origin: Any = get_origin(hint)
    if origin is Unpack or origin is typing.Unpack:
        held = get_args(hint)[0]
        return _find_unpacked(held) or held
    return types.GenericAlias(tuple, get_args(hint)) if getattr(hint, "__unpacked__", False) else None


def _find_alias(hint: Any, default: Any) -> str | None:
    for item in (default, *reversed(metadata_of(hint))):
        alias: Any = (item.validation_alias or item.alias) if isinstance(item, FieldInfo) else None
        if isinstance(alias, AliasChoices):
            alias = alias.choices[0]
        if isinstance(alias, AliasPath):
            alias = alias.path[0]
        if alias is not None:
            return str(alias)
    return None


def _is_nullable(hint: Any) -> bool:
    if hint is None or hint is types.NoneType or hint is Any or hint is object:
        return True
    if isinstance(hint, typing_extensions.TypeAliasType):
        return _is_nullable(hint.__value__)
    if isinstance(hint, typing.NewType):
        return _is_nullable(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_nullable(arguments[0])
    if origin is Literal:
        return None in arguments
    return (origin in UNIONS and any(map(_is_nullable, arguments))) or isinstance(hint, typing.TypeVar)


def _add_none(hint: Any) -> Any:
    """Return ``T | None``, with what `Field` says of it kept on the outside, where Pydantic looks for it."""
    if get_origin(hint) is not Annotated:
        return Optional[hint]  # noqa: UP045 - a hint that is text has no |
    inner = hint.__origin__
    inside = tuple(item for item in hint.__metadata__ if not isinstance(item, FieldInfo))
    outside = tuple(item for item in hint.__metadata__ if isinstance(item, FieldInfo))
    kept: Any = Annotated[(inner, *inside)] if inside else inner
    nullable: Any = Optional[kept]  # noqa: UP045
    return Annotated[(nullable, *outside)] if outside else nullable
