"""Tools whose parameters are hard to hold to what was said, for the tasks of `oracle_other_tasks.yaml`. None runs."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AnyUrl, Field

from toolkit import ToolRegistry, tool

__all__ = ["registry"]

registry: ToolRegistry = ToolRegistry()


@registry.register
@tool
def get_manager(person: str) -> str:
    """Find out who somebody reports to.

    Args:
        person: The person.
    """
    return person


@registry.register
@tool
def order_shirt(colour: Literal["red", "blue", "black"], size: Literal["S", "M", "L"] = "M", count: int = 1) -> str:
    """Order a shirt.

    Args:
        colour: The colour.
        size: The size.
        count: How many.
    """
    return f"{colour} {size} {count}"


@registry.register
@tool
def list_tasks(status: Literal["todo", "in_progress", "done"], owner: str | None = None) -> str:
    """List the tasks of the board.

    Args:
        status: How far they are.
        owner: Whose tasks.
    """
    return f"{status} {owner}"


@registry.register
@tool
def move_task(task: int, status: Literal["todo", "in_progress", "done"]) -> str:
    """Move a task on the board.

    Args:
        task: The number of the task.
        status: Where it goes.
    """
    return f"{task} {status}"


@registry.register
@tool
def remind_me(what: str, minutes: Annotated[int, Field(ge=1)]) -> str:
    """Remind the user of something.

    Args:
        what: What to remind of.
        minutes: In how many minutes.
    """
    return f"{what} {minutes}"


@registry.register
@tool
def search_homes(
    city: str, least_price: int | None = None, most_price: int | None = None, rooms: int | None = None
) -> str:
    """Search homes for sale.

    Args:
        city: The city.
        least_price: The lowest price.
        most_price: The highest price.
        rooms: How many rooms at least.
    """
    return f"{city} {least_price} {most_price} {rooms}"


@registry.register
@tool
def call_number(phone: str) -> str:
    """Call a phone number.

    Args:
        phone: The number.
    """
    return phone


@registry.register
@tool
def check_website(url: AnyUrl, timeout: Annotated[float, Field(gt=0)] = 5) -> str:
    """Check whether a website answers.

    Args:
        url: Its address.
        timeout: After how many seconds to give up.
    """
    return f"{url} {timeout}"


@registry.register
@tool
def read_log(path: str, lines: Annotated[int, Field(ge=1)] = 100) -> str:
    """Read the end of a log file.

    Args:
        path: The path of the file.
        lines: How many lines.
    """
    return f"{path} {lines}"


@registry.register
@tool
def restart_server(host: str, force: bool = False) -> str:
    """Restart a server.

    Args:
        host: Its name or its IP address.
        force: True to kill what hangs.
    """
    return f"{host} {force}"


@registry.register
@tool
def paint_wall(wall: str, hex_colour: str) -> str:
    """Show a wall in another colour.

    Args:
        wall: Which wall.
        hex_colour: The colour, such as #ff8800.
    """
    return f"{wall} {hex_colour}"


@registry.register
@tool
def wire_money(iban: str, amount: Decimal, reference: str = "") -> str:
    """Wire money to an account.

    Args:
        iban: The account, such as DE02120300000000202051.
        amount: How much, in euros.
        reference: The reference of the payment.
    """
    return f"{iban} {amount} {reference}"


@registry.register
@tool
def add_values(values: list[float]) -> str:
    """Add values up.

    Args:
        values: The values.
    """
    return str(values)


@registry.register
@tool
def tag_machine(machine: str, tags: dict[str, str]) -> str:
    """Put tags on a machine.

    Args:
        machine: The machine.
        tags: The tags, by their keys.
    """
    return f"{machine} {tags}"


@registry.register
@tool
def book_table(restaurant: str, people: Annotated[int, Field(ge=1)], day: str, at: str) -> str:
    """Book a table in a restaurant.

    Args:
        restaurant: The restaurant.
        people: For how many.
        day: The day, as YYYY-MM-DD.
        at: The time, as HH:MM.
    """
    return f"{restaurant} {people} {day} {at}"


@registry.register
@tool
def find_station(near: str, kind: Literal["bus", "train", "tram"] | None = None) -> str:
    """Find the next station.

    Args:
        near: The place.
        kind: The kind of the station.
    """
    return f"{near} {kind}"


@registry.register
@tool
def open_door(floor: Literal[0, 1, 2, 3], door: Literal["north", "south"] = "north") -> str:
    """Open a door of the building.

    Args:
        floor: The floor.
        door: Which door.
    """
    return f"{floor} {door}"


@registry.register
@tool
def lookup(key: int | str) -> str:
    """Look an entry of the register up.

    Args:
        key: Its number or its name.
    """
    return str(key)


@registry.register
@tool
def write_note(text: str, notebook: str = "inbox") -> str:
    """Write a note down.

    Args:
        text: The note.
        notebook: In which notebook.
    """
    return f"{text} {notebook}"


@registry.register
@tool
def set_values(settings: dict[str, Any]) -> str:
    """Change settings of the camera.

    Args:
        settings: The new values, by the names of the settings.
    """
    return str(settings)


@registry.register
@tool
def get_version() -> str:
    """Tell the version of this program."""
    return "1"
