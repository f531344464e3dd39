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


def make_nested_models() -> type[pydantic.BaseModel]:
    """Return a model with models inside, all of them new: nothing is known of them yet."""

    class Place(pydantic.BaseModel):
        street: str
        city: str
        country: str = "FR"

    class Customer(pydantic.BaseModel):
        name: str
        address: Place
        billing: Place | None = None

    class Item(pydantic.BaseModel):
        code: str
        count: int = pydantic.Field(ge=1)
        tags: list[str] = []

    class Order(pydantic.BaseModel):
        customer: Customer
        items: list[Item]
        note: str | None = None

    namespace = {"Place": Place, "Customer": Customer, "Item": Item}
    for model in (Customer, Order):
        model.model_rebuild(_types_namespace=namespace)
    return Order


NESTED_ARGUMENTS = (
    '{"order": {"customer": {"name": "Ada", "address": {"street": "Rue 1", "city": "Paris"}}, '
    '"items": [{"code": "a", "count": 2}]}, "rush": true}'
)
DOZEN = 12
