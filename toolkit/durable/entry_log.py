"""Writes the entries of all runs of a worker: those that come at the same time in one transaction.

An entry is kept only while the attempt that writes it is the one that moves its run. The row of the run is locked for
that, so that who takes the run over either finds the entry or has it refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
import sqlalchemy as sa
from dbos import error as dbos_error
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from toolkit.dataclass import dataclass
from toolkit.durable.contents import ContentRow, is_away, keep_contents, restore_values, write_value
from toolkit.durable.errors import DurableError
from toolkit.durable.storage import Storage
from toolkit.durable.tables import entries, runs
from toolkit.errors import JournalError
from toolkit.loop.journal import JournalValue
from toolkit.runtime.backend import loop_waker

__all__ = ["EntryLog", "KeptEntries", "LogPlace", "read_kept_entries"]

_logger = logging.getLogger("toolkit.durable")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_KEY = ("run_id", "segment", "path", "position")

KeptEntries: TypeAlias = Mapping[str, Mapping[int, tuple[str, Any]]]
"""The name and value of each entry that is kept, by its log's path and its position.

Where the value can't be read, a text or an error stands for it.
"""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The log that an entry belongs to, and who writes it.

    Args:
        run_id: The run.
        segment: The segment.
        attempt: The token of the attempt.
        path: The calls that the log is inside of; empty for the run's own.
    """

    run_id: str
    segment: int
    attempt: str
    path: str = ""


class _WaitingEntry:
    """An entry that is to be kept, and how its run hears that it was."""

    def __init__(self, row: Mapping[str, Any], contents: Sequence[ContentRow], on_end: Callable[[], object]) -> None:
        self.row = row
        self.contents = contents
        self.error: BaseException | None = None
        self._on_end = on_end

    def __str__(self) -> str:
        return f"entry '{self.row['name']}' of run '{self.row['run_id']}'"

    def end(self, error: BaseException | None) -> None:
        """Tell whether it was kept."""
        self.error = error
        self._on_end()


def _refuse_entries(refused: Sequence[_WaitingEntry]) -> None:
    for entry in refused:
        entry.end(dbos_error.DBOSWorkflowConflictIDError(entry.row["run_id"]))


