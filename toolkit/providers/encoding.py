"""JSON on the wire, both ways.

Messages and tools are encoded once, however often they are sent. Neighbours of one role become one message for formats
whose roles alternate. JSON from a server is read with nothing taken for granted: a value of another kind is empty.
"""

from __future__ import annotations

import math
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

from toolkit.chat import ToolDefinition
from toolkit.errors import ConfigurationError
from toolkit.json_text import write_json

JsonObject: TypeAlias = dict[str, Any]
"""An object as JSON has it, while it is made."""

_MOST = 2**53  # larger numbers are not counted, and not exact in JSON
ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")
_MOST_KEPT_BYTES = 32 * 2**20
_ENTRY_BYTES = 1024  # the least that an item and its entry take as objects
_OBJECT_FACTOR = 3  # the size of an item and its encoding together, by that of the encoding
_GENERATION_SECONDS = 60.0
USER = b"user"
BEGINNING_LEFT_OUT = "[The beginning of the conversation is left out.]"
"""The user's message where a transcript begins with the model."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_items(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the objects in a list, else none."""
    if not isinstance(value, list):
        return ()
    return [cast("Mapping[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, Mapping)]


def as_text(value: object) -> str:
    """Return a text, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """Return how many of something there are, else None."""
    amount = as_amount(value)
    return None if amount is None or amount > _MOST else int(amount)


def as_amount(value: object) -> float | None:
    """Return how much of something there is, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) and value >= 0 else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def as_key(value: object) -> int | str | None:
    """Return the key that identifies a part, else None."""
    return value if isinstance(value, int | str) else None


def as_bytes(value: object) -> bytes:
    """Return the bytes of a base64 text, else nothing."""
    try:
        return b64decode(as_text(value))
    except ValueError:
        return b""


def usage_details(**counts: int | None) -> Mapping[str, int] | None:
    """Return the counts that are not 0, as `Usage.details` has them; None where none is left."""
    return {name: count for name, count in counts.items() if count} or None


class EncodedOnce(Generic[ItemT, EncodedT]):
    """Keeps what items were encoded as, by identity: messages and definitions are not changed once they are made.

    An item is kept alive with its encoding, and both are counted. Items not used recently are dropped when the cache is
    full, and those that no request of the last two minutes used by the next request; nothing is lost by that but the
    time to encode them again.

    Args:
        encode: Encodes an item; must give the same for the same item.
        size_of: The bytes that an encoding holds.
        most_bytes: The size of the cache; half of it is dropped at once.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self,
        encode: Callable[[ItemT], EncodedT],
        *,
        size_of: Callable[[EncodedT], int],
        most_bytes: int = _MOST_KEPT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encode = encode
        self._size_of = size_of
        self._most_bytes = most_bytes
        # Two generations: used items move to the young one; when that is full it becomes the old one. Each entry
        # holds its item, so that no other object can have its identity.
        self._young: dict[int, tuple[ItemT, EncodedT]] = {}
        self._old: dict[int, tuple[ItemT, EncodedT]] = {}
        self._size = 0
        self._clock = clock
        self._young_since = clock()

    def all_of(self, items: Sequence[ItemT]) -> list[EncodedT]:
        """Return the encodings in order."""
        if self._clock() - self._young_since > _GENERATION_SECONDS:
            self._drop_oldest()
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
                self._drop_oldest()
            self._young[key] = entry
            self._size += _ENTRY_BYTES + _OBJECT_FACTOR * self._size_of(entry[1])
        return entry[1]

    def _drop_oldest(self) -> None:
        now = self._clock()
        is_old_in_use = now - self._young_since <= 2 * _GENERATION_SECONDS
        self._old, self._young, self._size = (self._young if is_old_in_use else {}), {}, 0
        self._young_since = now


def encode_tools_once(encode: Callable[[ToolDefinition], object]) -> EncodedOnce[ToolDefinition, bytes]:
    """Return a cache of tools encoded as bytes of JSON.

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
        raise ConfigurationError(f"{subject} can't be written as JSON: {error}") from error


def join_list(encodings: Iterable[bytes]) -> bytes:
    """Return a JSON list of items that are JSON already."""
    return b"[" + b",".join(encodings) + b"]"


def assemble_body(body: Mapping[str, Any], members: Mapping[str, bytes | Sequence[bytes]]) -> bytes:
    """Return the body of a request; a field of None is left out.

    Args:
        body: Its fields.
        members: Fields that are JSON already, or lists of such; the body's own fields take precedence.
    """
    encoded = to_bytes({name: value for name, value in body.items() if value is not None}, "the request")
    pieces = [encoded[:-1]]
    for name, value in members.items():
        if name not in body:
            pieces += [b"," if pieces != [b"{"] else b"", to_bytes(name, "a name"), b":"]
            pieces += [value] if isinstance(value, bytes) else _join_pieces(value)
    return b"".join([*pieces, b"}"])


def _join_pieces(encodings: Sequence[bytes]) -> list[bytes]:
    # The commas are laid between here, so that megabytes are copied only once.
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


def join_by_role(spoken: Iterable[tuple[bytes, bytes]], *, field: bytes, opening: bytes) -> bytes:
    """Return the messages as a JSON list; an empty one if there are none.

    Args:
        spoken: The role of each message, and its blocks: JSON already, with commas between. No blocks are no message.
        field: Where a message of the list has its blocks.
        opening: The block that the user says where the model would begin.
    """
    pieces: list[bytes] = []
    speaker = b""
    for role, blocks in spoken:
        if not blocks:
            continue
        if role == speaker:
            pieces.append(b",")
        else:
            if not pieces and role != USER:
                pieces += [_begin_message(USER, field), opening]
            pieces += [b"]}," if pieces else b"", _begin_message(role, field)]
            speaker = role
        pieces.append(blocks)
    return b"[" + b"".join(pieces) + (b"]}]" if pieces else b"]")


def _begin_message(role: bytes, field: bytes) -> bytes:
    return b'{"role":"%s","%s":[' % (role, field)
