"""A log that replays its stored entries and stores new ones, for segments, Restate and files alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from toolkit.errors import JournalError
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, check_entry_name
from toolkit.schema.nodes import is_object

StoredEntry = tuple[str, Any]
"""The name and the value of an entry; where the value can't be read, a text or an error stands for it."""


class ReplayJournal(ABC):
    """The log of a run, or of a loop inside of one of its calls.

    Args:
        run_id: The id of the run, the same in each attempt.
        name: The run, in messages.
        stored: The entries of earlier attempts by position; None where `_load_entries` reads them at the first use.
    """

    def __init__(self, run_id: str, name: str, stored: Mapping[int, StoredEntry] | None) -> None:
        self.run_id = run_id
        self._name = name
        self._left: dict[int, StoredEntry] | None = None  # the stored entries that were not asked for yet
        self._last = self._position = 0
        if stored is not None:
            self._take_stored(stored)

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return the stored value of an entry, or do its work and store the value.

        Raises:
            JournalError: Another entry is stored at its position, or the value is no JSON.
            Exception: Another worker has taken the run over.
        """
        [value] = await self.all([entry])
        return value

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once.

        Raises:
            BaseException: The first that came out of the work of one, when all have ended.
        """
        left = await self._open_entries()
        first = self._position + 1
        self._position += len(entries)
        for position, entry in enumerate(entries, first):
            if position not in left:
                self._check_missing(position, entry)
        if len(entries) == 1:
            return [await self._take_entry(left, first, entries[0])]
        values: list[JournalValue] = [{} for _ in entries]
        failures: list[BaseException] = []
        live = [index for index in range(len(entries)) if first + index not in left]
        for index, entry in enumerate(entries):
            if index not in live:
                values[index] = self._replay_entry(left, first + index, entry)

        async def take(index: int, entry: JournalEntry) -> None:
            try:
                values[index] = await self._take_entry(left, first + index, entry)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, not in a group
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for index in live:
                tasks.start_soon(take, index, entries[index])
        if failures:
            raise failures[0]
        return values

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - for files
        """Return None: in an engine the next segment begins with a decision, so the log that awaits it has none."""
        return None

    async def finish(self) -> None:
        """Check that no stored entry is left when the run rests.

        Raises:
            JournalError: One is.
        """
        left = await self._open_entries()
        if left:
            raise JournalError(
                f"the log of the run '{self._name}' goes on with '{left[min(left)][0]}' where the run has ended: it "
                "was written with other settings or by another version of the program, or it was changed"
            )

    @property
    def is_read(self) -> bool:
        """True once all stored entries were replayed."""
        return not self._left

    @abstractmethod
    def nested(self, name: str) -> Journal:
        """Return the log of a loop inside of an entry's work."""

    @abstractmethod
    async def _store_value(self, position: int, name: str, value: JournalValue) -> None:
        """Store a value; when this returns, no crash undoes it."""

    async def _load_entries(self) -> Mapping[int, StoredEntry]:
        """Return the stored entries, where they were not given."""
        return {}

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:  # noqa: ARG002 - for subclasses
        """Return the value of a stored entry that is replayed."""
        return stored

    async def _open_entries(self) -> dict[int, StoredEntry]:
        if self._left is None:
            return self._take_stored(await self._load_entries())
        return self._left

    def _take_stored(self, stored: Mapping[int, StoredEntry]) -> dict[int, StoredEntry]:
        self._left = left = dict(stored)
        self._last = max(left, default=0)
        return left

    def _check_missing(self, position: int, entry: JournalEntry) -> None:
        """Refuse to do work that was done before, since entries behind it are stored.

        Of calls at the same time later ones may be stored and an earlier one not, and nothing follows them. A decision
        that didn't hold is not stored, and is found again in the start of its segment.

        Raises:
            JournalError: The log was cut.
        """
        if self._last > self._position and not entry.name.startswith("decided "):
            raise JournalError(
                f"the log of the run '{self._name}' has no '{entry.name}' at position {position}, and goes on behind "
                "it: it was cut, or changed"
            )

    async def _take_entry(self, left: dict[int, StoredEntry], position: int, entry: JournalEntry) -> JournalValue:
        if position not in left:
            value = await entry.work()
            await self._store_value(position, entry.name, value)
            return value
        return self._replay_entry(left, position, entry)

    def _replay_entry(self, left: dict[int, StoredEntry], position: int, entry: JournalEntry) -> JournalValue:
        name, stored = left[position]
        check_entry_name(name, entry.name)
        value = self._read_value(name, check_readable(name, stored))
        del left[position]
        if entry.on_replay is not None:
            entry.on_replay(value)
        return value


def check_readable(name: str, stored: Any) -> JournalValue:
    """Return the stored value of an entry.

    Raises:
        JournalError: It can't be read.
    """
    if isinstance(stored, JournalError):
        raise stored
    if not is_object(stored):
        raise JournalError(f"the entry '{name}' of the log can't be read: it was changed, or encrypted otherwise")
    return dict(stored)
