"""Tools for `free_tasks.yaml`: their values are worked out, or said in words and other languages; some write."""

from datetime import date, time
from typing import Annotated, Literal

from pydantic import Field

from toolkit import ToolRegistry, tool

__all__ = ["registry"]

Order = Annotated[str, Field(pattern=r"^ORD-[0-9]{4}$")]


@tool
def pay(recipient: str, amount: float, currency: Literal["EUR", "USD", "GBP"] = "EUR") -> str:
    """Send money to a person or a company."""
    raise NotImplementedError(recipient, amount, currency)


@tool
def set_brightness(lamp: str, percent: Annotated[int, Field(ge=0, le=100)]) -> str:
    """Set the brightness of a lamp."""
    raise NotImplementedError(lamp, percent)


@tool
def set_timer(seconds: int, label: str = "") -> str:
    """Start a timer."""
    raise NotImplementedError(seconds, label)


@tool
def list_events(day: date) -> str:
    """Show the calendar of a day."""
    raise NotImplementedError(day)


@tool
def add_event(title: str, day: date, at: time | None = None) -> str:
    """Put an appointment into the calendar."""
    raise NotImplementedError(title, day, at)


@tool
def find_person(name: str) -> str:
    """Look up the number of an employee."""
    raise NotImplementedError(name)


@tool
def get_salary(employee: int) -> str:
    """Get the salary of an employee by number."""
    raise NotImplementedError(employee)


@tool
def cancel_order(order: Order, reason: str = "") -> str:
    """Cancel an order.

    Args:
        order: The order.
        reason: Why.
    """
    raise NotImplementedError(order, reason)


@tool
def find_orders(customer: str) -> str:
    """List the orders of a customer."""
    raise NotImplementedError(customer)


@tool
def translate(text: str, language: str) -> str:
    """Translate a text."""
    raise NotImplementedError(text, language)


@tool
def compute(expression: str) -> str:
    """Work out an arithmetic expression."""
    raise NotImplementedError(expression)


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the weather in a city."""
    raise NotImplementedError(city, unit)


@tool
def send_message(to: str, text: str) -> str:
    """Send a text message."""
    raise NotImplementedError(to, text)


@tool
def book_table(restaurant: str, people: int, day: date, at: time) -> str:
    """Book a table."""
    raise NotImplementedError(restaurant, people, day, at)


registry: ToolRegistry = ToolRegistry(
    [
        pay, set_brightness, set_timer, list_events, add_event, find_person, get_salary, cancel_order, find_orders,
        translate, compute, get_weather, send_message, book_table,
    ]
)  # fmt: skip
