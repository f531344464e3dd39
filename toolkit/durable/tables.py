"""The tables beside those of the engine: who is at work, what was told, what was said to a run, and where each stands.

The engine's own tables say which segments there are, who moves each, and what it left. A run's truth is the log of the
segment that moves, which is here, or the output of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

__all__ = [
    "TABLES_VERSION",
    "contents",
    "database_now",
    "delete_workflows",
    "entries",
    "events",
    "find_executor",
    "inbox",
    "runs",
    "schema",
    "versions",
    "workers",
]

TABLES_VERSION = 4
"""The version of these tables, and of what the log of a segment holds."""

_MOST_AT_ONCE = 1_000

schema = sa.MetaData()
"""All of them."""

versions = sa.Table("toolkit_versions", schema, sa.Column("version", sa.Integer, primary_key=True))

runs = sa.Table(
    "toolkit_runs",
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("loop", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Text),  # the token of the process that moves it: others' events are refused
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),  # attempts in a row that have not told how they ended
    sa.Column("ended", sa.Integer, nullable=False),  # calls that had come to their end when the last of them began
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("updated", sa.Double, nullable=False),
    sa.Column("due", sa.Double),  # when the decisions that it awaits expire, by the database's clock
    # A key, so that Postgres lets entries and events of a run be written at once, and none while `attempt` changes.
    sa.UniqueConstraint("run_id", "attempt"),
    sa.Index("toolkit_runs_by_state", "state", "updated"),
    sa.Index("toolkit_runs_by_creation", "created", "run_id"),
    sa.Index("toolkit_runs_in_state", "state", "created", "run_id"),
    sa.Index("toolkit_runs_by_due", "due"),
)

events = sa.Table(
    "toolkit_events",
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("entry", sa.Text),  # the entry of the log that says the same, to tell what a take-over has to tell anew
    sa.Column("line", sa.Text, nullable=False),
)

inbox = sa.Table(
    "toolkit_inbox",
    schema,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),  # a second decision on a call has the same, and is refused
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("segment", sa.Integer),  # that took it; null while none did, 0 where none ever will
    sa.UniqueConstraint("run_id", "key"),
    sa.Index("toolkit_inbox_waiting", "segment", "id"),
    sqlite_autoincrement=True,
)

entries = sa.Table(
    "toolkit_entries",  # the log of each segment; the engine knows a segment as one piece of work
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("path", sa.Text, primary_key=True),  # the calls that the log of a sub-agent is inside of
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
)

contents = sa.Table(
    "toolkit_contents",  # large texts of entries, events, messages and rests, each once for a run
    schema,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

workers = sa.Table(
    "toolkit_workers",
    schema,
    sa.Column("executor", sa.Text, primary_key=True),
    sa.Column("beats", sa.Integer, nullable=False),
    sa.Column("lease", sa.Double, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("seen", sa.Double, nullable=False),
)


def database_now(engine: sa.Engine) -> sa.ColumnElement[Any]:
    """Return the time by the database's clock in seconds since 1970: the one clock that all processes share."""
    if engine.dialect.name == "postgresql":
        return sa.extract("epoch", sa.func.clock_timestamp())
    return (sa.func.julianday("now") - 2440587.5) * 86400.0


def find_executor(connection: sa.Connection, workflow_id: str) -> str | None:
    """Return the worker to which the engine has given a workflow."""
    table = _engine_table(connection, "workflow_status")
    query = sa.select(table.c.executor_id).where(table.c.workflow_uuid == workflow_id)
    return connection.scalar(query)


def delete_workflows(connection: sa.Connection, workflow_ids: Sequence[str]) -> None:
    """Delete workflows of the engine in a transaction of ours; it would do so in one of its own."""
    for first in range(0, len(workflow_ids), _MOST_AT_ONCE):
        ids = workflow_ids[first : first + _MOST_AT_ONCE]
        for name in ("workflow_input", "workflow_output", "operation_outputs", "workflow_status"):
            table = _engine_table(connection, name)
            connection.execute(table.delete().where(table.c.workflow_uuid.in_(ids)))


def _engine_table(connection: sa.Connection, name: str) -> sa.TableClause:
    columns = [sa.column("workflow_uuid", sa.Text), sa.column("executor_id", sa.Text)]
    return sa.table(name, *columns, schema="dbos" if connection.dialect.name == "postgresql" else None)
