"""What a turn costs that is logged; the log itself is a list, so that no database is in the figure."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from bench.clock import on_asyncio, sized
from bench.ours import Script, responses_of
from bench.workload import QUESTION, forecast
from toolkit import ToolLoopConfig, ToolRegistry, tool, tool_loop
from toolkit.durable import Journal, JournalEntry, JournalValue


class ListJournal(Journal):
    """Stores each entry as text, and has none to replay."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    @property
    def run_id(self) -> str:
        return "0123456789"

    async def once(self, entry: JournalEntry) -> JournalValue:
        value = await entry.work()
        self.entries.append((entry.name, json.dumps(value)))
        return value

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        return [await self.once(entry) for entry in entries]

    async def recall(self, name: str) -> JournalValue | None:
        return None

    async def finish(self) -> None: ...

    def nested(self, name: str) -> Journal:
        return ListJournal()

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        return []


def durable_turns(features: Collection[str]) -> float:
    turns, runs = 50, sized(40)
    registry, responses = ToolRegistry([tool(forecast)]), responses_of(turns)

    async def work() -> None:
        for _ in range(runs):
            config = ToolLoopConfig(max_iterations=turns + 1, journal=ListJournal())
            await tool_loop(Script(responses), registry, QUESTION, config=config)

    return on_asyncio(work, runs * turns)
