"""The types of ten rich parameters."""

from __future__ import annotations

import dataclasses
import enum

import pydantic


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: str
    city: str
    country: str = "FR"


class Kind(enum.Enum):
    BOOK = "book"
    FILM = "film"


@dataclasses.dataclass
class Point:
    """A place."""

    x: float
    y: float


RICH_ARGUMENTS = (
    '{"name": "Ada", "address": {"street": "Rue 1", "city": "Paris"}, "kind": "book", "mode": "cheap", '
    '"tags": ["a", "b"], "limits": {"a": 1}, "when": "2026-01-02T03:04:05", "points": [{"x": 1, "y": 2}], '
    '"price": 2.5, "codes": [1, 2]}'
)
