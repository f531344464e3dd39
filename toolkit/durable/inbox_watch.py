"""Delivers messages and decisions to the runs that move here, and resumes those at rest.

A call that nobody decided in time is denied. Runs whose work somebody deleted or cancelled in the engine's tables are
found and ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

import sqlalchemy as sa

from toolkit.calls.approval import Deny
from toolkit.durable.inbox_rows import InboxRows, write_decision
from toolkit.durable.run_rows import ENDED_WORKFLOW, RunRows
from toolkit.durable.segments import SegmentRunner
from toolkit.durable.storage import Storage, segment_id
from toolkit.durable.tables import database_now, runs
from toolkit.errors import ToolkitError
from toolkit.secrets import without_keys

__all__ = [
    "deny_expired",
    "fail_abandoned_runs",
    "InboxWatch",
]


_logger = logging.getLogger("toolkit.durable")

_LOOK_SECONDS = 0.15
_IDLE_LOOK_SECONDS = 0.5
"""Where nothing moves here: who says something to a run at rest has it go on, and this is for one who ended before."""

_DUE_SECONDS = 1.0
_AGAIN_SECONDS = 1.0
"""After which a run that did not go on with what was said to it is tried again: its rest may not have been kept yet."""

_SEARCH_SECONDS = 30.0
_MOST = 1_000


class InboxWatch:
    """A thread that looks into the inbox.

    Args:
        storage: The database.
        runner: Moves runs here.
        keep_seconds: After which runs that have ended are deleted; None keeps them.
    """

    def __init__(self, storage: Storage, runner: SegmentRunner, keep_seconds: float | None) -> None:
        self._keep_seconds = keep_seconds
        self._storage = storage
        self._rows = RunRows(storage)
        self._inbox = InboxRows(storage)
        self._runner = runner
        self._tried: dict[str, tuple[int, float]] = {}  # the newest item that a run was to go on with, and when
        self._searched = ""
        self._next_search = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch_on, name="toolkit durable inbox", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._thread.join(5)

    def _watch_on(self) -> None:
        next_due = 0.0
        while not self._end.wait(_LOOK_SECONDS if self._runner.active else _IDLE_LOOK_SECONDS):
            try:
                self._deliver_items()
                if time.monotonic() >= next_due:
                    next_due = time.monotonic() + _DUE_SECONDS
                    self._tidy_up()
            except Exception as error:  # noqa: BLE001 - whatever a database does, it is tried again
                _logger.warning("what is said to durable runs could not be read: %s", error)
                self._end.wait(1.0)

    def _tidy_up(self) -> None:
        for run_id in self._rows.find_due(_MOST):
            self._try_run(run_id, partial(deny_expired, self._rows, self._inbox, run_id))
        if time.monotonic() >= self._next_search:
            self._searched = fail_abandoned_runs(self._storage, self._searched)
            self._next_search = time.monotonic() + _SEARCH_SECONDS
        if self._keep_seconds is not None:
            for run_id in self._rows.find_ended(self._keep_seconds, _MOST):
                self._try_run(run_id, partial(self._rows.delete_ended, run_id, self._keep_seconds))

    def _deliver_items(self) -> None:
        active = self._runner.active
        if active:
            for run_id, items in self._inbox.find_said(active).items():
                self._try_run(run_id, partial(self._runner.deliver, run_id, items))
        now = time.monotonic()
        for run_id, newest in self._inbox.find_called(_MOST).items():
            tried = self._tried.get(run_id)
            if tried is None or tried[0] != newest or now - tried[1] > _AGAIN_SECONDS:
                self._tried[run_id] = (newest, now)
                self._try_run(run_id, partial(self._rows.begin_next, run_id))

    def _try_run(self, run_id: str, work: Callable[[], object]) -> None:
        """Do something for a run; one that can't be read holds up no other."""
        try:
            work()
        except (ToolkitError, ValueError, LookupError) as error:
            _logger.warning("run %s can't be taken on: %s", run_id, without_keys(str(error)))


def deny_expired(rows: RunRows, inbox: InboxRows, run_id: str) -> None:
    """Deny each call of a run that awaits a decision for too long."""
    row = rows.read(run_id)
    rest = rows.read_rest(row)
    denied = write_decision(Deny("Tool call denied: nobody decided in time."))
    for pending in [] if rest is None else rest.pending:
        inbox.put_decision(run_id, row.segment, pending.call_id, pending.binding, denied)
    rows.begin_next(run_id)


_SILENT_SECONDS = 60.0


def fail_abandoned_runs(storage: Storage, after: str) -> str:
    """Take note of runs of which nothing was written for a minute, and whose work is not in the engine; blocks.

    They stand as failed then: `status` says why, and `retry` has one go on whose work was cancelled.

    Args:
        storage: The database.
        after: Only runs of ids behind this one are looked at.

    Returns:
        The id to go on behind; empty where all were looked at.
    """
    silent = database_now(storage.engine) - _SILENT_SECONDS
    query = sa.select(runs.c.run_id, runs.c.segment).where(
        runs.c.state.in_(("queued", "running")), runs.c.updated < silent, runs.c.run_id > after
    )
    with storage.engine.connect() as connection:
        rows = connection.execute(query.order_by(runs.c.run_id).limit(_MOST)).all()
    ids = [segment_id(run_id, segment) for run_id, segment in rows]
    found = storage.client.list_workflows(workflow_ids=ids, load_input=False, load_output=False) if ids else []
    moving = {each.workflow_id for each in found if each.status not in ENDED_WORKFLOW}
    for run_id, segment in rows:
        if segment_id(run_id, segment) in moving:
            continue
        mine = runs.update().where(runs.c.run_id == run_id, runs.c.segment == segment, runs.c.updated < silent)
        with storage.engine.begin() as connection:
            if connection.execute(mine.values(state="failed", attempt=None)).rowcount:
                _logger.warning("run %s has failed: its work is not in the engine anymore", run_id)
    return str(rows[-1][0]) if len(rows) == _MOST else ""
