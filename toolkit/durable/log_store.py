"""Durable runs as a store of run logs: the command line and the page read them as they read any run."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from toolkit.durable.contents import Encryption, restore_lines
from toolkit.durable.errors import DurableError
from toolkit.durable.rests import RESTING
from toolkit.durable.storage import Storage
from toolkit.durable.tables import events, runs
from toolkit.run_log.log import RunLog
from toolkit.run_log.stores import StoredLine, StoredRun

__all__ = ["DurableStore", "open_durable_log"]

_CHUNK = 1_000


class DurableStore:
    """A `RunStore` that only reads: workers write.

    Args:
        storage: The database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def append(self, run_id: str, lines: bytes) -> None:  # noqa: ARG002 - as the protocol has it
        """Refuse to write.

        Raises:
            DurableError: Always.
        """
        raise DurableError("the log of a durable run is written by its worker alone")

    def touch(self, run_ids: Iterable[str]) -> None:
        """Do nothing: a durable run is never cut off, another worker takes it up."""

    def close_run(self, run_id: str) -> None:
        """Do nothing."""

    def list_runs(self) -> list[StoredRun]:
        """Return the runs that have told something, newest first."""
        return self._select_runs(_LISTED.order_by(runs.c.created.desc()))

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        return next(iter(self._select_runs(_LISTED.where(runs.c.run_id == run_id))), None)

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the lines from a number on."""
        while True:
            query = sa.select(events.c.seq, events.c.line).where(events.c.run_id == run_id, events.c.seq >= start)
            with self._storage.engine.connect() as connection:
                rows = connection.execute(query.order_by(events.c.seq).limit(_CHUNK)).all()
                lines = restore_lines(connection, self._storage.text, run_id, [row.line for row in rows])
            for (seq, _), line in zip(rows, lines, strict=True):
                yield StoredLine(seq, seq + 1, line.encode() + b"\n")
            if len(rows) < _CHUNK:
                return
            start = rows[-1][0] + 1

    def read_last(self, run_id: str) -> bytes:
        """Return the last line."""
        query = sa.select(events.c.line).where(events.c.run_id == run_id).order_by(events.c.seq.desc()).limit(1)
        with self._storage.engine.connect() as connection:
            found = connection.execute(query).scalars().all()
            lines = restore_lines(connection, self._storage.text, run_id, found)
        return b"".join(line.encode() + b"\n" for line in lines)

    def add_answer(self, run_id: str, line: bytes) -> None:  # noqa: ARG002 - as the protocol has it
        """Refuse to write.

        Raises:
            DurableError: Always.
        """
        raise DurableError("decide on the calls of a durable run by `await run.decide(...)`")

    def read_answers(self, run_id: str) -> list[bytes]:  # noqa: ARG002 - as the protocol has it
        """Return nothing: decisions are no answers to questions."""
        return []

    def _select_runs(self, query: sa.Select[*tuple[Any, ...]]) -> list[StoredRun]:
        now = time.time()
        with self._storage.engine.connect() as connection:
            rows = connection.execute(query).all()
        return [
            StoredRun(
                id=run_id,
                where=f"{self._storage.url}, run {run_id}",
                seen=updated if state in RESTING else now,
                size=last,
            )
            for run_id, state, updated, last in rows
        ]


_LISTED = sa.select(runs.c.run_id, runs.c.state, runs.c.updated, runs.c.last_seq).where(runs.c.last_seq > 0)


def open_durable_log(url: str, encryption: Encryption | None = None) -> RunLog:
    """Return what reads the durable runs of a database as run logs; blocks.

    Its connections are closed when nobody has it anymore, since a run log has nothing to be closed.

    Raises:
        DatabaseUnavailableError: The database can't be reached.
    """
    storage = Storage(url, encryption)
    store = DurableStore(storage)
    weakref.finalize(store, storage.close)
    return RunLog.of_store(store, storage.url)
