"""JSON for the wire, made once for each message and each tool, however often they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json

__all__ = ["EncodedOnce", "assemble_body", "encode_tools_once", "join_list", "to_bytes"]

ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")

_MOST_KEPT_BYTES = 32 * 2**20


class EncodedOnce(Generic[ItemT, EncodedT]):
    """Keeps what items were encoded as, by identity: messages and definitions are not changed once they are made.

    An item is kept alive with its encoding. What was not used lately goes when it becomes too much; nothing is lost
    by that but the time to encode it again.

    Args:
        encode: Encodes an item; must give the same for the same item.
        size_of: The bytes that an encoding holds.
        most_bytes: How many may be kept; half of them go at once.
    """

    def __init__(
        self,
        encode: Callable[[ItemT], EncodedT],
        *,
        size_of: Callable[[EncodedT], int],
        most_bytes: int = _MOST_KEPT_BYTES,
    ) -> None:
        self._encode = encode
        self._size_of = size_of
        self._most_bytes = most_bytes
        # Two generations: what is used moves to the young one; when that is full it becomes the old one. Each entry
        # holds its item, so that no other object can have its identity.
        self._young: dict[int, tuple[ItemT, EncodedT]] = {}
        self._old: dict[int, tuple[ItemT, EncodedT]] = {}
        self._size = 0

    def all_of(self, items: Sequence[ItemT]) -> list[EncodedT]:
        """Return the encodings in order."""
        young = self._young
        try:
            return [young[id(item)][1] for item in items]
        except KeyError:
            return [self._encode_one(item) for item in items]

    def _encode_one(self, item: ItemT) -> EncodedT:
        key = id(item)
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key) or (item, self._encode(item))
            if self._size > self._most_bytes / 2:
                self._old, self._young, self._size = self._young, {}, 0
            self._young[key] = entry
            self._size += self._size_of(entry[1])
        return entry[1]


def encode_tools_once(encode: Callable[[ToolDefinition], object]) -> EncodedOnce[ToolDefinition, bytes]:
    """Return what keeps tools as bytes of JSON.

    Args:
        encode: Returns a tool as the wire has it.
    """
    return EncodedOnce(lambda tool: to_bytes(encode(tool), f"tool '{tool.name}'"), size_of=len)


def to_bytes(value: object, subject: str) -> bytes:
    """Return JSON; lone surrogates become question marks, which no encoding can carry.

    Args:
        value: The value to encode.
        subject: The name of the value, for the error.

    Raises:
        ConfigurationError: JSON can't say it.
    """
    try:
        return write_json(value, allow_nan=False, default=_make_encodable).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{subject} can't be said in JSON: {error}") from error


def join_list(encodings: Iterable[bytes]) -> bytes:
    """Return a JSON list of what is JSON already."""
    return b"[" + b",".join(encodings) + b"]"


def assemble_body(body: Mapping[str, Any], members: Mapping[str, bytes | Sequence[bytes]]) -> bytes:
    """Return the body of a request; a field of None is left out.

    Args:
        body: Its fields.
        members: Fields that are JSON already, or lists of what is; those that the body has too are the body's.
    """
    said = to_bytes({name: value for name, value in body.items() if value is not None}, "the request")
    pieces = [said[:-1]]
    for name, value in members.items():
        if name not in body:
            pieces += [b"," if pieces != [b"{"] else b"", to_bytes(name, "a name"), b":"]
            pieces += [value] if isinstance(value, bytes) else _join_pieces(value)
    return b"".join([*pieces, b"}"])


def _join_pieces(encodings: Sequence[bytes]) -> list[bytes]:
    # The commas are laid between here, so that what may be megabytes is copied only once.
    pieces = [b","] * (2 * len(encodings) + 1)
    pieces[1::2] = encodings
    pieces[0] = b"["
    pieces[-1] = b"]" if encodings else b"[]"
    return pieces


def _make_encodable(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, tuple | set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(f"{type(value).__name__} is no type of JSON")
