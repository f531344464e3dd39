"""A log in memory that can crash its process at any point, and be opened again by the next one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from toolkit.durable import Journal, JournalEntry, JournalValue
from toolkit.durable.journals import is_inside
from toolkit.errors import JournalError
from toolkit.loop.journal import check_entry_name
from toolkit.runtime.backend import gather


class CrashError(BaseException):
    """The process has ended."""


@dataclass
class Memory:
    """What outlives a process: the entries of each run, as text, by position."""

    runs: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict[str, dict[int, tuple[str, str]]])

    @property
    def names(self) -> list[str]:
        return [f"{run}:{name}" for run, kept in self.runs.items() for _, (name, _) in sorted(kept.items())]


@dataclass
class CrashPlan:
    """Ends the process at the n-th point that it passes; 0 never does."""

    at: int = 0
    passed: int = 0
    is_over: bool = False

    def pass_point(self) -> None:
        self.passed += 1
        if self.is_over or self.passed == self.at:
            self.is_over = True
            raise CrashError


class MemoryJournal(Journal):
    """One process's view of a run's log."""

    def __init__(self, memory: Memory, plan: CrashPlan | None = None, run: str = "run") -> None:
        self._memory = memory
        self._run = run
        self.plan: CrashPlan = plan or CrashPlan()
        self._kept = memory.runs.setdefault(run, {})
        self._next = 0
        self.written = 0

    @property
    def run_id(self) -> str:
        return self._run

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        first = self._next + 1
        self._next += len(entries)
        values: dict[int, JournalValue] = {}

        async def take(position: int, entry: JournalEntry) -> None:
            values[position] = await self._take(position, entry)

        asked = list(enumerate(entries, first))
        for position, entry in asked:
            if position in self._kept:
                await take(position, entry)
                if entry.on_replay is not None:
                    entry.on_replay(values[position])
        await gather([partial(take, position, entry) for position, entry in asked if position not in values], None)
        return [values[first + index] for index in range(len(entries))]

    async def recall(self, name: str) -> JournalValue | None:
        following = min((position for position in self._kept if position > self._next), default=0)
        if not following or self._kept[following][0] != name:
            return None
        self._next = following
        value: JournalValue = json.loads(self._kept[following][1])
        return value

    async def finish(self) -> None:
        if self._kept and max(self._kept) > self._next:
            raise JournalError(f"the log goes on with '{self._kept[max(self._kept)][0]}' where the run has ended")

    def nested(self, name: str) -> Journal:
        return MemoryJournal(self._memory, self.plan, f"{self._run}/{name}")

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        inner = [kept for run, kept in self._memory.runs.items() if is_inside(run, f"{self._run}/{name}")]
        return [json.loads(text) for kept in inner for _, text in kept.values()]

    async def _take(self, position: int, entry: JournalEntry) -> JournalValue:
        kept = self._kept.get(position)
        if kept is not None:
            check_entry_name(kept[0], entry.name)
            value: JournalValue = json.loads(kept[1])
            return value
        self.plan.pass_point()
        value = await entry.work()
        self.plan.pass_point()
        self._kept[position] = (entry.name, json.dumps(value))
        self.written += 1
        self.plan.pass_point()
        return value
