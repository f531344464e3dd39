"""Reads the events of runs as they are written, or as the store of run logs.

The followers of all runs in a process share one thread, `EventWatch`, which finds new events by one query at a time.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Literal

import anyio
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from toolkit.dataclass import dataclass
from toolkit.durable.rests import RESTING
from toolkit.durable.rows import RunRows
from toolkit.durable.storage import DatabaseThread, Storage, events, restore_lines, runs
from toolkit.errors import DatabaseUnavailableError, DurableError
from toolkit.events import load_event
from toolkit.logs import get_logger
from toolkit.loop.events import LoopEvent
from toolkit.run_log.entries import RECORDS, read_line
from toolkit.run_log.log import RunLog
from toolkit.run_log.stores import StoredLine, StoredRun
from toolkit.runtime.backend import loop_waker
from toolkit.stored_text import Encryption

_logger = get_logger("toolkit.durable")
_CHUNK = 500
_FIRST_SECONDS = 0.01
_RUNNING_SECONDS = 0.02
"""The time between two looks at a run that moves, however long it has emitted nothing."""
_SLOW_SECONDS = 0.25
"""The same for a run that waits for a worker or for a decision."""
_SLOWER = 1.3
_GAP_SECONDS = 0.01
_MOST = 500
_LISTED = sa.select(runs.c.run_id, runs.c.state, runs.c.updated, runs.c.last_seq).where(runs.c.last_seq > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableEvent:
    """An event of a durable run.

    Args:
        seq: Its number in the run, from 1, with no event twice; some numbers are those of records that are no events.
        turn: The turn of the run's own loop in which it was emitted; 0 before the first.
        attempt: The process that emitted it. If that changes during a turn, the text of the turn's reply so far is
            void: the model is asked again.
        event: The event.
    """

    seq: int
    turn: int
    attempt: str
    event: LoopEvent


@dataclass(frozen=True, slots=True)
class EventLine:
    """A line of a run's log, as JSON text; see `DurableEvent`."""

    seq: int
    turn: int
    attempt: str
    text: str


def read_lines(storage: Storage, run_id: str, after: int) -> Iterator[EventLine]:
    """Yield the lines of a run after a number, read in chunks; blocks."""
    chosen = sa.select(events.c.seq, events.c.turn, events.c.attempt, events.c.line).where(events.c.run_id == run_id)
    has_more = True
    while has_more:
        with storage.engine.connect() as connection:
            rows = connection.execute(chosen.where(events.c.seq > after).order_by(events.c.seq).limit(_CHUNK)).all()
            lines = restore_lines(connection, storage.text, run_id, [row.line for row in rows])
        for row, line in zip(rows, lines, strict=True):
            yield EventLine(row.seq, row.turn, row.attempt, line)
        has_more = len(rows) == _CHUNK
        after = rows[-1].seq if rows else after


class RunFollower(AsyncIterator[DurableEvent]):
    """Waits for the events of one run after a number, as `DurableRun.events` does; it needs no closing."""

    def __init__(
        self, storage: Storage, watch: EventWatch, run_id: str, after: int, until: Literal["rest", "end"]
    ) -> None:
        self._storage = storage
        self._watch = watch
        self._rows = RunRows(storage)
        self._run_id = run_id
        self._after = after
        self._until = until
        self._found: deque[DurableEvent] = deque()
        self._state = ""

    async def __anext__(self) -> DurableEvent:
        while not self._found:
            try:
                is_at_end = await self._storage.ask(self._read_on)
            except DatabaseUnavailableError:
                await anyio.sleep(_SLOW_SECONDS)
                continue
            if is_at_end:
                raise StopAsyncIteration
            if not self._found:
                await self._watch.wait_for_news(self._run_id, self._after, self._state)
        return self._found.popleft()

    def _read_on(self) -> bool:
        """Read new events; return whether the run is at rest and all were read."""
        self._read_new()
        if self._found:
            return False
        row = self._rows.read(self._run_id)
        self._state = row.state
        is_at_end = row.state in RESTING and (self._until == "rest" or row.state != "waiting")
        if is_at_end:
            self._read_new()  # those written between the two
        return is_at_end and not self._found and self._after >= row.last_seq

    def _read_new(self) -> None:
        for line in read_lines(self._storage, self._run_id, self._after):
            self._after = line.seq
            plain = read_line(line.text.encode())
            if plain is not None and plain["event"] not in RECORDS:
                event = load_event(plain)
                self._found.append(DurableEvent(seq=line.seq, turn=line.turn, attempt=line.attempt, event=event))
            if len(self._found) >= _CHUNK:
                return


@dataclass(slots=True)
class _WaitingReader:
    number: int
    run_id: str
    after: int
    state: str
    wake: Callable[[], object]
    pause: float
    next_look: float


