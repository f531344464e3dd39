"""The log of a run inside of an entry's work: rows of our own, since a step of the engine has no steps."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import sqlalchemy as sa
from anyio import to_thread

from toolkit.durable.journal_units import take_together
from toolkit.durable.storage import Storage
from toolkit.durable.tables import entries, runs
from toolkit.errors import JournalError
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, check_entry_name

__all__ = ["NestedJournal"]


class NestedJournal:
    """A journal in a table; entries of an attempt that was taken over are refused.

    Args:
        storage: The database.
        run_id: The run that it is part of.
        attempt: The token of the attempt.
        log: The name of the log, unique in the database.
    """

    def __init__(self, storage: Storage, run_id: str, attempt: str, log: str) -> None:
        self.run_id = log
        self._storage = storage
        self._outer_run = run_id
        self._attempt = attempt
        self._log = log
        self._next = 0
        self._kept: dict[int, tuple[str, JournalValue]] | None = None

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return what is kept, or do the work and keep what it gives.

        Raises:
            JournalError: Another entry is kept at the position, the value is no JSON, or the run was taken over.
        """
        self._next += 1
        return await self._take_entry(self._next, entry)

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once."""
        first = self._next + 1
        self._next += len(entries)
        return await take_together(entries, lambda index, entry: self._take_entry(first + index, entry))

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - a sub-agent awaits no decision
        """Return None."""
        return None

    async def finish(self) -> None:
        """Do nothing: the entries go with the run."""

    def nested(self, name: str) -> Journal:
        """Return the log of a run inside of this one."""
        return NestedJournal(self._storage, self._outer_run, self._attempt, f"{self._log}/{name}")

    async def _take_entry(self, position: int, entry: JournalEntry) -> JournalValue:
        if self._kept is None:
            self._kept = await to_thread.run_sync(self._read_kept)
        kept = self._kept.get(position)
        if kept is None:
            new = await entry.work()
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._write_entry, position, entry.name, new)
            return new
        check_entry_name(kept[0], entry.name)
        value: JournalValue = kept[1]
        return value

    def _read_kept(self) -> dict[int, tuple[str, JournalValue]]:
        query = sa.select(entries.c.position, entries.c.name, entries.c.value).where(entries.c.log == self._log)
        with self._storage.engine.connect() as connection:
            rows = connection.execute(query).all()
        return {position: (name, self._storage.text.read(value)) for position, name, value in rows}

    def _write_entry(self, position: int, name: str, value: JournalValue) -> None:
        try:
            text = self._storage.text.write(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of '{self._log}' can't be stored: {error}") from error
        row = [self._log, position, self._outer_run, name, text]
        owner = sa.select(*map(sa.literal, row)).where(
            sa.exists().where(runs.c.run_id == self._outer_run, runs.c.attempt == self._attempt)
        )
        with self._storage.engine.begin() as connection:
            columns = ["log", "position", "run_id", "name", "value"]
            if connection.execute(entries.insert().from_select(columns, owner)).rowcount == 0:
                raise JournalError(f"run '{self._outer_run}' was taken over by another worker")
