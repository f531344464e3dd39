"""The log of a durable run, as the loop uses it; where and how it is stored is up to the implementation.

All that a loop learns from outside its machine is an entry: what a model replied, what was decided, what a call
returned. A loop that is started again with the same log takes the stored entries in place of doing their work
again, and goes on behind the last one. See `toolkit.durable` for logs that can be used.
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
"""An object of plain JSON: what ``json.loads`` gives, and ``json.dumps`` takes without a default."""

EntryWork: TypeAlias = Callable[[], Awaitable[JournalValue]]
"""The work of an entry that is not stored yet; raises an `Exception` only where the run can't be recorded."""


class CutError(BaseException):
    """Comes out of work of which nothing is to be stored; its cause is what came in between, None for a cancellation.

    It is no `Exception`, so that no journal takes it for the outcome of the work.
    """


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry that is asked for.

    Args:
        name: Of the entry: unique in its log, and the same in each replay.
        work: Gives its value.
        is_nested: True where a run with a log of its own is part of the work, which `Journal.nested` gives. Such work
            may be begun again in another process: what it did is in that log.
        on_replay: Called with a stored value, before the work of other entries that are asked for with it begins.
    """

    name: str
    work: EntryWork
    _: KW_ONLY
    is_nested: bool = False
    on_replay: Callable[[JournalValue], object] | None = None


@runtime_checkable
class Journal(Protocol):
    """The log of one run: its entries stand in the order in which the run asks for them.

    Stored entries never change. The loop calls these methods where no cancellation reaches them, but for one that the
    standard library's tasks are given; where work ends by a `BaseException`, nothing is stored of it, and that passes
    out when the work of all has ended. A decision whose work ends so leaves a position that stays empty.
    """

    @property
    def run_id(self) -> str:
        """The id of the run, which its events carry: 8 to 64 letters and digits, the same in each process.

        No other run may have it, in no other log: what a tool asks of others is known by it.
        """
        ...

    async def once(self, entry: JournalEntry) -> JournalValue:
        """Return the value that is stored at the next position; else do the work, store its value, and return that.

        Raises:
            JournalError: Another entry is stored at that position, or the value can't be stored.
        """
        ...

    async def all(self, entries: Sequence[JournalEntry]) -> list[JournalValue]:
        """Return the values of several entries, in their order: each as `once` gives it, their work done at once.

        Their positions are drawn in their order, and stored values handed to `JournalEntry.on_replay`, before the work
        of any begins. The work limits by itself how much of it goes on at once.
        """
        ...

    async def recall(self, name: str) -> JournalValue | None:
        """Return the value at the next position where the entry of this name is stored there, and pass it.

        Anywhere else return None and stay. Asked where a run awaits a decision: the log of an engine, which begins
        another one with each decision, has nothing to recall.
        """
        ...

    async def finish(self) -> None:
        """Take note that the run rests: it has ended, or awaits a decision.

        Raises:
            JournalError: Entries are stored behind the last one that the run has asked for.
        """
        ...

    def nested(self, name: str) -> Journal:
        """Return the log of a run that is part of the work of an entry; the same one for the same name.

        Raises:
            ConfigurationError: This journal has no logs inside of it.
        """
        ...

    async def read_nested(self, name: str) -> Sequence[JournalValue]:
        """Return the stored values of the logs inside of an entry's work, without passing them; in any order.

        Asked in the work of an entry that another process had begun.

        Args:
            name: That of the first of these logs; those of the others begin with it and a full stop.
        """
        ...


def storable_id(call_id: str) -> str:
    """Return a call's id as it stands in the names of entries and logs: any database takes it.

    A model may give one with half a surrogate pair, which is no UTF-8, with a NUL, which Postgres refuses, or one that
    is longer than what an index takes.
    """
    clean = replace_surrogates(call_id).replace("\x00", "\ufffd")
    if len(clean) <= _LONGEST_ID:
        return clean
    import hashlib  # noqa: PLC0415 - slow to import, and few ids are that long

    return f"{clean[: _LONGEST_ID // 2]}~{hashlib.sha256(clean.encode()).hexdigest()[:32]}"


def check_entry_name(kept: str, asked: str) -> None:
    """Check that the entry that a log holds is the one that its run asks for.

    Raises:
        JournalError: It is not, so that the run is another than the one that wrote the log.
    """
    if kept != asked:
        raise JournalError(
            f"the log has the entry '{kept}' where the run asks for '{asked}': it was written with another prompt or "
            "other settings, by another version of the program, or it was changed"
        )
