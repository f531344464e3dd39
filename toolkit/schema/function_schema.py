"""A function seen as a tool: its name, what it says, the schema of its parameters and the parser of its arguments."""

from __future__ import annotations

import functools
import inspect
import re
import types
import unicodedata
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import field
from typing import Any

import typing_extensions

from toolkit.dataclass import dataclass
from toolkit.errors import SchemaError
from toolkit.schema.arguments import ArgumentsParser
from toolkit.schema.signature import NOTHING, CallableKind, Signature, read_signature
from toolkit.tool_names import LONGEST_TOOL_NAME, is_legal_name

_UNSTRUCTURED = frozenset({NOTHING, None, types.NoneType, Any, bytes, complex, object})
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_GENERATORS = (Generator, Iterator, Iterable, AsyncGenerator, AsyncIterator, AsyncIterable)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSchema:
    """A function as a tool.

    Args:
        name: The function's own name, made legal; or the given one.
        description: The docstring without its sections; or the given one.
        parameters: The JSON Schema of the arguments.
        arguments: Checks arguments and turns them into what the hints promise.
        context_hint: The type of the leading context parameter; None without one, its text where only type checkers
            know it.
        return_hint: The type that it returns or, for a generator, that its output has; `inspect.Parameter.empty` where
            that is unknown.
        kind: How it runs. ``sync`` is also a plain function around an asynchronous one, so what it gives may
            still be awaitable.
        bind: Turns arguments into ``(args, kwargs)``; None where ``function(**arguments)`` is right as it stands.
        warnings: Advice for its author.
        docstring_errors: Those of the warnings that say what the docstring tells wrongly.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    arguments: ArgumentsParser
    context_hint: Any
    return_hint: Any
    kind: CallableKind
    bind: Callable[[dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None
    warnings: tuple[str, ...]
    make_output_schema: Callable[[], dict[str, Any] | None] = field(repr=False, compare=False)
    docstring_errors: tuple[str, ...] = ()

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the output, where its text tells the value; made at first use."""
        return self.make_output_schema()


def function_schema(
    function: Callable[..., Any],
    *,
    context: bool = False,
    receiver: bool = False,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    localns: Mapping[str, Any] | None = None,
    owner: Any = None,
) -> FunctionSchema:
    """Return what a function is as a tool.

    Defaults are part of the validated arguments, so that caches, approvals and permission rules see the whole call.

    Args:
        function: Anything that can be called.
        context: The first parameter (after the receiver) is the caller's context: it stays out of the schema.
        receiver: The first parameter is ``self`` or ``cls``: it stays out of the schema.
        name: Instead of the function's own name.
        description: Instead of the docstring's.
        strict: Take no ``"5"`` for an ``int``.
        localns: The local names where the function was defined, for hints that are text.
        owner: The object or class that a method is taken from: it says what ``Self`` and type parameters are.

    Raises:
        SchemaError: It can't be a tool; says which parameter, why, and what would be right.
    """
    # Pydantic is most of the time that importing this library would take, and who makes no tool needs none of it.
    from toolkit.schema.fields import collect_fields  # noqa: PLC0415
    from toolkit.schema.typed_arguments import TypedArguments  # noqa: PLC0415

    signature = read_signature(function, context=context, receiver=receiver, localns=localns, owner=owner)
    from toolkit.schema.docstring import read_docstring  # noqa: PLC0415 - slow to import, and no need without a tool

    names = {parameter.name for parameter in signature.parameters} | signature.hidden
    documentation = read_docstring(signature.docstring, names)
    fields = collect_fields(signature, documentation, strict=strict)
    return FunctionSchema(
        name=_choose_name(function, name, signature.subject),
        description="\n\n".join([documentation.description, *fields.unplaced]).strip()
        if description is None
        else description,
        parameters=fields.schema,
        arguments=TypedArguments(fields, strict=strict),
        context_hint=signature.context_hint,
        return_hint=_find_output_hint(signature),
        kind=signature.kind,
        bind=_make_binder(signature),
        warnings=tuple(fields.warnings),
        docstring_errors=tuple(fields.docstring_errors),
        make_output_schema=functools.cache(lambda: _make_output_schema(_find_output_hint(signature))),
    )


def _choose_name(function: Any, given: str | None, subject: str) -> str:
    if given is not None:
        if not is_legal_name(given):
            raise SchemaError(subject, f"'{given}' is no name for a tool: use 1 to 64 of letters, digits, _ and -")
        return given
    while isinstance(function, functools.partial):
        function = function.func
    own = str(getattr(function, "__name__", None) or type(function).__name__)
    # Letters with marks are said without them: `größe` becomes `grosse`.
    plain = unicodedata.normalize("NFKD", own.replace("\u00df", "ss"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    name = re.sub(r"[^\w-]", "_", plain.strip("<>"))[:LONGEST_TOOL_NAME]
    if not is_legal_name(name):
        raise SchemaError(
            subject,
            f"a tool can't be called '{own}', for models know ASCII letters only: give it a name with name='...'",
        )
    return name


def _make_binder(signature: Signature) -> Callable[[dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None:
    kinds = {parameter.kind for parameter in signature.parameters}
    takes_all = signature.is_called_by_position or inspect.Parameter.VAR_POSITIONAL in kinds
    if inspect.Parameter.POSITIONAL_ONLY not in kinds and not takes_all:
        return None
    by_position = (
        (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if takes_all
        else (inspect.Parameter.POSITIONAL_ONLY,)
    )
    names = [parameter.name for parameter in signature.parameters if parameter.kind in by_position]
    rest = next((p.name for p in signature.parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)

    def bind(arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        keywords = dict(arguments)
        positional = tuple(keywords.pop(name) for name in names)
        return (positional + tuple(keywords.pop(rest)) if rest is not None else positional), keywords

    return bind


def _find_output_hint(signature: Signature) -> Any:
    hint = signature.return_hint
    if signature.kind in ("generator", "async_generator") and typing_extensions.get_origin(hint) in _GENERATORS:
        parts: list[Any] = list(typing_extensions.get_args(hint))
        if not parts:
            return NOTHING
        returned = parts[2] if len(parts) > 2 else None
        return parts[0] if returned in (None, types.NoneType) else returned
    return hint


def _make_output_schema(hint: Any) -> dict[str, Any] | None:
    from pydantic import TypeAdapter  # noqa: PLC0415

    from toolkit.schema.json_schema import json_schema_of  # noqa: PLC0415

    try:
        if hint in _UNSTRUCTURED:
            return None
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        schema = json_schema_of(TypeAdapter(hint).core_schema, mode="serialization")
    except Exception:  # noqa: BLE001 - an output schema is a courtesy: a return hint that has none is legal
        return None
    # A string is written as it is: beside other types, "5" may be a number or a text.
    kinds = _list_kinds(schema, schema.get("$defs", {}))
    return schema if kinds and (kinds <= {"string", "null"} or "string" not in kinds) else None


def _list_kinds(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    """Return the types of JSON that a schema allows; none where it doesn't tell them."""
    match schema:
        case {"type": str(kind)}:
            return {kind}
        case {"$ref": str(pointer)}:
            return _list_kinds(definitions.get(pointer.rpartition("/")[2], {}), {})
        case {"anyOf": [*arms]} | {"oneOf": [*arms]}:
            found = [_list_kinds(arm, definitions) for arm in arms]
            return {kind for kinds in found for kind in kinds} if all(found) else set()
        case _:
            return set()
