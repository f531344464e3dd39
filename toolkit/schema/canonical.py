"""The one JSON text of any value: the same in each process, whatever the values are."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkit.schema.nodes import Node, Nodes, is_array, is_marked_secret, is_object
from toolkit.secrets import digest_of

__all__ = ["canonical_json", "with_digests", "without_addresses"]

_PLAIN = frozenset({str, int, float, bool, type(None)})
_NAMES = frozenset({str})
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Return a text without addresses in memory, which Python shows of objects that have no text of their own."""
    return _ADDRESS.sub("", text)


def canonical_json(value: Any, *, reveal_secrets: bool = False) -> str:
    """Return compact ASCII JSON with sorted keys and sorted sets; total, and free of memory addresses.

    Secrets stand in it as digests that only this process can make, unless they are revealed.
    """
    return _encode(value if _is_flat(value) else _canonical(value, reveal_secrets))


def _is_flat(value: Any) -> bool:
    """Whether a value is an object of nothing but plain values, as most arguments are."""
    if type(value) is not dict:
        return False
    members = cast("dict[Any, Any]", cast("object", value))
    return _PLAIN.issuperset(map(type, members.values())) and _NAMES.issuperset(map(type, members))


def with_digests(value: Any, node: Node, nodes: Nodes) -> Any:
    """Return a JSON value with digests in place of what its schema says is secret."""
    if value is None or not nodes.is_secret(node):
        return value
    if is_marked_secret(node) or not (is_object(value) or is_array(value)):
        return digest_of(_text(value))
    if is_object(value):
        return {key: with_digests(item, nodes.at_key(node, key), nodes) for key, item in value.items()}
    return [with_digests(item, nodes.at_key(node, index), nodes) for index, item in enumerate(value)]


def _canonical(value: Any, reveal: bool) -> Any:
    if type(value) in _PLAIN:
        return value
    match value:
        case enum.Enum():
            is_plain = isinstance(value.value, (str, int, float, bool))
            return _canonical(value.value, reveal) if is_plain else value.name
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            members = cast("Mapping[Any, Any]", cast("object", value))
            return {_key(_canonical(key, reveal)): _canonical(item, reveal) for key, item in members.items()}
        case set() | frozenset():
            return sorted((_canonical(item, reveal) for item in cast("set[Any]", value)), key=_text)
        case list() | tuple():
            return [_canonical(item, reveal) for item in cast("Sequence[Any]", value)]
        case SecretStr() | SecretBytes() | Secret():
            secret = _canonical(cast("Any", value).get_secret_value(), reveal)
            return secret if reveal else digest_of(_text(secret))
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "surrogateescape")
        case BaseModel():
            return _canonical(value.model_dump(warnings=False, round_trip=True), reveal)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {item.name: _canonical(getattr(value, item.name), reveal) for item in dataclasses.fields(value)}
        case _:
            try:
                return to_jsonable_python(value)
            except (PydanticSerializationError, ValueError, RecursionError):
                return without_addresses(repr(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else _text(value)
