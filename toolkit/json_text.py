"""JSON text of values: for sending, canonical for comparison, and digests of that."""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolkit.foreign_text import replace_surrogates
from toolkit.redaction import digest_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Return a text without the memory addresses of Python's default `repr`."""
    return _ADDRESS.sub("", text)


def write_json(
    value: object,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    allow_nan: bool = True,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """Return JSON for sending or storing, with letters unescaped and lone surrogates as question marks.

    Args:
        value: A value of JSON types.
        indent: The number of spaces per level, with line breaks; None writes no whitespace.
        sort_keys: True to sort the members of objects by name.
        allow_nan: True to write ``NaN`` and ``Infinity``, which are not JSON.
        default: Converts values of other types.

    Raises:
        TypeError: A part is not of a JSON type.
        ValueError: The value contains itself, or has a number that is not allowed.
    """
    text = json.dumps(
        value,
        ensure_ascii=False,
        allow_nan=allow_nan,
        indent=indent,
        sort_keys=sort_keys,
        separators=None if indent else (",", ":"),
        default=default,
    )
    return replace_surrogates(text)


def parse_long_json(content: bytes) -> Any:
    """Return the value of JSON, in a tenth of the time where it is full of lists: no garbage is looked for among them.

    Raises:
        ValueError: It is no JSON, or is nested too deeply.
    """
    from pydantic_core import from_json  # noqa: PLC0415 - slow to import

    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return from_json(content)
    finally:
        if is_collecting:
            gc.enable()


def canonical_json(value: object, *, reveal_secrets: bool = False) -> str:
    """Return the one JSON text of a value, the same in each process: compact ASCII with sorted keys and sorted sets.

    Every value has one, without memory addresses. Secrets are replaced by digests with a key of this process, unless
    they are revealed.

        >>> canonical_json({"b": {2, 1}, "a": None})
        '{"a":null,"b":[1,2]}'
    """
    encode = _REVEALING if reveal_secrets else _HIDING
    try:
        return "".join(encode(value, 0))
    except TypeError:  # keys that are not text, or can't be sorted
        return "".join(encode(_make_plain(value, reveal_secrets), 0))


def unique_json(value: object) -> str:
    """Return the canonical JSON of a value that is compared by it alone.

    Raises:
        ValueError: A part has no text of its own, such as an object with Python's default `repr`.
    """

    def simplify(part: object) -> object:
        plain, shown = _simplify_value(part, reveal=False), repr(part)
        if plain != shown and plain == without_addresses(shown):
            raise ValueError(f"an object of type {type(part).__name__} has no text of its own, such as an id")
        return plain

    json.dumps(value, default=simplify, skipkeys=True)
    return canonical_json(value)


def digest_json(value: object) -> str:
    """Return the SHA-256 digest of the canonical JSON of a value, in hexadecimal."""
    from hashlib import sha256  # noqa: PLC0415 - slow to import, and many programs need none

    return sha256(canonical_json(value).encode()).hexdigest()


def sign_json(value: object, key: bytes) -> str:
    """Return the HMAC-SHA-256 of the canonical JSON of a value, in hexadecimal."""
    import hmac  # noqa: PLC0415 - slow to import, and many programs need none

    return hmac.digest(key, canonical_json(value).encode(), "sha256").hex()


def _make_plain(value: Any, reveal: bool) -> Any:
    """Return a value of JSON types, with text as the keys of its objects."""
    while not isinstance(value, (str, int, float, dict, list, tuple)) and value is not None:
        value = _simplify_value(value, reveal)
    if isinstance(value, dict):
        members = cast("Mapping[Any, Any]", value)
        return {_write_key(key, reveal): _make_plain(item, reveal) for key, item in members.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(item, reveal) for item in cast("Sequence[Any]", value)]
    return value


def _write_key(key: Any, reveal: bool) -> str:
    plain = _make_plain(key, reveal)
    return plain if isinstance(plain, str) else canonical_json(plain)


def _simplify_value(value: Any, reveal: bool) -> Any:
    """Convert a value of another type one step towards JSON types; its members are not converted."""
    # Slow to import, and most values are JSON already.
    from pydantic import BaseModel, Secret, SecretBytes, SecretStr  # noqa: PLC0415
    from pydantic_core import PydanticSerializationError, to_jsonable_python  # noqa: PLC0415

    match value:
        case enum.Enum():
            return value.value if isinstance(value.value, (str, int, float, bool)) else value.name
        case Mapping():
            return dict(cast("Mapping[Any, Any]", cast("object", value)))
        case set() | frozenset():
            return sorted(cast("set[Any]", value), key=partial(canonical_json, reveal_secrets=reveal))
        case SecretStr() | SecretBytes() | Secret():
            secret = cast("Any", value).get_secret_value()
            return secret if reveal else digest_of(canonical_json(secret))
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "surrogateescape")
        case BaseModel():
            return value.model_dump(warnings=False, round_trip=True)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        case _:
            try:
                return to_jsonable_python(value)
            except (PydanticSerializationError, ValueError, RecursionError):
                return without_addresses(repr(value))


