"""What was said before each task: a few requests and how they were met. Small models do what they have seen done."""

from dataclasses import dataclass

from evals.household import registry
from toolkit import AssistantMessage, Message, ToolCall, ToolRegistry, UserMessage

__all__ = ["conversation"]


@dataclass(frozen=True)
class Shown:
    """A request, its calls of one turn after the other, and the answer."""

    prompt: str
    calls: tuple[tuple[str, str], ...]
    answer: str


SHOWN = (
    Shown(
        "How many days are there between 2026-10-01 and 2026-10-08?",
        (("days_between", '{"first": "2026-10-01", "last": "2026-10-08"}'),),
        "There are 7 days.",
    ),
    Shown(
        "Set the garden light to 60 percent.",
        (("set_light", '{"room": "garden", "brightness": 60}'),),
        "The garden light takes 42 watts.",
    ),
    Shown(
        "Create an event called Concert on 2026-08-14 with the guests Tom and Zoe, in the place Arena.",
        (("create_event", '{"title": "Concert", "day": "2026-08-14", "guests": ["Tom", "Zoe"], "place": "Arena"}'),),
        "The number is 5497.",
    ),
    Shown(
        "Ship a package of 6 kilograms to the street 3 Pine Street in the city Dallas, zip code 75201.",
        (
            (
                "ship_package",
                '{"address": {"street": "3 Pine Street", "city": "Dallas", "zip_code": "75201"}, "weight": 6}',
            ),
        ),
        "The tracking code is TR2574.",
    ),
    Shown("Find the customer number of Alan Kay.", (("find_customer", '{"name": "Alan Kay"}'),), "It is 206."),
    Shown(
        "Get the balance of customer 206.",
        (("get_balance", '{"customer": 206}'),),
        "The balance is 500 dollars.",
    ),
    Shown("What is the weather in Madrid?", (("get_weather", '{"city": "Madrid"}'),), "It is 29 degrees in Madrid."),
    Shown("Add up the numbers 3 and 4.", (("add_numbers", '{"numbers": [3, 4]}'),), "The sum is 7."),
)


async def conversation() -> list[Message]:
    """Return it, with what the tools really say. Nothing fails in it, so that it is the same with help and without."""
    tools: ToolRegistry = registry()
    messages: list[Message] = []
    for shown in SHOWN:
        messages.append(UserMessage(shown.prompt))
        for name, arguments in shown.calls:
            call = ToolCall(f"shown_{len(messages)}", name, arguments)
            messages += [AssistantMessage([call]), await tools.execute(call)]
        messages.append(AssistantMessage(shown.answer))
    return messages
