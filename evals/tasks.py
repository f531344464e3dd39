"""The forty tasks: what the user says, which calls that takes, and what of the results the answer must say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolkit.evaluation.tasks import EvaluationTask, TaskCall

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task.

    Args:
        kind: What is difficult about it.
        prompt: What the user says.
        turns: The calls, by turn; those of one turn need nothing of each other.
        facts: What the answer must say.
    """

    kind: str
    prompt: str
    turns: tuple[tuple[TaskCall, ...], ...]
    facts: tuple[str, ...]

    @property
    def calls(self) -> tuple[TaskCall, ...]:
        """All calls, in their order."""
        return tuple(call for turn in self.turns for call in turn)

    def as_judged(self) -> EvaluationTask:
        """Return the task as the judge of `toolkit.evaluation` takes it."""
        says = tuple((fact,) for fact in self.facts)
        return EvaluationTask(id=self.prompt, kind=self.kind, prompt=self.prompt, calls=self.calls, says=says)


def _call(tool: str, **arguments: Any) -> TaskCall:
    return TaskCall(tool=tool, arguments=arguments)


def _one(kind: str, prompt: str, tool: str, fact: str, **arguments: Any) -> Task:
    return Task(kind=kind, prompt=prompt, turns=((_call(tool, **arguments),),), facts=(fact,))


def _plain() -> Iterator[Task]:
    for city, degrees in [("Paris", "18"), ("Tokyo", "21"), ("Oslo", "-3")]:
        yield _one("plain", f"What is the weather in {city}?", "get_weather", degrees, city=city)
    for name, number in [("Ada Lovelace", "417"), ("Grace Hopper", "582")]:
        yield _one("plain", f"Find the customer number of {name}.", "find_customer", number, name=name)
    for customer, balance in [(633, "3010"), (748, "264")]:
        yield _one("plain", f"Get the balance of customer {customer}.", "get_balance", balance, customer=customer)


def _enums() -> Iterator[Task]:
    for city, degrees in [("Rome", "75"), ("Lima", "66")]:
        prompt = f"What is the weather in {city}, in fahrenheit?"
        yield _one("enum", prompt, "get_weather", degrees, city=city, unit="fahrenheit")
    for room, brightness, watts in [("kitchen", 40, "12"), ("bedroom", 90, "18"), ("garden", 30, "21")]:
        prompt = f"Set the {room} light to {brightness} percent. How many watts does it take?"
        yield _one("enum", prompt, "set_light", watts, room=room, brightness=brightness)


def _lists() -> Iterator[Task]:
    for numbers in [[17, 25], [8, 9, 30], [120, 45, 6], [71, 12, 13, 14], [1001, 99]]:
        listed = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
        yield _one("list", f"Add up the numbers {listed}.", "add_numbers", str(sum(numbers)), numbers=numbers)


def _dates() -> Iterator[Task]:
    for first, last, days in [
        ("2026-01-05", "2026-01-31", "26"),
        ("2026-03-01", "2026-04-15", "45"),
        ("2025-12-24", "2026-01-02", "9"),
    ]:
        prompt = f"How many days are there between {first} and {last}?"
        yield _one("dates", prompt, "days_between", days, first=first, last=last)
    prompt = "How many days are there between May 3, 2026 and May 20, 2026?"
    yield _one("dates", prompt, "days_between", "17", first="2026-05-03", last="2026-05-20")
    prompt = "Create an event called Dentist on 2026-06-09. Tell me its number."
    yield _one("dates", prompt, "create_event", "5195", title="Dentist", day="2026-06-09")


def _optional() -> Iterator[Task]:
    yield _one(
        "optional",
        "Create an event called Lunch on 2026-02-10 with the guests Ben and Mia. Tell me its number.",
        "create_event",
        "5272",
        title="Lunch",
        day="2026-02-10",
        guests=["Ben", "Mia"],
    )
    yield _one(
        "optional",
        "Create an event called Standup on 2026-09-01, in the place Lobby. Tell me its number.",
        "create_event",
        "5315",
        title="Standup",
        day="2026-09-01",
        place="Lobby",
    )
    yield _one(
        "optional",
        "Create an event called Review on 2026-11-20, in the place Paris, with the guest Eva. Tell me its number.",
        "create_event",
        "5496",
        title="Review",
        day="2026-11-20",
        place="Paris",
        guests=["Eva"],
    )
    yield _one(
        "optional",
        "Create an event called Party on 2026-07-04 with the guests Ann, Bob and Cy. Tell me its number.",
        "create_event",
        "5521",
        title="Party",
        day="2026-07-04",
        guests=["Ann", "Bob", "Cy"],
    )


def _nested() -> Iterator[Task]:
    for street, city, zip_code, weight, express, code in [
        ("5 Main Street", "Boston", "02108", 2, False, "TR2518"),
        ("12 Oak Avenue", "Austin", "73301", 1.5, False, "TR2546"),
        ("7 Lake Road", "Denver", "80202", 4, True, "TR2541"),
        ("99 Hill Lane", "Miami", "33101", 3, False, "TR2492"),
        ("1 Elm Court", "Seattle", "98101", 10, True, "TR2635"),
    ]:
        how = "by express " if express else ""
        prompt = (
            f"Ship a package of {weight} kilograms {how}to the street {street} in the city {city}, "
            f"zip code {zip_code}. Tell me the tracking code."
        )
        address = {"street": street, "city": city, "zip_code": zip_code}
        yield _one("nested", prompt, "ship_package", code, address=address, weight=weight, express=express)


def _parallel() -> Iterator[Task]:
    for (one, first), (other, second) in [
        (("Paris", "18"), ("Rome", "24")),
        (("Cairo", "33"), ("Oslo", "-3")),
        (("Berlin", "14"), ("Lima", "19")),
    ]:
        yield Task(
            kind="parallel",
            prompt=f"What is the weather in {one} and in {other}?",
            turns=((_call("get_weather", city=one), _call("get_weather", city=other)),),
            facts=(first, second),
        )
    yield Task(
        kind="parallel",
        prompt="Set the kitchen light to 50 percent and the garden light to 20 percent. How many watts do they take?",
        turns=(
            (
                _call("set_light", room="kitchen", brightness=50),
                _call("set_light", room="garden", brightness=20),
            ),
        ),
        facts=("15", "14"),
    )


def _two_steps() -> Iterator[Task]:
    for name, customer, balance in [
        ("Ada Lovelace", 417, "1290"),
        ("Grace Hopper", 582, "75"),
        ("Alan Turing", 633, "3010"),
        ("Edsger Dijkstra", 748, "264"),
    ]:
        yield Task(
            kind="two steps",
            prompt=f"First find the customer number of {name}, then get the balance of that customer.",
            turns=(
                (_call("find_customer", name=name),),
                (_call("get_balance", customer=customer),),
            ),
            facts=(balance,),
        )
    yield Task(
        kind="two steps",
        prompt="Count the days between 2026-02-01 and 2026-02-15, then add 100 to that number.",
        turns=(
            (_call("days_between", first="2026-02-01", last="2026-02-15"),),
            (_call("add_numbers", numbers=[14, 100]),),
        ),
        facts=("114",),
    )


TASKS: tuple[Task, ...] = (
    *_plain(), *_enums(), *_lists(), *_dates(), *_optional(), *_nested(), *_parallel(), *_two_steps(),
)  # fmt: skip
