"""Finds runs that nobody will move, since somebody deleted or cancelled their work in the engine's tables."""

from __future__ import annotations

import logging

import sqlalchemy as sa

from toolkit.durable.run_rows import ENDED_WORKFLOW
from toolkit.durable.storage import Storage, segment_id
from toolkit.durable.tables import database_now, runs

__all__ = ["fail_abandoned_runs"]

_logger = logging.getLogger("toolkit.durable")

_SILENT_SECONDS = 60.0
_MOST = 1_000


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