def _make_encoder(*, reveal: bool) -> Callable[[object, int], Iterable[str]]:
    """Return a function that takes a value and its depth, and yields pieces of text."""
    # Values of JSON types, the common case, are written directly; `default` converts the others.
    simplify: Callable[[Any], Any] = partial(_simplify_value, reveal=reveal)
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=simplify)
    # `JSONEncoder` creates a compiled encoder for each text. One is enough, without the check for cycles: a cycle then
    # raises RecursionError. If there is no compiled encoder, Python's slow one is used.
    compile_encoder: Any = getattr(json.encoder, "c_make_encoder", None)
    if compile_encoder is None:
        return lambda value, _: encoder.iterencode(value)
    write_text: Any = json.encoder.encode_basestring_ascii
    return cast(
        "Callable[[object, int], Iterable[str]]",
        compile_encoder(None, simplify, write_text, None, ":", ",", True, False, True),
    )


_HIDING, _REVEALING = _make_encoder(reveal=False), _make_encoder(reveal=True)


def make_adapter(kind: Any) -> TypeAdapter[Any]:
    """Return a Pydantic adapter of a type that stops reading a list or an object at the first invalid item.

    A long list of invalid items would otherwise take seconds to collect and format its errors.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and few programs read what was stored

    adapter = TypeAdapter[Any](kind)
    adapter.validator = make_early_validator(adapter.core_schema)
    return adapter


def make_early_validator(schema: Any) -> SchemaValidator:
    """Return a validator of a core schema that stops at the first invalid item of a list or an object."""
    from pydantic_core import SchemaValidator  # noqa: PLC0415 - as in `make_adapter`

    make: Any = SchemaValidator
    # Models would be validated by the validators that they have already, which list all problems.
    return cast("SchemaValidator", make(_stop_early(schema), _use_prebuilt=False))


def _stop_early(schema: Any) -> Any:
    """Return a core schema of Pydantic's that stops at the first invalid item, and has one error for a union."""
    if isinstance(schema, dict):
        parts = {name: _stop_early(part) for name, part in cast("dict[str, object]", schema).items()}
        return parts | _STOPS.get(cast("str", parts.get("type")), {}) if isinstance(parts.get("type"), str) else parts
    if isinstance(schema, list):
        return [_stop_early(part) for part in cast("list[object]", schema)]
    return tuple(map(_stop_early, cast("tuple[object, ...]", schema))) if type(schema) is tuple else schema


_FIRST_ONLY: dict[str, object] = {"fail_fast": True}
_STOPS: dict[str, dict[str, object]] = {
    **dict.fromkeys(("list", "tuple", "set", "frozenset", "dict"), _FIRST_ONLY),
    "union": {"custom_error_type": "no_choice", "custom_error_message": "It is none of the choices"},
}
