"""The log of a durable run, as the loop uses it; an implementation stores it anywhere.

Each fact from outside the machine of a loop is an entry: a reply of a model, a decision, the result of a call. A loop
that is started again with the same log reads the stored entries instead of repeating their work, and continues after
the last one. See `toolkit.durable` for implementations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any, Protocol, TypeAlias, runtime_checkable

from toolkit.dataclass import dataclass
from toolkit.errors import JournalError
from toolkit.foreign_text import replace_surrogates

_LONGEST_ID = 128

JournalValue: TypeAlias = dict[str, Any]
"""An object of plain JSON, as ``json.loads`` returns it."""

EntryWork: TypeAlias = Callable[[], Awaitable[JournalValue]]
"""The work of an entry that is not stored yet; raises an `Exception` only if the run can't be recorded."""


class CutError(BaseException):
    """Ends work of which nothing is to be stored; its cause is the error, None for a cancellation.

    It is no `Exception`, so that no journal stores it as the outcome of the work.
    """


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A requested entry.

    Args:
        name: Its name, unique in its log, and the same in each replay.
        work: Returns its value.
        is_nested: True if a run with a log of its own, from `Journal.nested`, is part of the work. Such work may be
            started again in another process, which reads that log.
        on_replay: Called with a stored value, before the work of other entries of the same request begins.
    """

    name: str
    work: EntryWork
    _: KW_ONLY
    is_nested: bool = False
    on_replay: Callable[[JournalValue], object] | None = None


@runtime_checkable
class Journal(Protocol):
    """The log of one run: its entries, in the order in which the run requests them.

    Stored entries never change. The loop shields these methods from cancellations, except for those of asyncio's own
    tasks. If work raises a `BaseException`, nothing of it is stored, and the exception is raised when all work of the
    request has ended. A decision whose work ends so leaves its position empty.
    """

    @property
    def run_id(self) -> str:
        """The id of the run, which its events carry: 8 to 64 letters and digits, the same in each process.

        No other run may have it, in any log: idempotency keys of calls are made from it.
        """
        ...

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Return the values of entries, in their order: stored at the next positions, or else of work that is done now.

        Their positions are assigned in their order, and stored values passed to `JournalEntry.on_replay`, before the
        work of any begins; it is done concurrently, and limits its concurrency itself. New values are stored.

        Raises:
            JournalError: Another entry is stored at a position, or a value can't be stored.
        """
        ...

    async def recall(self, name: str) -> JournalValue | None:
        """Return the value at the next position and move past it, if the entry there has this name; else return None.

        Called when a run awaits a decision: an engine, which begins another log with each decision, returns None.
        """
        ...

    async def finish(self) -> None:
        """Record that the run rests: it has ended, or awaits a decision.

        Raises:
            JournalError: Entries are stored after the last requested one.
        """
        ...

    def nested(self, name: str) -> Journal:
        """Return the log of a run that is part of the work of an entry; for the same name, the same log.

        Raises:
            ConfigurationError: This journal has no logs inside of it.
        """
        ...

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside an entry's work, in any order, without moving past them.

        Called in the work of an entry that another process has begun.

        Args:
            name: The name of the first of these logs; those of the others begin with it and a full stop.
        """
        ...


def storable_id(call_id: str) -> str:
    """Return the id of a call for the names of entries and logs, which any database accepts.

    The id of a model may have half a surrogate pair, which is no UTF-8, a NUL, which Postgres refuses, or more
    characters than an index can have.
    """
    clean = replace_surrogates(call_id).replace("\x00", "\ufffd")
    if len(clean) <= _LONGEST_ID:
        return clean
    import hashlib  # noqa: PLC0415 - slow to import, and few ids are that long

    return f"{clean[: _LONGEST_ID // 2]}~{hashlib.sha256(clean.encode()).hexdigest()[:32]}"


def check_entry_name(stored: str, requested: str) -> None:
    """Check that a stored entry is the requested one.

    Raises:
        JournalError: It is not, so that another run has written the log.
    """
    if stored != requested:
        raise JournalError(
            f"the log has the entry '{stored}' where the run asks for '{requested}': it was written with another "
            "prompt or other settings, by another version of the program, or it was changed"
        )
