"""Input of a peer that would hold the event loop: each row is less than a megabyte, and other tasks have their turn.

What is measured is the CPU time of the loop's thread between two turns, on a machine of a fixed speed.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.loop_turns import LONGEST_TURN, longest_turn
from toolkit import AssistantMessage, ToolLoopConfig, ToolRegistry, tool_from_schema, tool_loop
from toolkit.chat import ToolCall
from toolkit.testing import ScriptedProvider

DICE = random.Random(1)
LONG_NAMES = ["".join(DICE.choices("abcd", k=60)) + str(number) for number in range(1_000)]
# Names of the same letters as the tool's: nothing but a whole comparison tells them apart.
ALIKE = ["".join(DICE.sample(name[:60], 60)) for name in LONG_NAMES[:50]]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model calls; `config` are settings of the loop, and `tools` those that there are."""

    calls: list[tuple[str, str]]
    config: dict[str, Any]
    tools: list[str]


REPLIES = {
    "unknown names of the letters of a thousand tools": Reply(
        calls=[(name, "{}") for name in ALIKE], config={}, tools=LONG_NAMES
    ),
    "unknown names, of which a similar one is taken": Reply(
        calls=[(name, "{}") for name in ALIKE], config={"name_repair": "similar"}, tools=LONG_NAMES
    ),
    "unknown names that are too long": Reply(calls=[(name * 50, "{}") for name in ALIKE], config={}, tools=LONG_NAMES),
    "unknown names of many parts": Reply(
        calls=[(f"{'a.' * 120}{number}", "{}") for number in range(50)], config={}, tools=LONG_NAMES
    ),
}


@cache
def make_registry(names: tuple[str, ...]) -> ToolRegistry:
    return ToolRegistry([tool_from_schema(name, "", {"type": "object"}, lambda _: "ran") for name in names])


def reply_with(case: Reply) -> Callable[[], Awaitable[object]]:
    registry = make_registry(tuple(case.tools))
    message = AssistantMessage([ToolCall(str(place), *call) for place, call in enumerate(case.calls)])

    async def run() -> object:
        provider = ScriptedProvider([message, "Done."])
        return await tool_loop(provider, registry, "Go.", config=ToolLoopConfig(**case.config))

    return run


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", REPLIES)
def test_no_reply_of_a_model_holds_the_event_loop(name: str, backend: str) -> None:
    run = reply_with(REPLIES[name])
    longest_turn(reply_with(Reply(calls=[("none", "{}")], config={}, tools=["one"])), backend)  # what is imported late
    assert longest_turn(run, backend) < LONGEST_TURN
