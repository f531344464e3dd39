"""JSON that a server sent, with nothing taken for granted: what is not of the kind that is asked for is empty."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

__all__ = [
    "JsonObject",
    "as_amount",
    "as_bytes",
    "as_count",
    "as_items",
    "as_key",
    "as_mapping",
    "as_text",
    "usage_details",
]

JsonObject: TypeAlias = dict[str, Any]
"""An object as JSON has it, while it is made."""

_MOST = 2**53  # more are not counted, and not said in JSON by others


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
    """Return what tells a part from others, else None."""
    return value if isinstance(value, int | str) else None


def as_bytes(value: object) -> bytes:
    """Return what a text holds in base64, else nothing."""
    try:
        return b64decode(as_text(value))
    except ValueError:
        return b""


def usage_details(**counts: int | None) -> Mapping[str, int] | None:
    """Return the counts that are not 0, as `Usage.details` has them; None where none is left."""
    return {name: count for name, count in counts.items() if count} or None
