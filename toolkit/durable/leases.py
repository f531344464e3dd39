"""The signs of life of workers: each counts in a row, and the runs of one whose count stands still are handed over.

No two clocks are compared. A worker is dead when its count has not changed for one lease, by the clock of the one that
looks, and while the database could be read all that time. However wrong that is, nothing is lost: the engine refuses
what a worker writes whose run was handed over.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable

import sqlalchemy as sa
from dbos import WorkflowStatus
from sqlalchemy.exc import SQLAlchemyError

from toolkit.dataclass import dataclass
from toolkit.durable.run_rows import SEGMENT_WORKFLOW, queue_name
from toolkit.durable.storage import ENGINE_NAME, Storage
from toolkit.durable.tables import database_now, workers

__all__ = ["LeaseKeeper"]

_logger = logging.getLogger("toolkit.durable")

_BEATS_A_LEASE = 5
_FORGET_SECONDS = 86_400.0


@dataclass(slots=True)
class _Seen:
    beats: int
    since: float  # by our own clock


class LeaseKeeper:
    """A thread that says that this worker is there, and hands over the runs of those that are not.

    Args:
        storage: The database.
        executor: The name of this worker.
        lease: Seconds after which a worker that says nothing is dead.
        loops: The loops that this worker serves: it hands over their runs.
    """

    def __init__(self, storage: Storage, executor: str, lease: float, loops: Iterable[str]) -> None:
        self._storage = storage
        self._executor = executor
        self._lease = lease
        self._queues = {queue_name(name) for name in loops}
        self._seen: dict[str, _Seen] = {}
        self._last_look: float | None = None
        self._last_search = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="toolkit durable lease", daemon=True)

    def start(self) -> None:
        """Say for the first time that this worker is there, and go on in a thread."""
        self._beat_once()
        self._thread.start()

    def stop(self) -> None:
        """Say that this worker is gone: what it has not finished is handed over at once."""
        self._end.set()
        self._thread.join(5)
        try:
            with self._storage.engine.begin() as connection:
                connection.execute(workers.update().where(workers.c.executor == self._executor).values(beats=-1))
        except SQLAlchemyError as error:
            _logger.info("the end of worker %s could not be told: %s", self._executor, error)

    def _beat_on(self) -> None:
        while not self._end.wait(self._lease / _BEATS_A_LEASE):
            try:
                self._beat_once()
                self._hand_over(self._find_dead())
            except Exception as error:  # noqa: BLE001 - whatever a database does, it is tried again
                self._last_look = None
                _logger.warning("the lease of worker %s could not be renewed: %s", self._executor, error)

    def _beat_once(self) -> None:
        mine = workers.c.executor == self._executor
        now = database_now(self._storage.engine)
        with self._storage.engine.begin() as connection:
            found = connection.execute(workers.update().where(mine).values(beats=workers.c.beats + 1, seen=now))
            if found.rowcount == 0:
                row = {"executor": self._executor, "beats": 1, "lease": self._lease}
                connection.execute(workers.insert().values(**row, host=socket.gethostname(), seen=now))

    def _find_dead(self) -> set[str]:
        """Look at the counts; return the workers that are dead where this worker is the one that hands over."""
        now = time.monotonic()
        with self._storage.engine.begin() as connection:
            rows = connection.execute(sa.select(workers.c.executor, workers.c.beats, workers.c.lease)).all()
            connection.execute(
                workers.delete().where(workers.c.seen < database_now(self._storage.engine) - _FORGET_SECONDS)
            )
        if self._last_look is None or now - self._last_look > self._lease:
            self._seen.clear()  # the database was away, or this process frozen: all are given another lease
        self._last_look = now
        leases = {executor: lease for executor, _, lease in rows}
        for executor, beats, _ in rows:
            seen = self._seen.get(executor)
            if seen is None or seen.beats != beats:
                self._seen[executor] = _Seen(beats, now)
        dead = {
            executor
            for executor, seen in self._seen.items()
            if seen.beats < 0 or now - seen.since > leases.get(executor, self._lease)
        }
        alive = [executor for executor in leases if executor not in dead]
        is_first = bool(alive) and min(alive) == self._executor
        if not is_first:
            return set()
        if now - self._last_search > self._lease / 2:  # the one query here that grows with what moves
            self._last_search = now
            dead |= self._find_unknown(set(leases), now)
        return dead

    def _find_unknown(self, known: set[str], now: float) -> set[str]:
        """Return the workers that have runs and no row anymore, and had none for one lease."""
        pending = [each.executor_id for each in self._list_pending(None)]
        unknown = {executor for executor in pending if executor is not None} - known
        for executor in [each for each in self._seen if each not in known and each not in unknown]:
            del self._seen[executor]
        for executor in unknown:
            self._seen.setdefault(executor, _Seen(0, now))
        return {each for each in unknown if now - self._seen[each].since > self._lease}

    def _list_pending(self, executors: list[str] | None) -> list[WorkflowStatus]:
        return self._storage.client.list_workflows(
            status="PENDING",
            name=SEGMENT_WORKFLOW,
            executor_id=executors,
            queue_name=sorted(self._queues),
            application_name=ENGINE_NAME,
            load_input=False,
            load_output=False,
        )

    def _hand_over(self, dead: set[str]) -> None:
        if not dead:
            return
        by_queue: dict[str, list[str]] = defaultdict(list)
        for each in self._list_pending(sorted(dead)):
            if each.queue_name is not None:
                by_queue[each.queue_name].append(each.workflow_id)
        for queue, ids in by_queue.items():
            self._storage.client.resume_workflows(ids, queue_name=queue)
            _logger.warning("%d durable runs of workers that are gone are handed over", len(ids))
