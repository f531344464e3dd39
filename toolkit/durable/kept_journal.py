"""A log whose kept entries are all at hand where it is opened: what is not among them is done and kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.durable.journal_units import take_together
from toolkit.errors import JournalError
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, check_entry_name
from toolkit.schema.nodes import is_object

__all__ = ["KeptJournal", "check_readable"]


class KeptJournal(ABC):
    """The log of a run, or of one inside of it; a subclass says where entries are kept.

    Args:
        run_id: The id of the run, the same in each attempt.
        path: The calls that the log is inside of; empty for the run's own.
        kept: The name and the value of each entry that attempts before this one have kept, by its position.
    """

    def __init__(self, run_id: str, path: str, kept: Mapping[int, tuple[str, Any]]) -> None:
        self.run_id = run_id
        self._path = path
        self._kept = kept
        self._left = set(kept)  # the positions that were not asked for yet
        self._last = max(kept, default=0)
        self._position = 0

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return what is kept, or do the work and keep what it gives.

        Raises:
            JournalError: Another entry is kept at the position, or the value is no JSON.
            Exception: Another worker has taken the run over.
        """
        [value] = await self.all([entry])
        return value

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once."""
        first = self._position + 1
        self._position += len(entries)
        for position, entry in enumerate(entries, first):
            # Of calls at the same time the later ones may be kept and an earlier one not; nothing comes behind them.
            # A decision that does not hold anymore is not kept, and is found again in what the segment began with.
            is_free = position in self._kept or entry.name.startswith("decided ")
            if not is_free and self._last > self._position:
                raise JournalError(
                    f"the log of run '{self.run_id}' has no '{entry.name}' at position {position}, and goes on behind "
                    "it: it was cut, or changed"
                )
        return await take_together(entries, lambda index, entry: self._take_entry(first + index, entry))

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - a decision begins the next segment
        """Return None: a decision is never in the log that awaits it."""
        return None

    async def finish(self) -> None:
        """Check that nothing is kept behind the end of the run; what it leaves is kept elsewhere.

        Raises:
            JournalError: Something is.
        """
        if self._left:
            raise JournalError(
                f"the log of run '{self.run_id}' goes on with '{self._kept[min(self._left)][0]}' where the run has "
                "ended: it was written with other settings or by another version of the program, or it was changed"
            )

    @property
    def is_read(self) -> bool:
        """True where all that is kept was taken."""
        return not self._left

    def nested(self, name: str) -> Journal:
        """Return the log of a run inside of an entry's work."""
        return self._open_inner(f"{self._path}/{name}" if self._path else name, name)

    @abstractmethod
    def _open_inner(self, path: str, name: str) -> Journal:
        """Return the log of a run inside of this one."""

    @abstractmethod
    async def _keep_value(self, position: int, name: str, value: JournalValue) -> JournalValue:
        """Keep a value, and return it once no crash undoes that."""

    async def _take_entry(self, position: int, entry: JournalEntry) -> JournalValue:
        kept = self._kept.get(position)
        if kept is None:
            return await self._keep_value(position, entry.name, await entry.work())
        name, stored = kept
        check_entry_name(name, entry.name)
        value = self._read_value(name, check_readable(name, stored))
        self._left.discard(position)
        return value

    def _read_value(self, name: str, stored: JournalValue) -> JournalValue:  # noqa: ARG002 - for subclasses
        """Return the value that was stored as this."""
        return stored


def check_readable(name: str, stored: Any) -> JournalValue:
    """Return what is stored of an entry.

    Raises:
        JournalError: It can't be read.
    """
    if isinstance(stored, JournalError):
        raise stored
    if not is_object(stored):
        raise JournalError(f"the entry '{name}' of the log can't be read: it was changed, or encrypted otherwise")
    return dict(stored)