class EntryLog:
    """A thread that writes, over one connection. While the database is away it waits, and so do the runs.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._insert = _make_insert(storage)
        self._waiting: list[_WaitingEntry] = []
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._end = threading.Event()
        self._connection: sa.Connection | None = None
        self._thread = threading.Thread(target=self._write_on, name="toolkit durable log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, where the database is there, and end."""
        self._end.set()
        self._news.set()
        self._thread.join(5)

    async def keep(self, place: LogPlace, position: int, name: str, value: JournalValue) -> None:
        """Keep an entry; when this returns, no crash undoes it.

        Raises:
            JournalError: The value can't be stored.
            DBOSWorkflowConflictIDError: Another attempt moves the run, or the worker has ended.
        """
        try:
            text, contents = write_value(self._storage.text, place.run_id, value)
        except (TypeError, ValueError, RecursionError) as error:
            raise JournalError(f"entry '{name}' of run '{place.run_id}' can't be stored: {error}") from error
        row: dict[str, Any] = {"run_id": place.run_id, "segment": place.segment, "path": place.path}
        row |= {"position": position, "name": name, "value": text, "attempt": place.attempt}
        wake, done = loop_waker(), anyio.Event()
        entry = _WaitingEntry(row, contents, lambda: wake(done.set))
        with self._lock:
            self._waiting.append(entry)
        self._news.set()
        with anyio.CancelScope(shield=True):
            await done.wait()
        if entry.error is not None:
            raise entry.error

    def _write_on(self) -> None:
        while not self._end.is_set():
            self._news.wait()
            self._news.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
            if waiting:
                self._write_patiently(waiting)
        self._close_connection()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        _refuse_entries(waiting)

    def _write_patiently(self, waiting: Sequence[_WaitingEntry]) -> None:
        """Write entries, again and again while the database is away."""
        pause = _FIRST_PAUSE
        while True:
            try:
                refused = self._write_together(waiting)
            except Exception as error:  # noqa: BLE001 - what a database says of one entry is not for the others
                if not is_away(error):
                    self._write_one_by_one(waiting, error)
                    return
                self._close_connection()
                _logger.warning("the log of durable runs can't be written, and they wait until it can be: %s", error)
                if self._end.wait(pause):
                    _refuse_entries(waiting)
                    return
                pause = min(_LONGEST_PAUSE, pause * 2)
            else:
                _refuse_entries(refused)
                for entry in waiting:
                    if entry not in refused:
                        entry.end(None)
                return

    def _write_one_by_one(self, waiting: Sequence[_WaitingEntry], error: Exception) -> None:
        """Write each entry by itself where the database does not take them together; end one that it does not take."""
        self._close_connection()
        if len(waiting) == 1:
            cause = error.orig if isinstance(error, DBAPIError) else error
            waiting[0].end(JournalError(f"{waiting[0]} can't be stored: {cause}"))
            return
        for entry in waiting:
            self._write_patiently([entry])

    def _write_together(self, waiting: Sequence[_WaitingEntry]) -> list[_WaitingEntry]:
        """Write entries in one transaction; return those that were refused."""
        connection = self._connection
        if connection is None:
            connection = self._connection = self._storage.engine.connect()
        refused: list[_WaitingEntry] = []
        contents: list[ContentRow] = []
        with connection.begin():
            # Locked in one order by all workers.
            for entry in sorted(waiting, key=lambda each: str(each.row["run_id"])):
                found = connection.execute(self._insert, entry.row)
                if found.rowcount == 0 and not _is_kept(connection, entry.row):
                    refused.append(entry)
                else:
                    contents += entry.contents
            keep_contents(connection, contents)
        return refused

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except DBAPIError as error:
                _logger.debug("a connection could not be closed: %s", error)


def _make_insert(storage: Storage) -> sa.Insert:
    """Return the statement that keeps an entry of the attempt that moves its run, and no other."""
    columns = [column.name for column in entries.c]
    values = [sa.bindparam(column.name, type_=column.type) for column in entries.c]
    mine = sa.select(*values).where(
        runs.c.run_id == sa.bindparam("run_id"), runs.c.attempt == sa.bindparam("attempt", type_=sa.Text())
    )
    insert = postgresql.insert(entries) if storage.is_postgres else sqlite.insert(entries)
    owner = mine.select_from(runs).with_for_update(read=True, key_share=True, of=runs)
    insert = insert.from_select(columns, owner).on_conflict_do_nothing()
    return insert.execution_options(preserve_rowcount=True)  # a refused one is known by it


def _is_kept(connection: sa.Connection, row: Mapping[str, Any]) -> bool:
    """Return whether an entry was kept although nobody heard of it, since the connection was lost just then."""
    found = sa.select(entries.c.name, entries.c.value).where(*(entries.c[name] == row[name] for name in _KEY))
    kept = connection.execute(found).one_or_none()
    return kept is not None and (kept.name, kept.value) == (row["name"], row["value"])


def read_kept_entries(
    connection: sa.Connection, storage: Storage, run_id: str, segments: Sequence[int]
) -> dict[str, dict[int, tuple[str, Any]]]:
    """Return what is kept of some segments of a run; the later ones go on where the earlier ones end."""
    query = sa.select(entries.c.path, entries.c.position, entries.c.name, entries.c.value)
    query = query.where(entries.c.run_id == run_id, entries.c.segment.in_(segments)).order_by(entries.c.segment)
    rows = connection.execute(query).all()
    values = restore_values(connection, storage.text, run_id, [_read_stored(storage, row.value) for row in rows])
    kept: dict[str, dict[int, tuple[str, Any]]] = {}
    for row, value in zip(rows, values, strict=True):
        kept.setdefault(row.path, {})[row.position] = (row.name, value)
    return kept


def _read_stored(storage: Storage, text: str) -> Any:
    try:
        return storage.text.read(text)
    except DurableError:
        return text
