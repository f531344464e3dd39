"""Looks for news of all runs that are followed in this process: one query at a time, however many follow them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

import anyio
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from toolkit.dataclass import dataclass
from toolkit.durable.tables import runs
from toolkit.runtime.backend import loop_waker

__all__ = ["EventWatch"]

_logger = logging.getLogger("toolkit.durable")

_FIRST_SECONDS = 0.01
_RUNNING_SECONDS = 0.02
"""Between two looks at a run that moves, however long it has told nothing."""

_SLOW_SECONDS = 0.25
"""The same for a run that waits for a worker or for a decision."""

_SLOWER = 1.3
_GAP_SECONDS = 0.01
_MOST = 500


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
    """A thread that looks while somebody waits.

    Args:
        engine: The database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._readers: dict[int, _WaitingReader] = {}
        self._numbers = count(1)
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None

    async def wait_for_news(self, run_id: str, after: int, state: str) -> None:
        """Return when a run has told something new, stands otherwise or is gone, or the database is away.

        Args:
            run_id: The run.
            after: The number of the last event that is known.
            state: How the run stood.
        """
        if self._is_over:
            await anyio.sleep(_SLOW_SECONDS)
            return
        wake, has_news = loop_waker(), anyio.Event()
        next_look = time.monotonic() + _FIRST_SECONDS
        number = next(self._numbers)
        reader = _WaitingReader(number, run_id, after, state, lambda: wake(has_news.set), _FIRST_SECONDS, next_look)
        with self._changed:
            self._readers[number] = reader
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_on, name="toolkit durable watch", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            await has_news.wait()
        finally:
            with self._changed:
                self._readers.pop(number, None)

    def stop(self) -> None:
        """End."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
            for each in self._readers.values():
                each.wake()
        if self._thread is not None:
            self._thread.join(5)

    def _look_on(self) -> None:
        while not self._is_over:
            due = self._wait_for_due()
            for first in range(0, len(due), _MOST):
                self._look_at(due[first : first + _MOST])
            time.sleep(_GAP_SECONDS)

    def _wait_for_due(self) -> list[_WaitingReader]:
        """Return the readers for whom it is time to look; wait until there are some, or until this ends."""
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                due = [each for each in self._readers.values() if each.next_look <= now]
                if due:
                    return due
                next_look = min((each.next_look for each in self._readers.values()), default=None)
                self._changed.wait(None if next_look is None else max(_GAP_SECONDS, next_look - now))
        return []

    def _look_at(self, due: Sequence[_WaitingReader]) -> None:
        query = sa.select(runs.c.run_id, runs.c.last_seq, runs.c.state)
        query = query.where(runs.c.run_id.in_({each.run_id for each in due}))
        found: dict[str, tuple[int, str]] = {}
        try:
            with self._engine.connect() as connection:
                found = {run_id: (last_seq, state) for run_id, last_seq, state in connection.execute(query).all()}
        except SQLAlchemyError as error:  # those who wait ask the database themselves, and say what is wrong
            _logger.debug("durable runs can't be looked at: %s", error)
        now = time.monotonic()
        for each in due:
            last_seq, state = found.get(each.run_id, (-1, ""))
            if last_seq > each.after or state != each.state:
                with self._changed:
                    self._readers.pop(each.number, None)
                each.wake()
            else:
                longest = _RUNNING_SECONDS if state == "running" else _SLOW_SECONDS
                each.pause = min(longest, each.pause * _SLOWER)
                each.next_look = now + each.pause
