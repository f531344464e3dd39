"""Sixteen tools of an office, for the tasks of `office.yaml`. Each result holds what no model can know without it."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from toolkit import ToolError, ToolRegistry, tool

__all__ = ["registry"]

WEATHER = {
    "berlin": (14, "cloudy"),
    "cairo": (33, "sunny"),
    "lima": (19, "foggy"),
    "lyon": (17, "windy"),
    "madrid": (29, "sunny"),
    "oslo": (-3, "snowy"),
    "paris": (12, "rainy"),
    "rome": (24, "sunny"),
    "tokyo": (21, "rainy"),
}
RATES = {"USD": 1.0, "EUR": 0.92, "GBP": 0.8, "JPY": 150.0, "CHF": 0.88}
CONTACTS = {
    "ana lopez": "ana@north.example",
    "ben okafor": "ben7@south.example",
    "chloe martin": "cm@west.example",
    "dev patel": "dpatel@east.example",
    "max weather": "mw@hill.example",
}
EVENTS = {"2026-06-09": "Audit at 08:15", "2026-07-04": "Picnic at 12:30", "2026-11-20": "Launch at 17:45"}
ORDERS = {
    "A-1042": ("shipped", 206, "TR-2041"),
    "A-1077": ("delivered", 417, "TR-2077"),
    "A-1110": ("packed", 582, "TR-2110"),
    "A-1205": ("returned", 633, "TR-2205"),
    "A-1300": ("cancelled", 748, "TR-2300"),
}
CUSTOMERS = {
    206: ("Ida Berg", 512),
    417: ("Omar Said", 1290),
    582: ("Lena Wolf", 75),
    633: ("Raj Mehta", 3010),
    748: ("Kim Soto", 264),
}
PARCELS = {"TR-2041": "Lyon", "TR-2077": "Oslo", "TR-2110": "Berlin", "TR-2205": "Madrid", "TR-2300": "Lima"}
STOCKS = {"ACME": 150, "BOLT": 80, "MAIL": 37, "ZINC": 212}
PHRASES = {
    ("good morning", "German"): "Guten Morgen",
    ("thank you", "Spanish"): "Gracias",
    ("see you tomorrow", "French"): "A demain",
    ("good night", "French"): "Bonne nuit",
    ("welcome", "German"): "Willkommen",
    ("the bill please", "Spanish"): "La cuenta por favor",
}
Currency = Literal["USD", "EUR", "GBP", "JPY", "CHF"]
Room = Literal["kitchen", "bedroom", "office", "garden"]
registry: ToolRegistry = ToolRegistry()


@dataclass
class Address:
    street: str
    city: str
    zip_code: str


@registry.register
@tool
def get_weather(city: str, day: Literal["today", "tomorrow"] = "today") -> str:
    """Get the weather in a city.

    Args:
        city: The name of the city.
        day: The day.
    """
    degrees, sky = WEATHER.get(city.strip().casefold(), (15, "dull"))
    return f"{degrees + 2 * (day == 'tomorrow')} degrees and {sky} in {city}"


@registry.register
@tool
def convert_currency(amount: float, source: Currency, target: Currency) -> str:
    """Convert an amount of money into another currency.

    Args:
        amount: How much.
        source: The currency that it is in.
        target: The currency that is wanted.
    """
    return f"{amount:g} {source} is {amount / RATES[source] * RATES[target]:g} {target}"


@registry.register
@tool
def find_contact(name: str) -> str:
    """Find the email address of a person.

    Args:
        name: First and last name.
    """
    email = CONTACTS.get(name.strip().casefold())
    if email is None:
        raise ToolError(f"There is no contact named {name}.")
    return f"The email address of {name} is {email}"


@registry.register
@tool
def send_email(to: list[str], subject: str, body: str = "") -> str:
    """Send an email.

    Args:
        to: The email addresses.
        subject: The subject.
        body: The text.
    """
    return f"Sent as message M{len(to)}{len(subject):02}"


@registry.register
@tool
def create_event(
    title: str, day: date, start: str, minutes: Annotated[int, Field(ge=5)] = 60, guests: list[str] | None = None
) -> str:
    """Put an event into the calendar.

    Args:
        title: What it is called.
        day: The day.
        start: When it starts, such as 14:00.
        minutes: How long it takes.
        guests: Who comes.
    """
    return f"Created as event E{day.month:02}{day.day:02}{minutes + len(guests or ()):03}"


@registry.register
@tool
def list_events(day: date) -> str:
    """List the events of a day in the calendar.

    Args:
        day: The day.
    """
    return EVENTS.get(day.isoformat(), "Nothing on that day")


@registry.register
@tool
def set_reminder(text: str, minutes: Annotated[int, Field(ge=1)]) -> str:
    """Set a reminder.

    Args:
        text: What to remind of.
        minutes: In how many minutes.
    """
    return f"Reminder number {7000 + minutes} is set"


@registry.register
@tool
def get_order(order: str) -> str:
    """Get the status, the customer and the parcel of an order.

    Args:
        order: The order, such as A-1000.
    """
    found = ORDERS.get(order.strip().upper())
    if found is None:
        raise ToolError(f"There is no order {order}.")
    return f"Order {order} is {found[0]}, of customer {found[1]}, in parcel {found[2]}"


@registry.register
@tool
def get_customer(customer: int) -> str:
    """Get the name and the balance of a customer.

    Args:
        customer: The number of the customer.
    """
    if customer not in CUSTOMERS:
        raise ToolError(f"There is no customer {customer}.")
    name, balance = CUSTOMERS[customer]
    return f"Customer {customer} is {name}, with a balance of {balance} USD"


@registry.register
@tool
def refund_order(order: str, amount: Annotated[float, Field(gt=0)], reason: Literal["damaged", "late", "wrong"]) -> str:
    """Refund an order.

    Args:
        order: The order, such as A-1000.
        amount: How much, in USD.
        reason: The reason.
    """
    return f"Refunded as R{order.strip()[-4:]}{round(amount):03}"


@registry.register
@tool
def track_parcel(code: str) -> str:
    """Track a parcel.

    Args:
        code: The code of the parcel, such as TR-1000.
    """
    place = PARCELS.get(code.strip().upper())
    if place is None:
        raise ToolError(f"There is no parcel {code}.")
    return f"Parcel {code} is in {place}"


@registry.register
@tool
def ship_parcel(address: Address, weight: float, express: bool = False) -> str:
    """Ship a parcel to an address.

    Args:
        address: Where it goes.
        weight: In kilograms.
        express: True if it is in a hurry.
    """
    return f"Shipped as parcel TR-{sum(map(ord, address.zip_code)) * 10 + round(weight * 4) + 5 * express}"


@registry.register
@tool
def set_temperature(room: Room, degrees: Annotated[float, Field(ge=5, le=30)]) -> str:
    """Set the temperature in a room.

    Args:
        room: The room.
        degrees: In Celsius.
    """
    return f"The {room} will be at {degrees:g} degrees in {len(room) * 3 + round(degrees)} minutes"


@registry.register
@tool
def play_music(query: str, room: Room = "kitchen") -> str:
    """Play music in a room.

    Args:
        query: The song or the artist.
        room: The room.
    """
    return f"Playing {query} in the {room}, at volume {len(query) + len(room)}"


@registry.register
@tool
def translate_text(text: str, language: Literal["French", "German", "Spanish"]) -> str:
    """Translate a text into another language.

    Args:
        text: The text.
        language: The language.
    """
    return PHRASES.get((text.strip(" .!?'\"").casefold(), language), f"{language[:2].upper()}{len(text)}")


@registry.register
@tool
def get_stock_price(symbol: str) -> str:
    """Get the price of a stock.

    Args:
        symbol: The symbol of the stock, such as ABC.
    """
    price = STOCKS.get(symbol.strip().upper())
    if price is None:
        raise ToolError(f"There is no stock {symbol}.")
    return f"The price of {symbol} is {price} USD"
