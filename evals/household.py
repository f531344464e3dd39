"""The eight tools of the tasks. Each result holds something that no model can know without it."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from toolkit import ToolRegistry, tool

__all__ = ["registry"]

CELSIUS = {
    "berlin": 14,
    "cairo": 33,
    "lima": 19,
    "london": 11,
    "madrid": 29,
    "oslo": -3,
    "paris": 18,
    "rome": 24,
    "tokyo": 21,
}
WATTS = {"kitchen": 3, "bedroom": 2, "garden": 7}
"""Of each light, for ten percent."""
CUSTOMERS = {"alan kay": 206, "ada lovelace": 417, "grace hopper": 582, "alan turing": 633, "edsger dijkstra": 748}
BALANCES = {206: 500, 417: 1290, 582: 75, 633: 3010, 748: 264}


@dataclass
class Address:
    street: str
    city: str
    zip_code: str


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather in a city.

    Args:
        city: The name of the city.
        unit: The unit of the temperature.
    """
    celsius = CELSIUS.get(city.strip().casefold(), 15)
    degrees = celsius if unit == "celsius" else round(celsius * 1.8 + 32)
    return f"{degrees} degrees {unit} in {city}"


@tool
def add_numbers(numbers: Annotated[list[int], Field(min_length=2)]) -> str:
    """Add up numbers.

    Args:
        numbers: All the numbers.
    """
    return f"The sum is {sum(numbers)}"


@tool
def days_between(first: date, last: date) -> str:
    """Count the days between two dates.

    Args:
        first: The first day.
        last: The last day.
    """
    return f"{(last - first).days} days"


@tool
def set_light(room: Literal["kitchen", "bedroom", "garden"], brightness: Annotated[int, Field(ge=0, le=100)]) -> str:
    """Set the brightness of the light in a room.

    Args:
        room: The room.
        brightness: In percent.
    """
    return f"The {room} light now takes {WATTS[room] * brightness // 10} watts"


@tool
def create_event(title: str, day: date, guests: list[str] | None = None, place: str | None = None) -> str:
    """Put an event into the calendar.

    Args:
        title: What it is called.
        day: When it is.
        guests: Who comes.
        place: Where it is.
    """
    number = 5000 + 31 * day.month + day.day + 100 * len(guests or ()) + 7 * len(place or "")
    return f"Created as number {number}"


@tool
def ship_package(address: Address, weight: float, express: bool = False) -> str:
    """Ship a package to an address.

    Args:
        address: Where it goes.
        weight: In kilograms.
        express: Whether it is in a hurry.
    """
    code = sum(map(ord, address.zip_code)) * 10 + round(weight * 4) + 5 * express
    return f"Shipped with tracking code TR{code}"


@tool
def find_customer(name: str) -> str:
    """Find the number of a customer by name.

    Args:
        name: First and last name.
    """
    number = CUSTOMERS.get(name.strip().casefold())
    return "There is no customer of that name" if number is None else f"Customer number {number}"


@tool
def get_balance(customer: int) -> str:
    """Get the balance of a customer's account.

    Args:
        customer: The number of the customer.
    """
    balance = BALANCES.get(customer)
    return "There is no customer of that number" if balance is None else f"The balance is {balance} dollars"


def registry() -> ToolRegistry:
    """Return all eight."""
    return ToolRegistry(
        [get_weather, add_numbers, days_between, set_light, create_event, ship_package, find_customer, get_balance]
    )
