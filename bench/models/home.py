"""Ten tools of a home, for the tasks of `home.yaml`: no way of asking was ever worked on with these."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from toolkit import ToolError, ToolRegistry, tool

__all__ = ["registry"]

FLIGHTS = {("vienna", "porto"): ("OS318", "07:40"), ("dublin", "athens"): ("EI902", "13:05")}
RECIPES = {"lentil soup": (88, 35), "pancakes": (14, 20), "ratatouille": (61, 70)}
BALANCES = {"checking": 842, "savings": 6150}
DOCTORS = {"eye": ("Novak", 31), "skin": ("Abara", 47), "teeth": ("Lind", 59)}
DELAYS = {"RJ162": 25, "IC510": 4, "S7": 11}
Account = Literal["checking", "savings"]
registry: ToolRegistry = ToolRegistry()


@registry.register
@tool
def find_flight(origin: str, destination: str, day: date) -> str:
    """Find a flight between two cities.

    Args:
        origin: Where it starts.
        destination: Where it goes.
        day: The day.
    """
    found = FLIGHTS.get((origin.strip().casefold(), destination.strip().casefold()))
    return "There is no flight" if found is None else f"Flight {found[0]} at {found[1]} on {day}"


@registry.register
@tool
def book_flight(flight: str, passengers: list[str], bags: Annotated[int, Field(ge=0)] = 0) -> str:
    """Book a flight.

    Args:
        flight: The number of the flight.
        passengers: Who flies.
        bags: How many bags.
    """
    return f"Booked with code {flight.strip()[:2].upper()}X{len(passengers)}{bags}"


@registry.register
@tool
def find_recipe(dish: str, people: Annotated[int, Field(ge=1)] = 2) -> str:
    """Find a recipe for a dish.

    Args:
        dish: The dish.
        people: For how many.
    """
    found = RECIPES.get(dish.strip().casefold())
    if found is None:
        raise ToolError(f"There is no recipe for {dish}.")
    return f"Recipe {found[0]}, it takes {found[1]} minutes, for {people} people"


@registry.register
@tool
def add_to_shopping_list(items: list[str]) -> str:
    """Add items to the shopping list.

    Args:
        items: The items.
    """
    return f"The shopping list has {40 + len(items)} items"


@registry.register
@tool
def get_account_balance(account: Account) -> str:
    """Get the balance of a bank account.

    Args:
        account: The account.
    """
    return f"The balance of the {account} account is {BALANCES[account]} euros"


@registry.register
@tool
def transfer_money(source: Account, target: Account, amount: Annotated[float, Field(gt=0)]) -> str:
    """Transfer money between bank accounts.

    Args:
        source: The account that pays.
        target: The account that receives.
        amount: In euros.
    """
    return f"Transferred as number {9000 + round(amount)}"


@registry.register
@tool
def water_garden(zone: Literal["lawn", "roses", "greenhouse"], litres: Annotated[int, Field(ge=1)]) -> str:
    """Water a zone of the garden.

    Args:
        zone: The zone.
        litres: How much water.
    """
    return f"The {zone} will be ready in {litres * 3} minutes"


@registry.register
@tool
def find_doctor(field: Literal["eye", "skin", "teeth"]) -> str:
    """Find a doctor.

    Args:
        field: What the doctor treats.
    """
    name, number = DOCTORS[field]
    return f"Doctor {name}, number {number}"


@registry.register
@tool
def book_appointment(doctor: int, day: date, hour: Annotated[int, Field(ge=7, le=18)]) -> str:
    """Book an appointment with a doctor.

    Args:
        doctor: The number of the doctor.
        day: The day.
        hour: The hour.
    """
    return f"Appointment {doctor}{day.day:02}{hour:02} is booked"


@registry.register
@tool
def get_train_delay(train: str) -> str:
    """Get the delay of a train.

    Args:
        train: The number of the train.
    """
    minutes = DELAYS.get(train.replace(" ", "").upper())
    if minutes is None:
        raise ToolError(f"There is no train {train}.")
    return f"Train {train} is {minutes} minutes late"