class EventWatch:
    """Finds new events in a thread while readers wait."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._readers: dict[int, _WaitingReader] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._thread: DatabaseThread | None = None
        self._is_over = False

    async def wait_for_news(self, run_id: str, after: int, state: str) -> None:
        """Return when a run has events after a number or another state, was deleted, or the database is unavailable."""
        if self._is_over:
            await anyio.sleep(_SLOW_SECONDS)
            return
        wake, has_news = loop_waker(), anyio.Event()
        next_look = time.monotonic() + _FIRST_SECONDS
        number = next(self._numbers)
        reader = _WaitingReader(number, run_id, after, state, lambda: wake(has_news.set), _FIRST_SECONDS, next_look)
        with self._lock:
            self._readers[number] = reader
            if self._thread is None:
                self._thread = DatabaseThread("watch", self._look_for_news)
                self._thread.start()
            self._thread.wake()
        try:
            await has_news.wait()
        finally:
            with self._lock:
                self._readers.pop(number, None)

    def stop(self) -> None:
        """Stop the thread, and wake the readers."""
        with self._lock:
            self._is_over = True
            for each in self._readers.values():
                each.wake()
        if self._thread is not None:
            self._thread.stop()

    def _look_for_news(self) -> float | None:
        """Check the runs whose readers are due; return the seconds until the next one is."""
        now = time.monotonic()
        with self._lock:
            due = [each for each in self._readers.values() if each.next_look <= now]
        for first in range(0, len(due), _MOST):
            self._look_at(due[first : first + _MOST])
        time.sleep(_GAP_SECONDS)
        with self._lock:
            next_look = min((each.next_look for each in self._readers.values()), default=None)
        return None if next_look is None else max(0.0, next_look - time.monotonic())

    def _look_at(self, due: Sequence[_WaitingReader]) -> None:
        query = sa.select(runs.c.run_id, runs.c.last_seq, runs.c.state)
        query = query.where(runs.c.run_id.in_({each.run_id for each in due}))
        found: dict[str, tuple[int, str]] = {}
        try:
            found = {run_id: (last_seq, state) for run_id, last_seq, state in self._storage.fetch(query)}
        except SQLAlchemyError as error:  # readers ask the database themselves, and raise
            _logger.debug("durable runs can't be looked at: %s", error)
        now = time.monotonic()
        for each in due:
            last_seq, state = found.get(each.run_id, (-1, ""))
            if last_seq > each.after or state != each.state:
                with self._lock:
                    self._readers.pop(each.number, None)
                each.wake()
            else:
                longest = _RUNNING_SECONDS if state == "running" else _SLOW_SECONDS
                each.pause = min(longest, each.pause * _SLOWER)
                each.next_look = now + each.pause


class DurableStore:
    """A read-only `RunStore`: workers write."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def append(self, run_id: str, lines: bytes) -> None:  # noqa: ARG002 - as the protocol has it
        """Refuse to write."""
        raise DurableError("the log of a durable run is written by its worker alone")

    def touch(self, run_ids: Iterable[str]) -> None:
        """Do nothing: a durable run is never cut off, since another worker resumes it."""

    def close_run(self, run_id: str) -> None:
        """Do nothing."""

    def list_runs(self, limit: int | None = None) -> list[StoredRun]:
        """Return the runs that have events, newest first."""
        return self._select_runs(_LISTED.order_by(runs.c.created.desc()).limit(limit))

    def find_run(self, run_id: str) -> StoredRun | None:
        """Return one run as it is now."""
        return next(iter(self._select_runs(_LISTED.where(runs.c.run_id == run_id))), None)

    def read_lines(self, run_id: str, start: int = 0) -> Iterator[StoredLine]:
        """Yield the lines from a number on."""
        for each in read_lines(self._storage, run_id, start - 1):
            yield StoredLine(each.seq, each.seq + 1, each.text.encode() + b"\n")

    def read_last(self, run_id: str) -> bytes:
        """Return the last line."""
        query = sa.select(events.c.line).where(events.c.run_id == run_id).order_by(events.c.seq.desc()).limit(1)
        with self._storage.engine.connect() as connection:
            found = connection.execute(query).scalars().all()
            lines = restore_lines(connection, self._storage.text, run_id, found)
        return b"".join(line.encode() + b"\n" for line in lines)

    def add_answer(self, run_id: str, line: bytes) -> None:  # noqa: ARG002 - as the protocol has it
        """Refuse to write."""
        raise DurableError("decide on the calls of a durable run by `await run.decide(...)`")

    def read_answers(self, run_id: str) -> list[bytes]:  # noqa: ARG002 - as the protocol has it
        """Return nothing: decisions are stored elsewhere."""
        return []

    def _select_runs(self, query: sa.Select[*tuple[Any, ...]]) -> list[StoredRun]:
        now = time.time()
        return [
            StoredRun(
                id=run_id,
                where=f"{self._storage.url}, run {run_id}",
                seen=updated if state in RESTING else now,
                size=last,
            )
            for run_id, state, updated, last in self._storage.fetch(query)
        ]


def open_durable_log(url: str, encryption: Encryption | None = None) -> RunLog:
    """Return the durable runs of a database as run logs; blocks.

    The connections are closed when the log is collected, since a run log has no `close`.
    """
    storage = Storage(url, encryption)
    store = DurableStore(storage)
    weakref.finalize(store, storage.close)
    return RunLog.of_store(store, storage.url)
