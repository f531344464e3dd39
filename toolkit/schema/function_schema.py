"""A function as a tool: its name and description, the schema of its parameters and the parser of its arguments."""

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
        arguments: Parses arguments into the types of the hints.
        context_hint: The type of the leading context parameter; None without one, its text if it only exists for type
            checkers.
        return_hint: The type of its output; `inspect.Parameter.empty` if it is unknown.
        kind: How it runs. A ``sync`` function may wrap an asynchronous one, so that its value is awaitable.
        bind: Converts arguments to ``(args, kwargs)``; None if ``function(**arguments)`` is right.
        warnings: Warnings for its author.
        docstring_errors: The warnings about wrong docstrings.
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
        """The JSON Schema of the output, if its text determines the value; generated at first use."""
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
    """Return the schema of a function as a tool.

    Defaults are part of the validated arguments, so that caches, approvals and permission rules see the whole call.

    Args:
        function: Any callable.
        context: True if the first parameter (after the receiver) is the caller's context, which no schema has.
        receiver: True if the first parameter is ``self`` or ``cls``, which no schema has.
        name: The name; None takes the function's own.
        description: The description; None takes that of the docstring.
        strict: True to accept no ``"5"`` for an ``int``.
        localns: The local names where the function was defined, for hints that are texts.
        owner: The object or class that a method is taken from, for ``Self`` and type parameters.

    Raises:
        SchemaError: It can't be a tool; the message names the parameter, the reason and a remedy.
    """
    # Pydantic takes most of the time of an import, and a program without tools doesn't need it.
    from toolkit.schema.fields import collect_fields  # noqa: PLC0415
    from toolkit.schema.typed_arguments import TypedArguments  # noqa: PLC0415

    signature = read_signature(function, context=context, receiver=receiver, localns=localns, owner=owner)
    from toolkit.schema.docstring import read_docstring  # noqa: PLC0415 - slow to import, and no need without a tool

    names = {parameter.name for parameter in signature.parameters} | signature.hidden
    documentation = read_docstring(signature.docstring, names)
    fields = collect_fields(signature, documentation, strict=strict)
    return FunctionSchema(
        name=_choose_name(function, name, signature.subject),
        description="\n\n".join([documentation.description, *fields.extra_descriptions]).strip()
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
    # Letters lose their marks: `größe` becomes `grosse`.
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
    # Strings are written without quotes: beside other types, "5" may be a number or a text.
    kinds = _list_kinds(schema, schema.get("$defs", {}))
    return schema if kinds and (kinds <= {"string", "null"} or "string" not in kinds) else None


def _list_kinds(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    """Return the JSON types of a schema; empty if they are unknown."""
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
