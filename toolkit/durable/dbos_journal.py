"""The log of one segment in DBOS: an entry is a step of the segment's workflow.

Everything that is kept is read at once where an attempt begins, so that a replay costs one query. The work of a new
entry is done outside of the step, which then keeps what it gave: it can be cancelled while the keeping can't.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from dbos import DBOS, StepReservation, error as dbos_error

from toolkit.durable.journal_units import take_together
from toolkit.durable.messages_in import InboxSteering
from toolkit.errors import JournalError
from toolkit.loop.journal import Journal, JournalEntry, JournalValue, check_entry_name

__all__ = ["DbosJournal", "KeptSteps", "TOOK", "count_taken"]

KeptSteps: TypeAlias = Mapping[int, tuple[str, JournalValue]]
"""The name and value of each step that is kept, by its id."""

TOOK = "$took"
"""Beside an entry's value: the items of the inbox that were taken before it was kept."""

_VALUE = "$value"


class DbosJournal:
    """A journal in the workflow that is running.

    Args:
        run_id: The run.
        kept: The entries that attempts before this one have kept.
        steering: Says what was taken from the inbox.
        on_kept: Called with the name and the value of each entry that is kept already.
        nested: Makes the log of a run inside of an entry's work, by its name.
    """

    def __init__(
        self,
        run_id: str,
        kept: KeptSteps,
        steering: InboxSteering,
        *,
        on_kept: Callable[[str, JournalValue], None],
        nested: Callable[[str], Journal],
    ) -> None:
        self.run_id = run_id
        self.failure: Exception | None = None
        """The error of the engine when it would not keep an entry: this attempt is over."""
        self.has_left_failure = False
        """True where the entry that the run failed with is not kept, so that it may be asked for again."""
        self._kept = kept
        self._steering = steering
        self._on_kept = on_kept
        self._nested = nested

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return what is kept, or do the work and keep what it gives.

        Raises:
            JournalError: Another entry is kept at the position, or the value is no JSON.
            Exception: Of the engine: another worker has taken the run over.
        """
        return await self._take_entry(DBOS.reserve_step(), entry)

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Do so with several entries at once."""
        slots = [DBOS.reserve_step() for _ in entries]
        return await take_together(entries, lambda index, entry: self._take_entry(slots[index], entry))

    async def recall(self, name: str) -> JournalValue | None:  # noqa: ARG002 - a decision begins the next segment
        """Return None: a decision is never in the log that awaits it."""
        return None

    async def finish(self) -> None:
        """Do nothing: the segment's workflow ends, and keeps what it leaves."""

    def nested(self, name: str) -> Journal:
        """Return the log of a run inside of an entry's work."""
        return self._nested(name)

    async def _take_entry(self, slot: StepReservation, entry: JournalEntry) -> JournalValue:
        kept = self._kept.get(slot.step_id)
        if kept is not None:
            name, stored = kept
            check_entry_name(name, entry.name)
            value = _open_value(stored)
            self._on_kept(name, value)
            return value
        return await self._keep_value(slot, entry.name, await entry.work())

    async def _keep_value(self, slot: StepReservation, name: str, value: JournalValue) -> JournalValue:
        if "failed" in value and not name.startswith("call "):  # a call must not run twice
            self.has_left_failure = True
            return value
        taken = self._steering.drain_unlogged()
        stored: dict[str, Any] = {TOOK: taken, _VALUE: value} if taken else value
        is_kept = False

        async def give_value() -> dict[str, Any]:
            nonlocal is_kept
            is_kept = True
            return stored

        try:
            with anyio.CancelScope(shield=True):
                await slot.run_async({"name": name}, give_value)
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of run '{self.run_id}' can't be stored: {error}") from error
        except dbos_error.DBOSUnexpectedStepError as error:
            raise JournalError(f"the log of run '{self.run_id}' is another one's: {error}") from error
        except Exception as error:
            self.failure = error
            raise
        if not is_kept:  # another worker, which has the run now, came to this entry first
            raise dbos_error.DBOSWorkflowConflictIDError(self.run_id)
        return value


def count_taken(kept: KeptSteps) -> set[int]:
    """Return the items of the inbox that the kept entries say were taken."""
    taken: set[int] = set()
    for _, stored in kept.values():
        taken.update(stored.get(TOOK, ()))
    return taken


def _open_value(stored: JournalValue) -> JournalValue:
    value: JournalValue = stored[_VALUE] if TOOK in stored else stored
    return value
