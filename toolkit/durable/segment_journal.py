"""The log of one segment of a run, and those inside of it: rows of the database, read where an attempt begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.durable.attempt_events import AttemptEvents
from toolkit.durable.entry_log import EntryLog, KeptEntries, LogPlace
from toolkit.durable.kept_journal import KeptJournal, check_readable
from toolkit.durable.messages_in import InboxSteering
from toolkit.loop.journal import Journal, JournalEntry, JournalValue
from toolkit.schema.nodes import is_object

__all__ = ["NestedJournal", "SegmentJournal", "TOOK", "count_taken", "unwrap_value"]

TOOK = "$took"
"""Beside an entry's value: the items of the inbox that were taken before it was kept."""

_VALUE = "$value"


class NestedJournal(KeptJournal):
    """The log of a run inside of an entry's work.

    Args:
        run_id: The id of that run, the same in each attempt.
        log: Writes entries.
        place: Where they are kept.
        kept: The entries that attempts before this one have kept.
        events: The events of the attempt that moves the run.
    """

    def __init__(self, run_id: str, log: EntryLog, place: LogPlace, kept: KeptEntries, events: AttemptEvents) -> None:
        super().__init__(run_id, place.path, kept.get(place.path, {}))
        self._log = log
        self._place = place
        self._all_kept = kept
        self._events = events
        if place.path:
            events.open_log(run_id)

    def _open_inner(self, path: str, name: str) -> Journal:
        place = replace(self._place, path=path)
        return NestedJournal(self._name_inner(name), self._log, place, self._all_kept, self._events)

    def _name_inner(self, name: str) -> str:
        return f"{self.run_id}/{name}"

    async def _keep_value(self, position: int, name: str, value: JournalValue) -> JournalValue:
        await self._log.keep(self._place, position, name, value)
        self._events.note_kept(name, self.run_id)
        return value

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:
        self._events.read_entry(name, stored, self.run_id)
        return stored


class SegmentJournal(NestedJournal):
    """The run's own log, which knows what was taken from the inbox.

    Args:
        run_id: The run.
        log: Writes entries.
        place: Where they are kept.
        kept: The entries that attempts before this one have kept.
        events: The events of the attempt that moves the run.
        steering: Says what was taken from the inbox.
        origin: The id of the segment that began the log, with which those go on that try it again.
        trace: The trace context of the first segment of the run; empty for that itself.
        on_read: Called with the name and the value of each entry that is kept already.

    Attributes:
        trace: The same, once the log has begun.
        has_kept_failure: True where an entry that the run fails with is kept, so that it fails with it whenever it is
            read.
    """

    def __init__(
        self,
        run_id: str,
        log: EntryLog,
        place: LogPlace,
        kept: KeptEntries,
        events: AttemptEvents,
        *,
        steering: InboxSteering,
        origin: str,
        trace: Mapping[str, str],
        on_read: Callable[[str, JournalValue], None],
    ) -> None:
        super().__init__(run_id, log, place, kept, events)
        self.has_kept_failure: bool = False
        self.trace: Mapping[str, str] = trace
        self._steering = steering
        self._origin = origin
        self._on_read = on_read

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do the work of entries that are not kept, and return the values of all."""
        values = await super().all(entries)
        if entries[0].name == "begin":
            self.trace = self.trace or values[0].get("trace", {})
            return [{**values[0], "trace": self.trace}]
        return values

    def tell_inner(self, call_id: str) -> None:
        """Have the events know what the logs inside of a call say, whose end is kept."""
        for path, inner in self._all_kept.items():
            if path == call_id or path.startswith((f"{call_id}/", f"{call_id}.")):
                loop_id = self._name_inner(path)
                self._events.open_log(loop_id)
                for _, (name, stored) in sorted(inner.items()):
                    self._events.read_entry(name, check_readable(name, stored), loop_id)

    def _name_inner(self, name: str) -> str:
        return f"{self._origin}/{name}"

    async def _keep_value(self, position: int, name: str, value: JournalValue) -> JournalValue:
        if "failed" in value:
            if not name.startswith("call "):  # which must not run twice; all others are asked for again
                return value
            self.has_kept_failure = True
        taken = self._steering.drain_unlogged()
        stored: dict[str, Any] = {TOOK: taken, _VALUE: value} if taken else value
        await self._log.keep(self._place, position, name, stored)
        self._events.note_kept(name)
        return value

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:
        value = unwrap_value(stored)
        self.has_kept_failure |= "failed" in value
        self._on_read(name, value)
        return value


def unwrap_value(stored: JournalValue) -> JournalValue:
    """Return the value of an entry of a run's own log, without what stands beside it."""
    value: JournalValue = stored[_VALUE] if TOOK in stored else stored
    return value


def count_taken(kept: KeptEntries) -> set[int]:
    """Return the items of the inbox that the kept entries of a run's own log say were taken."""
    taken: set[int] = set()
    for _, stored in kept.get("", {}).values():
        if is_object(stored):
            taken.update(stored.get(TOOK, ()))
    return taken
