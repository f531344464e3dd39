"""Writes the events of all runs of a worker, several runs in one transaction: what is told never waits for a disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from toolkit.durable.attempt_events import AttemptEvents
from toolkit.durable.content_rows import ContentRow, keep_contents
from toolkit.durable.storage import Storage
from toolkit.durable.tables import database_now, events, runs

__all__ = ["EventWriter"]

_logger = logging.getLogger("toolkit.durable")

_PIECE_SECONDS = 0.04
"""Between two transactions with texts of replies: they come in pieces of so long."""

_GAP_SECONDS = 0.01
"""Between any two transactions, or as long as the last one took."""

_RETRY_SECONDS = 0.5


class EventWriter:
    """A thread that writes.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._attempts: dict[str, AttemptEvents] = {}
        self._news = threading.Event()
        self._lock = threading.Lock()  # over what is written: one transaction at a time
        self._is_ending = False
        self._thread = threading.Thread(target=self._write_on, name="toolkit durable events", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end."""
        self._is_ending = True
        self._news.set()
        self._thread.join(5)

    def wake(self) -> None:
        """Say that there is something to write."""
        if not self._news.is_set():
            self._news.set()

    def open(self, attempt: AttemptEvents) -> None:
        """Write what this attempt tells from now on."""
        self._attempts[attempt.run_id] = attempt

    def finish(self, attempt: AttemptEvents, values: Mapping[str, Any], also: Callable[[sa.Connection], None]) -> None:
        """Write what is left of an attempt together with how its run stands now; blocks.

        Args:
            attempt: The attempt.
            values: The columns of the run's row.
            also: Writes more in the same transaction.

        Raises:
            Exception: The database is away.
        """
        with self._lock:
            attempt.release_end()
            self._write_rows([attempt], values, also)
            if self._attempts.get(attempt.run_id) is attempt:
                del self._attempts[attempt.run_id]

    def drop(self, attempt: AttemptEvents) -> None:
        """Write nothing more of an attempt."""
        if self._attempts.get(attempt.run_id) is attempt:
            del self._attempts[attempt.run_id]

    def _write_on(self) -> None:
        next_text = 0.0
        while not self._is_ending:
            has_text = any(each.has_text for each in list(self._attempts.values()))
            self._news.wait(max(0.0, next_text - time.monotonic()) if has_text else None)
            self._news.clear()
            began = time.monotonic()
            is_text_due = began >= next_text
            try:
                with self._lock:
                    waiting = [each for each in list(self._attempts.values()) if each.is_waiting]
                    if is_text_due and sum(each.cut_text() for each in waiting):
                        next_text = began + _PIECE_SECONDS
                    self._write_waiting(waiting)
            except Exception as error:  # noqa: BLE001 - whatever a database does, runs go on, and it is tried again
                _logger.warning("events of durable runs can't be written, and are kept until they can be: %s", error)
                self._news.set()
                time.sleep(_RETRY_SECONDS)
            time.sleep(max(_GAP_SECONDS, time.monotonic() - began))

    def _write_waiting(self, waiting: list[AttemptEvents]) -> None:
        """Write what waits; where the database does not take it together, that of each run by itself.

        Raises:
            Exception: The database is away, or does not take what one of them tells.
        """
        if not waiting:
            return
        try:
            self._write_rows(waiting, {})
        except SQLAlchemyError:
            if len(waiting) == 1:
                raise
            failures: list[SQLAlchemyError] = []
            for attempt in waiting:
                try:
                    self._write_rows([attempt], {})
                except SQLAlchemyError as error:
                    failures.append(error)
            if failures:
                raise failures[0] from None

    def _write_rows(
        self,
        attempts: list[AttemptEvents],
        values: Mapping[str, Any],
        also: Callable[[sa.Connection], None] | None = None,
    ) -> None:
        now = database_now(self._storage.engine)
        written: list[tuple[AttemptEvents, int]] = []
        # Made before the transaction begins, which keeps others waiting; locked in one order by all workers.
        made = [(each, each.take_rows()) for each in sorted(attempts, key=lambda each: each.run_id)]
        made = [(each, taken) for each, taken in made if taken or values]
        if not made:
            return
        with self._storage.engine.begin() as connection:
            rows: list[dict[str, Any]] = []
            contents: list[ContentRow] = []
            for attempt, taken in made:
                if self._claim_row(connection, attempt, {**values, "updated": now}, taken):
                    rows += taken
                    contents += attempt.contents
                    written.append((attempt, len(taken)))
            if rows:
                # A transaction may have been committed whose answer was lost with the connection.
                insert = postgresql.insert if self._storage.is_postgres else sqlite.insert
                connection.execute(insert(events).on_conflict_do_nothing(), rows)
                keep_contents(connection, contents)
            if also is not None and written:
                also(connection)
        for attempt, count in written:
            attempt.confirm(count)

    def _claim_row(
        self, connection: sa.Connection, attempt: AttemptEvents, values: dict[str, Any], taken: list[dict[str, Any]]
    ) -> bool:
        """Set how a run stands, where this attempt is the one that moves it; return whether it is."""
        if taken:
            values["last_seq"] = taken[-1]["seq"]
        found = connection.execute(
            runs.update().where(runs.c.run_id == attempt.run_id, runs.c.attempt == attempt.attempt).values(values)
        )
        if found.rowcount == 0 and not attempt.is_refused:
            attempt.is_refused = True
            _logger.info("run %s was taken over: what this worker tells of it is refused", attempt.run_id)
        if found.rowcount == 0:
            self.drop(attempt)
        return found.rowcount > 0
