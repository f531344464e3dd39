"""Hints compiled by Pydantic: always as members of one typed dictionary, whose keys may have any name."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from toolkit.schema.json_schema import generate_schema
from toolkit.schema.signature import NOTHING, UNIONS, rebuild_hint

__all__ = [
    "UNCOMPILABLE",
    "check_compiles",
    "compile_members",
    "explain_failure",
    "is_unsayable",
    "narrow_hint",
    "read_first_line",
    "write_type",
]

UNCOMPILABLE = (
    PydanticUserError, PydanticUndefinedAnnotation, CoreSchemaError, NameError, TypeError, RecursionError
)  # fmt: skip
"""The errors of hints that can't be compiled."""

_NOT_IN_JSON = "JSON can't carry its type"


def compile_members(
    hints: dict[str, Any], config: ConfigDict, *, extra: Any = NOTHING, namespace: Mapping[str, Any] | None = None
) -> TypeAdapter[dict[str, Any]]:
    """Return the adapter of a typed dictionary with these members.

    Args:
        hints: Of the members, by name.
        config: Of the dictionary, beside what says whether it has other members.
        extra: The hint of all other members; `NOTHING` allows none.
        namespace: Where names in hints that are not defined yet are looked up; None leaves the adapter incomplete.

    Raises:
        Exception: One of `UNCOMPILABLE`.
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


def check_compiles(hint: Any, namespace: Mapping[str, Any]) -> None:
    """Raise unless a hint can be compiled by itself, and said in JSON.

    Raises:
        Exception: One of `UNCOMPILABLE`.
    """
    generate_schema(compile_members({"value": hint}, ConfigDict(), namespace=namespace).core_schema)


def _is_sayable(hint: Any, namespace: Mapping[str, Any]) -> bool:
    """Return whether a hint can be compiled by itself, and said in JSON."""
    try:
        check_compiles(hint, namespace)
    except UNCOMPILABLE:
        return False
    return True


def narrow_hint(hint: Any, namespace: Mapping[str, Any], dropped: list[Any]) -> Any:
    """Return a hint with those choices of its unions that JSON can carry, and append the others to `dropped`.

    A union of which nothing would be left stays as it is: ``Path | Callable[[], str] | None`` loses the callable.
    """
    if get_origin(hint) not in UNIONS:
        return rebuild_hint(hint, lambda part: narrow_hint(part, namespace, dropped))
    arms = [narrow_hint(arm, namespace, dropped) for arm in get_args(hint)]
    kept = [arm for arm in arms if arm is types.NoneType or _is_sayable(arm, namespace)]
    if len(kept) == len(arms) or all(arm is types.NoneType for arm in kept):
        return rebuild_hint(hint, lambda part: arms[get_args(hint).index(part)])
    dropped += [arm for arm in arms if not any(arm is other for other in kept)]
    return typing.Union[tuple(kept)]  # noqa: UP007 - as many as there are


def is_unsayable(reason: str) -> bool:
    """Return whether `explain_failure` said that JSON can't carry the type."""
    return _NOT_IN_JSON in reason


def explain_failure(error: Exception, hint: Any) -> str:
    """Return the reason, for an author, why a hint can't be compiled."""
    while get_origin(hint) in (Annotated, NotRequired):
        hint = get_args(hint)[0]
    shown = write_type(hint)
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
    return f"its type {shown} can't be used: {read_first_line(error)}"


def write_type(hint: Any) -> str:
    """Return a hint as errors and warnings name it."""
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def read_first_line(error: Exception) -> str:
    """Return the first line of what an error says; its type where it says nothing."""
    text = error.message if isinstance(error, PydanticUserError) else str(error)
    return text.strip().split("\n", maxsplit=1)[0] or type(error).__name__
