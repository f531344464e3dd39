"""Tools of many kinds, for tasks that a perfect model must be able to solve by guided steps: see `oracle_tasks.yaml`.

No tool runs: the tasks say what comes back.
"""

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolkit import ToolRegistry, tool

__all__ = ["registry"]

registry: ToolRegistry = ToolRegistry()


class Guest(BaseModel):
    """A person who stays."""

    name: str
    age: int | None = None


class Stay(BaseModel):
    """From when to when."""

    arrival: date
    departure: date


class LineItem(BaseModel):
    """A position of an invoice."""

    article: str
    quantity: Annotated[int, Field(ge=1)] = 1


@dataclass
class Contact:
    email: str
    phone: str = ""


@registry.register
@tool
def reserve_room(stay: Stay, guests: list[Guest], kind: Literal["single", "double", "suite"] = "double") -> str:
    """Reserve a room in the hotel.

    Args:
        stay: When.
        guests: Who stays there.
        kind: The kind of the room.
    """
    return f"{stay} {guests} {kind}"


@registry.register
@tool
def search_flights(
    origin: str, destination: str, departure: date, cabin: Literal["economy", "business"] = "economy"
) -> str:
    """Search flights between two airports.

    Args:
        origin: The code of the airport, such as JFK.
        destination: The code of the airport, such as LHR.
        departure: The day of the departure.
        cabin: The class.
    """
    return f"{origin} {destination} {departure} {cabin}"


@registry.register
@tool
def create_ticket(
    title: str, priority: Literal["low", "medium", "high"], assignee: str | None = None, labels: list[str] | None = None
) -> str:
    """Open a ticket in the tracker.

    Args:
        title: A short title.
        priority: How urgent it is.
        assignee: Who works on it.
        labels: Labels.
    """
    return f"{title} {priority} {assignee} {labels}"


@registry.register
@tool
def close_ticket(ticket: str, resolution: Literal["fixed", "duplicate", "won't fix"]) -> str:
    """Close a ticket.

    Args:
        ticket: Its id, such as BUG-12.
        resolution: How it ended.
    """
    return f"{ticket} {resolution}"


@registry.register
@tool
def lookup_patient(last_name: str, born: date) -> str:
    """Look a patient up.

    Args:
        last_name: The family name.
        born: The day of birth.
    """
    return f"{last_name} {born}"


@registry.register
@tool
def prescribe(patient_id: int, drug: str, dose_mg: float, times_a_day: Annotated[int, Field(ge=1, le=6)]) -> str:
    """Write a prescription for a patient.

    Args:
        patient_id: The number of the patient.
        drug: The name of the drug.
        dose_mg: The dose in milligrams.
        times_a_day: How often.
    """
    return f"{patient_id} {drug} {dose_mg} {times_a_day}"


@registry.register
@tool
def pay_invoice(
    invoice: str, amount: Annotated[float, Field(gt=0)], currency: Literal["EUR", "USD", "CHF"] = "EUR"
) -> str:
    """Pay an invoice.

    Args:
        invoice: The number of the invoice, such as 2026/0815.
        amount: How much.
        currency: The currency.
    """
    return f"{invoice} {amount} {currency}"


@registry.register
@tool
def write_invoice(customer: str, items: list[LineItem], due: date | None = None) -> str:
    """Write an invoice for a customer.

    Args:
        customer: The customer.
        items: What was sold.
        due: Until when it is to be paid.
    """
    return f"{customer} {items} {due}"


@registry.register
@tool
def get_invoice(invoice: str) -> str:
    """Get the open amount of an invoice.

    Args:
        invoice: The number of the invoice, such as 2026/0815.
    """
    return invoice


@registry.register
@tool
def start_timer(seconds: Annotated[int, Field(ge=1)], label: str = "") -> str:
    """Start a timer.

    Args:
        seconds: How long.
        label: What it is for.
    """
    return f"{seconds} {label}"


@registry.register
@tool
def set_alarm(at: time, weekdays: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] | None = None) -> str:
    """Set an alarm clock.

    Args:
        at: The time.
        weekdays: On which days it repeats.
    """
    return f"{at} {weekdays}"


@registry.register
@tool
def schedule_pickup(when: datetime, contact: Contact) -> str:
    """Schedule a pickup by the courier.

    Args:
        when: Day and time.
        contact: How to reach the sender.
    """
    return f"{when} {contact}"


@registry.register
@tool
def borrow_book(isbn: str, card: int) -> str:
    """Lend a book to a reader of the library.

    Args:
        isbn: The ISBN, such as 978-3-16-148410-0.
        card: The number of the reader's card.
    """
    return f"{isbn} {card}"


@registry.register
@tool
def find_book(title: str | None = None, author: str | None = None, year: int | None = None) -> str:
    """Find a book in the catalogue of the library.

    Args:
        title: The title.
        author: The author.
        year: The year in which it came out.
    """
    return f"{title} {author} {year}"


@registry.register
@tool
def move_stock(sku: str, quantity: Annotated[int, Field(ge=1)], source: str, target: str) -> str:
    """Move goods between two warehouses.

    Args:
        sku: The article, such as KX-200-B.
        quantity: How many.
        source: The warehouse that gives.
        target: The warehouse that takes.
    """
    return f"{sku} {quantity} {source} {target}"


@registry.register
@tool
def set_thermostat(celsius: Annotated[float, Field(ge=-30, le=40)], room: str) -> str:
    """Regulate a thermostat.

    Args:
        celsius: The degrees.
        room: Which room.
    """
    return f"{celsius} {room}"


@registry.register
@tool
def grade_exam(student: str, points: Annotated[int, Field(ge=0, le=100)], passed: bool) -> str:
    """Enter the result of an exam.

    Args:
        student: The student.
        points: The points.
        passed: Whether it was passed.
    """
    return f"{student} {points} {passed}"


@registry.register
@tool
def run_query(sql: str) -> str:
    """Run an SQL query on the shop's database.

    Args:
        sql: The query.
    """
    return sql


@registry.register
@tool
def post_message(channel: str, text: str, is_pinned: bool = False) -> str:
    """Post a message to a channel of the chat.

    Args:
        channel: The channel, such as #general.
        text: What to say.
        is_pinned: True if it should be pinned.
    """
    return f"{channel} {text} {is_pinned}"


@registry.register
@tool
def loan_rate(
    principal: float, years: Annotated[int, Field(ge=1)], interest: Annotated[float, Field(ge=0, le=1)]
) -> str:
    """Compute the monthly rate of a loan.

    Args:
        principal: The sum that is lent.
        years: How long.
        interest: The interest a year, as a share of one.
    """
    return f"{principal} {years} {interest}"


@registry.register
@tool
def locate_vehicle(plate: str) -> str:
    """Locate a vehicle of the fleet.

    Args:
        plate: The licence plate.
    """
    return plate


@registry.register
@tool
def local_time(place: str) -> str:
    """Tell the local time of a place.

    Args:
        place: The place.
    """
    return place


@registry.register
@tool
def list_employees(department: Literal["sales", "engineering", "human resources"], since: int | None = None) -> str:
    """List the employees of a department.

    Args:
        department: The department.
        since: Only those who came in this year or later.
    """
    return f"{department} {since}"


@registry.register
@tool
def request_leave(employee: str, first_day: date, last_day: date, kind: Literal["vacation", "sick", "parental"]) -> str:
    """Request leave for an employee.

    Args:
        employee: Who is away.
        first_day: The first day.
        last_day: The last day.
        kind: The kind of the leave.
    """
    return f"{employee} {first_day} {last_day} {kind}"
