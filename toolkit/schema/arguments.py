"""From what a model sent to what a function takes, and back to one canonical text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkit.errors import InvalidArgumentsError
from toolkit.schema.problems import message_for

__all__ = ["ArgumentsParser", "MalformedJsonError", "TypedArguments", "decode_strings"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class MalformedJsonError(InvalidArgumentsError):
    """The text is not JSON: the one failure that mending the text can help."""


class ArgumentsParser(Protocol):
    """Checks arguments; made once per tool, from a function or from a JSON Schema."""

    def parse_json(self, text: str) -> dict[str, Any]:
        """Return the validated arguments that a JSON text says; an empty text and ``null`` say none.

        Raises:
            MalformedJsonError: It is not JSON.
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def parse(self, value: object) -> dict[str, Any]:
        """Do the same with JSON that is decoded already; values that are validated already are taken too.

        Raises:
            InvalidArgumentsError: All that is wrong with it, in one message.
        """
        ...

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        """Return the one canonical JSON text of validated arguments: sorted, compact, ASCII, the same in each process.

        Secrets stand in it as digests, so that two of them are told apart and none is shown. With `reveal_secrets` they
        stand in it as they are, and `parse_json` takes the text back: only for another process of the same program.
        """
        ...


class TypedArguments:
    """Arguments of a function, through one compiled Pydantic validator."""

    __slots__ = ("_adapter", "_is_strict", "_schema", "_validate_json")

    def __init__(self, adapter: TypeAdapter[dict[str, Any]], schema: Mapping[str, Any], *, strict: bool) -> None:
        self._adapter = adapter
        self._schema = schema
        self._is_strict = strict
        self._validate_json: Callable[[str], dict[str, Any]] = adapter.validator.validate_json

    def parse_json(self, text: str) -> dict[str, Any]:
        try:
            return self._validate_json(text)
        except ValidationError as error:
            return self._explain(text, error)

    def parse(self, value: object) -> dict[str, Any]:
        if value is None:
            value = {}
        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            return self.parse_json(text)
        try:
            return self._adapter.validator.validate_python(value)
        except ValidationError as error:
            raise InvalidArgumentsError(message_for(error, value, self._schema)) from None

    def dump_json(self, arguments: dict[str, Any], *, reveal_secrets: bool = False) -> str:
        plain = self._adapter.serializer.to_python(arguments, warnings=False, round_trip=True, fallback=_as_it_is)
        return canonical_json(plain, reveal_secrets=reveal_secrets)

    def _explain(self, text: str, error: ValidationError) -> dict[str, Any]:
        if not text.strip() or text.strip() == "null":
            if text != "{}":
                return self.parse_json("{}")
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise MalformedJsonError(f"The arguments are not valid JSON: {first['msg']}.") from None
        raise InvalidArgumentsError(message_for(error, json.loads(text), self._schema)) from None


def canonical_json(value: Any, *, reveal_secrets: bool = False) -> str:
    """Return compact ASCII JSON with sorted keys and sorted sets; total, and free of memory addresses."""
    return json.dumps(_canonical(value, reveal_secrets), sort_keys=True, separators=(",", ":"))


def _as_it_is(value: Any) -> Any:
    return value


def _canonical(value: Any, reveal: bool) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return to_jsonable_python(value, inf_nan_mode="constants")
        case Mapping():
            return {_key(_canonical(key, reveal)): _canonical(item, reveal) for key, item in value.items()}
        case set() | frozenset():
            return sorted((_canonical(item, reveal) for item in value), key=_text)
        case list() | tuple():
            return [_canonical(item, reveal) for item in value]
        case SecretStr() | SecretBytes() | Secret():
            secret = _canonical(value.get_secret_value(), reveal)
            return secret if reveal else "secret:" + hashlib.sha256(_text(secret).encode()).hexdigest()
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "surrogateescape")
        case BaseModel():
            return _canonical(value.model_dump(warnings=False, round_trip=True), reveal)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: _canonical(getattr(value, f.name), reveal) for f in dataclasses.fields(value)}
        case _:
            try:
                return to_jsonable_python(value)
            except (PydanticSerializationError, ValueError):
                return _ADDRESS.sub("", repr(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else _text(value)


def decode_strings(parser: ArgumentsParser, value: Any) -> Any | None:
    """Decode strings where the schema wants something else; None when that helps nothing."""
    return None
